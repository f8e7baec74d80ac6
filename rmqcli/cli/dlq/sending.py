"""Sends the letters of a confirmed plan, and says what became of them.

What `rmq dlq redrive` and `rmq retry flush` have in common.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from rmqcli.cli.ui.interrupts import deferred, pending_since_ms
from rmqcli.cli.ui.output import Column, emit_json
from rmqcli.errors import ExitCode, PartialError, RefusedError, TransportError
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqcli.admin.dlq.log import RedriveLog
    from rmqcli.api.client import Client
    from rmqcli.cli.options import Common
    from rmqcli.redrive.flush import FlushPlan
    from rmqcli.redrive.library import FlushReport, RedriveReport, SendReport
    from rmqcli.redrive.redrive import RedrivePlan, RedriveRun

PlanT = TypeVar("PlanT", bound="RedrivePlan | FlushPlan")
ReportT = TypeVar("ReportT", bound="RedriveReport | FlushReport")

#: More letters than this are not listed on stderr.
_LISTED = 20

RESULT_COLUMNS = (
    Column("result", states={"sent": "good", "failed": "bad"}),
    Column("count", align="right"),
    Column("topic", priority=10),
    Column("reason", priority=1),
)


class PlanView(Generic[PlanT, ReportT]):
    """Shows a plan to send messages again, and carries it out once it is confirmed."""

    #: what the messages and such a run are called
    noun: ClassVar[str]
    kind: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]]
    #: what a plan says that was only shown
    how_to_execute: ClassVar[str]

    def __init__(self, common: Common, plan: PlanT, path: Path | None) -> None:
        self.common = common
        self.plan = plan
        self.path = path

    def sent_rows(self) -> list[dict[str, object]]:
        """Return rows for the messages that are sent, without columns that are null."""
        raise NotImplementedError

    def document(self, done: ReportT | None) -> dict[str, Any]:
        """Return the plan, and what became of it, as JSON."""
        raise NotImplementedError

    def warn(self) -> None:
        """Say on stderr what to know before the plan is carried out."""
        raise NotImplementedError

    def say_nothing(self) -> None:
        """Say that there is nothing to send."""
        raise NotImplementedError

    def question(self) -> str:
        """Return what the plan does, for the confirmation."""
        raise NotImplementedError

    @property
    def is_partial(self) -> bool:
        """Whether the plan lacks something that it would have to know."""
        raise NotImplementedError

    def say_outcome(self, done: ReportT) -> None:
        """Say what the table of results lacks."""

    def rows(self) -> list[dict[str, object]]:
        """Return the rows of the plan: what is sent, and what is skipped and why."""
        empty: dict[str, object] = dict.fromkeys(each.name for each in self.columns)
        rows = [{**empty, **row} for row in self.sent_rows()]
        left_out = self.plan.left_out.items()
        for reason, left in sorted(left_out, key=lambda item: -item[1].count):
            row = {"action": "skip", "count": left.count, "reason": reason}
            rows.append({**empty, **row, "example": left.example or None})
        return rows

    def write(self, done: ReportT | None) -> None:
        """Write the plan, or what became of it, to stdout."""
        if self.common.output != "table":
            emit_json(self.document(done))
        elif done is None:
            self.common.write_table(self.rows(), self.columns)
        else:
            self.common.write_table(result_rows(done), RESULT_COLUMNS)

    def only_show(self) -> int:
        """Show the plan; return the exit code."""
        self.write(None)
        self.warn()
        if self.plan.count:
            self.common.messages.info(self.how_to_execute)
        else:
            self.say_nothing()
        return ExitCode.PARTIAL if self.is_partial else ExitCode.OK

    def execute(
        self, client: Client, log: RedriveLog, done: ReportT, *, rate: float | None
    ) -> int:
        """Have the plan confirmed, carry it out, and return the exit code.

        `done` counts what became of the messages. Raises RmqError if sending stopped
        early.
        """
        from rmqcli.cli.confirm import confirm_by_name
        from rmqcli.redrive.redrive import RedriveRun

        if not self.plan.count:
            self.write(done)
            self.warn()
            self.say_nothing()
            return ExitCode.PARTIAL if self.is_partial else ExitCode.OK
        if not self.common.assume_yes:
            self.common.write_table(self.rows(), self.columns, stream=sys.stderr)
        self.warn()
        confirm_by_name(self.common, self.question(), name=self.plan.request.group)
        run = RedriveRun(
            client,
            self.plan,
            log,
            rate_per_s=rate,
            is_stopped=lambda: pending_since_ms() is not None,
        )
        self._send(run, done)
        done.given_up, done.unread = run.given_up, run.unread
        self.common.write_result(lambda: self.write(done))
        self.say_outcome(done)
        self._say_sent(run, done)
        return ExitCode.OK if done.is_complete else ExitCode.PARTIAL

    def _send(self, run: RedriveRun, done: SendReport) -> None:
        """Send all batches, with progress."""
        from rmqcli.cli.ui.progress import Progress

        batches, total = run.batches(), self.plan.count
        try:
            with Progress(self.common.messages, "sent", total=total) as progress:
                while True:
                    with deferred():  # a batch is sent and logged whole
                        results = next(batches, None)
                        if results is not None:
                            done.add(results)
                    if results is None:
                        break
                    progress.update(done.stored)
        except BaseException:
            # The log has it all; an interrupt comes between two batches.
            self.common.messages.info(
                f"{done.stored:,} of {total:,} sent, see {self.path}; the same command"
                " sends the rest"
            )
            raise

    def _say_sent(self, run: RedriveRun, done: SendReport) -> None:
        """Say on stderr what was sent. Raises RmqError if sending stopped early."""
        messages = self.common.messages
        messages.info(f"{done.stored:,} of {self.plan.count:,} sent; log: {self.path}")
        if done.unknown:
            messages.warn(
                f"{counted(done.unknown, self.noun)} may or may not have been sent,"
                f" because no answer came; the next {self.kind} sends them again: "
                + listed(done.unknown_letters, done.unknown)
            )
        given_up = run.given_up
        if given_up is not None and done.stored + done.unknown:
            is_silent = isinstance(given_up, TransportError)
            why = ", because no broker answered" if is_silent else ""
            hint = given_up.hint if isinstance(given_up, RefusedError) else None
            raise PartialError(
                f"stopped{why}: {given_up.message}",
                hint=hint or "run the same command again for the rest",
            )
        if given_up is not None:
            raise given_up
        for error in run.unread.values():
            messages.warn(error.message)

    def warn_of_doubtful(self) -> None:
        """Warn of messages that an earlier run may have sent."""
        if self.plan.doubtful_count:
            self.common.messages.warn(
                f"{counted(self.plan.doubtful_count, self.noun)} may have been sent"
                f" already by a {self.kind} that was interrupted or got no answer, and"
                f" will be sent again: "
                + listed(self.plan.doubtful, self.plan.doubtful_count)
            )

    def skipped_json(self) -> list[dict[str, object]]:
        """Return the messages that are not sent by their reason, for JSON."""
        return [
            {"reason": reason, "count": left.count, "example": left.example or None}
            for reason, left in self.plan.left_out.items()
        ]

    def unread_json(self, place: str) -> list[dict[str, str]]:
        """Return what was not read to its end, a queue or a broker, for JSON."""
        return [
            {place: str(each), "error": error.message}
            for each, error in sorted(self.plan.unread.items())
        ]

    def failed_json(self, done: ReportT | None) -> list[dict[str, object]] | None:
        """Return the messages that are not stored for certain, for JSON."""
        if done is None:
            return None
        return [
            {
                self.noun: str(each.place),
                "topic": each.topic,
                "status": each.status,
                "error": each.error,
            }
            for each in done.failures
        ]


def listed(names: Sequence[str], count: int) -> str:
    """The first of `count` names."""
    shown = names[:_LISTED]
    more = count - len(shown)
    return ", ".join(shown) + (f" and {more:,} more, see -o json" if more else "")


def result_rows(done: SendReport) -> list[dict[str, object]]:
    """Rows of RESULT_COLUMNS."""
    rows: list[dict[str, object]] = [
        {"result": "sent", "count": count, "topic": topic, "reason": None}
        for topic, count in sorted(done.by_topic.items())
    ]
    rows += [
        {"result": "failed", "count": count, "topic": None, "reason": reason}
        for reason, count in sorted(done.by_error.items(), key=lambda e: -e[1])
    ]
    return rows
