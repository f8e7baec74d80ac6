"""Requests for the statistics of topics and groups.

Source: AdminBrokerProcessor of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call
from rmqcli.wire.bodies.stats import (
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers import admin as headers

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.model import MessageQueue
    from rmqcli.wire.bodies.stats import QueueTimeSpan, TopicOffset


def get_topic_stats_info(topic: str) -> Call[dict[MessageQueue, TopicOffset]]:
    """Min, max and last store time of the topic's queues on this broker."""
    return make_call(
        RequestCode.GET_TOPIC_STATS_INFO,
        lambda answer: decode_body(TopicStatsTable, answer.body).offset_table,
        what=f"stats of topic {topic}",
        header=headers.GetTopicStatsInfoRequestHeader(topic=topic),
    )


def get_consume_stats(group: str, topic: str | None = None) -> Call[ConsumeStats]:
    """Broker, consumer and pull offset of each queue.

    A queue without a committed offset shows consumer offset 0, like a queue with
    committed offset 0. Without `topic`, the answer covers all topics in which the group
    has committed offsets or, while members are online, only the topics to which they
    subscribe.
    """
    return make_call(
        RequestCode.GET_CONSUME_STATS,
        lambda answer: decode_body(ConsumeStats, answer.body),
        what=f"consume stats of group {group}",
        header=headers.GetConsumeStatsRequestHeader(consumer_group=group, topic=topic),
    )


def query_consume_time_span(topic: str, group: str) -> Call[list[QueueTimeSpan]]:
    """Per queue: store times of the first, last and next message, and the delay."""
    return make_call(
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        lambda answer: (
            decode_body(QueryConsumeTimeSpanBody, answer.body).consume_time_span_set
        ),
        what=f"time span of group {group} in {topic}",
        header=headers.QueryConsumeTimeSpanRequestHeader(topic=topic, group=group),
    )


def query_topic_consume_by_who(topic: str) -> Call[list[str]]:
    """Groups that subscribe to the topic now or have committed offsets in it."""
    # Needed by few commands, and the module costs start-up time.
    from rmqcli.wire.bodies.offset import GroupListBody

    return make_call(
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        lambda answer: sorted(decode_body(GroupListBody, answer.body).group_list),
        what=f"groups of topic {topic}",
        header=headers.QueryTopicConsumeByWhoRequestHeader(topic=topic),
    )
