"""What the views of `rmq top` show, without a terminal."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rmqcli import Admin
from rmqcli.api.client import Client
from rmqcli.cli.lag.view import queue_columns, summary_columns
from rmqcli.cli.main import run
from rmqcli.cli.top import messages
from rmqcli.cli.top.brokers import BrokersView, BrokerView
from rmqcli.cli.top.feed import Closed
from rmqcli.cli.top.frame import FramePainter
from rmqcli.cli.top.groups import GroupsView, GroupView
from rmqcli.cli.top.messages import LettersView, MessageView, TailView
from rmqcli.cli.top.topics import TopicQueuesView, TopicsView
from rmqcli.config import ClientConfig
from rmqcli.testing import ManualClock, Seed, faults
from rmqcli.wire.bodies.config import TopicConfig, TopicConfigSerializeWrapper
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import make_letters
from tests.cli.top.test_app import commit
from tests.cli.top.test_frame import content, lines_of
from tests.kit.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from rmqcli.cli.top.view import View


def test_a_broker_that_has_another_address_is_shown_once(rmq_cluster):
    """It was also shown as one that is not in the list of brokers any more."""
    view = BrokersView()
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        found = view.read(client)
    view.take(found)
    moved = [replace(each, address="10.0.0.9:10911") for each in found.rows]
    view.take(replace(found, rows=moved))
    assert [(row["address"], row["error"]) for row in view.rows()] == [
        ("10.0.0.9:10911", None)
    ]


@pytest.mark.parametrize("width", [80, 110])
def test_the_columns_of_groups_depend_on_the_width_only(rmq_cluster, width):
    """TREND grew with each reading, and others came and went."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_group("billing")
    view, painter, headings = GroupsView(), FramePainter(), set()
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for _ in range(25):
            view.take(view.read(client))
            shown = content(rows=view.rows(), columns=view.columns)
            headings.add(lines_of(painter.draw(shown, width, 12))[2])
    assert len(headings) == 1


def test_rocketmq_s_own_groups_are_hidden_as_in_the_command_of_the_screen(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    for group in ("billing", "CID_RMQ_SYS_TRANS"):
        rmq_cluster.create_group(group)
        rmq_cluster.send("orders", ["x"])
        commit(rmq_cluster, group, "orders", 0)
    view = GroupsView()
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert [row["group"] for row in view.rows()] == ["billing"]


def test_columns_of_rates_are_there_before_there_are_rates():
    columns = summary_columns(with_trend=True, with_spark=True)
    row = {"group": "billing", "total_lag": 7, "state": "OK", "topics": []}
    row |= {"spark": " " * 10, "members": []}
    later = row | {"rate_in": 1.5, "rate_out": 2.5, "drain_ms": 7_000}
    headings = {
        lines_of(FramePainter().draw(content(rows=[each], columns=columns), 80, 12))[2]
        for each in (row, later)
    }
    assert headings == {
        "GROUP    LAG  IN/S  OUT/S  DRAIN  TREND       STATE  TOPICS  QUEUES  MEMBERS"
    }


def test_on_80_columns_queues_of_two_brokers_do_not_look_alike():
    """Once there was a verdict, BROKER was hidden first."""
    row = {"topic": "orders", "queue_id": 0, "lag": 1, "age_ms": 15_200}
    row |= {"rate_in": 0.0, "rate_out": 0.0, "verdict": "NO_COMMIT"}
    row |= {"state": "NO_COMMIT", "spark": " " * 10}
    rows = [{**row, "broker_name": f"broker-{name}"} for name in "ab"]
    columns = queue_columns(with_group=False, with_trend=True, with_spark=True)
    lines = lines_of(FramePainter().draw(content(rows=rows, columns=columns), 80, 12))
    assert [line.split()[:2] for line in lines[3:5]] == [
        ["orders", "broker-a"],
        ["orders", "broker-b"],
    ]


def test_where_letters_cannot_be_read_the_notes_say_what_helps(rmq_cluster_factory):
    """A broker of 4.6.0 refuses pulls of dead letters, and hides where they are."""
    cluster = rmq_cluster_factory(queues=1, like="4.6.0")
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", "ab")
    view = LettersView("billing")
    view.flags = ("--profile", "shop")  # else it would be asked of another cluster
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    error, hint = view.notes()
    assert "%DLQ%billing is write-only" in error
    assert hint == (
        "make it readable: rmq topic update %DLQ%billing --profile shop --perm rw"
        " --broker broker-a"
    )


def test_more_letters_than_are_kept_are_told_with_the_command_that_shows_them(
    rmq_cluster, monkeypatch
):
    monkeypatch.setattr(messages, "KEPT_MAX", 2)
    rmq_cluster.create_topic("%DLQ%billing", queues=1)
    rmq_cluster.send("%DLQ%billing", ["x"] * 2)
    notes = []
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for _ in range(2):
            view = LettersView("billing")
            view.take(view.read(client))
            notes.append(view.notes())
            rmq_cluster.send("%DLQ%billing", ["x"])
    assert notes == [[], ["there are more: rmq dlq show billing"]]


def test_a_topic_is_introduced_with_its_type_its_brokers_and_its_groups(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1, attributes={"message.type": "FIFO"})
    intros = []
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for group in ("a", "b"):
            view = TopicQueuesView("orders")
            view.take(view.read(client))
            intros.append(view.intro(None))
            commit(cluster, group, "orders", 0)
    assert intros == [
        ("FIFO topic on broker-a, broker-b", "groups: none that is known"),
        ("FIFO topic on broker-a, broker-b", "groups: a"),
    ]


def test_beyond_a_number_of_topics_only_those_on_the_screen_have_numbers(
    rmq_cluster, monkeypatch
):
    monkeypatch.setattr("rmqcli.cli.top.topics.ASKED_MAX", 2)
    notes, view = [], TopicsView()
    view.on_screen = ("b",)
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for topic in "abc":
            rmq_cluster.create_topic(topic, queues=1)
            rmq_cluster.send(topic, ["x"])
            view.take(view.read(client))
            notes.append(view.notes())
    assert notes == [
        [],
        [],
        ["IN/S and MESSAGES are read of the topics on the screen only"],
    ]
    assert [row["messages"] for row in view.rows()] == [None, 1, None]


def test_the_command_for_the_groups_of_a_topic_prints_the_same_table(
    rmq_cluster, capsys, monkeypatch
):
    """It named the groups, and printed their queues without members and letters."""
    monkeypatch.setenv("NAMESRV_ADDR", rmq_cluster.namesrv)
    rmq_cluster.create_topic("orders", queues=1)
    for group in "abc":
        commit(rmq_cluster, group, "orders", 0)
    view = TopicQueuesView("orders")
    view.next_part()
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert [row["group"] for row in view.rows()] == list("abc")
    assert run(list(view.command)) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        column.heading for column in view.columns if column.title is not None
    ]
    assert [row.split()[0] for row in rows] == list("abc")


