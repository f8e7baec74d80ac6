"""`AsyncCluster.redrive`: dead letters are sent again by a program with asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rmqcli import Admin, NotFoundError, RefusedError
from rmqcli.aio import AsyncRedrive, connect
from tests.admin.dlq.letters import make_letters
from tests.aio.interrupting import run_clean
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Four letters of the group billing on one broker."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", ["a", "b", "c", "d"])
    return cluster


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.jsonl"


def redriven(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        return [
            message.body
            for message in admin.read("orders")
            if "RMQ_REDRIVEN_FROM" in message.properties
        ]


def test_a_plan_changes_nothing_and_execute_sends_each_letter_once(cluster, log):
    async def main():
        async with connect(cluster.namesrv) as connected:
            redrive = connected.redrive("billing", log=log)
            assert isinstance(redrive, AsyncRedrive)
            plan = await redrive.plan()
            assert (plan.count, plan.targets) == (4, {"orders": 4})
            assert not log.exists()
            plans: list[Any] = []
            batches: list[Any] = []
            report = await redrive.execute(
                on_plan=plans.append, on_batch=batches.append
            )
            assert (report.stored, report.is_complete) == (4, True)
            assert [plan.count for plan in plans] == [4]
            assert [len(batch) for batch in batches] == [4]
            assert (await redrive.execute()).stored == 0

    run_clean(main)
    assert sorted(redriven(cluster)) == [b"a", b"b", b"c", b"d"]


def test_errors_are_those_of_redrive(cluster, log):
    async def main():
        redrive = connect(cluster.namesrv).redrive("nobody", log=log)
        with pytest.raises(NotFoundError):
            await redrive.plan()
        refused = connect(cluster.namesrv).redrive("billing", log=log)

        def refuse(plan):
            raise RefusedError(f"{plan.count} letters are too many")

        with pytest.raises(RefusedError, match="4 letters are too many"):
            await refused.execute(on_plan=refuse)

    run_clean(main)
    assert redriven(cluster) == []


@pytest.mark.parametrize("name", ["on_plan", "on_batch"])
def test_a_coroutine_function_is_refused_in_place_of_one_that_confirms(
    cluster, log, name
):
    """It was called and never awaited, and the letters that it refuses were sent."""

    async def confirm(_plan):
        raise RefusedError("no")

    async def main():
        redrive = connect(cluster.namesrv).redrive("billing", log=log)
        with pytest.raises(TypeError, match=f"{name} .* is a coroutine function"):
            await redrive.execute(**dict[str, Any]({name: confirm}))
        with pytest.raises(TypeError, match="on_plan returned a coroutine"):
            await redrive.execute(on_plan=lambda plan: confirm(plan))

    run_clean(main)
    assert redriven(cluster) == []


@pytest.mark.parametrize(("at", "sent"), [("on_plan", 0), ("on_batch", 1)])
def test_a_cancelled_redrive_ends_between_two_batches(cluster, log, at, sent):
    """The next one sends the rest. With one letter a second, a batch has one letter."""
    go_on = threading.Event()

    async def main():
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(_):
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(PATIENCE_S)

        redrive = connect(cluster.namesrv).redrive("billing", log=log)
        task = asyncio.create_task(
            redrive.execute(rate_per_s=1, **dict[str, Any]({at: hold}))
        )
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()  # the batch is not noted yet
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(redriven(cluster)) == sent
        assert (await redrive.execute()).stored == 4 - sent

    run_clean(main)
    assert len(redriven(cluster)) == 4
