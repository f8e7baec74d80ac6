"""Nothing grows with starts, with time or with reconnects: short runs of `leaks.py`.

Each run has its own process, so that it measures only itself. Longer runs are started
by hand; see `python -m tests.consumer.leaks --help`.
"""

from __future__ import annotations

import json

import pytest

from tests.consumer.leaks import judged
from tests.kit.program import Program


def measured(tmp_path, kind, times):
    source = "import sys; sys.argv[0] = 'leaks'; from tests.consumer import leaks"
    with Program(
        f"{source}; leaks.main()", tmp_path, kind, "--times", str(times)
    ) as running:
        text = "\n".join(running.rest())
        running.exit_code()
        assert text, running.errors
        return json.loads(text)


@pytest.mark.slow
def test_consumers_that_start_and_close_leave_nothing_behind(tmp_path):
    """Closed consumers leave no threads or sockets, and send no requests. The command
    does this 1,000 times by default."""
    summary = measured(tmp_path, "cycles", 25)
    assert summary["wrong"] == []
    assert summary["consumed"] == summary["committed"] == 25
    assert summary["after"] == summary["before"]
    assert summary["requests_after_the_last_close"] == 0


@pytest.mark.slow
def test_an_orderly_consumer_of_an_empty_topic_does_not_grow(tmp_path):
    """Its threads, sockets, timers and memory do not grow. The command can do this for
    days of the consumer's time."""
    summary = measured(tmp_path, "idle", 60)
    assert summary["wrong"] == []
    assert summary["heartbeats"] >= 60
    assert summary["after"] == summary["before"]


@pytest.mark.slow
def test_ten_thousand_reconnects_cost_no_memory(tmp_path):
    """The memory grows by less than 5 MiB, and no socket or thread is added."""
    summary = measured(tmp_path, "reconnects", 10_000)
    assert summary["wrong"] == []
    assert summary["rss_growth_kib"] < 5 * 1024


def test_growing_counts_are_reported_as_a_leak():
    summary = {"after": 3, "rss_growth_kib": 6_000}
    assert judged(summary, {"after": 2})["wrong"] == [
        "after is 3, not 2",
        "memory grew by 6000 KiB",
    ]
