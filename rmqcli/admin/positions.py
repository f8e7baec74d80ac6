"""Resolves positions to queue offsets on a live cluster.

`resolve_ranges` and similar functions run one task for each queue (`resolve_in_queue`),
all side by side and under one deadline, so that a broker that does not answer affects
only its own queues. One call sends the same request only once: both ends of a range see
the same min and max offset.

The answer to a broker's search by time depends on its version: up to 5.1.0 it is the
*nearest* message and never the max offset; later it is the first message that is not
older, but perhaps below the min offset. So it only tells where to begin, and the store
times of the messages around it decide. The result is the first offset stored at or
after the time, in every version.

Messages are pulled as TOOLS_CONSUMER without a commit, which leaves nothing on the
broker.

Source: ConsumeQueue#getOffsetInQueueByTime, DefaultMessageStore#getOffsetInQueueByTime,
DefaultMQAdminExtImpl and MQAdminImpl in apache/rocketmq.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqcli.api.broker_errors import not_found
from rmqcli.api.calls.config import (
    get_broker_runtime_info,
    get_subscription_group_names,
)
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.offset import (
    get_all_consumer_offset,
    get_max_offset,
    get_min_offset,
    query_consumer_offset,
    search_offset_by_timestamp,
)
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.runner import ClientRunner, run_task
from rmqcli.clock import Deadline
from rmqcli.errors import BrokerError, RmqError
from rmqcli.model import OffsetRange
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
from rmqcli.tasks import All, Request, start
from rmqcli.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, counted, format_duration
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.message.decode import StoredMessage, decode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Part, Pending, Task
    from rmqcli.wire.pull_answer import PullAnswer

T = TypeVar("T")

#: Number of messages in one pull for store times: enough to see both sides of a moment,
#: few enough that large bodies do not cost much.
_PULL_MESSAGES = 4

_RUNTIME = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")

_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedPosition:
    """A position resolved in one queue.

    `offset` lies in `min_offset..max_offset`, both included; it is None only where a
    group has committed nothing. `wanted` is the offset before it was clamped to that
    range. `note` is a remark for the user, or empty.
    """

    offset: int | None
    min_offset: int
    max_offset: int
    wanted: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResolvedRange:
    """Both ends of a range in one queue, resolved against the same min and max."""

    queue: MessageQueue
    start: ResolvedPosition
    end: ResolvedPosition

    @property
    def offsets(self) -> OffsetRange:
        """The offsets to read; empty when the end is before the start.

        Where a group has committed nothing, the min offset is used: as a start it
        misses no message, and as an end it makes the range empty.
        """
        start, end = _offset_or_min(self.start), _offset_or_min(self.end)
        return OffsetRange(self.queue, start, max(start, end))


def resolve(
    client: Client, queues: Iterable[MessageQueue], position: Position
) -> dict[MessageQueue, ResolvedPosition]:
    """Resolve `position` in each queue. Raises the error of the first that failed.

    Raises NoBrokerError when no broker answers.
    """
    return all_or_raise(client, resolve_each(client, queues, position))


def resolve_each(
    client: Client,
    queues: Iterable[MessageQueue],
    position: Position,
    *,
    own: Mapping[MessageQueue, Position] | None = None,
) -> dict[MessageQueue, ResolvedPosition | RmqError]:
    """Resolve `position` in each queue; the value of a queue that failed is its error.

    `own` gives some queues another position.
    """
    own = own or {}
    return _run_for_each(
        client,
        queues,
        lambda queue, live: resolve_in_queue(live, own.get(queue, position)),
    )


def resolve_ranges(
    client: Client, queues: Iterable[MessageQueue], start: Position, end: Position
) -> dict[MessageQueue, ResolvedRange]:
    """Resolve a range in each queue. Raises as `resolve` does."""
    return all_or_raise(client, resolve_ranges_each(client, queues, start, end))


def resolve_ranges_each(
    client: Client,
    queues: Iterable[MessageQueue],
    start: Position,
    end: Position,
    *,
    own_starts: Mapping[MessageQueue, Position] | None = None,
    own_ends: Mapping[MessageQueue, Position] | None = None,
) -> dict[MessageQueue, ResolvedRange | RmqError]:
    """Resolve a range in each queue; the value of a queue that failed is its error.

    `own_starts` and `own_ends` give some queues another start or end.
    """
    own_starts, own_ends = own_starts or {}, own_ends or {}
    return _run_for_each(
        client,
        queues,
        lambda queue, live: _resolve_range(
            queue, live, own_starts.get(queue, start), own_ends.get(queue, end)
        ),
    )


def _resolve_range(
    queue: MessageQueue, live: QueueRequests, start: Position, end: Position
) -> Task[ResolvedRange]:
    if isinstance(end, PlusN):
        # Counted from the resolved start, so the two cannot be resolved together.
        first = yield from resolve_in_queue(live, start)
        last = yield from resolve_in_queue(
            live, end, start_offset=_offset_or_min(first)
        )
    else:
        first, last = yield from _every(
            resolve_in_queue(live, start), resolve_in_queue(live, end)
        )
    return ResolvedRange(queue, first, last)


def _run_for_each(
    client: Client,
    queues: Iterable[MessageQueue],
    make_task: Callable[[MessageQueue, QueueRequests], Task[T]],
) -> dict[MessageQueue, T | RmqError]:
    """Run one task for each queue, all at once."""
    runner = ClientRunner(client, Deadline(client.clock, client.config.timeout_ms))
    brokers: dict[str, _BrokerAnswers] = {}
    queues = list(queues)
    results: dict[MessageQueue, T | RmqError] = {}
    tasks: dict[MessageQueue, Task[T]] = {}
    for queue in queues:
        try:
            address = client.reader_of(queue)
        except RmqError as error:
            results[queue] = error
            continue
        broker = brokers.get(address)
        if broker is None:
            broker = brokers[address] = _BrokerAnswers(client, runner, address)
        tasks[queue] = make_task(queue, _LiveQueue(queue, broker))
    results.update(zip(tasks, runner.run(tasks.values()), strict=True))
    return {queue: results[queue] for queue in queues}


def format_range(found: ResolvedRange | RmqError) -> str:
    """Describe the range of a queue for the user, with any remarks."""
    if isinstance(found, RmqError):
        return f"unknown: {found.message}"
    offsets = found.offsets
    text = f"{offsets.start} to {offsets.end}, {counted(len(offsets), 'message')}"
    notes = dict.fromkeys(n for n in (found.start.note, found.end.note) if n)
    return "; ".join((text, *notes))


def _offset_or_min(found: ResolvedPosition) -> int:
    return found.min_offset if found.offset is None else found.offset


def all_or_raise(
    client: Client, results: Mapping[MessageQueue, T | RmqError]
) -> dict[MessageQueue, T]:
    """Return the results if no queue failed.

    Raises the error of the first queue that failed, or NoBrokerError when no broker
    answers.
    """
    good = {q: each for q, each in results.items() if not isinstance(each, RmqError)}
    errors = [each for each in results.values() if isinstance(each, RmqError)]
    if errors:
        client.raise_if_none_answers(errors)
        raise errors[0]
    return good


class QueueRequests(Protocol):
    """The requests about one queue that resolving a position may send."""

    def min_offset(self) -> Pending[int]:
        """The oldest offset that still exists."""

    def max_offset(self) -> Pending[int]:
        """The next offset to be written."""

    def offset_by_time(self, epoch_ms: int) -> Pending[int]:
        """The answer of the broker's own search by time; only a hint."""

    def store_times(self, queue_offset: int) -> Pending[StoreTimes]:
        """The store times of the first messages from an offset on."""

    def broker_clock(self) -> Pending[BrokerClock]:
        """The broker's current time."""

    def committed(self, group: str) -> Pending[int | None]:
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
    queue: QueueRequests, position: Position, *, start_offset: int | None = None
) -> Task[ResolvedPosition]:
    """Resolve `position` in one queue.

    When `position` is the end of a range, `start_offset` is the range's start: `+10`
    counts from there, and otherwise from the min offset.
    """
    match position:
        case AtTime(epoch_ms):
            return (yield from _at_time(queue, epoch_ms))
        case Now():
            return (yield from _before_broker_clock(queue, 0))
        case Ago(ago_ms):
            return (yield from _before_broker_clock(queue, ago_ms))
        case AtGroup(group):
            return (yield from _at_group(queue, group))
    answers = yield from _every(queue.min_offset(), queue.max_offset())
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


