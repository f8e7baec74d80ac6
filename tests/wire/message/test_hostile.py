"""Hostile records are read in bounded memory and time, and affect no other record."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.wire.message.decode import DecodeFailure, StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.layout import MAGIC_V1, MAGIC_V2
from tests.kit.rows import each_row

I32 = [-(1 << 31), -1, 0, 1, 87, 88, 90, 0x7FFF, 0xFFFF, 1 << 24, (1 << 31) - 1]
I64 = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]


def good(queue_offset: int, *, magic: int = MAGIC_V1) -> bytes:
    fields = MessageFields(
        topic="TopicTest",
        body=b"body of %d" % queue_offset,
        queue_id=3,
        queue_offset=queue_offset,
        properties={"TAGS": "A"},
    )
    return encode_message(fields, magic=magic)


def filler(states: int, length: int) -> bytes:
    """`length` bytes that end a file of the commit log, and state another length."""
    return struct.pack(">II", states, 0xCBD43194).ljust(length, b"\0")


def read_everything(message: StoredMessage) -> None:
    """Read every attribute of a delivered message, which must not raise."""
    assert isinstance(message.raw_body, bytes)
    assert isinstance(message.topic, str)
    assert isinstance(message.properties, dict)
    assert isinstance(message.born_host + message.store_host, str)
    assert len(message.offset_msg_id) in (32, 56)
    assert message.msg_id is None or message.msg_id
    repr(message)


FIELDS = [
    *[("i", at, value) for at in (0, 4, 8, 12, 16, 36, 72, 84) for value in I32],
    *[("q", at, value) for at in (20, 28, 40, 48, 56, 64, 76) for value in I64],
    *[("b", 88 + 9, value) for value in (-128, -1, 0, 1, 127)],  # topic length
    *[("h", 88 + 9 + 1 + 9, value) for value in (-32768, -1, 0, 32767)],  # properties
]


@each_row("magic", [MAGIC_V1, MAGIC_V2])
@each_row(("kind", "at", "value"), FIELDS)
def test_each_field_at_its_limits(kind, at, value, magic):
    """A wrong value in a field affects only its record; later ones are delivered."""
    bad = bytearray(good(2, magic=magic))
    struct.pack_into(f">{kind}", bad, at, value)
    found = decode_messages(good(1) + bytes(bad) + good(3) + good(4))
    messages = [one for one in found if isinstance(one, StoredMessage)]
    offsets = [one.queue_offset for one in messages]
    assert offsets[0] == 1
    assert offsets[-2:] == [3, 4]
    assert 3 <= len(found) <= 5
    for message in messages:
        read_everything(message)


def test_two_damaged_records_in_a_row():
    bad = bytearray(good(2))
    bad[4:8] = b"\x12\x34\x56\x78"
    found = decode_messages(good(1) + bytes(bad) * 2 + good(4))
    assert found[0].queue_offset == 1
    assert found[-1].queue_offset == 4
    failures = [one for one in found if isinstance(one, DecodeFailure)]
    assert b"".join(one.raw for one in failures) == bytes(bad) * 2
    assert failures[0].queue_offset == 2


def test_a_failure_says_what_is_wrong_and_where():
    bad = bytearray(good(2))
    struct.pack_into(">i", bad, 84, -5)
    first = good(1)
    (_, failure) = decode_messages(first + bytes(bad))
    assert isinstance(failure, DecodeFailure)
    assert failure.at == len(first)
    assert (failure.queue_id, failure.queue_offset) == (3, 2)
    assert failure.error.startswith("body length -5 exceeds the ")
    assert failure.raw == bytes(bad)


@pytest.mark.parametrize("length", [8, 9, 90, 200])
def test_a_filler_is_passed_over(length):
    data = good(1) + filler(length, length) + good(2)
    assert [one.queue_offset for one in decode_messages(data)] == [1, 2]
    assert [one.queue_offset for one in decode_messages(data[: -len(good(2))])] == [1]


@pytest.mark.parametrize(
    ("states", "length", "error"),
    [
        (7, 200, "filler states 7 bytes"),
        (201, 200, "filler states 201 bytes"),
        (0xFFFFFFFF, 200, "filler states 4294967295 bytes"),
        (7, 8, "record ends after 8 bytes, inside its fixed fields"),
        (9, 8, "record ends after 8 bytes, inside its fixed fields"),
    ],
)
def test_a_filler_of_another_size_is_a_failure(states, length, error):
    message, failure = decode_messages(good(1) + filler(states, length))
    assert message.queue_offset == 1
    assert isinstance(failure, DecodeFailure)
    assert failure.error == error
    assert failure.raw == filler(states, length)


def test_a_message_inside_a_body_is_not_delivered():
    """Bodies may contain stored messages; only a wrong total size starts a search."""
    outer = encode_message(MessageFields(topic="T", body=good(7), queue_offset=1))
    bad = bytearray(outer)
    struct.pack_into(">i", bad, 84, 1 << 24)
    for data, expected in ((outer, [1]), (bytes(bad) + good(2), [1, 2])):
        assert [one.queue_offset for one in decode_messages(data)] == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0" * (1 << 20), id="zeros"),
        pytest.param(b"\xff" * (1 << 20), id="ones"),
        pytest.param(b"\xda\xa3\x20\xa7" * (1 << 18), id="magic only"),
        pytest.param(b"\0\0\0\x5b\xda\xa3\x20\xa7" * (1 << 17), id="size and magic"),
        pytest.param(b"\0\0\0\x08\xcb\xd4\x31\x94" * (1 << 17), id="empty fillers"),
    ],
)
def test_a_mebibyte_without_a_record_takes_linear_time(data):
    started_ns = time.process_time_ns()
    found = decode_messages(data)
    assert time.process_time_ns() - started_ns < 5_000_000_000  # usually up to 0.3 s
    assert sum(len(one.raw) for one in found if isinstance(one, DecodeFailure)) <= len(
        data
    )


@given(st.binary(max_size=400))
def test_random_bytes_never_raise(data):
    for one in decode_messages(data):
        if isinstance(one, StoredMessage):
            read_everything(one)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw good records in which a few bytes are changed, inserted or removed."""
    made = [good(offset) for offset in range(draw(st.integers(1, 4)))]
    data = bytearray(b"".join(made))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@given(mutated())
def test_no_byte_is_dropped(data):
    """Each byte belongs to a message, to a failure or to a filler."""
    place = 0
    for one in decode_messages(data):
        assert one.at == place
        if isinstance(one, DecodeFailure):
            assert one.raw == data[place : place + len(one.raw)]
            place += len(one.raw)
        else:
            read_everything(one)
            end = one.at + 88 + one.body_bytes
            place = data.index(one.raw_properties, end) + len(one.raw_properties)
    assert place == len(data)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_damaged_records_with_a_true_size_affect_no_other(is_good, data):
    """The damage may be anywhere else, as long as the total size is correct."""
    parts = []
    for offset, fine in enumerate(is_good):
        record = bytearray(good(offset))
        if not fine:
            struct.pack_into(">I", record, 84, data.draw(st.integers(4096, 1 << 31)))
        parts.append(bytes(record))
    found = decode_messages(b"".join(parts))
    assert [one.queue_offset for one in found] == list(range(len(is_good)))
    assert [isinstance(one, StoredMessage) for one in found] == is_good
