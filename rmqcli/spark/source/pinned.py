"""Resolve positions to offsets once, in the driver; cut the ranges into partitions.

Once `pin` has resolved them, the ranges are fixed. So two attempts of a task, and two
actions on a DataFrame, read the same messages. Only `pin` and `readable_queues` send
requests to the cluster; the other functions are pure.
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from rmqcli.errors import PartialError, UsageError
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.position import Latest
from rmqcli.spark.extent import extent_of, plan_queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.positions import ResolvedRange
    from rmqcli.api.client import Client
    from rmqcli.position import Position
    from rmqcli.spark.extent import QueueExtent, QueuePlan
    from rmqcli.spark.source.options import Positions, SourceOptions


def pin(
    client: Client, options: SourceOptions, *, start: Position
) -> dict[MessageQueue, QueuePlan]:
    """Resolve both ends of the range in each queue, now.

    `start` is the position for queues for which no option gives one. Raises
    NotFoundError for an unknown topic or group, and UsageError when an option names a
    queue that does not exist or when a range ends before it starts. When positions
    cannot be resolved, raises the error of the first such queue.
    """
    from rmqcli.admin.positions import check_groups, resolve_ranges_each
    from rmqcli.errors import RmqError

    queues = readable_queues(client, options.topics)
    first = options.start.others or start
    last = options.end.others or Latest()
    named = [*options.start.own.values(), *options.end.own.values()]
    for positions in (options.start, options.end):
        check_queues(positions, queues)
    check_groups(client, queues, [first, last, *named])
    found = resolve_ranges_each(
        client,
        queues,
        first,
        last,
        own_starts=options.start.own,
        own_ends=options.end.own,
    )
    plans: dict[MessageQueue, QueuePlan] = {}
    for queue, resolved in found.items():
        if isinstance(resolved, RmqError):
            raise resolved
        plans[queue] = plan_queue(_checked(resolved))
    return plans


def _checked(found: ResolvedRange) -> QueueExtent:
    """The extent of a range. Raises UsageError when it ends before it starts."""
    start, end = found.start.offset, found.end.offset
    if start is not None and end is not None and end < start:
        raise UsageError(
            f"the range of {found.queue} ends before it starts: from {start} to {end}",
            hint="give an endingOffsets or endingTimestamp that is later",
        )
    return extent_of(found)


def readable_queues(
    client: Client, topics: Iterable[str], *, refresh: bool = False
) -> list[MessageQueue]:
    """All readable queues of the topics, sorted. Raises NotFoundError."""
    queues: list[MessageQueue] = []
    for topic in topics:
        queues += client.route(topic, refresh=refresh).read_queues()
    return sorted(queues)


def check_queues(positions: Positions, queues: Iterable[MessageQueue]) -> None:
    """Raise UsageError when an option names a queue that does not exist."""
    known = set(queues)
    for queue in positions.own:
        if queue not in known:
            ids = sorted(
                f"{each.broker_name}:{each.queue_id}"
                for each in known
                if each.topic == queue.topic
            )
            raise UsageError(
                f"option {positions.option}: queue {queue} does not exist",
                hint=f"the queues of {queue.topic} are {', '.join(ids[:20])}",
            )


def check_trimmed(plans: Mapping[MessageQueue, QueuePlan]) -> None:
    """Raise PartialError when the broker has removed a part of the ranges."""
    for queue, plan in sorted(plans.items()):
        if plan.trimmed is not None:
            raise data_loss(queue, [plan.trimmed])


def data_loss(queue: MessageQueue, spans: Sequence[tuple[int, int]]) -> PartialError:
    """The error for offsets that the broker no longer has."""
    shown = ", ".join(f"{start} to {end - 1}" for start, end in spans[:5])
    more = f" and {len(spans) - 5} more ranges" if len(spans) > 5 else ""
    return PartialError(
        f"{queue}: offsets {shown}{more} are no longer on the broker",
        hint='to read what is left: .option("failOnDataLoss", "false")',
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
