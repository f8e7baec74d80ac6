"""`rmq broker clean-expired-queues` and `clean-unused-topics`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rmqcli.cli.by_broker import ERROR_COLUMN, masters_of, show_results
from rmqcli.cli.confirm import confirm
from rmqcli.cli.options import Common, brokers_option, cluster_option, command_options
from rmqcli.cli.ui.output import Column, number_column
from rmqcli.units import counted

if TYPE_CHECKING:
    from rmqcli.admin.clean import CleanStep

_LISTED_MAX = 20

COLUMNS = (
    Column("broker_name", "broker that has the queue", title="BROKER"),
    Column("topic", "null for a broker that could not be asked"),
    number_column("queue_id", "number of the queue", "QUEUE"),
    number_column(
        "max_offset", "where the queue ended; null if unknown", "MAX", priority=20
    ),
    Column(
        "result",
        "removed, failed, or unknown: it may have been done",
        states={"failed": "bad", "unknown": "bad"},
    ),
    ERROR_COLUMN,
)


@command_options(fields=COLUMNS, asks=True)
def clean_expired(
    common: Common,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Remove queues whose messages have all expired.

    Example: rmq broker clean-expired-queues --broker broker-a

    The queues are shown first, and must be confirmed. A queue that is removed begins at
    offset 0 again. Groups keep their offsets: a group that is offline until the queue
    has grown past its old offset skips the messages before that offset.
    """
    from rmqcli.admin.clean import apply_clean_expired, plan_clean_expired

    with common.open_client() as client:
        masters = masters_of(client, cluster, broker)
        steps = plan_clean_expired(client, masters)
        planned = [step for step in steps if step.result == "planned"]
        _show_plan(common, planned)
        if planned:
            confirm(common, f"This removes {counted(len(planned), 'queue')}.")
            steps = apply_clean_expired(client, steps)
        elif not steps:
            common.messages.info("nothing was changed: there are no expired queues")
    if steps or common.output != "table":
        _show_results(common, steps, masters)


@command_options(fields=COLUMNS, asks=True)
def clean_unused(
    common: Common,
    cluster: str | None = cluster_option(),
    broker: list[str] | None = brokers_option(),
) -> None:
    """Remove queues of topics that do not exist any more.

    Example: rmq broker clean-unused-topics --broker broker-a

    Brokers do not list queues without a topic. Those that a group has read are shown
    first; there may be others, which are removed, too.
    """
    from rmqcli.admin.clean import apply_clean_unused, plan_clean_unused

    with common.open_client() as client:
        masters = masters_of(client, cluster, broker)
        steps = plan_clean_unused(client, masters)
        planned = [step for step in steps if step.result == "planned"]
        _show_plan(common, planned)
        known = counted(len(planned), "queue") if planned else "no queue that is known"
        confirm(
            common,
            f"This removes {known}, and any other queue without a topic, on"
            f" {', '.join(masters)}.",
        )
        steps = apply_clean_unused(client, masters, steps)
    if not planned:
        common.messages.info(
            "no queue without a topic was known; brokers do not say what they removed"
        )
    if steps or common.output != "table":
        _show_results(common, steps, masters)


def _show_results(
    common: Common, steps: Sequence[CleanStep], masters: Iterable[str]
) -> None:
    """Write a row for each queue; `masters` without a step are only counted."""
    others = len({*masters} - {step.broker_name for step in steps})
    show_results(common, steps, COLUMNS, others=others)


def _show_plan(common: Common, planned: Sequence[CleanStep]) -> None:
    for step in planned[:_LISTED_MAX]:
        end = "" if step.max_offset is None else f", which ends at {step.max_offset}"
        if step.error is not None:
            end = f"; whether it exists is not known: {step.error.message}"
        common.messages.info(
            f"{step.broker_name}: queue {step.queue_id} of {step.topic}{end}"
        )
    more = len(planned) - _LISTED_MAX
    if more > 0:
        common.messages.info(f"and {counted(more, 'other queue')}")
