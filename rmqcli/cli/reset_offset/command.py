"""`rmq reset-offset`: plan, apply, verify or undo a change of a group's offsets.

Checks the options, asks for confirmation, saves the backup and decides the exit code.
The reset itself is in `rmqcli.admin.reset`, its output in `view`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli.admin.reset import target as reset_target
from rmqcli.admin.reset.cluster_identity import identity_of, is_same_cluster
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    option,
    position_option,
    queue_option,
    switch,
)
from rmqcli.cli.reset_offset.view import (
    COLUMNS,
    document,
    noted_ends,
    show_plan,
    summary,
    undo_command,
    write_backups,
    write_reset,
)
from rmqcli.cli.ui.interrupts import deferred
from rmqcli.cli.ui.wording import with_flags
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, NotFoundError, RefusedError, RmqError, UsageError
from rmqcli.files import check_readable
from rmqcli.hint import command_line
from rmqcli.model import retry_topic
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.admin.reset.apply import ResetRun
    from rmqcli.admin.reset.backup import Backup
    from rmqcli.admin.reset.plan import ResetPlan
    from rmqcli.admin.reset.target import ResetRequest, Target, ToOffsets
    from rmqcli.api.client import Client

_TARGET = "Target"
_QUEUES = "Which queues"
_PLAN = "The plan"


_USAGE = "write rmq reset-offset GROUP TOPIC --to POS; see: rmq reset-offset --help"

#: After an interrupt the offsets are read back once more, for at most this long.
_LAST_LOOK_MS = 2_000
#: More queues than this are not listed in a hint.
_QUEUES_LISTED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOptions:
    """The options of `rmq reset-offset` as they were typed, and their checks."""

    group: str | None = argument(default=None, help="The group.")
    topic: str | None = argument(default=None, help="The topic.")
    backup_id: str | None = argument(
        default=None, metavar="[ID]", help="Backup to restore, with --undo."
    )
    to: Any = position_option(
        help="Target position: latest, earliest, -15m, @TIME, 123 ...", section=_TARGET
    )
    shift: int | None = option(
        help="Move by N messages (negative: backwards).", section=_TARGET
    )
    to_group: str | None = option(
        metavar="GROUP",
        help="Target is the committed offset of GROUP.",
        section=_TARGET,
    )
    past_message: str | None = option(
        metavar="ID", help="Skip this one message.", section=_TARGET
    )
    apply: Path | None = option(
        help="Apply a plan: a file from --out, or CSV from kafka-consumer-groups.",
        section=_TARGET,
    )
    undo: bool = switch(help="Restore a backup (default: the latest).", section=_TARGET)
    list_backups: bool = switch(
        help="List the backups that --undo can restore.", section=_TARGET
    )
    other_cluster: bool = switch(
        help="Accept a backup or plan that was made on another cluster.",
        section=_TARGET,
    )
    queue: list[Any] | None = queue_option(section=_QUEUES)
    include_retry: bool = switch(
        help="Also move the group's retry topic: to the same time, else to its end.",
        section=_QUEUES,
    )
    execute: bool = switch(
        help="Apply the plan after confirmation (default: only show it).", section=_PLAN
    )
    out: Path | None = option(help="Write the plan: .json or .csv.", section=_PLAN)
    show_edges: bool = switch(
        help="Show the messages around each target.", section=_PLAN
    )
    wait: bool = switch(help="Verify again after 7 s.", section=_PLAN)

    @property
    def mode(self) -> str:
        """The option that says what to do, e.g. `--to`.

        Raises UsageError unless exactly one of them was given.
        """
        ways: dict[str, object] = {
            "--to": self.to,
            "--shift": self.shift,
            "--to-group": self.to_group,
            "--past-message": self.past_message,
            "--apply": self.apply,
            "--undo": self.undo or None,
            "--list-backups": self.list_backups or None,
        }
        given = [name for name, value in ways.items() if value is not None]
        if not given:
            raise UsageError(
                f"nothing to do: give one of {', '.join(ways)}", hint=_USAGE
            )
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)} cannot be used together")
        return given[0]

    def check(self) -> None:
        """Raise UsageError for options that cannot be used together."""
        mode = self.mode
        names_source = mode == "--apply" or (mode == "--undo" and self.backup_id)
        if self.other_cluster and not names_source:
            raise UsageError(
                "--other-cluster needs the ID of a backup after --undo, or --apply"
                " FILE",
                hint="see: rmq reset-offset --list-backups",
            )
        if mode == "--list-backups":
            return
        excluded = {}
        if mode in ("--past-message", "--apply", "--undo"):
            excluded["--include-retry"] = self.include_retry
        if mode in ("--apply", "--undo"):
            excluded["--queue"] = bool(self.queue)
        if mode != "--undo":
            excluded[f"the argument {self.backup_id}"] = self.backup_id is not None
        for name, is_given in excluded.items():
            if is_given:
                raise UsageError(f"{mode} and {name} cannot be used together")
        if self.out is not None and self.out.suffix not in (".json", ".csv"):
            raise UsageError(f"--out {self.out} must end in .json or .csv")
        if self.apply is not None:
            check_readable(str(self.apply))
        if self.group is None:
            raise UsageError("GROUP and TOPIC are missing", hint=_USAGE)
        if self.topic is None:
            names = self.group, "TOPIC"
            wanted = command_line("rmq reset-offset", *names, options=mode.split())
            raise UsageError("TOPIC is missing", hint=f"write: {wanted}")

    @property
    def group_and_topic(self) -> tuple[str, str]:
        """The group and the topic; `check` ensures that both are given."""
        if self.group is None or self.topic is None:
            raise TypeError("GROUP and TOPIC were not checked")
        return self.group, self.topic

    def request(self, target: Target) -> ResetRequest:
        """Return the request that the library plans."""
        from rmqcli.admin.reset.target import ResetRequest

        group, topic = self.group_and_topic
        return ResetRequest(
            group=group,
            topic=topic,
            target=target,
            selectors=tuple(self.queue or ()),
            include_retry=self.include_retry,
            wants_proof=self.wait,
            with_edges=self.show_edges,
        )


@command_options(
    ResetOptions, fields=COLUMNS, changes=lambda options: options.execute, asks=True
)
def reset_offset(common: Common, options: ResetOptions) -> int:
    """Plan, apply, verify or undo a change of a group's offsets.

    Example: rmq reset-offset my-group my-topic --to -15m --execute

    Without --execute nothing is changed. With it, a backup is saved first, and the
    offset of every queue is verified afterwards. The exit code is 7 if offsets moved
    since the plan was made, if a backup or plan belongs to another group or cluster, if
    the topic was created again since a backup or plan was, or if the reset was not
    confirmed. It is 6 if some queues could not be read or set, have no target, or were
    on a broker that has left the route; the others are moved without these.

    A cluster is recognised by the addresses that its brokers advertise. To use a
    backup of another cluster or topic, give its ID and --other-cluster.
    """
    options.check()
    if options.mode == "--list-backups":
        from rmqcli.admin.reset.backup import backup_directory, list_backups

        directory = backup_directory(os.environ)
        found = list_backups(directory, group=options.group, topic=options.topic)
        write_backups(common, found)
        return ExitCode.OK
    from rmqcli.admin.reset.gather import gather_plan
    from rmqcli.admin.reset.target import Restore, ToOffsets

    with common.open_client() as client:
        undo_of = ""
        if options.undo:
            backup = _read_backup(common, client, options)
            noted = {} if options.other_cluster else backup.noted
            target: Target = Restore(backup.committed, noted)
            undo_of = backup.backup_id
        else:
            target = _target(client, options)
        if isinstance(target, ToOffsets):
            _check_cluster(common, client, target, options)
            if options.other_cluster:
                target = replace(target, noted={})
        request = options.request(target)
        plan = gather_plan(client, request)
        _warn(common, plan, target)
        if options.out is not None:
            _write_file(common, client, plan, options.out)
        if not options.execute:
            return _only_plan(common, plan)
        return _execute(common, client, plan, request, undo_of=undo_of)


def _target(client: Client, options: ResetOptions) -> Target:
    """Return the target of the reset."""
    from rmqcli.position import parse_position

    if options.shift is not None:
        return reset_target.Shift(options.shift)
    if options.to_group is not None:
        position = parse_position(f"group:{options.to_group}")
        return reset_target.ToPosition(position)
    if options.past_message is not None:
        from rmqcli.admin.message.find import find_past

        return find_past(client, options.group_and_topic[1], options.past_message)
    if options.apply is not None:
        return _read_file(client, options.apply, options)
    return reset_target.ToPosition(options.to)


def _read_file(client: Client, path: Path, options: ResetOptions) -> ToOffsets:
    from rmqcli.admin.reset.plan_file import read_plan

    group, topic = options.group_and_topic
    queues = client.route(topic).read_queues()
    with contextlib.suppress(NotFoundError):  # when no member ever was online
        queues += client.route(retry_topic(group)).read_queues()
    return read_plan(path, group=group, topic=topic, queues=queues)


def _check_cluster(
    common: Common, client: Client, target: ToOffsets, options: ResetOptions
) -> None:
    """Refuse a plan file of another cluster. A CSV file does not name its cluster."""
    _, topic = options.group_and_topic
    here = identity_of(client.route(topic))
    if target.cluster is None or is_same_cluster(target.cluster, here):
        return
    what = f"the plan was made on {target.cluster}, but this cluster is {here}"
    _insist(common, what, options)


def _read_backup(common: Common, client: Client, options: ResetOptions) -> Backup:
    """Return the backup to restore.

    Raises RefusedError for a backup of another group or topic and, without
    --other-cluster, of another cluster.
    """
    from rmqcli.admin.reset.backup import (
        backup_directory,
        latest_backup,
        list_backups,
        load_backup,
    )

    directory = backup_directory(os.environ)
    group, topic = options.group_and_topic
    backup_id = options.backup_id
    if backup_id is None:
        here = identity_of(client.route(topic))
        try:
            backup = latest_backup(directory, group=group, topic=topic, cluster=here)
        except RefusedError as refused:
            found = list_backups(directory, group=group, topic=topic)
            other = [each.backup_id for each in found if not each.undo_of]
            refused.hint = f"to restore it here: --undo {other[-1]} --other-cluster"
            raise
    else:
        backup = load_backup(directory, backup_id)
        if (backup.group, backup.topic) != (group, topic):
            raise RefusedError(
                f"backup {backup.backup_id} belongs to group {backup.group} and topic"
                f" {backup.topic}: nothing was changed",
                hint="see: "
                + command_line(
                    "rmq reset-offset", group, topic, options=["--list-backups"]
                ),
            )
        here = identity_of(client.route(topic))
        if not is_same_cluster(backup.cluster, here):
            what = (
                f"backup {backup_id} was made on {backup.cluster}, but this cluster is"
                f" {here}"
            )
            _insist(common, what, options)
    return backup


def _insist(common: Common, what: str, options: ResetOptions) -> None:
    if not options.other_cluster:
        raise RefusedError(
            f"{what}: nothing was changed",
            hint="if all brokers of the cluster have moved, or these offsets are meant"
            " for this cluster too, add --other-cluster",
        )
    common.messages.warn(what)


def _warn(common: Common, plan: ResetPlan, target: Target) -> None:
    """Show which moment a time stands for, and the plan's warnings."""
    from rmqcli.admin.reset.target import ToPosition
    from rmqcli.position import AtTime

    if isinstance(target, ToPosition) and isinstance(target.position, AtTime):
        common.messages.info(f"target: {target.position}")
    for warning in plan.warnings:
        common.messages.warn(with_flags(warning))


