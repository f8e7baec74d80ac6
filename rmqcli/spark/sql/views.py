"""Pin the range of each topic in the driver, before Spark reads it as a view.

An unknown topic or an unreachable cluster is therefore reported before Spark runs
anything, and every part of a statement reads the same messages of a topic.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.admin.lag.memory import check_complete
from rmqcli.dataclass import dataclass
from rmqcli.position import Earliest
from rmqcli.spark.options import ClusterConnection
from rmqcli.spark.session import cores
from rmqcli.spark.source.data_source import RocketMQDataSource
from rmqcli.spark.source.filters import Pushed
from rmqcli.spark.source.options import Positions, SourceOptions
from rmqcli.spark.source.pinned import Pinned, pin, report_trimmed
from rmqcli.spark.source.subscription import Subscription
from rmqcli.spark.sql.scans import COLUMNS, CONDITIONS

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.spark.extent import QueueRange

#: A query without a shuffle returns its rows to the driver one Spark partition at a
#: time, so this limit bounds the driver's memory.
RECORDS_PER_PARTITION_MAX: Final = 20_000
#: The limit for rows without body and properties, which are some 300 bytes each. A
#: count of two million messages takes 11 s with it, and 15 s with the other one.
SMALL_RECORDS_PER_PARTITION_MAX: Final = 200_000
#: The large columns.
_LARGE: Final = frozenset({"body", "properties"})
#: Small records: partitions for each core, so that no core is idle for long at the end.
_PARTITIONS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class TopicView:
    """The pinned range of a topic.

    It is pickled, including the access and secret key, to Spark's workers on this
    machine.
    """

    options: SourceOptions
    plans: dict[MessageQueue, QueueRange]

    @property
    def messages(self) -> int:
        """The most messages that the range can hold."""
        return sum(plan.end - plan.start for plan in self.plans.values())


def pin_topic(
    client: Client,
    topic: str,
    *,
    start: Position | None,
    end: Position | None,
    allow_gaps: bool,
) -> TopicView:
    """Resolve the start and end of a topic's range to offsets.

    Raises NotFoundError for an unknown topic or group, UsageError for a range that ends
    before it starts, and, unless `allow_gaps`, PartialError for a range of which the
    broker has already deleted a part, and for a topic of which a broker has left the
    route.
    """
    options = SourceOptions(
        connection=ClusterConnection(client.config, None),
        subscription=Subscription(topics=(topic,)),
        start=Positions("start", start),
        end=Positions("end", end),
        fail_on_data_loss=not allow_gaps,
        fail_on_undecodable=not allow_gaps,
        records_per_partition_max=RECORDS_PER_PARTITION_MAX,
    )
    check_topic(client, topic)
    if not allow_gaps:
        check_complete(client, topic)
    plans = pin(client, options, start=Earliest()).of_batch()
    if not allow_gaps:
        report_trimmed(options, plans)
    return TopicView(options, plans)


def check_topic(client: Client, topic: str) -> None:
    """Raise NotFoundError for an unknown topic."""
    client.route(topic)


def source_of(views: dict[str, TopicView]) -> type[RocketMQDataSource]:
    """A data source class that reads these views; option `subscribe` selects the topic.

    Two more options, which `narrow_scans` sets, have the conditions and the columns of
    one scan. The class is created here, so that Spark pickles the whole class with the
    views.
    """

    class PinnedTopics(RocketMQDataSource):
        @property
        def _options(self) -> SourceOptions:
            used = self._used()
            if used is None or used & _LARGE:
                return self._view.options
            return replace(
                self._view.options,
                records_per_partition_max=_small_records_max(self._view.messages),
            )

        def _pin(self) -> Pinned:
            return Pinned(self._view.plans)

        def _pushed(self) -> Pushed:
            return Pushed.from_json(self._given.get(CONDITIONS, "[]"))

        def _used(self) -> frozenset[str] | None:
            text = self._given.get(COLUMNS)
            return None if text is None else frozenset(json.loads(text))

        @property
        def _view(self) -> TopicView:
            return views[self._given["subscribe"]]

    return PinnedTopics


def _small_records_max(messages: int) -> int:
    """The most small records of a partition."""
    wanted = -(-messages // (_PARTITIONS_PER_CORE * cores()))
    return max(RECORDS_PER_PARTITION_MAX, min(wanted, SMALL_RECORDS_PER_PARTITION_MAX))
