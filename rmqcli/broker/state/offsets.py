"""How far each group has come in each queue, as one broker keeps it.

Any value is accepted, a smaller one too: the last write wins, as in RocketMQ. A reset
by the server (5.x) is stored and stays pending until the group's next pull of that
queue.

Source: `ConsumerOffsetManager` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ConsumerOffsets:
    """Committed and pulled offsets. `version` grows with each change to the former."""

    def __init__(self) -> None:
        self.version = 0
        self._committed: dict[tuple[str, str], dict[int, int]] = {}  # (topic, group)
        self._pulled: dict[tuple[str, str], dict[int, int]] = {}
        self._pending: dict[tuple[str, str], dict[int, int]] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset; any value is accepted."""
        self._committed.setdefault((topic, group), {})[queue_id] = offset
        self.version += 1

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset, a pending reset first; None: never committed."""
        key = (topic, group)
        pending = self._pending.get(key)
        if pending is not None and queue_id in pending:
            return pending[queue_id]
        offset = self._committed.get(key, {}).get(queue_id)
        return None if offset is None or offset < 0 else offset

    def commit_pull(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store where a pull ended; what is after the committed offset is in flight."""
        table = self._pulled.get((topic, group))
        if table is None:
            table = self._pulled[topic, group] = {}
        table[queue_id] = offset

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the last pull ended; without one, the committed offset."""
        offset = self._pulled.get((topic, group), {}).get(queue_id)
        return self.query(group, topic, queue_id) if offset is None else offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset that the answer to the group's next pull names (5.x)."""
        self._pending.setdefault((topic, group), {})[queue_id] = offset
        self.commit(group, topic, queue_id, offset)

    def has_pending_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits for the group's next pull."""
        return queue_id in self._pending.get((topic, group), {})

    def take_pending_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a pending reset, which then ends; None without one."""
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
        """(topic, group) -> queue id -> where the last pull ended; a copy."""
        return {key: dict(queues) for key, queues in self._pulled.items()}

    def load(self, table: Mapping[tuple[str, str], Mapping[int, int]]) -> None:
        """Take over committed offsets in the form of `table`, instead of all here."""
        self._committed = {key: dict(queues) for key, queues in table.items()}
        self.version += 1

    def delete_group(self, group: str) -> None:
        """Forget what a group committed and pulled."""
        self._delete(key for key in self._keys() if key[1] == group)

    def delete_topic(self, topic: str) -> None:
        """Forget what all groups committed and pulled in a topic."""
        self._delete(key for key in self._keys() if key[0] == topic)

    def _keys(self) -> list[tuple[str, str]]:
        return [*{**self._committed, **self._pulled, **self._pending}]

    def _delete(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in keys:
            for table in (self._committed, self._pulled, self._pending):
                table.pop(key, None)
        self.version += 1