def _write_file(common: Common, client: Client, plan: ResetPlan, out: Path) -> None:
    """Write the plan to a file, unless queues are missing.

    Such a plan, if it were applied, would reset only some of the queues.
    """
    from rmqcli.admin.reset.plan_file import write_plan

    if plan.unknown or plan.departed:
        common.messages.warn(f"{out} was not written: the plan is incomplete")
        return
    noted = noted_ends(common, client, plan)
    write_plan(out, plan, document(plan, None, backup_id=None), noted)


def _only_plan(common: Common, plan: ResetPlan) -> int:
    write_reset(common, plan, None)
    if plan.unknown:
        common.messages.warn("this plan is incomplete and would be refused")
        return ExitCode.PARTIAL
    if plan.refusals:
        common.messages.warn("this reset would be refused, see above")
    elif plan.changes:
        common.messages.info("nothing was changed; add --execute to apply the plan")
    else:
        common.messages.info(f"nothing to do: {plan.nothing_to_do}")
    return _code_without_errors(plan)


def _code_without_errors(plan: ResetPlan) -> int:
    """Return the exit code of a plan, and of a reset that did all that was planned."""
    return ExitCode.PARTIAL if plan.impossible or plan.departed else ExitCode.OK


def _execute(
    common: Common,
    client: Client,
    plan: ResetPlan,
    request: ResetRequest,
    *,
    undo_of: str,
) -> int:
    """Ask for confirmation, save a backup, apply the plan, and report the result."""
    from rmqcli.admin.reset.apply import ResetRun, recheck
    from rmqcli.admin.reset.backup import backup_directory

    if plan.unknown:
        raise _incomplete(plan, request)
    if not plan.changes:
        return _nothing_to_do(common, plan, ResetRun(client, plan))
    if plan.refusals:
        raise RefusedError(
            f"this reset would have no lasting effect: {'; '.join(plan.refusals)}",
            hint="stop the consumers first, or add --wait to try it and verify again",
        )
    _agree(common, plan)
    plan = recheck(client, plan, request.target)
    run = ResetRun(client, plan)
    if not plan.changes:
        return _nothing_to_do(common, plan, run)
    backup_id = run.save_backup(backup_directory(os.environ), undo_of=undo_of)
    common.messages.info(f"saved backup {backup_id}")
    return _run_and_report(
        common, plan, run, backup_id=backup_id, wait=request.wants_proof
    )


