"""A broker that is killed after acknowledgements of POP; see `pop_kills`."""

from __future__ import annotations

import pytest

from tests.broker.pop_kills import run, target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("flush", ["async", "sync"])
@pytest.mark.parametrize("order", [False, True], ids=["concurrent", "order"])
def test_a_kill_loses_no_unacknowledged_message(tmp_path, flush, order):
    """30 kills in all. Concurrently, no acknowledged message comes back, either."""
    with target(tmp_path, real=None, flush=flush) as broker:
        found = run(
            broker,
            kills=8 if flush == "async" else 7,
            order=order,
            after_ms=(0, 1_000),
            seed=1,
        )

    assert found.unacked > 0
    assert found.lost == 0
    if not order:
        assert found.again == 0


def test_in_order_nothing_comes_back_that_was_acknowledged_before_the_last_writing(
    tmp_path,
):
    """Offsets are written every five seconds."""
    with target(tmp_path, real=None, flush="async") as broker:
        found = run(broker, kills=2, order=True, after_ms=(6_000, 6_500), seed=1)

    assert (found.again, found.lost) == (0, 0)