def test_the_command_of_a_group_prints_its_rates_too():
    """It printed the queues without the rates and the time to drain of the screen."""
    view = GroupView("billing")
    assert " ".join(view.command) == "lag billing --explain --sample 10s"
    view.next_part()
    assert " ".join(view.command) == "lag billing --process-queues"


def left_by_broker_b(factory):
    """Return a cluster that broker-b has left, where a group had read orders."""
    cluster = factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["x"] * 3, broker="broker-a")
    cluster.send("orders", ["x"] * 4, broker="broker-b")
    for broker in (0, 1):
        commit(cluster, "billing", "orders", 0, broker=broker)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view = TopicsView()
        view.take(view.read(client))
        assert [row["messages"] for row in view.rows()] == [7]
        groups = GroupsView()
        groups.take(groups.read(client))
        cluster.broker("broker-b").kill()
        wait_until(lambda: "broker-b" not in client.cluster_info(refresh=True).brokers)
    return cluster


def test_a_topic_that_a_broker_had_that_has_left_has_no_number_of_messages(
    rmq_cluster_factory,
):
    """It had that of the brokers that were left, and nothing said so."""
    cluster = left_by_broker_b(rmq_cluster_factory)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("quiet", queue_nums=1, brokers=["broker-a"])
    cluster.send("quiet", ["x"], broker="broker-a")
    view = TopicsView()
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert [(row["topic"], row["messages"]) for row in view.rows()] == [
        ("orders", None),
        ("quiet", 1),
    ]
    (note,) = view.notes()
    assert note.startswith("broker-b is no longer in the route (last seen ")
    assert note.endswith(
        "what was only there is not listed; if it was removed for good: rmq lag"
        " --forget"
    )


def test_a_broker_that_had_left_before_is_a_row(rmq_cluster_factory):
    """A screen that was opened later showed one healthy broker, and nothing else."""
    cluster = left_by_broker_b(rmq_cluster_factory)
    view = BrokersView()
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    left, gone = view.rows()
    assert (left["broker_name"], left["error"]) == ("broker-a", None)
    assert (gone["broker_name"], gone["version"]) == ("broker-b", None)
    assert gone["error"].startswith("not in the list of brokers any more; last seen ")


