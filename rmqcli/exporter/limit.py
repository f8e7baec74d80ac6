"""Limits how many series there are: a cluster cannot flood its monitoring. Pure.

Totals of groups and brokers always stay. What remains of the limit goes to topics, and
then to queues, of the groups that need the least, so that one group with ten thousand
queues costs its own queues and not those of others. A group keeps all of its queues or
none: a sum over half of them would look like a lag.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from rmqcli.exporter.metrics import (
    CLIENTS,
    GROUP_BROKERS,
    GROUP_TOPICS,
    HELD_QUEUES,
    QUEUES,
    TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.exporter.metrics import Labels, MetricTable, MetricValues

    Rows = Mapping[MetricTable, dict[Labels, MetricValues]]

OF_QUEUES: Final = (CLIENTS, QUEUES, HELD_QUEUES)
#: Tables that may be left out, in the order in which the limit is spent.
_LEVELS: Final = ((GROUP_TOPICS, GROUP_BROKERS, TOPICS), OF_QUEUES)


class QueueRows:
    """The rows about queues of the groups that need the least, up to a limit.

    A cluster may have ten times as many, which are not kept until all of them are read.
    What is left out here `limit_series` would leave out, too.
    """

    def __init__(self, series_max: int) -> None:
        #: group -> series
        self.left_out: Counter[str] = Counter()
        self._left = series_max
        #: (series, group, rows), the most series last
        self._groups: list[tuple[int, str, Rows]] = []

    def add(self, group: str, rows: Rows) -> None:
        """Add the rows of a group."""
        size = sum(len(table.metrics) * len(found) for table, found in rows.items())
        self._left -= size
        insort(self._groups, (size, group, rows), key=itemgetter(0, 1))
        while self._left < 0:
            size, group, _ = self._groups.pop()
            self._left += size
            self.left_out[group] += size

    def take(self) -> dict[MetricTable, dict[Labels, MetricValues]]:
        """Return the rows that are kept, of all groups."""
        return {
            table: {
                labels: values
                for _, _, rows in self._groups
                for labels, values in rows[table].items()
            }
            for table in OF_QUEUES
        }


def limit_series(
    rows: Rows, series_max: int
) -> tuple[dict[MetricTable, dict[Labels, MetricValues]], Counter[str]]:
    """Return the rows that fit, and how many series of each group are left out.

    Topics as such belong to no group; those that are left out count for an empty name.
    """
    limited = {table for level in _LEVELS for table in level}
    left = series_max - sum(
        len(table.metrics) * len(of_table)
        for table, of_table in rows.items()
        if table not in limited
    )
    kept = dict(rows)
    left_out: Counter[str] = Counter()
    for level in _LEVELS:
        sizes: Counter[str] = Counter()
        for table in level:
            for labels in rows.get(table, {}):
                sizes[_group(table, labels)] += len(table.metrics)
        refused = set()
        for group, size in sorted(sizes.items(), key=lambda each: (each[1], each[0])):
            if size <= left:
                left -= size
            else:
                refused.add(group)
                left_out[group] += size
        for table in level if refused else ():
            kept[table] = {
                labels: values
                for labels, values in rows.get(table, {}).items()
                if _group(table, labels) not in refused
            }
    return kept, left_out


def _group(table: MetricTable, labels: Labels) -> str:
    return labels[table.labels.index("group")] if "group" in table.labels else ""
