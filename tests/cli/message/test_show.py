"""`rmq message show`: what became of a message, and never more than is known."""

from __future__ import annotations

import functools
import json
import os
import threading
from contextlib import contextmanager, redirect_stdout
from types import SimpleNamespace
from typing import Any

import pytest

from rmqcli import (
    Admin,
    Consumer,
    ConsumerConfig,
    LocalTransactionState,
    Producer,
    ProducerMessage,
    SimpleConsumer,
    sql,
)
from rmqcli.admin.message.find import find_messages
from rmqcli.admin.reset.backup import Backup, backup_directory, save_backup
from rmqcli.admin.reset.cluster_identity import ClusterIdentity
from rmqcli.admin.witness import Noted
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import client_of, kill
from tests.kit.clock import SetClock
from tests.kit.half_messages import roll_back, send_half
from tests.kit.ports import need_ipv6
from tests.kit.terminal import Terminal
from tests.kit.waiting import wait_until

LIKE = ("5.5.0", "4.6.0")
COMMIT = LocalTransactionState.COMMIT_MESSAGE
ROLLBACK = LocalTransactionState.ROLLBACK_MESSAGE
UNKNOW = LocalTransactionState.UNKNOW


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    """Backups of resets by other tests speak against consumption."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture(params=LIKE)
def cluster(rmq_cluster_factory, request):
    cluster = rmq_cluster_factory(queues=1, like=request.param)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    return cluster


@pytest.fixture
def show(capsys):
    """Run `rmq message show`; return exit code, JSON of stdout or None, and stderr."""

    def show_(cluster, *words, output="json"):
        capsys.readouterr()
        code = run(["message", "show", *words, "-n", cluster.namesrv, "-o", output])
        out, err = capsys.readouterr()
        if output != "json":
            return code, out, err
        return code, json.loads(out) if out else None, err

    return show_


def send(cluster, body="a", **fields):
    with Producer(namesrv=cluster.namesrv) as producer:
        return producer.send(ProducerMessage("orders", body.encode(), **fields))


def commit(cluster, group, offset, topic="orders"):
    with client_of(cluster) as client:
        call = update_consumer_offset(group, topic, 0, commit_offset=offset)
        client.invoke(cluster.broker().address, call)


def committed(cluster, group, topic="orders"):
    from rmqcli.api.calls.offset import get_all_consumer_offset

    with client_of(cluster) as client:
        table = client.invoke(cluster.broker().address, get_all_consumer_offset())
    return table.get((group, topic), {}).get(0)


def verdict(found):
    """The only verdict of the only message."""
    code, (row,), err = found
    assert code == 0, err
    (group,) = row["groups"]
    return group


def settled(cluster, show, sent):
    """The verdict once it is known and the member, if any, has consumed the message.

    A busy member may not answer in time.
    """
    found: list[dict[str, Any]] = []

    def is_known():
        found[:] = [verdict(show(cluster, sent.msg_id))]
        return found[0]["verdict"] not in ("unknown", "in_flight")

    wait_until(is_known, found)  # which says why it is not
    return found[0]


@contextmanager
def member(cluster, *, topics="orders", listener=None, **more):
    """A member of group billing that begins at the first message, and has its queue.

    As in Java, its subscription is as old as its last change of queues, and it is not
    known what a member with a younger subscription was given.
    """
    with Consumer(
        "billing",
        topics,
        listener or (lambda _: None),
        consume_from="earliest",
        namesrv=cluster.namesrv,
        config=ConsumerConfig(persist_consumer_offset_interval_ms=100),
        **more,
    ) as consumer:
        wait_until(lambda: any(each.topic == "orders" for each in consumer.queues()))
        yield consumer


def test_the_record_is_that_of_tail_with_its_place_and_its_groups(cluster, show):
    sent = send(cluster, keys="k1", tags="New")
    code, (row,), err = show(cluster, sent.msg_id)
    assert (code, err) == (0, "")
    assert (row["topic"], row["body"], row["tags"]) == ("orders", "a", "New")
    assert (row["msg_id"], row["offset_msg_id"]) == (sent.msg_id, sent.offset_msg_id)
    # The embedded cluster deletes nothing, and so has no setting that says when.
    assert row["stored"] == {
        "state": "stored",
        "until": None,
        "next_at": None,
        "evidence": None,
        "reason": None,
    }
    assert (row["groups"], row["errors"]) == ([], [])
    code, (row,), _ = show(cluster, "k1", "--topic", "orders", "--group", "billing")
    assert (code, row["body"]) == (0, "a")
    code, out, _ = show(cluster, sent.msg_id, output="table")
    assert (code, "\nstored\n" in out, "GROUP" in out) == (0, True, False)
    assert "\nno group of orders is known\n" in out


def test_a_message_that_no_member_has_reached_is_waiting(cluster, show):
    send(cluster)
    send(cluster)
    commit(cluster, "billing", 1)
    found = verdict(show(cluster, send(cluster).msg_id))
    assert (found["group"], found["verdict"]) == ("billing", "waiting")
    assert found["waiting_before"] == 1
    assert found["evidence"] == "committed offset 1, message at 2"


def test_a_group_without_an_offset_is_unknown(cluster, show):
    sent = send(cluster)
    found = verdict(show(cluster, sent.msg_id, "--group", "billing"))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("no offset was ever committed")


def test_a_message_that_a_member_got_over_is_consumed(cluster, show):
    with member(cluster):
        sent = send(cluster, tags="New")
        wait_until(lambda: committed(cluster, "billing") == 1)
        found = settled(cluster, show, sent)
        assert (found["verdict"], found["attempt"]) == ("consumed", 1)
        assert "committed offset 1, message at 0" in found["evidence"]
    # The filter of members that are gone is not known.
    found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("no member is online")


def test_an_orderly_member_does_not_tell_at_which_delivery_it_consumed(cluster, show):
    """It gets a message again where it is: that was said to be the first delivery."""
    seen: list[int] = []

    def listen(message):
        seen.append(message.reconsume_times)
        assert message.reconsume_times > 0

    with member(cluster, listener=listen, orderly=True):
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        found = settled(cluster, show, sent)
    assert seen == [0, 1]
    assert (found["verdict"], found["attempt"]) == ("consumed", None)


def test_a_group_that_only_skipped_the_message_did_not_consume_it(cluster, show):
    sent = send(cluster)
    commit(cluster, "billing", 1)
    consumer = Consumer(
        "billing", "orders", lambda _: None, namesrv=cluster.namesrv
    )  # begins at the end, as Java's members do
    with consumer:
        wait_until(lambda: verdict(show(cluster, sent.msg_id))["reason"] is not None)
        found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert "may have had another filter before" in found["reason"]


def test_a_new_group_may_begin_behind_a_message_that_was_sent_as_it_started(
    cluster, show
):
    """It subscribes, and asks only later where the queue ends."""
    consumer = Consumer(
        "billing",
        "orders",
        lambda _: None,
        namesrv=cluster.namesrv,
        config=ConsumerConfig(persist_consumer_offset_interval_ms=100),
    )
    with consumer:
        # The subscription is as old as that.
        wait_until(lambda: any(each.topic == "orders" for each in consumer.queues()))
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        wait_until(lambda: "begins at the end" in (reason_of(cluster, show, sent)))
    assert verdict(show(cluster, sent.msg_id))["verdict"] == "unknown"


def reason_of(cluster, show, sent):
    return verdict(show(cluster, sent.msg_id))["reason"] or ""


@pytest.mark.slow
def test_a_tag_that_the_group_does_not_select_is_filtered(cluster, show):
    with member(cluster, topics={"orders": "New"}):
        other = send(cluster, tags="Paid")
        without = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 2)
        for sent, tags in ((other, "tag Paid"), (without, "no tag")):
            found = settled(cluster, show, sent)
            assert found["verdict"] == "filtered", found["reason"]
            assert found["evidence"] == f"{tags} is not selected by 'New'"


@pytest.mark.slow
def test_a_message_that_another_filter_skipped_is_not_consumed_by_a_new_one(
    cluster, show
):
    seen: list[bytes] = []
    with member(cluster, topics={"orders": "New"}):
        sent = send(cluster, tags="Paid")
        wait_until(lambda: committed(cluster, "billing") == 1)
    with member(cluster, listener=lambda each: seen.append(each.body)):
        wait_until(lambda: "another filter before" in reason_of(cluster, show, sent))
        last = send(cluster, "b")
        wait_until(lambda: seen == [b"b"])
        assert verdict(show(cluster, sent.msg_id))["verdict"] == "unknown"
        assert settled(cluster, show, last)["verdict"] == "consumed"


@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_that_a_member_holds_is_in_flight(cluster, show, orderly):
    """Brokers before 5.1.0 do not report what is pulled, but the member does. That of
    an orderly listener was called waiting."""
    ends = threading.Event()
    begun = threading.Event()

    def listen(_message):
        begun.set()
        ends.wait()

    with member(cluster, listener=listen, orderly=orderly) as consumer:
        assert consumer is not None
        sent = send(cluster)
        wait_until(begun.is_set)
        found = verdict(show(cluster, sent.msg_id, "-g", "billing"))
        ends.set()
    assert found["verdict"] == "in_flight"
    assert " holds 0 to 0" in found["evidence"]
    assert "it may have been consumed" in found["reason"]


def test_a_filter_by_sql_is_evaluated_by_the_broker(rmq_cluster_factory, show):
    cluster = rmq_cluster_factory(queues=1, settings={"enable_property_filter": True})
    cluster.create_topic("orders")
    cluster.create_group("billing")
    with member(cluster, topics={"orders": sql("orders", "n > 5")}):
        few = send(cluster, properties={"n": "4"})
        many = send(cluster, properties={"n": "6"})
        wait_until(lambda: committed(cluster, "billing") == 2)
        found = settled(cluster, show, few)
        assert (found["verdict"], found["evidence"]) == (
            "filtered",
            "'n > 5' does not select it",
        )
        assert settled(cluster, show, many)["verdict"] == "consumed"


def pop(cluster, invisible_ms):
    return SimpleConsumer(
        "billing",
        "orders",
        namesrv=cluster.namesrv,
        invisible_duration_ms=invisible_ms,
    )


def receive(consumer, count):
    found: list[Any] = []
    while len(found) < count:
        found += consumer.receive(count - len(found))
    return found


def test_what_pop_has_handed_out_is_in_flight_until_it_is_acknowledged(
    rmq_cluster_factory, show
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = [send(cluster), send(cluster), send(cluster)]
    with pop(cluster, 3_600_000) as consumer:
        first, _ = receive(consumer, 2)
        consumer.ack([first])
        done, held, next_ = (
            verdict(show(cluster, each.msg_id, "-g", "billing")) for each in sent
        )
        client_id = consumer.client_id
    assert (done["verdict"], done["attempt"]) == ("consumed", 1)
    assert ", acknowledged at " in done["evidence"]
    assert (held["verdict"], held["attempt"]) == ("in_flight", 1)
    assert held["next_at"] is not None
    assert held["reason"] == f"POP does not record to whom; online: {client_id}"
    assert (next_["verdict"], next_["waiting_before"]) == ("waiting", 0)
    # The members are gone, and the records of POP are still there.
    found = verdict(show(cluster, sent[0].msg_id))
    assert found["verdict"] == "consumed"
    found = verdict(show(cluster, sent[1].msg_id))
    assert (found["verdict"], found["reason"]) == (
        "in_flight",
        "POP does not record to whom",
    )


def test_a_retry_of_pop_is_followed_from_delivery_to_delivery(
    rmq_cluster_factory, show
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = send(cluster)
    with pop(cluster, 1_000) as consumer:
        receive(consumer, 1)
    wait_until(lambda: verdict(show(cluster, sent.msg_id))["verdict"] == "in_retry")
    found = verdict(show(cluster, sent.msg_id))
    assert (found["attempt"], found["where"]) == (
        2,
        "%RETRY%billing_orders@broker-a:0:0",
    )
    with pop(cluster, 3_600_000) as consumer:
        (again,) = receive(consumer, 1)
        found = verdict(show(cluster, sent.msg_id))
        assert (found["verdict"], found["attempt"]) == ("in_flight", 2)
        assert found["next_at"] is not None
        consumer.ack([again])
        found = verdict(show(cluster, sent.msg_id))
        assert (found["verdict"], found["attempt"]) == ("consumed", 2)


@pytest.mark.slow
def test_a_retry_of_pop_that_is_named_by_its_place_is_followed_to_the_next(
    rmq_cluster_factory, show
):
    """The next copy is in the same topic; it was taken for that of another group."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    send(cluster)
    first = "%RETRY%billing_orders@broker-a:0:0"
    with pop(cluster, 1_000) as consumer:
        receive(consumer, 1)
        wait_until(lambda: show(cluster, first)[0] == 0)
        receive(consumer, 1)
    wait_until(lambda: verdict(show(cluster, first))["verdict"] == "in_retry")
    found = verdict(show(cluster, first))
    assert (found["attempt"], found["where"]) == (
        3,
        "%RETRY%billing_orders@broker-a:0:1",
    )
    with pop(cluster, 3_600_000) as consumer:
        consumer.ack(receive(consumer, 1))
    found = verdict(show(cluster, first))
    assert (found["verdict"], found["attempt"]) == ("consumed", 3)


