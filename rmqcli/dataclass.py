"""`dataclass` as in the standard library, but quick to apply to a class.

Python examines the fields of a dataclass, and compiles up to seven methods of it, when
its module is imported, and that takes longer than all the rest of the import. A command
imports hundreds of classes and makes objects of a few. So here all that waits until it
is first looked up, and only slots are made at once. What classes and their objects do
is the same, and `fields`, `replace`, `inspect.signature`, `copy` and `pickle` see no
difference. `order`, `unsafe_hash` and `InitVar` are not supported.
"""

from __future__ import annotations

import copy
import dataclasses
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # what the type checker knows
else:

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        """Make a class a dataclass; the arguments are those of the standard library."""
        return (lambda made: _make(made, **options)) if cls is None else _make(cls)


def _make(
    cls: Any,
    *,
    init: bool = True,
    repr: bool = True,  # as in dataclasses
    eq: bool = True,
    frozen: bool = False,
    slots: bool = False,
    kw_only: bool = False,
) -> Any:
    own = {name for name, value in vars(cls).items() if value is not None}
    cls.__doc__ = cls.__doc__ or cls.__name__  # else Python makes one of the signature
    defaults = {
        name: vars(cls).get(name, dataclasses.MISSING)
        for name, kind in cls.__annotations__.items()
        if "ClassVar" not in str(kind)
    }
    for name, default in defaults.items():
        if type(default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name} has a default that can change")
    methods: dict[str, Any] = {
        "__dataclass_params__": _PARAMS[frozen],
        "__dataclass_fields__": _Late(lambda cls: _fields(cls, defaults, kw_only)),
        "__match_args__": _Late(_match_args),
    }
    if init:
        methods["__init__"] = _Late(lambda cls: _compile_init(cls, is_frozen=frozen))
    if repr:
        methods["__repr__"] = _shown
    if eq:
        methods["__eq__"] = _Late(_equality)
        methods["__hash__"] = _Late(_hash) if frozen else None
    if frozen:
        methods["__setattr__"] = methods["__delattr__"] = _refuse
    if frozen and slots:
        methods["__getstate__"] = _state
        methods["__setstate__"] = _set_state
    added = {name: value for name, value in methods.items() if name not in own}
    if slots:
        return _with_slots(cls, defaults, added)
    for name, default in defaults.items():
        if isinstance(default, dataclasses.Field):
            if default.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, default.default)
    for name, value in added.items():
        setattr(cls, name, value)
        if isinstance(value, _Late):
            value.__set_name__(cls, name)
    return cls


def _is_keyword_marker(kind: object) -> bool:
    return "KW_ONLY" in str(kind)


def _with_slots(cls: Any, defaults: dict[str, Any], added: dict[str, Any]) -> Any:
    """Return a class like `cls` with slots for the fields that its bases do not have.

    `added` are attributes that it has beside: to set them later takes longer.
    """
    there = {
        name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())
    }
    slots = [
        name
        for name, kind in cls.__annotations__.items()
        if name in defaults and name not in there and not _is_keyword_marker(kind)
    ]
    # Without those of a class that has no slots.
    without = {"__dict__", "__weakref__", *defaults}
    body = {name: value for name, value in vars(cls).items() if name not in without}
    body |= {**added, "__slots__": tuple(slots)}
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _fields(
    cls: Any, defaults: dict[str, Any], kw_only: object
) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of the bases of a class, and its own."""
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= getattr(base, "__dataclass_fields__", {})
    for name, default in defaults.items():
        kind = cls.__annotations__[name]
        if _is_keyword_marker(kind):
            kw_only = True
            continue
        is_field = isinstance(default, dataclasses.Field)
        each = default if is_field else dataclasses.field(default=default)
        each.name, each.type = name, kind
        each._field_type = _FIELD_TYPE  # noqa: SLF001  # which `fields` looks at
        if each.kw_only is dataclasses.MISSING:
            each.kw_only = kw_only
        fields[name] = each
    return fields


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Example:
    """What the standard library makes of a class."""

    value: int


_FIELD_TYPE: Any = dataclasses.fields(_Example)[0]._field_type  # type: ignore[attr-defined]  # noqa: SLF001
#: Whether a class is frozen -> what says so
_PARAMS: dict[bool, Any] = {
    is_frozen: copy.copy(_Example.__dataclass_params__)  # type: ignore[attr-defined]
    for is_frozen in (False, True)
}
_PARAMS[True].frozen = True


class _Late:
    """Stands for an attribute of a class until it is first looked up."""

    __slots__ = ("_cls", "_make", "_name")

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._cls = owner
        self._name = name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        value = self._make(self._cls)
        type.__setattr__(self._cls, self._name, value)
        bind = getattr(value, "__get__", None)
        return value if bind is None else bind(instance, owner)


class _Factory:
    """The default of an argument whose value a function makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _compile_init(cls: Any, *, is_frozen: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    positional, keyword = ["self"], ["*"]
    lines: list[str] = []
    annotations: dict[str, Any] = {}
    for each in dataclasses.fields(cls):
        name, value, default = each.name, each.name, ""
        if each.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}()"
            if each.init:
                value += f" if {name} is _FACTORY else {name}"
            default = "=_FACTORY"
        elif each.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = each.default
            value = name if each.init else f"_default_{name}"
            default = f"=_default_{name}"
        elif not each.init:
            continue  # `__post_init__` sets it
        if each.init:
            annotations[name] = each.type
            (keyword if each.kw_only else positional).append(name + default)
        if is_frozen:
            lines.append(f" _set(self, '{name}', {value})")
        else:
            lines.append(f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    arguments = [*positional, *(keyword if len(keyword) > 1 else ())]
    lines.insert(0, f"def __init__({', '.join(arguments)}):")
    code = compile("\n".join([*lines, " pass"]), f"<{cls.__name__}>", "exec")
    # As code, not as text: Python forgets, when it runs a text, that Ctrl-C has ended
    # the program, and then its exit status does not say so.
    exec(code, known)  # noqa: S102  # of names of fields only
    method = known["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    method.__module__ = cls.__module__
    method.__annotations__ = {**annotations, "return": None}
    return method


def _match_args(cls: Any) -> tuple[str, ...]:
    fields = dataclasses.fields(cls)
    return tuple(each.name for each in fields if each.init and not each.kw_only)


def _equality(cls: Any) -> Any:
    values = _values([each.name for each in dataclasses.fields(cls) if each.compare])

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hash(cls: Any) -> Any:
    values = _values(
        [
            each.name
            for each in dataclasses.fields(cls)
            if (each.compare if each.hash is None else each.hash)
        ]
    )

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns the values of these attributes."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


@recursive_repr("...")
def _shown(self: Any) -> str:
    shown = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}"
        for each in dataclasses.fields(self)
        if each.repr
    )
    return f"{self.__class__.__qualname__}({shown})"


def _refuse(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"field {name!r} cannot be changed")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
