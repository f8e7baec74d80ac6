"""Reads the records of a commit log in order, up to the first that is not whole.

A record is whole when its size, magic, offset, CRC and inner lengths are right.
Recovery and readers of a folder use this to find where the log ends, and to make the
entries of consume queues that the broker did not write before it died.

Source: `CommitLog.checkMessageAndReturnSize` and `recoverAbnormally`.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.store.batch_queue import MESSAGES_MAX
from rmqcli.wire.ids import tags_code
from rmqcli.wire.message.layout import (
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MAX,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
    Layout,
    find_layout,
    read_head,
    store_timestamp_ms,
)
from rmqcli.wire.message.properties import (
    INNER_MULTI_DISPATCH,
    lmq_of,
    parse_properties,
)
from rmqcli.wire.message.system_flag import (
    INNER_BATCH,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    transaction_type,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.store.fixed_files import FixedFiles


_CHUNK_BYTES: Final = 1024 * 1024
_NAMES: Final = re.compile(
    rb"(?:\A|\x02)(?:TAGS\x01([^\x02]*)|KEYS\x01([^\x02]*)|UNIQ_KEY\x01([^\x02]*))"
    rb"(?=\x02|\Z)"
)
#: INNER_NUM, by which a real broker knows the size of an inner batch
_BATCH_COUNT: Final = re.compile(rb"(?:\A|\x02)INNER_NUM\x01([0-9]{1,5})(?=\x02|\Z)")
_DISPATCH: Final = INNER_MULTI_DISPATCH.encode()
_SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"  # TopicValidator.RMQ_SYS_SCHEDULE_TOPIC


class ScannedRecord(NamedTuple):
    """The fields of a record from which the consume queues and the index are made."""

    commit_log_offset: int
    size_bytes: int
    topic: bytes
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp_ms: int
    properties: bytes

    @property
    def batch_count(self) -> int:
        """The number of messages of an inner batch; 0 for any other record."""
        if not self.sys_flag & INNER_BATCH:
            return 0
        found = _BATCH_COUNT.search(self.properties)
        return min(int(found[1]), MESSAGES_MAX) if found else 0

    def tags_code(self, delay_levels_ms: tuple[int, ...]) -> int | None:
        """Return the tags' hash, or when a delayed message is due.

        None for half messages and rollbacks, which have no entry.
        """
        transaction = transaction_type(self.sys_flag)
        if transaction in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK):
            return None
        level = self.queue_id
        if self.topic == _SCHEDULE_TOPIC and 0 <= level < len(delay_levels_ms):
            return self.store_timestamp_ms + delay_levels_ms[level]
        return tags_code(text_of(names_of(self.properties)[0]))

    def places(self) -> list[tuple[tuple[str, int], int]]:
        """Return the queues of the record, one of its topic and its LMQ if it has one.

        Each with the offset there.
        """
        topic = text_of(self.topic)
        places = [((topic, self.queue_id), self.queue_offset)]
        if _DISPATCH in self.properties:
            lmq = lmq_of(topic, parse_properties(self.properties))
            if lmq is not None:
                places.append(((lmq[0], 0), lmq[1]))
        return places


def scan(files: FixedFiles, start: int) -> Iterator[ScannedRecord | int]:
    """Yield the whole records from `start` on, then the offset where they end.

    `start` must be where a record or a file begins.
    """
    at = start
    data, base = b"", at  # `data` has the bytes from `base` on
    while True:
        room = files.base_of(at) + files.file_bytes - at
        here = at - base
        if len(data) - here < RECORD_BYTES_MIN:
            data, base, here = files.read(at, min(room, _CHUNK_BYTES)), at, 0
        if len(data) - here < SIZE_AND_MAGIC.size:
            break
        size, magic = SIZE_AND_MAGIC.unpack_from(data, here)
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
    """Return the size that the record at `offset` states, if it is over the bound.

    `scan` ends at such a record; the records after it may be whole.
    """
    head = read_head(files.read(offset, RECORD_BYTES_MIN), 0)
    if head is None or head.total_bytes <= RECORD_BYTES_MAX:
        return None
    is_record = head.magic in (MAGIC_V1, MAGIC_V2)
    return head.total_bytes if is_record and head.commit_log_offset == offset else None


def names_of(properties: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the values of TAGS, KEYS and UNIQ_KEY, each empty when it is absent."""
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
    """Return the record of `offset`, at `here` in `data`; None unless it is whole."""
    head = read_head(data, here)
    if head is None or head.commit_log_offset != offset:
        return None
    layout = find_layout(data, here, head)
    if not isinstance(layout, Layout) or layout.end > here + head.total_bytes:
        return None
    # Without a body there is nothing to check, and some versions of Java write no CRC.
    body = memoryview(data)[layout.body_at : layout.body_end]
    if len(body) and zlib.crc32(body) & 0x7FFFFFFF != head.body_crc:
        return None
    return ScannedRecord(
        offset,
        head.total_bytes,
        data[layout.topic_at : layout.topic_end],
        head.queue_id,
        head.queue_offset,
        head.sys_flag,
        store_timestamp_ms(data, here, head.sys_flag),
        data[layout.properties_at : layout.end],
    )


def text_of(value: bytes) -> str:
    """Return the characters of a name; bytes that are not UTF-8 become U+FFFD."""
    return value.decode("utf-8", "replace")
