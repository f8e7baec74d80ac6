"""Allocation strategies: which member of a group gets which queue.

Every member computes this by itself, so each must come to the same result from the same
two sorted lists as Java's members do: averagely, by circle, by configuration, by
machine room, nearby machine rooms, or by consistent hashing, where a member that comes
or goes moves only its own share.

Source: AllocateMessageQueueStrategy and the classes that implement it,
ConsistentHashRouter, VirtualNode.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.model import MessageQueue


class AllocateMessageQueueStrategy(Protocol):
    """A way to share queues out. Values: two of one kind and settings are equal."""

    @property
    def name(self) -> str:
        """As Java's `getName` gives it."""

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """The queues of `current_cid`; both lists sorted, `cids` those of the group.

        Empty for an id that is not in the list, which no broker has yet. Raises
        UsageError where Java's raises: for empty lists, or an empty id.
        """


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def sort_client_ids(cids: Iterable[str]) -> list[str]:
    """Sorted as Java compares strings: by UTF-16 units."""
    found = list(cids)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=_utf16)


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sorted by topic, broker name and queue id, as Java does."""
    found = list(queues)
    if all(q.topic.isascii() and q.broker_name.isascii() for q in found):
        return sorted(found)
    return sorted(
        found, key=lambda q: (_utf16(q.topic), _utf16(q.broker_name), q.queue_id)
    )


def is_member(
    current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
) -> bool:
    """Whether the id is in the list. Raises UsageError for empty arguments."""
    if not current_cid:
        raise UsageError("the client id is empty: no queues can be shared out")
    if not queues:
        raise UsageError("there are no queues to share out")
    if not cids:
        raise UsageError("there are no members to share queues out to")
    return current_cid in cids


class AllocateMessageQueueAveragely:
    """Neighbouring queues to each member; the first ones get one more."""

    name = "AVG"

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
        index = list(cids).index(current_cid)
        size, more = divmod(len(queues), len(cids))
        start = index * size + min(index, more)
        return list(queues[start : start + size + (index < more)])


class AllocateMessageQueueAveragelyByCircle:
    """One queue to each member in turn."""

    name = "AVG_BY_CIRCLE"

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
        return list(queues[list(cids).index(current_cid) :: len(cids)])


class AllocateMessageQueueByConfig:
    """The configured queues, independent of the other members."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy."""
        del group, current_cid, queues, cids
        return list(self.queues)


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


_PARTS = 2


class AllocateMessageQueueByMachineRoom:
    """Only the queues of `rooms`, whose brokers are named `room@name`.

    `like_4_6` shares out as clients before 4.8 do, which take their share from the list
    of all queues by mistake: for groups that still have such members.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str], *, like_4_6: bool = False) -> None:
        self.rooms = frozenset(rooms)
        self.like_4_6 = like_4_6

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
        if self.like_4_6:
            if current_cid not in cids:
                return []
        elif not is_member(current_cid, queues, cids):
            return []
        ours = [queue for queue in queues if self._is_ours(queue)]
        index = list(cids).index(current_cid)
        size, more = divmod(len(ours), len(cids))
        share = queues if self.like_4_6 else ours
        mine = list(share[index * size : (index + 1) * size])
        if index < more:
            mine.append(ours[index + size * len(cids)])
        return mine

    def _is_ours(self, queue: MessageQueue) -> bool:
        # As Java splits: empty parts at the end do not count.
        parts = queue.broker_name.rstrip("@").split("@")
        return len(parts) == _PARTS and parts[0] in self.rooms


class AllocateMachineRoomNearby:
    """The queues of a room to the members in it; those of rooms without any to all."""

    def __init__(
        self,
        inner: AllocateMessageQueueStrategy,
        *,
        room_of_queue: Callable[[MessageQueue], str | None],
        room_of_client: Callable[[str], str | None],
    ) -> None:
        self.inner = inner
        self.room_of_queue = room_of_queue
        self.room_of_client = room_of_client

    @property
    def name(self) -> str:
        """With that of the inner strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy. Raises UsageError without a room."""
        if not is_member(current_cid, queues, cids):
            return []
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _need(self.room_of_queue(queue), str(queue))
            queues_in.setdefault(room, []).append(queue)
        cids_in: dict[str, list[str]] = {}
        for cid in cids:
            room = _need(self.room_of_client(cid), cid)
            cids_in.setdefault(room, []).append(cid)
        own = _need(self.room_of_client(current_cid), current_cid)
        shares = []
        if own in queues_in:
            shares.append((queues_in.pop(own), cids_in[own]))
        shares += [
            (queues_in[room], list(cids))
            for room in sorted(queues_in)
            if room not in cids_in
        ]
        return [
            queue
            for share, members in shares
            for queue in self.inner.allocate(
                group=group, current_cid=current_cid, queues=share, cids=members
            )
        ]


def _need(room: str | None, of: str) -> str:
    if not room:
        raise UsageError(f"{of} is in no machine room")
    return room
