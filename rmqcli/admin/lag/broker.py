"""Reads one broker's part of a lag reading, as a task.

The requests of each step are pipelined, and committed offsets are read before max
offsets:

1. committed offsets: GET_CONSUME_STATS for each of a few groups, or for many groups
   the whole table (GET_ALL_CONSUMER_OFFSET) in one answer; also the members, and
   whether the broker ever used POP; where it did, what POP has handed out
2. where GET_CONSUME_STATS answered 0, whether 0 was committed: it also answers 0 where
   nothing was committed
3. the ends of each topic's queues (GET_TOPIC_STATS_INFO), without queues that were
   removed, whose offsets the whole table keeps; also the ends of the retry and dead
   letter topics, which may have messages although no group committed in them or
   subscribed to them
4. the age of the next message (QUERY_CONSUME_TIME_SPAN) where messages wait, the queues
   that members hold, and the ends of queues that a broker leaves out of its answer

Source: AdminBrokerProcessor, ConsumerManageProcessor, SubscriptionGroupManager and
MixAll.isSysConsumerGroup in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from rmqcli.api.calls.consumer import (
    get_consumer_connection_list,
    get_consumer_running_info,
)
from rmqcli.api.calls.stats import (
    get_consume_stats,
    get_topic_stats_info,
    query_consume_time_span,
)
from rmqcli.client_id import is_grpc_client
from rmqcli.errors import NotFoundError, RmqError, TransportError
from rmqcli.model import (
    RETRY_GROUP_TOPIC_PREFIX,
    MessageQueue,
    dlq_topic,
    is_pop_retry,
    is_system_group,
    pop_retry_topics,
    retry_topic,
)
from rmqcli.tasks import All, Request
from rmqcli.wire.bodies.stats import QueueTimeSpan
from rmqcli.wire.message.properties import lite_topic_of
from rmqcli.wire.version import V5_0_0, V5_5_0

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from rmqcli.admin.lag.assemble import (
        BrokerPart,
        GroupTopic,
        LagQuery,
        SharedAnswers,
    )
    from rmqcli.api.call import Call
    from rmqcli.clock import Clock
    from rmqcli.tasks import Part, Task
    from rmqcli.wire.bodies.stats import ConsumeStats, OffsetWrapper, TopicOffset

    Log: TypeAlias = dict[MessageQueue, TopicOffset] | RmqError
    Logs: TypeAlias = tuple[Log, ...]

T = TypeVar("T")

#: So many requests about groups or topics wait for one broker's answers at a time.
_ASKED_AT_ONCE_MAX: Final = 1_000
#: With more ambiguous zeros than this, the broker's whole table is the smaller answer.
_ZEROS_ONE_BY_ONE_MAX = 64
#: At most this many removed queues of a group and topic are asked for their ends.
_REMOVED_ASKED_MAX = 64
#: Owners are optional: a client that does not answer must not slow down the rest.
OWNER_TIMEOUT_MS = 1_000
#: In larger groups, members are asked for their queues only with --process-queues.
OWNERS_ASKED_MAX = 16


def read_broker(
    part: BrokerPart,
    query: LagQuery,
    shared: SharedAnswers,
    *,
    version: Callable[[], int],
    clock: Clock,
) -> Task[None]:
    """Fill `part` with what its broker reports.

    `version` returns the broker's version once the broker has answered. Raises errors
    that concern the whole broker; what was read before stays in the part.
    """
    if query.is_one_by_one:
        logs = yield from _read_groups(part, query, version)
    else:
        logs = yield from _read_all_groups(part, query)
    _, _, heartbeats = logs
    if isinstance(heartbeats, RmqError) and not isinstance(heartbeats, NotFoundError):
        part.proxied_unknown = heartbeats.message
    tables = [log for log in logs if isinstance(log, dict)]
    if any(ends.max_offset > 0 for log in tables for ends in log.values()):
        yield from _read_logs(part, query, logs, clock)
        if not query.is_one_by_one:
            yield from _find_new_retries(part, query)
    yield from _find_lite_topics(part, query, version)
    yield from _read_ends(part, query)
    if query.is_one_by_one:
        yield from _read_unread_queues(part, version)
    else:
        yield from _drop_removed_queues(part)
    yield from _read_removed_queues(part)
    _find_pop_groups(part, query)
    yield from _read_waiting(part, query, version)
    _find_pop_groups(part, query)
    if part.pop_groups:
        yield from _read_settings(part)
    if query.with_paused:
        yield from _read_paused(part)
    yield from _read_rest(part, query, shared, clock)
    yield from _read_known_groups(part, query, shared)


def _read_known_groups(
    part: BrokerPart, query: LagQuery, shared: SharedAnswers
) -> Task[None]:
    """Find queried groups that exist, but have neither offsets nor members."""
    shared.known_groups.update(part.groups)
    if shared.known_groups.issuperset(query.groups):
        return
    from rmqcli.api.calls.config import get_subscription_group_names

    names = yield Request(part.address or "", get_subscription_group_names())
    part.known_groups.update(set(names).intersection(query.groups))
    shared.known_groups.update(part.known_groups)


def _read_groups(
    part: BrokerPart, query: LagQuery, version: Callable[[], int]
) -> Task[Logs]:
    asked: list[tuple[str, str | None]] = [
        (group, topic) for group in query.groups for topic in query.topics or (None,)
    ]
    asked_members = () if query.members_unknown else query.groups
    outcomes = yield _all(
        part,
        *(get_consume_stats(group, topic) for group, topic in asked),
        *(get_consumer_connection_list(group) for group in asked_members),
        *map(get_topic_stats_info, _log_topics(part)),
    )
    *outcomes, revive, timers, heartbeats = outcomes
    zeros: list[tuple[str, MessageQueue]] = []
    for (group, _), outcome in zip(asked, outcomes, strict=False):
        if _is_failure(part, group, outcome):
            continue
        zeros += _take_stats(part, group, outcome)
    _take_members(part, asked_members, outcomes[len(asked) :])
    if zeros:
        yield from _resolve_zeros(part, zeros, version())
    part.known_groups.update(group for (group, _), t in part.committed.items() if t)
    return revive, timers, heartbeats


def _take_members(
    part: BrokerPart, groups: Iterable[str], answers: Iterable[Any]
) -> None:
    for group, answer in zip(groups, answers, strict=True):
        if not _is_failure(part, group, answer) and answer is not None:
            part.connections[group] = answer


def _take_inflight(
    part: BrokerPart, group: str, queue: MessageQueue, item: OffsetWrapper
) -> None:
    if item.pull_offset is not None:
        inflight = part.inflight.setdefault((group, queue.topic), {})
        inflight[queue.queue_id] = max(0, item.pull_offset - item.consumer_offset)


def _take_stats(
    part: BrokerPart, group: str, stats: ConsumeStats
) -> list[tuple[str, MessageQueue]]:
    """Record consume stats; return the queues whose 0 may mean no commit at all."""
    zeros = []
    for queue, item in stats.offsets.items():
        pair = (group, queue.topic)
        committed = part.committed.setdefault(pair, {})
        part.told.setdefault(pair, set()).add(queue.queue_id)
        if item.consumer_offset == 0:
            zeros.append((group, queue))
        else:
            committed[queue.queue_id] = item.consumer_offset
        _take_inflight(part, group, queue, item)
    return zeros


def _resolve_zeros(
    part: BrokerPart, zeros: list[tuple[str, MessageQueue]], version: int
) -> Task[None]:
    # Imported only here: a group that has consumed for a while has no zeros.
    from rmqcli.api.calls.offset import get_all_consumer_offset, query_consumer_offset

    if version >= V5_0_0 and len(zeros) <= _ZEROS_ONE_BY_ONE_MAX:
        outcomes = yield _all(
            part,
            *(
                query_consumer_offset(group, queue.topic, queue.queue_id)
                for group, queue in zeros
            ),
        )
        for (group, queue), outcome in zip(zeros, outcomes, strict=True):
            if not _is_failure(part, group, outcome) and outcome is not None:
                part.committed[group, queue.topic][queue.queue_id] = outcome
        return
    # Before 5.0 the query answers 0, too, for a queue that is empty or in memory.
    (table,) = yield _all(part, get_all_consumer_offset())
    for group, queue in zeros:
        if _is_failure(part, group, table):
            continue
        offset = table.get((group, queue.topic), {}).get(queue.queue_id)
        if offset is not None:
            part.committed[group, queue.topic][queue.queue_id] = offset


def _read_all_groups(part: BrokerPart, query: LagQuery) -> Task[Logs]:
    from rmqcli.api.calls.config import get_subscription_group_names
    from rmqcli.api.calls.offset import get_all_consumer_offset

    table, names, *logs = yield _all(
        part,
        get_all_consumer_offset(),
        get_subscription_group_names(),
        *map(get_topic_stats_info, _log_topics(part)),
    )
    for outcome in (table, names):
        if isinstance(outcome, RmqError):
            raise outcome
    wanted = set(query.groups)
    topics = set(query.topics)
    for (group, topic), offsets in table.items():
        if (not wanted or group in wanted) and (not topics or topic in topics):
            part.committed[group, topic] = dict(offsets)
            part.known_groups.add(group)
    part.known_groups.update(
        name
        for name in names
        if (name in wanted if wanted else not is_system_group(name))
    )
    if query.members_unknown:
        return tuple(logs)
    for groups in _portions(sorted(part.known_groups)):
        outcomes = yield _all(part, *map(get_consumer_connection_list, groups))
        _take_members(part, groups, outcomes)
    _drop_unsubscribed(part)
    yield from _read_inflight(part)
    return tuple(logs)


def _log_topics(part: BrokerPart) -> tuple[str, str, str]:
    """The revive topic, the timer topic, and the topic of proxies' heartbeats.

    A broker without messages in them never used POP, and serves no proxy.
    """
    return (
        f"rmq_sys_REVIVE_LOG_{part.cluster}",
        "rmq_sys_wheel_timer",
        "DefaultHeartBeatSyncerTopic",
    )


def _read_logs(
    part: BrokerPart, query: LagQuery, logs: Logs, clock: Clock
) -> Task[None]:
    """Read what POP has handed out, and which members are behind proxies."""
    from rmqcli.admin.lag.check_points import HandedOut, read_handed_out
    from rmqcli.admin.lag.proxied import read_clock_ahead_ms, read_proxy_heartbeats

    revive, timers, heartbeats = logs
    address = part.address or ""
    part.clock_ahead_ms = yield from read_clock_ahead_ms(address, clock)
    if isinstance(heartbeats, dict) and not query.members_unknown:
        part.proxy_heartbeats = yield from read_proxy_heartbeats(
            address,
            heartbeats,
            now_ms=clock.epoch_ms(),
            clock_ahead_ms=part.clock_ahead_ms,
        )
    if isinstance(revive, NotFoundError) and isinstance(timers, NotFoundError):
        return  # a broker of 4.x
    for log in (revive, timers):
        if isinstance(log, TransportError):
            raise log
        if isinstance(log, RmqError):
            part.handed_out = HandedOut(reason=log.message)
            return
    if isinstance(revive, dict):
        try:
            part.handed_out = yield from read_handed_out(
                address,
                part.broker_name,
                revive_queues=revive.keys(),
                groups=query.groups,
                now_ms=clock.epoch_ms() + part.clock_ahead_ms,
            )
        except TransportError:
            raise
        except RmqError as error:
            part.handed_out = HandedOut(reason=error.message)


def _find_new_retries(part: BrokerPart, query: LagQuery) -> Task[None]:
    """Add retry topics that POP has created since the table of offsets was read.

    Until then nothing was committed there, so that all of their messages wait.
    """
    from rmqcli.api.calls.offset import get_all_consumer_offset

    table = yield Request(part.address or "", get_all_consumer_offset())
    for (group, topic), offsets in table.items():
        if (
            is_pop_retry(topic, group)
            and (not query.groups or group in query.groups)
            and (not query.topics or topic in query.topics)
        ):
            part.committed.setdefault((group, topic), dict.fromkeys(offsets, 0))


def _find_pop_groups(part: BrokerPart, query: LagQuery) -> None:
    """Note which of the groups consume by POP, as far as anything shows it."""
    found = {group for group, topic in part.committed if is_pop_retry(topic, group)}
    found.update(
        group
        for group, seen in part.connections.items()
        if any(is_grpc_client(each.client_id) for each in seen.connections)
    )
    found.update(group for group, _ in part.proxy_heartbeats)
    if part.handed_out is not None:
        found.update(group for group, _ in part.handed_out.offsets)
    part.pop_groups = found.intersection(query.groups) if query.groups else found


def _read_settings(part: BrokerPart) -> Task[None]:
    """Note which groups are orderly, and whether check points can be read."""
    from rmqcli.admin.lag.check_points import HandedOut
    from rmqcli.api.calls.config import (
        get_all_subscription_group_config,
        get_broker_config,
    )

    config, groups = yield _all(
        part, get_broker_config(), get_all_subscription_group_config()
    )
    for outcome in (config, groups):
        if isinstance(outcome, TransportError):
            raise outcome
    if not isinstance(groups, RmqError):
        part.orderly_groups = {
            name
            for name in part.pop_groups
            if name in groups and groups[name].consume_message_orderly
        }
    if (
        not isinstance(config, RmqError)
        and config.get("popConsumerKVServiceEnable") == "true"
    ):
        part.handed_out = HandedOut(
            reason="what POP has handed out is not known: its broker keeps check points"
            " in RocksDB (popConsumerKVServiceEnable), which no request reads"
        )


def _read_paused(part: BrokerPart) -> Task[None]:
    """Note the groups whose consumption is switched off; not if that is refused."""
    from rmqcli.api.calls.config import get_all_subscription_group_config

    groups = yield from _if_told(part, get_all_subscription_group_config())
    part.paused_groups = {g for g, c in (groups or {}).items() if not c.consume_enable}


def _drop_unsubscribed(part: BrokerPart) -> None:
    """Drop topics to which an online group does not subscribe, as consume stats do."""
    for group, topic in list(part.committed):
        seen = part.connections.get(group)
        if (
            seen is not None
            and seen.subscriptions
            and topic not in seen.subscriptions
            and not is_pop_retry(topic, group)
        ):
            del part.committed[group, topic]


def _read_inflight(part: BrokerPart) -> Task[None]:
    """Read how much is pulled and not committed; only online groups have any."""
    for groups in _portions(sorted(part.connections)):
        outcomes = yield _all(part, *map(get_consume_stats, groups))
        for group, outcome in zip(groups, outcomes, strict=True):
            if _is_failure(part, group, outcome):
                continue
            for queue, item in outcome.offsets.items():
                _take_inflight(part, group, queue, item)


def _find_lite_topics(
    part: BrokerPart, query: LagQuery, version: Callable[[], int]
) -> Task[None]:
    """Note which groups consume lite topics, whose lag no request tells.

    Their offsets are in a broker's whole table only. Of a group that is queried by
    name and has no other offsets, the settings tell.
    """
    for group, topic in list(part.committed):
        lite = lite_topic_of(topic)
        if lite is not None:
            part.lite_topics[group] = lite[0]
            del part.committed[group, topic]
    silent = {*query.groups} - {
        group for (group, _), at in part.committed.items() if at
    }
    if not query.is_one_by_one or not silent or version() < V5_5_0:
        return
    from rmqcli.api.calls.config import get_all_subscription_group_config
    from rmqcli.wire.bodies.lite import LITE_BIND_TOPIC

    groups = (yield from _if_told(part, get_all_subscription_group_config())) or {}
    for group in silent & groups.keys():
        bound = groups[group].attributes.get(LITE_BIND_TOPIC)
        if bound:
            part.lite_topics[group] = bound
            part.known_groups.add(group)


def _read_ends(part: BrokerPart, query: LagQuery) -> Task[None]:
    for group, seen in part.connections.items():
        for topic in seen.subscriptions:
            if not query.topics or topic in query.topics:
                part.committed.setdefault((group, topic), {})
    topics = {topic for _, topic in part.committed}.union(query.topics)
    yield from _read_ends_of(part, topics)


def _read_ends_of(part: BrokerPart, topics: Iterable[str]) -> Task[None]:
    """Read the ends of topics; where the broker refuses to tell them, note why."""
    for portion in _portions(sorted(topics)):
        outcomes = yield _all(part, *map(get_topic_stats_info, portion))
        for topic, outcome in zip(portion, outcomes, strict=True):
            if isinstance(outcome, NotFoundError):
                part.ends[topic] = None
                continue
            ends = _ends_of(outcome)
            if isinstance(ends, RmqError):
                part.unread_topics[topic] = ends.message
            else:
                part.ends[topic] = ends


def _read_unread_queues(part: BrokerPart, version: Callable[[], int]) -> Task[None]:
    """Read the offsets in queues that are written and not read any more.

    Consume stats end with the read queues of a topic.
    """
    untold = [
        (group, MessageQueue(topic, part.broker_name, queue_id))
        for (group, topic), told in part.told.items()
        for queue_id in (part.ends.get(topic) or {}).keys() - told
    ]
    if untold:
        yield from _resolve_zeros(part, untold, version())


def _drop_removed_queues(part: BrokerPart) -> Task[None]:
    """Drop offsets in queues that were removed from a topic, as consume stats do.

    A broker's whole table keeps them, and no member can read these queues.
    """
    doubtful = {topic for topic, _ in _queues_left_out(part)}
    asked = {topic: group for group, topic in part.committed if topic in doubtful}
    outcomes = yield _all(
        part, *(get_consume_stats(group, topic) for topic, group in asked.items())
    )
    for (topic, group), outcome in zip(asked.items(), outcomes, strict=True):
        if _is_failure(part, group, outcome):
            continue
        readable = {q.queue_id for q in outcome.offsets if q.topic == topic}
        ends = part.ends.get(topic)
        for (group_of, each), offsets in part.committed.items():
            if each == topic and readable and ends is not None:
                for queue_id in offsets.keys() - readable - ends.keys():
                    removed = part.removed.setdefault((group_of, topic), {})
                    removed[queue_id] = offsets.pop(queue_id)


def _read_removed_queues(part: BrokerPart) -> Task[None]:
    """Count what a group has not read in queues that were removed from a topic.

    The table of all offsets has these queues; of a group that is queried by name, only
    the record of an earlier run does. A topic that was created again has none of them.
    """
    for pair, nums in part.remembered.items():
        if ends := part.ends.get(pair[1]):
            gone = range(max(ends) + 1, nums)
            part.removed.setdefault(pair, {}).update(dict.fromkeys(gone))
    asked = [
        (pair, queue_id, committed)
        for pair, queues in part.removed.items()
        for queue_id, committed in sorted(queues.items())[:_REMOVED_ASKED_MAX]
    ]
    if not asked:
        return
    from rmqcli.api.calls.offset import (
        get_max_offset,
        get_min_offset,
        query_consumer_offset,
    )

    outcomes = yield _all(
        part,
        *(get_min_offset(topic, queue_id) for (_, topic), queue_id, _ in asked),
        *(get_max_offset(topic, queue_id) for (_, topic), queue_id, _ in asked),
        *(query_consumer_offset(*pair, queue_id) for pair, queue_id, _ in asked),
    )
    count = len(asked)
    for (pair, queue_id, committed), low, high, found in zip(
        asked, outcomes, outcomes[count:], outcomes[2 * count :], strict=False
    ):
        at = found if committed is None else committed
        unread = None
        if isinstance(low, int) and isinstance(high, int):
            if at is None or isinstance(at, int):
                unread = high - min(max(low if at is None else at, low), high)
            elif low == high:
                unread = 0
        if unread != 0:
            part.unreachable.setdefault(pair, {})[queue_id] = unread


def _read_waiting(
    part: BrokerPart, query: LagQuery, version: Callable[[], int]
) -> Task[None]:
    """Read retry topics that consume stats left out, and count the dead letters.

    Consume stats leave a retry topic out when the group never committed in it, or has
    members that do not subscribe to it.
    """
    groups = query.groups or sorted(part.known_groups.union(part.connections))
    asked = [] if query.topics else _retries_left_out(part, query, groups)
    asked += [(group, dlq_topic(group)) for group in groups]
    zeros: list[tuple[str, MessageQueue]] = []
    for pairs in _portions(asked):
        outcomes = yield _all(
            part, *(get_topic_stats_info(topic) for _, topic in pairs)
        )
        for (group, topic), outcome in zip(pairs, outcomes, strict=True):
            ends = _ends_of(outcome)
            is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
            if isinstance(ends, RmqError) and is_retry:
                part.unread_retries[group, topic] = ends.message
            elif isinstance(ends, RmqError):
                part.unread_letters[group] = ends.message
            elif not is_retry:
                count = sum(high - low for low, high in ends.values())
                part.dead_letters[group] = count
            elif any(low < high for low, high in ends.values()):
                part.committed[group, topic] = {}
                part.ends[topic] = ends
                zeros += [
                    (group, MessageQueue(topic, part.broker_name, queue_id))
                    for queue_id in ends
                ]
    if zeros:
        yield from _resolve_zeros(part, zeros, version())
        yield from _drop_retries_of_others(part)
        # Max offsets are read after committed offsets, as everywhere.
        yield from _read_ends_of(part, {queue.topic for _, queue in zeros})


def _drop_retries_of_others(part: BrokerPart) -> Task[None]:
    """Drop retry topics that another group has under the older of POP's two names.

    `%RETRY%billing_orders` is what POP calls the retry topic of `billing` for `orders`,
    and also that of a group `billing_orders`. POP commits in it for its own group.
    """
    unsure = {
        pair: pair[1].removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        for pair, offsets in part.committed.items()
        if not offsets and pair[1].startswith(f"{retry_topic(pair[0])}_")
    }
    if not unsure:
        return
    from rmqcli.api.calls.config import get_subscription_group_names

    names = yield from _if_told(part, get_subscription_group_names())
    for pair, other in unsure.items():
        if other in (names or ()):
            del part.committed[pair]


def _retries_left_out(
    part: BrokerPart, query: LagQuery, groups: Iterable[str]
) -> list[GroupTopic]:
    """Return the groups' retry topics in which nothing was found to be committed.

    POP commits the beginning of a retry topic when it creates it, so that the whole
    table of offsets has those of POP. A broker that never used POP has none.
    """
    found = [(group, retry_topic(group)) for group in groups]
    if query.is_one_by_one and (part.handed_out is not None or part.pop_groups):
        found += [
            (group, retry)
            for group, topic in part.committed
            if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
            for retry in pop_retry_topics(group, topic)
        ]
    return [pair for pair in found if pair not in part.committed]


def read_topics_of_others(part: BrokerPart, wanted: Iterable[GroupTopic]) -> Task[None]:
    """Read the ends of topics that groups consume at other brokers.

    The groups will consume them here, too. While no member is online, a broker where a
    group never committed knows nothing of it: the broker was added, or lost its
    offsets.
    """
    pairs = list(wanted)
    known = part.ends.keys() | part.unread_topics.keys()
    try:
        yield from _read_ends_of(part, {topic for _, topic in pairs} - known)
    except TransportError as error:
        part.failure = error
        return
    for pair in pairs:
        if part.ends.get(pair[1]) is not None or pair[1] in part.unread_topics:
            part.committed[pair] = {}


def _ends_of(
    outcome: dict[MessageQueue, TopicOffset] | RmqError,
) -> dict[int, tuple[int, int]] | RmqError:
    """Return the ends of a topic's queues; empty without the topic.

    Where a broker refuses to tell them, returns its error.
    """
    if isinstance(outcome, NotFoundError):
        return {}
    if isinstance(outcome, TransportError):
        raise outcome
    if isinstance(outcome, RmqError):
        return outcome
    return {
        q.queue_id: (item.min_offset, item.max_offset) for q, item in outcome.items()
    }


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items by the thousand: requests for all at once take much memory."""
    for first in range(0, len(items), _ASKED_AT_ONCE_MAX):
        yield items[first : first + _ASKED_AT_ONCE_MAX]


