"""Send the messages of an export in batches, one queue after the other in turn.

The messages of a queue keep their order. Only one batch is sent at a time, and it is
recorded in the state before the next one is sent. So an import that was killed sends at
most one batch twice when it continues.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from rmqcli.dataclass import dataclass
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue
from rmqcli.producer.batches import Gathered, queue_by_content
from rmqcli.producer.message import OutgoingMessage, check_message
from rmqcli.spark.extent import NotedMessage
from rmqcli.spark.imports.rows import queue_messages
from rmqcli.spark.imports.state import SentApart, check_written, last_written

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqcli.producer.backend import SendResult
    from rmqcli.producer.batches import SentCounts
    from rmqcli.producer.message import ProducerMessage, RecordMessage
    from rmqcli.spark.extent import QueueKey
    from rmqcli.spark.imports.plan import ExportContent, QueueFiles
    from rmqcli.spark.imports.state import ImportState


class Sends(Protocol):
    """The part of `BatchSender` that an import uses; tests pass a fake."""

    counts: SentCounts

    def send(
        self, messages: Sequence[ProducerMessage], *, queue: MessageQueue | None = None
    ) -> SendResult: ...


@dataclass(frozen=True, slots=True)
class ImportBatch:
    """Messages of one exported queue, with their offsets in the export."""

    key: QueueKey
    messages: list[RecordMessage]
    offsets: list[int]


def run_import(
    content: ExportContent,
    topic: str,
    *,
    state: ImportState,
    sender: Sends,
    queues: Sequence[MessageQueue] = (),
) -> Iterator[int]:
    """Send the messages that the state does not record as sent, in batches.

    `queues` are those of the topic, sorted, if they do not match those of the export:
    messages of a message group, and those with a priority, then go where they belong.

    Yields the number of messages of each batch, after the batch is stored and the state
    on disk records it. Raises the errors of `BatchSender.send` and `queue_messages`. A
    UsageError for a message that cannot be sent names its offset. RefusedError if the
    topic turns out to be another one than before: the state then keeps the message by
    which the next run notices it, too.
    """
    written = last_written(state.queues.values())
    turns = deque(
        _batches(content, queue, start=state.queues[queue.key].next_offset, topic=topic)
        for queue in content.queues
    )
    while turns:
        batch = next(turns[0], None)
        if batch is None:
            turns.popleft()
            continue
        turns.rotate(-1)
        place = state.queues[batch.key]
        usual = MessageQueue(topic, place.to_broker_name, place.to_queue_id)
        last = None
        apart = []
        for target, messages in _by_queue(batch, queues, usual).items():
            try:
                result = sender.send(messages, queue=target)
            except UsageError:
                _raise_first_fault(batch)
                raise
            noted = _noted(result)
            key = target.broker_name, target.queue_id
            if noted is not None:
                before = written.get(key)
                if before is not None:
                    first = noted.queue_offset - len(messages) + 1
                    check_written(target, first, before, path=state.path)
                written[key] = noted
            if target == usual:
                last = noted
            else:
                apart.append(SentApart(*key, len(messages), noted))
        count, end = len(batch.messages), batch.offsets[-1] + 1
        state.note(batch.key, next_offset=end, sent=count, last=last, apart=apart)
        yield count


def _by_queue(
    batch: ImportBatch, queues: Sequence[MessageQueue], usual: MessageQueue
) -> dict[MessageQueue, list[RecordMessage]]:
    """Return the messages of a batch by the queue that receives them, in order."""
    if not queues:
        return {usual: batch.messages}
    found: dict[MessageQueue, list[RecordMessage]] = {}
    for message in batch.messages:
        target = queue_by_content(message, queues, usual)
        found.setdefault(target, []).append(message)
    return found


def _batches(
    content: ExportContent, queue: QueueFiles, *, start: int, topic: str
) -> Iterator[ImportBatch]:
    gathered: Gathered[RecordMessage] = Gathered(has_queue=True)
    offsets: deque[int] = deque()

    def made(messages: list[RecordMessage]) -> ImportBatch:
        return ImportBatch(queue.key, messages, [offsets.popleft() for _ in messages])

    for offset, message in queue_messages(content, queue, start=start, topic=topic):
        offsets.append(offset)
        for messages in gathered.add(message):
            yield made(messages)
    for messages in gathered.rest():
        yield made(messages)


def _noted(last: SendResult) -> NotedMessage | None:
    if last.queue_offset is None:
        return None
    return NotedMessage(last.queue_offset, last.msg_id, None)


def _raise_first_fault(batch: ImportBatch) -> None:
    """Raise UsageError that names the first message of a batch that cannot be sent."""
    for offset, message in zip(batch.offsets, batch.messages, strict=True):
        where = f"{batch.key[0]}:{batch.key[1]} offset {offset}"
        check_message(
            OutgoingMessage(message.body, message.all_properties(), source=where)
        )
