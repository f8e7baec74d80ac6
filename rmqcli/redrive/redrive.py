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
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from rmqcli.admin.dlq.letter import (
    FLUSHED_FROM,
    ORIGIN_MESSAGE_ID,
    REDRIVEN_FROM,
    REDRIVEN_TIMES,
    RETRY_TOPIC,
    facts_of,
    place_of,
)
from rmqcli.admin.dlq.log import DOUBTFUL, SENT, LetterPlace, LetterResult
from rmqcli.admin.dlq.read import LetterReader, find_letters
from rmqcli.api.calls.offset import get_all_consumer_offset, query_consumer_offset
from rmqcli.api.calls.send import send_message
from rmqcli.api.calls.store import view_message_by_id
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    ConfigError,
    DecodeError,
    DeniedError,
    NotFoundError,
    RefusedError,
    RmqError,
    TransportError,
    UsageError,
)
from rmqcli.hint import Hint, Setting
from rmqcli.model import MessageQueue, pop_retry_topics, retry_topic
from rmqcli.producer.ids import UniqueIds
from rmqcli.producer.message import (
    OutgoingMessage,
    checked_properties,
    record_properties,
)
from rmqcli.producer.remoting.publisher import PRODUCER_GROUP
from rmqcli.producer.remoting.target import PublishTarget, find_target
from rmqcli.redrive.letter import Letter, redriven_properties, unique_key
from rmqcli.redrive.requests import RedriveRequests, failed, not_sent
from rmqcli.transport.lookups import local_ip
from rmqcli.wire.compression import never_empty
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.system_flag import COMPRESSED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from rmqcli.admin.dlq.log import LetterStates, RedriveLog
    from rmqcli.admin.dlq.read import LetterRanges
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.calls.send import SendAnswer
    from rmqcli.api.client import Client, PendingCall
    from rmqcli.position import Position
    from rmqcli.queue_selector import QueueSelector

TO_ORIGIN: Final = "origin"
TO_RETRY: Final = "retry"

#: Letters in a batch, and their bodies together. A kill can double one batch.
BATCH_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 8 << 20
#: Names of letters that a plan and a result list.
NAMED_MAX: Final = BATCH_MAX
#: Each kill can leave another batch in doubt, and a plan names them all.
DOUBTFUL_NAMED_MAX: Final = 100 * BATCH_MAX
#: Consumers set their own limit when they fail; up to 4.9 a send without one has none.
_RECONSUME_TIMES_MAX: Final = 16
#: A copy of what waits for its next try has been tried before, and is no dead letter.
_UNLIMITED: Final = 2**31 - 1
_ROUTES_KEPT_MAX: Final = 10_000
#: A wait ends so soon after a stop.
_STOP_MS: Final = 200
#: Up to this size of a letter's properties, those that a redrive adds always fit.
_SURE_BYTES: Final = 30_000

#: The status of a retry that the broker made a dead letter at once.
DEAD_AGAIN: Final = "DEAD_AGAIN"

#: Why a letter is not sent.
REDRIVEN: Final = "redriven before"
DIED_AGAIN: Final = "died again after a redrive"
UNDECODED: Final = "its body could not be decoded"
NOT_UTF8: Final = "its properties are not UTF-8, and would be changed"

