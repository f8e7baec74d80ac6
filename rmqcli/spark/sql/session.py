"""Run queries in a local Spark session whose views are topics.

Each view reads the pinned range of a topic. A separate thread fetches the rows, so that
the caller can show the progress of the query while it waits, and an interrupt takes
effect at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from py4j.protocol import Py4JError
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
    StructField,
    StructType,
    TimestampType,
)

from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, UsageError
from rmqcli.spark.scratch import scratch_folder
from rmqcli.spark.session import SessionOptions, cores, keep_log, spark_context
from rmqcli.spark.shown_errors import LoggedWarnings
from rmqcli.spark.sql.batches import read_batches
from rmqcli.spark.sql.failure import is_of_spark, statement_error
from rmqcli.spark.sql.scans import narrow_scans
from rmqcli.spark.sql.statement import (
    Statement,
    check_analysed,
    close_session,
    read_statement,
)
from rmqcli.spark.sql.views import TopicView, source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_T = TypeVar("_T")

#: Up to this limit rows should be fetched with `rows`.
TAKE_MAX: Final = 10_000
#: Batches that may wait for the caller.
_BATCHES_MAX: Final = 2
_POLL_S: Final = 0.25
#: Types whose values `rmqcli.spark.sql.values` converts. Values of other types are cast
#: to strings by Spark.
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
    """A column of a query's result."""

    name: str
    is_number: bool = False
    is_binary: bool = False

    @property
    def base64_name(self) -> str | None:
        """The name of the column for a binary column's values that are not UTF-8."""
        return f"{self.name}_b64" if self.is_binary else None


