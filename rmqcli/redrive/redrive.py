"""Sending dead letters again: what would be sent where, and then sending it.

`plan_redrive` reads the letters and counts; `RedriveRun` reads the same offsets again
and sends, in batches. Before a batch is sent its letters are in the log, and after it
what became of them (`log`). Nothing is removed from the dead letters.

A letter keeps its body, tag, keys, flag and the producer's properties. Properties that
clients and brokers set are left out, and two are added that name the letter
(`REDRIVEN_FROM`, `REDRIVEN_TIMES`).

A letter that was sent before, by the log, or whose message died again after a redrive,
by its properties, is sent only if asked for (`again`). A letter that *may* have been
sent, because a redrive was killed or got no answer, is sent by the next run, and named.

Source: MessageConst.STRING_HASH_SET, SendMessageProcessor.handleRetryAndDLQ,
ConsumeMessageConcurrentlyService.resetRetryAndNamespace.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import ask_many
from rmqcli.admin.dlq.letter import (
    ORIGIN_MESSAGE_ID,
    REDRIVEN_FROM,
    REDRIVEN_TIMES,
    RETRY_TOPIC,
    facts_of,
    place_of,
)
from rmqcli.admin.dlq.read import LetterReader, find_letters
from rmqcli.api.calls.offset import get_all_consumer_offset, query_consumer_offset
from rmqcli.api.calls.send import send_message
from rmqcli.api.calls.store import view_message_by_id
from rmqcli.errors import (
    BrokerError,
    ConfigError,
    ConnectError,
    DecodeError,
    DeniedError,
    NotFoundError,
    RefusedError,
    RmqError,
    TransportError,
    UsageError,
)
from rmqcli.hint import Hint, Setting
from rmqcli.model import (
    MessageQueue,
    pop_retry_topics,
    retry_topic,
)
from rmqcli.producer.ids import UniqueIds
from rmqcli.producer.message import (
    OutgoingMessage,
    checked_properties,
    record_properties,
)
from rmqcli.producer.remoting.publisher import PRODUCER_GROUP
from rmqcli.producer.remoting.send import RemotingSend, SendOptions
from rmqcli.producer.remoting.target import PublishTarget, find_target
from rmqcli.producer.send import Sender
from rmqcli.redrive.log import (
    DOUBTFUL,
    NEW,
    SENT,
    UNKNOWN,
    LetterPlace,
    LetterResult,
)
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.properties import UNIQ_KEY, encode_properties
from rmqcli.wire.message.record import DecodeFailure
from rmqcli.wire.message.system_flag import COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.admin.dlq.read import LetterRanges
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.calls.send import SendAnswer
    from rmqcli.api.client import Client, PendingCall
    from rmqcli.position import Position
    from rmqcli.redrive.log import LetterStates, RedriveLog

TO_ORIGIN: Final = "origin"
TO_RETRY: Final = "retry"

#: Letters in a batch, and their bodies together. A kill can double one batch.
BATCH_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 8 << 20
#: Names of letters that a plan and a result list.
NAMED_MAX: Final = BATCH_MAX
#: Consumers set their own limit when they fail; up to 4.9 a send without one has none.
_RECONSUME_TIMES_MAX: Final = 16
_TARGETS_KEPT_MAX: Final = 64
#: That of a letter in a plan, for which no message is made.
_NO_MESSAGE: Final = OutgoingMessage(b"", {}, 0)
#: Up to this size of a letter's properties, those that a redrive adds always fit.
_PROPERTIES_SURE_BYTES: Final = 30_000

#: The status of a retry that the broker made a dead letter at once.
DEAD_AGAIN: Final = "DEAD_AGAIN"

#: Why a letter is not sent.
REDRIVEN: Final = "redriven before"
DIED_AGAIN: Final = "died again after a redrive"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Which letters of a group to send again, and where.

    `to` is TO_ORIGIN, TO_RETRY or the name of a topic. `last` counts in each queue.
    """

    group: str
    filter: TailFilter
    to: str = TO_ORIGIN
    start: Position | None = None
    end: Position | None = None
    last: int | None = None
    again: bool = False


