"""Leaves out what a condition on store times cannot be true of.

Store times of a queue are in order, unless its broker's clock was set back or another
broker with another clock took over. So the range that is left reaches an hour beyond
the times of the condition: what lies outside was stored by a clock that was more than
an hour apart. A queue whose store times were seen not to be in order is read whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rmqcli.admin.positions import resolve_ranges_each
from rmqcli.errors import RmqError
from rmqcli.model import OffsetRange
from rmqcli.position import AtTime, Earliest, Latest
from rmqcli.units import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.admin.positions import ResolvedRange
    from rmqcli.admin.tail.where import Where
    from rmqcli.api.client import Client

#: How far clocks may be apart.
APART_MS: Final = HOUR_MS


def bound_by_time(
    client: Client, ranges: Sequence[OffsetRange], where: Where, *, keeps_ends: bool
) -> list[OffsetRange]:
    """Return the ranges without messages of which `where` is not true by their times.

    With `keeps_ends` only their starts change. Ranges of brokers that do not answer
    stay as they are.
    """
    low_ms, high_ms = where.store_times_ms
    has_low = low_ms > APART_MS
    has_high = high_ms < math.inf and not keeps_ends
    if not has_low and not has_high:
        return list(ranges)
    inside = resolve_ranges_each(
        client,
        [wanted.queue for wanted in ranges],
        AtTime(math.floor(low_ms) - APART_MS, "") if has_low else Earliest(),
        AtTime(math.floor(high_ms) + APART_MS + 1, "") if has_high else Latest(),
    )
    return [_both(wanted, inside[wanted.queue]) for wanted in ranges]


def _both(wanted: OffsetRange, inside: ResolvedRange | RmqError) -> OffsetRange:
    if isinstance(inside, RmqError) or inside.is_unsorted:
        return wanted
    found = inside.offsets
    start = max(wanted.start, found.start)
    return OffsetRange(wanted.queue, start, max(start, min(wanted.end, found.end)))
