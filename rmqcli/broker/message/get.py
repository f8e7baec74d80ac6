"""What a pull reads from a queue: its messages, and the offset of the next pull.

Imitated: every case of an offset that is not in the queue, the limits of one answer
(messages, bytes, entries read), deleted parts of the log. Not imitated: the limits by
consume queue file, cold data. An answer has whole inner batches: a pull from within a
batch gets all of it, and the offsets in the answer are after its end.

Source: `DefaultMessageStore.getMessage` and `isTheBatchFull` in apache/rocketmq.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.store.batch_queue import MESSAGES_MAX
from rmqcli.store.message_store import UNIT_BYTES, QueueUnit
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.layout import read_head
from rmqcli.wire.message.record import InnerMessage, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.filter.message_filter import MessageFilter


#: The most entries that one request may read.
_ENTRIES_MAX: Final = 16_000
#: The most bytes of one answer, because clients refuse longer frames.
_ANSWER_BYTES_MAX: Final = 15 * 1024 * 1024


def properties_of_record(record: bytes) -> Mapping[str, str]:
    """Return a stored record's properties; empty if the record cannot be read.

    Those of an inner batch are the batch's, not those of its messages.
    """
    for message in decode_messages(record):
        if isinstance(message, InnerMessage):
            return message.record.properties
        if isinstance(message, StoredMessage):
            return message.properties
    return {}


class GetStatus(StrEnum):
    """What came of a read: the names of Java's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_RESET = "OFFSET_RESET"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetMessageResult(NamedTuple):
    """The messages that a pull gets, and the next offset.

    `body` holds the records. `is_slow` means that the reader is so far behind that a
    slave should serve it.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    is_slow: bool = False


def get_message(
    broker: BrokerContext,
    topic: str,
    queue_id: int,
    *,
    offset: int,
    max_msg_nums: int,
    message_filter: MessageFilter | None = None,
) -> GetMessageResult:
    """Read messages of a queue from `offset` on."""
    store = broker.store
    bounds = store.queue_bounds(topic, queue_id)
    if bounds is None or bounds[1] <= offset or offset < bounds[0]:
        return _outside(broker, offset, bounds or new_queue_bounds(broker, topic))
    low, high = bounds
    if message_filter is None and topic not in store.batch_topics:
        settings = broker.settings
        count_max = min(
            max(max_msg_nums, 1),
            settings.max_transfer_count_on_message_in_memory,
            high - offset,
            _ENTRIES_MAX,
        )
        units = store.units(topic, queue_id, offset, count_max)
        size_bytes = sum([unit.size_bytes for unit in units])
        bytes_max = min(
            settings.max_transfer_bytes_on_message_in_memory, _ANSWER_BYTES_MAX
        )
        if 0 < size_bytes <= bytes_max and not is_on_disk(
            broker, units[0].commit_log_offset
        ):
            body = store.read_units(units)
            if len(body) == size_bytes:
                end = offset + len(units)
                return GetMessageResult(GetStatus.FOUND, end, low, high, body)
    wanted = _Scan(topic, queue_id, offset, max_msg_nums, message_filter)
    return _scan(broker, wanted, low=low, high=high)


def is_on_disk(broker: BrokerContext, commit_log_offset: int) -> bool:
    """Whether a message is so old that RocketMQ assumes it is not in memory."""
    in_memory = broker.settings.in_memory_bytes_max
    if in_memory is None:
        return False
    return broker.store.log_bounds()[1] - commit_log_offset > in_memory


def _outside(
    broker: BrokerContext, offset: int, bounds: tuple[int, int]
) -> GetMessageResult:
    """Return the result for an offset that is not in the queue, in RocketMQ's order."""
    settings = broker.settings
    is_corrected = settings.broker_id == 0 or settings.offset_check_in_slave
    low, high = bounds
    if high == 0:
        status, right = GetStatus.NO_MESSAGE_IN_QUEUE, 0
    elif offset < low:
        status, right = GetStatus.OFFSET_TOO_SMALL, low
    elif offset == high:
        status, right = GetStatus.OFFSET_OVERFLOW_ONE, offset
    else:
        status = GetStatus.OFFSET_OVERFLOW_BADLY
        right = 0 if low == 0 and broker.profile.overflow_starts_over else high
    return GetMessageResult(status, right if is_corrected else offset, low, high)


