"""`rmq lag --watch`: in place with sparklines on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import dataclasses
import io
import re
import shutil
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from rmqcli.admin.lag.model import compute_lag
from rmqcli.admin.lag.trend import TREND_MIN_MS, Samples, judge
from rmqcli.cli.lag.columns import queue_columns, summary_columns
from rmqcli.cli.lag.rows import LagView
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.cli.ui.output import display_width, json_line, write_table
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.errors import RmqError
from rmqcli.units import format_duration, format_rfc3339

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.admin.lag.gather import LagReading
    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.cli.options import Common

_BARS = "▁▂▃▄▅▆▇█"
_HISTORY = 20
_HOME_AND_CLEAR = "\x1b[H\x1b[J"
_CLEAR_SCREEN = "\x1b[2J"
_HIDE_CURSOR = "\x1b[?25l"
_SHOW_CURSOR = "\x1b[?25h"
_COLOR = re.compile("\x1b\\[[0-9;]*m")
_TREND_MIN = format_duration(TREND_MIN_MS)


class ReadsLag(Protocol):
    """What is looked at: LagGatherer, as far as watching needs it."""

    def read(self) -> LagReading:
        """Look once. Raises RmqError."""


def sparkline(values: Sequence[int | None]) -> str:
    """One bar for each value, the highest at the greatest; a gap where unknown."""
    top = max((v for v in values if v is not None), default=0)
    return "".join(
        " " if v is None else _BARS[v * (len(_BARS) - 1) // top if top else 0]
        for v in values
    )


def fit_screen(
    lines: Sequence[str], last: Sequence[str], *, size: os.terminal_size
) -> list[str]:
    """As many of `lines` as fit above `last`, and how many more there are.

    A line that is wider than the terminal takes several of its rows: they count.
    """

    def height(line: str) -> int:
        width = display_width(_COLOR.sub("", line))
        return max(1, -(-width // max(1, size.columns)))

    # One row is the cursor's; one says how many more there are.
    room = size.lines - 1 - sum(map(height, last))
    if sum(map(height, lines)) <= room:
        return [*lines, *last]
    shown: list[str] = []
    room -= 1
    for line in lines:
        room -= height(line)
        if room < 0 and shown:
            break
        shown.append(line)
    return [*shown, f"... {len(lines) - len(shown)} more rows", *last]


def watch_lag(
    common: Common,
    gatherer: ReadsLag,
    *,
    interval_ms: int,
    order: Callable[[Sequence[GroupLag]], list[GroupLag]],
    process_queues: bool = False,
    is_summary: bool = False,
) -> int:
    """Look every `interval_ms` until interrupted.

    The first look raises what it meets; a later one that fails is told on stderr, and
    the next may work again. `is_summary` draws a row a group instead of a queue.
    """
    in_place = common.output == "table" and is_terminal(sys.stdout)
    view = LagView(groups=(), process_queues=process_queues, is_summary=is_summary)
    watcher = _Watcher(common, view, order=order)
    pause = threading.Event()
    try:
        if in_place:
            sys.stdout.write(_HIDE_CURSOR + _CLEAR_SCREEN)
        is_first = True
        while True:
            began_ms = SYSTEM_CLOCK.monotonic_ms()
            try:
                reading = gatherer.read()
            except RmqError as error:
                if is_first:
                    raise
                common.messages.warn(error.message)
            else:
                watcher.take(reading)
                if in_place:
                    watcher.draw(interval_ms=interval_ms)
                else:
                    watcher.write_lines()
            is_first = False
            spent_ms = SYSTEM_CLOCK.monotonic_ms() - began_ms
            SYSTEM_CLOCK.wait_ms(pause, max(0, interval_ms - spent_ms))
    finally:
        if in_place:
            sys.stdout.write(_SHOW_CURSOR)
            sys.stdout.flush()


class _Watcher:
    """Remembers enough of earlier looks for rates and sparklines."""

    def __init__(
        self,
        common: Common,
        view: LagView,
        *,
        order: Callable[[Sequence[GroupLag]], list[GroupLag]],
    ) -> None:
        self._common = common
        self._order = order
        self._view = view
        self._samples = Samples()
        self._history: dict[tuple[object, ...], deque[int | None]] = {}
        self._at_ms = 0

    def take(self, reading: LagReading) -> None:
        """Take in a look."""
        found = [compute_lag(group) for group in reading.groups]
        trends = self._samples.take(found, at_ms=reading.at_ms)
        lags = self._order([judge(lag, trends.get(lag.group)) for lag in found])
        self._view = dataclasses.replace(
            self._view, groups=lags, failures=reading.failures, trends=trends
        )
        self._at_ms = reading.at_ms
        for lag in lags:
            self._remember((lag.group,), lag.total_lag)
            for queue in lag.queues:
                key = (lag.group, queue.topic, queue.broker_name, queue.queue_id)
                self._remember(key, queue.lag)

    def write_lines(self) -> None:
        """One JSON line for each group, with the time of the look."""
        at = format_rfc3339(self._at_ms)
        for lag in self._view.groups:
            row = {"at": at, **self._view.group_json(lag)}
            sys.stdout.write(json_line(row) + "\n")
        sys.stdout.flush()

    def draw(self, *, interval_ms: int) -> None:
        """The whole screen; rows that do not fit are counted, names never cut."""
        rates = "" if self._view.trends else f" · rates after {_TREND_MIN}"
        head = (
            f"rmq lag, every {format_duration(interval_ms)}"
            f" · {format_rfc3339(self._at_ms)}{rates} · Ctrl-C ends"
        )
        failures = [
            safe(f"{failure.broker_name}: {failure.message}")
            for failure in self._view.failures
        ]
        columns = summary_columns(with_trend=True, with_spark=True)
        if not self._view.is_summary:
            columns = queue_columns(
                with_group=len(self._view.groups) > 1, with_trend=True, with_spark=True
            )
        table = io.StringIO()
        write_table(
            list(self._rows()),
            columns=columns,
            color=self._common.use_color,
            stream=table,
        )
        lines = fit_screen(
            [head, "", *table.getvalue().splitlines()],
            failures,
            size=shutil.get_terminal_size(),
        )
        sys.stdout.write(_HOME_AND_CLEAR + "\n".join(lines) + "\n")
        sys.stdout.flush()

    def _rows(self) -> Iterable[dict[str, object]]:
        for lag in self._view.groups:
            trend = self._view.trends.get(lag.group)
            if self._view.is_summary:
                row = self._view.summary_row(lag)
                yield {**row, "spark": self._spark((lag.group,))}
                continue
            total: dict[str, object] = {
                "group": lag.group,
                "topic": "TOTAL",
                "lag": lag.total_lag,
                "state": lag.state,
                "spark": self._spark((lag.group,)),
            }
            if lag.age_ms is not None:
                total["age"] = format_duration(lag.age_ms)
            if trend is not None:
                total["rate_in"] = trend.group.rate_in
                total["rate_out"] = trend.group.rate_out
                total["verdict"] = trend.group.verdict
            yield total
            for row in self._view.table_rows(lag):
                if "topic" not in row:
                    continue
                key = (lag.group, row["topic"], row["broker_name"], row["queue_id"])
                yield {**row, "spark": self._spark(key)}

    def _remember(self, key: tuple[object, ...], lag: int | None) -> None:
        self._history.setdefault(key, deque(maxlen=_HISTORY)).append(lag)

    def _spark(self, key: tuple[object, ...]) -> str:
        return sparkline(tuple(self._history.get(key, ())))