def test_groups_of_a_topic_are_not_all_of_them_while_a_broker_is_away(
    rmq_cluster_factory,
):
    cluster = left_by_broker_b(rmq_cluster_factory)
    view = TopicQueuesView("orders")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert view.intro(None)[1] == "groups: at least billing"


def test_a_long_body_is_not_shown_as_if_it_were_whole(rmq_cluster):
    """On a wide terminal it ended after 200 bytes, or in the midst of its JSON."""
    rmq_cluster.create_topic("orders", queues=1)
    body = '{"name": "' + "ä" * 300 + '"}'
    rmq_cluster.send("orders", [body])
    message = MessageView("orders@broker-a:0:0")
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        message.take(message.read(client))
    message.width = 60
    assert message.intro(None)[1] == (
        '  {"name": "ääääääääääääääääää…äääääääää... (412 bytes more)'
    )


def test_a_letter_that_was_redriven_is_marked(rmq_cluster, monkeypatch):
    """As rmq dlq show says; the screen showed it like a letter without a redrive."""
    monkeypatch.setenv("NAMESRV_ADDR", rmq_cluster.namesrv)
    rmq_cluster.create_topic("orders", queues=1)
    make_letters(rmq_cluster, "billing", "orders", ["a", "b"])
    found = []
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for words in ((), ("--grep", "a"), ()):
            if words:
                redrive = ["dlq", "redrive", "billing", *words, "--execute", "--yes"]
                assert run(redrive) == 0
            view = LettersView("billing")
            view.take(view.read(client))
            found.append(sorted((r["body"], r["redriven"]) for r in view.rows()))
    assert found == [
        [("a", None), ("b", None)],
        [("a", "yes"), ("b", "no")],
        [("a", "yes"), ("b", "no")],
    ]


def test_the_number_of_messages_of_a_compacted_topic_is_unknown(rmq_cluster):
    """It was the difference of its offsets, as if nothing had been removed."""
    rmq_cluster.create_topic(
        "prices", queues=1, attributes={"cleanup.policy": "COMPACTION"}
    )
    rmq_cluster.send("prices", ["x"] * 5)
    topics, queues = TopicsView(), TopicQueuesView("prices")
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        views: tuple[View, ...] = (topics, queues)
        for view in views:
            view.take(view.read(client))
    assert [(row["topic"], row["messages"]) for row in topics.rows()] == [
        ("prices", None)
    ]
    assert [(row["max_offset"], row["messages"]) for row in queues.rows()] == [
        (5, None)
    ]


def test_a_static_topic_is_shown_without_numbers(rmq_cluster):
    """It was left out, although it is among those of rmq topics."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["x"] * 5)
    settings = TopicConfigSerializeWrapper(
        topic_config_table={"orders": TopicConfig(topic_name="orders")},
        topic_queue_mapping_detail_map={"orders": {}},
    )
    told = faults.answer(0, body=encode_body(settings))
    rmq_cluster.faults.add(told, code=RequestCode.GET_ALL_TOPIC_CONFIG)
    view = TopicsView()
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert [(row["topic"], row["kind"], row["messages"]) for row in view.rows()] == [
        ("orders", "static", None)
    ]
    assert view.notes() == ["offsets of static topics do not tell IN/S and MESSAGES"]


def test_two_members_that_hold_a_queue_are_two_rows():
    """The cursor stays on a row by its key."""
    view = GroupView("billing")
    queue = {"topic": "orders", "broker_name": "broker-a", "queue_id": 0}
    rows = [{**queue, "client_id": name} for name in ("c1", "c2")]
    keys = []
    for view.part in (0, 1, 2):
        keys.append([view.key_of(row) for row in rows])
    place = ("orders", "broker-a", 0)
    assert keys == [[place, place], ["c1", "c2"], [(*place, "c1"), (*place, "c2")]]


def test_of_a_paused_group_it_is_said_first_that_its_consumption_is_off(rmq_cluster):
    """The screen only said that nothing is read until a member starts, unlike the
    command that it names."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["one"])
    commit(rmq_cluster, "billing", "orders", 0)
    view = GroupView("billing")
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    with Admin(namesrv=rmq_cluster.namesrv) as admin, Client(config) as client:
        admin.pause_group("billing")
        view.take(view.read(client))
    assert view.intro(None)[0] == (
        "Its consumption is switched off on broker-a: members get no messages from"
        " there. Switch it on with: rmq group resume billing"
    )


