"""Frames are found in any cut of the stream, or refused from their first bytes."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import FrameError
from rmqcli.wire.frame import (
    FRAME_LENGTH_MAX,
    READ_SIZE_BYTES,
    Frame,
    FrameBuffer,
    encode_frame,
)
from tests.kit.rows import each_row

FRAMES = st.lists(
    st.builds(
        Frame,
        serialize_type=st.sampled_from([0, 1]),
        header=st.binary(min_size=1, max_size=64),
        body=st.binary(max_size=64),
    ),
    max_size=5,
)


def receive_by_writing(buffer: FrameBuffer, data: bytes) -> list[Frame]:
    """Write `data` to the buffer as a socket's recv_into does."""
    frames = []
    while data:
        room = buffer.writable()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        room.release()
        data = data[count:]
        frames += buffer.wrote(count)
    return frames


def feed_bytewise(buffer: FrameBuffer, data: bytes) -> list[Frame]:
    """Feed the bytes one by one, as from the slowest sender."""
    return [f for at in range(len(data)) for f in buffer.feed(data[at : at + 1])]


def stream_of(frames):
    return b"".join(encode_frame(f.serialize_type, f.header, f.body) for f in frames)


def test_encode_frame_is_what_java_writes():
    """Java wrote these bytes for a header of 0x164 bytes without a body."""
    data = encode_frame(0, b"x" * 0x164, b"")

    assert data[:8].hex(" ") == "00 00 01 68 00 00 01 64"


@each_row(
    "data",
    [
        pytest.param("7fffffff 00000000", id="2 GiB frame"),
        pytest.param("ffffffff 00000000", id="negative length"),
        pytest.param("00000000 00000000", id="length 0"),
        pytest.param("00000003 00000000", id="shorter than its own header length"),
        pytest.param("00fffffd 00000001", id="16 MiB + 1, length word included"),
        pytest.param("00000006 00000003", id="header longer than frame"),
        pytest.param("00000010 00000000", id="header of 0 bytes"),
        pytest.param("00000010 02000002", id="serialize type 2"),
        pytest.param("00000010 ff000002", id="serialize type 255"),
        pytest.param(b"PRI * HTTP/2".hex(), id="HTTP/2"),
        pytest.param(b"GET / HT".hex(), id="HTTP/1.1"),
        pytest.param("16030100 c8010000", id="TLS hello"),
        pytest.param("15030100 02022800", id="TLS alert"),
    ],
)
def test_feed_refuses_what_cannot_be_a_frame(data):
    """It is refused from the first 8 bytes, before any of the body is buffered."""
    data = bytes.fromhex(data)
    with pytest.raises(FrameError):
        FrameBuffer().feed(data[:8])

    buffer = FrameBuffer()
    with pytest.raises(FrameError):
        feed_bytewise(buffer, data[:8])


@pytest.mark.parametrize("data", [b"PRI ", b"GET ", b"\x16\x03\x01\x00", b"\0\0\0\3"])
def test_a_wrong_length_is_refused_from_its_4_bytes(data):
    """Otherwise a peer that sends only these bytes would be waited for."""
    with pytest.raises(FrameError):
        FrameBuffer().feed(data)


def test_largest_frame_passes_and_the_next_is_refused():
    """Java accepts a length of 16777212 and closes on 16777213."""
    body = bytes(FRAME_LENGTH_MAX - 8 - 2)
    (frame,) = FrameBuffer().feed(encode_frame(0, b"{}", body))

    assert len(frame.body) == len(body)
    with pytest.raises(FrameError):
        encode_frame(0, b"{}", body + b"x")
    with pytest.raises(FrameError):
        encode_frame(0, bytes(1 << 24), b"")


def test_a_claimed_frame_gets_no_memory():
    """1000 peers that announce 16 MiB and send 8 bytes must not cost 16 GB."""
    buffer = FrameBuffer()
    tracemalloc.start()
    try:
        assert buffer.feed(bytes.fromhex("00fffffc 00000043")) == []
        assert len(buffer.writable()) <= 2 * READ_SIZE_BYTES
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert buffer.pending_bytes == 8


def test_a_large_frame_leaves_no_large_buffer():
    """The buffer of a long-lived connection does not stay as large as its largest
    frame."""
    buffer = FrameBuffer()
    assert len(buffer.feed(encode_frame(0, b"{}", bytes(4 << 20)))) == 1

    assert buffer.pending_bytes == 0
    assert len(buffer.writable()) <= 1024 * 1024


@given(sent=FRAMES, data=st.data())
def test_any_cut_of_the_stream_gives_the_same_frames(sent, data):
    """TCP may deliver one byte at a time or three frames at once."""
    stream = stream_of(sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    fed, written = FrameBuffer(), FrameBuffer()
    from_feed, from_writing = [], []

    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        from_feed += fed.feed(stream[start:end])
        from_writing += receive_by_writing(written, stream[start:end])

    assert from_feed == from_writing == sent
    assert fed.pending_bytes == written.pending_bytes == 0


@given(
    sizes=st.lists(st.integers(0, 300_000), min_size=1, max_size=6),
    step=st.integers(1_000, 200_000),
)
def test_frames_larger_than_a_read_arrive_whole(sizes, step):
    """A frame may need many reads, and a read may have several frames."""
    sent = [Frame(0, b"{}", bytes([i % 251]) * size) for i, size in enumerate(sizes)]
    stream = stream_of(sent)
    buffer, received = FrameBuffer(), []

    for at in range(0, len(stream), step):
        received += receive_by_writing(buffer, stream[at : at + step])

    assert received == sent


def test_one_byte_at_a_time():
    """A frame is returned as soon as it is complete."""
    sent = [Frame(0, b"{}", b"body"), Frame(1, b"header", b"")]

    assert feed_bytewise(FrameBuffer(), stream_of(sent)) == sent


@given(st.binary(max_size=300))
def test_random_bytes_raise_only_frame_error(data):
    """No more bytes are pending afterwards than were fed."""
    buffer = FrameBuffer()
    try:
        buffer.feed(data)
    except FrameError:
        return
    assert buffer.pending_bytes <= len(data)
