"""Read the JSON files of exports and imports into values of declared types. Pure.

A folder may come from elsewhere, so nothing in its files is trusted: each value has to
have the type of its field, and no text may hold what cannot be a path or be printed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
from typing import (
    Any,
    Final,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from rmqcli.errors import UsageError

#: NUL, and halves of surrogate pairs.
_NOT_TEXT: Final = re.compile("[\0\ud800-\udfff]")

T = TypeVar("T")

_hints = functools.cache(get_type_hints)


def parse_document(text: str) -> Any:  # noqa: ANN401  # any JSON value
    """Parse JSON. Raises ValueError for what no file of ours contains."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            waiting += [*part, *part.values()]
        elif isinstance(part, list):
            waiting += part
        elif isinstance(part, str) and _NOT_TEXT.search(part):
            raise ValueError(f"{part[:100]!r} has characters that are not text")
    return value


def parse_versioned(text: str, version: int) -> dict[str, Any]:
    """Parse an object of a version; return it without that field.

    Raises ValueError for what no file of ours contains, and for another version.
    """
    value = parse_document(text)
    if not isinstance(value, dict) or "version" not in value:
        raise ValueError("it has no version")
    found = value.pop("version")
    if type(found) is not int or found != version:
        raise ValueError(f"it has version {_shown(found)}, not {version}")
    return value


def read_as(kind: type[T], value: object) -> T:
    """Return a JSON value as a dataclass whose fields have the declared types.

    An object becomes a dataclass, and a list a tuple. Fields with defaults may be
    absent. Raises ValueError, which names the field.
    """
    return cast("T", _read(kind, value, kind.__name__))


def _read(kind: Any, value: object, at: str) -> Any:  # noqa: ANN401  # a type, and its value
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, at)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        for each in args:
            if each is types.NoneType and value is None:
                return None
        [each] = (each for each in args if each is not types.NoneType)
        return _read(each, value, at)
    if origin is tuple and isinstance(value, list):
        if len(args) == 2 and args[1] is ...:
            return tuple(_read(args[0], v, f"{at}[{i}]") for i, v in enumerate(value))
        if len(args) == len(value):
            pairs = zip(args, value, strict=True)
            return tuple(_read(k, v, at) for k, v in pairs)
    elif origin is None and type(value) is kind:
        return value
    raise ValueError(f"{at} is {_shown(value)}")


def _read_fields(kind: Any, value: object, at: str) -> object:  # noqa: ANN401  # a dataclass
    if not isinstance(value, dict):
        raise ValueError(f"{at} is {_shown(value)}")  # noqa: TRY004  # the text is wrong, not a type of ours
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in known:
            raise ValueError(f"{at} has a field {name[:100]!r}")
    for name, field in known.items():
        has_default = (field.default, field.default_factory) != (
            dataclasses.MISSING,
            dataclasses.MISSING,
        )
        if name not in value and not has_default:
            raise ValueError(f"{at} has no field {name}")
    hints = _hints(kind)
    read = {name: _read(hints[name], v, f"{at}.{name}") for name, v in value.items()}
    try:
        return kind(**read)
    except UsageError as error:
        raise ValueError(f"{at}: {error.message}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
