"""The trace of a message: what was reported, in order, and what is missing."""

from __future__ import annotations

import asyncio

import pytest

from rmqcli import (
    Admin,
    NotFoundError,
    PartialError,
    TraceEventKind,
    UsageError,
)
from rmqcli.aio import AsyncAdmin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, Seed, faults
from rmqcli.trace.codec import encode_records
from rmqcli.trace.record import (
    ConsumeReturnType,
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceMessageType,
)
from rmqcli.trace.setting import TRACE_TOPIC
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import client_of
from tests.admin.message.damage import damage_record
from tests.kit.clock import SetClock
from tests.kit.waiting import wait_until

KINDS = TraceEventKind
#: What a broker answers that has no index, or another kind of it.
NOT_FOUND = faults.answer(22, "can not find message, maybe time range not correct")
BROKEN = faults.answer(1, "the disk is full")
T0 = 1_700_000_000_000


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_topic(TRACE_TOPIC)
    return cluster


@pytest.fixture
def admin(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        yield admin


def put(cluster, **more):
    """Store a message of orders; return its id and places."""
    (seeded,) = cluster.send("orders", [Seed(body=b"x", **more)], broker="broker-b")
    return seeded


def pub(msg_id, at=T0, **more):
    values = {
        "timestamp_ms": at,
        "region_id": "DefaultRegion",
        "group": "shop",
        "topic": "orders",
        "msg_id": msg_id,
        "tags": None,
        "keys": None,
        "store_host": "127.0.0.1:1",
        "body_bytes": 1,
        "cost_ms": 3,
        "message_type": TraceMessageType.Normal_Msg,
        "offset_msg_id": None,
        "is_success": True,
    }
    return Pub(**{**values, **more})


def before(msg_id, at, *, group="billing", request_id="r1", retry_times=0):
    return SubBefore(
        timestamp_ms=at,
        region_id="DefaultRegion",
        group=group,
        request_id=request_id,
        msg_id=msg_id,
        retry_times=retry_times,
        keys=None,
    )


def after(msg_id, at, *, group="billing", request_id="r1", return_type=0, cost_ms=2):
    return SubAfter(
        request_id=request_id,
        msg_id=msg_id,
        cost_ms=cost_ms,
        is_success=return_type == 0,
        keys=None,
        return_type=ConsumeReturnType(return_type),
        timestamp_ms=at,
        group=group,
    )


def report(cluster, *records, keys=None, broker="broker-a"):
    """Store records as one message of the trace topic."""
    seed = Seed(
        body=encode_records(records).encode(),
        keys=keys or [each.msg_id for each in records],
    )
    cluster.send(TRACE_TOPIC, [seed], broker=broker)


def shown(trace):
    """Kind, time since T0, group and status of each event that was reported."""
    return [
        (each.kind.value, (each.at_ms or T0) - T0, each.group, each.status)
        for each in trace.events
        if each.kind is not KINDS.STORED
    ]


def test_reports_of_all_brokers_are_one_timeline(cluster, admin):
    """Whatever their order in the trace topic, and without those of other messages."""
    seeded = put(cluster)
    m = seeded.msg_id
    report(cluster, after(m, T0 + 22, return_type=2), after("other", T0 + 1))
    report(cluster, before(m, T0 + 60, request_id="r2", retry_times=1))
    report(cluster, pub("other"), pub(m), broker="broker-b")
    report(cluster, before(m, T0 + 20), after(m, T0 + 65, request_id="r2", cost_ms=5))
    (trace,) = admin.message_trace(m)
    assert (trace.msg_id, trace.topic, trace.unreadable) == (m, "orders", 0)
    assert shown(trace) == [
        ("produced", 0, "shop", "success"),
        ("delivered", 20, "billing", "failed"),
        ("delivered", 60, "billing", "success"),
    ]
    produced, first, second = (e for e in trace.events if e.kind is not KINDS.STORED)
    assert (produced.cost_ms, produced.message_type) == (3, "Normal_Msg")
    assert produced.client_host == "127.0.0.1"
    assert (first.attempt, first.return_type, first.cost_ms) == (1, "EXCEPTION", 2)
    assert (second.attempt, second.return_type, second.cost_ms) == (2, "SUCCESS", 5)
    (stored,) = (each for each in trace.events if each.kind is KINDS.STORED)
    assert stored.where == "orders@broker-b:0:0"
    assert stored.at_ms == trace.messages[0].store_timestamp_ms
    assert trace.missing == []
    assert trace.is_reported
    assert trace.errors == {}


def test_a_message_is_traced_by_each_of_its_names(cluster, admin):
    seeded = put(cluster, keys=["k1"])
    report(cluster, pub(seeded.msg_id))
    for ref, topic in [
        (seeded.msg_id, None),
        (seeded.msg_id.lower(), None),
        (seeded.msg_id, "orders"),
        (seeded.offset_msg_id, None),
        ("orders@broker-b:0:0", None),
        ("k1", "orders"),
    ]:
        (trace,) = admin.message_trace(ref, topic=topic)
        assert (trace.msg_id, trace.topic) == (seeded.msg_id, "orders"), ref
        assert [each[0] for each in shown(trace)] == ["produced"], ref


def test_a_report_that_was_written_twice_is_one_event(cluster, admin):
    m = put(cluster).msg_id
    report(cluster, pub(m))
    report(cluster, pub(m), broker="broker-b")
    (trace,) = admin.message_trace(m)
    assert len(shown(trace)) == 1


def test_transactions_and_recalls_are_events(cluster, admin):
    m = put(cluster).msg_id
    common = {"region_id": None, "group": "shop", "topic": "orders", "msg_id": m}
    end = EndTransaction(
        timestamp_ms=T0 + 1,
        tags=None,
        keys=None,
        store_host=None,
        message_type=TraceMessageType.Trans_msg_Commit,
        transaction_id=m,
        state="ROLLBACK_MESSAGE",
        is_from_check=True,
        **common,
    )
    recall = Recall(timestamp_ms=T0 + 2, is_success=False, **common)
    report(cluster, recall, end)
    (trace,) = admin.message_trace(m)
    assert shown(trace) == [
        ("transaction", 1, "shop", "ROLLBACK_MESSAGE"),
        ("recalled", 2, "shop", "failed"),
    ]
    assert [e.is_from_check for e in trace.events if e.kind is KINDS.TRANSACTION] == [
        True
    ]


def test_one_half_of_a_delivery_is_a_delivery(cluster, admin):
    """A listener may still run; of clients before 4.9 the end has no time and group."""
    m = put(cluster).msg_id
    old = SubAfter(request_id="r3", msg_id=m, cost_ms=1, is_success=True, keys=None)
    report(cluster, pub(m), before(m, T0 + 5), after(m, T0 + 9, request_id="r2"), old)
    (trace,) = admin.message_trace(m)
    assert shown(trace) == [
        ("produced", 0, "shop", "success"),
        ("delivered", 5, "billing", "no_end"),
        ("delivered", 7, "billing", "success"),
        ("delivered", 0, None, "success"),
    ]
    assert trace.events[-1].at_ms is None
    assert [e.attempt for e in trace.events if e.kind is KINDS.DELIVERED] == [
        1,
        None,
        None,
    ]


def test_who_has_reported_nothing_is_named(cluster, admin):
    m = put(cluster).msg_id
    report(cluster, before(m, T0, group="shipping"), after(m, T0, group="shipping"))
    with client_of(cluster) as client:
        for group in ("billing", "shipping"):
            cluster.create_group(group)
            call = update_consumer_offset(group, "orders", 0, commit_offset=1)
            client.invoke(cluster.broker("broker-b").address, call)
    (trace,) = admin.message_trace(m)
    assert [(each.part, each.group) for each in trace.missing] == [
        ("producer", None),
        ("group", "billing"),
    ]
    assert trace.missing[1].reason == (
        "no delivery reported: none yet, or its traces are off"
    )


def test_the_message_of_a_client_with_a_namespace_is_found(cluster, admin):
    """It was said to be gone: Java's clients report names without the namespace."""
    cluster.create_topic("NS1%orders")
    cluster.create_group("NS1%billing")
    (seeded,) = cluster.send("NS1%orders", ["x"])
    m = seeded.msg_id
    report(cluster, pub(m), before(m, T0), after(m, T0))
    with client_of(cluster) as client:
        call = update_consumer_offset("NS1%billing", "NS1%orders", 0, commit_offset=1)
        client.invoke(cluster.broker().address, call)
    for topic in (None, "NS1%orders"):
        (trace,) = admin.message_trace(m, topic=topic)
        assert trace.topic == "NS1%orders"
        assert [each.msg_id for each in trace.messages] == [m]
        assert trace.missing == []


def test_a_message_without_any_report_says_so(cluster, admin):
    m = put(cluster).msg_id
    (trace,) = admin.message_trace(m)
    assert not trace.is_reported
    assert [each.kind for each in trace.events] == [KINDS.STORED]
    assert trace.missing[0].reason.startswith("no report of the send")


def test_a_message_that_is_deleted_still_has_its_trace(cluster, admin):
    m = "7F000001A1B214085FFD2B2767C2D0BA"
    report(cluster, pub(m))
    (trace,) = admin.message_trace(m)
    assert (trace.topic, trace.messages) == ("orders", [])
    assert [each[0] for each in shown(trace)] == ["produced"]
    assert trace.missing[0].part == "message"


def test_traces_that_are_deleted_already_are_an_explanation(cluster, admin):
    m = put(cluster).msg_id
    stored_ms = SYSTEM_CLOCK.epoch_ms()
    wait_until(lambda: SYSTEM_CLOCK.epoch_ms() > stored_ms)
    for _ in range(3):
        report(cluster, pub("other"))
    cluster.broker().trim(TRACE_TOPIC, 2)
    (trace,) = admin.message_trace(m)
    assert "or its report is deleted: the oldest trace is of 20" in (
        trace.missing[0].reason
    )


def test_where_there_is_no_index_the_trace_topic_is_read(cluster, admin):
    m = put(cluster).msg_id
    report(cluster, pub(m))
    report(cluster, pub("other"))
    cluster.faults.add(NOT_FOUND, code=RequestCode.QUERY_MESSAGE, topic=TRACE_TOPIC)
    (trace,) = admin.message_trace(m, topic="orders")
    assert shown(trace) == [("produced", 0, "shop", "success")]


@pytest.fixture
def delayed(rmq_cluster_factory):
    """A message that was sent at T0, and stored in its topic two minutes later.

    After the first of these minutes one trace of another message was stored.
    """
    clock = ManualClock(now_ms=T0)
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    cluster.create_topic(TRACE_TOPIC)
    (seeded,) = cluster.send("orders", [Seed(body=b"x", delay_level=6)])
    report(cluster, pub(f"A1,{seeded.msg_id}"))  # which the index does not find
    clock.advance(61_000)
    report(cluster, pub("other"))
    clock.advance(61_000)
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: admin.find_messages(seeded.msg_id, topic="orders").messages)
        yield cluster, admin, seeded.msg_id


