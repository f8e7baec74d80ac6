"""`AsyncCluster.copy`: a topic is copied by a program with asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from rmqcli import RefusedError
from rmqcli.aio import AsyncCopy, connect
from tests.aio.interrupting import run_clean
from tests.copy.copying import stored
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def cluster(rmq_cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    rmq_cluster.create_topic("src", queues=2)
    rmq_cluster.create_topic("dst", queues=2)
    rmq_cluster.create_group("billing")
    rmq_cluster.send("src", [b"%02d" % number for number in range(10)])
    return rmq_cluster


def test_a_topic_is_copied(cluster):
    async def main():
        async with connect(cluster.namesrv) as connected:
            copy = connected.copy("src", "dst", to=connect(cluster.namesrv))
            assert isinstance(copy, AsyncCopy)
            assert copy.request.target_topic == "dst"
            assert (await copy.plan()).count == 10
            assert (await copy.execute()).copied == 10
            planned = await copy.plan_group("billing")
            async with connected.admin() as admin:
                assert (await admin.apply_reset(planned)).is_complete
            with pytest.raises(TypeError):
                connected.copy("src", "dst", to=cluster.namesrv)

    run_clean(main)
    assert stored(cluster, "dst") == stored(cluster, "src")


def test_a_coroutine_function_is_refused_in_place_of_one_that_confirms(cluster):
    """It was called and never awaited, and all messages were copied."""

    async def confirm(_plan):
        raise RefusedError("no")

    async def main():
        copy = connect(cluster.namesrv).copy("src", "dst")
        with pytest.raises(TypeError, match=r"on_plan .* is a coroutine function"):
            await copy.execute(on_plan=confirm)
        with pytest.raises(TypeError, match=r"on_batch .* is a coroutine function"):
            await copy.execute(on_batch=confirm)

    run_clean(main)
    assert stored(cluster, "dst") == {}


def test_a_copy_that_follows_is_ended_by_cancelling_it(cluster):
    async def main():
        loop = asyncio.get_running_loop()
        copied = asyncio.Event()

        def on_batch(report):
            if report.copied == 10:
                loop.call_soon_threadsafe(copied.set)

        copy = connect(cluster.namesrv).copy("src", "dst")
        task = asyncio.create_task(copy.execute(follow=True, on_batch=on_batch))
        await copied.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await copy.execute()).copied == 0

    run_clean(main)
    assert stored(cluster, "dst") == stored(cluster, "src")


@pytest.mark.parametrize(("at", "copied"), [("on_plan", 0), ("on_batch", 1)])
def test_a_cancelled_copy_ends_between_two_batches(cluster, at, copied):
    """The next one copies the rest. With one message a second, a batch has one."""
    go_on = threading.Event()

    async def main():
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hold(reported):
            if at == "on_plan" or reported.copied:  # the first report is of nothing
                loop.call_soon_threadsafe(begun.set)
                assert go_on.wait(PATIENCE_S)

        copy = connect(cluster.namesrv).copy("src", "dst")
        task = asyncio.create_task(
            copy.execute(rate_per_s=1, **dict[str, Any]({at: hold}))
        )
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()  # the batch is not noted yet
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sum(len(queue) for queue in stored(cluster, "dst").values()) == copied
        assert (await copy.execute()).copied == 10 - copied

    run_clean(main)
    assert stored(cluster, "dst") == stored(cluster, "src")
