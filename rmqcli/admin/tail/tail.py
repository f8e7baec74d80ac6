"""One run of tail: the last messages or a range, then the messages that arrive.

`Tail` yields lists of rendered items in the order of store times; messages of one queue
always keep the queue's order. It leaves nothing on the broker: no group, no offset.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqcli.admin.read.body import last_record
from rmqcli.admin.read.range import RangeReader, ReadOptions
from rmqcli.admin.tail.broker_return import BrokerReturn
from rmqcli.admin.tail.follow import Follower, FollowOptions, Seen, is_there
from rmqcli.admin.tail.last import read_last
from rmqcli.admin.tail.merge import StoreTimeMerger
from rmqcli.admin.witness import ANOTHER, last_witness
from rmqcli.api.calls.pull import pull_message
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from rmqcli.admin.read.body import Chunk, Span
    from rmqcli.admin.tail.batch import Batcher
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue, OffsetRange
    from rmqcli.position import Position

T = TypeVar("T")

#: Chunks read between two releases of merged items.
_CHUNKS_A_RELEASE = 16
_TURN_MS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlan:
    """What to read. `ranges` are read to their ends, and with `follow` from there on.

    With `last`, only that many messages are shown, the latest of all ranges together;
    `look_back` limits how many offsets of each queue are searched for them.

    `lost` has the queues without a range, and the reason for each. They are tried again
    while following, and read from `start`, or in `own_starts` from their own start. A
    `start` of None means the messages stored since `started_ms`, the time by the
    client's monotonic clock at which queues were first queried (None: when the `Tail`
    was created).
    """

    ranges: tuple[OffsetRange, ...]
    filter: TailFilter
    lost: Mapping[MessageQueue, RmqError] = field(default_factory=dict)
    start: Position | None = None
    own_starts: Mapping[MessageQueue, Position] = field(default_factory=dict)
    #: of queues that an earlier run read, what its `seen` had at its end: those that
    #: have become others since are followed from their first new message
    seen: Mapping[MessageQueue, Seen] = field(default_factory=dict)
    started_ms: int | None = None
    last: int | None = None
    look_back: int | None = None
    follow: bool = False
    count: int | None = None
    timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    rate_per_s: float | None = None
    #: while following: how long no broker may answer before the run ends
    give_up_ms: int | None = None
    selects: Callable[[MessageQueue], bool] = field(default=lambda _queue: True)
    #: called in every turn while following, at least once a second
    on_turn: Callable[[], None] = field(default=lambda: None)
    #: a queue that buffers more than this while it waits for others is paused
    kept_bytes_max: int = 1 << 20


class Tail(Generic[T]):
    """One run of tail. Call `items` once; the results can be read at any time."""

    def __init__(
        self,
        client: Client,
        plan: TailPlan,
        batcher: Batcher[T],
        *,
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._plan = plan
        self._batcher = batcher
        self._say = say
        self.counts = batcher.counts
        #: spans that brokers did not have, by queue
        self.gaps: dict[MessageQueue, list[Span]] = {}
        #: queues that are not read, or not to their ends, and why
        self.abandoned: dict[MessageQueue, RmqError] = dict(plan.lost)
        #: queue -> the first offset whose message the caller does not have; items that
        #: were yielded count once the caller asks for more
        self.positions: dict[MessageQueue, int] = {
            wanted.queue: wanted.end if plan.last is not None else wanted.start
            for wanted in plan.ranges
        }
        #: what `positions` will be when the caller asks for more
        self._reached: dict[MessageQueue, int] = {}
        #: the number of items that were yielded and do not count yet
        self._yielded = 0
        #: whether the last messages that `plan.last` wants are still being shown; then
        #: `positions` are where following will begin
        self.is_showing_last = plan.last is not None
        #: whether --timeout or --idle-timeout ended the run
        self.is_timed_out = False
        #: messages by which a run that continues this one compares the queues
        self.seen: dict[MessageQueue, Seen] = dict(plan.seen)
        #: what was read of queues, until they are followed
        self._seen_before_follow: dict[MessageQueue, Seen] = dict(plan.seen)
        #: brokers whose outage was announced
        self._troubled: set[str] = set()
        clock = client.clock
        self._started_ms = self._heard_ms = clock.monotonic_ms()
        self._next_item_ms = float(self._started_ms)

    def items(self) -> Generator[list[T], None, None]:
        """Yield all items to show, in lists that are never empty."""
        yield from self._items()
        self._compare_seen()

    def _items(self) -> Iterator[list[T]]:
        plan = self._plan
        phases = [self._last_phase() if plan.last is not None else self._range_phase()]
        if plan.follow:
            phases.append(self._follow_phase())
        for phase in phases:
            for items in phase:
                self._yielded = len(items)
                yield items
                self.count_shown()
                if self._left_count() == 0:
                    return
            if self.left_ms() == 0:
                self.is_timed_out = True
                return
            if self._is_hopeless():
                return

    def count_shown(self) -> None:
        """Count the items that were yielded last; asking for more does so, too."""
        self.counts.matched += self._yielded
        self._yielded = 0
        self.positions.update(self._reached)

    @property
    def is_cut_short(self) -> bool:
        """Whether a timeout ended the run before the plan's ranges were shown."""
        return self.is_timed_out and (
            self.is_showing_last
            or any(
                self.positions[wanted.queue] < wanted.end
                for wanted in self._plan.ranges
            )
        )

    def left_ms(self) -> int:
        """Return the ms until a timeout must end the run, at most `_TURN_MS`."""
        now_ms = self._client.clock.monotonic_ms()
        left_ms = _TURN_MS
        if self._plan.timeout_ms is not None:
            left_ms = min(left_ms, self._started_ms + self._plan.timeout_ms - now_ms)
        if self._plan.idle_timeout_ms is not None:
            left_ms = min(left_ms, self._heard_ms + self._plan.idle_timeout_ms - now_ms)
        return max(0, left_ms)

    def _is_hopeless(self) -> bool:
        """Whether every queue was refused, so that waiting would not help."""
        every = len(self._plan.ranges) + len(self._plan.lost)
        return len(self.abandoned) == every > 0 and not any(
            error.retriable for error in self.abandoned.values()
        )

    def _read_options(self) -> ReadOptions:
        return ReadOptions(
            expression=self._plan.filter.expression,
            expression_type=self._plan.filter.expression_type,
            raise_abandoned=False,
            on_trouble=self._on_trouble,
            on_recovery=lambda queue: self._troubled.discard(queue.broker_name),
            left_ms=self.left_ms,
        )

    def _on_trouble(self, queue: MessageQueue, error: RmqError) -> None:
        if queue.broker_name not in self._troubled:
            self._troubled.add(queue.broker_name)
            self._say(f"{queue.broker_name}: {error.message}; retrying")

    def _left_count(self) -> int | None:
        if self._plan.count is None:
            return None
        return self._plan.count - self.counts.matched

    def _heard(self, chunk: Chunk) -> None:
        if chunk.body:
            self._heard_ms = self._client.clock.monotonic_ms()
        if chunk.missing:
            self.gaps.setdefault(chunk.queue, []).extend(chunk.missing)

    def _heard_before(self, chunk: Chunk) -> None:
        """Remember the message that was read first of a queue, and the latest one.

        The topic may be deleted and created again while it is read, or before it is
        followed.
        """
        self._heard(chunk)
        before = self._seen_before_follow.get(chunk.queue)
        if not chunk.body or (before is not None and not self._plan.follow):
            return  # without a follower, only the first message is compared
        latest = last_record(chunk.body)
        if before is None:
            first = last_witness(latest)
            if first is not None:
                self._seen_before_follow[chunk.queue] = Seen(first, latest)
        elif chunk.start >= before.first.queue_offset:
            self._seen_before_follow[chunk.queue] = Seen(before.first, latest)

    def _compare_seen(self) -> None:
        """Abandon the queues that no longer have the message that was read first.

        What was shown of such a queue may be of two topics. Queues that cannot be read
        now are left as they are, and brokers that hang are not waited for again.
        """
        questions = {}
        for queue, seen in self._seen_before_follow.items():
            if queue in self.abandoned or queue.broker_name in self._troubled:
                continue
            try:
                address = self._client.reader_of(queue)
            except RmqError:
                continue
            call = pull_message(queue, seen.first.queue_offset, max_msg_nums=1)
            questions[queue] = (address, call)
        for queue, answer in self._client.ask_many(questions).items():
            if not isinstance(answer, RmqError) and not is_there(
                self._seen_before_follow[queue].first, answer
            ):
                self.abandoned[queue] = PartialError(f"{ANOTHER} while it was read")

    def _range_phase(self) -> Iterator[list[T]]:
        ranges = [r for r in self._plan.ranges if len(r)]
        reader = RangeReader(self._client, ranges, self._read_options())
        merger: StoreTimeMerger[T] = StoreTimeMerger({r.queue: r.start for r in ranges})
        open_ends = {r.queue: r.end for r in ranges}
        for number, chunk in enumerate(reader, 1):
            queue = chunk.queue
            self._heard_before(chunk)
            merger.add(queue, self._batcher.batch(chunk))
            is_at_its_end = chunk.end >= open_ends[queue]
            if is_at_its_end:
                merger.close(queue)
                del open_ends[queue]
            # A queue that ends may be the one that paused queues wait for.
            if is_at_its_end or number % _CHUNKS_A_RELEASE == 0:
                for given_up in reader.abandoned:
                    merger.close(given_up)
                yield from self._counted(merger, all_of_it=False)
                _hold_back(reader, merger, open_ends, self._plan.kept_bytes_max)
        yield from self._counted(merger, all_of_it=True)
        if not self._plan.follow:  # else it is followed from where it stopped
            self.abandoned.update(reader.abandoned)

    def _counted(
        self, merger: StoreTimeMerger[T], *, all_of_it: bool
    ) -> Iterator[list[T]]:
        """Yield what the merger releases, as many items at once as the rate allows."""
        while items := merger.release(limit=self._items_at_once(), all_of_it=all_of_it):
            if not self._wait_for_rate(len(items)):
                return
            self._reached = dict(merger.positions)
            yield items
        self.positions.update(merger.positions)

    def _items_at_once(self) -> int | None:
        """Return how many items may be yielded together; None means any number."""
        left, rate = self._left_count(), self._plan.rate_per_s
        if rate is None:
            return left
        size = max(1, int(rate / 10))
        return size if left is None else min(size, left)

    def _wait_for_rate(self, count: int) -> bool:
        """Wait until `count` items may be yielded; return False if --timeout is over.

        Once False, it stays False: the items that were released for it are not yielded,
        so later ones must not be either.
        """
        rate, timeout_ms = self._plan.rate_per_s, self._plan.timeout_ms
        if rate is None:
            return True
        while True:
            now_ms = self._client.clock.monotonic_ms()
            wait_ms = min(int(self._next_item_ms - now_ms), _TURN_MS)
            if timeout_ms is not None:
                left_ms = self._started_ms + timeout_ms - now_ms
                if left_ms <= 0:
                    return False
                wait_ms = min(wait_ms, left_ms)
            if wait_ms < 1:
                break
            self._client.poll(wait_ms)
        self._next_item_ms = max(self._next_item_ms, now_ms - 1) + count * 1000 / rate
        return True

    def _last_phase(self) -> Iterator[list[T]]:
        count = self._plan.last or 0
        found = read_last(
            self._client,
            self._plan.ranges,
            count=count,
            batcher=self._batcher,
            options=self._read_options(),
            on_chunk=self._heard_before,
            look_back=self._plan.look_back,
        )
        self.abandoned.update(found.abandoned)
        items = found.items
        was_cut_short = self.left_ms() == 0  # more may have been wanted
        while some := items[: self._items_at_once()]:
            if not self._wait_for_rate(len(some)):
                break
            yield some
            items = items[len(some) :]
        self.is_showing_last = bool(items) or was_cut_short

    def _follow_phase(self) -> Iterator[list[T]]:
        self._heard_ms = self._client.clock.monotonic_ms()
        asked_ms = self._plan.started_ms
        # A broker that joins later may not filter by SQL92.
        wanted = replace(self._plan.filter, where_at_broker=False)
        lost = BrokerReturn(
            self._client,
            self._plan.start,
            started_ms=self._started_ms if asked_ms is None else asked_ms,
            say=self._say,
            own=self._plan.own_starts,
            sql=self._plan.filter.sql,
        )
        lost.add(self._plan.lost)
        follower = Follower(
            self._client,
            self.positions,
            FollowOptions(
                expression=wanted.expression,
                expression_type=wanted.expression_type,
                selects=self._plan.selects,
                give_up_ms=self._plan.give_up_ms,
            ),
            say=self._say,
            on_new_broker=lost.expect,
            on_lost=self._go_back,
            troubled=self._troubled,
            seen=self._seen_before_follow,
        )
        follower.abandoned = self.abandoned
        # The follower compares from here on.
        self.seen, self._seen_before_follow = self.seen | self._seen_before_follow, {}
        try:
            while (left_ms := self.left_ms()) > 0:
                self._plan.on_turn()
                self._take_back(lost, follower)
                if follower.has_given_up or (follower.is_over and lost.is_over):
                    break
                yield from self._arrived(follower.poll(left_ms))
        finally:
            self.abandoned.update(follower.away)
            self.seen |= follower.seen
            follower.stop()

    def _take_back(self, lost: BrokerReturn, follower: Follower) -> None:
        for queue, found in lost.poll().items():
            if isinstance(found, RmqError):
                self.abandoned[queue] = found
                continue
            self.abandoned.pop(queue, None)
            self.positions[queue] = found
            follower.add(queue, found, self._plan.seen.get(queue))

    def _go_back(self, queue: MessageQueue, offset: int) -> None:
        """Have a run that continues this one begin with what is stored at `offset`."""
        self._reached.pop(queue, None)
        self.positions[queue] = offset

    def _arrived(self, chunks: list[Chunk]) -> Iterator[list[T]]:
        """Yield the items of the chunks of one turn, merged."""
        merger: StoreTimeMerger[T] = StoreTimeMerger(
            {chunk.queue: chunk.start for chunk in reversed(chunks)}
        )
        for chunk in chunks:
            self._heard(chunk)
            merger.add(chunk.queue, self._batcher.batch(chunk))
        yield from self._counted(merger, all_of_it=True)


def _hold_back(
    reader: RangeReader,
    merger: StoreTimeMerger[T],
    open_queues: Mapping[MessageQueue, int],
    kept_bytes_max: int,
) -> None:
    """Pause queues that buffer much, so that those they wait for are read first."""
    held_back = merger.held_back(kept_bytes_max)
    for queue in open_queues:
        if queue in held_back:
            reader.pause(queue)
        else:
            reader.resume(queue)
