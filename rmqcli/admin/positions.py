"""What positions come out as on a live cluster: offsets per queue, pinned.

The decisions are `position_search`'s, `position_asker` carries the questions out: for
all queues together, round by round, and all rounds share one deadline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from rmqcli.admin.position_asker import Asker
from rmqcli.admin.position_search import ResolvedPosition, Search, resolve_in_queue
from rmqcli.errors import RmqError
from rmqcli.model import OffsetRange
from rmqcli.position import PlusN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.position import Position

T = TypeVar("T")

#: A queue, and which end of the range.
_Key = tuple["MessageQueue", int]
_START, _END = 0, 1


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """Both ends of a range in one queue, resolved against the same min and max."""

    queue: MessageQueue
    start: ResolvedPosition
    end: ResolvedPosition

    @property
    def offsets(self) -> OffsetRange:
        """The offsets to read; empty when the end is before the start.

        Where a group has committed nothing the min offset stands in: as a start nothing
        is missed, as an end there is nothing before it.
        """
        start, end = _offset_or_min(self.start), _offset_or_min(self.end)
        return OffsetRange(self.queue, start, max(start, end))


def resolve(
    client: Client, queues: Iterable[MessageQueue], position: Position
) -> dict[MessageQueue, ResolvedPosition]:
    """What `position` is in each queue. Raises the first queue's error, if any."""
    return _all_or_raise(resolve_each(client, queues, position))


def resolve_each(
    client: Client,
    queues: Iterable[MessageQueue],
    position: Position,
    *,
    own: Mapping[MessageQueue, Position] | None = None,
) -> dict[MessageQueue, ResolvedPosition | RmqError]:
    """Like `resolve`, with each queue's error in its place.

    Queues in `own` have a position of their own.
    """
    own = own or {}
    jobs = {
        (queue, _START): resolve_in_queue(own.get(queue, position)) for queue in queues
    }
    return {key[0]: found for key, found in _run(Asker(client), jobs).items()}


def resolve_ranges(
    client: Client, queues: Iterable[MessageQueue], start: Position, end: Position
) -> dict[MessageQueue, ResolvedRange]:
    """The range in each queue, pinned now. Raises the first queue's error, if any."""
    return _all_or_raise(resolve_ranges_each(client, queues, start, end))


def resolve_ranges_each(
    client: Client,
    queues: Iterable[MessageQueue],
    start: Position,
    end: Position,
    *,
    own_starts: Mapping[MessageQueue, Position] | None = None,
) -> dict[MessageQueue, ResolvedRange | RmqError]:
    """Like `resolve_ranges`, with each queue's error in its place.

    Queues in `own_starts` have a start of their own.
    """
    own_starts = own_starts or {}
    asker = Asker(client)
    queues = list(queues)
    jobs = {
        (queue, _START): resolve_in_queue(own_starts.get(queue, start))
        for queue in queues
    }
    if isinstance(end, PlusN):
        # Counted from where the start came out, so not together with it.
        found = _run(asker, jobs)
        jobs = {
            (queue, _END): resolve_in_queue(end, start_offset=_offset_or_min(begin))
            for (queue, _), begin in found.items()
            if not isinstance(begin, RmqError)
        }
        found |= _run(asker, jobs)
    else:
        jobs |= {(queue, _END): resolve_in_queue(end) for queue in queues}
        found = _run(asker, jobs)
    return {queue: _range_or_error(queue, found) for queue in queues}


def format_ranges(ranges: Mapping[MessageQueue, ResolvedRange | RmqError]) -> list[str]:
    """A line per queue for people: what the range came out as, and why it is odd."""
    lines = []
    for queue in sorted(ranges):
        found = ranges[queue]
        if isinstance(found, RmqError):
            lines.append(f"{queue}: unknown: {found.message}")
            continue
        offsets = found.offsets
        line = f"{queue}: {offsets.start} to {offsets.end}, {len(offsets)} messages"
        notes = dict.fromkeys(n for n in (found.start.note, found.end.note) if n)
        lines.append("; ".join((line, *notes)))
    return lines


def format_positions(
    positions: Mapping[MessageQueue, ResolvedPosition | RmqError],
) -> list[str]:
    """A line per queue for people: what one position came out as."""
    lines = []
    for queue in sorted(positions):
        found = positions[queue]
        if isinstance(found, RmqError):
            lines.append(f"{queue}: unknown: {found.message}")
            continue
        offset = "none" if found.offset is None else str(found.offset)
        line = f"{queue}: {offset} of {found.min_offset}..{found.max_offset}"
        lines.append("; ".join((line, *([found.note] if found.note else []))))
    return lines


def _offset_or_min(found: ResolvedPosition) -> int:
    return found.min_offset if found.offset is None else found.offset


def _range_or_error(
    queue: MessageQueue, found: Mapping[_Key, ResolvedPosition | RmqError]
) -> ResolvedRange | RmqError:
    start = found[queue, _START]
    if isinstance(start, RmqError):
        return start
    end = found[queue, _END]
    if isinstance(end, RmqError):
        return end
    return ResolvedRange(queue, start, end)


def _all_or_raise(
    results: Mapping[MessageQueue, T | RmqError],
) -> dict[MessageQueue, T]:
    good: dict[MessageQueue, T] = {}
    for queue, result in results.items():
        if isinstance(result, RmqError):
            raise result
        good[queue] = result
    return good


def _run(
    asker: Asker, searches: Mapping[_Key, Search]
) -> dict[_Key, ResolvedPosition | RmqError]:
    """Drive all searches in step to their ends."""
    results: dict[_Key, ResolvedPosition | RmqError] = {}
    asked = {key: next(search) for key, search in searches.items()}
    while asked:
        asker.ask([(key[0], ask) for key, asks in asked.items() for ask in asks])
        for key, asks in list(asked.items()):
            answers = []
            for ask in asks:
                answer = asker.answer(key[0], ask)
                if isinstance(answer, RmqError):
                    results[key] = answer
                    break
                answers.append(answer)
            if key not in results:
                try:
                    asked[key] = searches[key].send(tuple(answers))
                except StopIteration as end:
                    results[key] = end.value
            if key in results:
                searches[key].close()
                del asked[key]
    return {key: results[key] for key in searches}
