"""Long polling of pulls: requests that wait for a message.

Imitated: an arriving message wakes the pulls of its queue whose filter matches its tag
and properties. A check every 5 s (with short polling every second) ends the pulls whose
time is over, so that a pull may be held for up to 5 s longer than requested. The check
reads no tags: when only messages with other tags have arrived, it wakes the pull, too,
and the answer is 20. On a slave, only the check wakes pulls. A woken pull reads the
queue again, and is not held a second time.
Not imitated: RocketMQ keeps the pulls of closed connections.

Source: `PullRequestHoldService`, `NotifyMessageArrivingListener` and
`PullMessageProcessor.executeRequestWhenWakeup` in apache/rocketmq.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.broker.filter.message_filter import MessageFilter, may_match
from rmqcli.broker.request import BrokerRequest, Reply, answered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.effects import Peer
    from rmqcli.clock import Now
    from rmqcli.wire.headers.pull import PullMessageRequestHeader

CHECK_INTERVAL_MS: Final = 5_000
#: The most pulls that one broker holds; beyond that, pulls are answered at once.
HELD_MAX: Final = 100_000


class _Held(NamedTuple):
    request: BrokerRequest
    header: PullMessageRequestHeader
    message_filter: MessageFilter | None
    pull_again: Callable[[Now], Reply | None]
    ends_ms: int  # monotonic


class PullRequestHoldService:
    """The held pulls, by queue."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._held: dict[tuple[str, int], list[_Held]] = {}
        self._queues_of: dict[int, set[tuple[str, int]]] = {}  # by a peer's number
        self._count = 0
        self._check_at_ms: int | None = None

    def __len__(self) -> int:
        return self._count

    def hold(
        self,
        request: BrokerRequest,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
        pull_again: Callable[[Now], Reply | None],
    ) -> bool:
        """Hold a pull until a message arrives or its time is over.

        `pull_again` then returns the answer, without holding the pull again. Returns
        False if too many pulls are held already.
        """
        if self._count >= HELD_MAX:
            return False
        settings = self._context.settings
        timeout_ms = header.suspend_timeout_millis
        if not settings.long_polling_enable:
            timeout_ms = settings.short_polling_time_mills
        key = (header.topic, header.queue_id)
        ends_ms = request.now.monotonic_ms + timeout_ms
        held = _Held(request, header, message_filter, pull_again, ends_ms)
        self._held.setdefault(key, []).append(held)
        self._queues_of.setdefault(request.peer.number, set()).add(key)
        self._count += 1
        self._plan_check(request.now)
        return True

    def arrived(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tags_code: int,
        properties: Mapping[str, str],
        now: Now,
    ) -> None:
        """Wake the pulls that match a message that was put into a consume queue."""
        waiting = self._held.get((topic, queue_id))
        if waiting is None:
            return
        settings = self._context.settings
        if settings.broker_id == 0 and settings.long_polling_enable:
            self._notify(
                (topic, queue_id),
                queue_offset + 1,
                now,
                tags_code=tags_code,
                properties=properties,
            )

    def closed(self, peer: Peer) -> None:
        """Drop the held pulls of a closed connection."""
        for key in self._queues_of.pop(peer.number, ()):
            held = self._held.get(key)
            if held is not None:
                left = [each for each in held if each.request.peer != peer]
                self._count -= len(held) - len(left)
                self._put_back(key, left)

    def _plan_check(self, now: Now) -> None:
        """Plan the next check, a multiple of its interval after the broker's start."""
        if self._check_at_ms is not None:
            return
        settings = self._context.settings
        interval_ms = CHECK_INTERVAL_MS
        if not settings.long_polling_enable:
            interval_ms = max(1, settings.short_polling_time_mills)
        passed_ms = now.monotonic_ms - self._context.started.monotonic_ms
        turns = passed_ms // interval_ms + 1
        at_ms = self._context.started.monotonic_ms + turns * interval_ms
        self._check_at_ms = at_ms
        self._context.timers.at(at_ms, self._check)

    def _check(self, now: Now) -> None:
        self._check_at_ms = None
        for key in list(self._held):
            self._notify(key, 0, now)
        if self._count:
            self._plan_check(now)

    def _notify(
        self,
        key: tuple[str, int],
        max_offset: int,
        now: Now,
        *,
        tags_code: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Wake the pulls of a queue that match or whose time is over.

        Source: PullRequestHoldService.notifyMessageArriving.
        """
        waiting = self._held.pop(key)
        woken, left = [], []
        for held in waiting:
            wanted = held.header.queue_offset
            newest = max_offset
            if newest <= wanted:
                newest = (self._context.store.queue_bounds(*key) or (0, 0))[1]
            if (
                newest > wanted
                and may_match(held.message_filter, tags_code, properties)
            ) or now.monotonic_ms >= held.ends_ms:
                woken.append(held)
            else:
                left.append(held)
        self._count -= len(woken)
        self._put_back(key, left)
        for held in woken:
            if (reply := answered(partial(held.pull_again, now))) is not None:
                self._context.answer(held.request, reply)

    def _put_back(self, key: tuple[str, int], left: list[_Held]) -> None:
        if left:
            self._held[key] = left
        else:
            self._held.pop(key, None)
