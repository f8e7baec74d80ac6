"""One stored message: a lazy view of the bytes of its record.

`decode_messages` reads the numbers; body, properties, topic and hosts are read from the
buffer when a caller asks for them. A message keeps the whole buffer that it came in
(one pull answer, up to a few hundred KiB) alive.

Source: `MessageExt` and `MessageDecoder.decode`.
"""

from __future__ import annotations

import functools
from dataclasses import field
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from rmqcli.dataclass import dataclass
from rmqcli.wire.compression import INFLATED_MAX, inflate
from rmqcli.wire.ids import host_text
from rmqcli.wire.message.layout import BODY_AT, BORN_HOST_AT, MAGIC_V2, STORE_HOST_AT
from rmqcli.wire.message.properties import parse_properties
from rmqcli.wire.message.system_flag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from rmqcli.wire.message.batch import ItemSpan

_V2_LAST_MAGIC_BYTE: Final = MAGIC_V2 & 0xFF

#: The text of a raw host: a queue has few, but a peer could send others each time.
_host: Final = functools.lru_cache(4096)(host_text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeFailure:
    """Bytes that could not be decoded, in their place between the messages.

    They begin at position `at` of the buffer; `raw` holds all of them, so nothing is
    dropped. The numbers are None when they could not be read or cannot be true. One
    failure may cover several messages; the queue offsets of its neighbours tell which.
    """

    at: int
    queue_id: int | None
    queue_offset: int | None
    commit_log_offset: int | None
    error: str
    raw: bytes = field(repr=False)


class StoredMessage:
    """A message as the broker stores and sends it. Treat as immutable.

    `decode_messages` fills its slots directly: a frozen dataclass costs five times as
    much, and millions are read. `store_bytes` is the total size that the record states;
    `body_crc` and `sys_flag` are as stored. The record begins at `at` of `buffer`;
    `body_bytes` is the length of `raw_body`.
    """

    __slots__ = (
        "at",
        "body_bytes",
        "body_crc",
        "born_timestamp_ms",
        "buffer",
        "commit_log_offset",
        "flag",
        "parsed_properties",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_bytes",
        "store_timestamp_ms",
        "sys_flag",
    )

    body_crc: int
    born_timestamp_ms: int
    commit_log_offset: int
    flag: int
    prepared_transaction_offset: int
    queue_id: int
    queue_offset: int
    reconsume_times: int
    store_bytes: int
    store_timestamp_ms: int
    sys_flag: int
    at: int
    body_bytes: int
    buffer: bytes
    #: the value of `properties`, once it has been read
    parsed_properties: dict[str, str] | None

    @property
    def raw_body(self) -> bytes:
        """The body as stored, possibly compressed."""
        start = self.at + BODY_AT[self.sys_flag >> 4 & 3]
        return self.buffer[start : start + self.body_bytes]

    @property
    def body(self) -> bytes:
        """The body as its producer gave it; inflated each time it is read.

        Raises DecodeError when it is damaged, or inflates to over 16 MiB.
        """
        if self.sys_flag & 1:
            return inflate(self.raw_body, self.sys_flag, limit_bytes=INFLATED_MAX)
        start = self.at + BODY_AT[self.sys_flag >> 4 & 3]
        return self.buffer[start : start + self.body_bytes]

    @property
    def topic(self) -> str:
        """The topic the record is stored under (`%RETRY%g` for a retry)."""
        start, end = self._topic_span()
        return self.buffer[start:end].decode("utf-8", "replace")

    @property
    def properties(self) -> dict[str, str]:
        """All properties; the same dict each time, which must not be changed."""
        properties = self.parsed_properties
        if properties is None:
            properties = parse_properties(self.raw_properties)
            self.parsed_properties = properties
        return properties

    @property
    def raw_properties(self) -> bytes:
        """The properties in their text form, as stored."""
        start, end = self._properties_span()
        return self.buffer[start:end]

    @property
    def tags(self) -> str | None:
        """The TAGS property."""
        return self._property("TAGS", b"TAGS\x01")

    @property
    def keys(self) -> str | None:
        """The KEYS property: keys separated by spaces."""
        return self._property("KEYS", b"KEYS\x01")

    @property
    def msg_id(self) -> str | None:
        """The producer's id (UNIQ_KEY); Java falls back to `offset_msg_id`."""
        return self._property("UNIQ_KEY", b"UNIQ_KEY\x01")

    @property
    def born_host(self) -> str:
        """The producer's "ip:port"."""
        return _host(self.born_host_bytes())

    @property
    def store_host(self) -> str:
        """The broker's "ip:port"."""
        return _host(self.store_host_bytes())

    @property
    def offset_msg_id(self) -> str:
        """The broker's id, made of its address and the commit log offset."""
        place = self.commit_log_offset.to_bytes(8, "big", signed=True)
        return (self.store_host_bytes() + place).hex().upper()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, msg_id={self.msg_id!r})"
        )

    def born_host_bytes(self) -> bytes:
        """The producer's address as stored: 8 or 20 bytes, ip and port."""
        start = self.at + BORN_HOST_AT
        return self.buffer[start : start + (20 if self.sys_flag & BORN_HOST_V6 else 8)]

    def store_host_bytes(self) -> bytes:
        """The broker's address as stored: 8 or 20 bytes, ip and port."""
        start = self.at + STORE_HOST_AT + (12 if self.sys_flag & BORN_HOST_V6 else 0)
        size = 20 if self.sys_flag & STORE_HOST_V6 else 8
        return self.buffer[start : start + size]

    def _topic_span(self) -> tuple[int, int]:
        buffer = self.buffer
        at = self.at + BODY_AT[self.sys_flag >> 4 & 3] + self.body_bytes
        if buffer[self.at + 7] == _V2_LAST_MAGIC_BYTE:
            return at + 2, at + 2 + (buffer[at] << 8 | buffer[at + 1])
        return at + 1, at + 1 + buffer[at]

    def _properties_span(self) -> tuple[int, int]:
        # Not "up to the end of the record": the stated total size may be wrong.
        at = self._topic_span()[1]
        length = self.buffer[at] << 8 | self.buffer[at + 1]
        return at + 2, at + 2 + length

    def _property(self, name: str, mark: bytes) -> str | None:
        """Return one value without parsing all of them; `mark` is name and 0x01."""
        if self.parsed_properties is None:
            start, end = self._properties_span()
            buffer = self.buffer
            at = buffer.rfind(mark, start, end)
            if at < 0:
                return None
            value_at = at + len(mark)
            value_end = buffer.find(b"\x02", value_at, end)
            if value_end < 0:
                value_end = end
            if (at == start or buffer[at - 1] == 2) and value_end > value_at:
                return buffer[value_at:value_end].decode("utf-8", "replace")
            # The match is part of another name or value, or the value is empty; an
            # earlier entry may count.
        return self.properties.get(name)