def test_an_acknowledged_message_to_which_a_group_was_moved_back_is_not_consumed(
    rmq_cluster_factory, show
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = send(cluster)
    with pop(cluster, 3_600_000) as consumer:
        consumer.ack(receive(consumer, 1))
    commit(cluster, "billing", 0)
    found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("the group's offset is not past it: it was moved")


@pytest.mark.parametrize(
    "setting", ["enablePopBufferMerge", "popConsumerKVServiceEnable"]
)
def test_a_broker_that_keeps_the_records_of_pop_elsewhere_does_not_tell(
    rmq_cluster_factory, show, setting
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = send(cluster)
    with pop(cluster, 1_000) as consumer:
        receive(consumer, 1)
        lines = f"{setting}=true\nmessageDelayLevel=1s 5s".encode()
        cluster.faults.add(
            faults.answer(0, body=lines), code=RequestCode.GET_BROKER_CONFIG
        )
        found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert setting in found["reason"]


@pytest.mark.parametrize("is_setting", [True, False], ids=["by-group", "by-member"])
def test_what_orderly_pop_has_handed_out_is_in_flight_and_what_follows_may_be(
    rmq_cluster_factory, show, is_setting
):
    """A member alone chose the order: what it held was said to wait."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing", consume_message_orderly=is_setting)
    first, second = send(cluster), send(cluster)

    def verdicts():
        return [verdict(show(cluster, each.msg_id)) for each in (first, second)]

    with SimpleConsumer(
        "billing", "orders", namesrv=cluster.namesrv, orderly=True
    ) as consumer:
        commit(cluster, "billing", 0)
        assert [each["verdict"] for each in verdicts()] == ["waiting", "waiting"]
        received = receive(consumer, 1)
        held, behind = verdicts()
        assert held["verdict"] == "in_flight"
        assert held["evidence"].endswith(
            "orderly POP has handed out messages from there on, and waits for their"
            " acknowledgement"
        )
        assert (behind["verdict"], behind["attempt"]) == ("unknown", None)
        assert "where it cannot be read" in behind["reason"]
        consumer.ack(received)
        assert verdicts()[1]["verdict"] == "waiting"
        receive(consumer, 1)
    found = verdicts()[1]  # the filter of the member that has left is not known
    assert (found["verdict"], "orderly POP" in found["reason"]) == ("unknown", True)


@pytest.mark.parametrize(
    "code", [RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.NOTIFICATION]
)
def test_what_orderly_pop_may_have_handed_out_is_not_called_waiting(
    rmq_cluster_factory, show, code
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing", consume_message_orderly=True)
    sent = send(cluster)
    with SimpleConsumer(
        "billing", "orders", namesrv=cluster.namesrv, orderly=True
    ) as consumer:
        receive(consumer, 1)
        cluster.faults.add(faults.answer(16, "no"), code=code)
        code, (row,), _ = show(cluster, sent.msg_id, "-g", "billing")
    (found,) = row["groups"]
    assert (found["verdict"], "not known: " in found["reason"]) == ("unknown", True)
    assert code == 6


@pytest.mark.parametrize(
    ("committed_", "lite_topic", "reason"),
    [
        (None, "alice", "no offset was ever committed in %LMQ%$orders$alice"),
        (1, "alice", "the group is not past it in %LMQ%$orders$alice, at 1, and POP"),
        (2, "alice", "the group is past it in %LMQ%$orders$alice, at 2, and may have"),
        (2, None, "the group consumes lite topics, and it is in none"),
    ],
)
def test_the_offset_in_a_lite_topic_does_not_tell_what_became_of_a_message(
    rmq_cluster_factory, show, committed_, lite_topic, reason
):
    """That of its queue was asked for: "no offset was ever committed"."""
    cluster = rmq_cluster_factory(queues=1)
    attributes = {} if lite_topic is None else {"message.type": "LITE"}
    cluster.create_topic("orders", attributes=attributes)
    cluster.create_group("billing", attributes={"lite.bind.topic": "orders"})
    lite = {} if lite_topic is None else {"__LITE_TOPIC": lite_topic}
    _, sent = (send(cluster, properties=lite) for _ in range(2))
    if committed_ is not None:
        name, core = "%LMQ%$orders$alice", cluster.broker().state
        cluster.call(lambda: core.offsets.commit("billing", name, 0, committed_))
    found = verdict(show(cluster, sent.msg_id, "-g", "billing"))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith(reason)


def begin_transaction(producer, state):
    message = ProducerMessage("orders", b"a", keys="k")
    return producer.send_in_transaction(message, lambda *_: state)


@pytest.fixture
def shop(rmq_cluster_factory, request):
    """A cluster in which transactions are not checked by themselves."""

    def start(like, **settings):
        settings = {"transaction_check_interval_ms": 3_600_000, **settings}
        cluster = rmq_cluster_factory(queues=1, like=like, settings=settings)
        cluster.create_topic("orders")
        cluster.create_group("billing")
        commit(cluster, "billing", 0)
        return cluster

    return start


@pytest.mark.parametrize("like", LIKE)
def test_a_transaction_decides_what_becomes_of_its_message(shop, show, like):
    cluster = shop(like)
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        half = begin_transaction(shop_, UNKNOW)
        undone = begin_transaction(shop_, ROLLBACK)
        done = begin_transaction(shop_, COMMIT)

        def found(sent, *words):
            words = words or ("-t", "orders")
            return verdict(show(cluster, sent.msg_id, *words, "-g", "billing"))

        wait_until(lambda: found(undone)["verdict"] == "rolled_back")
        assert "its transaction ended at " in found(undone)["evidence"]
        for words in (("-t", "orders"), ("--timeout", "20s")):
            shown = found(half, *words)
            assert shown["verdict"] == "half", shown
            assert "its transaction is open since " in shown["evidence"]
            assert shown["where"] == "RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0:0"
        wait_until(lambda: found(done)["verdict"] == "waiting")
        code, rows, _ = show(cluster, "k", "-t", "orders", "-g", "billing")
        # The committed one is there once, although its half message is kept.
        assert (code, [_id_and_verdict(row) for row in rows]) == (
            0,
            [
                (half.msg_id, "half"),
                (undone.msg_id, "rolled_back"),
                (done.msg_id, "waiting"),
            ],
        )


def test_messages_of_a_broker_whose_clock_is_far_ahead_are_found_with_their_retries(
    rmq_cluster_factory, show, capsys
):
    """Later than a day from now, keys and retries were not looked up: not found (3)."""
    clock = SetClock(SYSTEM_CLOCK.epoch_ms() + 400 * 86_400_000)
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = send(cluster, keys="k")
    commit(cluster, "billing", 1)
    words = ["message", "find", "orders", "--key", "k", "-n", cluster.namesrv]
    assert run(words) == 0
    assert json.loads(capsys.readouterr().out)["msg_id"] == sent.msg_id
    cluster.create_topic("%DLQ%billing")
    letter = Seed(body=b"a", properties={"UNIQ_KEY": sent.msg_id})
    cluster.send("%DLQ%billing", [letter])
    assert verdict(show(cluster, "k", "-t", "orders"))["verdict"] == "dead"


def test_messages_of_one_millisecond_are_shown_as_the_broker_stored_them(
    rmq_cluster_factory, show
):
    """Those that wait were behind the others, so that a test failed now and then."""
    cluster = rmq_cluster_factory(queues=1, clock=SetClock(SYSTEM_CLOCK.epoch_ms()))
    cluster.create_topic("orders")
    bodies = ("half", "stored", "delayed", "late")
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        message = ProducerMessage("orders", b"half", keys="k")
        shop_.send_in_transaction(message, lambda *_: UNKNOW)
    send(cluster, "stored", keys="k")
    send(cluster, "delayed", keys="k", delay_level=5)
    send(cluster, "late", keys="k")
    _, rows, _ = show(cluster, "k", "-t", "orders")
    assert tuple(row["body"] for row in rows) == bodies


def _id_and_verdict(row):
    (group,) = row["groups"]
    return row["msg_id"], group["verdict"]


@pytest.mark.parametrize("later_ms", [0, 3], ids=["rmq", "java"])
def test_a_half_message_is_open_although_that_of_a_retry_has_ended(
    shop, show, later_ms
):
    """It has the same id, so that the first one was called rolled back."""
    cluster = shop("5.5.0")
    address = cluster.broker().address
    born_ms = SYSTEM_CLOCK.epoch_ms()
    with client_of(cluster) as client:
        half = functools.partial(send_half, client, address, "orders", key="A1")
        half(born_ms=born_ms)
        again = half(born_ms=born_ms + later_ms)
        roll_back(client, address, again)
    ref = "RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0:"

    def found(offset):
        return verdict(show(cluster, f"{ref}{offset}", "-g", "billing"))["verdict"]

    wait_until(lambda: found(1) == "rolled_back")
    assert found(0) == "half"


def test_a_half_message_that_was_committed_is_followed_into_its_topic(shop, show):
    cluster = shop("5.5.0")
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        sent = begin_transaction(shop_, COMMIT)
    ref = "RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0:0"
    wait_until(lambda: show(cluster, ref)[1][0]["topic"] == "orders")
    code, (row,), _ = show(cluster, ref)
    assert (code, row["msg_id"]) == (0, sent.msg_id)
    assert [each["verdict"] for each in row["groups"]] == ["waiting"]


@pytest.mark.parametrize(
    ("state", "stored", "verdicts"),
    [(COMMIT, "stored", ["waiting"]), (ROLLBACK, "rolled_back", ["rolled_back"])],
)
def test_a_transaction_that_ended_after_the_clock_was_set_back_is_not_open(
    rmq_cluster_factory, show, state, stored, verdicts
):
    """Its end is older than its half message by the broker's clock: it was "half"."""
    clock = SetClock(SYSTEM_CLOCK.epoch_ms())
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    commit(cluster, "billing", 0)

    def set_back(*_):
        clock.now_ms -= 3_600_000
        return state

    def found(offset):
        ref = f"RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0:{offset}"
        _, (row,), _ = show(cluster, ref, "-g", "billing")
        return row["stored"]["state"], [each["verdict"] for each in row["groups"]]

    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        begin_transaction(shop_, ROLLBACK)
        wait_until(lambda: found(0)[0] == "rolled_back")
        clock.now_ms += 7_200_000
        shop_.send_in_transaction(ProducerMessage("orders", b"a"), set_back)
        wait_until(lambda: found(1) == (stored, verdicts))


def test_a_transaction_that_the_broker_gave_up_is_rolled_back(shop, show):
    cluster = shop(
        "5.5.0",
        transaction_timeout_ms=1,
        transaction_check_interval_ms=50,
        transaction_check_max=1,
    )
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        sent = begin_transaction(shop_, UNKNOW)
        words = (cluster, sent.msg_id, "-t", "orders", "-g", "billing")
        wait_until(lambda: verdict(show(*words))["verdict"] == "rolled_back")
        assert "TRANS_CHECK_MAX_TIME_TOPIC" in verdict(show(*words))["evidence"]


def test_a_transaction_whose_end_cannot_be_read_is_unknown(shop, show):
    cluster = shop("4.6.0")
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        # What a broker of 4.6.0 answers, which has no settings of the topic.
        begin_transaction(shop_, ROLLBACK)
        sent = begin_transaction(shop_, UNKNOW)
        words = (cluster, sent.msg_id, "-t", "orders", "-g", "billing")
        wait_until(lambda: show(*words)[0] == 0)
        cluster.faults.add(faults.answer(17, "no"), code=RequestCode.PULL_MESSAGE)
        found = verdict(show(*words))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("whether its transaction has ended is not known")


@pytest.mark.parametrize("like", LIKE)
def test_a_message_with_a_delay_is_found_by_its_id_and_key(
    rmq_cluster_factory, show, like
):
    cluster = rmq_cluster_factory(queues=1, like=like)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    commit(cluster, "billing", 0)
    sent = [send(cluster, keys="level", delay_level=9)]
    if like == "5.5.0":
        sent.append(send(cluster, keys="time", delay_ms=3_600_000))
    for each, key in zip(sent, ("level", "time"), strict=False):
        for words in ((each.msg_id,), (each.msg_id, "-t", "orders")):
            found = verdict(show(cluster, *words, "-g", "billing"))
            assert found["verdict"] == "delayed"
            assert found["next_at"] is not None
        found = verdict(show(cluster, key, "-t", "orders", "-g", "billing"))
        assert found["verdict"] == "delayed"
        assert show(cluster, key, "-t", "%RETRY%billing")[0] == 3


@pytest.mark.slow
@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"delay_ms": 1_000}])
def test_a_message_whose_delay_is_over_is_the_one_in_its_topic(
    rmq_cluster_factory, show, delay
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    commit(cluster, "billing", 0)
    sent = send(cluster, **delay)
    name = "SCHEDULE_TOPIC_XXXX" if "delay_level" in delay else "rmq_sys_wheel_timer"
    ref = f"{name}@broker-a:0:0"
    wait_until(lambda: show(cluster, ref)[1][0]["topic"] == "orders")
    for each in (ref, sent.msg_id):
        found = verdict(show(cluster, each))
        assert (found["verdict"], found["waiting_before"]) == ("waiting", 0)


def test_a_message_that_was_recalled_is_not_delayed(rmq_cluster_factory, show):
    settings = {
        "recall_message_enable": True,
        "append_topic_for_timer_delete_key": True,
    }
    cluster = rmq_cluster_factory(queues=1, settings=settings)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    commit(cluster, "billing", 0)
    sent = send(cluster, delay_ms=3_600_000)
    do = ["message", "recall", sent.msg_id, "--topic", "orders", "--yes"]
    assert run([*do, "-n", cluster.namesrv]) == 0
    found = verdict(show(cluster, sent.msg_id, "-t", "orders"))
    assert found["verdict"] == "recalled"


def test_a_message_that_waits_is_not_stored_in_its_topic_although_it_has_no_group(
    rmq_cluster_factory, show
):
    settings = {
        "recall_message_enable": True,
        "append_topic_for_timer_delete_key": True,
        "transaction_check_interval_ms": 3_600_000,
    }
    cluster = rmq_cluster_factory(queues=1, settings=settings)
    cluster.create_topic("orders")

    def stored(sent):
        code, (row,), err = show(cluster, sent.msg_id, "-t", "orders")
        assert (code, row["groups"]) == (0, []), err
        return row["stored"]

    level, timed = send(cluster, delay_level=9), send(cluster, delay_ms=3_600_000)
    for sent in (level, timed):
        found = stored(sent)
        assert (found["state"], found["reason"]) == ("delayed", None)
        assert found["evidence"] == "it waits for its delay to end"
        assert found["next_at"] is not None
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        found = stored(begin_transaction(shop_, UNKNOW))
    assert found["state"] == "half"
    assert found["evidence"].startswith("its transaction is open since ")
    do = ["message", "recall", timed.msg_id, "--topic", "orders", "--yes"]
    assert run([*do, "-n", cluster.namesrv]) == 0
    found = stored(timed)
    assert (found["state"], found["next_at"]) == ("recalled", None)
    assert found["evidence"].startswith("it was recalled at ")
    _, text, _ = show(cluster, level.msg_id, "-t", "orders", output="table")
    assert "\ndelayed for orders, due " in text
    assert ": it waits for its delay to end\n" in text
    assert text.endswith("no group of orders is known\n\n")


def test_an_older_message_may_have_met_another_filter(cluster, show):
    with member(cluster):
        sent = send(cluster, tags="Paid")
        wait_until(lambda: committed(cluster, "billing") == 1)
    with member(cluster, topics={"orders": "New"}):
        found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert "may have had another filter before" in found["reason"]


def test_a_message_that_failed_is_in_retry_with_its_next_delivery(cluster, show):
    sent = send(cluster)
    commit(cluster, "billing", 1)
    kill(cluster, "billing", "orders", [sent], delay_level=5)  # a minute
    found = verdict(show(cluster, sent.msg_id))
    assert (found["verdict"], found["attempt"]) == ("in_retry", 2)
    assert found["attempts_max"] == 17
    assert found["next_at"] is not None
    assert found["where"] == "SCHEDULE_TOPIC_XXXX@broker-a:4:0"


def test_a_retry_that_is_due_waits_until_the_group_is_past_it(cluster, show):
    sent = send(cluster)
    commit(cluster, "billing", 1)
    kill(cluster, "billing", "orders", [sent], delay_level=1)
    where = "%RETRY%billing@broker-a:0:0"
    wait_until(lambda: verdict(show(cluster, sent.msg_id))["where"] == where)
    found = verdict(show(cluster, sent.msg_id))
    assert (found["verdict"], found["attempt"]) == ("in_retry", 2)
    commit(cluster, "billing", 1, topic="%RETRY%billing")
    found = verdict(show(cluster, sent.msg_id))
    assert (found["verdict"], found["attempt"]) == ("consumed", 2)
    assert found["where"] == where


def test_a_message_that_was_given_up_is_dead(cluster, show):
    sent, other = send(cluster), send(cluster)
    commit(cluster, "billing", 2)
    kill(cluster, "billing", "orders", [sent])
    found = verdict(show(cluster, sent.msg_id))
    assert (found["verdict"], found["attempt"]) == ("dead", 1)
    assert found["where"] == "%DLQ%billing@broker-a:0:0"
    assert found["reason"] == (
        "a delivery since then, as after a reset back over it, would have left no"
        " record"
    )
    assert verdict(show(cluster, other.msg_id))["verdict"] == "unknown"


def test_a_dead_letter_that_was_redriven_is_said_to_be(cluster, show, tmp_path):
    """Whoever redrove it because of the verdict did so twice."""
    sent, other = send(cluster), send(cluster, "b")
    commit(cluster, "billing", 2)
    kill(cluster, "billing", "orders", [sent])
    words = ["-n", cluster.namesrv]
    assert (
        run(["topic", "update", "%DLQ%billing", "--perm", "rw", "--yes", *words]) == 0
    )
    for ref in (sent.msg_id, "%DLQ%billing@broker-a:0:0"):
        assert "redriven" not in json.dumps(show(cluster, ref)[1])
    assert run(["dlq", "redrive", "billing", "--execute", "--yes", *words]) == 0
    kill(cluster, "billing", "orders", [other])
    was_redriven = "the letter was redriven, by the log of redrives on this machine"
    found = verdict(show(cluster, sent.msg_id))
    evidence = f"a copy is in the dead-letter topic; {was_redriven}"
    assert (found["verdict"], found["evidence"]) == ("dead", evidence)
    assert "redriven" not in verdict(show(cluster, other.msg_id))["evidence"]
    (row,) = show(cluster, "%DLQ%billing@broker-a:0:0")[1]
    assert row["stored"]["evidence"] == was_redriven
    with Admin(namesrv=cluster.namesrv) as admin:  # the library says the same
        (message,) = admin.find_messages(sent.msg_id, topic="orders").messages
        (of_group,) = admin.message_outcome(message, groups=["billing"]).groups
        assert of_group.evidence == evidence
    (log,) = tmp_path.rglob("billing@*.jsonl")
    log.write_text("{}\n")
    assert (
        "; whether the letter was redriven is not known: "
        in (verdict(show(cluster, sent.msg_id))["evidence"])
    )


def test_a_dead_letter_that_waits_for_a_delay_is_no_retry(cluster, show):
    """As on brokers of 4.6.0, which keep the delay of the retry that failed last."""
    sent = send(cluster)
    commit(cluster, "billing", 1)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("%DLQ%billing", queue_nums=1)
    unique = {"UNIQ_KEY": sent.msg_id}
    cluster.send("%DLQ%billing", [Seed(body=b"a", delay_level=5, properties=unique)])
    found = verdict(show(cluster, sent.msg_id, "-t", "orders"))
    assert (found["verdict"], found["next_at"]) == ("dead", None)
    assert found["evidence"].startswith("its dead letter is on its way: it waits for")
    assert found["where"] == "SCHEDULE_TOPIC_XXXX@broker-a:4:0"
    cluster.send("%DLQ%billing", [Seed(body=b"a", properties=unique)])
    found = verdict(show(cluster, sent.msg_id, "-t", "orders"))
    assert (found["verdict"], found["where"]) == ("dead", "%DLQ%billing@broker-a:0:0")
    assert found["evidence"] == "a copy is in the dead-letter topic"


def test_a_dead_message_that_the_group_was_moved_back_to_is_not_only_dead(
    cluster, show
):
    sent = send(cluster)
    commit(cluster, "billing", 1)
    kill(cluster, "billing", "orders", [sent])
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.apply_reset(admin.plan_reset("billing", "orders", to="earliest"))
    found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "waiting"
    assert found["evidence"].startswith("a copy is in the dead-letter topic since 20")
    assert found["evidence"].endswith("Z; committed offset 0, message at 0")
    assert (found["waiting_before"], found["attempt"]) == (0, None)
    assert found["where"] == "%DLQ%billing@broker-a:0:0"
    commit(cluster, "billing", 1)
    found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert found["evidence"].startswith("a copy is in the dead-letter topic since 20")
    assert found["evidence"].endswith("Z; committed offset 1, message at 0")
    assert found["reason"].startswith("a reset was to move the group back over it, at ")
    assert found["reason"].endswith(
        "); whether the message was consumed since is not recorded"
    )


def test_a_queue_that_does_not_exist_is_named(cluster, show):
    code, _, err = show(cluster, "orders@broker-a:1:0", output="table")
    assert code == 3
    assert err == (
        "error: queue 1 of topic orders on broker-a does not exist: it has 1 queue"
        " there\nhint: list its queues with: rmq topic show orders\n"
    )


def test_a_message_that_failed_until_it_was_dead_is_not_in_retry(cluster, show):
    """The delays that have ended are still found."""
    sent = send(cluster)
    commit(cluster, "billing", 1)
    kill(cluster, "billing", "orders", [sent], delay_level=1)
    where = "%RETRY%billing@broker-a:0:0"
    wait_until(lambda: verdict(show(cluster, sent.msg_id))["where"] == where)
    with client_of(cluster) as client:
        retries = find_messages(client, where).messages
    kill(cluster, "billing", "%RETRY%billing", retries)
    commit(cluster, "billing", 1, topic="%RETRY%billing")
    found = verdict(show(cluster, sent.msg_id))
    assert (found["verdict"], found["attempt"]) == ("dead", 2)
    assert found["where"] == "%DLQ%billing@broker-a:0:0"
    _, table, _ = show(cluster, sent.msg_id, output="table")
    (line,) = [each for each in table.splitlines() if each.startswith("billing")]
    assert line.split()[:4] == ["billing", "dead", "2", "-"]


def test_a_dead_message_that_also_waits_for_a_retry_still_comes(cluster, show):
    """As after its letter was sent to the retry topic again."""
    sent = send(cluster)
    commit(cluster, "billing", 1)
    kill(cluster, "billing", "orders", [sent])
    kill(cluster, "billing", "orders", [sent], delay_level=5)
    found = verdict(show(cluster, sent.msg_id))
    assert (found["verdict"], found["attempt"]) == ("in_retry", 2)


def test_retries_of_another_message_with_the_same_id_do_not_count(cluster, show):
    first = send(cluster)
    seed = Seed(body=b"again", properties={"UNIQ_KEY": first.msg_id})
    (again,) = cluster.send("orders", [seed])
    commit(cluster, "billing", 2)
    kill(cluster, "billing", "orders", [again])
    code, rows, _ = show(cluster, first.msg_id)
    assert code == 0
    found = {row["body"]: row["groups"][0]["verdict"] for row in rows}
    # Brokers of 4.6.0 do not write which of the two a letter was.
    is_old = cluster.options.like == "4.6.0"
    assert found == {"a": "unknown", "again": "unknown" if is_old else "dead"}


def test_a_message_that_is_not_due_is_delayed(cluster, show):
    seed = Seed(body=b"later", delay_level=5)
    (seeded,) = cluster.send("orders", [seed])
    commit(cluster, "billing", 0)
    found = verdict(show(cluster, seeded.offset_msg_id, "--group", "billing"))
    assert found["verdict"] == "delayed"
    assert found["next_at"] is not None


def test_the_place_of_a_message_breaks_between_words_on_a_terminal(
    cluster, monkeypatch
):
    (sent,) = cluster.send("orders", [Seed(body=b"later", delay_level=5)])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "70")
    screen = Terminal()
    with redirect_stdout(screen):
        assert run(["message", "show", sent.msg_id, "-n", cluster.namesrv]) == 0
    assert ": it waits for its\n  delay to end\n" in screen.getvalue()


