"""`AsyncSimpleConsumer`: receives, acks, and what happens to cancelled receives."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rmqcli
from rmqcli import ConfigError, NotFoundError, SimpleConsumer, UsageError, aio
from rmqcli.aio import AsyncSimpleConsumer
from tests.aio.interrupting import interrupted, interruptions, run_clean

TOPICS = count()


def consumer_of(client, topic="orders", **arguments):
    if not client.endpoints:
        arguments.setdefault("consume_from", "earliest")
    return AsyncSimpleConsumer("billing", topic, client=client, **arguments)


async def received(consumer, wanted):
    """Receive and acknowledge until as many messages as wanted have come."""
    bodies: list[bytes] = []
    while len(bodies) < wanted:
        messages = await consumer.receive()
        bodies += [each.body for each in messages]
        await consumer.ack(messages)
    return bodies


async def joined(consumer):
    """Let the group begin, so that a proxy delivers what is sent from now on."""
    await consumer.receive(await_ms=0)


@pytest.mark.slow
def test_messages_are_received_and_acknowledged_once(cluster, client):
    async def main():
        async with consumer_of(client) as consumer:
            assert consumer.client_id
            await joined(consumer)
            cluster.send("orders", [b"%d" % n for n in range(20)])
            first = await received(consumer, 20)
            return first, await consumer.receive(await_ms=0)

    bodies, more = run_clean(main)
    assert sorted(bodies) == sorted(b"%d" % n for n in range(20))
    assert more == []


def test_a_consumer_that_has_received_nothing_acknowledges_another_ones_messages(
    cluster, client
):
    async def main():
        async with consumer_of(client) as one, consumer_of(client) as other:
            await joined(one)
            cluster.send("orders", [b"a"])
            (message,) = await one.receive()
            await other.change_invisible(message, 60_000)
            await other.ack(message)

    run_clean(main)


# A proxy may take seconds to deliver what was put back.
@pytest.mark.slow
@pytest.mark.parametrize(
    "protocol", ["remoting", pytest.param("proxy", marks=pytest.mark.slow)]
)
@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    when=st.lists(interruptions, min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 3), min_size=4, max_size=4),
)
def test_messages_of_a_cancelled_receive_come_to_the_next_one_once(
    cluster, client, when, sizes
):
    """The invisible time is longer than the test, so only a put back can return them.

    Every message comes once: to a receive that was not cancelled, or to a later one.
    """
    topic = f"t{next(TOPICS)}"
    cluster.create_topic(topic, queues=2)

    async def main():
        bodies: list[bytes] = []
        async with consumer_of(
            client, topic, invisible_duration_ms=600_000
        ) as consumer:
            await joined(consumer)
            cluster.send(topic, [b"%d" % n for n in range(6)])
            outcomes = await asyncio.gather(
                *(
                    interrupted(consumer.receive(size, await_ms=1_000), each)
                    for each, size in zip(when, sizes, strict=False)
                ),
                return_exceptions=True,
            )
            for outcome in outcomes:
                if not isinstance(outcome, BaseException):
                    bodies += [each.body for each in outcome]
                    await consumer.ack(outcome)
                else:
                    assert isinstance(outcome, asyncio.CancelledError)
            bodies += await received(consumer, 6 - len(bodies))
        return bodies

    assert Counter(run_clean(main)) == Counter(b"%d" % n for n in range(6))


def test_a_close_gives_back_the_messages_of_a_cancelled_receive(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    def make():
        return AsyncSimpleConsumer(
            "billing",
            "orders",
            namesrv=rmq_cluster.namesrv,
            consume_from="earliest",
            invisible_duration_ms=600_000,
        )

    async def main():
        async with make() as first:
            await joined(first)
            receive = asyncio.create_task(first.receive())
            await asyncio.sleep(0)
            receive.cancel()
            rmq_cluster.send("orders", [b"1"])
        async with make() as second:
            return await received(second, 1)

    assert run_clean(main) == [b"1"]


def test_a_changed_invisible_time_gives_a_message_back(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        async with AsyncSimpleConsumer(
            "billing",
            "orders",
            namesrv=rmq_cluster.namesrv,
            consume_from="earliest",
            invisible_duration_ms=600_000,
        ) as consumer:
            rmq_cluster.send("orders", [b"1"])
            (message,) = await consumer.receive()
            await consumer.change_invisible(message, 1_000)
            (again,) = await consumer.receive()
            await consumer.ack([again])
            return again.body, again.delivery_attempt

    assert run_clean(main) == (b"1", 2)


def test_errors_and_wrong_uses_are_those_of_simple_consumer(rmq_cluster):
    rmq_cluster.create_topic("orders")
    text: Any = "not a message"

    async def main():
        consumer = AsyncSimpleConsumer(
            "g", "nowhere", namesrv=rmq_cluster.namesrv, consume_from="earliest"
        )
        with pytest.raises(UsageError, match="not started"):
            await consumer.receive()
        async with consumer:
            with pytest.raises(NotFoundError):
                await consumer.receive(await_ms=0)
            with pytest.raises(ConfigError, match="max_messages is 33"):
                await consumer.receive(33)
            with pytest.raises(TypeError, match="is not a message"):
                await consumer.ack([text])
            with pytest.raises(UsageError, match="only once"):
                await consumer.start()
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, consumer.receive())
            await consumer.subscribe("orders", "Paid")
            consumer.unsubscribe("nowhere")
            assert list(consumer.subscriptions) == ["orders"]
            assert await consumer.receive(await_ms=0) == []
        await consumer.close()
        with pytest.raises(UsageError, match="closed"):
            await consumer.receive()

    asyncio.run(main())


def test_without_arguments_a_receive_asks_for_what_simple_consumer_asks_for(
    rmq_cluster_factory,
):
    """However the consumer was made: by its class or by a cluster."""
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders", queues=1)
    pops = cluster.faults.observe(code=200050)
    servers: dict[str, Any] = {"endpoints": cluster.endpoints, "plaintext": True}

    async def main():
        async with aio.connect(**servers) as made:
            for consumer in (
                AsyncSimpleConsumer("a", "orders", client=made.config),
                made.simple_consumer("b", "orders"),
            ):
                async with consumer:
                    await joined(consumer)
                    cluster.send("orders", [b"1"])
                    await consumer.ack(await consumer.receive())

    run_clean(main)
    with rmqcli.connect(**servers) as made:
        for consumer in (
            SimpleConsumer("c", "orders", client=made.config),
            made.simple_consumer("d", "orders"),
        ):
            with consumer:
                consumer.receive(await_ms=0)
                cluster.send("orders", [b"1"])
                consumer.ack(consumer.receive())
    asked = {
        tuple(fields[name] for name in ("invisibleTime", "maxMsgNums", "order"))
        for fields in (each.command.ext_fields for each in pops.requests)
    }
    assert asked == {("30000", "32", "false")}
