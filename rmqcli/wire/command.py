"""RemotingCommand: a request or an answer, and its two encodings.

The header is JSON or RocketMQ's binary form; the frame's serialize type says which.
Extension fields are text here; `wire.header` gives them types.

Source: RemotingCommand, RemotingSerializable, RocketMQSerializable in apache/rocketmq.
"""

from __future__ import annotations

import json.encoder
import struct
from dataclasses import field

from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError, HeaderError
from rmqcli.wire import fastjson
from rmqcli.wire.codes import LANGUAGE_NAMES, LANGUAGE_NUMBERS, LanguageCode
from rmqcli.wire.frame import Frame, SerializeType, encode_frame
from rmqcli.wire.version import CLIENT_VERSION

RESPONSE_FLAG = 1  # RemotingCommand.RPC_TYPE: bit 0
ONEWAY_FLAG = 2  # RemotingCommand.RPC_ONEWAY: bit 1

_JAVA = int(LanguageCode.JAVA)
_PYTHON = int(LanguageCode.PYTHON)
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
#: code, language, version, opaque, flag, remark length
_BINARY_HEAD = struct.Struct(">hbhiii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PAIR_LENGTH_MAX = 0x7FFF
_quote = json.encoder.encode_basestring_ascii


@dataclass(slots=True)
class RemotingCommand:
    """One request or answer; treat as immutable.

    Not frozen, because a bulk read makes one for every answer. `language` is None when
    the peer named an unknown one. `opaque` matches an answer to its request.
    """

    code: int
    language: int | None = _PYTHON
    version: int = CLIENT_VERSION
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_oneway(self) -> bool:
        """Whether no answer may be sent, not even an error."""
        return bool(self.flag & ONEWAY_FLAG)

    def with_opaque(self, opaque: int) -> RemotingCommand:
        """Return the same command with another opaque; it shares fields and body."""
        return RemotingCommand(
            self.code,
            self.language,
            self.version,
            opaque,
            self.flag,
            self.remark,
            self.ext_fields,
            self.body,
        )


def encode_command(
    command: RemotingCommand,
    serialize_type: SerializeType = SerializeType.JSON,
    *,
    opaque: int | None = None,
) -> bytes:
    """Return `command` as one frame, with `opaque` in place of its own if given.

    Raises HeaderError when the binary header cannot hold it: codes of more than 16
    bits, which are those of POP, and keys over 32767 bytes. Raises FrameError when the
    frame is too long.
    """
    if serialize_type == SerializeType.JSON:
        header = _encode_json(command, command.opaque if opaque is None else opaque)
    else:
        numbered = command if opaque is None else command.with_opaque(opaque)
        header = _encode_binary(numbered)
    return encode_frame(serialize_type, header, command.body)


def decode_command(frame: Frame) -> RemotingCommand:
    """Read the header of `frame`, and accept what any version of RocketMQ accepts.

    Raises HeaderError when it cannot be read; the connection must then be closed. As in
    Java, a null extension value or key is left out, and an absent language is Java.
    """
    if frame.serialize_type == SerializeType.JSON:
        try:
            return _decode_json(frame)
        except BodyError as error:
            raise HeaderError(f"header is not JSON: {error.message}") from error
    if frame.serialize_type == SerializeType.ROCKETMQ:
        return _decode_binary(frame)
    raise HeaderError(f"serialize type {frame.serialize_type} is neither 0 nor 1")


def _encode_json(command: RemotingCommand, opaque: int) -> bytes:
    fields = ",".join(
        [f"{_quote(k)}:{_quote(v)}" for k, v in command.ext_fields.items()]
    )
    language = LANGUAGE_NAMES.get(
        _JAVA if command.language is None else command.language
    )
    remark = "" if command.remark is None else f',"remark":{_quote(command.remark)}'
    return (
        f'{{"code":{command.code:d},"extFields":{{{fields}}},"flag":{command.flag:d},'
        f'"language":"{language or "OTHER"}","opaque":{opaque:d}{remark},'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version:d}}}'
    ).encode("ascii")


def _encode_binary(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    pairs: list[bytes] = []
    for key, value in command.ext_fields.items():
        raw_key, raw_value = _utf8(key), _utf8(value)
        if len(raw_key) > _PAIR_LENGTH_MAX:
            raise HeaderError(
                f"extension key of {len(raw_key)} bytes exceeds the limit of"
                f" {_PAIR_LENGTH_MAX}"
            )
        pairs += (_INT16.pack(len(raw_key)), raw_key)
        pairs += (_INT32.pack(len(raw_value)), raw_value)
    fields = b"".join(pairs)
    language = _JAVA if command.language is None else command.language
    try:
        head = _BINARY_HEAD.pack(
            command.code,
            language,
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise HeaderError(
            f"request code {command.code} with version {command.version} does not fit"
            " a binary header",
            hint="use JSON headers for this request",
        ) from error
    return b"".join((head, remark, _INT32.pack(len(fields)), fields))


def _utf8(text: str) -> bytes:
    # A lone half of a surrogate pair becomes "?", as in Java.
    return text.encode("utf-8", "replace")


def _decode_json(frame: Frame) -> RemotingCommand:
    header = fastjson.loads(frame.header)
    if not isinstance(header, dict):
        raise HeaderError("header is not a JSON object")
    get = header.get
    return RemotingCommand(
        _int32(get("code"), "code"),
        _language(get("language")),
        _int32(get("version"), "version"),
        _int32(get("opaque"), "opaque"),
        _int32(get("flag"), "flag"),
        _text(get("remark")),
        _ext_fields(get("extFields")),
        frame.body,
    )


def _int32(value: fastjson.JsonValue, name: str) -> int:
    if type(value) is not int:
        if value is None:
            return 0
        value = _loose_int(value, name)
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise HeaderError(f"{name} {value} does not fit 32 bits")
    return value


def _loose_int(value: fastjson.JsonValue, name: str) -> int:
    """Return a number as fastjson reads it: `"105"` and 105.0 are 105."""
    try:
        if isinstance(value, str) and value.isascii() and len(value) < 20:
            return int(value)
        if isinstance(value, float):
            return int(value)
    except (ValueError, OverflowError):
        pass
    raise HeaderError(f"{name} is not a number: {str(value)[:40]!r}")


def _language(value: fastjson.JsonValue) -> int | None:
    """Return the language's number, or None when it is unknown."""
    if isinstance(value, str):
        return LANGUAGE_NUMBERS.get(value.upper())
    if value is None:
        return _JAVA
    return value if type(value) is int and value in LANGUAGE_NAMES else None


def _text(value: fastjson.JsonValue) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return fastjson.dumps(value)


def _ext_fields(value: fastjson.JsonValue) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HeaderError("extFields is not a JSON object")
    try:
        # In C, and it raises unless all values are str.
        "".join(value.values())  # type: ignore[arg-type]  # as just said
    except TypeError:
        return {k: _text(v) or "" for k, v in value.items() if v is not None}
    return value  # type: ignore[return-value]  # all values are str


def _decode_binary(frame: Frame) -> RemotingCommand:
    data = frame.header
    try:
        code, language, version, opaque, flag, remark_length = _BINARY_HEAD.unpack_from(
            data
        )
        at = _BINARY_HEAD.size + max(0, remark_length)  # 4.6.0: negative is none
        (fields_length,) = _INT32.unpack_from(data, at)
    except struct.error as error:
        raise HeaderError(f"binary header ends at byte {len(data)}") from error
    remark = data[_BINARY_HEAD.size : at].decode("utf-8", "replace") or None
    return RemotingCommand(
        code,
        language if language in LANGUAGE_NAMES else None,
        version,
        opaque,
        flag,
        remark,
        _read_pairs(data, at + 4, at + 4 + max(0, fields_length)),
        frame.body,
    )


def _read_pairs(data: bytes, start: int, end: int) -> dict[str, str]:
    """Return the extension fields in `data[start:end]`.

    If `end` lies inside the last pair, that pair is read to its own end, as 4.9.7 and
    later do; 4.6.0 closes the connection. Empty keys are dropped, as in later versions.
    """
    if end > len(data):
        raise HeaderError(
            f"extension fields end at {end}, the binary header at {len(data)}"
        )
    fields: dict[str, str] = {}
    at = start
    try:
        while at < end:
            at, key = _read_text(data, at + 2, _INT16.unpack_from(data, at)[0])
            at, value = _read_text(data, at + 4, _INT32.unpack_from(data, at)[0])
            if key:
                fields[key] = value
    except struct.error as error:
        raise HeaderError(f"extension fields are cut at byte {at}") from error
    return fields


def _read_text(data: bytes, start: int, length: int) -> tuple[int, str]:
    end = start + length
    if length < 0 or end > len(data):
        raise HeaderError(f"extension field of {length} bytes at byte {start}")
    return end, data[start:end].decode("utf-8", "replace")
