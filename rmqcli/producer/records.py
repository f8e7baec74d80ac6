"""Convert JSON lines, such as those of `rmq tail -o jsonl`, to messages.

A record needs a body: `body` (text), `body_json` (any JSON value, written compactly)
or `body_b64`; `tags`, `keys`, `properties` and `flag` are optional. All other fields
are ignored, because they say where the record was read, and so are the properties in
`SYSTEM_PROPERTIES`.
"""

from __future__ import annotations

import binascii
import json
from typing import TYPE_CHECKING, cast

from rmqcli.errors import UsageError
from rmqcli.producer.message import OutgoingMessage, record_properties
from rmqcli.wire.message.properties import KEYS, TAGS

if TYPE_CHECKING:
    from typing import NoReturn

_BODY_OF_ENCODING = {"utf-8": "body", "json": "body_json", "base64": "body_b64"}
_INT32_MAX = (1 << 31) - 1


def parse_record(line: bytes, *, source: str) -> OutgoingMessage:
    """Parse one line. Raises UsageError with a message that begins with `source`."""
    try:
        record = json.loads(line, parse_constant=_no_constant)
    except RecursionError:
        raise UsageError(f"{source}: the JSON is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{source}: not UTF-8 at byte {error.start}") from None
    except ValueError as error:
        raise UsageError(f"{source}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise UsageError(f"{source}: not a JSON object but {_kind(record)}")
    if record.get("truncated"):
        raise UsageError(
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
        raise UsageError(f"{source}: {error}") from None


class _RecordError(Exception):
    """Says what is wrong with a record."""


def _body(record: dict[str, object]) -> bytes:
    encoding = record.get("body_encoding")
    if encoding is not None:
        name = _BODY_OF_ENCODING.get(str(encoding))
        if name is None:
            raise _RecordError(
                f"body_encoding {encoding!r} is not one of utf-8, json, base64"
            )
        if name not in record:
            raise _RecordError(f"body_encoding is {encoding}, but there is no {name}")
    else:
        names = [n for n in _BODY_OF_ENCODING.values() if record.get(n) is not None]
        if not names and record.get("error"):
            raise _RecordError(f"it has no body: {record['error']}")
        if len(names) != 1:
            found = " and ".join(names) or "none"
            raise _RecordError(f"one of body, body_json, body_b64 is needed: {found}")
        name = names[0]
    return _body_bytes(name, record[name])


def _body_bytes(name: str, value: object) -> bytes:
    if name == "body_json":
        try:
            value = json.dumps(
                value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
            )
        except ValueError:
            raise _RecordError("a number in body_json is too large to keep") from None
    elif not isinstance(value, str):
        raise _RecordError(f"{name} is not text but {_kind(value)}")
    try:
        if name != "body_b64":
            return str(value).encode()
        return binascii.a2b_base64(str(value).encode(), strict_mode=True)
    except UnicodeEncodeError:
        raise _RecordError(f"{name} is not valid Unicode") from None
    except binascii.Error as error:
        raise _RecordError(f"body_b64 is not base64: {str(error).lower()}") from None


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


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
