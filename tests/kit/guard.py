"""Kills the processes that a test process started, after the end of that process.

The guard is a process of its own (`python guard.py`) that reads `+pid` and `-pid`
lines; the end of its input means that the parent ended, however abruptly. The prctl
death signal is not used because it fires when the starting thread ends, not the
process.

Then the guard kills the registered process groups; with a mark (`python guard.py MARK`)
it kills every process that inherited the mark in its environment, registered or not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time


def main() -> None:
    """Read standard input to its end, then kill what is registered or marked."""
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
    looks_in_vain = 0 if len(sys.argv) > 1 else _LOOKS_IN_VAIN
    while looks_in_vain < _LOOKS_IN_VAIN:
        looks_in_vain += 1
        for pid in marked(sys.argv[1]):
            kill(pid)
            looks_in_vain = 0  # it may have started others meanwhile
        time.sleep(_LOOK_AGAIN_S)


#: So many looks in a row must find no marked process: one that is just replacing
#: itself by another program has no environment that can be read.
_LOOKS_IN_VAIN = 3
_LOOK_AGAIN_S = 0.02
#: The environment variable that all processes of a test process inherit.
MARK = "RMQ_TEST_PROCESS"


def marked(mark: str) -> list[int]:
    """Return the ids of the processes that have this mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in processes("/proc"):
        if pid == os.getpid() or is_zombie(pid):
            continue
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            if wanted in file.read().split(b"\0"):
                found.append(pid)
    return found


def processes(folder: str) -> list[int]:
    """Return the numbers in a folder of /proc; none if the folder does not exist."""
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]
    except OSError:
        return []


def children() -> set[int]:
    """Return the ids of the children of this process; some may have ended."""
    found: set[int] = set()
    for task in processes("/proc/self/task"):
        path = f"/proc/self/task/{task}/children"
        with contextlib.suppress(OSError), open(path, "rb") as file:
            found.update(map(int, file.read().split()))
    return found


def is_zombie(pid: int) -> bool:
    """Whether a process has ended; True also for an id that does not exist."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def command_of(pid: int) -> str:
    """Return a process's command line; empty when it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def kill(pid: int) -> None:
    """Kill a process, and its process group if it leads one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)


class Guard:
    """The parent's side: one guard process per test process, started when needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None  # guarded by _lock
        self._pids: set[int] = set()  # guarded by _lock
        self._sweeper: subprocess.Popen[bytes] | None = None

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
            self._pids.add(pid)
            self._tell(f"+{pid}")

    @property
    def pid(self) -> int | None:
        """The id of the guard's own process; None when it does not run."""
        process = self._process
        return None if process is None else process.pid

    def watches(self, pid: int) -> bool:
        """Whether the process was passed to `watch` and not yet to `forget`."""
        return pid in self._pids

    def mark_all(self) -> None:
        """Mark all processes started from now on, to kill them when this one ends."""
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        environment = {k: v for k, v in os.environ.items() if k != MARK}
        os.environ[MARK] = mark
        # It ends by itself when the pipe is closed, even if this process is killed.
        self._sweeper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    @property
    def sweeper_pid(self) -> int | None:
        """The id of the process that kills the marked ones; None without one."""
        return None if self._sweeper is None else self._sweeper.pid

    def sweep(self) -> None:
        """Kill all marked processes now; those that start later are not killed."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.communicate()

    def forget(self, pid: int) -> None:
        """Stop watching `pid`, which has ended; after the last one the guard ends."""
        with self._lock:
            self._tell(f"-{pid}")
            self._pids.discard(pid)
            if not self._pids and self._process is not None:
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
