"""An asyncio event loop in virtual time: one for each member with coroutines.

It is a BaseEventLoop, with asyncio's own handles, futures and tasks, and waits for no
socket. Each turn is an event of the schedule: one follows at once when something is to
be called, and one at the time of the next timer. So a frozen member's loop stands still
like its engine.
"""

from __future__ import annotations

import asyncio
import math
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.schedule import Schedule


class SimLoop(asyncio.BaseEventLoop):
    """See the module. `run` runs a turn, later if its member is frozen."""

    # private to asyncio
    _ready: Any
    _scheduled: Any
    _run_once: Any
    _thread_id: Any

    def __init__(
        self,
        schedule: Schedule,
        run: Callable[[Callable[[], None]], None],
        failed: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._schedule = schedule
        self._run = run
        self._selector = self
        # A timer is due in its millisecond, whatever the sums of floats are.
        self._clock_resolution = 1e-6
        #: the time of the next turn that is planned
        self._turn_ms: int | None = None
        self.set_exception_handler(lambda _, context: failed(f"loop: {context}"))

    def __del__(self) -> None:
        """Nothing has to be closed."""

    def time(self) -> float:
        return self._schedule.now_ms / 1000

    def select(self, timeout: float | None) -> list[Any]:
        """Return no events: time passes between the turns only."""
        del timeout
        return []

    def call_soon(  # type: ignore[override]  # any arguments
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        handle = super().call_soon(callback, *args, context=context)
        self._plan(self._schedule.now_ms)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # as call_soon

    def call_at(  # type: ignore[override]  # any arguments
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self._plan(math.ceil(when * 1000 - 1e-3))
        return handle

    @property
    def has_ready(self) -> bool:
        """Whether something is to be called now."""
        return bool(self._ready)

    def run_turn(self) -> None:
        """Call what is ready and due."""
        self.run(self._run_once)

    def run(self, action: Callable[[], None]) -> None:
        """Call `action` as if in this loop."""
        asyncio._set_running_loop(self)
        self._thread_id = threading.get_ident()
        try:
            action()
        finally:
            self._thread_id = None
            asyncio._set_running_loop(None)

    def _plan(self, at_ms: int) -> None:
        at_ms = max(at_ms, self._schedule.now_ms)
        if self._turn_ms is None or at_ms < self._turn_ms:
            self._turn_ms = at_ms
            self._schedule.at(at_ms, lambda: self._run(lambda: self._turn(at_ms)))

    def _turn(self, planned_ms: int) -> None:
        if self._turn_ms != planned_ms or self.is_closed():
            return
        self._turn_ms = None
        self.run_turn()
        if self._ready:
            self._plan(self._schedule.now_ms)
        elif self._scheduled:
            self._plan(math.ceil(self._scheduled[0].when() * 1000 - 1e-3))

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """The loop waits for nothing that it could be woken up from."""
