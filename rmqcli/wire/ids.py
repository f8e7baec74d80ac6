"""Message ids, and the small numbers that Java derives from text and bytes.

There are two kinds of id, of the same lengths, that look alike: the offset id, with
which the broker says where the record is stored, and the unique id, which the producer
puts into UNIQ_KEY.

Source: `MessageDecoder.createMessageId`/`decodeMessageId`, `MessageClientIDSetter`,
`String.hashCode`, `UtilAll.crc32`, `Hashing.consistentHash` of Guava.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import tzinfo

_ID_LENGTHS: Final = (32, 56)  # hex digits with an IPv4 and an IPv6 address
_GRPC_ID: Final = re.compile("01[0-9A-Fa-f]{32}")
_GRPC_EPOCH_MS: Final = 1_609_459_200_000  # 2021-01-01
_MONTHS_MAX: Final = 24
_HOUR_MS: Final = 3_600_000
_CACHED_MAX: Final = 4096
_MASK64: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class OffsetMsgId:
    """The place of a record; `host` is the "ip:port" of its broker."""

    host: str
    commit_log_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueId:
    """The parts of a unique id, which a producer puts into UNIQ_KEY.

    `since_month_start_ms` counts from the first of the producer's current month, 00:00
    in its own time zone; the id does not say which month.
    """

    ip: str
    pid: int
    class_loader_hash: int
    since_month_start_ms: int
    counter: int


def host_text(raw: bytes) -> str:
    """Return "ip:port" of 8 or 20 stored bytes, an IPv6 one as `[fe80:0:...:1]:10911`.

    IPv6 is written as in Java. The port is a signed 32-bit number; it is shown even if
    it is not a valid port.
    """
    port = int.from_bytes(raw[-4:], "big", signed=True)
    if len(raw) == 8:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{port}"
    groups = struct.unpack_from(">8H", raw)
    return f"[{':'.join(format(group, 'x') for group in groups)}]:{port}"


@functools.lru_cache(_CACHED_MAX)  # a broker writes the same few with each message
def host_bytes(host: str) -> bytes:
    """Return the 8 or 20 stored bytes of "ip:port" or "[ip]:port".

    Raises ConfigError for anything else; names are not looked up.
    """
    import ipaddress

    ip, _, port = host.rpartition(":")
    try:
        address = ipaddress.ip_address(ip.removeprefix("[").removesuffix("]"))
        return address.packed + struct.pack(">i", int(port))
    except (ValueError, struct.error) as error:
        raise ConfigError(f"host {host!r} is not ip:port") from error


def encode_offset_msg_id(host: str, commit_log_offset: int) -> str:
    """Return the offset id of the record at this offset of the broker at `host`.

    `host` is "ip:port".
    """
    return (host_bytes(host) + struct.pack(">q", commit_log_offset)).hex().upper()


def decode_offset_msg_id(text: str) -> OffsetMsgId:
    """Read an offset id; lower-case digits are accepted.

    Raises ConfigError when it is not 32 or 56 hex digits, or the port is impossible.
    Port 0 and negative offsets are accepted; a unique id that is read as an offset id
    may contain them.
    """
    data = _hex_id(text)
    host = host_text(data[:-8])
    port = int.from_bytes(data[-12:-8], "big", signed=True)
    if not 0 <= port <= 0xFFFF:
        raise ConfigError(
            f"message id {text!r} is not an offset id: port {port} is not in 0..65535",
            hint="this looks like a unique id (UNIQ_KEY); search by that",
        )
    return OffsetMsgId(host, int.from_bytes(data[-8:], "big", signed=True))


def decode_unique_id(text: str) -> UniqueId:
    """Read a unique id; any 32 or 56 hex digits can be read as one.

    Raises ConfigError for other text.
    """
    import ipaddress

    data = _hex_id(text)
    pid, loader_hash, since_ms, counter = struct.unpack(">HIIH", data[-12:])
    return UniqueId(
        ip=str(ipaddress.ip_address(data[:-12])),
        pid=pid,
        class_loader_hash=loader_hash,
        since_month_start_ms=since_ms,
        counter=counter,
    )


def encode_unique_id(unique_id: UniqueId) -> str:
    """Return 32 or 56 upper-case hex digits; numbers keep the low bits that fit."""
    import ipaddress

    return (
        (
            ipaddress.ip_address(unique_id.ip).packed
            + struct.pack(
                ">HIIH",
                unique_id.pid & 0xFFFF,
                unique_id.class_loader_hash & 0xFFFFFFFF,
                unique_id.since_month_start_ms & 0xFFFFFFFF,
                unique_id.counter & 0xFFFF,
            )
        )
        .hex()
        .upper()
    )


def since_month_start_ms(now_ms: int, *, tz: tzinfo) -> int:
    """Return the ms since the first of the month, 00:00 in `tz`, for a unique id."""
    from datetime import datetime

    now = datetime.fromtimestamp(now_ms / 1000, tz)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return now_ms - int(start.timestamp() * 1000)


def made_at_ms(text: str, *, until_ms: int) -> Iterator[int]:
    """Yield the moments, up to `until_ms`, at which a client can have made a unique id.

    They are epoch ms, the newest first, for a client whose time zone is UTC: clients
    count in their own zone, whose offset has to be subtracted. Remoting clients count
    from the first of the month, and do not say of which; so there is one for each month
    of two years that is long enough. gRPC clients count seconds from 2021. There is
    none for a text that is not such an id. Source: MessageClientIDSetter;
    MessageIdCodec in apache/rocketmq-clients.
    """
    from datetime import UTC, datetime, timedelta

    if _GRPC_ID.fullmatch(text):
        found_ms = _GRPC_EPOCH_MS + int(text[-16:-8], 16) * 1_000
        if found_ms <= until_ms:
            yield found_ms
        return
    try:
        since_ms = decode_unique_id(text).since_month_start_ms
    except ConfigError:
        return
    until = datetime.fromtimestamp(until_ms / 1000, UTC)
    start = until.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(_MONTHS_MAX):
        start_ms = int(start.timestamp()) * 1_000
        next_month = (start + timedelta(days=31)).replace(day=1)
        # A month with a change to winter time is an hour longer.
        length_ms = int((next_month - start).total_seconds()) * 1_000 + _HOUR_MS
        if since_ms < length_ms and start_ms + since_ms <= until_ms:
            yield start_ms + since_ms
        start = (start - timedelta(days=1)).replace(day=1)


def java_string_hash(text: str) -> int:
    """Return `String.hashCode()`, a signed 32-bit number.

    It is also a message's tags code. Source: h = 31 * h + UTF-16 code unit.
    """
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def message_group_index(message_group: str, queue_count: int) -> int:
    """Return the index in a topic's sorted queues to which a proxy sends a group.

    That is a message group, or a sharding key in its place. When the number of queues
    changes, few groups move. Source: SendMessageQueueSelector, and
    Hashing.consistentHash of Guava.
    """
    state = java_string_hash(message_group) & _MASK64
    candidate = 0
    while True:
        state = (state * 2862933555777941757 + 1) & _MASK64
        after = int((candidate + 1) / (((state >> 33) + 1) / 2**31))
        if after >= queue_count:
            return candidate
        candidate = after


@functools.lru_cache(_CACHED_MAX)  # a topic has few tags
def tags_code(tags: str | None) -> int:
    """Return the tags code that brokers filter by, 0 without tags.

    Source: `tagsString2tagsCode`.
    """
    return java_string_hash(tags) if tags else 0


def crc32(data: bytes | memoryview) -> int:
    """Return the CRC-32 without its top bit, as `UtilAll.crc32` does."""
    return zlib.crc32(data) & 0x7FFFFFFF


def _hex_id(text: str) -> bytes:
    try:
        if len(text) in _ID_LENGTHS and text.isalnum():
            return bytes.fromhex(text)
    except ValueError:
        pass  # reported below, with the length
    raise ConfigError(
        f"message id {text!r} is not 32 or 56 hex digits but {len(text)} characters"
    )
