"""What the line below the plan of a reset says of all its queues together."""

from __future__ import annotations

from rmqcli.admin.reset.plan import QueuePlan
from rmqcli.cli.reset_offset.view import _moved
from rmqcli.model import MessageQueue

AT_MS = 1_767_322_800_000  # 2026-01-02T03:00:00Z


def queue(queue_id, first_ms=None, last_ms=None):
    return QueuePlan(
        queue=MessageQueue("T", "broker-a", queue_id),
        committed=10,
        target=15,
        min_offset=0,
        max_offset=20,
        first_store_ms=first_ms,
        last_store_ms=last_ms,
    )


def test_times_are_those_of_all_queues():
    known = [queue(0, AT_MS, AT_MS + 1_000), queue(1, AT_MS - 1_000, AT_MS)]
    assert _moved(known) == (
        "10 messages, stored from 2026-01-02T02:59:59.000Z to 2026-01-02T03:00:01.000Z"
    )


def test_times_that_are_not_known_of_all_queues_are_not_called_those_of_all():
    """A queue whose offset moved after the plan was left out without a word."""
    assert _moved([queue(0, AT_MS, AT_MS), queue(1)]) == (
        "10 messages, stored at 2026-01-02T03:00:00.000Z in 1 of 2 queues, elsewhere"
        " unknown"
    )


def test_without_any_time_only_the_messages_are_counted():
    assert _moved([queue(0), queue(1)]) == "10 messages"
