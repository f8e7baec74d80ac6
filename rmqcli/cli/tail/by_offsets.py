"""`rmq tail --endpoints` without a group, for proxies that read by offset.

With proxies up to 5.5.0, which do not read by offset, `OffsetTail.find_ranges` raises
UnsupportedError. The messages of the ranges are shown in the order of their store
times; messages of one queue always keep the order of the queue. Later messages are
shown as they are pulled, one queue after the other. Tail leaves neither a group nor an
offset on the broker.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.admin.positions import bounded
from rmqcli.admin.tail.batch import TailCounts
from rmqcli.admin.tail.filter import make_filter
from rmqcli.cli.selection import check_queue_starts
from rmqcli.cli.tail.resume import resume_command, same_command
from rmqcli.cli.ui.queues import lines_about
from rmqcli.cli.ui.records.proxied import ProxyRecord
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import (
    ExitCode,
    NotFoundError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.model import MessageQueue
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
from rmqcli.queue_selector import QueueSelector, select_queues
from rmqcli.units import counted
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.subscription import SQL92

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.cli.options import Common
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.proxy.reader import ProxyReader
    from rmqcli.proxy.rpc import ProxyQueue

#: The pause between two rounds over queues without new messages.
_PAUSE_MS: Final = 500
#: Messages that are written at once while a range is read.
_ITEMS: Final = 256


@dataclass(frozen=True, slots=True)
class Around:
    """The messages to show before a group's committed offset, and from it on."""

    group: str
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTailPlan:
    """Which messages to read, and when to end.

    `last` counts messages of all queues; `look_back` limits the offsets of a queue that
    are searched for them. `own_starts` are the starts of single queues, which override
    `start`.
    """

    topics: tuple[str, ...]
    selectors: tuple[QueueSelector, ...] = ()
    filter: TailFilter
    start: Position | None = None
    own_starts: Mapping[MessageQueue, Position] = field(default_factory=dict)
    end: Position | None = None
    last: int | None = None
    look_back: int | None = None
    around: Around | None = None
    follow: bool = False
    count: int | None = None
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    rate_per_s: float | None = None


class _Found(NamedTuple):
    """A message to show, with the time by which the messages are sorted."""

    time_ms: int
    source: _Range
    record: ProxyRecord
    offset: int


class _Over(Exception):  # noqa: N818  # not an error
    """Ends the run: a time limit is reached, or enough messages were shown."""


@dataclass(slots=True)
class _Range:
    """One queue: its next offset to read, and its end when tail was started."""

    queue: ProxyQueue
    offset: int
    end: int
    #: offsets of messages that were read and are still to be shown
    unshown: deque[int] = field(default_factory=deque)

    @property
    def next_shown(self) -> int:
        """The offset from which a resumed tail leaves out no message."""
        return self.unshown[0] if self.unshown else self.offset