@dataclass(slots=True)
class LeftOut:
    """Letters that are not sent for one reason; `example` names one of them."""

    count: int
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePlan:
    """What a redrive would do.

    `targets` are the letters to send, by topic. `left_out` are the others, by reason:
    they cannot be redriven, or were before. `doubtful` names those among the letters to
    send that an earlier run may have sent already, at most NAMED_MAX of
    `doubtful_count`. `unread` has the queues that were not read to their ends: a plan
    with such queues is not carried out. `consumed_count` is how many letters of the
    ranges the group has consumed itself, by the offsets that it committed in its dead
    letters; None if a broker did not tell.
    """

    request: RedriveRequest
    ranges: LetterRanges
    scanned: int
    targets: dict[str, int] = field(hash=False)
    left_out: dict[str, LeftOut] = field(hash=False)
    doubtful: tuple[str, ...]
    doubtful_count: int
    missing: int
    consumed_count: int | None
    unread: dict[MessageQueue, RmqError] = field(hash=False)

    @property
    def count(self) -> int:
        """How many letters would be sent."""
        return sum(self.targets.values())


@dataclass(slots=True)
class _Letter:
    place: LetterPlace
    topic: str
    message: OutgoingMessage


class _Targets:
    """Where letters go, and why some cannot go there; topics are looked up once."""

    def __init__(self, client: Client, request: RedriveRequest) -> None:
        self._client = client
        self._request = request
        self._found: dict[str, PublishTarget | str] = {}
        if request.to == TO_RETRY:
            self._pop_topics = self._check_retry()
        elif request.to != TO_ORIGIN:
            _check_topic(request.to)
            self._found[request.to] = find_target(client, request.to)

    def decide(
        self,
        place: LetterPlace | None,
        letter: StoredMessage | DecodeFailure,
        state: int,
        *,
        has_message: bool = True,
    ) -> _Letter | str:
        """Return what to send, or why the letter is not sent.

        Without `has_message`, which a plan does not need, the message is made only
        where that may fail; in the others it is empty.
        """
        if place is None or not isinstance(letter, StoredMessage):
            error = letter.error if isinstance(letter, DecodeFailure) else "no place"
            return f"it cannot be decoded: {error}"
        request = self._request
        facts = facts_of(request.group, letter)
        if not request.again:
            if state == SENT:
                return REDRIVEN
            if facts.redriven_times:
                return DIED_AGAIN
        topic = request.to
        if topic in (TO_ORIGIN, TO_RETRY):
            if facts.origin_topic is None:
                return "its origin is not recorded in it"
            topic = facts.origin_topic
        if request.to == TO_RETRY:
            if topic in self._pop_topics:
                return (
                    f"the group consumes {topic} by POP, and does not read"
                    f" {retry_topic(request.group)}"
                )
            topic = retry_topic(request.group)
        elif topic.startswith("%"):
            return f"its origin {topic} is a topic of retries or dead letters"
        fault = self._fault(topic)
        if fault is not None:
            return fault
        raw = letter.raw_properties
        if not raw.isascii() and not _is_utf8(raw):
            return "its properties are not UTF-8, and would be changed"
        is_sure = len(raw) <= _PROPERTIES_SURE_BYTES
        if not has_message and is_sure and not letter.sys_flag & COMPRESSED:
            return _Letter(place, topic, _NO_MESSAGE)
        try:
            body = letter.body
            properties: dict[str, str] = record_properties(
                letter.properties.items(), tags=None, keys=None
            )
            properties[REDRIVEN_FROM] = str(place)
            properties[REDRIVEN_TIMES] = str(facts.redriven_times + 1)
            if request.to == TO_RETRY:
                # By these a consumer shows the message under its own topic.
                properties[RETRY_TOPIC] = str(facts.origin_topic)
                if facts.origin_msg_id is not None:
                    properties[ORIGIN_MESSAGE_ID] = facts.origin_msg_id
            message = OutgoingMessage(body, properties, letter.flag)
            # Those of a stored message can be written; more of them may not fit.
            if not is_sure:
                checked_properties(message)
        except DecodeError as error:
            return f"its body is damaged: {error.message}"
        except ConfigError as error:
            return error.message
        return _Letter(place, topic, message)

    def target(self, topic: str) -> PublishTarget:
        """Return a topic's target, which `decide` has found."""
        found = self._found[topic]
        if isinstance(found, str):
            raise TypeError(f"{topic} has no target: {found}")
        return found

    def _fault(self, topic: str) -> str | None:
        found = self._found.get(topic)
        if found is None:
            try:
                found = find_target(self._client, topic)
            except NotFoundError:
                found = f"topic {topic} does not exist"
            except DeniedError as error:
                found = error.message
            self._found[topic] = found
        return found if isinstance(found, str) else None

    def _check_retry(self) -> set[str]:
        """Return the topics that the group consumes by POP.

        Raises RefusedError if nothing shows that the group reads its retry topic: then
        what is sent there would stay there.
        """
        client, group = self._client, self._request.group
        topic = retry_topic(group)
        try:
            route = client.route(topic)
        except NotFoundError:
            raise RefusedError(
                f"there is no topic {topic}: nothing was sent",
                hint=Hint("use ", Setting("to", "origin")),
            ) from None
        read = False
        popped: set[str] = set()
        prefixes = pop_retry_topics(group, "")
        for broker in route.brokers:
            address = broker.master_address
            if address is None:
                continue
            table = client.invoke(address, get_all_consumer_offset())
            for name, of in table:
                if name != group:
                    continue
                read = read or of == topic
                for prefix in prefixes:
                    if of.startswith(prefix) and of != prefix:
                        popped.add(of.removeprefix(prefix))
        if not read:
            raise RefusedError(
                f"group {group} has committed nothing in {topic}, so nothing shows that"
                " it reads that topic (groups that consume by POP or gRPC do not):"
                " nothing was sent",
                hint=Hint("use ", Setting("to", "origin")),
            )
        return popped


