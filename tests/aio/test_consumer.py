"""`AsyncConsumer`: what it consumes, how much at a time, and what cancelling does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from collections import Counter
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli import (
    ConfigError,
    ConnectError,
    ConsumerConfig,
    Fate,
    NotFoundError,
    UsageError,
)
from rmqcli.aio import AsyncConsumer
from tests.aio.conftest import proxy_of
from tests.aio.interrupting import (
    HandLoop,
    Interruption,
    eventually,
    interrupted,
    interruptions,
    run_clean,
)
from tests.consumer.collecting import committed
from tests.kit.waiting import PATIENCE_S, wait_until

TOPICS = count()
NAMES = [b"%03d" % n for n in range(100)]

#: A proxy delivers what a member gives back only after a second.
each_protocol = pytest.mark.parametrize(
    "protocol", ["remoting", pytest.param("proxy", marks=pytest.mark.slow)]
)


def consumer_of(client, on_message=None, *, topic="orders", group="g", **arguments):
    if not client.endpoints:
        arguments.setdefault("consume_from", "earliest")
    return AsyncConsumer(group, topic, on_message, client=client, **arguments)


def make_topic(cluster, protocol, *, queues=1, in_order=False):
    """A topic and a group of their own; a proxy delivers what comes from now on."""
    name = f"t{next(TOPICS)}"
    cluster.create_topic(name, queues=queues)
    if protocol == "proxy":
        cluster.create_group(name, consume_message_orderly=in_order)
    return name


async def begun(cluster, client, topic):
    """Let the group begin at this point, so that a proxy delivers what comes later."""
    if not client.endpoints:
        return
    seen: list[bytes] = []

    async def handle(message):
        seen.append(message.body)

    async with consumer_of(client, handle, topic=topic, group=topic):
        cluster.send(topic, [b"first"])
        await eventually(lambda: seen)


async def until_idle(consumer):
    return [each.body async for each in consumer.messages(idle_timeout_ms=200)]


async def rest_of(client, topic, wanted):
    """What the next member of the group gets, until it is all that is wanted."""
    bodies: list[bytes] = []
    async with consumer_of(client, topic=topic, group=topic) as consumer:
        while not wanted <= set(bodies):
            bodies += await until_idle(consumer)
        bodies += await until_idle(consumer)
    return bodies


# --- calls that cannot be made ---


def test_a_wait_before_the_start_or_for_a_wrong_time_is_refused():
    """Without a limit the wait had no end."""
    wrong: Any = "1s"

    async def main():
        consumer = AsyncConsumer("g", "orders")
        with pytest.raises(UsageError, match="the consumer is not started"):
            await consumer.wait(0)
        with pytest.raises(TypeError, match="timeout_ms is '1s', a str"):
            await consumer.wait(wrong)
        with pytest.raises(TypeError, match="idle_timeout_ms is '1s', a str"):
            consumer.messages(idle_timeout_ms=wrong)
        await consumer.close()
        assert await consumer.wait()

    run_clean(main)


# --- listeners ---


@pytest.mark.slow
def test_messages_are_consumed_in_the_loop_and_once(cluster, client, protocol):
    topic = make_topic(cluster, protocol, queues=2)
    threads = set()
    bodies: list[bytes] = []

    async def handle(message):
        threads.add(threading.current_thread())
        await asyncio.sleep(0)
        bodies.append(message.body)

    async def main():
        await begun(cluster, client, topic)
        async with consumer_of(client, handle, topic=topic, group=topic) as consumer:
            assert consumer.client_id
            cluster.send(topic, NAMES)
            await eventually(lambda: len(bodies) == len(NAMES))
        assert await rest_of(client, topic, set()) == []

    run_clean(main)
    assert sorted(bodies) == NAMES
    assert threads == {threading.main_thread()}


def test_as_many_listeners_wait_at_once_as_the_concurrency_allows(
    cluster, client, protocol
):
    topic = make_topic(cluster, protocol)
    running, most, ended = 0, 0, 0

    async def main():
        is_full = asyncio.Event()

        async def handle(_message):
            nonlocal running, most, ended
            running += 1
            most = max(most, running)
            if running == 7:
                is_full.set()
            await is_full.wait()
            running -= 1
            ended += 1

        await begun(cluster, client, topic)
        async with consumer_of(client, handle, topic=topic, group=topic, concurrency=7):
            cluster.send(topic, NAMES)
            await eventually(lambda: ended == len(NAMES))

    run_clean(main)
    assert most == 7


def test_batches_are_consumed_and_part_of_one_may_fail(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:8])
    seen: list[list[bytes]] = []
    failed: list[Any] = []

    async def handle(messages, context):
        seen.append([each.body for each in messages])
        if len(messages) > 1:
            context.ack_index = len(messages) - 2

    async def main():
        async with AsyncConsumer(
            "g",
            "orders",
            on_batch=handle,
            batch=8,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            on_failed=failed.append,
        ):
            await eventually(lambda: failed)

    run_clean(main)
    assert seen[0] == NAMES[:8]
    assert [(each.message.body, each.fate) for each in failed] == [
        (b"007", Fate.RETRY_TOPIC)
    ]
    assert committed(rmq_cluster, "g", "orders") == {0: 8}


def test_a_batch_whose_listener_sets_a_wrong_type_goes_to_the_retry_topic(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:4])
    failed: list[Any] = []

    async def handle(messages, context):
        if messages[0].reconsume_times == 0:
            context.ack_index = len(messages) / 2 - 1

    async def main():
        async with AsyncConsumer(
            "g",
            "orders",
            on_batch=handle,
            batch=8,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            on_failed=failed.append,
        ):
            await eventually(lambda: len(failed) == 4)

    run_clean(main)
    assert {each.fate for each in failed} == {Fate.RETRY_TOPIC}
    assert committed(rmq_cluster, "g", "orders") == {0: 4}


def test_an_orderly_listener_gets_the_messages_of_a_queue_one_after_the_other(
    cluster, client, protocol
):
    topic = make_topic(cluster, protocol, in_order=True)
    running, bodies = [0], []

    async def handle(message):
        running[0] += 1
        assert running == [1]
        await asyncio.sleep(0)
        bodies.append(message.body)
        running[0] -= 1

    async def main():
        await begun(cluster, client, topic)
        bodies.clear()
        async with consumer_of(client, handle, topic=topic, group=topic, orderly=True):
            cluster.send(topic, NAMES)
            await eventually(lambda: len(bodies) >= len(NAMES))

    run_clean(main)
    assert bodies == NAMES


def test_a_listener_that_raises_has_not_consumed_its_message(cluster, client, protocol):
    topic = make_topic(cluster, protocol)
    tries: list[bytes] = []
    reports: list[tuple[Any, Any]] = []

    async def handle(message):
        tries.append(message.body)
        await asyncio.sleep(0)
        if len(tries) == 1:
            # Nobody cancels this task; the listener waits for one that was cancelled.
            other = asyncio.ensure_future(asyncio.sleep(1))
            other.cancel()
            await other

    def failed(report):
        reports.append((report.fate, threading.current_thread()))

    async def main():
        await begun(cluster, client, topic)
        async with consumer_of(
            client,
            handle,
            topic=topic,
            group=topic,
            on_failed=failed,
        ):
            cluster.send(topic, [b"a"])
            await eventually(lambda: reports)

    run_clean(main)
    assert len(tries) == 1
    fate = Fate.DELIVERED_AGAIN if protocol == "proxy" else Fate.RETRY_TOPIC
    assert reports == [(fate, threading.main_thread())]


def test_each_call_has_a_copy_of_the_context_of_the_start(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:20])
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[tuple[str, str]] = []

    async def handle(message):
        before = variable.get()
        variable.set(str(message.body))
        await asyncio.sleep(0)
        seen.append((before, variable.get()))

    async def main():
        variable.set("start")
        async with AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        ):
            variable.set("later")
            await eventually(lambda: len(seen) == 20)

    run_clean(main)
    assert sorted(seen) == [("start", str(body)) for body in NAMES[:20]]


@pytest.mark.slow
def test_a_listener_that_never_waits_lets_other_tasks_run(rmq_cluster):
    """All messages are there before the first is consumed, and each call takes 1 ms."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", [b"x"] * 2_000)
    counts: list[int] = []
    ticks = 0

    async def main():
        nonlocal ticks
        loop = asyncio.get_running_loop()
        over = asyncio.Event()

        async def handle(_message):
            until = loop.time() + 0.001
            while loop.time() < until:
                pass
            counts.append(ticks)
            if len(counts) == 2_000:
                over.set()

        async def tick():
            nonlocal ticks
            while not over.is_set():
                ticks += 1
                await asyncio.sleep(0)

        async with AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        ):
            await tick()

    run_clean(main)
    # In 5 ms there are 5 calls, and then each of 20 tasks may make one. Without turns
    # 20 tasks would consume all messages of their pulls, which are 640.
    assert max(Counter(counts).values()) < 40


