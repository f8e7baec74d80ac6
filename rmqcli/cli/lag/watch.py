"""`rmq lag --watch`: a live table with sparklines on a terminal, JSON lines elsewhere.

Keeps the lag of earlier samples for rates and sparklines. On a terminal the table uses
the alternate screen; its last state is written to the normal screen at the end.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from rmqcli.admin.lag.model import compute_lag, without_answer
from rmqcli.admin.lag.trend import TREND_MIN_MS, Samples, judge
from rmqcli.cli.lag.view import (
    TREND_COLUMNS,
    LagView,
    queue_columns,
    summary_columns,
    without_empty_retries,
)
from rmqcli.cli.ui.messages import is_screen
from rmqcli.cli.ui.output import json_line, row_of, write_whole
from rmqcli.cli.ui.wording import with_flags
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.engine.queue_lag import LagState
from rmqcli.errors import RmqError
from rmqcli.units import format_duration, format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rmqcli.admin.lag.gather import LagReading
    from rmqcli.cli.lag.command import LagOptions
    from rmqcli.cli.options import Common
    from rmqcli.cli.ui.rich.live import LiveScreen, Picture

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 20
#: A reading that takes longer than this shows that brokers keep silent.
_LATE_MS = 1_000
_TREND_MIN = format_duration(TREND_MIN_MS)


#: What is not known about a row while the brokers keep silent.
STALE: dict[str, object] = {
    "state": LagState.UNKNOWN,
    "verdict": None,
    "rate_in": None,
    "rate_out": None,
    "drain_ms": None,
}


class ReadsLag(Protocol):
    """The part of LagGatherer that `--watch` uses."""

    def read(self) -> LagReading:
        """Read the lag once. Raises RmqError."""

    def on_turn(self, action: Callable[[], None]) -> None:
        """Call `action` at least once a second while `read` waits for answers."""


def sparkline(values: Sequence[int | None]) -> str:
    """Return a bar for each value, scaled to the greatest; a blank for None."""
    top = max((v for v in values if v is not None), default=0)
    return "".join(
        " " if v is None else _BARS[v * (len(_BARS) - 1) // top if top else 0]
        for v in values
    )


def watch_lag(common: Common, gatherer: ReadsLag, options: LagOptions) -> int:
    """Read and show the lag every `options.watch` milliseconds until interrupted.

    An error of the first reading is raised. When a later reading fails, or takes long,
    what was read last is shown as stale, with the state UNKNOWN; the next reading may
    succeed again.
    """
    assert options.watch is not None  # else this is not called  # noqa: S101
    interval_ms = options.watch
    watcher = _Watcher(options)
    pause = threading.Event()
    screen: LiveScreen | None = None
    if common.output == "table" and is_screen(sys.stdout):
        from rmqcli.cli.ui.rich.live import LiveScreen

        screen = LiveScreen(sys.stdout, color=common.use_color)
    began_ms = SYSTEM_CLOCK.monotonic_ms()
    watcher.take(gatherer.read())
    error = ""

    def on_turn() -> None:
        """Mark what is shown as stale while the brokers keep silent."""
        late_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
        if screen is not None and late_ms > _LATE_MS and not watcher.is_stale:
            watcher.is_stale = True
            screen.show(watcher.picture(interval_ms=interval_ms, error=error))

    with screen or nullcontext():
        while True:
            if screen is not None:
                screen.show(watcher.picture(interval_ms=interval_ms, error=error))
            else:
                if error:
                    common.messages.warn(error)
                watcher.write_lines()
            spent_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
            SYSTEM_CLOCK.wait_ms(pause, max(0, interval_ms - spent_ms))
            began_ms = SYSTEM_CLOCK.monotonic_ms()
            gatherer.on_turn(on_turn)
            try:
                watcher.take(gatherer.read())
                error = ""
            except RmqError as failed:
                watcher.is_stale = True
                error = with_flags(failed.message)


class _Watcher:
    """Keeps as much of earlier readings as rates and sparklines need."""

    def __init__(self, options: LagOptions) -> None:
        self._options = options
        self._view = LagView(
            groups=(),
            process_queues=options.process_queues,
            is_summary=options.is_summary,
        )
        self._samples = Samples()
        self._history: dict[tuple[object, ...], deque[int | None]] = {}
        self._at_ms = 0
        #: whether the brokers have not answered since the last reading
        self.is_stale = False

    def take(self, reading: LagReading) -> None:
        """Add a reading."""
        found = [compute_lag(group) for group in reading.groups]
        trends = self._samples.take(found, at_ms=reading.monotonic_ms)
        lags = self._options.ordered(
            [judge(lag, trends.get(lag.group)) for lag in found]
        )
        self._view = replace(
            self._view, groups=lags, failures=reading.failures, trends=trends
        )
        self._at_ms = reading.at_ms
        self.is_stale = False
        for lag in lags:
            self._remember((lag.group,), lag.total_lag)
            for queue in lag.queues:
                key = (lag.group, queue.topic, queue.broker_name, queue.queue_id)
                self._remember(key, queue.lag)

    def write_lines(self) -> None:
        """Write a JSON line for each group, with the time of the reading.

        Of a stale reading nothing is known but its time.
        """
        at = format_rfc3339(self._at_ms)
        lines = []
        for lag in self._view.groups:
            if self.is_stale:
                unknown = without_answer(lag, self._since())
                row = {"at": at, **replace(self._view, trends={}).group_json(unknown)}
            else:
                row = {"at": at, **self._view.group_json(lag)}
            lines.append(json_line(row) + "\n")
        write_whole("".join(lines))

    def _since(self) -> str:
        """Say since when there was no answer, in UTC."""
        return f"no answer since {(format_rfc3339(self._at_ms) or '')[11:19]}Z"

    def picture(self, *, interval_ms: int, error: str = "") -> Picture:
        """Return the whole screen: a heading, the table, and errors."""
        from rmqcli.cli.ui.rich.live import Picture

        view = self._view
        what = (
            "all groups" if view.is_summary else ", ".join(g.group for g in view.groups)
        )
        columns = summary_columns(with_trend=True, with_spark=True)
        rows = list(self._rows())
        if not view.is_summary:
            rows = list(without_empty_retries(rows))
            columns = queue_columns(
                with_group=len(view.groups) > 1, with_trend=True, with_spark=True
            )
        if self.is_stale:
            rows = [{**row, **STALE} for row in rows]
        failures = [
            f"{each.broker_name}: {with_flags(each.message)}" for each in view.failures
        ]
        return Picture(
            title=f"lag of {what}",
            words=(
                self._since() if self.is_stale else format_rfc3339(self._at_ms) or "",
                f"every {format_duration(interval_ms)}",
                *(() if view.trends else (f"rates after {_TREND_MIN}",)),
                "Ctrl-C to stop",
            ),
            columns=columns,
            rows=rows,
            warnings=[*failures, *([error] if error else [])],
        )

    def _rows(self) -> Iterator[dict[str, object]]:
        for lag in self._view.groups:
            trend = self._view.trends.get(lag.group)
            if self._view.is_summary:
                row = self._view.summary_row(lag)
                yield {**row, "spark": self._spark((lag.group,))}
                continue
            more = {} if trend is None else row_of(TREND_COLUMNS, trend.group)
            yield {
                "group": lag.group,
                "topic": "TOTAL",
                "lag": lag.total_lag,
                "age_ms": lag.age_ms,
                "state": lag.state,
                "spark": self._spark((lag.group,)),
            } | more
            for row in self._view.table_rows(lag):
                if "topic" not in row:
                    continue
                key = (lag.group, row["topic"], row["broker_name"], row["queue_id"])
                yield {**row, "spark": self._spark(key)}

    def _remember(self, key: tuple[object, ...], lag: int | None) -> None:
        self._history.setdefault(key, deque(maxlen=_HISTORY)).append(lag)

    def _spark(self, key: tuple[object, ...]) -> str:
        return sparkline(tuple(self._history.get(key, ())))
