"""How far each queue was consumed: the next offset to consume. Pure.

A frozen cell keeps what a broker corrected until the queue is given up, so that work
which ends late cannot undo it (5.2). Clustering members commit to brokers, broadcasting
ones to a file of their own, in Java's format.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore, ControllableOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmqcli.errors import RmqError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.engine.interfaces import Done, Network
    from rmqcli.model import MessageQueue


logger = get_logger(__name__)


class OffsetTable:
    """Offsets by queue, in memory."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        """The offset; None when nothing is known of the queue."""
        return self._offsets.get(queue)

    def increase(self, queue: MessageQueue, offset: int) -> None:
        """Move forward; an offset at or behind the one there changes nothing."""
        known = self._offsets.get(queue)
        if (known is None or offset > known) and queue not in self._frozen:
            self._offsets[queue] = offset

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Move anywhere, unless frozen."""
        if queue not in self._frozen:
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set it for good: only `remove` ends that."""
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget the queue."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def all(self) -> dict[MessageQueue, int]:
        """A copy."""
        return dict(self._offsets)


class OffsetStore(Protocol):
    """Where the offsets of a group are kept."""

    table: OffsetTable

    def read(self, queue: MessageQueue, done: Done[int | None]) -> None:
        """What is stored; None when nothing is. Does not touch the table."""

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store what the table knows of them; failures are logged, not raised."""

    def persist_last(
        self, queues: Iterable[MessageQueue], done: Done[None] | None
    ) -> None:
        """As `persist`, at the end: `done` once it is known to be stored."""


class RemoteBrokerOffsetStore:
    """Satisfies `OffsetStore`: the brokers keep them for the group.

    All are sent each time, changed or not, as Java does: a broker that crashed has
    forgotten 5 s of them.
    """

    def __init__(self, group: str, network: Network) -> None:
        self.table = OffsetTable()
        self._group = group
        self._network = network

    def read(self, queue: MessageQueue, done: Done[int | None]) -> None:
        """Ask the queue's broker."""
        self._network.query_offset(self._group, queue, done)

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """One-way, as Java does: the next round says the same again."""
        for queue in queues:
            offset = self.table.get(queue)
            if offset is not None:
                self._network.update_offset(self._group, queue, offset)

    def persist_last(
        self, queues: Iterable[MessageQueue], done: Done[None] | None
    ) -> None:
        """With an answer for each; one goes first for each broker and topic.

        A broker that hears of a group and topic for the first time makes their map in
        whichever thread comes: of several commits at once all but one may be forgotten
        (ConsumerOffsetManager#commitOffset, seen with 4.6.0). Java risks that.
        """
        waves: dict[tuple[str, str], list[tuple[MessageQueue, int]]] = {}
        left = 0
        for queue in queues:
            offset = self.table.get(queue)
            if offset is not None:
                left += 1
                key = (queue.broker_name, queue.topic)
                waves.setdefault(key, []).append((queue, offset))
        if not left and done is not None:
            done(None)

        def send(wave: list[tuple[MessageQueue, int]], end: Done[None]) -> None:
            for queue, offset in wave:
                self._network.update_offset(self._group, queue, offset, end)

        def finish(_: object) -> None:
            nonlocal left
            left -= 1
            if not left and done is not None:
                done(None)

        def then(rest: list[tuple[MessageQueue, int]]) -> Done[None]:
            def first_ended(outcome: object) -> None:
                send(rest, finish)
                finish(outcome)

            return first_ended

        for first, *rest in waves.values():
            send([first], then(rest))


class OffsetFile(Protocol):
    """A file of offsets; `local_offsets.LocalOffsetFile` is one."""

    def read(self) -> dict[MessageQueue, int]:
        """What is in it; empty without a file. Raises ConfigError."""

    def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Merge into what is in it. Raises OSError."""


class LocalFileOffsetStore:
    """Satisfies `OffsetStore`: a file for each client, for broadcasting."""

    def __init__(self, file: OffsetFile) -> None:
        self.table = OffsetTable()
        self._file = file

    def load(self) -> None:
        """Take what the file says. Raises ConfigError when it cannot be read."""
        for queue, offset in self._file.read().items():
            self.table.put(queue, offset)

    def read(self, queue: MessageQueue, done: Done[int | None]) -> None:
        """Look into the file again; what it does not say is unknown."""
        try:
            found = self._file.read().get(queue)
        except RmqError as error:
            done(error)
        else:
            done(found)

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Merge them into the file."""
        offsets = self.table.all()
        known = {queue: offsets[queue] for queue in queues if queue in offsets}
        if not known:
            return
        try:
            self._file.write(known)
        except (OSError, RmqError) as error:
            logger.warning("offsets are not stored: %s", error)

    def persist_last(
        self, queues: Iterable[MessageQueue], done: Done[None] | None
    ) -> None:
        """As `persist`: a file is stored when it is written."""
        self.persist(queues)
        if done is not None:
            done(None)
