"""`rmq exporter`: serves lag, dead letters and brokers as metrics to Prometheus."""

from __future__ import annotations

import gc
import sys
import zlib
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.cli.options import (
    Common,
    command_options,
    duration_option,
    option,
    require_extra,
    switch,
)
from rmqcli.cli.serve import is_loopback, parse_listen
from rmqcli.cli.ui.output import Column
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, NoBrokerError, UsageError
from rmqcli.exporter.metrics import TABLES
from rmqcli.units import counted, format_duration

if TYPE_CHECKING:
    from rmqcli.exporter.collect import CollectorOptions
    from rmqcli.exporter.run import Exporter, RenderedCollection

_INTERVAL_MS = 30_000
_INTERVAL_MIN_MS = 1_000
#: Values are kept for this many intervals without `--stale-after`.
_STALE_INTERVALS = 3
#: Many groups take longer than the five seconds of other commands.
_TIMEOUT_MS = 15_000
_SERIES_MAX = 100_000
#: How long the thread that collects may hold up the one that answers scrapes, each time
#: that it does: a scrape took up to 65 ms with Python's 5 ms.
_SWITCH_S = 0.0005

#: `-o help` lists the metrics.
FIELDS = tuple(
    Column(metric.name, metric.help) for table in TABLES for metric in table.metrics
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterCommandOptions:
    """The options of `rmq exporter` as they were typed, and checks of them."""

    listen: str = option(
        default="127.0.0.1:5557",
        metavar="HOST:PORT",
        help="Address of the metrics. PORT 0: any free port.",
    )
    interval: int = duration_option(
        default=_INTERVAL_MS,
        help="Collect every DURATION.  [default: 30s]",
        show_default=False,
    )
    stale_after: int | None = duration_option(
        help="Drop the values of a broker that does not answer after DURATION"
        "  [default: 3 intervals]."
    )
    group: list[str] | None = option(
        help="Only this group, or a glob such as 'pay*'; repeatable."
    )
    process_queues: bool = switch(help="Ask all members what they have cached.")
    max_series: int = option(
        default=_SERIES_MAX,
        min=0,
        help="Leave out topics and queues of groups beyond N series in all.",
    )
    once: bool = switch(help="Collect once, write the metrics, and exit.")
    print_dashboard: bool = switch(help="Write a dashboard for Grafana, and exit.")
    print_rules: bool = switch(help="Write alert rules for Prometheus, and exit.")

    def collector_options(self) -> CollectorOptions:
        """Return what to collect. Raises UsageError."""
        from rmqcli.exporter.collect import CollectorOptions

        if self.interval < _INTERVAL_MIN_MS:
            raise UsageError("--interval must be at least 1s")
        stale_after_ms = self.interval * _STALE_INTERVALS
        if self.stale_after is not None:
            stale_after_ms = self.stale_after
        if stale_after_ms < self.interval:
            raise UsageError(
                "--stale-after is shorter than --interval: values would vanish between"
                " two collections"
            )
        return CollectorOptions(
            groups=tuple(self.group or ()),
            interval_ms=self.interval,
            stale_after_ms=stale_after_ms,
            series_max=self.max_series,
            process_queues=self.process_queues,
        )


@command_options(
    ExporterCommandOptions, formats=("prometheus",), fields=FIELDS, changes=False
)
def exporter(common: Common, options: ExporterCommandOptions) -> int:
    """Serve lag, dead letters and brokers as metrics to Prometheus.

    Example: rmq exporter --listen 127.0.0.1:5557 --interval 30s

    The metrics are at /metrics, in the text format and as OpenMetrics; /healthz and
    /readyz are for supervisors. A scrape gets what was read last and never waits for a
    broker. What is not known is absent. It runs until Ctrl-C or SIGTERM.
    """
    if options.print_dashboard or options.print_rules:
        from rmqcli.exporter.assets import read_asset

        if options.print_dashboard and options.print_rules:
            raise UsageError(
                "--print-dashboard and --print-rules cannot be used together"
            )
        name = "dashboard.json" if options.print_dashboard else "rules.yml"
        sys.stdout.write(read_asset(name))
        return ExitCode.OK
    host, port = parse_listen(options.listen, allow_remote=True)
    require_extra("rmq exporter", "exporter", "prometheus_client", "prometheus-client")
    collects = options.collector_options()
    if "timeout" not in common.typed:
        common = replace(common, timeout_ms=max(common.timeout_ms, _TIMEOUT_MS))
    from rmqcli.exporter.run import Exporter

    with common.open_client() as client:
        runs = Exporter(client, collects)
        if options.once:
            return _write_once(common, runs)
        from rmqcli.clock import SYSTEM_CLOCK
        from rmqcli.exporter.server import MetricsServer, open_site
        from rmqcli.exporter.site import MetricsSite

        site = MetricsSite(SYSTEM_CLOCK, stale_after_ms=collects.stale_after_ms)
        server = MetricsServer(open_site(host, port), site, SYSTEM_CLOCK)
        if not is_loopback(host):
            common.messages.warn(
                f"{options.listen} can be reached from other machines, and there is no"
                " authentication: everybody there can read the names and numbers of"
                " this cluster"
            )
        sys.setswitchinterval(_SWITCH_S)
        gc.disable()  # `Exporter.run` collects garbage, between its collections
        reporter = _Reporter(common, stale_after_ms=collects.stale_after_ms)
        with suppress(KeyboardInterrupt), server:
            sys.stdout.write(f"http://{server.address}/metrics\n")
            sys.stdout.flush()
            common.messages.info(
                f"collecting every {format_duration(options.interval)}; press Ctrl-C to"
                " stop"
            )
            runs.run(site, reporter.report)
        common.messages.info("stopped")
    return ExitCode.OK


def _write_once(common: Common, runs: Exporter) -> int:
    """Write the metrics of one collection. There are no rates in them."""
    run = runs.collect()
    errors = run.collected.errors
    if not run.collected.has_values and errors:
        what = with_flags(next(iter(errors.values())))
        raise NoBrokerError(what, address=common.namesrv_text)
    sys.stdout.write(zlib.decompress(run.pages.text.data, 31).decode())
    for name, message in errors.items():
        common.messages.warn(f"{name}: {with_flags(message)}")
    for group in run.collected.missing:
        common.messages.warn(f"group {group} does not exist")
    return ExitCode.PARTIAL if errors or run.collected.missing else ExitCode.OK


class _Reporter:
    """Tells on stderr what changes: errors that are new, and that they are over."""

    def __init__(self, common: Common, *, stale_after_ms: int) -> None:
        self._messages = common.messages
        self._errors: dict[str, str] = {}
        self._missing: set[str] = set()
        self._is_first = True
        self._stale_after_ms = stale_after_ms
        self._is_slow = False

    def report(self, run: RenderedCollection) -> None:
        """Report what is new in a collection."""
        errors = run.collected.errors
        for name, message in errors.items():
            if name not in self._errors:
                self._messages.warn(f"{name}: {with_flags(message)}")
        for name in self._errors.keys() - errors.keys():
            self._messages.info(f"{name}: answers again")
        self._errors = errors
        for group in run.collected.missing:
            if group not in self._missing:
                self._messages.warn(f"group {group} does not exist")
        if not errors:  # else it is not known whether they exist
            self._missing = set(run.collected.missing)
        if run.duration_ms > self._stale_after_ms and not self._is_slow:
            self._is_slow = True
            self._messages.warn(
                f"a collection took {format_duration(run.duration_ms)}, longer than"
                f" --stale-after {format_duration(self._stale_after_ms)}: while one"
                " takes that long, values vanish before it ends"
            )
        if self._is_first and run.collected.groups is not None:
            self._is_first = False
            self._messages.info(
                f"{counted(run.collected.groups, 'group')},"
                f" {counted(run.pages.series, 'series', 'series')} in"
                f" {format_duration(run.duration_ms)}"
            )
