"""Kills registered process groups when the process that started it is gone.

Runs as its own process (`python guard.py`) and reads `+pid` and `-pid` lines; the end
of its input means that the parent ended, however abruptly. The prctl death signal was
not used because it fires when the starting thread ends, not the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading


def main() -> None:
    """Follow standard input to its end, then kill what is still registered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


class Guard:
    """The parent's side: one guard process per test process, started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None  # guarded by _lock
        self._watched = 0  # guarded by _lock

    def watch(self, pid: int) -> None:
        """Kill the process group `pid` when this process ends."""
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", __file__],
                    stdin=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
            self._watched += 1
            self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        """`pid` has been waited for; the guard ends with its last process."""
        with self._lock:
            self._tell(f"-{pid}")
            self._watched -= 1
            if self._watched == 0 and self._process is not None:
                process, self._process = self._process, None
                process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


GUARD = Guard()

if __name__ == "__main__":
    main()
