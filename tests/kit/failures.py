"""Exceptions that a thread or an event loop of rmq caught, logged, and went on from."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The logger that tells what listeners, which are the user's, have raised.
_LISTENERS = "rmqcli.engine.consume.request"


class _Failures(logging.Handler):
    """Collects the errors that were logged with an exception."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] and record.name != _LISTENERS:
            self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@contextmanager
def no_failures(package: str) -> Iterator[list[str]]:
    """Fail if the code of a package logs an exception until the end.

    It goes on afterwards, so that a test might never notice: a client just waits a
    little longer. A test that wants such an exception clears the list.
    """
    handler = _Failures()
    logger = logging.getLogger(package)
    logger.addHandler(handler)
    try:
        yield handler.texts
    finally:
        logger.removeHandler(handler)
    assert handler.texts == []
