"""A local Spark session whose views are topics, and the rows of a query.

Spark parses, plans and runs a query here; its views are pinned ranges. The rows come
through a thread of their own, so that the caller can look how far the query is while it
waits, and an interrupt ends at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import col
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from rmqcli.spark.scratch import scratch_folder
from rmqcli.spark.session import SessionOptions, cores, keep_log, spark_context
from rmqcli.spark.shown_errors import shown_warnings
from rmqcli.spark.sql.failure import is_of_spark, statement_error
from rmqcli.spark.sql.statement import Statement, read_statement
from rmqcli.spark.sql.views import TopicView, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

#: Up to so many rows Spark may look for in a few of its partitions first.
_TAKE_MAX: Final = 10_000
_BATCH_ROWS: Final = 1_000
#: Batches that wait for the caller.
_BATCHES_MAX: Final = 2
_POLL_S: Final = 0.25
_LOG_BYTES_MAX: Final = 16 << 20
#: Types whose values `rmqcli.spark.sql.values` knows; others become text in Spark.
_KNOWN: Final = (
    BinaryType,
    BooleanType,
    DateType,
    NullType,
    NumericType,
    StringType,
    TimestampType,
)


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A column of a query."""

    name: str
    is_number: bool = False
    is_binary: bool = False

    @property
    def base64_name(self) -> str | None:
        """The name of a binary column's values where they are not text."""
        return f"{self.name}_b64" if self.is_binary else None


@contextlib.contextmanager
def sql_session(conf: tuple[tuple[str, str], ...] = ()) -> Iterator[SqlSession]:
    """Start Spark on this machine; its JVM ends with the block.

    `conf` are settings of Spark, which go before those made here. Raises ConfigError
    without a Java, RmqError when Spark does not start. Call it from the main thread.
    """
    with scratch_folder() as folder:
        log_path = os.path.join(folder, "spark.log")
        options = SessionOptions(
            name="rmq sql",
            log_path=log_path,
            workers_max=cores(),
            conf=(*_settings(folder), *conf),
        )
        with spark_context(options) as context:
            spark = SparkSession(context)
            try:
                yield SqlSession(spark, log_path)
            finally:
                # It would be given to the next program that asks for a session.
                SparkSession._instantiatedSession = None  # noqa: SLF001


def _settings(folder: str) -> tuple[tuple[str, str], ...]:
    return (
        ("spark.sql.catalogImplementation", "in-memory"),
        ("spark.sql.warehouse.dir", os.path.join(folder, "warehouse")),
        ("spark.sql.python.filterPushdown.enabled", "true"),
        # Commands show times in UTC, so times in a statement are in UTC, too.
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.shuffle.partitions", str(cores())),
    )


class SqlSession:
    """Runs statements. For one thread, and one query at a time."""

    def __init__(self, spark: SparkSession, log_path: str) -> None:
        self._spark = spark
        self._log_path = log_path

    def read(self, text: str) -> Statement:
        """Parse a statement. Raises UsageError for one that is wrong or no query."""
        try:
            return read_statement(self._spark, text)
        except Exception as error:
            raise self.explained(error, text) from error

    def query(self, statement: Statement, views: Mapping[str, TopicView]) -> Result:
        """Analyse a statement over `views`, its topics by name.

        Raises UsageError for names and types that do not fit. A command such as EXPLAIN
        has run when this returns.
        """
        try:
            self._spark.dataSource.register(source_of(dict(views)))
            for topic in views:
                frame = self._spark.read.format("rocketmq").option("subscribe", topic)
                frame.load().createOrReplaceTempView(f"`{topic}`")
            return Result(self, self._spark.sql(statement.text), statement)
        except Exception as error:
            raise self.explained(error, statement.text) from error

    def explained(self, error: Exception, text: str) -> Exception:
        """An exception of Spark as an error of ours; others as they are."""
        if not is_of_spark(error):
            return error
        return statement_error(error, text, keep_log=lambda: keep_log(self._log_path))

    def warnings(self) -> list[str]:
        """What Spark's workers have reported since the session began."""
        with open(self._log_path, encoding="utf-8", errors="replace") as file:
            return shown_warnings(file.read(_LOG_BYTES_MAX))

    def tasks(self) -> tuple[int, int]:
        """Tasks of the running stages: how many have ended, and how many there are."""
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        return (
            sum(stage.numCompletedTasks for stage in known),
            sum(stage.numTasks for stage in known),
        )


