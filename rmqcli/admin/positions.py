"""What positions come out as on a live cluster: offsets per queue, pinned.

The decisions are `position_search`'s, `position_asker` carries the questions out: for
all queues together, round by round, and all rounds share one deadline.

Which offset a position means in one queue: decisions only, no I/O.

Each function here is a generator: it yields what it has to know (a tuple of asks that
can be sent together), is sent the answers in the same order, and returns the outcome.
`rmqcli.admin.positions` runs one per queue, all in step.

What a broker's search by time answers depends on its version: up to 5.1.0 the *nearest*
message and never the max offset, later the first one not older, but perhaps below the
min offset. So its answer is only where to look: the store times of the messages around
it decide. The result is the first offset stored at or after the time, in every version.

Source: ConsumeQueue#getOffsetInQueueByTime, DefaultMessageStore#getOffsetInQueueByTime.

Asks brokers what a search for a position wants to know.

Each question is asked once and answered the same for the rest of one command: both ends
of a range see the same min and max offset. All questions share one deadline. A broker
that let it pass is asked no more, and the others get the time again.

Pulls as TOOLS_CONSUMER without a commit: nothing is left on the broker.

Source: DefaultMQAdminExtImpl and MQAdminImpl of the Java client.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.offset import (
    get_all_consumer_offset,
    get_max_offset,
    get_min_offset,
    query_consumer_offset,
    search_offset_by_timestamp,
)
from rmqcli.api.calls.pull import pull_message
from rmqcli.clock import Deadline
from rmqcli.errors import DeadlineError, RmqError, TransportError
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
from rmqcli.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, format_duration
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.pull_answer import PullAnswer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmqcli.api.call import Call
    from rmqcli.api.client import Client
    from rmqcli.api.pending import PendingCall
    from rmqcli.model import MessageQueue


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


K = TypeVar("K")
T = TypeVar("T")

#: Messages per look at store times: enough to see both sides of a moment, few enough
#: that large bodies do not cost much.
_LOOK_MESSAGES = 4

_RUNTIME = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")


class Asker:
    """Asks brokers, each question once, within one deadline for each silent broker."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._deadline = Deadline(client.clock, client.config.timeout_ms)
        #: addresses that did not answer, and why: what would be asked there has that
        self._silent: dict[str, TransportError] = {}
        #: (queue, ask) -> what came back
        self._answers: dict[tuple[MessageQueue, Ask], Answer | RmqError] = {}
        #: address -> its clock; one question for all its queues
        self._clocks: dict[str, BrokerClock | RmqError] = {}
        #: address -> (group, topic) -> queue id -> committed offset
        self._tables: dict[str, dict[tuple[str, str], dict[int, int]] | RmqError] = {}

    def answer(self, queue: MessageQueue, ask: Ask) -> Answer | RmqError:
        """The answer to what `ask` asked before."""
        return self._answers[queue, ask]

    def ask(self, asks: Sequence[tuple[MessageQueue, Ask]]) -> None:
        """Ask what is not known yet, all at once."""
        addresses: dict[tuple[MessageQueue, Ask], str] = {}
        for key in asks:
            if key not in self._answers:
                try:
                    addresses[key] = self._client.reader_of(key[0])
                except RmqError as error:
                    self._answers[key] = error
        clocks = {
            k: a for k, a in addresses.items() if isinstance(k[1], AskBrokerClock)
        }
        self._ask_clocks(set(clocks.values()))
        for key, address in clocks.items():
            self._answers[key] = self._clocks[address]
        calls = {k: (a, _call_for(*k)) for k, a in addresses.items() if k not in clocks}
        for key, outcome in self._gather(calls).items():
            self._answers[key] = _read(outcome)
        self._check_zeros(addresses)

    def _ask_clocks(self, addresses: set[str]) -> None:
        asked_ms = self._client.clock.epoch_ms()
        new = addresses - self._clocks.keys()
        calls = {address: (address, get_broker_runtime_info()) for address in new}
        for address, table in self._gather(calls).items():
            answered_ms = self._client.clock.epoch_ms()
            self._clocks[address] = (
                table
                if isinstance(table, RmqError)
                else broker_clock(table, asked_ms=asked_ms, answered_ms=answered_ms)
            )

    def _check_zeros(self, addresses: Mapping[tuple[MessageQueue, Ask], str]) -> None:
        """A broker before 5.0 may answer 0 for a group that never committed."""
        zeros = {
            key: address
            for key, address in addresses.items()
            if isinstance(key[1], AskCommitted) and self._answers[key] == 0
        }
        new = set(zeros.values()) - self._tables.keys()
        calls = {address: (address, get_all_consumer_offset()) for address in new}
        self._tables.update(self._gather(calls).items())
        for key, address in zeros.items():
            queue, ask = key
            table = self._tables[address]
            if isinstance(table, RmqError):
                self._answers[key] = table
            elif isinstance(ask, AskCommitted):
                offsets = table.get((ask.group, queue.topic), {})
                self._answers[key] = offsets.get(queue.queue_id)

    def _gather(self, calls: Mapping[K, tuple[str, Call[T]]]) -> dict[K, T | RmqError]:
        """Carry out all calls together; errors as values, under the same keys."""
        outcomes: dict[K, T | RmqError] = {}
        pendings: dict[K, PendingCall[T]] = {}
        for key, (address, call) in calls.items():
            if address in self._silent:
                outcomes[key] = self._silent[address]
                continue
            left_ms = self._deadline.left_ms()
            if left_ms == 0:
                outcomes[key] = DeadlineError(
                    f"{call.what}: no time was left to ask {address}", address=address
                )
                continue
            try:
                pendings[key] = self._client.submit(address, call, timeout_ms=left_ms)
            except RmqError as error:
                outcomes[key] = error
        gathered = self._client.gather(pendings.values())
        asked = dict(zip(pendings, gathered, strict=True))
        self._note_silent([(calls[key][0], asked[key]) for key in asked])
        return outcomes | asked

    def _note_silent(self, outcomes: Sequence[tuple[str, object]]) -> None:
        """Leave out who answered nothing, and give the others the time that it took."""
        answered = {a for a, each in outcomes if not isinstance(each, TransportError)}
        silent = {
            address: each
            for address, each in outcomes
            if isinstance(each, TransportError) and address not in answered
        }
        if silent:
            self._silent |= silent
            self._deadline = Deadline(
                self._client.clock, self._client.config.timeout_ms
            )


