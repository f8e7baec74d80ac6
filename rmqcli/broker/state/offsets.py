"""The offsets of all groups in the queues of one broker.

A commit may have any value, also a smaller one than before: the last write wins, as in
RocketMQ. A reset at the broker (5.x) is stored, and stays pending until the group's
next pull of that queue.

Source: `ConsumerOffsetManager` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ConsumerOffsets:
    """Committed offsets and pull offsets.

    `version` grows with each change of the committed offsets.
    """

    def __init__(self) -> None:
        self.version = 0
        self._committed: dict[tuple[str, str], dict[int, int]] = {}  # (topic, group)
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._pending: dict[tuple[str, str], dict[int, int]] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset; any value is accepted."""
        self._committed.setdefault((topic, group), {})[queue_id] = offset
        self.version += 1

    def clone(self, topic: str, source: str, target: str) -> None:
        """Replace the offsets of a group in a topic by those of another, if any."""
        offsets = self._committed.get((topic, source))
        if offsets is not None:
            self._committed[topic, target] = dict(offsets)
            self.version += 1

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a pending reset, or else the committed offset.

        None if none was committed; a negative offset counts as none.
        """
        key = (topic, group)
        pending = self._pending.get(key)
        if pending is not None and queue_id in pending:
            return pending[queue_id]
        offset = self._committed.get(key, {}).get(queue_id)
        return None if offset is None or offset < 0 else offset

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the pull offset: the next offset after a pull.

        Messages between the committed offset and the pull offset are in flight.
        """
        table = self._pulled.get((topic, group))
        if table is None:
            table = self._pulled[topic, group] = {}
        table[queue_id] = offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the pull offset; without one, the same as `query`."""
        offset = self._pulled.get((topic, group), {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset that the group receives with its next pull (5.x)."""
        self._pending.setdefault((topic, group), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def has_pending_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending until the group's next pull."""
        return queue_id in self._pending.get((topic, group), {})

    def take_pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of a pending reset, and end it; None without one."""
        if not self._pending:
            return None
        pending = self._pending.get((topic, group))
        if pending is None:
            return None
        offset = pending.pop(queue_id, None)
        if not pending:
            del self._pending[topic, group]
        return offset

    def topics_of(self, group: str) -> set[str]:
        """Topics in which the group has committed."""
        return {topic for topic, name in self._committed if name == group}

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have committed in the topic."""
        return {group for name, group in self._committed if name == topic}

    def table(self) -> dict[tuple[str, str], dict[int, int]]:
        """(topic, group) -> queue id -> committed offset; a copy."""
        return {key: dict(queues) for key, queues in self._committed.items()}

    def pull_table(self) -> dict[tuple[str, str], dict[int, int]]:
        """(topic, group) -> queue id -> pull offset; a copy."""
        return {key: dict(queues) for key, queues in self._pulled.items()}

    def load(self, table: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        """Replace all committed offsets with these, in the form of `table`."""
        self._committed = {key: dict(queues) for key, queues in table.items()}
        self.version += 1

    def delete_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self._delete(key for key in self._keys() if key[1] == group)

    def delete_topic(self, topic: str) -> None:
        """Forget the offsets of all groups in a topic."""
        self._delete(key for key in self._keys() if key[0] == topic)

    def _keys(self) -> list[tuple[str, str]]:
        return [*{**self._committed, **self._pulled, **self._pending}]

    def _delete(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            for table in (self._committed, self._pulled, self._pending):
                table.pop(key, None)
        self.version += 1
