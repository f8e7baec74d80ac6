"""Checks of topics, and of messages that wait in RocketMQ's own topics.

Source: TopicConfigManager, ScheduleMessageService, TimerMessageStore,
TransactionalMessageServiceImpl in apache/rocketmq.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from rmqcli.admin.doctor.check import CheckEach, check, check_masters
from rmqcli.admin.doctor.facts import HALF_MESSAGES_MAX, ROUTES_MAX, Fact, Facts
from rmqcli.admin.doctor.model import (
    Findings,
    listed_by_value,
    named,
    problem,
    unknown,
    warning,
)
from rmqcli.admin.topics import perm_text
from rmqcli.errors import NotFoundError, RmqError, StaticTopicError
from rmqcli.hint import command_line
from rmqcli.model import (
    DLQ_GROUP_TOPIC_PREFIX,
    PERM_WRITE,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_group,
)
from rmqcli.units import SECOND_MS, counted, format_duration, read_count

if TYPE_CHECKING:
    from rmqcli.admin.brokers import BrokerDetail
    from rmqcli.wire.bodies.config import TopicConfig

    #: A topic, and its settings by broker name.
    _Topic = tuple[str, dict[str, TopicConfig]]

_LATE_WARNING_MS: Final = 60_000
_LATE_PROBLEM_MS: Final = 600_000
#: A timer begins days in the past, whether the broker has messages or not, and goes
#: through each second since.
_TIMER_STARTS_MS: Final = 300_000
_TIMER_UNREAD_WARNING: Final = 100_000
#: After so many checks without an answer a transaction is worth a look.
_CHECKS_WARNING: Final = 3


def _by_topic(facts: Facts) -> dict[str, dict[str, TopicConfig]]:
    """Return topic -> broker name -> settings, of users' topics."""
    found: dict[str, dict[str, TopicConfig]] = defaultdict(dict)
    for broker_name, table in facts.topics.items():
        if not isinstance(table, RmqError):
            for topic, config in table.items():
                if facts.kind(topic) == "normal":
                    found[topic][broker_name] = config
    return dict(sorted(found.items()))


_check_topics = CheckEach(lambda facts: _by_topic(facts).items(), itemgetter(0))


@check(
    "topic-route", "routes agree with the topics of brokers", Fact.TOPICS, Fact.ROUTES
)
def _topic_route(facts: Facts) -> Findings:
    topics = _by_topic(facts)
    if len(topics) > ROUTES_MAX:
        yield unknown(
            f"only the routes of the first {ROUTES_MAX:,} of"
            f" {counted(len(topics), 'topic')}"
            " were compared",
            of="topics",
        )
    for topic, route in facts.routes.items():
        show = command_line("rmq topic show", topic)
        if isinstance(route, NotFoundError):
            yield warning(
                f"it is on {named(topics[topic])}, and the name server has no route",
                "clients do not find the topic",
                show,
                of=topic,
            )
            continue
        if isinstance(route, StaticTopicError):
            continue
        if isinstance(route, RmqError):
            yield unknown(f"its route is not known: {route.message}", of=topic)
            continue
        routed = {queues.broker_name for queues in route.queues}
        missing = topics[topic].keys() - routed
        if missing:
            yield warning(
                f"it is on {named(missing)}, and its route does not say so",
                "clients do not use the queues there",
                show,
                of=topic,
            )
        told = {n for n, t in facts.topics.items() if not isinstance(t, RmqError)}
        surplus = (routed & told) - topics[topic].keys()
        if surplus:
            yield warning(
                f"its route names {named(surplus)}, where it does not exist",
                "clients ask the broker for queues that it does not have",
                show,
                of=topic,
            )


@check("topic-brokers", "topics are on all brokers of a cluster", Fact.TOPICS)
def _topic_brokers(facts: Facts) -> Findings:
    clusters = {
        detail.row.broker_name: detail.row.cluster for detail in facts.masters()
    }
    told = {n for n, t in facts.topics.items() if not isinstance(t, RmqError)}
    lacking: dict[str, list[str]] = defaultdict(list)
    for topic, configs in _by_topic(facts).items():
        used = {clusters[name] for name in configs}
        for name in told - configs.keys():
            if clusters[name] in used:
                lacking[name].append(topic)
    for name, topics in sorted(lacking.items()):
        yield warning(
            f"it lacks {counted(len(topics), 'topic')} that another broker of its"
            f" cluster has: {named(topics)}",
            "these topics use only some of the brokers, and stop with them",
            command_line("rmq topic show", topics[0]),
            of=name,
        )


