"""Flushing retries: copies now what waits in the delay levels for its next try.

A second source of letters for the engine of redrives: messages that a group failed to
consume, and that wait in a delay level until the broker moves them to the group's retry
topic. The copy gets what the broker would give it then: the queue, the number of tries,
the time of birth and the properties, among them the message's id and its origin. One
property is added, which names the original (`FLUSHED_FROM`).

No broker removes the original: it comes at its time, too. A delay level has no request
for it, and the one that deletes a message by its id (RECALL_MESSAGE, from 5.3.2 on) is
for the timer wheel, while retries are in delay levels. So a message is flushed once, by
the log, and a copy that failed again only if asked for: each flush is one more
delivery.

Source: ScheduleMessageService.messageTimeUp, HookUtils.handleScheduleMessage,
AbstractSendMessageProcessor.consumerSendMsgBack and SendMessageProcessor
.handleRetryAndDLQ in apache/rocketmq.
"""

from __future__ import annotations

import heapq
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.admin.brokers import ask_each, denial_of, reader_addresses, split_answers
from rmqcli.admin.delayed import clock_of_broker
from rmqcli.admin.dlq.letter import FLUSHED_FROM, facts_of, place_of
from rmqcli.admin.dlq.log import DOUBTFUL, SENT, LetterPlace
from rmqcli.admin.dlq.retries import delayed_retries
from rmqcli.admin.lag.gather import read_pop_lag
from rmqcli.admin.lag.memory import departed_errors_of_group
from rmqcli.admin.positions import check_group_names
from rmqcli.api.calls.consumer import get_consumer_connection_list
from rmqcli.api.calls.offset import get_all_consumer_offset
from rmqcli.checked import check_int
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RefusedError, RmqError
from rmqcli.model import MessageQueue, retry_topic
from rmqcli.position import LONG_MAX
from rmqcli.producer.message import PROPERTIES_RESERVE_BYTES
from rmqcli.producer.remoting.target import PublishTarget, find_target
from rmqcli.redrive.letter import Letter, Retry
from rmqcli.redrive.redrive import (
    DOUBTFUL_NAMED_MAX,
    NOT_UTF8,
    LeftOut,
    committed_topics,
    is_utf8,
    leave_out,
    popped_fault,
    popped_topics,
)
from rmqcli.units import counted, read_count
from rmqcli.wire.message.properties import PROPERTIES_BYTES_MAX, UNIQ_KEY
from rmqcli.wire.message.system_flag import content_flags

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmqcli.admin.dlq.log import LetterStates
    from rmqcli.admin.lag.model import PopLag
    from rmqcli.api.client import Client
    from rmqcli.redrive.redrive import LetterSource
    from rmqcli.wire.bodies.consumer import ConsumerConnection
    from rmqcli.wire.message.record import StoredMessage

#: Why a message is not flushed.
FLUSHED: Final = "flushed before; the original still waits"
FAILED_AGAIN: Final = "failed again after a flush"
DUE: Final = "due now: the broker delivers it itself"
OVER_LIMIT: Final = "not among those that come next, by the limit"

#: What a broker would act upon when the copy is sent, and what is written anew.
_DROPPED: Final = frozenset(
    name.encode()
    for name in (
        *("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS"),
        *("TRAN_MSG", "WAIT", "__CRC32#", UNIQ_KEY, FLUSHED_FROM),
    )
)
_MARKED: Final = f"{FLUSHED_FROM}\x01".encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushRequest:
    """Which messages that wait for a group to flush.

    With `topic` only those that were first sent to it, and with `limit` at most as
    many, those that come next first. With `again` also what was flushed before.
    """

    group: str
    topic: str | None = None
    limit: int | None = None
    again: bool = False


