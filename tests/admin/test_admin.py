"""`Admin` on the embedded cluster: its methods do what the commands do."""

from __future__ import annotations

import inspect
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rmqcli import Consumer, Definitions, connect
from rmqcli.admin.admin import Admin
from rmqcli.admin.reset.result import QueueResult
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    ConfigError,
    ConnectError,
    DecodeError,
    DeniedError,
    NotFoundError,
    PartialError,
    RefusedError,
    TextError,
    UsageError,
)
from rmqcli.model import MessageQueue
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import send_damaged
from tests.admin.message.damage import damage_record
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import free_port

#: Answers of a name server that does not know all brokers of a topic yet.
TOPIC_UNKNOWN = faults.answer(17, "No topic route info in name server for: fresh")
ON_ONE_BROKER = faults.answer(
    0,
    body=b"""{
        "brokerDatas": [{
            "brokerAddrs": {"0": "127.0.0.1:1"},
            "brokerName": "broker-a",
            "cluster": "DefaultCluster"
        }],
        "filterServerTable": {},
        "queueDatas": [{
            "brokerName": "broker-a",
            "perm": 6,
            "readQueueNums": 1,
            "topicSysFlag": 0,
            "writeQueueNums": 1
        }]
    }""",
)


@pytest.fixture
def admin(rmq_cluster, tmp_path):
    with Admin(namesrv=rmq_cluster.namesrv, backups=tmp_path / "backups") as admin:
        yield admin


@pytest.fixture
def orders(rmq_cluster):
    """A topic with ten messages in each of two queues, where billing is at offset 3."""
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    for queue_id in range(2):
        rmq_cluster.send(
            "orders",
            [
                Seed(body=b"%d-%d" % (queue_id, n), tags="AB"[n % 2], keys=(f"k{n}",))
                for n in range(10)
            ],
            queue_id=queue_id,
        )
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    with Client(config) as client:
        for queue_id in range(2):
            call = update_consumer_offset(
                "billing", "orders", queue_id, commit_offset=3
            )
            client.invoke(rmq_cluster.broker().address, call)
    return "orders"


def offsets(admin):
    """Return the committed offsets of group billing, by queue id."""
    return {each.queue_id: each.committed for each in admin.lag("billing").queues}


def test_threads_may_share_an_admin(admin, orders):
    """Their calls failed: "a callback may submit requests, but not wait for them"."""
    with ThreadPoolExecutor(4) as threads:
        lags = list(threads.map(admin.lag, ["billing"] * 40))
        with pytest.raises(NotFoundError, match="group nobody does not exist"):
            list(threads.map(admin.lag, ["nobody"] * 4))
        asks = [admin.topics, admin.groups, admin.dead_letters, admin.brokers] * 4
        assert all(each.result() for each in map(threads.submit, asks))
    assert [each.total_lag for each in lags] == [14] * 40


def test_lag_of_one_group_and_of_all(admin, orders):
    lag = admin.lag("billing")
    assert (lag.group, lag.total_lag) == ("billing", 14)
    assert [each.lag for each in lag.queues] == [7, 7]
    assert {each.group: each.total_lag for each in admin.lags().groups} == {
        "billing": 14
    }
    assert admin.lags().failures == []
    with pytest.raises(NotFoundError, match="group nobody does not exist"):
        admin.lag("nobody")