def test_a_scan_begins_when_a_delayed_message_was_sent(delayed):
    _, admin, m = delayed
    (trace,) = admin.message_trace(m, topic="orders", scan=True)
    assert shown(trace) == [("produced", 0, "shop", "success")]


def test_a_scan_names_the_queues_that_are_not_in_the_order_of_time(rmq_cluster_factory):
    """Reports from after the broker's clock was set back were left out, unsaid."""
    clock = SetClock(T0)
    cluster = rmq_cluster_factory(queues=1, clock=clock)
    cluster.create_topic("orders")
    cluster.create_topic(TRACE_TOPIC)
    (seeded,) = cluster.send("orders", ["x"])
    for hours in (-2, 1, -2):  # the last of them after it was set back
        clock.now_ms = T0 + hours * 3_600_000
        report(cluster, pub("other"))
    with Admin(namesrv=cluster.namesrv) as admin:
        (trace,) = admin.message_trace(seeded.msg_id, topic="orders", scan=True)
    (gap,) = [each for each in trace.missing if "not in order" in each.reason]
    assert gap.part == "traces"
    assert gap.reason.startswith(f"{TRACE_TOPIC}@broker-a:0: store times are not in")


def test_the_report_of_a_delayed_message_is_as_old_as_its_sending(delayed):
    cluster, admin, m = delayed
    cluster.broker().trim(TRACE_TOPIC, 1)
    (trace,) = admin.message_trace(m, topic="orders")
    assert shown(trace) == []
    assert "or its report is deleted: the oldest trace is of 2023-11-14" in (
        trace.missing[0].reason
    )


