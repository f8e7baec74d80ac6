"""The commit log, which all messages are appended to.

Decides where a record is put and which bytes can be read; it knows only the size and
magic of a record.

Source: `CommitLog` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.wire.message.layout import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
    read_head,
    store_timestamp_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.store.fixed_files import FixedFiles
    from rmqcli.store.message_store import QueueUnit

#: The most bytes of neighbouring records read with one call.
_RUN_BYTES_MAX: Final = 4 * 1024 * 1024


class CommitLog:
    """Bytes `start` to `end` of the log, in files with a blank end each.

    Recovery finds `end` and `write` moves it; a reader of a folder sets it.
    """

    def __init__(self, files: FixedFiles) -> None:
        self.files = files
        self.end = files.start

    @property
    def start(self) -> int:
        """Where the first file begins."""
        return self.files.start

    def room(self, offset: int) -> int:
        """Bytes from `offset` to the end of its file."""
        return self.files.file_bytes - offset % self.files.file_bytes

    def blank(self, offset: int) -> bytes:
        """The mark which says that the rest of the file is empty."""
        return SIZE_AND_MAGIC.pack(self.room(offset), MAGIC_BLANK)

    def write(self, parts: Sequence[tuple[int, bytes]], end: int) -> None:
        """Write whole records at their offsets, from `self.end` to `end`.

        Raises StoreFullError, and then the log is as before.
        """
        try:
            for offset, data in parts:
                self.files.write(offset, data)
        except BaseException:
            for offset, data in parts:
                self.files.clear(offset, offset + len(data))
            raise
        self.end = end

    def read(self, offset: int, size_bytes: int) -> bytes | None:
        """Bytes of one file, of one record or a run; None when they are not all there.

        None too for more than a record can have, which only a damaged entry asks for.
        """
        if offset < self.start or offset + size_bytes > self.end:
            return None
        if not 0 < size_bytes <= RECORD_BYTES_MAX:
            return None
        data = self.files.read(offset, size_bytes)
        return data if len(data) == size_bytes else None

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        """The records of `units`; ends before the first that is not there."""
        if not units:
            return b""
        first, last = units[0], units[-1]
        start, end = first.commit_log_offset, last.commit_log_offset + last.size_bytes
        total = sum([unit[1] for unit in units])
        if end - start == total <= _RUN_BYTES_MAX and total <= self.room(start):
            data = self.read(start, total)
            if data is not None:
                return data
        return b"".join(self._runs(units))

    def _runs(self, units: Sequence[QueueUnit]) -> list[bytes]:
        """Records read a run of neighbours at a time."""
        parts: list[bytes] = []
        run_start = run_bytes = 0
        for offset, size, _ in units:
            if offset == run_start + run_bytes and run_bytes + size <= _RUN_BYTES_MAX:
                run_bytes += size
                continue
            if run_bytes and not self._add_run(parts, run_start, run_bytes):
                return parts
            run_start, run_bytes = offset, size
        self._add_run(parts, run_start, run_bytes)
        return parts

    def _add_run(self, parts: list[bytes], start: int, size_bytes: int) -> bool:
        data = self.read(start, size_bytes)
        while data is None:
            # Not all of them: the ones that are there, by the sizes they state.
            record = self.message_at(start)
            if record is None or len(record) > size_bytes:
                return False
            parts.append(record)
            start += len(record)
            size_bytes -= len(record)
            if not size_bytes:
                return True
            data = self.read(start, size_bytes)
        parts.append(data)
        return True

    def message_at(self, offset: int) -> bytes | None:
        """The record that begins there; None if none does."""
        head = self.read(offset, SIZE_AND_MAGIC.size)
        if head is None:
            return None
        size, magic = SIZE_AND_MAGIC.unpack(head)
        if magic not in (MAGIC_V1, MAGIC_V2):
            return None
        if not RECORD_BYTES_MIN <= size <= self.room(offset):
            return None
        return self.read(offset, size)

    def store_time_ms(self, offset: int) -> int | None:
        """When the record that begins there was stored; None when none does."""
        data = self.read(offset, min(RECORD_BYTES_MIN, self.end - offset))
        head = read_head(data or b"", 0)
        if data is None or head is None or len(data) < RECORD_BYTES_MIN:
            return None
        return store_timestamp_ms(data, 0, head.sys_flag)
