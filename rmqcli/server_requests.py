"""What servers request of a client: how often it is done, and the threads' stacks.

A limit makes that a flood of requests costs little; its time is an argument. The format
of the stacks is jstack's: function, file name and line number, without directories and
source text, because the dump leaves this machine.

Source: UtilAll#jstack in apache/rocketmq.
"""

from __future__ import annotations

import sys
import threading
import traceback
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

#: How many requests may come at once, and how many a second on average.
BURST: Final = 20
PER_SECOND: Final = 5
_MS_EACH: Final = 1_000 // PER_SECOND
#: After this long without a refusal the next one is news again.
_QUIET_MS: Final = 60_000
_DUMP_LENGTH_MAX: Final = 64 << 10


class FloodLimit:
    """Takes BURST requests at once, and PER_SECOND on average; refuses the others.

    Operators send such requests by hand, some in a minute. Not thread-safe.
    """

    def __init__(self) -> None:
        #: when all requests that were taken are made up for (monotonic)
        self._even_ms = 0
        self._refused_ms: int | None = None

    def takes(self, now_ms: int) -> bool:
        """Whether to carry out a request that arrived at this time (monotonic)."""
        even_ms = max(self._even_ms, now_ms) + _MS_EACH
        if even_ms - now_ms > BURST * _MS_EACH:
            return False
        self._even_ms = even_ms
        return True

    def is_news(self, now_ms: int) -> bool:
        """Whether to log a refusal: the first one of a flood."""
        before, self._refused_ms = self._refused_ms, now_ms
        return before is None or now_ms - before >= _QUIET_MS


def thread_dump() -> str:
    """Return the stacks of all threads, the innermost call first, in about 64 KiB.

    Where there is no room for all threads, the last one is named after how many more
    there are.
    """
    frames = sys._current_frames()  # noqa: SLF001  # the only way to them
    parts: list[str] = []
    length = 0
    threads = threading.enumerate()
    for number, thread in enumerate(threads):
        frame = frames.get(thread.ident or 0)
        calls = [] if frame is None else traceback.walk_stack(frame)
        lines = [f'"{thread.name}"', *(_call(each, line) for each, line in calls)]
        part = "\n".join(lines) + "\n"
        length += len(part) + 1
        if length > _DUMP_LENGTH_MAX:
            parts.append(f'"{len(threads) - number} more threads, for want of room"\n')
            break
        parts.append(part)
    return "\n".join(parts)


def _call(frame: FrameType, line: int) -> str:
    module = frame.f_globals.get("__name__", "?")
    code = frame.f_code
    name = PurePath(code.co_filename).name
    return f"\tat {module}.{code.co_qualname}({name}:{line})"
