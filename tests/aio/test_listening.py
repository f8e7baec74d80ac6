"""How often and for how long jobs run, and how those end that have not begun."""

from __future__ import annotations

import asyncio
import functools
import math
from contextlib import suppress
from typing import Any

import pytest

from rmqcli.aio import listening
from rmqcli.aio.handover import EventLoop
from rmqcli.aio.listening import Iteration, ListenerTasks
from rmqcli.engine.listener import LeaveRest
from tests.aio.interrupting import HandLoop


def ends_of_jobs(count, function):
    """Run `count` jobs, each of which calls `function`; return how each call ended."""
    ends: list[str] = []
    lost: list[str] = []

    async def main():
        runner = ListenerTasks(function, on_lost=lost.append)
        runner.count = 2
        runner.attach(EventLoop())

        async def run():
            try:
                await runner.call("a message")
                ends.append("consumed")
            except LeaveRest:
                ends.append("left")

        runner.put(*[functools.partial(run) for _ in range(count)])
        while len(ends) < count:
            await asyncio.sleep(0)

    asyncio.run(main())
    return ends, lost


def test_a_job_that_has_not_begun_when_a_task_is_cancelled_leaves_its_message(
    monkeypatch,
):
    """The first task cancels the second one, which has no job, and runs three jobs."""
    # On a busy machine, tasks let the loop run before they begin, and may be cancelled.
    monkeypatch.setattr(listening, "_TURN_S", math.inf)

    async def handle(_message):
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if getattr(task.get_coro(), "__name__", "") != "main":
                task.cancel()

    ends, lost = ends_of_jobs(4, handle)
    assert sorted(ends) == ["consumed", "consumed", "consumed", "left"]
    assert lost == ["a task of its listener was cancelled"]


def test_a_listener_that_cancels_its_own_task_does_not_cancel_the_next_call():
    async def handle(_message):
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    ends, lost = ends_of_jobs(3, handle)
    assert ends == ["consumed", "left", "left"]
    assert lost == ["a task of its listener was cancelled"]


def test_every_call_that_is_not_cancelled_ends():
    async def handle(_message):
        await asyncio.sleep(0)

    assert ends_of_jobs(5, handle) == (["consumed"] * 5, [])


def test_no_more_calls_are_under_way_than_may_be():
    running, most = 0, 0

    async def handle(_message):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    assert ends_of_jobs(9, handle) == (["consumed"] * 9, [])
    assert most == 2


def test_after_five_milliseconds_of_listeners_other_tasks_run_once():
    """And not before: calls that end at once cost no turn of the loop."""
    done: list[str] = []
    loop = HandLoop()

    async def handle(message):
        done.append(message)
        loop.now_s += 0.002

    async def main():
        runner = ListenerTasks(handle, on_lost=done.append)
        runner.count = 1
        runner.attach(EventLoop())
        ended = loop.create_future()

        async def job():
            for number in range(9):
                await runner.call(str(number))
            ended.set_result(None)

        async def other():
            while True:
                if done:  # the job has begun
                    done.append("other")
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        runner.put(job)
        await ended
        task.cancel()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    assert done == [*"012", "other", *"345", "other", *"678", "other"]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_job_that_waits_begins_as_often_as_it_was_put(times):
    async def main():
        may_end = asyncio.Event()
        begun: list[str] = []
        runner = ListenerTasks(may_end.wait, on_lost=begun.append)
        runner.count = 10
        runner.attach(EventLoop())

        async def job():
            begun.append("begun")
            await runner.call()

        runner.put(*[job] * times)
        for _ in range(20):
            await asyncio.sleep(0)
        may_end.set()
        await runner.ended()
        return begun

    assert asyncio.run(main()) == ["begun"] * times


def test_jobs_that_never_wait_run_in_one_task():
    tasks: set[object] = set()

    async def main():
        async def note():
            tasks.add(asyncio.current_task())

        runner = ListenerTasks(note, on_lost=print)
        runner.count = 10
        runner.attach(EventLoop())

        async def run():
            await runner.call()

        runner.put(*[functools.partial(run) for _ in range(5)])
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert len(tasks) == 1


@pytest.mark.injects_exceptions
def test_an_error_in_a_job_is_logged_and_the_next_job_runs(caplog):
    ran: list[str] = []

    async def main():
        runner = ListenerTasks(asyncio.sleep, on_lost=print)
        runner.attach(EventLoop())

        async def fail():
            raise ValueError("a mistake")

        async def job():
            ran.append("ran")

        runner.put(fail, job)
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert ran == ["ran"]
    assert "exception in a task of a listener; it continues" in caplog.text


def test_a_job_that_never_waits_runs_once_however_often_it_was_put():
    begun: list[str] = []

    async def main():
        runner = ListenerTasks(asyncio.sleep, on_lost=begun.append)
        runner.count = 10
        runner.attach(EventLoop())

        async def job():
            begun.append("begun")

        runner.put(*[job] * 5)
        for _ in range(20):
            await asyncio.sleep(0)

    asyncio.run(main())
    assert begun == ["begun"]


def test_cancelled_tasks_have_one_second_to_end(caplog):
    async def main(loop):
        may_end = asyncio.Event()

        async def ignore():
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await may_end.wait()

        runner = ListenerTasks(ignore, on_lost=print)
        runner.attach(EventLoop())

        async def job():
            await runner.call()

        runner.put(job)
        await loop.at(0)
        runner.cancel()
        ended = asyncio.create_task(runner.ended())
        await loop.at(0)
        await loop.at(0.9995)
        assert not ended.done()
        await loop.at(1)
        assert ended.done()
        may_end.set()
        await runner.ended()

    with asyncio.Runner(loop_factory=HandLoop) as runner:
        runner.run(main(runner.get_loop()))
    assert caplog.text.count("tasks keep running count=1") == 1


def test_an_idle_loop_ends_when_its_time_is_up():
    async def main(loop):
        iteration = Iteration(on_lost=print)
        iteration.attach(EventLoop())
        asked = asyncio.create_task(iteration.next(after=None, idle_timeout_ms=60_000))
        await loop.at(0)
        await loop.at(59.99)
        assert not asked.done()
        await loop.at(60)
        return asked.done() and await asked

    with asyncio.Runner(loop_factory=HandLoop) as runner:
        assert runner.run(main(runner.get_loop())) is None


@pytest.mark.parametrize("turns", [0, 1])
def test_a_loop_gets_a_message_that_comes_just_when_its_time_is_up(turns):
    """Of the loop's turn in which the time is up, or of the next."""
    message: Any = object()

    async def main(loop):
        iteration = Iteration(on_lost=print)
        iteration.attach(EventLoop())
        asked = asyncio.create_task(iteration.next(after=None, idle_timeout_ms=60_000))
        await loop.at(0)

        async def job():
            with suppress(LeaveRest):
                await iteration(message)

        loop.now_s = 60
        for _ in range(turns):
            await asyncio.sleep(0)
        iteration.put(job)
        offered = await asked
        iteration.cancel()
        return offered

    with asyncio.Runner(loop_factory=HandLoop) as runner:
        assert runner.run(main(runner.get_loop())) is message
