"""What holds for every test of the embedded broker: its own code raises nothing."""

from __future__ import annotations

import logging

import pytest


class _Failures(logging.Handler):
    """Collects the errors that were logged with an exception."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.texts.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@pytest.fixture(autouse=True)
def failures():
    """Fail a test in which a thread of the broker or the proxy caught an exception.

    They log it and go on, so that the test might never notice: a client just waits a
    little longer. A test that wants such an exception clears the list.
    """
    handler = _Failures()
    broker = logging.getLogger("rmqcli.broker")
    broker.addHandler(handler)
    yield handler.texts
    broker.removeHandler(handler)
    assert handler.texts == []