def _at_time(queue: QueueRequests, epoch_ms: int) -> Task[ResolvedPosition]:
    min_answer, max_answer, near = yield from _every(
        queue.min_offset(), queue.max_offset(), queue.offset_by_time(epoch_ms)
    )
    ends = _checked_ends(min_answer, max_answer)
    return (yield from _lower_bound(queue, epoch_ms, *ends, near))


def _before_broker_clock(queue: QueueRequests, ago_ms: int) -> Task[ResolvedPosition]:
    min_answer, max_answer, now = yield from _every(
        queue.min_offset(), queue.max_offset(), queue.broker_clock()
    )
    ends = _checked_ends(min_answer, max_answer)
    epoch_ms = max(0, now.epoch_ms - ago_ms)
    near = yield queue.offset_by_time(epoch_ms)
    found = yield from _lower_bound(queue, epoch_ms, *ends, near)
    return replace(found, note=now.note)


def _at_group(queue: QueueRequests, group: str) -> Task[ResolvedPosition]:
    min_answer, max_answer, committed = yield from _every(
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
) -> Task[ResolvedPosition]:
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
    return ResolvedPosition(
        offset=found, min_offset=min_offset, max_offset=max_offset, wanted=found
    )


def _first_entries(
    queue: QueueRequests, queue_offset: int, end: int
) -> Task[list[tuple[int, int]]]:
    """Return the first existing messages in `queue_offset <= o < end`."""
    while True:
        times: StoreTimes = yield queue.store_times(queue_offset)
        entries = [e for e in times.entries if queue_offset <= e[0] < end]
        if entries or not queue_offset < times.next_offset < end:
            return entries
        queue_offset = times.next_offset