def test_the_text_says_why_a_body_cannot_be_decoded(rmq_cluster, capsys):
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send("T", ["x"])
    words = ["message", "show", "T@broker-a:0:0", "-n", rmq_cluster.namesrv]
    assert run([*words, "--decode", "json"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  x",
        "decode error: not JSON: expected a value at line 1, column 1",
        "stored",
        "",
        "no group of T is known",
        "",
    ]


def test_a_long_body_is_cut_and_the_note_names_a_format_of_the_command(
    rmq_cluster, capsys
):
    """It named -o raw, which message show does not have."""
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send("T", ["x" * 10_000])
    words = ["message", "show", "T@broker-a:0:0", "-n", rmq_cluster.namesrv]
    assert run(words) == 0
    note = "... (5,904 of 10,000 bytes left out; -o json has all of them)"
    assert note in capsys.readouterr().out.splitlines()
    assert run([*words, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["body"] == "x" * 10_000


def test_a_reset_over_a_message_is_not_its_consumption(cluster, show):
    sent = send(cluster)
    commit(cluster, "billing", 0)
    do = ["reset-offset", "billing", "orders", "--to", "latest", "--execute", "--yes"]
    assert run([*do, "-n", cluster.namesrv]) == 0
    with member(cluster):
        found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("a reset moved the group over it (backup ")


def test_a_reset_over_a_retry_is_not_its_consumption(cluster, show):
    with member(cluster):
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        commit(cluster, "billing", 0, "%RETRY%billing")
    kill(cluster, "billing", "orders", [sent], delay_level=1)
    wait_until(lambda: show(cluster, "%RETRY%billing@broker-a:0:0")[0] == 0)
    assert verdict(show(cluster, sent.msg_id))["verdict"] == "in_retry"
    do = ["reset-offset", "billing", "orders", "--to", "latest", "--include-retry"]
    assert run([*do, "--execute", "--yes", "-n", cluster.namesrv]) == 0
    found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("a reset moved the group over it (backup ")


@pytest.mark.parametrize(
    ("names", "hours_ago", "said"),
    [
        (("OtherCluster",), 0, None),
        (("DefaultCluster",), 48, None),
        (("DefaultCluster",), 0, "of this cluster or of another one with its name"),
    ],
    ids=["another name", "before the message", "the same name"],
)
def test_a_reset_of_another_cluster_does_not_count(
    cluster, show, names, hours_ago, said
):
    """Where all brokers have moved, the same name may mean the same cluster."""
    queue = MessageQueue("orders", "broker-a", 0)
    with member(cluster):
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        save_backup(
            backup_directory(os.environ),
            Backup(
                created_ms=SYSTEM_CLOCK.epoch_ms() - hours_ago * 3_600_000,
                namesrv=("127.0.0.1:1",),
                cluster=ClusterIdentity(names, {"broker-a": ("127.0.0.1:1",)}),
                group="billing",
                topic="orders",
                committed={queue: 0},
                targets={queue: 1},
                noted={queue: Noted(1, None)},
            ),
        )
        if said is None:
            assert settled(cluster, show, sent)["verdict"] == "consumed"
        else:
            wait_until(lambda: said in reason_of(cluster, show, sent))


def test_members_in_broadcast_mode_keep_their_offsets(cluster, show):
    from tests.admin.reset.member import FakeMember

    sent = send(cluster)
    with FakeMember(
        cluster, "billing", topics=("orders",), message_model="BROADCASTING"
    ):
        found = verdict(show(cluster, sent.msg_id, "--group", "billing"))
    assert found["verdict"] == "broadcast"


def test_a_member_that_does_not_tell_what_it_pulls_may_use_pop(cluster, show):
    from tests.admin.reset.member import FakeMember

    sent = send(cluster)
    commit(cluster, "billing", 1)
    with FakeMember(cluster, "billing", topics=("orders",)):
        found = verdict(show(cluster, sent.msg_id))
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("no member tells that it pulls the queue")


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (RequestCode.QUERY_CONSUMER_OFFSET, "committed offset of"),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, "members of"),
    ],
)
def test_a_verdict_that_is_unknown_because_a_broker_refuses_is_a_partial_answer(
    rmq_cluster_factory, show, code, what
):
    """The exit code was 0, and only the reason of the verdict told of the refusal."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    for name in ("billing", "audit"):
        cluster.create_group(name)
        commit(cluster, name, 1)
    sent = send(cluster)
    send(cluster)
    denied = faults.answer(16, "no rights for billing")
    cluster.faults.add(denied, code=code, group="billing")
    code, (row,), err = show(cluster, sent.msg_id, "-g", "billing", "-g", "audit")
    of_billing = next(each for each in row["groups"] if each["group"] == "billing")
    assert of_billing["verdict"] == "unknown"
    assert f"broker-a denied access: {what} group billing" in " ".join(err.split())
    assert [each["broker_name"] for each in row["errors"]] == ["broker-a"]
    assert code == 6


def test_a_verdict_that_is_unknown_because_a_name_server_refuses_is_partial(
    rmq_cluster_factory, show
):
    """The exit code was 0. Routes of retry topics tell whether a group uses POP."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    commit(cluster, "billing", 1)
    sent = send(cluster)
    for topic in ("%RETRY%billing_orders", "%RETRY%billing+orders"):
        denied = faults.answer(16, "no rights for this route")
        cluster.faults.add(denied, topic=topic, broker="namesrv")
    code, (row,), err = show(cluster, sent.msg_id, "-g", "billing")
    assert row["groups"][0]["verdict"] == "unknown"
    assert f"{cluster.namesrv} denied access: route of topic %RETRY%billing" in err
    assert code == 6