def test_a_loop_that_never_waits_lets_other_tasks_run(rmq_cluster):
    """All messages are there before the first is consumed, and each takes 1 ms."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", [b"x"] * 500)
    counts: list[int] = []
    ticks = 0

    async def main():
        nonlocal ticks
        loop = asyncio.get_running_loop()

        async def work(consumer):
            async for _message in consumer:
                until = loop.time() + 0.001
                while loop.time() < until:
                    pass
                counts.append(ticks)
                if len(counts) == 500:
                    return

        async with AsyncConsumer(
            "g", "orders", consume_from="earliest", namesrv=rmq_cluster.namesrv
        ) as consumer:
            working = asyncio.create_task(work(consumer))
            while not working.done():
                ticks += 1
                await asyncio.sleep(0)

    run_clean(main)
    # Five in 5 ms. Without turns the task would consume all messages of a pull: 32.
    assert max(Counter(counts).values()) < 20


# --- the loop ---


@pytest.mark.slow
def test_a_loop_gets_every_message_and_the_last_is_consumed_with_the_next_request(
    cluster, client, protocol
):
    topic = make_topic(cluster, protocol)

    async def main():
        await begun(cluster, client, topic)
        bodies = []
        async with consumer_of(client, topic=topic, group=topic) as consumer:
            cluster.send(topic, NAMES)
            async for message in consumer:
                bodies.append(message.body)
                if len(bodies) == len(NAMES):
                    break
            # The loop was left at its message, which the next one gets again.
            async for message in consumer:
                assert message.body == bodies[-1]
                break
        assert sorted(bodies) == NAMES
        assert await rest_of(client, topic, {bodies[-1]}) == bodies[-1:]

    run_clean(main)


@pytest.mark.slow
def test_a_loop_keeps_the_order_of_an_orderly_consumer(cluster, client, protocol):
    topic = make_topic(cluster, protocol, in_order=True)

    async def main():
        await begun(cluster, client, topic)
        bodies = []
        async with consumer_of(
            client, topic=topic, group=topic, orderly=True
        ) as consumer:
            cluster.send(topic, NAMES)
            async for message in consumer.messages():
                bodies.append(message.body)
                if len(bodies) == len(NAMES):
                    break
        return bodies

    assert run_clean(main) == NAMES


def test_a_close_by_another_task_ends_the_loop_with_its_message_consumed(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:3])

    async def main():
        bodies = []
        consumer = AsyncConsumer(
            "g", "orders", consume_from="earliest", namesrv=rmq_cluster.namesrv
        )
        async with consumer:
            async for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 2:
                    asyncio.get_running_loop().create_task(consumer.close())
                    await asyncio.sleep(0)
            assert await consumer.wait()
        return bodies

    assert run_clean(main) == NAMES[:2]
    assert committed(rmq_cluster, "g", "orders") == {0: 2}


def test_a_close_does_not_wait_for_a_loop_whose_task_was_cancelled(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:3])

    async def main():
        has_one = asyncio.Event()

        async def work(consumer):
            async for _message in consumer:
                has_one.set()
                await asyncio.Event().wait()

        async with AsyncConsumer(
            "g",
            "orders",
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            config=ConsumerConfig(await_termination_ms=3_600_000),
        ) as consumer:
            loop = asyncio.create_task(work(consumer))
            await has_one.wait()
            loop.cancel()
        await asyncio.wait([loop])

    run_clean(main)
    assert committed(rmq_cluster, "g", "orders") == {0: 0}


def test_a_message_that_no_loop_has_got_does_not_hold_up_a_close(rmq_cluster):
    """The task that asked for it was cancelled there, and goes on with other work."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:2])

    async def main():
        loop = asyncio.get_running_loop()
        has_left, is_closed = asyncio.Event(), asyncio.Event()
        bodies = []

        async def work(consumer):
            messages = aiter(consumer)
            bodies.append((await anext(messages)).body)
            # When so much time has passed, a request lets other tasks run first.
            turn_s = loop.time() + 0.05
            await eventually(lambda: loop.time() > turn_s)
            with suppress(asyncio.CancelledError):
                at_once = Interruption(1, "waiting")
                bodies.append((await interrupted(anext(messages), at_once)).body)
            has_left.set()
            await is_closed.wait()

        async with AsyncConsumer(
            "g", "orders", consume_from="earliest", namesrv=rmq_cluster.namesrv
        ) as consumer:
            working = asyncio.create_task(work(consumer))
            await has_left.wait()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await consumer.close(timeout_ms=3_600_000)
            finally:
                is_closed.set()
            await working
        return bodies

    assert run_clean(main) == NAMES[:1]
    assert committed(rmq_cluster, "g", "orders") == {0: 1}


