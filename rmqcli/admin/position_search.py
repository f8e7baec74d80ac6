"""Which offset a position means in one queue: decisions only, no I/O.

Each function here is a generator: it yields what it has to know (a tuple of asks that
can be sent together), is sent the answers in the same order, and returns the outcome.
`rmqcli.admin.positions` runs one per queue, all in step.

What a broker's search by time answers depends on its version: up to 5.1.0 the *nearest*
message and never the max offset, later the first one not older, but perhaps below the
min offset. So its answer is only where to look: the store times of the messages around
it decide. The result is the first offset stored at or after the time, in every version.

Source: ConsumeQueue#getOffsetInQueueByTime, DefaultMessageStore#getOffsetInQueueByTime.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

from rmqcli.position import (
    Ago,
    AtGroup,
    AtOffset,
    AtTime,
    Earliest,
    LastN,
    Latest,
    Now,
    PlusN,
    Position,
)


@dataclass(frozen=True, slots=True)
class AskMinOffset:
    """The oldest offset still there; answered with an int."""


@dataclass(frozen=True, slots=True)
class AskMaxOffset:
    """The next offset to be written; answered with an int."""


@dataclass(frozen=True, slots=True)
class AskOffsetByTime:
    """The broker's own search; answered with an int that is only a hint."""

    epoch_ms: int


@dataclass(frozen=True, slots=True)
class AskStoreTimes:
    """The store times of the messages from an offset on; answered with StoreTimes."""

    queue_offset: int


@dataclass(frozen=True, slots=True)
class AskBrokerClock:
    """The broker's present time; answered with BrokerClock."""


@dataclass(frozen=True, slots=True)
class AskCommitted:
    """What a group has committed; answered with an int, or None for nothing."""

    group: str


Ask = (
    AskMinOffset
    | AskMaxOffset
    | AskOffsetByTime
    | AskStoreTimes
    | AskBrokerClock
    | AskCommitted
)


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """The beginning of what a pull from an offset gives.

    `entries` are `(queue_offset, store_timestamp_ms)` in order; `next_offset` is where
    the broker would go on, above the offset asked for unless nothing more is there.
    """

    entries: tuple[tuple[int, int], ...]
    next_offset: int


@dataclass(frozen=True, slots=True)
class BrokerClock:
    """A broker's present time, to the second, and what is odd about it."""

    epoch_ms: int
    note: str = ""


