"""Reads from the cluster what a reset plan needs, and makes the plan: `gather_plan`.

Nothing is changed. For a position, the ends of the queues are read again after the
committed offsets. A queue that cannot be read is part of the plan as unknown, with the
reason: half a reset must not look like a whole one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli.admin.lag.gather import read_pop_lag, unknown_pop
from rmqcli.admin.lag.memory import (
    check_departed,
    departed_queues_of,
    hidden_brokers,
    hidden_error,
    how_to_read,
    open_memory,
)
from rmqcli.admin.positions import check_groups, resolve_each
from rmqcli.admin.reset.cluster_identity import identity_of
from rmqcli.admin.reset.find_method import Membership, find_methods, read_members
from rmqcli.admin.reset.messages import with_times
from rmqcli.admin.reset.plan import (
    GroupFacts,
    QueueFacts,
    ResetPlan,
    check_drift,
    make_plan,
    restore,
    shift,
)
from rmqcli.admin.reset.target import (
    PastMessage,
    ResetRequest,
    Restore,
    Shift,
    Target,
    ToOffsets,
    ToPosition,
)
from rmqcli.admin.witness import compare
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, NotFoundError, RefusedError, RmqError, UsageError
from rmqcli.hint import Hint, Setting
from rmqcli.model import MessageQueue, retry_topic
from rmqcli.position import Ago, AtGroup, AtNow, AtOffset, AtTime, Earliest, Latest
from rmqcli.queue_selector import select_queues
from rmqcli.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.admin.lag.model import PopLag
    from rmqcli.admin.reset.method import ResetMethod
    from rmqcli.admin.reset.plan import MethodKey
    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute


#: Positions that mean the same in a retry topic; others move that topic to its end.
_TIMELIKE = (Earliest, Latest, AtNow, AtTime, Ago)


_UNPROVEN: Final = (
    "all messages that the queue had at the time of the {file} are deleted: nothing"
    " shows that it is still the same queue"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """A topic of the reset: all its queues, the chosen ones, and their target.

    A queue of `chosen` is in `every` or, when it could not be read, in `unknown`, or
    in `departed` if its broker has left the route, or does not let it be read.
    """

    topic: str
    every: dict[MessageQueue, QueueFacts]
    unknown: dict[MessageQueue, RmqError]
    departed: dict[MessageQueue, RmqError]
    chosen: tuple[MessageQueue, ...]
    target: Target


def gather_plan(client: Client, request: ResetRequest) -> ResetPlan:
    """Make the plan for `request`.

    Raises NotFoundError for an unknown topic or group. Raises RefusedError
    when offsets have moved since a plan file was made, and when skipping a message
    would skip others. Raises a broker's error when no queue at all could be read, and
    PartialError when all of them were on brokers that have left the route, or on which
    the topic is not readable.
    """
    route = client.route(request.topic)
    if not route.read_queues():
        raise UsageError(
            f"topic {route.topic} has no readable queue",
            hint=how_to_read(client, route.topic, hidden_brokers(route)),
        )
    members = read_members(client, route, request.group)
    topics, retry = _read_topics(client, request, members)
    pop = _read_pop(client, request.group, members)
    facts: list[QueueFacts] = []
    unknown: dict[MessageQueue, RmqError] = {}
    departed: dict[MessageQueue, RmqError] = {}
    methods: dict[MethodKey, ResetMethod] = {}
    for topic in topics:
        aimed, lost = _aim(client, request.group, topic)
        methods |= find_methods(
            client,
            request,
            members,
            queues=topic.every,
            aimed=aimed,
            uses_pop=members.uses_grpc or pop is not None,
        )
        facts += aimed
        unknown |= lost
        if not isinstance(topic.target, PastMessage):
            departed |= {q: e for q, e in topic.departed.items() if q in topic.chosen}
    if unknown and not facts:
        client.raise_if_none_answers(unknown.values())
        raise next(iter(unknown.values()))
    if departed and not facts:
        check_departed(client, "broker", min(departed).broker_name)
        raise next(iter(departed.values()))
    group = GroupFacts(
        group=request.group,
        topic=request.topic,
        cluster=identity_of(client.route(request.topic)),
        client_ids=members.client_ids(request.topic),
        clients_unknown=members.proxied_unknown,
        is_broadcast=members.is_broadcast,
        retry_pending=0 if retry is None else sum(map(_pending, retry.every.values())),
        retry_unknown=0 if retry is None else len(retry.unknown),
        pop=pop,
    )
    plan = make_plan(group, facts, methods)
    plan = _with_departed(client, _with_unknown(plan, unknown, members), departed)
    if isinstance(request.target, ToOffsets):
        targets = request.target.targets
        check_drift(
            plan,
            {q: (c, targets[q]) for q, c in request.target.planned_from.items()},
        )
    return with_times(client, plan, with_edges=request.with_edges)


def _read_pop(client: Client, group: str, members: Membership) -> PopLag | None:
    """Do as `read_pop_lag`, but without asking a broker again that did not answer."""
    for name, error in sorted(members.errors.items()):
        return unknown_pop(f"{name}: {error.message}")
    return read_pop_lag(client, group)


def _with_unknown(
    plan: ResetPlan, unknown: dict[MessageQueue, RmqError], members: Membership
) -> ResetPlan:
    """Return `plan` with the queues that could not be read, and warnings about them."""
    reasons: dict[str, str] = {}
    counts: dict[str, int] = {}
    for queue, error in sorted(unknown.items()):
        reasons.setdefault(queue.broker_name, error.message)
        counts[queue.broker_name] = counts.get(queue.broker_name, 0) + 1
    warnings = [
        f"{counts[name]} {'queue' if counts[name] == 1 else 'queues'} of {name} could"
        f" not be read: {reason}"
        for name, reason in reasons.items()
    ]
    warnings += [
        f"{name} did not report its online members: {error.message}"
        for name, error in members.errors.items()
        if name not in reasons
    ]
    return replace(
        plan,
        unknown=dict(sorted(unknown.items())),
        warnings=(*plan.warnings, *warnings),
    )


def _with_departed(
    client: Client, plan: ResetPlan, departed: dict[MessageQueue, RmqError]
) -> ResetPlan:
    """Return `plan` with the queues that cannot be moved, and warnings of them.

    There is also a warning of a broker that has left and of which nothing is recorded
    but its name.
    """
    names = sorted({queue.broker_name for queue in departed})
    warnings = []
    for name in names:
        errors = [e for q, e in departed.items() if q.broker_name == name]
        are = counted(len(errors), "queue is", "queues are")
        warnings.append(
            Hint(f"{are} not moved on {name}: {errors[0].message}; ", errors[0].hint)
        )
    info, memory = client.cluster_info(), open_memory(client)
    if memory is not None and len(info.clusters) == 1:
        there = {name: each.master_address for name, each in info.brokers.items()}
        for name, seen in sorted(memory.departed(there).items()):
            if name not in names and not memory.groups_on([name]):
                what = f"what group {plan.group} has on {name} is not moved"
                error = seen.as_error(name)
                warnings.append(Hint(f"{what}: {error.message}; ", error.hint))
    return replace(
        plan,
        departed=dict(sorted(departed.items())),
        warnings=(*plan.warnings, *warnings),
    )


def _read_topics(
    client: Client, request: ResetRequest, members: Membership
) -> tuple[list[_Topic], _Topic | None]:
    """Return the topics of the reset, and the retry topic if it is not one of them."""
    main = _read_topic(client, client.route(request.topic), request, members)
    topics = [replace(main, chosen=_choose(request, main))]
    retry = _read_retry(client, request, members)
    if retry is None:
        return topics, None
    if request.include_retry:
        return [*topics, replace(retry, target=_retry_target(request.target))], None
    if isinstance(request.target, Restore | ToOffsets):
        return [*topics, replace(retry, chosen=_named(request.target, retry))], None
    return topics, retry


def _read_topic(
    client: Client, route: TopicRoute, request: ResetRequest, members: Membership
) -> _Topic:
    queues = route.read_queues()
    errors = members.errors
    # A broker that did not report its members is not waited for again.
    unknown = {q: errors[q.broker_name] for q in queues if q.broker_name in errors}
    every: dict[MessageQueue, QueueFacts] = {}
    asked = [queue for queue in queues if queue not in unknown]
    for queue, found in resolve_each(client, asked, AtGroup(request.group)).items():
        if isinstance(found, RmqError):
            unknown[queue] = found
            continue
        every[queue] = QueueFacts(
            queue=queue,
            committed=None if found.offset is None else found.wanted,
            min_offset=found.min_offset,
            max_offset=found.max_offset,
            wanted=None,
        )
    departed = departed_queues_of(client, route.topic) | {
        MessageQueue(route.topic, each.broker_name, queue_id): hidden_error(
            route.topic, [each.broker_name]
        )
        for each in route.queues
        if not each.is_readable
        for queue_id in range(each.read_queue_nums)
    }
    return _Topic(
        topic=route.topic,
        every=every,
        unknown=unknown,
        departed=departed,
        chosen=(*queues, *departed),
        target=request.target,
    )


def _read_retry(
    client: Client, request: ResetRequest, members: Membership
) -> _Topic | None:
    if request.topic == retry_topic(request.group):
        return None
    try:
        route = client.route(retry_topic(request.group))
    except NotFoundError:
        return None  # no member ever was online
    if not route.read_queues():
        return None  # members cannot read it either
    return _read_topic(client, route, request, members)


def _retry_target(target: Target) -> Target:
    """Return the target for the retry topic.

    Positions in time mean the same there; for others, messages that wait are skipped.
    """
    if isinstance(target, ToPosition) and isinstance(target.position, _TIMELIKE):
        return target
    return ToPosition(Latest())


def _pending(facts: QueueFacts) -> int:
    """Return how many messages of a retry queue will be delivered to members.

    Without a committed offset all of them will, because members begin at the start of a
    retry topic, wherever they begin elsewhere.
    """
    start = facts.min_offset if facts.committed is None else facts.committed
    return max(0, facts.max_offset - max(start, facts.min_offset))


def _choose(request: ResetRequest, topic: _Topic) -> tuple[MessageQueue, ...]:
    if isinstance(request.target, Restore | ToOffsets):
        return _named(request.target, topic)
    return tuple(select_queues(topic.chosen, request.selectors))


def _named(target: Restore | ToOffsets, topic: _Topic) -> tuple[MessageQueue, ...]:
    """Return the queues that a file names. Raises RefusedError if one is gone."""
    named = target.committed if isinstance(target, Restore) else target.targets
    mine = tuple(sorted(queue for queue in named if queue.topic == topic.topic))
    for queue in mine:
        if queue not in topic.chosen:
            raise RefusedError(
                f"{queue} is in the file, but the topic has no such queue now",
                hint="make a new plan",
            )
    return mine


def _aim(
    client: Client, group: str, topic: _Topic
) -> tuple[list[QueueFacts], dict[MessageQueue, RmqError]]:
    """Return the chosen queues with their targets, and the queues that are unknown."""
    facts = [topic.every[queue] for queue in topic.chosen if queue in topic.every]
    unknown = {q: topic.unknown[q] for q in topic.chosen if q in topic.unknown}
    match topic.target:
        case ToPosition():
            aimed, lost = _aim_at_position(client, topic.target, facts)
            return aimed, unknown | lost
        case Shift(count):
            return [shift(each, count) for each in facts], unknown
        case ToOffsets(targets):
            facts, lost = _recognized(client, topic.target, facts)
            aimed = [replace(each, wanted=targets[each.queue]) for each in facts]
            # The others are compared with the offsets that the file was made from.
            bare = [e for e in aimed if e.queue not in topic.target.planned_from]
            _check_ends(bare, hint="correct the file, or make a plan here")
            return aimed, unknown | lost
        case Restore(committed):
            facts, lost = _recognized(client, topic.target, facts)
            aimed = [restore(each, committed[each.queue]) for each in facts]
            return aimed, unknown | lost
        case PastMessage():
            return [_aim_past(topic.target, group, topic)], {}


def _recognized(
    client: Client, target: Restore | ToOffsets, facts: list[QueueFacts]
) -> tuple[list[QueueFacts], dict[MessageQueue, RmqError]]:
    """Return the queues that are those of the file, and those not compared.

    Raises RefusedError for a queue that is another one by now: the offsets of a backup
    or a plan mean nothing in a topic that was deleted and created again.
    """
    file, instead, how = "plan", "make a new plan", "add "
    if isinstance(target, Restore):
        file, instead = "backup", "reset to a position"
        how = "pass the ID of the backup and "
    compared = compare(
        client,
        {q.queue: target.noted[q.queue] for q in facts if q.queue in target.noted},
        {each.queue: (each.min_offset, each.max_offset) for each in facts},
        done=f"the {file} has seen",
        anew=Hint(
            f"{instead}, or, if these offsets are meant for the topic as it is now,"
            f" {how}",
            Setting("other_cluster", True),
        ),
    )
    known = []
    for each in facts:
        if each.queue in compared.unproven:
            each = replace(each, note=_UNPROVEN.format(file=file))
        if each.queue not in compared.errors:
            known.append(each)
    return known, compared.errors


def _aim_at_position(
    client: Client, target: ToPosition, facts: Iterable[QueueFacts]
) -> tuple[list[QueueFacts], dict[MessageQueue, RmqError]]:
    before = {each.queue: each for each in facts}
    check_groups(client, before, [target.position])
    aimed, lost = [], {}
    is_offset = isinstance(target.position, AtOffset)
    for queue, found in resolve_each(client, before, target.position).items():
        if isinstance(found, RmqError):
            lost[queue] = found
            continue
        aimed.append(
            replace(
                before[queue],
                min_offset=found.min_offset,
                max_offset=found.max_offset,
                wanted=found.wanted if is_offset else found.offset,
                note=found.note,
            )
        )
    if is_offset:
        hint = "move to the end with the position latest, or choose the queues that"
        _check_ends(aimed, hint=f"{hint} have this offset")
    return aimed, lost


def _check_ends(aimed: Iterable[QueueFacts], *, hint: str) -> None:
    """Raise RefusedError if a target is an offset beyond the end of its queue.

    Moved to the end, it would skip all messages of that queue; to skip them, use the
    position latest. An offset whose message was deleted is moved to the oldest one,
    which skips nothing.
    """
    short = {
        each.queue: each
        for each in aimed
        if each.wanted is not None and each.wanted > each.max_offset
    }
    if short:
        first = short[min(short)]
        others = len(short) - 1
        more = f" and of {counted(others, 'more queue')}" if others else ""
        raise RefusedError(
            f"offset {first.wanted} is beyond the end of {first.queue}"
            f" ({first.max_offset}){more}: nothing was changed",
            hint=hint,
        )


def _aim_past(found: PastMessage, group: str, topic: _Topic) -> QueueFacts:
    """Return the queue of the message, with the offset after it as the target.

    A group that is already past the message stays where it is. Raises RefusedError when
    other messages would be skipped, too.
    """
    queue = found.queue
    if queue in topic.unknown:
        raise topic.unknown[queue]
    facts = topic.every.get(queue)
    if facts is None or queue not in topic.chosen:
        raise ConfigError(
            f"message {found.message_id} is in {queue}, which is not among the selected"
            " queues"
        )
    behind = found.queue_offset + 1
    here = facts.committed
    if here is not None and here >= behind:
        note = f"group {group} is past the message already"
        return replace(facts, wanted=here, note=note)
    start = facts.min_offset if here is None else max(here, facts.min_offset)
    if start != found.queue_offset:
        stands = (
            "has committed nothing there" if here is None else f"is at offset {here}"
        )
        others = found.queue_offset - start
        raise RefusedError(
            f"group {group} {stands} and the message is at {found.queue_offset} of"
            f" {queue}: {counted(others, 'other message')} would be skipped too",
            hint=Hint(
                "to skip those too: ",
                Setting("queues", queue),
                Setting("to", f"{behind}"),
            ),
        )
    return replace(facts, wanted=behind)
