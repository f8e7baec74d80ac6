"""Resolve positions to offsets once, in the driver; cut the ranges into partitions.

Once `pin` has resolved them, the ranges are fixed. So two attempts of a task, and two
actions on a DataFrame, read the same messages. Only `pin` sends requests to the
cluster; the other functions are pure.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from rmqcli.api.positions import UNSORTED
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, PartialError, RmqError, UsageError
from rmqcli.hint import Hint, LibraryCall
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.position import Latest
from rmqcli.spark.extent import extent_of, plan_queue
from rmqcli.spark.shown_errors import warn
from rmqcli.units import listed
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.positions import ResolvedRange
    from rmqcli.api.client import Client
    from rmqcli.position import Position
    from rmqcli.spark.extent import QueueExtent, QueueRange
    from rmqcli.spark.source.options import Positions, SourceOptions


@dataclass(frozen=True, slots=True)
class Pinned:
    """The range of each queue, and why a batch cannot read it.

    The ranges are pinned when a DataFrame is loaded, before Spark says whether it is a
    batch or a stream, which may have a checkpoint and then starts elsewhere.
    """

    plans: dict[MessageQueue, QueueRange]
    refused: RmqError | None = None

    def of_batch(self) -> dict[MessageQueue, QueueRange]:
        """The ranges to read. Raises UsageError or NotFoundError."""
        if self.refused is not None:
            raise self.refused
        return self.plans


def pin(client: Client, options: SourceOptions, *, start: Position) -> Pinned:
    """Resolve both ends of the range in each queue, now.

    `start` is the position for queues for which no option gives one. Raises
    NotFoundError for an unknown topic or group, and UsageError when an option names a
    queue that does not exist or when a range ends before it starts. When positions
    cannot be resolved, raises the error of the first such queue.
    """
    from rmqcli.admin.positions import all_or_raise, check_groups, resolve_ranges_each

    queues = options.subscription.queues(client)
    options.subscription.check(queues)
    for positions in (options.start, options.end):
        check_queues(positions, queues)
    starts = {queue: options.start.of(queue) or start for queue in queues}
    ends = {queue: options.end.of(queue) or Latest() for queue in queues}
    check_groups(client, queues, [*starts.values(), *ends.values()])
    found = resolve_ranges_each(
        client, queues, start, Latest(), own_starts=starts, own_ends=ends
    )
    resolved = list(all_or_raise(client, found).values())
    for each in resolved:
        if each.is_unsorted:
            warn(f"{each.queue}: {UNSORTED}")
    return Pinned(
        {each.queue: plan_queue(_checked(each)) for each in resolved},
        _refusal(options, resolved) or departed_error(client, options, queues),
    )


def departed_error(
    client: Client, options: SourceOptions, queues: Iterable[MessageQueue]
) -> PartialError | None:
    """The error for a broker that has left the route or hides a topic, or None.

    Also None where queues were assigned. With `failOnDataLoss` false it is a warning.
    A stream that has a checkpoint knows its queues from there.
    """
    from rmqcli.admin.lag.memory import departed_brokers_of, unread_error

    if options.subscription.assigned:
        return None
    topics = sorted({queue.topic for queue in queues})
    errors = [
        PartialError(
            f"groups had queues of {', '.join(topics)} on {name}, which is no longer in"
            " the route",
            hint="start the broker, or read what is left with"
            ' .option("failOnDataLoss", "false")',
        )
        for name in departed_brokers_of(client, topics)
    ]
    unread = (unread_error(client.route(topic)) for topic in topics)
    errors += [error for error in unread if error is not None]
    if errors and options.fail_on_data_loss:
        return errors[0]
    for error in errors:
        warn(error.message)
    return None


def warn_of_departed(
    client: Client, options: SourceOptions, queues: Iterable[MessageQueue]
) -> None:
    """Name the brokers that have left and may have had the topics of these queues."""
    from rmqcli.admin.lag.memory import warnings_of_departed

    if not options.subscription.assigned:
        topics = sorted({queue.topic for queue in queues})
        for text in warnings_of_departed(client, topics, done="read"):
            warn(text)


def _refusal(options: SourceOptions, found: Sequence[ResolvedRange]) -> RmqError | None:
    """Why a batch would read nothing, against what the options say."""
    if not found:
        return NotFoundError(
            f"there are no {options.subscription}",
            code=ResponseCode.TOPIC_NOT_EXIST,
            hint=Hint("list topics with: ", LibraryCall("Admin.topics")),
        )
    last = max(found, key=lambda each: each.start.max_offset)
    starts = [each.start for each in found]
    if all(at.wanted is not None and at.wanted > at.max_offset for at in starts):
        return UsageError(
            f"{options.start.option}: every queue ends before {last.start.wanted}: the"
            f" last one, {last.queue}, at {last.start.max_offset}",
            hint="use latest to start at the end of each queue",
        )
    for each in found:
        error = options.start.unmatched(each.queue, each.start)
        if error is not None:
            return error
    return None


def _checked(found: ResolvedRange) -> QueueExtent:
    """The extent of a range. Raises UsageError when it ends before it starts."""
    start, end = found.start.offset, found.end.offset
    if start is not None and end is not None and end < start:
        raise UsageError(
            f"the range of {found.queue} ends before it starts: from {start} to {end}",
            hint="give an endingOffsets or endingTimestamp that is later",
        )
    return extent_of(found)


def check_queues(positions: Positions, queues: Iterable[MessageQueue]) -> None:
    """Raise UsageError when an option names a queue that does not exist."""
    known = set(queues)
    for queue in positions.own:
        if isinstance(queue, MessageQueue) and queue not in known:
            ids = sorted(
                f"{each.broker_name}:{each.queue_id}"
                for each in known
                if each.topic == queue.topic
            )
            raise UsageError(
                f"{positions.option}: queue {queue} does not exist",
                hint=f"the queues of {queue.topic} are {', '.join(ids[:20])}",
            )


def report_trimmed(
    options: SourceOptions, plans: Mapping[MessageQueue, QueueRange]
) -> None:
    """Report as `report_loss` the parts of ranges that the broker has removed."""
    for queue, plan in sorted(plans.items()):
        if plan.trimmed is not None:
            report_loss(options, queue, [plan.trimmed])


def report_loss(
    options: SourceOptions, queue: MessageQueue, spans: Sequence[tuple[int, int]]
) -> None:
    """Raise PartialError for offsets that the broker no longer has.

    If `failOnDataLoss` is false, warn about them instead.
    """
    offsets = listed((f"{start} to {end - 1}" for start, end in spans), 5)
    text = f"{queue}: offsets {offsets} are no longer on the broker"
    if options.fail_on_data_loss:
        raise PartialError(
            text, hint='to read what is left: .option("failOnDataLoss", "false")'
        )
    warn(text)


def partitions_of(
    ranges: Iterable[OffsetRange], options: SourceOptions
) -> list[OffsetRange]:
    """Cut ranges into as many and as large partitions as the options say."""
    return cut_ranges(
        ranges,
        partitions_min=options.partitions_min,
        records_max=options.records_per_partition_max,
    )


def cut_ranges(
    ranges: Iterable[OffsetRange],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
) -> list[OffsetRange]:
    """Cut ranges into partitions that are in order, disjoint, and cover them exactly.

    Empty ranges give no partition. A range longer than `records_max` is cut. While
    there are fewer partitions than `partitions_min`, the range with the longest parts
    is cut into one more part.
    """
    whole = [each for each in ranges if len(each)]
    parts = [1 if records_max is None else -(-len(r) // records_max) for r in whole]
    wanted = 0 if partitions_min is None else partitions_min
    longest = [
        (-len(r) / n, i) for i, (r, n) in enumerate(zip(whole, parts, strict=True))
    ]
    heapq.heapify(longest)
    total = sum(parts)
    while total < wanted and longest:
        _, index = heapq.heappop(longest)
        if parts[index] < len(whole[index]):
            parts[index] += 1
            total += 1
            heapq.heappush(longest, (-len(whole[index]) / parts[index], index))
    cut: list[OffsetRange] = []
    for each, count in zip(whole, parts, strict=True):
        edges = [each.start + len(each) * i // count for i in range(count + 1)]
        cut += [
            OffsetRange(each.queue, low, high)
            for low, high in itertools.pairwise(edges)
        ]
    return cut
