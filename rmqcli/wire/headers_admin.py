"""Headers of looking at topics, groups and clients.

Codes 38, 202 to 204, 208, 300, 303, 307, 315, 317, 343, 345.

Source: the classes of the same names in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTopicStatsInfoRequestHeader:
    """Min and max offset of a topic's queues (202)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsRequestHeader:
    """A group's offsets beside the queues' ends (208)."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None  # 5.3.2, joined with ;


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumeStatsInBrokerHeader:
    """Every group's consume stats (317)."""

    is_order: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerConnectionListRequestHeader:
    """Who consumes in a group (203)."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetProducerConnectionListRequestHeader:
    """Who produces in a group (204)."""

    producer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerListByGroupRequestHeader:
    """The client ids of a group (38)."""

    consumer_group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GetConsumerRunningInfoRequestHeader:
    """What one consumer is doing, asked through its broker (307)."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicConsumeByWhoRequestHeader:
    """The groups that consume a topic (300)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConsumeTimeSpanRequestHeader:
    """The times a group is at (303)."""

    topic: str
    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTopicsByConsumerRequestHeader:
    """The topics a group consumes (343, 5.0)."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySubscriptionByConsumerRequestHeader:
    """A group's subscription to a topic (345, 5.0)."""

    group: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBrokerStatsDataRequestHeader:
    """One of a broker's counters (315)."""

    stats_name: str
    stats_key: str
