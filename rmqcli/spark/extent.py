"""The range to read from each queue: positions as offsets, clipped to what it holds.

Pure. When the broker has removed a part of the range, that part is recorded, never
dropped silently.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RefusedError, UsageError
from rmqcli.hint import Hint, Setting
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.wire.subscription import parse_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.admin.positions import ResolvedRange

#: (broker name, queue id)
QueueKey = tuple[str, int]


class OfQueue:
    """Something about one queue of a topic that is known from elsewhere."""

    __slots__ = ()

    broker_name: str
    queue_id: int

    @property
    def key(self) -> QueueKey:
        """The queue, among those of its topic."""
        return self.broker_name, self.queue_id

    def queue_in(self, topic: str) -> MessageQueue:
        """Return the queue of the topic."""
        return MessageQueue(topic, self.broker_name, self.queue_id)


class RangeOfQueue(OfQueue):
    """Offsets `start <= o < end` of such a queue."""

    __slots__ = ()

    start: int
    end: int

    def offset_range(self, topic: str) -> OffsetRange:
        """Return the range in the form that `RangeReader` accepts."""
        return OffsetRange(self.queue_in(topic), self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueExtent:
    """The resolved positions of one queue, before they are clipped."""

    queue: MessageQueue
    asked_start: int
    asked_end: int
    min_offset: int
    max_offset: int

    @property
    def key(self) -> QueueKey:
        """The queue, among those of its topic."""
        return self.queue.broker_name, self.queue.queue_id


@dataclass(frozen=True, slots=True)
class NotedMessage:
    """A message that was in a queue, by which the queue can be recognized later.

    `msg_id` and `store_timestamp_ms` are None when they are unknown.
    """

    queue_offset: int
    msg_id: str | None
    store_timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange(RangeOfQueue):
    """Offsets `start <= o < end` of one queue, and the part of the range that is gone.

    `trimmed` is the half-open part of the requested range that lies below the queue's
    `min_offset`; None when there is none. `start == end` when there is nothing to read.
    `last` is the message before `end` when the range was planned; None when the queue
    had none there.
    """

    broker_name: str
    queue_id: int
    start: int
    end: int
    min_offset: int
    max_offset: int
    trimmed: tuple[int, int] | None = None
    last: NotedMessage | None = None


def extent_of(found: ResolvedRange) -> QueueExtent:
    """Return the extent of a resolved range.

    A requested start below the min offset is kept, so that it becomes a gap.
    """
    offsets = found.offsets
    asked_start = offsets.start
    if found.start.wanted is not None:
        asked_start = min(max(0, found.start.wanted), offsets.end)
    return QueueExtent(
        queue=found.queue,
        asked_start=asked_start,
        asked_end=offsets.end,
        min_offset=found.start.min_offset,
        max_offset=max(found.start.max_offset, found.end.max_offset),
    )


def plan_queue(extent: QueueExtent) -> QueueRange:
    """Clip the requested range to what the queue holds, and record what was removed.

    Offsets beyond `max_offset` are clipped without a record, because they do not exist
    yet. Raises UsageError when the start lies after the end.
    """
    if extent.asked_start > extent.asked_end:
        raise UsageError(
            f"the range of {extent.queue} ends before it starts: "
            f"from {extent.asked_start} to {extent.asked_end}"
        )
    end = max(0, min(extent.asked_end, extent.max_offset))
    start = min(max(extent.asked_start, extent.min_offset), end)
    gone_from = max(0, min(extent.asked_start, end))
    gone_to = min(extent.min_offset, end)
    return QueueRange(
        broker_name=extent.queue.broker_name,
        queue_id=extent.queue.queue_id,
        start=start,
        end=end,
        min_offset=extent.min_offset,
        max_offset=extent.max_offset,
        trimmed=(gone_from, gone_to) if gone_from < gone_to else None,
    )


def ends_of(
    extents: Iterable[QueueExtent], ends: Mapping[QueueKey, int]
) -> dict[QueueKey, int]:
    """Return the `ends` of the queues of extents."""
    keys = {each.key for each in extents}
    return {key: end for key, end in ends.items() if key in keys}


def refuse_other_tag(
    place: str, known: str | None, tag: str | None, *, instead: str
) -> None:
    """Raise RefusedError when a run that continues has another tag expression.

    `known` is that of the run before: where it ended, other tags were left out. The
    hint has `instead`, which says where to export the others.
    """
    if parse_tags("", known).tags_set != parse_tags("", tag).tags_set:
        before, now = (
            f"the tag {each}" if each not in (None, "", "*") else "any tag"
            for each in (known, tag)
        )
        raise RefusedError(
            f"{place} holds messages with {before} up to where the last run ended, so"
            f" messages with {now} cannot be exported from there on",
            hint=f"export messages with {now} {instead}",
        )


def continued(
    extents: Iterable[QueueExtent],
    ends: Mapping[QueueKey, int],
    *,
    are_chosen: bool,
    instead: str = "into an empty folder",
) -> list[QueueExtent]:
    """Let each queue that was exported before start where its last run ended.

    `ends` has that offset of each queue. Another queue was added since then and starts
    at its very first message, unless the queues `are_chosen`: then earlier runs may not
    have been asked for it. Raises RefusedError for a queue that now ends before it; the
    hint has `instead`, which says where to export the topic.
    """
    found = []
    for extent in extents:
        end = ends.get(extent.key)
        if end is not None:
            if extent.max_offset < end:
                raise RefusedError(
                    f"{extent.queue} ends at offset {extent.max_offset}, but was"
                    f" exported up to {end}: the topic was deleted and created again,"
                    " or its broker has lost messages",
                    hint=f"export the new topic {instead}",
                )
            # An end before the start only means that nothing is left to export.
            asked_end = max(end, extent.asked_end)
            extent = replace(extent, asked_start=end, asked_end=asked_end)
        elif not are_chosen:
            extent = replace(extent, asked_start=0)
        found.append(extent)
    return found


def refuse_lost(
    queues: Iterable[QueueRange], gone: Iterable[tuple[str, int, int]]
) -> None:
    """Raise PartialError when messages have been lost since the last run.

    `gone` lists queues that are no longer in the route: broker name, queue id, and the
    offset where the last run ended.
    """
    for queue in queues:
        if queue.trimmed is not None:
            raise PartialError(
                f"{queue.broker_name} queue {queue.queue_id} has lost offsets "
                f"{queue.trimmed[0]} to {queue.trimmed[1] - 1} since the last run",
                hint=Hint("export what is left with ", Setting("allow_gaps", True)),
            )
    for broker_name, queue_id, end in gone:
        raise PartialError(
            f"{broker_name} queue {queue_id} is no longer in the route; it was "
            f"exported up to {end}",
            hint=Hint("export the other queues with ", Setting("allow_gaps", True)),
        )
