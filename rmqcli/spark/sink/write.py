"""The writers of the sink, which Spark pickles to its workers and calls there.

Each task sends its rows in order, in batches, with a producer of its own, and reports
how many messages are stored. Rows arrive as Arrow batches where PySpark has an Arrow
writer: in every version for `df.write`, and from 4.1 on for `df.writeStream`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyspark.sql.datasource as api
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from rmqcli.dataclass import dataclass
from rmqcli.errors import DeniedError, PartialError, RmqError, UsageError
from rmqcli.hint import Hint, LibraryCall
from rmqcli.spark.messages import message_rows, messages_of
from rmqcli.spark.shown_errors import open_client, warn, with_hints
from rmqcli.units import counted
from rmqcli.wire.ids import message_group_index
from rmqcli.wire.message.properties import SHARDING_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import Row

    from rmqcli.model import MessageQueue
    from rmqcli.producer.batches import BatchSender, Gathered
    from rmqcli.producer.message import RecordMessage
    from rmqcli.producer.producer import Producer
    from rmqcli.spark.sink.options import SinkOptions

#: Rows that are converted to messages at once, since an Arrow batch of Spark may hold
#: large bodies.
_ROWS: Final = 1_024
#: Messages that are sent concurrently, because they cannot be in batches.
_APART_MAX: Final = 256
#: Messages that may wait for their batches to fill, over all queues.
_WAITING_MAX: Final = 16_384

#: A message, with the queue id and the sharding key of its row; each may be None.
Placed: TypeAlias = "tuple[RecordMessage, int | None, str | None]"


@dataclass
class Written(WriterCommitMessage):
    """How many messages a task has stored.

    `unsure` counts the messages that may be stored twice, and `weak` the ones that are
    stored although the broker could not flush or replicate them in time.
    """

    messages: int
    unsure: int
    weak: int


@dataclass(frozen=True, slots=True)
class Writing:
    """Sends the rows of a task. Pickled to the workers."""

    options: SinkOptions

    def check_topic(self) -> None:
        """Raise NotFoundError or DeniedError for a topic that cannot be written to."""
        topic = self.options.topic
        if topic is None:
            return
        with open_client(self.options.connection.client_config()) as client:
            route = client.route(topic, refresh=True)
        if not route.write_queues():
            raise DeniedError(
                f"topic {topic} has no writable queue",
                code=16,
                name="NO_PERMISSION",
                hint=Hint(
                    "read the topic's permissions with ", LibraryCall("Admin.topic")
                ),
            )

    def send_arrow(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of Arrow batches. Raises the errors of `send`."""
        topic = self.options.topic
        return self.send(
            placed
            for batch in batches
            for start in range(0, batch.num_rows, _ROWS)
            for placed in _placed(batch.slice(start, _ROWS), topic)
        )

    def send_rows(self, rows: Iterator[Row]) -> Written:
        """Send Spark's rows. Raises the errors of `send`."""
        topic = self.options.topic

        def messages() -> Iterator[Placed]:
            for row in rows:
                columns = {
                    name.lower(): (value,) for name, value in row.asDict().items()
                }
                (queue_id,) = columns.pop("queue_id", (None,))
                (sharding_key,) = columns.pop("sharding_key", (None,))
                for message in message_rows(columns, rows=1, topic=topic):
                    yield message, queue_id, sharding_key

        return self.send(messages())

    def send(self, messages: Iterable[Placed]) -> Written:
        """Send messages in batches for each topic; return when all are stored.

        Messages for a specific queue are sent in batches for that queue, in order.

        Raises PartialError, which says how many messages of the task are stored, or the
        original error when none is stored.
        """
        from rmqcli.producer.batches import BatchSender, Gathered, goes_apart
        from rmqcli.producer.config import ProducerConfig
        from rmqcli.producer.producer import Producer

        # The sink sends to brokers even when the environment names a proxy.
        client_config = replace(self.options.connection.client_config(), endpoints=())
        config = ProducerConfig(
            # An attempt that gets no answer is repeated: delivery is at least once.
            send_msg_max_timeout_per_request_ms=client_config.timeout_ms,
            send_msg_timeout_ms=3 * client_config.timeout_ms,
            max_message_size_bytes=16 << 20,  # the broker applies its own limit
            create_topic_key=None,
        )
        gathered: dict[tuple[str, MessageQueue | None], Gathered[RecordMessage]] = {}
        apart: list[RecordMessage] = []
        waiting = 0
        with with_hints(), Producer(client=client_config, config=config) as producer:
            sender = BatchSender(producer)
            counts = sender.counts
            queues = _Queues(producer)
            try:
                for message, queue_id, sharding_key in messages:
                    queue = queues.chosen(message, queue_id, sharding_key)
                    if message.is_delayed and queue is not None:
                        sender.send([message], queue=queue)
                        continue
                    if queue is None and goes_apart(message):
                        apart.append(message)
                        if len(apart) >= _APART_MAX:
                            sender.send_apart(apart)
                            apart.clear()
                        continue
                    place = message.topic, queue
                    there = gathered.get(place)
                    if there is None:
                        there = gathered[place] = Gathered(has_queue=queue is not None)
                    waiting += 1
                    for batch in there.add(message):
                        waiting -= len(batch)
                        sender.send(batch, queue=queue)
                    if waiting >= _WAITING_MAX:
                        _send_rest(gathered, sender)
                        waiting = 0
                _send_rest(gathered, sender)
                sender.send_apart(apart)
            except RmqError as error:
                if not counts.stored:
                    raise
                raise PartialError(
                    f"{error.message}; stored before the error:"
                    f" {counted(counts.stored, 'message')} of this task",
                    hint=error.hint
                    or "if Spark runs the task again, expect them twice",
                ) from error
        return Written(counts.stored, counts.unsure, counts.weak)