def _check_topic(topic: str) -> None:
    from rmqcli.names import check_topic

    check_topic(topic)
    if topic.startswith("%"):
        raise UsageError(
            f"letters are not sent to {topic}, a topic of retries or dead letters",
            hint=Hint(
                "use ", Setting("to", "retry"), " for the group's own retry topic"
            ),
        )


def plan_redrive(
    client: Client, request: RedriveRequest, states: LetterStates
) -> RedrivePlan:
    """Read the letters, and say what a redrive would do. Nothing is changed.

    Raises NotFoundError when the group has no dead letters, RefusedError when letters
    cannot be sent to its retry topic, and NoBrokerError when no broker answers.
    """
    ranges = find_letters(
        client, request.group, start=request.start, end=request.end, last=request.last
    )
    targets = _Targets(client, request)
    reader = LetterReader(client, ranges, request.filter)
    counts: Counter[str] = Counter()
    left_out: dict[str, LeftOut] = {}
    doubtful: list[str] = []
    doubtful_count = 0
    for queue, letters in reader:
        for letter in letters:
            place, state = _state_of(states, queue, letter)
            found = targets.decide(place, letter, state, has_message=False)
            if isinstance(found, str):
                known = left_out.get(found)
                if known is None:
                    left_out[found] = LeftOut(1, place_of(queue, letter.queue_offset))
                else:
                    known.count += 1
                continue
            counts[found.topic] += 1
            if state == DOUBTFUL:
                doubtful_count += 1
                if len(doubtful) < NAMED_MAX:
                    doubtful.append(str(found.place))
    return RedrivePlan(
        request=request,
        ranges=ranges,
        scanned=reader.scanned,
        targets=dict(sorted(counts.items())),
        left_out=left_out,
        doubtful=tuple(doubtful),
        doubtful_count=doubtful_count,
        missing=sum(b - a for spans in reader.missing.values() for a, b in spans),
        consumed_count=_consumed_count(client, ranges),
        unread=dict(reader.abandoned),
    )


def _consumed_count(client: Client, found: LetterRanges) -> int | None:
    """Return how many letters the group has consumed, which subscribes to them."""
    try:
        addresses = {each.queue: client.reader_of(each.queue) for each in found.ranges}
    except RmqError:
        return None
    answers = ask_many(
        client,
        {
            queue: (
                address,
                query_consumer_offset(found.group, queue.topic, queue.queue_id),
            )
            for queue, address in addresses.items()
        },
    )
    count = 0
    for each in found.ranges:
        committed = answers[each.queue]
        if isinstance(committed, RmqError):
            return None
        count += max(0, min(committed or 0, each.end) - each.start)
    return count


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _state_of(
    states: LetterStates, queue: MessageQueue, letter: StoredMessage | DecodeFailure
) -> tuple[LetterPlace | None, int]:
    """Return the place of a letter that can be read, and what the log says of it."""
    if not isinstance(letter, StoredMessage):
        return None, NEW
    place = LetterPlace(
        queue.broker_name,
        queue.queue_id,
        letter.queue_offset,
        letter.commit_log_offset,
    )
    return place, states.get(place)


