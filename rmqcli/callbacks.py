"""What a program passes to the library to be called: listeners and other callbacks.

The library calls them in its own threads and acts on what they return. A coroutine
function (`async def`) or a generator function returns at once, without having run its
body, so each message would count as one that a listener has seen. Every function that
the library takes is checked here where it is given; where only a call can show it, the
result is.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator

_ADVICE = "pass a plain function, which has done its work when it returns"


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
