"""Finds the offset of a position in one queue, by the requests that its broker answers.

`resolve_in_queue` is the one resolution of positions: `rmqcli.admin.positions` runs it
for many queues at once, and a consumer for a queue without a committed offset.

The answer to a broker's search by time depends on its version: up to 5.1.0 it is the
*nearest* message and never the max offset; later it is the first message that is not
older, but perhaps below the min offset. So it only tells where to begin, and the store
times of the messages around it decide. The result is the first offset stored at or
after the time, in every version. What is relative to the present is counted from the
broker's clock, because store times are measured with it.

Messages are pulled as TOOLS_CONSUMER without a commit, which leaves nothing on the
broker.

Source: ConsumeQueue#getOffsetInQueueByTime, DefaultMessageStore#getOffsetInQueueByTime,
DefaultMQAdminExtImpl and MQAdminImpl in apache/rocketmq.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.offset import (
    get_all_consumer_offset,
    get_max_offset,
    get_min_offset,
    query_consumer_offset,
    search_offset_by_timestamp,
)
from rmqcli.api.calls.pull import pull_message
from rmqcli.dataclass import dataclass
from rmqcli.position import (
    Ago,
    AtGroup,
    AtNow,
    AtOffset,
    AtTime,
    Earliest,
    LastN,
    Latest,
    PlusN,
    Position,
)
from rmqcli.tasks import Request, every
from rmqcli.units import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    format_duration,
    read_count,
)
from rmqcli.wire.message.decode import StoredMessage, decode_messages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.call import Call
    from rmqcli.clock import Clock
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Part, Task
    from rmqcli.wire.pull_answer import PullAnswer

#: Number of messages in one pull for store times: enough to see both sides of a moment,
#: few enough that large bodies do not cost much.
_PULL_MESSAGES = 4

UNSORTED: Final = (
    "store times are not in order here, as after a broker's clock was set back:"
    " messages from around the time may be left out or be too many"
)
_RUNTIME = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPosition:
    """A position resolved in one queue.

    `offset` lies in `min_offset..max_offset`, both included; it is None only where a
    group has committed nothing. `wanted` is the offset before it was clamped to that
    range. `note` is a remark for the user, or empty. `is_unsorted` is whether messages
    beside a time were seen to be on its wrong side.
    """

    offset: int | None
    min_offset: int
    max_offset: int
    wanted: int | None = None
    note: str = ""
    is_unsorted: bool = False


class QueueRequests(Protocol):
    """The requests about one queue that resolving a position may send.

    Each method returns a part of a task, whose outcome its docstring names.
    """

    def min_offset(self) -> Part:
        """The oldest offset that still exists."""

    def max_offset(self) -> Part:
        """The next offset to be written."""

    def offset_by_time(self, epoch_ms: int) -> Part:
        """The answer of the broker's own search by time; only a hint."""

    def store_times(self, queue_offset: int) -> Part:
        """The store times of the first messages from an offset on."""

    def broker_clock(self) -> Part:
        """The broker's current time."""

    def committed(self, group: str) -> Part:
        """The offset that a group has committed, or None without one."""


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """The store times of the messages that one pull returned.

    `entries` are `(queue_offset, store_timestamp_ms)` in order. `next_offset` is where
    the broker suggests to pull next; it is above the requested offset unless there are
    no more messages.
    """

    entries: tuple[tuple[int, int], ...]
    next_offset: int


@dataclass(frozen=True, slots=True)
class BrokerClock:
    """A broker's current time, accurate to the second, and a remark for the user."""

    epoch_ms: int
    note: str = ""


def resolve_in_queue(
    queue: QueueRequests,
    position: Position,
    *,
    start_offset: int | None = None,
    checks_order: bool = False,
) -> Task[ResolvedPosition]:
    """Resolve `position` in one queue.

    When `position` is the end of a range, `start_offset` is the range's start: `+10`
    counts from there, and otherwise from the min offset. With `checks_order`, messages
    on both sides of a time are read to see whether store times are in order; a step
    back of the clock that lies between those is not noticed.
    """
    match position:
        case AtTime(epoch_ms):
            return (yield from _at_time(queue, epoch_ms, checks_order=checks_order))
        case AtNow():
            return (yield from _ago(queue, 0, checks_order=checks_order))
        case Ago(ago_ms):
            return (yield from _ago(queue, ago_ms, checks_order=checks_order))
        case AtGroup(group):
            return (yield from _at_group(queue, group))
    answers = yield from every(queue.min_offset(), queue.max_offset())
    min_offset, max_offset = _checked_ends(*answers)
    match position:
        case Earliest():
            wanted = min_offset
        case Latest():
            wanted = max_offset
        case AtOffset(queue_offset):
            wanted = queue_offset
        case LastN(count):
            # That the queue has fewer messages is not worth a note.
            wanted = max(min_offset, max_offset - count)
        case PlusN(count):
            wanted = (min_offset if start_offset is None else start_offset) + count
        case _:
            raise TypeError(f"not a position: {position!r}")
    return bounded(wanted, min_offset, max_offset)


