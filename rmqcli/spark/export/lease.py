"""Leases: allow only one export at a time in a storage whose files cannot be locked.

Each export writes a lease file below `_rmq/locks` and then lists that folder. If it
finds the lease file of another export, it removes its own and is refused. When two
exports start at the same time, at most one continues: the one that lists last sees both
files, because a listing includes every file that was written before it (Amazon S3,
Google Cloud Storage, HDFS, MinIO).

The owner rewrites its lease file every few seconds. When a lease file has not been
rewritten for a minute, the next export considers its owner dead and removes it; it also
removes the lease file of a process that ran on this machine and has ended. Ages are
differences between modification times of the storage. Before each write to the export,
driver and workers check that their lease file still exists. So an export whose lease
was removed writes nothing more.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqcli.dataclass import dataclass
from rmqcli.errors import RefusedError, RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How often an owner rewrites its lease file, and the age at which it is abandoned.
BEAT_S: Final = 15.0
ABANDONED_S: Final = 60.0

_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """A file in the folder of leases. `modified_s` is by the clock of the storage."""

    path: str
    modified_s: float


class LeaseStorage(Protocol):
    """The calls of a storage that leases need."""

    def exists(self, path: str) -> bool: ...
    def remove(self, path: str) -> None: ...
    def read_text(self, path: str) -> str: ...
    def put_text(self, path: str, text: str) -> None: ...
    def list_leases(self, folder: str) -> Iterable[LeaseFile]: ...


class ExportLease:
    """The lease of this process on one export. Call `acquire` first, `release` last.

    Between the two calls a thread renews the lease.
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
        """Take the lease. Raises RefusedError while another export holds one."""
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
        """Give the lease up, so that another export may begin."""
        self._ends.set()
        self._thread.join(_JOIN_S)
        with contextlib.suppress(RmqError, OSError):
            # If the storage does not answer, the lease expires by its age.
            self._storage.remove(self.path)

    def _take_over(self, file: LeaseFile, *, age_s: float) -> None:
        """Remove an abandoned lease file. Raises RefusedError if it is in use."""
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
        """Return the owner that a lease file names; None if the file is gone."""
        try:
            value = json.loads(self._storage.read_text(file.path))
        except FileNotFoundError:
            return None
        except ValueError:
            value = {}
        return value if isinstance(value, dict) else {}

    def _beat(self) -> None:
        while not self._ends.wait(BEAT_S):
            # If the storage does not answer, the next write of the export reports it.
            # If the file is gone, another export has begun, and this one must not
            # renew its lease.
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
    """Whether the owner ran on this machine and has ended; False when unknown."""
    machine = _machine()
    process, started = owner.get("process"), owner.get("started")
    if not machine or owner.get("machine") != machine or type(process) is not int:
        return False
    if not 0 < process < 1 << 31:
        return False
    try:
        os.kill(process, 0)  # only looks whether it can be signalled
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's, which /proc may hide
        return _start_time(process) not in ("", started)
    return _start_time(process) != started


def _machine() -> str:
    """Identify this boot of the machine and the PID namespace of this process.

    Returns an empty string where the system does not provide them. Containers have PID
    namespaces of their own, so they count as different machines.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_time(process: int) -> str:
    """Return a process's start time in clock ticks; empty when it has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    # A zombie has ended and only waits for its parent.
    return "" if fields[0] in ("Z", "X") else fields[19]
