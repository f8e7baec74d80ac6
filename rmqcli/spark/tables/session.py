"""The Spark session that writes a table, on this machine or on a cluster.

A separate thread writes, so that the caller can show progress and an interrupt takes
effect at once: it ends the JVM, and rows that are not committed by then are not in the
table.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import tempfile
from concurrent import futures
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RmqError
from rmqcli.spark.background import in_background
from rmqcli.spark.encryption import check_encrypted, submitted_settings
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.export.executors import PACKAGES, TIMEOUT_MS, ResourceWatch
from rmqcli.spark.export.job import ContextJobs, JobProgress, check_executors
from rmqcli.spark.master import is_local
from rmqcli.spark.scratch import scratch_folder
from rmqcli.spark.session import (
    SessionOptions,
    cores,
    keep_log,
    pyspark_version,
    spark_context,
)
from rmqcli.spark.shown_errors import LoggedWarnings
from rmqcli.spark.source.pinned import partitions_of
from rmqcli.spark.sql.views import source_of
from rmqcli.spark.tables.delta import DeltaTable
from rmqcli.spark.tables.failure import table_error
from rmqcli.spark.tables.formats import (
    DELTA,
    Format,
    is_path,
    local_path,
    missing_error,
    settings_of,
)
from rmqcli.spark.tables.iceberg import IcebergTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark import SparkContext

    from rmqcli.spark.sql.views import TopicView
    from rmqcli.spark.tables.record import TableRecord
    from rmqcli.spark.tables.table import Commit, Table, TableState

T = TypeVar("T")

_POLL_S: Final = 0.25
#: Settings that become the number of cores on one machine. By default every read of the
#: table's log would run 50 tasks or more.
_FEW_TASKS: Final = (
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Where and how a table is written.

    The settings in `conf` take precedence over the ones that `open_table` makes.
    """

    topic: str
    target: str
    format: Format
    is_secret: bool
    note: Callable[[str], None]
    master: str | None = None
    conf: tuple[tuple[str, str], ...] = ()
    executor_timeout_ms: int = TIMEOUT_MS
    #: the Python packages that workers need
    packages: tuple[str, ...] = PACKAGES

    def given(self) -> dict[str, str]:
        """The user's settings, in `conf` or as spark-submit will use them."""
        return {**submitted_settings(os.environ), **dict(self.conf)}


@contextlib.contextmanager
def open_table(options: TableOptions) -> Iterator[SparkTable]:
    """Start Spark, with the settings of the format, for the duration of the block.

    Raises ConfigError when the session lacks the package of the format or has a package
    for another Spark, and the errors of `spark_context`. Call it from the main thread.
    """
    given = options.given()
    with scratch_folder() as folder:
        log_path = os.path.join(folder, "spark.log")
        chosen = settings_of(options.format, options.target, given, folder=folder)
        if is_local(options.master):
            tasks = str(cores())
            chosen |= {name: tasks for name in _FEW_TASKS if name not in given}
        session = SessionOptions(
            name=f"rmq export {options.topic}",
            log_path=log_path,
            workers_max=cores(),
            master=options.master,
            conf=(*chosen.items(), *options.conf),
        )
        with spark_context(session) as context:
            if not is_local(options.master):
                _check_cluster(context, options)
            errors = functools.partial(_errors, options, given, log_path)
            try:
                with errors():
                    spark = SparkSession(context)
                    if not _has_class(context, options.format.marker):
                        raise missing_error(options.format, pyspark=pyspark_version())
                    table = DeltaTable if options.format is DELTA else IcebergTable
                    opened: Table = table(spark, options.target)
                yield SparkTable(spark, opened, errors, LoggedWarnings(log_path))
            finally:
                # PySpark would return the ended session to the next caller that asks
                # for a session in this process.
                SparkSession._instantiatedSession = None  # noqa: SLF001


def _check_cluster(context: SparkContext, options: TableOptions) -> None:
    """Raise RmqError when no executor is granted, or when it cannot write the table.

    Also raises RefusedError when Spark would send credentials unencrypted.
    """
    if options.is_secret:
        check_encrypted(lambda name: context.getConf().get(name))
    local = _local_folder(context, options)
    with (
        nullcontext(tempfile.gettempdir()) if local is None else folder_near(local)
    ) as folder:
        check_executors(
            ContextJobs(context),
            folder,
            Disk(),
            resources=ResourceWatch(
                options.master or "",
                timeout_ms=options.executor_timeout_ms,
                note=options.note,
            ),
            packages=options.packages,
            shown=local,
        )


