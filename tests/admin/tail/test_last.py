"""Which parts of queues are read for the last messages of several queues."""

from __future__ import annotations

from rmqcli.admin.tail.last import _End, _windows
from rmqcli.model import MessageQueue, OffsetRange

FIRST = MessageQueue("orders", "broker-a", 0)
SECOND = MessageQueue("orders", "broker-a", 1)


def test_what_precedes_a_message_without_a_time_is_read_if_the_next_is_young_enough():
    """One that cannot be decoded has no time (-1), and looked older than all others."""
    ends = {
        FIRST: _End(0, 68, 32, times_ms=[-1, 3_000], items=["?", "d"]),
        SECOND: _End(0, 70, 32, times_ms=[1_000, 2_000], items=["a", "b"]),
    }
    assert _windows(ends, 3) == [
        OffsetRange(FIRST, 36, 68),
        OffsetRange(SECOND, 38, 70),
    ]
    ends[FIRST].times_ms = [-1, 500]
    ends[SECOND].times_ms = [1_000, 1_500]
    ends[FIRST].items = ["?", "d"]
    assert _windows(ends, 2) == []
