"""Bodies of every compression are inflated, but never beyond the limit."""

from __future__ import annotations

import gzip
import time
import zlib

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import DecodeError
from rmqcli.wire.compression import INFLATED_MAX, deflate_zlib, inflate
from rmqcli.wire.message import system_flag as flags
from rmqcli.wire.message.system_flag import CompressionType
from tests.golden_vectors import load
from tests.kit.rows import each_row
from tests.kit.zstd import zstd

ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201


def zstd_stream(data: bytes) -> bytes:
    """Return a frame that does not declare its size, as Java's output stream writes."""
    options: dict[int, int] = {zstd.CompressionParameter.content_size_flag: 0}
    return zstd.compress(data, options=options)


COMPRESSIONS = [
    pytest.param(ZLIB, deflate_zlib, id="zlib"),
    pytest.param(1, deflate_zlib, id="zlib, type 0"),
    # What a client of a proxy compresses with gzip is stored without a type.
    pytest.param(1, gzip.compress, id="gzip, type 0"),
    pytest.param(LZ4, lz4.frame.compress, id="lz4"),
    pytest.param(ZSTD, zstd.compress, id="zstd"),
    pytest.param(ZSTD, zstd_stream, id="zstd without size"),
]


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSIONS)
@given(data=st.binary(max_size=2000))
def test_what_is_compressed_inflates(sys_flag, compress, data):
    assert inflate(compress(data), sys_flag) == data


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSIONS)
def test_bytes_after_the_end_are_ignored(sys_flag, compress):
    assert inflate(compress(b"hello") + b"\0\0", sys_flag) == b"hello"


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSIONS)
def test_exactly_the_limit_is_allowed(sys_flag, compress):
    data = b"x" * 1000
    assert inflate(compress(data), sys_flag, limit_bytes=1000) == data
    with pytest.raises(DecodeError, match="inflates to more than 999 bytes"):
        inflate(compress(data), sys_flag, limit_bytes=999)


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSIONS)
def test_cut_at_every_byte(sys_flag, compress):
    """A cut body never gives a shorter body instead of an error."""
    whole = compress(b"hello " * 50)
    for end in range(len(whole)):
        try:
            assert inflate(whole[:end], sys_flag) == b"hello " * 50
            assert end > len(whole) - 5, "only a checksum may be missing"
        except DecodeError:
            pass


@pytest.mark.parametrize(("sys_flag", "compress"), COMPRESSIONS)
def test_a_bomb_stops_at_the_limit(sys_flag, compress):
    bomb = compress(b"\0" * (64 << 20))
    started_ns = time.process_time_ns()
    with pytest.raises(
        DecodeError, match=f"inflates to more than {INFLATED_MAX} bytes"
    ):
        inflate(bomb, sys_flag)
    assert time.process_time_ns() - started_ns < 500_000_000  # usually about 20 ms


def test_a_zstd_frame_that_declares_a_terabyte():
    """No memory is allocated for a size that is only declared."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0xE0]) + (1 << 40).to_bytes(8, "little")
    with pytest.raises(DecodeError, match="inflates to more than"):
        inflate(header + b"\x01\x00\x00", ZSTD)


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
@pytest.mark.parametrize("data", [b"", b"\0", b"garbage garbage garbage"])
def test_garbage(sys_flag, data):
    with pytest.raises(DecodeError):
        inflate(data, sys_flag)


@pytest.mark.parametrize("kind", [4, 5, 6, 7])
def test_unknown_type(kind):
    with pytest.raises(DecodeError, match=f"unknown compression type {kind}"):
        inflate(b"x", kind << 8 | 1)


@pytest.mark.parametrize("sys_flag", [0, 0x100, 0x700])
def test_the_type_means_nothing_without_the_bit(sys_flag):
    assert inflate(b"as it is", sys_flag) == b"as it is"


@each_row("case", [c for c in load("ids") if c["kind"] == "compression_type"])
def test_the_flag_names_the_type_as_in_java(case):
    found = flags.compression_type(case["sys_flag"])
    if case["type"].startswith("error"):
        assert not isinstance(found, CompressionType)
    else:
        assert isinstance(found, CompressionType)
        assert found.name == case["type"]


@each_row("case", [c for c in load("ids") if c["kind"] == "message_sys_flag"])
def test_sys_flag_bits_as_in_java(case):
    value = case["value"]
    assert flags.transaction_type(value) == case["transaction"]
    committed = flags.with_transaction_type(value, flags.TRANSACTION_COMMIT)
    assert committed == case["reset_to_commit"]


def test_zlib_is_compressed_as_by_java_producers_unless_a_level_is_given():
    data = b"".join(b"%d," % (number * number) for number in range(3_000))
    assert deflate_zlib(data) == zlib.compress(data, 5) != zlib.compress(data, 6)
    assert deflate_zlib(data, level=9) == zlib.compress(data, 9)


@pytest.mark.parametrize(("window", "is_taken"), [(27, True), (28, False)])
def test_a_zstd_frame_that_needs_a_window_of_more_than_128_mib_is_refused(
    window, is_taken
):
    """The window is memory that is allocated for a body of any size."""
    head = b"\x28\xb5\x2f\xfd" + bytes([0, (window - 10) << 3])
    data = head + (3 << 3 | 1).to_bytes(3, "little") + b"abc"
    if is_taken:
        assert inflate(data, ZSTD) == b"abc"
    else:
        with pytest.raises(DecodeError, match="too much memory"):
            inflate(data, ZSTD)
