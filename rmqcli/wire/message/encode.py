"""Writes stored records, V1 and V2, as a broker or `MessageDecoder.encode` does.

Serves the embedded broker, CONSUME_MESSAGE_DIRECTLY (code 309) and tests. Nothing is
filled in: the caller sets offsets, times and flags. A store writes tens of thousands of
records a second, so the bytes of hosts and topics, of which there are few, are cached.

Source: `MessageDecoder.encode` and `MessageExtEncoder` in apache/rocketmq.
"""

from __future__ import annotations

import functools
import struct
import zlib
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.wire.ids import host_bytes
from rmqcli.wire.message.layout import (
    FIXED_BYTES,
    FIXED_FIELDS,
    MAGIC_V1,
    MAGIC_V2,
    RecordHead,
    field_struct,
)
from rmqcli.wire.message.properties import (
    PROPERTIES_BYTES_MAX,
    encode_properties,
    parse_properties,
)
from rmqcli.wire.message.system_flag import BORN_HOST_V6, STORE_HOST_V6

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Largest topic, in bytes, of each version; V1's length is a signed byte.
TOPIC_BYTES_MAX: Final = {MAGIC_V1: 127, MAGIC_V2: 32767}

#: Everything in front of the body when both hosts are IPv4.
_FIXED: Final = field_struct(FIXED_FIELDS)
#: For other hosts: the fields in front of, between and behind them.
_HEAD: Final = field_struct([*RecordHead._fields, "born_timestamp"])
_TIME: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqI")
_SHORT: Final = struct.Struct(">h")


@dataclass(slots=True, kw_only=True)
class MessageFields:
    """The fields of a record. `body` is written unchanged: the caller compresses it.

    Treat as immutable: a frozen one costs twice as much, and a broker makes one for
    each message. Hosts are "ip:port" or "[ipv6]:port"; they determine the two host bits
    of `sys_flag`, whatever the caller passes. `body_crc` None means the CRC of `body`.
    `properties` may be the text form, to write bytes that no dict can express;
    `properties_bytes`, if given, is written in their place.
    """

    topic: str
    body: bytes = b""
    queue_id: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp_ms: int = 0
    born_host: str = "127.0.0.1:0"
    store_timestamp_ms: int = 0
    store_host: str = "127.0.0.1:10911"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int | None = None
    properties: Mapping[str, str | None] | str | bytes = field(default_factory=dict)
    properties_bytes: bytes | None = None

    def property_table(self) -> Mapping[str, str]:
        """Return the properties by name, also of the text form."""
        properties = self.properties
        if isinstance(properties, (str, bytes)):
            return parse_properties(properties)
        return properties  # type: ignore[return-value]  # stores get no None values


def encode_message(fields: MessageFields, *, magic: int | None = None) -> bytes:
    """Return the record's bytes; V2 only where V1 cannot hold the topic.

    Raises ValueError when topic or properties are too long for the version, and
    UsageError for a host that is not an address.
    """
    return encode_placed(
        fields,
        queue_offset=fields.queue_offset,
        commit_log_offset=fields.commit_log_offset,
        magic=magic,
    )


def encode_placed(
    fields: MessageFields,
    *,
    queue_offset: int,
    commit_log_offset: int,
    magic: int | None = None,
) -> bytes:
    """Encode as `encode_message` does, with the two offsets that a store assigns."""
    if magic is None:
        topic = _topic(fields.topic)
    else:
        topic = _topic_of(fields.topic.encode(), magic)
    born_host, store_host = host_bytes(fields.born_host), host_bytes(fields.store_host)
    text = fields.properties_bytes
    if text is None:
        text = _properties(fields.properties)
    if len(text) > PROPERTIES_BYTES_MAX:
        raise ValueError(
            f"properties of {len(text)} bytes exceed the limit of"
            f" {PROPERTIES_BYTES_MAX}"
        )
    body = fields.body
    if len(born_host) != 8 or len(store_host) != 8:
        head = _head_v6(fields, (queue_offset, commit_log_offset), topic[0])
        size = len(head) + len(body) + len(topic[1]) + 2 + len(text)
        head = size.to_bytes(4, "big") + head[4:]
    else:
        head = _FIXED.pack(
            FIXED_BYTES + len(body) + len(topic[1]) + 2 + len(text),
            topic[0],
            _body_crc(fields),
            fields.queue_id,
            fields.flag,
            queue_offset,
            commit_log_offset,
            fields.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6),
            fields.born_timestamp_ms,
            born_host,
            fields.store_timestamp_ms,
            store_host,
            fields.reconsume_times,
            fields.prepared_transaction_offset,
            len(body),
        )
    return b"".join((head, body, topic[1], _SHORT.pack(len(text)), text))


def _properties(properties: Mapping[str, str | None] | str | bytes) -> bytes:
    if isinstance(properties, dict):
        text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
        count = len(properties)
        if (
            text.count("\x02") == count == text.count("\x01")
            and None not in properties.values()
        ):
            return text.encode()
        return encode_properties(properties).encode()
    if isinstance(properties, str):
        return properties.encode()
    if isinstance(properties, bytes):
        return properties
    return encode_properties(properties).encode()


def _head_v6(fields: MessageFields, offsets: tuple[int, int], magic: int) -> bytes:
    """Return the fields in front of the body, with 0 for the total size."""
    born_host, store_host = host_bytes(fields.born_host), host_bytes(fields.store_host)
    sys_flag = fields.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 * (len(born_host) > 8)
    sys_flag |= STORE_HOST_V6 * (len(store_host) > 8)
    head = _HEAD.pack(
        0,
        magic,
        _body_crc(fields),
        fields.queue_id,
        fields.flag,
        *offsets,
        sys_flag,
        fields.born_timestamp_ms,
    )
    tail = _TAIL.pack(
        fields.reconsume_times, fields.prepared_transaction_offset, len(fields.body)
    )
    time = _TIME.pack(fields.store_timestamp_ms)
    return b"".join((head, born_host, time, store_host, tail))


def _body_crc(fields: MessageFields) -> int:
    given = fields.body_crc
    return zlib.crc32(fields.body) & 0x7FFFFFFF if given is None else given


@functools.lru_cache(4096)  # a peer could name a different topic with each message
def _topic(topic: str) -> tuple[int, bytes]:
    """Return the magic of the version that fits the topic, and length with topic."""
    data = topic.encode()
    fits = len(data) <= TOPIC_BYTES_MAX[MAGIC_V1]
    return _topic_of(data, MAGIC_V1 if fits else MAGIC_V2)


def _topic_of(data: bytes, magic: int) -> tuple[int, bytes]:
    if len(data) > TOPIC_BYTES_MAX[magic]:
        raise ValueError(
            f"topic of {len(data)} bytes exceeds the limit of {TOPIC_BYTES_MAX[magic]}"
        )
    length_bytes = 1 if magic == MAGIC_V1 else 2
    return magic, len(data).to_bytes(length_bytes, "big") + data
