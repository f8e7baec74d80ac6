"""The screen of `rmq top`, on embedded clusters: what each view shows, and its keys."""

from __future__ import annotations

import re

import pytest

from rmqcli import Admin, Consumer
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.top.messages import MessageView
from tests.admin.dlq.letters import client_of, make_letters
from tests.cli.top.screen import on_screen

#: A name that Textual and rich would read as markup, with an escape sequence.
ODD = "[red]\x1b[31m[/red]"


def commit(cluster, group, topic, offset, *, broker=0):
    cluster.create_group(group)
    with client_of(cluster) as client:
        call = update_consumer_offset(group, topic, 0, commit_offset=offset)
        client.invoke(cluster.brokers[broker].address, call)


def committed(cluster, group, topic):
    with Admin(namesrv=cluster.namesrv) as admin:
        return [queue.committed for queue in admin.lag(group, topics=[topic]).queues]


@pytest.fixture
def cluster():
    """`billing` has 7 messages of `orders` to read, and `idle` none."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.create_topic("quiet", queues=2)
        cluster.send("orders", [f"{ODD} {number}" for number in range(10)], tags="A")
        commit(cluster, "billing", "orders", 3)
        commit(cluster, "idle", "orders", 10)
        yield cluster


def test_groups_are_shown_first_the_worst_on_top_with_the_command(cluster):
    async def story(screen):
        await screen.until("billing", "idle")
        assert screen.lines[1] == (
            " 1 groups  2 topics  3 brokers  4 doctor  5 clusters  (2 by state)"
        )
        assert screen.lines[2].split()[:3] == ["GROUP", "LAG", "AGE"]
        row = screen.lines[3].split()
        assert (row[0], row[1], row[-3:]) == ("billing", "7", ["STOPPED", "0", "0"])
        assert screen.lines[4].startswith("idle       0")
        assert screen.lines[-2:] == [
            "$ rmq lag --watch 200ms -n here:9876",
            "? help  d dead letters  q quit  / filter  f find  s sort",
        ]

    on_screen(cluster.namesrv, story, flags=["-n", "here:9876"])


@pytest.mark.slow
def test_from_a_group_to_a_queue_to_a_message_and_its_verdicts(cluster):
    async def story(screen):
        await screen.until("billing")
        await screen.press("enter")
        await screen.until("billing has 7 messages to read", "KNOWN")
        assert screen.line("$") == "$ rmq lag billing --explain --sample 10s"
        assert screen.line("orders").split()[:5] == [
            "orders",
            "broker-a",
            "0",
            "10",
            "7",
        ]
        await screen.press("enter")
        await screen.until("tail orders broker-a:0", f"{ODD[:5]}\\x1b[31m[/red] 9")
        assert screen.line("$") == "$ rmq tail orders --queue broker-a:0"
        cluster.send("orders", ["the newest"], tags="B")
        await screen.until("the newest")
        await screen.press("enter")
        await screen.until("stored", "waiting")
        assert screen.line("$") == "$ rmq message show orders@broker-a:0:10"
        assert screen.line("billing ").split()[:2] == ["billing", "waiting"]
        await screen.press("tab")
        await screen.until("the newest", "MESSAGE")
        await screen.press("escape", "escape")
        await screen.until("billing has 8 messages to read")

    on_screen(cluster.namesrv, story)


def test_that_several_messages_have_one_name_is_said(cluster):
    """The newest was shown, as if there were no other."""
    (first,) = cluster.send("quiet", ["first"])
    again = Seed(body=b"again", properties={"UNIQ_KEY": first.msg_id})
    cluster.send("quiet", [again])
    view = MessageView(first.msg_id, "quiet")
    with client_of(cluster) as client:
        view.take(view.read(client))
        assert view.notes() == ["2 messages have this name; the newest is shown"]
        view = MessageView("quiet@broker-a:0:0")
        view.take(view.read(client))
        assert view.notes() == []


@pytest.mark.slow
def test_members_and_what_they_have_cached(cluster):
    with Consumer("billing", "orders", lambda _m: None, namesrv=cluster.namesrv):

        async def story(screen):
            await screen.until("billing has read everything", "1 member is online")
            await screen.press("tab")
            await screen.until("LANGUAGE", "PYTHON")
            await screen.press("tab")
            await screen.until("CACHED", "LAST PULL")
            assert screen.line("orders").split()[:3] == ["orders", "broker-a", "0"]

        on_screen(cluster.namesrv, story, group="billing", size=(140, 24))


def test_topics_with_their_queues_and_groups(cluster):
    async def story(screen):
        await screen.press("2")
        await screen.until("quiet", "0.0")
        assert screen.line("$") == "$ rmq topics --sample 10s"
        assert screen.line("orders").split() == [
            "orders",
            "rw",
            "1",
            "0.0",
            "10",
            "broker-a",
        ]
        await screen.press("enter")
        await screen.until("groups: billing, idle", "MAX")
        assert screen.line("$") == "$ rmq topic show orders"
        assert screen.line("broker-a").split()[:4] == ["broker-a", "0", "0", "10"]
        await screen.press("tab")
        await screen.until("STOPPED")
        assert screen.line("$") == "$ rmq lag --topic orders"
        await screen.press("enter")
        await screen.until("billing has 7 messages to read")

    on_screen(cluster.namesrv, story)


def test_rates_are_those_of_what_was_stored_meanwhile(cluster):
    async def story(screen):
        await screen.press("2")
        await screen.until("0.0")
        cluster.send("orders", ["more"] * 1_000)
        await screen.until("1010")
        rate = float(screen.line("orders").split()[3])
        assert 0 < rate <= 10_000

    on_screen(cluster.namesrv, story)


def test_brokers_and_what_one_reports(cluster):
    async def story(screen):
        await screen.press("3")
        await screen.until("DefaultCluster: 1 broker", "MASTER")
        assert screen.line("$") == "$ rmq cluster"
        await screen.press("enter")
        await screen.until("brokerVersionDesc")
        assert screen.line("$") == "$ rmq broker show broker-a"
        await screen.press("tab")
        await screen.until("defaultTopicQueueNums")

    on_screen(cluster.namesrv, story, size=(80, 60))


def test_what_the_doctor_finds_with_a_command_to_try(cluster):
    async def story(screen):
        await screen.press("4")
        await screen.until("access-control", "try: rmq broker show broker-a --settings")
        assert screen.line("$") == "$ rmq doctor"

    on_screen(cluster.namesrv, story)


def test_dead_letters_and_the_message_that_one_was(cluster):
    make_letters(cluster, "billing", "orders", ["broken"])

    async def story(screen):
        await screen.until("billing")
        await screen.press("d")
        await screen.until("ORIGIN", "broken")
        assert screen.line("$") == "$ rmq dlq show billing"
        await screen.press("o")
        await screen.until("dead", "a copy is in the dead-letter topic")
        await screen.press("escape")
        await screen.press("enter")
        await screen.until("%DLQ%billing@broker-a", "no group of its topic is known")

    on_screen(cluster.namesrv, story)


@pytest.mark.slow
def test_filter_find_and_sort(cluster):
    for group in ("apple", "Banana", "cherry"):
        commit(cluster, group, "orders", 10)

    async def story(screen):
        def groups():
            return re.findall(r"^(\w+) +\d", screen.text, re.MULTILINE)

        await screen.until("apple")
        assert groups() == ["billing", "Banana", "apple", "cherry", "idle"]
        await screen.press("/")
        await screen.type("AN")
        assert groups() == ["Banana"]
        assert "> /AN > (1 by state)" in screen.text.replace(" /AN", "> /AN", 1)
        await screen.press("/", *["backspace"] * 2)
        await screen.type("nobody")
        assert "nothing contains 'nobody'" in screen.text
        await screen.press("escape")
        assert len(groups()) == 5
        await screen.press("f")
        await screen.type("cher")
        await screen.press("enter")
        await screen.until("cherry has read everything")
        await screen.press("escape", "s", "s", "s")
        await screen.until("(5 by group)")
        assert groups() == ["Banana", "apple", "billing", "cherry", "idle"]
        await screen.press("S")
        assert groups() == ["idle", "cherry", "billing", "apple", "Banana"]

    on_screen(cluster.namesrv, story)


def test_keys_that_come_together_are_all_taken(cluster):
    """A slow line brings them so: the text after / was lost, or other keys' work."""

    async def story(screen):
        await screen.until("billing", "idle")
        screen.type_ahead("/", *"idle")
        await screen.until("show only rows with:")
        await screen.press("enter")
        await screen.until("(1 by state)")
        assert "billing" not in screen.text

    on_screen(cluster.namesrv, story)


