"""Read one partition, in a Spark worker, as Arrow batches with the export's columns.

When a task is repeated, it reads its partition again from the beginning. Messages that
are lost or cannot be decoded are never skipped silently: they fail the task or, when
`failOnDataLoss` is false, are reported on the worker's stderr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    DecodeError,
    NotFoundError,
    PartialError,
    RmqError,
    TransportError,
)
from rmqcli.spark.rows import RangeRows, body_decoder, row_schema
from rmqcli.spark.shown_errors import warn, with_hints
from rmqcli.spark.source.pinned import report_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue, OffsetRange
    from rmqcli.spark.source.options import SourceOptions
    from rmqcli.wire.message.record import DecodeFailure

T = TypeVar("T")

#: Spark's JVM holds a whole batch in memory outside its heap, which has the same limit
#: as the heap.
BATCH_BYTES_MAX: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads partitions. Pickled to workers.

    `pushed_tags` are the tags that a WHERE allows, None when it has no condition on
    tags. `used` are the columns that the scan uses, None for all: the others are null.
    Only all columns can be used with `decoding`.
    """

    options: SourceOptions
    pushed_tags: frozenset[str] | None = None
    used: frozenset[str] | None = None

    def batches(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range in offset order.

        Unless `failOnDataLoss` is false, raises PartialError for messages that the
        broker no longer has and DecodeError for records that cannot be decoded. Raises
        TransportError or BrokerError when a broker does not answer for the time of
        option `retryFor`.
        """
        with with_hints():
            yield from self._batches(wanted)

    def _batches(self, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
        from rmqcli.admin.read.range import RangeReader, ReadOptions
        from rmqcli.api.client import Client

        tags = self._tags()
        if tags is not None and not tags:
            return  # the option and WHERE have no tag in common
        decode = body_decoder(self.options.decoding)
        retry = ReadOptions(
            retry_for_ms=self.options.retry_for_ms,
            on_trouble=lambda queue, error: _warn_of_trouble(queue.broker_name, error),
        )
        with Client(self.options.client_config()) as client:
            _wait_for_broker(client, wanted.queue, self.options)
            rows = RangeRows(
                wanted,
                iter(RangeReader(client, [wanted], retry)),
                tags=tags or frozenset(),
                columns=self._decoded(with_tags=bool(tags)),
            )
            for portion in rows:
                for failure in portion.failures:
                    self._undecodable(wanted, failure)
                if portion.batch is not None:
                    for batch, _ in decode(portion.batch):
                        yield from self._shaped(batch)
            _, missing = rows.counts.close()
            if missing:
                report_loss(self.options, wanted.queue, missing)

    def _tags(self) -> frozenset[str] | None:
        """The tags that both the option and WHERE allow; None for all messages."""
        chosen = self.options.tags or None
        if self.pushed_tags is None or chosen is None:
            return chosen if self.pushed_tags is None else self.pushed_tags
        return chosen & self.pushed_tags

    def _decoded(self, *, with_tags: bool) -> frozenset[str]:
        """The columns to decode: those that are used, or that choose rows."""
        from rmqcli.wire.message.columns import message_schema

        every = frozenset(message_schema().names)
        used = every if self.used is None else self.used & every
        if not self.options.with_properties:
            used -= {"properties"}
        if not self.options.with_body and self.options.decoding is None:
            used -= {"body"}
        return used | {"queue_offset"} | ({"tags"} if with_tags else set())

    def _shaped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the batch with all columns, in pieces small enough for Spark."""
        if not batch.num_rows:
            return
        if not self.options.with_body and "body" in batch.schema.names:
            batch = batch.drop_columns(["body"])  # it was decoded
        if self.used is not None:
            batch = _with_nulls(batch, arrow_schema(self.options))
        pieces = -(-batch.nbytes // BATCH_BYTES_MAX)
        rows = -(-batch.num_rows // pieces)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)

    def _undecodable(self, wanted: OffsetRange, failure: DecodeFailure) -> None:
        offset = failure.queue_offset
        at = "an unknown offset" if offset is None else f"offset {offset}"
        text = f"{wanted.queue}: the record at {at} cannot be read: {failure.error}"
        if self.options.fail_on_undecodable:
            raise DecodeError(
                text, hint='to leave it out: .option("failOnDataLoss", "false")'
            )
        warn(text)


def arrow_schema(options: SourceOptions) -> pa.Schema:
    """The schema of every batch."""
    schema = row_schema(options.decoding)
    for name, is_there in (
        ("properties", options.with_properties),
        ("body", options.with_body),
    ):
        if not is_there:
            schema = schema.remove(schema.get_field_index(name))
    return schema


def _with_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of a schema; those that it lacks are null."""
    import pyarrow as pa

    there = set(batch.schema.names)
    arrays = [
        batch.column(field.name)
        if field.name in there
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _wait_for_broker(
    client: Client, queue: MessageQueue, options: SourceOptions
) -> None:
    """Wait until the route has a queue's broker, as it had when the range was pinned.

    A broker is not registered with the name servers while it restarts. Raises
    PartialError when it does not come back within the time of option `retryFor`, and
    TransportError when no name server answers.
    """

    def ask() -> None:
        client.route(queue.topic, refresh=True)
        client.reader_of(queue)

    try:
        retried(
            client,
            ask,
            options,
            may_pass=lambda error: isinstance(error, NotFoundError | TransportError),
            on_trouble=lambda error: _warn_of_trouble(queue.broker_name, error),
        )
    except NotFoundError as error:
        raise PartialError(
            f"{queue}: its broker is not registered with the name servers",
            hint="start the broker, then run the query again",
        ) from error


def _warn_of_trouble(broker_name: str, error: RmqError) -> None:
    warn(f"{broker_name}: {error.message}; retrying")


def retried(
    client: Client,
    ask: Callable[[], T],
    options: SourceOptions,
    *,
    may_pass: Callable[[RmqError], bool],
    on_trouble: Callable[[RmqError], None] | None = None,
) -> T:
    """Call `ask` until it succeeds, for the time of option `retryFor` at most.

    That is long enough for a broker to restart. Raises the last error when the time is
    over, and at once an error for which `may_pass` is false. `on_trouble` is called
    once, with the first error.
    """
    deadline = Deadline(client.clock, options.retry_for_ms)
    is_told = False
    while True:
        try:
            return ask()
        except RmqError as error:
            if not may_pass(error) or deadline.is_over():
                raise
            if on_trouble is not None and not is_told:
                is_told = True
                on_trouble(error)
        client.poll(min(options.retry_every_ms, max(1, deadline.left_ms())))
