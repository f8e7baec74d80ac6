"""For each limit, the last value that is accepted and the first that is refused."""

from __future__ import annotations

import struct

import pytest

from rmqcli.errors import BodyError, FrameError, HeaderError
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.consumer import Connection, ProducerConnection
from rmqcli.wire.bodies.data_version import DataVersion
from rmqcli.wire.bodies.route import QueueDataBody
from rmqcli.wire.body import encode_body, from_json, to_float, to_int
from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.fields import declared
from rmqcli.wire.frame import Frame, FrameBuffer, SerializeType, encode_frame
from rmqcli.wire.header import Header, from_ext_fields
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.batch import BatchItem, encode_batch, split_batch
from rmqcli.wire.message.decode import DecodeFailure, StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.layout import (
    RecordHead,
    find_layout,
    is_credible,
    read_head,
)
from rmqcli.wire.version import version_name
from tests.kit.batch import decode_batch
from tests.kit.rows import each_row

KIB = 1024
FRAME_MAX = 16 * KIB * KIB
INT32, INT64 = 2**31, 2**63


# --- frames ---


def start_of(length: int, header_length: int, serialize_type: int = 0) -> bytes:
    return struct.pack(">iI", length, serialize_type << 24 | header_length)


@each_row(
    ("data", "is_taken"),
    [
        (start_of(5, 1), True),
        (start_of(4, 1), False),
        (start_of(100, 96), True),
        (start_of(100, 97), False),
        (start_of(100, 1), True),
        (start_of(100, 0), False),
        (start_of(FRAME_MAX - 4, 1), True),
        (start_of(FRAME_MAX - 3, 1), False),
        (start_of(100, 1, 1), True),
        (start_of(100, 1, 2), False),
        (struct.pack(">i", 4), False),
        (struct.pack(">i", 5), True),
        (struct.pack(">i", 4)[:3], True),
        (struct.pack(">i", -1)[:3], True),
    ],
)
def test_the_first_bytes_of_a_frame_decide(data, is_taken):
    buffer = FrameBuffer()
    if is_taken:
        assert buffer.feed(data) == []
        assert buffer.pending_bytes == len(data)
    else:
        with pytest.raises(FrameError):
            buffer.feed(data)


def test_a_frame_of_five_bytes_is_complete_with_its_last():
    buffer = FrameBuffer()
    assert buffer.feed(start_of(5, 1)) == []
    assert buffer.feed(b"{") == [Frame(0, b"{", b"")]
    assert buffer.pending_bytes == 0


@pytest.mark.parametrize("body_bytes", [FRAME_MAX - 9, FRAME_MAX - 8])
def test_the_largest_frame_that_is_written(body_bytes):
    if body_bytes == FRAME_MAX - 9:
        assert len(encode_frame(0, b"{", bytes(body_bytes))) == FRAME_MAX
    else:
        with pytest.raises(FrameError):
            encode_frame(0, b"{", bytes(body_bytes))


def room_after(pending_bytes: int, frame_bytes: int) -> int:
    """Return the room for the next read after `pending_bytes` of a frame."""
    buffer = FrameBuffer()
    data = start_of(frame_bytes - 4, 1) + bytes(pending_bytes)
    assert buffer.feed(data[:pending_bytes]) == []
    return len(buffer.writable())


@pytest.mark.parametrize(
    ("pending_bytes", "frame_bytes", "room_bytes"),
    [
        (192 * KIB, 10_000 * KIB, 64 * KIB),  # the rest of the first buffer
        (192 * KIB + 1, 10_000 * KIB, 256 * KIB),
        (256 * KIB, 10_000 * KIB, 256 * KIB),
        (448 * KIB + 1, 10_000 * KIB, 448 * KIB + 1),  # as much as is pending
        (448 * KIB + 1, 800 * KIB, 352 * KIB - 1),  # the rest of the frame
        (448 * KIB + 1, 600 * KIB, 256 * KIB),  # the minimum
    ],
)
def test_the_room_for_the_next_read_grows_with_what_is_here(
    pending_bytes, frame_bytes, room_bytes
):
    assert room_after(pending_bytes, frame_bytes) == room_bytes


