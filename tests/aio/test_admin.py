"""`AsyncAdmin` and `connect`: the same answers as Admin's, and reads beside them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from rmqcli import (
    Admin,
    DeniedError,
    NotFoundError,
    ProducerMessage,
    TextError,
    UsageError,
)
from rmqcli.aio import AsyncAdmin, connect
from rmqcli.aio.admin import _portions
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode, ResponseCode
from tests.admin.dlq.letters import make_letters
from tests.aio.interrupting import run_clean
from tests.consumer.collecting import committed

NAMES = [b"%04d" % n for n in range(1_200)]


def test_every_public_method_of_admin_has_its_asynchronous_form():
    """With the same arguments and text; only reads and the life cycle are written."""
    own = {"read", "start", "close"}
    for name, method in inspect.getmembers(Admin, inspect.isfunction):
        if name.startswith("_") or name in own:
            continue
        form = getattr(AsyncAdmin, name, None)
        assert inspect.iscoroutinefunction(form), f"{name}: add it to AsyncAdmin"
        assert inspect.signature(form) == inspect.signature(method), name
        assert inspect.getdoc(form) == inspect.getdoc(method), name
    assert list(inspect.signature(AsyncAdmin.read).parameters) == list(
        inspect.signature(Admin.read).parameters
    )


def test_a_cluster_is_queried_and_changed(rmq_cluster, tmp_path):
    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv, backups=tmp_path) as admin:
            await admin.create_topic("orders", queue_nums=1)
            await admin.create_group("billing")
            rmq_cluster.send("orders", NAMES[:3])
            planned = await admin.plan_reset("billing", "orders", to="earliest")
            await admin.apply_reset(planned)
            lag = await admin.lag("billing")
            (queue,) = await admin.queues("orders")
            message = await admin.message_at(queue, 2)
            both = await asyncio.gather(admin.topics(), admin.brokers())
            with pytest.raises(NotFoundError):
                await admin.lag("nobody")
            return lag.total_lag, message.body, len(both[1]), await admin.backups()

    total_lag, body, brokers, backups = run_clean(main)
    assert (total_lag, body, brokers) == (3, b"0002", 1)
    assert [each.group for each in backups] == ["billing"]
    assert committed(rmq_cluster, "billing", "orders") == {0: 0}


def test_calls_of_one_admin_run_one_after_the_other(rmq_cluster):
    """In one thread, however many there are: `Admin` is not for several at once."""

    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            both = [asyncio.ensure_future(admin.brokers()) for _ in range(2)]
            await asyncio.sleep(0)
            names = {each.name for each in threading.enumerate()}
            await asyncio.gather(*both)
            return {name for name in names if name.startswith("rmq-aio")}

    assert run_clean(main) == {"rmq-aio_0"}


def test_a_range_is_read_beside_other_calls_and_reads(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES)

    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            first = admin.read("orders")
            bodies = [(await anext(first)).body]
            second = [each.body async for each in admin.read("orders")]
            assert len(await admin.queues("orders")) == 1
            bodies += [each.body async for each in first]
            with pytest.raises(NotFoundError):
                await anext(admin.read("nowhere"))
        return bodies, second

    assert run_clean(main) == (NAMES, NAMES)


def test_messages_and_letters_are_chosen_by_a_condition(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ['{"id": 1}', "no JSON", '{"id": 2}'], queue_id=0)
    rmq_cluster.create_group("billing")
    make_letters(rmq_cluster, "billing", "orders", ['{"id": 3}', '{"id": 4}'])
    where = "value.id IN (2, 4)"

    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            messages = admin.read("orders", where=where, decode="json")
            bodies = [each.body async for each in messages]
            letters = await admin.read_dead_letters(
                "billing", where=where, decode="json"
            )
            with pytest.raises(TextError):
                await anext(admin.read("orders", where="id ="))
        return bodies, [each.message.body for each in letters.letters]

    assert run_clean(main) == (
        [b'{"id": 2}', b'{"id": 4}'],
        [b'{"id": 4}'],
    )


@pytest.mark.parametrize(
    ("body_bytes", "sends", "all_pulls"), [(100_000, 2, 30), (4, 100, 94)]
)
def test_a_read_hands_messages_over_before_it_has_read_all(
    rmq_cluster, body_bytes, sends, all_pulls
):
    """A read of large or of many messages must not fill the memory with them."""
    rmq_cluster.create_topic("orders", queues=1)
    for _ in range(sends):
        rmq_cluster.send("orders", [b"x" * body_bytes] * 30)
    pulls = rmq_cluster.faults.observe(code=RequestCode.PULL_MESSAGE)

    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            messages = admin.read("orders", to="latest")
            await anext(messages)
            before = pulls.seen
            rest = [each async for each in messages]
            return before, 1 + len(rest)

    before, count = run_clean(main)
    assert count == 30 * sends
    assert pulls.seen >= all_pulls
    assert before < all_pulls


@pytest.mark.parametrize(
    ("sizes", "portions"),
    [
        ([0] * 1_001, [500, 500, 1]),
        ([0] * 500, [500]),
        # The second portion begins with nothing of the first.
        ([1024 * 1024, 1024 * 1024 - 1, 1, 1], [1, 2, 1]),
        ([], []),
    ],
)
def test_a_portion_ends_with_500_messages_or_a_mebibyte(sizes, portions):
    messages = [SimpleNamespace(body_bytes=size) for size in sizes]
    handed_over = list(_portions(iter(messages)))  # type: ignore[arg-type]
    assert [len(each) for each in handed_over] == portions
    assert [each for portion in handed_over for each in portion] == messages


def test_a_read_that_fails_has_handed_over_what_came_before(rmq_cluster):
    """The messages that have come since the last portion are not lost."""
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES)
    denied = faults.answer(ResponseCode.NO_PERMISSION, "no")
    rmq_cluster.faults.add(denied, code=RequestCode.PULL_MESSAGE, nth=20)
    bodies = []

    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            async for each in admin.read("orders", to="latest"):
                bodies.append(each.body)  # noqa: PERF401  # the loop does not end

    with pytest.raises(DeniedError, match="no"):
        run_clean(main)
    # 19 pulls brought 32 messages each. The first portion had 500 of them.
    assert bodies == NAMES[:608]


@pytest.mark.parametrize("begun", [0, 1, 600])
def test_a_read_that_is_left_or_cancelled_ends_its_thread(rmq_cluster, begun):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", NAMES)

    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            async with aclosing(admin.read("orders")) as messages:
                for _ in range(begun):
                    await anext(messages)
            reading = asyncio.ensure_future(anext(admin.read("orders")))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            assert reading.cancelled()
            return await admin.queues("orders")

    assert len(run_clean(main)) == 1


def test_a_call_that_is_cancelled_before_it_begins_does_nothing(rmq_cluster):
    async def main():
        async with AsyncAdmin(namesrv=rmq_cluster.namesrv) as admin:
            first = asyncio.create_task(admin.create_topic("one", queue_nums=1))
            second = asyncio.create_task(admin.create_topic("two", queue_nums=1))
            await asyncio.sleep(0)
            second.cancel()
            await first
            await asyncio.wait([second])
            return [each.topic for each in (await admin.topics()).topics]

    topics = run_clean(main)
    assert "one" in topics
    assert "two" not in topics


def test_wrong_uses_of_an_admin_are_errors(rmq_cluster):
    async def main():
        admin = AsyncAdmin(namesrv=rmq_cluster.namesrv)
        with pytest.raises(UsageError, match="not started"):
            await admin.topics()
        async with admin:
            with pytest.raises(UsageError, match="only once"):
                await admin.start()
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, admin.topics())
        await admin.close()
        with pytest.raises(UsageError, match="closed"):
            await admin.topics()
        with pytest.raises(UsageError, match="closed"):
            await anext(admin.read("orders"))

    run_clean(main)


def test_a_cluster_makes_all_clients_and_closes_those_that_are_open(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=1)

    async def main():
        async with connect(rmq_cluster.namesrv) as cluster:
            assert repr(cluster) == f"AsyncCluster(namesrv='{rmq_cluster.namesrv}')"
            producer = cluster.producer()
            await producer.start()
            await producer.send(ProducerMessage("orders", b"1"))
            consumer = cluster.consumer("push", "orders", consume_from="earliest")
            await consumer.start()
            pushed = await anext(aiter(consumer))
            simple = cluster.simple_consumer("pop", "orders", consume_from="earliest")
            await simple.start()
            (popped,) = await simple.receive()
            await simple.ack(popped)
            admin = cluster.admin()
            await admin.start()
            topic = await admin.topic("orders")
            cluster.producer()  # never started
        for closed in (consumer.queues(), simple.receive(), admin.topics()):
            with pytest.raises(UsageError, match="closed"):
                await closed
        return pushed.body, popped.body, topic.topic

    assert run_clean(main) == (b"1", b"1", "orders")


def test_an_admin_needs_name_servers(monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main():
        async with connect(endpoints="127.0.0.1:8081") as cluster:
            with pytest.raises(UsageError, match="AsyncAdmin needs name servers"):
                cluster.admin()

    run_clean(main)