def test_a_loop_that_takes_too_long_does_not_hold_up_a_close(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:3])

    async def main():
        has_two, is_closed = asyncio.Event(), asyncio.Event()
        bodies = []

        async def work(consumer):
            async for message in consumer:
                bodies.append(message.body)
                if len(bodies) == 2:
                    has_two.set()
                    await is_closed.wait()

        async with AsyncConsumer(
            "g", "orders", consume_from="earliest", namesrv=rmq_cluster.namesrv
        ) as consumer:
            loop = asyncio.create_task(work(consumer))
            await has_two.wait()
            await consumer.close(timeout_ms=1)
            is_closed.set()
            await loop
        return bodies

    assert run_clean(main) == NAMES[:2]
    assert committed(rmq_cluster, "g", "orders") == {0: 1}


# --- cancelling ---


@pytest.mark.slow
@each_protocol
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(when=st.lists(st.none() | interruptions, min_size=8, max_size=8))
def test_requests_for_the_next_message_that_are_cancelled_lose_and_repeat_nothing(
    cluster, client, protocol, when
):
    topic = make_topic(cluster, protocol)
    wanted = NAMES[: len(when)]

    async def main():
        await begun(cluster, client, topic)
        bodies: list[bytes] = []
        async with consumer_of(client, topic=topic, group=topic) as consumer:
            cluster.send(topic, wanted)
            messages = aiter(consumer)
            for each in [*when, *[None] * len(when)]:
                if len(bodies) == len(wanted):
                    break
                try:
                    message = await interrupted(anext(messages), each)
                except asyncio.CancelledError:
                    continue
                bodies.append(message.body)
        assert sorted(bodies) == wanted
        # The last one was not consumed: nothing was asked for after it.
        assert await rest_of(client, topic, {bodies[-1]}) == bodies[-1:]

    run_clean(main)


