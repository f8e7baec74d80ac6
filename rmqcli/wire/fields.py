"""How classes declare what RocketMQ puts on the wire: fields and their wire names.

Headers (`header.py`) and JSON bodies (`body.py`) are declared in the same way. A
field's name is the snake_case of its wire name; where the two differ in another way,
the field's metadata holds the wire name. The two modules turn such classes into text
and back.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeVar, dataclass_transform

from rmqcli.dataclass import dataclass


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


FieldsT = TypeVar("FieldsT", bound=Fields)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def declared(cls: type[FieldsT]) -> type[FieldsT]:
    """Make `cls` a dataclass with slots and keyword arguments.

    To the type checker it is frozen. At run time it is not, because an object that is
    takes three times as long to make. Its other methods are those of Fields.
    """
    return dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)


def wire(name: str) -> dict[str, str]:
    """Return the metadata of a field whose wire name is `name`."""
    return {"wire": name}


def wire_name(item: dataclasses.Field[Any]) -> str:
    """Return a field's wire name: `queueOffset` for `queue_offset` unless declared."""
    first, *rest = item.name.split("_")
    name = first + "".join(part.capitalize() for part in rest)
    return str(item.metadata.get("wire") or name)


def is_required(item: dataclasses.Field[Any]) -> bool:
    """Whether the field has no default."""
    missing = dataclasses.MISSING
    return item.default is missing and item.default_factory is missing
