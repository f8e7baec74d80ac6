"""The messages of a queue between their pull and the end of their consumption.

Java keeps each message in a TreeMap. Here the messages of one pull stay together as a
`Run`, and a SortedDict finds the runs by their first offsets. So work that Java does
for each message is done once per pull, with the same observable behaviour of each
operation. Sizes are those of bodies as they were sent; Java inflates them first.

A ProcessQueue lives from the assignment of its queue until it is dropped. Its state:

| from | to | when |
|---|---|---|
| ACTIVE | RELEASED | the queue is assigned to another member |
| ACTIVE, RELEASED, DROPPED | RESTING | a reset or correction gives a new offset |
| ACTIVE, RELEASED, RESTING | DROPPED | it is given up, or replaced after a reset |

An ACTIVE queue is pulled and consumed. A RELEASED queue is no longer pulled, but
messages that listeners have begun are still committed. For RESTING and DROPPED queues
nothing is committed; a RESTING queue begins again, with a new ProcessQueue, once its
new offset is stored. The state does not depend on the broker's lock; a ProcessQueue is
created after the lock was granted.

Only the engine's thread calls it. Consume threads read `dropped`, `locked` and
`is_lock_expired`.

Source: ProcessQueue.
"""

from __future__ import annotations

import enum
import itertools
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from sortedcontainers import SortedDict

from rmqcli.wire.bodies.consumer import ProcessQueueInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.clock import Now
    from rmqcli.model import MessageQueue

PULL_MAX_IDLE_MS: Final = 120_000  # PULL_MAX_IDLE_TIME
LOCK_MAX_LIVE_MS: Final = 30_000  # REBALANCE_LOCK_MAX_LIVE_TIME
_MIB: Final = 1024 * 1024
#: How many transitions of a queue are kept, to explain its history.
_STORY_MAX: Final = 100


class CachedMessage(Protocol):
    """The attributes of a message that a ProcessQueue uses."""

    queue_offset: int
    body_bytes: int


M = TypeVar("M", bound=CachedMessage)


def offset_of(message: CachedMessage) -> int:
    return message.queue_offset


class Run(Generic[M]):
    """Messages with ascending offsets; `gone` marks those removed from the middle.

    The list belongs to the caller, and neither side changes it. `size_bytes` is the
    size of the whole list.
    """

    __slots__ = ("gone", "head", "key", "left", "messages", "size_bytes", "tail")

    gone: bytearray | None

    def __init__(self, messages: Sequence[M]) -> None:
        #: its key in the SortedDict; its first offset is never lower
        self.key = messages[0].queue_offset
        self._fill(messages)

    def _fill(self, messages: Sequence[M]) -> None:
        self.messages = messages
        self.size_bytes = sum([m.body_bytes for m in messages])
        self.left = len(messages)
        self.gone = None
        #: indexes of the first and the last message that are left
        self.head = 0
        self.tail = self.left - 1

    @property
    def first(self) -> int:
        return self.messages[self.head].queue_offset

    @property
    def last(self) -> int:
        return self.messages[self.tail].queue_offset

    def index_of(self, offset: int) -> int | None:
        """The index of the message with that offset; None when there is none."""
        messages = self.messages
        index = offset - messages[0].queue_offset
        if not 0 <= index < len(messages) or messages[index].queue_offset != offset:
            index = bisect_left(messages, offset, key=offset_of)
            if index == len(messages) or messages[index].queue_offset != offset:
                return None
        if index < self.head or index > self.tail:
            return None
        return None if self.gone is not None and self.gone[index] else index

    def has_all(self, index: int, messages: Sequence[M]) -> bool:
        """Whether exactly these messages, in order, are there from `index` on."""
        end = index + len(messages)
        if end > self.tail + 1 or self.messages[end - 1] is not messages[-1]:
            return False
        if self.messages[index:end] != messages:
            return False
        return self.gone is None or self.gone.find(1, index, end) < 0

    def take_out(self, index: int, count: int) -> None:
        """Remove `count` messages from `index` on."""
        self.left -= count
        if not self.left:
            return
        gone = self.gone
        if gone is None:
            if index == self.head:
                self.head += count
                return
            if index + count > self.tail:
                self.tail -= count
                return
            gone = self.gone = bytearray(len(self.messages))
        if count == 1:
            gone[index] = 1
        else:
            gone[index : index + count] = b"\1" * count
        if index == self.head:
            self.head = gone.find(0, index)
        if index + count > self.tail:
            self.tail = gone.rfind(0, 0, index)

    def take_first(self, count: int) -> list[M]:
        """Remove and return up to `count` messages with the lowest offsets."""
        if self.gone is not None:
            self._fill(self.all())
        at = self.head
        found = list(self.messages[at : min(at + count, self.tail + 1)])
        self.take_out(at, len(found))
        return found

    def all(self) -> list[M]:
        """The messages that are left, in order."""
        found = self.messages[self.head : self.tail + 1]
        if self.gone is None:
            return list(found)
        return [m for m, gone in zip(found, self.gone[self.head :]) if not gone]  # noqa: B905


