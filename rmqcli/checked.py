"""Checks of what programs pass: arguments, settings, addresses, and functions.

A value of a wrong type is a TypeError, and any other value that cannot be used is a
ConfigError, which is a ValueError. Both name the argument and its value.

Listeners and other callbacks are called in the library's threads, which act on what is
returned. A coroutine function (`async def`) or a generator function returns at once,
without having run its body, so each message would count as one that a listener has
seen. Every function is checked where it is given; where only a call can show it, the
result is.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import fields
from typing import Any, Final, ParamSpec, TypeVar

from rmqcli.errors import ConfigError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

#: The types of settings and arguments, by the names that annotations have.
_TYPES: Final[dict[str, type]] = {
    "int": int,
    "bool": bool,
    "str": str,
    "bytes": bytes,
    "None": type(None),
    "Callable": Callable,  # type: ignore[dict-item]  # isinstance takes it
    "Collection": Collection,
    "Iterable": Iterable,
    "Mapping": Mapping,
    "Sequence": Sequence,
}
#: Between the types of an annotation, outside of brackets.
_ALTERNATIVES: Final = r" \| (?![^\[]*\])"
#: A text is a collection of its characters, which nobody means.
_OF_SEVERAL: Final = (Collection, Iterable, Sequence)
#: What to do about a function that returns before its work is done.
_ADVICE: Final = "pass a plain function, which has done its work when it returns"


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


def check_rate_per_s(value: Any) -> None:  # noqa: ANN401  # any
    """Check a number of messages in each second, or None for no limit.

    Raises TypeError for anything else than a number, and ConfigError for one that is
    not greater than 0.
    """
    check_type(value, (int, float, type(None)), "rate_per_s")
    if value is not None and not 0 < value < math.inf:
        raise ConfigError(f"rate_per_s is {value}; it must be greater than 0")


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
        wanted = _wanted(str(each.type), known)
        if wanted is None:
            continue
        if not any(_has_type(value, kind) for kind in wanted.values()):
            raise _wrong_type(value, list(wanted), each.name, is_secret=not each.repr)
        if value is not None and each.name in ranges:
            check_int(value, each.name, *ranges[each.name])


def checks_arguments(
    **types: type,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Check the arguments of the decorated function by its annotations.

    Of a collection only the outermost type is checked. `types` are as in
    `check_fields`, as is what is not checked; those of `**name: Unpack[...]` are a
    TypedDict, whose fields are arguments. The function raises TypeError for the first
    argument that is wrong, and for one that it does not have. Costs some microseconds
    for each call.
    """
    known = {**_TYPES, **types}

    def decorate(
        function: Callable[Parameters, Result],
    ) -> Callable[Parameters, Result]:
        plain = inspect.signature(function)
        signature = _unpacked(plain, types)
        is_unpacked = signature is not plain
        checked = {
            name: wanted
            for name, each in signature.parameters.items()
            if (wanted := _wanted(str(each.annotation), known)) is not None
        }

        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                if is_unpacked and kwargs.keys() - signature.parameters.keys():
                    raise TypeError(f"{function.__qualname__}() {error}") from None
                given = {}  # the error of the call below names the function, too
            for name, value in given.items():
                wanted = checked.get(name)
                if wanted is not None and not any(
                    _has_type(value, kind) for kind in wanted.values()
                ):
                    raise _wrong_type(value, list(wanted), name)
            return function(*args, **kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]  # inspect reads it
        return call

    return decorate


def _unpacked(
    signature: inspect.Signature, types: Mapping[str, type]
) -> inspect.Signature:
    """Put the fields of a TypedDict in place of `**name: Unpack[...]`."""
    parameters = list(signature.parameters.values())
    found = re.fullmatch(r"Unpack\[(\w+)\]", str(parameters[-1].annotation))
    if found is None:
        return signature
    annotations = types[found[1]].__annotations__
    parameters[-1:] = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=each.__forward_arg__,
        )
        for name, each in annotations.items()
    ]
    return signature.replace(parameters=parameters)


def _wanted(annotation: str, known: Mapping[str, type]) -> dict[str, type] | None:
    """The types of an annotation by name; None if one of them is not known."""
    names = [re.sub(r"\[.*", "", each) for each in re.split(_ALTERNATIVES, annotation)]
    if not all(name in known for name in names):
        return None
    return {name: known[name] for name in names}


def _has_type(value: object, kind: type) -> bool:
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in _OF_SEVERAL and isinstance(value, str | bytes):
        return False
    return isinstance(value, kind)


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


def check_callback(function: object, name: str) -> None:
    """Raise TypeError unless a call of `function` runs it to its end; None is allowed.

    A plain function that returns a coroutine is not noticed here; see `check_returned`.
    """
    if function is None:
        return
    if not callable(function):
        raise TypeError(f"{name} is {function!r}, which is not callable")
    runs = _runs(function)
    if inspect.iscoroutinefunction(runs):
        kind = "a coroutine function (async def)"
    elif inspect.isasyncgenfunction(runs):
        kind = "an asynchronous generator function (async def)"
    elif inspect.isgeneratorfunction(runs):
        kind = "a generator function"
    else:
        return
    raise TypeError(f"{name} {function!r} is {kind}; {_ADVICE}")


def check_coroutine_function(function: object, name: str) -> None:
    """Raise TypeError unless `function` is declared with `async def`; None is allowed.

    The listener of an asynchronous consumer is awaited. A plain function would hold up
    the event loop, and one that returns an awaitable cannot be told from it.
    """
    if function is None:
        return
    if not callable(function):
        raise TypeError(f"{name} is {function!r}, which is not callable")
    if not inspect.iscoroutinefunction(_runs(function)):
        raise TypeError(
            f"{name} {function!r} is not a coroutine function; declare it with async"
            " def, or pass it to rmqcli.Consumer, which calls it in a thread"
        )


def check_returned(value: object, name: str) -> None:
    """Raise TypeError if a call returned before its work was done, as coroutines do.

    The coroutine is closed, so that Python does not warn that it was never awaited.
    """
    if isinstance(value, Coroutine):
        value.close()
        kind = "a coroutine"
    elif isinstance(value, Generator):
        value.close()
        kind = "a generator"
    elif isinstance(value, AsyncIterator):
        kind = "an asynchronous generator"
    elif isinstance(value, Awaitable):
        kind = "an awaitable"
    else:
        return
    raise TypeError(f"{name} returned {kind}, {value!r}; {_ADVICE}")


def _runs(function: object) -> object:
    """The function that a call of `function` runs; itself for a function or method."""
    while not (inspect.isroutine(function) or isinstance(function, type)):
        if isinstance(function, functools.partial):
            function = function.func
        else:
            function = type(function).__call__
    return function
