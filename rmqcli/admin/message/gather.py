"""Reads what became of a message in each group of its topic.

All brokers are asked side by side, for several messages at once, in steps whose order
matters: committed offsets are read before members, and before copies are looked for. A
member that fails sends its message back before it commits, so a group that is past the
message has left its copy by then.

Copies of a message for a retry keep its unique id, under which the index has them in
`%RETRY%group`, in the retry topics of POP, in `SCHEDULE_TOPIC_XXXX` while their delay
lasts, and in `%DLQ%group`. They may be on any broker.

Source: AdminBrokerProcessor, QueryMessageProcessor, ScheduleMessageService and
KeyBuilder in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from rmqcli.admin.brokers import reader_addresses, split_answers
from rmqcli.admin.delayed import delay_levels_ms, delivered_levels
from rmqcli.admin.dlq.letter import ORIGIN_MESSAGE_ID
from rmqcli.admin.lag.check_points import (
    REVIVE_TOPIC_PREFIX,
    PopDeliveries,
    PopPlace,
    read_deliveries,
)
from rmqcli.admin.lag.memory import departed_brokers
from rmqcli.admin.lag.proxied import ask_proxied_members, filters_since_ms
from rmqcli.admin.message.pending import (
    PendingOutcome,
    is_pending,
    judge_pending,
    level_due_ms,
)
from rmqcli.admin.message.place import PlaceState, check_place, removed_because
from rmqcli.admin.message.records import (
    PENDING_TOPICS,
    count_records,
    decode_all,
    decode_found,
    query_message_max,
)
from rmqcli.admin.message.verdict import (
    GroupEvidence,
    GroupVerdict,
    Holder,
    MessageCopy,
    MessageVerdict,
    MovedBack,
    judge,
    letter_of,
)
from rmqcli.admin.positions import is_missing
from rmqcli.admin.reset.cluster_identity import identity_of, is_same_cluster
from rmqcli.admin.topics import ask_topic
from rmqcli.admin.witness import ANOTHER
from rmqcli.api.broker_errors import not_found, unanswered
from rmqcli.api.calls.config import (
    get_all_subscription_group_config,
    get_broker_config,
    get_broker_runtime_info,
)
from rmqcli.api.calls.consumer import (
    check_client_config,
    get_consumer_connection_list,
    get_consumer_running_info,
)
from rmqcli.api.calls.offset import get_all_consumer_offset, query_consumer_offset
from rmqcli.api.calls.pop import orderly_pop_has_messages
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.stats import get_consume_stats
from rmqcli.api.calls.store import QUERY_MESSAGE_MAX, query_message
from rmqcli.api.positions import broker_clock
from rmqcli.api.runner import run_tasks
from rmqcli.client_id import is_grpc_client
from rmqcli.dataclass import dataclass
from rmqcli.engine.message import RETRY_TOPIC
from rmqcli.errors import NotFoundError, RmqError, UnsupportedError
from rmqcli.model import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_TOPIC,
    dlq_topic,
    is_pop_retry,
    is_system_group,
    pop_retry_topics,
    retry_topic,
)
from rmqcli.tasks import All, Request
from rmqcli.units import DAY_MS, counted, read_count
from rmqcli.wire.bodies.lite import LITE_BIND_TOPIC
from rmqcli.wire.message.properties import REAL_TOPIC, lmq_of
from rmqcli.wire.subscription import SQL92
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import (
        Collection,
        Generator,
        Hashable,
        Iterable,
        Mapping,
        Sequence,
    )
    from typing import TypeAlias

    from rmqcli.admin.dlq.redriven import SaysOfLetter
    from rmqcli.admin.lag.check_points import PopDelivery
    from rmqcli.admin.lag.proxied import ProxiedMembers
    from rmqcli.admin.reset.backup import Backup
    from rmqcli.admin.reset.cluster_identity import ClusterIdentity
    from rmqcli.admin.topics import TopicDetail
    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue, TopicRoute
    from rmqcli.tasks import Part, Task
    from rmqcli.wire.bodies.consumer import ProcessQueueInfo
    from rmqcli.wire.subscription import SubscriptionData

    #: What is asked at one time. Tasks with equal keys are the same question.
    _Questions: TypeAlias = "Mapping[Any, Part]"
    #: Yields questions, and is resumed with the answers by key, errors as values.
    _Asking: TypeAlias = "Generator[_Questions, Any, T]"

T = TypeVar("T")

_FIRST_POP_TIME = "1ST_POP_TIME"  # MessageConst.PROPERTY_FIRST_POP_TIME
_POP = "CONSUME_POP"  # ConsumeType.CONSUME_POP
_HOUR_MS = 3_600_000
_MEMBERS_ASKED_MAX = 64
_REMOVED = (
    "it is no longer in the topic, and the group's offsets are those of the topic of"
    " now: whether it was consumed is not recorded"
)
#: Verdicts that rest on offsets, and so on the message's place in its queue.
_BY_OFFSET = (
    MessageVerdict.CONSUMED,
    MessageVerdict.WAITING,
    MessageVerdict.IN_FLIGHT,
)
#: A member that does not answer must not hold up the rest.
_MEMBER_TIMEOUT_MS = 1_000
#: An index that is further behind the log may not have the copies that count.
_INDEX_BEHIND_BYTES_MAX = 1 << 20
#: The clocks of masters that have the same group may differ by so much.
_CLOCK_SLACK_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Whether the message can still be consumed, and until when.

    `state` is `stored`, `trimmed` when its queue begins behind it, `removed` when it is
    in the commit log, but no longer in the topic, or `unknown`; or, of a message that
    no consumer gets, or not yet, `delayed`, `half`, `rolled_back` or `recalled`.
    `until_ms` (epoch ms) is when the broker may delete it at the earliest,
    by its fileReservedTime; it keeps whole files, and deletes earlier when its disk is
    full. None if the broker does not tell. `next_at_ms` (epoch ms by the broker's
    clock) is when a delayed message is due. `evidence` says what the state rests on,
    `reason` why no more can be said; None where there is nothing to add.
    """

    state: str
    until_ms: int | None
    next_at_ms: int | None = None
    evidence: str | None = None
    reason: str | None = None


