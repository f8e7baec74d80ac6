"""Headers: typed classes for a command's extension fields, which are text on the wire.

A header class derives from `Header` and is made by `@declared` (see `fields.py`, which
also has the rules for names). Fields have the types str, int, bool and BoundaryType,
each optionally with `| None`. A field that is None is not sent; an absent field takes
its default.

Source: RemotingCommand.decodeCommandCustomHeader and makeCustomHeaderToNet.
"""

from __future__ import annotations

import enum
import functools
import re
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from rmqcli.errors import HeaderError
from rmqcli.wire.fields import Fields, is_required, wire_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    #: For each field: attribute, wire name, reader, and whether it is required.
    Plan: TypeAlias = tuple[tuple[str, str, Callable[[str], object], bool], ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64_MAX = (1 << 63) - 1
_SHOWN_MAX = 80
_SURE_DIGITS = 19  # fewer always fit 64 bits


class BoundaryType(enum.Enum):
    """Which of several messages with the same time is meant (5.1.4 and later)."""

    LOWER = "LOWER"
    UPPER = "UPPER"


class Header(Fields):
    """Base of the header classes."""

    __slots__ = ()


HeaderT = TypeVar("HeaderT", bound=Header)


def to_ext_fields(header: Header) -> dict[str, str]:
    """Return the header's fields as text. Fields that are None are left out."""
    fields: dict[str, str] = {}
    for attribute, name, _, _ in _plan(type(header)):
        value = getattr(header, attribute)
        kind = type(value)
        if kind is str:
            fields[name] = value
        elif kind is int:
            fields[name] = str(value)
        elif value is not None:
            fields[name] = _loose_text(value)
    return fields


def from_ext_fields(cls: type[HeaderT], ext_fields: Mapping[str, str]) -> HeaderT:
    """Read a header of class `cls`; fields that it does not declare are ignored.

    An absent field takes its default, and so does an empty one that is not text,
    because binary headers of 4.6 write null as an empty value. Raises HeaderError,
    which names field and value, when a field cannot be read or one without a default
    is absent.
    """
    values: dict[str, object] = {}
    for attribute, name, read, is_needed in _plan(cls):
        text = ext_fields.get(name)
        if text or (text is not None and read is _read_text):
            try:
                values[attribute] = read(text)
            except ValueError:
                shown = repr(text[:_SHOWN_MAX])
                raise HeaderError(
                    f"{cls.__name__}: {name} is {shown}, not a 64-bit integer"
                ) from None
        elif is_needed:
            raise HeaderError(f"{cls.__name__}: {name} is missing")
    return cls(**values)


def _loose_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, enum.Enum) and not isinstance(value, int):
        return str(value.value)
    return str(int(value)) if isinstance(value, int) else str(value)


def _read_int(text: str) -> int:
    if len(text) < _SURE_DIGITS and text.isdecimal() and text.isascii():
        return int(text)
    if not _INTEGER.fullmatch(text):
        raise ValueError(text)
    value = int(text)
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ValueError(text)
    return value


def _read_bool(text: str) -> bool:
    # Boolean.parseBoolean: every text but "true" is false.
    return text.lower() == "true"


def _read_text(text: str) -> str:
    return text


def _read_boundary(text: str) -> BoundaryType:
    # BoundaryType.getType: every text but "upper" is lower.
    return BoundaryType.UPPER if text.lower() == "upper" else BoundaryType.LOWER


_READERS: dict[str, Callable[[str], object]] = {
    "int": _read_int,
    "bool": _read_bool,
    "str": _read_text,
    "BoundaryType": _read_boundary,
}


def _make_plan(cls: type[Header]) -> Plan:
    return tuple(
        (
            item.name,
            wire_name(item),
            _READERS[str(item.type).removesuffix(" | None")],
            is_required(item),
        )
        for item in cls.__dataclass_fields__.values()
    )


_plan: Callable[[type], Plan] = functools.cache(_make_plan)
