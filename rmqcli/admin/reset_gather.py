"""Finds out what a plan has to know, and has it made: `gather_plan`.

Everything is read, nothing is changed. Committed offsets are read before the ends of
the queues. A queue that cannot be read makes the whole plan fail: half a reset should
not look like one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmqcli.admin.positions import resolve
from rmqcli.admin.reset_look import with_times
from rmqcli.admin.reset_message import find_message
from rmqcli.admin.reset_plan import (
    GroupFacts,
    QueueFacts,
    ResetPlan,
    check_drift,
    make_plan,
    restore,
    shift,
)
from rmqcli.admin.reset_route import Membership, find_routes, read_members
from rmqcli.admin.reset_target import (
    PastMessage,
    ResetWish,
    Restore,
    Shift,
    Target,
    ToOffsets,
    ToPosition,
)
from rmqcli.errors import NotFoundError, RefusedError, RmqError, UsageError
from rmqcli.model import MessageQueue, retry_topic
from rmqcli.position import Ago, AtGroup, AtTime, Earliest, Latest, Now
from rmqcli.queue_selector import select_queues

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.admin.reset_mechanism import BrokerRoute
    from rmqcli.admin.reset_plan import RouteKey
    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute

#: Positions that mean the same in a retry topic; for all others it goes to its end.
_TIMELIKE = (Earliest, Latest, Now, AtTime, Ago)


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic of the reset: all its queues, and those that are part of it."""

    topic: str
    every: dict[MessageQueue, QueueFacts]
    chosen: tuple[MessageQueue, ...]


def gather_plan(client: Client, wish: ResetWish) -> ResetPlan:
    """Make the plan for `wish`.

    Raises NotFoundError for an unknown topic, group or message, RefusedError on drift
    or when skipping a message would skip others, TransportError when a broker that has
    one of the queues cannot be asked.
    """
    route = client.route(wish.topic)
    members = read_members(client, route, wish.group)
    topics = [_read_topic(client, route, wish.group)]
    chosen = _choose(wish, topics[0])
    topics[0] = replace(topics[0], chosen=chosen)
    facts = _aim(client, wish.target, wish.group, topics[0])
    pending = None
    retry = _read_retry(client, wish)
    if retry is not None and wish.include_retry:
        facts += _aim(client, _retry_target(wish.target), wish.group, retry)
        topics.append(retry)
    elif retry is not None and isinstance(wish.target, Restore | ToOffsets):
        retry = replace(retry, chosen=_named(wish.target, retry))
        facts += _aim(client, wish.target, wish.group, retry)
        topics.append(retry)
    elif retry is not None:
        pending = sum(_pending(each) for each in retry.every.values())
    routes: dict[RouteKey, BrokerRoute] = {}
    for each in topics:
        mine = [fact for fact in facts if fact.queue.topic == each.topic]
        routes |= find_routes(client, wish, members, every=each.every, aimed=mine)
    plan = make_plan(_group_facts(wish, members, pending), facts, routes)
    if isinstance(wish.target, ToOffsets):
        targets = wish.target.targets
        check_drift(
            plan,
            {q: (c, targets[q]) for q, c in wish.target.planned_from.items()},
        )
    return with_times(client, plan, with_edges=wish.with_edges)


def _group_facts(
    wish: ResetWish, members: Membership, pending: int | None
) -> GroupFacts:
    return GroupFacts(
        group=wish.group,
        topic=wish.topic,
        client_ids=members.client_ids(wish.topic),
        is_broadcast=members.is_broadcast,
        retry_pending=pending,
    )


def _read_topic(client: Client, route: TopicRoute, group: str) -> _Topic:
    queues = route.read_queues()
    if not queues:
        raise UsageError(f"topic {route.topic} has no queue that can be read")
    try:
        found = resolve(client, queues, AtGroup(group))
    except RmqError as error:
        if not error.hint:
            error.hint = "leave that broker's queues out with --queue BROKER:ID"
        raise
    every = {
        queue: QueueFacts(
            queue=queue,
            committed=None if each.offset is None else each.wanted,
            min_offset=each.min_offset,
            max_offset=each.max_offset,
            wanted=None,
        )
        for queue, each in found.items()
    }
    return _Topic(route.topic, every, tuple(queues))


