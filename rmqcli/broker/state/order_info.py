"""Orderly POP: the batches that were delivered, and when their queues are free again.

A group has at most one outstanding batch of a queue. The queue is blocked until every
message of the batch is acknowledged or visible again. The next batch begins at the
first message that is not acknowledged. A request with the same attempt id gets the
batch again.

Imitated: all of this, and the file consumerOrderInfo.json. It is written every 5 s, so
that a crash loses up to 5 s of acknowledgements, as in RocketMQ.
Not imitated: 5.5's order by message instead of by queue.

Source: `ConsumerOrderInfoManager` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker.state.deadlines import Deadlines
from rmqcli.wire.bodies.pop import ConsumerOrderInfo, OrderInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqcli.broker.context import BrokerContext
    from rmqcli.clock import Now

#: topic, group, queue id
QueueKey = tuple[str, str, int]

#: The most entries: queues with an outstanding batch, of all groups.
QUEUES_MAX: Final = 200_000
_SIGN_BIT: Final = 1 << 63
_MASK: Final = (1 << 64) - 1
#: The entry of a queue is removed after a day without a POP.
_CLEAN_MS: Final = 24 * 3600 * 1000  # CLEAN_SPAN_FROM_LAST
_CLEAN_EVERY: Final = 1_000


class OrderInfos:
    """The outstanding batches of orderly POP. `version` grows with each change.

    `on_free` is called with a queue that can be popped again without a new message.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._infos: dict[QueueKey, OrderInfo] = {}
        self.version = 0
        self.on_free: Callable[[QueueKey, Now], None] | None = None
        self._deadlines = Deadlines[tuple[QueueKey, OrderInfo]](
            context.background,
            self._due,
            has_ended=lambda thing: self._infos.get(thing[0]) is not thing[1],
            count=lambda: len(self._infos),
        )

    def __len__(self) -> int:
        return len(self._infos)

    def give_out(
        self,
        key: QueueKey,
        offsets: Sequence[int],
        *,
        attempt_id: str | None,
        invisible_ms: int,
        now: Now,
    ) -> list[tuple[int | None, int]]:
        """Record a batch popped at `now`; return how often its messages came before.

        The result has pairs of an offset and the number of its earlier deliveries. The
        last pair has no offset: its count is for all messages without a pair.
        """
        before = self._infos.get(key)
        info = OrderInfo(
            pop_time=now.epoch_ms,
            invisible_time=invisible_ms,
            offset_list=[offsets[0], *(each - offsets[0] for each in offsets[1:])],
            last_consume_timestamp=now.epoch_ms,
            attempt_id=attempt_id,
            offset_consumed_count=_counts(before, offsets, attempt_id),
        )
        self._set(key, info, now)
        counts = info.offset_consumed_count
        if not counts:
            return [(None, 0)]
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        return [*counts.items(), (None, least)]

    def is_blocked(
        self,
        key: QueueKey,
        now: Now,
        *,
        attempt_id: str | None = None,
        invisible_ms: int = 0,
    ) -> bool:
        """Whether a message of the outstanding batch is still invisible.

        A request with the batch's attempt id is not blocked by it. `invisible_ms` is
        used for a batch that has no invisible time of its own.
        """
        info = self._infos.get(key)
        if info is None or not info.offset_list:
            return False
        if info.attempt_id is not None and info.attempt_id == attempt_id:
            return False
        return any(
            now.epoch_ms < visible_ms
            for visible_ms in _hidden_until(info, invisible_ms)
        )

    def ack(self, key: QueueKey, offset: int, pop_time_ms: int, now: Now) -> int | None:
        """Acknowledge a message. Returns the offset to commit.

        Returns None if the message is not in the outstanding batch of `pop_time_ms`.
        """
        info = self._infos.get(key)
        if info is None:
            return offset + 1
        offsets = _offsets(info)
        if info.pop_time != pop_time_ms or offset not in offsets:
            return None
        bits = info.commit_offset_bit & _MASK | 1 << offsets.index(offset)
        if bits & _SIGN_BIT:
            bits -= 1 << 64
        info = dataclasses.replace(info, commit_offset_bit=bits)
        self._set(key, info, now)
        for at, each in enumerate(offsets):
            if not _is_acked(info, at):
                return each
        return offsets[-1] + 1

    def set_visible(
        self, key: QueueKey, offset: int, pop_time_ms: int, visible_ms: int, now: Now
    ) -> None:
        """Set when a message of the batch will be visible again (epoch ms)."""
        info = self._infos.get(key)
        if info is None or info.pop_time != pop_time_ms:
            return
        times = info.offset_next_visible_time or {}
        if offset not in times and offset not in _offsets(info):
            return
        info = dataclasses.replace(
            info, offset_next_visible_time={**times, offset: visible_ms}
        )
        self._set(key, info, now)

    def suspend(
        self, key: QueueKey, pop_time_ms: int, visible_ms: int, now: Now
    ) -> None:
        """Set when a whole batch, which was not consumed, is visible (epoch ms).

        Source: MemoryConsumerOrderInfoManager.suspendQueue.
        """
        info = self._infos.get(key)
        if info is None or info.pop_time != pop_time_ms:
            return
        counts = (info.offset_consumed_count or {}).items()
        info = dataclasses.replace(
            info,
            offset_consumed_count={each: max(0, count - 1) for each, count in counts},
            offset_next_visible_time=None,
            invisible_time=visible_ms - info.pop_time,
        )
        self._set(key, info, now)

    def clear(self, key: QueueKey) -> None:
        """Forget a queue's batch, because its offset was reset."""
        if self._infos.pop(key, None) is not None:
            self.version += 1

    def body(self) -> ConsumerOrderInfo:
        """The content of consumerOrderInfo.json."""
        table: dict[str, dict[int, OrderInfo]] = {}
        for (topic, group, queue_id), info in self._infos.items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = info
        return ConsumerOrderInfo(table=table)

    def load(self, body: ConsumerOrderInfo, now: Now) -> None:
        """Replace all batches with the stored ones."""
        self._infos.clear()
        for name, queues in body.table.items():
            topic, separator, group = name.rpartition("@")
            for queue_id, info in queues.items():
                if separator and info.offset_list and len(self) < QUEUES_MAX:
                    self._set((topic, group, queue_id), info, now)

    def _set(self, key: QueueKey, info: OrderInfo, now: Now) -> None:
        self._infos[key] = info
        self.version += 1
        if self.version % _CLEAN_EVERY == 0 or len(self._infos) > QUEUES_MAX:
            self._clean(now)
        free_ms = max(_hidden_until(info, 0), default=now.epoch_ms)
        if free_ms > now.epoch_ms:
            self._deadlines.add((key, info), now.monotonic_ms + free_ms - now.epoch_ms)

    def _clean(self, now: Now) -> None:
        wanted = len(self._infos)
        if wanted > QUEUES_MAX:
            wanted = QUEUES_MAX - QUEUES_MAX // 10  # so as not to clean at each `_set`
        oldest = sorted(
            self._infos, key=lambda key: self._infos[key].last_consume_timestamp
        )
        for key in oldest:
            age_ms = now.epoch_ms - self._infos[key].last_consume_timestamp
            if age_ms <= _CLEAN_MS and len(self._infos) <= wanted:
                break
            del self._infos[key]

    def _due(self, thing: tuple[QueueKey, OrderInfo], now: Now) -> None:
        key, info = thing
        left_ms = max(_hidden_until(info, 0), default=0) - now.epoch_ms
        if left_ms > 0:
            # Both clocks are in whole ms, so that one may be a ms before the other.
            self._deadlines.add(thing, now.monotonic_ms + left_ms)
        elif self.on_free is not None:
            self.on_free(key, now)


