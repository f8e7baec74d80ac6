"""Topics as views: ranges that are pinned here, in the driver, before Spark reads them.

So an unknown topic, or a cluster that cannot be reached, is an error of ours and not a
text of Spark's, and every part of a statement reads the same messages of a topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyspark.sql.datasource as api

from rmqcli.errors import NotFoundError
from rmqcli.position import Earliest
from rmqcli.producer.target import near_topics
from rmqcli.spark.options import Connection
from rmqcli.spark.source.data_source import RocketMQDataSource
from rmqcli.spark.source.options import Positions, SourceOptions
from rmqcli.spark.source.pinned import check_trimmed, pin

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position
    from rmqcli.spark.extent import QueuePlan

#: Rows of a query without a shuffle reach the driver a Spark partition at a time, so
#: this bounds what it holds.
RECORDS_PER_PARTITION_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic's range. Pickled to Spark's workers on this machine, with the keys."""

    options: SourceOptions
    plans: dict[MessageQueue, QueuePlan]

    @property
    def messages(self) -> int:
        """How many messages the range has at most."""
        return sum(plan.end - plan.start for plan in self.plans.values())


def pin_topic(
    client: Client,
    topic: str,
    *,
    start: Position | None,
    end: Position | None,
    allow_gaps: bool,
) -> TopicView:
    """Resolve a topic's range now.

    Raises NotFoundError for an unknown topic or group, UsageError for a range that ends
    before it starts, and PartialError for one that the broker has removed in part,
    unless `allow_gaps`.
    """
    options = SourceOptions(
        given=frozenset(),
        connection=Connection(client.config, None),
        topics=(topic,),
        start=Positions("from", start, {}),
        end=Positions("to", end, {}),
        fail_on_data_loss=not allow_gaps,
        partitions_min=None,
        records_per_partition_max=RECORDS_PER_PARTITION_MAX,
        offsets_per_trigger_max=None,
        with_properties=True,
        with_body=True,
        tags={topic: frozenset()},
        filter_pushdown=hasattr(api, "Filter"),  # PySpark 4.1
        commit_group=None,
        decoding=None,
    )
    try:
        client.route(topic)
    except NotFoundError as error:
        near = near_topics(client, topic)
        if near:
            error.hint = f"did you mean {' or '.join(near)}?"
        raise
    plans = pin(client, options, start=Earliest())
    if not allow_gaps:
        check_trimmed(plans)
    return TopicView(options, plans)


def source_of(views: dict[str, TopicView]) -> type[RocketMQDataSource]:
    """A data source of these topics: the option `subscribe` says which.

    Its class is made here, so Spark's pickles hold it whole, with the views.
    """

    class PinnedTopics(RocketMQDataSource):
        @property
        def _options(self) -> SourceOptions:
            return self._view.options

        def _pin(self) -> dict[MessageQueue, QueuePlan]:
            return self._view.plans

        @property
        def _view(self) -> TopicView:
            return views[self._given["subscribe"]]

    return PinnedTopics