@check("topic-writable", "every topic has a queue to write", Fact.TOPICS)
def _topic_writable(facts: Facts) -> Findings:
    if facts.silent() or any(isinstance(t, RmqError) for t in facts.topics.values()):
        return  # the queues of a broker that does not tell are not known
    for topic, configs in _by_topic(facts).items():
        if any(c.perm & PERM_WRITE and c.write_queue_nums for c in configs.values()):
            continue
        perms = perm_text(config.perm for config in configs.values())
        count = sum(config.write_queue_nums for config in configs.values())
        yield warning(
            f"its permission is {perms}, and it has {counted(count, 'queue')} to write",
            "nothing can be sent to it",
            command_line("rmq topic update", topic, options=["--perm", "rw"]),
            of=topic,
        )


@_check_topics(
    "topic-settings", "a topic has the same settings on all brokers", Fact.TOPICS
)
def _topic_settings(facts: Facts, each: _Topic) -> Findings:
    topic, configs = each
    values: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, config in configs.items():
        values["perm"][perm_text([config.perm]) or "none"].append(name)
        values["order"][str(config.order).lower()].append(name)
        attributes = ",".join(f"{k}={v}" for k, v in sorted(config.attributes.items()))
        values["attributes"][attributes or "none"].append(name)
    for setting, found in values.items():
        if len(found) > 1:
            yield warning(
                f"{setting} differs: {listed_by_value(found)}",
                "what clients may do depends on the broker that they use",
                command_line("rmq topic show", topic),
            )
    for name, config in configs.items():
        read, write = config.read_queue_nums, config.write_queue_nums
        if write > read:
            options = ["--queues", str(write), "--broker", name]
            yield warning(
                f"{counted(write, 'write queue')} on {name} and"
                f" {counted(read, 'read queue')}",
                f"no consumer reads what producers send to queue {read} and beyond",
                command_line("rmq topic update", topic, options=options),
            )


def _known_groups(facts: Facts) -> set[str] | None:
    """Return all groups that brokers have settings for; None if one did not tell."""
    found: set[str] = set()
    if facts.silent() or facts.departed or facts.without_master():
        return None
    for table in facts.groups.values():
        if isinstance(table, RmqError):
            return None
        found.update(table)
    return found


def _orphans(facts: Facts, prefix: str) -> set[str]:
    groups = _known_groups(facts)
    if groups is None:
        return set()  # that a broker does not tell is reported for all checks
    found = set()
    for table in facts.topics.values():
        for topic in () if isinstance(table, RmqError) else table:
            rest = topic.removeprefix(prefix)
            if rest == topic or rest in groups or is_system_group(rest):
                continue
            # A retry topic of POP is named after a group and a topic.
            if not any(rest.startswith((f"{g}_", f"{g}+")) for g in groups):
                found.add(topic)
    return found


@check("orphaned-retry", "retry topics belong to groups", Fact.TOPICS, Fact.GROUPS)
def _orphaned_retry(facts: Facts) -> Findings:
    topics = _orphans(facts, RETRY_GROUP_TOPIC_PREFIX)
    if topics:
        first = min(topics)
        yield warning(
            f"{counted(len(topics), 'retry topic')} of groups that no broker knows:"
            f" {named(topics)}",
            "what waits there is delivered to nobody, until the group is created again",
            command_line("rmq topic show", first),
            of=named(topics, limit=1),
        )


@check("orphaned-letters", "dead letters belong to groups", Fact.TOPICS, Fact.GROUPS)
def _orphaned_letters(facts: Facts) -> Findings:
    topics = _orphans(facts, DLQ_GROUP_TOPIC_PREFIX)
    if topics:
        group = min(topics).removeprefix(DLQ_GROUP_TOPIC_PREFIX)
        yield warning(
            f"{counted(len(topics), 'topic')} of dead letters of groups that no broker"
            f" knows: {named(topics)}",
            "nobody looks after these letters; delete the topics when they are not"
            " needed",
            command_line("rmq dlq show", group),
            of=named(topics, limit=1),
        )