def test_without_allow_changes_no_key_changes_anything(cluster):
    async def story(screen):
        await screen.until("billing")
        assert "r reset" not in screen.text
        await screen.press("r")
        assert "reset" not in screen.text
        await screen.press("enter")
        await screen.until("billing has 7")
        await screen.press("r", "x")
        assert "reset" not in screen.text

    on_screen(cluster.namesrv, story)
    assert committed(cluster, "billing", "orders") == [3]


def test_a_reset_is_planned_confirmed_by_name_applied_and_read_back(cluster):
    async def story(screen):
        await screen.until("billing", "r reset")
        await screen.press("r")
        await screen.until("reset billing in orders to")
        await screen.type("5")
        await screen.until("x changes the offsets in 1 queue")
        assert (
            screen.line("$")
            == "$ rmq reset-offset billing orders --to 5 --execute -n h:1"
        )
        assert screen.line("broker-a").split()[:5] == ["broker-a", "0", "3", "5", "2"]
        await screen.press("x")
        await screen.until("Type billing to confirm:")
        await screen.type("billin")
        await screen.until("Not confirmed: 'billing' was not typed.")
        assert committed(cluster, "billing", "orders") == [3]
        await screen.press("x")
        await screen.type("billing")
        await screen.until("1 queue: 1 CONFIRMED; to undo: rmq", "CONFIRMED")
        assert "x apply" not in screen.text
        return screen.app.done

    done = on_screen(cluster.namesrv, story, allow_changes=True, flags=["-n", "h:1"])
    assert committed(cluster, "billing", "orders") == [5]
    assert re.fullmatch(
        r"reset billing in orders to 5: 1 queue: 1 CONFIRMED; to undo: rmq reset-offset"
        r" billing orders -n h:1 --undo [\w-]+ --execute",
        "".join(done),
    )


