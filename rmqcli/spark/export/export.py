"""An export from beginning to end: decide what to do, plan, run, verify, commit.

The first of these choices that applies is taken: continue an unfinished run (`resume`,
or the same request again), follow the last run (`since_last`), do nothing because the
same request is already finished, or plan a new run. Nothing is exported before its plan
is on the disk, and the plan is written only after Spark has started: a run that cannot
begin must not determine what a later run reads. A run counts only when it is in the
manifest.
"""

from __future__ import annotations

import contextlib
import functools
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.decode.settings import ARGUMENT_NAMES, Names
from rmqcli.errors import DisconnectedError, PartialError, RefusedError, UsageError
from rmqcli.hint import Hint, Setting
from rmqcli.spark.export import layout
from rmqcli.spark.export.directory import open_directory
from rmqcli.spark.export.executors import TIMEOUT_MS as EXECUTOR_TIMEOUT_MS
from rmqcli.spark.export.executors import ResourceWatch, packages_of
from rmqcli.spark.export.manifest import Gap, Manifest, RunRecord, finish_run
from rmqcli.spark.export.part import PartContext, PartFailure, inferred_schema
from rmqcli.spark.export.part_files import FilesContext, write_empty
from rmqcli.spark.export.plan import ExportPlan, rows_per_part
from rmqcli.spark.extent import (
    QueueExtent,
    continued,
    ends_of,
    plan_queue,
    refuse_lost,
    refuse_other_tag,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rmqcli.clock import Clock
    from rmqcli.spark.export.directory import ExportDirectory
    from rmqcli.spark.export.job import JobProgress, Jobs, Reporter
    from rmqcli.spark.export.manifest import PartResult
    from rmqcli.spark.export.part import ChunkSource
    from rmqcli.spark.export.plan import ExportRequest, PartSpec
    from rmqcli.spark.export.storage import Storage
    from rmqcli.spark.extent import NotedMessage, QueueKey, QueueRange

#: The `from_position` of a run that begins where the last one ended.
SINCE_LAST = "since-last"


class SourceCluster(Protocol):
    """The part of a cluster that every export uses. Workers get its `source`."""

    @property
    def source(self) -> ChunkSource: ...

    def resolve(self, request: ExportRequest) -> list[QueueExtent]:
        """Resolve the request's positions for each of its queues, now.

        When `from_position` is `SINCE_LAST`, each queue starts at its min offset.
        """

    def last_messages(
        self, topic: str, queues: Iterable[QueueRange]
    ) -> tuple[QueueRange, ...]:
        """Return the ranges with the message before the end of each."""

    def check_same(
        self,
        topic: str,
        ends: Mapping[QueueKey, int],
        noted: Mapping[QueueKey, NotedMessage],
        *,
        done: str,
        anew: str,
    ) -> None:
        """Raise RefusedError unless the queues are those that were read before."""


class ExportCluster(SourceCluster, Protocol):
    """The part of a cluster that an export into files uses."""

    def message_bytes(self, plan: ExportPlan) -> int | None:
        """Return the average size of the messages of the plan, None if unknown."""


class ExportWorkers(Protocol):
    """Writes parts and returns the outcome of each: `run_parts`, or a test's fake."""

    def __call__(
        self,
        parts: list[PartSpec],
        context: PartContext,
        /,
        *,
        watch: Callable[[JobProgress], None],
    ) -> Sequence[PartResult | PartFailure]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersStart:
    """The data that is needed to start workers. `parts` is the number of parts.

    The file at `log_path` may be renamed while Spark writes to it.
    """

    files: FilesContext
    parts: int
    log_path: str
    is_secret: bool
    options: ExportOptions
    #: called with notes for the user while workers start
    note: Callable[[str], None]


#: Starts workers for the duration of a block: `spark_workers`, or a test's fake. When
#: it is called, nothing permanent has been written to the directory. If it raises an
#: error, no run has begun.
ExportRunner: TypeAlias = (
    "Callable[[WorkersStart], AbstractContextManager[ExportWorkers]]"
)


@contextlib.contextmanager
def spark_workers(start: WorkersStart, /) -> Iterator[ExportWorkers]:
    """Start Spark, and stop it at the end of the block.

    On a cluster, the block begins after an executor was granted that can write parts.
    """
    from rmqcli.spark.encryption import check_encrypted
    from rmqcli.spark.export.job import ContextJobs
    from rmqcli.spark.master import is_local
    from rmqcli.spark.session import SessionOptions, spark_context

    if start.options.remote is not None:
        with _connect_workers(start, start.options.remote) as workers:
            yield workers
        return
    master = start.options.master
    session = SessionOptions(
        name=f"rmq export {start.files.request.topic}",
        log_path=start.log_path,
        workers_max=start.parts,
        master=master,
        conf=start.options.conf,
        archives=start.options.archives,
    )
    with spark_context(session) as spark:
        if start.is_secret and not is_local(master):
            check_encrypted(lambda name: spark.getConf().get(name))
        shown = None if is_local(master) else master
        yield _workers_of(ContextJobs(spark), start, shown)


@contextlib.contextmanager
def _connect_workers(start: WorkersStart, url: str) -> Iterator[ExportWorkers]:
    """Open a session of Spark Connect, and always check the server's executors."""
    from rmqcli.spark.connect import check_private, connect_session, setting
    from rmqcli.spark.encryption import check_encrypted
    from rmqcli.spark.export.connect_job import ConnectJobs
    from rmqcli.spark.master import is_local, shown_url

    if start.is_secret:
        check_private(url, os.environ)
    with connect_session(url) as session:
        if start.is_secret and not is_local(setting(session, "spark.master") or ""):
            check_encrypted(functools.partial(setting, session))
        yield _workers_of(ConnectJobs(session), start, shown_url(url))


def _workers_of(jobs: Jobs, start: WorkersStart, cluster: str | None) -> ExportWorkers:
    """Check the executors of a cluster, and return the function that writes parts.

    `cluster` is the name of the cluster in errors; None stands for this machine, which
    is not checked.
    """
    from rmqcli.spark.export.job import check_executors, run_parts

    resources = None
    if cluster is not None:
        resources = ResourceWatch(
            cluster,
            timeout_ms=start.options.executor_timeout_ms,
            note=start.note,
        )
        files, packages = start.files, packages_of(start.files.request.decoding)
        check_executors(
            jobs, files.temp, files.disk, resources=resources, packages=packages
        )
    return functools.partial(run_parts, jobs, resources=resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """How to export; what to export is in the request.

    `given` names the fields of the request that the caller chose. The other fields are
    defaults, which are replaced by the values of the run that is continued or followed.
    """

    path: str
    given: frozenset[str] = frozenset()
    master: str | None = None
    #: the URL of a Spark Connect server, instead of a master
    remote: str | None = None
    resume: bool = False
    since_last: bool = False
    allow_gaps: bool = False
    allow_undecodable: bool = False
    #: settings of Spark, and archives for its executors; see `SessionOptions`
    conf: tuple[tuple[str, str], ...] = ()
    archives: tuple[str, ...] = ()
    #: how long a cluster may go without running any task of the export
    executor_timeout_ms: int = EXECUTOR_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """One export, which `run` carries out."""

    request: ExportRequest
    options: ExportOptions
    cluster: ExportCluster
    report: Reporter
    disk: Storage
    clock: Clock = SYSTEM_CLOCK
    runner: ExportRunner = spark_workers
    #: called before workers are started; an error that it raises ends the export
    check_ready: Callable[[], None] = lambda: None
    #: the names of the settings of a Decoding in errors
    decode_names: Names = ARGUMENT_NAMES

    def run(self) -> RunRecord:
        """Do what is left to do; return the finished run.

        The run is complete only when its `is_accepted` is true: gaps need `allow_gaps`,
        and messages that cannot be decoded need `allow_undecodable`. Raises
        RefusedError when the directory must not be written to, PartialError when some
        parts could not be written or offsets are lost, and UsageError when there is
        nothing to resume or to follow. KeyboardInterrupt leaves a run that can be
        resumed.
        """
        goes_on = self.options.resume or self.options.since_last
        create = not goes_on or (self.options.resume and bool(self.options.given))
        with open_directory(
            self.options.path, disk=self.disk, create=create
        ) as directory:
            manifest = directory.manifest()
            if manifest is not None and manifest.topic != self.request.topic:
                raise RefusedError(
                    f"{directory.paths.root} holds an export of topic "
                    f"{manifest.topic}, not {self.request.topic}"
                )
            manifest = manifest or Manifest(self.request.topic)
            return self._decide(directory, manifest)

    def _decide(self, directory: ExportDirectory, manifest: Manifest) -> RunRecord:
        unfinished = directory.unfinished(manifest)
        if unfinished is not None:
            self._check_continues(unfinished)
            self.report.info(f"continuing run {unfinished.run_id}")
            gone = _gone(manifest, unfinished.queues, unfinished.request)
            return self._execute(directory, manifest, unfinished, gone, is_new=False)
        if self.options.since_last:
            return self._since_last(directory, manifest)
        finished = self._finished(manifest)
        if finished is not None:
            return self._nothing_to_do(directory, manifest, finished)
        if self.options.resume and not (directory.was_ours or self.options.given):
            raise UsageError(f"there is nothing to resume in {directory.paths.root}")
        directory.refuse_foreign(manifest if manifest.runs else None)
        request = self._with_schema_of(manifest, self.request, directory)
        extents = self.cluster.resolve(request)
        self._check_same(manifest, extents)
        plan = self._plan(request, extents)
        taken = manifest.overlap(plan.queues)
        if taken is not None:
            raise RefusedError(
                taken,
                hint=Hint(
                    "use ",
                    Setting("since_last", True),
                    " to export newer messages, or give an empty folder",
                ),
            )
        return self._execute(directory, manifest, plan, ())

    def _check_same(self, manifest: Manifest, extents: Iterable[QueueExtent]) -> None:
        """Raise RefusedError when a queue is not the one of the finished runs."""
        ends = ends_of(extents, manifest.ends())
        if ends:
            self.cluster.check_same(
                manifest.topic,
                ends,
                manifest.noted(),
                done="the export has read",
                anew="export the new topic into an empty folder",
            )

    def _check_run(
        self, manifest: Manifest, plan: ExportPlan, parts: Iterable[PartResult]
    ) -> None:
        """Raise RefusedError when a queue is not the one that the plan has noted.

        Checked behind the last part, too: the topic may be made anew during a run.
        """
        self.cluster.check_same(
            plan.request.topic,
            {queue.key: queue.end for queue in plan.queues},
            manifest.noted(plan.queues, parts),
            done=f"run {plan.run_id} has noted",
            anew="export the new topic into an empty folder",
        )

    def _check_continues(self, plan: ExportPlan) -> None:
        if self.options.resume and plan.request.topic == self.request.topic:
            for name in sorted(self.options.given):
                planned, asked = (
                    getattr(plan.request, name),
                    getattr(self.request, name),
                )
                if planned != asked:
                    values = f"{name} {planned}, not {asked}"
                    if name == "decode_schema":  # many lines
                        values = f"a different {name}"
                    raise RefusedError(
                        f"run {plan.run_id} was planned with {values}",
                        hint="resume it without other arguments",
                    )
            return
        if not self.options.since_last and plan.request == self.request:
            return
        raise RefusedError(
            f"{self.options.path} holds the unfinished run {plan.run_id} of topic"
            f" {plan.request.topic}",
            hint=Hint("finish that run first, with ", Setting("resume", True)),
        )

    def _finished(self, manifest: Manifest) -> RunRecord | None:
        if self.options.resume:
            return manifest.runs[-1] if manifest.runs else None
        same = [run for run in manifest.runs if run.request == self.request]
        return same[-1] if same else None

    def _nothing_to_do(
        self, directory: ExportDirectory, manifest: Manifest, record: RunRecord
    ) -> RunRecord:
        done = f"run {record.run_id} is finished: nothing to do"
        if not self.options.resume:
            later = " exports the messages that came later"
            done = Hint(f"{done}; ", Setting("since_last", True), later)
        self.report.info(done)
        for run in manifest.runs:
            accepted = replace(
                run,
                gaps_allowed=run.gaps_allowed or self.options.allow_gaps,
                undecodable_allowed=(
                    run.undecodable_allowed or self.options.allow_undecodable
                ),
            )
            if not run.is_accepted and accepted != run:
                directory.commit(manifest.topic, accepted)
                manifest = manifest.with_runs([accepted])
        record = manifest.run(record.run_id) or record
        self._mark(directory, manifest, record)
        # This is left to do when a process was killed right after its commit.
        directory.drop_part_records(record.run_id)
        directory.sweep()
        return record

    def _mark(
        self, directory: ExportDirectory, manifest: Manifest, record: RunRecord
    ) -> None:
        """Mark the directory as complete if each of its runs is accepted.

        A note names another run than `record` that is not; of `record` itself the
        caller says so.
        """
        lacking = [run for run in manifest.runs if not run.is_accepted]
        if not lacking:
            directory.set_success()
        for run in [each for each in lacking if each.run_id != record.run_id][:1]:
            accept = Setting("allow_undecodable", True)
            if run.gaps() and not run.gaps_allowed:
                accept = Setting("allow_gaps", True)
            self.report.info(
                Hint(
                    f"run {run.run_id} lacks messages, so the export is not marked as"
                    " complete; accept that with ",
                    Setting("resume", True),
                    " and ",
                    accept,
                )
            )

    def _since_last(self, directory: ExportDirectory, manifest: Manifest) -> RunRecord:
        if not manifest.runs:
            raise UsageError(
                f"{directory.paths.root} holds no finished export to follow",
                hint=Hint("export once without ", Setting("since_last", True)),
            )
        directory.refuse_foreign(manifest)
        last = manifest.runs[-1].request
        request = replace(last, from_position=SINCE_LAST, to_position="latest")
        names = self.options.given
        if "decode" in names:  # with the settings that belong to it
            names = names | {"decode_schema", "decode_infer"}
        chosen = {name: getattr(self.request, name) for name in names}
        request = replace(request, **chosen)
        if last.partition_by != request.partition_by:
            raise RefusedError(
                f"{directory.paths.root} is partitioned by {last.partition_by}, "
                f"not by {request.partition_by}"
            )
        root = directory.paths.root
        refuse_other_tag(root, last.tag, request.tag, instead="into an empty folder")
        request = self._with_schema_of(manifest, request, directory)
        extents = self.cluster.resolve(request)
        self._check_same(manifest, extents)
        extents = continued(extents, manifest.ends(), are_chosen=bool(request.queues))
        plan = self._plan(request, extents)
        gone = _gone(manifest, plan.queues, request)
        if not self.options.allow_gaps:
            refuse_lost(plan.queues, [(*gap.key, gap.start) for gap in gone])
        if not plan.planned_messages and not gone:
            self.report.info(f"nothing new since run {manifest.runs[-1].run_id}")
            return finish_run(plan, (), finished_at_ms=plan.created_at_ms)
        return self._execute(directory, manifest, plan, gone)

    def _with_schema_of(
        self, manifest: Manifest, request: ExportRequest, directory: ExportDirectory
    ) -> ExportRequest:
        """Return the request with the schema that the folder already uses, if any.

        Raises RefusedError when the request decodes bodies differently: all files of a
        folder have the same columns.
        """
        if not manifest.runs:
            return request
        last = manifest.runs[-1].request
        if not request.decodes_like(last):
            how = "does not decode bodies"
            if last.decode is not None:
                how = f"decodes bodies as {last.decode}"
                if request.decode == last.decode:
                    how += ", with another schema"
            raise RefusedError(
                f"{directory.paths.root} holds an export that {how}",
                hint="decode bodies in the same way, or export to an empty folder",
            )
        return replace(request, decode_inferred=last.decode_inferred)

    def _inferred(self, plan: ExportPlan) -> ExportPlan:
        """Return the plan with a schema, which may be inferred from its first messages.

        Raises UsageError when no schema can be inferred from them.
        """
        request = plan.request
        schema = inferred_schema(
            request.decoding,
            self.cluster.source,
            [queue.offset_range(request.topic) for queue in plan.queues],
            tag=request.tag,
            names=self.decode_names,
            note=self.report.info,
        )
        if schema is None:
            return plan
        return replace(plan, request=replace(request, decode_inferred=schema))

    def _plan(
        self, request: ExportRequest, extents: Sequence[QueueExtent]
    ) -> ExportPlan:
        now_ms = self.clock.epoch_ms()
        plan = ExportPlan(
            run_id=layout.new_run_id(epoch_ms=now_ms, entropy=os.urandom(4)),
            created_at_ms=now_ms,
            request=request,
            queues=self.cluster.last_messages(
                request.topic,
                [plan_queue(each) for each in sorted(extents, key=lambda e: e.queue)],
            ),
        )
        plan = self._inferred(plan)
        return replace(
            plan,
            rows_per_part=rows_per_part(
                request,
                messages=plan.planned_messages,
                message_bytes=self.cluster.message_bytes(plan),
            ),
        )

    def _execute(
        self,
        directory: ExportDirectory,
        manifest: Manifest,
        plan: ExportPlan,
        gone: tuple[Gap, ...],
        *,
        is_new: bool = True,
    ) -> RunRecord:
        done = directory.finished_parts(plan)
        left = [part for part in plan.parts() if part.index not in done]
        if left and not is_new:
            self._check_run(manifest, plan, done.values())
        files = FilesContext(
            layout=directory.paths,
            run_id=plan.run_id,
            temp=self.disk.begin_attempt(directory.paths, plan.run_id),
            request=plan.request,
            disk=self.disk,
        )
        log = directory.paths.log(plan.run_id)
        try:
            if left:
                if plan.request.decoding is not None:
                    plan.request.decoding.check_packages()
                self.check_ready()
            with self._workers(files, left, log) as workers:
                # From here on the run exists: what it reads must no longer change.
                directory.write_plan(plan)
                self.disk.adopt_log(log, files.temp)
                self.report.planned(plan.request.topic, plan.queues)
                directory.clear_success()
                written = self._write(files, left, workers)
            results = [*done.values(), *written]
            if results:
                self._check_run(manifest, plan, results)
            directory.check_all_files(plan.run_id, results)
            record = finish_run(
                plan,
                results,
                finished_at_ms=self.clock.epoch_ms(),
                gone=gone,
                gaps_allowed=self.options.allow_gaps,
                undecodable_allowed=self.options.allow_undecodable,
            )
            directory.remove_strays(plan, results, finished=manifest)
            if plan.queues and not any(run.files() for run in (*manifest.runs, record)):
                at_ms = plan.created_at_ms
                empty = write_empty(plan.queues[0], files, epoch_ms=at_ms)
                record = replace(record, empty_file=empty)
            directory.merge_undecodable(plan, files.temp)
            directory.commit(manifest.topic, record)
            self._mark(directory, manifest.with_runs([record]), record)
            directory.drop_part_records(plan.run_id)
            return record
        finally:
            self.disk.save_log(log, files.temp)
            directory.sweep()

    def _workers(
        self, files: FilesContext, parts: list[PartSpec], log: str
    ) -> AbstractContextManager[ExportWorkers | None]:
        if not parts:
            return contextlib.nullcontext()
        return self.runner(
            WorkersStart(
                files=files,
                parts=len(parts),
                log_path=self.disk.log_path(log, files.temp),
                is_secret=self.cluster.source.is_secret,
                options=self.options,
                note=self.report.info,
            )
        )

    def _write(
        self, files: FilesContext, parts: list[PartSpec], workers: ExportWorkers | None
    ) -> list[PartResult]:
        if workers is None:
            return []
        context = PartContext(files=files, source=self.cluster.source)
        outcomes = workers(parts, context, watch=self.report.progress)
        failures = [o for o in outcomes if isinstance(o, PartFailure)]
        for each in failures:
            if isinstance(each.error, DisconnectedError):
                each.error.hint = ""  # the plan was made over the same protocol
        if len(failures) == len(outcomes):
            raise failures[0].error
        if failures:
            raise PartialError(
                f"{len(failures)} of {len(parts)} parts could not be written; the "
                f"first: {failures[0].error.message}",
                hint=failures[0].error.hint,
            )
        return [o for o in outcomes if not isinstance(o, PartFailure)]


def _gone(
    manifest: Manifest, queues: Sequence[QueueRange], request: ExportRequest
) -> tuple[Gap, ...]:
    """Return the queues of earlier runs that have since left the route.

    They are returned as gaps without an end, except those that an earlier run recorded
    as gone and that have not been back since. The result is empty when the run does not
    follow the last one, or when the request names its queues.
    """
    if request.from_position != SINCE_LAST or request.queues:
        return ()
    recorded: set[QueueKey] = set()
    for run in manifest.runs:
        recorded -= {each.key for each in run.queues}
        recorded |= {each.key for each in run.gone}
    present = {queue.key for queue in queues}
    return tuple(
        Gap(broker_name=name, queue_id=queue_id, start=end, end=None, reason="gone")
        for (name, queue_id), end in sorted(manifest.ends().items())
        if (name, queue_id) not in present | recorded
    )
