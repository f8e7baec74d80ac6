"""A test of the engine fails if an exception was caught that it did not expect."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.kit.failures import no_failures

#: What goes on after any exception, except one of a function of the user's.
CAREFUL = ("rmqcli.tasks", "rmqcli.engine.push_consumer", "rmqcli.engine.rebalance")


@pytest.fixture(autouse=True)
def _no_failures(request):
    """It goes on after a defect, a little later, so that a test might not notice."""
    with ExitStack() as stack:
        if request.node.get_closest_marker("injects_exceptions") is None:
            for name in CAREFUL:
                stack.enter_context(no_failures(name))
        yield
