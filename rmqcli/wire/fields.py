"""How classes declare what RocketMQ puts on the wire: fields and their wire names.

Headers (`header.py`) and JSON bodies (`body.py`) are declared in the same way. A
field's name is the snake_case of its wire name; where the two differ in another way,
the field's metadata holds the wire name. The two modules turn such classes into text
and back.
"""

from __future__ import annotations

import dataclasses
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    TypedDict,
    TypeVar,
    Unpack,
    dataclass_transform,
    overload,
)

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    #: Reads a value of JSON that is not null; the text names it in a BodyError.
    Reader: TypeAlias = Callable[[Any, str], object]

T = TypeVar("T")


class Fields:
    """Base of declared classes: compares, hashes and shows the declared fields."""

    __slots__ = ()

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        names = self.__dataclass_fields__
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        fields = self.__dataclass_fields__.values()
        hashed = (item.name for item in fields if item.hash is not False)
        return hash(tuple(getattr(self, name) for name in hashed))

    def __repr__(self) -> str:
        fields = self.__dataclass_fields__.values()
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields if f.repr)
        return f"{type(self).__name__}({', '.join(shown)})"


class Rules(TypedDict, total=False):
    """What the declaration of a field may say; `wire_field` explains it."""

    also: str
    absent: object
    key: str
    is_sent_at_default: bool
    holds_the_rest: bool
    read: Reader
    write: Callable[[Any], object]


@overload
def wire_field(name: str | None = None, *, default: T, **rules: Unpack[Rules]) -> T: ...
@overload
def wire_field(
    name: str | None = None, *, default_factory: Callable[[], T], **rules: Unpack[Rules]
) -> T: ...
@overload
def wire_field(name: str | None = None, **rules: Unpack[Rules]) -> Any: ...  # noqa: ANN401  # the declared type
def wire_field(
    name: str | None = None,
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    **rules: Any,
) -> Any:  # the declared type
    """Declare a field for which the general rules do not suffice.

    `name` is its wire name. The rules are for the fields of bodies. `also` is a second
    wire name, which is read where the first is absent. `absent` is the value of an
    absent field if that is not the field's default. For a dict of objects, `key` is the
    wire name of the field that repeats the dict's key: an object without that field
    takes the value from its key. A field without `is_sent_at_default` is not written
    while it has its default. `read` and `write` replace the functions that follow from
    the field's type.

    A field that `holds_the_rest` is not on the wire: it holds the whole object that was
    read, and the keys of that object that no other field declares are written back. In
    such a class a field at its default is written only if the object that was read had
    it. The field is left out of the object's hash and of its text.
    """
    holds_the_rest = "holds_the_rest" in rules
    return dataclasses.field(
        default=default,
        default_factory=default_factory,
        hash=False if holds_the_rest else None,
        repr=not holds_the_rest,
        metadata={"wire": name, "rules": rules},
    )


FieldsT = TypeVar("FieldsT", bound=Fields)


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(dataclasses.field, wire_field),
)
def declared(cls: type[FieldsT]) -> type[FieldsT]:
    """Make `cls` a dataclass with slots and keyword arguments.

    To the type checker it is frozen. At run time it is not, because an object that is
    takes three times as long to make. Its other methods are those of Fields.
    """
    return dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)


def wire_name(item: dataclasses.Field[Any]) -> str:
    """Return a field's wire name: `queueOffset` for `queue_offset` unless declared."""
    first, *rest = item.name.split("_")
    name = first + "".join(part.capitalize() for part in rest)
    return str(item.metadata.get("wire") or name)


def is_required(item: dataclasses.Field[Any]) -> bool:
    """Whether the field has no default."""
    missing = dataclasses.MISSING
    return item.default is missing and item.default_factory is missing
