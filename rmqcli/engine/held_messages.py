"""The messages that a member received from a proxy, and what to do with them next.

A proxy makes a received message invisible to the rest of the group for some time, its
lease. Until the message is acknowledged, given back or a dead letter, the member holds
it:

               handed out            failed, in order
       CACHED ------------> RUNNING ------------------> WAITING
        |  ^                | |  |                        |
        |  |  left as it was  |  |      its time has come |
        |  +----------------+ |  | <- - - - - - - - - - - + (it is CACHED again)
        | given back          | consumed, or failed
        v                     v
       SETTLING <-------------+
        |
        v
       GONE     also from every other state, once the lease is over

Messages wait in lanes. Without order, a lane is a queue, and several batches of it may
be with listeners. In order, a lane is a message group: only one message of it is out at
a time, until it is settled. A message that fails there is retried in its place, so its
lane waits for it. When the lease of such a message is over, or it cannot become a dead
letter, another member may receive it; then all later messages of the lane are given
back, because they must be delivered after it.

A lease is renewed RENEW_AHEAD_MS before its end. A renewal replaces the receipt handle,
so a decision that is made during the renewal is carried out after it.

Pure: the caller carries out the decisions and reports the outcome.

Source: ProcessQueueImpl, StandardConsumeService, FifoConsumeService in
apache/rocketmq-clients.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections import Counter, OrderedDict, deque
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.engine.config import ConsumerConfig
    from rmqcli.model import MessageQueue

#: How long a message is invisible after a receive and after each renewal.
INVISIBLE_MS: Final = 60_000  # ProxyConfig.defaultInvisibleTimeMills
RENEW_AHEAD_MS: Final = 30_000
#: The pause before a renewal that was not sent is retried.
RENEW_AGAIN_MS: Final = 1_000
#: How long a message that is given back stays invisible.
GIVE_BACK_MS: Final = 1_000
_LOOKS_MIN: Final = 1_024
#: The longest delay that a proxy accepts.
DELAY_MS_MAX: Final = 12 * 60 * 60 * 1_000  # ProxyConfig.maxInvisibleTimeMills

#: The delays of `delay_level_when_next_consume`, beginning with level 1.
DELAY_LEVELS_MS: Final = tuple(
    seconds * 1_000
    for seconds in (
        *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540),
        *(600, 1_200, 1_800, 3_600, 7_200),
    )
)  # MessageStoreConfig.messageDelayLevel


class Delivered(Protocol):
    """The attributes of a received message that are used here."""

    @property
    def message_queue(self) -> MessageQueue: ...
    @property
    def msg_id(self) -> str: ...
    @property
    def queue_offset(self) -> int | None: ...
    @property
    def message_group(self) -> str | None: ...
    @property
    def delivery_attempt(self) -> int: ...

    body_bytes: int
    receipt_handle: str


class RetryRules(Protocol):
    """The server's rules for failed messages. Attempts count from 1."""

    @property
    def max_attempts(self) -> int: ...

    def delay_ms(self, attempt: int) -> int:
        """How long to wait after this attempt failed."""


class HeldState(enum.Enum):
    """See the module."""

    CACHED = "CACHED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    SETTLING = "SETTLING"
    GONE = "GONE"


_MAY_BECOME: Final = {
    HeldState.CACHED: {HeldState.RUNNING, HeldState.SETTLING, HeldState.GONE},
    HeldState.RUNNING: {
        HeldState.CACHED,
        HeldState.WAITING,
        HeldState.SETTLING,
        HeldState.GONE,
    },
    HeldState.WAITING: {HeldState.CACHED, HeldState.SETTLING, HeldState.GONE},
    HeldState.SETTLING: {HeldState.GONE},
    HeldState.GONE: set[HeldState](),
}


