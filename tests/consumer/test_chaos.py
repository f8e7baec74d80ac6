"""Members that are killed, stopped and started at random lose no message."""

from __future__ import annotations

import pytest

from tests.consumer import chaos
from tests.consumer.chaos import Plan


@pytest.mark.slow
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_a_consumer_that_is_closed_consumes_nothing_twice(tmp_path, orderly):
    plan = Plan(kills=3, signals=("term",), orderly=orderly, members=2, seed=3)
    summary = chaos.run(plan, tmp_path)
    assert summary["wrong"] == []
    assert (summary["lost"], summary["twice"]) == (0, 0)
    assert summary["consumed"] == summary["sent"] > 0


@pytest.mark.slow
def test_a_consumer_that_is_killed_or_stopped_loses_nothing(tmp_path):
    """`python -m tests.consumer.chaos --kills 200` runs the same test for longer."""
    summary = chaos.run(Plan(kills=8, seed=7), tmp_path)
    assert summary["wrong"] == []
    assert summary["lost"] == 0
    assert summary["consumed"] == summary["sent"] > 0


def test_went_back_counts_offsets_that_do_not_grow():
    records = [(0, 0, 1), (1, 0, 2), (0, 1, 3), (0, 1, 3), (1, 5, 4), (1, 2, 5)]
    assert chaos.went_back(records) == 2
