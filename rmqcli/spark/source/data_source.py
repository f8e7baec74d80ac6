"""`RocketMQDataSource`, the class to register with Spark, and the batch reader.

Spark creates the data source in a separate process when a DataFrame is loaded, and
pickles it to other processes. The range of a batch is pinned at that moment, so every
action on the DataFrame reads the same messages. Spark also creates the data source to
write a DataFrame, and does not say in advance whether it will read or write. So the
options are parsed by the first call that makes this clear.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.model import OffsetRange
from rmqcli.spark.shown_errors import open_client, with_hints
from rmqcli.spark.source.filters import Pushed
from rmqcli.spark.source.options import DECODE_NAMES, default_start, parse_options
from rmqcli.spark.source.pinned import (
    Pinned,
    partitions_of,
    pin,
    report_trimmed,
    warn_of_departed,
)
from rmqcli.spark.source.progress import behind_latest
from rmqcli.spark.source.read import Reading, arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, MutableMapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from rmqcli.model import MessageQueue
    from rmqcli.spark.extent import QueueRange
    from rmqcli.spark.sink.options import SinkOptions
    from rmqcli.spark.source.options import SourceOptions
    from rmqcli.spark.source.stream import RocketMQStreamReader


class RocketMQDataSource(DataSource):
    """Topics of RocketMQ as DataFrames, batch and streaming.

    ```python
    spark.dataSource.register(RocketMQDataSource)
    orders = spark.read.format("rocketmq").option("subscribe", "orders").load()
    ```

    A row is a message, with the columns of `rmq export`; with the option `decode` the
    fields of its body are in the column `value`. Reading commits no offsets and leaves
    no consumer group on the brokers, except for the `commitGroup` of a stream.

    ```python
    orders.select("body", "keys").write.format("rocketmq").option(
        "topic", "copies"
    ).mode("append").save()
    ```

    To be written, rows need the column `body`. Raises UsageError for invalid options
    and columns, NotFoundError for an unknown topic, and TransportError when no name
    server or broker answers; Spark shows these errors as the last lines of its own.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self._given = dict(options.items())
        self._read_options: SourceOptions | None = None
        self._pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        """`rocketmq`, the name of the format."""
        return "rocketmq"

    @staticmethod
    def metrics(progress: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """How far a stream is behind, for each topic, by a query's progress.

        ```python
        RocketMQDataSource.metrics(query.lastProgress)["orders"]
        ```

        A topic has `avgOffsetsBehindLatest`, `maxOffsetsBehindLatest` and
        `minOffsetsBehindLatest` over its queues, as in the metrics of Kafka's source.
        Empty before PySpark 4.2, which does not ask for the ends of queues.
        """
        return behind_latest(progress)

    def schema(self) -> str:
        """The columns as DDL. Also pins the range of a batch, as Spark calls this once.

        Raises NotFoundError for an unknown topic.
        """
        self._pin()
        return schema_ddl(self._decoded_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of a batch. Raises UsageError for an option only streams have."""
        with with_hints():
            self._options.check(is_stream=False)
            options = self._decoded_options()
            check_schema(schema, options)
            return RocketMQReader(
                options, self._pin().of_batch(), self._pushed(), self._used()
            )

    def streamReader(self, schema: StructType) -> RocketMQStreamReader:  # noqa: N802
        """The reader of a stream. Raises UsageError for an option only batches have."""
        from rmqcli.spark.source.stream import RocketMQStreamReader

        with with_hints():
            self._options.check(is_stream=True)
            options = self._decoded_options()
            check_schema(schema, options)
            return RocketMQStreamReader(options)

    def writer(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceWriter:  # Spark's signature
        """The writer of a DataFrame, after a check of options, columns and topic.

        Raises UsageError for invalid options, for columns that cannot be sent and for a
        mode other than append, and NotFoundError for an unknown topic.
        """
        from rmqcli.spark.sink.write import batch_writer

        with with_hints():
            return batch_writer(self._sink_options(schema), overwrite=overwrite)

    def streamWriter(  # noqa: N802  # Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """The writer of a stream.

        Raises UsageError for invalid options and columns, and for the output mode
        complete.
        """
        from rmqcli.spark.sink.write import stream_writer

        with with_hints():
            return stream_writer(self._sink_options(schema), overwrite=overwrite)

    @property
    def _options(self) -> SourceOptions:
        """The options for reading. Raises UsageError or ConfigError."""
        if self._read_options is None:
            with with_hints():
                self._read_options = parse_options(self._given, environ=os.environ)
        return self._read_options

    def _decoded_options(self) -> SourceOptions:
        """The options with the schema of bodies, which is inferred once if necessary.

        Raises UsageError when no schema can be inferred from the messages of the range.
        """
        options = self._options
        decoding = options.decoding
        if decoding is None or decoding.schema is not None:
            return options
        from rmqcli.admin.read.range import RangeReader, ReadOptions
        from rmqcli.api.client import Client
        from rmqcli.decode.infer import infer_schema
        from rmqcli.spark.rows import first_bodies

        plans = self._pin().plans
        retry = ReadOptions(retry_for_ms=options.retry_for_ms)
        with with_hints(), Client(options.client_config()) as client:
            bodies = first_bodies(
                [plan.offset_range(queue.topic) for queue, plan in plans.items()],
                decoding.infer or 0,
                read=lambda wanted: iter(RangeReader(client, [wanted], retry)),
                tags=options.tags,
            )
            schema = infer_schema(bodies, names=DECODE_NAMES)
        options = replace(options, decoding=replace(decoding, schema=schema))
        self._read_options = options
        return options

    def _sink_options(self, schema: StructType) -> SinkOptions:
        from rmqcli.spark.sink.options import check_columns, parse_sink_options

        options = parse_sink_options(self._given, environ=os.environ)
        check_columns(schema, options)
        return options

    def _pushed(self) -> Pushed:
        """What the scan for which Spark creates this object reads: the whole range."""
        return Pushed()

    def _used(self) -> frozenset[str] | None:
        """The columns that this scan uses; None for all."""
        return None

    def _pin(self) -> Pinned:
        if self._pinned is None:
            start = default_start(is_stream=False)
            with with_hints(), open_client(self._options.client_config()) as client:
                self._pinned = pin(client, self._options, start=start)
                warn_of_departed(client, self._options, self._pinned.plans)
        return self._pinned


@dataclass(eq=False)
class RocketMQReader(DataSourceReader):
    """Reads what the conditions of one scan allow of pinned ranges.

    Pickled to the workers. It has no `pushFilters`: up to Spark 4.3, what one scan
    pushes also changes the other scans of the same `load()`.
    """

    options: SourceOptions
    plans: dict[MessageQueue, QueueRange]
    pushed: Pushed
    used: frozenset[str] | None

    def partitions(self) -> list[InputPartition]:
        """One range for each partition; empty when there is nothing to read.

        Raises PartialError when the broker has removed a part of a range, unless
        `failOnDataLoss` is false.
        """
        with with_hints():
            ranges = partitions_of(self._ranges(), self.options)
        return [InputPartition(each) for each in ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a partition."""
        # For an empty list of partitions Spark passes one without a value, or None.
        wanted = getattr(partition, "value", None)
        if wanted is None:
            return iter(())
        return Reading(self.options, self.pushed.tags, self.used).batches(wanted)

    def _ranges(self) -> list[OffsetRange]:
        plans = {
            queue: plan
            for queue, plan in self.plans.items()
            if self.pushed.keeps(queue)
        }
        report_trimmed(self.options, plans)
        ranges = [
            self.pushed.clip(plan.offset_range(queue.topic))
            for queue, plan in sorted(plans.items())
        ]
        ranges = [each for each in ranges if len(each)]
        start_ms, end_ms = self.pushed.time_start_ms, self.pushed.time_end_ms
        if not ranges or (start_ms is None and end_ms is None):
            return ranges
        return self._inside_times(ranges, start_ms, end_ms)

    def _inside_times(
        self, ranges: list[OffsetRange], start_ms: int | None, end_ms: int | None
    ) -> list[OffsetRange]:
        """The ranges cut to these store times, which have a margin for clock steps.

        A queue whose store times were seen not to be in order is read as a whole.
        """
        from rmqcli.admin.positions import resolve_ranges
        from rmqcli.api.client import Client
        from rmqcli.position import AtTime, Earliest, Latest

        first = Earliest() if start_ms is None else AtTime(start_ms, str(start_ms))
        last = Latest() if end_ms is None else AtTime(end_ms, str(end_ms))
        with Client(self.options.client_config()) as client:
            found = resolve_ranges(client, [r.queue for r in ranges], first, last)
        narrowed = []
        for each in ranges:
            at = found[each.queue]
            if at.is_unsorted:
                narrowed.append(each)
                continue
            start, end = each.start, each.end
            # Of messages below the lowest offset, which have been removed since the
            # range was pinned, nothing tells the times.
            if start_ms is not None and at.start.offset != at.start.min_offset:
                start = max(start, at.offsets.start)
            if end_ms is not None:
                end = min(end, at.offsets.end)
            narrowed.append(OffsetRange(each.queue, start, end))
        return narrowed


def schema_ddl(options: SourceOptions) -> str:
    """The columns of a DataFrame as DDL: those of `rmq export`, changed by options."""
    from rmqcli.decode.schema import ddl_type

    return ", ".join(
        f"`{field.name}` {ddl_type(field.type)}" for field in arrow_schema(options)
    )


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Raise UsageError if the program set a schema that differs from the fixed one."""
    from rmqcli.decode.schema import simple_string

    columns = [(each.name, simple_string(each.type)) for each in arrow_schema(options)]
    if [(each.name, each.dataType.simpleString()) for each in schema] != columns:
        raise UsageError(
            "the schema of rocketmq is fixed",
            hint="leave .schema(...) out, and select or cast the columns",
        )
