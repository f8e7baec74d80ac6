"""Finds a message without an index: by the time at which its client made its id.

A unique id tells when it was made, in the time zone of its client, which it does not
tell; a remoting id does not tell the month either. And a broker stores the message by
its own clock, later if it has a delay. So the queues are read around each possible
time, first close to it and then further away, all brokers side by side. What was read
is part of the result: a message that is not in it may still be elsewhere.

Reading leaves no group and no offset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rmqcli.admin.message.records import decode_all, stored_order, waits_for
from rmqcli.admin.positions import resolve_times_each
from rmqcli.admin.read.range import RangeReader, ReadOptions
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.model import OffsetRange
from rmqcli.units import HOUR_MS, MINUTE_MS, SECOND_MS, counted, format_rfc3339
from rmqcli.wire.ids import made_at_ms
from rmqcli.wire.message.record import has_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rmqcli.api.client import Client
    from rmqcli.api.positions import ResolvedPosition
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue

#: Messages that are read for one id, of all queues.
READ_MAX: Final = 1_000_000
#: So many are read at once, without beginning close to the most likely times.
_AT_ONCE_MAX: Final = 50_000
#: Clocks may differ by so much, or a delay last so long.
_REACH_MS: Final = 3 * HOUR_MS
#: All offsets from UTC that are in use, in minutes; summer times included.
_OFFSETS_MIN: Final = (
    *range(-12 * 60, 15 * 60, 60),
    *(-570, -210, -150, 210, 270, 330, 345, 390, 525, 570, 630, 765, 825),
)
_ZONES_MS: Final = tuple(MINUTE_MS * each for each in _OFFSETS_MIN)
_EAST_MS, _WEST_MS = max(_ZONES_MS), -min(_ZONES_MS)

#: Half-open, in epoch ms.
Times = tuple[int, int]


@dataclass(slots=True)
class TimeSearch:
    """What was found and read by the time in an id.

    `times` are the store times (half-open, epoch ms) of which every message was read,
    `count` how many these were. `errors` has the brokers of which some were not, by
    name. With `is_cut`, more messages than READ_MAX lie within reach of the time, and
    not all were read. `unread` counts those within reach that were not read because one
    was found closer to the time: the message may have been stored again, such as by a
    redrive. `damaged` counts the records, by broker, that have the id but could not be
    read.
    """

    messages: list[PulledMessage] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    count: int = 0
    is_cut: bool = False
    unread: int = 0
    errors: dict[str, RmqError] = field(default_factory=dict)
    damaged: dict[str, int] = field(default_factory=Counter)

    def add(self, other: TimeSearch) -> None:
        """Add a search of other topics, for the same id."""
        if other.is_cut:  # of these times, not all topics were read
            self.times = other.times
        elif not self.is_cut:
            self.times = _joined([*self.times, *other.times])
        self.messages += other.messages
        self.count += other.count
        self.is_cut |= other.is_cut
        self.unread += other.unread
        self.errors |= other.errors
        for broker_name, count in other.damaged.items():
            self.damaged[broker_name] += count

    def __str__(self) -> str:
        """What was read, as a part of a sentence."""
        times = " and ".join(_times_text(each) for each in self.times[:3])
        if len(self.times) > 3:
            first, last = self.times[0][0], self.times[-1][1]
            times = f"in {len(self.times)} parts of {_times_text((first, last))}"
        text = (
            f"{counted(self.count, 'message')} stored {times}" if times else "nothing"
        )
        if self.is_cut:
            text += f"; no more than {READ_MAX:,} messages are read"
        if self.unread:
            text += (
                f"; {counted(self.unread, 'message')} stored further from its time"
                f" {'was' if self.unread == 1 else 'were'} not read"
            )
        return text


def _times_text(times: Times) -> str:
    begin, end = (format_rfc3339(each) for each in times)
    return f"between {begin} and {end}"


def likely_times_ms(client: Client, text: str) -> list[int]:
    """Return when a client in this machine's time zone can have made an id."""
    return [each - _own_offset_ms(each) for each in _moments(client, text)][:2]