class InnerMessage(StoredMessage):
    """A message from a record that holds an inner batch.

    Body, CRC, flag, properties and `store_bytes` are those of the item, and
    `reconsume_times` is 0. All else is the record's, with the item's index added to
    `queue_offset` and without the bit COMPRESSED in `sys_flag`. `offset_msg_id` is the
    record's, which is the id that a broker can find. `buffer` is the inflated batch,
    and `at` is where the record begins in the buffer that was decoded.
    """

    __slots__ = ("record", "span")

    record: StoredMessage
    span: ItemSpan

    @classmethod
    def of(
        cls, record: StoredMessage, items: bytes, index: int, span: ItemSpan
    ) -> InnerMessage:
        """Return item number `index`, at `span` of the inflated body `items`."""
        message = cls.__new__(cls)
        message.body_crc = span.body_crc
        message.born_timestamp_ms = record.born_timestamp_ms
        message.commit_log_offset = record.commit_log_offset
        message.flag = span.flag
        message.prepared_transaction_offset = record.prepared_transaction_offset
        message.queue_id = record.queue_id
        message.queue_offset = record.queue_offset + index
        message.reconsume_times = 0  # decodeMessage does not copy the record's
        message.store_bytes = span.end - span.at
        message.store_timestamp_ms = record.store_timestamp_ms
        message.sys_flag = record.sys_flag & ~1  # inflated with the record
        message.at = record.at
        message.body_bytes = span.body_end - span.body_at
        message.buffer = items
        message.parsed_properties = None
        message.record = record
        message.span = span
        return message

    @property
    def raw_body(self) -> bytes:
        """The item's body; never compressed."""
        return self.buffer[self.span.body_at : self.span.body_end]

    @property
    def body(self) -> bytes:
        """The item's body."""
        return self.buffer[self.span.body_at : self.span.body_end]

    def born_host_bytes(self) -> bytes:
        """The producer's address as stored in the record."""
        return self.record.born_host_bytes()

    def store_host_bytes(self) -> bytes:
        """The broker's address as stored in the record."""
        return self.record.store_host_bytes()

    @property
    def topic(self) -> str:
        """The record's topic."""
        return self.record.topic

    def _properties_span(self) -> tuple[int, int]:
        return self.span.properties_at, self.span.end


class PartialMessage(Protocol):
    """A message received over a protocol that carries only some of the fields.

    The names are those of `StoredMessage`; a field that is not known is None.
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue_offset(self) -> int | None: ...
    @property
    def commit_log_offset(self) -> int | None: ...
    @property
    def msg_id(self) -> str | None: ...
    @property
    def offset_msg_id(self) -> str | None: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> str | None: ...
    @property
    def born_timestamp_ms(self) -> int | None: ...
    @property
    def store_timestamp_ms(self) -> int | None: ...
    @property
    def born_host(self) -> str | None: ...
    @property
    def store_host(self) -> str | None: ...
    @property
    def reconsume_times(self) -> int | None: ...
    @property
    def flag(self) -> int | None: ...
    @property
    def sys_flag(self) -> int | None: ...
    @property
    def store_bytes(self) -> int | None: ...
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def raw_body(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...


def has_key(message: StoredMessage | PartialMessage, key: str) -> bool:
    """Whether `key` is the message's id (UNIQ_KEY) or one of its keys.

    A key that contains spaces is stored as several keys: it is found where those are
    adjacent. No message has an empty key.
    """
    if not key:
        return False
    return message.msg_id == key or f" {key} " in f" {message.keys or ''} "


#: Everything that can be shown as a record.
Record: TypeAlias = StoredMessage | PartialMessage | DecodeFailure