@dataclass(slots=True, kw_only=True)
class MessageOutcome:
    """A message, where it is stored, and what became of it in each group.

    `topic` is the one whose consumers get it: of a message that waits for its delay or
    for the end of its transaction, not the one in which it is stored. `errors` has the
    brokers that did not answer, by name: groups that only they know are missing, or
    verdicts are unknown.
    """

    message: PulledMessage
    topic: str
    stored: StoredState
    groups: list[GroupVerdict] = field(default_factory=list)
    errors: dict[str, RmqError] = field(default_factory=dict, hash=False)


def outcomes_of(
    client: Client,
    messages: Sequence[PulledMessage],
    *,
    groups: Collection[str] = (),
    backups: Sequence[Backup] = (),
    redriven: SaysOfLetter | None = None,
) -> list[MessageOutcome]:
    """Return what became of each message in `groups`, or in all groups of its topic.

    They are read side by side. `backups` are those of resets, in the order of their
    saving: a reset that moved a group over a message speaks against its having been
    consumed. `redriven` returns what a log of redrives says of a dead letter of a
    group, or None. Raises NotFoundError when a topic is gone, and for a group that does
    not exist.
    """
    readings = [_Reading(client, each, redriven) for each in messages]
    return _in_step(client, [each.run(groups, backups) for each in readings])


def _in_step(client: Client, readings: Sequence[_Asking[T]]) -> list[T]:
    """Run readings side by side; what several of them ask at a time is asked once.

    Each is resumed only when all answers of a step are there. So an answer of a later
    step is never older than those, also where another reading asks the same.
    """
    results: dict[int, T] = {}
    answers: dict[int, Mapping[Any, Any] | None]
    answers = dict.fromkeys(range(len(readings)))
    while answers:
        asked: dict[int, _Questions] = {}
        for number, told in answers.items():
            try:
                asked[number] = readings[number].send(told)
            except StopIteration as stop:
                results[number] = stop.value
        parts = {
            _question(key, part): part
            for each in asked.values()
            for key, part in each.items()
        }
        outcomes = dict(zip(parts, run_tasks(client, parts.values()), strict=True))
        answers = {
            number: {key: outcomes[_question(key, part)] for key, part in each.items()}
            for number, each in asked.items()
        }
    return [results[number] for number in range(len(readings))]


def _question(key: Hashable, part: Part) -> Hashable:
    """Return what is equal for equal questions."""
    if not isinstance(part, Request):
        return key
    call = part.call
    fields = tuple(sorted(call.ext_fields.items()))
    return part.address, call.code, fields, call.body, part.timeout_ms


