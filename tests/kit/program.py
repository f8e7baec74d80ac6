"""A Python program as a process of its own, which never outlives the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.kit.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
#: Enough for the busiest machine; only a hang takes this long.
PATIENCE_S = 60


class Program:
    """Runs `source` with this Python, in a process group of its own.

    stdout is read line by line, stderr goes to a file. Leaving the context kills the
    group, including the processes that the program started.
    """

    def __init__(
        self,
        source: str,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._error_path = folder / f"program-{id(self)}.err"
        with self._error_path.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", source, *arguments],
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        GUARD.watch(self.process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        GUARD.forget(self.process.pid)

    @property
    def errors(self) -> str:
        """What the program has written to stderr so far."""
        return self._error_path.read_text()

    def line(self) -> str:
        """Read the next line of stdout, without its newline; empty at the end."""
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self._kill)
        timer.start()
        try:
            return self.process.stdout.readline().rstrip("\n")
        finally:
            timer.cancel()

    def rest(self) -> list[str]:
        """Read the other lines, until all processes with stdout open have ended."""
        lines = []
        while line := self.line():
            lines.append(line)
        return lines

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # the last of the group has ended
            os.killpg(self.process.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """Send SIGINT, as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the program to end, and return its exit code.

        Raises AssertionError with the program's stderr when it does not end in time.
        """
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the program still ran after {timeout_s} s: {self.errors[-2000:]}"
            ) from None
