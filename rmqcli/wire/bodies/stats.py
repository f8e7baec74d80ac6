"""Bodies of brokers' answers about offsets and store times of topics and groups.

Source: TopicStatsTable, TopicOffset, ConsumeStats, OffsetWrapper,
QueryConsumeTimeSpanBody, QueueTimeSpan in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.model import MessageQueue
from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared, wire_field


@declared
class TopicOffset(Body):
    """A queue's min and max offset; `last_update_timestamp` is epoch ms, 0 if empty."""

    min_offset: int
    max_offset: int
    last_update_timestamp: int = 0


@declared
class TopicStatsTable(Body):
    """The answer to GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float | None = None  # 5.0


@declared
class OffsetWrapper(Body):
    """A group's position in a queue.

    `consumer_offset` is 0 both when 0 is committed and when nothing ever was.
    `pull_offset` is None before 5.1.0. `last_timestamp` is the store time of the last
    consumed message in epoch ms, 0 when there is none.
    """

    broker_offset: int
    consumer_offset: int
    pull_offset: int | None = None
    last_timestamp: int = 0


@declared
class ConsumeStats(Body):
    """A group's offsets on one broker: the answer to GET_CONSUME_STATS (208).

    `consume_tps` is None when it is not a number.
    """

    consume_tps: float | None = None
    offsets: dict[MessageQueue, OffsetWrapper] = wire_field(
        "offsetTable", default_factory=dict
    )


@declared
class QueueTimeSpan(Body):
    """The store times of a queue's messages and of a group's position, in epoch ms.

    `delay_time` is the age in ms of the next message to consume, 0 when there is none.
    The `*_str` are the same times as text in local time, for tools that print them.
    """

    queue: MessageQueue = wire_field("messageQueue")
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


@declared
class QueryConsumeTimeSpanBody(Body):
    """The answer to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)
