"""Allocation strategies: which member of a group gets which queue.

Every member computes the allocation by itself, from the same two sorted lists. So each
strategy must give the same result as Java's: averagely, by circle, by configuration, by
machine room, by nearby machine rooms, or by consistent hashing, where a member that
joins or leaves moves only its own share.

Source: AllocateMessageQueueStrategy and the classes that implement it,
ConsistentHashRouter, VirtualNode.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from typing import TYPE_CHECKING, Protocol

from rmqcli.checked import check_callback, check_int, check_returned
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.model import MessageQueue

_PARTS = 2
_VIRTUAL_NODES_MAX = 1_000_000


class AllocateMessageQueueStrategy(Protocol):
    """A strategy. Two strategies of the same class and settings are equal."""

    @property
    def name(self) -> str:
        """The name that Java's `getName` returns."""

    def allocate(
        self,
        *,
        group: str,
        current_cid: str,
        queues: Sequence[MessageQueue],
        cids: Sequence[str],
    ) -> list[MessageQueue]:
        """Return the queues of `current_cid`.

        Both lists are sorted; `cids` are the client ids of the group. The result is
        empty when `current_cid` is not among them, because no broker knows it yet.
        Raises UsageError for empty lists and for an empty id, where Java raises, too.
        """


class _Strategy:
    """Compared and shown by class and settings, as settings of a consumer are.

    A subclass has `share`, which gives a member of the group its queues, or an
    `allocate` of its own.
    """

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
        if not self.is_member(current_cid, queues, cids):
            return []
        return self.share(current_cid, queues, cids)

    def is_member(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> bool:
        """Whether the id is in the list. Raises UsageError for empty arguments."""
        if not current_cid:
            raise UsageError("the client id is empty: no queues can be shared out")
        if not queues:
            raise UsageError("there are no queues to share out")
        if not cids:
            raise UsageError("there are no members to share queues out to")
        return current_cid in cids

    def share(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of a member."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({shown})"


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def sort_client_ids(cids: Iterable[str]) -> list[str]:
    """Sort client ids as Java compares strings: by UTF-16 code units."""
    found = list(cids)
    if all(map(str.isascii, found)):
        return sorted(found)
    return sorted(found, key=_utf16)


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort queues by topic, broker name and queue id, as Java does."""
    found = list(queues)
    if all(q.topic.isascii() and q.broker_name.isascii() for q in found):
        return sorted(found)
    return sorted(
        found, key=lambda q: (_utf16(q.topic), _utf16(q.broker_name), q.queue_id)
    )


class AllocateMessageQueueAveragely(_Strategy):
    """Gives each member adjacent queues; the first members may get one more."""

    name = "AVG"

    def share(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """See _Strategy."""
        index = list(cids).index(current_cid)
        size, more = divmod(len(queues), len(cids))
        start = index * size + min(index, more)
        return list(queues[start : start + size + (index < more)])


class AllocateMessageQueueAveragelyByCircle(_Strategy):
    """Gives the queues to the members one by one in turn."""

    name = "AVG_BY_CIRCLE"

    def share(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """See _Strategy."""
        return list(queues[list(cids).index(current_cid) :: len(cids)])


class AllocateMessageQueueByConfig(_Strategy):
    """Gives a member its configured queues, whatever the other members have."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(self, **_: object) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy."""
        return list(self.queues)


def md5_hash(key: str) -> int:
    """The first four bytes of the MD5 of the key, unsigned."""
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False)
    return int.from_bytes(digest.digest()[:4], "big")


def queue_key(queue: MessageQueue) -> str:
    """The text of `MessageQueue#toString`, which is hashed."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )


class AllocateMessageQueueConsistentHash(_Strategy):
    """Consistent hashing with `virtual_node_count` points on the ring for each member.

    All members must use the same `hash_of`. Raises ConfigError for a count below 0 or
    above 1,000,000.
    """

    name = "CONSISTENT_HASH"

    def __init__(
        self, virtual_node_count: int = 10, hash_of: Callable[[str], int] = md5_hash
    ) -> None:
        check_int(virtual_node_count, "virtual_node_count", 0, _VIRTUAL_NODES_MAX)
        check_callback(hash_of, "hash_of")
        self.virtual_node_count = virtual_node_count
        self.hash_of = hash_of

    def share(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """See _Strategy."""
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


class AllocateMessageQueueByMachineRoom(_Strategy):
    """Shares out only the queues of `rooms`, whose brokers are named `room@name`.

    `like_4_6` is for groups with clients before 4.8, which by mistake take their share
    from the list of all queues.
    """

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str], *, like_4_6: bool = False) -> None:
        self.rooms = frozenset(rooms)
        self.like_4_6 = like_4_6

    def is_member(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> bool:
        """See _Strategy. 4.6.0 does not check the arguments."""
        if self.like_4_6:
            return current_cid in cids
        return super().is_member(current_cid, queues, cids)

    def share(
        self, current_cid: str, queues: Sequence[MessageQueue], cids: Sequence[str]
    ) -> list[MessageQueue]:
        """See _Strategy."""
        ours = [queue for queue in queues if self._is_ours(queue)]
        index = list(cids).index(current_cid)
        size, more = divmod(len(ours), len(cids))
        share = queues if self.like_4_6 else ours
        mine = list(share[index * size : (index + 1) * size])
        if index < more:
            mine.append(ours[index + size * len(cids)])
        return mine

    def _is_ours(self, queue: MessageQueue) -> bool:
        # Java's split drops empty parts at the end.
        parts = queue.broker_name.rstrip("@").split("@")
        return len(parts) == _PARTS and parts[0] in self.rooms


class AllocateMachineRoomNearby(_Strategy):
    """Gives a room's queues to its members; queues of empty rooms go to all members."""

    def __init__(
        self,
        inner: AllocateMessageQueueStrategy,
        *,
        room_of_queue: Callable[[MessageQueue], str | None],
        room_of_client: Callable[[str], str | None],
    ) -> None:
        check_callback(room_of_queue, "room_of_queue")
        check_callback(room_of_client, "room_of_client")
        self.inner = inner
        self.room_of_queue = room_of_queue
        self.room_of_client = room_of_client

    @property
    def name(self) -> str:
        """The name, including the name of the inner strategy."""
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
        if not self.is_member(current_cid, queues, cids):
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
    check_returned(room, "the room of a queue or member")
    if not room:
        raise UsageError(f"{of} is in no machine room")
    return room
