"""JSON as RocketMQ's Java writes and reads it, including forms json.loads refuses.

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}    object keys
    {"brokerAddrs":{0:"10.0.0.1:10911"}}                              bare keys

Strict JSON goes through the standard library. What that refuses is read by
`fastjson_reader`. Both take time that is linear in the input, limit the nesting and
raise only BodyError.

Source: fastjson 1.2.51 to 2.0.59 as used by apache/rocketmq.
"""

from __future__ import annotations

import json
import json.encoder
import math
import re
from typing import TYPE_CHECKING, TypeAlias

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    JsonValue: TypeAlias = (
        "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
    )
    JsonObject: TypeAlias = "dict[str, JsonValue]"

_decoder = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
# The C scanner itself: raw_decode and loads cost more than scanning a short header.
scan_once: Callable[[str, int], tuple[JsonValue, int]] = vars(_decoder)["scan_once"]
_quote_raw = json.encoder.encode_basestring
_quote_ascii = json.encoder.encode_basestring_ascii

_HAS_BLANK = re.compile(r"[ \t\r\n]")


class ObjectKey(str):
    """A key that was a JSON object: its compact JSON, and the object itself."""

    __slots__ = ("value",)

    value: JsonObject

    @classmethod
    def of(cls, text: str, value: JsonObject) -> ObjectKey:
        """Return the key for `value`, which was written as `text`."""
        key = cls(dumps(value) if _HAS_BLANK.search(text) else text)
        key.value = value
        return key


def loads(data: bytes | bytearray | memoryview | str) -> JsonValue:
    """Read one JSON value.

    Keys become str: bare words unchanged, objects as ObjectKey. The last of repeated
    keys counts; NaN becomes None; bytes that are not UTF-8 are replaced. Raises
    BodyError.
    """
    text = data if isinstance(data, str) else str(data, "utf-8", "replace")
    try:
        value, end = scan_once(text, 0)
        if end == len(text):
            return value
    except (ValueError, StopIteration):
        pass
    except RecursionError:
        raise too_deep() from None
    # Loaded when first needed: routes and headers of new brokers are strict JSON.
    from rmqcli.wire.fastjson_reader import TolerantReader

    return TolerantReader(text).read()


def dumps(value: object, *, bare_numbers: bool = False, pretty: bool = False) -> str:
    """Write `value` as compact JSON that every version of RocketMQ reads.

    Keys that are ObjectKey or MessageQueue are written as objects, as Java expects for
    maps whose keys are objects; every other key is quoted. NaN and infinite numbers
    become null, as in Java. Raises BodyError when `value` nests too deeply.

    fastjson itself does not quote the keys of a map whose keys are numbers;
    `bare_numbers` writes them like that. `pretty` gives the form of a broker's config
    files, with line breaks and tabs.
    """
    out: list[str] = []
    try:
        _write(value, out.append, "\n" if pretty else "", bare_numbers)
    except RecursionError:
        raise too_deep() from None
    return "".join(out)


def _write(
    value: object, put: Callable[[str], None], line: str, bare_numbers: bool
) -> None:
    if isinstance(value, str):
        put(_quote(value))
    elif value is None or isinstance(value, bool):
        put("null" if value is None else "true" if value else "false")
    elif isinstance(value, int):
        put(int.__repr__(value))
    elif isinstance(value, float):
        put(repr(value) if math.isfinite(value) else "null")
    elif isinstance(value, MessageQueue):
        put(_queue_text(value))
    elif isinstance(value, dict):
        _write_object(value, put, line, bare_numbers)
    elif isinstance(value, (list, tuple)):
        _write_array(value, put, line, bare_numbers)
    else:
        raise TypeError(f"{type(value).__name__} has no JSON form")


def _write_object(
    value: Mapping[object, object],
    put: Callable[[str], None],
    line: str,
    bare_numbers: bool,
) -> None:
    inner = line and line + "\t"
    mark = "{" + inner
    for key, item in value.items():
        put(mark)
        if isinstance(key, ObjectKey) or (bare_numbers and isinstance(key, int)):
            put(str(key))
        elif isinstance(key, MessageQueue):
            put(_queue_text(key))
        else:
            put(_quote(str(key)))
        put(":")
        _write(item, put, inner, bare_numbers)
        mark = "," + inner
    put(line + "}" if value else "{}")


def _write_array(
    value: Sequence[object], put: Callable[[str], None], line: str, bare_numbers: bool
) -> None:
    inner = line and line + "\t"
    mark = "[" + inner
    for item in value:
        put(mark)
        _write(item, put, inner, bare_numbers)
        mark = "," + inner
    put(line + "]" if value else "[]")


def _queue_text(queue: MessageQueue) -> str:
    return (
        f'{{"brokerName":{_quote(queue.broker_name)},"queueId":{queue.queue_id:d},'
        f'"topic":{_quote(queue.topic)}}}'
    )


def _quote(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate: only an escape can express it
        return _quote_ascii(text)
    return _quote_raw(text)


def too_deep() -> BodyError:
    """Return the error for JSON that nests deeper than anything RocketMQ writes."""
    return BodyError("JSON is nested too deep")