@pytest.mark.slow
@each_protocol
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    after=st.integers(0, 6),
    orderly=st.booleans(),
)
def test_messages_whose_listeners_a_close_cancels_stay_with_the_group(
    cluster, client, protocol, steps, after, orderly
):
    """Each message is consumed by one member: what a listener has finished is not
    delivered again, and what it has not is. Brokers of a proxy count the attempt."""
    topic = make_topic(cluster, protocol, in_order=orderly)
    wanted = NAMES[: len(steps)]
    done: list[bytes] = []
    again: list[tuple[bytes, int]] = []

    async def main():
        await begun(cluster, client, topic)
        turns = asyncio.Semaphore(0)

        async def handle(message):
            for _ in range(steps[int(message.body)]):
                await turns.acquire()
            done.append(message.body)

        async def rest(message):
            again.append((message.body, message.reconsume_times))

        async with consumer_of(
            client, handle, topic=topic, group=topic, orderly=orderly, concurrency=1
        ) as consumer:
            cluster.send(topic, wanted)
            for _ in range(after):
                turns.release()
            await eventually(lambda: turns.locked() or len(done) == len(wanted))
            await consumer.close(timeout_ms=0)
        async with consumer_of(
            client, rest, topic=topic, group=topic, orderly=orderly, concurrency=1
        ):
            await eventually(lambda: len(done) + len(again) >= len(wanted))

    run_clean(main)
    bodies = done + [body for body, _ in again]
    if protocol == "remoting":
        assert {times for _, times in again} <= {0}
    elif not orderly:  # Receives that are open at once end in any order.
        bodies.sort()
    assert bodies == wanted


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(when=interruptions)
def test_a_cancelled_start_or_close_leaves_nothing_behind(client, when):
    async def handle(_message):
        await asyncio.sleep(0)

    async def main():
        consumer = consumer_of(client, handle)

        async def life():
            async with consumer:
                pass

        await asyncio.gather(interrupted(life(), when), return_exceptions=True)
        await consumer.close()

    run_clean(main)


