"""`rmq retry flush`: delivers now what waits for the next try of a group."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqcli.cli.dlq.sending import PlanView
from rmqcli.cli.options import Common, argument, command_options, option, switch
from rmqcli.cli.selection import parse_group_of_topic
from rmqcli.cli.tail.command import parse_rate
from rmqcli.cli.ui.output import Column
from rmqcli.dataclass import dataclass
from rmqcli.errors import PartialError
from rmqcli.units import counted, format_rfc3339

if TYPE_CHECKING:
    from rmqcli.redrive.flush import FlushPlan, FlushRequest  # noqa: F401  # of the view
    from rmqcli.redrive.library import FlushReport

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
    from rmqcli.redrive.library import FlushReport, RetryFlush

    request = options.request()
    with common.open_client() as client:
        sending = RetryFlush(client.config, request, log=options.log)
        with sending.prepared(client, to_send=options.execute) as found:
            view = _FlushView(common, found.plan, found.path)
            if found.log is None:
                return view.only_show()
            done = FlushReport(plan=found.plan)
            return view.execute(client, found.log, done, rate=options.rate)


class _FlushView(PlanView["FlushPlan", "FlushReport"]):
    noun = "message"
    kind = "flush"
    columns = COLUMNS
    how_to_execute = "nothing was changed; add --execute to store the copies"

    def write(self, done: FlushReport | None) -> None:
        is_table = self.common.output == "table"
        if done is not None or not is_table or self.plan.topics or self.plan.left_out:
            super().write(done)

    @property
    def is_partial(self) -> bool:
        return bool(self.plan.unread)

    def say_nothing(self) -> None:
        plan, say = self.plan, self.common.messages
        if not plan.left_out and not plan.unread:
            say.info(
                f"nothing of group {plan.request.group} waits in a delay level; what"
                " orderly consumers retry waits in the consumers"
            )
        say.info("there is nothing to flush")
        if plan.pop is not None and plan.pop.inflight is None:
            raise PartialError(
                f"how many messages POP has handed out is not known: {plan.pop.reason}"
            )

    def question(self) -> str:
        copies, group = counted(self.plan.count, "message"), self.plan.request.group
        return (
            f"This delivers {copies} to group {group} now, and each once more at its"
            " time."
        )

    def say_outcome(self, done: FlushReport) -> None:
        if done.came_due:
            self.common.messages.info(
                f"{counted(done.came_due, 'message')} came due meanwhile: the broker"
                " delivers them itself"
            )

    def warn(self) -> None:
        plan, request, say = self.plan, self.plan.request, self.common.messages
        if request.topic is not None:
            say.info(f"only messages with --topic {request.topic}")
        for name, error in sorted(plan.unread.items()):
            say.warn(f"not all that waits on {name} can be flushed: {error.message}")
        self.warn_of_doubtful()
        if plan.count:
            times = [
                each
                for found in plan.topics.values()
                for each in (found.next_ms, found.last_ms)
                if each is not None
            ]
            when = ""
            if times:
                first, last = format_rfc3339(min(times)), format_rfc3339(max(times))
                when = f", from {first} to {last}"
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
                f"no member of group {request.group} is connected: the copies wait in"
                " the retry topic until one is"
            )
        if plan.count and plan.members is None and not plan.unread:
            say.warn(
                f"whether members of group {request.group} are connected is not known"
            )
        if plan.pop is not None and plan.pop.inflight:
            say.info(
                f"{counted(plan.pop.inflight, 'message')} handed out by POP cannot be"
                " flushed: the invisible time of each ends by itself"
            )

    def sent_rows(self) -> list[dict[str, object]]:
        return [{"action": "flush", **row} for row in self._topics()]

    def _topics(self) -> list[dict[str, object]]:
        return [
            {
                "topic": topic,
                "count": each.count,
                "oldest": format_rfc3339(each.oldest_ms),
                "next_at": format_rfc3339(each.next_ms),
                "last_at": format_rfc3339(each.last_ms),
            }
            for topic, each in self.plan.topics.items()
        ]

    def document(self, done: FlushReport | None) -> dict[str, Any]:
        plan = self.plan
        return {
            "group": plan.request.group,
            "mode": "plan" if done is None else "applied",
            "topic": plan.request.topic,
            "read": plan.scanned,
            "count": plan.count,
            "topics": [
                {**row, "undated": each.undated}
                for row, each in zip(self._topics(), plan.topics.values(), strict=True)
            ],
            "second_deliveries": plan.count,
            "skipped": self.skipped_json(),
            "doubtful_count": plan.doubtful_count,
            "doubtful": list(plan.doubtful),
            "unread": self.unread_json("broker"),
            "members": plan.members,
            "pop_inflight": None if plan.pop is None else plan.pop.inflight,
            "sent": None if done is None else done.stored,
            "came_due": None if done is None else done.came_due,
            "failed": self.failed_json(done),
            "log": None if self.path is None else str(self.path),
        }
