"""An export into a table: pin the range, write it in one commit, check the commit.

The newest record among the table's commits says which offsets the table has already,
and where `since_last` continues. The range is pinned before anything is written. Until
the commit no row is visible; the commit makes all rows and their record visible at
once. So a run that is killed has either committed everything or nothing.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.decode.settings import ARGUMENT_NAMES, Decoding, Names
from rmqcli.errors import PartialError, RefusedError, UsageError
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.spark.export import layout
from rmqcli.spark.export.export import SINCE_LAST, SourceCluster
from rmqcli.spark.export.part import inferred_schema
from rmqcli.spark.export.plan import ROWS_PER_FILE_DEFAULT
from rmqcli.spark.extent import (
    continued,
    ends_of,
    plan_queue,
    refuse_lost,
    refuse_other_tag,
)
from rmqcli.spark.rows import row_schema, wanted_tags
from rmqcli.spark.tables.record import TableRecord, merged, overlap, with_last
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.spark.export.export import ExportOptions
    from rmqcli.spark.export.job import JobProgress, Reporter
    from rmqcli.spark.export.plan import ExportRequest
    from rmqcli.spark.extent import QueueKey, QueueRange
    from rmqcli.spark.sql.views import TopicView
    from rmqcli.spark.tables.table import Commit, TableState


class TableCluster(SourceCluster, Protocol):
    """The part of a cluster that an export into a table uses."""

    @property
    def config(self) -> ClientConfig: ...

    def name_of(self, topic: str) -> str:
        """The names of the clusters that have the topic. Raises NotFoundError."""


class TableSession(Protocol):
    """A table in a Spark session: `SparkTable`, or a test's fake."""

    @property
    def name(self) -> str: ...
    def state(self) -> TableState: ...
    def is_empty(self) -> bool: ...
    def write(
        self,
        view: TopicView,
        record: TableRecord,
        *,
        watch: Callable[[JobProgress], None],
    ) -> None: ...
    def committed(self, run_id: str, before: TableState) -> Commit: ...
    def warnings(self) -> list[str]:
        """The warnings of workers on this machine about messages that they skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRun:
    """A run that has ended. `commit` is None when there was nothing to write."""

    run_id: str
    queues: tuple[QueueRange, ...]
    commit: Commit | None
    #: the tags that were requested; None for all messages
    tag: str | None = None
    #: what workers reported as skipped, as far as it is known
    warnings: tuple[str, ...] = ()

    @property
    def offsets(self) -> int:
        """The number of offsets that were read."""
        return sum(queue.end - queue.start for queue in self.queues)

    @property
    def without_row(self) -> int:
        """The number of offsets without a row, 0 when that is unknown.

        With a tag it is unknown, because messages with other tags have no row either.
        """
        if self.tag is not None or self.commit is None or self.commit.rows is None:
            return 0
        return max(0, self.offsets - self.commit.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExport:
    """One export into a table, which `run` carries out.

    Of the options it uses those that say what is exported and what is accepted.
    `open_session` starts Spark for the duration of a block.
    """

    request: ExportRequest
    options: ExportOptions
    cluster: TableCluster
    report: Reporter
    open_session: Callable[[], AbstractContextManager[TableSession]]
    clock: Clock = SYSTEM_CLOCK
    #: the names of the settings of a Decoding in errors
    decode_names: Names = ARGUMENT_NAMES

    def run(self) -> TableRun:
        """Write the range, unless the table already has it.

        Raises RefusedError for a table that has other columns, another topic or a part
        of the range, UsageError when there is nothing to follow, PartialError when
        messages are missing, and RmqErrors for failures of Spark and the format. Then
        nothing was written, unless another export committed to an Iceberg table at the
        same time. After KeyboardInterrupt the commit may exist; a run with `since_last`
        finds it.
        """
        topic = self.request.topic
        cluster_name = self.cluster.name_of(topic)
        if self.request.decoding is not None:
            self.request.decoding.check_packages()
        with self.open_session() as table:
            state = table.state()
            newest = state.newest
            if newest is not None:
                self._check_same(table.name, newest, cluster_name)
            request, decoding = self._request(table.name, state)
            queues, gone = self._plan(table, state, request)
            decoding = self._with_schema(decoding, queues, request.tag)
            self._check_columns(table.name, state, decoding)
            run_id = layout.new_run_id(
                epoch_ms=self.clock.epoch_ms(), entropy=os.urandom(4)
            )
            if newest is not None and self._is_there(table.name, newest, queues, gone):
                found = (
                    "nothing new since"
                    if self.options.since_last
                    else "nothing to do after"
                )
                self.report.info(f"{found} run {newest.run_id}")
                return TableRun(run_id=run_id, queues=queues, commit=None)
            queues = self.cluster.last_messages(topic, queues)
            self.report.planned(topic, queues)
            read = {each.key: (each.start, each.end) for each in queues}
            left = () if newest is None else newest.gone
            record = TableRecord(
                run_id=run_id,
                sequence=state.sequence,
                cluster=cluster_name,
                topic=topic,
                tag=request.tag,
                decode=None if decoding is None else decoding.format,
                read=read,
                covered=merged({} if newest is None else newest.covered, read),
                gone=tuple(sorted({*left, *gone} - read.keys())),
                noted=with_last({} if newest is None else newest.noted, queues),
            )
            table.write(
                self._view(request, queues, decoding),
                record,
                watch=self.report.progress,
            )
            commit = table.committed(run_id, state)
            return TableRun(
                run_id=run_id,
                queues=queues,
                commit=commit,
                tag=request.tag,
                warnings=tuple(table.warnings()),
            )

    def _check_same(self, name: str, newest: TableRecord, cluster_name: str) -> None:
        """Raise RefusedError for a table with another topic or cluster.

        The offsets of two topics in one table could be told apart. But then the newest
        record of one of them could be so old that the table no longer keeps it, and
        later messages would be written twice or not at all.
        """
        topic = self.request.topic
        if newest.topic != topic:
            raise RefusedError(
                f"{name} holds an export of topic {newest.topic}, not {topic}",
                hint="export each topic into a table of its own",
            )
        if newest.cluster != cluster_name:
            raise RefusedError(
                f"{name} holds an export of topic {topic} of cluster {newest.cluster},"
                f" not {cluster_name}",
                hint="export each cluster into a table of its own",
            )

    def _request(
        self, name: str, state: TableState
    ) -> tuple[ExportRequest, Decoding | None]:
        """The request and the decoding, completed from the previous run's record.

        With `since_last` the request continues that run. Raises UsageError when there
        is no run to follow, and RefusedError when it had another tag, or decoded bodies
        and this one does not.
        """
        request, newest = self.request, state.newest
        if self.options.since_last and newest is None:
            raise UsageError(
                f"{name} has no commit of an export to follow",
                hint=Hint("export once without ", Setting("since_last", True)),
            )
        decoding = request.decoding
        if newest is None:
            return request, decoding
        if self.options.since_last:
            tag = request.tag if "tag" in self.options.given else newest.tag
            refuse_other_tag(name, newest.tag, tag, instead="into another table")
            request = replace(request, from_position=SINCE_LAST, tag=tag)
        is_inferred = decoding is not None and decoding.schema is None
        if is_inferred or (decoding is None and newest.decode == "json"):
            decoding = _decoding_of(state, decoding) or decoding
        if decoding is None and newest.decode is not None:
            raise RefusedError(
                f"{name} holds an export that decodes bodies as {newest.decode}",
                hint=f"decode bodies in the same way, with {self.decode_names.decode}",
            )
        return request, decoding

    def _plan(
        self, table: TableSession, state: TableState, request: ExportRequest
    ) -> tuple[tuple[QueueRange, ...], tuple[QueueKey, ...]]:
        """The pinned ranges, and the queues that left the route since the last run.

        Raises PartialError, unless gaps are allowed, when the broker no longer has a
        part of the ranges or when such a queue exists.
        """
        newest = state.newest
        if newest is None and state.columns is not None:
            self._check_unknown_rows(table)
        extents = self.cluster.resolve(request)
        ends = {} if newest is None else newest.ends()
        if newest is not None:
            self.cluster.check_same(
                request.topic,
                ends_of(extents, ends),
                newest.noted,
                done="the table has read",
                anew="export the new topic into another table",
            )
        gone: tuple[QueueKey, ...] = ()
        if self.options.since_last and newest is not None:
            extents = continued(
                extents,
                ends,
                are_chosen=bool(request.queues),
                instead="into another table",
            )
            if not request.queues:
                present = {each.key for each in extents}
                gone = tuple(sorted({*ends} - present - {*newest.gone}))
        queues = tuple(
            plan_queue(extent) for extent in sorted(extents, key=lambda e: e.queue)
        )
        if self.options.allow_gaps:
            for name, queue_id in gone:
                self.report.info(
                    f"{name} queue {queue_id} is no longer in the route; it was"
                    f" exported up to {ends[name, queue_id]}"
                )
            return queues, gone
        if self.options.since_last and newest is not None:
            refuse_lost(queues, [(*key, ends[key]) for key in gone])
        for queue in queues:
            if queue.trimmed is not None:
                raise PartialError(
                    f"{queue.broker_name} queue {queue.queue_id}: offsets"
                    f" {queue.trimmed[0]} to {queue.trimmed[1] - 1} are no longer on"
                    " the broker",
                    hint=Hint("export what is left with ", Setting("allow_gaps", True)),
                )
        return queues, gone

    def _check_unknown_rows(self, table: TableSession) -> None:
        """Raise RefusedError for a table whose rows have no record.

        Does nothing when the caller chose where to begin.
        """
        if "from_position" in self.options.given or table.is_empty():
            return
        raise RefusedError(
            f"{table.name} has rows, but no commit records their offsets",
            hint=Hint(
                "set the start with ",
                Setting("from_position", Blank("POSITION")),
                ", or give another table",
            ),
        )

    def _is_there(
        self,
        name: str,
        newest: TableRecord,
        queues: tuple[QueueRange, ...],
        gone: tuple[QueueKey, ...],
    ) -> bool:
        """Whether the table has the whole range.

        Raises RefusedError when it has only a part of the range, or has it with another
        tag.
        """
        planned = there = 0
        for queue in queues:
            spans = newest.covered.get(queue.key, ())
            planned += queue.end - queue.start
            there += overlap(spans, queue.start, queue.end)
        if there and (there < planned or newest.tag != self.request.tag):
            raise RefusedError(
                f"{name} has {there} of these {counted(planned, 'offset')} already"
                + ("" if newest.tag is None else f", with the tag {newest.tag}"),
                hint=Hint(
                    "use ",
                    Setting("since_last", True),
                    " to export newer messages, or give another table",
                ),
            )
        return there == planned and not gone

    def _with_schema(
        self,
        decoding: Decoding | None,
        queues: tuple[QueueRange, ...],
        tag: str | None,
    ) -> Decoding | None:
        """The decoding with a schema, which may be inferred from the first messages."""
        schema = inferred_schema(
            decoding,
            self.cluster.source,
            [queue.offset_range(self.request.topic) for queue in queues],
            tag=tag,
            names=self.decode_names,
            note=self.report.info,
        )
        return replace(decoding, schema=schema) if decoding and schema else decoding

    def _check_columns(
        self, name: str, state: TableState, decoding: Decoding | None
    ) -> None:
        """Raise RefusedError when the table's columns differ from the export's."""
        if state.columns is None:
            return
        from rmqcli.decode.schema import simple_string

        wanted = {each.name: simple_string(each.type) for each in row_schema(decoding)}
        found = dict(state.columns)
        if wanted == found:
            return
        differences = [
            *(f"{each} is missing" for each in wanted if each not in found),
            *(
                f"{each} is not a column of the export"
                for each in found
                if each not in wanted
            ),
            *(
                f"{each} is {found[each]}, not {wanted[each]}"
                for each in wanted
                if each in found and found[each] != wanted[each]
            ),
        ]
        raise RefusedError(
            f"{name} has different columns from the export:"
            f" {'; '.join(differences[:3])}",
            hint="decode bodies as before, or give another table",
        )

    def _view(
        self,
        request: ExportRequest,
        queues: tuple[QueueRange, ...],
        decoding: Decoding | None,
    ) -> TopicView:
        from rmqcli.spark.options import ClusterConnection
        from rmqcli.spark.source.options import Positions, SourceOptions
        from rmqcli.spark.source.subscription import Subscription
        from rmqcli.spark.sql.views import TopicView

        topic = request.topic
        options = SourceOptions(
            connection=ClusterConnection(self.cluster.config, None),
            subscription=Subscription(topics=(topic,)),
            start=Positions("start", None),
            end=Positions("end", None),
            fail_on_data_loss=not self.options.allow_gaps,
            fail_on_undecodable=not self.options.allow_undecodable,
            partitions_min=request.min_partitions,
            records_per_partition_max=ROWS_PER_FILE_DEFAULT,
            tags=wanted_tags(topic, request.tag),
            decoding=decoding,
        )
        return TopicView(options, {each.queue_in(topic): each for each in queues})


def _decoding_of(state: TableState, asked: Decoding | None) -> Decoding | None:
    """The decoding of JSON bodies to the type of the table's column `value`.

    None when the table has no such column.
    """
    from rmqcli.decode.schema import ddl_of, parse_schema

    if state.value_json is None:
        return None
    schema = ddl_of(parse_schema(state.value_json))
    return Decoding("json", schema, None if asked is None else asked.infer)
