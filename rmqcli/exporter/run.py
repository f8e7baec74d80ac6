"""Runs the exporter: one thread collects, and another one serves the pages."""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.exporter.collect import MetricsCollector
from rmqcli.exporter.metrics import EXPORTER, LEFT_OUT, TABLES
from rmqcli.exporter.render import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.api.client import Client
    from rmqcli.exporter.collect import Collected, CollectorOptions
    from rmqcli.exporter.metrics import Labels, MetricTable, MetricValues
    from rmqcli.exporter.render import RenderedPages
    from rmqcli.exporter.site import MetricsSite

#: The exporter runs Python's garbage collector once in this many collections.
_GARBAGE_AFTER = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedCollection:
    """One collection, and the pages made from it.

    `stale_pages` take the place of `pages` when these are stale, because no later
    collection has ended: they have only the metrics of the exporter itself, and say
    that the last collection failed.
    """

    pages: RenderedPages
    stale_pages: RenderedPages
    collected: Collected
    duration_ms: int


class Exporter:
    """Collects and renders. Not thread-safe."""

    def __init__(self, client: Client, options: CollectorOptions) -> None:
        self._clock = client.clock
        self._options = options
        self._interval_ms = options.interval_ms
        self._collector = MetricsCollector(client, options)
        self._collections = self._failures = 0
        self._read_ms: int | None = None

    def collect(self) -> RenderedCollection:
        """Collect once, and render the pages."""
        began_ms = self._clock.monotonic_ms()
        found = self._collector.collect()
        duration_ms = self._clock.monotonic_ms() - began_ms
        self._collections += 1
        self._failures += not found.has_values
        if found.has_values:
            self._read_ms = found.at_ms

        def own(*, is_success: bool, groups: int | None) -> dict[Labels, MetricValues]:
            return {
                (): (
                    self._collections,
                    self._failures,
                    float(is_success),
                    None if self._read_ms is None else self._read_ms / 1000,
                    duration_ms / 1000,
                    self._interval_ms / 1000,
                    self._options.stale_after_ms / 1000,
                    groups,
                )
            }

        found.rows[EXPORTER] = own(is_success=not found.errors, groups=found.groups)
        found.rows.setdefault(LEFT_OUT, {})
        rows = {table: found.rows.get(table, {}) for table in TABLES}
        stale: dict[MetricTable, dict[Labels, MetricValues]] = {t: {} for t in TABLES}
        stale[EXPORTER] = own(is_success=False, groups=None)
        return RenderedCollection(
            pages=render(rows),
            stale_pages=render(stale),
            collected=found,
            duration_ms=duration_ms,
        )

    def run(
        self,
        site: MetricsSite,
        on_collection: Callable[[RenderedCollection], None],
        stop: threading.Event | None = None,
    ) -> None:
        """Collect every interval and update the site, until `stop` is set.

        A collection that takes longer than the interval ends first; the next one begins
        with the next interval.
        """
        stop = stop or threading.Event()
        while not stop.is_set():
            began_ms = self._clock.monotonic_ms()
            run = self.collect()
            read_ms = began_ms if run.collected.has_values else None
            site.update(run.pages, run.stale_pages, read_ms=read_ms)
            on_collection(run)
            # Scrapes wait while garbage is looked for; only errors leave much of it.
            if run.collected.errors or self._collections % _GARBAGE_AFTER == 0:
                gc.collect()
            spent_ms = self._clock.monotonic_ms() - began_ms
            self._clock.wait_ms(stop, self._interval_ms - spent_ms % self._interval_ms)
