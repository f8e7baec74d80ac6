"""Commands agree with the frames of four releases of RocketMQ, and survive nonsense."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import FrameError, HeaderError
from rmqcli.wire.codes import LanguageCode
from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.frame import Frame, FrameBuffer, SerializeType
from rmqcli.wire.version import CLIENT_VERSION
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row

if TYPE_CHECKING:
    from collections.abc import Mapping

BOTH = [SerializeType.JSON, SerializeType.ROCKETMQ]
GOLDEN = load("frames")
ODD = load("frames-odd")
CONVERSATION = load("conversation")


def decode(data: bytes) -> RemotingCommand:
    (frame,) = FrameBuffer().feed(data)
    return decode_command(frame)


def known_language(name: str | None) -> int | None:
    return None if name is None else LanguageCode[name].value


def assert_is(command: RemotingCommand, expected: dict[str, Any]) -> None:
    """Check that `command` has the values that Java read.

    Extension fields that are null in Java are absent here.
    """
    fields = expected["ext_fields"] or {}
    assert command.code == expected["code"]
    assert command.language == known_language(expected["language"])
    assert command.version == expected["version"]
    assert command.opaque == expected["opaque"]
    assert command.flag == expected["flag"]
    assert command.is_response == expected["response"]
    assert command.is_oneway == expected["oneway"]
    assert (command.remark or None) == (expected["remark"] or None)
    assert texts(command.ext_fields) == texts(fields)
    assert command.body == from_base64(expected["body_b64"])


def texts(fields: Mapping[str, str | None]) -> dict[str, str]:
    """Return the fields without empty values, which the binary header reads as null."""
    return {k: v for k, v in fields.items() if v and k not in ("", "<null>")}


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.3.3", "5.5.0"])
def test_frames_of_java_are_read_and_written_back(version):
    """The frames have every header class of the release, in both header formats."""
    cases = [case for case in GOLDEN if case["rocketmq"] == version]
    assert len(cases) > 300

    for case in cases:
        expected = case["expected"]
        command = decode(from_base64(case["bytes_b64"]))
        assert_is(command, expected)

        for serialize_type in BOTH:
            if serialize_type == SerializeType.JSON or -32768 <= command.code <= 32767:
                data = encode_command(command, serialize_type)
                assert_is(decode(data), expected)


@each_row("case", CONVERSATION, ids=lambda case: case["name"])
def test_conversations_with_brokers_are_read_and_written_back(case):
    """They contain requests, answers, and requests that brokers send to clients."""
    for direction in ("request", "response"):
        expected = case[direction]
        if expected is not None:
            command = decode(from_base64(case[f"{direction}_b64"]))
            assert_is(command, expected)
            assert_is(decode(encode_command(command)), expected)


@each_row("name", sorted({case["name"] for case in ODD}))
def test_odd_bytes_give_what_some_version_makes_of_them(name):
    """They are accepted if any version accepts them, and otherwise raise our errors."""
    cases = [case for case in ODD if case["name"] == name]
    is_accepted = any(not case["closed"] for case in cases)
    for case in cases:
        data = from_base64(case["bytes_b64"])
        try:
            commands = list(map(decode_command, FrameBuffer().feed(data)))
        except (FrameError, HeaderError):
            assert not is_accepted
            continue
        assert is_accepted
        if not case["closed"]:
            expected = case["expected_commands"]
            for command, fields in zip(commands, expected, strict=True):
                # When the bytes have no opaque, Java uses its own counter.
                assert_is(command, {**fields, "opaque": command.opaque})


def test_binary_header_starts_as_javas():
    """The bytes are those with which Java begins a header, here with a single field."""
    command = RemotingCommand(
        11,
        version=479,
        opaque=7,
        remark="rm",
        ext_fields={"queueId": "0"},
    )

    data = encode_command(command, SerializeType.ROCKETMQ)

    assert data.hex() == (
        "0000002901000025"
        "000b0301df000000070000000000000002726d"
        "0000000e0007717565756549640000000130"
    )


def test_a_new_command_is_ours():
    """Brokers see Python, and a version for which they write strict JSON."""
    command = decode(encode_command(RemotingCommand(105)))

    assert command.language == LanguageCode.PYTHON
    assert command.version == CLIENT_VERSION == 409
    assert not command.is_response
    assert not command.is_oneway
    assert command.with_opaque(5).opaque == 5
    assert command.with_opaque(5).ext_fields is command.ext_fields


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(RemotingCommand(200050), id="POP codes need more than 16 bits"),
        pytest.param(RemotingCommand(1, version=40000), id="version"),
        pytest.param(RemotingCommand(1, ext_fields={"k" * 40000: "v"}), id="long key"),
    ],
)
def test_binary_header_refuses_what_it_cannot_carry(command):
    """Java truncates the number and so sends another request."""
    with pytest.raises(HeaderError):
        encode_command(command, SerializeType.ROCKETMQ)
    assert decode(encode_command(command)).code == command.code


JSON_HEADERS = [
    (b"[" * 10_000, "deep"),
    (b'{"extFields":{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}}", "deep value"),
    (b'{"remark":' + b"[" * 700 + b"]" * 700 + b"}", "read, but too deep to write"),
    (b"{" * 100_000, "deep objects"),
    (b'{"code":' + b"9" * 5000 + b"}", "number of 5000 digits"),
    (b'{"code":9999999999}', "code beyond 32 bits"),
    (b'{"code":true}', "code a boolean"),
    (b'{"code":1e400}', "code infinite"),
    (b'{"code":"1_0x"}', "code not a number"),
    (b'{"code":{}}', "code an object"),
    (b'{"extFields":"x"}', "extFields a string"),
    (b'{"flag":[]}', "flag a list"),
]


@each_row("header", [h for h, _ in JSON_HEADERS], ids=[i for _, i in JSON_HEADERS])
def test_a_json_header_without_sense_is_a_header_error(header):
    """The message names the fault, and is short even if the header is long."""
    with pytest.raises(HeaderError) as caught:
        decode_command(Frame(0, header, b""))
    assert len(caught.value.message) < 300


def test_a_remark_of_a_megabyte_and_a_header_cut_in_it():
    """A large header is accepted, a truncated one is not."""
    data = b'{"code":1,"remark":"' + b"x" * (1 << 20)

    assert decode_command(Frame(0, data + b'"}', b"")).remark == "x" * (1 << 20)
    with pytest.raises(HeaderError):
        decode_command(Frame(0, data, b""))


def test_an_unknown_language_is_none():
    """When a client names an unknown language, Java reads null."""
    assert decode_command(Frame(0, b'{"language":"COBOL"}', b"")).language is None
    assert decode_command(Frame(0, b'{"language":99}', b"")).language is None
    assert decode_command(Frame(0, b"{}", b"")).language == LanguageCode.JAVA


def binary(pairs: bytes, *, length: int | None = None) -> Frame:
    size = len(pairs) if length is None else length
    head = struct.pack(">hbhiii", 11, 3, 409, 1, 0, 0)
    return Frame(1, head + struct.pack(">i", size) + pairs, b"")


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(binary(b"", length=2**31 - 1), id="ext length lies"),
        pytest.param(binary(b"\x00"), id="half a key length"),
        pytest.param(binary(b"\xff\xff" + b"x" * 99), id="key length 65535"),
        pytest.param(binary(b"\x00\x01a"), id="no value length"),
        pytest.param(binary(b"\x00\x01a\x7f\xff\xff\xff"), id="value length lies"),
        pytest.param(binary(b"\x00\x01a\xff\xff\xff\xff"), id="negative value length"),
        pytest.param(Frame(1, b"\x00\x0b\x03", b""), id="3 bytes"),
        pytest.param(Frame(7, b"{}", b""), id="serialize type 7"),
    ],
)
def test_a_binary_header_that_lies_is_a_header_error(frame):
    """No length is trusted before its bytes have arrived."""
    with pytest.raises(HeaderError):
        decode_command(frame)


def test_a_binary_header_with_an_empty_key():
    """For key length 0, 4.9.7 and later have a null key; here the pair is dropped."""
    pairs = b"\x00\x00\x00\x00\x00\x01v" + b"\x00\x01a\x00\x00\x00\x01b"

    assert decode_command(binary(pairs)).ext_fields == {"a": "b"}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COMMANDS = st.builds(
    RemotingCommand,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    language=st.sampled_from([c.value for c in LanguageCode]),
    version=st.integers(0, 32767),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    flag=st.integers(0, 3),
    remark=st.none() | TEXT.filter(bool),
    ext_fields=st.dictionaries(TEXT.filter(bool), TEXT, max_size=8),
    body=st.binary(max_size=50),
)


@given(command=COMMANDS, serialize_type=st.sampled_from(BOTH))
def test_what_is_encoded_is_decoded_the_same(command, serialize_type):
    """This is a round trip in both header formats."""
    assert decode(encode_command(command, serialize_type)) == command


@given(st.text(max_size=10))
def test_half_a_surrogate_pair_never_breaks_encoding(text):
    """Text from the command line may contain it; Java writes a question mark."""
    command = RemotingCommand(1, ext_fields={"k" + text: text}, remark=text)

    for serialize_type in BOTH:
        assert decode(encode_command(command, serialize_type)).code == 1


@given(st.binary(max_size=200), st.sampled_from([0, 1]))
def test_random_headers_raise_only_header_error(header, serialize_type):
    """A peer may send any bytes."""
    try:
        decode_command(Frame(serialize_type, header, b""))
    except HeaderError:
        return


@given(st.data(), st.sampled_from(BOTH))
def test_a_damaged_frame_raises_only_our_errors(data, serialize_type):
    """One to three bytes of a real frame are changed."""
    stream = bytearray(from_base64(data.draw(st.sampled_from(GOLDEN))["bytes_b64"]))
    for _ in range(data.draw(st.integers(1, 3))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(
            st.integers(0, 255)
        )
    try:
        for frame in FrameBuffer().feed(stream):
            encode_command(decode_command(frame), serialize_type)
    except (FrameError, HeaderError):
        return