def test_a_lag_is_explained_as_by_the_command(rmq_cluster, admin, orders, capfd):
    said = admin.explain_lag("billing")
    assert said[0].startswith("billing has 14 messages to read; the oldest has waited")
    assert said[1:] == [
        "No member is online: nothing is read until one starts.",
        "50% of it is in orders@broker-a:0.",
    ]
    command = ["lag", "billing", "--process-queues", "--explain", "-o", "json"]
    assert run([*command, "-n", rmq_cluster.namesrv]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert said[1:] == row["explain"][1:]
    assert admin.explain_lag("billing", topics=["orders"])[1:] == said[1:]
    with pytest.raises(NotFoundError, match="group nobody does not exist"):
        admin.explain_lag("nobody")


def test_an_explanation_says_what_members_hold_and_which_call_helps(
    rmq_cluster, admin, orders
):
    begun, go_on = threading.Event(), threading.Event()

    def listener(_message):
        begun.set()
        go_on.wait(PATIENCE_S)

    admin.pause_group("billing")
    assert admin.explain_lag("billing")[0] == (
        "Its consumption is switched off on broker-a: members get no messages from"
        " there. Switch it on with: Admin.resume_group('billing')"
    )
    admin.resume_group("billing")
    with Consumer("billing", orders, listener, namesrv=rmq_cluster.namesrv):
        try:
            assert begun.wait(PATIENCE_S)
            said = admin.explain_lag("billing")
        finally:
            go_on.set()
    assert said[1] == "1 member is online."
    assert said[2].startswith("50% of it is in orders@broker-a:0, held by 127.0.0.1@")


def test_the_broker_that_did_not_tell_its_groups_is_beside_the_others(
    rmq_cluster_factory,
):
    """A group that only this broker had was left out, and nothing said so."""
    cluster = rmq_cluster_factory(brokers=2)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("orders", queue_nums=1, brokers=["broker-b"])
        admin.create_group("billing", brokers=["broker-b"])
        offsets = cluster.broker("broker-b").state.offsets
        cluster.call(lambda: offsets.commit("billing", "orders", 0, 0))
    cluster.faults.add(
        faults.answer(16, "no rights"),
        broker="broker-b",
        code=RequestCode.GET_ALL_CONSUMER_OFFSET,
    )
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.lags()
    assert found.groups == []
    (failure,) = found.failures
    assert failure.broker_name == "broker-b"
    assert failure.message.endswith("answered NO_PERMISSION: no rights")


def test_a_reset_is_planned_applied_and_undone(admin, orders):
    planned = admin.plan_reset("billing", orders, to="earliest")
    assert [(q.committed, q.target) for q in planned.plan.queues] == [(3, 0), (3, 0)]
    assert offsets(admin) == {0: 3, 1: 3}
    result = admin.apply_reset(planned)
    assert result.is_complete
    assert {each.result for each in result.outcomes.values()} == {QueueResult.CONFIRMED}
    assert offsets(admin) == {0: 0, 1: 0}
    undone = admin.undo_reset("billing", orders)
    assert undone.is_complete
    assert offsets(admin) == {0: 3, 1: 3}
    again = admin.undo_reset("billing", orders, backup_id=result.backup_id)
    assert again.backup_id is None  # nothing to do


def test_a_reset_may_shift_some_queues_only(admin, orders):
    queue = MessageQueue("orders", "broker-a", 1)
    planned = admin.plan_reset("billing", orders, shift=2, queues=[queue])
    assert admin.apply_reset(planned).is_complete
    assert offsets(admin) == {0: 3, 1: 5}


def test_a_reset_of_no_queue_is_not_one_of_all(admin, orders):
    """A program may have found none to move."""
    with pytest.raises(ConfigError) as caught:
        admin.plan_reset("billing", orders, to="latest", queues=[])
    assert caught.value.message == "queues is empty: there is no queue to reset"


@pytest.mark.parametrize(
    "change",
    [
        lambda admin, **on: admin.create_topic("new", **on),
        lambda admin, **on: admin.update_topic("orders", perm=4, **on),
        lambda admin, **on: admin.create_group("new", **on),
        lambda admin, **on: admin.update_group("billing", retry_max_times=3, **on),
        lambda admin, **on: admin.pause_group("billing", **on),
        lambda admin, **on: admin.resume_group("billing", **on),
        lambda admin, **on: admin.delete_group("billing", **on),
        lambda admin, **on: admin.clean_expired_queues(**on),
        lambda admin, **on: admin.clean_unused_topics(**on),
        lambda admin, **on: admin.plan_user("alice", is_new=False, **on),
        lambda admin, **on: admin.plan_rule("alice", "Topic:x", is_new=False, **on),
        lambda admin, **on: admin.plan_acl_deletion("alice", **on),
    ],
)
def test_a_change_on_no_broker_is_not_one_on_all(admin, orders, change):
    """A program may have found none to change."""
    with pytest.raises(ConfigError) as caught:
        change(admin, brokers=[])
    assert caught.value.message == "brokers is empty: there is no broker to change"
    with pytest.raises(ConfigError, match="cluster and brokers cannot be used toget"):
        change(admin, cluster="DefaultCluster", brokers=["broker-a"])


def test_a_topic_that_no_name_server_lists_in_time_is_not_a_success(rmq_cluster):
    """The call returned, and the first send to the topic failed."""
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,), timeout_ms=300)
    rule = faults.Rule(faults.Match(code=105, topic="fresh"), TOPIC_UNKNOWN)
    rmq_cluster.faults.add_rule(rule)
    with Admin(client=config) as admin:
        with pytest.raises(PartialError) as caught:
            admin.create_topic("fresh")
        rmq_cluster.faults.remove(rule)
        assert admin.create_topic("fresh")[0].result == "unchanged"
    assert caught.value.message == (
        "topic fresh is on its brokers, but no name server listed it on all of them"
        " within 300ms"
    )


def test_a_copy_of_a_user_to_no_broker_is_not_one_to_all(admin, orders):
    with pytest.raises(ConfigError) as caught:
        admin.plan_acl_copy("user", "alice", source="broker-a", to=[])
    assert caught.value.message == "to is empty: there is no broker to change"


def test_a_reset_past_a_message_commits_the_offset_behind_it(admin, orders):
    queue = MessageQueue("orders", "broker-a", 0)
    message = admin.message_at(queue, 3)
    planned = admin.plan_reset("billing", orders, past_message=message.offset_msg_id)
    assert admin.apply_reset(planned).is_complete
    assert offsets(admin) == {0: 4, 1: 3}


def test_a_plan_whose_offsets_have_moved_is_refused(admin, orders):
    old = admin.plan_reset("billing", orders, shift=1)
    admin.apply_reset(admin.plan_reset("billing", orders, to="latest"))
    with pytest.raises(RefusedError, match="offsets moved since the plan was made"):
        admin.apply_reset(old)
    assert offsets(admin) == {0: 10, 1: 10}


def test_a_plan_with_a_silent_broker_is_refused(rmq_cluster_factory, tmp_path):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.broker("broker-b").hang()
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=300)
    with Admin(client=config, backups=tmp_path) as admin:
        planned = admin.plan_reset("billing", "orders", to="latest")
        assert [each.broker_name for each in planned.plan.unknown] == ["broker-b"]
        with pytest.raises(RefusedError, match="1 queue of the plan could not be"):
            admin.apply_reset(planned)
    cluster.broker("broker-b").resume()


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ({}, UsageError, "give one of to, shift and past_message"),
        ({"to": "latest", "shift": 1}, UsageError, "give one of"),
        ({"to": "yesterday"}, TextError, "yesterday"),
    ],
)
def test_a_reset_needs_one_target(admin, orders, arguments, error, why):
    with pytest.raises(error, match=why):
        admin.plan_reset("billing", orders, **arguments)


def test_topics_are_created_changed_shown_and_deleted(admin):
    (made,) = admin.create_topic("fresh", queue_nums=3)
    assert (made.server, made.result) == ("broker-a", "created")
    assert len(admin.queues("fresh")) == 3
    assert admin.create_topic("fresh", queue_nums=3)[0].result == "unchanged"
    assert admin.update_topic("fresh", queue_nums=5)[0].result == "changed"
    assert len(admin.topic("fresh").queues) == 5
    assert "fresh" in [each.topic for each in admin.topics().topics]
    assert {each.result for each in admin.delete_topic("fresh")} == {"deleted"}
    with pytest.raises(NotFoundError):
        admin.topic("fresh")
    with pytest.raises(RefusedError):
        admin.delete_topic("RMQ_SYS_TRANS_HALF_TOPIC")


