"""What a scraper gets: the pages of the last collection, and whether they are good.

A page is replaced as a whole when a collection ends, so that an answer never waits for
a broker and never mixes two collections. A collection that waits for a broker that
hangs may take long: when the values are stale before it ends, a page without them takes
their place. If no collection has ended for too long, as only a defect of this program
could cause, there is no page at all: values without an age would look alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.units import format_duration

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.exporter.render import RenderedPages

_OPEN_METRICS: Final = "application/openmetrics-text"
_PLAIN: Final = "text/plain; charset=utf-8"
_INDEX: Final = b"rmq exporter: /metrics /healthz /readyz\n"
#: A collection that has not ended for this long never ends: its requests have limits.
_STUCK_MS: Final = 10 * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAnswer:
    """An answer of the site. `data` is in gzip's format if `is_gzip`.

    `size` is the number of bytes without compression.
    """

    status: int
    content_type: str
    data: bytes
    size: int
    is_gzip: bool = False


class MetricsSite:
    """Answers requests from memory. `update` is called by another thread."""

    def __init__(self, clock: Clock, *, stale_after_ms: int) -> None:
        self._clock = clock
        self._stale_after_ms = stale_after_ms
        self._began_ms = clock.monotonic_ms()
        #: The pages, those for when they are stale, when they were rendered, and when
        #: values were read: set as a whole.
        self._state: tuple[
            RenderedPages | None, RenderedPages | None, int, int | None
        ] = (None, None, self._began_ms, None)

    def update(
        self, pages: RenderedPages, stale_pages: RenderedPages, *, read_ms: int | None
    ) -> None:
        """Replace the pages, and those that take their place when they are stale.

        `read_ms` is when the collection began (monotonic), None if it read nothing.
        """
        if read_ms is None:
            read_ms = self._state[3]
        self._state = (pages, stale_pages, self._clock.monotonic_ms(), read_ms)

    def answer(self, path: str, accept: str) -> SiteAnswer:
        """Answer a GET of a path; `accept` is the header of the request."""
        match path.partition("?")[0]:
            case "/metrics":
                return self._metrics(accept)
            case "/healthz":
                return self._health()
            case "/readyz":
                return self._readiness()
            case "/":
                return text_answer(200, _INDEX)
        return text_answer(404, b"not found; the metrics are at /metrics\n")

    def _metrics(self, accept: str) -> SiteAnswer:
        pages, stale_pages, rendered_ms, _ = self._state
        if pages is None or stale_pages is None:
            return text_answer(503, b"the first collection has not ended\n")
        age_ms = self._clock.monotonic_ms() - rendered_ms
        if age_ms > self._stuck_after_ms():
            return text_answer(503, b"no collection has ended for too long\n")
        if age_ms > self._stale_after_ms:
            pages = stale_pages
        page = pages.open_metrics if wants_open_metrics(accept) else pages.text
        return SiteAnswer(
            status=200,
            content_type=page.content_type,
            data=page.data,
            size=page.size,
            is_gzip=True,
        )

    def _health(self) -> SiteAnswer:
        _, _, rendered_ms, _ = self._state
        if self._clock.monotonic_ms() - rendered_ms > self._stuck_after_ms():
            return text_answer(503, b"no collection has ended for too long\n")
        return text_answer(200, b"ok\n")

    def _readiness(self) -> SiteAnswer:
        *_, read_ms = self._state
        if read_ms is None:
            return text_answer(503, b"nothing has been read from the cluster yet\n")
        age_ms = self._clock.monotonic_ms() - read_ms
        if age_ms > self._stale_after_ms:
            text = f"nothing has been read for {format_duration(age_ms)}\n"
            return text_answer(503, text.encode())
        return text_answer(200, b"ready\n")

    def _stuck_after_ms(self) -> int:
        return max(_STUCK_MS, 3 * self._stale_after_ms)


def text_answer(status: int, text: bytes) -> SiteAnswer:
    """Return an answer in plain text."""
    return SiteAnswer(status=status, content_type=_PLAIN, data=text, size=len(text))


def wants_open_metrics(accept: str) -> bool:
    """Whether the header `Accept` prefers OpenMetrics 1.0 to the text format."""
    best = {_OPEN_METRICS: 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (each.strip().lower() for each in part.split(";"))
        named = dict(each.partition("=")[::2] for each in parameters)
        version = named.get("version", "1.0.0")
        if kind in best and (kind != _OPEN_METRICS or version in ("1.0.0", "0.0.1")):
            best[kind] = max(best[kind], _quality(named.get("q", "1")))
    return best[_OPEN_METRICS] > 0 and best[_OPEN_METRICS] >= best["text/plain"]


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether the header `Accept-Encoding` allows gzip."""
    for part in accept_encoding.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        named = dict(each.partition("=")[::2] for each in parameters)
        if name == "gzip":
            return _quality(named.get("q", "1")) > 0
    return False


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