def _read_retry(client: Client, wish: ResetWish) -> _Topic | None:
    if wish.topic == retry_topic(wish.group):
        return None
    try:
        route = client.route(retry_topic(wish.group))
    except NotFoundError:
        return None  # no member ever was online
    return _read_topic(client, route, wish.group)


def _retry_target(target: Target) -> Target:
    """Time means the same in a retry topic; otherwise what waits there is dropped."""
    if isinstance(target, ToPosition) and isinstance(target.position, _TIMELIKE):
        return target
    return ToPosition(Latest())


def _pending(facts: QueueFacts) -> int:
    if facts.committed is None:
        return 0
    return max(0, facts.max_offset - max(facts.committed, facts.min_offset))


def _choose(wish: ResetWish, topic: _Topic) -> tuple[MessageQueue, ...]:
    if isinstance(wish.target, Restore | ToOffsets):
        return _named(wish.target, topic)
    return tuple(select_queues(topic.every, wish.selectors))


def _named(target: Restore | ToOffsets, topic: _Topic) -> tuple[MessageQueue, ...]:
    """The queues that a file names. Raises RefusedError for one that is gone."""
    named = target.committed if isinstance(target, Restore) else target.targets
    mine = tuple(sorted(queue for queue in named if queue.topic == topic.topic))
    for queue in mine:
        if queue not in topic.every:
            raise RefusedError(
                f"{queue} is in the file, but the topic has no such queue now",
                hint="make a new plan",
            )
    return mine


def _aim(client: Client, target: Target, group: str, topic: _Topic) -> list[QueueFacts]:
    """The chosen queues with where they are to go."""
    facts = [topic.every[queue] for queue in topic.chosen]
    match target:
        case ToPosition():
            return _aim_at_position(client, target, facts)
        case Shift(count):
            return [shift(each, count) for each in facts]
        case ToOffsets(targets):
            return [replace(each, wanted=targets[each.queue]) for each in facts]
        case Restore(committed):
            return [restore(each, committed[each.queue]) for each in facts]
        case PastMessage(message_id):
            return [_aim_past(client, message_id, group, topic)]


def _aim_at_position(
    client: Client, target: ToPosition, facts: Iterable[QueueFacts]
) -> list[QueueFacts]:
    before = {each.queue: each for each in facts}
    found = resolve(client, before, target.position)
    return [
        replace(
            before[queue],
            min_offset=each.min_offset,
            max_offset=each.max_offset,
            wanted=each.offset,
            note=each.note,
        )
        for queue, each in found.items()
    ]


def _aim_past(client: Client, message_id: str, group: str, topic: _Topic) -> QueueFacts:
    """Behind the message, when the group stands at it: then nothing else is skipped."""
    found = find_message(client, topic.topic, message_id)
    facts = topic.every.get(found.queue)
    if facts is None or found.queue not in topic.chosen:
        raise UsageError(f"message {message_id} is in {found.queue}, which is left out")
    behind = found.queue_offset + 1
    here = facts.committed
    if here is not None and here >= behind:
        note = f"group {group} is past the message already"
        return replace(facts, wanted=here, note=note)
    start = facts.min_offset if here is None else max(here, facts.min_offset)
    if start != found.queue_offset:
        stands = "has committed nothing there" if here is None else f"stands at {here}"
        others = found.queue_offset - start
        queue = found.queue
        raise RefusedError(
            f"group {group} {stands} and the message is at {found.queue_offset} of"
            f" {queue}: {others} other messages would be skipped too",
            hint=f"to skip those too: --queue {queue.broker_name}:{queue.queue_id}"
            f" --to {behind}",
        )
    return replace(facts, wanted=behind)
