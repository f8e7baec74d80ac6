"""Checks of consumer groups: who consumes, what they hold, and what they gave up on.

Source: ConsumerManager, RebalanceImpl, ProcessQueue in apache/rocketmq.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import split_answers
from rmqcli.admin.doctor.check import CheckEach, check
from rmqcli.admin.doctor.facts import Fact, Facts
from rmqcli.admin.doctor.model import Findings, named, problem, unknown, warning
from rmqcli.admin.lag.assemble import ORDERLY
from rmqcli.admin.lag.process_queues import (
    EXPIRED_LOCK,
    FLOW_CONTROL,
    PULL_STOPPED,
    STUCK_HEAD,
)
from rmqcli.engine.queue_lag import LagState
from rmqcli.hint import command_line
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, is_system_group
from rmqcli.units import counted, format_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.admin.lag.model import GroupLag
    from rmqcli.engine.queue_lag import QueueLag
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig

#: POP's messages are copied to the retry topic within seconds.
_OVERDUE_MS: Final = 60_000
#: Queues have owners once the members have been there for three rebalances.
_SETTLED_MS: Final = 60_000
_FLAGS: Final = {
    STUCK_HEAD: "a message is not finished",
    FLOW_CONTROL: "as many messages as allowed are cached, and no more are pulled",
    EXPIRED_LOCK: "messages are consumed in order, and the lock is missing",
    PULL_STOPPED: "nothing was pulled for two minutes",
}


_check_groups = CheckEach(
    lambda facts: [lag for lag in facts.lags if not is_system_group(lag.group)],
    attrgetter("group"),
)


def _silent_members(lag: GroupLag) -> list[str]:
    clients = lag.reading.clients or {}
    return [name for name, each in clients.items() if each.failure is not None]


@_check_groups("subscriptions", "members of a group subscribe alike", Fact.LAGS)
def _subscriptions(facts: Facts, lag: GroupLag) -> Findings:
    members = lag.reading.members
    if members is None:
        return
    for difference in members.mismatches(lag.reading.clients):
        yield problem(
            difference,
            "members that subscribe differently skip messages of each other: these"
            " are lost",
            command_line("rmq group show", lag.group),
        )
    silent = _silent_members(lag)
    if silent and len(members.connections) > 1:
        yield unknown(f"no answer about its subscriptions: {named(silent)}")


@_check_groups("client-ids", "members have ids of their own", Fact.LAGS)
def _client_ids(facts: Facts, lag: GroupLag) -> Findings:
    if lag.reading.members is None:
        return
    for client_id, addresses in sorted(lag.reading.members.duplicates.items()):
        yield problem(
            f"{counted(len(addresses), 'member')} have the id {client_id}:"
            f" {named(addresses)}",
            "members with the same id consume the same queues, and nobody consumes"
            " the others",
            command_line("rmq group members", lag.group),
        )


@_check_groups("queue-owners", "each queue has one owner", Fact.LAGS)
def _queue_owners(facts: Facts, lag: GroupLag) -> Findings:
    members, clients = lag.reading.members, lag.reading.clients or {}
    if (
        members is None
        or members.message_model != "CLUSTERING"
        or members.consume_type != "CONSUME_PASSIVELY"
        or lag.pop is not None
        or not clients
        or clients.keys() - members.connections.keys()  # one has just left
    ):
        return
    if not_asked := sorted(members.connections.keys() - clients.keys()):
        yield unknown(f"members that tell no queues: {named(not_asked)}")
        return
    silent = _silent_members(lag)
    if silent:
        yield unknown(f"no answer about its queues: {named(silent)}")
        return
    untold = [i for i, each in clients.items() if each.started_ms is None]
    # By a clock that is ahead, a member never becomes a minute old.
    ahead = [
        i
        for i, each in clients.items()
        if each.started_ms and each.started_ms > facts.at_ms + _SETTLED_MS
    ]
    if untold or ahead:
        why = (
            f"it is not known when these members started: {named(untold)}"
            if untold
            else f"the clocks of these members are ahead: {named(ahead)}"
        )
        yield unknown(why)
        return
    started = [each.started_ms or 0 for each in clients.values()]
    if facts.at_ms - max(started) < _SETTLED_MS:
        return  # queues are still being distributed, or perhaps are
    holders: dict[str, list[str]] = defaultdict(list)
    for client_id, client in clients.items():
        for queue in client.held_queues():
            holders[str(queue)].append(client_id)
    show = command_line("rmq lag", lag.group, options=["--process-queues"])
    shared = {queue: ids for queue, ids in holders.items() if len(ids) > 1}
    if shared:
        first, ids = min(shared.items())
        yield warning(
            f"{counted(len(shared), 'queue')} held by two members, such as {first}"
            f" by {named(ids)}",
            "both consume it, so that messages come twice",
            show,
        )
    nobody = [
        f"{each.topic}@{each.broker_name}:{each.queue_id}"
        for each in lag.queues
        if each.client_id is None
        and each.queue_id is not None
        and each.topic in members.subscriptions
        and _may_wait(each)
        and not each.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
    ]
    if nobody:
        yield warning(
            f"no member holds {counted(len(nobody), 'queue')} with messages:"
            f" {named(nobody, limit=3)}",
            "nobody consumes these messages",
            show,
        )


def _may_wait(queue: QueueLag) -> bool:
    """Whether messages wait in a queue, or may wait: one without a commit has some."""
    if queue.state is LagState.NO_COMMIT:
        return queue.lag is None or queue.lag > 0
    return bool(queue.lag)


@_check_groups("member-queues", "members work through their queues", Fact.LAGS)
def _member_queues(facts: Facts, lag: GroupLag) -> Findings:
    clients = lag.reading.clients or {}
    silent = _silent_members(lag)
    if silent:
        yield unknown(f"no answer about its queues: {named(silent)}")
    counts: Counter[tuple[str, str]] = Counter()
    for client_id, client in clients.items():
        for held in client.queues:
            for flag in held.flags:
                if flag in _FLAGS and not held.dropped:
                    counts[client_id, flag] += 1
    for (client_id, flag), count in sorted(counts.items()):
        yield warning(
            f"{counted(count, 'queue')} of member {client_id}: {_FLAGS[flag]} ({flag})",
            "its listener is slow, or hangs: look at its threads",
            command_line("rmq group stack", lag.group, client_id),
        )


@_check_groups("no-member", "groups with messages have members", Fact.LAGS)
def _no_member(facts: Facts, lag: GroupLag) -> Findings:
    reading = lag.reading
    if reading.members is not None or reading.failures or not lag.known_lag:
        return
    if reading.members_unknown:
        yield unknown(reading.members_unknown)
        return
    least = "at least " if lag.total_lag is None else ""
    age = ""
    if lag.known_age_ms is not None:
        shown = format_duration(lag.known_age_ms)
        age = f", for {'at least ' if lag.age_ms is None else ''}{shown}"
    number = counted(lag.known_lag, "message")
    yield warning(
        f"{least}{number} waiting{age}, and no member online",
        "nobody consumes them; delete the group if it is not used any more",
        command_line("rmq lag", lag.group),
    )


@_check_groups("offsets-ahead", "no offset is beyond its queue's end", Fact.LAGS)
def _offsets_ahead(facts: Facts, lag: GroupLag) -> Findings:
    ahead = [queue for queue in lag.queues if queue.state is LagState.AHEAD]
    if ahead:
        first = ahead[0]
        yield problem(
            f"{counted(len(ahead), 'committed offset')} beyond the end of the"
            f" queue: {first.topic}@{first.broker_name}:{first.queue_id} has"
            f" {first.committed}, and ends at {first.max_offset}",
            "the broker has lost messages, or was replaced: new ones up to the"
            " offset may be skipped",
            command_line("rmq lag", lag.group),
        )


@_check_groups("removed-queues", "groups have read what removed queues hold", Fact.LAGS)
def _removed_queues(facts: Facts, lag: GroupLag) -> Findings:
    for each in lag.reading.unreachable:
        many = max(each.queue_ids) + 1
        yield warning(
            str(each),
            f"the topic has fewer queues than before; with {many} they are read",
            command_line("rmq topic show", each.topic),
        )


def _brokers_where(
    facts: Facts, is_so: Callable[[SubscriptionGroupConfig], bool]
) -> list[tuple[str, list[str]]]:
    """Return groups by name, with the brokers whose settings of the group are so."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, table in split_answers(facts.groups)[0].items():
        for group, config in table.items():
            if is_so(config):
                found[group].append(name)
    return sorted(found.items())