def _if_told(part: BrokerPart, call: Call[T]) -> Task[T | None]:
    """Return the answer of the part's broker; None if the broker refuses it."""
    (answer,) = yield _all(part, call)
    if isinstance(answer, TransportError):
        raise answer
    return None if isinstance(answer, RmqError) else answer


def _all(part: BrokerPart, *calls: Call[Any]) -> All:
    """Send these calls to the part's broker side by side."""
    return All([Request(part.address or "", call) for call in calls])


def _read_rest(
    part: BrokerPart, query: LagQuery, shared: SharedAnswers, clock: Clock
) -> Task[None]:
    address = part.address or ""
    parts: dict[tuple[str, Any], Part] = {
        ("age", (group, topic)): Request(address, query_consume_time_span(topic, group))
        for group, topic in part.committed
        if _has_lag(part, (group, topic))
    }
    for queue in _queues_left_out(part):
        from rmqcli.api.calls.offset import get_max_offset, get_min_offset

        calls = get_min_offset(*queue), get_max_offset(*queue)
        parts["ends", queue] = _all(part, *calls)
    timeout_ms = None if query.process_queues else OWNER_TIMEOUT_MS
    for member in _clients_to_ask(part, query, shared):
        call = get_consumer_running_info(*member)
        parts["member", member] = Request(address, call, timeout_ms)
    if not parts:
        return
    answers = yield All(list(parts.values()))
    for (what, about), outcome in zip(parts, answers, strict=True):
        if what == "member":
            shared.clients[about] = outcome
        elif what == "ends":
            ends, (low, high) = part.ends[about[0]], outcome
            if isinstance(low, int) and isinstance(high, int) and ends is not None:
                ends[about[1]] = (low, high)
        elif isinstance(outcome, NotFoundError):
            part.ends[about[1]] = None  # it was deleted after its ends were read
        elif isinstance(outcome, RmqError):
            is_bug = "NullPointerException" in outcome.message
            if not (is_bug and (yield from _read_first_unread(part, about, clock))):
                part.unread_ages.setdefault(about[0], []).append(outcome.message)
        else:
            part.spans[about] = {span.queue.queue_id: span for span in outcome}