#: In properties that tell of an earlier redrive.
_REDRIVEN: Final = b"RMQ_REDRIVEN_"
_RETRY_TOPIC: Final = f"{RETRY_TOPIC}\x01".encode()
#: The origin, where _RETRY_TOPIC occurs once: nearly always.
_ONE_ORIGIN: Final = re.compile(rb"(?:\A|\x02)RETRY_TOPIC\x01([^\x02]+)").search


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Which letters of a group to send again, and where.

    `to` is TO_ORIGIN, TO_RETRY or the name of a topic. `last` counts in each queue.
    `selectors` choose queues; without them all are meant. A
    letter of which the filter's `where` cannot be evaluated, because its body cannot be
    decoded, is not sent.
    """

    group: str
    filter: TailFilter
    to: str = TO_ORIGIN
    start: Position | None = None
    end: Position | None = None
    last: int | None = None
    selectors: tuple[QueueSelector, ...] = ()
    again: bool = False

    @property
    def chosen_by(self) -> str | None:
        """The expression of `where`; None without one."""
        return None if self.filter.where is None else self.filter.where.text


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
    send that an earlier run may have sent already, at most DOUBTFUL_NAMED_MAX of
    `doubtful_count`. `undecoded` names those that stay because their body could not be
    decoded for the filter's `where`, at most NAMED_MAX; `left_out` counts them as
    UNDECODED. `unread` has the queues that were not read to their ends: a plan
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
    undecoded: tuple[str, ...]
    missing: int
    consumed_count: int | None
    unread: dict[MessageQueue, RmqError] = field(hash=False)

    @property
    def count(self) -> int:
        """How many letters would be sent."""
        return sum(self.targets.values())

    @property
    def undecoded_count(self) -> int:
        """How many letters stay because their body could not be decoded."""
        found = self.left_out.get(UNDECODED)
        return 0 if found is None else found.count

    def source(self, client: Client) -> LetterSource:
        """Return the letters to send."""
        return _DeadLetterSource(client, self)


class LetterSource(Protocol):
    """The letters that a plan chose, and where they go. Read once.

    With `is_retry` they go to their group's retry topic. `address` is that of a broker.
    After the iteration `unread` has what was not read to the end, and why: by queue, or
    by broker name if the plan's is so.
    """

    @property
    def is_retry(self) -> bool: ...

    @property
    def address(self) -> str: ...

    @property
    def unread(self) -> Mapping[Any, RmqError]: ...

    def letters(
        self, states: LetterStates, is_stopped: Callable[[], bool]
    ) -> Iterator[Letter]:
        """Yield the letters; end early when `is_stopped` says so."""

    def target(self, topic: str) -> PublishTarget:
        """Return the target of a topic to which letters go."""

    def died(self, stored: str, topic: str, why: str) -> RefusedError:
        """Return why nothing more is sent after a retry became a dead letter.

        `stored` says who stored it in `topic`, and `why` the reason.
        """


class SendPlan(Protocol):
    """What a RedriveRun carries out."""

    def source(self, client: Client) -> LetterSource: ...


class _Chosen(NamedTuple):
    """Where a letter goes, or why it is not sent (`fault`)."""

    topic: str
    fault: str | None


#: Of a letter that the log calls sent.
_AS_REDRIVEN: Final = _Chosen("", REDRIVEN)
#: Of a letter of which `where` cannot be evaluated.
_AS_UNDECODED: Final = _Chosen("", UNDECODED)


class _Targets:
    """Where letters go, and why some cannot go there; topics are looked up once."""

    def __init__(self, client: Client, request: RedriveRequest) -> None:
        self._client = client
        self._request = request
        self._where = request.filter.where
        self._found: dict[str, PublishTarget | str] = {}
        #: what `_route` answers for a plain origin, as it is stored in letters
        self._routes: dict[bytes, _Chosen] = {}
        if request.to == TO_RETRY:
            self._pop_topics = self._check_retry()
        elif request.to != TO_ORIGIN:
            _check_topic(request.to)
            self._found[request.to] = find_target(client, request.to)

    def choose(
        self, queue: MessageQueue, letter: StoredMessage, raw: bytes, state: int
    ) -> _Chosen | None:
        """Return where a letter goes, by what the log and the letter say of it.

        `raw` are the letter's properties. None for a letter that `where` does not
        choose.
        """
        if self._where is not None:
            found = self._where.is_true_of(letter, queue.broker_name)
            if not found:
                return _AS_UNDECODED if found is None else None
        again = self._request.again
        if state == SENT and not again:
            return _AS_REDRIVEN
        origin = None
        if raw.isascii() and _REDRIVEN not in raw and raw.count(_RETRY_TOPIC) == 1:
            origin = _ONE_ORIGIN(raw)
        if origin is None:
            facts = facts_of(self._request.group, letter)
            if facts.redriven_times and not again:
                return _Chosen("", DIED_AGAIN)
            chosen = self._route(facts.origin_topic)
            if chosen.fault is None and not is_utf8(raw):
                return _Chosen("", NOT_UTF8)
            return chosen
        known = self._routes.get(origin[1])
        if known is None:
            known = self._route(facts_of(self._request.group, letter).origin_topic)
            if len(self._routes) < _ROUTES_KEPT_MAX:
                self._routes[origin[1]] = known
        return known

    def _route(self, origin: str | None) -> _Chosen:
        request = self._request
        topic = request.to
        if topic in (TO_ORIGIN, TO_RETRY):
            if origin is None:
                return _Chosen("", "its origin is not recorded in it")
            topic = origin
        if request.to == TO_RETRY:
            if topic in self._pop_topics:
                return _Chosen("", popped_fault(request.group, topic))
            topic = retry_topic(request.group)
        elif topic.startswith("%"):
            return _Chosen(
                "", f"its origin {topic} is a topic of retries or dead letters"
            )
        return _Chosen(topic, self._fault(topic))

    def copy_fault(
        self, queue: MessageQueue, letter: StoredMessage, raw: bytes
    ) -> str | None:
        """Return why `copy` would fail."""
        found = self.copy(place_of(queue, letter.queue_offset), letter, raw)
        return found if isinstance(found, str) else None

    def copy(
        self, name: str, letter: StoredMessage, raw: bytes
    ) -> tuple[bytes, bytes] | str:
        """Return body and properties of the message to send, or why there are none.

        The properties are in their text form, without the id that a message gets when
        it is sent. `name` is that of the letter, and `raw` are its properties.
        """
        request = self._request
        if (
            request.to != TO_RETRY
            and not letter.sys_flag & COMPRESSED
            and len(raw) <= _SURE_BYTES
        ):
            properties = redriven_properties(raw, name)
            if properties is not None:
                return letter.raw_body, properties
        facts = facts_of(request.group, letter)
        try:
            given: dict[str, str] = record_properties(
                letter.properties.items(), tags=None, keys=None
            )
            given.pop(FLUSHED_FROM, None)
            given[REDRIVEN_FROM] = name
            given[REDRIVEN_TIMES] = str(facts.redriven_times + 1)
            if request.to == TO_RETRY:
                # By these a consumer shows the message under its own topic.
                given[RETRY_TOPIC] = str(facts.origin_topic)
                if facts.origin_msg_id is not None:
                    given[ORIGIN_MESSAGE_ID] = facts.origin_msg_id
            message = OutgoingMessage(letter.body, given)
            return message.body, checked_properties(message)
        except DecodeError as error:
            return f"its body is damaged: {error.message}"
        except ConfigError as error:
            return error.message

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

        To the retry topics of POP nothing is sent. Brokers of 5.5.0 refuse the name of
        V2, for its `+`; that of V1 they take for the retry topic of a group
        GROUP_TOPIC, which they create if there is none.

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
        committed: set[str] = set()
        for broker in route.brokers:
            address = broker.master_address
            if address is None:
                continue
            table = client.invoke(address, get_all_consumer_offset())
            committed |= committed_topics(table, group)
        if topic not in committed:
            raise RefusedError(
                f"group {group} has committed nothing in {topic}, so nothing shows that"
                " it reads that topic (groups that consume by POP or gRPC do not):"
                " nothing was sent",
                hint=Hint("use ", Setting("to", "origin")),
            )
        return popped_topics(committed, group)


def committed_topics(table: Iterable[tuple[str, str]], group: str) -> set[str]:
    """Return the topics of which a broker has offsets of `group`."""
    return {topic for name, topic in table if name == group}


def popped_topics(committed: Iterable[str], group: str) -> set[str]:
    """Return the topics that a group consumes by POP, by where it has committed."""
    return {
        topic.removeprefix(prefix)
        for topic in committed
        for prefix in pop_retry_topics(group, "")
        if topic.startswith(prefix) and topic != prefix
    }


def popped_fault(group: str, topic: str) -> str:
    """Why a message of a topic that a group consumes by POP is not sent to it."""
    return (
        f"the group consumes {topic} by POP, and does not read {retry_topic(group)};"
        " brokers take nothing for the retry topics of POP"
    )


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
        client,
        request.group,
        start=request.start,
        end=request.end,
        last=request.last,
        selectors=request.selectors,
        sql=request.filter.sql,
    )
    targets = _Targets(client, request)
    # `choose` evaluates `where`, by which a filter keeps what it cannot read.
    reader = LetterReader(client, ranges, replace(request.filter, where=None))
    counts: Counter[str] = Counter()
    left_out: dict[str, LeftOut] = {}
    doubtful: list[str] = []
    doubtful_count = 0
    undecoded: list[str] = []
    for queue, letters in reader:
        state_of = states.of(queue.broker_name, queue.queue_id)
        for letter in letters:
            state = state_of(letter)
            if isinstance(letter, StoredMessage):
                raw = letter.raw_properties
                chosen = targets.choose(queue, letter, raw, state)
                if chosen is None:
                    continue
                topic, fault = chosen
                if chosen is _AS_UNDECODED and len(undecoded) < NAMED_MAX:
                    undecoded.append(place_of(queue, letter.queue_offset))
                may_fail = letter.sys_flag & COMPRESSED or len(raw) > _SURE_BYTES
                if may_fail and fault is None:
                    fault = targets.copy_fault(queue, letter, raw)
            else:
                topic, fault = "", f"it cannot be decoded: {letter.error}"
            if fault is not None:
                leave_out(left_out, fault, queue, letter.queue_offset)
                continue
            counts[topic] += 1
            if state == DOUBTFUL:
                doubtful_count += 1
                if len(doubtful) < DOUBTFUL_NAMED_MAX:
                    doubtful.append(place_of(queue, letter.queue_offset))
    return RedrivePlan(
        request=request,
        ranges=ranges,
        scanned=reader.scanned,
        targets=dict(sorted(counts.items())),
        left_out=left_out,
        doubtful=tuple(doubtful),
        doubtful_count=doubtful_count,
        undecoded=tuple(undecoded),
        missing=sum(b - a for spans in reader.missing.values() for a, b in spans),
        consumed_count=_consumed_count(client, ranges),
        unread=dict(reader.abandoned),
    )


def leave_out(
    left_out: dict[str, LeftOut],
    reason: str,
    queue: MessageQueue,
    queue_offset: int | None,
) -> None:
    """Count a letter that is not sent."""
    known = left_out.get(reason)
    if known is None:
        left_out[reason] = LeftOut(1, place_of(queue, queue_offset))
    else:
        known.count += 1


def _consumed_count(client: Client, found: LetterRanges) -> int | None:
    """Return how many letters the group has consumed, which subscribes to them."""
    try:
        addresses = {each.queue: client.reader_of(each.queue) for each in found.ranges}
    except RmqError:
        return None
    answers = client.ask_many(
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


def is_utf8(data: bytes) -> bool:
    """Whether a request can carry these properties as they are."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _DeadLetterSource:
    """See LetterSource."""

    def __init__(self, client: Client, plan: RedrivePlan) -> None:
        self._client = client
        self._plan = plan
        self._targets = _Targets(client, plan.request)
        self.target = self._targets.target
        self.is_retry = plan.request.to == TO_RETRY
        self.address = client.reader_of(plan.ranges.ranges[0].queue)
        self.unread: dict[MessageQueue, RmqError] = {}

    def letters(
        self, states: LetterStates, is_stopped: Callable[[], bool]
    ) -> Iterator[Letter]:
        """See LetterSource."""
        plan, targets = self._plan, self._targets
        wanted = replace(plan.request.filter, where=None)  # `choose` evaluates it
        reader = LetterReader(self._client, plan.ranges, wanted, is_stopped=is_stopped)
        for queue, letters in reader:
            prefix = place_of(queue, "")
            state_of = states.of(queue.broker_name, queue.queue_id)
            for letter in letters:
                if is_stopped():
                    return
                if not isinstance(letter, StoredMessage):
                    continue
                raw = letter.raw_properties
                chosen = targets.choose(queue, letter, raw, state_of(letter))
                if chosen is None or chosen.fault is not None:
                    continue
                copy = targets.copy(f"{prefix}{letter.queue_offset}", letter, raw)
                if isinstance(copy, str):
                    continue
                body, properties = copy
                place = LetterPlace.of(queue, letter)
                yield Letter(place, chosen.topic, body, properties, letter.flag)
        self.unread.update(reader.abandoned)

    def died(self, stored: str, topic: str, why: str) -> RefusedError:
        """See LetterSource."""
        return RefusedError(
            f"{stored} a letter in {topic} again {why}",
            hint=Hint(
                "use ",
                Setting("to", "origin"),
                ", or stop the group's consumers for a minute",
            ),
        )


