"""Targets of `rmq reset-offset`, for a group at 30 and 40 in queues of 60 messages."""

from __future__ import annotations

#: Flags, and the group's offsets in the two queues after the reset.
TARGETS = [
    (["--to", "earliest"], [0, 0]),
    (["--to", "latest"], [60, 60]),
    (["--to", "now"], [60, 60]),
    (["--to", "17"], [17, 17]),
    (["--to", "-10"], [50, 50]),
    (["--to", "+7"], [7, 7]),
    (["--to", "-1h"], [0, 0]),
    (["--to", "@2001-01-01T00:00:00Z"], [0, 0]),
    (["--shift", "5"], [35, 45]),
    (["--shift", "-35"], [0, 5]),  # clamped in the first queue
    (["--to", "17", "--queue", "1"], [30, 17]),
]
