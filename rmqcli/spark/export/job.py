"""The Spark job of an export: start its tasks, watch them, cancel them.

A task writes a list of parts and returns the outcome of each part. A failed part is
such an outcome, and this module retries it; only the death of a worker, or a bug, fails
the job itself. On a cluster, a task whose part may succeed on another machine raises an
error, so that Spark counts the failure against the machine and tries another one. The
last try that Spark makes returns the outcomes instead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
from concurrent import futures
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, RmqError
from rmqcli.hint import Argument, Hint
from rmqcli.spark.background import in_background
from rmqcli.spark.export.executors import PACKAGES, SHIP_HINT, check_report, look
from rmqcli.spark.export.manifest import PartResult
from rmqcli.spark.export.part import TROUBLE_BYTES_MAX, PartFailure, write_task
from rmqcli.spark.export.plan import group_tasks
from rmqcli.spark.failure import says_that_java_ended, text_of
from rmqcli.spark.master import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark import SparkContext

    from rmqcli.spark.export.executors import ResourceWatch
    from rmqcli.spark.export.part import PartContext
    from rmqcli.spark.export.plan import PartSpec
    from rmqcli.spark.export.storage import Storage
    from rmqcli.spark.extent import QueueRange

#: How often a part is tried in total when it fails for a retriable reason.
ROUNDS_MAX: Final = 2
TASKS_PER_CORE: Final = 4
TASK_TRIES_DEFAULT: Final = 4  # spark.task.maxFailures

_POLL_S: Final = 0.25
_CANCEL_WAIT_S: Final = 5.0

#: The error of Spark's Python worker when its minor version differs from the driver's.
_PYTHONS: Final = r"different version: (\S+?) than that in driver:? (\d+\.\d+)"
#: Java's error when a program does not exist.
_NO_PROGRAM: Final = r'Cannot run program "([^"]*)"'
#: Spark's error when the program cannot run the worker, for example an older Python.
_NOT_STARTED: Final = r"Error from python worker:\n(.*?)(?:\n *PYTHONPATH was:|\Z)"

T = TypeVar("T")
R = TypeVar("R")

Outcome = PartResult | PartFailure


class TaskFailedError(RmqError):
    """Fails a task so that Spark tries it again, on another machine if there is one."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The progress of a job: offsets read and tasks ended, each with its total.

    `troubles` are the errors for which parts are delayed, as `BROKER: MESSAGE`.
    """

    offsets_done: int
    offsets: int
    tasks_done: int
    tasks: int
    troubles: frozenset[str] = frozenset()

    @property
    def is_end(self) -> bool:
        """Whether all offsets are read and all tasks have ended."""
        return (self.offsets_done, self.tasks_done) == (self.offsets, self.tasks)


class Reporter(Protocol):
    """Gets the progress of an export. Called from the main thread only."""

    def info(self, text: str) -> None: ...
    def planned(self, topic: str, queues: Sequence[QueueRange]) -> None:
        """The range is pinned. A run to files can be resumed from now on."""

    def progress(self, progress: JobProgress) -> None: ...


class Job(Protocol[R]):
    """A Spark job with one task per item."""

    def run(self) -> list[R]:
        """Run the job to its end; return the function's results. Called in a thread."""

    def cancel(self) -> None:
        """Tell Spark to stop the job, from another thread."""

    def count_tasks(self, which: str) -> int:
        """Return a count by its name in Spark: numActiveTasks or numCompletedTasks."""


