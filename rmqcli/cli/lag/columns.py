"""The columns of `rmq lag`, as tables, CSV and `-o help` know them."""

from __future__ import annotations

from rmqcli.cli.ui.output import Column

#: Of a queue: OK says that its numbers are good, not that all is read.
STATES = {
    "NO_COMMIT": "warn",
    "BROADCAST": "warn",
    "AHEAD": "bad",
    "EXPIRED": "bad",
    "UNKNOWN": "bad",
}
#: Of a group, and of what became of a queue between two looks.
GROUP_STATES = {
    "OK": "good",
    "BEHIND": "warn",
    "GROWING": "warn",
    "NO_COMMIT": "warn",
    "BROADCAST": "warn",
    "STOPPED": "bad",
    "STALLED": "bad",
    "REWOUND": "bad",
    "AHEAD": "bad",
    "EXPIRED": "bad",
    "UNKNOWN": "bad",
}

QUEUE_COLUMNS = (
    Column("group", "the consumer group", title=None),
    Column("topic", "topic of the queue", title="TOPIC"),
    Column("broker_name", "broker of the queue", title="BROKER"),
    Column("queue_id", "number of the queue", title="QUEUE"),
    Column("committed", "next offset the group will get", title="COMMITTED"),
    Column("min_offset", "oldest offset that is still there", title="MIN"),
    Column("max_offset", "offset of the next message to come", title="MAX"),
    Column("lag", "max less committed, both inside the queue", title="LAG"),
    Column("expired", "messages deleted before they were read", title="EXPIRED"),
    Column("inflight", "pulled and not committed (brokers from 5.1)", title="INFLIGHT"),
    Column(
        "age_ms", "age of the oldest unread message, by the broker's clock", title=None
    ),
    Column(
        "state",
        "of the queue: OK (known), NO_COMMIT, EXPIRED, AHEAD, BROADCAST or UNKNOWN;"
        " of a group in JSON also BEHIND, GROWING, STOPPED, STALLED and REWOUND",
        title="STATE",
        states=STATES,
    ),
    Column("reason", "why the state is not OK", title=None),
    Column("client_id", "who holds the queue", title="CLIENT"),
)

GROUP_COLUMN = Column("group", title="GROUP")
AGE_COLUMN = Column("age", title="AGE")
TREND_COLUMNS = (
    Column("rate_in", title="IN/S"),
    Column("rate_out", title="OUT/S"),
    Column("drain", title="DRAIN"),
    Column("verdict", title="VERDICT", states=GROUP_STATES),
)
SPARK_COLUMN = Column("spark", title="TREND")

GROUP_COLUMNS = (
    GROUP_COLUMN,
    Column("lag", title="LAG"),
    AGE_COLUMN,
    Column("state", title="STATE", states=GROUP_STATES),
    Column("topics", title="TOPICS"),
    Column("queues", title="QUEUES"),
    Column("members", title="MEMBERS"),
    Column("dead_letters", title="DEAD"),
)

MEMBER_COLUMNS = (
    Column("client_id", title="CLIENT"),
    Column("address", title="ADDRESS"),
    Column("version", title="VERSION"),
    Column("language", title="LANGUAGE"),
    Column("queues", title="QUEUES"),
)

HELD_COLUMNS = (
    Column("topic", title="TOPIC"),
    Column("broker_name", title="BROKER"),
    Column("queue_id", title="QUEUE"),
    Column("cached_count", title="CACHED"),
    Column("cached_size_mib", title="MIB"),
    Column("cached_min_offset", title="MIN"),
    Column("cached_max_offset", title="MAX"),
    Column("span_of_limit", title="SPAN"),
    Column("taken_count", title="TAKEN"),
    Column("locked", title="LOCKED"),
    Column("last_lock", title="LAST LOCK"),
    Column("dropped", title="DROPPED"),
    Column("last_pull", title="LAST PULL"),
    Column("last_consume", title="LAST CONSUME"),
    Column("flags", title="FLAGS"),
    Column("client_id", title="CLIENT"),
)


def queue_columns(
    *, with_group: bool, with_trend: bool, with_spark: bool = False
) -> tuple[Column, ...]:
    """The columns of a table of queues."""
    columns = [GROUP_COLUMN] if with_group else []
    for column in QUEUE_COLUMNS:
        if column.name == "state" and with_trend:
            columns += TREND_COLUMNS
        if column.name == "age_ms":
            columns.append(AGE_COLUMN)
        elif column.title is not None:
            columns.append(column)
    if with_spark:
        columns.insert(-2, SPARK_COLUMN)
    return tuple(columns)


def summary_columns(
    *, with_trend: bool, with_spark: bool = False
) -> tuple[Column, ...]:
    """The columns of a table of groups."""
    # The state says what the verdict would.
    trend = TREND_COLUMNS[:-1] if with_trend else ()
    spark = (SPARK_COLUMN,) if with_spark else ()
    return (*GROUP_COLUMNS[:3], *trend, *spark, *GROUP_COLUMNS[3:])