@pytest.mark.parametrize("first", [TOPIC_UNKNOWN, ON_ONE_BROKER])
def test_a_created_topic_can_be_used_at_once_on_all_brokers(rmq_cluster_factory, first):
    """A broker registers a topic a moment after it has answered, and so do others
    later: until then a send would fail, or use some of the queues."""
    cluster = rmq_cluster_factory(brokers=2)
    late = cluster.faults.add(
        first, code=RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="fresh", times=4
    )
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("fresh", queue_nums=1)
        assert late.hits == 4
        brokers = [queue.broker_name for queue in admin.queues("fresh")]
    assert brokers == ["broker-a", "broker-b"]


def test_groups_are_created_changed_shown_and_deleted(admin):
    (made,) = admin.create_group("workers", retry_max_times=3)
    assert made.result == "created"
    (changed,) = admin.update_group("workers", retry_max_times=5)
    assert changed.config is not None
    assert changed.config.retry_max_times == 5
    assert "workers" in [each.group for each in admin.groups().groups]
    assert admin.group("workers").configs["broker-a"].retry_max_times == 5
    assert admin.delete_group("workers")[0].result == "deleted"
    with pytest.raises(NotFoundError):
        admin.update_group("workers", retry_max_times=5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'retry_times'"):
        admin.create_group("workers", retry_times=3)
    text = r"^Admin.update_group\(\) got an unexpected keyword argument 'foo'$"
    with pytest.raises(TypeError, match=text):
        admin.update_group("workers", foo=1)


def test_the_members_of_a_system_group_are_unknown(admin):
    """Brokers are not asked for them."""
    admin.create_group("workers")
    members = {each.group: each.members for each in admin.groups().groups}
    assert members["workers"] == 0
    assert members["TOOLS_CONSUMER"] is None


def test_a_change_that_one_broker_refuses_is_partial_and_can_be_repeated(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.faults.next(
        faults.answer(16, "no"),
        code=RequestCode.UPDATE_AND_CREATE_TOPIC,
        broker="broker-b",
    )
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(PartialError, match="1 of 2 servers failed") as caught:
            admin.create_topic("fresh", queue_nums=1)
        assert isinstance(caught.value.__cause__, DeniedError)
        results = [each.result for each in admin.create_topic("fresh", queue_nums=1)]
    assert results == ["unchanged", "created"]


def test_brokers_say_their_version(admin):
    (row,) = admin.brokers()
    assert (row.broker_name, row.role, row.version) == ("broker-a", "MASTER", "5.5.0")


def test_messages_are_found_by_place_id_and_key(admin, orders):
    queue = MessageQueue("orders", "broker-a", 1)
    message = admin.message_at(queue, 4)
    assert (message.body, message.topic, message.message_queue) == (
        b"1-4",
        "orders",
        queue,
    )
    by_id = admin.message_by_id("orders", message.offset_msg_id)
    assert (by_id.body, by_id.message_queue) == (b"1-4", queue)
    found = admin.messages_by_key("orders", "k4")
    assert sorted(each.body for each in found) == [b"0-4", b"1-4"]
    assert {each.message_queue.queue_id for each in found} == {0, 1}
    assert admin.messages_by_key("orders", "no-such-key") == []
    with pytest.raises(NotFoundError, match="has no message at offset 10"):
        admin.message_at(queue, 10)
    with pytest.raises(NotFoundError):
        admin.message_by_id("orders", "0" * 32)


def test_a_place_whose_message_is_damaged_is_not_empty(rmq_cluster, admin, orders):
    queue = MessageQueue("orders", "broker-a", 1)
    damage_record(rmq_cluster, queue, "1-4")
    assert admin.message_at(queue, 3).body == b"1-3"
    with pytest.raises(DecodeError, match="at orders@broker-a:1:4 is damaged: "):
        admin.message_at(queue, 4)


def test_a_range_is_read_in_order_without_a_commit(admin, orders):
    found = [(m.queue_id, m.body) for m in admin.read("orders", from_="2", to="-2")]
    assert [body for queue_id, body in found if queue_id == 0] == [
        b"0-2",
        b"0-3",
        b"0-4",
        b"0-5",
        b"0-6",
        b"0-7",
    ]
    assert len(found) == 12
    assert offsets(admin) == {0: 3, 1: 3}


def test_a_range_may_be_of_some_queues_and_tags(admin, orders):
    queue = MessageQueue("orders", "broker-a", 1)
    found = admin.read("orders", queues=[queue], sub_expression="B")
    assert [m.body for m in found] == [b"1-1", b"1-3", b"1-5", b"1-7", b"1-9"]


@pytest.fixture
def payments(rmq_cluster):
    """Six messages in two queues; the first body is not JSON."""
    rmq_cluster.create_topic("payments", queues=2)
    for number in range(6):
        seed = Seed(
            body=b'{"id": %d}' % number if number else b"no JSON",
            tags=("New", "Paid")[number % 2],
            properties={"region": ("eu", "us")[number % 2]},
        )
        rmq_cluster.send("payments", [seed], queue_id=number // 3)
    return "payments"


@pytest.mark.parametrize(
    ("arguments", "bodies"),
    [
        ({"where": "value.id >= 3", "decode": "json"}, ["3", "4", "5"]),
        ({"where": "properties.region = 'eu'"}, ["no JSON", "2", "4"]),
        ({"where": "tags = 'Paid'"}, ["1", "3", "5"]),
        ({"where": "tags = 'Paid'", "sub_expression": "New"}, []),
        ({"where": "body CONTAINS '4'", "sub_expression": "New"}, ["4"]),
        ({"where": "queue_id = 1 AND queue_offset < 2"}, ["3", "4"]),
        ({"where": "queue_id = 7"}, []),
        ({"where": "broker_name = 'broker-a' AND queue_id = 0"}, ["no JSON", "1", "2"]),
        ({"where": "store_timestamp < '2001-01-01T00:00:00Z'"}, []),
        ({"where": "decode_error IS NOT NULL", "decode": "json"}, ["no JSON"]),
        (
            {"where": "value.id > 4 OR decode_error IS NOT NULL", "decode": "json"},
            ["no JSON", "5"],
        ),
    ],
)
def test_messages_are_chosen_by_a_condition(admin, payments, arguments, bodies):
    found = sorted(
        (each.queue_id, each.queue_offset, each.body.decode())
        for each in admin.read(payments, **arguments)
    )
    expected = [each if each == "no JSON" else f'{{"id": {each}}}' for each in bodies]
    assert [body for _, _, body in found] == expected


def test_bodies_without_a_value_are_counted_in_the_log(admin, payments, caplog):
    """They are left out, as by `rmq tail`, which says how many."""
    assert len(list(admin.read(payments, where="value.id <> 9", decode="json"))) == 5
    assert [each.getMessage() for each in caplog.records] == [
        "bodies without a value topic=payments decode=json count=1"
    ]


def test_a_damaged_body_is_not_left_out_by_a_condition_on_it(rmq_cluster, admin):
    rmq_cluster.create_topic("odd", queues=1)
    send_damaged(rmq_cluster, "odd")
    rmq_cluster.send("odd", ['{"id": 1}'], queue_id=0)
    found = list(admin.read("odd", where="value.id = 2", decode="json"))
    assert [each.queue_offset for each in found] == [0]
    with pytest.raises(DecodeError):
        _ = found[0].body
    assert list(admin.read("odd", where="queue_offset = 9")) == []


def test_a_broker_sends_only_what_a_condition_can_be_true_of(
    rmq_cluster, admin, payments
):
    pulls = rmq_cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    found = admin.read(payments, to="latest", where="tags = 'Paid' AND queue_id = 0")
    assert [each.queue_offset for each in found] == [1]
    asked = [each.command.ext_fields for each in pulls.requests]
    assert [(each["queueId"], each["subscription"]) for each in asked] == [
        ("0", "Paid"),
        ("0", "*"),  # whether the message that was read is still there
    ]


@pytest.mark.parametrize(
    ("arguments", "message", "place"),
    [
        (
            {"where": "value.id = 1"},
            "'value.id = 1': the values of bodies are not read",
            (0, 8),
        ),
        (
            {"where": "tags = 'a' OR valu = 1"},
            "\"tags = 'a' OR valu = 1\": not a field of messages",
            (14, 18),
        ),
        ({"where": ""}, "'': expected (, found the end", (0, 1)),
        (
            {"where": "tags = 'a'", "decode": "gzip+jsn"},
            "'gzip+jsn': not a format of bodies",
            (5, 8),
        ),
    ],
)
def test_a_text_of_a_condition_that_is_wrong_is_shown_where_it_is_wrong(
    admin, payments, arguments, message, place
):
    for call in (
        lambda: list(admin.read(payments, **arguments)),
        lambda: admin.read_dead_letters("billing", **arguments),
    ):
        with pytest.raises(TextError) as caught:
            call()
        assert caught.value.message == message
        assert (caught.value.start, caught.value.end) == place


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"decode": "json"}, UsageError, "decode needs where"),
        (
            {"where": "tags = 'a'", "decode": "avro:/no/such"},
            ConfigError,
            "avro:/no/such: cannot read /no/such: No such file or directory",
        ),
    ],
)
def test_a_format_that_cannot_be_used_is_an_error(
    admin, payments, arguments, error, message
):
    with pytest.raises(error) as caught:
        list(admin.read(payments, **arguments))
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"queues": [MessageQueue("odd", "broker-a", 0)]},
            ConfigError,
            "queues: odd@broker-a:0 is not a queue of topic orders",
        ),
        (
            {"queues": [MessageQueue("orders", "broker-a", 99)]},
            NotFoundError,
            "queue broker-a:99 does not exist",
        ),
        (
            {"queues": ["orders@broker-a:0"]},
            TypeError,
            "each of queues is 'orders@broker-a:0', a str; it must be a MessageQueue",
        ),
        ({"from_": "group:nobody"}, NotFoundError, "group nobody does not exist"),
        (
            {"from_": "6", "to": "5"},
            ConfigError,
            "from_ and to: the end of the range is before its start",
        ),
    ],
)
def test_what_does_not_exist_is_not_read_in_silence(
    rmq_cluster, admin, orders, arguments, error, words
):
    rmq_cluster.create_topic("odd", queues=1)
    rmq_cluster.send("odd", ["x"])
    with pytest.raises(error) as caught:
        list(admin.read("orders", **arguments))
    assert str(caught.value).startswith(words)