def test_a_buffer_longer_than_a_mebibyte_is_given_back():
    buffer = FrameBuffer()
    body = bytes(3 * KIB * KIB)
    (frame,) = buffer.feed(encode_frame(0, b"{}", body))
    assert frame.body == body
    assert len(buffer.writable()) == 256 * KIB


# --- commands ---


@each_row("name", ["code", "opaque", "flag", "version"])
@each_row(
    ("value", "is_taken"),
    [(INT32 - 1, True), (INT32, False), (-INT32, True), (-INT32 - 1, False)],
)
def test_numbers_of_a_json_header_have_32_bits(name, value, is_taken):
    frame = Frame(0, f'{{"{name}":{value}}}'.encode(), b"")
    if is_taken:
        assert getattr(decode_command(frame), name) == value
    else:
        with pytest.raises(HeaderError, match="32 bits"):
            decode_command(frame)


@pytest.mark.parametrize(("digits", "is_taken"), [(19, True), (20, False)])
def test_a_number_as_text_has_nineteen_digits_at_most(digits, is_taken):
    frame = Frame(0, f'{{"code":"{"5".zfill(digits)}"}}'.encode(), b"")
    if is_taken:
        assert decode_command(frame).code == 5
    else:
        with pytest.raises(HeaderError, match="not a number"):
            decode_command(frame)


@pytest.mark.parametrize(("size", "is_taken"), [(32_767, True), (32_768, False)])
def test_a_key_of_a_binary_header_has_a_length_of_16_bits(size, is_taken):
    command = RemotingCommand(1, ext_fields={"k" * size: "v"})
    if is_taken:
        (frame,) = FrameBuffer().feed(encode_command(command, SerializeType.ROCKETMQ))
        assert decode_command(frame).ext_fields == command.ext_fields
    else:
        with pytest.raises(HeaderError, match="exceeds the limit of 32767"):
            encode_command(command, SerializeType.ROCKETMQ)


@declared
class Numbered(Header):
    """A header with one number."""

    number: int


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        (str(INT64 - 1), True),
        (str(INT64), False),
        (str(-INT64), True),
        (str(-INT64 - 1), False),
        ("9" * 18, True),
        ("9" * 17, True),
        ("", False),
    ],
)
def test_numbers_of_a_header_have_64_bits(text, is_taken):
    if is_taken:
        assert from_ext_fields(Numbered, {"number": text}).number == int(text)
    else:
        with pytest.raises(HeaderError):
            from_ext_fields(Numbered, {"number": text})


# --- bodies ---


@pytest.mark.parametrize(
    ("value", "is_taken"),
    [(INT64 - 1, True), (INT64, False), (-INT64, True), (-INT64 - 1, False)],
)
def test_numbers_of_a_body_have_64_bits(value, is_taken):
    for read in (
        lambda: from_json(DataVersion, {"counter": value}).counter,
        lambda: to_int(value, "n"),
        lambda: to_int(str(value), "n"),
    ):
        if is_taken:
            assert read() == value
        else:
            with pytest.raises(BodyError, match="64-bit integer"):
                read()


@pytest.mark.parametrize(("digits", "is_taken"), [(20, True), (21, False)])
def test_a_number_as_text_in_a_body_has_twenty_characters_at_most(digits, is_taken):
    text = "7".zfill(digits)
    if is_taken:
        assert to_int(text, "n") == 7
    else:
        with pytest.raises(BodyError):
            to_int(text, "n")


def test_whole_numbers_that_are_read_as_fractions_have_64_bits():
    assert to_float(INT64 - 1, "n") == float(INT64 - 1)
    assert to_float(1 - INT64, "n") == float(1 - INT64)
    for value in (INT64, -INT64):
        with pytest.raises(BodyError, match="not a number"):
            to_float(value, "n")


