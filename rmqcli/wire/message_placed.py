"""The record of a message at its place in a log: `encode_message` made fast.

For a store that writes tens of thousands a second: hosts and topics, of which there are
few, are put into bytes once. The bytes are those of `encode_message`.

Source: `MessageExtEncoder` in apache/rocketmq.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from rmqcli.wire.ids import host_bytes
from rmqcli.wire.message_encode import TOPIC_BYTES_MAX
from rmqcli.wire.message_layout import MAGIC_V1, MAGIC_V2
from rmqcli.wire.message_sys_flag import BORN_HOST_V6, STORE_HOST_V6
from rmqcli.wire.properties import PROPERTIES_BYTES_MAX, encode_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.wire.message_encode import MessageFields

#: Everything in front of the body when both hosts are IPv4.
_FIXED: Final = struct.Struct(">IIIiiqqiq8sq8siqI")
_FIXED_BYTES: Final = _FIXED.size
#: For other hosts: what lies in front of, between and behind them.
_HEAD: Final = struct.Struct(">IIIiiqqiq")
_TIME: Final = struct.Struct(">q")
_TAIL: Final = struct.Struct(">iqI")
_SHORT: Final = struct.Struct(">h")

_CACHED_MAX: Final = 4096
#: Emptied when full: a peer could name a different host or topic with each message.
_hosts: dict[str, bytes] = {}
_topics: dict[str, tuple[int, bytes]] = {}


def encode_placed(
    fields: MessageFields, *, queue_offset: int, commit_log_offset: int
) -> bytes:
    """Return the record with these offsets instead of those in `fields`.

    Raises ValueError for topics or properties that are too long, UsageError for a host.
    """
    topic = _topics.get(fields.topic) or _topic(fields.topic)
    born_host = _hosts.get(fields.born_host) or _host(fields.born_host)
    store_host = _hosts.get(fields.store_host) or _host(fields.store_host)
    text = _properties(fields.properties)
    if len(text) > PROPERTIES_BYTES_MAX:
        raise ValueError(
            f"properties of {len(text)} bytes are over {PROPERTIES_BYTES_MAX}"
        )
    body = fields.body
    if len(born_host) != 8 or len(store_host) != 8:
        head = _head_v6(fields, (queue_offset, commit_log_offset), topic[0])
        size = len(head) + len(body) + len(topic[1]) + 2 + len(text)
        head = size.to_bytes(4, "big") + head[4:]
    else:
        head = _FIXED.pack(
            _FIXED_BYTES + len(body) + len(topic[1]) + 2 + len(text),
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
    """What lies in front of the body, with 0 for the size."""
    born_host, store_host = _host(fields.born_host), _host(fields.store_host)
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


def _topic(topic: str) -> tuple[int, bytes]:
    """The magic that can hold the topic, and its bytes behind their length."""
    data = topic.encode()
    magic = MAGIC_V1 if len(data) <= TOPIC_BYTES_MAX[MAGIC_V1] else MAGIC_V2
    if len(data) > TOPIC_BYTES_MAX[magic]:
        raise ValueError(f"topic of {len(data)} bytes is over {TOPIC_BYTES_MAX[magic]}")
    length_bytes = 1 if magic == MAGIC_V1 else 2
    if len(_topics) >= _CACHED_MAX:
        _topics.clear()
    _topics[topic] = made = magic, len(data).to_bytes(length_bytes, "big") + data
    return made


def _host(host: str) -> bytes:
    made = _hosts.get(host)
    if made is None:
        if len(_hosts) >= _CACHED_MAX:
            _hosts.clear()
        _hosts[host] = made = host_bytes(host)
    return made