def test_what_is_denied_of_groups_is_noted(rmq_cluster):
    """The cells were empty, or those of the members that were told, and no more."""
    for name in ("orders", "%DLQ%billing"):
        rmq_cluster.create_topic(name, queues=1)
    rmq_cluster.create_group("billing")
    commit(rmq_cluster, "billing", "orders", 0)
    for topic in ("DefaultHeartBeatSyncerTopic", "%DLQ%billing"):
        rmq_cluster.faults.add(faults.answer(16, "no rights"), topic=topic)
    views: tuple[View, ...] = (GroupsView(), GroupView("billing"))
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for view in views:
            view.take(view.read(client))
    members, letters = sorted(views[0].notes(), reverse=True)
    assert members.startswith("billing: members behind proxies are not known: broker-a")
    assert letters.startswith("billing: broker-a: stats of topic %DLQ%billing: ")
    letters, members = views[1].notes()
    assert letters.startswith("broker-a: stats of topic %DLQ%billing: ")
    assert members.startswith("members behind proxies are not known: broker-a: ")


def test_the_settings_of_a_broker_are_of_a_command_that_prints_them():
    view = BrokerView("broker-a")
    assert view.command == ["broker", "show", "broker-a"]
    view.next_part()
    assert view.command == ["broker", "show", "broker-a", "--settings"]


def test_the_whole_text_of_a_message_is_shown_in_lines_that_fit(rmq_cluster):
    """What a line had no room for was left out."""
    rmq_cluster.create_topic("orders", queues=1)
    body = " ".join(f"word-{number:03}" for number in range(50))
    rmq_cluster.send("orders", [body])
    view = MessageView("orders@broker-a:0:0")
    view.next_part()
    view.width = 60
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        view.take(view.read(client))
    lines = lines_of(
        FramePainter().draw(content(rows=view.rows(), columns=view.columns), 60, 40)
    )
    words = [word for line in lines for word in line.split() if "word" in word]
    assert words == body.split()