@check("consume-disabled", "groups with messages may consume", Fact.GROUPS, Fact.LAGS)
def _consume_disabled(facts: Facts) -> Findings:
    lags = {lag.group: lag for lag in facts.lags}
    for group, names in _brokers_where(facts, lambda each: not each.consume_enable):
        waiting = [
            queue
            for queue in (lags[group].queues if group in lags else ())
            if queue.broker_name in names and _may_wait(queue)
        ]
        if waiting:
            count = sum(queue.lag or 0 for queue in waiting)
            # Where it never committed, nobody knows from where on messages wait.
            number = counted(count, "message") if count else "messages"
            if count and any(queue.lag is None for queue in waiting):
                number = f"at least {number}"
            there = named(queue.broker_name for queue in waiting)
            yield warning(
                f"it may not consume on {there}, with {number} waiting",
                "its members get nothing from there",
                command_line("rmq group resume", group),
                of=group,
            )


@check("retry-queues", "groups can store retries", Fact.GROUPS)
def _retry_queues(facts: Facts) -> Findings:
    for group, names in _brokers_where(facts, lambda each: each.retry_queue_nums < 1):
        yield warning(
            f"it has no retry queue on {named(names)}",
            "messages that its members send back there are lost",
            command_line("rmq group update", group, options=["--retry-queues", "1"]),
            of=group,
        )


