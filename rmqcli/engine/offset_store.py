"""The offsets of a member: for each queue, the next offset to consume. Pure.

After a broker corrects an offset, or after a reset, the queue's offset is frozen until
the queue is given up, so that a late end of consumption cannot undo the change (as
ControllableOffset does since 5.2). Members of a clustering group commit to brokers, and
each member of a broadcasting group to its own file, in Java's format.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore, ControllableOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rmqcli.errors import ConfigError, RmqError
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
        """The offset; None when it is unknown."""
        return self._offsets.get(queue)

    def increase(self, queue: MessageQueue, offset: int) -> None:
        """Advance the offset; an offset that is not higher changes nothing."""
        known = self._offsets.get(queue)
        if (known is None or offset > known) and queue not in self._frozen:
            self._offsets[queue] = offset

    def put(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, unless it is frozen."""
        if queue not in self._frozen:
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset, and ignore later changes until `remove`."""
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def remove(self, queue: MessageQueue) -> None:
        """Forget the queue."""
        self._offsets.pop(queue, None)
        self._frozen.discard(queue)

    def all(self) -> dict[MessageQueue, int]:
        """A copy of the table."""
        return dict(self._offsets)


class OffsetStore(Protocol):
    """The storage of a group's offsets."""

    table: OffsetTable

    def read(self, queue: MessageQueue) -> Task[int | None]:
        """Read the stored offset; None if there is none. Does not change the table."""

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets of these queues; failures are logged, not raised."""

    def persist_last(
        self, queues: Iterable[MessageQueue]
    ) -> Task[dict[MessageQueue, RmqError]]:
        """Store the offsets, and wait until every broker answered or failed.

        Returns the error of each queue whose offset was not stored.
        """

    def unconfirmed(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """The queues whose present offset may not be the one that is stored."""


class RemoteBrokerOffsetStore:
    """Implements `OffsetStore`: brokers keep the offsets of the group.

    All offsets are sent each time, changed or not, as in Java, because a broker that
    crashed may have lost the last 5 s of commits.
    """

    def __init__(self, group: str, network: Network) -> None:
        self.table = OffsetTable()
        self._group = group
        self._network = network
        #: the offset that the broker last confirmed, or answered to a question
        self._confirmed: dict[MessageQueue, int | None] = {}

    def read(self, queue: MessageQueue) -> Task[int | None]:
        """Ask the queue's broker."""
        stored = yield from self._network.query_offset(self._group, queue)
        self._confirmed[queue] = stored
        return stored

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Send one-way requests, as Java does; the next round commits again."""
        for queue in queues:
            offset = self.table.get(queue)
            if offset is not None:
                self._network.update_offset_oneway(self._group, queue, offset)

    def persist_last(
        self, queues: Iterable[MessageQueue]
    ) -> Task[dict[MessageQueue, RmqError]]:
        """Commit with answers. For each broker and topic one commit is sent first.

        A broker that receives the first commit of a group and topic creates their map
        in the thread that handles the request. Of several concurrent first commits all
        but one may be lost (ConsumerOffsetManager#commitOffset, seen with 4.6.0). Java
        does not prevent this.
        """
        by_map: dict[tuple[str, str], list[tuple[MessageQueue, int]]] = {}
        for queue in queues:
            offset = self.table.get(queue)
            if offset is not None:
                key = (queue.broker_name, queue.topic)
                by_map.setdefault(key, []).append((queue, offset))
        errors: dict[MessageQueue, RmqError] = {}
        yield All([self._commit_first_alone(each, errors) for each in by_map.values()])
        return errors

    def _commit_first_alone(
        self,
        commits: Sequence[tuple[MessageQueue, int]],
        errors: dict[MessageQueue, RmqError],
    ) -> Task[None]:
        group, network = self._group, self._network
        parts = [
            network.update_offset(group, queue, offset) for queue, offset in commits
        ]
        outcomes = yield All(parts[:1])
        outcomes += yield All(parts[1:])
        for (queue, offset), outcome in zip(commits, outcomes, strict=True):
            if isinstance(outcome, RmqError):
                errors[queue] = outcome
            else:
                self._confirmed[queue] = offset

    def unconfirmed(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """The queues whose offset no broker has confirmed; one without any is fine."""
        offsets = self.table.all()
        return [
            queue
            for queue in queues
            if queue in offsets and offsets[queue] != self._confirmed.get(queue)
        ]


class OffsetFile(Protocol):
    """A file of offsets; `local_offsets.LocalOffsetFile` is one."""

    def read(self) -> dict[MessageQueue, int]:
        """The offsets in the file; empty if there is none. Raises ConfigError."""

    def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Merge the offsets into the file. Raises OSError."""


class LocalFileOffsetStore:
    """Implements `OffsetStore` for broadcasting, with a file for each client."""

    def __init__(self, file: OffsetFile) -> None:
        self.table = OffsetTable()
        self._file = file
        #: the offsets that are in the file, as far as this member put them there
        self._stored: dict[MessageQueue, int] = {}

    def load(self) -> None:
        """Load the offsets of the file. Raises ConfigError when it cannot be read."""
        for queue, offset in self._file.read().items():
            self.table.put(queue, offset)
            self._stored[queue] = offset

    def read(self, queue: MessageQueue) -> Task[int | None]:
        """Read the file again; None for a queue that is not in it."""
        yield from ()  # a task like any other, although it never waits
        return self._file.read().get(queue)

    def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Merge the offsets of these queues into the file."""
        self._write(queues)

    def persist_last(
        self, queues: Iterable[MessageQueue]
    ) -> Task[dict[MessageQueue, RmqError]]:
        """Do the same as `persist`, because writing the file stores the offsets."""
        yield from ()  # a task like any other, although it never waits
        return self._write(queues)

    def _write(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, RmqError]:
        offsets = self.table.all()
        known = {queue: offsets[queue] for queue in queues if queue in offsets}
        if not known:
            return {}
        try:
            self._file.write(known)
        except (OSError, RmqError) as error:
            logger.warning("offsets are not stored: %s", error)
            failure = ConfigError(f"offsets cannot be stored: {error}")
            return dict.fromkeys(known, failure)
        self._stored |= known
        return {}

    def unconfirmed(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """The queues whose present offset is not in the file; one without is fine."""
        offsets = self.table.all()
        return [
            queue
            for queue in queues
            if queue in offsets and offsets[queue] != self._stored.get(queue)
        ]