def test_without_an_index_a_retry_cannot_be_ruled_out(cluster, show):
    with member(cluster):
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        cluster.faults.add(faults.answer(22, "no"), code=RequestCode.QUERY_MESSAGE)
        found = verdict(show(cluster, "orders@broker-a:0:0"))
    assert sent.queue_offset == 0
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("the index does not find the message itself")


@pytest.mark.slow
def test_a_silent_broker_may_have_retries(rmq_cluster_factory, show):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    with member(cluster):
        (seeded,) = cluster.send("orders", [Seed(body=b"a")], broker="broker-a")
        wait_until(lambda: committed(cluster, "billing") == 1)
        cluster.broker("broker-b").hang()
        code, (row,), err = show(cluster, seeded.offset_msg_id, "--timeout", "2s")
    assert code == 6
    assert "broker-b did not answer" in err
    assert [each["broker_name"] for each in row["errors"]] == ["broker-b"]
    (found,) = row["groups"]
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("retries may be on broker-b")


def test_a_broker_that_has_left_the_route_may_have_retries(rmq_cluster_factory, show):
    """The name server forgets a broker as it goes: the message was called consumed."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    with member(cluster):
        (seeded,) = cluster.send("orders", [Seed(body=b"a")], broker="broker-a")
        wait_until(lambda: committed(cluster, "billing") == 1)
        ref = seeded.offset_msg_id
        wait_until(lambda: verdict(show(cluster, ref))["verdict"] == "consumed")
        cluster.broker("broker-b").kill()

        def is_known():
            last[:] = show(cluster, ref)
            (group,) = last[1][0]["groups"]
            return "no member" not in (group["reason"] or "")

        last: list[Any] = []
        wait_until(is_known, last)
        code, (row,), err = last
    assert code == 6
    assert "it is no longer in the route" in err
    (found,) = row["groups"]
    assert (found["verdict"], found["reason"]) == (
        "unknown",
        "retries may be on broker-b, which has left the route",
    )


def test_whether_pop_holds_a_message_is_asked_beside_what_pop_recorded(
    rmq_cluster_factory, show
):
    """One after the other took more than half of the time that the command took.

    A broker that does not answer one of two questions is not asked the other later.
    """
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = send(cluster)
    commit(cluster, "billing", 0)
    records = cluster.faults.add(
        faults.drop_request(),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="rmq_sys_REVIVE_LOG_DefaultCluster",
    )
    locks = cluster.faults.observe(code=RequestCode.NOTIFICATION)
    words = [sent.msg_id, "-t", "orders", "-g", "billing", "--timeout", "1s"]
    found = verdict(show(cluster, *words))
    assert (len(records.requests), len(locks.requests)) == (1, 1)
    assert found["verdict"] == "waiting"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["show", "trace"])
def test_a_silent_broker_is_waited_for_once(rmq_cluster_factory, capsys, command):
    """Each of the questions to it took the whole --timeout: show had five of them.

    The first two are asked side by side.
    """
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    for topic in ("orders", "RMQ_SYS_TRACE_TOPIC"):
        cluster.create_topic(topic)
    (seeded,) = cluster.send("orders", [Seed(body=b"a")], broker="broker-a")
    rule = cluster.faults.add(faults.drop_request(), broker="broker-b")
    words = ["message", command, seeded.msg_id, "-t", "orders", "--timeout", "2s"]
    assert run([*words, "-n", cluster.namesrv]) in (3, 6)
    err = " ".join(capsys.readouterr().err.split())
    assert "broker-b did not answer" in err
    assert "timed out after 2000 ms" in err
    asked = [each.command.code for each in rule.requests]
    assert asked == [RequestCode.QUERY_MESSAGE, RequestCode.GET_TOPIC_STATS_INFO]


def test_a_silent_member_is_waited_for_once_for_all_messages_of_a_key(cluster, show):
    """Each message took a second more, and 20 messages are shown."""
    for body in "abc":
        send(cluster, body, keys=("k",))
    with Consumer("billing", "orders", lambda _: None, namesrv=cluster.namesrv):
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        rule = cluster.faults.add(faults.drop_request(), code=code)
        exit_code, rows, _ = show(cluster, "k", "-t", "orders")
    assert (exit_code, len(rows)) == (0, 3)
    assert len(rule.requests) == 1


def test_messages_of_a_key_are_asked_about_side_by_side(cluster, show):
    """Brokers were asked for their settings once for each message, one by one."""
    for body in "abc":
        send(cluster, body, keys=("k",))
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    rule = cluster.faults.add(faults.delay(1), code=code)
    exit_code, rows, _ = show(cluster, "k", "-t", "orders")
    assert (exit_code, [row["body"] for row in rows]) == (0, ["a", "b", "c"])
    assert len(rule.requests) == 1


def test_messages_of_a_key_have_the_verdicts_that_each_has_alone(cluster, show):
    """Several are asked about side by side, and equal questions once for all."""
    cluster.create_group("audit")
    with member(cluster), Producer(namesrv=cluster.namesrv) as producer:
        sent = [
            producer.send(ProducerMessage("orders", b"%d" % n, keys=("k",)))
            for n in range(12)
        ]
        producer.send(ProducerMessage("orders", b"12", keys=("k",), delay_level=18))
        wait_until(lambda: committed(cluster, "billing") == 12)
    kill(cluster, "billing", "orders", [sent[1], sent[8]])
    kill(cluster, "billing", "orders", [sent[4], sent[8], sent[9]], delay_level=18)
    commit(cluster, "audit", 5)
    code, rows, err = show(cluster, "k", "-t", "orders")
    assert code == 0, err
    found = [[each["verdict"] for each in row["groups"]] for row in rows]
    assert [of_audit for of_audit, _ in found] == [
        *["unknown"] * 5,  # whoever committed 5 had perhaps another filter
        *["waiting"] * 7,
        "delayed",
    ]
    of_billing = [of_billing for _, of_billing in found]
    assert [n for n in range(12) if of_billing[n] == "dead"] == [1]
    assert [n for n in range(12) if of_billing[n] == "in_retry"] == [4, 8, 9]
    alone = [show(cluster, row["offset_msg_id"])[1][0] for row in rows]
    assert alone == rows


@pytest.mark.slow
def test_a_key_of_many_messages_shows_the_newest_that_the_time_allows(cluster, show):
    """It ended with `no broker answers`, although the broker answered everything."""
    with Producer(namesrv=cluster.namesrv) as producer:
        for number in range(30):
            body = b"%d" % number
            producer.send(ProducerMessage("orders", body, keys=("k",)))
    slow = faults.delay(400)
    cluster.faults.add(slow, code=RequestCode.GET_BROKER_CONFIG)
    code, rows, err = show(cluster, "k", "-t", "orders", "--timeout", "2s")
    assert code == 6
    assert 1 < len(rows) < 20
    newest = [str(number) for number in range(30 - len(rows), 30)]
    assert [row["body"] for row in rows] == newest
    error = json.loads(err.splitlines()[-1])["error"]
    assert (error["message"], error["hint"]) == (
        (
            f"found 30 messages with k; the newest {len(rows)} are shown: within 2s the"
            " brokers can be asked about no more"
        ),
        "allow more time: --timeout DURATION",
    )
    cluster.faults.clear()
    code, rows, err = show(cluster, "k", "-t", "orders")
    assert (code, len(rows)) == (6, 20)
    error = json.loads(err.splitlines()[-1])["error"]
    assert (error["message"], error["hint"]) == (
        "found 30 messages with k; the newest 20 are shown",
        "list them with: rmq message find TOPIC --key KEY",
    )


def test_messages_of_a_key_that_were_told_before_the_time_was_up_are_found(cluster):
    with Producer(namesrv=cluster.namesrv) as producer:
        for number in range(70):
            body = b"%d" % number
            producer.send(ProducerMessage("orders", body, keys=("k",)))
    code = RequestCode.QUERY_MESSAGE
    with client_of(cluster, timeout_ms=300) as client:
        assert len(find_messages(client, "k", "orders").messages) == 70
        cluster.faults.add(faults.drop_request(), code=code, nth=2, times=1)
        found = find_messages(client, "k", "orders")
    assert [int(each.body) for each in found.messages] == list(range(6, 70))
    assert found.unsearched == "broker-a did not tell all messages"


def test_a_message_that_no_broker_has_is_not_found(cluster, show):
    code, rows, err = show(cluster, "0" * 32)
    assert (code, rows) == (3, None)
    assert f"no broker has a message {'0' * 32}" in err
    assert "or sent so lately that it is not in the index yet" in " ".join(err.split())


def test_an_id_that_the_index_does_not_know_yet_is_found_by_its_time(cluster, show):
    sent = send(cluster)
    cluster.faults.add(faults.answer(22, "no"), code=RequestCode.QUERY_MESSAGE)
    code, rows, err = show(cluster, sent.msg_id)
    assert (code, rows) == (6, None)
    assert "the index is off, late, or of another kind" in " ".join(err.split())
    assert "looked for by its time, in its topic: --topic TOPIC" in err
    code, (row,), err = show(cluster, sent.msg_id, "-t", "orders")
    assert (code, row["msg_id"]) == (0, sent.msg_id)
    assert "reading 1 message of orders stored between" in err


def test_an_id_that_is_not_found_by_its_time_either_may_still_be_there(cluster, show):
    send(cluster)
    cluster.faults.add(faults.answer(22, "no"), code=RequestCode.QUERY_MESSAGE)
    code, rows, err = show(cluster, "0A000001000100000001000000000001", "-t", "orders")
    said = " ".join(err.split())
    assert (code, rows) == (6, None)
    assert "broker-a cannot look it up" in said
    assert "not in what was read by its time: " in said
    assert "to search all of it, read the topic: rmq tail" in said


def without_index(cluster, **more):
    rule = faults.answer(22, "can not find message")
    cluster.faults.add(rule, code=RequestCode.QUERY_MESSAGE, **more)


@pytest.mark.parametrize("like", LIKE)
def test_a_half_message_that_no_index_knows_is_found_by_its_time(shop, show, like):
    """Without an index it cannot be told whether it was committed, or given up."""
    cluster = shop(like)
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        half = begin_transaction(shop_, UNKNOW)
        without_index(cluster)
        code, (row,), err = show(cluster, half.msg_id, "-t", "orders", "-g", "billing")
    assert (code, row["topic"]) == (0, "RMQ_SYS_TRANS_HALF_TOPIC"), err
    (group,) = row["groups"]
    assert group["verdict"] == "unknown"
    assert group["evidence"].startswith("a half message is there since ")
    assert "the index does not find the message itself" in group["reason"]


def test_a_transaction_that_ended_is_not_called_rolled_back_without_an_index(
    shop, show
):
    cluster = shop("5.5.0")
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        begin_transaction(shop_, COMMIT)
    ref = "RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0:0"
    wait_until(lambda: show(cluster, ref)[1][0]["topic"] == "orders")
    without_index(cluster)
    found = verdict(show(cluster, ref, "-g", "billing"))
    assert found["verdict"] == "unknown"
    assert found["evidence"].startswith("its transaction ended at ")


def test_a_transaction_whose_copy_is_damaged_is_not_called_rolled_back(shop, show):
    """The record in its topic cannot be read, so that no copy seemed to be there."""
    cluster = shop("5.5.0")
    with Producer("shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW) as shop_:
        begin_transaction(shop_, COMMIT)
    ref = "RMQ_SYS_TRANS_HALF_TOPIC@broker-a:0:0"
    wait_until(lambda: show(cluster, ref)[1][0]["topic"] == "orders")
    damaged = faults.answer(0, body=bytes([0, 0, 0, 8, 1, 2, 3, 4]))
    cluster.faults.add(damaged, code=RequestCode.QUERY_MESSAGE, topic="orders")
    found = verdict(show(cluster, ref, "-g", "billing"))
    assert found["verdict"] == "unknown"
    assert found["evidence"].startswith("its transaction ended at ")
    assert found["reason"] == "1 record with its id cannot be read: it may be its copy"


@pytest.mark.parametrize(
    ("delay", "expected"),
    [
        ({"delay_level": 9}, "delayed"),  # nothing but its delay ends it
        ({"delay_ms": 3_600_000}, "unknown"),  # it may have been recalled
    ],
)
def test_a_message_with_a_delay_that_no_index_knows_is_found_by_its_time(
    rmq_cluster_factory, show, delay, expected
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent = send(cluster, **delay)
    without_index(cluster)
    code, (row,), err = show(cluster, sent.msg_id, "-t", "orders", "-g", "billing")
    assert (code, row["msg_id"]) == (0, sent.msg_id), err
    (group,) = row["groups"]
    assert (group["verdict"], group["next_at"] is None) == (expected, False)


def test_a_message_that_waits_is_shown_beside_one_with_its_key(
    rmq_cluster_factory, show
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    commit(cluster, "billing", 0)
    sent = [send(cluster, keys="k"), send(cluster, keys="k", delay_level=9)]
    code, rows, _ = show(cluster, "k", "-t", "orders", "-g", "billing")
    assert (code, [_id_and_verdict(row) for row in rows]) == (
        0,
        [(sent[0].msg_id, "waiting"), (sent[1].msg_id, "delayed")],
    )


def test_a_delayed_message_that_was_sent_to_two_brokers_waits_on_both(
    rmq_cluster_factory, show
):
    """As when a producer got no answer from the first one."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    msg_id = "0A000001000100000001000000000001"
    for name in ("broker-a", "broker-b"):
        seed = Seed(body=b"a", delay_level=9, properties={"UNIQ_KEY": msg_id})
        cluster.send("orders", [seed], broker=name, queue_id=0)
    code, rows, _ = show(cluster, msg_id, "-t", "orders")
    places = sorted(row["broker_name"] for row in rows)
    assert (code, places) == (0, ["broker-a", "broker-b"])


