"""Checks of the values that programs pass: arguments, settings, addresses.

A value of a wrong type is a TypeError, and any other value that cannot be used is a
ConfigError, which is a ValueError. Both name the argument and its value.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from rmqcli.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The types of settings, by the names that annotations have.
_TYPES: Final[dict[str, type]] = {
    "int": int,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "None": type(None),
}


def check_type(value: object, wanted: type | tuple[type, ...], name: str) -> None:
    """Raise TypeError unless `value` has the type `wanted`, or one of those types.

    A bool is not accepted as an int.
    """
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    if not any(_has_type(value, kind) for kind in kinds):
        raise _wrong_type(value, [kind.__name__ for kind in kinds], name)


def check_int(value: Any, name: str, low: int, high: int) -> int:  # noqa: ANN401  # any
    """Return `value`, an int from `low` to `high`.

    Raises TypeError for anything else than an int, and ConfigError for one that is out
    of range.
    """
    if type(value) is not int:
        check_type(value, int, name)
    if not low <= value <= high:
        raise ConfigError(f"{name} is {value}; it must be {low} to {high}")
    return int(value)


def check_fields(
    settings: object,
    *,
    ranges: Mapping[str, tuple[int, int]],
    types: Mapping[str, type] = {},
) -> None:
    """Check the fields of a dataclass by its annotations.

    `ranges` are the lowest and the highest value of fields, both allowed; None is
    allowed where the annotation has it. `types` are the types that annotations name
    besides int, bool, str and bytes; a field with another annotation is not checked.
    Raises TypeError or ConfigError for the first field that is wrong.
    """
    known = {**_TYPES, **types}
    for each in fields(settings):  # type: ignore[arg-type]  # every caller is one
        value = getattr(settings, each.name)
        names = str(each.type).split(" | ")
        if not all(name in known for name in names):
            continue
        kinds = tuple(known[name] for name in names)
        if not any(_has_type(value, kind) for kind in kinds):
            raise _wrong_type(value, names, each.name, is_secret=not each.repr)
        if value is not None and each.name in ranges:
            check_int(value, each.name, *ranges[each.name])


def _has_type(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def _wrong_type(
    value: object, names: list[str], name: str, *, is_secret: bool = False
) -> TypeError:
    what = "is" if is_secret else f"is {value!r:.100},"
    wanted = [_with_article(each) for each in names if each != "NoneType"]
    if "NoneType" in names:
        wanted.append("None")
    return TypeError(
        f"{name} {what} {_with_article(type(value).__name__)}; it must be"
        f" {' or '.join(wanted)}"
    )


def _with_article(name: str) -> str:
    if name == "None":
        return name
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
