"""Decodes, counts and matches the records in answers to view and query requests.

Sends nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.admin.delayed import TIMER_TOPIC
from rmqcli.api.calls.store import QUERY_MESSAGE_MAX
from rmqcli.engine.message import Origin, PulledItem, PulledRecord
from rmqcli.model import SCHEDULE_TOPIC, MessageQueue
from rmqcli.units import read_count
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY
from rmqcli.wire.message.record import DecodeFailure, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from rmqcli.engine.message import PulledMessage

#: Where brokers keep messages that no consumer gets yet.
PENDING_TOPICS: Final = (
    "RMQ_SYS_TRANS_HALF_TOPIC",  # TopicValidator.RMQ_SYS_TRANS_HALF_TOPIC
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)


def waits_for(record: StoredMessage, topics: Collection[str]) -> bool:
    """Whether a record in a topic of brokers is a message that waits for `topics`.

    A recall is a record there, too, but not a message.
    """
    properties = record.properties
    return properties.get(REAL_TOPIC) in topics and TIMER_DEL_UNIQKEY not in properties


def count_records(body: bytes) -> int:
    """Return how many records there are, readable or not; a batch may be one."""
    count = at = 0
    while at < len(body):
        count += 1
        at += max(4, int.from_bytes(body[at : at + 4]))
    return count


def decode_found(body: bytes, broker_name: str) -> list[PulledMessage]:
    """Decode records of any queues of a broker; unreadable ones are left out."""
    return decode_all(body, broker_name)[0]


def decode_all(
    body: bytes, broker_name: str
) -> tuple[list[PulledMessage], list[DecodeFailure]]:
    """Decode records of any queues of a broker; the unreadable ones come second."""
    found: list[PulledMessage] = []
    unreadable: list[DecodeFailure] = []
    plain = decode_messages(body)
    pulled = decode_messages(body, record_type=PulledRecord, item_type=PulledItem)
    for stored, message in zip(plain, pulled, strict=True):
        if not isinstance(stored, StoredMessage):
            unreadable.append(stored)
            continue
        assert isinstance(message, PulledRecord | PulledItem)  # noqa: S101
        queue = MessageQueue(stored.topic, broker_name, stored.queue_id)
        message.origin = Origin(queue, 0, 0)
        found.append(message)
    return found, unreadable


def stored_order(message: PulledMessage) -> tuple[int, int, int]:
    """The key by which messages are sorted: by time, and on one broker as they came."""
    return message.store_timestamp_ms, message.commit_log_offset, message.queue_offset


def query_message_max(settings: Mapping[str, str]) -> int | None:
    """Return how many messages a broker with these settings returns at a time."""
    count = read_count(settings.get("maxMsgsNumBatch"))
    return None if count is None else min(count, QUERY_MESSAGE_MAX)