def test_the_report_of_a_batch_by_java_is_found_by_a_scan(cluster, admin):
    """Its key is all ids of the batch, so that the index does not find one of them."""
    m = put(cluster).msg_id
    report(cluster, pub(f"A1,{m},B2"))
    (trace,) = admin.message_trace(m)
    assert not trace.is_reported
    assert "only a scan finds the report" in trace.missing[0].reason
    (trace,) = admin.message_trace(m, scan=True)
    assert shown(trace) == [("produced", 0, "shop", "success")]
    assert trace.missing == []


def test_a_broker_that_does_not_answer_is_an_error_and_no_statement(cluster, admin):
    m = put(cluster).msg_id
    report(cluster, pub(m), broker="broker-a")
    cluster.faults.add(BROKEN, code=RequestCode.QUERY_MESSAGE, broker="broker-a")
    (trace,) = admin.message_trace(m, topic="orders")
    assert set(trace.errors) == {"broker-a"}
    assert "or its report is on broker-a: no answer" in trace.missing[0].reason


def test_reports_that_cannot_be_read_are_counted(cluster, admin):
    m = put(cluster).msg_id
    cluster.send(TRACE_TOPIC, [Seed(body=b"Pub\x01x\x02\xff\x02", keys=[m])])
    report(cluster, pub(m))
    (trace,) = admin.message_trace(m)
    assert trace.unreadable == 2
    assert len(shown(trace)) == 1


