"""`rmq copy`: plan, confirm, copy, and move the positions of groups.

`rmqcli.copy.library` plans and copies. Here are the options, the clusters, and what is
shown.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqcli.cli import selection
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    make_common,
    option,
    parse_profile_name,
    position_option,
)
from rmqcli.cli.tail.command import parse_rate
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.interrupts import deferred
from rmqcli.cli.ui.output import Column, emit_json, number_column, place_columns, row_of
from rmqcli.cli.ui.wording import with_flags
from rmqcli.config import ClientConfig, parse_namesrv
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ExitCode,
    PartialError,
    RefusedError,
    RmqError,
    UsageError,
)
from rmqcli.units import counted, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.reset.plan import ResetPlan
    from rmqcli.admin.reset.result import QueueOutcome
    from rmqcli.cli.configuration.profile import Profile
    from rmqcli.cli.ui.progress import Progress
    from rmqcli.copy.copy import CopyPlan, CopyReport, CopyRequest
    from rmqcli.copy.library import Copy
    from rmqcli.model import MessageQueue

_where = partial(option, section="Where to")
_WHICH = "Which messages"
_how = partial(option, section="How to copy")
#: More spans than this are not listed on stderr.
_LISTED = 20

COLUMNS = (
    *place_columns("broker of the queue that is read", "its id"),
    number_column("start", "first offset that is read", "FROM"),
    number_column("end", "the offset after the last one", "TO"),
    number_column("count", "offsets to read; a filter may leave some out"),
    number_column(
        "expired", "messages that were deleted before they were copied", priority=20
    ),
    Column(
        "target",
        "queue to which they go; null if the messages decide",
        value=lambda each: (
            None
            if each.target is None
            else f"{each.target.broker_name}:{each.target.queue_id}"
        ),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyOptions:
    """The options of `rmq copy` as they were typed."""

    source: str = argument(metavar="SOURCE_TOPIC", help="Topic to read.")
    target: str = argument(metavar="TARGET_TOPIC", help="Topic to write to.")
    to_namesrv: Any = _where(
        parser=parse_namesrv,
        metavar="HOST:PORT",
        help="Name servers of the target (default: those of the source).",
    )
    to_profile: Any = _where(
        parser=parse_profile_name,
        metavar="PROFILE",
        help="Profile of the target's cluster, with its credentials.",
    )
    to_confirm: Any = _where(
        parser=parse_profile_name,
        metavar="PROFILE",
        help="Name of the target's protected profile.",
    )
    from_: Any = position_option(
        section=_WHICH, help="Start position of the first run; the log notes it."
    )
    to: Any = position_option(
        section=_WHICH, help="End position, resolved at the start."
    )
    tag: str | None = selection.tag_option(section=_WHICH)
    sql: str | None = selection.sql_option(section=_WHICH)
    key: str | None = option(section=_WHICH, help="Only messages with this key.")
    property_: list[Any] | None = selection.property_option(section=_WHICH)
    grep: Any = selection.grep_option(section=_WHICH)
    not_: bool = selection.not_option(section=_WHICH)
    where: str | None = selection.where_option(section=_WHICH)
    decode: Any = selection.decode_option(
        section=_WHICH, what="Format of bodies, for --where"
    )
    follow: bool = _how(default=False, help="Copy new messages until Ctrl-C.")
    groups: list[str] | None = _how(
        metavar="GROUP",
        help="Then move this group's positions to the copies; repeatable.",
    )
    rate: Any = _how(
        parser=parse_rate, help="Copy at most this many messages a second (100/s)."
    )
    execute: bool = _how(
        default=False, help="Copy after confirmation (default: only show the plan)."
    )
    log: Path | None = _how(
        help="Log of the copy (default: one for each source and target)."
    )

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        selection.refuse_empty(
            tag=self.tag, sql=self.sql, key=self.key, where=self.where
        )
        for one, other, both in (
            ("--to-namesrv", "--to-profile", self.to_namesrv and self.to_profile),
            ("--follow", "--to", self.follow and self.to is not None),
            ("--follow", "--groups", self.follow and self.groups),
            ("--tag", "--sql", self.tag is not None and self.sql is not None),
        ):
            if both:
                raise UsageError(f"{one} and {other} cannot be used together")
        selection.check_range(self.from_, self.to)
        if self.decode is not None and self.where is None:
            raise UsageError("--decode needs --where")
        selection.check_not(self)

    @property
    def is_within(self) -> bool:
        """Whether the target is in the cluster of the source."""
        return self.to_namesrv is None and self.to_profile is None

    def request(self) -> CopyRequest:
        """Return what the library plans. Raises UsageError and TextError."""
        from rmqcli.copy.copy import CopyRequest
        from rmqcli.position import Earliest, Latest

        wanted = selection.filter_of(self)
        return CopyRequest(
            source_topic=self.source,
            target_topic=self.target,
            filter=wanted,
            chosen_by=str(wanted),
            start=self.from_ or Earliest(),
            end=self.to or Latest(),
        )


@command_options(
    CopyOptions,
    formats=("table", "json"),
    fields=COLUMNS,
    changes=lambda options: options.execute and options.is_within,
    asks=True,
)
def copy(common: Common, options: CopyOptions) -> int:
    """Copy a topic to another one, also of another cluster.

    Example: rmq copy orders orders --to-namesrv new:9876 --execute
             rmq copy orders paid --tag Paid --follow --execute

    Without --execute nothing is copied. The messages of a queue keep their order; the
    plan says to which queue they go. The topic to write to must exist. A log notes how
    far the copy is: the same command goes on after an interrupt or a crash, and names
    the messages that it may send twice, at most one batch. --groups moves groups that
    exist in the target's cluster to the first message there that they have not
    consumed; stop their members before. A broker that fails in the middle is tried
    again for 10 s when writing and 30 s when reading. Exit code 6: not all is copied,
    for instance because messages were deleted before.
    """
    options.check()
    from rmqcli.copy.library import Copy

    config = common.client_config()
    to = _target_of(common, options, config)
    job = Copy(
        config,
        options.request(),
        target=None if options.is_within else to,
        log=options.log,
        around_batch=deferred,
    )
    if options.execute:
        return _execute(common, options, job, to)
    return _only_plan(common, options, job)


def _target_of(
    common: Common, options: CopyOptions, config: ClientConfig
) -> ClientConfig:
    """Return how the cluster of the target is reached.

    The credentials of the source go to no other servers. Raises RefusedError if a
    profile forbids changes of the target.
    """
    if options.is_within:
        return config
    from rmqcli.cli.configuration.choose import common_settings
    from rmqcli.cli.configuration.file import read_config
    from rmqcli.cli.configuration.guard import check_profile, profile_of_servers

    guard: Profile | None
    if options.to_profile is not None:
        guard = profile = read_config(os.environ).profile(options.to_profile)
        if profile.endpoints:
            raise UsageError(
                f"{profile.title} names a proxy, and copy needs a name server"
            )
        settings = common_settings(profile, {}, frozenset())
        found = make_common(**settings, timeout=common.timeout_ms).client_config()
    else:
        guard = profile_of_servers(options.to_namesrv, (), os.environ)
        found = ClientConfig(namesrv=options.to_namesrv, timeout_ms=common.timeout_ms)
    if options.execute:
        try:
            check_profile(
                guard,
                changes=True,
                confirmed=options.to_confirm,
                no_input=common.no_input,
                asks=not common.assume_yes,
            )
        except RefusedError as error:
            error.hint = str(error.hint).replace("--confirm", "--to-confirm")
            raise
    return found


# --- the plan ---


def _only_plan(common: Common, options: CopyOptions, job: Copy) -> int:
    plan = job.plan()
    moves = []
    if not plan.unread:
        plans = [job.plan_group(group).plan for group in options.groups or ()]
        moves = [_Move(each, None, None) for each in plans]
    _write(common, plan, None, moves)
    _say_plan(common, plan)
    if plan.unread:
        common.messages.warn("this plan is incomplete and would be refused")
        return ExitCode.PARTIAL
    common.messages.info("nothing was copied; add --execute to copy")
    return ExitCode.OK


def _say_plan(common: Common, plan: CopyPlan) -> None:
    messages = common.messages
    for queue, error in sorted(plan.unread.items()):
        messages.warn(f"{queue}: {error.message}")
    for text in plan.departed:
        messages.warn(with_flags(text))
    sizes = (
        f"{counted(len(plan.identity.queues), 'queue')} to"
        f" {counted(len(plan.targets), 'queue')}"
    )
    if plan.mapping == "index":
        messages.info(f"{sizes}: each to the one with the same index, in order")
    else:
        messages.info(
            f"{sizes}: messages with a message group go to the queue in which a proxy"
            " stores the group, those with a priority to its queue, the others of a"
            " queue to one queue; the order of a group, and of a queue without groups"
            " and priorities, is kept"
        )
    messages.info(
        "copies are new messages with the producer's properties; messages that still"
        " wait for their time or for a transaction are not copied"
    )
    if plan.copied:
        copied = counted(plan.copied, "message is", "messages are")
        messages.info(f"{copied} copied already, by the log")
    if plan.present:
        there = counted(plan.present, "message that the log", "messages that the log")
        messages.warn(
            f"topic {plan.request.target_topic} has {there} does not know: if they were"
            " copied with another log, they come twice"
        )
    if plan.expired:
        messages.warn(
            f"{counted(plan.expired, 'message was', 'messages were')} deleted before"
            " they were copied"
        )
    if plan.unproven:
        messages.warn(
            "the messages by which the log could recognize these queues are deleted;"
            " all that is stored there is copied:"
            f" {listed(plan.unproven, _LISTED)}"
        )
    if plan.doubtful:
        messages.warn(
            "an earlier run was interrupted or got no answer: messages of these offsets"
            " may be stored already and are sent again:"
            f" {listed(plan.doubtful, _LISTED)}"
        )


# --- copying ---


@dataclass
class _Shown:
    """What the user is asked and told while a copy is carried out."""

    _common: Common
    _options: CopyOptions
    _to: ClientConfig
    _stack: ExitStack
    plan: CopyPlan = field(init=False)
    #: None until the copy begins
    report: CopyReport | None = None
    _progress: Progress = field(init=False)
    #: what is missing now, as it was told
    _told: set[str] = field(default_factory=set)

    def on_plan(self, plan: CopyPlan) -> None:
        """Show the plan, and ask whether it is to be carried out."""
        from rmqcli.cli.confirm import confirm_by_name
        from rmqcli.cli.ui.progress import Progress

        common, options = self._common, self._options
        self.plan = plan
        if not common.assume_yes:
            common.write_table(
                [row_of(COLUMNS, each) for each in plan.queues],
                COLUMNS,
                stream=sys.stderr,
            )
        _say_plan(common, plan)
        if plan.unread:
            return  # it is refused
        name = plan.request.target_topic
        follow = ", and new ones until Ctrl-C," if options.follow else ""
        confirm_by_name(
            common,
            f"This copies up to {counted(plan.count, 'message')} of topic"
            f" {plan.request.source_topic}{follow} to topic {name} in cluster"
            f" {safe(', '.join(plan.identity.target.names))} (namesrv"
            f" {';'.join(self._to.namesrv)}).",
            name=name,
        )
        total = None if options.follow else plan.count
        self._progress = self._stack.enter_context(
            Progress(common.messages, "copied", total=total)
        )

    def on_batch(self, report: CopyReport) -> None:
        """Show the progress, and warn of what cannot be copied now."""
        self.report = report
        missing = _missing_queues(report)
        for each in missing:
            if each not in self._told:
                self._common.messages.warn(each)
        self._told = set(missing)
        count = len(report.unread) + len(report.added)
        note = f"without {counted(count, 'queue')}" if count else ""
        self._progress.update(report.copied, note)


def _execute(common: Common, options: CopyOptions, job: Copy, to: ClientConfig) -> int:
    progress = ExitStack()
    shown = _Shown(common, options, to, progress)
    try:
        with progress:
            report = job.execute(
                rate_per_s=options.rate,
                follow=options.follow,
                on_plan=shown.on_plan,
                on_batch=shown.on_batch,
            )
    except KeyboardInterrupt:
        if shown.report is not None:
            _say_end(common, shown.report, shown.plan)
            for each in _missing_queues(shown.report):
                common.messages.warn(each)
            if options.follow:
                _write(common, shown.plan, shown.report, [])
            common.messages.info("the same command copies the rest")
        raise
    plan = shown.plan
    _say_end(common, report, plan)
    moves: list[_Move] = []
    failures: list[RmqError] = []
    for group in (options.groups or ()) if report.is_complete else ():
        try:
            moves.append(_move_group(common, job, to, group))
            moves[-1].check()
        except RmqError as error:
            failures.append(error)  # the copy is made, and is shown all the same
    common.write_result(lambda: _write(common, plan, report, moves))
    for other in failures[1:]:
        common.messages.warn(other.message)
    if failures:
        raise failures[0]
    if report.given_up is not None:
        hint = "run the same command again for the rest"
        if isinstance(report.given_up, RefusedError | BrokerError):
            hint = report.given_up.hint or hint
        raise PartialError(f"stopped: {report.given_up.message}", hint=hint)
    for each in _missing_queues(report):
        common.messages.warn(each)
    if options.groups and not report.is_complete:
        common.messages.warn("no group was moved, because the copy is not complete")
    return ExitCode.OK if report.is_complete else ExitCode.PARTIAL


def _others(count: int, topic: str) -> str:
    came = counted(count, "message that is", "messages that are")
    return (
        f"at least {came} not of this copy came to {topic} meanwhile: if another copy"
        " with another log is running, messages come twice"
    )


def _left_out(report: CopyReport) -> list[str]:
    """Return a warning for each reason why messages are not copied."""
    return [
        f"{counted(count, 'message')} not copied: {reason}"
        f" ({', '.join(report.named[reason][:_LISTED])})"
        for reason, count in report.left_out.items()
    ]


def _missing_queues(report: CopyReport) -> list[str]:
    """Return a warning for each reason why queues are not copied."""
    queues: dict[str, list[MessageQueue]] = {}
    for queue, error in sorted(report.unread.items()):
        queues.setdefault(error.message, []).append(queue)
    warnings = [f"{listed(each, _LISTED)}: {error}" for error, each in queues.items()]
    if report.added:
        warnings.append(
            "queues were added after the copy began, and are not copied yet:"
            f" {listed(report.added, _LISTED)}; run the same command again: it copies"
            " them, or says what to do first"
        )
    return warnings


def _say_end(common: Common, report: CopyReport, plan: CopyPlan) -> None:
    common.messages.info(f"{counted(report.copied, 'message')} copied; log: {plan.log}")
    common.messages.warn_of_weak(report.weak)
    if report.missing:
        missing = counted(
            report.missing, "message of the range is", "messages of the range are"
        )
        common.messages.warn(f"{missing} not stored any more")
    if report.others:
        common.messages.warn(_others(report.others, plan.request.target_topic))
    for text in _left_out(report):
        common.messages.warn(text)
    if report.unknown:
        common.messages.warn(
            "no answer came for messages of these offsets, which may be stored; the"
            f" next run sends them again: {listed(report.unknown, _LISTED)}"
        )


class _Move(NamedTuple):
    """The plan for the positions of a group, and what became of it if applied."""

    plan: ResetPlan
    outcomes: Mapping[MessageQueue, QueueOutcome] | None
    backup_id: str | None

    def check(self) -> None:
        """Raise PartialError for positions that are not as planned, or not known."""
        bad = {q: each for q, each in (self.outcomes or {}).items() if not each.is_good}
        if not bad:
            return
        results = {each.result.value for each in bad.values()}
        are = "may not be" if "UNKNOWN" in results else "are not"
        group = self.plan.group
        raise PartialError(
            f"group {group}: the positions of {counted(len(bad), 'queue')} {are} as"
            f" planned, the first of them {min(bad)}",
            hint="run the same command again to finish",
        )


def _move_group(common: Common, job: Copy, to: ClientConfig, group: str) -> _Move:
    """Move a group's positions in the target, and read them back."""
    from rmqcli.admin.admin import Admin

    planned = job.plan_group(group)
    found = planned.plan
    for warning in found.warnings:
        common.messages.warn(f"group {group}: {warning}")
    with Admin(client=to) as admin:
        result = admin.apply_reset(planned)
    for error in result.errors:
        common.messages.warn(error.message)
    good = [each.queue for each in found.changes if result.outcomes[each.queue].is_good]
    common.messages.info(
        f"group {group}: {counted(len(good), 'position')} moved and read back"
        + (f"; backup: {result.backup_id}" if result.backup_id else "")
    )
    return _Move(result.plan, result.outcomes, result.backup_id)


