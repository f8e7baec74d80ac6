"""A process that flushes before it acknowledges loses no acknowledged message."""

from __future__ import annotations

from tests.store import kills


def test_kills_lose_nothing_acknowledged(tmp_path):
    """Kills five processes; `python -m tests.store.kills` kills a hundred."""
    assert kills.run(tmp_path / "store", kills=5, seed=5) > 5