def _nothing_to_do(common: Common, plan: ResetPlan, run: ResetRun) -> int:
    outcomes = run.outcomes()
    write_reset(common, plan, outcomes)
    common.messages.info(f"nothing to do: {plan.nothing_to_do}; {summary(outcomes)}")
    return _code_without_errors(plan)


def _incomplete(plan: ResetPlan, request: ResetRequest) -> RefusedError:
    """Return the error for a plan in which some queues could not be read.

    To reset only the other queues, the user must name each with `--queue`.
    """
    from rmqcli.admin.reset.target import Restore, ToOffsets

    brokers = ", ".join(sorted({queue.broker_name for queue in plan.unknown}))
    hint = f"try again when {brokers} can be reached"
    if not isinstance(request.target, Restore | ToOffsets):
        rest = dict.fromkeys(
            f" --queue {each.queue.broker_name}:{each.queue.queue_id}"
            for each in plan.queues
            if each.queue.topic == plan.topic
        )
        hint += f", or reset the others only:{''.join(list(rest)[:_QUEUES_LISTED])}"
        hint += " ..." if len(rest) > _QUEUES_LISTED else ""
    count = len(plan.unknown)
    of = counted(count + len(plan.queues), "queue")
    what = f"{count} of {of} could not be read: nothing was changed"
    return RefusedError(what, hint=hint)