class Jobs(Protocol):
    """Creates jobs, in a SparkContext (`ContextJobs`) or with Spark Connect."""

    def new(self, items: list[T], function: Callable[[T], R]) -> Job[R]:
        """Create a job that calls the function with each item, in a worker."""

    def parallelism(self) -> int:
        """Return about how many tasks Spark can run at once."""

    def tries(self) -> int:
        """Return how often Spark tries a task on a cluster; 1 on one machine."""

    def is_here(self) -> bool:
        """Whether it is certain that tasks run on the machine of this process."""


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Raise RmqErrors in place of the exceptions of Spark that the block raises.

    Calls to the JVM between two jobs also fail when the JVM has ended.
    """
    try:
        yield
    except Exception as error:
        named = translated(error)
        if named is error:
            raise
        raise named from error


@_named_errors()
def run_parts(
    jobs: Jobs,
    parts: Sequence[PartSpec],
    context: PartContext,
    *,
    watch: Callable[[JobProgress], None],
    resources: ResourceWatch | None = None,
) -> list[Outcome]:
    """Write all parts; return one outcome for each, sorted by index.

    Parts that failed for a retriable reason are tried once more after all others.
    Raises RmqError when the job itself fails, and the error of `resources` when the
    cluster runs none of its tasks. After KeyboardInterrupt or any other exception, the
    job is cancelled before the exception is raised.
    """
    outcomes: dict[int, Outcome] = {}
    left = list(parts)
    counters = _Counters(parts, context)
    tries = jobs.tries()
    go_path = os.path.join(context.files.temp, "go")
    with open(go_path, "wb"):
        pass  # the file only has to exist
    shares_temp = not context.files.disk.is_remote or jobs.is_here()
    context = replace(
        context, go_path=go_path if shares_temp else None, shares_temp=shares_temp
    )
    for _ in range(ROUNDS_MAX):
        tasks = group_tasks(left, tasks=TASKS_PER_CORE * jobs.parallelism())
        write = functools.partial(_write, context=context, tries=tries)
        job = jobs.new(tasks, write)

        def report(job: Job[list[Outcome]], total: int = len(tasks)) -> None:
            counters.update()
            ended = job.count_tasks("numCompletedTasks")
            troubles = frozenset(counters.troubles.values())
            watch(JobProgress(counters.done, counters.total, ended, total, troubles))

        found = _run(job, resources=resources, on_poll=report)
        for outcome in (outcome for of_task in found for outcome in of_task):
            outcomes[outcome.index] = outcome
            if isinstance(outcome, PartResult):
                counters.finish(outcome.index)
        # The last poll may have missed the end of the job: all of its tasks are done.
        watch(JobProgress(counters.done, counters.total, len(tasks), len(tasks)))
        left = [part for part in left if _is_retriable(outcomes[part.index])]
        if not left:
            break
    return [outcomes[index] for index in sorted(outcomes)]


def _is_retriable(outcome: Outcome) -> bool:
    return isinstance(outcome, PartFailure) and outcome.error.retriable


def _write(parts: list[PartSpec], *, context: PartContext, tries: int) -> list[Outcome]:
    """Write the parts of a task. Runs on an executor.

    Raises TaskFailedError when a part may succeed on another machine, unless this is
    the last try, so that Spark tries the task again.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    attempt = task.attemptNumber() if task is not None else 0
    outcomes = write_task(parts, context, is_retry=attempt > 0)
    if attempt + 1 < tries:
        for outcome in outcomes:
            if isinstance(outcome, PartFailure) and outcome.may_work_elsewhere:
                raise TaskFailedError(
                    f"part {outcome.index}, attempt {attempt}: {outcome.error.message}"
                )
    return outcomes


@_named_errors()
def check_executors(
    jobs: Jobs,
    folder: str,
    disk: Storage,
    *,
    resources: ResourceWatch,
    packages: tuple[str, ...] = PACKAGES,
    shown: str | None = None,
) -> None:
    """Wait for an executor and check that it can write into a folder.

    `shown` is the folder's name in errors, if it is not `folder`. Raises DeadlineError
    when the cluster grants no executor in time, and ConfigError when its Python, the
    folder or the remote storage cannot be used.
    """
    job = jobs.new(
        [0], functools.partial(look, folder=folder, disk=disk, packages=packages)
    )
    for report in _run(job, resources=resources, on_poll=lambda _: None):
        check_report(report, folder=shown or folder)


