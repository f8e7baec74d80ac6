"""How jobs end that have not begun when the loop or another task ends the work."""

from __future__ import annotations

import asyncio

from rmqcli.aio.handover import EventLoop
from rmqcli.aio.listening import ListenerTasks
from rmqcli.engine.listener import LeaveRest


def ends_of_jobs(count, function):
    """Run `count` jobs, each of which calls `function`; return how each call ended."""
    ends: list[str] = []
    lost: list[str] = []

    async def main():
        runner = ListenerTasks(function, on_lost=lost.append)
        runner.count = 2
        runner.attach(EventLoop())

        async def job():
            try:
                await runner.call("a message")
                ends.append("consumed")
            except LeaveRest:
                ends.append("left")

        for _ in range(count):
            runner.put(job)
        while len(ends) < count:
            await asyncio.sleep(0)

    asyncio.run(main())
    return ends, lost


def test_a_call_whose_task_is_cancelled_before_it_begins_leaves_its_message():
    """The second task is cancelled by the first one, and two more wait for room."""

    async def handle(_message):
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if getattr(task.get_coro(), "__name__", "") == "job":
                task.cancel()

    ends, lost = ends_of_jobs(4, handle)
    assert ends == ["consumed", "left", "left", "left"]
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


class HandLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until it is set."""

    now_s = 0.0

    def time(self):
        return self.now_s


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