def _read_first_unread(part: BrokerPart, pair: GroupTopic, clock: Clock) -> Task[bool]:
    """Read the age of what waits from the messages; return whether all told it.

    Java cannot tell the times of a topic of batches that has an empty queue.
    """
    from rmqcli.admin.lag.proxied import read_clock_ahead_ms
    from rmqcli.api.calls.pull import pull_message
    from rmqcli.wire.message.decode import decode_messages
    from rmqcli.wire.message.record import StoredMessage

    committed = part.committed[pair]
    starts = {
        MessageQueue(pair[1], part.broker_name, queue_id): max(low, committed[queue_id])
        for queue_id, (low, high) in (part.ends.get(pair[1]) or {}).items()
        if queue_id in committed and committed[queue_id] < high
    }
    ahead_ms = yield from read_clock_ahead_ms(part.address or "", clock)
    answers = yield _all(
        part,
        *(
            pull_message(queue, start, max_msg_nums=1)
            for queue, start in starts.items()
        ),
    )
    now_ms = clock.epoch_ms() + ahead_ms
    spans = part.spans.setdefault(pair, {})
    for (queue, start), answer in zip(starts.items(), answers, strict=True):
        if isinstance(answer, RmqError):
            continue
        for message in decode_messages(answer.body):
            if isinstance(message, StoredMessage) and message.queue_offset >= start:
                age_ms = max(0, now_ms - message.store_timestamp_ms)
                spans[queue.queue_id] = QueueTimeSpan(queue=queue, delay_time=age_ms)
                break
    return 0 < len(starts) == len(spans)


