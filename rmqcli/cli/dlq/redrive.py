"""`rmq dlq redrive`: plan, confirm, send, and report where each letter is now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli.cli.dlq.selection import WHICH, LetterOptions, log_option
from rmqcli.cli.dlq.sending import PlanView, listed
from rmqcli.cli.options import Common, command_options, option, position_option, switch
from rmqcli.cli.selection import decode_option
from rmqcli.cli.tail.command import parse_rate
from rmqcli.cli.ui.output import Column
from rmqcli.dataclass import dataclass
from rmqcli.errors import ExitCode, UsageError
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.admin.dlq.log import LetterStates
    from rmqcli.redrive.library import RedriveReport
    from rmqcli.redrive.redrive import (
        RedrivePlan,  # noqa: F401  # of the view
        RedriveRequest,
    )

_HOW = "How to send"

COLUMNS = (
    Column(
        "action",
        "send, or skip",
        states={"send": "good", "skip": "warn"},
    ),
    Column("count", "letters", align="right"),
    Column("topic", "topic to which they are sent", priority=10),
    Column("reason", "why they are not sent", priority=1),
    Column("example", "one of the skipped letters: BROKER:QUEUE:OFFSET", priority=20),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions(LetterOptions):
    """The options of `rmq dlq redrive` as they were typed."""

    until: Any = position_option(
        section="Which letters",
        help="End position among the letters, resolved at the start.",
    )
    decode: Any = decode_option(section=WHICH, what="Format of bodies, for --where")
    to: str = option(
        default="origin",
        section=_HOW,
        metavar="TOPIC",
        help="Where to send: origin (each letter's own topic), retry (the group's"
        " retry topic), or a topic.",
    )
    rate: Any = option(
        section=_HOW,
        parser=parse_rate,
        help="Send at most this many letters a second (100/s).",
    )
    again: bool = switch(
        section=_HOW, help="Also letters that were redriven before, or died again."
    )
    execute: bool = switch(
        section=_HOW, help="Send after confirmation (default: only show the plan)."
    )
    log: Path | None = log_option(section=_HOW)

    @property
    def end(self) -> Any:
        """The end position; None for the end of each queue."""
        return self.until

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        LetterOptions.check(self)
        if self.decode is not None and self.where is None:
            raise UsageError("--decode needs --where")

    def request(self) -> RedriveRequest:
        """Return what the library plans. Raises UsageError."""
        from rmqcli.redrive.redrive import RedriveRequest

        return RedriveRequest(
            group=self.group,
            filter=self.filter(),
            to=self.to,
            start=self.from_,
            end=self.until,
            last=self.last,
            selectors=tuple(self.queue or ()),
            again=self.again,
        )


@command_options(
    RedriveOptions,
    formats=("table", "json"),
    fields=COLUMNS,
    changes=lambda options: options.execute,
    asks=True,
)
def redrive(common: Common, options: RedriveOptions) -> int:
    """Send dead letters again, by a plan that you confirm.

    Example: rmq dlq redrive billing --grep timeout --rate 100/s --execute

    Without --execute nothing is sent. The dead letters stay where they are, and a log
    on the disk notes which were sent and where each is now, so that a redrive that was
    killed can be started again: at most the one batch of up to 1,000 letters that was
    under way is sent twice, and its letters are named. Letters that were redriven
    before are skipped without --again.

    With --to retry only this group receives the letters; with --to origin every group
    of the topic does.
    """
    from rmqcli.redrive.library import Redrive, RedriveReport, refuse_unread

    options.check()
    request = options.request()
    with common.open_client() as client:
        options.find(client)  # says that the group has no letters
        sending = Redrive(client.config, request, log=options.log)
        with sending.prepared(client, to_send=options.execute) as found:
            plan, states, path, log = found
            _say_chosen_by(common, request, states)
            for _, error in sorted(plan.unread.items()):
                if not plan.scanned:
                    raise error
            view = _RedriveView(common, plan, path)
            if log is None:
                return view.only_show()
            if plan.unread:
                view.warn()
            refuse_unread(plan)
            if plan.count:
                log.choose_by(request.chosen_by, at_ms=client.clock.epoch_ms())
            done = RedriveReport(plan=plan)
            return view.execute(client, log, done, rate=options.rate)


def _say_chosen_by(
    common: Common, request: RedriveRequest, states: LetterStates
) -> None:
    """Warn if an earlier redrive, which this one goes on with, chose otherwise."""
    before, now = (
        "no --where" if each is None else f"--where {each!r}"
        for each in (states.chosen_by, request.chosen_by)
    )
    if before != now and not states.is_empty:
        common.messages.warn(
            f"the last redrive of this log chose letters with {before}, this one with"
            f" {now}"
        )


class _RedriveView(PlanView["RedrivePlan", "RedriveReport"]):
    noun = "letter"
    kind = "redrive"
    columns = COLUMNS
    how_to_execute = "nothing was sent; add --execute to send the letters"

    def only_show(self) -> int:
        if not self.plan.unread:
            return super().only_show()
        self.write(None)
        self.warn()
        self.common.messages.warn("this plan is incomplete and would be refused")
        return ExitCode.PARTIAL

    @property
    def is_partial(self) -> bool:
        return bool(self.plan.undecoded)

    def say_nothing(self) -> None:
        self.common.messages.info("there is nothing to send")

    def question(self) -> str:
        targets = self.plan.targets.items()
        topics = ", ".join(f"{count:,} to {topic}" for topic, count in targets)
        letters = counted(self.plan.count, "dead letter")
        return (
            f"This sends {letters} of group {self.plan.request.group} again: {topics}."
        )

    def warn(self) -> None:
        plan, request, say = self.plan, self.plan.request, self.common.messages
        chosen = [f"--queue {each}" for each in request.selectors]
        chosen += [str(request.filter)] * bool(str(request.filter))
        if chosen:
            say.info(f"only letters with {', '.join(chosen)}")
        for queue, error in sorted(plan.unread.items()):
            say.warn(f"{queue}: {error.message}")
        if plan.missing:
            missing = counted(
                plan.missing, "letter of the range is", "letters of the range are"
            )
            say.warn(f"{missing} not stored any more")
        if plan.consumed_count:
            say.warn(
                f"group {request.group} consumes its own dead letters: by its committed"
                f" offsets it has consumed {plan.consumed_count:,} of those that were"
                " read, and a redrive sends them again"
            )
        elif plan.consumed_count is None:
            say.warn(
                f"whether group {request.group} consumes its own dead letters is not"
                " known, because a broker did not tell its offsets there"
            )
        if plan.undecoded:
            say.warn(
                f"{counted(plan.undecoded_count, 'letter')} could not be decoded for"
                " --where and will not be sent: "
                + listed(plan.undecoded, plan.undecoded_count)
            )
        self.warn_of_doubtful()

    def sent_rows(self) -> list[dict[str, object]]:
        return [
            {"action": "send", "count": count, "topic": topic}
            for topic, count in self.plan.targets.items()
        ]

    def document(self, done: RedriveReport | None) -> dict[str, Any]:
        plan, request = self.plan, self.plan.request
        return {
            "group": request.group,
            "topic": plan.ranges.ranges[0].queue.topic if plan.ranges.ranges else None,
            "mode": "plan" if done is None else "applied",
            "to": request.to,
            "queues": [str(each) for each in request.selectors] or None,
            "chosen_by": str(request.filter) or None,
            "read": plan.scanned,
            "missing": plan.missing,
            "consumed_by_group": plan.consumed_count,
            "targets": [
                {"topic": topic, "count": count}
                for topic, count in plan.targets.items()
            ],
            "skipped": self.skipped_json(),
            "doubtful_count": plan.doubtful_count,
            "doubtful": list(plan.doubtful),
            "undecoded_count": plan.undecoded_count,
            "undecoded": list(plan.undecoded),
            "unread": self.unread_json("queue"),
            "sent": None if done is None else done.stored,
            "failed": self.failed_json(done),
            "log": str(self.path),
        }
