"""Deadlines come due in order; those of ended things do not, and are forgotten."""

from __future__ import annotations

from rmqcli.broker.state.deadlines import Deadlines
from rmqcli.clock import Now
from rmqcli.timers import Timers


class Things:
    """Deadlines of strings, and a list of what came due when."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.live: set[str] = set()
        self.due: list[tuple[str, int]] = []
        self.deadlines = Deadlines[str](
            self.timers,
            self._due,
            has_ended=lambda thing: thing not in self.live,
            count=lambda: len(self.live),
        )

    def add(self, thing: str, monotonic_ms: int) -> None:
        self.live.add(thing)
        self.deadlines.add(thing, monotonic_ms)

    def wait_until(self, monotonic_ms: int) -> None:
        self.timers.run_due(Now(monotonic_ms, 0))

    def _due(self, thing: str, now: Now) -> None:
        self.live.discard(thing)
        self.due.append((thing, now.monotonic_ms))


def test_each_is_due_at_its_time_whatever_the_order():
    things = Things()
    for thing, at in (("c", 30), ("a", 10), ("d", 40), ("b", 20)):
        things.add(thing, at)

    for at in range(50):
        things.wait_until(at)

    assert things.due == [("a", 10), ("b", 20), ("c", 30), ("d", 40)]


def test_what_has_ended_is_not_due():
    things = Things()
    things.add("a", 10)
    things.add("b", 20)
    things.live.discard("a")

    things.wait_until(20)

    assert things.due == [("b", 20)]


def test_what_has_ended_is_forgotten_before_its_time():
    """A million acknowledged messages must not wait for the end of their hour."""
    things = Things()
    things.add("last", 3_600_001)
    for number in range(10_000):
        things.add(f"{number}", 3_600_000)
        things.live.discard(f"{number}")

    assert len(things.deadlines) < 1_100
    assert len(things.timers) < 1_100
    things.wait_until(3_600_001)
    assert things.due == [("last", 3_600_001)]