@pytest.mark.parametrize(
    ("value", "is_taken"), [(0, True), (-1, False), (65_535, True), (65_536, False)]
)
def test_numbers_of_queues(value, is_taken):
    data = {"brokerName": "b", "readQueueNums": value}
    if is_taken:
        assert from_json(QueueDataBody, data).read_queue_nums == value
    else:
        with pytest.raises(BodyError, match=r"0\.\.65535"):
            from_json(QueueDataBody, data)


@pytest.mark.parametrize(("depth", "is_taken"), [(256, True), (257, False)])
def test_sloppy_json_nests_so_deep_and_no_deeper(depth, is_taken):
    text = "{k:" * depth + "1" + "}" * depth
    if is_taken:
        fastjson.loads(text)
    else:
        with pytest.raises(BodyError):
            fastjson.loads(text)


@pytest.mark.parametrize(("digits", "is_taken"), [(400, True), (401, False)])
def test_numbers_of_sloppy_json_have_four_hundred_digits_at_most(digits, is_taken):
    text = f"{{a:{'1' * digits}}}"
    if is_taken:
        assert fastjson.loads(text) == {"a": int("1" * digits)}
    else:
        with pytest.raises(BodyError):
            fastjson.loads(text)


# --- messages and batches ---


def test_a_batch_is_cut_anywhere():
    """A cut inside an item is an error at that item; the items before are intact."""
    items = [BatchItem(b"one", {"a": "b"}), BatchItem(b"", {}), BatchItem(b"x", {})]
    whole = encode_batch(items)
    ends = [len(encode_batch(items[:count])) for count in range(4)]
    assert decode_batch(whole) == items
    for size in range(len(whole)):
        spans, error = split_batch(whole[:size])
        assert [span.end for span in spans] == [end for end in ends[1:] if end <= size]
        assert bool(error) is (size not in ends)
    assert split_batch(whole + b"\0")[1]


@pytest.mark.parametrize(("size", "is_taken"), [(32_767, True), (32_768, False)])
def test_properties_of_a_message_and_of_a_batch_item(size, is_taken):
    properties: dict[str, str | None] = {"k": "v" * (size - 3)}
    fields = message(properties=properties)
    item = BatchItem(b"x", {"k": "v" * (size - 3)})
    if is_taken:
        (found,) = decode_messages(encode_message(fields))
        assert isinstance(found, StoredMessage)
        assert found.properties == properties
        assert decode_batch(encode_batch([item])) == [item]
    else:
        with pytest.raises(ValueError, match="exceed the limit of 32767"):
            encode_message(fields)
        with pytest.raises(ValueError, match="exceed the limit of 32767"):
            encode_batch([item])


def message(**fields):
    defaults = {
        "topic": "T",
        "body": b"body",
        "born_host": "10.0.0.1:1",
        "store_host": "10.0.0.2:2",
        "born_timestamp_ms": 1,
        "store_timestamp_ms": 2,
    }
    return MessageFields(**{**defaults, **fields})


@pytest.mark.parametrize(
    ("size", "magic"),
    [(127, "daa320a7"), (128, "daa320ab"), (32_767, "daa320ab"), (32_768, None)],
)
def test_a_long_topic_makes_a_record_of_the_second_version(size, magic):
    fields = message(topic="t" * size)
    if magic is None:
        with pytest.raises(ValueError, match=f"topic of {size} bytes exceeds"):
            encode_message(fields)
        return
    data = encode_message(fields)
    assert data[4:8].hex() == magic
    (found,) = decode_messages(data)
    assert isinstance(found, StoredMessage)
    assert found.topic == fields.topic


