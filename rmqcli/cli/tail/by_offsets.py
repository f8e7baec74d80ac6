"""`rmq tail --endpoints` without a group, where the proxy reads by offset.

Proxies up to 5.5.0 do not: then `OffsetTail.find_ranges` raises UnsupportedError.
Messages of a range come in the order of their store times; inside a queue the order is
always the queue's. What arrives later comes as the queues are asked, one after the
other. Nothing is left on the broker: no group, no offset.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.admin.tail.batch import TailCounts
from rmqcli.admin.tail.filter import make_filter
from rmqcli.cli.ui.records.proxied import ProxyRecord
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import ExitCode, RmqError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.position import (
    Ago,
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
from rmqcli.wire.subscription import SQL92

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.cli.options import Common
    from rmqcli.cli.ui.records.output import Writer
    from rmqcli.proxy.reader import ProxyReader
    from rmqcli.proxy.rpc import ProxyQueue

#: Between two rounds over queues that had nothing new.
_PAUSE_MS: Final = 500
#: Written together while a range is read.
_ITEMS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetTailPlan:
    """What is read; `last` counts over all queues, `look_back` bounds the search."""

    topics: tuple[str, ...]
    selectors: tuple[QueueSelector, ...] = ()
    filter: TailFilter
    start: Position | None = None
    end: Position | None = None
    last: int | None = None
    look_back: int | None = None
    follow: bool = False
    count: int | None = None
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None


class _Found(NamedTuple):
    """A message that is shown, in the order of `time_ms`, then of its queue."""

    time_ms: int
    queue: MessageQueue
    record: ProxyRecord


class _Over(Exception):  # noqa: N818  # no error: a time limit, or enough was shown
    """Nothing more is to be shown."""


@dataclass(slots=True)
class _Range:
    """One queue: what is read next, and the end as it was at the start."""

    queue: ProxyQueue
    offset: int
    end: int


class OffsetTail:
    """One run: `find_queues`, `find_ranges`, then `run`."""

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
        self._is_cut_short = True
        self._started_ms = self._heard_ms = SYSTEM_CLOCK.monotonic_ms()

    def find_queues(self) -> None:
        """Ask for the routes. Raises NotFoundError for an unknown topic."""
        for topic in self._plan.topics:
            route = {
                each.queue: each
                for each in self._reader.route(topic)
                if each.is_readable
            }
            if not route:
                raise RmqError(f"topic {topic} has no queue that may be read")
            for queue in select_queues(sorted(route), self._plan.selectors):
                self._queues.append(route[queue])

    def find_ranges(self) -> None:
        """Find the range of each queue, and tell it.

        Raises UnsupportedError when the proxy does not read by offset, and UsageError
        for a position that cannot be found.
        """
        self._ranges = [self._range(queue) for queue in self._queues]
        for each in self._ranges:
            count = max(0, each.end - each.offset)
            self._messages.info(
                f"{each.queue.queue}: {each.offset} to {each.end}, {count} messages"
            )

    def run(self) -> int:
        """Show the messages; return the exit code: 0 or 8."""
        try:
            self._show_all()
        except _Over:
            pass
        finally:
            self._writer.close()
            self._summarise()
        return ExitCode.OK

    @property
    def shown(self) -> int:
        """How many messages were shown."""
        return self._counts.matched

    # --- ranges

    def _range(self, queue: ProxyQueue) -> _Range:
        plan, reader = self._plan, self._reader
        low, high = reader.min_offset(queue), reader.max_offset(queue)
        end = high
        if plan.end is not None:
            end = min(high, max(low, self._resolve(queue, plan.end, low, high)))
        if plan.last is not None:
            # A filter may leave out most of them: then more are looked through.
            wanted = plan.last if plan.filter.is_everything else None
            back = wanted if wanted is not None else plan.look_back
            start = low if back is None else max(low, end - back)
        else:
            start = self._resolve(queue, plan.start or Earliest(), low, high)
        return _Range(queue, min(max(low, start), high), end)

    def _resolve(
        self, queue: ProxyQueue, position: Position, low: int, high: int
    ) -> int:
        now_ms = SYSTEM_CLOCK.epoch_ms()
        match position:
            case Earliest():
                return low
            case Latest():
                return high
            case AtOffset(offset):
                return offset
            case LastN(count):
                return high - count
            case PlusN(count):
                return low + count
            case Now():
                return self._reader.offset_at(queue, now_ms)
            case AtTime():
                return self._reader.offset_at(queue, position.epoch_ms)
            case Ago(ago_ms):
                return self._reader.offset_at(queue, now_ms - ago_ms)
        raise UsageError(
            f"by way of a proxy tail does not find position {position}",
            hint="write earliest, latest, now, -15m, @TIME or an offset",
        )

    # --- reading

    def _show_all(self) -> None:
        merged = heapq.merge(
            *map(self._of_range, self._ranges), key=lambda found: found.time_ms
        )
        if self._plan.last is not None:
            self._show(deque(merged, maxlen=self._plan.last))
        else:
            self._show_merged(merged)
        self._is_cut_short = False
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
            self._show(waiting)  # what came before the time was over
            raise
        self._show(waiting)

    def _of_range(self, each: _Range) -> Iterator[_Found]:
        """The messages of one queue up to its end; their times never go back."""
        latest_ms = -1
        while each.offset < each.end:
            before = each.offset
            for found in self._pull(each):
                latest_ms = max(latest_ms, found.time_ms)
                yield found._replace(time_ms=latest_ms)
            if each.offset == before:
                self._pause()  # the proxy gave nothing, although there is something

    def _pull(self, each: _Range) -> list[_Found]:
        """What the next pull brings that is to be shown; moves the offset on."""
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
                found.append(_Found(time_ms, message.message_queue, record))
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
        """Write messages; whether there were any. Raises _Over when it is enough."""
        shown: Sequence[_Found] = list(found)
        count = self._plan.count
        if count is not None:
            shown = shown[: count - self._counts.matched]
        items: list[Any] = []
        for each in shown:
            items += self._batcher.items(each.queue, [each.record])
        if items:
            self._writer.write(items)
            self._counts.matched += len(shown)
        if self._has_enough(0):
            self._is_cut_short = False
            raise _Over
        return bool(shown)

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
        gaps = f"{self._missing:,} missing in gaps" if self._missing else "no gaps"
        if self._plan.filter.expression != "*":
            gaps = "gaps are unknown: the broker filters"
        words = [f"{counts.scanned:,} scanned", f"{counts.matched:,} matched", gaps]
        if self._is_cut_short:
            words.append("ended before everything was shown")
        self._messages.info("; ".join(words))
