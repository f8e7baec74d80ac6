"""Sends the letters of a confirmed plan, and says what became of them.

What `rmq dlq redrive` and `rmq retry flush` have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.cli.ui.output import Column
from rmqcli.errors import PartialError, RefusedError, TransportError
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmqcli.cli.options import Common
    from rmqcli.redrive.flush import FlushPlan
    from rmqcli.redrive.library import SendReport
    from rmqcli.redrive.redrive import RedrivePlan, RedriveRun

#: More letters than this are not listed on stderr.
_LISTED = 20

RESULT_COLUMNS = (
    Column("result", states={"sent": "good", "failed": "bad"}),
    Column("count", align="right"),
    Column("topic", priority=10),
    Column("reason", priority=1),
)


def send_batches(
    common: Common, run: RedriveRun, done: SendReport, *, total: int, path: Path
) -> None:
    """Send all batches, with progress; `done` counts what became of them."""
    from rmqcli.cli.ui.interrupts import deferred
    from rmqcli.cli.ui.progress import Progress

    batches = run.batches()
    try:
        with Progress(common.messages, "sent", total=total) as progress:
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
        common.messages.info(
            f"{done.stored:,} of {total:,} sent, see {path}; the same command"
            " sends the rest"
        )
        raise


def say_sent(
    common: Common,
    run: RedriveRun,
    done: SendReport,
    *,
    total: int,
    path: Path,
    noun: str = "letter",
    kind: str = "redrive",
) -> None:
    """Say on stderr what was sent. Raises RmqError if sending stopped early."""
    common.messages.info(f"{done.stored:,} of {total:,} sent; log: {path}")
    if done.unknown:
        common.messages.warn(
            f"{counted(done.unknown, noun)} may or may not have been sent, because"
            f" no answer came; the next {kind} sends them again: "
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
        common.messages.warn(error.message)


def doubtful_words(plan: RedrivePlan | FlushPlan, noun: str, kind: str) -> str:
    """The letters that an earlier run may have sent."""
    return (
        f"{counted(plan.doubtful_count, noun)} may have been sent already by a"
        f" {kind} that was interrupted or got no answer, and will be sent again: "
        + listed(plan.doubtful, plan.doubtful_count)
    )


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


def failed_rows(
    done: SendReport | None, *, noun: str = "letter"
) -> list[dict[str, object]] | None:
    """The letters that are not stored for certain, for JSON."""
    if done is None:
        return None
    return [
        {
            noun: str(each.place),
            "topic": each.topic,
            "status": each.status,
            "error": each.error,
        }
        for each in done.failures
    ]
