"""Headers of queries about topics, groups and clients.

Codes 38, 202 to 204, 208, 300, 303, 307, 315, 317, 343, 345.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.fields import declared
from rmqcli.wire.header import Header


@declared
class GetTopicStatsInfoRequestHeader(Header):
    """Query the min and max offset of a topic's queues (202)."""

    topic: str


@declared
class GetConsumeStatsRequestHeader(Header):
    """Query a group's offsets and the max offsets of its queues (208)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # 5.3.2, joined with ;


@declared
class GetConsumeStatsInBrokerHeader(Header):
    """Query the consume stats of every group (317)."""

    is_order: bool


@declared
class GetConsumerConnectionListRequestHeader(Header):
    """Query the consumers that are connected for a group (203)."""

    consumer_group: str


@declared
class GetProducerConnectionListRequestHeader(Header):
    """Query the producers that are connected for a group (204)."""

    producer_group: str


@declared
class GetConsumerListByGroupRequestHeader(Header):
    """Query the client ids of a group (38)."""

    consumer_group: str


@declared
class GetConsumerRunningInfoRequestHeader(Header):
    """Query the state of one consumer through its broker (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@declared
class QueryTopicConsumeByWhoRequestHeader(Header):
    """Query the groups that consume a topic (300)."""

    topic: str


@declared
class QueryConsumeTimeSpanRequestHeader(Header):
    """Query the store times of a topic's messages and of a group's position (303)."""

    topic: str
    group: str


@declared
class QueryTopicsByConsumerRequestHeader(Header):
    """Query the topics that a group consumes (343, 5.0)."""

    group: str


@declared
class QuerySubscriptionByConsumerRequestHeader(Header):
    """Query a group's subscription to a topic (345, 5.0)."""

    group: str
    topic: str | None = None


@declared
class ViewBrokerStatsDataRequestHeader(Header):
    """Query one of a broker's counters (315)."""

    stats_name: str
    stats_key: str
