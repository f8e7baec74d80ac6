"""`rmq lag`: the command, its options, and its exit codes.

`view` has the fields and tables, `watch` has the live view, and
`rmqcli.admin.lag.model` defines what the numbers mean.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqcli.api.broker_errors import not_found
from rmqcli.cli.lag.view import QUEUE_COLUMNS, TREND_COLUMNS, LagView
from rmqcli.cli.offline import MEMBERS_UNKNOWN, read_from
from rmqcli.cli.options import (
    Common,
    argument,
    choice_option,
    command_options,
    duration_option,
    option,
    store_option,
    switch,
)
from rmqcli.cli.ui.wording import with_flags
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, UsageError
from rmqcli.units import counted, format_duration

if TYPE_CHECKING:
    from rmqcli.admin.lag.assemble import LagQuery
    from rmqcli.admin.lag.gather import LagGatherer, LagReading
    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.admin.lag.trend import GroupTrend

SORT_KEYS = ("queue", "lag", "age", "state", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """The options of `rmq lag` as they were typed, and checks of combinations."""

    groups: list[str] | None = argument(
        default=None, metavar="[GROUP]...", help="Groups to show (default: all)."
    )
    topic: list[str] | None = option(help="Only this topic; repeatable.")
    process_queues: bool = switch(help="Show what members have cached per queue.")
    sample: int | None = duration_option(
        help="Sample twice, DURATION apart, and show rates and a verdict."
    )
    watch: int | None = duration_option(help="Refresh every DURATION.")
    show_all: bool = switch("--all", help="Include RocketMQ's own groups.")
    sort: str | None = choice_option(choices=SORT_KEYS, help="Sort the rows by this.")
    explain: bool = switch(help="Explain in words why a group is behind.")
    no_memory: bool = switch(help="Do not use the record of queues seen earlier.")
    forget: bool = switch(help="Forget brokers that were removed for good.")
    store: str | None = store_option()

    def check(self, output: str) -> None:
        """Raise UsageError for options that cannot be used together."""
        for name, value in (("--sample", self.sample), ("--watch", self.watch)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be greater than zero")
        if self.watch is not None:
            self._check_watch(output)
        if self.explain and output == "csv":
            raise UsageError("--explain cannot write csv", hint="use another format")
        if self.forget and self.no_memory:
            raise UsageError("--forget and --no-memory cannot be used together")
        if self.store is not None and self.process_queues:
            raise UsageError(
                "--store and --process-queues cannot be used together",
                hint="only members know what they have cached, and a folder has no"
                " members",
            )

    def _check_watch(self, output: str) -> None:
        if self.sample is not None:
            raise UsageError(
                "--watch and --sample cannot be used together",
                hint="--watch shows rates itself",
            )
        if output not in ("table", "jsonl"):
            raise UsageError(
                f"--watch cannot write {output}",
                hint="-o jsonl writes one line per group and refresh",
            )

    def query(self) -> LagQuery:
        """Return what is to be read from the brokers."""
        from rmqcli.admin.lag.assemble import LagQuery

        return LagQuery(
            groups=tuple(dict.fromkeys(self.groups or ())),
            topics=tuple(dict.fromkeys(self.topic or ())),
            process_queues=self.process_queues,
            with_paused=self.explain,
            with_system=self.show_all,
            members_unknown=None if self.store is None else MEMBERS_UNKNOWN,
        )

    @property
    def is_summary(self) -> bool:
        """Whether a table has a row for each group instead of each queue."""
        return not self.groups

    @property
    def has_memory(self) -> bool:
        """Whether the record of queues seen earlier is used."""
        return self.store is None and not self.no_memory

    def ordered(self, lags: Sequence[GroupLag]) -> list[GroupLag]:
        """The groups in the order of `--sort`."""
        return sort_groups(lags, self.sort)


@command_options(LagOptions, fields=(*QUEUE_COLUMNS, *TREND_COLUMNS), changes=False)
def lag(common: Common, options: LagOptions) -> int:
    """Show how far groups are behind, per queue, and why.

    Example: rmq lag my-group --process-queues --explain

    Lag is the max offset minus the committed offset; messages that gRPC clients have
    received and not acknowledged are part of it. Where a number is not known, a state
    and a reason are shown instead. A group is OK, BEHIND (messages wait and the
    group has active members), STOPPED (messages wait and the group has no active
    member), NO_COMMIT, BROADCAST, AHEAD, EXPIRED or UNKNOWN. A second sample (--sample,
    --watch) can also show GROWING, STALLED and REWOUND. The exit code is 6 if a broker
    did not answer, or refused a part of the request, and 3 if a group does not exist.

    The queues of each group are recorded in $XDG_STATE_HOME/rmqcli/lag (or in
    ~/.local/state/rmqcli/lag). The queues of a broker that has left the route are
    therefore shown as UNKNOWN for a week, or until --forget.
    """
    options.check(common.output)
    from rmqcli.admin.lag.gather import LagGatherer
    from rmqcli.admin.lag.memory import open_memory

    with read_from(common, options.store) as source, source.open_client() as client:
        memory = None
        if options.has_memory:
            memory = open_memory(client)
            if memory is not None and options.forget:
                memory.forget()
        gatherer = LagGatherer(client, options.query(), memory)
        if options.watch is not None:
            from rmqcli.cli.lag.watch import watch_lag

            return watch_lag(common, gatherer, options)
        reading, lags, trends = _look(source, gatherer, sample_ms=options.sample)
    view = LagView(
        groups=options.ordered(lags),
        trends=trends,
        failures=reading.failures,
        is_summary=options.is_summary,
        process_queues=options.process_queues,
        explain=options.explain,
        sort=options.sort,
    )
    view.write(common)
    if reading.hidden:
        hidden = counted(reading.hidden, "system group")
        common.messages.info(f"not shown: {hidden}; --all shows them")
    return _exit_code(common, reading, lags, process_queues=options.process_queues)


def sort_groups(lags: Sequence[GroupLag], key: str | None) -> list[GroupLag]:
    """Sort groups for `--sort`; by lag, groups whose lag is unknown come first."""
    from rmqcli.admin.lag.model import rank_of

    match key:
        case "lag":
            return sorted(lags, key=lambda g: (g.total_lag is not None, -g.known_lag))
        case "age":
            return sorted(lags, key=lambda g: -(g.known_age_ms or 0))
        case "state":
            return sorted(lags, key=lambda g: -rank_of(g.state))
        case "group":
            return sorted(lags, key=lambda g: g.group)
    return list(lags)


def _look(
    common: Common, gatherer: LagGatherer, *, sample_ms: int | None
) -> tuple[LagReading, list[GroupLag], dict[str, GroupTrend]]:
    from rmqcli.admin.lag.model import compute_lag

    reading = gatherer.read(accept_silence=sample_ms is None)
    _refuse_missing(common, reading)
    lags = [compute_lag(group) for group in reading.groups]
    if sample_ms is None:
        return reading, lags, {}
    from rmqcli.admin.lag.trend import COMMIT_INTERVAL_MS, TREND_MIN_MS, compare, judge

    if sample_ms < TREND_MIN_MS:
        common.messages.warn(
            f"members commit every {format_duration(COMMIT_INTERVAL_MS)}:"
            f" {format_duration(sample_ms)} is too short to detect STALLED and GROWING;"
            f" use --sample {format_duration(TREND_MIN_MS)}"
        )
    common.messages.progress(f"waiting {format_duration(sample_ms)}")
    SYSTEM_CLOCK.wait_ms(threading.Event(), sample_ms)
    common.messages.clear_progress()
    before = {item.group: item.queues for item in lags}
    again = gatherer.read()
    lags = [compute_lag(group) for group in again.groups]
    elapsed_ms = again.monotonic_ms - reading.monotonic_ms
    trends = {
        item.group: compare(before[item.group], item, elapsed_ms=elapsed_ms)
        for item in lags
        if item.group in before
    }
    return again, [judge(item, trends.get(item.group)) for item in lags], trends


def _refuse_missing(common: Common, reading: LagReading) -> None:
    """Raise NotFoundError if no named group exists; warn if some do not."""
    if not reading.missing:
        return
    errors = [not_found("group", group) for group in reading.missing]
    for error in errors[0 if reading.groups else 1 :]:
        common.messages.warn(common.explain_missing(error).message)
    if not reading.groups:
        raise errors[0]


def _exit_code(
    common: Common,
    reading: LagReading,
    lags: Sequence[GroupLag],
    *,
    process_queues: bool,
) -> int:
    for failure in reading.failures:
        message = with_flags(failure.message)
        common.messages.warn(f"{failure.broker_name}: {message}")
    if reading.failures or reading.missing:
        return ExitCode.PARTIAL
    if any(
        g.is_partial
        or g.reading.dead_letters_unknown is not None
        or g.reading.ages_unknown is not None
        or g.reading.members_unknown not in (None, MEMBERS_UNKNOWN)
        for g in lags
    ):
        return ExitCode.PARTIAL
    silent = process_queues and any(
        client.failure is not None
        for group in lags
        for client in (group.reading.clients or {}).values()
    )
    return ExitCode.PARTIAL if silent else ExitCode.OK
