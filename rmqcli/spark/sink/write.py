"""The writers of the sink: what Spark pickles to its workers and calls there.

Each task sends its rows in their order, in batches, with a producer of its own, and
says how many it has stored. Batches come as Arrow where PySpark has a writer for it: in
every version for a batch, from 4.1 on for a stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyspark.sql.datasource as api
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from rmqcli.errors import DeniedError, PartialError, RmqError, UsageError
from rmqcli.spark.messages import message_rows, messages_of
from rmqcli.spark.shown_errors import warn, with_hints

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import Row

    from rmqcli.producer.message import RecordMessage
    from rmqcli.spark.sink.options import SinkOptions

#: Rows that become objects at once: an Arrow batch of Spark may hold large bodies.
_ROWS: Final = 1_024
#: Delayed messages that wait for their answers side by side: no batch can hold them.
_DELAYED_MAX: Final = 256


@dataclass
class Written(WriterCommitMessage):
    """What a task has stored. `unsure` of the messages may be stored twice.

    `weak` of them are stored, but the broker could not flush or replicate them in time.
    """

    messages: int
    unsure: int
    weak: int


@dataclass(frozen=True, slots=True)
class Writing:
    """How the rows of a task are sent. Pickled to workers."""

    options: SinkOptions

    def check_topic(self) -> None:
        """Raise NotFoundError or DeniedError for a topic that cannot be written to."""
        from rmqcli.api.client import Client

        topic = self.options.topic
        if topic is None:
            return
        with Client(self.options.connection.client_config()) as client:
            route = client.route(topic, refresh=True)
        if not route.write_queues():
            raise DeniedError(
                f"topic {topic} has no queue that can be written",
                code=16,
                name="NO_PERMISSION",
                hint="read the topic's permissions with Admin.topic",
            )

    def send_arrow(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of Arrow batches. Raises as `send`."""
        topic = self.options.topic
        return self.send(
            message
            for batch in batches
            for start in range(0, batch.num_rows, _ROWS)
            for message in messages_of(batch.slice(start, _ROWS), topic=topic)
        )

    def send_rows(self, rows: Iterator[Row]) -> Written:
        """Send Spark's rows. Raises as `send`."""
        topic = self.options.topic

        def messages() -> Iterator[RecordMessage]:
            for row in rows:
                columns = {name: (value,) for name, value in row.asDict().items()}
                yield from message_rows(columns, rows=1, topic=topic)

        return self.send(messages())

    def send(self, messages: Iterable[RecordMessage]) -> Written:
        """Send messages in batches for each topic; returns when all are stored.

        Raises PartialError, which says how many of the task are stored, or the error
        itself when none is.
        """
        from rmqcli.producer.batches import BatchSender, Gathered
        from rmqcli.producer.config import ProducerConfig
        from rmqcli.producer.producer import Producer

        # Where the environment names a proxy, the brokers are meant nevertheless.
        client_config = replace(self.options.connection.client_config(), endpoints=())
        config = ProducerConfig(
            # An attempt without an answer is followed by another: at least once.
            send_msg_max_timeout_per_request_ms=client_config.timeout_ms,
            send_msg_timeout_ms=3 * client_config.timeout_ms,
            max_message_size_bytes=16 << 20,  # what is too large the broker knows
            create_topic_key=None,
        )
        gathered: dict[str, Gathered[RecordMessage]] = {}
        delayed: list[RecordMessage] = []
        with with_hints(), Producer(client=client_config, config=config) as producer:
            sender = BatchSender(producer)
            counts = sender.counts
            try:
                for message in messages:
                    if message.is_delayed:
                        delayed.append(message)
                        if len(delayed) >= _DELAYED_MAX:
                            sender.send_apart(delayed)
                            delayed.clear()
                        continue
                    of_topic = gathered.get(message.topic)
                    if of_topic is None:
                        of_topic = gathered[message.topic] = Gathered()
                    for batch in of_topic.add(message):
                        sender.send(batch)
                for of_topic in gathered.values():
                    for batch in of_topic.rest():
                        sender.send(batch)
                sender.send_apart(delayed)
            except RmqError as error:
                if not counts.stored:
                    raise
                raise PartialError(
                    f"{error.message}; {counts.stored} messages of this task were"
                    " stored before",
                    hint=error.hint
                    or "they are stored again when Spark runs the task again",
                ) from error
        return Written(counts.stored, counts.unsure, counts.weak)


class RocketMQWriter(DataSourceArrowWriter):
    """Writes a DataFrame. Pickled to the workers."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task, in a worker. Raises as `Writing.send`."""
        return self._writing.send_arrow(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say on stderr what is not certain; everything is stored by now."""
        report(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Say on stderr what is stored nevertheless."""
        report_abort(messages)


class _StreamWriter:
    """The parts of a stream's writer that its two classes share."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's signature
    ) -> None:
        """As `RocketMQWriter.commit`, of a micro-batch."""
        report(messages)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803  # Spark's signature
    ) -> None:
        """As `RocketMQWriter.abort`, of a micro-batch."""
        report_abort(messages)


class RowStreamWriter(_StreamWriter, DataSourceStreamWriter):
    """Writes the micro-batches of a stream, row by row. Pickled to the workers."""

    def write(self, iterator: Iterator[Row]) -> Written:
        """Send the rows of a task, in a worker. Raises as `Writing.send`."""
        return self._writing.send_rows(iterator)


if hasattr(api, "DataSourceStreamArrowWriter"):

    class ArrowStreamWriter(_StreamWriter, api.DataSourceStreamArrowWriter):
        """Writes the micro-batches of a stream. Pickled to the workers."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            """Send the rows of a task, in a worker. Raises as `Writing.send`."""
            return self._writing.send_arrow(iterator)


def batch_writer(options: SinkOptions, *, overwrite: bool) -> RocketMQWriter:
    """The writer of a DataFrame. Raises UsageError for a mode other than append.

    Raises NotFoundError or DeniedError for a topic that cannot be written to.
    """
    if overwrite:
        raise UsageError(
            "a topic cannot be overwritten: messages can only be added",
            hint='write .mode("append")',
        )
    writer = RocketMQWriter(options)
    Writing(options).check_topic()
    return writer


def stream_writer(options: SinkOptions, *, overwrite: bool) -> DataSourceStreamWriter:
    """The writer of a stream. Raises UsageError for the output mode complete.

    The topic is not looked for here: the name servers may be away for a moment, and
    each task looks for it.
    """
    if overwrite:
        raise UsageError(
            "a topic cannot be overwritten: messages can only be added",
            hint='write .outputMode("append")',
        )
    if hasattr(api, "DataSourceStreamArrowWriter"):
        return ArrowStreamWriter(options)
    return RowStreamWriter(options)


def report(messages: Iterable[WriterCommitMessage | None]) -> None:
    """Warn about messages that are stored, and perhaps not once or not safely."""
    written = [each for each in messages if isinstance(each, Written)]
    unsure, weak = sum(w.unsure for w in written), sum(w.weak for w in written)
    if unsure:
        warn(f"{unsure} messages may be stored twice: a broker did not answer in time")
    if weak:
        warn(f"the broker could not flush or replicate {weak} stored messages in time")


def report_abort(messages: Iterable[WriterCommitMessage | None]) -> None:
    """Say what a write that failed has left behind."""
    done = [each for each in messages if isinstance(each, Written)]
    warn(
        f"the write failed; {sum(each.messages for each in done)} messages of"
        f" {len(done)} finished tasks are stored, and what other tasks had sent:"
        " messages cannot be taken back, and writing again stores them again"
    )
