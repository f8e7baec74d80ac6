"""A message is recalled before its delivery time, or it is said why not."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import (
    BrokerError,
    ChangeUnknownError,
    NotFoundError,
    PartialError,
    RefusedError,
    UsageError,
)
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.recall_handle import RecallHandle, encode_recall_handle

HOUR_MS = 3_600_000


@pytest.fixture
def start(rmq_cluster_factory):
    def start_(like="5.5.0", *, recall_message_enable=True):
        settings = {"recall_message_enable": recall_message_enable}
        cluster = rmq_cluster_factory(like=like, settings=settings)
        cluster.create_topic("orders")
        return cluster

    return start_


def send(cluster, body, **delay):
    with Producer(namesrv=cluster.namesrv) as producer:
        return producer.send(
            ProducerMessage("orders", body.encode(), keys=body, **delay)
        )


def waiting(admin):
    return [each.keys for each in admin.delayed("orders").messages]


def test_a_message_is_recalled_by_its_id_and_no_other_one_is(start):
    cluster = start()
    sent = send(cluster, "gone", delay_ms=HOUR_MS)
    send(cluster, "kept", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_recall(sent.msg_id.lower(), topic="orders")
        assert waiting(admin) == ["gone", "kept"]
        admin.apply_recall(planned)
        assert waiting(admin) == ["kept"]
        for ref in (sent.msg_id, planned.recall_handle):
            with pytest.raises(NotFoundError, match="waits for its delivery time"):
                admin.plan_recall(ref, topic="orders")


def test_the_command_recalls_by_a_handle_after_it_was_confirmed(start, capsys):
    cluster = start()
    sent = send(cluster, "gone", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        handle = admin.plan_recall(sent.msg_id, topic="orders").recall_handle
        do = ["message", "recall", handle, "-n", cluster.namesrv, "-o", "json"]
        assert run([*do, "--no-input"]) == 7
        assert waiting(admin) == ["gone"]
        capsys.readouterr()
        assert run([*do, "--yes"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["msg_id"], row["result"]) == (sent.msg_id, "recalled")
        assert waiting(admin) == []


def test_of_a_key_the_ids_of_the_messages_that_wait_are_told(start):
    """It was answered that the message had been delivered, recalled, or never
    delayed, while it waited: `message show` finds it by its key."""
    cluster = start()
    first = send(cluster, "same", delay_ms=HOUR_MS)
    second = send(cluster, "same", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(UsageError, match=r"^same is a key, and") as raised:
            admin.plan_recall("same", topic="orders")
        assert raised.value.hint == (
            f"of messages with this key, these wait: {first.msg_id}, {second.msg_id}"
        )
        with pytest.raises(NotFoundError, match="no message with the ID sam of topic"):
            admin.plan_recall("sam", topic="orders")


def test_a_message_with_a_delay_level_cannot_be_recalled(start):
    cluster = start()
    sent = send(cluster, "level", delay_level=18)
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(RefusedError, match="waits in delay level 18 of broker-a"):
            admin.plan_recall(sent.msg_id, topic="orders")
        with pytest.raises(UsageError, match="needs its topic"):
            admin.plan_recall(sent.msg_id)


def test_a_broker_that_does_not_recall_says_so_and_the_message_still_waits(start):
    cluster = start(recall_message_enable=False)
    sent = send(cluster, "stays", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_recall(sent.msg_id, topic="orders")
        with pytest.raises(BrokerError, match="operation is forbidden") as caught:
            admin.apply_recall(planned)
        assert caught.value.hint == "set recallMessageEnable=true on the broker"
        assert waiting(admin) == ["stays"]


def test_a_broker_that_accepts_and_goes_on_is_found_out(start):
    cluster = start()
    sent = send(cluster, "stays", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_recall(sent.msg_id, topic="orders")
        accepted = faults.answer(0, ext_fields={"msgId": sent.msg_id})
        cluster.faults.next(accepted, code=RequestCode.RECALL_MESSAGE)
        with pytest.raises(PartialError) as caught:
            admin.apply_recall(planned)
    assert caught.value.message == (
        f"broker-a accepted the recall, but the message {sent.msg_id} still waits"
    )


def test_a_recall_without_an_answer_is_done_if_the_message_no_longer_waits(
    start, capsys
):
    """Exit code 6 sent operators to look for what the tool can look for itself."""
    cluster = start()
    sent = send(cluster, "gone", delay_ms=HOUR_MS)
    lost = faults.disconnect(is_handled=True)
    cluster.faults.add(lost, code=RequestCode.RECALL_MESSAGE)
    do = ["message", "recall", sent.msg_id, "-t", "orders", "--yes"]
    assert run([*do, "-n", cluster.namesrv, "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["result"] == "recalled"
    with Admin(namesrv=cluster.namesrv) as admin:
        assert waiting(admin) == []


@pytest.mark.parametrize("is_readable", [True, False])
def test_a_recall_without_an_answer_that_is_not_seen_to_be_done_is_unknown(
    start, capsys, is_readable
):
    cluster = start()
    sent = send(cluster, "stays", delay_ms=HOUR_MS)

    def hide(_):
        if not is_readable:
            cluster.faults.add(faults.disconnect(), code=RequestCode.PULL_MESSAGE)

    code = RequestCode.RECALL_MESSAGE
    cluster.faults.observe(code=code, on_request=hide)
    cluster.faults.add(faults.disconnect(is_handled=not is_readable), code=code)
    do = ["message", "recall", sent.msg_id, "-t", "orders", "--yes"]
    assert run([*do, "-n", cluster.namesrv]) == 6
    err = capsys.readouterr().err
    assert "closed the connection before it answered; it may have been done" in err
    assert "see what waits: rmq delayed orders" in err


def test_a_recall_that_was_accepted_is_not_an_unreachable_broker(start):
    """Without a look afterwards it ended with exit code 5, as if nothing was done."""
    cluster = start()
    sent = send(cluster, "gone", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_recall(sent.msg_id, topic="orders")
        cluster.faults.add(faults.disconnect(), code=RequestCode.PULL_MESSAGE)
        with pytest.raises(PartialError) as caught:
            admin.apply_recall(planned)
    assert not isinstance(caught.value, ChangeUnknownError)
    assert caught.value.message.startswith(
        f"broker-a accepted the recall, but whether the message {sent.msg_id} still"
        " waits is not known: "
    )


def test_whether_a_message_waits_is_not_known_without_its_broker(start):
    cluster = start()
    sent = send(cluster, "stays", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        handle = admin.plan_recall(sent.msg_id, topic="orders").recall_handle
        cluster.faults.add(faults.answer(1, "busy"), code=RequestCode.PULL_MESSAGE)
        for ref, topic in ((sent.msg_id, "orders"), (handle, None)):
            with pytest.raises(PartialError) as caught:
                admin.plan_recall(ref, topic=topic)
            assert caught.value.message.startswith(
                "whether the message waits on broker-a is not known: "
            )


def test_a_handle_of_a_broker_that_is_gone_names_it(start):
    cluster = start()
    handle = encode_recall_handle(
        RecallHandle(
            topic="orders", broker_name="broker-z", timestamp_ms="1", message_id="AB"
        )
    )
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(NotFoundError, match="broker broker-z does not exist"),
    ):
        admin.plan_recall(handle)


def test_of_two_copies_one_must_be_chosen(rmq_cluster_factory):
    """A producer that got no answer has sent the message to another broker, too."""
    cluster = rmq_cluster_factory(
        brokers=2, queues=1, settings={"recall_message_enable": True}
    )
    cluster.create_topic("orders")
    cluster.faults.next(
        faults.disconnect(is_handled=True), code=RequestCode.SEND_MESSAGE_V2
    )
    sent = send(cluster, "twice", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        assert waiting(admin) == ["twice", "twice"]
        with pytest.raises(UsageError, match="2 copies of message") as caught:
            admin.plan_recall(sent.msg_id, topic="orders")
        handles = caught.value.hint.partition(": ")[2].split(", ")
        planned = admin.plan_recall(handles[0])
        assert planned.message.queue.broker_name == "broker-a"
        admin.apply_recall(planned)
        left = admin.plan_recall(sent.msg_id, topic="orders")
    assert (left.recall_handle, left.message.queue.broker_name) == (
        handles[1],
        "broker-b",
    )


def test_copies_on_one_broker_are_recalled_by_when_they_are_due(start):
    """A broker deletes all messages with one key that are due at the same time."""
    cluster = start()
    now_s = SYSTEM_CLOCK.epoch_ms() // 1_000
    for keys, due_s in (("one", 3_600), ("copy", 3_600), ("later", 7_200)):
        deliver_ms = str((now_s + due_s) * 1_000)
        properties = {"UNIQ_KEY": "AA", "TIMER_DELIVER_MS": deliver_ms}
        seed = Seed(body=b"x", keys=keys, properties=properties)
        cluster.send("orders", [seed], queue_id=0)
    with Admin(namesrv=cluster.namesrv) as admin:
        assert waiting(admin) == ["one", "copy", "later"]
        with pytest.raises(UsageError, match="2 copies of message AA wait") as caught:
            admin.plan_recall("AA", topic="orders")
        first, _ = caught.value.hint.partition(": ")[2].split(", ")
        admin.apply_recall(admin.plan_recall(first))
        assert waiting(admin) == ["later"]
        with pytest.raises(
            NotFoundError, match="no message with the ID AA of topic orders waits"
        ):
            admin.plan_recall(first)  # which is not the handle of the later copy


@pytest.mark.parametrize(("ms", "is_it"), [(-1_000, False), (0, True), (999, True)])
def test_a_handle_names_the_message_of_its_second(start, ms, is_it):
    """A handle may have any ms of the second that a broker rounds the time down to."""
    cluster = start()
    due_ms = (SYSTEM_CLOCK.epoch_ms() // 1_000 + 3_600) * 1_000
    properties = {"UNIQ_KEY": "AA", "TIMER_DELIVER_MS": str(due_ms + 1)}
    cluster.send("orders", [Seed(body=b"x", keys="it", properties=properties)])
    handle = encode_recall_handle(
        RecallHandle(
            topic="orders",
            broker_name="broker-a",
            timestamp_ms=str(due_ms + 1 + ms),
            message_id="AA",
        )
    )
    with Admin(namesrv=cluster.namesrv) as admin:
        if is_it:
            admin.apply_recall(admin.plan_recall(handle))
        else:
            with pytest.raises(NotFoundError):
                admin.plan_recall(handle)
        assert waiting(admin) == ([] if is_it else ["it"])


def test_a_handle_of_another_topic_is_refused(start):
    cluster = start()
    sent = send(cluster, "stays", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        handle = admin.plan_recall(sent.msg_id, topic="orders").recall_handle
        with pytest.raises(UsageError) as caught:
            admin.plan_recall(handle, topic="payments")
        assert caught.value.message == (
            "the recall handle is of a message of topic orders, not payments"
        )
        assert waiting(admin) == ["stays"]
