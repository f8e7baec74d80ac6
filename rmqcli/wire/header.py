"""Between a typed header and the text fields that carry it.

A header class is made by `@header_class` from `Header`. Its field names are the
snake_case of the names on the wire; where a wire name cannot be had so, its metadata
says it. Types that occur: str, int, bool and BoundaryType, each perhaps `| None`.

Source: RemotingCommand.decodeCommandCustomHeader and makeCustomHeaderToNet.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

from rmqcli.errors import HeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Plan: TypeAlias = tuple[tuple[str, str, Callable[[str], object], bool], ...]

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_INT64_MAX = (1 << 63) - 1
_SHOWN_MAX = 80
_SURE_DIGITS = 19  # fewer always fit 64 bits


class BoundaryType(enum.Enum):
    """Which of several messages with the same time is meant (5.1.4 and later)."""

    LOWER = "LOWER"
    UPPER = "UPPER"


def wire(name: str) -> dict[str, str]:
    """The metadata of a dataclass field that is called `name` on the wire."""
    return {"wire": name}


class Header:
    """What all header classes can do: compare, hash and show their fields."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, item[0]) == getattr(other, item[0])
            for item in _plan(type(self))
        )

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, item[0]) for item in _plan(type(self))))

    def __repr__(self) -> str:
        shown = (f"{n}={getattr(self, n)!r}" for n, *_ in _plan(type(self)))
        return f"{type(self).__name__}({', '.join(shown)})"


HeaderT = TypeVar("HeaderT", bound=Header)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def header_class(cls: type[HeaderT]) -> type[HeaderT]:
    """Make `cls` a dataclass with slots and keyword arguments.

    The type checker sees it frozen. At run time it is not, and its methods are those
    of Header: that makes a class in a quarter of the time, and start-up makes dozens.
    """
    return dataclasses.dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)


def to_ext_fields(header: Header) -> dict[str, str]:
    """The header's fields as text. Fields that are None are left out."""
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
    """Read a header of class `cls`; fields it does not know are ignored.

    An absent field is its default; so is an empty one that is not text, because binary
    headers of 4.6 write null as nothing. Raises HeaderError, naming field and value,
    when a field cannot be read or one without a default is absent.
    """
    values: dict[str, object] = {}
    for attribute, name, read, is_required in _plan(cls):
        text = ext_fields.get(name)
        if text or (text is not None and read is _read_text):
            try:
                values[attribute] = read(text)
            except ValueError:
                shown = repr(text[:_SHOWN_MAX])
                raise HeaderError(
                    f"{cls.__name__}: {name} is {shown}, not a whole number of 64 bits"
                ) from None
        elif is_required:
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
    # Boolean.parseBoolean: whatever is not "true" is false.
    return text.lower() == "true"


def _read_text(text: str) -> str:
    return text


def _read_boundary(text: str) -> BoundaryType:
    # BoundaryType.getType: whatever is not "upper" is lower.
    return BoundaryType.UPPER if text.lower() == "upper" else BoundaryType.LOWER


_READERS: dict[str, Callable[[str], object]] = {
    "int": _read_int,
    "bool": _read_bool,
    "str": _read_text,
    "BoundaryType": _read_boundary,
}


#: Per header class: its plan, made when it is first used.
_PLANS: dict[type[object], Plan] = {}


def _plan(cls: type[Header]) -> Plan:
    """For each field: attribute, wire name, reader, and whether it must be there."""
    plan = _PLANS.get(cls)
    if plan is None:
        plan = _PLANS[cls] = tuple(map(_plan_field, _dataclass_fields(cls)))
    return plan


def _plan_field(
    item: dataclasses.Field[object],
) -> tuple[str, str, Callable[[str], object], bool]:
    kind = str(item.type).removesuffix(" | None")
    is_required = item.default is dataclasses.MISSING
    name = item.metadata.get("wire") or _camel(item.name)
    return item.name, name, _READERS[kind], is_required


def _dataclass_fields(cls: type[Header]) -> tuple[dataclasses.Field[object], ...]:
    return dataclasses.fields(cls)  # type: ignore[arg-type]  # header_class made it one


def _camel(name: str) -> str:
    """`queue_offset` -> `queueOffset`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
