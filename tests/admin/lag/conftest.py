"""Patience with members: `rmq lag` asks them unasked for at most a second."""

from __future__ import annotations

import pytest

from rmqcli.admin.lag import broker


@pytest.fixture(autouse=True)
def _members_have_time(monkeypatch):
    """A busy machine's members are late, and would count as silent ones."""
    monkeypatch.setattr(broker, "OWNER_TIMEOUT_MS", 60_000)