def _offsets(info: OrderInfo) -> list[int]:
    first, *rest = info.offset_list or [0]
    return [first, *(first + each for each in rest)]


def _is_acked(info: OrderInfo, at: int) -> bool:
    return bool(info.commit_offset_bit >> min(at, 63) & 1)


def _hidden_until(info: OrderInfo, invisible_ms: int) -> Iterator[int]:
    """Yield when each unacknowledged message is visible again, in epoch ms."""
    if info.invisible_time is not None and info.invisible_time > 0:
        invisible_ms = info.invisible_time
    times = info.offset_next_visible_time or {}
    for at, offset in enumerate(_offsets(info)):
        if not _is_acked(info, at):
            yield times.get(offset, info.pop_time + invisible_ms)


def _counts(
    before: OrderInfo | None, offsets: Sequence[int], attempt_id: str | None
) -> dict[int, int] | None:
    """Return offset -> earlier deliveries, for the messages that were delivered before.

    Returns None if there was no batch before. If `before` is a batch of the same
    attempt, its counts stay.
    """
    if before is None:
        return None
    counts = before.offset_consumed_count or {}
    if before.attempt_id is not None and before.attempt_id == attempt_id:
        return counts
    out = set(_offsets(before))
    return {each: counts.get(each, 0) + 1 for each in offsets if each in out}
