"""What holds for every test of the embedded broker: its own code raises nothing."""

from __future__ import annotations

import pytest

from tests.kit.failures import no_failures


@pytest.fixture(autouse=True)
def failures():
    """The exceptions that threads of the broker and the proxy caught: none."""
    with no_failures("rmqcli.broker") as texts:
        yield texts
