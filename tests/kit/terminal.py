"""A terminal for tests that compare what a command writes to one."""

from __future__ import annotations

import io
import os
import pty
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def typed(text: str) -> Iterator[None]:
    """Make stdin a terminal on which a user has typed `text`, with its newline."""
    ours, theirs = pty.openpty()
    os.write(ours, text.encode())
    stdin = sys.stdin
    with open(ours, "wb"), open(theirs, encoding="utf-8") as sys.stdin:
        try:
            yield
        finally:
            sys.stdin = stdin
