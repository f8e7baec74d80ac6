"""Durations by their frequency: percentiles in bounded memory. Pure.

A duration is counted in a bucket whose width is at most 1/128 of its values, so a
percentile is at most 0.8 % too high, and never too low. The idea is that of
HdrHistogram.
"""

from __future__ import annotations

import math
from typing import Final

_BITS: Final = 7
_EXACT: Final = 1 << (_BITS + 1)

#: The percentiles that are reported, by their names.
PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99_9": 99.9}


class Latencies:
    """How often each duration occurred. Not thread-safe."""

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self._total = 0
        self._min: int | None = None
        self._max: int | None = None

    def add(self, duration_us: int, times: int = 1) -> None:
        """Count a duration. Raises ValueError for a negative one."""
        if duration_us < 0:
            raise ValueError(f"duration_us is {duration_us}; it must not be negative")
        bucket = _bucket(duration_us)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + times
        self.count += times
        self._total += duration_us * times
        if self._min is None or duration_us < self._min:
            self._min = duration_us
        if self._max is None or duration_us > self._max:
            self._max = duration_us

    def percentile(self, percent: float) -> int | None:
        """Return the duration that this share did not exceed; None without any."""
        if self._max is None:
            return None
        wanted = max(1, math.ceil(self.count * percent / 100))
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                break
        return min(_highest(bucket), self._max)

    def summary(self) -> dict[str, int | float | None]:
        """Return count, min, mean, percentiles and max; None without any duration."""
        mean = self._total / self.count if self.count else None
        return {
            "count": self.count,
            "min": self._min,
            "mean": None if mean is None else round(mean, 1),
            **{name: self.percentile(value) for name, value in PERCENTILES.items()},
            "max": self._max,
        }


def _bucket(value: int) -> int:
    if value < _EXACT:
        return value
    shift = value.bit_length() - _BITS - 1
    return (shift << _BITS) + (value >> shift)


def _highest(bucket: int) -> int:
    """Return the greatest value that `_bucket` puts there."""
    if bucket < _EXACT:
        return bucket
    shift = (bucket >> _BITS) - 1
    return (((bucket - (shift << _BITS)) + 1) << shift) - 1