@each_row("host", ["10.0.0.1:1", "[fe80::1]:1"])
@each_row("topic", ["T", "t" * 200])
@each_row("body", [b"", b"body"])
@each_row("properties", [{}, {"a": "b"}])
def test_a_record_is_whole_with_its_last_byte(host, topic, body, properties):
    data = encode_message(
        message(born_host=host, topic=topic, body=body, properties=properties)
    )
    (found,) = decode_messages(data)
    assert isinstance(found, StoredMessage)
    assert (found.topic, found.body, found.properties) == (topic, body, properties)
    for size in range(1, len(data)):
        (cut,) = decode_messages(data[:size])
        assert isinstance(cut, DecodeFailure), size


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (88, b"\x7f", "topic length 127 exceeds the 8 bytes left"),
        (84, b"\0\0\0\x7f", "body length 127 exceeds the 9 bytes left"),
        (84, b"\x80\0\0\0", "body length -2147483648 exceeds the 9 bytes left"),
    ],
)
def test_a_length_that_leads_out_of_the_record_is_named(at, value, error):
    """The body is empty; 1 + 2 bytes of topic and 2 + 4 of properties follow."""
    data = bytearray(
        encode_message(message(topic="TT", body=b"", properties={"a": "b"}))
    )
    data[at : at + len(value)] = value
    head = read_head(bytes(data), 0)
    assert head is not None
    assert find_layout(bytes(data), 0, head) == error


@pytest.mark.parametrize(
    ("index", "value", "credible"),
    [
        (0, 1, True),
        (0, 0, False),
        (1, 0, False),
        (3, 0, True),
        (3, -1, False),
        (5, 0, True),
        (5, -1, False),
        (6, 0, True),
        (6, -1, False),
    ],
)
def test_which_heads_of_damaged_records_are_believed(index, value, credible):
    """The indexes are those of the fields of RecordHead."""
    head = [100, 0xDAA320A7, 0, 1, 0, 1, 1, 0]
    head[index] = value
    assert is_credible(RecordHead(*head)) is credible


def test_the_head_of_a_record_is_read_when_all_of_it_is_here():
    data = encode_message(message())
    size = 40  # up to and including the system flag
    assert read_head(data[:size], 0) is not None
    assert read_head(data[: size - 1], 0) is None
    assert read_head(b"x" + data[:size], 1) == read_head(data, 0)


@pytest.mark.parametrize(
    ("port", "is_taken"), [(0, True), (65_535, True), (65_536, False), (-1, False)]
)
@pytest.mark.parametrize(
    ("address", "host"),
    [(bytes([10, 0, 0, 1]), "10.0.0.1"), (bytes(16), "[0:0:0:0:0:0:0:0]")],
)
def test_ports_in_an_offset_id(address, host, port, is_taken):
    text = (address + struct.pack(">iq", port, 7)).hex()
    if is_taken:
        assert decode_offset_msg_id(text).host == f"{host}:{port}"
    else:
        with pytest.raises(Exception, match=r"is not in 0\.\.65535"):
            decode_offset_msg_id(text)


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (211, "211"),
        (212, "4.0.0-SNAPSHOT"),
        (213, "4.0.0"),
        (412, "5.0.0-SNAPSHOT"),
        (411, "4.9.9"),
        (611, "5.9.9"),
        (612, "612"),
    ],
)
def test_the_first_and_the_last_version_with_a_name(ordinal, name):
    assert version_name(ordinal) == name


def test_producers_are_read_back_as_they_were_written():
    known = (
        Connection(client_id="a", client_addr="h:1", language=0, version=513),
        Connection(client_id="b", client_addr="h:2", language=1, version=1),
    )
    text = encode_body(ProducerConnection(connections=known)).decode()
    written = fastjson.loads(text)
    assert isinstance(written, dict)
    assert written["connectionSet"] == [
        {"clientAddr": "h:1", "clientId": "a", "language": "JAVA", "version": 513},
        {"clientAddr": "h:2", "clientId": "b", "language": "CPP", "version": 1},
    ]
