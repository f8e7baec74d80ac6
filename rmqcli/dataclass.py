"""`dataclass` as in the standard library, but quick to apply to a class.

Python compiles up to seven methods of a dataclass when its module is imported, and
that takes longer than all the rest of the import. A command imports hundreds of classes
and makes objects of a few. So here `__init__` is compiled when it is first looked up,
and the other methods are closures. What they do is the same, and `fields`, `replace`,
`inspect.signature`, `copy` and `pickle` see no difference. `order`, `unsafe_hash` and
`InitVar` are not supported.
"""

from __future__ import annotations

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
    # Python refuses to derive a frozen class from one that is not, and the reverse.
    params = [getattr(base, "__dataclass_params__", None) for base in cls.__mro__[1:]]
    cls = dataclasses.dataclass(
        init=False,
        repr=False,
        eq=False,
        frozen=any(each.frozen for each in params if each is not None),
        slots=slots,
        kw_only=kw_only,
    )(cls)
    cls.__dataclass_params__.frozen = frozen
    methods: dict[str, Any] = {}
    if init:
        methods["__init__"] = _Init(cls, is_frozen=frozen)
    if repr:
        methods["__repr__"] = _shown
    if eq:
        methods["__eq__"] = _equality(cls)
        methods["__hash__"] = _hash(cls) if frozen else None
    if frozen:
        methods["__setattr__"] = methods["__delattr__"] = _refuse
    if frozen and slots:
        methods["__getstate__"] = _state
        methods["__setstate__"] = _set_state
    for name in methods.keys() - own:
        setattr(cls, name, methods[name])
    return cls


class _Init:
    """Stands for the `__init__` of a class until it is first looked up."""

    __slots__ = ("_cls", "_is_frozen")

    def __init__(self, cls: type, *, is_frozen: bool) -> None:
        self._cls = cls
        self._is_frozen = is_frozen

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = _compile_init(self._cls, is_frozen=self._is_frozen)
        type.__setattr__(self._cls, "__init__", method)
        return method.__get__(instance, owner)


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
