"""A store that keeps everything in memory: for tests and simulations.

It stores the same bytes as on disk. Nothing survives the process, and the store is
never full unless `capacity_bytes` is set.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.store.message_store import (
    Appended,
    QueueUnit,
    StoreFullError,
    is_in_log_only,
    lmq_place,
    message_count,
)
from rmqcli.wire.message.encode import MessageFields, encode_placed
from rmqcli.wire.message.layout import read_head, store_timestamp_ms
from rmqcli.wire.message.system_flag import TRANSACTION_ROLLBACK, transaction_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(slots=True)
class _Queue:
    """One consume queue: its entries from `min_offset` on."""

    min_offset: int = 0
    units: list[QueueUnit] = field(default_factory=list)


class MemoryStore:
    """Satisfies `MessageStore`."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.batch_topics: set[str] = set()
        self._records: dict[int, bytes] = {}  # commit log offset -> record, ascending
        self._end = 0
        self._min = 0
        self._queues: defaultdict[tuple[str, int], _Queue] = defaultdict(_Queue)
        self._index: dict[tuple[str, str], list[tuple[int, int]]] = {}

    def append(
        self, messages: Sequence[MessageFields], *, tags_codes: Sequence[int]
    ) -> list[Appended]:
        records: list[bytes] = []
        places: list[Appended] = []
        at = self._end
        next_offsets: dict[tuple[str, int], int] = {}
        for fields in messages:
            queue_offset = 0
            if not is_in_log_only(fields):
                key = (fields.topic, fields.queue_id)
                known = next_offsets.get(key)
                queue_offset = self._max_offset(key) if known is None else known
                next_offsets[key] = queue_offset + message_count(fields)
            record = encode_placed(
                fields, queue_offset=queue_offset, commit_log_offset=at
            )
            size_bytes = len(record)
            records.append(record)
            places.append(Appended(at, size_bytes, queue_offset))
            at += size_bytes
        if self.capacity_bytes is not None and at - self._min > self.capacity_bytes:
            raise StoreFullError(f"store is full at {self.capacity_bytes} bytes")
        for fields, record, place, code in zip(
            messages, records, places, tags_codes, strict=True
        ):
            self._records[place.commit_log_offset] = record
            if not is_in_log_only(fields):
                unit = QueueUnit(place.commit_log_offset, place.size_bytes, code)
                key = fields.topic, fields.queue_id
                self._queues[key].units += [unit] * message_count(fields)
                lmq = lmq_place(fields)
                if lmq is not None and lmq[1] == self._max_offset((lmq[0], 0)):
                    self._queues[lmq[0], 0].units.append(unit)
            if transaction_type(fields.sys_flag) != TRANSACTION_ROLLBACK:
                self._add_keys(fields, place.commit_log_offset)
        self._end = at
        return places

    def _add_keys(self, fields: MessageFields, commit_log_offset: int) -> None:
        properties = fields.property_table()
        topic, entry = fields.topic, (fields.store_timestamp_ms, commit_log_offset)
        keys, unique_key = properties.get("KEYS", ""), properties.get("UNIQ_KEY", "")
        for key in {*keys.split(" "), unique_key} - {""}:
            self._index.setdefault((topic, key), []).append(entry)

    def flush(self) -> None:
        """Nothing to do: no message is on a disk."""

    def queues(self) -> Iterable[tuple[str, int]]:
        return list(self._queues)

    def queue_bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            return None
        return queue.min_offset, queue.min_offset + len(queue.units)

    def units(
        self, topic: str, queue_id: int, start: int, count_max: int
    ) -> Sequence[QueueUnit]:
        queue = self._queues.get((topic, queue_id))
        if queue is None or start < queue.min_offset:
            return []
        first = start - queue.min_offset
        return queue.units[first : first + count_max]

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes | None:
        record = self._records.get(commit_log_offset)
        return record if record is not None and len(record) == size_bytes else None

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        records = []
        for unit in dict.fromkeys(units):
            record = self._records.get(unit.commit_log_offset)
            if record is None:
                break
            records.append(record)
        return b"".join(records)

    def message_at(self, commit_log_offset: int) -> bytes | None:
        return self._records.get(commit_log_offset)

    def log_bounds(self) -> tuple[int, int]:
        return self._min, self._end

    def store_time_ms(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        units = self.units(topic, queue_id, queue_offset, 1)
        record = self._records.get(units[0].commit_log_offset) if units else None
        if record is None:
            return None
        head = read_head(record, 0)
        return None if head is None else store_timestamp_ms(record, 0, head.sys_flag)

    def query_index(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        # They are in the order of the log, and not in that of their times if the clock
        # was set back.
        found = (
            offset
            for at_ms, offset in reversed(self._index.get((topic, key), []))
            if begin_ms <= at_ms <= end_ms and offset in self._records
        )
        return list(islice(found, count_max))

    def delete_topic(self, topic: str) -> None:
        for key in [key for key in self._queues if key[0] == topic]:
            del self._queues[key]

    def delete_queue(self, topic: str, queue_id: int) -> None:
        self._queues.pop((topic, queue_id), None)

    def trim(self, topic: str | None, before: int) -> None:
        if topic is not None:
            for (name, _), queue in self._queues.items():
                if name == topic and before > queue.min_offset:
                    bounded = min(before, queue.min_offset + len(queue.units))
                    del queue.units[: bounded - queue.min_offset]
                    queue.min_offset = bounded
            return
        for offset in [at for at in self._records if at < before]:
            del self._records[offset]
        self._min = max(self._min, min(before, self._end))
        for queue in self._queues.values():
            gone = sum(unit.commit_log_offset < self._min for unit in queue.units)
            del queue.units[:gone]
            queue.min_offset += gone

    def close(self) -> None:
        """Nothing to do: there are no files."""

    def _max_offset(self, key: tuple[str, int]) -> int:
        queue = self._queues.get(key)
        return 0 if queue is None else queue.min_offset + len(queue.units)
