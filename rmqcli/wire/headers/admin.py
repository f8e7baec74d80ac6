"""Headers of looking at topics, groups and clients.

Codes 38, 202 to 204, 208, 300, 303, 307, 315, 317, 343, 345.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetTopicStatsInfoRequestHeader(Header):
    """Min and max offset of a topic's queues (202)."""

    topic: str


@declared
class GetConsumeStatsRequestHeader(Header):
    """A group's offsets beside the queues' ends (208)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # 5.3.2, joined with ;


@declared
class GetConsumeStatsInBrokerHeader(Header):
    """Every group's consume stats (317)."""

    is_order: bool


@declared
class GetConsumerConnectionListRequestHeader(Header):
    """Who consumes in a group (203)."""

    consumer_group: str


@declared
class GetProducerConnectionListRequestHeader(Header):
    """Who produces in a group (204)."""

    producer_group: str


@declared
class GetConsumerListByGroupRequestHeader(Header):
    """The client ids of a group (38)."""

    consumer_group: str


@declared
class GetConsumerRunningInfoRequestHeader(Header):
    """What one consumer is doing, asked through its broker (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@declared
class QueryTopicConsumeByWhoRequestHeader(Header):
    """The groups that consume a topic (300)."""

    topic: str


@declared
class QueryConsumeTimeSpanRequestHeader(Header):
    """The times a group is at (303)."""

    topic: str
    group: str


@declared
class QueryTopicsByConsumerRequestHeader(Header):
    """The topics a group consumes (343, 5.0)."""

    group: str


@declared
class QuerySubscriptionByConsumerRequestHeader(Header):
    """A group's subscription to a topic (345, 5.0)."""

    group: str
    topic: str | None = None


@declared
class ViewBrokerStatsDataRequestHeader(Header):
    """One of a broker's counters (315)."""

    stats_name: str
    stats_key: str