def bounded(wanted: int, min_offset: int, max_offset: int) -> ResolvedPosition:
    """Clamp `wanted` to the queue's range, with a note if that changes it."""
    note = ""
    if wanted < min_offset:
        note = f"{wanted} is expired, the oldest is {min_offset}"
    elif wanted > max_offset:
        note = f"{wanted} is beyond the end ({max_offset})"
    return ResolvedPosition(
        offset=min(max(wanted, min_offset), max_offset),
        min_offset=min_offset,
        max_offset=max_offset,
        wanted=wanted,
        note=note,
    )


def _checked_ends(min_offset: int, max_offset: int) -> tuple[int, int]:
    """Return the ends as a valid range, `0 <= min <= max`.

    The answers may be out of order while the queue is being trimmed or created.
    """
    low, high = max(0, min_offset), max(0, max_offset)
    return min(low, high), high


def _at_time(
    queue: QueueRequests, epoch_ms: int, *, checks_order: bool
) -> Task[ResolvedPosition]:
    min_answer, max_answer, near = yield from every(
        queue.min_offset(), queue.max_offset(), queue.offset_by_time(epoch_ms)
    )
    ends = _checked_ends(min_answer, max_answer)
    found = yield from _lower_bound(queue, epoch_ms, *ends, near)
    is_unsorted = checks_order and (
        yield from _is_unsorted(queue, epoch_ms, found, *ends)
    )
    return ResolvedPosition(
        offset=found,
        min_offset=ends[0],
        max_offset=ends[1],
        wanted=found,
        note=UNSORTED if is_unsorted else "",
        is_unsorted=is_unsorted,
    )


def _ago(
    queue: QueueRequests, ago_ms: int, *, checks_order: bool
) -> Task[ResolvedPosition]:
    (now,) = yield from every(queue.broker_clock())
    epoch_ms = max(0, now.epoch_ms - ago_ms)
    found = yield from _at_time(queue, epoch_ms, checks_order=checks_order)
    return replace(found, note="; ".join(filter(None, (now.note, found.note))))


def _at_group(queue: QueueRequests, group: str) -> Task[ResolvedPosition]:
    min_answer, max_answer, committed = yield from every(
        queue.min_offset(), queue.max_offset(), queue.committed(group)
    )
    min_offset, max_offset = _checked_ends(min_answer, max_answer)
    if committed is None:
        return ResolvedPosition(
            offset=None,
            min_offset=min_offset,
            max_offset=max_offset,
            note=f"group {group} has committed nothing here",
        )
    return bounded(committed, min_offset, max_offset)


def _lower_bound(
    queue: QueueRequests, epoch_ms: int, min_offset: int, max_offset: int, near: int
) -> Task[int]:
    """Find the first offset stored at or after `epoch_ms`, or else the max offset.

    Invariants: all messages below `low` are older, and no message from `high` on is.
    `found` is the first known offset that is not older, and no message exists between
    `high` and `found`. Each round moves `low` up or `high` down, so the search ends;
    with a good hint it takes one round.
    """
    low, high, found = min_offset, max_offset, max_offset
    probe, step = near - 1, 1
    while low < high:
        probe = min(max(probe, low), high - 1)
        entries = yield from _first_entries(queue, probe, high)
        if not entries or entries[0][1] >= epoch_ms:
            found = entries[0][0] if entries else found
            high = probe
            probe = high - step
        else:
            young = [offset for offset, stored in entries if stored >= epoch_ms]
            if young:
                # Entries of one answer are adjacent: no message exists between them.
                found = young[0]
                break
            low = entries[-1][0] + 1
            probe = low + step - 1
        step *= 8
        if step > (high - low) // 2:
            probe = (low + high) // 2
    return found


def _is_unsorted(
    queue: QueueRequests, epoch_ms: int, found: int, min_offset: int, max_offset: int
) -> Task[bool]:
    """Whether a message before `found` is not older, or one from there on is older.

    Messages are read side by side at distances that double, and at both ends.
    """
    reach = range((max_offset - min_offset).bit_length())
    probes = {min_offset, max_offset - 1}
    probes |= {found - (1 << n) for n in reach} | {found + (1 << n) for n in reach}
    inside = sorted(each for each in probes if min_offset <= each < max_offset)
    answers: list[StoreTimes] = yield from every(*map(queue.store_times, inside))
    return any(
        (stored >= epoch_ms) != (offset >= found)
        for times in answers
        for offset, stored in times.entries
        if offset < max_offset  # later ones may be of a clock that was read earlier
    )