def _has_lag(part: BrokerPart, pair: GroupTopic) -> bool:
    """Whether a message waits, so that its age is worth a request."""
    ends = part.ends.get(pair[1])
    if not ends:
        return False
    committed = part.committed[pair]
    is_retry = pair[1].startswith(RETRY_GROUP_TOPIC_PREFIX)
    return any(
        # Where a group without a commit will start is only known for a retry topic.
        committed.get(queue_id, low if is_retry else high) < high
        for queue_id, (low, high) in ends.items()
    )


def _queues_left_out(part: BrokerPart) -> Iterable[tuple[str, int]]:
    """Return the committed queues beyond the write queues that a broker lists."""
    found: set[tuple[str, int]] = set()
    for (_, topic), offsets in part.committed.items():
        ends = part.ends.get(topic)
        if ends is not None:
            found.update((topic, queue_id) for queue_id in offsets.keys() - ends.keys())
    return sorted(found)


def _clients_to_ask(
    part: BrokerPart, query: LagQuery, shared: SharedAnswers
) -> Iterable[tuple[str, str]]:
    if not (query.process_queues or query.wants_owners):
        return
    for group, seen in part.connections.items():
        if not query.process_queues and len(seen.connections) > OWNERS_ASKED_MAX:
            continue
        for connection in seen.connections:
            member = (group, connection.client_id)
            if member not in shared.clients and not is_grpc_client(member[1]):
                shared.clients[member] = None  # reserved; the answer follows
                yield member


def _is_failure(part: BrokerPart, group: str, outcome: object) -> bool:
    """Return whether `outcome` is an error of one group, and record it.

    Raises an error that concerns the whole broker.
    """
    if isinstance(outcome, TransportError):
        raise outcome
    if isinstance(outcome, RmqError):
        part.group_failures.setdefault(group, outcome)
        return True
    return False