def _local_folder(context: SparkContext, options: TableOptions) -> str | None:
    """The folder of the table on this machine; None where the format knows its place.

    Executors that do not see the folder would write the rows to their own disks, and
    the commit would list files that are not there.
    """
    if options.format is not DELTA or not is_path(options.target):
        return None
    jvm: Any = context._jsc  # noqa: SLF001  # PySpark has no other way to ask
    default_fs = str(jvm.hadoopConfiguration().get("fs.defaultFS") or "file:///")
    return local_path(options.target, default_fs=default_fs)


@contextlib.contextmanager
def folder_near(path: str) -> Iterator[str]:
    """Make a new folder in `path`, or in its nearest parent, for the time of the block.

    Its name is new, so that no other machine has a folder of this name on its own disk.
    Any user may write into it, because executors may run as another user. Raises
    ConfigError when it cannot be made.
    """
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    folder = os.path.join(path, f".rmq-{secrets.token_hex(8)}")
    try:
        try:
            os.mkdir(folder)
            os.chmod(folder, 0o777)  # noqa: S103  # it is empty, and removed at once
        except OSError as error:
            raise ConfigError(
                f"cannot write to {path}: {error.strerror or error}",
                hint="give a folder that this machine and the executors can write to",
            ) from error
        yield folder
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _has_class(context: SparkContext, name: str) -> bool:
    jvm: Any = context._jvm  # noqa: SLF001  # PySpark has no other way to ask
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        jvm.java.lang.Class.forName(name, False, loader)
    except Py4JError as error:
        if "ClassNotFoundException" in str(error):
            return False
        raise
    return True


@contextlib.contextmanager
def _errors(
    options: TableOptions, given: dict[str, str], log_path: str
) -> Iterator[None]:
    """Convert exceptions of Spark that the block raises to errors of rmqcli."""
    try:
        yield
    except RmqError:  # errors of brokers are OSErrors, too
        raise
    except (PySparkException, Py4JError, OSError, EOFError) as error:
        raise table_error(
            error,
            options.format,
            table=options.target,
            pyspark=pyspark_version(),
            given=given,
            keep_log=lambda: keep_log(log_path),
        ) from error


@dataclass(frozen=True, slots=True)
class SparkTable:
    """A table in a Spark session. Use it from the main thread."""

    spark: SparkSession
    table: Table
    errors: Callable[[], contextlib.AbstractContextManager[None]]
    logged: LoggedWarnings

    @property
    def name(self) -> str:
        """The name of the table in errors."""
        return self.table.name

    def state(self) -> TableState:
        """The current state of the table."""
        with self.errors():
            return self.table.state()

    def is_empty(self) -> bool:
        """Whether the table has no rows."""
        with self.errors():
            return self.table.is_empty()

    def committed(self, run_id: str, before: TableState) -> Commit:
        """The commit of a run."""
        with self.errors():
            return self.table.committed(run_id, before)

    def warnings(self) -> list[str]:
        """The warnings of workers on this machine about messages that they skipped.

        Each is returned once.
        """
        return self.logged.new()

    def write(
        self,
        view: TopicView,
        record: TableRecord,
        *,
        watch: Callable[[JobProgress], None],
    ) -> None:
        """Write the rows of a range in one commit."""
        with self.errors():
            self.spark.dataSource.register(source_of({record.topic: view}))
            reader = self.spark.read.format("rocketmq")
            frame = reader.option("subscribe", record.topic).load()
            writing = in_background(
                lambda: self.table.write(frame, record), name="rmq-export-table"
            )
            parts = _parts(view)
            while not futures.wait([writing], _POLL_S).done:
                if parts:
                    watch(self._progress(parts))
            writing.result()
            if parts:
                watch(_progress(parts, len(parts)))

    def _progress(self, parts: list[int]) -> JobProgress:
        tracker = self.spark.sparkContext.statusTracker()
        done = 0
        for stage_id in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(stage_id)
            # A write also runs jobs that read or write the log of the table.
            if stage is not None and stage.numTasks == len(parts):
                done = max(done, stage.numCompletedTasks)
        return _progress(parts, min(done, max(0, len(parts) - 1)))


def _parts(view: TopicView) -> list[int]:
    """The number of offsets that each task reads."""
    plans = sorted(view.plans.items())
    ranges = [plan.offset_range(queue.topic) for queue, plan in plans]
    return [len(each) for each in partitions_of(ranges, view.options)]


def _progress(parts: list[int], done: int) -> JobProgress:
    """The progress, estimated as if the first `done` tasks had ended.

    Spark reports only how many tasks have ended, not which.
    """
    return JobProgress(
        offsets_done=sum(parts[:done]),
        offsets=sum(parts),
        tasks_done=done,
        tasks=len(parts),
    )
