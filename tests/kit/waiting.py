"""How tests wait: for a condition, with a limit that only a hang reaches.

A test that passes needs only a fraction of the limit, even on a very busy machine; the
limit is for a test that would never end. It is below the time-out of a test (`timeout`
in pyproject.toml), so that the failure names the condition.
"""

from __future__ import annotations

import threading
import time

PATIENCE_S = 400
_POLL_S = 0.005


def wait_until(claim, what="", *, timeout_s=PATIENCE_S):
    """Call `claim()` until its result is true, and return that result."""
    end = time.monotonic() + timeout_s
    never = threading.Event()
    while not (found := claim()):
        assert time.monotonic() < end, f"not within {timeout_s} s: {what or claim}"
        never.wait(_POLL_S)
    return found
