"""What RocketMQ brokers answer to requests that read: one table for all brokers.

The same requests are sent to the embedded broker and to real ones. Where versions
differ, the row has the answer of each. `Stage` prepares the broker: T holds five
messages with the tags A, B, A, B, A in queue 0 and none in queue 1, E none at all.
"""

from __future__ import annotations

from tests.broker.behaviour.sql92 import CHECKS, FILTERS
from tests.broker.behaviour.stage import (
    ANY,
    FOUND,
    V4_6,
    V4_9,
    V5,
    Row,
    Says,
    ends,
    forbidden,
    nothing,
    old_and_new,
    pull,
    queue,
    refused,
)

PULL, LITE_PULL, QUERY_OFFSET, COMMIT = 11, 361, 14, 15
BY_TIME, MAX, MIN, EARLIEST, BY_ID, BY_KEY = 29, 30, 31, 32, 33, 12

BOOT_FIRST = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
LATER = 1 << 60


def empty(code: int) -> Says:
    """An answer without messages, from a queue that never had any."""
    return Says(code, "NO_MESSAGE_IN_QUEUE", ends(0, 0, 0))


OFFSETS = [
    Row("all", PULL, pull(), FOUND),
    # 4.6.0 never answers and 4.9.7 answers 3; the embedded broker always serves it
    Row("lite", LITE_PULL, pull(), by={V5: FOUND}),
    Row("middle", PULL, pull(queueOffset=3), Says(0, "FOUND", ends(5, 0, 5), 2)),
    Row("end", PULL, pull(queueOffset=5), nothing(19, "OFFSET_OVERFLOW_ONE", 5)),
    Row(
        "beyond the end",
        PULL,
        pull(queueOffset=6),
        nothing(21, "OFFSET_OVERFLOW_BADLY", 5),
        {V4_6: nothing(21, "OFFSET_OVERFLOW_BADLY", 0)},
    ),
    Row(
        "far beyond",
        PULL,
        pull(queueOffset=LATER),
        nothing(21, "OFFSET_OVERFLOW_BADLY", 5),
        {V4_6: nothing(21, "OFFSET_OVERFLOW_BADLY", 0)},
    ),
    Row("below", PULL, pull(queueOffset=-1), nothing(21, "OFFSET_TOO_SMALL", 0)),
    Row("empty queue at 0", PULL, pull(queueId=1), empty(19)),
    Row("empty queue at 7", PULL, pull(queueId=1, queueOffset=7), empty(21)),
    Row("empty queue at -1", PULL, pull(queueId=1, queueOffset=-1), empty(21)),
    Row("empty topic", PULL, pull(topic="{E}"), empty(19)),
]

LIMITS = [
    Row("two", PULL, pull(maxMsgNums=2), Says(0, "FOUND", ends(2, 0, 5), 2)),
    Row("none is one", PULL, pull(maxMsgNums=0), Says(0, "FOUND", ends(1, 0, 5), 1)),
    Row(
        "minus one is one",
        PULL,
        pull(maxMsgNums=-1),
        Says(0, "FOUND", ends(1, 0, 5), 1),
        {V4_9: Says(1)},
    ),
    Row("many", PULL, pull(maxMsgNums=1000), FOUND),
    Row("maxMsgBytes", PULL, pull(maxMsgBytes=1), FOUND),
]

TAGS = [
    Row(
        "tag",
        PULL,
        pull(subscription="A"),
        Says(0, "FOUND", ends(5, 0, 5), 3),
    ),
    Row(
        "two tags",
        PULL,
        pull(subscription="B || C"),
        Says(0, "FOUND", ends(5, 0, 5), 2),
    ),
    Row(
        "tag limited",
        PULL,
        pull(subscription="B", maxMsgNums=1),
        Says(0, "FOUND", ends(2, 0, 5), 1),
    ),
    Row(
        "no match",
        PULL,
        pull(subscription="Z"),
        nothing(20, "NO_MATCHED_MESSAGE", 5),
    ),
    Row("no text", PULL, pull(subscription=""), FOUND),
    Row(
        "no tag in it",
        PULL,
        pull(subscription="||"),
        Says(23, "parse the consumer's subscription failed"),
    ),
    Row("star among tags", PULL, pull(subscription="* || B"), Says(0, ANY, {}, 2)),
    Row(
        "empty SQL92",
        PULL,
        pull(expressionType="SQL92", subscription=""),
        Says(23, "parse the consumer's subscription failed"),
    ),
]

