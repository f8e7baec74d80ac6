"""Coroutines that are cancelled at a chosen `await`, and loops that must end clean."""

from __future__ import annotations

import asyncio
import gc
import threading
import types
from contextlib import contextmanager
from typing import NamedTuple

from hypothesis import strategies as st

from tests.kit.waiting import PATIENCE_S, wait_until

_POLL_S = 0.005


class Interruption(NamedTuple):
    """When a coroutine is cancelled.

    `step` counts the times that it waits, from 1. It is cancelled `"waiting"`, or once
    what it waits for has come and before it runs again (`"woken"`).
    """

    step: int
    moment: str


interruptions = st.builds(
    Interruption, st.integers(1, 4), st.sampled_from(["waiting", "woken"])
)


async def interrupted(coroutine, interruption):
    """Run a coroutine in a task of its own; None never cancels it."""
    return await _driven(coroutine, interruption)


@types.coroutine
def _driven(coroutine, interruption):
    task = asyncio.current_task()
    assert task is not None
    step, error = 0, None
    while True:
        try:
            awaited = coroutine.send(None) if error is None else coroutine.throw(error)
        except StopIteration as end:
            return end.value
        step, error = step + 1, None
        if interruption is not None and step == interruption.step:
            if interruption.moment == "waiting" or awaited is None:
                asyncio.get_running_loop().call_soon(task.cancel)
            else:
                awaited.add_done_callback(lambda _: task.cancel())
        try:
            yield awaited
        except BaseException as caught:  # noqa: BLE001  # thrown into the coroutine
            error = caught


async def eventually(claim):
    """Let the loop run until `claim()` is true; see `wait_until`."""
    async with asyncio.timeout(PATIENCE_S):
        while not claim():
            await asyncio.sleep(_POLL_S)


class HandLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until it is set."""

    now_s = 0.0

    def time(self):
        return self.now_s

    async def at(self, now_s):
        """Set the clock, and let the loop run what is due then."""
        self.now_s = now_s
        for _ in range(10):
            await asyncio.sleep(0)


@contextmanager
def clean_end():
    """Fail if a loop reports something, or if a thread of a client is left.

    What is left over by the loop is looked for among the objects made meanwhile: a
    worker of pytest holds a million others, and each look at them takes a while.
    """
    gc.freeze()
    before = set(threading.enumerate())
    reported = []
    yield lambda _loop, context: reported.append(context)
    gc.collect()
    assert reported == []
    wait_until(
        lambda: (
            not [
                each
                for each in set(threading.enumerate()) - before
                # gRPC's loop belongs to the process.
                if each.name.startswith("rmq") and each.name != "rmq-proxy"
            ]
        )
    )


def run_clean(main, loop_factory=None):
    """Run `main()` in a new loop, and return its result, once the end was clean."""

    async def watched(handler):
        asyncio.get_running_loop().set_exception_handler(handler)
        result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    with (
        clean_end() as handler,
        asyncio.Runner(loop_factory=loop_factory) as runner,
    ):
        return runner.run(watched(handler))