def _write(
    common: Common, plan: CopyPlan, report: CopyReport | None, moves: list[_Move]
) -> None:
    rows = [row_of(COLUMNS, each) for each in plan.queues]
    if common.output == "table":
        if report is None:
            common.write_table(rows, COLUMNS)
        for move in moves:
            from rmqcli.cli.reset_offset.view import write_reset

            write_reset(common, move.plan, move.outcomes)
        return
    from rmqcli.cli.reset_offset.view import document

    request = plan.request
    unread = plan.unread
    done: dict[str, Any] = dict.fromkeys(
        ("copied", "weak", "scanned", "missing", "others", "left_out", "unknown")
    )
    if report is not None:
        unread = report.unread
        left_out = report.left_out.items()
        done = {
            "copied": report.copied,
            "weak": report.weak,
            "scanned": report.scanned,
            "missing": report.missing,
            "others": report.others,
            "left_out": [{"reason": why, "count": count} for why, count in left_out],
            "unknown": [str(span) for span in report.unknown],
        }
    emit_json(
        {
            "source": request.source_topic,
            "target": request.target_topic,
            "mode": "plan" if report is None else "applied",
            "mapping": plan.mapping,
            "chosen_by": request.chosen_by or None,
            "queues": rows,
            "count": plan.count,
            "copied_before": plan.copied,
            "present": plan.present,
            "expired": plan.expired,
            "unproven": [str(queue) for queue in plan.unproven],
            "doubtful": [str(span) for span in plan.doubtful],
            **done,
            "unread": [
                {"queue": str(queue), "error": error.message}
                for queue, error in sorted(unread.items())
            ],
            "added": [] if report is None else [str(queue) for queue in report.added],
            "groups": [
                document(move.plan, move.outcomes, backup_id=move.backup_id)
                for move in moves
            ],
            "log": str(plan.log),
        }
    )