@pytest.mark.slow
def test_a_program_that_cancels_all_tasks_ends_the_consumer_and_loses_nothing(
    cluster, client, protocol, caplog
):
    topic = make_topic(cluster, protocol)

    async def main():
        await begun(cluster, client, topic)
        waiting = 0

        async def handle(_message):
            nonlocal waiting
            waiting += 1
            await asyncio.Event().wait()

        consumer = consumer_of(client, handle, topic=topic, group=topic)
        await consumer.start()
        cluster.send(topic, NAMES[:4])
        await eventually(lambda: waiting == 4)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        assert await consumer.wait()
        await consumer.close()
        return await rest_of(client, topic, set(NAMES[:4]))

    assert sorted(run_clean(main)) == NAMES[:4]
    assert "closes: a task of its listener was cancelled" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_exit_in_a_listener_ends_the_program_and_its_message_stays(
    rmq_cluster, error
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:2])

    async def handle(_message):
        raise error

    async def main():
        async with AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        ) as consumer:
            await consumer.wait()

    with pytest.raises(error):
        asyncio.run(main())
    # The loop may end before the thread that closes the consumer has committed.
    wait_until(lambda: committed(rmq_cluster, "g", "orders") == {0: 0}, timeout_s=60)


def test_a_loop_that_ends_without_a_close_leaves_its_messages_to_the_group(
    rmq_cluster, caplog
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:2])
    left = []

    async def main():
        running = asyncio.Event()

        async def handle(_message):
            running.set()
            await asyncio.Event().wait()

        consumer = AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        )
        await consumer.start()
        await running.wait()
        left.append(consumer)

    asyncio.run(main())
    consumer = left.pop()
    consumer._member.close()
    assert committed(rmq_cluster, "g", "orders") == {0: 0}
    assert "closes: a task of its listener was cancelled" in caplog.text


@pytest.mark.slow
def test_a_listener_that_ignores_being_cancelled_is_reported(rmq_cluster, caplog):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:1])

    async def main():
        running, may_end = asyncio.Event(), asyncio.Event()

        async def handle(_message):
            running.set()
            while not may_end.is_set():
                try:
                    await may_end.wait()
                except asyncio.CancelledError:
                    continue

        async with AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        ) as consumer:
            await running.wait()
            await consumer.close(timeout_ms=0)
        may_end.set()
        await eventually(lambda: len(asyncio.all_tasks()) == 1)

    run_clean(main)
    assert "listeners did not end although they were cancelled" in caplog.text


