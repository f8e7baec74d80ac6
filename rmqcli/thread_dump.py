"""The stacks of all threads of this process, for brokers and proxies that request them.

The format is jstack's: function, file name and line number, without directories and
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

_LENGTH_MAX: Final = 64 << 10


def thread_dump() -> str:
    """Return the stacks of all threads, the innermost call first, cut to 64 KiB."""
    frames = sys._current_frames()  # noqa: SLF001  # the only way to them
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        calls = [] if frame is None else traceback.walk_stack(frame)
        lines = [f'"{thread.name}"', *(_call(each, line) for each, line in calls)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)[:_LENGTH_MAX]


def _call(frame: FrameType, line: int) -> str:
    module = frame.f_globals.get("__name__", "?")
    code = frame.f_code
    name = PurePath(code.co_filename).name
    return f"\tat {module}.{code.co_qualname}({name}:{line})"