def _send_rest(
    gathered: Mapping[tuple[str, MessageQueue | None], Gathered[RecordMessage]],
    sender: BatchSender,
) -> None:
    for (_, queue), there in gathered.items():
        for batch in there.rest():
            sender.send(batch, queue=queue)


def _placed(batch: pa.RecordBatch, topic: str | None) -> Iterator[Placed]:
    """The messages of a batch, each with the queue id and sharding key of its row."""
    batch = batch.rename_columns([name.lower() for name in batch.schema.names])

    def column(name: str) -> list[Any]:
        if name not in batch.schema.names:
            return [None] * batch.num_rows
        values: list[Any] = batch.column(name).to_pylist()
        return values

    return zip(
        messages_of(batch, topic=topic),
        column("queue_id"),
        column("sharding_key"),
        strict=True,
    )


class _Queues:
    """Chooses the queue of each message.

    The queues of a topic are looked up once, when a message first needs them.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._of_topics: dict[str, list[MessageQueue]] = {}

    def chosen(
        self, message: RecordMessage, queue_id: int | None, sharding_key: str | None
    ) -> MessageQueue | None:
        """The queue of a message; None when the row leaves the choice to the producer.

        A message group that no column overrules goes where a proxy stores it.
        Raises UsageError when no queue has the id, when queues on several brokers have
        it, and when the row has both an id and a sharding key. Also raises the errors
        of `Producer.queues`.
        """
        message_group = None
        if queue_id is None and sharding_key is None:
            message_group = message.properties.get(SHARDING_KEY)
            if not message_group or message.is_delayed:
                return None
        topic = message.topic
        queues = self._of_topics.get(topic)
        if queues is None:
            queues = self._of_topics[topic] = self._producer.queues(topic)
        if message_group:
            return queues[message_group_index(message_group, len(queues))]
        if queue_id is None:
            from rmqcli.producer.producer import select_by_hash

            return select_by_hash(queues, message, sharding_key)
        if sharding_key is not None:
            raise UsageError(
                f"a row has queue_id {queue_id} and sharding_key {sharding_key!r}",
                hint="leave one of them null",
            )
        found = [queue for queue in queues if queue.queue_id == queue_id]
        if len(found) == 1:
            return found[0]
        if found:
            brokers = ", ".join(queue.broker_name for queue in found)
            raise UsageError(
                f"queue_id {queue_id} of topic {topic} is ambiguous: brokers {brokers}"
                " each have a queue of this id",
                hint="choose queues with column sharding_key instead",
            )
        raise UsageError(
            f"topic {topic} has no writable queue {queue_id}",
            hint=f"use one of {', '.join(str(q.queue_id) for q in queues[:20])}",
        )


class _Writer:
    """The parts that the writers share. Pickled to the workers."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803  # Spark's, of a micro-batch
    ) -> None:
        """Warn on stderr about messages that may be stored twice or not safely."""
        written = [each for each in messages if isinstance(each, Written)]
        unsure, weak = sum(w.unsure for w in written), sum(w.weak for w in written)
        if unsure:
            may_be_twice = counted(unsure, "message")
            warn(f"{may_be_twice} may be stored twice: a broker did not answer in time")
        if weak:
            stored = counted(weak, "stored message")
            warn(f"the broker could not flush or replicate {stored} in time")

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int | None = None,  # noqa: N803  # as above
    ) -> None:
        """Report on stderr which messages are stored although the write failed."""
        done = [each for each in messages if isinstance(each, Written)]
        stored = sum(each.messages for each in done)
        warn(
            f"the write failed, but {counted(stored, 'message is', 'messages are')}"
            f" stored by {counted(len(done), 'finished task')}, as are messages that"
            " other tasks have sent: messages cannot be withdrawn, and writing again"
            " stores them again"
        )


class RocketMQWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of a task. Raises the errors of `Writing.send`."""
        return self._writing.send_arrow(iterator)


class RowStreamWriter(_Writer, DataSourceStreamWriter):
    """Writes the micro-batches of a stream, row by row."""

    def write(self, iterator: Iterator[Row]) -> Written:
        """Send the rows of a task. Raises the errors of `Writing.send`."""
        return self._writing.send_rows(iterator)


if hasattr(api, "DataSourceStreamArrowWriter"):

    class ArrowStreamWriter(_Writer, api.DataSourceStreamArrowWriter):
        """Writes the micro-batches of a stream."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
            """Send the rows of a task. Raises the errors of `Writing.send`."""
            return self._writing.send_arrow(iterator)


def _refuse_overwrite(is_asked: bool, instead: str) -> None:
    if is_asked:
        raise UsageError(
            "a topic cannot be overwritten: messages can only be added",
            hint=f"write {instead}",
        )


def batch_writer(options: SinkOptions, *, overwrite: bool) -> RocketMQWriter:
    """The writer of a DataFrame. Raises UsageError for a mode other than append.

    Raises NotFoundError or DeniedError for a topic that cannot be written to.
    """
    _refuse_overwrite(overwrite, '.mode("append")')
    writer = RocketMQWriter(options)
    Writing(options).check_topic()
    return writer


def stream_writer(options: SinkOptions, *, overwrite: bool) -> DataSourceStreamWriter:
    """The writer of a stream. Raises UsageError for the output mode complete.

    The topic is not looked up here, because the name servers may be briefly
    unavailable; each task looks it up.
    """
    _refuse_overwrite(overwrite, '.outputMode("append")')
    if hasattr(api, "DataSourceStreamArrowWriter"):
        return ArrowStreamWriter(options)
    return RowStreamWriter(options)