class Result:
    """The rows of a query that was analysed, and not yet run unless it is a command."""

    def __init__(
        self, session: SqlSession, frame: DataFrame, statement: Statement
    ) -> None:
        self._session = session
        self._statement = statement
        fields = frame.schema.fields
        self.columns = unique_columns(
            ResultColumn(
                field.name,
                is_number=isinstance(field.dataType, NumericType),
                is_binary=isinstance(field.dataType, BinaryType),
            )
            for field in fields
        )
        # By place: names of columns may be the same, or have any characters.
        numbered = frame.toDF(*(f"c{index}" for index in range(len(fields))))
        self._frame = numbered.select(
            *(
                col(f"c{index}")
                if _is_known(field.dataType)
                else col(f"c{index}").cast("string")
                for index, field in enumerate(fields)
            )
        )

    def batches(
        self, *, limit: int | None, on_wait: Callable[[], None]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Run the query; yield its rows, at most `limit`, some at a time.

        `on_wait` is called four times a second while there are none. Raises the errors
        of `rmqcli.spark.sql.failure`.
        """
        rows = _Rows(self._frame, limit)
        rows.start()
        try:
            while True:
                try:
                    batch = rows.batches.get(timeout=_POLL_S)
                except queue.Empty:
                    on_wait()
                    continue
                if batch is None:
                    return
                if isinstance(batch, BaseException):
                    if not isinstance(batch, Exception):
                        raise batch
                    text = self._statement.text
                    raise self._session.explained(batch, text) from batch
                yield batch
        finally:
            rows.end()


class _Rows(threading.Thread):
    """Reads the rows of a query from Spark."""

    def __init__(self, frame: DataFrame, limit: int | None) -> None:
        super().__init__(name="rmq-sql", daemon=True)
        #: rows, then None or what ended the query early
        self.batches: queue.Queue[list[tuple[Any, ...]] | BaseException | None] = (
            queue.Queue(_BATCHES_MAX)
        )
        self._frame = frame
        self._limit = limit
        self._is_ended = threading.Event()

    def run(self) -> None:
        last: BaseException | None = None
        try:
            for batch in self._read():
                if not self._put(batch):
                    return
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            last = error
        self._put(last)

    def end(self) -> None:
        """Read no further. A call of the JVM ends with the JVM."""
        self._is_ended.set()

    def _read(self) -> Iterator[list[tuple[Any, ...]]]:
        if self._limit is not None and self._limit <= _TAKE_MAX:
            yield self._frame.take(self._limit)
            return
        every = self._frame.toLocalIterator(prefetchPartitions=True)
        rows = itertools.islice(every, self._limit)
        while batch := list(itertools.islice(rows, _BATCH_ROWS)):
            yield batch

    def _put(self, batch: list[tuple[Any, ...]] | BaseException | None) -> bool:
        """Hand it over; return False when nobody waits for it any more."""
        while not self._is_ended.is_set():
            try:
                self.batches.put(batch, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False


def unique_columns(columns: Iterable[ResultColumn]) -> tuple[ResultColumn, ...]:
    """The columns, with `_2` and so on after a name that was there before."""
    taken: set[str | None] = set()
    found = []
    for column in columns:
        unique = column
        for number in itertools.count(2):
            if not taken & ({unique.name, unique.base64_name} - {None}):
                break
            unique = replace(column, name=f"{column.name}_{number}")
        taken |= {unique.name, unique.base64_name}
        found.append(unique)
    return tuple(found)


def _is_known(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _is_known(kind.elementType)
        case MapType():
            return _is_known(kind.keyType) and _is_known(kind.valueType)
        case StructType():
            return all(_is_known(field.dataType) for field in kind.fields)
    return isinstance(kind, _KNOWN)
