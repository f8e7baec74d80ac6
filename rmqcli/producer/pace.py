"""`--rate N/s`: delay messages so that they are sent at a limited rate."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from rmqcli.errors import TextError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqcli.clock import Clock

T = TypeVar("T")

RATE_MAX = 1_000_000


def parse_rate(text: str) -> int:
    """Parse `50/s` to a number of messages per second, at least 1. Raises TextError."""
    digits, slash, unit = text.partition("/")
    hint = "write for example 50/s"
    if slash and unit != "s":
        start = len(digits) + 1
        what = "the unit must be '/s', per second"
        raise TextError(text, what, start=start, end=max(len(text), start + 1))
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 7):
        end = max(1, len(digits))
        raise TextError(text, "not a whole number", start=0, end=end, hint=hint)
    rate = int(digits)
    if not 1 <= rate <= RATE_MAX:
        what = f"not between 1 and {RATE_MAX}"
        raise TextError(text, what, start=0, end=len(digits), hint=hint)
    return rate


def paced(
    items: Iterable[T | None], *, per_second: int, clock: Clock
) -> Iterator[T | None]:
    """Yield each item when it is due, and None before every wait.

    Items are evenly spaced from the first one on. After a late item the next ones are
    not yielded faster than `per_second`.
    """
    never = threading.Event()
    start_ms = clock.monotonic_ms()
    count = 0
    for item in items:
        if item is not None:
            due_ms = start_ms + count * 1000 // per_second
            now_ms = clock.monotonic_ms()
            if now_ms < due_ms:
                yield None
                wait_ms = due_ms - clock.monotonic_ms()
                while wait_ms > 0:
                    clock.wait_ms(never, wait_ms)
                    wait_ms = due_ms - clock.monotonic_ms()
            elif now_ms - due_ms > 1000:
                start_ms, count = now_ms, 0
            count += 1
        yield item
