"""`rmq retry flush`: delivers now what waits for the next try of a group."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli.cli.dlq.sending import (
    RESULT_COLUMNS,
    doubtful_words,
    failed_rows,
    result_rows,
    say_sent,
    send_batches,
)
from rmqcli.cli.options import Common, argument, command_options, option, switch
from rmqcli.cli.selection import parse_group_of_topic
from rmqcli.cli.tail.command import parse_rate
from rmqcli.cli.ui.output import Column, emit_json, write_table
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, PartialError
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.api.client import Client
    from rmqcli.redrive.flush import FlushPlan, FlushRequest
    from rmqcli.redrive.library import FlushReport
    from rmqcli.redrive.log import RedriveLog

COLUMNS = (
    Column("action", "flush, or skip", states={"flush": "good", "skip": "warn"}),
    Column("count", "messages", align="right"),
    Column("topic", "topic to which they were first sent", priority=10),
    Column("oldest", "since when the first of them waits", priority=30),
    Column("next_at", "when the first original comes", title="NEXT", priority=5),
    Column("last_at", "when the last original comes", title="LAST", priority=6),
    Column("reason", "why they are not flushed", priority=1),
    Column("example", "one of the skipped messages: BROKER:QUEUE:OFFSET", priority=40),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushOptions:
    """The options of `rmq retry flush` as they were typed."""

    group: str = argument(parser=parse_group_of_topic, help="The group.")
    topic: str | None = option(help="Only messages that were first sent to this.")
    limit: int | None = option(min=1, help="Only N messages, the next ones first.")
    rate: Any = option(
        parser=parse_rate, help="Store at most this many copies a second (100/s)."
    )
    again: bool = switch(
        help="Also messages that were flushed before, or failed again after it."
    )
    execute: bool = switch(
        help="Store copies after confirmation (default: only show the plan)."
    )
    log: Path | None = option(
        help="Log of what was flushed (default: one for each group and cluster)."
    )

    def request(self) -> FlushRequest:
        """Return what the library plans. Raises UsageError."""
        from rmqcli.names import check_group, check_topic
        from rmqcli.redrive.flush import FlushRequest

        check_group(self.group, "group")
        if self.topic is not None:
            check_topic(self.topic)
        return FlushRequest(
            group=self.group, topic=self.topic, limit=self.limit, again=self.again
        )


@command_options(
    FlushOptions,
    formats=("table", "json"),
    fields=COLUMNS,
    changes=lambda options: options.execute,
    asks=True,
)
def flush(common: Common, options: FlushOptions) -> int:
    """Deliver now what waits for a group, by a plan that you confirm.

    Example: rmq retry flush billing --topic orders --execute

    Without --execute nothing is changed. For each message that waits in a delay level
    a copy is stored in the group's retry topic, where a member takes it now. No broker
    can remove the original: it is delivered again at its time, so that listeners must
    tolerate a second delivery.

    A log on the disk notes what was flushed, so that a flush that was killed can be
    started again. What was flushed before and still waits, or failed again after a
    flush, is skipped without --again.

    What members that consume orderly retry waits in the members, and what POP and gRPC
    consumers have not acknowledged waits for its invisible time: neither can be
    flushed. Brokers of 4.6.0 do not show what waits in delay levels.
    """
    from rmqcli.redrive.flush import plan_flush
    from rmqcli.redrive.library import flush_identity
    from rmqcli.redrive.log import FLUSH, LetterStates, default_path, open_log, read_log

    request, group = options.request(), options.group
    with common.open_client() as client:
        cluster = flush_identity(client, group)
        if cluster is None:
            return _only_plan(common, plan_flush(client, request, LetterStates()), None)
        path = options.log or default_path(os.environ, group, cluster, kind=FLUSH)
        if not options.execute:
            states, _, _ = read_log(path, group, cluster, kind=FLUSH)
            return _only_plan(common, plan_flush(client, request, states), path)
        # Locked before the plan is made, so that no other flush copies what it shows.
        now_ms = client.clock.epoch_ms()
        log = open_log(path, group, cluster, at_ms=now_ms, kind=FLUSH)
        try:
            plan = plan_flush(client, request, log.states)
            return _execute(common, client, plan, log, path, rate=options.rate)
        finally:
            log.close()


def _only_plan(common: Common, plan: FlushPlan, path: Path | None) -> int:
    _write(common, plan, path, None)
    _warn(common, plan)
    if plan.count:
        common.messages.info("nothing was changed; add --execute to store the copies")
    else:
        _say_nothing(common, plan)
    return ExitCode.PARTIAL if plan.unread else ExitCode.OK


def _say_nothing(common: Common, plan: FlushPlan) -> None:
    if not plan.left_out and not plan.unread:
        common.messages.info(
            f"nothing of group {plan.request.group} waits in a delay level; what"
            " orderly consumers retry waits in the consumers"
        )
    common.messages.info("there is nothing to flush")
    if plan.pop is not None and plan.pop.inflight is None:
        raise PartialError(
            f"how many messages POP has handed out is not known: {plan.pop.reason}"
        )


def _execute(
    common: Common,
    client: Client,
    plan: FlushPlan,
    log: RedriveLog,
    path: Path,
    *,
    rate: float | None,
) -> int:
    from rmqcli.cli.confirm import confirm_by_name
    from rmqcli.cli.ui.interrupts import pending_since_ms
    from rmqcli.redrive.library import FlushReport
    from rmqcli.redrive.redrive import RedriveRun

    done = FlushReport(plan=plan)
    if not plan.count:
        _write(common, plan, path, done)
        _warn(common, plan)
        _say_nothing(common, plan)
        return ExitCode.PARTIAL if plan.unread else ExitCode.OK
    if not common.assume_yes:
        import sys

        write_table(
            _rows(plan), columns=COLUMNS, color=common.use_color, stream=sys.stderr
        )
    _warn(common, plan)
    group = plan.request.group
    copies = counted(plan.count, "message")
    confirm_by_name(
        common,
        f"This delivers {copies} to group {group} now, and each once more at its time.",
        name=group,
    )
    run = RedriveRun(
        client,
        plan,
        log,
        rate_per_s=rate,
        is_stopped=lambda: pending_since_ms() is not None,
    )
    send_batches(common, run, done, total=plan.count, path=path)
    done.given_up, done.unread = run.given_up, run.unread
    common.write_result(lambda: _write(common, plan, path, done))
    if done.came_due:
        common.messages.info(
            f"{counted(done.came_due, 'message')} came due meanwhile: the broker"
            " delivers them itself"
        )
    say_sent(
        common, run, done, total=plan.count, path=path, noun="message", kind="flush"
    )
    return ExitCode.OK if done.is_complete else ExitCode.PARTIAL


def _warn(common: Common, plan: FlushPlan) -> None:
    say, request = common.messages, plan.request
    if request.topic is not None:
        say.info(f"only messages with --topic {request.topic}")
    for name, error in sorted(plan.unread.items()):
        say.warn(f"not all that waits on {name} can be flushed: {error.message}")
    if plan.doubtful_count:
        say.warn(doubtful_words(plan, "message", "flush"))
    if plan.count:
        times = [
            each
            for found in plan.topics.values()
            for each in (found.next_ms, found.last_ms)
            if each is not None
        ]
        when = ""
        if times:
            when = (
                f", from {format_rfc3339(min(times))} to {format_rfc3339(max(times))}"
            )
        say.warn(
            "no broker can remove the originals: it delivers each again at its time"
            f"{when}; listeners must tolerate a second delivery of"
            f" {counted(plan.count, 'message')}"
        )
    undated = sum(each.undated for each in plan.topics.values())
    if undated:
        say.warn(
            f"when {counted(undated, 'original')} will come is not known, because a"
            " broker does not show its delays, or has the delay level no more"
        )
    if plan.count and plan.members == 0:
        say.warn(
            f"no member of group {request.group} is connected: the copies wait in the"
            " retry topic until one is"
        )
    if plan.count and plan.members is None and not plan.unread:
        say.warn(f"whether members of group {request.group} are connected is not known")
    if plan.pop is not None and plan.pop.inflight:
        say.info(
            f"{counted(plan.pop.inflight, 'message')} handed out by POP cannot be"
            " flushed: the invisible time of each ends by itself"
        )


def _rows(plan: FlushPlan) -> list[dict[str, object]]:
    empty = {column.name: None for column in COLUMNS}
    rows: list[dict[str, object]] = [
        {**empty, "action": "flush", **row} for row in _topics(plan)
    ]
    for reason, left in sorted(plan.left_out.items(), key=lambda e: -e[1].count):
        row = {"action": "skip", "count": left.count, "reason": reason}
        rows.append({**empty, **row, "example": left.example or None})
    return rows


def _topics(plan: FlushPlan) -> list[dict[str, object]]:
    return [
        {
            "topic": topic,
            "count": each.count,
            "oldest": _time(each.oldest_ms),
            "next_at": _time(each.next_ms),
            "last_at": _time(each.last_ms),
        }
        for topic, each in plan.topics.items()
    ]


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_rfc3339(time_ms)


def _write(
    common: Common, plan: FlushPlan, path: Path | None, done: FlushReport | None
) -> None:
    if common.output == "table":
        if done is not None:
            write_table(
                result_rows(done), columns=RESULT_COLUMNS, color=common.use_color
            )
        elif plan.topics or plan.left_out:
            write_table(_rows(plan), columns=COLUMNS, color=common.use_color)
        return
    emit_json(
        {
            "group": plan.request.group,
            "mode": "plan" if done is None else "applied",
            "topic": plan.request.topic,
            "read": plan.scanned,
            "count": plan.count,
            "topics": [
                {**row, "undated": each.undated}
                for row, each in zip(_topics(plan), plan.topics.values(), strict=True)
            ],
            "second_deliveries": plan.count,
            "skipped": [
                {
                    "reason": reason,
                    "count": left.count,
                    "example": left.example or None,
                }
                for reason, left in plan.left_out.items()
            ],
            "doubtful_count": plan.doubtful_count,
            "doubtful": list(plan.doubtful),
            "unread": [
                {"broker": name, "error": error.message}
                for name, error in sorted(plan.unread.items())
            ],
            "members": plan.members,
            "pop_inflight": None if plan.pop is None else plan.pop.inflight,
            "sent": None if done is None else done.stored,
            "came_due": None if done is None else done.came_due,
            "failed": failed_rows(done, noun="message"),
            "log": None if path is None else str(path),
        }
    )