def search_by_time(
    client: Client,
    topic: str,
    texts: Collection[str],
    brokers: Collection[str],
    *,
    waiting_in: Collection[str] = (),
    on_search: Callable[[str], None] = lambda _: None,
) -> TimeSearch:
    """Find the messages of `topic` on `brokers` with an id.

    `texts` are its spellings; the first may be a key, too. With `waiting_in`, topics of
    brokers, those are read instead, for messages that wait there for `topic`. Ends
    after the first part of the time in which there is one; what is left unread is in
    the result. `on_search` is called before each part with a text that says what is
    read. Raises NotFoundError without the topic.
    """
    queues: list[MessageQueue] = []
    for route in client.routes(waiting_in or [topic]).values():
        if isinstance(route, NotFoundError) and waiting_in:
            continue  # nothing has waited there yet
        if isinstance(route, RmqError):
            raise route
        queues += route.read_queues()
    chosen = {each for each in queues if each.broker_name in brokers}
    search = _Search(client, topic, tuple(texts), chosen, on_search)
    for moment_ms in _moments(client, next(iter(texts))):
        if search.reach(moment_ms):
            break
    found = search.found
    found.messages.sort(key=stored_order)
    return found


def _moments(client: Client, text: str) -> Iterator[int]:
    until_ms = client.clock.epoch_ms() + _EAST_MS + _REACH_MS
    return made_at_ms(text, until_ms=until_ms)


def _own_offset_ms(epoch_ms: int) -> int:
    """The offset of this machine's time zone when the client's month began, nearly."""
    offset = datetime.fromtimestamp(epoch_ms / 1000, UTC).astimezone().utcoffset()
    return 0 if offset is None else int(offset.total_seconds()) * 1000


def _around(moment_ms: int, half_ms: int, zones_ms: Iterable[int]) -> list[Times]:
    """The times around a moment in each zone, joined where they touch."""
    return _joined(
        (moment_ms - zone_ms - half_ms, moment_ms - zone_ms + half_ms)
        for zone_ms in zones_ms
    )


def _joined(spans: Iterable[Times]) -> list[Times]:
    joined: list[Times] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