Answer = int | StoreTimes | BrokerClock | None
Search = Generator[tuple[Ask, ...], tuple[Answer, ...], "ResolvedPosition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPosition:
    """What a position came out as in one queue.

    `offset` lies in `min_offset..max_offset`; it is None only where a group has
    committed nothing. `wanted` is the offset before it was brought into that range.
    `note` says what a person should know, or is empty.
    """

    offset: int | None
    min_offset: int
    max_offset: int
    wanted: int | None = None
    note: str = ""


def resolve_in_queue(position: Position, *, start_offset: int | None = None) -> Search:
    """Find what `position` means in one queue.

    `start_offset` is where the range begins, when `position` is its end: `+10` counts
    from there, else from the min offset.
    """
    match position:
        case AtTime(epoch_ms):
            return (yield from _at_time(epoch_ms))
        case Now():
            return (yield from _before_broker_clock(0))
        case Ago(ago_ms):
            return (yield from _before_broker_clock(ago_ms))
        case AtGroup(group):
            return (yield from _at_group(group))
    min_offset, max_offset = yield from _ends()
    match position:
        case Earliest():
            wanted = min_offset
        case Latest():
            wanted = max_offset
        case AtOffset(queue_offset):
            wanted = queue_offset
        case LastN(count):
            # Fewer messages than asked for is not worth a note.
            wanted = max(min_offset, max_offset - count)
        case PlusN(count):
            wanted = (min_offset if start_offset is None else start_offset) + count
        case _:
            raise TypeError(f"not a position: {position!r}")
    return bounded(wanted, min_offset, max_offset)


def bounded(wanted: int, min_offset: int, max_offset: int) -> ResolvedPosition:
    """`wanted` brought into what the queue holds, with a note where that changed it."""
    note = ""
    if wanted < min_offset:
        note = f"{wanted} is expired, the oldest is {min_offset}"
    elif wanted > max_offset:
        note = f"{wanted} is not written yet, the end is {max_offset}"
    return ResolvedPosition(
        offset=min(max(wanted, min_offset), max_offset),
        min_offset=min_offset,
        max_offset=max_offset,
        wanted=wanted,
        note=note,
    )


def _ends() -> Generator[tuple[Ask, ...], tuple[Answer, ...], tuple[int, int]]:
    min_offset, max_offset = yield (AskMinOffset(), AskMaxOffset())
    return _checked_ends(min_offset, max_offset)


def _checked_ends(min_offset: Answer, max_offset: Answer) -> tuple[int, int]:
    """The ends as a range: a queue being trimmed or made may answer out of order."""
    low, high = max(0, _int(min_offset)), max(0, _int(max_offset))
    return min(low, high), high


def _at_time(epoch_ms: int) -> Search:
    min_answer, max_answer, near = yield (
        AskMinOffset(),
        AskMaxOffset(),
        AskOffsetByTime(epoch_ms),
    )
    min_offset, max_offset = _checked_ends(min_answer, max_answer)
    return (yield from _lower_bound(epoch_ms, min_offset, max_offset, _int(near)))


def _before_broker_clock(ago_ms: int) -> Search:
    min_answer, max_answer, now = yield (
        AskMinOffset(),
        AskMaxOffset(),
        AskBrokerClock(),
    )
    min_offset, max_offset = _checked_ends(min_answer, max_answer)
    if not isinstance(now, BrokerClock):
        raise TypeError(f"not a time: {now!r}")
    epoch_ms = max(0, now.epoch_ms - ago_ms)
    (near,) = yield (AskOffsetByTime(epoch_ms),)
    found = yield from _lower_bound(epoch_ms, min_offset, max_offset, _int(near))
    return replace(found, note=now.note)


def _at_group(group: str) -> Search:
    min_answer, max_answer, committed = yield (
        AskMinOffset(),
        AskMaxOffset(),
        AskCommitted(group),
    )
    min_offset, max_offset = _checked_ends(min_answer, max_answer)
    if committed is None:
        return ResolvedPosition(
            offset=None,
            min_offset=min_offset,
            max_offset=max_offset,
            note=f"group {group} has committed nothing here",
        )
    return bounded(_int(committed), min_offset, max_offset)


def _lower_bound(epoch_ms: int, min_offset: int, max_offset: int, near: int) -> Search:
    """The first offset stored at or after `epoch_ms`, else the max offset.

    Everything below `low` is older. From `high` on nothing is older and before `found`,
    the smallest offset known not to be older, nothing exists. Each round moves `low` up
    or `high` down, so it ends; with a good hint after one round.
    """
    low, high, found = min_offset, max_offset, max_offset
    probe, step = near - 1, 1
    while low < high:
        probe = min(max(probe, low), high - 1)
        entries = yield from _first_entries(probe, high)
        if not entries or entries[0][1] >= epoch_ms:
            found = entries[0][0] if entries else found
            high = probe
            probe = high - step
        else:
            young = [offset for offset, stored in entries if stored >= epoch_ms]
            if young:
                # Neighbours of one answer: nothing exists between them.
                found = young[0]
                break
            low = entries[-1][0] + 1
            probe = low + step - 1
        step *= 8
        if step > (high - low) // 2:
            probe = (low + high) // 2
    return ResolvedPosition(
        offset=found, min_offset=min_offset, max_offset=max_offset, wanted=found
    )


def _first_entries(
    queue_offset: int, end: int
) -> Generator[tuple[Ask, ...], tuple[Answer, ...], list[tuple[int, int]]]:
    """The first messages that exist in `queue_offset..end`, holes jumped over."""
    while True:
        (times,) = yield (AskStoreTimes(queue_offset),)
        if not isinstance(times, StoreTimes):
            raise TypeError(f"not store times: {times!r}")
        entries = [e for e in times.entries if queue_offset <= e[0] < end]
        if entries or not queue_offset < times.next_offset < end:
            return entries
        queue_offset = times.next_offset


def _int(answer: Answer) -> int:
    if not isinstance(answer, int):
        raise TypeError(f"not a number: {answer!r}")
    return answer