def test_a_damaged_record_that_a_scan_reads_is_a_report_that_cannot_be_read(
    cluster, admin
):
    m = put(cluster).msg_id
    report(cluster, pub(m), broker="broker-b")
    for each in ("other", m, "another"):
        report(cluster, pub(each), broker="broker-a")
    cluster.faults.add(NOT_FOUND, code=RequestCode.QUERY_MESSAGE, topic=TRACE_TOPIC)
    damage_record(cluster, MessageQueue(TRACE_TOPIC, "broker-a", 0), m)
    (trace,) = admin.message_trace(m, topic="orders")
    assert shown(trace) == [("produced", 0, "shop", "success")]
    assert trace.unreadable == 1


def test_a_trace_topic_that_does_not_exist_is_an_error(rmq_cluster, rmq_topic):
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        (seeded,) = rmq_cluster.send(rmq_topic, ["x"])
        with pytest.raises(NotFoundError, match="no client has written a trace"):
            admin.message_trace(seeded.msg_id)


def test_traces_in_another_topic_are_found(cluster, admin):
    m = put(cluster).msg_id
    body = encode_records([pub(m)]).encode()
    cluster.send("our-traces", [Seed(body=body, keys=[m])])
    (trace,) = admin.message_trace(m, trace_topic="our-traces")
    assert shown(trace) == [("produced", 0, "shop", "success")]


def test_a_key_without_a_message_is_not_found(cluster, admin):
    with pytest.raises(NotFoundError, match="no broker has a message k9"):
        admin.message_trace("k9", topic="orders")
    with pytest.raises(UsageError, match="neither a message id nor"):
        admin.message_trace("k9")


def test_of_many_messages_with_a_key_the_newest_are_traced(cluster, admin):
    ids = [put(cluster, keys="k1").msg_id for _ in range(21)]
    traces = admin.message_trace("k1", topic="orders")
    assert [trace.msg_id for trace in traces] == ids[1:]
    reason = "21 messages have this key, and the traces of the newest 20 are here"
    assert {trace.missing[0].reason for trace in traces} == {reason}


def test_a_key_that_was_not_looked_up_everywhere_is_not_said_to_be_missing(
    cluster, admin
):
    cluster.faults.add(BROKEN, code=RequestCode.QUERY_MESSAGE, broker="broker-a")
    with pytest.raises(PartialError, match="k9 was not found: broker-a did not"):
        admin.message_trace("k9", topic="orders")


def test_programs_with_asyncio_get_the_same(cluster):
    m = put(cluster).msg_id
    report(cluster, pub(m))

    async def ask():
        async with AsyncAdmin(namesrv=cluster.namesrv) as admin:
            return await admin.message_trace(m)

    (trace,) = asyncio.run(ask())
    assert shown(trace) == [("produced", 0, "shop", "success")]


def test_a_broker_without_an_index_may_have_another_message_with_the_key(
    cluster, admin
):
    for name in ("broker-a", "broker-b"):
        cluster.send("orders", [Seed(body=b"x", keys=["k"])], broker=name)
    no = faults.answer(22, "can not find message")
    code = RequestCode.QUERY_MESSAGE
    cluster.faults.add(no, code=code, broker="broker-a")
    (trace,) = admin.message_trace("k", topic="orders")
    assert [each.broker_name for each in trace.messages] == ["broker-b"]
    assert trace.missing[0].reason == (
        "other messages may have k: broker-a cannot look it up: the index is off, late,"
        " or of another kind"
    )
