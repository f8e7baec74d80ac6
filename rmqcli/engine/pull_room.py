"""How much the queues of one member may hold together, and which pull is next for it.

A pull that is under way reserves what its queue's last pull brought, if there was more
behind that. What it brings none the less beyond the limit is not kept: it is asked for
again once there is room. So the limit is passed only by one pull into an empty cache,
which is how a message larger than the limit gets through. Pulls that wait for room get
it in the order in which they came: a queue of large messages is not passed over.

Sizes are those of bodies as they were sent. Java has no such limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.engine.member import Member
    from rmqcli.engine.pull_message import PullRequest


class PullRoom:
    """The room of one member. `pull` is for a pull whose turn has come."""

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
        #: what pulls under way are expected to bring: the sum of their `reserved_bytes`
        self.reserved_bytes = 0
        #: at least what is cached: counted anew only when it reaches the limit
        self._cached_bytes_max = 0

    def admits(self, request: PullRequest) -> bool:
        """Whether the pull goes out now; else it waits, and `pull` is called then."""
        limit_bytes, expected_bytes = self._limit_bytes, request.expected_bytes
        if limit_bytes is None:
            return True
        # Every pull comes by here, so the usual case makes no further call.
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
                self._member.later(self._retry_ms, self._serve)
            self._line[request] = None
            return False
        return True

    def keeps(self, request: PullRequest, body_bytes: int, *, has_more: bool) -> bool:
        """Whether what came is to be kept; `body_bytes` is not less than that holds.

        `has_more`: whether the queue has messages behind it.
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
        """Let those that wait have the room there is, in their order."""
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
                request.process_queue.last_pull_ms = now_ms  # not forgotten: it waits
            if self._line:
                self._member.later(self._retry_ms, self._serve)