def test_the_same_queue_twice_is_read_once_and_no_queue_is_nothing(admin, orders):
    queue = MessageQueue("orders", "broker-a", 1)
    assert len(list(admin.read("orders", queues=[queue, queue]))) == 10
    assert list(admin.read("orders", queues=[])) == []


def test_queues_of_another_topic_are_not_reset(rmq_cluster, admin, orders):
    rmq_cluster.create_topic("odd", queues=1)
    with pytest.raises(ConfigError, match="is not a queue of topic orders"):
        admin.plan_reset(
            "g", "orders", to="earliest", queues=[MessageQueue("odd", "broker-a", 0)]
        )


def test_a_long_range_comes_whole_and_may_be_left(rmq_cluster, admin):
    rmq_cluster.create_topic("long", queues=3)
    rmq_cluster.send("long", [b"%d" % n for n in range(5_000)])
    assert sorted(int(m.body) for m in admin.read("long")) == list(range(5_000))
    for message in admin.read("long"):
        assert message.topic == "long"
        break
    assert len(admin.queues("long")) == 3  # the Admin still works


def test_no_name_server_and_no_addresses_are_errors():
    with (
        Admin(namesrv=f"127.0.0.1:{free_port()}") as admin,
        pytest.raises(ConnectError),
    ):
        admin.topics()
    with pytest.raises(ConfigError, match="namesrv is '': no name server in it"):
        Admin(namesrv="")
    with pytest.raises(UsageError, match="cannot be used together"):
        Admin(namesrv="a:1", client=ClientConfig())