def _agree(common: Common, plan: ResetPlan) -> None:
    from rmqcli.cli.confirm import confirm_by_name

    if not common.assume_yes:
        show_plan(common, plan)
    queues = counted(len(plan.changes), "queue")
    question = (
        f"This changes the offsets of group {plan.group} in {queues} of {plan.topic}."
    )
    confirm_by_name(common, question, name=plan.group)


def _run_and_report(
    common: Common, plan: ResetPlan, run: ResetRun, *, backup_id: str, wait: bool
) -> int:
    """Apply the plan, and report the result exactly once, even after an interrupt."""
    is_interrupted = is_reported = False
    code: int = ExitCode.INTERRUPTED
    while not is_reported:
        try:
            if not is_interrupted:
                run.execute()
                if wait:
                    run.watch()
            with deferred():
                if is_interrupted:
                    run.read_back(timeout_ms=_LAST_LOOK_MS)
                outcomes = run.outcomes()
                common.write_result(
                    partial(write_reset, common, plan, outcomes, backup_id=backup_id)
                )
                code = _close(common, plan, run, backup_id=backup_id)
                is_reported = True
        except KeyboardInterrupt:
            is_interrupted = True
    return ExitCode.INTERRUPTED if is_interrupted else code


def _close(common: Common, plan: ResetPlan, run: ResetRun, *, backup_id: str) -> int:
    """Show a summary and the command that undoes the reset; return the exit code."""
    from rmqcli.admin.reset.backup import backup_directory, begun_by

    outcomes = run.outcomes()
    common.messages.info(summary(outcomes))
    target, flags = (plan.group, plan.topic), common.flags_to_repeat()
    common.messages.info(f"to undo: {undo_command(*target, backup_id, flags=flags)}")
    with contextlib.suppress(RmqError):  # of a file that was removed or is damaged
        begun = begun_by(backup_directory(os.environ), backup_id)
        if begun is not None:
            undo = undo_command(*target, begun.backup_id, flags=flags)
            common.messages.warn(
                "other queues were moved by the run that this one has completed; to"
                f" undo that: {undo}"
            )
    if all(outcome.is_good for outcome in outcomes.values()):
        return ExitCode.OK
    told = set(plan.departed.values())  # by the warnings of the plan
    for error in dict.fromkeys(e.message for e in run.errors if e not in told):
        common.messages.warn(error)
    codes = {error.exit_code for error in run.errors}
    nothing_done = not any(
        outcomes[each.queue].is_good for each in plan.changes
    ) and len(run.errors) >= len(plan.changes)
    return codes.pop() if nothing_done and len(codes) == 1 else ExitCode.PARTIAL
