"""The view of a reset of offsets: its plan, and after a confirmation its outcome.

It is a change, and is planned, confirmed, applied and read back as `rmq reset-offset`
does it, by the same functions of `Admin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmqcli.admin.admin import Admin, PlannedReset, ResetResult
from rmqcli.cli.reset_offset.view import (
    rows_of_reset,
    shown_columns,
    summary,
    undo_command,
)
from rmqcli.cli.top.view import Question, View, ViewKey
from rmqcli.cli.ui.prompt import is_name
from rmqcli.errors import RmqError
from rmqcli.hint import placed, with_options
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.cli.top.view import Reads
    from rmqcli.cli.ui.output import Column, Row

_WAIT_MS = 60_000


def ask_reset(group: str, topics: Sequence[str]) -> Question | None:
    """Return the questions that lead to a plan; None for a group without a topic."""
    if not topics:
        return None
    if len(topics) == 1:
        return _ask_target(group, topics[0])
    return Question(
        f"topic to reset {group} in ({', '.join(topics)}): ",
        lambda topic: _ask_target(group, topic.strip()) if topic.strip() else None,
        topics[0],
    )


def _ask_target(group: str, topic: str) -> Question:
    return Question(
        f"reset {group} in {topic} to (latest, earliest, -15m, @TIME, 123): ",
        lambda to: ResetView(group, topic, to.strip()) if to.strip() else None,
    )


class ResetView(View):
    """The plan of a reset, which `x` applies once the group's name is typed."""

    interval_ms = None
    late_ms = 30_000

    def __init__(self, group: str, topic: str, to: str) -> None:
        super().__init__(f"reset {group} in {topic} to {to}")
        self.group = group
        self.topic = topic
        self.to = to
        self.keys = {"x": ViewKey("apply", self._confirm, changes=True)}
        self.planned: PlannedReset | None = None
        self.result: ResetResult | None = None
        self.is_confirmed = False
        self._is_declined = False
        self._failure: RmqError | None = None

    @property
    def command(self) -> list[str]:
        words = ["reset-offset", *placed(self.group, self.topic)]
        return with_options(words, ["--to", self.to, "--execute"])

    @property
    def is_applying(self) -> bool:
        """Whether offsets are being changed, so that the view must not be left."""
        return self.is_confirmed and self.result is None and self._failure is None

    @property
    def columns(self) -> Sequence[Column]:
        if self.result is not None:
            return shown_columns(self.result.plan, is_plan=False)
        if self.planned is None:
            return ()
        return shown_columns(self.planned.plan, is_plan=True)

    def rows(self) -> Sequence[Row]:
        if self.result is not None:
            return list(rows_of_reset(self.result.plan, self.result.outcomes).values())
        if self.planned is None:
            return ()
        return list(rows_of_reset(self.planned.plan, None).values())

    def key_of(self, row: Row) -> Any:
        return row["topic"], row["broker_name"], row["queue_id"]

    def run(self, feed: Reads) -> None:
        if self.is_confirmed:
            return  # it was applied before, and is shown again
        feed.begin()
        try:
            with Admin(client=feed.client.config) as admin:
                planned = admin.plan_reset(self.group, self.topic, to=self.to)
                feed.post(planned)
                while not self.is_confirmed:
                    feed.pause(_WAIT_MS)
                feed.begin()
                # From here to the result nothing ends this thread but the process.
                result: Any = admin.apply_reset(planned)
        except RmqError as error:
            result = error
        feed.post(result)

    def take(self, answer: PlannedReset | ResetResult) -> None:
        if isinstance(answer, PlannedReset):
            self.planned = answer
        else:
            self.result = answer

    def fail(self, error: RmqError) -> None:
        """Keep why it was not planned, or not applied."""
        self._failure = error
        self.keys = {}

    def intro(self, row: Row | None) -> Sequence[str]:
        if self.result is not None:
            return (self.outcome,)
        if self._failure is not None:
            if self.is_confirmed:
                return ("It failed, see below; see the offsets with rmq lag.",)
            return ("It could not be planned, see below; nothing is changed.",)
        if self.is_confirmed:
            return ("The reset is being applied and read back ...",)
        if self.planned is None:
            return ("Planning; nothing is changed yet.",)
        plan = self.planned.plan
        if plan.refusals:
            return ("This reset would be refused:", *map(self.worded, plan.refusals))
        if plan.unknown:
            return ("Some queues could not be read, so the reset would be refused.",)
        if not plan.changes:
            return (f"Nothing to do: {plan.nothing_to_do}.",)
        changes = counted(len(plan.changes), "queue")
        text = f"Nothing is changed yet. x changes the offsets in {changes}."
        if self._is_declined:
            return (f"Not confirmed: {self.group!r} was not typed.", text)
        return (text,)

    @property
    def outcome(self) -> str:
        """What was done, in one line, and how to undo it."""
        result = self.result
        if result is None:
            return ""
        text = f"{self.title}: {summary(result.outcomes)}"
        if result.backup_id is None:
            return text
        target = self.group, self.topic
        undo = undo_command(*target, result.backup_id, flags=[*self.flags])
        return f"{text}; to undo: {undo}"

    def notes(self) -> Sequence[str]:
        notes = []
        if self.planned is not None:
            notes += list(map(self.worded, self.planned.plan.warnings))
        if self.result is not None:
            notes += [error.message for error in self.result.errors]
        return notes

    def _confirm(self, _row: Row | None) -> Question | None:
        planned = self.planned
        if planned is None or self.is_confirmed:
            return None
        plan = planned.plan
        if plan.refusals or plan.unknown or not plan.changes:
            return None
        return Question(f"Type {self.group} to confirm: ", self._confirmed)

    def _confirmed(self, answer: str) -> None:
        self.is_confirmed = is_name(answer, self.group)
        self._is_declined = not self.is_confirmed
        if self.is_confirmed:
            self.keys = {}