def test_a_reset_is_not_applied_again_when_its_view_is_shown_again(cluster):
    """It went over the messages that had come in the meantime."""

    async def story(screen):
        await screen.until("billing")
        await screen.press("r")
        await screen.type("latest")
        await screen.until("x changes the offsets in 1 queue")
        await screen.press("x")
        await screen.type("billing")
        await screen.until("1 queue: 1 CONFIRMED; to undo: rmq")
        await screen.press("?")
        await screen.until("WHAT IT DOES")
        cluster.send("orders", ["later"])
        await screen.press("escape")
        await screen.until("1 queue: 1 CONFIRMED; to undo: rmq")
        assert screen.app.join(60_000)
        return screen.app.done

    done = on_screen(cluster.namesrv, story, allow_changes=True)
    assert committed(cluster, "billing", "orders") == [10]
    assert len(done) == 1


def test_a_reset_to_what_is_no_position_says_so_and_changes_nothing(cluster):
    async def story(screen):
        await screen.until("billing")
        await screen.press("r")
        await screen.type("yesterday")
        await screen.until("'yesterday'")
        await screen.until("It could not be planned, see below; nothing is changed.")
        assert "Planning" not in screen.text
        assert "x apply" not in screen.text

    on_screen(cluster.namesrv, story, allow_changes=True)
    assert committed(cluster, "billing", "orders") == [3]


def test_while_no_server_answers_nothing_looks_new(cluster):
    async def story(screen):
        await screen.until("billing", "STOPPED")
        for broker in cluster.brokers:
            broker.hang()
        await screen.until("no answer since", "UNKNOWN")
        assert screen.line("billing").split()[1] == "7"
        assert "STOPPED" not in screen.text
        await screen.press("down")  # keys are not held up
        await screen.press("?")
        await screen.until("WHAT IT DOES")
        await screen.press("escape")
        for broker in cluster.brokers:
            broker.resume()
        await screen.until("STOPPED")
        assert "no answer since" not in screen.lines[0]

    on_screen(cluster.namesrv, story, timeout_ms=1_000)