class QueueState(enum.Enum):
    """The state of a ProcessQueue; see the module."""

    ACTIVE = "ACTIVE"
    RELEASED = "RELEASED"
    RESTING = "RESTING"
    DROPPED = "DROPPED"


_TRANSITIONS: Final = {
    QueueState.ACTIVE: {QueueState.RELEASED, QueueState.RESTING, QueueState.DROPPED},
    QueueState.RELEASED: {QueueState.RESTING, QueueState.DROPPED},
    QueueState.RESTING: {QueueState.DROPPED},
    QueueState.DROPPED: {QueueState.RESTING},
}


class ProcessQueue(Generic[M]):
    """The cache of one queue, from its assignment until it is dropped.

    Counts and sizes include messages that are being consumed. Times are monotonic ms.
    The default of `last_lock_ms` is now. `story` comes from the ProcessQueue that this
    one replaces.
    """

    def __init__(
        self,
        message_queue: MessageQueue,
        now_ms: int,
        *,
        locked: bool = True,
        last_lock_ms: int | None = None,
        story: deque[str] | None = None,
    ) -> None:
        self.message_queue = message_queue
        self._runs: SortedDict[int, Run[M]] = SortedDict()
        #: no cached offset is above it
        self._highest = -1
        #: orderly: messages that are taken and not committed, by offset
        self._taken: dict[int, M] = {}
        self.state = QueueState.ACTIVE
        #: whether the state is RESTING or DROPPED; kept beside it because consume
        #: threads read it for each message
        self.dropped = False
        #: the last transitions of the queue, oldest first
        self.story: deque[str] = deque(maxlen=_STORY_MAX) if story is None else story
        self.locked = locked
        self.last_lock_ms = now_ms if last_lock_ms is None else last_lock_ms
        self.consuming = False
        self.msg_count = 0
        self.msg_size_bytes = 0
        self.queue_offset_max = 0
        self.try_unlock_times = 0
        self.last_pull_ms = now_ms
        #: whether a pull is in flight, and which offset the last one committed
        self.is_pulling = False
        self.carried: int | None = None
        self.last_consume_ms = now_ms

    def change(self, state: QueueState, cause: str) -> None:
        """Change to another state; changing to the current state has no effect.

        Raises RuntimeError for a transition that the module's table does not have.
        """
        if state is self.state:
            return
        if state not in _TRANSITIONS[self.state]:
            raise RuntimeError(
                f"a queue cannot become {state.name} after {self.state.name}:"
                f" {cause}; so far: {', '.join(self.story)}"
            )
        self.story.append(f"{self.state.name} -> {state.name}: {cause}")
        self.state = state
        self.dropped = state in (QueueState.RESTING, QueueState.DROPPED)

    def drop(self, cause: str) -> None:
        """Drop the queue. None of its offsets is committed any more."""
        self.change(QueueState.DROPPED, cause)

    @property
    def is_pulled(self) -> bool:
        """Whether the queue is still pulled."""
        return self.state is QueueState.ACTIVE

    def lock_granted(self, asked_ms: int) -> None:
        """Record that the broker granted the lock, which counts from its request."""
        self.locked = True
        self.last_lock_ms = asked_ms

    def lock_lost(self) -> None:
        """Record that the broker's lock is lost or was given back."""
        self.locked = False

    def pull_begun(self, commit_offset: int | None) -> None:
        """Record that a pull was sent, which commits `commit_offset`."""
        self.is_pulling = True
        self.carried = commit_offset

    def pull_ended(self) -> None:
        """Record that the pull was answered."""
        self.is_pulling = False

    def validate(self) -> None:
        """Raise AssertionError when its parts contradict each other. For tests."""
        assert self.dropped == (  # noqa: S101
            self.state in (QueueState.RESTING, QueueState.DROPPED)
        )
        assert len(self.story) <= _STORY_MAX  # noqa: S101
        if not self._runs:  # as of most queues of a simulation, after most events
            return
        behind = -1
        for key, run in self._runs.items():
            present = run.all()
            offsets = [each.queue_offset for each in present]
            assert run.key == key <= run.first  # noqa: S101
            assert len(present) == run.left > 0  # noqa: S101
            assert offsets == sorted(set(offsets))  # noqa: S101
            assert behind < offsets[0] == run.first  # noqa: S101
            assert offsets[-1] == run.last <= self._highest  # noqa: S101
            behind = offsets[-1]

    def put_message(
        self,
        messages: Sequence[M],
        *,
        is_ascending: bool = False,
    ) -> bool:
        """Add pulled messages; return whether to begin consuming an orderly queue.

        A message whose offset is already cached replaces the cached one and is not
        counted. With `is_ascending` the caller has checked that the offsets ascend.
        """
        if messages:
            self._add(messages, is_ascending=is_ascending)
        begins = bool(self._runs) and not self.consuming
        if begins:
            self.consuming = True
        return begins

    def _add(self, messages: Sequence[M], *, is_ascending: bool) -> None:
        if self._is_beyond(messages, is_ascending=is_ascending):
            run = self._runs[messages[0].queue_offset] = Run(messages)
            self.msg_count += run.left
            self.msg_size_bytes += run.size_bytes
            self.queue_offset_max = self._highest = messages[-1].queue_offset
            return
        for message in messages:
            offset = message.queue_offset
            if self._replace(message):
                continue
            self._insert([message])
            self.msg_count += 1
            self.msg_size_bytes += message.body_bytes
            self.queue_offset_max = offset

    def _replace(self, message: M) -> bool:
        """Replace the cached message with the same offset, if there is one."""
        run, index = self._find(message.queue_offset)
        if run is None or index is None:
            return False
        old = run.messages[index]
        run.messages = [*run.messages[:index], message, *run.messages[index + 1 :]]
        run.size_bytes += message.body_bytes - old.body_bytes
        return True

    def _is_beyond(self, messages: Sequence[M], *, is_ascending: bool) -> bool:
        """Whether the offsets ascend, and begin after all offsets so far."""
        first, count = messages[0].queue_offset, len(messages)
        if first <= self._highest and self._runs:
            return False
        if is_ascending:
            return True
        offsets = [m.queue_offset for m in messages]
        return offsets == list(range(first, first + count)) or all(
            before < after for before, after in itertools.pairwise(offsets)
        )

    def _find(self, offset: int) -> tuple[Run[M] | None, int | None]:
        """The run that may contain an offset, and the index of its message there."""
        runs = self._runs
        at = runs.bisect_right(offset) - 1
        if at < 0:
            return None, None
        run = runs.peekitem(at)[1]
        return run, run.index_of(offset)

    def _insert(self, messages: list[M]) -> None:
        """Insert ascending messages, none of which is cached; does not count them."""
        first, last = messages[0].queue_offset, messages[-1].queue_offset
        runs = self._runs
        at = max(0, runs.bisect_right(first) - 1)
        crossing = []
        while at < len(runs):
            key, run = runs.peekitem(at)
            if key > last:
                break
            if run.last > first:
                crossing.append(key)
            at += 1
        for key in crossing:
            messages = sorted([*messages, *runs.pop(key).all()], key=offset_of)
        runs[messages[0].queue_offset] = Run(messages)
        self._highest = max(self._highest, last)

    def remove_message(self, messages: Sequence[M], now_ms: int) -> int | None:
        """Remove consumed messages; return the next offset to commit.

        It is the lowest offset that is left, or the one after the highest so far. None
        when no messages were cached.
        """
        self.last_consume_ms = now_ms
        runs = self._runs
        if not runs:
            return None
        if messages:
            self._remove(messages)
        if not self.msg_count:
            self.msg_size_bytes = 0
        if not runs:
            return self.queue_offset_max + 1
        lowest: int = runs.peekitem(0)[1].first
        return lowest

    def _remove(self, messages: Sequence[M]) -> None:
        runs = self._runs
        run = runs.get(messages[0].queue_offset)
        if (
            run is not None
            and run.left == len(messages)
            and (run.messages is messages or run.messages == messages)
        ):
            del runs[run.key]
            self.msg_count -= run.left
            self.msg_size_bytes -= run.size_bytes
        elif len(messages) == 1:
            self._remove_each(messages)
        else:
            self._remove_part(messages)

    def _remove_part(self, messages: Sequence[M]) -> None:
        run, index = self._find(messages[0].queue_offset)
        if run is not None and index is not None and run.has_all(index, messages):
            self.msg_count -= len(messages)
            self.msg_size_bytes -= sum([m.body_bytes for m in messages])
            run.take_out(index, len(messages))
            if not run.left:
                del self._runs[run.key]
        else:
            self._remove_each(messages)

    def _remove_each(self, messages: Sequence[M]) -> None:
        run: Run[M] | None = None
        for message in messages:
            index = None if run is None else run.index_of(message.queue_offset)
            if index is None:
                run, index = self._find(message.queue_offset)
            if run is None or index is None:
                continue
            self.msg_count -= 1
            self.msg_size_bytes -= message.body_bytes
            run.take_out(index, 1)
            if not run.left:
                del self._runs[run.key]
                run = None

    def max_span(self) -> int:
        """The distance of the lowest and highest cached offset, without taken ones."""
        runs = self._runs
        if not runs:
            return 0
        span: int = runs.peekitem(-1)[1].last - runs.peekitem(0)[1].first
        return span

    def take_messages(self, count: int, now_ms: int) -> list[M]:
        """Take up to `count` of the lowest messages; without any, consuming ends."""
        self.last_consume_ms = now_ms
        taken: list[M] = []
        runs = self._runs
        while runs and len(taken) < count:
            run = runs.peekitem(0)[1]
            taken += run.take_first(count - len(taken))
            if not run.left:
                del runs[run.key]
        if taken:
            self._taken.update((m.queue_offset, m) for m in taken)
        else:
            self.consuming = False
        return taken

    def commit(self) -> int | None:
        """Commit the taken messages; return the offset after the highest, if any."""
        taken = self._taken
        if not taken:
            return None
        offset = max(taken) + 1
        self.msg_count -= len(taken)
        self.msg_size_bytes -= sum([m.body_bytes for m in taken.values()])
        if not self.msg_count:
            self.msg_size_bytes = 0
        self._taken = {}
        return offset

    def rollback(self) -> None:
        """Put all taken messages back."""
        self.make_message_to_consume_again(list(self._taken.values()))

    def make_message_to_consume_again(self, messages: Sequence[M]) -> None:
        """Put these messages back; they are consumed next, in order."""
        back: dict[int, M] = {}
        for message in messages:
            self._taken.pop(message.queue_offset, None)
            if not self._replace(message):
                back[message.queue_offset] = message
        if back:
            self._insert([back[offset] for offset in sorted(back)])

    def contains(self, message: M) -> bool:
        """Whether the message's offset is cached and not taken."""
        return self._find(message.queue_offset)[1] is not None

    def first(self) -> M | None:
        """The cached message with the lowest offset."""
        if not self._runs:
            return None
        run = self._runs.peekitem(0)[1]
        message: M = run.messages[run.head]
        return message

    def is_pull_expired(self, now_ms: int) -> bool:
        """Whether no pull was tried for two minutes: its pull loop must have ended."""
        return now_ms - self.last_pull_ms > PULL_MAX_IDLE_MS

    def is_lock_expired(self, now_ms: int) -> bool:
        """Whether the broker's lock is too old to be trusted."""
        return now_ms - self.last_lock_ms > LOCK_MAX_LIVE_MS

    def fill_info(self, *, commit_offset: int, now: Now) -> ProcessQueueInfo:
        """The queue's part of the running info for brokers; times are epoch ms."""
        behind_ms = now.epoch_ms - now.monotonic_ms
        runs, taken = self._runs, self._taken
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=runs.peekitem(0)[1].first if runs else 0,
            cached_msg_max_offset=runs.peekitem(-1)[1].last if runs else 0,
            cached_msg_count=sum(run.left for run in runs.values()),
            cached_msg_size_in_mib=_mib(self.msg_size_bytes),
            transaction_msg_min_offset=min(taken, default=0),
            transaction_msg_max_offset=max(taken, default=0),
            transaction_msg_count=len(taken),
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_ms + behind_ms,
            droped=self.dropped,
            last_pull_timestamp=self.last_pull_ms + behind_ms,
            last_consume_timestamp=self.last_consume_ms + behind_ms,
        )


def _mib(size_bytes: int) -> int:
    """The size in MiB, rounded towards 0 as in Java; replacing may make it negative."""
    return -(-size_bytes // _MIB) if size_bytes < 0 else size_bytes // _MIB
