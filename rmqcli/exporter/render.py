"""Renders tables of metrics as compressed pages, by the library of Prometheus.

A page is rendered when a collection ends, in both formats. It is kept compressed, as
Prometheus requests it: a page of 100,000 series is 16 MB, and 1 MB compressed.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric as MetricOfLibrary
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import (
    CONTENT_TYPE_LATEST as OPEN_METRICS_TYPE,
)
from prometheus_client.openmetrics.exposition import (
    generate_latest as generate_open_metrics,
)

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rmqcli.exporter.metrics import Labels, Metric, MetricTable, MetricValues

    Rows = Mapping[MetricTable, Mapping[Labels, MetricValues]]

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_EOF: Final = b"# EOF\n"
_TOTAL: Final = "_total"
#: Names of metrics are valid as they are: to escape them takes longer than the rest.
_AS_IT_IS: Final = "allow-utf-8"
#: The level costs a third of the time of the default, for a page a quarter larger.
_LEVEL: Final = 3
_GZIP: Final = 31  # wbits of zlib for the format of gzip
#: So many samples are rendered at once: it bounds the memory.
_CHUNK: Final = 5_000


@dataclass(frozen=True, slots=True)
class CompressedPage:
    """A page in gzip's format; `size` is the number of bytes without compression."""

    content_type: str
    data: bytes
    size: int


@dataclass(frozen=True, slots=True)
class RenderedPages:
    """The same values in both formats; `series` counts them."""

    text: CompressedPage
    open_metrics: CompressedPage
    series: int


class _OneMetric:
    """What the functions of the library take: a registry with one metric."""

    def __init__(self, metric: MetricOfLibrary) -> None:
        self._metric = metric

    def collect(self) -> Iterable[MetricOfLibrary]:
        return [self._metric]


class _PageWriter:
    """Compresses a page while it is written."""

    def __init__(self, content_type: str) -> None:
        self._content_type = content_type
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._size += len(data)
        self._parts.append(self._compressor.compress(data))

    def page(self) -> CompressedPage:
        self._parts.append(self._compressor.flush())
        return CompressedPage(self._content_type, b"".join(self._parts), self._size)


def render(rows: Rows) -> RenderedPages:
    """Render the rows of tables. Metrics without any value are left out."""
    text, open_metrics = _PageWriter(TEXT_TYPE), _PageWriter(OPEN_METRICS_TYPE)
    series = 0
    for table, of_table in rows.items():
        for at, metric in enumerate(table.metrics):
            is_first = True
            for chunk in _chunks(metric, table, at, of_table):
                registry = _OneMetric(chunk)
                series += len(chunk.samples)
                _write(text, generate_latest, registry, with_head=is_first)
                _write(open_metrics, _open_metrics, registry, with_head=is_first)
                is_first = False
    open_metrics.write(_EOF)
    return RenderedPages(text.page(), open_metrics.page(), series)


def _write(
    page: _PageWriter,
    generate: Callable[[_OneMetric], bytes],
    registry: _OneMetric,
    *,
    with_head: bool,
) -> None:
    data = generate(registry)
    if not with_head:  # the lines of HELP and TYPE, which a metric has once
        data = data.split(b"\n", 2)[2]
    page.write(data)


def _open_metrics(registry: _OneMetric) -> bytes:
    data: bytes = generate_open_metrics(registry, escaping=_AS_IT_IS)  # type: ignore[no-untyped-call]  # the library's
    return data.removesuffix(_EOF)


def _chunks(
    metric: Metric,
    table: MetricTable,
    at: int,
    rows: Mapping[Labels, MetricValues],
) -> Iterator[MetricOfLibrary]:
    """Yield the samples of one metric, by the thousands."""
    is_counter = metric.name.endswith(_TOTAL)
    chunk: MetricOfLibrary | None = None
    for labels, values in rows.items():
        value = values[at]
        if value is None:
            continue
        if chunk is None:
            chunk = MetricOfLibrary(
                metric.name.removesuffix(_TOTAL) if is_counter else metric.name,
                metric.help,
                "counter" if is_counter else "gauge",
            )
        pairs = dict(zip(table.labels, labels, strict=True))
        chunk.add_sample(metric.name, pairs, value)
        if len(chunk.samples) >= _CHUNK:
            yield chunk
            chunk = None
    if chunk is not None:
        yield chunk
