"""Check before a run begins that the executors of a cluster can write parts.

The driver submits one task that writes nothing. The task runs when the cluster grants
an executor, which shows whether the cluster has free resources. On the executor it
checks for all the Python packages that writing parts needs, and for the folder, which
every machine must see under the same path. For a remote storage it checks that the
executor can read it with its own credentials.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.decode.settings import missing_packages
from rmqcli.errors import ConfigError, DeadlineError, RmqError
from rmqcli.hint import Blank, Hint, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.clock import Clock
    from rmqcli.decode.settings import Decoding
    from rmqcli.spark.export.storage import Storage

#: Third-party packages that a part needs; rmqcli itself is sent to the executors.
PACKAGES: Final = (
    *(() if sys.version_info >= (3, 14) else ("backports.zstd",)),
    *("lz4", "numpy", "pyarrow"),
)
TIMEOUT_MS: Final = 120_000
NOTICE_MS: Final = 10_000

SHIP_HINT: Final = Hint(
    "install them for the executors' Python, or pack an environment (venv-pack), give ",
    Setting("archives", "ENV.tar.gz#env"),
    " and set PYSPARK_PYTHON=env/bin/python",
)


def packages_of(decoding: Decoding | None) -> tuple[str, ...]:
    """Return the third-party packages that a part with this decoding needs."""
    return (*PACKAGES, *(() if decoding is None else decoding.packages))


@dataclass(frozen=True, slots=True)
class ExecutorReport:
    """What the task found on its executor. `python` is a version such as `3.11`."""

    host: str
    python: str
    executable: str
    missing: tuple[str, ...]
    sees_folder: bool
    #: why the executor cannot use the remote storage; None if it can, or if there is no
    #: remote storage
    storage_error: str | None = None


def look(
    _item: int,
    *,
    folder: str,
    disk: Storage | None = None,
    packages: tuple[str, ...] = PACKAGES,
) -> ExecutorReport:
    """Report what this executor has. Runs on an executor."""
    missing = missing_packages(packages)
    is_remote = disk is not None and disk.is_remote
    storage_error = None
    if disk is not None and is_remote and not missing:
        try:
            disk.check_access()
        except RmqError as error:
            storage_error = error.message
    return ExecutorReport(
        host=platform.node(),
        python=".".join(platform.python_version_tuple()[:2]),
        executable=sys.executable,
        missing=missing,
        sees_folder=is_remote
        or (os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)),
        storage_error=storage_error,
    )


def check_report(report: ExecutorReport, *, folder: str) -> None:
    """Raise ConfigError when the executor cannot write parts."""
    if report.missing:
        raise ConfigError(
            f"Python {report.python} ({report.executable}) of the executor on"
            f" {report.host} lacks {', '.join(report.missing)}",
            hint=SHIP_HINT,
        )
    if report.storage_error is not None:
        raise ConfigError(
            f"the executor on {report.host} cannot use the storage:"
            f" {report.storage_error}",
            hint="give the executors their own credentials: this process sends none",
        )
    if not report.sees_folder:
        raise ConfigError(
            f"the executor on {report.host} cannot write to {folder}",
            hint="export to a folder that every machine sees under the same path",
        )


@dataclass(slots=True)
class ResourceWatch:
    """Reports that a cluster runs no task, and gives up after a timeout.

    Call `update` regularly with the number of running tasks. Not thread-safe.
    """

    master: str
    timeout_ms: int
    note: Callable[[str], None]
    clock: Clock = SYSTEM_CLOCK
    _idle_since_ms: int | None = field(default=None, init=False)
    _is_noted: bool = field(default=False, init=False)

    def update(self, running: int) -> None:
        """Raise DeadlineError when no task has run for `timeout_ms`."""
        now_ms = self.clock.monotonic_ms()
        if running or self._idle_since_ms is None:
            self._idle_since_ms = now_ms
            self._is_noted = False
            return
        idle_ms = now_ms - self._idle_since_ms
        if idle_ms >= self.timeout_ms:
            less: tuple[str | Setting, ...] = ()
            # With Spark Connect the server decides what its executors get, so a request
            # for less memory would have no effect.
            if not self.master.startswith("sc:"):
                memory = Setting("conf", "spark.executor.memory=512m")
                less = "ask for less with ", memory, ", or "
            raise DeadlineError(
                f"the Spark cluster {self.master} has run no task for"
                f" {self.timeout_ms // 1000} s: it grants no executor",
                address=self.master,
                hint=Hint(
                    *less,
                    "wait longer with ",
                    Setting("executor_timeout_ms", Blank("MS")),
                ),
            )
        if idle_ms >= NOTICE_MS and not self._is_noted:
            self._is_noted = True
            self.note(
                f"waiting for the Spark cluster {self.master} to grant executors;"
                f" giving up after {self.timeout_ms // 1000} s"
            )
