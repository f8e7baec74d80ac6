"""How many dead letters each group has, and how old they are, over all brokers.

A broker that does not answer leaves unknown numbers, never smaller ones: the count of
a group with letters there, or perhaps there, is None, and `reason` says why. A broker
that an earlier run knew, and that has left the route, may have letters of every group.

Source: AdminBrokerProcessor (GET_TOPIC_STATS_INFO, GET_EARLIEST_MSG_STORETIME), which
checks no permissions: up to 4.9.1 brokers create topics of dead letters write-only.
SendMessageProcessor.consumerSendMsgBack, where up to 4.9.1 a letter keeps the delay of
the retry that failed last, and waits for it before it is in that topic.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from rmqcli.admin.brokers import ask_each, denial_of, reader_addresses, split_answers
from rmqcli.admin.lag.memory import departed_brokers, slave_errors
from rmqcli.api.calls.config import get_all_topic_config
from rmqcli.api.calls.namesrv import get_all_topic_list
from rmqcli.api.calls.offset import get_earliest_msg_storetime
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.model import DLQ_GROUP_TOPIC_PREFIX
from rmqcli.wire.version import V4_9_2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError
    from rmqcli.model import MessageQueue

Ends: TypeAlias = dict["MessageQueue", tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLetters:
    """The dead letters of one group.

    `count` is None when a broker did not tell; `known_count` are those that answering
    brokers have. Times are store times, in epoch ms by the brokers' clocks, and None
    without a letter or with an unknown count. `ends` are the min and max offset of each
    queue.
    """

    group: str
    count: int | None
    known_count: int
    oldest_ms: int | None
    newest_ms: int | None
    brokers: tuple[str, ...]
    reason: str | None
    ends: dict[MessageQueue, tuple[int, int]] = field(hash=False)

    @property
    def topic(self) -> str:
        return DLQ_GROUP_TOPIC_PREFIX + self.group


@dataclass(frozen=True, slots=True)
class LetterList:
    """Groups that have a topic of dead letters, by name, and brokers without answers.

    The topic may be empty. `at_ms` is when the answers were complete, monotonic.
    `delaying` are the brokers before 4.9.2: a letter waits there for one more delay, of
    up to two hours, before it is stored and counted. `denial` is the error if all
    brokers denied access: the groups are those that name servers know.
    """

    groups: list[GroupLetters]
    errors: dict[str, RmqError] = field(hash=False)
    at_ms: int = 0
    delaying: tuple[str, ...] = ()
    denial: DeniedError | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every number is known."""
        return not self.errors and all(each.count is not None for each in self.groups)


def list_letters(client: Client) -> LetterList:
    """List the dead letters of all groups. Raises NoBrokerError if no broker answers.

    It takes three round trips, whatever the number of groups.
    """
    brokers_now = client.cluster_info().brokers
    addresses = reader_addresses(brokers_now.values())
    tables = ask_each(client, addresses, get_all_topic_config())
    told, errors = split_answers(tables)
    client.raise_if_none_answers(errors.values())
    places = [
        (topic, name)
        for name, table in told.items()
        for topic in table
        if topic.startswith(DLQ_GROUP_TOPIC_PREFIX)
    ]
    stats = client.ask_many(
        {p: (addresses[p[1]], get_topic_stats_info(p[0])) for p in places}
    )
    ends: dict[str, Ends] = {}
    newest: dict[str, int] = {}
    brokers: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for (topic, name), answer in stats.items():
        if isinstance(answer, NotFoundError):
            continue  # it was deleted between two requests
        brokers.setdefault(topic, []).append(name)
        of_topic = ends.setdefault(topic, {})
        if isinstance(answer, RmqError):
            reasons.setdefault(topic, f"{name}: {answer.message}")
            continue
        for queue, offset in answer.items():
            low = max(0, offset.min_offset)
            of_topic[queue] = (low, max(low, offset.max_offset))
            if offset.last_update_timestamp > 0:
                newest[topic] = max(newest.get(topic, 0), offset.last_update_timestamp)
    oldest = _oldest(client, ends, addresses, reasons)
    errors |= slave_errors(brokers_now.values())
    if errors:
        _note_silent(client, brokers, errors, reasons)
    for name, seen in departed_brokers(client, brokers_now).items():
        errors[name] = seen.as_error(name)
        for topic in brokers:
            reasons.setdefault(topic, f"{name}: {errors[name].message}")
    groups = [
        _group(topic, ends.get(topic, {}), oldest, newest, names, reasons.get(topic))
        for topic, names in sorted(brokers.items())
    ]
    delaying = [
        name
        for name in sorted(tables.keys() - errors.keys())
        if client.broker_version(addresses[name]) < V4_9_2
    ]
    return LetterList(
        groups,
        errors,
        client.clock.monotonic_ms(),
        tuple(delaying),
        denial_of(tables.values()),
    )


