"""Which errors in an event loop say something of the work in that loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rmqcli.broker.proxy import proxy
from rmqcli.proxy import io_thread


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("failed", [proxy._loop_failed, io_thread._loop_failed])
@pytest.mark.parametrize(
    ("message", "error", "is_logged"),
    [
        ("a task failed", ValueError("x"), True),
        ("a task failed", None, True),
        ("a task failed", RuntimeError("x"), True),
        ("in PollerCompletionQueue._handle_events", RuntimeError("closed"), False),
        ("in PollerCompletionQueue._handle_events", ValueError("x"), True),
        ("a task failed", BlockingIOError(11, "x"), False),
    ],
)
def test_errors_are_logged_but_for_those_of_another_loop(
    failed, message, error, is_logged, caplog
):
    context: dict[str, Any] = {"message": message}
    if error is not None:
        context["exception"] = error
    loop = asyncio.new_event_loop()
    try:
        loop.set_exception_handler(failed)
        loop.call_exception_handler(context)
    finally:
        loop.close()
    assert [(record.name, message in record.message) for record in caplog.records] == (
        [(failed.__module__, True)] if is_logged else []
    )