@_check_groups("pop-revive", "POP delivers again what was not acknowledged", Fact.LAGS)
def _pop_revive(facts: Facts, lag: GroupLag) -> Findings:
    pop = lag.pop
    if pop is None:
        return
    if pop.reason is not None and pop.reason != ORDERLY:
        yield unknown(pop.reason)
    late = [late_ms for late_ms in _late(lag) if late_ms >= _OVERDUE_MS]
    if late:
        yield warning(
            f"{counted(len(late), 'message')} not acknowledged in time, waiting"
            f" for a retry for up to {format_duration(max(late))}",
            "the broker is late in delivering them again",
            command_line("rmq lag", lag.group),
        )


def _late(lag: GroupLag) -> list[int]:
    """Return since when each message is visible again, in ms by its broker's clock."""
    return [
        lag.reading.at_ms + queue.clock_ahead_ms - visible_ms
        for queue in lag.reading.queues
        for offset, visible_ms in (queue.handed_out or {}).items()
        if offset >= (queue.min_offset or 0)
    ]


@check(
    "dead-letters",
    "no group has given up messages lately",
    Fact.LETTERS,
    works_without_master=True,
)
def _dead_letters(facts: Facts) -> Findings:
    if facts.letters_error is not None:
        yield unknown(facts.letters_error.message, of="dead letters")
    if facts.letters is None:
        return
    reported = {*facts.silent(), *facts.departed, *facts.without_master()}
    for name, error in facts.letters.errors.items():
        if name not in reported:
            yield unknown(f"it does not show its topics: {error.message}", of=name)
    for group in facts.letters.groups:
        new = facts.new_letters.get(group.group)
        least = facts.new_letters_min.get(group.group) or new
        if group.count is None or least is None:
            reason = group.reason or "a broker did not report how many are new"
            yield unknown(reason, of=group.group)
        elif least:
            number = counted(least, "dead letter")
            if new is None:
                number = f"at least {number}"
            yield warning(
                f"{number} in the last hour, {group.count:,} in all",
                "the group gives messages up",
                command_line("rmq dlq show", group.group),
                of=group.group,
            )