def new_queue_bounds(broker: BrokerContext, topic: str) -> tuple[int, int]:
    """Return the bounds of a queue that has had no messages: -1 and 0 with batches.

    RocketMQ creates the queue at the first request.
    """
    return (-1 if topic in broker.store.batch_topics else 0), 0


class _Scan(NamedTuple):
    topic: str
    queue_id: int
    offset: int
    max_msg_nums: int
    message_filter: MessageFilter | None


def _scan(
    broker: BrokerContext, wanted: _Scan, *, low: int, high: int
) -> GetMessageResult:
    """Read entry after entry until the answer is full."""
    read_max = broker.settings.max_filter_message_size // UNIT_BYTES
    entries_max = max(read_max, wanted.max_msg_nums, 1)
    # No answer needs more entries than this, which limits the cost of a request.
    entries_max = min(entries_max, high - wanted.offset, _ENTRIES_MAX)
    units = list(
        broker.store.units(wanted.topic, wanted.queue_id, wanted.offset, entries_max)
    )
    if not units:
        return GetMessageResult(GetStatus.OFFSET_FOUND_NULL, wanted.offset, low, high)
    if wanted.topic in broker.store.batch_topics:
        units += _rest_of_batch(broker, wanted, units)
    status, taken, records = _choose(broker, wanted, units)
    is_slow = taken > 0 and is_on_disk(broker, units[taken - 1].commit_log_offset)
    end, body = wanted.offset + taken, b"".join(records)
    return GetMessageResult(status, end, low, high, body, is_slow)


def _rest_of_batch(
    broker: BrokerContext, wanted: _Scan, units: Sequence[QueueUnit]
) -> list[QueueUnit]:
    """Return the entries after `units` that belong to the batch of the last one."""
    at = wanted.offset + len(units)
    later = broker.store.units(wanted.topic, wanted.queue_id, at, MESSAGES_MAX)
    return list(takewhile(lambda unit: unit == units[-1], later))


def _choose(
    broker: BrokerContext, wanted: _Scan, units: Sequence[QueueUnit]
) -> tuple[GetStatus, int, list[bytes]]:
    """Return the status, the number of entries passed, and the matching records."""
    store, message_filter = broker.store, wanted.message_filter
    condition = None if message_filter is None else message_filter.condition
    status, records, total_bytes = GetStatus.NO_MATCHED_MESSAGE, list[bytes](), 0
    log_start = store.log_bounds()[0]
    passed = messages = 0
    for unit, equal in groupby(units):  # equal ones are those of a batch
        count = sum(1 for _ in equal)
        if records:
            bytes_max, count_max = _limits(broker, unit)
            if (
                messages + count > wanted.max_msg_nums
                or messages >= count_max
                or total_bytes + unit.size_bytes > bytes_max
            ):
                break
        passed += count
        if message_filter is not None and not message_filter.matches_unit(
            unit.tags_code
        ):
            if not records:
                status = GetStatus.NO_MATCHED_MESSAGE
            continue
        record = None
        if unit.commit_log_offset >= log_start:
            record = store.read(unit.commit_log_offset, unit.size_bytes)
        if record is None:
            if not records:
                status = GetStatus.MESSAGE_WAS_REMOVING
            continue
        if condition is not None and not condition(properties_of_record(record)):
            if not records:
                status = GetStatus.NO_MATCHED_MESSAGE
            continue
        if not records and wanted.topic in store.batch_topics:
            # A pull from within a batch gets its first messages, too.
            head = read_head(record, 0)
            if head is not None:
                count = wanted.offset + passed - head.queue_offset
        status = GetStatus.FOUND
        records.append(record)
        messages += count
        total_bytes += len(record)
    return status, passed, records


def _limits(broker: BrokerContext, unit: QueueUnit) -> tuple[int, int]:
    """Return the most bytes of an answer with `unit`, and of messages before it."""
    settings = broker.settings
    if is_on_disk(broker, unit.commit_log_offset):
        bytes_max = settings.max_transfer_bytes_on_message_in_disk
        count_max = settings.max_transfer_count_on_message_in_disk
    else:
        bytes_max = settings.max_transfer_bytes_on_message_in_memory
        count_max = settings.max_transfer_count_on_message_in_memory
    return min(bytes_max, _ANSWER_BYTES_MAX), count_max