def test_a_broker_without_an_index_may_have_another_message_of_the_name(
    rmq_cluster_factory, show
):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    (seeded,) = cluster.send("orders", [Seed(body=b"a", keys=["k"])], broker="broker-a")
    again = Seed(body=b"b", keys=["k"], properties={"UNIQ_KEY": seeded.msg_id})
    cluster.send("orders", [again], broker="broker-b")
    without_index(cluster, broker="broker-b")
    for ref in ("k", seeded.msg_id):
        code, rows, err = show(cluster, ref, "-t", "orders")
        assert (code, [row["body"] for row in rows]) == (6, ["a"])
        assert (
            f"other messages may have {ref}: broker-b cannot look it up: the index is"
            " off, late, or of another kind"
        ) in " ".join(err.split())


def test_the_retries_of_a_group_are_not_those_of_pop_in_another_group(cluster, show):
    """POP's older name for the retries of billing and orders is that of this group."""
    sent = send(cluster)
    cluster.create_group("billing_orders")
    commit(cluster, "billing", 0)
    commit(cluster, "billing_orders", 1)
    kill(cluster, "billing_orders", "orders", [sent], delay_level=1)
    wait_until(lambda: show(cluster, "%RETRY%billing_orders@broker-a:0:0")[0] == 0)
    for words in (["-g", "billing"], ["-g", "billing", "-g", "billing_orders"]):
        _, (row,), _ = show(cluster, sent.msg_id, *words)
        shown = {each["group"]: each["verdict"] for each in row["groups"]}
        assert shown.pop("billing") == "waiting"
        assert set(shown.values()) <= {"in_retry"}


