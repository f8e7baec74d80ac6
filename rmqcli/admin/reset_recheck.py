"""The last look before a plan is carried out: is it still what somebody agreed to?

Between plan and execution a person thinks, and others commit. What counts as drift is
decided here; a moved offset is refused unless a live consumer explains it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rmqcli.admin.positions import resolve
from rmqcli.admin.reset_target import Restore, ToPosition
from rmqcli.errors import RefusedError
from rmqcli.position import AtGroup

if TYPE_CHECKING:
    from rmqcli.admin.reset_plan import QueuePlan, ResetPlan
    from rmqcli.admin.reset_target import Target
    from rmqcli.api.client import Client


def recheck(client: Client, plan: ResetPlan, target: Target) -> ResetPlan:
    """Read the committed offsets of `plan.changes` again; `plan` with them.

    An offset that moved is a warning of its queue, and goes into the backup, when
    members read there and `target` was not counted from it. Raises RefusedError when it
    moved otherwise, or past its target, so that what was to be skipped would be
    replayed; and a broker's error when it cannot be asked.
    """
    changes = {each.queue: each for each in plan.changes}
    moved = {}
    refused = []
    found = resolve(client, changes, AtGroup(plan.group))
    for queue, each in changes.items():
        committed = None if found[queue].offset is None else found[queue].wanted
        if committed == each.committed:
            continue
        moved[queue] = _moved(each, committed)
        is_absolute = isinstance(target, ToPosition | Restore)
        is_expected = plan.route_of(queue).is_live and is_absolute
        if not is_expected or _turns(each, moved[queue]):
            refused.append(
                f"{queue}: {each.committed} was planned from, now {committed}"
            )
    if refused:
        others = len(refused) - 1
        noun = "queue" if others == 1 else "queues"
        more = f" and {others} more {noun}" if others else ""
        raise RefusedError(
            f"offsets moved since the plan was made: {refused[0]}{more}; nothing was"
            " changed",
            hint="run it again",
        )
    queues = tuple(moved.get(each.queue, each) for each in plan.queues)
    return replace(plan, queues=queues)


def _moved(plan: QueuePlan, committed: int | None) -> QueuePlan:
    warning = f"moved from {plan.committed} to {committed} after the plan was made"
    return replace(
        plan,
        committed=committed,
        warnings=(*plan.warnings, warning),
        first_store_ms=None,  # of other messages than those that are moved over now
        last_store_ms=None,
    )


def _turns(before: QueuePlan, now: QueuePlan) -> bool:
    """Whether what was a skip has become a replay, or the other way round."""
    if before.delta is None or now.delta is None:
        return False
    return before.delta * now.delta < 0
