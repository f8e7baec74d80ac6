"""Decodes stored records, of a pull answer or of the commit log, into messages.

A record of the usual form takes one unpack and becomes a lazy `StoredMessage`; all
others (IPv6 hosts, V2, inner batches, damage) are decoded with more checks. Java's
client stops at the first record that it cannot read and silently drops the rest; here
each bad record becomes a `DecodeFailure` in its place, and its neighbours are
delivered.

Source: `MessageDecoder.decodesBatch` in apache/rocketmq.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rmqcli.errors import DecodeError
from rmqcli.wire.compression import INFLATED_MAX
from rmqcli.wire.message.batch import split_batch
from rmqcli.wire.message.layout import (
    FIXED_BYTES,
    FIXED_WITHOUT_HOSTS,
    MAGIC_BLANK,
    MAGIC_V1,
    RECORD_BYTES_MIN,
    SIZE_AND_MAGIC,
    Layout,
    field_at,
    find_layout,
    is_credible,
    read_head,
    store_timestamp_ms,
)
from rmqcli.wire.message.record import DecodeFailure, InnerMessage, StoredMessage
from rmqcli.wire.message.scan import find_next_record, is_boundary
from rmqcli.wire.message.system_flag import (
    COMPRESSED,
    INNER_BATCH,
    NEED_UNWRAP,
    SPECIAL_LAYOUT,
)

if TYPE_CHECKING:
    from rmqcli.wire.message.layout import RecordHead

__all__ = ["DecodeFailure", "StoredMessage", "decode_messages"]

_INNER_BATCH_FLAGS: Final = NEED_UNWRAP | INNER_BATCH

_LONG: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqI")  # reconsume times, prepared offset, body length
_BORN_TIMESTAMP_AT: Final = field_at("born_timestamp")

#: Largest total, in bytes, that compressed inner batches of one call may inflate to:
#: unlike other bodies they are inflated while decoding, all of them.
_INNER_INFLATED_MAX: Final = 4 * INFLATED_MAX


def decode_messages(
    buffer: bytes | bytearray | memoryview,
    *,
    start: int = 0,
    record_type: type[StoredMessage] = StoredMessage,
    item_type: type[InnerMessage] = InnerMessage,
) -> list[StoredMessage | DecodeFailure]:
    """Return the messages and failures from position `start` on, in order.

    Never raises: each record that cannot be read becomes a failure. A record that holds
    an inner batch is returned as its items. Filler at the end of a commit log file is
    skipped. Compressed bodies are inflated when they are read, and only then does
    damage in them show. The CRC of a body is not checked, as in Java's client. Messages
    are of `record_type`, those from inner batches of `item_type`.
    """
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)  # messages keep it
    size = len(data)
    found: list[StoredMessage | DecodeFailure] = []
    special = _SpecialRecords(data, found, record_type, item_type)
    append, unpack, new = (
        found.append,
        FIXED_WITHOUT_HOSTS.unpack_from,
        record_type.__new__,
    )
    at = start
    while at < size:
        message = new(record_type)
        try:
            (
                total_bytes,
                magic,
                message.body_crc,
                message.queue_id,
                message.flag,
                message.queue_offset,
                message.commit_log_offset,
                sys_flag,
                message.born_timestamp_ms,
                message.store_timestamp_ms,
                message.reconsume_times,
                message.prepared_transaction_offset,
                body_bytes,
            ) = unpack(data, at)
            body_end = at + FIXED_BYTES + body_bytes
            properties_at = body_end + 3 + data[body_end]
            properties_bytes = data[properties_at - 2] << 8 | data[properties_at - 1]
        except (IndexError, struct.error):
            at = special.decode(at)
            continue
        end = at + total_bytes
        if (
            properties_at + properties_bytes != end
            or end > size
            or magic != MAGIC_V1
            or sys_flag & SPECIAL_LAYOUT
        ):
            at = special.decode(at)
            continue
        message.store_bytes = total_bytes
        message.sys_flag = sys_flag
        message.body_bytes = body_bytes
        message.buffer = data
        message.at = at
        message.parsed_properties = None
        append(message)
        at = end
    return found


class _SpecialRecords:
    """Decodes the records of one call that are of another form, or damaged."""

    def __init__(
        self,
        data: bytes,
        found: list[StoredMessage | DecodeFailure],
        record_type: type[StoredMessage],
        item_type: type[InnerMessage],
    ) -> None:
        self._data = data
        self._record_type = record_type
        self._item_type = item_type
        self._found = found
        self._inflatable_bytes = _INNER_INFLATED_MAX

    def decode(self, at: int) -> int:
        """Append the message at `at`, or a failure; return where the next begins."""
        data = self._data
        head = read_head(data, at)
        if head is None:
            return self._decode_short(at)
        if head.magic == MAGIC_BLANK:
            if 8 <= head.total_bytes <= len(data) - at:
                return at + head.total_bytes
            return self._fail(at, len(data), f"filler states {head.total_bytes} bytes")
        layout = find_layout(data, at, head)
        if isinstance(layout, str):
            return self._fail(at, self._end_of_bad(at, head), layout)
        if layout.end - at != head.total_bytes and not self._lengths_win(
            at, head, layout
        ):
            return self._fail(
                at,
                self._end_of_bad(at, head),
                f"total size {head.total_bytes} does not match the sum of its parts, "
                f"{layout.end - at}",
            )
        message = self._record_type.__new__(self._record_type)
        self._append(_fill(message, data, at, head, layout), head, layout)
        return layout.end

    def _decode_short(self, at: int) -> int:
        """Decode fewer bytes than any record has: empty filler, or a cut-off record."""
        data = self._data
        left = len(data) - at
        if left >= 8:
            total_bytes, magic = SIZE_AND_MAGIC.unpack_from(data, at)
            if magic == MAGIC_BLANK and 8 <= total_bytes <= left:
                return at + int(total_bytes)
        error = f"record ends after {left} bytes, inside its fixed fields"
        return self._fail(at, len(data), error)

    def _lengths_win(self, at: int, head: RecordHead, layout: Layout) -> bool:
        """Whether to believe the inner lengths, as Java does, and not the total size.

        They are believed only when a record follows where they end, and none follows
        where the record ends by its total size.
        """
        return is_boundary(self._data, layout.end) and not self._size_fits(at, head)

    def _size_fits(self, at: int, head: RecordHead) -> bool:
        """Whether the total size is plausible: within limits, and a record follows."""
        return RECORD_BYTES_MIN <= head.total_bytes <= len(
            self._data
        ) - at and is_boundary(self._data, at + head.total_bytes)

    def _end_of_bad(self, at: int, head: RecordHead) -> int:
        """Return where to continue: by the total size if plausible, else by search."""
        if self._size_fits(at, head):
            return at + head.total_bytes
        return find_next_record(self._data, at)

    def _append(self, message: StoredMessage, head: RecordHead, layout: Layout) -> None:
        if head.sys_flag & _INNER_BATCH_FLAGS == _INNER_BATCH_FLAGS:
            self._append_items(message, layout)
        else:
            self._found.append(message)

    def _append_items(self, record: StoredMessage, layout: Layout) -> None:
        try:
            items = self._inflate_items(record)
        except DecodeError as error:
            self._fail(record.at, layout.end, error.message)
            return
        spans, reason = split_batch(items)
        self._found.extend(
            self._item_type.of(record, items, index, span)
            for index, span in enumerate(spans)
        )
        if reason or not spans:
            self._found.append(
                DecodeFailure(
                    at=record.at,
                    queue_id=record.queue_id,
                    queue_offset=record.queue_offset + len(spans),
                    commit_log_offset=record.commit_log_offset,
                    error=reason or "inner batch without items",
                    raw=items[spans[-1].end if spans else 0 :],
                )
            )

    def _inflate_items(self, record: StoredMessage) -> bytes:
        if not record.sys_flag & COMPRESSED:
            return record.raw_body
        if self._inflatable_bytes <= 0:
            raise DecodeError(
                f"inner batches inflate to more than {_INNER_INFLATED_MAX} bytes in all"
            )
        items = record.body
        self._inflatable_bytes -= len(items)
        return items

    def _fail(self, at: int, end: int, error: str) -> int:
        """Append a failure for these bytes and return their end."""
        head = read_head(self._data, at)
        readable = head is not None and is_credible(head)
        self._found.append(
            DecodeFailure(
                at=at,
                queue_id=head.queue_id if head and readable else None,
                queue_offset=head.queue_offset if head and readable else None,
                commit_log_offset=head.commit_log_offset if head and readable else None,
                error=error,
                raw=self._data[at:end],
            )
        )
        return end


def _fill(
    message: StoredMessage, data: bytes, at: int, head: RecordHead, layout: Layout
) -> StoredMessage:
    message.body_crc = head.body_crc
    message.queue_id = head.queue_id
    message.flag = head.flag
    message.queue_offset = head.queue_offset
    message.commit_log_offset = head.commit_log_offset
    message.sys_flag = head.sys_flag
    message.store_bytes = head.total_bytes
    (message.born_timestamp_ms,) = _LONG.unpack_from(data, at + _BORN_TIMESTAMP_AT)
    message.store_timestamp_ms = store_timestamp_ms(data, at, head.sys_flag)
    (
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body_bytes,
    ) = _TAIL.unpack_from(data, layout.body_at - _TAIL.size)
    message.buffer = data
    message.at = at
    message.parsed_properties = None
    return message
