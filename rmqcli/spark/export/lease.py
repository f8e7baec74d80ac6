"""One export at a time in a storage whose files cannot be locked.

An export writes a file of its own below `_rmq/locks` and then lists that folder. When
another export's file is there, it removes its own and is refused. So of two that begin
at once at most one goes on: whichever lists last sees both files, because a file that
was written is listed from then on (Amazon S3, Google Cloud Storage, HDFS, MinIO).

The owner writes its file again every few seconds. A file that has grown old is the one
of a process that was killed; it is removed, as is one whose process was on this machine
and has ended. Ages are differences of the storage's own times. Whoever writes to the
export looks first whether its own file is still there, so a process that was taken for
dead, and the workers of one that is, write nothing more.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqcli.errors import RefusedError, RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: An owner writes its file this often, and one that is so old is abandoned.
BEAT_S: Final = 15.0
ABANDONED_S: Final = 60.0

_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """A file in the folder of leases. `modified_s` is the storage's time."""

    path: str
    modified_s: float


class LeaseStorage(Protocol):
    """The calls of a storage that leases need."""

    def exists(self, path: str) -> bool: ...
    def remove(self, path: str) -> None: ...
    def read_text(self, path: str) -> str: ...
    def put_text(self, path: str, text: str) -> None: ...
    def list_leases(self, folder: str) -> Iterable[LeaseFile]: ...


class Lease:
    """The lease of this process on one export. `acquire` first, `release` last.

    A thread keeps it from growing old in between.
    """

    def __init__(self, storage: LeaseStorage, folder: str, *, root: str) -> None:
        self.path = os.path.join(folder, f"{secrets.token_hex(8)}.json")
        self._storage = storage
        self._folder = folder
        self._root = root
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._beat, name="rmq-export-lease", daemon=True
        )

    def acquire(self) -> None:
        """Take the lease. Raises RefusedError while another export has one."""
        self._storage.put_text(self.path, _owner_text())
        try:
            files = list(self._storage.list_leases(self._folder))
            now_s = next(
                (file.modified_s for file in files if file.path == self.path), 0.0
            )
            for file in files:
                if file.path != self.path:
                    self._take_over(file, age_s=now_s - file.modified_s)
        except BaseException:
            with contextlib.suppress(RmqError, OSError):
                self._storage.remove(self.path)
            raise
        self._thread.start()

    def release(self) -> None:
        """End it; another export may begin."""
        self._ends.set()
        self._thread.join(_JOIN_S)
        with contextlib.suppress(RmqError, OSError):
            # Where the storage does not answer, the file grows old.
            self._storage.remove(self.path)

    def _take_over(self, file: LeaseFile, *, age_s: float) -> None:
        """Remove a file that was abandoned. Raises RefusedError for another one."""
        owner = self._owner_of(file)
        if owner is None:
            return
        if age_s < ABANDONED_S and not _has_ended(owner):
            process, host = owner.get("process"), owner.get("host")
            raise RefusedError(
                f"another export (process {process or 'unknown'} on"
                f" {host or 'an unknown machine'}) is running in {self._root}",
                hint="if it was killed, try again in"
                f" {max(1, round(ABANDONED_S - age_s))} s",
            )
        self._storage.remove(file.path)

    def _owner_of(self, file: LeaseFile) -> dict[str, Any] | None:
        """Return what a file says of its owner; None when it is gone meanwhile."""
        try:
            value = json.loads(self._storage.read_text(file.path))
        except FileNotFoundError:
            return None
        except ValueError:
            value = {}
        return value if isinstance(value, dict) else {}

    def _beat(self) -> None:
        while not self._ends.wait(BEAT_S):
            # Without an answer the next write of the export fails by itself. Without
            # the file another export has begun, and this one must not look alive.
            with contextlib.suppress(RmqError, OSError):
                if not self._storage.exists(self.path):
                    return
                self._storage.put_text(self.path, _owner_text())


def _owner_text() -> str:
    value = {
        "process": os.getpid(),
        "host": platform.node(),
        "machine": _machine(),
        "started": _start_time(os.getpid()),
    }
    return json.dumps(value) + "\n"


def _has_ended(owner: dict[str, Any]) -> bool:
    """Whether a process that ran on this machine has ended; false when in doubt."""
    machine = _machine()
    process, started = owner.get("process"), owner.get("started")
    if not machine or owner.get("machine") != machine or not isinstance(process, int):
        return False
    return _start_time(process) != started


def _machine() -> str:
    """Return what names this start of this machine, and its space of process ids.

    Empty where the system does not say. A container is a machine of its own.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_time(process: int) -> str:
    """Return when a process started, in the system's ticks; empty when it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie has ended, and waits only for its parent.
    return "" if fields[0] in ("Z", "X") else fields[19]