def test_retries_of_pop_are_not_those_of_a_group_with_the_name_of_their_topic(
    rmq_cluster_factory, show
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    for group in ("billing", "billing_orders"):
        cluster.create_group(group)
        commit(cluster, group, 0)
    sent = send(cluster)
    with pop(cluster, 1_000) as consumer:
        receive(consumer, 1)
    place = "%RETRY%billing_orders@broker-a:0:0"
    wait_until(lambda: show(cluster, place)[0] == 0)
    found = verdict(show(cluster, sent.msg_id, "-g", "billing"))
    assert (found["verdict"], found["where"]) == ("in_retry", place)
    found = verdict(show(cluster, sent.msg_id, "-g", "billing_orders"))
    assert found["verdict"] == "waiting"


def test_a_retry_may_hide_behind_the_delayed_retries_of_other_groups(cluster, show):
    """A broker tells only the newest 64 that have the id of the message."""
    cluster.create_group("stock")
    with member(cluster):
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        kill(cluster, "billing", "orders", [sent], delay_level=18)
        found = settled(cluster, show, sent)
        assert found["verdict"] == "in_retry"
        kill(cluster, "stock", "orders", [sent] * 64, delay_level=17)
        found = verdict(show(cluster, sent.msg_id, "-g", "billing"))
    assert found["verdict"] == "unknown"
    assert found["reason"] == (
        "of the delayed retries of it, broker-a tells only the newest 64"
    )


@pytest.mark.slow
def test_a_retry_that_failed_again_was_not_consumed(cluster, show):
    """Its next copy is in the same retry topic, with the same id."""
    retries = "%RETRY%billing"
    first, second = (f"{retries}@broker-a:0:{n}" for n in (0, 1))

    def fail(ref, delay_level):
        _, (row,), _ = show(cluster, ref)
        sent = SimpleNamespace(offset_msg_id=row["offset_msg_id"])
        kill(cluster, "billing", "orders", [sent], delay_level=delay_level)

    with member(cluster):
        sent = send(cluster)
        wait_until(lambda: committed(cluster, "billing") == 1)
        fail(sent.msg_id, 1)
        wait_until(lambda: committed(cluster, "billing", retries) == 1)
        assert verdict(show(cluster, first))["verdict"] != "in_retry"
        fail(first, 1)
        wait_until(lambda: committed(cluster, "billing", retries) == 2)
        found = verdict(show(cluster, first))
        assert (found["verdict"], found["attempt"]) == ("consumed", 3)
        assert found["where"] == second
        fail(second, -1)
        for ref in (sent.msg_id, first, second):
            assert verdict(show(cluster, ref))["verdict"] == "dead"


def beat(cluster, expression, at_ms, **fields):
    """Write what a proxy in cluster mode writes about a member of billing."""
    subscription = {"topic": "orders", "subString": expression, "subVersion": at_ms}
    record = {
        "clientId": "host@1@1@a",
        "group": "billing",
        "heartbeatType": "REGISTER",
        "consumeType": "CONSUME_ACTIVELY",
        "messageModel": "CLUSTERING",
        "channelData": "{}",
        "subscriptionDataSet": [{**subscription, "tagsSet": [expression]}],
        **fields,
    }
    cluster.send("DefaultHeartBeatSyncerTopic", [json.dumps(record)])


@pytest.mark.parametrize(
    ("beats", "reason"),
    [
        # Seconds before and after the message, with a filter.
        ({-100: "New", -5: "New", 60: "New", 100: "New"}, None),
        ({-100: "Paid", -5: "New", 60: "New", 100: "New"}, None),
        ({5: "New", 60: "New", 100: "New"}, "is newer than the message"),
        ({-5: "New", 60: "Paid", 100: "New"}, "is newer than the message"),
        ({-50: "New", 71: "New", 100: "New"}, "is newer than the message"),
        ({-5: "New", 60: "", 100: "New"}, "is newer than the message"),
    ],
)
def test_heartbeats_tell_since_when_members_behind_a_proxy_have_their_filter(
    rmq_cluster_factory, show, beats, reason
):
    """Each heartbeat renewed the filter: what members passed over became unknown."""
    now_ms = SYSTEM_CLOCK.epoch_ms()
    clock = ManualClock(now_ms=now_ms - 240_000)
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    sent_ms = now_ms - 120_000
    sent: list[Any] = []
    for at_s, expression in sorted({**beats, 0: None}.items()):
        clock.now_ms = at_ms = sent_ms + at_s * 1_000
        if expression is None:
            sent = cluster.send("orders", [Seed(body=b"a", tags="Paid")])
        elif expression:
            beat(cluster, expression, at_ms)
        else:  # it has another topic
            beat(cluster, "*", at_ms, subscriptionDataSet=[])
    clock.now_ms = now_ms
    commit(cluster, "billing", 1)
    found = verdict(show(cluster, sent[0].offset_msg_id))
    expected = "filtered" if reason is None else "unknown"
    assert found["verdict"] == expected, found
    assert reason is None or reason in found["reason"]


def test_the_offset_of_a_slave_does_not_show_that_a_message_waits(
    rmq_cluster_factory, show
):
    """A slave has the offsets of some time ago, and nothing said that they were its."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.send("orders", ["x"])
    cluster.create_group("billing")
    commit(cluster, "billing", 0)
    cluster.add_slave()
    cluster.broker("broker-a").kill()
    _, (row,), _ = show(cluster, "orders@broker-a:0:0")
    (found,) = row["groups"]
    assert found["verdict"] == "unknown"
    assert found["reason"] == (
        "broker-a currently has no master, only slaves, whose committed offsets may be"
        " old"
    )


def test_a_message_of_a_broker_with_an_ipv6_address_is_found_by_all_its_names(
    rmq_cluster_factory, show
):
    need_ipv6()
    cluster = rmq_cluster_factory(queues=1, host="::1")
    cluster.create_topic("orders")
    cluster.create_group("billing")
    with Producer("shop", namesrv=cluster.namesrv) as producer:
        sent = producer.send(ProducerMessage("orders", b"a"))
    offset_id = sent.offset_msg_id or ""
    assert len(offset_id) == 56
    for ref in (sent.msg_id, offset_id, offset_id.lower(), "orders@broker-a:0:0"):
        code, (row,), err = show(cluster, ref)
        assert (code, err) == (0, "")
        assert (row["msg_id"], row["body"]) == (sent.msg_id, "a")
        assert row["store_host"].startswith("[")
