"""`rmq check`: compares lag, age, dead letters and more with thresholds.

The exit codes are those of plugins for Nagios, which Kubernetes, cron and most monitors
understand as well: 0 ok, 1 warning, 2 critical, 3 unknown. An error of the cluster is
UNKNOWN; only options that cannot be used end as with other commands (2).
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    duration_option,
    option,
    switch,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, emit_json
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import RmqError, UsageError
from rmqcli.hint import command_line
from rmqcli.units import DAY_MS, MINUTE_MS, counted, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqcli.admin.check import Measurement, MonitorStatus, Thresholds
    from rmqcli.api.client import Client

FORMATS = ("nagios", "json", "prometheus")
#: More subjects than this are not named in the line of text.
_NAMED_MAX = 5

FIELDS = (
    Column("subject", "group, topic or broker"),
    Column("status", "ok, warning, critical or unknown"),
    Column("value", "what was measured; null if it is not known, or nothing is unread"),
    Column("at_least", "the part of an unknown value that is known"),
    Column("reason", "why the value is null or doubtful, or what is lost"),
    Column("verdict", "with --behaviour: OK, BEHIND, GROWING, STALLED, ..."),
)

#: Of messages that retention could delete.
_NOTHING_UNREAD: Final = "nothing unread"

_GROUPS = argument(metavar="GROUP...", help="Groups, or globs such as 'pay*'.")
_TOPICS = argument(metavar="TOPIC...", help="Topics, or globs such as 'pay*'.")
_BROKERS = argument(metavar="BROKER...", help="Brokers, or globs such as '*'.")
_COUNT_WARN = option("--warn", min=1, metavar="N", help="Warning from here on.")
_COUNT_CRIT = option("--crit", min=1, metavar="N", help="Critical from here on.")
_BEHAVIOUR = switch(
    "--behaviour", help="Judge by a history of samples, without thresholds."
)
_WINDOW = duration_option(
    "--window",
    help="With --behaviour: how long a queue may stand still. Default: 10m.",
)
_PERCENT_WARN = option(
    "--warn", min=1, max=100, metavar="N", help="Warning from this per cent on."
)
_PERCENT_CRIT = option(
    "--crit", min=1, max=100, metavar="N", help="Critical from this per cent on."
)
_AGE_WARN = duration_option("--warn", help="Warning from this age on.")
_AGE_CRIT = duration_option("--crit", help="Critical from this age on.")
_LEFT_WARN = duration_option("--warn", help="Warning if no more than this is left.")
_LEFT_CRIT = duration_option("--crit", help="Critical if no more than this is left.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """How a value is shown; `scale` makes the base unit of Prometheus of it."""

    #: in JSON
    name: str
    #: in the name of the metric
    metric: str
    #: of Nagios
    suffix: str = ""
    scale: float = 1
    text: Callable[[float], str]


def _duration_text(value: float) -> str:
    return _NOTHING_UNREAD if math.isinf(value) else format_duration(int(value))


_MESSAGES = _Unit(
    name="messages",
    metric="messages",
    text=lambda value: counted(int(value), "message"),
)
_LETTERS = replace(_MESSAGES, text=lambda value: counted(int(value), "dead letter"))
_TIME = _Unit(name="ms", metric="seconds", suffix="s", scale=0.001, text=_duration_text)
_PERCENT = _Unit(
    name="percent",
    metric="percent",
    suffix="%",
    text=lambda value: f"{value:.0f} % full",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """What a check is called, what it is about, and how its values are compared."""

    name: str
    #: group, topic or broker
    kind: str = "group"
    unit: _Unit
    #: the thresholds that an error names; empty if the check needs none
    example: str = ""
    is_low_bad: bool = False


_LAG = _Check(name="lag", unit=_MESSAGES, example="--warn 1000 --crit 10000")
_AGE = _Check(name="age", unit=_TIME, example="--warn 30s --crit 5m")
_DLQ = _Check(name="dlq", unit=_LETTERS, example="--warn 1")
_RETENTION = _Check(
    name="retention", unit=_TIME, example="--warn 24h --crit 6h", is_low_bad=True
)
_TOPIC = _Check(name="topic", kind="topic", unit=_TIME, example="--warn 10m --crit 1h")
_BROKER = _Check(name="broker", kind="broker", unit=_PERCENT)


@command_options(formats=FORMATS, fields=FIELDS, changes=False)
def lag(
    common: Common,
    groups: list[str] = _GROUPS,
    warn: int | None = _COUNT_WARN,
    crit: int | None = _COUNT_CRIT,
    behaviour: bool = _BEHAVIOUR,
    window: Any = _WINDOW,
) -> int:
    """Check how many messages wait for groups, or how groups behave.

    Example: rmq check lag billing --warn 1000 --crit 10000

    The value is the lag of rmq lag. With --behaviour no thresholds are needed: each run
    adds a sample to a history, and a verdict follows from the samples of the window. It
    is critical if a group has stalled, stopped or gone back, and a warning if its lag
    does not shrink. Run it every minute. Exit code 0: ok; 1: warning; 2: critical; 3:
    not known, the group does not exist, or the history is too short.
    """
    from rmqcli.admin.check import BEHAVIOUR_WINDOW_MS, measure_behaviour, measure_lag

    if not behaviour:
        if window is not None:
            raise UsageError("--window needs --behaviour")
        return _run(common, _LAG, groups, (warn, crit), measure_lag)
    if warn is not None or crit is not None:
        raise UsageError("--behaviour needs no --warn or --crit; use one or the other")
    window_ms = BEHAVIOUR_WINDOW_MS if window is None else window
    if not MINUTE_MS <= window_ms <= DAY_MS:
        raise UsageError("--window must be between 1m and 1d")
    return _run(
        common,
        replace(_LAG, example=""),
        groups,
        (None, None),
        lambda client, names: measure_behaviour(client, names, window_ms=window_ms),
    )


@command_options(formats=FORMATS, fields=FIELDS, changes=False)
def age(
    common: Common,
    groups: list[str] = _GROUPS,
    warn: Any = _AGE_WARN,
    crit: Any = _AGE_CRIT,
) -> int:
    """Check how old the oldest unread message of groups is.

    Example: rmq check age 'pay*' --warn 30s --crit 5m

    One queue that nobody consumes shows here, and hardly in the lag. Exit codes: see
    rmq check lag.
    """
    from rmqcli.admin.check import measure_age

    return _run(common, _AGE, groups, (warn, crit), measure_age)


@command_options(formats=FORMATS, fields=FIELDS, changes=False)
def dlq(
    common: Common,
    groups: list[str] = _GROUPS,
    warn: int | None = _COUNT_WARN,
    crit: int | None = _COUNT_CRIT,
) -> int:
    """Check how many dead letters groups have.

    Example: rmq check dlq '*' --warn 1

    Exit codes: see rmq check lag.
    """
    from rmqcli.admin.check import measure_letters

    return _run(common, _DLQ, groups, (warn, crit), measure_letters)


@command_options(formats=FORMATS, fields=FIELDS, changes=False)
def retention(
    common: Common,
    groups: list[str] = _GROUPS,
    warn: Any = _LEFT_WARN,
    crit: Any = _LEFT_CRIT,
) -> int:
    """Check how soon brokers delete messages that groups have not read.

    Example: rmq check retention billing --warn 24h --crit 6h

    A broker deletes what is older than its fileReservedTime, earlier if its disk is
    full. Messages that were deleted unread are critical. Exit codes: see rmq check lag.
    """
    from rmqcli.admin.check import measure_retention

    return _run(common, _RETENTION, groups, (warn, crit), measure_retention)


@command_options(formats=FORMATS, fields=FIELDS, changes=False)
def topic(
    common: Common,
    topics: list[str] = _TOPICS,
    warn: Any = _AGE_WARN,
    crit: Any = _AGE_CRIT,
) -> int:
    """Check how long ago the newest message of topics was stored.

    Example: rmq check topic orders --warn 10m --crit 1h

    It finds producers that have stopped. A topic without any message is critical. Exit
    codes: see rmq check lag.
    """
    from rmqcli.admin.check import measure_topics

    return _run(common, _TOPIC, topics, (warn, crit), measure_topics)


@command_options(formats=FORMATS, fields=FIELDS, changes=False)
def broker(
    common: Common,
    brokers: list[str] = _BROKERS,
    warn: int | None = _PERCENT_WARN,
    crit: int | None = _PERCENT_CRIT,
) -> int:
    """Check that brokers answer, and how full their disks are.

    Example: rmq check broker '*' --warn 70 --crit 85

    A broker or slave that does not answer is critical, and so is a broker without a
    master. Exit codes: see rmq check lag.
    """
    from rmqcli.admin.check import measure_brokers

    return _run(common, _BROKER, brokers, (warn, crit), measure_brokers)


def _run(
    common: Common,
    check: _Check,
    patterns: Sequence[str],
    bounds: tuple[float | None, float | None],
    measure: Callable[[Client, Sequence[str]], list[Measurement]],
) -> int:
    from rmqcli.admin.check import Measurement, Thresholds, worst_status

    warn, crit = bounds
    is_low_bad = check.is_low_bad
    if warn is None and crit is None and check.example:
        other = ", or --behaviour" if check is _LAG else ""
        command, example = f"rmq check {check.name}", check.example.split()
        hint = f"for example: {command_line(command, *patterns, options=example)}"
        if other:
            option = ["--behaviour"]
            hint += f", or {command_line(command, *patterns, options=option)}"
        raise UsageError(f"--warn, --crit or both are needed{other}", hint=hint)
    if (
        warn is not None
        and crit is not None
        and (warn < crit if is_low_bad else warn > crit)
    ):
        side = "above" if is_low_bad else "below"
        raise UsageError(f"--warn has to be {side} --crit")
    for name, bound in (("--warn", warn), ("--crit", crit)):
        if bound == 0 and not is_low_bad:
            # Every value reaches it: of a group that is up to date, too.
            raise UsageError(f"{name} must be greater than zero")
    thresholds = Thresholds(warning=warn, critical=crit, is_low_bad=is_low_bad)
    reason = ""
    measured: list[Measurement] = []
    try:
        with common.open_client() as client:
            measured = measure(client, patterns)
    except UsageError:
        raise
    except RmqError as error:
        reason = with_flags(error.message)
    left_out = [each for each in measured if each.is_left_out]
    measured = [each for each in measured if not each.is_left_out]
    if not measured and not reason:
        reason = _no_match(check.kind, " ".join(patterns), left_out)
    elif measured:
        names = [each.subject for each in measured]
        measured += [
            Measurement(
                subject=pattern,
                value=None,
                reason=_no_match(
                    check.kind,
                    pattern,
                    [each for each in left_out if _has(pattern, each.subject)],
                ),
            )
            for pattern in patterns
            if not any(_has(pattern, name) for name in names)
        ]
    status = worst_status(map(thresholds.status, measured))
    report = _Report(check, thresholds, measured, left_out, status, reason)
    match common.output:
        case "json":
            emit_json(report.json())
        case "prometheus":
            sys.stdout.write(report.prometheus())
        case _:
            sys.stdout.write(report.nagios())
    return int(status)


def _has(pattern: str, subject: str) -> bool:
    """Whether a glob matches a subject; one of which nothing is known stands for it."""
    return subject == pattern or fnmatchcase(subject, pattern)


def _no_match(kind: str, patterns: str, left_out: Sequence[Measurement]) -> str:
    reason = f"no {kind} matches {patterns}"
    if left_out:
        reason += f"; left out: {left_out[0].subject}, {left_out[0].reason}"
    return reason


@dataclass(frozen=True, slots=True)
class _Report:
    """The result of a check, in each format."""

    check: _Check
    thresholds: Thresholds
    measured: list[Measurement]
    left_out: list[Measurement]
    status: MonitorStatus
    #: why nothing was measured
    reason: str

    def nagios(self) -> str:
        """One line: status, what is wrong, and the values after a bar."""
        from rmqcli.admin.check import severity

        head = f"{self.check.name.upper()} {self.status.name}: "
        if self.reason:
            return head + _plain(self.reason) + "\n"
        told = [
            each
            for each in self.measured
            if self.thresholds.status(each) is not self.status.OK
        ]
        told.sort(key=lambda each: -severity(self.thresholds.status(each)))
        shown = told[:_NAMED_MAX] or self.measured[:_NAMED_MAX]
        parts = [self._text(each) for each in shown]
        left = len(self.measured) - len(shown)
        if left:
            bad = len(told) - len(shown)
            if bad > 0:
                parts.append(f"{bad} more not ok")
            if good := left - max(0, bad):
                parts.append(f"{counted(good, 'other', 'others')} ok")
        if self.left_out:
            parts.append(f"{counted(len(self.left_out), 'group')} left out")
        values = " ".join(map(self._perfdata, self.measured))
        return f"{head}{_plain('; '.join(parts))} | {values}\n"

    def _text(self, measured: Measurement) -> str:
        status = self.thresholds.status(measured)
        text = f"{measured.subject}: "
        if measured.value is not None:
            text += self.check.unit.text(measured.value)
        elif measured.at_least or (
            self.thresholds.is_low_bad and measured.at_least is not None
        ):
            word = "at most" if self.thresholds.is_low_bad else "at least"
            text += f"{word} {self.check.unit.text(measured.at_least)}"
        else:
            text += "unknown" if not measured.is_lost else ""
        reached = {
            status.WARNING: self.thresholds.warning,
            status.CRITICAL: self.thresholds.critical,
        }.get(status)
        is_reached = replace(measured, is_doubtful=False)
        is_told = measured.is_lost or self.thresholds.status(is_reached) is not status
        if reached is not None and not is_told:
            text += f" ({status.name.lower()} from {self._threshold_text(reached)})"
        if measured.verdict is not None and measured.verdict not in ("OK", "UNKNOWN"):
            text += f", {measured.verdict}"
        if measured.reason:
            text = f"{text.rstrip()}{', ' if text[-1] != ' ' else ' '}"
            text += with_flags(measured.reason)
        return text

    def _threshold_text(self, value: float) -> str:
        if self.check.unit is _TIME:
            return format_duration(int(value))
        return f"{value:,.0f}" + (" %" if self.check.unit is _PERCENT else "")

    def _perfdata(self, measured: Measurement) -> str:
        """`'label'=value[unit];warn;crit`; U for a value that is not known."""
        label = _plain(measured.subject).replace("'", "''").replace("=", "_")
        value = measured.value
        colon = ":" if self.thresholds.is_low_bad else ""
        bounds = [
            "" if bound is None else f"{_number(bound * self.check.unit.scale)}{colon}"
            for bound in (self.thresholds.warning, self.thresholds.critical)
        ]
        if value is None or math.isinf(value):
            shown = "U"
        else:
            shown = f"{_number(value * self.check.unit.scale)}{self.check.unit.suffix}"
        return f"'{label}'={shown};{';'.join(bounds)}"

    def json(self) -> dict[str, Any]:
        """The whole result; a value that is not known, or has no end, is null."""
        return {
            "check": self.check.name,
            "status": self.status.name.lower(),
            "reason": self.reason or None,
            "unit": self.check.unit.name,
            "warning": self.thresholds.warning,
            "critical": self.thresholds.critical,
            "measurements": [
                {
                    "subject": each.subject,
                    "status": self.thresholds.status(each).name.lower(),
                    "value": _finite(each.value),
                    "at_least": _finite(each.at_least),
                    "reason": _reason(each),
                    "verdict": each.verdict,
                }
                for each in self.measured
            ],
            "left_out": [
                {"subject": each.subject, "reason": each.reason}
                for each in self.left_out
            ],
        }

    def prometheus(self) -> str:
        """The text format: a status and, if it is known, a value for each subject."""
        name = f"rmq_check_{self.check.name}_{self.check.unit.metric}"
        lines = [
            "# HELP rmq_check_status 0 ok, 1 warning, 2 critical, 3 unknown",
            "# TYPE rmq_check_status gauge",
            f'rmq_check_status{{check="{self.check.name}"}} {int(self.status)}',
        ]
        labels = {
            each.subject: f'{self.check.kind}="{_label(each.subject)}"'
            for each in self.measured
        }
        for each in self.measured:
            status = int(self.thresholds.status(each))
            labelled = f'check="{self.check.name}",{labels[each.subject]}'
            lines.append(f"rmq_check_status{{{labelled}}} {status}")
        known = [each for each in self.measured if _finite(each.value) is not None]
        if known:
            lines.append(f"# TYPE {name} gauge")
        lines += (
            f"{name}{{{labels[each.subject]}}}"
            f" {_number((each.value or 0) * self.check.unit.scale)}"
            for each in known
        )
        return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """On one line, and without the bar that begins the values."""
    return safe(text).replace("|", "/")


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _reason(measured: Measurement) -> str | None:
    """Why a value is not a number, or what else there is to say of it."""
    if measured.reason is not None:
        return with_flags(measured.reason)
    has_end = measured.value is None or math.isfinite(measured.value)
    return None if has_end else _NOTHING_UNREAD


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value
