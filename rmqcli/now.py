"""The two times a core is told with every call."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """`monotonic_ms` for intervals and deadlines, `epoch_ms` for what is stored."""

    monotonic_ms: int
    epoch_ms: int