def _first_entries(
    queue: QueueRequests, queue_offset: int, end: int
) -> Task[list[tuple[int, int]]]:
    """Return the first existing messages in `queue_offset <= o < end`."""
    while True:
        times: StoreTimes
        (times,) = yield from every(queue.store_times(queue_offset))
        entries = [e for e in times.entries if queue_offset <= e[0] < end]
        if entries or not queue_offset < times.next_offset < end:
            return entries
        queue_offset = times.next_offset


@dataclass(eq=False)
class RemoteQueue:
    """Implements QueueRequests for a queue of the broker at `address`."""

    queue: MessageQueue
    address: str
    clock: Clock

    def min_offset(self) -> Part:
        """See QueueRequests."""
        return self._request(get_min_offset(self.queue.topic, self.queue.queue_id))

    def max_offset(self) -> Part:
        """See QueueRequests."""
        return self._request(get_max_offset(self.queue.topic, self.queue.queue_id))

    def offset_by_time(self, epoch_ms: int) -> Part:
        """See QueueRequests."""
        queue = self.queue
        return self._request(
            search_offset_by_timestamp(queue.topic, queue.queue_id, epoch_ms)
        )

    def store_times(self, queue_offset: int) -> Part:
        """See QueueRequests."""
        return self._read_store_times(queue_offset)

    def broker_clock(self) -> Part:
        """See QueueRequests."""
        return self._read_clock()

    def committed(self, group: str) -> Part:
        """See QueueRequests."""
        return self._read_committed(group)

    def all_offsets(self) -> Part:
        """All committed offsets: (group, topic) -> queue id -> offset."""
        return self._request(get_all_consumer_offset())

    def _request(self, call: Call[Any]) -> Request[Any]:
        return Request(self.address, call)

    def _read_store_times(self, queue_offset: int) -> Task[StoreTimes]:
        answer: PullAnswer = yield self._request(
            pull_message(self.queue, queue_offset, max_msg_nums=_PULL_MESSAGES)
        )
        entries = tuple(
            (message.queue_offset, message.store_timestamp_ms)
            for message in decode_messages(answer.body)
            if isinstance(message, StoredMessage)
        )
        return StoreTimes(entries, answer.next_begin_offset)

    def _read_clock(self) -> Task[BrokerClock]:
        asked_ms = self.clock.epoch_ms()
        table = yield self._request(get_broker_runtime_info())
        answered_ms = self.clock.epoch_ms()
        return broker_clock(table, asked_ms=asked_ms, answered_ms=answered_ms)

    def _read_committed(self, group: str) -> Task[int | None]:
        queue = self.queue
        offset: int | None = yield self._request(
            query_consumer_offset(group, queue.topic, queue.queue_id)
        )
        if offset != 0:
            return offset
        # A broker before 5.0 may answer 0 for a group that never committed.
        (table,) = yield from every(self.all_offsets())
        offsets: dict[int, int] = table.get((group, queue.topic), {})
        return offsets.get(queue.queue_id)


def uptime_ms(table: Mapping[str, str]) -> int | None:
    """Return for how long a broker runs, to the second; None if it did not report it.

    It is by the broker's own clock, as its other times.
    """
    match = _RUNTIME.search(table.get("runtime", ""))
    if match is None:
        return None
    days, hours, minutes, seconds = (int(number[:9]) for number in match.groups())
    return days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS


def broker_clock(
    table: Mapping[str, str], *, asked_ms: int, answered_ms: int
) -> BrokerClock:
    """Return a broker's current time from its runtime info, which has it to the second.

    When our own clock agrees with that, its time is used, because it is more precise.
    Otherwise the broker's time is used, because store times are measured with its
    clock. If the broker did not report its time, ours is used, with a note.
    """
    up_ms = uptime_ms(table)
    boot_ms = read_count(table.get("bootTimestamp"), digits_max=15)
    if up_ms is None or boot_ms is None:
        note = "the broker did not report its time; using this machine's clock"
        return BrokerClock(answered_ms, note)
    low_ms = boot_ms + up_ms
    if low_ms <= answered_ms and asked_ms < low_ms + SECOND_MS:
        return BrokerClock(answered_ms)
    ahead_ms = low_ms - answered_ms
    if ahead_ms < 0:
        ahead_ms = low_ms + SECOND_MS - asked_ms
    note = ""
    if abs(ahead_ms) >= SECOND_MS:
        side = "ahead of" if ahead_ms > 0 else "behind"
        by = format_duration(abs(ahead_ms))
        note = f"the broker's clock is {by} {side} this machine's; using the broker's"
    return BrokerClock(low_ms, note)