def _oldest(
    client: Client,
    ends: Mapping[str, Ends],
    addresses: Mapping[str, str],
    reasons: dict[str, str],
) -> dict[str, int]:
    """Return the store time of the oldest letter of each topic that has one."""
    answers = client.ask_many(
        {
            queue: (
                addresses[queue.broker_name],
                get_earliest_msg_storetime(queue.topic, queue.queue_id),
            )
            for of_topic in ends.values()
            for queue, (low, high) in of_topic.items()
            if high > low
        },
    )
    found: dict[str, int] = {}
    for queue, answer in answers.items():
        if isinstance(answer, RmqError):
            reasons.setdefault(queue.topic, f"{queue.broker_name}: {answer.message}")
        elif answer is not None:
            found[queue.topic] = min(answer, found.get(queue.topic, answer))
    return found


def _note_silent(
    client: Client,
    brokers: dict[str, list[str]],
    errors: Mapping[str, RmqError],
    reasons: dict[str, str],
) -> None:
    """Mark the groups that have letters on a silent broker, or may have."""
    silent = ", ".join(errors)
    why = f"{silent}: {next(iter(errors.values())).message}"
    try:
        names = client.namesrv(get_all_topic_list())
    except RmqError:
        for topic in brokers:  # where each topic is cannot be found out
            reasons.setdefault(topic, why)
        return
    topics = {each for each in names if each.startswith(DLQ_GROUP_TOPIC_PREFIX)}
    for topic, route in client.routes(sorted(topics | brokers.keys())).items():
        if isinstance(route, NotFoundError):
            continue
        if isinstance(route, RmqError):
            reasons.setdefault(topic, why)
            continue
        there = [q.broker_name for q in route.queues if q.broker_name in errors]
        if there:
            brokers.setdefault(topic, []).extend(there)
            reasons.setdefault(topic, f"{there[0]}: {errors[there[0]].message}")


def _group(
    topic: str,
    ends: Ends,
    oldest: Mapping[str, int],
    newest: Mapping[str, int],
    brokers: Iterable[str],
    reason: str | None,
) -> GroupLetters:
    count = sum(high - low for low, high in ends.values())
    is_known = reason is None
    return GroupLetters(
        group=topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX),
        count=count if is_known else None,
        known_count=count,
        oldest_ms=oldest.get(topic) if is_known and count else None,
        newest_ms=newest.get(topic) if is_known and count else None,
        brokers=tuple(sorted(set(brokers))),
        reason=reason,
        ends=ends,
    )


def growth(before: GroupLetters | None, after: GroupLetters) -> int | None:
    """Return how many letters arrived between two lists; None if that is unknown.

    Letters that a broker removed meanwhile, because they were old, do not count. Pure.
    """
    if after.count is None or (before is not None and before.count is None):
        return None
    then = {} if before is None else before.ends
    return sum(
        max(0, high - then.get(queue, (low, low))[1])
        for queue, (low, high) in after.ends.items()
    )
