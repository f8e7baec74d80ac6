"""Where a group goes on in the copy of a topic: its positions, by the copy's own log.

A position in a queue of the target is the place of the first message there that the
group has not consumed in the source. Where messages of several queues of the source are
in one queue, messages behind it that the group has consumed come again; none is
skipped, and nor is what others have sent there between copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from rmqcli.admin.positions import resolve_ranges_each
from rmqcli.admin.reset.gather import gather_plan
from rmqcli.admin.reset.target import ResetRequest, Restore
from rmqcli.errors import RmqError
from rmqcli.model import MessageQueue
from rmqcli.position import AtGroup, Latest
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.admin.reset.plan import ResetPlan
    from rmqcli.api.client import Client
    from rmqcli.copy.log import CopyState, StoredRun


def map_positions(
    runs: Sequence[StoredRun],
    committed: Mapping[tuple[str, int], int | None],
    doubts: Mapping[int, Mapping[tuple[str, int], int]] = MappingProxyType({}),
) -> dict[tuple[str, int], int]:
    """Return the position in each queue of the target that has copies. Pure.

    `committed` are the group's offsets in the queues of the source; without one, or
    None, the group has consumed nothing there. Messages of others between copies are
    not consumed. `doubts` has how many messages of each queue of the source may have
    been stored before a run, by its index, without being known as copies. They were
    sent again, so only where copies of their queue are.
    """
    sources: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for run in runs:
        to = run.target_broker, run.target_queue
        sources.setdefault(to, set()).add((run.broker_name, run.queue_id))
    first: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    doubted: dict[tuple[str, int], int] = {}
    totals: Counter[tuple[str, int]] = Counter()
    for number, run in enumerate(runs):
        to = run.target_broker, run.target_queue
        totals.update(doubts.get(number, {}))
        total = sum(totals[key] for key in sources[to]) if totals else 0
        end = ends.get(to, run.target_offset)
        if run.target_offset - end > total - doubted.get(to, 0):
            first[to] = min(first.get(to, end), end)
        doubted[to] = total
        ends[to] = max(end, run.target_offset + len(run.offsets))
        offset = committed.get((run.broker_name, run.queue_id)) or 0
        index = bisect_left(run.offsets, offset)
        if index < len(run.offsets):
            at = run.target_offset + index
            first[to] = min(first.get(to, at), at)
    return {to: first.get(to, end) for to, end in ends.items()}


def count_uncopied(
    runs: Iterable[StoredRun], unread: Mapping[tuple[str, int], range]
) -> int:
    """Return how many messages that a group has not consumed have no copy. Pure.

    `unread` are their offsets in each queue of the source.
    """
    copied: dict[tuple[str, int], set[int]] = {}  # some may be stored twice
    for run in runs:
        key = run.broker_name, run.queue_id
        wanted = unread.get(key, range(0))
        index = bisect_left(run.offsets, wanted.start)
        copied.setdefault(key, set()).update(
            offset for offset in run.offsets[index:] if offset in wanted
        )
    return sum(map(len, unread.values())) - sum(map(len, copied.values()))


def read_committed(
    source: Client, topic: str, group: str
) -> tuple[dict[tuple[str, int], int | None], dict[tuple[str, int], range]]:
    """Return what a group has committed in the queues of a topic, and has not consumed.

    The latter are the offsets of stored messages. Raises the error of the first broker
    that does not tell.
    """
    queues = source.route(topic).read_queues()
    found = resolve_ranges_each(source, queues, AtGroup(group), Latest())
    committed: dict[tuple[str, int], int | None] = {}
    unread: dict[tuple[str, int], range] = {}
    for queue, each in found.items():
        if isinstance(each, RmqError):
            raise each
        key = queue.broker_name, queue.queue_id
        offset, low = each.start.offset, each.start.min_offset
        committed[key] = offset
        start = low if offset is None else max(offset, low)
        unread[key] = range(start, max(start, each.start.max_offset))
    return committed, unread


def plan_positions(
    source: Client,
    target: Client,
    *,
    group: str,
    source_topic: str,
    target_topic: str,
    state: CopyState,
) -> tuple[ResetPlan, Restore]:
    """Plan the positions of a group in the target. Nothing is changed.

    The plan warns of messages of the source that the group would never consume. Raises
    NotFoundError when no broker of the source knows the group.
    """
    committed, unread = read_committed(source, source_topic, group)
    positions = Restore(
        {
            MessageQueue(target_topic, *to): at
            for to, at in map_positions(state.runs, committed, state.doubts).items()
        }
    )
    request = ResetRequest(group=group, topic=target_topic, target=positions)
    plan = gather_plan(target, request)
    if uncopied := count_uncopied(state.runs, unread):
        are = counted(uncopied, "message is", "messages are")
        warning = (
            f"{are} unread in {source_topic}, but not copied to {target_topic}: the"
            " conditions or the range left them out, or they came later"
        )
        plan = replace(plan, warnings=(*plan.warnings, warning))
    return plan, positions
