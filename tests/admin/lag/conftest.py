"""Members get more time: without --process-queues, `rmq lag` gives them a second."""

from __future__ import annotations

import pytest

from rmqcli.admin.lag import broker


@pytest.fixture(autouse=True)
def _members_have_time(monkeypatch):
    """Raises that limit, because members on a busy machine answer late."""
    monkeypatch.setattr(broker, "OWNER_TIMEOUT_MS", 60_000)
