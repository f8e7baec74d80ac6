"""Call a function in a thread, so that the caller can show progress meanwhile."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def in_background(call: Callable[[], T], *, name: str) -> Future[T]:
    """Start a daemon thread of this name; the future gets what the call returns.

    PySpark's InheritableThread is not used because it calls the JVM before it can catch
    the error of a JVM that has ended.
    """
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(call())
        except BaseException as error:  # noqa: BLE001  # raised again by the future
            found.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return found
