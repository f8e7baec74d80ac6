"""One index file: which messages may have a key, by the key's hash.

    header 40 | slots 4 x n: newest item of the slot | items 20 x 4 n

An item is hash i32, commit log offset i64, seconds since the file's first message i32,
the slot's item before i32. Item 0 is never used. New items wait in memory until
`write_out`, which writes them, then the slots, then the header that counts them.

Source: `IndexFile` and `IndexHeader` in apache/rocketmq.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmqcli.store.message_store import StoreError, StoreFullError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.store.fixed_files import OpenFiles

_HEADER: Final = struct.Struct(">qqqqii")
_ITEM: Final = struct.Struct(">iqii")
_SLOT_BYTES: Final = 4
_PAGE_SLOTS: Final = 1024
_INT_MAX: Final = 0x7FFFFFFF
#: Bytes of the file for one slot: itself and its share of items.
_BYTES_PER_SLOT: Final = _SLOT_BYTES + 4 * _ITEM.size
_CHAIN_MAX: Final = 100_000
#: Four times RocketMQ's; all of them are in memory while a file grows.
_SLOTS_MAX: Final = 20_000_000


def file_bytes(slots: int) -> int:
    """Length of a file with so many slots."""
    return _HEADER.size + slots * _BYTES_PER_SLOT


@dataclass(slots=True)
class IndexHeader:
    """The numbers at a file's beginning; times in epoch ms, offsets of the log."""

    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1  # items, and the one that is never used