def test_a_tail_says_that_there_is_no_message_only_where_there_is_none(rmq_cluster):
    """It said so of each topic until its messages had come."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_topic("quiet", queues=1)
    rmq_cluster.send("orders", ["a"])
    texts = {}
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for topic in ("orders", "quiet"):
            view = TailView(topic)
            with suppress(Closed):
                view.run(OnePost(client, view))
            texts[topic] = (view.none, len(view.rows()))
    assert texts == {"orders": ("reading ...", 0), "quiet": ("no message yet", 0)}


@pytest.mark.slow
@pytest.mark.parametrize(("kept", "shown"), [(500, 17), (5, 5)])
def test_a_tail_that_begins_anew_goes_on_where_it_ended(
    rmq_cluster, monkeypatch, kept, shown
):
    """It showed the last 10 messages; those before were neither shown nor counted."""
    monkeypatch.setattr(messages, "KEPT_MAX", kept)
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["a"] * 4)
    view = TailView("orders")
    match = faults.Match(code=RequestCode.PULL_MESSAGE)
    denied = faults.Rule(match, faults.answer(16, "no permission"))
    had: list[int] = []

    class Outage(Posts):
        def post(self, answer):
            super().post(answer)
            if len(view.rows()) == 4 and not had:
                had.append(4)
                rmq_cluster.faults.add_rule(denied)
                rmq_cluster.send("orders", ["b"])  # ends the pull that waits
            if view.rows() and view.rows()[0]["queue_offset"] == 16:
                raise Closed

        def pause(self, duration_ms):
            had[0] = view.rows()[0]["queue_offset"] + 1
            rmq_cluster.faults.remove(denied)
            rmq_cluster.send("orders", ["c"] * 12)

    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    with Client(config) as client, suppress(Closed):
        view.run(Outage(client, view))
    assert [row["queue_offset"] for row in view.rows()] == [*range(16, 16 - shown, -1)]
    left_out = 17 - had[0] - shown
    assert view.intro(None) == (
        (f"{left_out} messages came faster than they can be shown",)
        if left_out > 0
        else ()
    )


def test_a_tail_shows_the_messages_of_a_topic_that_was_created_again(rmq_cluster):
    """They have the offsets of those that are on the screen, and were left out."""
    view = TailView("orders")

    class UntilShown(Posts):
        def post(self, answer):
            super().post(answer)
            if answer.rows:
                raise Closed

        def pause(self, duration_ms):
            raise Closed

    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    for bodies in (["a", "b"], ["c"]):
        rmq_cluster.create_topic("orders", queues=1)
        rmq_cluster.send("orders", bodies)
        with Client(config) as client, suppress(Closed):
            view.run(UntilShown(client, view))
        with Admin(namesrv=rmq_cluster.namesrv) as admin:
            admin.delete_topic("orders")
    shown = [(row["queue_offset"], row["body"]) for row in view.rows()]
    assert shown == [(0, "c"), (1, "b")]


@pytest.mark.slow
@pytest.mark.parametrize("stored_again", [7, 2])
def test_a_tail_opened_again_shows_the_whole_of_a_topic_that_was_made_anew(
    rmq_cluster, stored_again
):
    """What lay before the offset where it had ended was skipped, and nothing said."""
    view = TailView("orders")

    class UntilBody(Posts):
        def post(self, answer):
            super().post(answer)
            shown = {row["body"] for row in view.rows()}
            if wanted <= shown:
                raise Closed
            assert time.monotonic() < end, shown

        def pause(self, duration_ms):
            raise AssertionError(view.notes())

    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    end = time.monotonic() + PATIENCE_S
    for bodies in (
        [f"old {n}" for n in range(4)],
        [f"new {n}" for n in range(stored_again)],
    ):
        rmq_cluster.create_topic("orders", queues=1)
        rmq_cluster.send("orders", bodies)
        wanted = set(bodies)
        with Client(config) as client, suppress(Closed):
            view.run(UntilBody(client, view))
        with Admin(namesrv=rmq_cluster.namesrv) as admin:
            admin.delete_topic("orders")
    shown = [row["body"] for row in view.rows()]
    assert shown.count("new 0") == 1


@pytest.mark.slow
def test_a_tail_keeps_its_place_in_queues_whose_broker_was_away_when_it_was_opened(
    rmq_cluster_factory,
):
    """What was stored meanwhile was left out: it went on at the end of the queue."""
    cluster = rmq_cluster_factory(queues=1, brokers=2)
    cluster.create_topic("orders")
    cluster.send("orders", ["a", "b"])
    view = TailView("orders")
    end = time.monotonic() + PATIENCE_S

    def read(is_enough):
        class Until(Posts):
            def post(self, answer):
                super().post(answer)
                if is_enough(answer, {row["body"] for row in view.rows()}):
                    raise Closed
                assert time.monotonic() < end, view.rows()

            def pause(self, duration_ms):
                raise AssertionError(view.notes())

        config = ClientConfig(namesrv=(cluster.namesrv,))
        with Client(config) as client, suppress(Closed):
            view.run(Until(client, view))

    read(lambda answer, shown: not answer.is_reading and len(shown) == 2)
    match = faults.Match(broker="broker-b")
    away = faults.Rule(match, faults.answer(14, "the service is not available"))
    cluster.faults.add_rule(away)
    read(lambda answer, _shown: len(answer.said) > 1)
    cluster.faults.remove(away)
    cluster.send("orders", ["c", "d"])
    read(lambda _answer, shown: shown == {"a", "b", "c", "d"})


def test_a_tail_that_cannot_read_what_is_stored_does_not_read_for_ever(rmq_cluster):
    """It said "reading ..." until a message came."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["a"])
    denied = faults.answer(16, "no permission")
    rmq_cluster.faults.add(denied, code=RequestCode.PULL_MESSAGE)
    view = TailView("orders")

    class UntilKnown(Posts):
        def post(self, answer):
            super().post(answer)
            if answer.said and not answer.is_reading:
                raise Closed

        def pause(self, duration_ms):
            raise Closed

    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    with Client(config) as client, suppress(Closed):
        view.run(UntilKnown(client, view))
    assert view.none == "no new message yet"


def test_where_a_broker_has_more_messages_of_a_name_their_number_is_a_minimum(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(queues=1, clock=ManualClock(now_ms=1_700_000_000_000))
    cluster.create_topic("orders")
    cluster.send("orders", [Seed(body=b"x", keys=["k"]) for _ in range(5)])
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.apply_settings(
            admin.plan_broker_settings({"maxMsgsNumBatch": "3"}, brokers=["broker-a"])
        )
    view = MessageView("k", "orders")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view.take(view.read(client))
    assert "more than 3 messages have this name; the newest is shown" in view.notes()


class Posts:
    """A feed that gives each answer to its view."""

    def __init__(self, client, view):
        self.client = client
        self._view = view

    def begin(self):
        pass

    check = begin

    def post(self, answer):
        self._view.take(answer)


class OnePost:
    """A feed that is closed after the first answer."""

    def __init__(self, client, view):
        self.client = client
        self._view = view

    def begin(self):
        pass

    check = begin

    def pause(self, duration_ms):
        raise Closed

    def post(self, answer):
        self._view.take(answer)
        raise Closed