class _Reading:
    """What is read about one message."""

    def __init__(
        self, client: Client, message: PulledMessage, redriven: SaysOfLetter | None
    ) -> None:
        self._client = client
        self._redriven = redriven
        self._message = message
        self._queue = message.message_queue
        self._brokers = reader_addresses(client.cluster_info().brokers.values())
        self._outcome = MessageOutcome(
            message=message,
            topic=message.topic,
            stored=StoredState(state="unknown", until_ms=None),
        )
        self._address = self._brokers.get(self._queue.broker_name)
        #: broker name -> delay level -> its delay in ms
        self._levels: dict[str, dict[int, int]] = {}
        #: broker name and delay level -> offset up to which it has delivered
        self._delivered: dict[tuple[str, int], int] = {}
        #: broker name -> messages that it tells at a time of its index
        self._told_max: dict[str, int] = {}
        #: of the message's broker; empty if it does not show them
        self._settings: dict[str, str] = {}
        #: whether the message is in its queue still
        self._place = PlaceState(None)
        #: broker name -> bytes of its log that are not in the index yet
        self._late_indexes: dict[str, int] = {}
        #: how far the clock of the message's broker is ahead of this machine's
        self._ahead_ms = 0
        #: brokers that an earlier run knew, and that are no longer in the route
        self._departed: list[str] = []
        #: groups with retries of POP for the topic
        self._has_retries: set[str] = set()
        #: groups whose members are behind proxies in cluster mode
        self._proxied: set[str] = set()
        self._evidence: dict[str, GroupEvidence] = {}
        #: group -> the first broker that did not tell what its verdict needs, and why
        self._untold: dict[str, tuple[str, RmqError]] = {}

    def run(
        self, groups: Collection[str], backups: Sequence[Backup]
    ) -> _Asking[MessageOutcome]:
        pending = self._pending()
        if pending is not None and pending.delivered is not None:
            # Go on with the copy that consumers get.
            self._message = self._outcome.message = pending.delivered
            self._queue = self._message.message_queue
            pending = None
        topic = self._queue.topic
        if pending is not None:
            topic = self._message.properties[REAL_TOPIC]
        self._outcome.topic = topic
        detail = yield from self._read_topic(topic, groups)
        self._outcome.errors |= detail.errors
        self._read_departed()
        names = sorted(
            set(groups) or {g for g in detail.groups if not is_system_group(g)}
        )
        ends = {each.queue: each.offset for each in detail.queues}.get(self._queue)
        min_offset = None if ends is None else ends.min_offset
        self._outcome.stored = self._stored(min_offset, pending)
        if pending is not None:
            self._outcome.groups = [self._waits(name, pending) for name in names]
            return self._outcome
        if self._outcome.stored.state == "removed":
            self._outcome.groups = [
                GroupVerdict(group=e, verdict=MessageVerdict.UNKNOWN, reason=_REMOVED)
                for e in names
            ]
            return self._outcome
        self._evidence = {name: GroupEvidence(group=name) for name in names}
        yield from self._read_offsets()
        copies = yield from self._read_members()
        yield from self._read_holders()
        yield from self._read_copies(copies)
        yield from self._read_pop()
        self._read_selection()
        self._read_filter_times()
        if backups:
            here = identity_of(self._client.route(self._queue.topic))
            for name, seen in self._evidence.items():
                seen.moved_by = _moved_by(backups, name, self._message, here)
                for copy in seen.copies:
                    copy.moved_by = _moved_by(backups, name, copy.message, here)
                seen.moved_back = self._moved_back(backups, name, here)
        self._read_redrives()
        self._outcome.groups = [
            self._if_there(judge(self._message, seen, min_offset=min_offset))
            for seen in self._evidence.values()
        ]
        for found in self._outcome.groups:
            if found.verdict is MessageVerdict.UNKNOWN and found.group in self._untold:
                self._outcome.errors.setdefault(*self._untold[found.group])
        return self._outcome

    def _note_untold(
        self, group: str, error: RmqError, broker_name: str | None = None
    ) -> None:
        """Note that the message's broker, or another one, told nothing of a group."""
        if not isinstance(error, UnsupportedError):
            broker_name = broker_name or self._queue.broker_name
            self._untold.setdefault(group, (broker_name, error))

    def _read_departed(self) -> None:
        """Note the brokers that have left: name servers forget one that goes."""
        brokers = self._client.cluster_info().brokers
        for name, seen in departed_brokers(self._client, brokers).items():
            self._departed.append(name)
            self._outcome.errors.setdefault(name, seen.as_error(name))

    def _read_redrives(self) -> None:
        if self._redriven is None:
            return
        for name, seen in self._evidence.items():
            letter = letter_of(seen)
            if letter is not None and letter.kind == "dead":
                seen.redriven = self._redriven(name, letter.message)
        topic = self._queue.topic
        if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
            group = topic.removeprefix(DLQ_GROUP_TOPIC_PREFIX)
            said = self._redriven(group, self._message)
            self._outcome.stored = replace(self._outcome.stored, evidence=said)

    def _if_there(self, verdict: GroupVerdict) -> GroupVerdict:
        """Return the verdict, or that it is not known for want of the message's place.

        What copies and records of POP show does not rest on that.
        """
        reason = self._outcome.stored.reason
        rests_on_place = verdict.where is None and verdict.verdict in _BY_OFFSET
        if self._outcome.stored.state != "unknown" or not rests_on_place:
            return verdict
        return replace(
            verdict,
            verdict=MessageVerdict.UNKNOWN,
            reason=reason or "whether it is in its topic is not known",
            attempt=None,
            waiting_before=None,
        )

    def _moved_back(
        self, backups: Iterable[Backup], group: str, here: ClusterIdentity
    ) -> MovedBack | None:
        """Return the last reset that moved `group` back to the message or before it."""
        queue, offset = self._queue, self._message.queue_offset
        found = None
        for backup in backups:
            is_of_group = (backup.group, backup.topic) == (group, queue.topic)
            if not is_of_group or not is_same_cluster(backup.cluster, here):
                continue
            target, committed = backup.targets.get(queue), backup.committed.get(queue)
            if target is not None and target <= offset < (committed or 0):
                at_ms = backup.created_ms + self._ahead_ms
                found = MovedBack(f"backup {backup.backup_id}", at_ms)
        return found

    def _pending(self) -> PendingOutcome | None:
        """Say what became of a message that is, or was, not for consumers yet."""
        if not is_pending(self._message):
            return None
        if self._address is None:
            return PendingOutcome(reason=f"{self._queue.broker_name} has no address")
        try:
            return judge_pending(self._client, self._address, self._message)
        except RmqError as error:
            self._outcome.errors[self._queue.broker_name] = error
            return PendingOutcome(
                reason=f"{self._queue.broker_name} {unanswered(error.message)}"
            )

    def _read_topic(self, topic: str, groups: Collection[str]) -> _Asking[TopicDetail]:
        """Read its topic, all brokers, and whether the message is in its queue still.

        Raises NotFoundError for a group that does not exist.
        """
        client, place = self._client, ("place", id(self))
        settings = {
            (name, call.code): Request(address, call)
            for name, address in self._brokers.items()
            for call in (get_broker_config(), get_broker_runtime_info())
        }
        is_complete = len(self._brokers) == len(client.cluster_info().brokers)
        asked_ms = client.clock.epoch_ms()
        answers = yield {
            ("topic", topic): ask_topic(client, client.route(topic)),
            place: check_place(self._address, self._queue, self._message),
            **settings,
            **{
                ("group", name): is_missing(
                    name, self._brokers, is_complete=is_complete
                )
                for name in groups
            },
        }
        for name in groups:
            if answers["group", name] is True:
                raise not_found("group", name)
        self._place = answers[place]
        self._take_settings({key: answers[key] for key in settings}, asked_ms)
        detail: TopicDetail | RmqError = answers["topic", topic]
        if isinstance(detail, RmqError):
            raise detail
        return detail

    def _take_settings(
        self, answers: Mapping[tuple[str, int], Any], asked_ms: int
    ) -> None:
        """Note the settings of all brokers, and how far their indexes are behind."""
        answered_ms = self._client.clock.epoch_ms()
        for (name, code), answer in split_answers(answers)[0].items():
            is_own = name == self._queue.broker_name
            if code == get_broker_config().code:
                self._levels[name] = delay_levels_ms(answer)
                self._told_max[name] = query_message_max(answer) or QUERY_MESSAGE_MAX
                if is_own:
                    self._settings = answer
                continue
            for level, done in delivered_levels(answer).items():
                self._delivered[name, level] = done
            behind_bytes = read_count(answer.get("dispatchBehindBytes")) or 0
            if behind_bytes > _INDEX_BEHIND_BYTES_MAX:
                self._late_indexes[name] = behind_bytes
            if is_own:
                clock = broker_clock(answer, asked_ms=asked_ms, answered_ms=answered_ms)
                self._ahead_ms = clock.epoch_ms - answered_ms

    def _stored(
        self, min_offset: int | None, pending: PendingOutcome | None
    ) -> StoredState:
        hours = read_count(self._settings.get("fileReservedTime"), digits_max=6)
        until_ms = None
        if hours is not None:
            until_ms = self._message.store_timestamp_ms + hours * _HOUR_MS
        if pending is not None:
            return StoredState(
                state=pending.verdict.value,
                until_ms=until_ms,
                next_at_ms=pending.next_at_ms,
                evidence=pending.evidence,
                reason=pending.reason,
            )
        place, reason = self._place, None
        if min_offset is not None and self._message.queue_offset < min_offset:
            state = "trimmed"
        elif self._queue.topic in PENDING_TOPICS or place.is_there:
            state = "stored"
        elif place.is_there is None:
            state, reason = "unknown", place.reason
        else:
            state, reason = "removed", removed_because(place)
        return StoredState(state=state, until_ms=until_ms, reason=reason)

    def _waits(self, group: str, pending: PendingOutcome) -> GroupVerdict:
        return GroupVerdict(
            group=group,
            verdict=pending.verdict,
            evidence=pending.evidence,
            reason=pending.reason,
            next_at_ms=pending.next_at_ms,
            where=f"{self._queue}:{self._message.queue_offset}",
        )

    def _is_over(self, message: PulledMessage) -> bool:
        """Whether the broker had delivered its delay level up to this message."""
        done = self._delivered.get((message.broker_name, message.queue_id + 1))
        return done is not None and message.queue_offset < done

    def _read_offsets(self) -> _Asking[None]:
        """Read the committed and the pulled offset of each group in the queue."""
        client, queue, address = self._client, self._queue, self._address
        is_of_slave = address not in client.masters().values()
        if address is None or queue.broker_name in self._outcome.errors:
            error = self._outcome.errors.get(queue.broker_name)
            for seen in self._evidence.values():
                seen.no_offset = (
                    f"{queue.broker_name} has no address"
                    if error is None
                    else f"{queue.broker_name} {unanswered(error.message)}"
                )
            return
        has_table = client.broker_version(address) < V5_0_0
        questions: dict[Any, Part] = {}
        if has_table:  # these brokers may answer 0 where nothing was committed
            questions["table"] = Request(address, get_all_consumer_offset())
        for name in self._evidence:
            if not has_table:
                call = query_consumer_offset(name, queue.topic, queue.queue_id)
                questions["offset", name] = Request(address, call)
            stats = get_consume_stats(name, queue.topic)
            questions["stats", name] = Request(address, stats)
        answers = yield questions
        for name, seen in self._evidence.items():
            found = answers["stats", name]
            offset = answers["table" if has_table else ("offset", name)]
            if has_table and not isinstance(offset, RmqError):
                offset = offset.get((name, queue.topic), {}).get(queue.queue_id)
            if isinstance(offset, RmqError):
                seen.no_offset = offset.message
                self._note_untold(name, offset)
            else:
                seen.committed = offset
            item = None if isinstance(found, RmqError) else found.offsets.get(queue)
            seen.pulled = None if item is None else item.pull_offset
            is_passed = (seen.committed or 0) > self._message.queue_offset
            if is_of_slave and not is_passed and seen.no_offset is None:
                seen.no_offset = (
                    f"{queue.broker_name} currently has no master, only slaves, whose"
                    " committed offsets may be old"
                )

    def _read_members(self) -> _Asking[Mapping[Any, Any]]:
        """Read the members of each group, and the copies of the message.

        Returns the answers to the questions about copies.
        """
        address = self._address
        copies = self._copies_asked()
        if address is None:
            found: Mapping[Any, Any] = yield copies
            return found
        topic = self._queue.topic
        pop = {name: pop_retry_topics(name, topic) for name in self._evidence}
        answers = yield {
            "settings": Request(address, get_all_subscription_group_config()),
            **{
                ("members", name): Request(address, get_consumer_connection_list(name))
                for name in self._evidence
            },
            ("routes", topic, *pop): self._client.ask_routes(
                each for pair in pop.values() for each in pair
            ),
            **copies,
        }
        configs = answers["settings"]
        routes: Mapping[str, TopicRoute | RmqError] = answers["routes", topic, *pop]
        for name, seen in self._evidence.items():
            members = answers["members", name]
            if isinstance(members, RmqError):
                seen.no_members = f"its members are not known: {members.message}"
                self._note_untold(name, members)
            else:
                seen.connection = members
            # Brokers create the topic when POP first revives a message. The retries of
            # another group may have the older of its names.
            retries = [routes[each] for each in pop[name]]
            if not isinstance(configs, RmqError) and f"{name}_{topic}" in configs:
                del retries[1:]
            has_retries = any(not isinstance(each, RmqError) for each in retries)
            if has_retries:
                self._has_retries.add(name)
            seen.is_pop = has_retries or (getattr(members, "consume_type", "") == _POP)
            for error in retries:
                if isinstance(error, RmqError) and not isinstance(error, NotFoundError):
                    seen.no_members = (
                        f"whether it consumes with POP is not known: {error.message}"
                    )
                    self._note_untold(name, error, getattr(error, "address", None))
            if seen.connection is not None:
                seen.is_renewed = any(
                    is_grpc_client(each.client_id)
                    for each in seen.connection.connections
                )
                seen.is_pop |= seen.is_renewed
            if isinstance(configs, RmqError):
                seen.no_deliveries = (
                    f"whether the group is orderly is not known: {configs.message}"
                )
                self._note_untold(name, configs)
            elif name in configs:
                seen.retry_max_times = configs[name].retry_max_times
                seen.is_orderly = configs[name].consume_message_orderly
        if not isinstance(configs, RmqError):
            self._read_lite_offsets(
                address,
                {
                    name: seen
                    for name, seen in self._evidence.items()
                    if name in configs
                    if configs[name].attributes.get(LITE_BIND_TOPIC) == topic
                },
            )
        return {key: answers[key] for key in copies}

    def _read_lite_offsets(
        self, address: str, evidence: Mapping[str, GroupEvidence]
    ) -> None:
        """Say what the offsets of groups that consume lite topics show: not enough.

        Such a group has its offset in the message's lite topic, not in its queue.
        """
        lmq = lmq_of(self._queue.topic, self._message.properties)
        if lmq is None:
            for seen in evidence.values():
                seen.no_offset = "the group consumes lite topics, and it is in none"
            return
        name, offset = lmq
        found = self._client.ask_many(
            {
                group: (address, query_consumer_offset(group, name, 0))
                for group in evidence
            },
        )
        for group, seen in evidence.items():
            committed = found[group]
            if isinstance(committed, RmqError):
                seen.no_offset = committed.message
                self._note_untold(group, committed)
            elif committed is None:
                seen.no_offset = f"no offset was ever committed in {name}"
            elif committed > offset:
                seen.no_offset = (
                    f"the group is past it in {name}, at {committed}, and may have"
                    " begun behind it"
                )
            else:
                seen.no_offset = (
                    f"the group is not past it in {name}, at {committed}, and POP keeps"
                    " what it has handed out of lite topics where it cannot be read"
                )

    def _read_pop(self) -> _Asking[None]:
        """Read side by side what none of the others needs to be known for.

        That is: members behind proxies, what POP recorded about the message and its
        retries, and whether orderly POP has locked its queue.
        """
        alone = [
            seen
            for seen in self._evidence.values()
            if seen.connection is None and seen.no_members is None
        ]
        brokers = self._client.cluster_info().brokers
        proxied: dict[Any, Part] = {}
        if alone:
            proxied["proxied"] = ask_proxied_members(self._client, brokers)
        places = self._deliveries_wanted()
        unread = self._no_records()
        deliveries = {
            name: ("deliveries", id(self), name)
            for name in places
            if name != self._queue.broker_name or unread is None
        }
        locks = self._locks_asked() if unread is None else {}
        answers = yield {
            **proxied,
            **{
                key: self._deliveries(name, self._brokers[name], places[name])
                for name, key in deliveries.items()
            },
            **locks,
        }
        if alone:
            self._take_proxied(alone, answers["proxied"])
        for name, wanted in places.items():
            read = answers[deliveries[name]] if name in deliveries else unread
            self._take_deliveries(name, wanted, read)
        self._take_locks({name: answers["lock", name, q] for _, name, q in locks})

    def _take_proxied(
        self, alone: Iterable[GroupEvidence], proxied: ProxiedMembers
    ) -> None:
        """Add members behind proxies in cluster mode, which brokers do not know."""
        for seen in alone:
            if seen.group in proxied.by_group:
                seen.connection = proxied.by_group[seen.group][0]
                seen.is_pop = seen.is_renewed = True
                self._proxied.add(seen.group)
            else:
                seen.no_members = proxied.unknown_because
                for broker_name, error in sorted(proxied.errors.items()):
                    self._note_untold(seen.group, error, broker_name)

    def _read_filter_times(self) -> None:
        """Find out since when members behind proxies have their filter.

        Only where the verdict depends on it, since that takes many requests.
        """
        message, topic = self._message, self._queue.topic
        asked = {
            name: seen.connection
            for name, seen in self._evidence.items()
            if name in self._proxied
            and seen.connection is not None
            and topic in seen.connection.subscriptions
            and (seen.committed or 0) > message.queue_offset
            and seen.delivery is None
            and not seen.copies
        }
        if not asked:
            return
        from_ms = message.store_timestamp_ms - self._ahead_ms
        since = filters_since_ms(self._client, asked, topic, from_ms=from_ms)
        for name, connection in asked.items():
            if name in since:
                subscription = connection.subscriptions[topic]
                since_ms = since[name] + self._ahead_ms
                self._evidence[name].is_renewed = False
                self._evidence[name].connection = replace(
                    connection,
                    subscriptions={
                        **connection.subscriptions,
                        topic: replace(subscription, sub_version=since_ms),
                    },
                )

    def _read_holders(self) -> _Asking[None]:
        """Find the member of each group that pulls the queue, and what it holds.

        Members behind a proxy do not answer the question, and members that use POP have
        other queues in their answer.
        """
        if self._address is None:
            return
        asked: dict[tuple[str, str], Part] = {
            (name, member.client_id): Request(
                self._address,
                get_consumer_running_info(name, member.client_id),
                _MEMBER_TIMEOUT_MS,
            )
            for name, seen in self._evidence.items()
            if seen.connection is not None
            for member in seen.connection.connections[:_MEMBERS_ASKED_MAX]
            if not is_grpc_client(member.client_id)
        }
        if not asked:
            return
        answers = yield asked
        asked_ms = self._client.clock.epoch_ms() + self._ahead_ms
        for name, client_id in asked:
            answer = answers[name, client_id]
            if isinstance(answer, RmqError):
                continue
            held = answer.process_queues.get(self._queue)
            if held is None or held.droped:
                continue
            self._evidence[name].holder = Holder(
                client_id=client_id,
                unfinished=_unfinished(held),
                pulled_ms=max(0, held.last_pull_timestamp) or None,
                asked_ms=asked_ms,
                subscription=next(
                    (e for e in answer.subscriptions if e.topic == self._queue.topic),
                    None,
                ),
                committed=held.commit_offset,
                is_orderly=answer.properties.get("PROP_CONSUMEORDERLY") == "true",
            )

    def _read_selection(self) -> None:
        """Have the broker evaluate the filters that are not tags."""
        if self._address is None:
            return
        filtered: dict[SubscriptionData, list[GroupEvidence]] = {}
        for seen in self._evidence.values():
            if seen.connection is None:
                continue
            own = seen.connection.subscriptions.get(self._queue.topic)
            if own is not None and own.expression_type == SQL92:
                filtered.setdefault(replace(own, sub_version=0), []).append(seen)
        for subscription, members in filtered.items():
            selected, why = self._selected(subscription)
            for seen in members:
                seen.selected, seen.no_selection = selected, why

    def _selected(
        self, subscription: SubscriptionData
    ) -> tuple[bool | None, str | None]:
        """Whether a pull with the filter returns the message; None and why if unknown.

        A broker that cannot parse a filter returns every message; so it is checked
        first.
        """
        offset, address = self._message.queue_offset, self._address or ""
        pull = pull_message(
            self._queue,
            offset,
            max_msg_nums=1,
            expression=subscription.sub_string,
            expression_type=SQL92,
        )
        try:
            self._client.invoke(address, check_client_config(subscription))
            plain = self._client.invoke(
                address, pull_message(self._queue, offset, max_msg_nums=1)
            )
            chosen = self._client.invoke(address, pull)
        except RmqError as error:
            return None, f"was not evaluated by the broker: {error.message}"
        found, selected = (
            {each.queue_offset for each in decode_found(body, self._queue.broker_name)}
            for body in (plain.body, chosen.body)
        )
        if offset not in found:
            return None, "cannot be evaluated: the message is not in its queue any more"
        return offset in selected, None

    def _read_copies(self, answers: Mapping[Any, Any]) -> _Asking[None]:
        """Find the copies of the message in the retry and dead-letter topics.

        `answers` are those to what `_copies_asked` returns.
        """
        if not self._message.msg_id:
            for seen in self._evidence.values():
                seen.no_copies = "it has no unique id, by which retries are found"
            return
        first = self._look_up(answers)
        if not any(seen.copies for seen in self._evidence.values()):
            return
        gone = yield from self._read_passed()
        # A retry that failed meanwhile has left a later copy, which counts.
        passed = {
            (name, copy.place): copy.is_passed
            for name, seen in self._evidence.items()
            for copy in seen.copies
        }
        if first:
            self._look_up((yield self._copies_asked()))
        for name, seen in self._evidence.items():
            lost = gone.get(name, {})
            seen.copies = [
                e for e in seen.copies if e.message.offset_msg_id not in lost
            ]
            for copy in seen.copies:
                copy.is_passed = passed.get((name, copy.place), False)
            for place in lost.values():
                seen.no_copies = f"a copy of it was at {place}: {ANOTHER}"

    def _copies_asked(self) -> dict[tuple[str, str, str], Request[Any]]:
        """Return the questions for the copies, by broker name, topic and id."""
        topic, msg_id = self._queue.topic, self._message.msg_id
        if not msg_id:
            return {}
        topics = [
            each
            for name in self._evidence
            for each in (
                retry_topic(name),
                dlq_topic(name),
                *pop_retry_topics(name, topic),
            )
        ]
        return {
            (broker_name, each, msg_id): Request(address, query_message(each, msg_id))
            for broker_name, address in self._brokers.items()
            for each in dict.fromkeys((topic, SCHEDULE_TOPIC, *topics))
        }

    def _look_up(self, answers: Mapping[Any, Any]) -> bool:
        """Note the copies of each group; return whether there are any."""
        topic, message = self._queue.topic, self._message
        # A retry that fails has its next copy in its own topic.
        is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        originals: list[PulledMessage] = []
        copies: list[tuple[str, MessageCopy]] = []
        full: list[str] = []
        damaged: dict[str, int] = {}
        failed: dict[str, RmqError] = {}
        for broker_name, each, msg_id in self._copies_asked():
            body = answers[broker_name, each, msg_id]
            if isinstance(body, RmqError):
                failed[broker_name] = body
                continue
            # Of a group's own topic, the newest are enough.
            told_max = self._told_max.get(broker_name, QUERY_MESSAGE_MAX)
            if each == SCHEDULE_TOPIC and count_records(body) >= told_max:
                full.append(broker_name)
            records, failures = decode_all(body, broker_name)
            if failures:
                damaged[broker_name] = damaged.get(broker_name, 0) + len(failures)
            for found in records:
                stored = found.message_queue.topic
                if found.msg_id != msg_id or stored != each:
                    continue
                times = found.reconsume_times - message.reconsume_times
                if stored == topic and not (is_retry and times):
                    originals.append(found)
                    continue
                later_ms = found.store_timestamp_ms - message.store_timestamp_ms
                if is_retry and times <= 0 and later_ms <= 0:
                    continue  # what made this retry
                is_delay = stored == SCHEDULE_TOPIC
                real = found.properties.get(REAL_TOPIC, "") if is_delay else stored
                name, is_pop = _owner(real, found, topic, self._evidence)
                if name not in self._evidence:
                    continue
                is_dead = real == dlq_topic(name)
                copy = MessageCopy(
                    kind="dead" if is_dead else "retry", message=found, is_pop=is_pop
                )
                if is_delay:
                    copy.kind = "dying" if is_dead else "delay"
                    copy.due_ms = level_due_ms(found, self._levels.get(broker_name, {}))
                    copy.is_over = self._is_over(found)
                copies.append((name, copy))
        self._outcome.errors |= failed
        self._take(originals, copies, failed, full, damaged)
        return bool(copies)

    def _take(
        self,
        originals: Sequence[PulledMessage],
        copies: Iterable[tuple[str, MessageCopy]],
        failed: Mapping[str, RmqError],
        full: Sequence[str],
        damaged: Mapping[str, int],
    ) -> None:
        message = self._message
        why = None
        if failed:
            names = ", ".join(failed)
            why = f"retries may be on {names}, which did not answer"
        elif self._departed:
            names = ", ".join(self._departed)
            why = f"retries may be on {names}, which has left the route"
        elif full:
            told_max = self._told_max.get(full[0], QUERY_MESSAGE_MAX)
            why = (
                f"of the delayed retries of it, {full[0]} tells only the newest"
                f" {told_max}"
            )
        elif damaged:
            why = "; ".join(
                f"{counted(count, 'record')} on {name} cannot be read, and may be"
                " retries"
                for name, count in damaged.items()
            )
        elif self._late_indexes:
            why = "; ".join(
                f"the index of {name} is {count:,} bytes behind, and may lack retries"
                for name, count in self._late_indexes.items()
            )
        elif message.offset_msg_id not in {each.offset_msg_id for each in originals}:
            why = (
                "the index does not find the message itself, so not its retries either"
            )
        ids = {each.offset_msg_id for each in originals}
        for seen in self._evidence.values():
            seen.copies = []
            seen.no_copies = why
        for name, copy in copies:
            origin = copy.message.properties.get(ORIGIN_MESSAGE_ID)
            if len(ids) > 1 and origin not in ids:
                self._evidence[name].no_copies = (
                    f"{counted(len(ids), 'message')} have its id, and the retry at"
                    f" {copy.place} may be of any of them"
                )
            elif len(ids) <= 1 or origin == message.offset_msg_id:
                self._evidence[name].copies.append(copy)

    def _read_passed(self) -> _Asking[dict[str, dict[str, str]]]:
        """Note whether groups are past their copies in the retry topics.

        Returns the places of the copies that are not there any more, by group and id.
        """
        asked: dict[Any, Part] = {}
        checks: dict[tuple[str, str, str], Part] = {}
        for name, seen in self._evidence.items():
            for copy in seen.copies:
                queue = copy.message.message_queue
                call = query_consumer_offset(name, queue.topic, queue.queue_id)
                if copy.kind == "retry":
                    address = self._brokers[queue.broker_name]
                    asked[name, queue] = Request(address, call)
                if copy.kind in ("retry", "dead"):
                    checks[name, copy.message.offset_msg_id, copy.place] = check_place(
                        self._brokers[queue.broker_name], queue, copy.message
                    )
        answers = yield {**asked, **checks}
        gone: dict[str, dict[str, str]] = {}
        for name, msg_id, place in checks:
            if answers[name, msg_id, place].is_there is False:
                gone.setdefault(name, {})[msg_id] = place
        for name, seen in self._evidence.items():
            for copy in seen.copies:
                offset = answers.get((name, copy.message.message_queue))
                copy.is_passed = None
                if not isinstance(offset, RmqError):
                    copy.is_passed = (offset or 0) > copy.message.queue_offset
        return gone

    def _deliveries_wanted(self) -> dict[str, list[PopPlace]]:
        """Return the places of the message and its retries, by their broker's name.

        Without those of which POP has no records.
        """
        wanted: dict[str, list[PopPlace]] = {}
        for name, seen in self._evidence.items():
            messages = [copy.message for copy in seen.copies if copy.is_pop]
            if seen.holder is None or seen.is_pop:
                messages.insert(0, self._message)
            for each in messages:
                places = wanted.setdefault(each.broker_name, [])
                places.append(_place_of(name, each))
        return {name: wanted[name] for name in wanted if self._is_5(name)}

    def _is_5(self, broker_name: str) -> bool:
        address = self._brokers.get(broker_name)
        return address is not None and self._client.broker_version(address) >= V5_0_0

    def _take_deliveries(
        self,
        broker_name: str,
        places: Sequence[PopPlace],
        read: PopDeliveries | RmqError | str | None,
    ) -> None:
        """Note what POP recorded, or the reason why its records were not read."""
        found: dict[PopPlace, PopDelivery] = {}
        reason = read if isinstance(read, str) else None
        if isinstance(read, RmqError):
            reason = f"the records of POP were not read: {read.message}"
            for place in places:
                self._note_untold(place.group, read, broker_name)
        elif isinstance(read, PopDeliveries):
            found, reason = read.found, read.reason
        for place in places:
            seen = self._evidence[place.group]
            if reason is not None:
                seen.no_deliveries = reason
            if place.topic == self._queue.topic and place in found:
                seen.delivery = found[place]
                seen.is_pop = True
            for copy in seen.copies:
                if copy.is_pop and copy.message.broker_name == broker_name:
                    copy.delivery = found.get(_place_of(place.group, copy.message))

    def _locks_asked(
        self,
    ) -> dict[tuple[str, str, MessageQueue], Task[tuple[Any, Any]]]:
        """Return the questions whether orderly POP has locked the queue, by group.

        Not where other POP is not recorded: the answer may count what that has handed
        out.
        """
        queue, offset = self._queue, self._message.queue_offset
        if not self._is_5(queue.broker_name):
            return {}
        address = self._brokers[queue.broker_name]
        return {
            ("lock", name, queue): _ask_lock(address, name, queue)
            for name, seen in self._evidence.items()
            if seen.committed is not None and seen.committed <= offset
            if seen.holder is None
            if seen.is_pop or seen.connection is None
        }

    def _take_locks(self, answers: Mapping[str, tuple[Any, Any]]) -> None:
        """Note for which groups orderly POP waits for what it has handed out.

        A queue whose offset has moved meanwhile may be locked for what comes behind the
        message.
        """
        for name, (found, committed) in answers.items():
            seen = self._evidence[name]
            if seen.delivery is not None:
                continue
            if isinstance(found, RmqError):
                seen.no_lock = (
                    f"whether POP has handed it out is not known: {found.message}"
                )
                self._note_untold(name, found)
            elif found is True and name in self._has_retries:
                seen.no_lock = None  # what waits may be a retry
            elif committed == seen.committed:
                seen.is_locked = not found
            else:
                seen.no_lock = "the group's offset moves just now"

    def _no_records(self) -> str | None:
        """Say why the message's broker has no records of POP that can be read."""
        if not self._settings:
            return "what POP hands out is not known: the broker hides its settings"
        for name, where in (
            ("popConsumerKVServiceEnable", "in RocksDB"),
            ("enablePopBufferMerge", "in memory"),
        ):
            if self._settings.get(name) == "true":
                return (
                    "what POP has handed out is not known: its broker keeps that"
                    f" {where} ({name})"
                )
        return None

    def _deliveries(
        self, broker_name: str, address: str, places: Sequence[PopPlace]
    ) -> Task[PopDeliveries | None]:
        """Read the records; None if the broker has never used POP."""
        cluster = self._client.cluster_info().brokers[broker_name].cluster
        try:
            return (
                yield from read_deliveries(
                    address,
                    broker_name,
                    revive_topic=f"{REVIVE_TOPIC_PREFIX}{cluster}",
                    places=places,
                    since_ms=self._message.store_timestamp_ms - _CLOCK_SLACK_MS,
                )
            )
        except NotFoundError:  # also of the timer topic
            return None


