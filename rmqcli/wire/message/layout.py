"""The positions of the fields in a stored message.

    total size, magic, body CRC, queue id, flag        5 x i32    0
    queue offset, commit log offset                    2 x i64   20
    sysFlag i32, born timestamp i64                              36
    born host                                          8 or 20   48
    store timestamp i64, store host                    8 or 20
    reconsume times i32, prepared transaction offset i64
    body length i32, body
    topic length (i8 in V1, i16 in V2), topic
    properties length i16, properties

The bytes are the same in the commit log and in every answer that carries messages. Each
reader and writer of records takes its struct from the table `FIXED_FIELDS`. A length is
not trusted before it is compared with the number of bytes available.

Source: `MessageDecoder`, `MessageVersion`, `MessageExtEncoder`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.wire.message.system_flag import BORN_HOST_V6

if TYPE_CHECKING:
    from collections.abc import Iterable

MAGIC_V1: Final = 0xDAA320A7  # MessageDecoder.MESSAGE_MAGIC_CODE
MAGIC_V2: Final = 0xDAA320AB  # MESSAGE_MAGIC_CODE_V2, since 5.1.0: longer topics
MAGIC_BLANK: Final = 0xCBD43194  # CommitLog.BLANK_MAGIC_CODE: filler at a file's end

#: The fields in front of the body of a record with IPv4 hosts, in order, and their
#: struct codes. Lengths are unsigned, so that a negative one is simply too large.
FIXED_FIELDS: Final = {
    "total_bytes": "I",
    "magic": "I",
    "body_crc": "i",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "commit_log_offset": "q",
    "sys_flag": "i",
    "born_timestamp": "q",
    "born_host": "8s",
    "store_timestamp": "q",
    "store_host": "8s",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "body_bytes": "I",
}
#: Four times the largest frame that brokers take by default, which bounds a message.
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024


def field_format(names: Iterable[str]) -> str:
    """Return the struct format of these fixed fields, which skips the others.

    It begins at the first byte of the record and ends after the last field named.
    """
    wanted = set(names)
    if unknown := wanted - FIXED_FIELDS.keys():
        raise ValueError(f"not fixed fields of a record: {sorted(unknown)}")
    text, skipped_bytes = ">", 0
    for name, code in FIXED_FIELDS.items():
        if name not in wanted:
            skipped_bytes += struct.calcsize(f">{code}")
            continue
        text += f"{skipped_bytes}x{code}" if skipped_bytes else code
        skipped_bytes = 0
    return text


def field_struct(names: Iterable[str]) -> struct.Struct:
    """Return the struct of these fixed fields, as `field_format` describes it."""
    return struct.Struct(field_format(names))


def field_at(name: str) -> int:
    """Return where a fixed field of a record with IPv4 hosts begins."""
    return field_struct([name]).size - struct.calcsize(f">{FIXED_FIELDS[name]}")


class RecordHead(NamedTuple):
    """The fields in front of the hosts, which every form of record has."""

    total_bytes: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int


class Layout(NamedTuple):
    """The positions of a record's parts in the buffer; `end` follows its properties."""

    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    properties_at: int
    end: int


#: Size of the fields in front of the body when both hosts are IPv4.
FIXED_BYTES: Final = field_struct(FIXED_FIELDS).size
#: Those fields without the hosts.
FIXED_WITHOUT_HOSTS: Final = field_struct(
    FIXED_FIELDS.keys() - {"born_host", "store_host"}
)
SIZE_AND_MAGIC: Final = field_struct(["total_bytes", "magic"])
_HEAD: Final = field_struct(RecordHead._fields)

BORN_HOST_AT: Final = field_at("born_host")
#: After an IPv4 born host; an IPv6 one moves it by 12.
STORE_HOST_AT: Final = field_at("store_host")
#: Where the body begins in the record, by the two host bits of the sysFlag.
BODY_AT: Final = (FIXED_BYTES, FIXED_BYTES + 12, FIXED_BYTES + 12, FIXED_BYTES + 24)
_STORE_TIMESTAMP_AT: Final = field_at("store_timestamp")

#: Size of a record with nothing in it: IPv4 hosts, V1.
RECORD_BYTES_MIN: Final = FIXED_BYTES + 3


def read_head(buffer: bytes, at: int) -> RecordHead | None:
    """Return the first fields of the record at `at`, or None when they are cut off."""
    if at + _HEAD.size > len(buffer):
        return None
    return RecordHead._make(_HEAD.unpack_from(buffer, at))


def is_credible(head: RecordHead) -> bool:
    """Whether the numbers of a record that cannot be decoded may still be shown.

    Zeros and negative numbers are typical of bytes that are not a message.
    """
    return (
        head.total_bytes > 0
        and head.magic != 0
        and head.queue_id >= 0
        and head.queue_offset >= 0
        and head.commit_log_offset >= 0
    )


def store_timestamp_ms(buffer: bytes, at: int, sys_flag: int) -> int:
    """Return when the record at `at`, whose sysFlag is `sys_flag`, was stored."""
    start = at + _STORE_TIMESTAMP_AT + (12 if sys_flag & BORN_HOST_V6 else 0)
    return int.from_bytes(buffer[start : start + 8], "big", signed=True)


def find_layout(buffer: bytes, at: int, head: RecordHead) -> Layout | str:
    """Return the positions of the parts of the record at `at`, by its inner lengths.

    The total size is not considered. If a length leads out of the buffer, or the magic
    is that of no known version, the result is a text that says so.
    """
    if head.magic not in (MAGIC_V1, MAGIC_V2):
        return f"magic 0x{head.magic:08X} is not that of a known message version"
    available = len(buffer)
    topic_length_bytes = 1 if head.magic == MAGIC_V1 else 2
    body_at = at + BODY_AT[head.sys_flag >> 4 & 3]
    if body_at > available:
        return f"record ends after {available - at} bytes, inside its fixed fields"
    body_bytes = int.from_bytes(buffer[body_at - 4 : body_at], "big")
    body_end = body_at + body_bytes
    topic_at = body_end + topic_length_bytes
    if topic_at > available:
        signed = int.from_bytes(buffer[body_at - 4 : body_at], "big", signed=True)
        return f"body length {signed} exceeds the {available - body_at} bytes left"
    topic_end = topic_at + int.from_bytes(buffer[body_end:topic_at], "big")
    properties_at = topic_end + 2
    if properties_at > available:
        return (
            f"topic length {topic_end - topic_at} exceeds "
            f"the {available - topic_at} bytes left"
        )
    end = properties_at + int.from_bytes(buffer[topic_end:properties_at], "big")
    if end > available:
        return (
            f"properties length {end - properties_at} exceeds "
            f"the {available - properties_at} bytes left"
        )
    return Layout(body_at, body_end, topic_at, topic_end, properties_at, end)
