"""A consumer with `trace` reports each delivery and its result."""

from __future__ import annotations

import asyncio
import os

import pytest

from rmqcli import (
    ClientConfig,
    ConsumeConcurrentlyStatus,
    Consumer,
    ProducerMessage,
    ReceivedMessage,
    SimpleConsumer,
    UnsupportedError,
    connect,
)
from rmqcli.aio import AsyncConsumer, AsyncProducer, AsyncSimpleConsumer
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.testing import Seed
from rmqcli.trace.record import ConsumeReturnType, Pub, SubAfter, SubBefore
from tests.consumer.collecting import Seen, consumer
from tests.kit.traces import written
from tests.kit.waiting import wait_until

TYPES = ConsumeReturnType


def deliveries(cluster, topic="RMQ_SYS_TRACE_TOPIC"):
    """For each delivery the reports before and after it, in order of their start."""
    records = written(cluster.namesrv, topic)
    after = {
        (each.request_id, each.msg_id): each
        for each in records
        if isinstance(each, SubAfter)
    }
    return [
        (each, after.get((each.request_id, each.msg_id)))
        for each in sorted(
            (each for each in records if isinstance(each, SubBefore)),
            key=lambda each: (each.timestamp_ms, each.retry_times),
        )
    ]


def outcomes(cluster):
    """The times of retry, success and result of each delivery."""
    return [
        (
            before.retry_times,
            after and after.is_success,
            after and after.return_type,
        )
        for before, after in deliveries(cluster)
    ]


@pytest.mark.engine_threads("plain", "leasing")
def test_every_delivery_is_reported_with_its_result(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [Seed(body=b"m1", keys="k1 k2")])
    seen = Seen()
    with consumer(rmq_cluster, "billing", rmq_topic, seen, trace=True):
        seen.wait_for(1)
    ((before, after),) = deliveries(rmq_cluster)
    message = seen.messages[0]
    assert (before.group, before.msg_id) == ("billing", message.msg_id)
    assert (before.keys, before.retry_times) == ("k1 k2", 0)
    assert before.region_id == "DefaultRegion"
    assert after is not None
    assert (after.group, after.is_success) == ("billing", True)
    assert (after.keys, after.return_type) == ("k1 k2", TYPES.SUCCESS)
    assert before.timestamp_ms + after.cost_ms == after.timestamp_ms


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (False, TYPES.FAILED),
        (ConsumeConcurrentlyStatus.RECONSUME_LATER, TYPES.FAILED),
        (ValueError("no"), TYPES.EXCEPTION),
    ],
)
def test_a_delivery_that_failed_and_its_retry_are_reported(
    rmq_cluster_factory, result, kind
):
    cluster = rmq_cluster_factory(settings={"message_delay_level": "1s 1s 1s 1s"})
    cluster.send("orders", ["m1"])

    def act(_, times):
        if times > 1:
            return None
        if isinstance(result, Exception):
            raise result
        return result

    seen = Seen(act)
    with consumer(cluster, "billing", "orders", seen, trace=True):
        wait_until(lambda: len(seen.bodies) == 2)
    assert outcomes(cluster) == [(0, False, kind), (1, True, TYPES.SUCCESS)]
    ids = {before.msg_id for before, _ in deliveries(cluster)}
    assert ids == {seen.messages[0].msg_id}


def test_of_a_batch_only_the_messages_that_failed_are_reported_as_failed(
    rmq_cluster, rmq_topic
):
    rmq_cluster.send(rmq_topic, ["a", "b", "c"], queue_id=0)
    got = []

    def handle(messages, context):
        got.append([each.body for each in messages])
        context.ack_index = 0

    with consumer(
        rmq_cluster,
        "billing",
        rmq_topic,
        handle,
        trace=True,
        batch=True,
        consume_message_batch_max_size=3,
    ):
        wait_until(lambda: sum(map(len, got)) >= 3)
    assert got[0] == [b"a", b"b", b"c"]
    first = [
        (after.is_success, after.return_type)
        for _, after in deliveries(rmq_cluster)
        if after is not None
    ][:3]
    assert sorted(first) == [
        (False, TYPES.FAILED),
        (False, TYPES.FAILED),
        (True, TYPES.FAILED),
    ]


def test_a_call_that_took_longer_than_the_limit_is_reported_as_timed_out(
    rmq_cluster, rmq_topic
):
    rmq_cluster.send(rmq_topic, ["m1"])

    def take_two_ms(*_):
        begun_ms = SYSTEM_CLOCK.epoch_ms()
        wait_until(lambda: SYSTEM_CLOCK.epoch_ms() >= begun_ms + 2)

    seen = Seen(take_two_ms)
    with consumer(
        rmq_cluster, "billing", rmq_topic, seen, trace=True, consume_timeout_ms=1
    ):
        seen.wait_for(1)
    after = deliveries(rmq_cluster)[0][1]
    assert after is not None
    assert (after.return_type, after.is_success) == (TYPES.TIME_OUT, True)