def test_an_update_creates_neither_a_topic_nor_a_group(rmq_cluster_factory):
    """Also not on a broker that is the only one without it."""
    pair = rmq_cluster_factory(brokers=2)
    with Admin(namesrv=pair.namesrv) as admin:
        admin.create_topic("here", brokers=["broker-a"])
        with pytest.raises(NotFoundError):
            admin.update_topic("nowhere", queue_nums=4)
        assert "nowhere" not in [each.topic for each in admin.topics().topics]
        with pytest.raises(PartialError, match="1 of 2 servers failed"):
            admin.update_topic("here", queue_nums=16)
        assert [each.broker_name for each in admin.topic("here").brokers] == [
            "broker-a"
        ]
        with pytest.raises(NotFoundError):
            admin.update_group("nobody", retry_max_times=3)
        assert "nobody" not in [each.group for each in admin.groups().groups]


def test_a_broker_is_shown_with_its_settings(admin):
    (detail,) = admin.broker("broker-a")
    assert detail.row.role == "MASTER"
    assert detail.settings["brokerName"] == "broker-a"
    with pytest.raises(NotFoundError, match="broker nowhere does not exist"):
        admin.broker("nowhere")


#: Every method that looks at, or changes, the brokers of a cluster or some brokers.
WITH_PLACES: dict[str, dict[str, Any]] = {
    "accounts": {},
    "broker_settings": {},
    "clean_expired_queues": {},
    "clean_unused_topics": {},
    "compare_broker_settings": {},
    "create_group": {"group": "g"},
    "create_topic": {"topic": "t"},
    "definitions": {},
    "delete_group": {"group": "g"},
    "explain_access": {"user": "u", "resource": "Topic:t", "action": "Pub"},
    "pause_group": {"group": "g"},
    "plan_acl_deletion": {"user": "u"},
    "plan_broker_settings": {"settings": {"flushDiskType": "SYNC_FLUSH"}},
    "plan_definitions": {"definitions": Definitions(definitions=(), kinds=("topic",))},
    "plan_rule": {
        "user": "u", "resource": "Topic:t", "is_new": True, "actions": ["Pub"],
    },
    "plan_user": {"user": "u", "is_new": True, "password": "correct horse"},
    "resume_group": {"group": "g"},
    "update_group": {"group": "g", "retry_max_times": 3},
    "update_topic": {"topic": "t", "perm": 4},
}  # fmt: skip
#: Those of them that take no brokers.
WHOLE_CLUSTERS = ("definitions", "plan_definitions")


