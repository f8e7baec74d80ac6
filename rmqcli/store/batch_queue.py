"""One queue whose entries have many messages each: a topic with queue.type=BatchCQ.

An entry of 46 bytes is for one record of the log, which may be an inner batch: its
messages have consecutive offsets. Readers see an entry for each message, as in an
ordinary queue; those of one batch are equal.

All entries are in memory. An ordinary queue finds an entry by its number, but here only
a search finds the one that has an offset.

Source: `BatchConsumeQueue` in apache/rocketmq.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.store.fixed_files import FixedFiles, QueueOfFiles
from rmqcli.store.message_store import QueueUnit

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Log offset, size, tags code, store time, first offset, messages, and for compaction
#: an offset and 4 bytes that are not used.
_UNIT: Final = struct.Struct(">qiqqqhii")
BATCH_UNIT_BYTES: Final = _UNIT.size  # CQ_STORE_UNIT_SIZE
MESSAGES_MAX: Final = (1 << 15) - 1
_NO_COMPACTION: Final = -1  # INVALID_POS
_READ_BYTES: Final = 4_096 * BATCH_UNIT_BYTES


class _Entry(NamedTuple):
    commit_log_offset: int
    size_bytes: int
    tags_code: int
    store_timestamp_ms: int
    first: int
    messages: int
    compaction: int
    unused: int

    @property
    def end(self) -> int:
        return self.first + self.messages


class BatchConsumeQueue(QueueOfFiles):
    """Offsets `min_offset` to `max_offset` (half-open), as those of `ConsumeQueue`."""

    def __init__(self, files: FixedFiles) -> None:
        super().__init__(files)
        self._data = bytearray()  # all entries
        self._start = 0  # where the first of them is in the files
        self._written = 0  # the number that are in the files
        self._load()
        if self._written:
            self.min_offset = self._entry(0).first

    @property
    def pending_count(self) -> int:
        """The number of entries that are only in memory."""
        return self._count() - self._written

    def lower_bound(self, log_offset: int) -> int:
        """Return the first queue offset whose message is at `log_offset` or later."""
        index = bisect_left(
            range(self._count()),
            log_offset,
            key=lambda each: self._entry(each).commit_log_offset,
        )
        return self._entry(index).first if index < self._count() else self.max_offset

    def add(self, unit: QueueUnit, *, count: int, store_timestamp_ms: int) -> None:
        """Append an entry for a record of `count` messages."""
        self._data += _UNIT.pack(
            *unit, store_timestamp_ms, self.max_offset, count, _NO_COMPACTION, 0
        )
        self.max_offset += count

    def start_at(self, queue_offset: int) -> None:
        """Let the queue begin at `queue_offset`, without any entries."""
        if self._written:
            self._files.cut(self._start)
        self._data.clear()
        self._written = 0
        self.min_offset = self.max_offset = queue_offset

    def units(self, start: int, count_max: int) -> Sequence[QueueUnit]:
        """Return an entry for each of up to `count_max` messages from `start` on."""
        if not self.min_offset <= start < self.max_offset:
            return []
        found: list[QueueUnit] = []
        for index in range(self._index_of(start), self._count()):
            entry = self._entry(index)
            wanted = min(entry.end - start, count_max - len(found))
            found += [QueueUnit._make(entry[:3])] * wanted
            start = entry.end
            if len(found) >= count_max:
                break
        return found

    def entry(self, queue_offset: int) -> QueueUnit | None:
        """Return the entry of a queue offset, even below the lower bound, or None."""
        index = self._index_of(queue_offset)
        if index < 0 or queue_offset >= self.max_offset:
            return None
        return QueueUnit._make(self._entry(index)[:3])

    def last(self) -> QueueUnit | None:
        """Return the newest entry, or None when there is none."""
        return self.entry(self.max_offset - 1)

    def write_out(self) -> None:
        """Write the entries that are only in memory. Raises StoreFullError."""
        files = self._files
        while self._written < self._count():
            first = self._written * BATCH_UNIT_BYTES
            at = self._start + first
            room = files.base_of(at) + files.file_bytes - at
            data = self._data[first : first + room]
            files.write(at, data)
            self._written += len(data) // BATCH_UNIT_BYTES

    def cut(self, max_offset: int) -> None:
        """Drop the entries from `max_offset` on, in memory and in the files."""
        if max_offset >= self.max_offset:
            return
        kept = bisect_left(
            range(self._count()), max_offset, key=lambda each: self._entry(each).first
        )
        if kept < self._written:
            self._files.cut(self._start + kept * BATCH_UNIT_BYTES)
            self._written = kept
        del self._data[kept * BATCH_UNIT_BYTES :]
        self.max_offset = self._entry(kept - 1).end if kept else max_offset
        self.min_offset = min(self.min_offset, self.max_offset)

    def delete_before_min(self) -> None:
        """Delete files that end at or below the lower bound, except the last."""
        for base in self._files.bases[:-1]:
            gone = (base + self._files.file_bytes - self._start) // BATCH_UNIT_BYTES
            if self._entry(gone - 1).end > self.min_offset:
                break
            self._files.delete(base)
            del self._data[: gone * BATCH_UNIT_BYTES]
            self._written -= gone
            self._start = base + self._files.file_bytes

    def refresh(self) -> None:
        """Read the files again, which another process writes.

        Entries stay in memory until they are in the files, too.
        """
        self._files.refresh()
        if self._files.bases:
            self._load()

    def _load(self) -> None:
        """Read the entries in the files that were not read yet."""
        later = bytearray()
        if not self._is_continued():
            # Old files were deleted, or the topic was created again.
            later = self._data[self._written * BATCH_UNIT_BYTES :]
            self._data.clear()
            self._start, self._written = self._files.start, 0
        found = self._read(self._start + self._written * BATCH_UNIT_BYTES)
        at = self._written * BATCH_UNIT_BYTES
        self._data[at : at + len(found)] = found
        self._written += len(found) // BATCH_UNIT_BYTES
        if self._data:
            self.max_offset = self._entry(self._count() - 1).end
        for entry in map(_Entry._make, _UNIT.iter_unpack(later)):
            if entry.first == self.max_offset:
                self._data += _UNIT.pack(*entry)
                self.max_offset = entry.end
        self.min_offset = min(self.min_offset, self.max_offset)

    def _is_continued(self) -> bool:
        if self._files.start != self._start:
            return False
        if not self._written:
            return True
        last = (self._written - 1) * BATCH_UNIT_BYTES
        known = self._data[last : last + BATCH_UNIT_BYTES]
        return self._files.read(self._start + last, BATCH_UNIT_BYTES) == known

    def _read(self, at: int) -> bytearray:
        """Return the entries of the files from byte `at` to the first invalid one."""
        found = bytearray()
        end = self._entry(self._written - 1).end if self._written else None
        while data := self._files.read(at, _READ_BYTES):
            for start in range(
                0, len(data) - len(data) % BATCH_UNIT_BYTES, BATCH_UNIT_BYTES
            ):
                entry = _Entry._make(_UNIT.unpack_from(data, start))
                is_next = entry.first == end or (end is None and entry.first >= 0)
                if entry.size_bytes <= 0 or entry.messages <= 0 or not is_next:
                    return found
                found += data[start : start + BATCH_UNIT_BYTES]
                end = entry.end
            at += len(data)
        return found

    def _count(self) -> int:
        return len(self._data) // BATCH_UNIT_BYTES

    def _entry(self, index: int) -> _Entry:
        return _Entry._make(_UNIT.unpack_from(self._data, index * BATCH_UNIT_BYTES))

    def _index_of(self, queue_offset: int) -> int:
        """Return which entry has the offset; -1 if it is below all."""
        return (
            bisect_right(
                range(self._count()),
                queue_offset,
                key=lambda each: self._entry(each).first,
            )
            - 1
        )