class RedriveRun:
    """Carries out a plan. `batches` may be called once, in the thread of the client.

    When the iteration is left between two batches, every letter is accounted for. After
    the iteration `unread` has what was not read to its end, as in LetterSource, and
    `given_up` why sending stopped early; None if it did not. Once `is_stopped` says so,
    no further batch is begun: a condition on bodies may take long, and so may a low
    rate.
    """

    def __init__(
        self,
        client: Client,
        plan: SendPlan,
        log: RedriveLog,
        *,
        rate_per_s: float | None = None,
        batch_max: int = BATCH_MAX,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._is_stopped = is_stopped
        self._batch_max = batch_max
        self._log = log
        self._rate = rate_per_s
        self._source = source = plan.source(client)
        rng = random.Random()  # noqa: S311  # spreads load; not for secrets
        self._ids = UniqueIds(
            local_ip(source.address) or "127.0.0.1", clock=client.clock, rng=rng
        )
        self._requests = RedriveRequests(client, self._ids, rng, is_stopped=is_stopped)
        self._next_ms: float = client.clock.monotonic_ms()
        self.unread: dict[Any, RmqError] = {}
        self.given_up: RmqError | None = None
        #: whether a retry of the last batch failed: its broker may be elsewhere by now
        self._has_failed = False

    def batches(self) -> Iterator[list[LetterResult]]:
        """Send all letters of the plan; yield the results of each batch.

        While a batch is under way, the next one is read. Raises RmqError when the log
        cannot be written; then nothing more is sent.
        """
        client, log = self._client, self._log
        collected = self._collected()
        batch = next(collected, None)
        while batch is not None:
            self._wait()
            if self._is_stopped():
                break
            log.intend([e.place for e in batch], at_ms=client.clock.epoch_ms())
            finish = self._begin(batch)
            count = len(batch)
            try:
                batch = next(collected, None)
            finally:
                results = finish()
                log.conclude(results, at_ms=client.clock.epoch_ms())
            if self._rate is not None:
                log.flush()  # the next batch, which would do it, may come late
                self._next_ms += count * 1000 / self._rate
            yield results
            if self.given_up is not None:
                break
        log.flush()

    def _collected(self) -> Iterator[list[Letter]]:
        source = self._source
        limit = self._batch_max
        if self._rate is not None:
            limit = max(1, min(limit, int(self._rate)))
        # One letter first: a broker may turn what is sent to a retry topic into a dead
        # letter at once, and then no more must follow.
        first_limit = 1 if source.is_retry else limit
        batch: list[Letter] = []
        size_bytes = 0
        for letter in source.letters(self._log.states, self._is_stopped):
            batch.append(letter)
            size_bytes += len(letter.body)
            if len(batch) >= first_limit or size_bytes >= BATCH_BYTES_MAX:
                yield batch
                batch, size_bytes, first_limit = [], 0, limit
        if batch:
            yield batch
        self.unread = dict(source.unread)

    def _wait(self) -> None:
        clock = self._client.clock
        never = threading.Event()
        while (wait_ms := self._next_ms - clock.monotonic_ms()) >= 1:
            if self._is_stopped():
                return
            clock.wait_ms(never, min(int(wait_ms), _STOP_MS))

    def _begin(self, batch: list[Letter]) -> Callable[[], list[LetterResult]]:
        """Begin to send a batch; return a function that waits for the results."""
        if self._source.is_retry:
            return lambda: self._send_retries(batch)
        by_topic: dict[str, list[Letter]] = {}
        for letter in batch:
            by_topic.setdefault(letter.topic, []).append(letter)
        self._requests.begin(
            (self._source.target(topic), letters) for topic, letters in by_topic.items()
        )
        return self._finish

    def _finish(self) -> list[LetterResult]:
        results = self._requests.finish()
        self.given_up = self._requests.given_up
        return results

    def _send_retries(self, batch: list[Letter]) -> list[LetterResult]:
        """Send letters to the retry topic, one request each, and look where they are.

        Up to 4.9 the broker counts a send without a limit of retries as dead, and from
        5.1.1 on every retry while the group holds locks of queues.
        """
        client = self._client
        topic = batch[0].topic
        target = self._source.target(topic)
        ids = self._ids
        pendings: list[PendingCall[SendAnswer]] = []
        sent: list[tuple[Letter, MessageQueue, str]] = []
        addresses = self._addresses_of(target)
        for number, letter in enumerate(batch):
            own = [
                q for q in target.queues if q.broker_name == letter.place.broker_name
            ]
            queue = (own or target.queues)[number % len(own or target.queues)]
            msg_id = None
            body, sys_flag = never_empty(letter.body)
            born_ms, times, times_max = client.clock.epoch_ms(), 0, _RECONSUME_TIMES_MAX
            if letter.retry is not None:
                queue_id, times, flags, born_ms, msg_id = letter.retry
                queue = next((q for q in own if q.queue_id == queue_id), queue)
                sys_flag |= flags
                times_max = _UNLIMITED
            msg_id = msg_id or ids.next_id()
            properties = letter.properties + unique_key(msg_id)
            header = SendMessageRequestHeaderV2(
                producer_group=PRODUCER_GROUP,
                topic=topic,
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=queue.queue_id,
                sys_flag=sys_flag,
                born_timestamp=born_ms,
                flag=letter.flag,
                properties=properties.decode(),
                reconsume_times=times,
                unit_mode=False,
                max_reconsume_times=times_max,
                batch=False,
            )
            try:
                pendings.append(
                    client.submit(
                        addresses[queue.broker_name],
                        send_message(header, body),
                    )
                )
            except RmqError as error:
                self.given_up = error
                break
            sent.append((letter, queue, msg_id))
        answers = client.gather(pendings)
        errors = [each for each in answers if isinstance(each, TransportError)]
        self._has_failed = any(isinstance(each, RmqError) for each in answers)
        is_elsewhere = self._has_failed and self._addresses_of(target) != addresses
        if errors and len(errors) == len(answers) and not is_elsewhere:
            # The next batch would fail, too, and more letters would become doubtful.
            self.given_up = self.given_up or errors[0]
        results = [
            failed(letter, answer)
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
        return results + [not_sent(e, self.given_up) for e in batch[len(sent) :]]

    def _addresses_of(self, target: PublishTarget) -> dict[str, str]:
        """Return the masters' addresses: after a fail-over not those of the plan."""
        found = dict(target.addresses)
        with suppress(RmqError):  # then the known ones are tried
            route = self._client.route(target.topic, refresh=self._has_failed)
            for broker in route.brokers:
                if broker.broker_name in found and broker.master_address is not None:
                    found[broker.broker_name] = broker.master_address
        return found

    def _checked(
        self,
        target: PublishTarget,
        results: list[LetterResult],
        answers: list[SendAnswer | RmqError],
    ) -> list[LetterResult]:
        """Look where the retries are stored; give up if one is a dead letter again.

        The answer to a send does not name the topic.
        """
        addresses = self._addresses_of(target)
        questions = {
            number: (
                addresses[results[number].broker_name or ""],
                view_message_by_id(
                    decode_offset_msg_id(answer.offset_msg_ids[0]).commit_log_offset,
                    topic=target.topic,
                ),
            )
            for number, answer in enumerate(answers)
            if not isinstance(answer, RmqError)
        }
        for number, body in self._client.ask_many(questions).items():
            if isinstance(body, RmqError):
                continue  # the broker has confirmed that it is stored
            found = decode_messages(body)
            if not found or not isinstance(found[0], StoredMessage):
                continue
            if found[0].topic != target.topic:
                name = results[number].broker_name
                why = (
                    f"instead of {target.topic}, as brokers do while the group holds"
                    " locks of queues (orderly consumers)"
                )
                error = self._source.died(f"{name} stored", found[0].topic, why)
                self.given_up = error
                results[number] = results[number]._replace(
                    status=DEAD_AGAIN, error=error.message
                )
        return results
