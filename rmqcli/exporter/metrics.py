"""The metrics that the exporter has: their names, labels and help.

Where rocketmq-exporter has a metric of the same meaning and unit, it has its name and
the same names of labels. Values are in the base units of Prometheus, seconds and bytes.
What rocketmq-exporter gives in milliseconds has a name of its own here, so that no rule
compares seconds with milliseconds.

Source: RMQMetricsCollector in apache/rocketmq-exporter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The values of the labels of one row, in the order of the table's labels.
Labels: TypeAlias = tuple[str, ...]
#: One value for each metric of the table; None is not known, and is left out.
MetricValues: TypeAlias = tuple[float | None, ...]
#: A name of a peer that is longer than this is cut.
_LABEL_MAX: Final = 512


class Metric(NamedTuple):
    """One metric: a gauge, unless its name ends with `_total`."""

    name: str
    help: str


class MetricTable(NamedTuple):
    """Metrics with the same labels."""

    labels: tuple[str, ...]
    metrics: tuple[Metric, ...]


def _table(labels: str, metrics: Mapping[str, str]) -> MetricTable:
    """The table with these labels and metrics; the text of each is its help."""
    rows = tuple(Metric(name, text) for name, text in metrics.items())
    return MetricTable(tuple(labels.split()), rows)


GROUPS: Final = _table(
    "group",
    {
        "rocketmq_group_lag_messages": (
            "Messages that wait for the group; absent if a part of it is not known."
        ),
        "rocketmq_group_lag_at_least_messages": (
            "The part of the group's lag that is known, when the whole is not."
        ),
        "rocketmq_group_age_seconds": (
            "Age of the oldest message that the group has not read; 0 without one."
        ),
        "rocketmq_group_in_flight_messages": (
            "Messages that members have received and not yet consumed."
        ),
        "rocketmq_group_in_tps": "Messages that were stored for the group, per second.",
        "rocketmq_group_out_tps": "Messages that it consumed, per second.",
        "rocketmq_group_retention_ratio": (
            "Age of the oldest unread message as a share of its broker's"
            " fileReservedTime; from 1 on it may be deleted."
        ),
        "rocketmq_group_lost_messages": (
            "Messages that were deleted before the group has read them; 0 again once it"
            " has committed beyond them."
        ),
        "rocketmq_group_count": "Members that are online.",
        "rocketmq_group_timestamp_seconds": "When the values of the group were read.",
    },
)

GROUP_STATES: Final = _table(
    "group state",
    {
        "rocketmq_group_state": "1 for the state of the group that it is in.",
    },
)

GROUP_TOPICS: Final = _table(
    "group topic",
    {
        "rocketmq_group_diff": "Messages of a topic that wait for the group.",
        "rocketmq_group_retrydiff": "Messages that wait in a retry topic of the group.",
        "rocketmq_group_dlqdiff": "Dead letters of the group.",
    },
)

#: A group in a topic on one broker.
GROUP_BROKERS: Final = _table(
    "cluster broker topic group",
    {
        "rocketmq_consumer_offset": (
            "Sum of the committed offsets of a topic's queues on a broker."
        ),
        "rocketmq_group_get_latency_by_storetime_seconds": (
            "Age of the oldest message that the group has not read there."
        ),
        "rocketmq_group_consume_tps": (
            "Messages that the group consumed there, per second."
        ),
    },
)

QUEUES: Final = _table(
    "cluster broker topic group queueid",
    {
        "rocketmq_group_queue_lag_messages": "Messages that wait in a queue.",
        "rocketmq_group_queue_age_seconds": (
            "Age of the oldest message in a queue that the group has not read."
        ),
        "rocketmq_group_queue_in_flight_messages": (
            "Messages of a queue that a member has received and not yet consumed."
        ),
        "rocketmq_group_queue_out_tps": (
            "Messages of a queue that the group consumed, per second."
        ),
        "rocketmq_group_queue_retention_ratio": (
            "Age of the oldest unread message as a share of fileReservedTime."
        ),
        "rocketmq_group_queue_lost_messages": (
            "Messages of a queue that were deleted before the group has read them."
        ),
    },
)

#: With `--process-queues`: what members have in their ProcessQueues.
HELD_QUEUES: Final = _table(
    "group clientId cluster broker topic queueid",
    {
        "rocketmq_client_queue_span_messages": (
            "Last offset that a member has cached of a queue, minus the first."
        ),
        "rocketmq_client_queue_span_limit_messages": (
            "Span from which on the member stops pulling the queue."
        ),
        "rocketmq_client_queue_cached_messages": (
            "Messages of a queue that a member has cached."
        ),
        "rocketmq_client_queue_flow_control": (
            "1 if the member does not pull the queue because a limit is exceeded."
        ),
        "rocketmq_client_queue_stuck": (
            "1 if the member has messages of the queue and finishes none."
        ),
    },
)

CLIENTS: Final = _table(
    "group clientId",
    {
        "rocketmq_client_up": (
            "1 if a member told what it has cached, 0 if it did not answer."
        ),
    },
)

TOPICS: Final = _table(
    "cluster broker topic",
    {
        "rocketmq_producer_offset": (
            "Sum of the max offsets of a topic's queues on a broker; only of topics"
            " that a group consumes."
        ),
        "rocketmq_producer_tps": (
            "Messages that were stored in the topic on a broker, per second."
        ),
    },
)

BROKERS: Final = _table(
    "cluster brokerIP broker",
    {
        "rocketmq_broker_tps": "Messages that the broker stored, per second.",
        "rocketmq_broker_qps": "Messages that it sent out, per second.",
        "rocketmq_brokeruntime_commitlog_disk_ratio": (
            "How full the disk of its commit log is, from 0 to 1."
        ),
        "rocketmq_brokeruntime_consumequeue_disk_ratio": (
            "How full the disk of its consume queues is, from 0 to 1."
        ),
        "rocketmq_brokeruntime_dispatch_behind_bytes": (
            "Bytes in the commit log that are not yet in consume queues."
        ),
        "rocketmq_brokeruntime_send_threadpool_queue_size": (
            "Requests to store messages that wait for a thread."
        ),
        "rocketmq_brokeruntime_send_threadpoolqueue_capacity": (
            "Requests to store messages that can wait."
        ),
        "rocketmq_brokeruntime_send_threadpoolqueue_headwait_seconds": (
            "How long the first of them has waited."
        ),
        "rocketmq_brokeruntime_pull_threadpoolqueue_size": (
            "Pulls that wait for a thread."
        ),
        "rocketmq_brokeruntime_pull_threadpoolqueue_capacity": (
            "Pulls that can wait for a thread."
        ),
        "rocketmq_brokeruntime_pull_threadpoolqueue_headwait_seconds": (
            "How long the first of them has waited."
        ),
        "rocketmq_brokeruntime_pagecache_lock_time_seconds": (
            "How long a message is being written to the page cache now."
        ),
        "rocketmq_brokeruntime_earliest_message_timestamp_seconds": (
            "When its oldest message was stored, by its own clock."
        ),
        "rocketmq_broker_boot_timestamp_seconds": (
            "When it was started, by its own clock."
        ),
        "rocketmq_broker_slaves": "Slaves that are connected to the master.",
        "rocketmq_broker_slaves_in_sync": "Those of them that are in sync.",
        "rocketmq_broker_commitlog_diff": "Bytes that a slave is behind its master.",
        "rocketmq_broker_retention_seconds": (
            "For how long it keeps messages (fileReservedTime)."
        ),
        "rocketmq_broker_timestamp_seconds": "When the values of the broker were read.",
    },
)

BROKER_INFO: Final = _table(
    "cluster brokerIP broker role version",
    {
        "rocketmq_broker_info": "1; version and role of a broker.",
    },
)

BROKERS_UP: Final = _table(
    "cluster brokerIP broker",
    {
        "rocketmq_broker_up": (
            "1 if the broker answered all requests of the last collection, 0 if it did"
            " not, or has left the route."
        ),
    },
)

#: When the values of the tables above that are about a broker's queues were read.
BROKER_QUEUES: Final = _table(
    "broker",
    {
        "rocketmq_broker_queues_timestamp_seconds": (
            "When the values of queues on the broker were read."
        ),
    },
)

LEFT_OUT: Final = _table(
    "group",
    {
        "rocketmq_exporter_series_left_out": (
            "Series of a group's topics and queues that are left out because there are"
            " too many; the totals of the group stay."
        ),
    },
)

EXPORTER: Final = _table(
    "",
    {
        "rocketmq_exporter_collections_total": (
            "Collections since the exporter was started."
        ),
        "rocketmq_exporter_failed_collections_total": (
            "Collections that read nothing, because no name server or broker answered."
        ),
        "rocketmq_exporter_last_collection_success": (
            "1 if all brokers answered all requests of the last collection."
        ),
        "rocketmq_exporter_last_collection_timestamp_seconds": (
            "When the last collection that read something was started."
        ),
        "rocketmq_exporter_collection_duration_seconds": (
            "How long the last collection took."
        ),
        "rocketmq_exporter_interval_seconds": "How often the exporter collects.",
        "rocketmq_exporter_stale_after_seconds": (
            "How long the values of a broker that does not answer are kept."
        ),
        "rocketmq_exporter_groups": "Groups in the last collection.",
    },
)

#: All tables, in the order of the page.
TABLES: Final = (
    EXPORTER,
    LEFT_OUT,
    BROKERS_UP,
    BROKER_INFO,
    BROKERS,
    BROKER_QUEUES,
    GROUP_STATES,
    GROUPS,
    GROUP_TOPICS,
    GROUP_BROKERS,
    TOPICS,
    CLIENTS,
    QUEUES,
    HELD_QUEUES,
)


def label_text(text: str) -> str:
    r"""Return the value of a label for a name of a peer.

    What is not printable is shown by escapes such as `\x1b`: a page may be read on a
    terminal, Prometheus refuses a whole page with a NUL in it, and a lone surrogate
    cannot be written at all.
    """
    if len(text) > _LABEL_MAX:
        text = text[:_LABEL_MAX] + "..."
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )
