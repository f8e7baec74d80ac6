"""Convert JSON lines, such as those of `rmq tail -o jsonl`, to messages.

A record needs one body: `body` (text), `body_b64`, or `value` (any JSON value, written
compactly); null is the same as absent. `tags`, `keys`, `properties` and `flag` are
optional. All other fields are ignored, because they say where the record was read, and
so are the properties in `SYSTEM_PROPERTIES`.

A record that was read with values has both a body, which `body_encoding`
names, and the value of that body. Its body is sent, and its value must still be the
same: whoever changed it meant to send the change. A value that `value_format` says was
read from another format cannot be compared, nor sent, and is ignored.
"""

from __future__ import annotations

import binascii
import json
from typing import Final, cast

from rmqcli.decode.json import compact_json, json_reader, read_json
from rmqcli.errors import ConfigError
from rmqcli.producer.message import OutgoingMessage, record_properties
from rmqcli.wire.message.properties import KEYS, TAGS

_BODY_OF_ENCODING: Final = {"utf-8": "body", "base64": "body_b64"}
_INT32_MAX: Final = (1 << 31) - 1
#: Reads all numbers as doubles, because a program between `rmq tail` and `rmq send`,
#: such as jq, may have rounded them.
_read_doubles: Final = json_reader(parse_int=float)


def parse_record(line: bytes, *, source: str) -> OutgoingMessage:
    """Parse one line. Raises ConfigError with a message that begins with `source`."""
    try:
        record = read_json(line.decode("utf-8-sig"))
    except RecursionError:
        raise ConfigError(f"{source}: the JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise ConfigError(f"{source}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise ConfigError(f"{source}: not a JSON object but {_kind(record)}")
    if record.get("truncated"):
        raise ConfigError(
            f"{source}: the body was cut when it was read",
            hint="read the messages again without a limit on the body",
        )
    try:
        return OutgoingMessage(
            body=_body(record),
            properties=_properties(record),
            flag=_flag(record),
            source=source,
        )
    except _RecordError as error:
        raise ConfigError(f"{source}: {error}", hint=error.hint) from None


class _RecordError(Exception):
    """Says what is wrong with a record."""

    def __init__(self, text: str, *, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


def _body(record: dict[str, object]) -> bytes:
    encoding = record.get("body_encoding")
    if encoding is not None and str(encoding) not in _BODY_OF_ENCODING:
        raise _RecordError(f"body_encoding {encoding!r} is not one of utf-8, base64")
    names = ("body", "body_b64", "value")
    given = {name: record[name] for name in names if record.get(name) is not None}
    kind = record.get("value_format")
    is_of_another = kind not in (None, "json") and "value" in given
    if is_of_another and len(given) == 1 and not record.get("error"):
        raise _RecordError(f"value was read from {kind}, and there is no body")
    if is_of_another:
        del given["value"]
    if list(given) == ["value"]:
        return _value_bytes(given["value"])
    value = given.pop("value", None) if encoding is not None else None
    if not given and record.get("error"):
        raise _RecordError(f"it has no body: {record['error']}")
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise _RecordError(
            f"exactly one of {', '.join(names)} is needed: it has {found}"
        )
    [(name, content)] = given.items()
    wanted = _BODY_OF_ENCODING.get(str(encoding), name)
    if name != wanted:
        raise _RecordError(f"body_encoding is {encoding}, but there is no {wanted}")
    body = _text_bytes(name, content)
    if value is not None and not _is_value_of(value, body):
        raise _RecordError(
            "value is not the value of the body",
            hint="to send value, leave out body and body_b64; to send the body, leave"
            " out value",
        )
    return body


def _value_bytes(value: object) -> bytes:
    try:
        return compact_json(value).encode()
    except UnicodeEncodeError:
        raise _RecordError("value is not valid Unicode") from None
    except ValueError:
        raise _RecordError("a number in value is too large to keep") from None


def _text_bytes(name: str, text: object) -> bytes:
    if not isinstance(text, str):
        raise _RecordError(f"{name} is not text but {_kind(text)}")
    try:
        if name == "body":
            return text.encode()
        return binascii.a2b_base64(text.encode(), strict_mode=True)
    except UnicodeEncodeError:
        raise _RecordError(f"{name} is not valid Unicode") from None
    except binascii.Error as error:
        raise _RecordError(f"body_b64 is not base64: {str(error).lower()}") from None


def _is_value_of(value: object, body: bytes) -> bool:
    try:
        found = _read_doubles(body.decode())
    except (ValueError, RecursionError):
        return False
    return _canonical(found) == _canonical(_read_doubles(compact_json(value)))


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)  # in Python, unlike in JSON, 1 == True


def _properties(record: dict[str, object]) -> dict[str, str]:
    given = record.get("properties")
    if given is None:
        given = {}
    if not isinstance(given, dict):
        raise _RecordError(f"properties are not an object but {_kind(given)}")
    properties = record_properties(
        given.items(),
        tags=_joined(TAGS, record.get("tags")),
        keys=_joined(KEYS, record.get("keys")),
    )
    for name, value in properties.items():
        if not isinstance(value, str):
            raise _RecordError(f"property {name!r} is not text but {_kind(value)}")
    return cast("dict[str, str]", properties)


def _joined(name: str, value: object) -> str | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return " ".join(value)
    if value is None or isinstance(value, str):
        return value
    raise _RecordError(f"{name.lower()} are not text but {_kind(value)}")


def _flag(record: dict[str, object]) -> int:
    flag = record.get("flag")
    if flag is None:
        return 0
    is_int = isinstance(flag, int) and not isinstance(flag, bool)
    if is_int and -_INT32_MAX - 1 <= int(str(flag)) <= _INT32_MAX:
        return int(str(flag))
    raise _RecordError(f"flag {flag!r} is not a whole number of 32 bits")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")
