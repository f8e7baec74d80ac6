"""The commit log, to which all messages are appended.

It decides where a record fits and which bytes can be read. Of a record it knows only
the size, the magic and the store time.

Source: `CommitLog` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.wire.message import layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.store.fixed_files import FixedFiles
    from rmqcli.store.message_store import QueueUnit

#: Most bytes of adjacent records that are read with one call.
_RUN_BYTES_MAX: Final = 4 * 1024 * 1024


class CommitLog:
    """Bytes `start` to `end` (half-open) of the log, in files that end with a blank.

    Recovery finds `end` and `write` moves it; a reader of a folder sets it.
    """

    def __init__(self, files: FixedFiles) -> None:
        self.files = files
        self.end = files.start

    @property
    def start(self) -> int:
        """The offset at which the first file begins."""
        return self.files.start

    def room(self, offset: int) -> int:
        """Return the number of bytes from `offset` to the end of its file."""
        return self.files.file_bytes - offset % self.files.file_bytes

    def blank(self, offset: int) -> bytes:
        """Return the mark at `offset` that says that the rest of the file is empty."""
        return layout.SIZE_AND_MAGIC.pack(self.room(offset), layout.MAGIC_BLANK)

    def write(self, parts: Sequence[tuple[int, bytes]], end: int) -> None:
        """Write whole records at their offsets, from `self.end` to `end`.

        Raises StoreFullError, and then the log is unchanged.
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
        """Return bytes of one file, or None if they are not all in the log.

        Also returns None for more bytes than a record can have, which only a damaged
        entry requests.
        """
        if offset < self.start or offset + size_bytes > self.end:
            return None
        if not 0 < size_bytes <= layout.RECORD_BYTES_MAX:
            return None
        data = self.files.read(offset, size_bytes)
        return data if len(data) == size_bytes else None

    def read_units(self, units: Sequence[QueueUnit]) -> bytes:
        """Return the records of `units`, up to the first that is missing.

        The record of a batch is returned once.
        """
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
        """Read the records, each run of adjacent ones with one call."""
        parts: list[bytes] = []
        run_start = run_bytes = 0
        last = -1
        for offset, size, _ in units:
            if offset == last:
                continue  # a message of the same batch
            last = offset
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
            # Some are missing: read those that exist, by the sizes that they state.
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
        """Return the record that begins at `offset`, or None if none does."""
        head = self.read(offset, layout.SIZE_AND_MAGIC.size)
        if head is None:
            return None
        size, magic = layout.SIZE_AND_MAGIC.unpack(head)
        if magic not in (layout.MAGIC_V1, layout.MAGIC_V2):
            return None
        if not layout.RECORD_BYTES_MIN <= size <= self.room(offset):
            return None
        return self.read(offset, size)

    def store_time_ms(self, offset: int) -> int | None:
        """Return a record's store time, or None if no record begins at `offset`."""
        data = self.read(offset, min(layout.RECORD_BYTES_MIN, self.end - offset))
        head = layout.read_head(data or b"", 0)
        if data is None or head is None or len(data) < layout.RECORD_BYTES_MIN:
            return None
        return layout.store_timestamp_ms(data, 0, head.sys_flag)