def _every(*parts: Part) -> Task[list[Any]]:
    """Run parts side by side and return their results. Raises the first error."""
    outcomes: list[Any] = yield All(parts)
    for outcome in outcomes:
        if isinstance(outcome, RmqError):
            raise outcome
    return outcomes


class _BrokerAnswers:
    """The answers of one broker, shared by the tasks of one call.

    Each request is sent once, and all tasks that need it get the same answer.
    """

    def __init__(self, client: Client, runner: ClientRunner, address: str) -> None:
        self._client = client
        self._runner = runner
        self.address = address
        self._asked: dict[object, Pending[Any]] = {}

    def once(self, key: object, make_part: Callable[[], Part]) -> Pending[Any]:
        """Start `make_part()` on the first call for `key`; always return its answer."""
        pending = self._asked.get(key)
        if pending is None:
            pending = self._asked[key] = start(make_part(), self._runner)
        return pending

    def clock(self) -> Task[BrokerClock]:
        """Query the broker's current time."""
        asked_ms = self._client.clock.epoch_ms()
        table = yield Request(self.address, get_broker_runtime_info())
        answered_ms = self._client.clock.epoch_ms()
        return broker_clock(table, asked_ms=asked_ms, answered_ms=answered_ms)

    def all_offsets(self) -> Pending[dict[tuple[str, str], dict[int, int]]]:
        """All committed offsets: (group, topic) -> queue id -> offset."""
        return self.once(
            "all offsets", lambda: Request(self.address, get_all_consumer_offset())
        )


class _LiveQueue:
    """Implements QueueRequests for a queue of a live broker."""

    def __init__(self, queue: MessageQueue, broker: _BrokerAnswers) -> None:
        self._queue = queue
        self._broker = broker

    def min_offset(self) -> Pending[int]:
        """See QueueRequests."""
        queue = self._queue
        return self._broker.once(
            (queue, "min"),
            lambda: self._request(get_min_offset(queue.topic, queue.queue_id)),
        )

    def max_offset(self) -> Pending[int]:
        """See QueueRequests."""
        queue = self._queue
        return self._broker.once(
            (queue, "max"),
            lambda: self._request(get_max_offset(queue.topic, queue.queue_id)),
        )

    def offset_by_time(self, epoch_ms: int) -> Pending[int]:
        """See QueueRequests."""
        queue = self._queue
        return self._broker.once(
            (queue, "time", epoch_ms),
            lambda: self._request(
                search_offset_by_timestamp(queue.topic, queue.queue_id, epoch_ms)
            ),
        )

    def store_times(self, queue_offset: int) -> Pending[StoreTimes]:
        """See QueueRequests."""
        return self._broker.once(
            (self._queue, "store times", queue_offset),
            lambda: self._read_store_times(queue_offset),
        )

    def broker_clock(self) -> Pending[BrokerClock]:
        """See QueueRequests."""
        return self._broker.once("clock", self._broker.clock)

    def committed(self, group: str) -> Pending[int | None]:
        """See QueueRequests."""
        return self._broker.once(
            (self._queue, "committed", group), lambda: self._read_committed(group)
        )

    def _request(self, call: Call[T]) -> Request[T]:
        return Request(self._broker.address, call)

    def _read_store_times(self, queue_offset: int) -> Task[StoreTimes]:
        answer: PullAnswer = yield self._request(
            pull_message(self._queue, queue_offset, max_msg_nums=_PULL_MESSAGES)
        )
        entries = tuple(
            (message.queue_offset, message.store_timestamp_ms)
            for message in decode_messages(answer.body)
            if isinstance(message, StoredMessage)
        )
        return StoreTimes(entries, answer.next_begin_offset)

    def _read_committed(self, group: str) -> Task[int | None]:
        queue = self._queue
        offset: int | None = yield self._request(
            query_consumer_offset(group, queue.topic, queue.queue_id)
        )
        if offset != 0:
            return offset
        # A broker before 5.0 may answer 0 for a group that never committed.
        table = yield self._broker.all_offsets()
        offsets: dict[int, int] = table.get((group, queue.topic), {})
        return offsets.get(queue.queue_id)