def _run(
    job: Job[R],
    *,
    resources: ResourceWatch | None,
    on_poll: Callable[[Job[R]], None],
) -> list[R]:
    """Run a job to its end; return its results. Cancel it when anything is raised."""
    running = in_background(job.run, name="rmq-export-job")
    try:
        while not running.done():
            futures.wait([running], _POLL_S)
            on_poll(job)
            if resources is not None and not running.done():
                resources.update(job.count_tasks("numActiveTasks"))
    except BaseException:
        # Cancel from another thread, because an interrupted call leaves this thread's
        # connection to the JVM out of step.
        cancelling = in_background(job.cancel, name="rmq-export-cancel")
        futures.wait([cancelling], _CANCEL_WAIT_S)
        futures.wait([running], _CANCEL_WAIT_S)
        raise
    return running.result()


class _Counters:
    """Counts the offsets that workers have read, by reading their progress files.

    Only the files of parts that have started and not ended are read.
    """

    def __init__(self, parts: Sequence[PartSpec], context: PartContext) -> None:
        self.total = sum(len(part) for part in parts)
        self._context = context
        self._finished = 0
        self._left = {
            os.path.basename(context.progress_path(part.index)): part for part in parts
        }
        self._running: dict[str, int] = {}
        #: part index -> the error for which the part is delayed
        self.troubles: dict[int, str] = {}

    @property
    def done(self) -> int:
        """The number of offsets that workers had read at the last `update`."""
        return self._finished + sum(self._running.values())

    def update(self) -> None:
        """Read the progress files."""
        folder = self._context.files.temp
        try:
            found = set(os.listdir(folder))
        except OSError:
            return  # a network folder may be unreadable for a moment
        names = self._left.keys() & found
        if any(name.startswith("trouble-") for name in found):
            self._find_troubles()
        for name in names:
            part = self._left[name]
            self._running[name] = _number_in(os.path.join(folder, name))
            if self._running[name] >= len(part):
                self.finish(part.index)

    def _find_troubles(self) -> None:
        for part in self._left.values():
            with (
                contextlib.suppress(OSError),
                open(self._context.trouble_path(part.index), "rb") as file,
            ):
                text = file.read(TROUBLE_BYTES_MAX).decode("utf-8", "replace")
                if text:  # else it is being written
                    self.troubles[part.index] = text

    def finish(self, index: int) -> None:
        """Count a part as completely read."""
        name = os.path.basename(self._context.progress_path(index))
        self._running.pop(name, None)
        part = self._left.pop(name, None)
        if part is not None:
            self._finished += len(part)


def _number_in(path: str) -> int:
    try:
        with open(path, "rb") as file:
            return int(file.read(20) or 0)
    except (OSError, ValueError):
        return 0  # written on another machine and not visible yet


@dataclass(frozen=True, slots=True)
class ContextJobs:
    """Jobs of a SparkContext, on this machine or a cluster."""

    spark: SparkContext

    def new(self, items: list[T], function: Callable[[T], R]) -> Job[R]:
        """Create a job with RDDs, which start faster than DataFrames."""
        return _ContextJob(self.spark, items, function)

    def parallelism(self) -> int:
        """Return the number of cores of the granted executors, at least 2."""
        return int(self.spark.defaultParallelism)

    def tries(self) -> int:
        """Return `spark.task.maxFailures` on a cluster; 1 on this machine."""
        if self.is_here():
            return 1
        tries = self.spark.getConf().get("spark.task.maxFailures")
        return int(tries or TASK_TRIES_DEFAULT)

    def is_here(self) -> bool:
        """Whether the master is local."""
        return is_local(self.spark.master)