def _owner(
    stored: str, copy: PulledMessage, topic: str, groups: Iterable[str]
) -> tuple[str, bool]:
    """Return the group of a copy by its topic, and whether POP made it.

    The copies of what is in a retry topic of POP are in the same topic.

    The older of POP's two names is also that of the retries of another group: of
    `billing_orders`, if `billing` consumes `orders`. What POP revives tells when it was
    first handed out, and a message that a member has sent back where it came from.
    """
    kept = (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)
    prefix = next((each for each in kept if stored.startswith(each)), "")
    name = stored.removeprefix(prefix) if prefix else ""
    has_time, has_topic = (
        each in copy.properties for each in (_FIRST_POP_TIME, RETRY_TOPIC)
    )
    if prefix == RETRY_GROUP_TOPIC_PREFIX and (has_time or not has_topic):
        for suffix in (f"+{topic}", f"_{topic}"):
            if name.endswith(suffix):
                return name.removesuffix(suffix), True
        for group in groups:
            if stored == topic and is_pop_retry(topic, group):
                return group, True
    return name, False


def _ask_lock(address: str, group: str, queue: MessageQueue) -> Task[tuple[Any, Any]]:
    """Ask whether POP has messages for a group, then for the group's offset."""
    place = (queue.topic, queue.queue_id)
    found = yield All([Request(address, orderly_pop_has_messages(group, *place))])
    committed = yield All([Request(address, query_consumer_offset(group, *place))])
    return found[0], committed[0]


