"""The bits of a stored message's sysFlag.

Source: `MessageSysFlag` in apache/rocketmq.
"""

from __future__ import annotations

import enum
from typing import Final

COMPRESSED: Final = 0x1  # COMPRESSED_FLAG
MULTI_TAGS: Final = 0x2  # MULTI_TAGS_FLAG
TRANSACTION_PREPARED: Final = 0x4  # TRANSACTION_PREPARED_TYPE
TRANSACTION_COMMIT: Final = 0x8  # TRANSACTION_COMMIT_TYPE
TRANSACTION_ROLLBACK: Final = 0xC  # TRANSACTION_ROLLBACK_TYPE
BORN_HOST_V6: Final = 0x10  # BORNHOST_V6_FLAG, since 4.6.0
STORE_HOST_V6: Final = 0x20  # STOREHOSTADDRESS_V6_FLAG, since 4.6.0
NEED_UNWRAP: Final = 0x40  # NEED_UNWRAP_FLAG, since 4.9.4
INNER_BATCH: Final = 0x80  # INNER_BATCH_FLAG, since 4.9.4

#: With any of these bits a record may have IPv6 hosts or hold a batch: fast readers,
#: which take every field from a fixed position, leave it to `decode_messages`.
SPECIAL_LAYOUT: Final = BORN_HOST_V6 | STORE_HOST_V6 | NEED_UNWRAP | INNER_BATCH
#: With any of these bits the bytes at the body's fixed position are not the body.
SPECIAL_BODY: Final = SPECIAL_LAYOUT | COMPRESSED

_COMPRESSION_SHIFT: Final = 8
_COMPRESSION_MASK: Final = 0x700


class CompressionType(enum.IntEnum):
    """The compression of a body; part of the flag since 4.9.4."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_type(sys_flag: int) -> CompressionType | int:
    """Return the type that the flag names (0 is zlib), or the number if it has no name.

    Meaningful only when `COMPRESSED` is set.
    """
    number = (sys_flag & _COMPRESSION_MASK) >> _COMPRESSION_SHIFT
    if number == 0:
        return CompressionType.ZLIB
    try:
        return CompressionType(number)
    except ValueError:
        return number


def compressed_with(kind: CompressionType) -> int:
    """Return the flags of a body that is compressed in this way."""
    return COMPRESSED | kind << _COMPRESSION_SHIFT


def content_flags(sys_flag: int) -> int:
    """Return the flags that tell of body and tags; a copy of the message keeps them."""
    return sys_flag & (COMPRESSED | _COMPRESSION_MASK | MULTI_TAGS)


def transaction_type(sys_flag: int) -> int:
    """Return 0 or one of the three `TRANSACTION_` values."""
    return sys_flag & TRANSACTION_ROLLBACK


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """Return the flag with its transaction bits replaced."""
    return sys_flag & ~TRANSACTION_ROLLBACK | transaction
