"""Where the fields of a stored message lie, and where the next one may begin.

    total size, magic, body CRC, queue id, flag        5 x i32    0
    queue offset, commit log offset                    2 x i64   20
    sysFlag i32, born timestamp i64                              36
    born host                                          8 or 20   48
    store timestamp i64, store host                    8 or 20
    reconsume times i32, prepared transaction offset i64
    body length i32, body
    topic length (i8 in V1, i16 in V2), topic
    properties length i16, properties

The bytes are the same in the commit log and in every answer that carries messages.
Nothing here trusts a length before it is compared with the bytes that are there.

Source: `MessageDecoder`, `MessageVersion`, `MessageExtEncoder`.
"""

from __future__ import annotations

import re
import struct
from typing import Final, NamedTuple

from rmqcli.wire.message.system_flag import BORN_HOST_V6, STORE_HOST_V6

MAGIC_V1: Final = 0xDAA320A7  # MessageDecoder.MESSAGE_MAGIC_CODE
MAGIC_V2: Final = 0xDAA320AB  # MESSAGE_MAGIC_CODE_V2, since 5.1.0: longer topics
MAGIC_BLANK: Final = 0xCBD43194  # CommitLog.BLANK_MAGIC_CODE: filler at a file's end

#: Everything up to the body of a record with IPv4 hosts; hosts are skipped. Lengths are
#: read unsigned, so that a negative one is simply too large.
FIXED_V4: Final = struct.Struct(">IIiiiqqiq8xq8xiqI")

#: Size of a record with nothing in it: IPv4 hosts, V1.
RECORD_BYTES_MIN: Final = 91
#: Four times the largest frame that brokers take by default, which bounds a message.
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024

#: Up to and with sysFlag, the same in every form.
_HEAD: Final = struct.Struct(">IIiiiqqi")

_SIZE_AND_MAGIC: Final = struct.Struct(">II")
#: A size below 64 MiB and a known magic; looked ahead, so that matches may overlap.
_RECORD_START: Final = re.compile(
    rb"(?=[\x00-\x03].{3}\xda\xa3\x20[\xa7\xab])", re.DOTALL
)


class Layout(NamedTuple):
    """Positions in the buffer of one record's parts; `end` is after its properties."""

    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    properties_at: int
    end: int


class RecordHead(NamedTuple):
    """The fields in front of the hosts."""

    total_bytes: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    commit_log_offset: int
    sys_flag: int


def read_head(buffer: bytes, at: int) -> RecordHead | None:
    """Return the first fields of the record at `at`, None when they are cut."""
    if at + _HEAD.size > len(buffer):
        return None
    return RecordHead._make(_HEAD.unpack_from(buffer, at))


def is_credible(head: RecordHead) -> bool:
    """Whether the numbers of a record that cannot be decoded may still be shown.

    Zeros and negative numbers are what memory without a message in it looks like.
    """
    return (
        head.total_bytes > 0
        and head.magic != 0
        and head.queue_id >= 0
        and head.queue_offset >= 0
        and head.commit_log_offset >= 0
    )


def hosts_bytes_extra(sys_flag: int) -> int:
    """Return by how much IPv6 hosts make the record longer: 0, 12 or 24."""
    return 12 * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))


def find_layout(buffer: bytes, at: int, head: RecordHead) -> Layout | str:
    """Return where the parts of the record at `at` lie by its own inner lengths.

    The total size is not looked at. A text instead says which length leads out of the
    buffer, or that the magic is of no version.
    """
    if head.magic not in (MAGIC_V1, MAGIC_V2):
        return f"magic 0x{head.magic:08X} is of no known message version"
    available = len(buffer)
    topic_length_bytes = 1 if head.magic == MAGIC_V1 else 2
    body_at = at + FIXED_V4.size + hosts_bytes_extra(head.sys_flag)
    if body_at > available:
        return f"record ends after {available - at} bytes, inside its fixed fields"
    body_bytes = int.from_bytes(buffer[body_at - 4 : body_at], "big")
    body_end = body_at + body_bytes
    topic_at = body_end + topic_length_bytes
    if topic_at > available:
        signed = int.from_bytes(buffer[body_at - 4 : body_at], "big", signed=True)
        return f"body length {signed} is over the {available - body_at} bytes left"
    topic_end = topic_at + int.from_bytes(buffer[body_end:topic_at], "big")
    properties_at = topic_end + 2
    if properties_at > available:
        return (
            f"topic length {topic_end - topic_at} is over "
            f"the {available - topic_at} bytes left"
        )
    end = properties_at + int.from_bytes(buffer[topic_end:properties_at], "big")
    if end > available:
        return (
            f"properties length {end - properties_at} is over "
            f"the {available - properties_at} bytes left"
        )
    return Layout(body_at, body_end, topic_at, topic_end, properties_at, end)


def is_boundary(buffer: bytes, at: int) -> bool:
    """Whether a record may begin at `at`: the end of the buffer, or a known magic."""
    if at == len(buffer):
        return True
    if at + _SIZE_AND_MAGIC.size > len(buffer):
        return False
    magic = _SIZE_AND_MAGIC.unpack_from(buffer, at)[1]
    return magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)


def find_next_record(buffer: bytes, at: int) -> int:
    """Return where the next whole record after `at` begins, len(buffer) if nowhere.

    Only a record whose inner lengths add up to its total size counts, so that a magic
    inside a body is hardly ever mistaken for one. Linear: each place is looked at once.
    """
    for match in _RECORD_START.finditer(buffer, at + 1):
        start = match.start()
        head = read_head(buffer, start)
        if head is None:
            break
        layout = find_layout(buffer, start, head)
        if isinstance(layout, Layout) and layout.end == start + head.total_bytes:
            return start
    return len(buffer)


def as_bytes(buffer: bytes | bytearray | memoryview) -> bytes:
    """Return `buffer` itself if it is bytes, else a copy: records keep slices of it."""
    return buffer if isinstance(buffer, bytes) else bytes(buffer)
