"""One queue of a topic: entries of 20 bytes that say where its messages are.

New entries wait in memory until `write_out`. They can be rebuilt from the log, so only
the log has to be fast and durable. This module does not know messages.

Source: `ConsumeQueue` in apache/rocketmq.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rmqcli.store.fixed_files import FixedFiles, QueueOfFiles
from rmqcli.store.message_store import UNIT_BYTES, QueueUnit

if TYPE_CHECKING:
    from collections.abc import Sequence


_UNIT: Final = struct.Struct(">qiq")
_FILLER_SIZE: Final = 0x7FFFFFFF
#: Filler in a file before a queue's first entry (ConsumeQueue.fillPreBlank).
_FILLER: Final = _UNIT.pack(0, _FILLER_SIZE, 0)

#: Written entries that stay in memory, for consumers that read the newest messages.
_TAIL_BYTES_MAX: Final = 6_400 * UNIT_BYTES
_TAIL_BYTES_KEPT: Final = 3_200 * UNIT_BYTES


class ConsumeQueue(QueueOfFiles):
    """Entries `min_offset` to `max_offset` (half-open); new ones are only in memory."""

    __slots__ = (
        "_last_written",
        "_tail",
        "_tail_start",
        "_written",
    )

    def __init__(self, files: FixedFiles) -> None:
        super().__init__(files)
        #: entries from `_tail_start` on; those from `_written` on are only here
        self._tail = bytearray()
        self._tail_start = 0
        self._written = 0
        #: the last entry in the files when they were last read
        self._last_written = b""
        self.find_end()

    def find_end(self) -> None:
        """Find the last entry in the files, for a queue with nothing in memory."""
        end = self._end_of_files() // UNIT_BYTES
        self.max_offset = self._written = self._tail_start = end
        self.min_offset = min(self.min_offset, self.max_offset)
        self._last_written = self._read_last()

    def _read_last(self) -> bytes:
        """Read the last entry that is known to be in the files; b"" if none is."""
        at = (self._written - 1) * UNIT_BYTES
        return self._files.read(at, UNIT_BYTES) if at >= 0 else b""

    def _end_of_files(self) -> int:
        end = self._files.start
        for base in reversed(self._files.bases):
            end = self._first_empty(base)
            if end > base:
                break
        return end

    def lower_bound(self, log_offset: int) -> int:
        """Return the first queue offset whose message is at `log_offset` or later.

        `log_offset` is a commit log offset.
        """
        low, high = self._files.start // UNIT_BYTES, self.max_offset
        if not self._files.bases:
            low = self._tail_start
        while low < high:
            middle = (low + high) // 2
            entry = self.entry(middle)
            if entry is None or _is_before(entry, log_offset):
                low = middle + 1
            else:
                high = middle
        return low

    def add(self, unit: QueueUnit, *, count: int, store_timestamp_ms: int) -> None:
        """Append an entry for each of the record's `count` messages.

        Only the entries of batch queues have the store time.
        """
        self._tail += _UNIT.pack(*unit) * count
        self.max_offset += count

    def start_at(self, queue_offset: int) -> None:
        """Let the queue begin at `queue_offset`, without any entries."""
        self._tail.clear()
        self.min_offset = self.max_offset = queue_offset
        self._tail_start = self._written = queue_offset

    def units(self, start: int, count_max: int) -> Sequence[QueueUnit]:
        """Return up to `count_max` entries from `start` on; none below the minimum."""
        end = min(start + count_max, self.max_offset)
        if not self.min_offset <= start < end:
            return []
        if start >= self._tail_start:
            first = (start - self._tail_start) * UNIT_BYTES
            data = bytes(self._tail[first : first + (end - start) * UNIT_BYTES])
        else:
            data = self._read(start, end)
        return list(map(QueueUnit._make, _UNIT.iter_unpack(data)))

    def last(self) -> QueueUnit | None:
        """Return the newest entry, or None when there is none that can be read."""
        if self.max_offset == 0:
            return None
        entry = self.entry(self.max_offset - 1)
        return None if entry is None or entry.size_bytes == _FILLER_SIZE else entry

    @property
    def pending_count(self) -> int:
        """The number of entries that are only in memory."""
        return self.max_offset - self._written

    def write_out(self) -> None:
        """Write the entries that are only in memory. Raises StoreFullError."""
        files = self._files
        while self._written < self.max_offset:
            at = self._written * UNIT_BYTES
            base = files.base_of(at)
            if not files.has(base) and at > base:
                files.write(base, _FILLER * ((at - base) // UNIT_BYTES))
            first = (self._written - self._tail_start) * UNIT_BYTES
            room = base + files.file_bytes - at
            data = self._tail[first : first + room]
            files.write(at, data)
            self._written += len(data) // UNIT_BYTES
        if len(self._tail) > _TAIL_BYTES_MAX:
            gone = len(self._tail) - _TAIL_BYTES_KEPT
            del self._tail[:gone]
            self._tail_start += gone // UNIT_BYTES

    def cut(self, max_offset: int) -> None:
        """Drop the entries from `max_offset` on, in memory and in the files."""
        if max_offset >= self.max_offset:
            return
        if max_offset < self._written:
            self._files.cut(max_offset * UNIT_BYTES)
            self._written = max_offset
        del self._tail[max(0, max_offset - self._tail_start) * UNIT_BYTES :]
        self._tail_start = min(self._tail_start, max_offset)
        self.max_offset = max_offset
        self.min_offset = min(self.min_offset, max_offset)

    def delete_before_min(self) -> None:
        """Delete files that end at or below the lower bound, except the last."""
        bytes_gone = self.min_offset * UNIT_BYTES
        for base in self._files.bases[:-1]:
            if base + self._files.file_bytes > bytes_gone:
                break
            self._files.delete(base)

    def refresh(self) -> None:
        """Read the list of files again, which another process writes.

        Entries stay in memory until they are in the files, too.
        """
        known = self._files.bases[-1:]
        self._files.refresh()
        if not self._files.bases:
            return
        last = self._last_written
        if last and self._read_last() not in (b"", last):
            # The topic was deleted and created again, with files of the same names.
            self._tail.clear()
            self.find_end()
            return
        if known == self._files.bases[-1:]:
            at = self._first_empty(known[0], self._written * UNIT_BYTES)
        else:
            at = self._end_of_files()
        written = at // UNIT_BYTES
        if written >= self._tail_start:
            del self._tail[: (written - self._tail_start) * UNIT_BYTES]
        else:  # the topic was deleted and created again
            self._tail.clear()
            self.max_offset = written
        self._tail_start = self._written = written
        self._last_written = self._read_last()
        self.max_offset = max(self.max_offset, written)

    def _read(self, start: int, end: int) -> bytes:
        parts = []
        at, stop = start * UNIT_BYTES, min(end, self._tail_start) * UNIT_BYTES
        while at < stop:
            part = self._files.read(at, stop - at)
            parts.append(part[: len(part) - len(part) % UNIT_BYTES])
            at += len(parts[-1])
            if not parts[-1]:
                return b"".join(parts)
        if end > self._tail_start:
            parts.append(bytes(self._tail[: (end - self._tail_start) * UNIT_BYTES]))
        return b"".join(parts)

    def entry(self, queue_offset: int) -> QueueUnit | None:
        """Return the entry of a queue offset, even below the lower bound, or None."""
        if queue_offset >= self._tail_start and queue_offset < self.max_offset:
            at = (queue_offset - self._tail_start) * UNIT_BYTES
            return QueueUnit._make(_UNIT.unpack_from(self._tail, at))
        data = self._files.read(queue_offset * UNIT_BYTES, UNIT_BYTES)
        if len(data) < UNIT_BYTES:
            return None
        return QueueUnit._make(_UNIT.unpack(data))

    def _first_empty(self, base: int, from_offset: int = 0) -> int:
        """Return the byte offset of the first entry of a file that has no size."""
        files = self._files
        low = max(base, from_offset)
        high = base + files.file_bytes
        while low < high:
            middle = low + (high - low) // UNIT_BYTES // 2 * UNIT_BYTES
            data = files.read(middle, UNIT_BYTES)
            if len(data) == UNIT_BYTES and _UNIT.unpack(data)[1] > 0:
                low = middle + UNIT_BYTES
            else:
                high = middle
        return low


def _is_before(entry: QueueUnit, log_offset: int) -> bool:
    # After a power cut there may be holes of zeros, all after the last sync.
    return entry.size_bytes > 0 and (
        entry.commit_log_offset < log_offset or entry.size_bytes == _FILLER_SIZE
    )