def _place_of(group: str, message: PulledMessage) -> PopPlace:
    queue = message.message_queue
    return PopPlace(group, queue.topic, queue.queue_id, message.queue_offset)


def _moved_by(
    backups: Iterable[Backup],
    group: str,
    message: PulledMessage,
    here: ClusterIdentity,
) -> str | None:
    """Name the backup of the last reset that moved `group` over the message.

    Backups are kept of all clusters. Where all brokers of a cluster have moved since,
    it cannot be told from another one of its name: then a reset still speaks against
    consumption, and none shows that the message comes again.
    """
    found = None
    queue, offset = message.message_queue, message.queue_offset
    for backup in backups:
        if backup.group != group:
            continue
        if not set(backup.cluster.names) & set(here.names):
            continue
        if backup.created_ms < message.store_timestamp_ms - DAY_MS:
            continue  # when the message was not there yet, whatever the clocks
        target = backup.targets.get(queue)
        if target is None:
            continue
        committed = backup.committed.get(queue)
        is_here = is_same_cluster(backup.cluster, here)
        if target <= offset:
            found = None if is_here else found  # moved back: it comes again
        elif committed is None or committed <= offset:
            found = f"backup {backup.backup_id}"
            if not is_here:
                found += ", of this cluster or of another one with its name"
    return found


def _unfinished(queue: ProcessQueueInfo) -> tuple[int, int] | None:
    """Return the lowest and the highest offset that a member has not finished, or None.

    An orderly member moves the messages that its listener has from the cached ones to
    those of a transaction.
    """
    ends: list[int] = []
    if queue.cached_msg_count:
        ends += queue.cached_msg_min_offset, queue.cached_msg_max_offset
    if queue.transaction_msg_count:
        ends += queue.transaction_msg_min_offset, queue.transaction_msg_max_offset
    return (min(ends), max(ends)) if ends else None
