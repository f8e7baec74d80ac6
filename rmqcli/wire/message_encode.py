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


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFields:
    """What a record is made of. `body` is written as it is: deflate it before.

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


def encode_message(fields: MessageFields, *, magic: int | None = None) -> bytes:
    """Return the record's bytes; V2 only where V1 cannot hold the topic.

    Raises ValueError when topic or properties are too long for the version, and
    UsageError for a host that is no address.
    """
    topic = fields.topic.encode()
    if magic is None:
        magic = MAGIC_V1 if len(topic) <= TOPIC_BYTES_MAX[MAGIC_V1] else MAGIC_V2
    if len(topic) > TOPIC_BYTES_MAX[magic]:
        raise ValueError(
            f"topic of {len(topic)} bytes is over {TOPIC_BYTES_MAX[magic]}"
        )
    properties = _properties_bytes(fields.properties)
    born_host, store_host = host_bytes(fields.born_host), host_bytes(fields.store_host)
    topic_length = struct.pack(">b" if magic == MAGIC_V1 else ">h", len(topic))
    parts = (
        born_host,
        struct.pack(">q", fields.store_timestamp_ms),
        store_host,
        _TAIL.pack(
            fields.reconsume_times,
            fields.prepared_transaction_offset,
            len(fields.body),
        ),
        fields.body,
        topic_length,
        topic,
        struct.pack(">h", len(properties)),
        properties,
    )
    head = _HEAD.pack(
        _HEAD.size + sum(map(len, parts)),
        magic,
        crc32(fields.body) if fields.body_crc is None else fields.body_crc,
        fields.queue_id,
        fields.flag,
        fields.queue_offset,
        fields.commit_log_offset,
        _with_host_bits(fields.sys_flag, born_host, store_host),
        fields.born_timestamp_ms,
    )
    return head + b"".join(parts)


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