@dataclass(slots=True)
class FlushedTopic:
    """The messages of one topic that a flush copies; times are epoch ms.

    `oldest_ms` is since when the first of them waits. By the clocks of the brokers, the
    originals come from `next_ms` to `last_ms`; None where that is not known of any.
    `undated` counts those of which it is not known.
    """

    count: int = 0
    oldest_ms: int | None = None
    next_ms: int | None = None
    last_ms: int | None = None
    undated: int = 0

    def add(self, stored_ms: int, next_ms: int | None) -> None:
        """Count a message."""
        self.count += 1
        self.oldest_ms = min(stored_ms, self.oldest_ms or stored_ms)
        if next_ms is None:
            self.undated += 1
            return
        self.next_ms = min(next_ms, self.next_ms or next_ms)
        self.last_ms = max(next_ms, self.last_ms or next_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushPlan:
    """What a flush would do: copy `count` messages, each of which comes once more.

    `topics` are they, by the topic to which they were first sent. `left_out` are the
    others, by reason. `doubtful` names those that an earlier flush may have copied
    already, at most 100,000 of `doubtful_count`. `unread` has the brokers of which not
    all is known: a flush copies what waits on the others. `scanned` counts messages
    of all groups that were read. `members` is how many members are connected, None if
    a broker did not tell. `pop` is what POP has handed out, which no flush can bring
    forward; None if nothing shows that the group uses POP.

    `ends` are the offsets up to which queues were read, and `places` the messages that
    a limit has chosen; None without a limit.
    """

    request: FlushRequest
    scanned: int
    topics: dict[str, FlushedTopic] = field(hash=False)
    left_out: dict[str, LeftOut] = field(hash=False)
    doubtful: tuple[str, ...]
    doubtful_count: int
    unread: dict[str, RmqError] = field(hash=False)
    members: int | None
    pop: PopLag | None
    addresses: dict[str, str] = field(hash=False)
    ends: dict[MessageQueue, int] = field(hash=False)
    places: frozenset[LetterPlace] | None

    @property
    def count(self) -> int:
        """How many messages would be copied, and come once more."""
        return sum(each.count for each in self.topics.values())

    def source(self, client: Client) -> LetterSource:
        """Return the copies to store."""
        return _WaitingSource(client, self)


class _Found(NamedTuple):
    """A message to flush."""

    next_ms: int | None
    queue: MessageQueue
    place: LetterPlace
    topic: str
    state: int


def plan_flush(
    client: Client, request: FlushRequest, states: LetterStates
) -> FlushPlan:
    """Find what waits for a group, and say what a flush would do. Changes nothing.

    Raises NotFoundError when the group does not exist, or a topic for which nothing
    waits; RefusedError when all that waits is what POP has handed out; DeniedError when
    all brokers deny access, and NoBrokerError when none answers.
    """
    if request.limit is not None:
        check_int(request.limit, "limit", 1, LONG_MAX)
    group = request.group
    addresses = reader_addresses(client.cluster_info().brokers.values())
    unread: dict[str, RmqError] = {}
    left_out: dict[str, LeftOut] = {}
    scanned = flushable = 0
    rules = None
    committed, errors = _committed(client, group, addresses)
    # A slave may be behind, so that nothing is copied from it.
    unread |= errors | departed_errors_of_group(client, group, addresses)
    pop = read_pop_lag(client, group)
    try:
        target = find_target(client, retry_topic(group))
        rules = _Rules(request, target, committed, pop)
    except NotFoundError:
        check_group_names(client, [group])  # nothing of the group has failed yet

    def found_in(rules: _Rules) -> Iterator[_Found]:
        nonlocal scanned, flushable
        for name, address in addresses.items():
            if name in unread:
                continue
            try:
                now_ms = clock_of_broker(client, address).epoch_ms
                for queue, message, next_ms in delayed_retries(
                    client, group, name, address
                ):
                    scanned += 1
                    if message is None or not rules.is_meant(message):
                        continue
                    place = LetterPlace.of(queue, message)
                    state = states.get(place)
                    fault = rules.fault(queue, message, next_ms, state, now_ms)
                    if fault is None:
                        flushable += 1
                        topic = facts_of(group, message).origin_topic or "-"
                        yield _Found(next_ms, queue, place, topic, state)
                    else:
                        leave_out(left_out, fault, queue, message.queue_offset)
            except RmqError as error:
                unread[name] = error

    found: Iterator[_Found] = iter(())
    if rules is not None:
        found = found_in(rules)
    places: set[LetterPlace] | None = None
    if request.limit is not None:
        places = set()
        chosen = heapq.nsmallest(
            request.limit,
            found,
            key=lambda e: (e.next_ms or 0, e.queue, e.place.queue_offset),
        )
        if flushable > len(chosen):
            left_out[OVER_LIMIT] = LeftOut(flushable - len(chosen), "")
        found = iter(chosen)
    topics: dict[str, FlushedTopic] = {}
    doubtful: list[str] = []
    doubtful_count = 0
    ends: dict[MessageQueue, int] = {}
    for each in found:
        place = each.place
        counts = topics.setdefault(each.topic, FlushedTopic())
        counts.add(place.store_timestamp_ms or 0, each.next_ms)
        ends[each.queue] = max(ends.get(each.queue, 0), place.queue_offset + 1)
        if places is not None:
            places.add(place)
        if each.state == DOUBTFUL:
            doubtful_count += 1
            if len(doubtful) < DOUBTFUL_NAMED_MAX:
                doubtful.append(str(place))
    if addresses and unread.keys() >= addresses.keys():
        asked = [unread[name] for name in addresses]
        client.raise_if_none_answers(asked)
        raise denial_of(asked) or asked[0]
    online = ask_each(client, addresses, get_consumer_connection_list(group))
    if not topics and not left_out and not unread:
        if denial := denial_of(online.values()):
            raise denial
        _refuse_pop(group, pop)
        if request.topic is not None:
            client.route(request.topic)  # says that there is no such topic
    return FlushPlan(
        request=request,
        scanned=scanned,
        topics=dict(sorted(topics.items())),
        left_out=left_out,
        doubtful=tuple(doubtful),
        doubtful_count=doubtful_count,
        unread=unread,
        members=_member_count(online),
        pop=pop,
        addresses=addresses,
        ends=ends,
        places=None if places is None else frozenset(places),
    )


def _refuse_pop(group: str, pop: PopLag | None) -> None:
    if pop is not None and pop.inflight:
        raise RefusedError(
            f"nothing of group {group} waits in a delay level, and what POP has handed"
            f" out ({counted(pop.inflight, 'message')}) waits for an acknowledgement:"
            " only the consumer that holds a message can end its invisible time",
            hint="each comes back by itself when its invisible time ends",
        )


def _member_count(
    online: Mapping[str, ConsumerConnection | RmqError | None],
) -> int | None:
    found, errors = split_answers(online)
    if errors:
        return None
    return len(
        {c.client_id for each in found.values() if each for c in each.connections}
    )


def _committed(
    client: Client, group: str, addresses: Mapping[str, str]
) -> tuple[set[str], dict[str, RmqError]]:
    """Return the topics in which a group has offsets, and the errors of brokers."""
    answers = ask_each(client, addresses, get_all_consumer_offset())
    tables, errors = split_answers(answers)
    committed: set[str] = set()
    for table in tables.values():
        committed |= committed_topics(table, group)
    return committed, errors


class _Rules:
    """Which messages are flushed, and how their copies look.

    `committed` are the topics in which the group has offsets. With what POP has handed
    out they show whether it reads its retry topic.
    """

    def __init__(
        self,
        request: FlushRequest,
        target: PublishTarget,
        committed: set[str],
        pop: PopLag | None,
    ) -> None:
        self._request = request
        self._popped = popped_topics(committed, request.group)
        uses_pop = pop is not None and pop.reason is None
        self._is_read = target.topic in committed or not uses_pop
        self.target = target

    def is_meant(self, message: StoredMessage) -> bool:
        """Whether the request is about the topic of this message."""
        topic = self._request.topic
        origin = facts_of(self._request.group, message).origin_topic
        return topic is None or origin == topic

    def fault(
        self,
        queue: MessageQueue,
        message: StoredMessage,
        next_ms: int | None,
        state: int,
        now_ms: int,
    ) -> str | None:
        """Return why a message is not flushed."""
        raw = message.raw_properties
        topic = facts_of(self._request.group, message).origin_topic
        if next_ms is not None and next_ms <= now_ms:
            return DUE
        if not self._request.again:
            if state == SENT:
                return FLUSHED
            if FLUSHED_FROM in message.properties:
                return FAILED_AGAIN
        if topic in self._popped:
            return popped_fault(self._request.group, str(topic))
        if not self._is_read:
            return (
                "the group consumes by POP and has committed nothing in"
                f" {self.target.topic}, so nothing shows that it reads that topic"
            )
        if not is_utf8(raw):
            return NOT_UTF8
        size_bytes = len(self._properties(queue, message)) + len(UNIQ_KEY) + 50
        if size_bytes > PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES:
            return f"its properties would need {size_bytes:,} bytes"
        return None

    def copy(self, queue: MessageQueue, message: StoredMessage) -> Letter:
        """Return the copy to store."""
        return Letter(
            LetterPlace.of(queue, message),
            self.target.topic,
            message.raw_body,
            self._properties(queue, message),
            message.flag,
            Retry(
                queue_id=read_count(message.properties.get("REAL_QID")) or 0,
                reconsume_times=message.reconsume_times,
                sys_flag=content_flags(message.sys_flag),
                born_timestamp_ms=message.born_timestamp_ms,
                msg_id=message.properties.get(UNIQ_KEY),
            ),
        )

    def _properties(self, queue: MessageQueue, message: StoredMessage) -> bytes:
        kept = [
            entry
            for entry in message.raw_properties.split(b"\x02")
            if entry and entry.partition(b"\x01")[0] not in _DROPPED
        ]
        kept.append(_MARKED + place_of(queue, message.queue_offset).encode())
        return b"\x02".join([*kept, b""])


class _WaitingSource:
    """See LetterSource."""

    def __init__(self, client: Client, plan: FlushPlan) -> None:
        self._client = client
        self._plan = plan
        brokers = {queue.broker_name for queue in plan.ends}
        self._addresses = {n: a for n, a in plan.addresses.items() if n in brokers}
        group = plan.request.group
        committed, self.unread = _committed(client, group, self._addresses)
        target = find_target(client, retry_topic(group))
        self._rules = _Rules(plan.request, target, committed, plan.pop)
        self.is_retry = True
        self.address = next(iter(target.addresses.values()))

    def target(self, _topic: str) -> PublishTarget:
        """See LetterSource."""
        return self._rules.target

    def letters(
        self, states: LetterStates, is_stopped: Callable[[], bool]
    ) -> Iterator[Letter]:
        """See LetterSource. What came due since the plan is left to its broker."""
        plan, rules, clock = self._plan, self._rules, self._client.clock
        group = plan.request.group
        for name, address in self._addresses.items():
            if name in self.unread:
                continue
            try:
                broker_ms = clock_of_broker(self._client, address).epoch_ms
                ahead_ms = broker_ms - clock.monotonic_ms()
                for queue, message, next_ms in delayed_retries(
                    self._client, group, name, address
                ):
                    if is_stopped():
                        return
                    if message is None or not rules.is_meant(message):
                        continue
                    if message.queue_offset >= plan.ends.get(queue, 0):
                        continue
                    place = LetterPlace.of(queue, message)
                    if plan.places is not None and place not in plan.places:
                        continue
                    state, now_ms = states.get(place), clock.monotonic_ms() + ahead_ms
                    if rules.fault(queue, message, next_ms, state, now_ms) is None:
                        yield rules.copy(queue, message)
            except RmqError as error:
                self.unread[name] = error

    def died(self, stored: str, topic: str, why: str) -> RefusedError:
        """See LetterSource."""
        return RefusedError(
            f"{stored} a copy in {topic} {why}; the original still waits",
            hint="stop the group's consumers for a minute",
        )
