"""Which messages POP gave out in order, and when their queues are free again.

Of each queue, a group has one batch out. The queue is blocked until every message of
it is acknowledged or visible again; then it goes on behind the last message that was
acknowledged without a gap. A request with the same attempt id gets the batch again.

Imitated: all of it, the file consumerOrderInfo.json too, which is written each 5 s: a
crash loses up to 5 s of acknowledgements, as with RocketMQ.
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

#: Queues with a batch out, of all groups; a group that has none out needs no entry.
QUEUES_MAX: Final = 200_000
_SIGN_BIT: Final = 1 << 63
_MASK: Final = (1 << 64) - 1
#: After a day without a pop the entry goes.
_CLEAN_MS: Final = 24 * 3600 * 1000  # CLEAN_SPAN_FROM_LAST
_CLEAN_EVERY: Final = 1_000


class OrderInfos:
    """The batches that are out in order. `version` grows with each change.

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
        pop_time_ms: int,
        invisible_ms: int,
        now: Now,
    ) -> list[tuple[int | None, int]]:
        """Note a batch. Returns how often messages were out before, by offset.

        The last item, without an offset, is the count for all others.
        """
        before = self._infos.get(key)
        info = OrderInfo(
            pop_time=pop_time_ms,
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
        self, key: QueueKey, *, attempt_id: str | None, invisible_ms: int, now: Now
    ) -> bool:
        """Whether a batch is out and hidden, and is not that of the same attempt."""
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
        """A message was consumed. Returns the offset to commit, None for none."""
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
        """Change when a message of the batch is visible again (epoch ms)."""
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

    def clear(self, key: QueueKey) -> None:
        """Forget a queue's batch: its offset was reset."""
        if self._infos.pop(key, None) is not None:
            self.version += 1

    def body(self) -> ConsumerOrderInfo:
        """What consumerOrderInfo.json holds."""
        table: dict[str, dict[int, OrderInfo]] = {}
        for (topic, group, queue_id), info in self._infos.items():
            table.setdefault(f"{topic}@{group}", {})[queue_id] = info
        return ConsumerOrderInfo(table=table)

    def load(self, body: ConsumerOrderInfo, now: Now) -> None:
        """Take over what was stored, instead of all here."""
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
            wanted = QUEUES_MAX - QUEUES_MAX // 10  # so that this is not done each time
        oldest = sorted(
            self._infos, key=lambda key: self._infos[key].last_consume_timestamp
        )
        for key in oldest:
            age_ms = now.epoch_ms - self._infos[key].last_consume_timestamp
            if age_ms <= _CLEAN_MS and len(self._infos) <= wanted:
                break
            del self._infos[key]

    def _due(self, thing: tuple[QueueKey, OrderInfo], now: Now) -> None:
        if self.on_free is not None:
            self.on_free(thing[0], now)


def _offsets(info: OrderInfo) -> list[int]:
    first, *rest = info.offset_list or [0]
    return [first, *(first + each for each in rest)]


def _is_acked(info: OrderInfo, at: int) -> bool:
    return bool(info.commit_offset_bit >> min(at, 63) & 1)


def _hidden_until(info: OrderInfo, invisible_ms: int) -> Iterator[int]:
    """When each message that is not acknowledged is visible again, in epoch ms."""
    if info.invisible_time is not None and info.invisible_time > 0:
        invisible_ms = info.invisible_time
    times = info.offset_next_visible_time or {}
    for at, offset in enumerate(_offsets(info)):
        if not _is_acked(info, at):
            yield times.get(offset, info.pop_time + invisible_ms)


def _counts(
    before: OrderInfo | None, offsets: Sequence[int], attempt_id: str | None
) -> dict[int, int] | None:
    """How often each message was out before; only those that were."""
    if before is None:
        return None
    counts = before.offset_consumed_count or {}
    if before.attempt_id is not None and before.attempt_id == attempt_id:
        return counts
    out = set(_offsets(before))
    return {each: counts.get(each, 0) + 1 for each in offsets if each in out}
