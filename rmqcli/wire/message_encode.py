"""Writing stored messages, V1 and V2, as a broker or `MessageDecoder.encode` does.

For the embedded broker, for sending a message to a consumer (code 309) and for tests.
Nothing is filled in: offsets, times and flags are the caller's.

Source: `MessageDecoder.encode` and `MessageExtEncoder` in apache/rocketmq.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmqcli.wire.ids import crc32, host_bytes
from rmqcli.wire.message_layout import MAGIC_V1, MAGIC_V2
from rmqcli.wire.message_sys_flag import BORN_HOST_V6, STORE_HOST_V6
from rmqcli.wire.properties import PROPERTIES_BYTES_MAX, encode_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Largest topic, in bytes, of each version; V1's length is a signed byte.
TOPIC_BYTES_MAX: Final = {MAGIC_V1: 127, MAGIC_V2: 32767}

_HEAD: Final = struct.Struct(">IIiiiqqiq")
_TAIL: Final = struct.Struct(">iqi")
_LONG: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
_TOPIC_HEADS: Final = {MAGIC_V1: struct.Struct(">b"), MAGIC_V2: struct.Struct(">h")}
#: All but hosts, body, topic and properties with their lengths.
_FIXED_BYTES: Final = _HEAD.size + _LONG.size + _TAIL.size


@dataclass(slots=True, kw_only=True)
class MessageFields:
    """What a record is made of. `body` is written as it is: deflate it before.

    Treat as immutable: a frozen one costs twice as much, and a broker makes one for
    each message. `properties_bytes` says how `properties` are written, where their
    bytes are known.

    Hosts are "ip:port" or "[ipv6]:port"; the two host bits of `sys_flag` follow from
    them, whatever is given. `body_crc` None means: that of `body`. `properties` may be
    the text form, to write bytes that no dict can stand for.
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


def encode_message(fields: MessageFields, *, magic: int | None = None) -> bytes:
    """Return the record's bytes; V2 only where V1 cannot hold the topic.

    Raises ValueError when topic or properties are too long for the version, and
    UsageError for a host that is no address.
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
    """As `encode_message`, with a place of its own: what a store gives each message."""
    topic = fields.topic.encode()
    if magic is None:
        magic = MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX[MAGIC_V1] else MAGIC_V2
    if len(topic) > TOPIC_BYTES_MAX[magic]:
        raise ValueError(
            f"topic of {len(topic)} bytes is over {TOPIC_BYTES_MAX[magic]}"
        )
    body = fields.body
    properties = _properties_bytes(
        fields.properties
        if fields.properties_bytes is None
        else fields.properties_bytes
    )
    born_host, store_host = host_bytes(fields.born_host), host_bytes(fields.store_host)
    topic_head = _TOPIC_HEADS[magic].pack(len(topic))
    size = len(body) + len(topic_head) + len(topic) + 2 + len(properties)
    size += _FIXED_BYTES + len(born_host) + len(store_host)
    head = _HEAD.pack(
        size,
        magic,
        crc32(body) if fields.body_crc is None else fields.body_crc,
        fields.queue_id,
        fields.flag,
        queue_offset,
        commit_log_offset,
        _with_host_bits(fields.sys_flag, born_host, store_host),
        fields.born_timestamp_ms,
    )
    stored_at = _LONG.pack(fields.store_timestamp_ms)
    tail = _TAIL.pack(
        fields.reconsume_times, fields.prepared_transaction_offset, len(body)
    )
    properties_head = _SHORT.pack(len(properties))
    return b"".join(
        (
            head,
            born_host,
            stored_at,
            store_host,
            tail,
            body,
            topic_head,
            topic,
            properties_head,
            properties,
        )
    )


def _properties_bytes(properties: Mapping[str, str | None] | str | bytes) -> bytes:
    if isinstance(properties, bytes):
        data = properties
    elif isinstance(properties, str):
        data = properties.encode()
    else:
        data = encode_properties(properties).encode()
    if len(data) > PROPERTIES_BYTES_MAX:
        raise ValueError(
            f"properties of {len(data)} bytes are over {PROPERTIES_BYTES_MAX}"
        )
    return data


def _with_host_bits(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
    if len(born_host) > 8:
        sys_flag |= BORN_HOST_V6
    if len(store_host) > 8:
        sys_flag |= STORE_HOST_V6
    return sys_flag
