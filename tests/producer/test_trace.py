"""A producer with `trace` reports what it has sent, and never fails because of it."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from rmqcli import (
    BrokerError,
    ClientConfig,
    ConfigError,
    LocalTransactionState,
    Producer,
    ProducerMessage,
    UnsupportedError,
)
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.producer.remoting.trace import TraceDispatcher
from rmqcli.testing import faults
from rmqcli.trace.record import EndTransaction, Pub, SubAfter, TraceMessageType
from rmqcli.wire.codes import RequestCode, ResponseCode
from tests.kit.traces import with_keys, written
from tests.kit.waiting import wait_until
from tests.producer.stored import stored

SEND = RequestCode.SEND_MESSAGE_V2


def pubs(cluster, topic="RMQ_SYS_TRACE_TOPIC"):
    """The reports of sent messages, by message id."""
    return {
        each.msg_id: each
        for each in written(cluster.namesrv, topic)
        if isinstance(each, Pub)
    }


def test_every_message_that_was_sent_is_reported_with_its_keys(rmq_cluster, rmq_topic):
    before_ms = SYSTEM_CLOCK.epoch_ms()
    with Producer("shop", namesrv=rmq_cluster.namesrv, trace=True) as producer:
        one = producer.send(
            ProducerMessage(rmq_topic, b"hello", tags="Paid", keys=("a", "b"))
        )
        batch = producer.send_batch(
            [ProducerMessage(rmq_topic, b"x" * n, keys=f"k{n}") for n in (1, 2)]
        )
        later = producer.send(ProducerMessage(rmq_topic, b"later", delay_level=1))
        future = producer.submit(ProducerMessage(rmq_topic, b"async"))
        submitted = future.result()
    found = pubs(rmq_cluster)
    sent = [one, *batch, later, submitted]
    assert set(found) == {each.msg_id for each in sent}
    pub = found[one.msg_id]
    assert before_ms <= pub.timestamp_ms <= SYSTEM_CLOCK.epoch_ms()
    assert pub == Pub(
        timestamp_ms=pub.timestamp_ms,
        region_id="DefaultRegion",
        group="shop",
        topic=rmq_topic,
        msg_id=one.msg_id,
        tags="Paid",
        keys="a b",
        store_host=rmq_cluster.broker().address,
        body_bytes=5,
        cost_ms=pub.cost_ms,
        message_type=TraceMessageType.Normal_Msg,
        offset_msg_id=one.offset_msg_id,
        is_success=True,
    )
    assert [found[each.msg_id].body_bytes for each in batch] == [1, 2]
    assert [found[each.msg_id].keys for each in batch] == ["k1", "k2"]
    assert found[later.msg_id].message_type is TraceMessageType.Delay_Msg
    for keys, record in with_keys(rmq_cluster.namesrv):
        assert {record.msg_id, *(getattr(record, "keys", None) or "").split()} <= {
            *keys
        }


def test_without_trace_nothing_is_reported(rmq_cluster, rmq_topic):
    with Producer("shop", namesrv=rmq_cluster.namesrv) as producer:
        producer.send(ProducerMessage(rmq_topic, b"hello"))
    assert written(rmq_cluster.namesrv) == []


def test_traces_can_have_a_topic_of_their_own(rmq_cluster, rmq_topic):
    with Producer(namesrv=rmq_cluster.namesrv, trace="our-traces") as producer:
        sent = producer.send(ProducerMessage(rmq_topic, b"hello"))
    assert set(pubs(rmq_cluster, "our-traces")) == {sent.msg_id}
    assert written(rmq_cluster.namesrv) == []


def test_messages_of_the_trace_topic_itself_are_not_reported(rmq_cluster):
    rmq_cluster.create_topic("our-traces")
    with Producer(namesrv=rmq_cluster.namesrv, trace="our-traces") as producer:
        producer.send(ProducerMessage("our-traces", b"not a trace"))
    assert written(rmq_cluster.namesrv, "our-traces") == []


def test_a_message_is_reported_soon_and_not_only_at_the_close(rmq_cluster, rmq_topic):
    with Producer(namesrv=rmq_cluster.namesrv, trace=True) as producer:
        sent = producer.send(ProducerMessage(rmq_topic, b"hello"))
        wait_until(lambda: set(pubs(rmq_cluster)) == {sent.msg_id})


def test_how_a_transaction_ended_is_reported(rmq_cluster, rmq_topic):
    states = LocalTransactionState
    with Producer(
        "shop", namesrv=rmq_cluster.namesrv, trace=True, on_check=lambda _: None
    ) as producer:
        half = producer.send_in_transaction(
            ProducerMessage(rmq_topic, b"hello", keys="k"),
            lambda *_: states.COMMIT_MESSAGE,
        )
        undone = producer.send_in_transaction(
            ProducerMessage(rmq_topic, b"hello"), lambda *_: states.ROLLBACK_MESSAGE
        )
    records = written(rmq_cluster.namesrv)
    ends = {e.msg_id: e for e in records if isinstance(e, EndTransaction)}
    assert {each: ends[each].state for each in ends} == {
        half.msg_id: "COMMIT_MESSAGE",
        undone.msg_id: "ROLLBACK_MESSAGE",
    }
    end = ends[half.msg_id]
    assert (end.topic, end.group, end.keys) == (rmq_topic, "shop", "k")
    assert (end.is_from_check, end.transaction_id) == (False, half.transaction_id)
    assert end.store_host == rmq_cluster.broker().address
    found = pubs(rmq_cluster)
    assert found[half.msg_id].message_type is TraceMessageType.Trans_Msg_Half


def test_the_answer_to_a_check_is_reported(rmq_cluster_factory):
    cluster = rmq_cluster_factory(
        settings={"transaction_timeout_ms": 1, "transaction_check_interval_ms": 50}
    )
    cluster.create_topic("orders")
    with Producer(
        "shop",
        namesrv=cluster.namesrv,
        trace=True,
        on_check=lambda _: LocalTransactionState.COMMIT_MESSAGE,
    ) as producer:
        half = producer.send_in_transaction(
            ProducerMessage("orders", b"hello"), lambda *_: None
        )
        wait_until(
            lambda: (
                {
                    (each.msg_id, each.state)
                    for each in written(cluster.namesrv)
                    if isinstance(each, EndTransaction) and each.is_from_check
                }
                == {(half.msg_id, "COMMIT_MESSAGE")}
            )
        )


def test_a_message_that_no_broker_took_is_not_reported_as_sent(rmq_cluster, rmq_topic):
    refusal = faults.answer(ResponseCode.MESSAGE_ILLEGAL)
    with Producer(namesrv=rmq_cluster.namesrv, trace=True) as producer:
        rmq_cluster.faults.add(refusal, code=SEND, topic=rmq_topic)
        with pytest.raises(BrokerError):
            producer.send(ProducerMessage(rmq_topic, b"hello"))
        rmq_cluster.faults.clear()
        sent = producer.send(ProducerMessage(rmq_topic, b"hello"))
    assert set(pubs(rmq_cluster)) == {sent.msg_id}


def test_messages_are_sent_although_their_traces_cannot_be_written(
    rmq_cluster, rmq_topic, caplog
):
    """The log has one line for the first failure, and the number at the close."""
    caplog.set_level(logging.WARNING, "rmqcli")
    rmq_cluster.faults.add(
        faults.answer(ResponseCode.NO_PERMISSION), topic="RMQ_SYS_TRACE_TOPIC"
    )
    with Producer(namesrv=rmq_cluster.namesrv, trace=True) as producer:
        for _ in range(250):
            producer.submit(ProducerMessage(rmq_topic, b"hello"))
    assert len(stored(rmq_cluster, rmq_topic)) == 250
    lines = [each.getMessage() for each in caplog.records]
    assert len([each for each in lines if "traces cannot be written" in each]) == 1
    assert lines[-1] == "250 traces not written topic=RMQ_SYS_TRACE_TOPIC"


RECORD = SubAfter(request_id="r", msg_id="A1", cost_ms=1, is_success=True, keys=None)


def test_records_that_come_faster_than_they_are_written_are_dropped_and_counted(
    rmq_cluster, caplog
):
    caplog.set_level(logging.WARNING, "rmqcli")
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    dispatcher = TraceDispatcher(config, "our-traces", clock=SYSTEM_CLOCK)
    for _ in range(20_000):
        dispatcher.append([RECORD])
    assert dispatcher.dropped == 20_000 - 16_384
    dispatcher.start()
    dispatcher.close(60_000)
    assert len(written(rmq_cluster.namesrv, "our-traces")) == 16_384
    assert [each.getMessage() for each in caplog.records] == [
        (
            "traces are dropped, because they come faster than they are written"
            " topic=our-traces"
        ),
        "3,616 traces not written topic=our-traces",
    ]


def test_up_to_100_records_share_a_message(rmq_cluster):
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    dispatcher = TraceDispatcher(config, "our-traces", clock=SYSTEM_CLOCK)
    dispatcher.append([RECORD] * 201)
    dispatcher.start()
    dispatcher.close(60_000)
    found = stored(rmq_cluster, "our-traces")
    assert sorted(each.body.count(b"\x02") for each in found) == [1, 100, 100]
    assert {each.keys for each in found} == {"A1"}
    assert len({each.msg_id for each in found}) == 3


@pytest.mark.parametrize(("key_chars", "messages"), [(2_045, 1), (2_046, 2)])
def test_the_keys_of_a_message_have_16_kib(rmq_cluster, key_chars, messages):
    """Each character counts 4 bytes, each key one more, the id "A1" is one of them."""
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    dispatcher = TraceDispatcher(config, "our-traces", clock=SYSTEM_CLOCK)
    record = dataclasses.replace(RECORD, keys="k" * key_chars)
    dispatcher.append([record, record])
    dispatcher.start()
    dispatcher.close(60_000)
    assert len(stored(rmq_cluster, "our-traces")) == messages


def test_records_of_messages_with_many_keys_fit_into_messages(rmq_cluster):
    """The properties of a message, which hold the keys, have 32 KiB."""
    keys = [" ".join(f"{n}-{k}" * 20 for k in range(100)) for n in range(20)]
    records = [
        SubAfter(request_id="r", msg_id=f"A{n}", cost_ms=1, is_success=True, keys=each)
        for n, each in enumerate([*keys, "é" * 30_000])
    ]
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    dispatcher = TraceDispatcher(config, "our-traces", clock=SYSTEM_CLOCK)
    dispatcher.start()
    dispatcher.append(records)
    dispatcher.close(60_000)
    found = with_keys(rmq_cluster.namesrv, "our-traces")
    assert dispatcher.dropped == 0
    assert {record.msg_id for _, record in found} == {f"A{n}" for n in range(21)}
    assert all(record.msg_id in its_keys for its_keys, record in found)


def test_a_dispatcher_that_is_closed_drops_what_comes(rmq_cluster):
    config = ClientConfig(namesrv=(rmq_cluster.namesrv,))
    dispatcher = TraceDispatcher(config, "our-traces", clock=SYSTEM_CLOCK)
    dispatcher.start()
    dispatcher.append([RECORD])
    dispatcher.close()
    dispatcher.close()
    dispatcher.append([RECORD])
    assert len(written(rmq_cluster.namesrv, "our-traces")) == 1


def test_what_is_no_setting_of_traces_is_refused():
    with pytest.raises(TypeError, match="trace is 1"):
        Producer(namesrv="127.0.0.1:1", trace=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a b"):
        Producer(namesrv="127.0.0.1:1", trace="a b")


def test_a_producer_that_uses_a_proxy_cannot_write_traces():
    with pytest.raises(UnsupportedError, match="through a proxy"):
        Producer(endpoints="127.0.0.1:1", trace=True)
