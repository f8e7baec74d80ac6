"""Reads JSON as RFC 8259 defines it: `NaN` and `Infinity` are not JSON.

`body_value` reads a body. Of a name that occurs twice in an object the last value
counts, and numbers with a fraction or an exponent are doubles, as for most readers of
JSON. (To find such names would double the time for a body.) A value is refused if some
readers of the record could not read it: a lone surrogate, a number beyond all doubles,
deep nesting.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rmqcli.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

#: jq 1.6 reads at most 256 levels, and the record is one of them.
DEPTH_MAX: Final = 200
TOO_DEEP: Final = f"the JSON is nested deeper than {DEPTH_MAX} levels"
TOO_LARGE: Final = "a number is too large for a double"

#: How Python's messages begin, and what they mean.
_REASONS: Final = (
    ("Expecting value", "expected a value"),
    ("Expecting property name", "expected a name in double quotes"),
    ("Expecting ':'", "expected a colon"),
    ("Expecting ','", "expected a comma or the end of the list or object"),
    ("Illegal trailing comma", "expected something after the comma"),
    ("Unterminated string", "a text has no end, beginning"),
    ("Invalid control character", "a text has a control character"),
    ("Invalid", "a text has an invalid escape"),
    ("Extra data", "something follows the value"),
)

_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), allow_nan=False
).encode


def json_reader(
    *,
    parse_int: Callable[[str], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Callable[[str], Any]:
    """Return a function that reads JSON text.

    The function raises ValueError for text that is not JSON, and RecursionError for
    JSON that is nested too deeply.
    """
    return json.JSONDecoder(
        parse_constant=_refuse_constant, parse_int=parse_int, parse_float=parse_float
    ).decode


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(TOO_LARGE)
    return number


def _integer(text: str) -> int | float:
    number = _double(text)
    return number if text == "-0" else int(text)  # an int has no -0


#: Readers are made once, because making one costs as much as reading a short body.
read_json: Final = json_reader()
_read_value: Final = json_reader(parse_int=_integer, parse_float=_double)


def compact_json(value: object) -> str:
    """Return `value` as JSON without blanks. Raises ValueError for infinite numbers."""
    return _encode(value)


def body_value(body: bytes) -> object:
    """Return the value of a JSON body. Raises DecodeError."""
    try:
        value = _read_value(body.decode())
        if b"\\u" in body:  # nothing else can be half of a character
            compact_json(value).encode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"not JSON: not UTF-8 at byte {error.start}") from None
    except UnicodeEncodeError:
        raise DecodeError("not JSON: a \\u escape is half of a character") from None
    except RecursionError:
        raise DecodeError(TOO_DEEP) from None
    except ValueError as error:
        raise DecodeError(f"not JSON: {_reason(error)}") from None
    if body.count(b"{") + body.count(b"[") > DEPTH_MAX and _depth(value) > DEPTH_MAX:
        raise DecodeError(TOO_DEEP)
    return value


def _reason(error: ValueError) -> str:
    if not isinstance(error, json.JSONDecodeError):
        return str(error)
    if not error.doc:
        return "the body is empty"
    if error.doc.startswith("\ufeff"):
        return "the body begins with a byte order mark"
    found = (ours for words, ours in _REASONS if error.msg.startswith(words))
    what = next(found, "it cannot be read")
    return f"{what} at line {error.lineno}, column {error.colno}"


def _depth(value: object) -> int:
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
        ]
    return depth
