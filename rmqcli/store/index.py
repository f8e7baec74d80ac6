"""The index of keys, which finds the messages that may have `topic#key`.

The index finds candidates by hash and second; the caller compares topic and key. The
layout of an index file:

    header 40 | slots 4 x n: newest item of the slot | items 20 x 4 n

An item is hash i32, commit log offset i64, seconds since the file's first message i32,
the slot's previous item i32. Item 0 is never used. New items wait in memory until
`write_out`, which writes them, then the slots, then the header that counts them.

Appended keys are not hashed before a query or a write. Letter by letter, the hash of a
key takes 3 us, more than the rest of an append. So the keys of many messages are hashed
together as one big number, eight letters with three multiplications, at a fifth of the
cost.

Source: `IndexService`, `IndexFile`, `IndexHeader` and `String.hashCode`.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import struct
import sys
from array import array
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.log import get_logger
from rmqcli.store.fixed_files import OpenFiles, write_all
from rmqcli.store.message_store import StoreError, StoreFullError, store_errors
from rmqcli.wire.ids import java_string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence


_MASK: Final = 0xFFFFFFFF
_LANE: Final = 8
_KEY_BYTES_MAX: Final = 1024
_POWERS: Final = [pow(31, length, 1 << 32) for length in range(_KEY_BYTES_MAX + 1)]
_KEYS_AT_ONCE: Final = 256
logger = get_logger(__name__)

_NAME_DIGITS: Final = 17
#: Most keys of one message that are indexed: a peer may send any number of them.
_KEYS_MAX: Final = 1_000
_PENDING_MAX: Final = 8_192
#: More keys than this wait only while files cannot be written.
_WAITING_MAX: Final = 8 * _PENDING_MAX
_TIME_MS_MAX: Final = 253_000_000_000_000  # the year 9987


def index_hash(topic: str, key: str) -> int:
    """Return the hash by which the index finds the key: 0 to 2^31 - 1."""
    return _absolute(java_string_hash(f"{topic}#{key}") & _MASK)


def index_hashes(topics: Sequence[str], keys: Sequence[str]) -> list[int]:
    """Return `index_hash` of each topic and the key at the same position."""
    prefixes = {
        topic: java_string_hash(f"{topic}#") & _MASK for topic in dict.fromkeys(topics)
    }
    hashes = []
    for topic, key, of_key in zip(topics, keys, _key_hashes(keys), strict=True):
        if of_key is None:
            hashes.append(index_hash(topic, key))
            continue
        value = (prefixes[topic] * _POWERS[len(key)] + of_key) & _MASK
        hashes.append(value if value < 0x80000000 else _absolute(value))
    return hashes


def _absolute(value: int) -> int:
    """Return Math.abs of a 32-bit number, 0 for the one without an absolute value."""
    if value < 0x80000000:
        return value
    return 0 if value == 0x80000000 else 0x100000000 - value


def _key_hashes(keys: Sequence[str]) -> list[int | None]:
    """Return the hash of each key alone; None for keys that are long or not ASCII."""
    hashes: list[int | None] = [None] * len(keys)
    by_length: dict[int, list[int]] = {}
    for at, key in enumerate(keys):
        if key.isascii() and len(key) <= _KEY_BYTES_MAX:
            lanes = max(1, -(-len(key) // _LANE))
            by_length.setdefault(lanes, []).append(at)
    for lanes, all_of_them in by_length.items():
        for first in range(0, len(all_of_them), _KEYS_AT_ONCE):
            chosen = all_of_them[first : first + _KEYS_AT_ONCE]
            # A leading zero does not change the hash of a key.
            text = "".join([keys[at].rjust(lanes * _LANE, "\0") for at in chosen])
            for at, value in zip(chosen, _lanes_hashed(text, lanes), strict=True):
                hashes[at] = value
    return hashes


def _lanes_hashed(text: str, lanes: int) -> list[int]:
    """Return the hash of each piece of `lanes` * 8 letters."""
    count = len(text) // _LANE
    ones = int.from_bytes(b"\0\0\0\0\0\0\0\1" * count, "big")
    low_bytes = ones * 0x00FF00FF00FF00FF
    low_pairs = ones * 0x0000FFFF0000FFFF
    low_halves = ones * 0x00000000FFFFFFFF
    number = int.from_bytes(text.encode("ascii"), "big")
    # Neighbours are joined until eight letters are one number: none outgrows its lane.
    number = (number >> 8 & low_bytes) * 31 + (number & low_bytes)
    number = (number >> 16 & low_pairs) * 961 + (number & low_pairs)
    number = (number >> 32 & low_halves) * 923521 + (number & low_halves)
    values = struct.unpack(f">{count}Q", number.to_bytes(count * _LANE, "big"))
    if lanes == 1:
        return [value & _MASK for value in values]
    hashes = []
    for first in range(0, count, lanes):
        value = 0
        for lane in values[first : first + lanes]:
            value = (value * _POWERS[8] + lane) & _MASK
        hashes.append(value)
    return hashes


_HEADER: Final = struct.Struct(">qqqqii")
_ITEM: Final = struct.Struct(">iqii")
_SLOT_BYTES: Final = 4
_PAGE_SLOTS: Final = 1024
_INT_MAX: Final = 0x7FFFFFFF
#: Bytes of the file for one slot: itself and its share of items.
_BYTES_PER_SLOT: Final = _SLOT_BYTES + 4 * _ITEM.size
#: Four times RocketMQ's default; while a file grows, all its slots are in memory.
_SLOTS_MAX: Final = 20_000_000


def file_bytes(slots: int) -> int:
    """Return the length of a file with this many slots."""
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

    def may_have(self, begin_ms: int, end_ms: int) -> bool:
        """Whether the file is searched for these times, both inclusive.

        Its end is the time of its last item, which is before its beginning if the clock
        was set back. Source: IndexFile.isTimeMatched.
        """
        return (
            (begin_ms < self.begin_ms and end_ms > self.end_ms)
            or self.begin_ms <= begin_ms <= self.end_ms
            or self.begin_ms <= end_ms <= self.end_ms
        )


class IndexFile:
    """An existing index file. Raises StoreError if the file is not one."""

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
        """Read the header again, which another process may have written."""
        self.header = IndexHeader(*_HEADER.unpack(self._read(0, _HEADER.size)))
        self.header.count = max(1, min(self.header.count, self.items_max))

    def find(
        self, key_hash: int, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Return commit log offsets of items with this hash and time, newest first.

        Both times are inclusive; an item's time is rounded down to a whole second
        since its file began.

        Source: IndexFile.selectPhyOffset.
        """
        header = self.header
        found: list[int] = []
        item = self._slot(key_hash % self.slots_count)
        while 0 < item < header.count and len(found) < count_max:
            of_item, offset, seconds, before = self._item(item)
            first_ms = header.begin_ms + seconds * 1000
            if of_item == key_hash and begin_ms <= first_ms <= end_ms:
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
            raise StoreError(f"{self.path} is truncated at byte {at + len(data)}")
        return data


