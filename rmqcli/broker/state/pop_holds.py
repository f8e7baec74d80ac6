"""Long polling of POP: requests that wait for a message.

Imitated: requests wait by topic, group and queue id, where -1 stands for any queue; an
arriving message wakes, for each group, one request that waits for any queue and one
that waits for the message's queue; a woken request is processed again and may wait
again, until 50 ms before its poll time ends; the limits for one queue and for all.
NOTIFICATION requests wait in the same way, in a table of their own.
A request is also woken when messages of its group become visible again; RocketMQ leaves
it waiting (retry topics v1).
Not imitated: waking requests whose filter does not match, at each 800th message.

Source: `PopLongPollingService` in apache/rocketmq.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from rmqcli.broker.filter.message_filter import MessageFilter, may_match
from rmqcli.broker.request import BrokerRequest, Reply, answered
from rmqcli.broker.state.deadlines import Deadlines
from rmqcli.dataclass import dataclass
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.effects import Peer
    from rmqcli.clock import Now

#: Limits of the waiting requests of one group and queue, and of all.
HELD_OF_QUEUE_MAX: Final = 1_024  # popPollingSize
HELD_MAX: Final = 100_000  # maxPopPollingSize
#: Limit of the waiting requests of one connection. RocketMQ has no such limit.
HELD_OF_PEER_MAX: Final = 10_000

_ENDS_EARLY_MS: Final = 50
ANY_QUEUE: Final = -1


@dataclass(slots=True, eq=False)
class _Held:
    """One waiting request."""

    key: tuple[str, str, int]
    request: BrokerRequest
    message_filter: MessageFilter | None
    again: Callable[[Now], Reply | None]
    ends_ms: int
    is_held: bool = True


class PopHolds:
    """The waiting requests of one kind (POP or NOTIFICATION)."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._held: dict[tuple[str, str, int], list[_Held]] = {}
        self._groups: dict[str, dict[str, int]] = {}  # topic -> group -> requests
        self._of_peer: dict[int, dict[_Held, None]] = {}
        self._count = 0
        self._deadlines = Deadlines[_Held](
            context.timers,
            self._finish,
            has_ended=lambda held: not held.is_held,
            count=lambda: self._count,
        )

    def __len__(self) -> int:
        return self._count

    def waiting(self, topic: str, group: str, queue_id: int) -> int:
        """Return the number of requests that wait for a queue; -1 means any queue."""
        return len(self._held.get((topic, group, queue_id), ()))

    def _is_full(self, topic: str, group: str, queue_id: int, peer: Peer) -> bool:
        """Whether a limit is reached, so that no further request may wait."""
        return (
            self._count >= HELD_MAX
            or self.waiting(topic, group, queue_id) > HELD_OF_QUEUE_MAX
            or len(self._of_peer.get(peer.number, ())) >= HELD_OF_PEER_MAX
        )

    def hold(
        self,
        key: tuple[str, str, int],
        request: BrokerRequest,
        *,
        born_time: int,
        poll_time: int,
        now: Now,
        again: Callable[[Now], Reply | None],
        message_filter: MessageFilter | None = None,
    ) -> ResponseCode | None:
        """Hold a request until a message arrives or its time is over.

        `again` then returns the answer, or None if it has held the request once more.
        Returns why the request may not wait: POLLING_TIMEOUT or POLLING_FULL.
        """
        ends_epoch_ms = born_time + poll_time
        if poll_time <= 0 or now.epoch_ms > ends_epoch_ms - _ENDS_EARLY_MS:
            return ResponseCode.POLLING_TIMEOUT
        if self._is_full(*key, request.peer):
            return ResponseCode.POLLING_FULL
        # RocketMQ ends a request in the first ms in which less than 50 ms are left.
        rest_ms = ends_epoch_ms - _ENDS_EARLY_MS + 1 - now.epoch_ms
        held = _Held(key, request, message_filter, again, now.monotonic_ms + rest_ms)
        waiting = self._held.setdefault(key, [])
        at = len(waiting)
        while at and waiting[at - 1].ends_ms > held.ends_ms:
            at -= 1
        waiting.insert(at, held)
        groups = self._groups.setdefault(key[0], {})
        groups[key[1]] = groups.get(key[1], 0) + 1
        self._of_peer.setdefault(request.peer.number, {})[held] = None
        self._count += 1
        self._deadlines.add(held, held.ends_ms)
        return None

    def arrived(
        self,
        topic: str,
        queue_id: int,
        tags_code: int,
        properties: Mapping[str, str],
        now: Now,
    ) -> None:
        """Wake requests of each group after a message was put into a consume queue."""
        if topic not in self._groups:
            return
        for group in list(self._groups[topic]):
            for each in (ANY_QUEUE, queue_id):
                self.wake(
                    (topic, group, each),
                    now,
                    tags_code=tags_code,
                    properties=properties,
                )

    def wake(
        self,
        key: tuple[str, str, int],
        now: Now,
        *,
        tags_code: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Wake the first request that waits for `key` and whose filter matches.

        Without `tags_code` every filter matches.
        """
        for held in self._held.get(key, ()):
            if may_match(held.message_filter, tags_code, properties):
                self._finish(held, now)
                return

    def closed(self, peer: Peer) -> None:
        """Drop the requests of a closed connection."""
        for held in self._of_peer.pop(peer.number, {}):
            self._remove(held)

    def _finish(self, held: _Held, now: Now) -> None:
        of_peer = self._of_peer.get(held.request.peer.number)
        if of_peer is not None:
            of_peer.pop(held, None)
            if not of_peer:
                del self._of_peer[held.request.peer.number]
        self._remove(held)
        reply = answered(partial(held.again, now))
        if reply is not None:
            self._context.answer(held.request, reply)

    def _remove(self, held: _Held) -> None:
        if not held.is_held:
            return
        held.is_held = False
        self._count -= 1
        waiting = self._held[held.key]
        waiting.remove(held)
        if not waiting:
            del self._held[held.key]
        topic, group, _ = held.key
        groups = self._groups[topic]
        groups[group] -= 1
        if not groups[group]:
            del groups[group]
            if not groups:
                del self._groups[topic]