class IndexFile:
    """A file that exists. Raises StoreError when it is no index file."""

    def __init__(self, path: str, opened: OpenFiles) -> None:
        self.path = path
        self._opened = opened
        status = os.lstat(path)
        length = status.st_size if stat.S_ISREG(status.st_mode) else 0
        self.slots_count, rest = divmod(length - _HEADER.size, _BYTES_PER_SLOT)
        if rest or not 1 <= self.slots_count <= _SLOTS_MAX:
            raise StoreError(f"{path} has {length} bytes: not an index file")
        self.items_max = 4 * self.slots_count
        self.header = IndexHeader()
        self.read_header()

    def read_header(self) -> None:
        """Look again at what another process may have written."""
        self.header = IndexHeader(*_HEADER.unpack(self._read(0, _HEADER.size)))
        self.header.count = max(1, min(self.header.count, self.items_max))

    def find(
        self, key_hash: int, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Commit log offsets of items with that hash and second, newest first."""
        header = self.header
        found: list[int] = []
        item = self._slot(key_hash % self.slots_count)
        for _ in range(_CHAIN_MAX):
            if not 0 < item < header.count or len(found) >= count_max:
                break
            of_item, offset, seconds, before = self._item(item)
            first_ms = header.begin_ms + seconds * 1000
            if (
                of_item == key_hash
                and begin_ms < first_ms + 1000
                and first_ms <= end_ms
            ):
                found.append(offset)
            if before >= item:  # a chain goes back, or it is damaged
                break
            item = before
        return found

    def _slot(self, slot: int) -> int:
        data = self._read(_HEADER.size + slot * _SLOT_BYTES, _SLOT_BYTES)
        return int.from_bytes(data, "big", signed=True)

    def _item(self, item: int) -> tuple[int, int, int, int]:
        data = self._read(self._item_at(item), _ITEM.size)
        of_item, offset, seconds, before = _ITEM.unpack(data)
        return of_item, offset, seconds, before

    def _item_at(self, item: int) -> int:
        return _HEADER.size + self.slots_count * _SLOT_BYTES + item * _ITEM.size

    def _read(self, at: int, size_bytes: int) -> bytes:
        try:
            data = os.pread(self._opened.fd(self.path), size_bytes, at)
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read: {error}") from error
        if len(data) < size_bytes:
            raise StoreError(f"{self.path} ends at {at + len(data)}")
        return data


class GrowingIndexFile(IndexFile):
    """The file that items are added to; its slots are in memory."""

    def __init__(self, path: str, opened: OpenFiles) -> None:
        super().__init__(path, opened)
        self._slots = _ints(self._read(_HEADER.size, self.slots_count * _SLOT_BYTES))
        self._written = self.header.count
        self._new = bytearray()
        self._dirty_pages: set[int] = set()

    @property
    def room(self) -> int:
        """How many items can still be added."""
        return self.items_max - self.header.count

    def add(self, items: Sequence[tuple[int, int, int]]) -> None:
        """Add (hash, commit log offset, store time in ms); no more than `room`."""
        if not items:
            return
        header, slots, count = self.header, self._slots, self.header.count
        if count == 1:
            _, header.begin_offset, header.begin_ms = items[0]
        begin_ms, slots_count, used = header.begin_ms, self.slots_count, 0
        pack, packed, pages = _ITEM.pack, [], self._dirty_pages
        for key_hash, offset, time_ms in items:
            slot = key_hash % slots_count
            before = slots[slot]
            if not 0 < before < count:
                before = 0
                used += 1
            seconds = (time_ms - begin_ms) // 1000
            if not 0 <= seconds <= _INT_MAX:
                seconds = 0 if seconds < 0 else _INT_MAX
            packed.append(pack(key_hash, offset, seconds, before))
            slots[slot] = count
            pages.add(slot // _PAGE_SLOTS)
            count += 1
        self._new += b"".join(packed)
        _, header.end_offset, header.end_ms = items[-1]
        header.count = count
        header.used_slots += used

    def write_out(self) -> None:
        """Write what is only in memory, and make it durable. Raises StoreFullError."""
        if not self._new:
            return
        try:
            fd = self._opened.fd(self.path)
            _write(fd, self._new, self._item_at(self._written))
            for page in sorted(self._dirty_pages):
                first = page * _PAGE_SLOTS
                slots = self._slots[first : first + _PAGE_SLOTS]
                if sys.byteorder == "little":
                    slots.byteswap()
                _write(fd, slots.tobytes(), _HEADER.size + first * _SLOT_BYTES)
            os.fdatasync(fd)
            header = self.header
            _write(
                fd,
                _HEADER.pack(
                    header.begin_ms,
                    header.end_ms,
                    header.begin_offset,
                    header.end_offset,
                    header.used_slots,
                    header.count,
                ),
                0,
            )
            os.fdatasync(fd)
        except OSError as error:
            raise StoreFullError(
                f"{self.path} cannot be written: {error.strerror}"
            ) from error
        self._written = self.header.count
        self._new.clear()
        self._dirty_pages.clear()

    def forget_from(self, offset: int) -> None:
        """After a kill: keep the items below `offset` of the log, count slots anew."""
        items = self._read(self._item_at(0), self.header.count * _ITEM.size)
        header = self.header
        self._slots = array("i", bytes(self.slots_count * _SLOT_BYTES))
        count, end_ms, end_offset, used = 1, header.begin_ms, 0, 0
        for of_item, at, seconds, _ in list(_ITEM.iter_unpack(items))[1:]:
            if at >= offset or of_item < 0:
                break
            slot = of_item % self.slots_count
            used += not self._slots[slot]
            self._slots[slot] = count
            count, end_ms = count + 1, header.begin_ms + seconds * 1000
            end_offset = at
        header.count, header.used_slots = count, used
        header.end_ms, header.end_offset = end_ms, end_offset
        self._written = count
        self._dirty_pages = set(range(-(-self.slots_count // _PAGE_SLOTS)))

    def _slot(self, slot: int) -> int:
        return self._slots[slot]

    def _item(self, item: int) -> tuple[int, int, int, int]:
        if item < self._written:
            return super()._item(item)
        of_item, offset, seconds, before = _ITEM.unpack_from(
            self._new, (item - self._written) * _ITEM.size
        )
        return of_item, offset, seconds, before


def create(path: str, slots: int, opened: OpenFiles) -> GrowingIndexFile:
    """A new file. Raises StoreFullError."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        opened.create(path, file_bytes(slots))
    except OSError as error:
        raise StoreFullError(f"{path} cannot be made: {error.strerror}") from error
    return GrowingIndexFile(path, opened)


def _ints(data: bytes) -> array[int]:
    numbers = array("i", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _write(fd: int, data: bytes | bytearray, at: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(fd, memoryview(data)[done:], at + done)
