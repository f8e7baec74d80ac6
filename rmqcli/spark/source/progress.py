"""Offsets of a stream as JSON for Spark's checkpoint, and the limit of a batch. Pure.

The offset of a queue is the first one that has not been read. The JSON is
`{"TOPIC": {"BROKER": {"QUEUE": OFFSET}}}`. Spark compares the texts of two such values
to find out whether there are new messages, so equal offsets must give equal texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.errors import ConfigError
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Offsets = dict[MessageQueue, int]
Json = dict[str, dict[str, dict[str, int]]]

_NEW_CHECKPOINT = "start the query with a new checkpointLocation"


def offsets_to_json(offsets: Mapping[MessageQueue, int]) -> Json:
    """Return the offsets in the form of the checkpoint, sorted by topic and queue."""
    found: Json = {}
    for queue, offset in sorted(offsets.items()):
        brokers = found.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return found


def offsets_from_json(value: Any, *, topics: Collection[str]) -> Offsets:  # noqa: ANN401  # what a checkpoint holds
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
    others = sorted({queue.topic for queue in offsets} - set(topics))
    if others:
        raise ConfigError(
            f"the checkpoint belongs to topic {', '.join(others)}, but the query"
            f" subscribes to {', '.join(topics)}",
            hint=_NEW_CHECKPOINT,
        )
    return offsets


def limited(
    start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], *, rows_max: int
) -> Offsets:
    """Return where a batch of at most `rows_max` rows ends.

    Each queue gets a share in proportion to the number of its unread offsets. The rows
    that rounding leaves go to the queues with the largest remainders, so that every
    batch has as many rows as it may. A queue that is not in `start` begins at 0.
    """
    behind = {queue: end[queue] - start.get(queue, 0) for queue in end}
    total = sum(behind.values())
    if total <= rows_max:
        return dict(end)
    shares = {queue: divmod(left * rows_max, total) for queue, left in behind.items()}
    spare = rows_max - sum(share for share, _ in shares.values())
    ranked = sorted(shares, key=lambda queue: (-shares[queue][1], queue))
    extra = set(ranked[:spare])
    return {
        queue: start.get(queue, 0) + share + (queue in extra)
        for queue, (share, _) in shares.items()
    }
