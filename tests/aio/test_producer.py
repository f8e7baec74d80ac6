"""`AsyncProducer`: what it sends, how much at a time, and what cancelling does."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli import (
    ConfigError,
    LocalTransactionState,
    NotFoundError,
    ProducerConfig,
    ProducerMessage,
    RmqError,
    SendStatus,
    UsageError,
    select_by_hash,
)
from rmqcli.aio import AsyncProducer
from rmqcli.aio.producer import _Room
from rmqcli.testing import faults
from tests.aio.conftest import proxy_of
from tests.aio.interrupting import (
    eventually,
    interrupted,
    interruptions,
    run_clean,
)
from tests.kit.waiting import PATIENCE_S
from tests.producer.stored import bodies, stored

PATIENT = ProducerConfig(send_msg_timeout_ms=PATIENCE_S * 1_000)


def message(body=b"x", **fields):
    return ProducerMessage("orders", body, **fields)


def test_a_message_is_stored_as_it_was_given(cluster, client):
    async def main():
        async with AsyncProducer(client=client, config=PATIENT) as producer:
            assert producer.client_id
            return await producer.send(message(b"7", tags="Paid", keys="k"))

    result = run_clean(main)
    assert result.status is SendStatus.SEND_OK
    (found,) = stored(cluster, "orders")
    assert (found.body, found.tags, found.keys) == (b"7", "Paid", "k")
    assert found.msg_id == result.msg_id


def test_many_tasks_send_more_than_may_be_in_flight(cluster, client):
    async def main():
        async with AsyncProducer(
            client=client, config=PATIENT, in_flight_max=8
        ) as producer:
            return await asyncio.gather(
                *(producer.send(message(b"%03d" % n)) for n in range(300))
            )

    results = run_clean(main)
    assert len({each.msg_id for each in results}) == 300
    assert bodies(cluster, "orders") == [b"%03d" % n for n in range(300)]


@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(when=st.lists(st.none() | interruptions, min_size=1, max_size=6))
def test_a_cancelled_send_reports_nothing_wrong_and_takes_no_room(
    cluster, client, when
):
    """What a send returned is stored once; a cancelled one at most once."""
    before = Counter(bodies(cluster, "orders"))

    async def main():
        async with AsyncProducer(
            client=client, config=PATIENT, in_flight_max=2
        ) as producer:
            outcomes = await asyncio.gather(
                *(
                    interrupted(producer.send(message(b"%d" % n)), each)
                    for n, each in enumerate(when)
                ),
                return_exceptions=True,
            )
            # All the room is free again.
            await asyncio.gather(*(producer.send(message(b"end")) for _ in range(4)))
            return outcomes

    outcomes = run_clean(main)
    added = Counter(bodies(cluster, "orders")) - before
    assert added.pop(b"end") == 4
    for n, outcome in enumerate(outcomes):
        count = added.pop(b"%d" % n, 0)
        if isinstance(outcome, asyncio.CancelledError):
            assert when[n] is not None
            assert count <= 1
        else:
            assert outcome.status is SendStatus.SEND_OK
            assert count == 1
    assert not added


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(when=interruptions)
def test_a_cancelled_start_or_close_leaves_nothing_behind(client, when):
    async def main():
        producer = AsyncProducer(client=client, config=PATIENT)

        async def life():
            async with producer:
                await producer.send(message())

        await asyncio.gather(interrupted(life(), when), return_exceptions=True)
        await producer.close()

    run_clean(main)


def test_a_cancelled_message_takes_up_room_until_it_is_answered(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        producer = AsyncProducer(
            namesrv=rmq_cluster.namesrv, config=PATIENT, in_flight_max=1
        )
        async with producer:
            await producer.queues("orders")
            rmq_cluster.faults.next(faults.delay(200), topic="orders")
            first = asyncio.create_task(producer.send(message(b"1")))
            await asyncio.sleep(0)
            first.cancel()
            second = asyncio.create_task(producer.send(message(b"2")))
            await asyncio.sleep(0)
        return await asyncio.gather(first, second, return_exceptions=True)

    first, second = run_clean(main)
    assert isinstance(first, asyncio.CancelledError)
    # It still waited for room when the producer was closed.
    assert isinstance(second, UsageError)
    assert bodies(rmq_cluster, "orders") == [b"1"]


def test_sends_of_one_turn_share_a_request_and_the_answer_wakes_the_loop_up_once(
    rmq_cluster,
):
    rmq_cluster.create_topic("orders", queues=4)
    wake_ups = []

    class Loop(asyncio.SelectorEventLoop):
        def call_soon_threadsafe(  # type: ignore[override]  # any arguments
            self, callback: Any, *args: Any, context: Any = None
        ) -> asyncio.Handle:
            wake_ups.append(callback)
            return super().call_soon_threadsafe(callback, *args, context=context)

    async def main():
        async with AsyncProducer(
            namesrv=rmq_cluster.namesrv, config=PATIENT
        ) as producer:
            await producer.queues("orders")
            wake_ups.clear()
            results = await asyncio.gather(
                *(producer.send(message(b"%03d" % n)) for n in range(200))
            )
            return results, len(wake_ups)

    with asyncio.Runner(loop_factory=Loop) as runner:
        results, count = runner.run(main())
    # Requests take turns over the queues.
    assert len({each.queue for each in results}) == 1
    assert [each.queue_offset for each in results] == list(range(200))
    assert count == 1


@given(data=st.data())
def test_places_are_given_in_order_and_none_is_lost_to_a_cancelled_send(data):
    async def main():
        room, begun, held = _Room(2), [], []

        async def take(number):
            if room.free:
                room.free -= 1
            else:
                await room.wait(asyncio.get_running_loop())
            begun.append(number)
            held.append(number)

        takers = []
        for number, action in enumerate(
            data.draw(st.lists(st.sampled_from(["take", "give", "cancel", "turn"])))
        ):
            if action == "take":
                takers.append(asyncio.create_task(take(number)))
                await asyncio.sleep(0)
            elif action == "give" and held:
                held.pop()
                room.give()
            elif action == "cancel" and takers:
                takers[data.draw(st.integers(0, len(takers) - 1))].cancel()
            elif action == "turn":
                await asyncio.sleep(0)
            assert room.free + len(held) <= 2
        for _ in range(len(takers)):
            await asyncio.sleep(0)
            if held:
                held.pop()
                room.give()
        await asyncio.gather(*takers, return_exceptions=True)
        assert begun == sorted(begun)
        assert room.free + len(held) == 2

    asyncio.run(main())


def test_errors_are_those_of_producer(rmq_cluster):
    async def main():
        config = ProducerConfig(create_topic_key=None)
        async with AsyncProducer(
            namesrv=rmq_cluster.namesrv, config=config
        ) as producer:
            with pytest.raises(NotFoundError):
                await producer.send(ProducerMessage("nowhere", b"x"))
            with pytest.raises(ConfigError, match="empty"):
                await producer.send(message(b""))
            with pytest.raises(ConfigError, match="timeout_ms is 0"):
                await producer.send(message(), timeout_ms=0)

    run_clean(main)


def test_batches_oneway_delays_selectors_and_transactions(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=4)
    threads = set()

    def selector(queues, sent, arg):
        threads.add(threading.current_thread())
        return select_by_hash(queues, sent, arg)

    def execute(_sent, _result):
        return LocalTransactionState.COMMIT_MESSAGE

    async def main():
        async with AsyncProducer(
            "billing",
            namesrv=rmq_cluster.namesrv,
            config=PATIENT,
            on_check=lambda _: LocalTransactionState.UNKNOW,
        ) as producer:
            queues = await producer.queues("orders")
            batch = await producer.send_batch([message(b"b1"), message(b"b2")])
            await producer.send_oneway(message(b"o"))
            chosen = [
                await producer.send(message(b"s"), selector=selector, arg="a")
                for _ in range(3)
            ]
            placed = await producer.send(message(b"q"), queue=queues[3])
            transaction = await producer.send_in_transaction(message(b"t"), execute)
            delayed = await producer.send(message(b"d", delay_level=18))
            return batch, chosen, placed, transaction, delayed

    batch, chosen, placed, transaction, delayed = run_clean(main)
    assert batch[0].queue == batch[1].queue
    assert len({each.queue for each in chosen}) == 1
    assert threads == {threading.main_thread()}
    assert placed.queue.queue_id == 3
    assert transaction.local_transaction_state is LocalTransactionState.COMMIT_MESSAGE
    assert delayed.queue_offset is None
    assert bodies(rmq_cluster, "orders") == sorted(
        [b"b1", b"b2", b"o", b"q", b"s", b"s", b"s", b"t"]
    )


def test_what_cannot_work_is_refused_in_words(rmq_cluster):
    async def coroutine(*_args): ...

    wrong: Any = coroutine
    seven: Any = 7
    not_a_queue: Any = lambda *_: "x"  # noqa: E731

    with pytest.raises(TypeError, match=r"on_check .* is a coroutine function"):
        AsyncProducer("g", namesrv=rmq_cluster.namesrv, on_check=wrong)
    with pytest.raises(ConfigError, match="in_flight_max is 0"):
        AsyncProducer(namesrv=rmq_cluster.namesrv, in_flight_max=0)
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        producer = AsyncProducer(
            "g", namesrv=rmq_cluster.namesrv, on_check=lambda _: None
        )
        with pytest.raises(UsageError, match="not started"):
            await producer.send(message())
        async with producer:
            with pytest.raises(UsageError, match="only once"):
                await producer.start()
            with pytest.raises(TypeError, match=r"selector .* is a coroutine function"):
                await producer.send(message(), selector=wrong)
            with pytest.raises(TypeError, match=r"execute .* is a coroutine function"):
                await producer.send_in_transaction(message(), wrong)
            with pytest.raises(ConfigError, match="arg is given without a selector"):
                await producer.send(message(), arg="order-7")
            with pytest.raises(TypeError, match="messages is 7, an int"):
                await producer.send_batch(seven)
            with pytest.raises(TypeError, match="the selector's result is 'x'"):
                await producer.send(message(), selector=not_a_queue)
            # Another loop, in another thread.
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, producer.send(message()))
        await producer.close()
        with pytest.raises(UsageError, match="closed"):
            await producer.send(message())

    asyncio.run(main())


def test_a_close_ends_the_sends_that_wait_for_room(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        producer = AsyncProducer(
            namesrv=rmq_cluster.namesrv, config=PATIENT, in_flight_max=1
        )
        async with producer:
            await producer.queues("orders")
            rmq_cluster.faults.next(faults.delay(200), topic="orders")
            sends = [
                asyncio.create_task(producer.send(message(b"%d" % n))) for n in range(4)
            ]
            await asyncio.sleep(0)
        return await asyncio.gather(*sends, return_exceptions=True)

    first, *others = run_clean(main)
    assert first.queue_offset == 0
    assert [type(each) for each in others] == [UsageError] * 3


def test_a_close_waits_no_longer_for_an_answer_than_it_is_told(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        producer = AsyncProducer(
            namesrv=rmq_cluster.namesrv,
            config=replace(PATIENT, await_termination_ms=3_600_000),
        )
        async with producer:
            await producer.queues("orders")
            lost = rmq_cluster.faults.add(faults.drop_answer(), topic="orders")
            send = asyncio.create_task(producer.send(message(b"1")))
            await eventually(lambda: lost.hits)
            await producer.close(timeout_ms=1)
        (outcome,) = await asyncio.gather(send, return_exceptions=True)
        return outcome

    assert isinstance(run_clean(main), RmqError)


def test_a_loop_that_ends_without_a_close_does_not_hang(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    left = []

    async def main():
        producer = AsyncProducer(namesrv=rmq_cluster.namesrv, config=PATIENT)
        await producer.start()
        await producer.queues("orders")
        rmq_cluster.faults.next(faults.delay(200), topic="orders")
        left.append((producer, asyncio.create_task(producer.send(message(b"1")))))
        await asyncio.sleep(0)

    asyncio.run(main())
    producer, send = left.pop()
    assert send.cancelled()
    producer._producer.close()
    assert bodies(rmq_cluster, "orders") == [b"1"]


def test_a_delayed_message_is_recalled_through_a_proxy(rmq_cluster_factory):
    cluster = rmq_cluster_factory(proxy=True, settings={"recall_message_enable": True})
    cluster.create_topic("later", attributes={"message.type": "DELAY"})
    late = ProducerMessage("later", b"x", delay_ms=600_000)

    async def main():
        async with AsyncProducer(client=proxy_of(cluster), config=PATIENT) as producer:
            result = await producer.send(late)
            assert result.recall_handle is not None
            recalled = await producer.recall("later", result.recall_handle)
            return result.msg_id, recalled

    sent, recalled = asyncio.run(main())
    assert recalled == sent