def test_the_table_has_every_method_with_places():
    methods = {
        name: inspect.signature(method).parameters
        for name, method in inspect.getmembers(Admin, inspect.isfunction)
        if not name.startswith("_")
    }
    assert {name for name in methods if "cluster" in methods[name]} == set(WITH_PLACES)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, "cluster") for name in WITH_PLACES),
        *((name, "brokers") for name in WITH_PLACES if name not in WHOLE_CLUSTERS),
    ],
)
def test_a_cluster_or_broker_that_is_not_there_is_no_other_one(
    rmq_cluster, name, place
):
    """An argument that is lost on its way would change the default cluster."""
    value = {"cluster": "nobody", "brokers": ["nobody"]}[place]
    rmq_cluster.create_topic("t")
    rmq_cluster.create_group("g")
    changes = [
        rmq_cluster.faults.observe(code=code)
        for code in RequestCode
        if code.name.startswith(("UPDATE_", "DELETE_", "CLEAN_", "AUTH_"))
    ]
    with (
        Admin(namesrv=rmq_cluster.namesrv) as admin,
        pytest.raises(NotFoundError, match="nobody"),
    ):
        getattr(admin, name)(**WITH_PLACES[name], **{place: value})
    assert sum(each.seen for each in changes) == 0


def test_a_topic_that_is_made_anew_while_it_is_read_is_an_error(rmq_cluster):
    """The rest of the range was read from the new topic, and nothing was said."""
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send("T", ["old"] * 400)
    bodies = []
    with (
        connect(rmq_cluster.namesrv) as clients,
        clients.admin() as reader,
        clients.admin() as admin,
    ):
        messages = reader.read("T")
        bodies.append(next(messages).body)
        admin.delete_topic("T")
        rmq_cluster.create_topic("T", queues=1)
        rmq_cluster.send("T", ["new"] * 500)
        with pytest.raises(PartialError) as caught:
            bodies.extend(each.body for each in messages)
    assert caught.value.message == (
        "T@broker-a:0: the topic was deleted and created again, or its broker has lost"
        " messages while it was read"
    )
    assert len(bodies) == 400