class GrowingIndexFile(IndexFile):
    """The file that items are added to; its slots are in memory."""

    def __init__(self, path: str, opened: OpenFiles) -> None:
        super().__init__(path, opened)
        slots = self._read(_HEADER.size, self.slots_count * _SLOT_BYTES)
        self._slots = array("i", slots)
        if sys.byteorder == "little":
            self._slots.byteswap()
        self._written = self.header.count
        self._new = bytearray()
        self._dirty_pages: set[int] = set()

    @property
    def room(self) -> int:
        """The number of items that can still be added."""
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
        """Write the items that are only in memory, durably. Raises StoreFullError."""
        if not self._new:
            return
        with store_errors(f"{self.path} cannot be written", StoreFullError):
            fd = self._opened.fd(self.path)
            write_all(fd, self._new, self._item_at(self._written))
            for page in sorted(self._dirty_pages):
                first = page * _PAGE_SLOTS
                slots = self._slots[first : first + _PAGE_SLOTS]
                if sys.byteorder == "little":
                    slots.byteswap()
                write_all(fd, slots.tobytes(), _HEADER.size + first * _SLOT_BYTES)
            os.fdatasync(fd)
            write_all(fd, _HEADER.pack(*dataclasses.astuple(self.header)), 0)
            os.fdatasync(fd)
        self._written = self.header.count
        self._new.clear()
        self._dirty_pages.clear()

    def forget_from(self, offset: int) -> None:
        """Drop items from commit log offset `offset` on, and rebuild the slots.

        This is for the start after a kill.
        """
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
    """Create an index file. Raises StoreFullError."""
    with store_errors(f"{path} cannot be created", StoreFullError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        opened.create(path, file_bytes(slots))
    return GrowingIndexFile(path, opened)


class KeyIndex:
    """All index files of a folder, `index/<local time>`; the newest one grows.

    `slots` is for new files. With a read-only `opened` nothing may be added.
    """

    def __init__(self, directory: str, slots: int, opened: OpenFiles) -> None:
        self._directory = directory
        self._slots = slots
        self._opened = opened
        #: oldest first
        self._files: list[IndexFile] = []
        self._settle_at = _PENDING_MAX
        self._reported: set[str] = set()
        #: topic, key, commit log offset and time of keys not in a file's memory yet
        self._pending: list[tuple[str, str, int, int]] = []
        self.refresh()

    def refresh(self) -> None:
        """Read the list of files and their headers again."""
        known = {file.path: file for file in self._files}
        files = []
        for path in self._paths():
            try:
                file = known.get(path) or self._open(path)
                if not isinstance(file, GrowingIndexFile):
                    file.read_header()
            except FileNotFoundError:
                continue
            except (OSError, StoreError) as error:
                self._report(path, str(error))
                continue
            files.append(file)
        if files and self._opened.writable and not files[-1].header.count > 1:
            # It is empty, and maybe incomplete; it is created again when needed.
            empty = files.pop()
            self._opened.forget(empty.path)
            os.unlink(empty.path)
        self._files = files

    def _open(self, path: str) -> IndexFile:
        return IndexFile(path, self._opened)

    def _paths(self) -> list[str]:
        try:
            names = os.listdir(self._directory)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            self._report(
                self._directory, f"{self._directory} cannot be read: {error.strerror}"
            )
            return []
        return [
            f"{self._directory}/{name}"
            for name in sorted(names)
            if len(name) == _NAME_DIGITS and name.isdecimal()
        ]

    def _report(self, path: str, text: str) -> None:
        """Log a warning once, unless the file is empty because it is new."""
        with suppress(OSError):
            if path not in self._reported and os.lstat(path).st_size:
                self._reported.add(path)
                logger.warning("skipping index file: %s", text)

    @property
    def end_offset(self) -> int:
        """The commit log offset of the newest indexed message; -1 without any."""
        if self._pending:
            return self._pending[-1][2]
        return self._files[-1].header.end_offset if self._files else -1

    def add(
        self, topic: str, keys: str, unique_key: str, place: tuple[int, int]
    ) -> None:
        """Add a message's keys; `place` is its commit log offset and store time."""
        pending = self._pending
        offset, time_ms = place
        if unique_key:
            pending.append((topic, unique_key, offset, time_ms))
        if keys:
            for key in keys.split(" ")[:_KEYS_MAX]:
                if key:
                    pending.append((topic, key, offset, time_ms))
        if len(pending) >= self._settle_at:
            # The message is in the log; a failure to index its keys does not matter.
            with suppress(StoreError):
                self.settle()
            self._settle_at = len(pending) + _PENDING_MAX

    def need_room(self) -> None:
        """Raise StoreFullError when no more keys may wait for files to be written."""
        if len(self._pending) > _WAITING_MAX:
            self.settle()

    def settle(self) -> None:
        """Move pending keys into the files' memory. Raises StoreFullError."""
        pending = self._pending
        if not pending:
            return
        hashes = index_hashes(
            [each[0] for each in pending], [each[1] for each in pending]
        )
        items = [
            (key_hash, each[2], each[3])
            for key_hash, each in zip(hashes, pending, strict=True)
        ]
        done = 0
        while done < len(items):
            file = self._growing(items[done][2])
            some = items[done : done + file.room]
            file.add(some)
            done += len(some)
            # Delete them now: this file has them, and creating the next one may fail.
            del pending[: len(some)]

    def _growing(self, time_ms: int) -> GrowingIndexFile:
        """Return the file to add to, after creating it if needed."""
        last = self._files[-1] if self._files else None
        if isinstance(last, GrowingIndexFile):
            if last.room > 0:
                return last
            last.write_out()
            self._files[-1] = self._open(last.path)
        elif last is not None and last.header.count < last.items_max:
            self._files[-1] = growing = GrowingIndexFile(last.path, self._opened)
            return growing
        path = f"{self._directory}/{self._name(time_ms)}"
        made = create(path, self._slots, self._opened)
        self._files.append(made)
        return made

    def _name(self, time_ms: int) -> str:
        """Return a name that sorts after all others, the local time if possible."""
        seconds, ms = divmod(min(max(time_ms, 0), _TIME_MS_MAX), 1000)
        time = datetime.fromtimestamp(seconds, tz=UTC).astimezone()
        name = f"{time:%Y%m%d%H%M%S}{ms:03}"
        paths = self._paths()  # also those of files that cannot be read
        newest = os.path.basename(paths[-1]) if paths else ""
        return name if name > newest else f"{int(newest) + 1:017}"

    def write_out(self) -> None:
        """Make everything durable. Raises StoreFullError."""
        self.settle()
        if self._files and isinstance(self._files[-1], GrowingIndexFile):
            self._files[-1].write_out()

    def find(
        self, topic: str, key: str, *, begin_ms: int, end_ms: int, count_max: int
    ) -> list[int]:
        """Return commit log offsets of messages that may have the key, newest first."""
        if self._pending:
            self.settle()
        key_hash = index_hash(topic, key)
        found: list[int] = []
        for file in reversed(self._files):
            if not file.header.may_have(begin_ms, end_ms):
                continue
            found += file.find(
                key_hash,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max - len(found),
            )
            if len(found) >= count_max:
                break
        return found

    def forget_from(self, offset: int) -> None:
        """Drop items from commit log offset `offset` on, for the start after a kill."""
        while self._files and self._files[-1].header.begin_offset >= offset:
            self._delete(self._files.pop())
        if self._files:
            path = self._files.pop().path
            try:
                growing = GrowingIndexFile(path, self._opened)
                growing.forget_from(offset)
            except StoreError as error:
                self._report(path, error.message)
                return
            self._files.append(growing)
            if growing.header.count == 1:
                self._delete(self._files.pop())

    def trim(self, log_start: int) -> None:
        """Delete the files whose messages were all deleted."""
        while len(self._files) > 1 and self._files[0].header.end_offset < log_start:
            self._delete(self._files.pop(0))

    def _delete(self, file: IndexFile) -> None:
        self._opened.forget(file.path)
        with suppress(FileNotFoundError):
            os.unlink(file.path)
