"""Run the jobs of an export with Spark Connect, which has no RDDs.

A job is a DataFrame with one row per item, each in a partition of its own; `mapInArrow`
calls the function with each item. The results come back as JSON, so that this process
unpickles nothing that a server sent.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from rmqcli import errors
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConnectError, RmqError
from rmqcli.spark.connect import setting
from rmqcli.spark.export.executors import ExecutorReport
from rmqcli.spark.export.job import TASK_TRIES_DEFAULT, translated
from rmqcli.spark.export.manifest import PartResult, part_from_json, part_to_json
from rmqcli.spark.export.part import PartFailure
from rmqcli.spark.failure import text_of
from rmqcli.spark.master import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql.connect.session import SparkSession

    from rmqcli.spark.export.job import Job

T = TypeVar("T")
R = TypeVar("R")

_COLUMN: Final = "result"
#: More ids than any cluster has cores, so that no partition of them is empty.
_IDS: Final = 1 << 16
#: The texts of gRPC errors after the server has stopped answering.
_GONE: Final = ("StatusCode.UNAVAILABLE", "failed to connect to all addresses")


@dataclass(frozen=True, slots=True)
class ConnectJobs:
    """Jobs of a session with a Spark Connect server."""

    session: SparkSession

    def new(self, items: list[T], function: Callable[[T], R]) -> Job[R]:
        """Create a job from a DataFrame with a partition for each item."""
        return _ConnectJob(self.session, items, function)

    def parallelism(self) -> int:
        """Return the number of partitions that the server creates by default."""
        frame = self.session.range(_IDS).mapInArrow(_first_ids, "id bigint")
        try:
            return max(1, len(frame.collect()))
        except Exception as error:
            raise _translated(error) from error

    def tries(self) -> int:
        """Return the server's `spark.task.maxFailures`; 1 when it has no cluster."""
        if is_local(setting(self.session, "spark.master") or ""):
            return 1
        return int(
            setting(self.session, "spark.task.maxFailures") or TASK_TRIES_DEFAULT
        )

    def is_here(self) -> bool:
        """Return False: a server with a local master may be on another machine."""
        return False


@dataclass(slots=True)
class _ConnectJob(Generic[T, R]):
    """A job as a DataFrame, whose progress the server reports every few seconds."""

    session: SparkSession
    items: list[T]
    function: Callable[[T], R]
    tag: str = field(default_factory=lambda: f"rmq-export-{secrets.token_hex(8)}")
    #: what the server reported most recently
    counts: dict[str, int] = field(default_factory=dict)

    def run(self) -> list[R]:
        """Run the job to its end; return the function's results."""
        items, function = self.items, self.function

        def run_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import pyarrow as pa

            for batch in batches:
                for number in batch.column(0).to_pylist():
                    text = to_json(function(items[number]))
                    yield pa.RecordBatch.from_pydict({_COLUMN: [text]})

        count = len(items)
        self.session.registerProgressHandler(self._note)
        try:
            self.session.addTag(self.tag)  # of this thread
            frame = self.session.range(0, count, 1, count)
            rows = frame.mapInArrow(run_tasks, f"{_COLUMN} string").collect()
            return [cast("R", from_json(row[0])) for row in rows]
        except Exception as error:
            raise _translated(error) from error
        finally:
            self.session.removeProgressHandler(self._note)

    def cancel(self) -> None:
        """Tell the server to stop the job. Workers notice within a few seconds."""
        from pyspark.errors import PySparkException

        try:
            self.session.interruptTag(self.tag)
        except PySparkException:
            return  # the server is gone, or will drop the job with the session

    def count_tasks(self, which: str) -> int:
        """Return the number that the server reported most recently."""
        return self.counts.get(which, 0)

    def _note(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """Record the progress. PySpark calls this with its own arguments."""
        del operation_id, done
        self.counts = {
            "numActiveTasks": inflight_tasks,
            "numCompletedTasks": sum(each.num_completed_tasks for each in stages or ()),
        }


def _first_ids(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the first row of a partition."""
    for number, batch in enumerate(batches):
        if number == 0:
            yield batch.slice(0, 1)


def to_json(result: object) -> str:
    """Encode the result of a task: outcomes of parts, or the report of an executor.

    Raises TypeError for anything else.
    """
    return json.dumps(_plain(result))


def from_json(text: str) -> object:
    """Decode the result of `to_json`. Raises RmqError for any other text."""
    try:
        return _value(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise RmqError(
            f"the Spark Connect server returned an invalid task result: {error!r}"
        ) from error


def _plain(result: object) -> object:
    if isinstance(result, list):
        return [_plain(each) for each in result]
    if isinstance(result, PartResult):
        return {"part": part_to_json(result)}
    if isinstance(result, ExecutorReport):
        return {"report": asdict(result)}
    if isinstance(result, PartFailure):
        error = result.error
        known = {k: v for k, v in vars(error).items() if isinstance(v, str)}
        return {
            "failure": result.index,
            "elsewhere": result.may_work_elsewhere,
            "error": _public_class(error).__name__,
            "values": known,
        }
    raise TypeError(f"no result of a task: {type(result).__name__}")


def _value(plain: Any) -> object:  # noqa: ANN401  # JSON
    if isinstance(plain, list):
        return [_value(each) for each in plain]
    if "part" in plain:
        return part_from_json(plain["part"])
    if "report" in plain:
        report = plain["report"]
        return ExecutorReport(**{**report, "missing": tuple(report["missing"])})
    return PartFailure(int(plain["failure"]), _error(plain), bool(plain["elsewhere"]))


def _public_class(error: RmqError) -> type[RmqError]:
    """Return the error's class, or its nearest base class in `rmqcli.errors`."""
    for kind in type(error).__mro__:
        if issubclass(kind, RmqError) and kind.__module__ == errors.__name__:
            return kind
    return RmqError


def _error(plain: dict[str, Any]) -> RmqError:
    """Recreate the error of a part with its class and its texts."""
    kind = getattr(errors, plain["error"], RmqError)
    if not (isinstance(kind, type) and issubclass(kind, RmqError)):
        kind = RmqError
    values = {str(name): str(value) for name, value in plain["values"].items()}
    error = kind.__new__(kind)
    error.args = (values["message"],)
    error.__dict__.update({"hint": "", **values})
    return error


def _translated(error: BaseException) -> BaseException:
    text = text_of(error)
    if any(words in text for words in _GONE):
        return ConnectError(
            "the Spark Connect server stopped answering during the export",
            address="",
            hint="start the server again",
        )
    return translated(error)
