"""Committed offsets and their resets, as brokers and clients exchange them.

Source: ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper, ResetOffsetBody,
ResetOffsetBodyForC, GetConsumerStatusBody, OffsetSerializeWrapper, OffsetMovedEvent,
GroupList in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.body import Body, reader_of
from rmqcli.wire.fields import declared, wire_field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.wire.fastjson import JsonValue

TOPIC_GROUP_SEPARATOR = "@"  # ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR


@declared
class ConsumerOffsetSerializeWrapper(Body):
    """The answer to GET_ALL_CONSUMER_OFFSET (43), and consumerOffset.json.

    The tables map `topic@group` -> queue id -> offset. An absent queue has never been
    committed.
    """

    data_version: DataVersion | None = None  # 5.0
    group_topic_map: dict[str, list[str]] | None = None  # 5.0
    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    pull_offset_table: dict[str, dict[int, int]] | None = None  # 5.0

    def by_group_and_topic(self) -> dict[tuple[str, str], dict[int, int]]:
        """Return the committed offsets by (group, topic)."""
        return {
            (group, topic): self.offset_table[key]
            for key, topic, group in split_keys(self.offset_table)
        }


def split_keys(table: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    """Yield key, topic and group for each key of a table of offsets.

    Keys that are not `topic@group` are left out, as in the broker's own listings.
    """
    for key in table:
        parts = key.split(TOPIC_GROUP_SEPARATOR)
        if len(parts) == 2:
            yield key, parts[0], parts[1]


@declared
class DelayOffsetSerializeWrapper(Body):
    """The answer to GET_ALL_DELAY_OFFSET (45), and delayOffset.json.

    The table maps delay level -> next queue offset.
    """

    data_version: DataVersion | None = None  # 5.0
    offset_table: dict[int, int] = field(default_factory=dict)


@declared
class MessageQueueForC(Body):
    """One entry of ResetOffsetBodyForC."""

    topic: str
    broker_name: str
    queue_id: int = 0
    offset: int

    @property
    def queue(self) -> MessageQueue:
        """The queue without its offset."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def _read_offsets(value: JsonValue, name: str) -> object:
    if isinstance(value, list):
        items = reader_of(list[MessageQueueForC])(value, name)
        return {item.queue: item.offset for item in items}
    return reader_of(dict[MessageQueue, int])(value, name)


@declared
class ResetOffsetBody(Body):
    """The offsets in an answer to 222, and in the request 220 that brokers send.

    It is written in the form for clients in any language but C++; both forms are read.
    """

    offset_table: dict[MessageQueue, int] = wire_field(
        default_factory=dict, read=_read_offsets
    )


@declared
class ResetOffsetBodyForC(Body):
    """The form of ResetOffsetBody that brokers send to clients in C++."""

    offset_table: list[MessageQueueForC] = field(default_factory=list)


@declared
class GetConsumerStatusBody(Body):
    """The offsets of connected consumers.

    The answer to 223 has `consumer_table`, by client id; a client's answer to 221 has
    `message_queue_table`.
    """

    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)
    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)


@declared
class OffsetSerializeWrapper(Body):
    """The offsets of a broadcasting consumer, as its file holds them."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@declared
class OffsetMovedEvent(Body):
    """The body of a message in OFFSET_MOVED_EVENT: a group's offset was moved (4.x)."""

    consumer_group: str
    message_queue: MessageQueue
    offset_request: int
    offset_new: int


@declared
class GroupListBody(Body):
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO (300). Java's name: GroupList."""

    group_list: list[str] = field(default_factory=list)