@dataclass(slots=True, eq=False, repr=False)
class Held:
    """One message with its lease. Changed by `HeldMessages` only."""

    message: Delivered
    source: MessageQueue
    lane: object
    receipt_handle: str
    #: the number of this delivery, from 1; retries in its place count, too
    attempt: int
    #: monotonic: when other members may receive it
    until_ms: int
    #: monotonic: when its lease is renewed
    renew_at_ms: int
    state: HeldState = HeldState.CACHED
    #: monotonic: when a listener last received it
    began_ms: int = 0
    #: monotonic: when it is retried in its place, while it is WAITING
    retry_at_ms: int = 0
    #: the handle that is being renewed
    renewing: str | None = None
    #: whether a renewal was not answered, so that the valid handle is unknown
    is_doubtful: bool = False
    #: the decision that waits for the end of the renewal
    verdict: Verdict | None = None
    #: whether it was consumed, and only its acknowledgement is missing
    is_acked: bool = False
    #: the number of the valid entry in `_looks`, 0 for none; others are void
    look: int = 0

    def __repr__(self) -> str:
        return f"Held({self.message!r}, {self.state.name}, attempt={self.attempt})"


class Settlement(enum.Enum):
    """What must be done with a message."""

    ACK = "ACK"
    #: change its invisible time, after which it is delivered again
    REDELIVER = "REDELIVER"
    DEAD_LETTER = "DEAD_LETTER"
    #: nothing: its lease is over, and it will be delivered again
    LOST = "LOST"
    #: nothing now: it is retried in its place
    TRY_HERE = "TRY_HERE"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about a message; `delay_ms` belongs to REDELIVER and TRY_HERE.

    After ACK, REDELIVER and DEAD_LETTER the caller must call `settled`; after a
    DEAD_LETTER that failed, it must call `lost`.
    """

    held: Held
    settlement: Settlement
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """What is due now: leases to renew, and messages to give back."""

    renew: list[Held]
    verdicts: list[Verdict]


@dataclass(slots=True, eq=False)
class _Lane:
    """Messages that wait for a consume thread, in order."""

    key: object
    cached: deque[Held] = field(default_factory=deque)
    #: in order: the message that is with a listener, waits or is being settled
    out: Held | None = None
    #: whether messages may be taken from it
    is_ready: bool = False


class HeldMessages:
    """See the module. Not thread-safe.

    `in_order` says that the group is FIFO. `retry` may be replaced at any time.
    """

    def __init__(
        self, config: ConsumerConfig, retry: RetryRules, *, in_order: bool
    ) -> None:
        self.retry = retry
        self.in_order = in_order
        self._batch_size = 1 if in_order else config.consume_message_batch_max_size
        self._consume_timeout_ms = config.consume_timeout_ms
        self._limits = _Limits(config)
        self._lanes: dict[object, _Lane] = {}
        #: lanes with a message that may be handed out; the next lane is first
        self._ready: OrderedDict[object, _Lane] = OrderedDict()
        self._held: set[Held] = set()
        #: in order: place of a message -> the message, so that none is held twice
        self._places: dict[object, Held] = {}
        #: (monotonic ms, number, message): when to check a message next
        self._looks: list[tuple[int, int, Held]] = []
        self._numbers = itertools.count(1)
        self._is_stopped = False
        self._counts: Counter[HeldState] = Counter()

    def count(self, state: HeldState) -> int:
        """How many messages are in a state other than GONE."""
        return self._counts[state]

    @property
    def held_count(self) -> int:
        """How many messages are held."""
        return len(self._held)

    @property
    def held_bytes(self) -> int:
        """The total size of their bodies as they were received."""
        return self._limits.bytes_in_all

    # --- receiving ---

    def begin_receive(self, source: MessageQueue, batch_size: int) -> int:
        """Return how many messages to request from a source, at most `batch_size`.

        Returns 0 while a limit is reached. Otherwise room is reserved for the messages
        until `end_receive`.
        """
        if self._is_stopped:
            return 0
        count = self._limits.room(source, batch_size)
        self._limits.reserve(source, count)
        return count

    def end_receive(
        self,
        source: MessageQueue,
        asked: int,
        messages: Sequence[Delivered],
        *,
        now_ms: int,
    ) -> list[Verdict]:
        """Hold the received messages; `asked` is the result of `begin_receive`.

        After `stop` all of them are given back.
        """
        self._limits.reserve(source, -asked)
        verdicts: list[Verdict] = []
        for message in messages:
            verdicts += self._add(source, message, now_ms + INVISIBLE_MS)
        return verdicts

    def _add(
        self, source: MessageQueue, message: Delivered, until_ms: int
    ) -> list[Verdict]:
        queue = message.message_queue
        known = self._places.get(_place(message)) if self.in_order else None
        if known is not None and known.state is not HeldState.SETTLING:
            # The message was delivered again, so its old lease is void. It is not
            # handed out twice.
            known.receipt_handle = message.receipt_handle
            known.until_ms, known.is_doubtful = until_ms, False
            known.renew_at_ms = until_ms - RENEW_AHEAD_MS
            self._schedule(known)
            return []
        group = message.message_group if self.in_order else None
        key: object = queue if group is None else (queue.topic, group)
        held = Held(
            message,
            source,
            key,
            receipt_handle=message.receipt_handle,
            attempt=message.delivery_attempt,
            until_ms=until_ms,
            renew_at_ms=until_ms - RENEW_AHEAD_MS,
        )
        self._held.add(held)
        self._counts[HeldState.CACHED] += 1
        self._limits.add(held)
        if self.in_order:
            self._places[_place(message)] = held
        if known is not None and known.is_acked:
            return self._settle(held, Settlement.ACK)
        if self._is_stopped:
            return self._settle(held, Settlement.REDELIVER, GIVE_BACK_MS)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
        lane.cached.append(held)
        self._make_ready(lane)
        self._schedule(held)
        return []

    # --- handing out ---

    def next_batch(self, now_ms: int) -> list[Held]:
        """Return messages of one queue for a listener, if any may be handed out.

        For each of them the caller must call `succeeded`, `failed` or `left`.
        """
        if self._is_stopped or not self._ready:
            return []
        key, lane = self._ready.popitem(last=False)
        lane.is_ready = False
        batch: list[Held] = []
        while lane.cached and len(batch) < self._batch_size:
            held = lane.cached.popleft()
            self._change(held, HeldState.RUNNING)
            held.began_ms = now_ms
            batch.append(held)
        if self.in_order:
            lane.out = batch[0]
        elif lane.cached:
            self._make_ready(lane)
        else:
            del self._lanes[key]
        return batch

    def left(self, batch: Iterable[Held]) -> None:
        """Take back messages that a listener did not get or left, and `stop`."""
        for held in reversed(list(batch)):
            self._put_first(held)
        self._is_stopped = True

    def succeeded(self, held: Held) -> list[Verdict]:
        """Decide about a consumed message; no decision while its lease is renewed."""
        return self._settle(held, Settlement.ACK)

    def failed(
        self,
        held: Held,
        *,
        now_ms: int,
        delay_level: int = 0,
        suspend_ms: int | None = None,
    ) -> list[Verdict]:
        """Decide about a failed message; no decision while its lease is renewed.

        `delay_level` comes from the context of a concurrent listener, and `suspend_ms`
        from the context of an orderly listener.
        """
        if now_ms >= held.until_ms:
            return [self._lose(held), *self._give_back_lane(held)]
        if held.attempt >= self.retry.max_attempts or delay_level < 0:
            return self._settle(held, Settlement.DEAD_LETTER)
        delay_ms = self.retry.delay_ms(held.attempt)
        if delay_level > 0:
            delay_ms = DELAY_LEVELS_MS[min(delay_level, len(DELAY_LEVELS_MS)) - 1]
        if suspend_ms is not None:
            delay_ms = max(0, suspend_ms)
        if not self.in_order:
            delay_ms = min(delay_ms, DELAY_MS_MAX)
            return self._settle(held, Settlement.REDELIVER, delay_ms)
        held.attempt += 1
        held.retry_at_ms = now_ms + delay_ms
        self._change(held, HeldState.WAITING)
        self._schedule(held)
        return [Verdict(held, Settlement.TRY_HERE, delay_ms)]

    def settled(self, held: Held) -> None:
        """Record that a decision was carried out, or no longer can be. Idempotent."""
        self._forget(held)

    def lost(self, held: Held) -> list[Verdict]:
        """Record that a dead letter could not be forwarded and is delivered again.

        Returns what to do with the messages that must be delivered after it.
        """
        self._forget(held)
        return self._give_back_lane(held)

    # --- time ---

    def next_due_ms(self) -> int | None:
        """When to call `run_due` next (monotonic); None when no message is held."""
        while self._looks and self._looks[0][1] != self._looks[0][2].look:
            heapq.heappop(self._looks)
        return self._looks[0][0] if self._looks else None

    def run_due(self, now_ms: int) -> Due:
        """Check the messages that are due. Must be called before `next_batch`.

        For each lease to renew the caller must call `renewed` or `not_renewed`.
        """
        due = Due([], [])
        while self._looks and self._looks[0][0] <= now_ms:
            _, number, held = heapq.heappop(self._looks)
            if number == held.look:
                self._look(held, now_ms, due)
        return due

    def _look(self, held: Held, now_ms: int, due: Due) -> None:
        if held.until_ms <= now_ms:
            if held.state is not HeldState.RUNNING:
                due.verdicts.append(self._lose(held))
                due.verdicts.extend(self._give_back_lane(held))
            return  # a listener that has it continues
        if self._may_renew(held, now_ms) and held.renew_at_ms <= now_ms:
            held.renewing = held.receipt_handle
            due.renew.append(held)
        if held.state is HeldState.WAITING and held.retry_at_ms <= now_ms:
            self._put_first(held)
        self._schedule(held, now_ms)

    def _may_renew(self, held: Held, now_ms: int | None) -> bool:
        if held.renewing is not None or held.is_doubtful:
            return False
        if self.in_order or held.state is not HeldState.RUNNING or now_ms is None:
            return True
        # After the consume timeout the lease is not renewed: other members receive it.
        return now_ms - held.began_ms < self._consume_timeout_ms

    def _schedule(self, held: Held, now_ms: int | None = None) -> None:
        """Schedule the next check of the message, when something is due."""
        at_ms = held.until_ms
        if self._may_renew(held, now_ms):
            at_ms = min(at_ms, held.renew_at_ms)
        if held.state is HeldState.WAITING:
            at_ms = min(at_ms, held.retry_at_ms)
        if len(self._looks) > _LOOKS_MIN + 2 * len(self._held):
            # Void entries would keep messages that are GONE in memory.
            self._looks = [look for look in self._looks if look[1] == look[2].look]
            heapq.heapify(self._looks)
        held.look = next(self._numbers)
        heapq.heappush(self._looks, (at_ms, held.look, held))

    def renewed(self, held: Held, receipt_handle: str, *, now_ms: int) -> list[Verdict]:
        """Store the new handle; return the decision that waited for it, if any."""
        if held.renewing == held.receipt_handle:  # else it was delivered again
            held.receipt_handle = receipt_handle
            held.until_ms = now_ms + INVISIBLE_MS
            held.renew_at_ms = held.until_ms - RENEW_AHEAD_MS
        return self._renewal_ended(held)

    def not_renewed(
        self, held: Held, *, now_ms: int, is_doubtful: bool, is_lost: bool
    ) -> list[Verdict]:
        """Record a failed renewal; return the decision that waited for it, if any.

        `is_doubtful` says that it may have been carried out nevertheless, and `is_lost`
        that the server does not know the handle any more. Otherwise it is retried.
        """
        if held.renewing == held.receipt_handle:
            held.is_doubtful = held.is_doubtful or is_doubtful
            held.renew_at_ms = now_ms + RENEW_AGAIN_MS
            if is_lost:
                held.until_ms = min(held.until_ms, now_ms)
        return self._renewal_ended(held)

    def _renewal_ended(self, held: Held) -> list[Verdict]:
        held.renewing = None
        verdict, held.verdict = held.verdict, None
        if verdict is not None:
            return [self._checked(verdict)]
        if held.state is not HeldState.GONE:
            self._schedule(held)
        return []

    # --- the end ---

    def stop(self) -> None:
        """Hand out no more messages, and request no more."""
        self._is_stopped = True

    def give_back_all(self) -> list[Verdict]:
        """After `stop`, give back the messages that no listener has."""
        verdicts: list[Verdict] = []
        for held in [*self._held]:
            if held.state in (HeldState.CACHED, HeldState.WAITING):
                verdicts += self._give_back(held)
        return verdicts

    # --- inside ---

    def _settle(
        self, held: Held, settlement: Settlement, delay_ms: int = 0
    ) -> list[Verdict]:
        self._change(held, HeldState.SETTLING)
        held.is_acked = settlement is Settlement.ACK
        verdict = Verdict(held, settlement, delay_ms)
        if held.renewing is not None:
            held.verdict = verdict
            return []
        return [self._checked(verdict)]

    def _checked(self, verdict: Verdict) -> Verdict:
        """Return the verdict, or LOST when the valid handle is not known.

        An ack with a void handle has no effect, but a second change of the invisible
        time would deliver the message twice.
        """
        is_change = verdict.settlement is Settlement.REDELIVER
        if is_change and verdict.held.is_doubtful:
            return self._lose(verdict.held)
        return verdict

    def _give_back(self, held: Held) -> list[Verdict]:
        self._take_out(held)
        return self._settle(held, Settlement.REDELIVER, GIVE_BACK_MS)

    def _give_back_lane(self, held: Held) -> list[Verdict]:
        """Give back the messages after one that another member may receive."""
        lane = self._lanes.get(held.lane)
        if lane is None or not self.in_order:
            return []
        verdicts: list[Verdict] = []
        for each in list(lane.cached):
            verdicts += self._give_back(each)
        return verdicts

    def _lose(self, held: Held) -> Verdict:
        self._take_out(held)
        self._forget(held)
        return Verdict(held, Settlement.LOST)

    def _forget(self, held: Held) -> None:
        if held.state is HeldState.GONE:
            return
        self._change(held, HeldState.GONE)
        self._held.discard(held)
        self._limits.remove(held)
        if self.in_order and self._places.get(_place(held.message)) is held:
            del self._places[_place(held.message)]
        lane = self._lanes.get(held.lane)
        if lane is None:
            return
        if lane.out is held:
            lane.out = None
        if lane.cached:
            self._make_ready(lane)
        elif lane.out is None:
            del self._lanes[lane.key]

    def _put_first(self, held: Held) -> None:
        """Let a message be handed out again, before the later ones of its lane."""
        self._change(held, HeldState.CACHED)
        lane = self._lanes.get(held.lane)
        if lane is None:
            lane = self._lanes[held.lane] = _Lane(held.lane)
        if lane.out is held:
            lane.out = None
        lane.cached.appendleft(held)
        self._make_ready(lane)
        self._schedule(held)

    def _take_out(self, held: Held) -> None:
        """Remove a message from its lane, if it waits there."""
        lane = self._lanes.get(held.lane)
        if lane is None or held.state is not HeldState.CACHED:
            return
        lane.cached.remove(held)
        if not lane.cached:
            self._ready.pop(lane.key, None)
            lane.is_ready = False
            if lane.out is None:
                del self._lanes[lane.key]

    def _make_ready(self, lane: _Lane) -> None:
        if not lane.is_ready and lane.cached and lane.out is None:
            lane.is_ready = True
            self._ready[lane.key] = lane

    def _change(self, held: Held, state: HeldState) -> None:
        if state not in _MAY_BECOME[held.state]:
            raise RuntimeError(f"{held!r} cannot become {state.name}")
        self._counts[held.state] -= 1
        held.state = state
        if state is not HeldState.GONE:
            self._counts[state] += 1
        if state in (HeldState.SETTLING, HeldState.GONE):
            held.look = 0

    def validate(self) -> None:
        """Raise AssertionError when the tables contradict each other. For tests."""
        by_state = Counter(each.state for each in self._held)
        assert by_state == +self._counts, (by_state, self._counts)  # noqa: S101
        cached = [each for lane in self._lanes.values() for each in lane.cached]
        assert len(cached) == len(set(cached))  # noqa: S101
        known = {each for each in self._held if each.state is HeldState.CACHED}
        assert set(cached) == known  # noqa: S101
        for key, lane in self._lanes.items():
            assert lane.cached or lane.out is not None, f"lane {key} is empty"  # noqa: S101
            assert lane.is_ready == (key in self._ready)  # noqa: S101
            assert lane.is_ready == (bool(lane.cached) and lane.out is None)  # noqa: S101
            if not self.in_order:
                assert lane.out is None  # noqa: S101
        for held in self._held:
            if self.in_order and held.state in (HeldState.RUNNING, HeldState.WAITING):
                assert self._lanes[held.lane].out is held  # noqa: S101
        self._limits.validate(self._held)


def _place(message: Delivered) -> object:
    return message.message_queue, message.queue_offset, message.msg_id


class _Limits:
    """The limits of held messages and bytes: for a queue, for a topic, and in total.

    The size of messages to receive is estimated from the messages that are held.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        mib = 1024 * 1024
        by_queue = config.pull_threshold_size_for_queue_mib
        by_topic = config.pull_threshold_size_for_topic_mib
        #: the scope's name -> its highest count and its highest bytes
        self._highest = {
            "queue": (config.pull_threshold_for_queue, by_queue * mib),
            "topic": (
                config.pull_threshold_for_topic,
                None if by_topic is None else by_topic * mib,
            ),
            "all": (None, config.cached_bytes_max),
        }
        self._counts: Counter[object] = Counter()
        self._bytes: Counter[object] = Counter()
        #: messages that the receives in flight may return
        self._reserved: Counter[object] = Counter()
        self._mean_bytes = 1_024.0

    @property
    def bytes_in_all(self) -> int:
        return self._bytes["all", None]

    def room(self, source: MessageQueue, wanted: int) -> int:
        """How many more messages may be requested."""
        room = wanted
        for scope in _scopes(source):
            count_max, bytes_max = self._highest[scope[0]]
            reserved = self._reserved[scope]
            if count_max is not None:
                room = min(room, count_max - self._counts[scope] - reserved)
            if bytes_max is not None:
                left = bytes_max - self._bytes[scope] - reserved * self._mean_bytes
                fitting = int(left // self._mean_bytes)
                # This admits a message that is larger than the limit.
                is_idle = not self._counts[scope] and not reserved
                room = min(room, max(fitting, 1 if is_idle else 0))
        return max(0, room)

    def reserve(self, source: MessageQueue, count: int) -> None:
        for scope in _scopes(source):
            self._reserved[scope] += count
            if not self._reserved[scope]:
                del self._reserved[scope]

    def add(self, held: Held) -> None:
        size = held.message.body_bytes
        self._mean_bytes = max(1.0, self._mean_bytes + (size - self._mean_bytes) / 16)
        for scope in _scopes(held.source):
            self._counts[scope] += 1
            self._bytes[scope] += size

    def remove(self, held: Held) -> None:
        for scope in _scopes(held.source):
            self._counts[scope] -= 1
            self._bytes[scope] -= held.message.body_bytes
            if not self._counts[scope]:
                del self._counts[scope], self._bytes[scope]

    def validate(self, held: Iterable[Held]) -> None:
        counts: Counter[object] = Counter()
        sizes: Counter[object] = Counter()
        for each in held:
            for scope in _scopes(each.source):
                counts[scope] += 1
                sizes[scope] += each.message.body_bytes
        assert counts == self._counts, (counts, self._counts)  # noqa: S101
        assert sizes == self._bytes, (sizes, self._bytes)  # noqa: S101
        assert all(count > 0 for count in self._reserved.values())  # noqa: S101


def _scopes(
    source: MessageQueue,
) -> tuple[tuple[str, MessageQueue], tuple[str, str], tuple[str, None]]:
    return ("queue", source), ("topic", source.topic), ("all", None)
