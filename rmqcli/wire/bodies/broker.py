"""Bodies of a broker's answers about itself: all groups, counters, consume queues.

Only the embedded broker uses these classes. They are in a separate module because
commands load the other modules.

Source: ConsumeStatsList, BrokerStatsData, BrokerStatsItem, ConsumeQueueData,
QueryConsumeQueueResponseBody in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.wire.bodies.stats import ConsumeStats
from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared
from rmqcli.wire.subscription import SubscriptionData


@declared
class ConsumeStatsList(Body):
    """The answer to GET_BROKER_CONSUME_STATS (317): stats by group, one per topic."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(
        default_factory=list
    )
    total_diff: int = 0
    total_inflight_diff: int | None = None  # 5.0


@declared
class BrokerStatsItem(Body):
    """One of a broker's counters over one interval; `avgpt` is the mean value."""

    avgpt: float = 0.0
    sum: int = 0
    tps: float = 0.0


@declared
class BrokerStatsData(Body):
    """The answer to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_hour: BrokerStatsItem = field(default_factory=BrokerStatsItem)
    stats_day: BrokerStatsItem = field(default_factory=BrokerStatsItem)


@declared
class ConsumeQueueData(Body):
    """One entry of a consume queue; `eval` is whether the group's filter accepts it."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = True


@declared
class QueryConsumeQueueResponseBody(Body):
    """The answer to QUERY_CONSUME_QUEUE (321)."""

    min_queue_index: int
    max_queue_index: int
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] | None = None