REFUSED = [
    Row(
        "no topic",
        PULL,
        pull(topic="{none}"),
        by={
            version: Says(says.code, ANY)
            for version, says in refused(17, "topic").items()
        },
    ),
    Row(
        "not readable",
        PULL,
        pull(topic="{W}"),
        by=forbidden("the topic[{W}] pulling message is forbidden", 3),
    ),
    Row(
        "queue 2 of 2",
        PULL,
        pull(queueId=2),
        by=old_and_new(Says(1), Says(29)),
    ),
    Row("queue -1", PULL, pull(queueId=-1), by=old_and_new(Says(1), Says(29))),
    Row(
        "group that may not",
        PULL,
        pull(consumerGroup="{dead}"),
        by=forbidden("subscription group no permission, {dead}", 2),
    ),
    Row("unknown group", PULL, pull(consumerGroup="{fresh}"), FOUND),
    Row(
        "group offline",
        PULL,
        pull(sysFlag=0),
        by=refused(24, "the consumer's group info not exist"),
    ),
    Row(
        "topic not subscribed",
        PULL,
        pull(consumerGroup="{on}", topic="{E}", sysFlag=0),
        by=refused(24, "the consumer's subscription not exist"),
    ),
    Row(
        "subscription too old",
        PULL,
        pull(consumerGroup="{on}", sysFlag=0, subVersion=1001),
        Says(25, "the consumer's subscription not latest"),
    ),
    Row(
        "subscription on record",
        PULL,
        pull(consumerGroup="{on}", sysFlag=0, subVersion=1000),
        Says(0, "FOUND", ends(5, 0, 5), 3),
    ),
    Row(
        "no offset",
        PULL,
        {key: value for key, value in pull().items() if key != "queueOffset"},
        Says(1),
    ),
]

COMMITS = [
    Row(
        "of an unknown group",
        COMMIT,
        {"consumerGroup": "{none}", **queue(commitOffset=3)},
        by=old_and_new(Says(0, None), Says(26, "Group {none} not exist!")),
    ),
    Row(
        "of an unknown topic",
        COMMIT,
        {"consumerGroup": "{off}", **queue("{none}", commitOffset=3)},
        by=old_and_new(Says(0, None), Says(17, "Topic {none} not exist!")),
    ),
    Row(
        "without offset",
        COMMIT,
        {"consumerGroup": "{off}", **queue()},
        by=old_and_new(Says(1), Says(29, "Offset is null, topic is {T}")),
    ),
    Row(
        "without queue",
        COMMIT,
        {"consumerGroup": "{off}", "topic": "{T}", "commitOffset": 1},
        by=old_and_new(Says(1), Says(29, "QueueId is null, topic is {T}")),
    ),
    Row(
        "read back",
        QUERY_OFFSET,
        {"consumerGroup": "{off}", **queue(queue_id=1)},
        Says(0, None, {"offset": "99"}),
        before=(
            (COMMIT, {"consumerGroup": "{off}", **queue(queue_id=1, commitOffset=99)}),
        ),
    ),
    Row(
        "back is taken",
        QUERY_OFFSET,
        {"consumerGroup": "{off}", **queue(queue_id=1)},
        Says(0, None, {"offset": "2"}),
        before=(
            (COMMIT, {"consumerGroup": "{off}", **queue(queue_id=1, commitOffset=9)}),
            (COMMIT, {"consumerGroup": "{off}", **queue(queue_id=1, commitOffset=2)}),
        ),
    ),
    Row(
        "in a pull",
        QUERY_OFFSET,
        {"consumerGroup": "{on}", **queue()},
        Says(0, None, {"offset": "3"}),
        before=((PULL, pull(consumerGroup="{on}", sysFlag=5, commitOffset=3)),),
    ),
    Row(
        "in a pull without the flag",
        QUERY_OFFSET,
        {"consumerGroup": "{fresh}", **queue()},
        Says(0, None, {"offset": "0"}),
        before=((PULL, pull(consumerGroup="{fresh}", commitOffset=3)),),
    ),
    Row(
        "never, of a young queue",
        QUERY_OFFSET,
        {"consumerGroup": "{never}", **queue()},
        Says(0, None, {"offset": "0"}),
    ),
    Row(
        "never, zero not wanted",
        QUERY_OFFSET,
        {"consumerGroup": "{never}", **queue(setZeroIfNotFound="false")},
        by=old_and_new(
            Says(0, None, {"offset": "0"}),
            Says(22, "Not found, do not set to zero, maybe this group boot first"),
        ),
    ),
    Row(
        "never, of an empty queue",
        QUERY_OFFSET,
        {"consumerGroup": "{never}", **queue("{E}", 1)},
        by=old_and_new(Says(0, None, {"offset": "0"}), Says(22, BOOT_FIRST)),
    ),
    Row(
        "never, of an unknown topic",
        QUERY_OFFSET,
        {"consumerGroup": "{never}", **queue("{none}")},
        by=old_and_new(Says(0, None, {"offset": "0"}), Says(22, BOOT_FIRST)),
    ),
]

