"""Reads pages of the exporter with the parsers of Prometheus' own library."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_open_metrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rmqcli.api.client import Client
from rmqcli.clock import SystemClock
from rmqcli.config import ClientConfig, parse_namesrv
from rmqcli.exporter.collect import CollectorOptions
from rmqcli.exporter.run import Exporter

if TYPE_CHECKING:
    from rmqcli.exporter.render import CompressedPage, RenderedPages

GZIP = 31


class ShiftedClock(SystemClock):
    """The system's clock, whose time of day a test moves."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def epoch_ms(self) -> int:
        return super().epoch_ms() + self.ahead_ms


class PassingClock(ShiftedClock):
    """The system's clock, which a test moves forward: time passes."""

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


def inflated(page: CompressedPage) -> str:
    return zlib.decompress(page.data, GZIP).decode()


def values_of(page: str | RenderedPages) -> dict[tuple[str, ...], float]:
    """(metric, value of each label in the order of their names) -> value.

    Of pages in both formats, which must have the same values.
    """
    if not isinstance(page, str):
        values = values_of(inflated(page.text))
        assert _values(parse_open_metrics(inflated(page.open_metrics))) == values
        assert len(values) == page.series
        return values
    return _values(parse_text(page))


def _values(families) -> dict[tuple[str, ...], float]:
    found = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, *(value for _, value in sorted(sample.labels.items())))
            assert key not in found, key
            assert math.isfinite(sample.value)
            found[key] = sample.value
    return found


class Scrapes:
    """An exporter of a cluster, and what its pages say."""

    def __init__(self, namesrv: str, *, timeout_ms: int = 5_000, **options) -> None:
        self.clock = PassingClock()
        config = ClientConfig(namesrv=parse_namesrv(namesrv), timeout_ms=timeout_ms)
        self.client = Client(config, clock=self.clock)
        self.exporter = Exporter(self.client, CollectorOptions(**options))
        self.errors: dict[str, str] = {}

    def __enter__(self):
        return self

    def __exit__(self, *exc_info) -> None:
        self.client.close()

    def collect(self) -> dict[tuple[str, ...], float]:
        run = self.exporter.collect()
        self.errors = run.collected.errors
        return values_of(run.pages)
