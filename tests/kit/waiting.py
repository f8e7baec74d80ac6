"""How tests wait: for a condition, with a limit that only a hang reaches.

A test that passes needs only a fraction of the limit, even on a very busy machine; the
limit is for a test that would never end. It is below the time-out of a test (`timeout`
in pyproject.toml), so that the failure names the condition.
"""

from __future__ import annotations

import threading
import time

PATIENCE_S = 400
#: Pauses grow with the time that has passed: what takes seconds is often asked of a
#: cluster, and at the same pace all along it would cost more than what it waits for.
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.03
_PAUSE_SHARE = 0.05


def wait_until(claim, what="", *, timeout_s=PATIENCE_S):
    """Call `claim()` until its result is true, and return that result."""
    begin = time.monotonic()
    never = threading.Event()
    while not (found := claim()):
        passed = time.monotonic() - begin
        assert passed < timeout_s, f"not within {timeout_s} s: {what or claim}"
        never.wait(min(max(_SHORTEST_PAUSE_S, passed * _PAUSE_SHARE), _LONGEST_PAUSE_S))
    return found
