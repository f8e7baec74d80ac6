"""How far each queue was consumed: the next offset to consume. Pure.

The offset of a queue that a broker corrected, or that was reset, is frozen until the
queue is given up, so that consumption which ends late cannot undo it (as
ControllableOffset does since 5.2). Members of a clustering group commit to brokers,
those of a broadcasting group to a file of their own, in Java's format.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore, ControllableOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.tasks import All

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rmqcli.engine.interfaces import Network
    from rmqcli.model import MessageQueue
    from rmqcli.tasks import Task


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

    def read(self, queue: MessageQueue) -> Task[int | None]:
        """What is stored; None when nothing is. Does not change the table."""

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store what the table knows of them; failures are logged, not raised."""

    def persist_last(self, queues: Iterable[MessageQueue]) -> Task[None]:
        """As `persist`; returns once every broker has answered or failed."""


class RemoteBrokerOffsetStore:
    """Satisfies `OffsetStore`: the brokers keep them for the group.

    All are sent each time, changed or not, as Java does: a broker that crashed has
    forgotten 5 s of them.
    """

    def __init__(self, group: str, network: Network) -> None:
        self.table = OffsetTable()
        self._group = group
        self._network = network

    def read(self, queue: MessageQueue) -> Task[int | None]:
        """Ask the queue's broker."""
        return self._network.query_offset(self._group, queue)

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """One-way, as Java does: the next round commits the same offsets again."""
        for queue in queues:
            offset = self.table.get(queue)
            if offset is not None:
                self._network.update_offset_oneway(self._group, queue, offset)

    def persist_last(self, queues: Iterable[MessageQueue]) -> Task[None]:
        """With an answer for each; one goes first for each broker and topic.

        A broker that receives the first commit of a group and topic creates their map
        in the thread that handles the request: of several first commits at once all but
        one may be lost (ConsumerOffsetManager#commitOffset, seen with 4.6.0). Java
        risks that.
        """
        by_map: dict[tuple[str, str], list[tuple[MessageQueue, int]]] = {}
        for queue in queues:
            offset = self.table.get(queue)
            if offset is not None:
                key = (queue.broker_name, queue.topic)
                by_map.setdefault(key, []).append((queue, offset))
        yield All([self._commit_first_alone(each) for each in by_map.values()])

    def _commit_first_alone(
        self, commits: Sequence[tuple[MessageQueue, int]]
    ) -> Task[None]:
        group, network = self._group, self._network
        first, *others = [
            network.update_offset(group, queue, offset) for queue, offset in commits
        ]
        yield All([first])
        yield All(others)


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

    def read(self, queue: MessageQueue) -> Task[int | None]:
        """Read the file again; None for a queue that is not in it."""
        yield from ()  # a task like any other, although it never waits
        return self._file.read().get(queue)

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

    def persist_last(self, queues: Iterable[MessageQueue]) -> Task[None]:
        """As `persist`: a file is stored when it is written."""
        yield from ()  # a task like any other, although it never waits
        self.persist(queues)
