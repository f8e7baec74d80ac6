"""A process killed while it writes under flush sync loses nothing it acknowledged."""

from __future__ import annotations

from tests.store import kills


def test_kills_lose_nothing_acknowledged(tmp_path):
    """Five lives on one folder; `python -m tests.store.kills` does a hundred."""
    assert kills.run(tmp_path / "store", kills=5, seed=5) > 5