def test_orderly_deliveries_are_reported(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["m1"], queue_id=0)
    seen = Seen(lambda _, times: times > 1)
    with consumer(
        rmq_cluster,
        "billing",
        rmq_topic,
        seen,
        trace=True,
        orderly=True,
        suspend_current_queue_time_ms=10,
    ):
        wait_until(lambda: len(seen.bodies) == 2)
    assert [each[1:] for each in outcomes(rmq_cluster)] == [
        (False, TYPES.FAILED),
        (True, TYPES.SUCCESS),
    ]


def test_a_message_that_a_loop_did_not_finish_has_no_end(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["a", "b"], queue_id=0)
    with Consumer(
        "billing",
        rmq_topic,
        namesrv=rmq_cluster.namesrv,
        consume_from="earliest",
        trace=True,
    ) as running:
        messages = running.messages()
        next(messages)
        next(messages)
    assert [each[1] for each in outcomes(rmq_cluster)] == [True, None]


def test_without_trace_nothing_is_reported(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["m1"])
    seen = Seen()
    with consumer(rmq_cluster, "billing", rmq_topic, seen):
        seen.wait_for(1)
    assert written(rmq_cluster.namesrv) == []


def test_a_simple_consumer_reports_receiving_and_acknowledging(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [Seed(body=each, keys="k") for each in (b"a", b"b")])
    with SimpleConsumer(
        "billing",
        rmq_topic,
        consume_from="earliest",
        namesrv=rmq_cluster.namesrv,
        trace=True,
    ) as receiver:
        received: list[ReceivedMessage] = []
        while len(received) < 2:
            received += receiver.receive()
        receiver.ack(received[0])
        receiver.ack(received[0])
    found = {before.msg_id: after for before, after in deliveries(rmq_cluster)}
    assert set(found) == {each.msg_id for each in received}
    acked = found[received[0].msg_id or ""]
    assert acked is not None
    assert (acked.is_success, acked.keys, acked.group) == (True, "k", "billing")
    assert found[received[1].msg_id or ""] is None


def test_the_asynchronous_clients_report_the_same(rmq_cluster, rmq_topic):
    async def run():
        done = asyncio.Event()

        async def handle(_):
            await asyncio.sleep(0)
            done.set()

        client = ClientConfig(namesrv=(rmq_cluster.namesrv,))
        async with AsyncProducer("shop", client=client, trace=True) as producer:
            sent = await producer.send(ProducerMessage(rmq_topic, b"hello"))
        async with AsyncConsumer(
            "billing",
            rmq_topic,
            handle,
            client=client,
            consume_from="earliest",
            trace=True,
        ):
            await done.wait()
        async with AsyncSimpleConsumer(
            "shipping", rmq_topic, client=client, consume_from="earliest", trace=True
        ) as receiver:
            (message,) = await receiver.receive()
            await receiver.ack(message)
        return sent.msg_id

    msg_id = asyncio.run(run())
    records = written(rmq_cluster.namesrv)
    assert [each.msg_id for each in records if isinstance(each, Pub)] == [msg_id]
    assert {
        (before.group, before.msg_id, after and after.is_success)
        for before, after in deliveries(rmq_cluster)
    } == {("billing", msg_id, True), ("shipping", msg_id, True)}


def test_clients_of_a_cluster_can_write_traces(rmq_cluster, rmq_topic):
    seen = Seen()
    with connect(rmq_cluster.namesrv) as cluster:
        with cluster.producer("shop", trace="t") as producer:
            producer.send(ProducerMessage(rmq_topic, b"hello"))
        with cluster.consumer(
            "billing", rmq_topic, seen, consume_from="earliest", trace="t"
        ):
            seen.wait_for(1)
        with cluster.simple_consumer(
            "shipping", rmq_topic, consume_from="earliest", trace="t"
        ) as receiver:
            receiver.ack(receiver.receive())
    groups = {
        getattr(each, "group", None) for each in written(rmq_cluster.namesrv, "t")
    }
    assert groups == {"shop", "billing", "shipping"}


def test_a_listener_that_is_no_plain_function_is_refused_with_traces_too():
    async def handle(_):
        pass

    with pytest.raises(TypeError, match="coroutine function"):
        Consumer("billing", "orders", handle, namesrv="127.0.0.1:1", trace=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [SimpleConsumer, Consumer])
def test_a_consumer_that_uses_a_proxy_cannot_write_traces(make):
    with pytest.raises(UnsupportedError, match="through a proxy"):
        make("billing", "orders", endpoints="127.0.0.1:1", trace=True)


def test_a_forked_child_writes_no_traces(rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["m1"])

    def fork(*_):
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        # The child returns, too: its end would be a second report.

    seen = Seen(fork)
    with consumer(rmq_cluster, "billing", rmq_topic, seen, trace=True):
        seen.wait_for(1)
    records = written(rmq_cluster.namesrv)
    assert [type(each).__name__ for each in records] == ["SubBefore", "SubAfter"]
