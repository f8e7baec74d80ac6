"""Inflates message bodies, always with an upper bound.

Any producer can send a compressed body, and zlib reaches a ratio of 1029:1, so a 16 MiB
frame could inflate to 16 GiB. Java has no bound; here inflating stops at the limit.

Clients of a proxy may compress with gzip, and the proxy stores that as if it were zlib:
Java's consumers of a broker cannot read it, here both are inflated.

Source: `ZlibCompressor`, `Lz4Compressor` (frame format) and `ZstdCompressor`.
"""

from __future__ import annotations

import sys
import zlib
from typing import Final

from rmqcli.errors import DecodeError
from rmqcli.wire.message.system_flag import (
    COMPRESSED,
    CompressionType,
    compression_type,
)

#: Largest inflated body, in bytes: four times Java's default maxMessageSize.
INFLATED_MAX: Final = 16 * 1024 * 1024
#: A window size for `zlib` with which it accepts a gzip or a zlib header.
_EITHER_HEADER: Final = 32 + zlib.MAX_WBITS


def inflate(data: bytes, sys_flag: int, *, limit_bytes: int = INFLATED_MAX) -> bytes:
    """Return the body as its producer gave it: `data` itself unless marked compressed.

    Raises DecodeError when the data is damaged, is truncated, inflates to more than
    `limit_bytes`, or has an unknown compression type. Bytes after the end of the
    compressed data are ignored, as in Java.
    """
    if not sys_flag & COMPRESSED:
        return data
    kind = compression_type(sys_flag)
    if kind == CompressionType.ZLIB:
        return _inflate_zlib(data, limit_bytes)
    if kind == CompressionType.LZ4:
        return _inflate_lz4(data, limit_bytes)
    if kind == CompressionType.ZSTD:
        return _inflate_zstd(data, limit_bytes)
    raise DecodeError(f"body has unknown compression type {int(kind)}")


def deflate_zlib(data: bytes, *, level: int = 5) -> bytes:
    """Return `data` as Java producers compress it (compressLevel 5, RFC 1950)."""
    return zlib.compress(data, level)


def never_empty(body: bytes) -> tuple[bytes, int]:
    """Return a body as a request for one message may carry it, and its system flag.

    Brokers from 5.0 on refuse an empty body, although they store one of a batch; so it
    is compressed, and consumers find it empty again.
    """
    return (body, 0) if body else (deflate_zlib(body), COMPRESSED)


def _too_large(limit_bytes: int) -> DecodeError:
    return DecodeError(f"compressed body inflates to more than {limit_bytes} bytes")


def _whole(
    inflated: bytes, kind: str, data: bytes, limit_bytes: int, *, is_end: bool
) -> bytes:
    """Return what was inflated. Raises DecodeError unless it is all of the body."""
    if len(inflated) > limit_bytes:
        raise _too_large(limit_bytes)
    if not is_end:
        raise DecodeError(f"{kind} body is truncated after {len(data)} bytes")
    return inflated


def _inflate_zlib(data: bytes, limit_bytes: int) -> bytes:
    stream = zlib.decompressobj(_EITHER_HEADER)
    try:
        inflated = stream.decompress(data, limit_bytes + 1)
    except zlib.error as error:
        raise DecodeError(f"body is not valid zlib: {error}") from error
    return _whole(inflated, "zlib", data, limit_bytes, is_end=stream.eof)


def _inflate_lz4(data: bytes, limit_bytes: int) -> bytes:
    import lz4.frame

    stream = lz4.frame.LZ4FrameDecompressor()
    try:
        inflated: bytes = stream.decompress(data, max_length=limit_bytes + 1)
    except RuntimeError as error:
        raise DecodeError(f"body is not a valid LZ4 frame: {error}") from error
    return _whole(inflated, "LZ4", data, limit_bytes, is_end=stream.eof)


def _inflate_zstd(data: bytes, limit_bytes: int) -> bytes:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    # By libzstd's default no frame may need a window of more than 128 MiB.
    stream = zstd.ZstdDecompressor()
    try:
        # None if no size is declared, as by Java's stream writer.
        if (zstd.get_frame_info(data).decompressed_size or 0) > limit_bytes:
            raise _too_large(limit_bytes)
        inflated = stream.decompress(data, limit_bytes + 1)
    except zstd.ZstdError as error:
        raise DecodeError(f"body is not valid zstd: {error}") from error
    return _whole(inflated, "zstd", data, limit_bytes, is_end=stream.eof)