def _call_for(queue: MessageQueue, ask: Ask) -> Call[Any]:
    topic, queue_id = queue.topic, queue.queue_id
    match ask:
        case AskMinOffset():
            return get_min_offset(topic, queue_id)
        case AskMaxOffset():
            return get_max_offset(topic, queue_id)
        case AskOffsetByTime(epoch_ms):
            return search_offset_by_timestamp(topic, queue_id, epoch_ms)
        case AskStoreTimes(queue_offset):
            return pull_message(queue, queue_offset, max_msg_nums=_LOOK_MESSAGES)
        case AskCommitted(group):
            return query_consumer_offset(group, topic, queue_id)
        case AskBrokerClock():
            return get_broker_runtime_info()


def _read(outcome: PullAnswer | int | RmqError | None) -> Answer | RmqError:
    if not isinstance(outcome, PullAnswer):
        return outcome
    entries = tuple(
        (message.queue_offset, message.store_timestamp_ms)
        for message in decode_messages(outcome.body)
        if isinstance(message, StoredMessage)
    )
    return StoreTimes(entries, outcome.next_begin_offset)


def broker_clock(
    table: Mapping[str, str], *, asked_ms: int, answered_ms: int
) -> BrokerClock:
    """A broker's present time out of its runtime info, which tells it to the second.

    When our own clock agrees with that, it is the finer one and is taken. Else the
    broker's counts, for it is what store times are measured with.
    """
    match = _RUNTIME.search(table.get("runtime", ""))
    boot = table.get("bootTimestamp", "")
    if match is None or not boot.isdigit() or len(boot) > 15:
        note = "the broker did not tell its time: this machine's clock was used"
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
        note = f"the broker's clock is {by} {side} this machine's and was used"
    return BrokerClock(low_ms, note)


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
