"""Queues by machine room: those of one's own room, or those near.

Source: AllocateMessageQueueByMachineRoom, AllocateMachineRoomNearby.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.engine.allocate import is_member
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.engine.allocate import AllocateMessageQueueStrategy
    from rmqcli.model import MessageQueue

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
        """See AllocateMessageQueueStrategy. Raises UsageError for who has no room."""
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