@dataclass(frozen=True, slots=True)
class _ContextJob(Generic[T, R]):
    """A job that uses RDDs."""

    spark: SparkContext
    items: list[T]
    function: Callable[[T], R]
    group: str = field(default_factory=lambda: f"rmq-export-{secrets.token_hex(8)}")

    def run(self) -> list[R]:
        """Run the job to its end; return the function's results."""
        self.spark.setJobGroup(self.group, "rmq export", interruptOnCancel=True)
        rdd = self.spark.parallelize(self.items, len(self.items))
        found: list[R] = rdd.map(self.function).collect()
        return found

    def cancel(self) -> None:
        """Tell Spark to stop the job. Workers notice within a few seconds."""
        from py4j.protocol import Py4JError

        try:
            self.spark.cancelJobGroup(self.group)
        except (Py4JError, OSError):
            return  # the JVM is gone, and the job with it

    def count_tasks(self, which: str) -> int:
        """Return the sum of a count of Spark's tracker over the job's stages."""
        from py4j.protocol import Py4JError

        try:
            tracker = self.spark.statusTracker()
            jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(self.group))
            stages = [stage for job in jobs if job for stage in job.stageIds]
            infos = map(tracker.getStageInfo, stages)
            return sum(getattr(info, which) for info in infos if info)
        except (Py4JError, OSError):
            return 0  # `run` will get the job's own error


def translated(error: BaseException) -> RmqError | BaseException:
    """Return the RmqError for a failed Spark job; any other exception unchanged."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if isinstance(error, RmqError) or not isinstance(
        error, Py4JError | PySparkException | OSError
    ):
        return error
    if says_that_java_ended(error):
        return RmqError(
            "Spark's Java process ended before the export did",
            hint="see _rmq/runs/RUN_ID/spark.log in the folder of the export",
        )
    text = text_of(error)
    unfit = _unfit_python(text)
    if unfit is not None:
        return unfit
    if "Python worker exited" in text or "Python worker failed" in text:
        return RmqError(
            "a Spark worker died, as did the workers that tried the same task again",
            hint=Hint(
                "if the system ran out of memory, try a smaller ",
                Argument("rows_per_file"),
            ),
        )
    if "ExecutorLostFailure" in text:
        return RmqError("Spark lost the executors that ran the export")
    if "ModuleNotFoundError" in text or "ImportError" in text:
        return RmqError(
            f"a Spark worker cannot import one of the packages that it needs"
            f" ({', '.join(PACKAGES)}): {_python_error(text)}",
            hint=SHIP_HINT,
        )
    return RmqError(f"the Spark job failed: {_python_error(text)}")


def _unfit_python(text: str) -> RmqError | None:
    """Return the error when an executor's Python cannot run Spark's workers at all."""
    pythons = re.search(_PYTHONS, text)
    if pythons is not None:
        return ConfigError(
            f"the executors run Python {pythons[1]}, but PySpark requires the driver's"
            f" version, {pythons[2]}",
            hint=f"set PYSPARK_PYTHON to a Python {pythons[2]} of the executors, or"
            f" {SHIP_HINT.partition(', or ')[2]}",
        )
    program = re.search(_NO_PROGRAM, text)
    if program is not None:
        return ConfigError(
            f"the executors cannot start {program[1]!r} as Python",
            hint="set PYSPARK_PYTHON to the path of Python on the executors, or"
            f" {SHIP_HINT.partition(', or ')[2]}",
        )
    failed = re.search(_NOT_STARTED, text, re.DOTALL)
    if failed is not None:
        lines = failed[1].strip().splitlines() or ["no reason given"]
        reason = lines[-1].strip()[:300]
        return ConfigError(
            f"the executors' Python cannot run Spark's worker: {reason}",
            hint="set PYSPARK_PYTHON to a Python on the executors that has the driver's"
            " version",
        )
    return None


def _python_error(text: str) -> str:
    """Return the last line of the Python traceback in Spark's text.

    Returns the first line of the text when it contains no traceback.
    """
    raised = re.findall(r"^([A-Za-z_][\w.]*(?:: .*)?)$", text, re.MULTILINE)
    named = [line for line in raised if re.match(r"[\w.]*(Error|Exception)\b", line)]
    lines = named[-1:] or text.strip().splitlines()
    return lines[0][:300] if lines else "no reason given"
