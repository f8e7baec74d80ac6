"""Queue locks: which client of a group may consume a queue in order.

Imitated: a lock expires 60 s after it was taken or renewed, is kept when its owner's
connection is closed, and is lost in a restart. Only its owner can renew it; any client
can take an expired lock.
Not imitated: strict mode, where a quorum of replicas decides.

Source: `RebalanceLockManager` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.clock import Now
    from rmqcli.model import MessageQueue

LOCK_MAX_LIVE_MS: Final = 60_000  # REBALANCE_LOCK_MAX_LIVE_TIME
#: The most locks of all groups. Beyond that, the broker grants no new ones.
LOCKS_MAX: Final = 200_000


class _Lock(NamedTuple):
    client_id: str
    taken_ms: int

    def is_expired(self, now: Now) -> bool:
        return now.monotonic_ms - self.taken_ms > LOCK_MAX_LIVE_MS


class LockTable:
    """Locks by group and queue."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue], now: Now
    ) -> list[MessageQueue]:
        """Take or renew locks; return the queues whose lock the client has now."""
        given = []
        for queue in dict.fromkeys(queues):
            known = self._groups.get(group, {}).get(queue)
            if known is None:
                if not self._has_room(now):
                    continue
                self._count += 1
            elif known.client_id != client_id and not known.is_expired(now):
                continue
            taken = _Lock(client_id, now.monotonic_ms)
            self._groups.setdefault(group, {})[queue] = taken
            given.append(queue)
        return given

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Release the client's locks of these queues; those of other clients stay."""
        table = self._groups.get(group, {})
        for queue in queues:
            known = table.get(queue)
            if known is not None and known.client_id == client_id:
                del table[queue]
                self._count -= 1
        if not table:
            self._groups.pop(group, None)

    def is_held(self, group: str, now: Now) -> bool:
        """Whether any queue of the group is locked.

        Source: RebalanceLockManager.isLockAllExpired.
        """
        return any(
            not lock.is_expired(now) for lock in self._groups.get(group, {}).values()
        )

    def _has_room(self, now: Now) -> bool:
        if self._count < LOCKS_MAX:
            return True
        for group, table in list(self._groups.items()):
            kept = {queue: k for queue, k in table.items() if not k.is_expired(now)}
            self._count -= len(table) - len(kept)
            if kept:
                self._groups[group] = kept
            else:
                del self._groups[group]
        return self._count < LOCKS_MAX