class RedriveRun:
    """Carries out a plan. `batches` may be called once, in the thread of the client.

    When the iteration is left between two batches, every letter is accounted for. After
    the iteration `unread` has the queues that were not read to their ends, and
    `given_up` why sending stopped early; None if it did not.
    """

    def __init__(
        self,
        client: Client,
        plan: RedrivePlan,
        log: RedriveLog,
        *,
        rate_per_s: float | None = None,
        batch_max: int = BATCH_MAX,
    ) -> None:
        self._client = client
        self._batch_max = batch_max
        self._plan = plan
        self._log = log
        self._rate = rate_per_s
        self._targets = _Targets(client, plan.request)
        self._networks: dict[str, RemotingSend] = {}
        self._rng = random.Random()  # noqa: S311  # spreads load; not for secrets
        self._ids: UniqueIds | None = None
        self._next_ms = 0.0
        self.unread: dict[MessageQueue, RmqError] = {}
        self.given_up: RmqError | None = None

    def batches(self) -> Iterator[list[LetterResult]]:
        """Send all letters of the plan; yield the results of each batch.

        Raises RmqError when the log cannot be written; then nothing more is sent.
        """
        client, log = self._client, self._log
        self._next_ms = client.clock.monotonic_ms()
        for batch in self._collected():
            self._wait()
            log.intend((e.place for e in batch), at_ms=client.clock.epoch_ms())
            results = self._send(batch)
            log.conclude(results, at_ms=client.clock.epoch_ms())
            if self._rate is not None:
                log.flush()  # the next batch, which would do it, may come late
                self._next_ms += len(batch) * 1000 / self._rate
            yield results
            if self.given_up is not None:
                break
        log.flush()

    def _collected(self) -> Iterator[list[_Letter]]:
        plan, states = self._plan, self._log.states
        reader = LetterReader(self._client, plan.ranges, plan.request.filter)
        limit = self._batch_max
        if self._rate is not None:
            limit = max(1, min(limit, int(self._rate)))
        # One letter first: a broker may turn what is sent to a retry topic into a dead
        # letter at once, and then no more must follow.
        first_limit = 1 if plan.request.to == TO_RETRY else limit
        batch: list[_Letter] = []
        size_bytes = 0
        for queue, letters in reader:
            for letter in letters:
                place, state = _state_of(states, queue, letter)
                found = self._targets.decide(place, letter, state)
                if isinstance(found, str):
                    continue
                batch.append(found)
                size_bytes += len(found.message.body)
                if len(batch) >= first_limit or size_bytes >= BATCH_BYTES_MAX:
                    yield batch
                    batch, size_bytes, first_limit = [], 0, limit
        if batch:
            yield batch
        self.unread.update(reader.abandoned)

    def _wait(self) -> None:
        clock = self._client.clock
        never = threading.Event()
        while (wait_ms := self._next_ms - clock.monotonic_ms()) >= 1:
            clock.wait_ms(never, int(wait_ms))

    def _send(self, batch: list[_Letter]) -> list[LetterResult]:
        if self._plan.request.to == TO_RETRY:
            return self._send_retries(batch)
        by_topic: dict[str, list[_Letter]] = {}
        for letter in batch:
            by_topic.setdefault(letter.topic, []).append(letter)
        results: list[LetterResult] = []
        errors: list[RmqError | None] = []
        for topic, letters in by_topic.items():
            sender = Sender(self._network(topic))
            outcomes = [
                outcome
                for some in sender.send(each.message for each in letters)
                for outcome in some
            ]
            errors += [outcome.error for outcome in outcomes]
            self.given_up = self.given_up or sender.given_up
            for index, letter in enumerate(letters):
                if index >= len(outcomes):  # sending was given up before
                    results.append(_not_sent(letter, self.given_up))
                    continue
                outcome = outcomes[index]
                queue = outcome.queue
                results.append(
                    LetterResult(
                        letter.place,
                        outcome.status,
                        topic,
                        outcome.msg_id,
                        None if queue is None else queue.broker_name,
                        None if queue is None else queue.queue_id,
                        outcome.queue_offset,
                        None if outcome.error is None else outcome.error.message,
                    )
                )
        if errors and all(isinstance(each, TransportError) for each in errors):
            # The next batch would fail, too, and more letters would become doubtful.
            self.given_up = self.given_up or errors[0]
        return results

    def _network(self, topic: str) -> RemotingSend:
        network = self._networks.get(topic)
        if network is None:
            if len(self._networks) >= _TARGETS_KEPT_MAX:
                self._networks.clear()
            target = self._targets.target(topic)
            network = self._networks[topic] = RemotingSend(
                self._client,
                target,
                options=SendOptions(),
                ids=self._unique_ids(target),
                rng=self._rng,
            )
        return network

    def _unique_ids(self, target: PublishTarget) -> UniqueIds:
        if self._ids is None:
            ip = local_ip(next(iter(target.addresses.values()))) or "127.0.0.1"
            self._ids = UniqueIds(ip, clock=self._client.clock, rng=self._rng)
        return self._ids

    def _send_retries(self, batch: list[_Letter]) -> list[LetterResult]:
        """Send letters to the retry topic, one request each, and look where they are.

        Up to 4.9 the broker counts a send without a limit of retries as dead, and from
        5.1.1 on every retry while the group holds locks of queues.
        """
        client = self._client
        topic = batch[0].topic
        target = self._targets.target(topic)
        ids = self._unique_ids(target)
        pendings: list[PendingCall[SendAnswer]] = []
        sent: list[tuple[_Letter, MessageQueue, str]] = []
        for number, letter in enumerate(batch):
            own = [
                q for q in target.queues if q.broker_name == letter.place.broker_name
            ]
            queue = (own or target.queues)[number % len(own or target.queues)]
            msg_id = ids.next_id()
            header = SendMessageRequestHeaderV2(
                producer_group=PRODUCER_GROUP,
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=client.clock.epoch_ms(),
                flag=letter.message.flag,
                properties=encode_properties(
                    {**letter.message.properties, UNIQ_KEY: msg_id}
                ),
                reconsume_times=0,
                unit_mode=False,
                max_reconsume_times=_RECONSUME_TIMES_MAX,
                batch=False,
            )
            try:
                pendings.append(
                    client.submit(
                        target.addresses[queue.broker_name],
                        send_message(header, letter.message.body),
                    )
                )
            except RmqError as error:
                self.given_up = error
                break
            sent.append((letter, queue, msg_id))
        answers = client.gather(pendings)
        results = [
            _failed(letter, answer)
            if isinstance(answer, RmqError)
            else LetterResult(
                letter.place,
                answer.status.value,
                topic,
                msg_id,
                queue.broker_name,
                answer.queue_id,
                answer.queue_offset,
            )
            for (letter, queue, msg_id), answer in zip(sent, answers, strict=True)
        ]
        results = self._checked(target, results, answers)
        return results + [_not_sent(e, self.given_up) for e in batch[len(sent) :]]

    def _checked(
        self,
        target: PublishTarget,
        results: list[LetterResult],
        answers: list[SendAnswer | RmqError],
    ) -> list[LetterResult]:
        """Look where the retries are stored; give up if one is a dead letter again.

        The answer to a send does not name the topic.
        """
        questions = {
            number: (
                target.addresses[results[number].broker_name or ""],
                view_message_by_id(
                    decode_offset_msg_id(answer.offset_msg_ids[0]).commit_log_offset,
                    topic=target.topic,
                ),
            )
            for number, answer in enumerate(answers)
            if not isinstance(answer, RmqError)
        }
        for number, body in ask_many(self._client, questions).items():
            if isinstance(body, RmqError):
                continue  # the broker has confirmed that it is stored
            found = decode_messages(body)
            if not found or not isinstance(found[0], StoredMessage):
                continue
            if found[0].topic != target.topic:
                name = results[number].broker_name
                error = RefusedError(
                    f"{name} stored a letter in {found[0].topic} again instead of"
                    f" {target.topic}, as brokers do while the group holds locks of"
                    " queues (orderly consumers)",
                    hint=Hint(
                        "use ",
                        Setting("to", "origin"),
                        ", or stop the group's consumers for a minute",
                    ),
                )
                self.given_up = error
                results[number] = results[number]._replace(
                    status=DEAD_AGAIN, error=error.message
                )
        return results


def _failed(letter: _Letter, error: RmqError) -> LetterResult:
    """The result of a send that failed; without an answer it may be stored."""
    status = "NOT_SENT"
    if isinstance(error, BrokerError):
        status = error.name
    elif isinstance(error, TransportError) and not isinstance(error, ConnectError):
        status = UNKNOWN
    return LetterResult(letter.place, status, letter.topic, error=error.message)


def _not_sent(letter: _Letter, error: RmqError | None) -> LetterResult:
    message = None if error is None else error.message
    return LetterResult(letter.place, "NOT_SENT", letter.topic, error=message)
