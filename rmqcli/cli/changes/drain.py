"""`rmq broker drain` and `undrain`: take a broker out of use, and back into it.

`drain` takes the write permission from the broker at every name server, then waits
until nothing arrives and nothing is unread. However it ends, it says what is left to do
and how to undo it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rmqcli.cli.by_broker import (
    ERROR_COLUMN,
    RESULT_COLUMN,
    show_detail,
    show_results,
    unknown_first,
    what_failed,
)
from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import (
    Common,
    argument,
    command_options,
    duration_option,
    option,
    switch,
)
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.output import Column, empty_row, number_column, row_of
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError, RmqError, UsageError
from rmqcli.hint import command_line
from rmqcli.units import counted, format_duration, listed

if TYPE_CHECKING:
    from rmqcli.admin.drain import DrainPlan, DrainProgress, DrainStep
    from rmqcli.api.client import Client

_WAIT_MS = 600_000
_POLL_MS = 5_000
#: A look that fails this often, one after the other, ends the wait.
_FAILED_MAX = 3
_LISTED_MAX = 5

COLUMNS = (
    Column("server", "address of the name server"),
    RESULT_COLUMN,
    number_column("topics", "topics of the broker that it lists"),
    number_column("writable", "how many of them producers may send to at the broker"),
    ERROR_COLUMN,
)
_UNREAD_COLUMNS = (
    Column("group"),
    Column("lag"),
    Column("has_members"),
    Column("topics"),
    Column("reason"),
)
#: What JSON has of the progress, after the name servers.
_PROGRESS_COLUMNS = (
    Column("arrived"),
    Column("arriving"),
    Column(
        "unread",
        value=lambda found: [row_of(_UNREAD_COLUMNS, each) for each in found.unread],
    ),
    Column("delayed"),
    Column("open_transactions"),
    Column("quiet_ms"),
    Column("blockers"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainOptions:
    """The options of `rmq broker drain`."""

    name: str = argument(metavar="BROKER", help="Name of the broker.")
    wait: int | None = duration_option(
        help="Stop waiting after DURATION (default: 10m)."
    )
    no_wait: bool = switch(help="Only take the write permission away.")
    settle: int | None = duration_option(
        help="How long nothing must arrive (default: 40s; producers may keep a"
        " route for 30s)."
    )
    skip_group: list[str] | None = option(
        metavar="GROUP", help="Do not wait for this group to catch up; repeatable."
    )
    skip_delayed: bool = switch(help="Do not wait for delayed messages to be due.")
    skip_transactions: bool = switch(help="Do not wait for open transactions to end.")


@command_options(DrainOptions, fields=COLUMNS, asks=True)
def drain(common: Common, options: DrainOptions) -> None:
    """Stop new messages to a broker, and wait until it is safe to stop it.

    Example: rmq broker drain broker-a --wait 30m

    Every name server lists the broker's topics without the write permission, so that
    producers send to other brokers; consumers go on. It is safe once nothing arrives,
    every group has read all that the broker has, and no transaction is open there. rmq
    broker undrain undoes it. The exit code is 6 if that is not reached in time.
    """
    from rmqcli.admin.drain import apply_drain, plan_drain
    from rmqcli.admin.positions import check_group_names

    if options.no_wait and options.wait is not None:
        raise UsageError("--wait and --no-wait cannot be used together")
    with common.open_client() as client:
        check_group_names(client, options.skip_group or ())
        plan = plan_drain(client, options.name)
        _show_plan(common, plan)
        planned = [step for step in plan.steps if step.result == "planned"]
        if planned:
            topics = max(step.writable or 0 for step in planned)
            confirm(
                common,
                f"This takes the write permission of {counted(topics, 'topic')} from"
                f" {safe(options.name)}.",
            )
        is_begun = False
        try:
            is_begun = bool(planned)
            steps = apply_drain(client, plan)
            progress = None
            if not options.no_wait and all(step.error is None for step in steps):
                progress = _wait(common, client, options)
        except BaseException:
            # Whatever ended it, an interrupt too: the permission is off.
            if is_begun:
                _say_how_to_undo(common, options.name)
            raise
    common.write_result(lambda: _show(common, options.name, steps, progress))
    _end(common, options, steps, progress)


def _show_plan(common: Common, plan: DrainPlan) -> None:
    name = plan.broker_name
    for step in plan.steps:
        if step.error is not None:
            common.messages.warn(f"{step.server}: {step.error.message}")
        elif not step.writable:
            common.messages.info(f"{step.server}: the write permission is off already")
        else:
            common.messages.info(
                f"{step.server}: {counted(step.writable, 'topic')} of {name} can be"
                " written, will be read-only"
            )
    if plan.only_here:
        common.messages.warn(
            f"no other broker takes messages of {listed(plan.only_here, _LISTED_MAX)}:"
            " their producers will fail"
        )
    if plan.ordered:
        common.messages.warn(
            f"producers of the ordered topics {listed(plan.ordered, _LISTED_MAX)} may"
            " go on sending"
        )
    if plan.other_namesrvs:
        common.messages.warn(
            f"{name} also registers with {', '.join(plan.other_namesrvs)}, whose"
            " clients go on sending; name all name servers with --namesrv"
        )


def _wait(common: Common, client: Client, options: DrainOptions) -> DrainProgress:
    """Look again and again until the broker is drained or the time is over."""
    from rmqcli.admin.drain import SETTLE_MS, apply_drain, drain_progress, plan_drain
    from rmqcli.api.runner import run_task
    from rmqcli.tasks import Sleep, Task

    def sleep() -> Task[None]:
        yield Sleep(min(_POLL_MS, settle_ms, max(1, deadline.left_ms())))

    settle_ms = SETTLE_MS if options.settle is None else options.settle
    wait_ms = _WAIT_MS if options.wait is None else options.wait
    deadline = Deadline(client.clock, wait_ms)
    progress: DrainProgress | None = None
    failed, said = 0, ""
    while True:
        try:
            progress = drain_progress(
                client,
                options.name,
                since=progress,
                skip_groups=options.skip_group or (),
                skip_delayed=options.skip_delayed,
                skip_transactions=options.skip_transactions,
                settle_ms=settle_ms,
            )
            failed = 0
        except RmqError as error:
            failed += 1
            if failed >= _FAILED_MAX or deadline.is_over():
                raise PartialError(
                    f"whether {options.name} is drained is not known: {error.message}",
                    hint=error.hint,
                ) from error
            common.messages.warn(error.message)
        else:
            if progress.is_safe or deadline.is_over():
                common.messages.clear_progress()
                return progress
            if not progress.is_write_off:
                common.messages.warn(
                    f"the write permission of {options.name} came back, as it does when"
                    " a topic of the broker is created or changed; it is taken again"
                )
                apply_drain(client, plan_drain(client, options.name))
            said = _say(common, progress, said)
        run_task(client, sleep())


def _say(common: Common, progress: DrainProgress, said: str) -> str:
    """Say what the drain waits for: in place on a terminal, else when it changes."""
    text = f"waiting: {progress.blockers[0]}"
    kind = text.split(" has arrived for ")[0]
    if sys.stderr is not None and sys.stderr.isatty():
        common.messages.progress(text[:79])
    elif kind != said:
        common.messages.info(text)
    return kind


def _show(
    common: Common,
    name: str,
    steps: Sequence[DrainStep],
    progress: DrainProgress | None,
) -> None:
    rows = [row_of(COLUMNS, step) for step in steps]
    data: dict[str, Any] = {
        "broker_name": name,
        "state": _state(steps, progress),
        "servers": rows,
    }
    if progress is None:
        data |= empty_row(_PROGRESS_COLUMNS)
    else:
        data |= row_of(_PROGRESS_COLUMNS, progress)
    show_detail(
        common,
        data,
        list_name="servers",
        columns=COLUMNS,
        write_tables=lambda: common.write_table(rows, COLUMNS),
    )


def _state(steps: Sequence[DrainStep], progress: DrainProgress | None) -> str:
    failures = [step.result for step in steps if step.error is not None]
    if failures:
        return "failed" if "failed" in failures else "unknown"
    if progress is None:
        return "read-only"
    return "drained" if progress.is_safe else "draining"


def _end(
    common: Common,
    options: DrainOptions,
    steps: Sequence[DrainStep],
    progress: DrainProgress | None,
) -> None:
    """Say what is known, and how to undo it; raise an error unless it is drained."""
    name = options.name
    _say_how_to_undo(common, name)
    errors = unknown_first(step.error for step in steps)
    if errors and len(errors) == len(steps):
        raise errors[0]
    if errors:
        raise PartialError(
            f"{len(errors)} of {counted(len(steps), 'name server')}"
            f" {what_failed(errors)}, so producers may go on sending to {name}:"
            f" {errors[0].message}",
            hint="run the same command again to finish",
        )
    if progress is None:
        common.messages.info(
            f"whether {name} can be stopped was not checked, because of --no-wait"
        )
        return
    if progress.is_safe:
        skipped = [f"what {each} has to read" for each in options.skip_group or ()]
        skipped += ["delayed messages"] if options.skip_delayed else []
        skipped += ["open transactions"] if options.skip_transactions else []
        note = f"; not checked: {', '.join(skipped)}" if skipped else ""
        common.messages.info(
            f"{name} is drained: nothing has arrived for"
            f" {format_duration(progress.quiet_ms)}, and no group has more to read"
            f" there{note}. It is safe to stop it."
        )
        return
    for blocker in progress.blockers[1 : _LISTED_MAX + 1]:
        common.messages.warn(blocker)
    raise PartialError(
        f"{name} is not drained: {progress.blockers[0]}",
        hint="run the same command again to go on waiting",
    )


def _say_how_to_undo(common: Common, name: str) -> None:
    options = common.flags_to_repeat()
    undo = command_line("rmq broker undrain", name, options=options)
    common.messages.info(f"to undo: {undo}")


@command_options(fields=COLUMNS, asks=True)
def undrain(
    common: Common,
    name: str = argument(metavar="BROKER", help="Name of the broker."),
) -> None:
    """Let producers send to a broker again.

    Example: rmq broker undrain broker-a

    Each topic gets the permissions back that the broker has for it. Producers follow
    within 30 s.
    """
    from rmqcli.admin.drain import plan_undrain, undrain_broker

    with common.open_client() as client:
        steps = plan_undrain(client, name)
        planned = [step for step in steps if step.result == "planned"]
        for step in planned:
            common.messages.info(
                f"{step.server}: lists {counted(step.topics or 0, 'topic')} of {name},"
                f" {step.writable} of them with the write permission"
            )
        if planned:
            confirm(common, f"This lets producers send to {safe(name)} again.")
            steps = undrain_broker(client, name)
        elif all(step.error is None for step in steps):
            common.messages.info(
                f"nothing was changed: name servers list {name} with its permissions"
            )
    show_results(common, steps, COLUMNS)
