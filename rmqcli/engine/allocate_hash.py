"""Queues by consistent hashing: who comes or goes moves only its own share.

Source: AllocateMessageQueueConsistentHash, ConsistentHashRouter, VirtualNode.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING

from rmqcli.engine.allocate import is_member
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.model import MessageQueue


def md5_hash(key: str) -> int:
    """The first four bytes of the MD5 of the key, unsigned."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False)
    return int.from_bytes(digest.digest()[:4], "big")


def queue_key(queue: MessageQueue) -> str:
    """`MessageQueue#toString`, which is what is hashed."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )


class AllocateMessageQueueConsistentHash:
    """`virtual_node_count` points on the ring for each member.

    Raises UsageError for a negative count. `hash_of` must be every member's.
    """

    name = "CONSISTENT_HASH"

    def __init__(
        self, virtual_node_count: int = 10, hash_of: Callable[[str], int] = md5_hash
    ) -> None:
        if virtual_node_count < 0:
            raise UsageError(f"{virtual_node_count} virtual nodes are fewer than none")
        self.virtual_node_count = virtual_node_count
        self.hash_of = hash_of

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy."""
        del group
        if not is_member(current_cid, queues, cids):
            return []
        ring = self._ring(cids)
        if not ring:
            return []
        points = sorted(ring)
        mine = []
        for queue in queues:
            at = bisect_left(points, self.hash_of(queue_key(queue)))
            if ring[points[at % len(points)]] == current_cid:
                mine.append(queue)
        return mine

    def _ring(self, cids: Sequence[str]) -> dict[int, str]:
        """Point -> member. A member that is listed twice gets twice the points."""
        ring: dict[int, str] = {}
        for cid in cids:
            owned = sum(1 for owner in ring.values() if owner == cid)
            for number in range(self.virtual_node_count):
                ring[self.hash_of(f"{cid}-{number + owned}")] = cid
        return ring