QUEUES = [
    Row("max", MAX, queue(), Says(0, None, {"offset": "5"})),
    Row("max of an empty one", MAX, queue("{E}"), Says(0, None, {"offset": "0"})),
    Row("max of an unknown", MAX, queue("{none}"), Says(0, None, {"offset": "0"})),
    Row("min", MIN, queue(), Says(0, ANY, {"offset": "0"})),
    Row("min of an empty one", MIN, queue("{E}"), Says(0, ANY, {"offset": "0"})),
    Row("min of an unknown", MIN, queue("{none}"), Says(0, ANY, {"offset": "0"})),
    Row("min remark", MIN, queue(), by=old_and_new(Says(0, None), Says(0, ""))),
    Row(
        "earliest of an empty one",
        EARLIEST,
        queue("{E}"),
        Says(0, None, {"timestamp": "-1"}),
    ),
    Row("long ago", BY_TIME, queue(timestamp=0), Says(0, None, {"offset": "0"})),
    Row(
        "in the future",
        BY_TIME,
        queue(timestamp=LATER),
        by=old_and_new(Says(0, None, {"offset": "4"}), Says(0, None, {"offset": "5"})),
    ),
    Row(
        "in the future, upper",
        BY_TIME,
        queue(timestamp=LATER, boundaryType="UPPER"),
        Says(0, None, {"offset": "4"}),
    ),
    Row(
        "long ago, upper",
        BY_TIME,
        queue(timestamp=0, boundaryType="UPPER"),
        Says(0, None, {"offset": "0"}),
    ),
    Row(
        "time in an empty one",
        BY_TIME,
        queue("{E}", timestamp=5),
        Says(0, None, {"offset": "0"}),
    ),
]

MESSAGES = [
    Row(
        "beyond the log",
        BY_ID,
        {"offset": LATER},
        Says(1, f"can not find message by the offset, {LATER}"),
    ),
    Row(
        "before the log",
        BY_ID,
        {"offset": -1},
        Says(1, "can not find message by the offset, -1"),
    ),
    Row(
        "unknown key",
        BY_KEY,
        {
            "topic": "{T}",
            "key": "nobody",
            "maxNum": 10,
            "beginTimestamp": 0,
            "endTimestamp": LATER,
        },
        Says(22, "can not find message, maybe time range not correct"),
    ),
]

TABLE = {
    f"{group}: {row.name}": row
    for group, rows in {
        "offset": OFFSETS,
        "limit": LIMITS,
        "filter": TAGS,
        "sql": FILTERS,
        "check": CHECKS,
        "refused": REFUSED,
        "commit": COMMITS,
        "queue": QUEUES,
        "message": MESSAGES,
    }.items()
    for row in rows
}