def broker_clock(
    table: Mapping[str, str], *, asked_ms: int, answered_ms: int
) -> BrokerClock:
    """Return a broker's current time from its runtime info, which has it to the second.

    When our own clock agrees with that, its time is used, because it is more precise.
    Otherwise the broker's time is used, because store times are measured with its
    clock. If the broker did not report its time, ours is used, with a note.
    """
    match = _RUNTIME.search(table.get("runtime", ""))
    boot = table.get("bootTimestamp", "")
    if match is None or not boot.isdigit() or len(boot) > 15:
        note = "the broker did not report its time; using this machine's clock"
        return BrokerClock(answered_ms, note)
    days, hours, minutes, seconds = (int(number[:9]) for number in match.groups())
    up_ms = days * DAY_MS + hours * HOUR_MS + minutes * MINUTE_MS + seconds * SECOND_MS
    low_ms = int(boot) + up_ms
    if low_ms <= answered_ms and asked_ms < low_ms + SECOND_MS:
        return BrokerClock(answered_ms)
    ahead_ms = low_ms - answered_ms
    if ahead_ms < 0:
        ahead_ms = min(0, low_ms + SECOND_MS - asked_ms)
    note = ""
    if abs(ahead_ms) >= SECOND_MS:
        side = "ahead of" if ahead_ms > 0 else "behind"
        by = format_duration(abs(ahead_ms))
        note = f"the broker's clock is {by} {side} this machine's; using the broker's"
    return BrokerClock(low_ms, note)


def check_groups(
    client: Client,
    queues: Iterable[MessageQueue],
    positions: Iterable[Position | None],
) -> None:
    """Raise NotFoundError when a position names a group that no broker has.

    This catches mistyped names. A group exists when a broker of the queues has its
    settings, an offset of it for any topic, or a member of it online; it may still have
    committed nothing in a queue. Requests are sent only when a position names a group.
    A broker that does not answer may have the group, so then nothing is raised: the
    broker's queues cannot be read either.
    """
    groups = {p.group: None for p in positions if isinstance(p, AtGroup)}
    if not groups:
        return
    addresses: dict[str, str] = {}
    is_complete = True
    for queue in sorted(queues):
        if queue.broker_name in addresses:
            continue
        try:
            addresses[queue.broker_name] = client.reader_of(queue)
        except RmqError:
            is_complete = False
    for group in groups:
        if run_task(client, _is_missing(group, addresses, is_complete=is_complete)):
            raise not_found("group", group)


def _is_missing(
    group: str, addresses: Mapping[str, str], *, is_complete: bool
) -> Task[bool]:
    """Return whether `group` certainly does not exist."""
    targets = list(dict.fromkeys(addresses.values()))
    names = yield All([Request(at, get_subscription_group_names()) for at in targets])
    for each in names:
        if isinstance(each, RmqError) or group in each:
            return False
    if not is_complete:
        return False
    answers = yield All(
        [Request(at, get_consumer_connection_list(group)) for at in targets]
        + [Request(at, get_all_consumer_offset()) for at in targets]
    )
    for connection in answers[: len(targets)]:
        if isinstance(connection, BrokerError) and connection.code == _NOT_SUPPORTED:
            continue  # a store folder that is read without its broker has no members
        if connection is not None:  # the group is online, or the broker did not answer
            return False
    return not any(
        isinstance(table, RmqError) or any(name == group for name, _ in table)
        for table in answers[len(targets) :]
    )
