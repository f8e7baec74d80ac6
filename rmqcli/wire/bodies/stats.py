"""Offsets of topics and groups, and the times groups are at, as brokers answer them.

Source: TopicStatsTable, TopicOffset, ConsumeStats, OffsetWrapper,
QueryConsumeTimeSpanBody, QueueTimeSpan in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.wire import fastjson
from rmqcli.wire.bodies.read import (
    get_float,
    get_int,
    get_object,
    get_objects,
    get_queue_table,
    load_object,
    need_int,
    read_queue,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.model import MessageQueue
    from rmqcli.wire.fastjson import JsonObject


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """The ends of a queue. `last_update_timestamp`: epoch ms, 0 when it is empty."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int


@dataclass(slots=True)
class OffsetWrapper:
    """How far a group is in a queue; treat as immutable.

    `consumer_offset` is 0 both at 0 and when nothing was ever committed.
    `pull_offset` is None before 5.1.0. `last_timestamp` is the store time of the last
    consumed message in epoch ms, 0 when there is none. Not frozen: a large answer
    holds a hundred thousand.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int | None
    last_timestamp: int


@dataclass(frozen=True, slots=True)
class ConsumeStats:
    """A group's offsets on one broker. `consume_tps` is None when not a number."""

    consume_tps: float | None
    offsets: dict[MessageQueue, OffsetWrapper]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTimeSpan:
    """The store times a queue holds and the one a group is at, in epoch ms.

    `delay_time` is the age in ms of the next message to consume, 0 when there is none.
    """

    queue: MessageQueue
    min_time_stamp: int
    max_time_stamp: int
    consume_time_stamp: int
    delay_time: int


def parse_topic_stats(body: bytes) -> dict[MessageQueue, TopicOffset]:
    """The answer to GET_TOPIC_STATS_INFO (202)."""
    data = load_object(body, "topic stats")
    return get_queue_table(data, "offsetTable", _topic_offset)


def encode_topic_stats(offsets: Mapping[MessageQueue, TopicOffset]) -> bytes:
    """The body of an answer to GET_TOPIC_STATS_INFO."""
    table = {
        queue: {
            "lastUpdateTimestamp": offset.last_update_timestamp,
            "maxOffset": offset.max_offset,
            "minOffset": offset.min_offset,
        }
        for queue, offset in offsets.items()
    }
    return fastjson.dumps({"offsetTable": table}).encode()


def parse_consume_stats(body: bytes) -> ConsumeStats:
    """The answer to GET_CONSUME_STATS (208)."""
    data = load_object(body, "consume stats")
    return ConsumeStats(
        get_float(data, "consumeTps"),
        get_queue_table(data, "offsetTable", _offset_wrapper),
    )


def encode_consume_stats(stats: ConsumeStats) -> bytes:
    """The body of an answer to GET_CONSUME_STATS."""
    table: dict[MessageQueue, dict[str, int]] = {}
    for queue, offset in stats.offsets.items():
        table[queue] = {
            "brokerOffset": offset.broker_offset,
            "consumerOffset": offset.consumer_offset,
            "lastTimestamp": offset.last_timestamp,
        }
        if offset.pull_offset is not None:
            table[queue]["pullOffset"] = offset.pull_offset
    return fastjson.dumps(
        {"consumeTps": stats.consume_tps or 0.0, "offsetTable": table}
    ).encode()


def parse_consume_time_spans(body: bytes) -> list[QueueTimeSpan]:
    """The answer to QUERY_CONSUME_TIME_SPAN (303), in its order."""
    data = load_object(body, "consume time spans")
    return [
        QueueTimeSpan(
            queue=read_queue(get_object(item, "messageQueue")),
            min_time_stamp=get_int(item, "minTimeStamp", 0),
            max_time_stamp=get_int(item, "maxTimeStamp", 0),
            consume_time_stamp=get_int(item, "consumeTimeStamp", 0),
            delay_time=get_int(item, "delayTime", 0),
        )
        for item in get_objects(data, "consumeTimeSpanSet")
    ]


def _topic_offset(data: JsonObject) -> TopicOffset:
    return TopicOffset(
        need_int(data, "minOffset"),
        need_int(data, "maxOffset"),
        get_int(data, "lastUpdateTimestamp", 0),
    )


def _offset_wrapper(data: JsonObject) -> OffsetWrapper:
    return OffsetWrapper(
        need_int(data, "brokerOffset"),
        need_int(data, "consumerOffset"),
        get_int(data, "pullOffset", None),
        get_int(data, "lastTimestamp", 0),
    )
