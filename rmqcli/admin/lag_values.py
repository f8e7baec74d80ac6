"""How the values of lag are made classes: fast, because `rmq lag` starts for them."""

from __future__ import annotations

import dataclasses
from typing import TypeVar, dataclass_transform

ValueT = TypeVar("ValueT")


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
def light_value(cls: type[ValueT]) -> type[ValueT]:
    """Make `cls` a dataclass with slots and keyword arguments, compared by identity.

    Without generated `__eq__` and `__repr__` a class takes a quarter of the time to
    make, and a dozen of them are made before the first request can go out.
    """
    return dataclasses.dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)
