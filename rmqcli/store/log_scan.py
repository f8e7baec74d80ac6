"""Walks through a log's records and stops at the first that is not whole.

For recovery and for whoever reads a folder: a record counts when size, magic, place,
CRC and its inner lengths are right.

Source: `CommitLog.checkMessageAndReturnSize` and `recoverAbnormally`.

What a log's record says that its queue's entry must be.

For recovery, which makes lost entries again, and for readers of a folder whose broker
died before it wrote them.

Source: `CommitLog.checkMessageAndReturnSize` in apache/rocketmq.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.wire.ids import tags_code
from rmqcli.wire.message.layout import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
)
from rmqcli.wire.message.system_flag import (
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    transaction_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.store.fixed_files import FixedFiles


_CHUNK_BYTES: Final = 1024 * 1024
_HEAD: Final = struct.Struct(">IIIiiqqi")
_SIZE_AND_MAGIC: Final = struct.Struct(">II")
_NAMES: Final = re.compile(
    rb"(?:\A|\x02)(?:TAGS\x01([^\x02]*)|KEYS\x01([^\x02]*)|UNIQ_KEY\x01([^\x02]*))"
    rb"(?=\x02|\Z)"
)


class ScannedRecord(NamedTuple):
    """What the queues and the index have to know of a record."""

    commit_log_offset: int
    size_bytes: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    properties: bytes


def scan(files: FixedFiles, start: int) -> Iterator[ScannedRecord | int]:
    """Yield the whole records from `start` on, then the offset where they end.

    `start` must be where a record or a file begins.
    """
    at = start
    data, base = b"", at  # `data` is what lies at `base`
    while True:
        room = files.base_of(at) + files.file_bytes - at
        here = at - base
        if len(data) - here < RECORD_BYTES_MIN:
            data, base, here = files.read(at, min(room, _CHUNK_BYTES)), at, 0
        if len(data) - here < _SIZE_AND_MAGIC.size:
            break
        size, magic = _SIZE_AND_MAGIC.unpack_from(data, here)
        if magic == MAGIC_BLANK and size == room:
            at += room
            continue
        size_max = min(room, RECORD_BYTES_MAX)
        if (
            magic not in (MAGIC_V1, MAGIC_V2)
            or not RECORD_BYTES_MIN <= size <= size_max
        ):
            break
        if len(data) - here < size:
            data, base, here = files.read(at, max(size, min(room, _CHUNK_BYTES))), at, 0
        record = _record(data, here, at) if len(data) - here >= size else None
        if record is None:
            break
        yield record
        at += size
    yield at


def too_large_at(files: FixedFiles, offset: int) -> int | None:
    """The size that a record of that place states, when it is over the bound.

    `scan` ends at it; what follows may be whole.
    """
    head = files.read(offset, _HEAD.size)
    if len(head) < _HEAD.size:
        return None
    size, magic, *_, place, _ = _HEAD.unpack(head)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and place == offset
    return size if is_record and size > RECORD_BYTES_MAX else None


def names_of(properties: bytes) -> tuple[bytes, bytes, bytes]:
    """The values of TAGS, KEYS and UNIQ_KEY, each empty when it is not there."""
    tags = keys = unique = b""
    for found in _NAMES.finditer(properties):
        which = found.lastindex
        if which == 1:
            tags = found[1]
        elif which == 2:
            keys = found[2]
        elif which == 3:
            unique = found[3]
    return tags, keys, unique


def _record(data: bytes, here: int, offset: int) -> ScannedRecord | None:
    """The record of `offset` that lies `here`; None unless all of it is right."""
    size, magic, crc, queue_id, _, queue_offset, place, sys_flag = _HEAD.unpack_from(
        data, here
    )
    if place != offset:
        return None
    time_at = here + (68 if sys_flag & 0x10 else 56)
    body_at = time_at + 8 + (20 if sys_flag & 0x20 else 8) + 16
    end = here + size
    if body_at > end:
        return None
    body_end = body_at + int.from_bytes(data[body_at - 4 : body_at], "big")
    topic_at = body_end + (1 if magic == MAGIC_V1 else 2)
    if topic_at > end:
        return None
    topic_end = topic_at + int.from_bytes(data[body_end:topic_at], "big")
    properties_at = topic_end + 2
    if properties_at > end:
        return None
    properties_bytes = int.from_bytes(data[topic_end:properties_at], "big")
    if properties_at + properties_bytes > end:
        return None
    # No body: Java writes no CRC of it in some versions, and there is nothing to check.
    body = memoryview(data)[body_at:body_end]
    if body_end > body_at and zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    return ScannedRecord(
        offset,
        size,
        data[topic_at:topic_end],
        queue_id,
        queue_offset,
        sys_flag,
        int.from_bytes(data[time_at : time_at + 8], "big", signed=True),
        data[properties_at : properties_at + properties_bytes],
    )


_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"  # TopicValidator.RMQ_SYS_SCHEDULE_TOPIC
_KEPT_MAX: Final = 65_536


class EntryMaker:
    """Topics and tags codes of records, each worked out once."""

    def __init__(self, delay_levels_ms: tuple[int, ...]) -> None:
        self._delay_levels_ms = delay_levels_ms
        self._tags_codes: dict[bytes, int] = {}
        self._topics: dict[bytes, str] = {}

    def topic(self, record: ScannedRecord) -> str:
        """The topic's name."""
        found = self._topics.get(record.topic)
        if found is None:
            if len(self._topics) >= _KEPT_MAX:
                self._topics.clear()
            found = self._topics[record.topic] = text_of(record.topic)
        return found

    def tags_code(self, record: ScannedRecord) -> int | None:
        """As when it was put: the tags' hash, or when a delayed message is due.

        None for half messages and rollbacks, which have no entry.
        """
        transaction = transaction_type(record.sys_flag)
        if transaction in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return None
        queue_id = record.queue_id
        levels = self._delay_levels_ms
        if record.topic == _SCHEDULE_TOPIC and 0 <= queue_id < len(levels):
            return record.store_timestamp_ms + levels[queue_id]
        tags = names_of(record.properties)[0]
        code = self._tags_codes.get(tags)
        if code is None:
            if len(self._tags_codes) >= _KEPT_MAX:
                self._tags_codes.clear()
            code = self._tags_codes[tags] = tags_code(text_of(tags))
        return code


def text_of(value: bytes) -> str:
    """The characters of a name; what is no UTF-8 becomes a mark."""
    return value.decode("utf-8", "replace")
