"""Offsets of a stream as JSON for Spark's checkpoint, and the limit of a batch. Pure.

The offset of a queue is the first one that has not been read. The JSON is
`{"TOPIC": {"BROKER": {"QUEUE": OFFSET}}}`. Spark compares the texts of two such values
to find out whether there are new messages, so equal offsets must give equal texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import ConfigError
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.spark.source.subscription import Subscription

Offsets = dict[MessageQueue, int]
Json = dict[str, dict[str, dict[str, int]]]

#: The key in a query's progress, which no topic can have, of queues that were created
#: again.
BEGUN_AGAIN: Final = "begun again"

_NEW_CHECKPOINT = "start the query with a new checkpointLocation"


def offsets_to_json(offsets: Mapping[MessageQueue, int]) -> Json:
    """Return the offsets in the form of the checkpoint, sorted by topic and queue."""
    found: Json = {}
    for queue, offset in sorted(offsets.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return found


def offsets_from_json(value: Any, subscription: Subscription) -> Offsets:  # noqa: ANN401  # what a checkpoint holds
    """Read the offsets of a checkpoint.

    Raises ConfigError when the checkpoint is of other topics or of another source.
    """
    offsets: Offsets = {}
    try:
        for topic, brokers in value.items():
            for broker_name, queues in brokers.items():
                for queue_id, offset in queues.items():
                    queue = MessageQueue(topic, broker_name, int(queue_id))
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

    The values have the names of Kafka's source. Sources of other formats, and progress
    without `latestOffset`, give nothing.
    """
    found: dict[str, dict[str, float]] = {}
    for source in progress.get("sources", ()):
        read, latest = (
            _nested_offsets(source.get(name)) for name in ("endOffset", "latestOffset")
        )
        by_topic: dict[str, list[int]] = {}
        for queue, offsets in unread(read, latest).items():
            by_topic.setdefault(queue.topic, []).append(len(offsets))
        for topic, counts in by_topic.items():
            found[topic] = {
                "avgOffsetsBehindLatest": sum(counts) / len(counts),
                "maxOffsetsBehindLatest": max(counts),
                "minOffsetsBehindLatest": min(counts),
            }
    return found


def _nested_offsets(value: Any) -> Offsets:  # noqa: ANN401  # what a source reports
    """The offsets of a source in a query's progress; empty for other sources."""
    try:
        table = json.loads(value) if isinstance(value, str) else value
        return {
            MessageQueue(topic, broker_name, int(queue_id)): offset
            for topic, brokers in (table or {}).items()
            if topic != BEGUN_AGAIN
            for broker_name, queues in brokers.items()
            for queue_id, offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        return {}