@dataclass(slots=True, eq=False)
class _Search:
    _client: Client
    _topic: str
    _texts: tuple[str, ...]
    #: those whose brokers answer
    _queues: set[MessageQueue]
    _on_search: Callable[[str], None]
    found: TimeSearch = field(default_factory=TimeSearch)
    #: offsets that were read, half-open and joined
    _read: dict[MessageQueue, list[tuple[int, int]]] = field(default_factory=dict)

    def reach(self, moment_ms: int) -> bool:
        """Read around a moment of UTC; return whether the search is at its end."""
        whole = [(moment_ms - _EAST_MS - _REACH_MS, moment_ms + _WEST_MS + _REACH_MS)]
        own_ms = _own_offset_ms(moment_ms)
        likely = (own_ms, 0, 8 * HOUR_MS)
        ends = self._resolve(whole)
        if self._count(ends) > _AT_ONCE_MAX:
            for half_ms, zones_ms in (
                (10 * SECOND_MS, likely),
                (2 * MINUTE_MS, likely),
                (10 * SECOND_MS, _ZONES_MS),
                (15 * MINUTE_MS, likely),
                (_REACH_MS, (own_ms,)),
            ):
                if self._try_reading(_around(moment_ms, half_ms, zones_ms)):
                    self.found.unread = self._count(ends)
                    return True
        if self._try_reading(whole):
            return True
        return not any(
            found[0].offset is not None and found[0].offset > found[0].min_offset
            for found in ends.values()
        )

    def _resolve(
        self, times: Sequence[Times]
    ) -> dict[MessageQueue, list[ResolvedPosition]]:
        """Find the offsets of both ends of each span; drop queues without an answer."""
        ends = [each for span in times for each in span]
        found: dict[MessageQueue, list[ResolvedPosition]] = {}
        for queue, each in resolve_times_each(
            self._client, sorted(self._queues), ends
        ).items():
            if isinstance(each, RmqError):
                self._drop(queue, each)
            else:
                found[queue] = each
        return found

    def _drop(self, queue: MessageQueue, error: RmqError) -> None:
        self.found.errors.setdefault(queue.broker_name, error)
        self._queues.discard(queue)

    def _unread(
        self, ends: dict[MessageQueue, list[ResolvedPosition]]
    ) -> dict[MessageQueue, list[tuple[int, int]]]:
        """The offsets between each two ends that were not read yet."""
        unread: dict[MessageQueue, list[tuple[int, int]]] = {}
        for queue, found in ends.items():
            offsets = [each.offset or 0 for each in found]
            pairs = zip(offsets[::2], offsets[1::2], strict=True)
            left = _joined((begin, end) for begin, end in pairs if begin < end)
            for done_begin, done_end in self._read.get(queue, ()):
                left = [
                    part
                    for begin, end in left
                    for part in (
                        (begin, min(end, done_begin)),
                        (max(begin, done_end), end),
                    )
                    if part[0] < part[1]
                ]
            unread[queue] = left
        return unread

    def _count(self, ends: dict[MessageQueue, list[ResolvedPosition]]) -> int:
        spans = self._unread(ends).values()
        return sum(end - begin for each in spans for begin, end in each)

    def _try_reading(self, times: Sequence[Times]) -> bool:
        """Read these times if they are not too much; return whether any was found."""
        ends = self._resolve(times)
        unread = self._unread(ends)
        count = self._count(ends)
        if self.found.count + count > READ_MAX:
            self.found.is_cut = True
            return False
        now_ms = self._client.clock.epoch_ms()
        read = [(begin, min(end, now_ms)) for begin, end in times if begin < now_ms]
        if count and read:
            first, last = _times_text((read[0][0], read[-1][1])).split(" and ")
            names = " and ".join(sorted({each.topic for each in self._queues}))
            self._on_search(
                f"reading {counted(count, 'message')} of {names} stored {first} and"
                f" {last}"
            )
        self._read_spans(unread)
        if count or not self.found.times:  # not also the months before the topic
            self.found.times = _joined([*self.found.times, *read])
        return bool(self.found.messages)

    def _read_spans(self, unread: dict[MessageQueue, list[tuple[int, int]]]) -> None:
        """Read the spans: the first of all queues side by side, then the second."""
        options = ReadOptions(
            raise_abandoned=False, retry_for_ms=self._client.config.timeout_ms
        )
        for number in range(max(map(len, unread.values()), default=0)):
            spans = {
                queue: spans[number]
                for queue, spans in unread.items()
                if number < len(spans) and queue in self._queues
            }
            wanted = [OffsetRange(queue, *span) for queue, span in spans.items()]
            reader = RangeReader(self._client, wanted, options)
            for chunk in reader:
                gaps = sum(end - start for start, end in chunk.missing)
                self.found.count += chunk.end - chunk.start - gaps
                # An id is in the properties, which are not compressed.
                if self._is_in(chunk.body):
                    self._take(chunk.body, chunk.queue.broker_name)
            for queue, error in reader.abandoned.items():
                self._drop(queue, error)
            for queue, span in spans.items():
                done = self._read.get(queue, [])
                self._read[queue] = _joined([*done, span])

    def _is_in(self, data: bytes) -> bool:
        return any(text.encode() in data for text in self._texts)

    def _take(self, body: bytes, broker_name: str) -> None:
        messages, failures = decode_all(body, broker_name)
        for failure in failures:
            if self._is_in(failure.raw):
                self.found.damaged[broker_name] += 1
        self.found.messages += [
            each
            for each in messages
            if (has_key(each, self._texts[0]) or each.msg_id in self._texts)
            and (
                each.message_queue.topic == self._topic
                or waits_for(each, [self._topic])
            )
        ]