@check_masters("timer-backlog", "messages with a delivery time come in time")
def _timer_backlog(facts: Facts, detail: BrokerDetail) -> Findings:
    runtime = detail.runtime or {}
    behind = runtime.get("timerReadBehind")
    if behind is None:
        return  # before 5.0, or without timerWheelEnable: there are no timers
    name = detail.row.broker_name
    behind_s = read_count(behind, digits_max=15)
    unread = read_count(runtime.get("timerOffsetBehind"))
    if behind_s is None or unread is None:
        yield unknown(f"timerReadBehind is {behind!r}")
        return
    behind_ms = behind_s * SECOND_MS
    boot_ms = detail.row.boot_timestamp_ms
    skew_ms = facts.clock_skew_ms.get(detail.row.address) or 0
    is_new = boot_ms and facts.at_ms + skew_ms - boot_ms < _TIMER_STARTS_MS
    if behind_ms >= _LATE_WARNING_MS and is_new:
        yield unknown(
            "it was started lately, and its timer still goes through the time"
            f" before: {format_duration(behind_ms)} are left",
        )
    elif behind_ms >= _LATE_WARNING_MS:
        make = problem if behind_ms >= _LATE_PROBLEM_MS else warning
        yield make(
            f"its timer is {format_duration(behind_ms)} late",
            "messages with a delivery time come late by as much",
            command_line("rmq broker show", name),
        )
    if unread >= _TIMER_UNREAD_WARNING:
        yield warning(
            f"messages with a delivery time that are not yet in its timer: {unread:,}",
            "those that are due meanwhile come late",
            command_line("rmq broker show", name),
        )


@check(
    "delay-backlog",
    "delayed messages and retries come in time",
    Fact.DELAYS,
    Fact.SETTINGS,
)
def _delay_backlog(facts: Facts) -> Findings:
    for name, levels in sorted(facts.late_ms.items()):
        not_known = [level for level, late_ms in levels.items() if late_ms is None]
        if not_known:
            yield unknown(
                "it does not show the messages, or the delays, of delay level"
                f" {', '.join(map(str, sorted(not_known)))}",
                of=name,
            )
        late = {n: ms for n, ms in levels.items() if ms and ms >= _LATE_WARNING_MS}
        if late:
            worst_ms = max(late.values())
            make = problem if worst_ms >= _LATE_PROBLEM_MS else warning
            yield make(
                f"messages of {counted(len(late), 'delay level')} are late, by up to"
                f" {format_duration(worst_ms)}",
                "delayed messages and retries are not delivered",
                command_line("rmq broker show", name),
                of=name,
            )


@check(
    "transactions", "producers end their transactions", Fact.TOPICS, Fact.TRANSACTIONS
)
def _transactions(facts: Facts) -> Findings:
    for name, found in sorted(facts.transactions.items()):
        for error in found.errors.values():
            yield unknown(
                f"its half messages (at most {HALF_MESSAGES_MAX:,}) are not known:"
                f" {error.message}",
                of=name,
            )
        unanswered: Counter[str] = Counter()
        stuck: Counter[str] = Counter()
        for each in found.transactions:
            group = each.producer_group or "(no group)"
            if each.producers and each.checks >= _CHECKS_WARNING:
                stuck[group] += 1
            elif each.checks and each.producers == ():
                unanswered[group] += 1
            elif each.checks and each.producers is None:
                yield unknown(
                    f"it does not tell the producers of {each.producer_group}", of=name
                )
        for group, count in sorted(unanswered.items()):
            yield problem(
                f"open transactions on {name}: {count:,}; no producer of the group is"
                " connected",
                "nobody answers the broker's checks, after which it discards the"
                " messages",
                command_line("rmq producers", options=["--group", group]),
                of=group,
            )
        for group, count in sorted(stuck.items()):
            yield warning(
                f"open transactions on {name} after {_CHECKS_WARNING} checks or more:"
                f" {count:,}",
                "the producers do not decide, and in the end the broker discards the"
                " messages",
                command_line("rmq producers", options=["--group", group]),
                of=group,
            )
