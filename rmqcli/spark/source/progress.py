"""Offsets of a stream as JSON for Spark's checkpoint, and the limit of a batch. Pure.

The offset of a queue is the first one that has not been read. The JSON is
`{"TOPIC": {"BROKER": {"QUEUE": OFFSET}}}`, and under the key LAST_MESSAGES in the same
form `[MSG_ID, STORE_TIMESTAMP_MS]` of the message before the offset, by which the queue
is recognized later. Spark compares the texts of two such values
to find out whether there are new messages, so equal offsets must give equal texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rmqcli.admin.witness import Witness
from rmqcli.errors import ConfigError
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.spark.source.subscription import Subscription

Offsets = dict[MessageQueue, int]
Json = dict[str, dict[str, dict[str, Any]]]

#: The key in a query's progress, which no topic can have, of queues that were created
#: again.
BEGUN_AGAIN: Final = "begun again"
#: The key of the last messages that were read, which no topic can have either.
LAST_MESSAGES: Final = "last messages"

_NEW_CHECKPOINT = "start the query with a new checkpointLocation"


def offsets_to_json(
    offsets: Mapping[MessageQueue, int],
    messages: Mapping[MessageQueue, Witness] | None = None,
) -> Json:
    """Return the offsets in the form of the checkpoint, sorted by topic and queue.

    `messages` are those before the offsets, as far as they are known.
    """
    found = _nested(offsets)
    if messages:
        found[LAST_MESSAGES] = _nested(
            {queue: list(each[1:]) for queue, each in messages.items()}
        )
    return found


def _nested(values: Mapping[MessageQueue, Any]) -> dict[str, Any]:
    found: Json = {}
    for queue, value in sorted(values.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return found


def offsets_from_json(value: Any, subscription: Subscription) -> Offsets:  # noqa: ANN401  # what a checkpoint holds
    """Read the offsets of a checkpoint.

    Raises ConfigError when the checkpoint is of other topics or of another source.
    """
    offsets: Offsets = {}
    try:
        for queue, offset in _flat(value):
            offsets[queue] = int(offset)
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(
            f"the checkpoint holds {str(value)[:200]}, which are not RocketMQ offsets",
            hint=_NEW_CHECKPOINT,
        ) from None
    others = sorted(q for q in offsets if not subscription.has_queue(q))
    if others:
        names = (
            f"queue {', '.join(map(str, others))}"
            if subscription.assigned
            else f"topic {', '.join(sorted({each.topic for each in others}))}"
        )
        raise ConfigError(
            f"the checkpoint belongs to {names}, but the query subscribes to"
            f" {subscription}",
            hint=_NEW_CHECKPOINT,
        )
    return offsets


def messages_from_json(value: Json) -> dict[MessageQueue, Witness]:
    """Return the messages before the offsets of a checkpoint, as far as it has them.

    Raises ConfigError for one that is not readable.
    """
    offsets = dict(_flat(value))
    try:
        return {
            queue: Witness(
                int(offsets[queue]) - 1,
                None if msg_id is None else str(msg_id),
                int(at_ms),
            )
            for queue, (msg_id, at_ms) in _flat(value.get(LAST_MESSAGES, {}))
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(
            f"the checkpoint holds {str(value)[:200]}, which are not messages that"
            " RocketMQ stores",
            hint=_NEW_CHECKPOINT,
        ) from None


def _flat(value: Any) -> Iterator[tuple[MessageQueue, Any]]:  # noqa: ANN401  # JSON
    for topic, brokers in value.items():
        if topic not in (BEGUN_AGAIN, LAST_MESSAGES):
            for broker_name, queues in brokers.items():
                for queue_id, each in queues.items():
                    yield MessageQueue(topic, broker_name, int(queue_id)), each


def unread(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]
) -> dict[MessageQueue, range]:
    """Return the offsets of each queue that a batch from `start` to `end` covers.

    A queue that is not in `start`, or ends before it, begins at 0.
    """
    begins = {q: start.get(q, 0) for q in end}
    return {q: range(begins[q] if begins[q] <= end[q] else 0, end[q]) for q in end}


def limited(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], *, rows_max: int
) -> Offsets:
    """Return where a batch of at most `rows_max` rows ends.

    Each queue gets a share in proportion to the number of its unread offsets. The rows
    that rounding leaves go to the queues with the largest remainders, so that every
    batch has as many rows as it may.
    """
    behind = unread(start, end)
    total = sum(map(len, behind.values()))
    if total <= rows_max:
        return dict(end)
    shares = {q: divmod(len(left) * rows_max, total) for q, left in behind.items()}
    spare = rows_max - sum(share for share, _ in shares.values())
    ranked = sorted(shares, key=lambda queue: (-shares[queue][1], queue))
    extra = set(ranked[:spare])
    return {
        queue: behind[queue].start + share + (queue in extra)
        for queue, (share, _) in shares.items()
    }


def behind_latest(progress: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return how far each topic is behind, by the progress of a streaming query.

    The values have the names of Kafka's source; a topic that several sources read has
    one set of them. Sources of other formats, and progress without `latestOffset`, give
    nothing.
    """
    by_topic: dict[str, list[int]] = {}
    for source in progress.get("sources", ()):
        read, latest = (
            _nested_offsets(source.get(name)) for name in ("endOffset", "latestOffset")
        )
        for queue, offsets in unread(read, latest).items():
            by_topic.setdefault(queue.topic, []).append(len(offsets))
    return {
        topic: {
            "avgOffsetsBehindLatest": sum(counts) / len(counts),
            "maxOffsetsBehindLatest": max(counts),
            "minOffsetsBehindLatest": min(counts),
        }
        for topic, counts in by_topic.items()
    }


def _nested_offsets(value: Any) -> Offsets:  # noqa: ANN401  # what a source reports
    """The offsets of a source in a query's progress; empty for other sources."""
    try:
        table = json.loads(value) if isinstance(value, str) else value
        return dict(_flat(table or {}))
    except (AttributeError, TypeError, ValueError):
        return {}