def test_one_broker_of_two_that_died_is_named_and_its_groups_are_unknown():
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"], broker="broker-a")
        for broker in (0, 1):
            commit(cluster, "billing", "orders", 0, broker=broker)

        async def story(screen):
            await screen.until("billing", "STOPPED")
            cluster.broker("broker-b").kill()
            await screen.until("UNKNOWN", "broker-b:")
            assert screen.line("billing").split()[1] == "-"
            await screen.press("3")
            await screen.until("broker-a  MASTER")

        on_screen(cluster.namesrv, story)


@pytest.mark.slow
def test_a_broker_that_is_silent_or_left_the_list_stays_on_the_screen():
    with EmbeddedCluster(brokers=2) as cluster:

        async def story(screen):
            await screen.press("3")
            await screen.until("broker-b  MASTER")
            cluster.broker("broker-b").hang()
            await screen.until("broker-b: no answer since")
            assert "broker-a: " not in screen.text
            cluster.broker("broker-b").resume()
            await screen.until_gone("no answer since")
            cluster.broker("broker-b").kill()
            await screen.until("not in the list of brokers any more; last seen")
            assert screen.line("broker-b").split()[:3] == ["broker-b", "-", "-"]

        on_screen(cluster.namesrv, story, timeout_ms=1_000, size=(150, 24))


def test_no_name_server_is_said_with_what_to_do():
    async def story(screen):
        await screen.until("connection refused", "check --namesrv")
        assert screen.lines[0].endswith("no answer")
        # "(0 by state)" said that there are no groups.
        assert screen.lines[1].endswith("5 clusters  (by state)")

    on_screen("127.0.0.1:1", story)


def test_a_group_that_does_not_exist(cluster):
    async def story(screen):
        await screen.until("group nobody does not exist; list groups with: rmq groups")
        await screen.press("escape")
        await screen.until("billing")

    on_screen(cluster.namesrv, story, group="nobody")


@pytest.mark.slow
def test_names_are_shown_and_never_obeyed(cluster):
    """Markup of Textual, which a group may have in its name, is only text."""
    commit(cluster, "%red_-|", "orders", 1)

    async def story(screen):
        await screen.until("%red_-|")
        await screen.press("2")
        await screen.until("quiet")
        await screen.press("enter", "t")
        await screen.until("[red]\\x1b[31m[/red] 9")
        assert "\x1b" not in screen.text

    on_screen(cluster.namesrv, story)


def test_a_screen_that_becomes_too_small_and_large_again(cluster):
    async def story(screen):
        await screen.until("billing")
        await screen.resize(20, 5)
        await screen.until("The terminal has 20", "quits.")
        assert len(screen.lines) == 5
        await screen.resize(100, 30)
        await screen.until("billing", "DEAD")

    on_screen(cluster.namesrv, story)


def test_in_the_smallest_terminal_a_question_can_be_read(cluster):
    """The line for its answer made the terminal too small, and hid the question."""

    async def story(screen):
        await screen.until("billing")
        await screen.press("f")
        await screen.until(" find:")
        assert screen.line("billing")
        await screen.press("escape")
        await screen.until("? help")
        await screen.resize(60, 9)
        await screen.until("The terminal has 60 x 9 cells.")

    on_screen(cluster.namesrv, story, size=(60, 10))


def test_the_mouse_chooses_and_opens_rows(cluster):
    async def story(screen):
        await screen.until("billing", "idle")
        await screen.click(2, 4, times=2)
        await screen.until("idle has read everything")

    on_screen(cluster.namesrv, story)


def test_q_ends_it_with_0_and_ctrl_c_with_130(cluster):
    async def quit_by(screen, key):
        await screen.until("billing")
        await screen.press(key)
        return screen.app.return_value

    for key, code in (("q", 0), ("ctrl+c", 130)):
        found = on_screen(cluster.namesrv, lambda screen, k=key: quit_by(screen, k))
        assert found == code