@contextlib.contextmanager
def sql_session(conf: tuple[tuple[str, str], ...] = ()) -> Iterator[SqlSession]:
    """Start Spark on this machine; its JVM ends with the block.

    `conf` are Spark settings, which take precedence over the ones made here. Raises
    ConfigError when no suitable Java is found, and RmqError when Spark does not start.
    Call it from the main thread.
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
                close_session(spark)
                yield SqlSession(spark, log_path)
            finally:
                # PySpark would return the ended session to the next caller that asks
                # for a session in this process.
                SparkSession._instantiatedSession = None  # noqa: SLF001


def _settings(folder: str) -> tuple[tuple[str, str], ...]:
    return (
        ("spark.sql.catalogImplementation", "in-memory"),
        ("spark.sql.warehouse.dir", os.path.join(folder, "warehouse")),
        # Commands show times in UTC, so times in a statement are in UTC, too.
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.shuffle.partitions", str(cores())),
        # Else '${x}' in a statement, as bodies of templates have it, would be replaced:
        # by nothing, or by a variable of the environment.
        ("spark.sql.variable.substitute", "false"),
    )


class SqlSession:
    """Runs statements, one query at a time. Not safe for use by several threads."""

    def __init__(self, spark: SparkSession, log_path: str) -> None:
        self._spark = spark
        self._log_path = log_path
        self._warnings = LoggedWarnings(log_path)

    def read(self, text: str) -> Statement:
        """Parse a statement. Raises UsageError when it is invalid or not a query."""
        try:
            return read_statement(self._spark, text)
        except Exception as error:
            raise self.explained(error, text) from error

    def query(
        self, statement: Statement, views: Mapping[str, TopicView]
    ) -> QueryResult:
        """Analyse a statement. `views` maps each of its topics to a view.

        Raises UsageError for unknown names and for types that do not match. A command
        such as EXPLAIN has already run when this returns.
        """
        try:
            self._spark.dataSource.register(source_of(dict(views)))
            for topic in views:
                frame = self._spark.read.format("rocketmq").option("subscribe", topic)
                frame.load().createOrReplaceTempView(f"`{topic}`")
            if statement.query is not None:
                check_analysed(self._spark, self._analysed(statement.query))
            return QueryResult(self, self._spark.sql(statement.text), statement)
        except Exception as error:
            raise self.explained(error, statement.text) from error

    def _analysed(self, query: Any) -> Any:  # noqa: ANN401  # objects of the JVM
        """Spark's analysis of a parsed query, of which nothing runs."""
        execution = self._spark._jvm.org.apache.spark.sql.execution  # noqa: SLF001
        state = self._spark._jsparkSession.sessionState()  # noqa: SLF001
        return state.executePlan(
            query, execution.CommandExecutionMode.SKIP()
        ).analyzed()

    def explained(self, error: Exception, text: str) -> Exception:
        """The RmqError for an exception of Spark; any other exception unchanged."""
        if not is_of_spark(error):
            return error
        return statement_error(error, text, keep_log=lambda: keep_log(self._log_path))

    def warnings(self) -> list[str]:
        """The warnings of Spark's workers that were not returned before."""
        return self._warnings.new()

    def tasks(self) -> tuple[int, int]:
        """How many tasks of the running stages have ended, and how many there are."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            ids = tracker.getActiveStageIds()
            stages = [tracker.getStageInfo(each) for each in ids]
        except (Py4JError, OSError):
            return 0, 0  # the thread that reads the rows will get the error
        known = [stage for stage in stages if stage is not None]
        return (
            sum(stage.numCompletedTasks for stage in known),
            sum(stage.numTasks for stage in known),
        )


class QueryResult:
    """The rows of an analysed query, which runs when they are read.

    A command such as EXPLAIN has already run.
    """

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
        # Columns are addressed by position, because their names may be duplicates or
        # contain any character.
        numbered = frame.toDF(*(f"c{index}" for index in range(len(fields))))
        self._frame = numbered.select(
            *(
                col(f"c{index}")
                if _shipped(field.dataType) == field.dataType
                else col(f"c{index}").cast(_shipped(field.dataType))
                for index, field in enumerate(fields)
            )
        )

    def rows(self, limit: int, *, on_wait: Callable[[], None]) -> list[tuple[Any, ...]]:
        """Run the query and return its first rows.

        Spark reads only as many partitions as it needs for them. `on_wait` is called
        four times a second while the query runs. Raises the errors of
        `rmqcli.spark.sql.failure`, and UsageError for a date or a time beyond the years
        1 to 9999, of which Spark has more than Python.
        """
        frame = self._frame.limit(limit)
        found = self._fetched(lambda: iter((narrow_scans(frame).collect(),)), on_wait)
        try:
            return [row for rows in found for row in rows]
        except RmqError:
            raise
        except (ValueError, OverflowError) as error:
            raise UsageError(
                f"a date or a time of the result cannot be shown: {error}",
                hint="only the years 1 to 9999 are; cast(... as string) shows others",
            ) from error

    def batches(
        self, limit: int | None, *, on_wait: Callable[[], None]
    ) -> Iterator[pa.RecordBatch]:
        """Run the query and yield its rows in order, at most `limit` rows in total.

        `on_wait` is called four times a second while no rows are available. Raises the
        errors of `rmqcli.spark.sql.failure`.
        """
        left = limit
        for batch in self._fetched(
            lambda: read_batches(narrow_scans(self._frame)), on_wait
        ):
            if left is None:
                yield batch
                continue
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    def _fetched(
        self, read: Callable[[], Iterator[_T]], on_wait: Callable[[], None]
    ) -> Iterator[_T]:
        """What `read` yields in another thread.

        Spark may already compute constants, and fail, when it optimizes a plan.
        """
        fetch = _Fetch(read)
        fetch.start()
        try:
            while True:
                try:
                    found = fetch.found.get(timeout=_POLL_S)
                except queue.Empty:
                    on_wait()
                    continue
                if found is None:
                    return
                if isinstance(found, BaseException):
                    if not isinstance(found, Exception):
                        raise found
                    text = self._statement.text
                    raise self._session.explained(found, text) from found
                yield found
        finally:
            fetch.end()


class _Fetch(threading.Thread, Generic[_T]):
    """Reads what the query gives from Spark."""

    def __init__(self, read: Callable[[], Iterator[_T]]) -> None:
        super().__init__(name="rmq-sql", daemon=True)
        #: what was read, then None, or the exception that ended the query
        self.found: queue.Queue[_T | BaseException | None] = queue.Queue(_BATCHES_MAX)
        self._read = read
        self._is_ended = threading.Event()

    def run(self) -> None:
        last: BaseException | None = None
        try:
            for each in self._read():
                if not self._put(each):
                    return
        except BaseException as error:  # noqa: BLE001  # raised again by the caller's thread
            last = error
        self._put(last)

    def end(self) -> None:
        """Stop after the current batch. A call to the JVM ends when the JVM ends."""
        self._is_ended.set()

    def _put(self, item: _T | BaseException | None) -> bool:
        """Hand something to the caller; return False when the caller called `end`."""
        while not self._is_ended.is_set():
            try:
                self.found.put(item, timeout=_POLL_S)
            except queue.Full:
                continue
            return True
        return False


def unique_columns(columns: Iterable[ResultColumn]) -> tuple[ResultColumn, ...]:
    """The columns with unique names: a repeated name gets a suffix, from `_2` on."""
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


def _shipped(kind: DataType) -> DataType:
    """The type to which Spark casts values of a type."""
    known = _known(kind)
    return StringType() if known is None else known


def _known(kind: DataType) -> DataType | None:
    """The type without maps whose keys are null, which Arrow does not have.

    Such a map has no entries. None for a type that is not known, or consists of one.
    """
    match kind:
        case ArrayType():
            inner = _known(kind.elementType)
            return None if inner is None else ArrayType(inner, kind.containsNull)
        case MapType():
            key = StringType() if isinstance(kind.keyType, NullType) else kind.keyType
            known = _known(key), _known(kind.valueType)
            if None in known:
                return None
            return MapType(*known, kind.valueContainsNull)
        case StructType():
            fields = [(each, _known(each.dataType)) for each in kind]
            if any(known is None for _, known in fields):
                return None
            return StructType(
                [StructField(each.name, known, each.nullable) for each, known in fields]
            )
    return kind if isinstance(kind, _KNOWN) else None
