"""What waits to be pulled, and the room for what is pulled.

`PullRoom` bounds the memory of all queues of the member together, in addition to
RocketMQ's limits for each queue.

Source: PullRequest; the room has no counterpart in Java.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.member import Member
    from rmqcli.engine.message import Pulled
    from rmqcli.engine.process_queue import ProcessQueue
    from rmqcli.model import MessageQueue


@dataclass(slots=True, eq=False, repr=False)
class PullRequest:
    """The one pull of a queue, from its assignment to its end."""

    message_queue: MessageQueue
    process_queue: ProcessQueue[Pulled]
    next_offset: int
    #: orderly: whether the offset was looked up under the lock
    is_locked_before: bool = False
    #: whether a program or an operator set the offset, and nothing came since
    is_chosen: bool = False
    #: (queue offset, store time in ms) of the last message that was pulled
    last: tuple[int, int] | None = None
    #: the one of these that is compared before the next pull: another message may be in
    #: its place by now
    doubted: tuple[int, int] | None = None
    #: what `last` was at the last comparison, and when that was
    noted: tuple[int, int] | None = None
    compared_ms: int = 0
    asked_ms: int = 0
    early_times: int = 0
    #: whether the broker has answered a pull of this queue with a result
    has_answered: bool = False
    #: consecutive invalid results
    refused_times: int = 0
    #: the expected size of the next pull, and the size reserved for the pull in flight
    expected_bytes: int = 0
    reserved_bytes: int = 0


class PullRoom:
    """Limits the bytes that a member's queues hold together, and orders waiting pulls.

    Sizes are those of bodies as they were sent. A pull in flight reserves the size of
    its queue's last pull, if more messages followed that. Messages beyond the limit are
    not kept, but pulled again once there is room. So the limit is exceeded only by one
    pull into an empty cache, which lets a message larger than the limit through. Pulls
    that wait for room get it in order of arrival, so that a queue of large messages is
    not starved.

    `pull` is called for a pull whose turn has come.
    """

    def __init__(
        self, member: Member, pull: Callable[[PullRequest], None], *, retry_ms: int
    ) -> None:
        self._member = member
        self._pull = pull
        self._retry_ms = retry_ms
        #: pulls that wait for room, in the order in which they are served
        self._line: dict[PullRequest, None] = {}
        self._is_serving = False
        self._limit_bytes = member.config.cached_bytes_max
        #: the expected size of all pulls in flight: the sum of their `reserved_bytes`
        self.reserved_bytes = 0
        #: an upper bound of the cached bytes, recounted only when it reaches the limit
        self._cached_bytes_max = 0

    def admits(self, request: PullRequest) -> bool:
        """Whether the pull may be sent now; else it waits until `pull` is called."""
        limit_bytes, expected_bytes = self._limit_bytes, request.expected_bytes
        if limit_bytes is None:
            return True
        # Every pull passes here, so the usual case makes no further call.
        in_use_bytes = self._cached_bytes_max + self.reserved_bytes
        is_usual = not self._line and in_use_bytes + expected_bytes < limit_bytes
        if not (is_usual or self._admits_at_the_limit(request)):
            return False
        request.reserved_bytes = expected_bytes
        self.reserved_bytes += expected_bytes
        return True

    def _admits_at_the_limit(self, request: PullRequest) -> bool:
        if (self._line and not self._is_serving) or not self._has_room(request):
            if not self._line:
                self._member.call_later(self._retry_ms, self._serve)
            self._line[request] = None
            return False
        return True

    def keeps(self, request: PullRequest, body_bytes: int, *, has_more: bool) -> bool:
        """Whether to keep pulled messages; `body_bytes` is at least their size.

        `has_more` says whether the queue has more messages after them.
        """
        limit = self._limit_bytes
        if limit is None:
            return True
        if self._cached_bytes_max + body_bytes > limit:
            self._count()
            if self._cached_bytes_max and self._cached_bytes_max + body_bytes > limit:
                request.expected_bytes = body_bytes
                return False
        request.expected_bytes = body_bytes if has_more else 0
        self._cached_bytes_max += body_bytes
        return True

    def _count(self) -> None:
        queues = self._member.process_queues.values()
        self._cached_bytes_max = sum([each.msg_size_bytes for each in queues])

    def _has_room(self, request: PullRequest) -> bool:
        limit = self._limit_bytes or 0
        wanted = max(request.expected_bytes, 1) + self.reserved_bytes
        if self._cached_bytes_max + wanted <= limit:
            return True
        if not self._is_serving:
            self._count()
        in_use = self._cached_bytes_max + self.reserved_bytes
        return not in_use or self._cached_bytes_max + wanted <= limit

    def _serve(self) -> None:
        """Give free room to the waiting pulls, in order."""
        now_ms = self._member.now_ms()
        self._count()
        self._is_serving = True
        try:
            while self._line:
                request = next(iter(self._line))
                is_live = not request.process_queue.dropped
                if is_live and not self._has_room(request):
                    break
                del self._line[request]
                self._pull(request)
        finally:
            self._is_serving = False
            for request in self._line:
                # Its loop is alive: it waits for room.
                request.process_queue.last_pull_ms = now_ms
            if self._line:
                self._member.call_later(self._retry_ms, self._serve)