class OffsetTail:
    """One run of tail. Call `find_queues`, then `find_ranges`, then `run`."""

    def __init__(
        self, common: Common, plan: OffsetTailPlan, reader: ProxyReader, writer: Writer
    ) -> None:
        self._messages = common.messages
        self._plan = plan
        self._reader = reader
        self._writer = writer
        self._batcher = writer.batcher(make_filter(), TailCounts())
        self._counts = TailCounts()
        self._missing = 0
        self._queues: list[ProxyQueue] = []
        self._ranges: list[_Range] = []
        #: what stderr shows about the range of each queue
        self._texts: dict[MessageQueue, str] = {}
        #: group -> whether it has committed an offset in any queue so far
        self._groups: dict[str, bool] = {}
        self._is_cut_short = True
        #: whether --last or --around-group is being shown, which cannot be resumed
        self._is_bounded = plan.last is not None or plan.around is not None
        self._next_item_ms = 0.0
        self._started_ms = self._heard_ms = SYSTEM_CLOCK.monotonic_ms()

    def find_queues(self) -> None:
        """Find the queues of the topics. Raises NotFoundError for an unknown topic."""
        topics = {}
        for topic in self._plan.topics:
            route = {
                each.queue: each
                for each in self._reader.route(topic)
                if each.is_readable
            }
            if not route:
                raise RmqError(f"topic {topic} has no readable queue")
            topics[topic] = sorted(route)
            for queue in select_queues(topics[topic], self._plan.selectors):
                self._queues.append(route[queue])
        queues = [each.queue for each in self._queues]
        check_queue_starts(self._plan.own_starts, queues, topics=topics)

    def find_ranges(self) -> None:
        """Find the range of each queue, and show it on stderr.

        Raises UnsupportedError when the proxy does not read by offset, and UsageError
        or NotFoundError for a position that cannot be resolved.
        """
        around = self._plan.around
        for queue in self._queues:
            found = (
                self._range(queue) if around is None else self._around(queue, around)
            )
            if found is not None:
                self._ranges.append(found)
        for line in lines_about(self._texts):
            self._messages.info(line)
        for group, has_offsets in self._groups.items():
            if not has_offsets:
                raise NotFoundError(
                    f"group {group} has committed nothing in these queues, or does not"
                    " exist",
                    code=int(pb.Code.OFFSET_NOT_FOUND),
                    name="OFFSET_NOT_FOUND",
                    hint="check the name: a proxy does not report which of the two it"
                    " is",
                )

    def run(self) -> int:
        """Show the messages; return the exit code 0."""
        is_interrupted = False
        try:
            self._show_all()
        except _Over:
            pass
        except KeyboardInterrupt:
            is_interrupted = True
            raise
        finally:
            self._writer.close()
            self._summarise()
            if is_interrupted:
                self._messages.info(f"resume with: {self._resume_command()}")
        return ExitCode.OK

    def _resume_command(self) -> str:
        if self._is_bounded:
            return same_command()
        count_left = None
        if self._plan.count is not None:
            count_left = self._plan.count - self._counts.matched
        starts = {each.queue.queue: str(each.next_shown) for each in self._ranges}
        return resume_command(starts, count_left=count_left)

    @property
    def shown(self) -> int:
        """How many messages were shown."""
        return self._counts.matched

    # --- ranges

    def _range(self, queue: ProxyQueue) -> _Range:
        plan, reader = self._plan, self._reader
        low, high = reader.min_offset(queue), reader.max_offset(queue)
        start, note = low, ""
        if plan.last is None:
            position = plan.own_starts.get(queue.queue, plan.start or Earliest())
            start, note = self._resolve(queue, position, low, high)
        end, end_note = high, ""
        if plan.end is not None:
            end, end_note = self._resolve(queue, plan.end, low, high, start=start)
        if plan.last is not None:
            # With a filter, more messages must be searched to find the last N.
            wanted = plan.last if plan.filter.is_everything else None
            back = wanted if wanted is not None else plan.look_back
            start = low if back is None else max(low, end - back)
        count = max(0, end - start)
        words = f"{start} to {end}, {counted(count, 'message')}"
        notes = dict.fromkeys(each for each in (note, end_note) if each)
        self._texts[queue.queue] = "; ".join((words, *notes))
        return _Range(queue, start, end)

    def _around(self, queue: ProxyQueue, around: Around) -> _Range | None:
        """The range around the group's offset; None if it has committed no offset."""
        low, high = self._reader.min_offset(queue), self._reader.max_offset(queue)
        committed = self._committed(queue, around.group)
        if committed is None:
            self._texts[queue.queue] = f"{around.group} has committed nothing"
            return None
        at = bounded(committed, low, high)
        assert at.offset is not None  # as it was committed  # noqa: S101
        start = max(low, at.offset - around.before)
        end = max(start, min(high, at.offset + around.after))
        note = f"; {at.note}" if at.note else ""
        self._texts[queue.queue] = (
            f"committed offset of {around.group} is {at.offset}, showing {start} to"
            f" {end}{note}"
        )
        return _Range(queue, start, end)

    def _resolve(
        self,
        queue: ProxyQueue,
        position: Position,
        low: int,
        high: int,
        *,
        start: int | None = None,
    ) -> tuple[int, str]:
        """The offset of a position in the queue, and a note if it was adjusted.

        `start` is the start of the range when the position is its end.
        """
        now_ms = SYSTEM_CLOCK.epoch_ms()
        match position:
            case Earliest():
                wanted = low
            case Latest():
                wanted = high
            case AtOffset(offset):
                wanted = offset
            case LastN(count):
                wanted = max(low, high - count)
            case PlusN(count):
                wanted = (low if start is None else start) + count
            case Now():
                wanted = min(high, self._reader.offset_at(queue, now_ms))
            case AtTime():
                wanted = min(high, self._reader.offset_at(queue, position.epoch_ms))
            case Ago(ago_ms):
                wanted = min(high, self._reader.offset_at(queue, now_ms - ago_ms))
            case AtGroup(group):
                committed = self._committed(queue, group)
                if committed is None:
                    return low, f"group {group} has committed nothing here"
                wanted = committed
            case _:
                raise TypeError(f"not a position: {position!r}")
        found = bounded(wanted, low, high)
        assert found.offset is not None  # bounded gives one  # noqa: S101
        return found.offset, found.note

    def _committed(self, queue: ProxyQueue, group: str) -> int | None:
        try:
            committed = self._reader.committed(queue, group)
        except UnsupportedError as error:
            raise UsageError(
                f"this proxy does not report committed offsets: group {group}",
                hint="use --namesrv HOST:PORT to ask the brokers",
            ) from error
        self._groups[group] = self._groups.get(group, False) or committed is not None
        return committed

    # --- reading

    def _show_all(self) -> None:
        merged = heapq.merge(
            *map(self._of_range, self._ranges), key=lambda found: found.time_ms
        )
        if self._plan.last is not None:
            self._show(deque(merged, maxlen=self._plan.last))
            for each in self._ranges:
                each.unshown.clear()  # the messages before the last N
        else:
            self._show_merged(merged)
        self._is_bounded = self._is_cut_short = False
        while self._plan.follow:
            has_news = False
            for each in self._ranges:
                has_news |= self._show(self._pull(each))
            if not has_news:
                self._pause()

    def _show_merged(self, merged: Iterable[_Found]) -> None:
        waiting: list[_Found] = []
        try:
            for found in merged:
                waiting.append(found)
                if len(waiting) == _ITEMS or self._has_enough(len(waiting)):
                    shown, waiting = waiting, []
                    self._show(shown)
        except _Over:
            self._show(waiting)  # messages that were read before the time limit
            raise
        self._show(waiting)

    def _of_range(self, each: _Range) -> Iterator[_Found]:
        """Yield the messages of one queue up to its end; times never decrease."""
        latest_ms = -1
        while each.offset < each.end:
            before = each.offset
            for found in self._pull(each):
                latest_ms = max(latest_ms, found.time_ms)
                yield found._replace(time_ms=latest_ms)
            if each.offset == before:
                self._pause()  # the proxy returned nothing, although there are messages

    def _pull(self, each: _Range) -> list[_Found]:
        """Pull once, advance the offset, and return the messages to show."""
        self._check_time()
        is_range = each.offset < each.end
        tail_filter = self._plan.filter
        part = self._reader.pull(
            each.queue,
            each.offset,
            expression=tail_filter.expression,
            is_sql=tail_filter.expression_type == SQL92,
        )
        found, expected = [], each.offset
        for message in part.messages:
            offset = message.queue_offset
            assert offset is not None  # as the parser has checked  # noqa: S101
            if is_range and offset >= each.end:
                break
            self._counts.scanned += 1
            if tail_filter.expression == "*":
                self._missing += offset - expected
            expected = offset + 1
            record = ProxyRecord(message)
            if tail_filter.matches(record):
                time_ms = message.store_timestamp_ms or 0
                found.append(_Found(time_ms, each, record, offset))
        each.unshown.extend(new.offset for new in found)
        each.offset = part.next_offset
        if is_range:
            each.offset = min(each.offset, each.end)
        if tail_filter.expression == "*":
            self._missing += max(0, each.offset - expected)
        if part.messages:
            self._heard_ms = SYSTEM_CLOCK.monotonic_ms()
        return found

    # --- showing

    def _show(self, found: Iterable[_Found]) -> bool:
        """Write messages; return whether there were any. Raises _Over after --count."""
        shown: Sequence[_Found] = list(found)
        count = self._plan.count
        if count is not None:
            shown = shown[: count - self._counts.matched]
        for part in self._paced(shown):
            items: list[Any] = []
            for each in part:
                queue = each.source.queue.queue
                items += self._batcher.items(queue, [each.record])
            self._writer.write(items)
            self._counts.matched += len(part)
            for each in part:
                unshown = each.source.unshown
                # This also removes messages before it that --last left out.
                while unshown and unshown[0] <= each.offset:
                    unshown.popleft()
        if self._has_enough(0):
            self._is_cut_short = False
            raise _Over
        return bool(shown)

    def _paced(self, shown: Sequence[_Found]) -> Iterator[Sequence[_Found]]:
        """Yield the messages in parts, waiting as the rate demands. Raises _Over."""
        rate = self._plan.rate_per_s
        if rate is None:
            if shown:
                yield shown
            return
        size = max(1, int(rate / 10))
        for begin in range(0, len(shown), size):
            while (wait_ms := self._next_item_ms - SYSTEM_CLOCK.monotonic_ms()) >= 1:
                self._check_time()
                pause_ms = max(1, min(int(wait_ms), self._left_ms()))
                SYSTEM_CLOCK.wait_ms(threading.Event(), pause_ms)
            part = shown[begin : begin + size]
            yield part
            self._heard_ms = now_ms = SYSTEM_CLOCK.monotonic_ms()
            self._next_item_ms = max(self._next_item_ms, now_ms - 1)
            self._next_item_ms += len(part) * 1000 / rate

    def _has_enough(self, waiting: int) -> bool:
        count = self._plan.count
        return count is not None and self._counts.matched + waiting >= count

    def _check_time(self) -> None:
        if self._left_ms() == 0:
            raise _Over

    def _pause(self) -> None:
        SYSTEM_CLOCK.wait_ms(threading.Event(), min(_PAUSE_MS, self._left_ms()))

    def _left_ms(self) -> int:
        now_ms, left_ms = SYSTEM_CLOCK.monotonic_ms(), _PAUSE_MS
        if self._plan.timeout_ms is not None:
            left_ms = min(left_ms, self._started_ms + self._plan.timeout_ms - now_ms)
        if self._plan.idle_timeout_ms is not None:
            left_ms = min(left_ms, self._heard_ms + self._plan.idle_timeout_ms - now_ms)
        return max(0, left_ms)

    def _summarise(self) -> None:
        counts = self._counts
        missing = f"{self._missing:,} missing" if self._missing else "nothing missing"
        if self._plan.filter.expression != "*":
            missing = "unknown whether any are missing: the broker filters"
        words = [f"{counts.matched:,} shown", f"{counts.scanned:,} read", missing]
        if self._is_cut_short:
            words.append("stopped before all messages were shown")
        self._messages.info(", ".join(words))