def test_a_consumer_whose_loop_was_closed_does_not_hold_up_the_end_of_the_process(
    rmq_cluster,
):
    """Its messages stay with the group, whatever `await_termination_ms` says."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:2])
    left = []

    async def main():
        consumer = AsyncConsumer(
            "g",
            "orders",
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            config=ConsumerConfig(await_termination_ms=3_600_000),
        )
        left.append(consumer)
        await consumer.start()
        async for _message in consumer:
            return

    asyncio.run(main())
    left.pop()._member.close()
    assert committed(rmq_cluster, "g", "orders") == {0: 0}


# --- closing, errors, the rest ---


@pytest.mark.parametrize(
    ("setting_ms", "timeout_ms"), [(60_000, None), (3_600_000, 60_000)]
)
def test_a_close_cancels_its_listeners_when_its_time_is_over_and_not_before(
    rmq_cluster, setting_ms, timeout_ms
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:1])

    async def main():
        loop: Any = asyncio.get_running_loop()
        running, cancelled = asyncio.Event(), asyncio.Event()

        async def handle(_message):
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        async with AsyncConsumer(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            config=ConsumerConfig(await_termination_ms=setting_ms),
        ) as consumer:
            await running.wait()
            closing = asyncio.create_task(consumer.close(timeout_ms=timeout_ms))
            await loop.at(0)
            await loop.at(59.99)
            assert not cancelled.is_set()
            await loop.at(60)
            assert cancelled.is_set()
            await closing

    run_clean(main, HandLoop)
    assert committed(rmq_cluster, "g", "orders") == {0: 0}


def test_a_wait_ends_when_its_time_is_up(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        loop: Any = asyncio.get_running_loop()
        async with AsyncConsumer(
            "g", "orders", namesrv=rmq_cluster.namesrv
        ) as consumer:
            waiting = asyncio.create_task(consumer.wait(timeout_ms=60_000))
            await loop.at(0)
            await loop.at(59.99)
            assert not waiting.done()
            await loop.at(60)
            assert await waiting is False
        assert await consumer.wait(timeout_ms=0) is True

    run_clean(main, HandLoop)


def test_the_task_that_has_left_a_loop_at_its_message_closes_at_once(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:2])

    async def main():
        async with AsyncConsumer(
            "g",
            "orders",
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            config=ConsumerConfig(await_termination_ms=3_600_000),
        ) as consumer:
            async for _message in consumer:
                return

    run_clean(main)
    assert committed(rmq_cluster, "g", "orders") == {0: 0}


def test_a_start_without_any_name_server_fails_at_once():
    async def main():
        consumer = AsyncConsumer("g", "orders", namesrv="127.0.0.1:1")
        with pytest.raises(ConnectError):
            await consumer.start(timeout_ms=3_600_000)
        assert await consumer.wait()

    run_clean(main)


@pytest.mark.parametrize("has_listener", [True, False])
def test_a_loop_keeps_nothing_of_a_closed_consumer(rmq_cluster, has_listener):
    """A program may open and close many, with a long time for their listeners."""
    rmq_cluster.create_topic("orders", queues=1)

    async def handle(_message): ...

    async def life():
        consumer = AsyncConsumer(
            "g",
            "orders",
            handle if has_listener else None,
            namesrv=rmq_cluster.namesrv,
            config=ConsumerConfig(await_termination_ms=3_600_000),
        )
        async with consumer:
            pass
        return weakref.ref(consumer)

    async def main():
        closed = await life()
        gc.collect()
        return closed()

    assert run_clean(main) is None


def test_a_listener_may_close_its_consumer(cluster, client, protocol):
    topic = make_topic(cluster, protocol)

    async def main():
        await begun(cluster, client, topic)

        async def handle(_message):
            await consumer.close()
            await asyncio.sleep(0)

        consumer = consumer_of(client, handle, topic=topic, group=topic)
        async with consumer:
            cluster.send(topic, [b"a"])
            assert await consumer.wait()
        return await rest_of(client, topic, set())

    assert run_clean(main) == []


def test_queues_offsets_lag_and_reports(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:3])
    threads: set[Any] = set()
    assigned: list[Any] = []
    revoked: list[Any] = []
    starts: list[Any] = []

    def note(store):
        def call(value):
            threads.add(threading.current_thread())
            store.append(value)

        return call

    async def main():
        async with AsyncConsumer(
            "g",
            "orders",
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
            on_assigned=note(assigned),
            on_revoked=note(revoked),
            on_start=note(starts),
        ) as consumer:
            messages = aiter(consumer)
            await anext(messages)
            (queue,) = [q for q in await consumer.queues() if q.topic == "orders"]
            assert (await consumer.offsets())[queue] == 0
            await anext(messages)
            await consumer.commit()
            assert committed(rmq_cluster, "g", "orders") == {0: 1}
            lags = {each.topic: each.lag for each in await consumer.lag()}
            assert lags["orders"] == 2
            info = await consumer.running_info()
            assert info.properties["PROP_CONSUMER_START_TIMESTAMP"]
            consumer.pause()
            consumer.resume()
            consumer.seek(queue, 2)
            assert (await anext(aiter(consumer))).queue_offset in (1, 2)

    run_clean(main)
    assert threads == {threading.main_thread()}
    assert "orders" in {queue.topic for queues in assigned for queue in queues}
    assert "orders" in {queue.topic for queues in revoked for queue in queues}
    assert [each.queue_offset for each in starts if each.queue.topic == "orders"] == [0]


def test_what_cannot_work_is_refused_in_words(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def handle(_message): ...

    async def generator(_message):
        yield

    def plain(_message): ...

    servers = {"namesrv": rmq_cluster.namesrv}
    make: Any = AsyncConsumer
    for wrong in (plain, generator, lambda _: handle(_)):
        with pytest.raises(TypeError, match=r"on_message .* is not a coroutine funct"):
            make("g", "orders", wrong, **servers)
    with pytest.raises(TypeError, match="on_batch is 'x', which is not callable"):
        make("g", "orders", on_batch="x", **servers)
    with pytest.raises(TypeError, match=r"on_failed .* is a coroutine function"):
        make("g", "orders", handle, on_failed=handle, **servers)
    with pytest.raises(ConfigError, match="concurrency is 0"):
        make("g", "orders", handle, concurrency=0, **servers)
    with pytest.raises(ConfigError, match="concurrency needs a listener"):
        make("g", "orders", concurrency=2, **servers)
    with pytest.raises(ConfigError, match="cannot be used together"):
        make("g", "orders", handle, on_batch=handle, **servers)

    async def main():
        consumer = make("g", "orders", handle, **servers)
        with pytest.raises(UsageError, match="not started"):
            aiter(consumer)
        async with consumer:
            with pytest.raises(UsageError, match="only once"):
                await consumer.start()
            with pytest.raises(UsageError, match="with a listener cannot be iterated"):
                aiter(consumer)
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, consumer.queues())
        await consumer.close()
        with pytest.raises(UsageError, match="closed"):
            await consumer.queues()
        with pytest.raises(NotFoundError):
            await make("n", "nowhere", handle, **servers).start()
        iterated = make("h", "orders", consume_from="latest", **servers)
        async with iterated:
            first = asyncio.create_task(anext(aiter(iterated)))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="another task iterates"):
                await anext(aiter(iterated))
            first.cancel()
            await asyncio.wait([first])

    run_clean(main)


def test_a_listener_that_returns_a_coroutine_ends_the_consumer(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:1])

    async def work():
        raise AssertionError("never run")

    async def handle(_message):
        return work()

    async def main():
        make: Any = AsyncConsumer
        async with make(
            "g",
            "orders",
            handle,
            consume_from="earliest",
            namesrv=rmq_cluster.namesrv,
        ) as consumer:
            await consumer.wait()

    with pytest.raises(TypeError, match="the listener returned a coroutine"):
        run_clean(main)
    assert committed(rmq_cluster, "g", "orders") == {0: 0}


@pytest.mark.parametrize(
    ("raised", "expected"),
    [(None, "the listener returned a coroutine"), (TypeError("own"), "own")],
)
def test_leaving_a_consumer_raises_the_misuse_unless_the_program_has_an_error(
    rmq_cluster, raised, expected
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES[:1])

    async def work():
        raise AssertionError("never run")

    async def handle(_message):
        return work()

    async def main():
        make: Any = AsyncConsumer
        async with make(
            "g", "orders", handle, consume_from="earliest", namesrv=rmq_cluster.namesrv
        ) as consumer:
            with suppress(TypeError):
                await consumer.wait()
            if raised is not None:
                raise raised

    with pytest.raises(TypeError, match=expected):
        run_clean(main)


def test_a_proxy_lets_a_listener_try_a_message(rmq_cluster_factory):
    cluster = rmq_cluster_factory(proxy=True)
    cluster.create_topic("orders", queues=1)
    bodies: list[bytes] = []

    async def handle(message):
        await asyncio.sleep(0)
        bodies.append(message.body)

    async def main():
        async with AsyncConsumer("g", "orders", handle, client=proxy_of(cluster)) as it:
            return await asyncio.to_thread(
                cluster.proxy.verify_message, it.client_id, "orders", b"try me"
            )

    assert run_clean(main) == "OK"
    assert bodies == [b"try me"]
