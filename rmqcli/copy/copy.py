"""Copies the messages of a topic to another one, perhaps of another cluster.

`plan_copy` says what would be copied, and how; `CopyRun` does it, in batches. Before a
batch is sent its spans of offsets are in the log, and after it what became of them
(`log`). The positions of the queues are there, too, so a copy that was killed anywhere
goes on where it was: nothing is left out, and at most one batch is sent twice.

The messages of a queue keep their order. If the target has as many queues as the
source, each queue is copied to the one with the same index, in the order of broker
names and queue ids. Otherwise messages with a message group go to the queue in which
a proxy stores the group, whatever the type of the topic: it will store the next ones
there. Messages with a priority go to the queue of that number on one broker, or its
last one, as brokers store them, and the others of a queue all to one queue.

A copy has the body, tags, keys, flag and properties that the producer of the message
gave it. Properties that clients and brokers set are left out: the copy of a message
that was delayed, or sent in a transaction, is an ordinary message. Messages that still
wait for their time or for their transaction are in no queue of the topic, and are not
copied.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import denial_of, split_answers
from rmqcli.admin.lag.memory import (
    check_readable,
    untold_errors_of,
    warnings_of_departed,
)
from rmqcli.admin.positions import resolve_ranges_each, warn_of_unsorted
from rmqcli.admin.read.range import RangeReader, ReadOptions
from rmqcli.admin.reset.cluster_identity import identity_of, is_same_cluster
from rmqcli.admin.tail.sql import check_sql
from rmqcli.admin.topics import topics_without_tag_filter
from rmqcli.admin.witness import (
    SETTLE_MS,
    Noted,
    Witness,
    check_written_after,
    compare,
    read_witnesses,
)
from rmqcli.api.calls.send import SendStatus
from rmqcli.copy.log import BatchOutcome, CopyIdentity, SourceSpan, StoredRun, compact
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ConfigError,
    DecodeError,
    RefusedError,
    RmqError,
    SendUnknownError,
)
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.names import check_topic
from rmqcli.position import AtOffset, AtTime, Earliest, Latest, PlusN
from rmqcli.producer.batches import Gathered, queue_by_content, send_gathered
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.message import (
    PROPERTIES_RESERVE_BYTES,
    OutgoingMessage,
    RecordMessage,
    check_message,
    record_properties,
)
from rmqcli.producer.patience import RETRY_FOR_MS, Patience
from rmqcli.producer.producer import Producer
from rmqcli.producer.remoting.requests import explain_limit
from rmqcli.producer.remoting.target import find_target
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.compression import INFLATED_MAX
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import PROPERTIES_BYTES_MAX
from rmqcli.wire.message.record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rmqcli.admin.read.body import Chunk
    from rmqcli.admin.tail.filter import TailFilter
    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig
    from rmqcli.copy.log import CopyLog, CopyState
    from rmqcli.position import Position
    from rmqcli.producer.backend import SendResult

BY_INDEX: Final = "index"
BY_KEY: Final = "key"

#: Messages in a batch, and their bodies together. A kill can double one batch.
BATCH_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 8 << 20
#: Queues to which a batch is sent at the same time.
_AT_ONCE_MAX: Final = 16
#: Messages that are named of those that were left out for one reason.
NAMED_MAX: Final = 100
#: How often a copy that follows looks for new messages.
FOLLOW_MS: Final = 1_000

#: What the log has done with queues of the source and of the target, in errors.
_READ: Final = "the log has read"
_WRITTEN: Final = "the log has written"
_ANEW: Final = "name another file for the log to begin anew"

#: Starts that may be behind the end of a queue, and stay there as it grows.
_ABSOLUTE: Final = (AtOffset, PlusN, AtTime)

#: Why a message is not copied that `where` cannot judge.
UNDECODED: Final = "its body could not be decoded for the condition"

QueueKey = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """What to copy: the topics, the conditions, and the first and the last position.

    `start` counts for the first run with a log, which notes it for each queue. Queues
    that are added later are copied from their beginning, or from a time. `chosen_by` is
    the text of the conditions, for the log.
    """

    source_topic: str
    target_topic: str
    filter: TailFilter
    chosen_by: str = ""
    start: Position = field(default_factory=Earliest)
    end: Position = field(default_factory=Latest)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyQueue:
    """A queue of the source: what is to be read of it, and where it goes.

    `target` is None if the messages decide. `expired` are messages between the position
    in the log and the oldest one that is still stored: they are lost for the copy. With
    `is_new` the log does not have the start yet.
    """

    queue: MessageQueue
    start: int
    end: int
    target: MessageQueue | None
    expired: int = 0
    is_new: bool = False

    @property
    def count(self) -> int:
        """How many offsets are to be read."""
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlan:
    """What a copy would do.

    `unread` has the queues, also of the target, that could not be asked or compared
    with what the log knows of them, and those whose broker did not say whether it can
    filter by SQL. `unproven` are queues of the source of which all messages are deleted
    that the log could recognize; all that is stored there is copied. `doubtful` are
    spans that an earlier run may have stored: they are sent again. `copied` is how many
    messages `log` knows to be copied. While it knows none, `present` is how many the
    target has; None if that is not known. `departed` names brokers that have left, and
    of which it is not known whether they had the topic.
    """

    request: CopyRequest
    identity: CopyIdentity
    queues: tuple[CopyQueue, ...]
    targets: tuple[MessageQueue, ...]
    doubtful: tuple[SourceSpan, ...]
    copied: int
    present: int | None
    unread: Mapping[MessageQueue, RmqError] = field(hash=False)
    unproven: tuple[MessageQueue, ...] = ()
    departed: tuple[str, ...] = ()
    log: Path | None = None

    @property
    def mapping(self) -> str:
        """BY_INDEX or BY_KEY."""
        return mapping_of(self.identity)

    @property
    def count(self) -> int:
        """How many messages would be read; a filter may leave some out."""
        return sum(queue.count for queue in self.queues)

    @property
    def expired(self) -> int:
        """How many messages were deleted before they were copied."""
        return sum(queue.expired for queue in self.queues)


def identify(source: Client, target: Client, request: CopyRequest) -> CopyIdentity:
    """Return what identifies a copy. Raises NotFoundError for an unknown topic.

    Raises RefusedError for a topic that would be copied to itself, for one that is not
    readable on all its brokers, and for a target that only brokers write to; and as
    `check_sql` does.
    """
    check_topic(request.source_topic)
    check_topic(request.target_topic)
    if request.target_topic.startswith("%"):
        raise RefusedError(
            f"messages are not copied to {request.target_topic}, a topic of retries or"
            " dead letters"
        )
    route = source.route(request.source_topic)
    check_readable(route, RefusedError)
    if request.filter.sql is not None:  # the log of the copy is to note no wrong text
        check_sql(source, request.filter.sql, route.read_queues())
    found = find_target(target, request.target_topic)
    at = identity_of(target.route(request.target_topic))
    here = identity_of(route)
    if request.source_topic == request.target_topic and is_same_cluster(here, at):
        raise RefusedError(
            f"topic {request.source_topic} would be copied to itself",
            hint="name another topic, or another cluster",
        )
    return CopyIdentity(
        source_topic=request.source_topic,
        source=here,
        target_topic=request.target_topic,
        target=at,
        chosen_by=request.chosen_by,
        queues=tuple(map(_name_of, route.read_queues())),
        targets=tuple(map(_name_of, found.queues)),
    )


def mapping_of(identity: CopyIdentity) -> str:
    """Return BY_INDEX if both topics have as many queues, else BY_KEY."""
    return BY_INDEX if len(identity.queues) == len(identity.targets) else BY_KEY


def _name_of(queue: MessageQueue) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def plan_copy(
    source: Client,
    target: Client,
    request: CopyRequest,
    identity: CopyIdentity,
    state: CopyState,
) -> CopyPlan:
    """Say what a copy would do. Nothing is changed.

    A broker that has left the route counts as one that cannot be read if groups had
    queues of the topic there. Raises RefusedError if a queue of either topic is not the
    one that the log knows, DeniedError when no broker lets the source be read, and
    NoBrokerError when no broker of a cluster answers.
    """
    queues = source.route(request.source_topic).read_queues()
    targets = tuple(find_target(target, request.target_topic).queues)
    starts: dict[MessageQueue, Position] = {}
    start_of_added = request.start
    if not isinstance(request.start, AtTime):
        start_of_added = Earliest()
    for queue in queues:
        if _key_of(queue) in state.positions:
            starts[queue] = AtOffset(state.positions[_key_of(queue)])
        elif state.queues and _name_of(queue) not in state.queues:
            starts[queue] = start_of_added
    found = resolve_ranges_each(
        source, queues, request.start, request.end, own_starts=starts
    )
    warn_of_unsorted(found)
    ends = resolve_ranges_each(source, queues, Earliest(), Latest())
    mapping = mapping_of(identity)
    plans: list[CopyQueue] = []
    unread: dict[MessageQueue, RmqError] = {}
    bounds_of: dict[MessageQueue, tuple[int, int]] = {}
    for number, queue in enumerate(queues):
        resolved, bounds = found[queue], ends[queue]
        if isinstance(resolved, RmqError) or isinstance(bounds, RmqError):
            error = resolved if isinstance(resolved, RmqError) else bounds
            assert isinstance(error, RmqError)  # one of both is  # noqa: S101
            unread[queue] = error
            continue
        low, high = bounds.offsets.start, bounds.offsets.end
        wanted = state.positions.get(_key_of(queue))
        bounds_of[queue] = low, high
        start = resolved.offsets.start if wanted is None else max(wanted, low)
        is_absolute = isinstance(starts.get(queue, request.start), _ABSOLUTE)
        plans.append(
            CopyQueue(
                queue=queue,
                start=start,
                end=max(start, resolved.offsets.end),
                target=targets[number] if mapping == BY_INDEX else None,
                expired=0 if wanted is None else max(0, low - wanted),
                is_new=wanted is None and not (is_absolute and start == high),
            )
        )
    source.raise_if_none_answers(unread.values())
    denial = denial_of(unread.get(queue) for queue in queues)
    if denial is not None:
        raise denial
    if request.filter.sql is not None:
        unread |= check_sql(source, request.filter.sql, queues)
    compared = compare(
        source, _noted(state, bounds_of), bounds_of, done=_READ, anew=_ANEW
    )
    unread |= compared.errors | _unwritten(target, targets, state)
    for name, error in untold_errors_of(source, [request.source_topic]).items():
        unread.setdefault(MessageQueue(request.source_topic, name, 0), error)
    return CopyPlan(
        request=request,
        identity=identity,
        queues=tuple(plans),
        targets=targets,
        doubtful=tuple(state.doubtful),
        copied=state.copied,
        present=None if state.written else _count(target, targets),
        unread=unread,
        unproven=tuple(sorted(compared.unproven)),
        departed=tuple(
            warnings_of_departed(source, [request.source_topic], done="copied")
        ),
    )


def _noted(
    state: CopyState, queues: Iterable[MessageQueue]
) -> dict[MessageQueue, Noted]:
    """Return what the log says of queues of the source."""
    return {
        queue: Noted(state.positions[key], state.read.get(key))
        for queue in queues
        if (key := _key_of(queue)) in state.positions
    }


def _unwritten(
    client: Client, targets: Sequence[MessageQueue], state: CopyState
) -> dict[MessageQueue, RmqError]:
    """Return the queues of the target that cannot be compared with the log."""
    witnesses = {
        queue: state.written[key]
        for queue in targets
        if (key := _key_of(queue)) in state.written
    }
    ranges = resolve_ranges_each(client, list(witnesses), Earliest(), Latest())
    found, errors = split_answers(ranges)
    client.raise_if_none_answers(errors.values())
    bounds = {q: (each.offsets.start, each.offsets.end) for q, each in found.items()}
    noted = {
        queue: Noted(witnesses[queue].queue_offset + 1, witnesses[queue])
        for queue in bounds
    }
    compared = compare(
        client, noted, bounds, done=_WRITTEN, anew=_ANEW, settle_ms=SETTLE_MS
    )
    return errors | compared.errors


def _count(client: Client, queues: Sequence[MessageQueue]) -> int | None:
    """Return how many messages queues have, or None if a broker does not tell."""
    found, errors = split_answers(
        resolve_ranges_each(client, list(queues), Earliest(), Latest())
    )
    if errors:
        return None
    return sum(each.offsets.end - each.offsets.start for each in found.values())


def _key_of(queue: MessageQueue) -> QueueKey:
    return queue.broker_name, queue.queue_id


@dataclass(slots=True)
class CopyReport:
    """What a run has done. `left_out` are messages that cannot be copied, by reason.

    `copied` counts the messages that are stored, and `weak` those of them that brokers
    could not flush or replicate in time. `scanned` counts those that were read,
    `expired` those that were deleted after the last run, before they were copied, and
    `missing` offsets that brokers no longer have. `others` counts messages between
    copies of this run in a queue of the target: of producers, or of a copy with another
    log. `named` has the first of those that were left out, by reason. `unknown` are
    spans without an answer: the next run sends them again. `unread` are queues that
    could not be read to their end; a copy that follows tries again. `added` are queues
    that the source got while it was followed: this run does not copy them.
    """

    copied: int = 0
    weak: int = 0
    scanned: int = 0
    expired: int = 0
    missing: int = 0
    others: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)
    unknown: list[SourceSpan] = field(default_factory=list)
    given_up: RmqError | None = None
    unread: dict[MessageQueue, RmqError] = field(default_factory=dict)
    added: list[MessageQueue] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether everything of the plan is copied."""
        gaps = (self.unread, self.added, self.left_out, self.unknown)
        return not (self.given_up or self.expired or self.missing or any(gaps))


class CopyMessage(RecordMessage):
    """A message to send, with its offset in the queue of the source."""

    __slots__ = ("source_offset",)
    source_offset: int


@dataclass(slots=True)
class _Pending:
    """What was read of one queue and is not sent yet; `last` is the last message."""

    start: int
    end: int
    messages: list[CopyMessage] = field(default_factory=list)
    last: Witness | None = None


class CopyRun:
    """Carries out a plan. `batches` may be called once.

    `target` says how the cluster of the target is reached. When the iteration is left
    between two batches, all that was sent is in the log. A batch is sent and noted
    within `around_batch()`, which may hold interrupts back.
    """

    def __init__(
        self,
        source: Client,
        target: ClientConfig,
        plan: CopyPlan,
        log: CopyLog,
        *,
        rate_per_s: float | None = None,
        batch_max: int = BATCH_MAX,
        retry_for_ms: int = RETRY_FOR_MS,
        around_batch: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.report = CopyReport(expired=plan.expired)
        self._source = source
        self._target = target
        self._plan = plan
        self._log = log
        self._rate = rate_per_s
        self._batch_max = batch_max
        if rate_per_s is not None:
            self._batch_max = max(1, min(batch_max, int(rate_per_s)))
        self._retry_for_ms = retry_for_ms
        self._around_batch = around_batch
        self._where = plan.request.filter.where
        # By itself a filter keeps what `where` cannot read.
        self._filter = replace(plan.request.filter, where=None)
        if self._filter.expression != "*" and topics_without_tag_filter(
            source, [plan.request.source_topic]
        ):
            # A broker would leave out all messages.
            self._filter = replace(self._filter, tags_at_broker=False)
        self._index = {_key_of(q.queue): n for n, q in enumerate(plan.queues)}
        self._to = {_key_of(q.queue): q.target for q in plan.queues}
        self._next_ms = 0.0
        #: where the copies of this run end in each queue of the target
        self._ends: dict[QueueKey, int] = {}
        #: ends requests that are repeated
        self._stop = threading.Event()

    def batches(self, *, follow: bool = False) -> Iterator[int]:
        """Copy; yield the number of messages that each batch has stored.

        With `follow`, new messages are copied as they come, until the iteration is
        left; 0 is yielded whenever there was nothing new.
        """
        self._next_ms = self._source.clock.monotonic_ms()
        config = ProducerConfig(
            max_message_size_bytes=INFLATED_MAX,  # the broker applies its own limit
            create_topic_key=None,
        )
        with (
            Producer(client=self._target, config=config) as producer,
            ThreadPoolExecutor(_AT_ONCE_MAX, "rmq-copy") as pool,
        ):
            try:
                self._note_starts()
                ranges = [
                    OffsetRange(each.queue, each.start, each.end)
                    for each in self._plan.queues
                ]
                while True:
                    yield from self._copy(ranges, producer, pool)
                    if not follow or self.report.given_up is not None:
                        return
                    yield 0
                    self._source.clock.wait_ms(threading.Event(), FOLLOW_MS)
                    try:
                        ranges = self._new_ranges()
                    except RefusedError as error:
                        self.report.given_up = error
                        return
            finally:
                self._stop.set()

    def _note_starts(self) -> None:
        """Note where queues begin that the log does not know.

        Otherwise a later run would begin at what `start` means then.
        """
        new = {each.queue: each.start for each in self._plan.queues if each.is_new}
        if not new and self._plan.identity.queues == self._log.state.queues:
            return
        places = {queue: start - 1 for queue, start in new.items() if start}
        read = {}
        for queue, each in read_witnesses(self._source, places).items():
            if isinstance(each, RmqError):
                raise each
            if each is not None:
                read[_key_of(queue)] = each
        self._log.start(
            self._plan.identity,
            {_key_of(queue): start for queue, start in new.items()},
            read,
            at_ms=self._source.clock.epoch_ms(),
        )

    def _new_ranges(self) -> list[OffsetRange]:
        """Return what has come since; a queue that cannot be asked comes later.

        Raises RefusedError if a queue is not the one that was read before.
        """
        self._note_added()
        positions = self._log.state.positions
        queues = [each.queue for each in self._plan.queues]
        found = resolve_ranges_each(
            self._source,
            queues,
            self._plan.request.start,
            Latest(),
            own_starts={q: Earliest() for q in queues if _key_of(q) in positions},
        )
        unread = self.report.unread
        unread.clear()
        ranges = []
        moved = {}
        for each in self._plan.queues:
            queue, bounds = each.queue, found[each.queue]
            if isinstance(bounds, RmqError):
                unread[queue] = bounds
                continue
            low, high = bounds.offsets.start, bounds.offsets.end
            start = positions.get(_key_of(queue), low)
            if high != start:
                moved[queue] = low, high
                ranges.append(OffsetRange(queue, start, max(start, high)))
        noted = _noted(self._log.state, moved)
        unread |= compare(self._source, noted, moved, done=_READ, anew=_ANEW).errors
        return [each for each in ranges if each.queue not in unread]

    def _note_added(self) -> None:
        """Note the queues of the source that were not there when the copy began.

        The next run plans where they go. Without a route the brokers that are known are
        asked, so that a name server that is restarted does not end the copy.
        """
        topic = self._plan.request.source_topic
        route = self._source.routes([topic], refresh=True)[topic]
        if not isinstance(route, RmqError):
            queues = route.read_queues()
            self.report.added = [q for q in queues if _key_of(q) not in self._index]

    def _copy(
        self, ranges: list[OffsetRange], producer: Producer, pool: ThreadPoolExecutor
    ) -> Iterator[int]:
        wanted = self._filter
        reader = RangeReader(
            self._source,
            ranges,
            ReadOptions(
                raise_abandoned=False,
                expression=wanted.expression,
                expression_type=wanted.expression_type,
            ),
        )
        pending: dict[QueueKey, _Pending] = {}
        count = size = 0
        for chunk in reader:
            for part in self._parts(chunk):
                key = _key_of(chunk.queue)
                known = pending.get(key)
                if known is None:
                    pending[key] = part
                else:
                    known.end = part.end
                    known.messages += part.messages
                    known.last = part.last or known.last
                count += len(part.messages)
                size += sum(len(each.body) for each in part.messages)
                if count >= self._batch_max or size >= BATCH_BYTES_MAX:
                    yield self._send(pending, producer, pool)
                    pending, count, size = {}, 0, 0
                    if self.report.given_up is not None:
                        return
        if pending:
            yield self._send(pending, producer, pool)
        self.report.unread.update(reader.abandoned)

    def _parts(self, chunk: Chunk) -> Iterator[_Pending]:
        """Yield what is to be copied of a chunk, in parts that fit in a batch."""
        report, key = self.report, _key_of(chunk.queue)
        report.missing += sum(end - start for start, end in chunk.missing)
        stored = self._log.state.stored.get(key, set())
        part = _Pending(chunk.start, chunk.start)
        size = 0
        last = None
        for record in decode_messages(chunk.body) if chunk.body else ():
            if not isinstance(record, StoredMessage):
                self._leave_out(
                    chunk.queue, record.queue_offset, f"unreadable: {record.error}"
                )
                continue
            offset = record.queue_offset
            if not chunk.start <= offset < chunk.end:
                continue
            report.scanned += 1
            last = record
            if offset in stored or not self._is_wanted(chunk.queue, record):
                continue
            try:
                message = copy_of(record, self._plan.request.target_topic)
            except (DecodeError, ConfigError) as error:
                self._leave_out(chunk.queue, offset, error.message)
                continue
            size += len(message.body)
            part.messages.append(message)
            if len(part.messages) >= self._batch_max or size >= BATCH_BYTES_MAX:
                part.end, part.last = offset + 1, Witness.of(record)
                yield part
                part, size = _Pending(part.end, part.end), 0
        part.end = chunk.end
        part.last = None if last is None else Witness.of(last)
        yield part

    def _is_wanted(self, queue: MessageQueue, record: StoredMessage) -> bool:
        """Whether the conditions choose a message; one that is unsure is left out."""
        if not self._filter.matches(record, queue.broker_name):
            return False
        if self._where is None:
            return True
        found = self._where.is_true_of(record, queue.broker_name)
        if found is None:
            self._leave_out(queue, record.queue_offset, UNDECODED)
        return bool(found)

    def _leave_out(self, queue: MessageQueue, offset: int | None, why: str) -> None:
        report = self.report
        report.left_out[why] = report.left_out.get(why, 0) + 1
        named = report.named.setdefault(why, [])
        if len(named) < NAMED_MAX:
            named.append(f"{queue.broker_name}:{queue.queue_id}:{offset}")

    # --- sending ---

    def _send(
        self,
        pending: Mapping[QueueKey, _Pending],
        producer: Producer,
        pool: ThreadPoolExecutor,
    ) -> int:
        """Send a batch and note what became of it; return how many are stored."""
        if any(part.messages for part in pending.values()):
            self._wait()
        with self._around_batch():
            return self._send_noted(pending, producer, pool)

    def _send_noted(
        self,
        pending: Mapping[QueueKey, _Pending],
        producer: Producer,
        pool: ThreadPoolExecutor,
    ) -> int:
        clock, log = self._source.clock, self._log
        spans = [
            SourceSpan(*key, part.start, part.end, len(part.messages))
            for key, part in pending.items()
        ]
        count = sum(len(part.messages) for part in pending.values())
        log.intend(spans, at_ms=clock.epoch_ms())
        lanes: dict[MessageQueue, list[tuple[QueueKey, CopyMessage]]] = {}
        for key, part in pending.items():
            for message in part.messages:
                lanes.setdefault(self._queue_of(key, message), []).append(
                    (key, message)
                )
        futures = [
            pool.submit(self._lane, producer, queue, items)
            for queue, items in lanes.items()
        ]
        outcomes = [future.result() for future in futures]
        runs = [run for outcome in outcomes for run in outcome.runs]
        errors = [each.error for each in outcomes if each.error is not None]
        unsure = {offset for each in outcomes for offset in each.unsure}
        unstored = unsure | {offset for each in outcomes for offset in each.unsent}
        positions = {}
        unknown = []
        for span in spans:
            left = [o for key, o in unstored if key == span.key]
            positions[span.key] = min(left, default=span.end)
            doubtful = [o for key, o in unsure if key == span.key]
            if doubtful:
                start, end = min(doubtful), max(doubtful) + 1
                unknown.append(SourceSpan(*span.key, start, end, len(doubtful)))
        log.conclude(
            BatchOutcome(
                runs=runs,
                unknown=unknown,
                positions=positions,
                read=self._last_read(pending),
                written={k: w for each in outcomes for k, w in each.written.items()},
            ),
            at_ms=clock.epoch_ms(),
        )
        stored = sum(len(run.offsets) for run in runs)
        self.report.copied += stored
        self.report.weak += sum(outcome.weak for outcome in outcomes)
        self._count_others(runs)
        self.report.unknown = unknown
        if errors:
            self.report.given_up = errors[0]
        if self._rate is not None:
            self._next_ms += count * 1000 / self._rate
        return stored

    def _count_others(self, runs: Iterable[StoredRun]) -> None:
        """Count the messages in the target before each run, up to the one before."""
        for run in runs:
            key = run.target_broker, run.target_queue
            end = self._ends.get(key, run.target_offset)
            self.report.others += max(0, run.target_offset - end)
            self._ends[key] = run.target_offset + len(run.offsets)

    def _last_read(
        self, pending: Mapping[QueueKey, _Pending]
    ) -> dict[QueueKey, Witness]:
        """Return the last message of each queue that was read, by which it is known.

        Where the broker left out all messages, the last of them is asked for.
        """
        found = {key: part.last for key, part in pending.items() if part.last}
        places = {
            MessageQueue(self._plan.request.source_topic, *key): part.end - 1
            for key, part in pending.items()
            if part.last is None and part.end > part.start
        }
        for queue, each in read_witnesses(self._source, places).items():
            if isinstance(each, Witness):
                found[_key_of(queue)] = each
        return found

    def _queue_of(self, key: QueueKey, message: CopyMessage) -> MessageQueue:
        fixed = self._to[key]
        if fixed is not None:
            return fixed
        targets = self._plan.targets
        other = targets[self._index[key] % len(targets)]
        return queue_by_content(message, targets, other)

    def _lane(
        self,
        producer: Producer,
        queue: MessageQueue,
        items: Sequence[tuple[QueueKey, CopyMessage]],
    ) -> _LaneOutcome:
        """Send messages to one queue, one request after the other.

        After the first request that is not known to be stored nothing more is sent: it
        would be before the others. Nor is anything after one that shows that the topic
        is another one. A request that the broker calls illegal is halved, until the
        message at fault is alone.
        """
        outcome = _LaneOutcome()
        todo = deque(_requests(items))
        while todo:
            key, messages = todo.popleft()
            places = [(key, each.source_offset) for each in messages]
            if outcome.error is not None:
                outcome.unsent += places
                continue
            try:
                results = self._attempt(producer, queue, messages)
            except RmqError as error:
                if (
                    isinstance(error, BrokerError)
                    and error.code == ResponseCode.MESSAGE_ILLEGAL
                ):
                    if len(messages) > 1:
                        # Together they may be too large, or one of them is.
                        half = len(messages) // 2
                        todo.appendleft((key, messages[half:]))
                        todo.appendleft((key, messages[:half]))
                        continue
                    explain_limit(error, len(messages[0].body))
                    place = f"{key[0]}:{key[1]}:{messages[0].source_offset}"
                    error.message = f"{place}: {error.message}"
                outcome.error = error
                is_unsure = isinstance(error, SendUnknownError)
                (outcome.unsure if is_unsure else outcome.unsent).extend(places)
                continue
            if results[0].status is not SendStatus.SEND_OK:
                outcome.weak += len(messages)
            result = results[0]
            at = result.queue or queue
            outcome.error = self._not_after(outcome.written, at, result.queue_offset)
            if results[-1].queue_offset is not None and outcome.error is None:
                last = Witness(results[-1].queue_offset, results[-1].msg_id, None)
                outcome.written[_key_of(at)] = last
            outcome.runs.append(
                StoredRun(
                    *key,
                    compact([each.source_offset for each in messages]),
                    at.broker_name,
                    at.queue_id,
                    result.queue_offset or 0,
                )
            )
        return outcome

    def _not_after(
        self,
        written: Mapping[QueueKey, Witness],
        queue: MessageQueue,
        queue_offset: int | None,
    ) -> RefusedError | None:
        """Return the error of a message that is not behind the one written before.

        `written` has what this batch wrote. The copies before it are gone then. Their
        witness remains in the log, by which the next run is refused.
        """
        key = _key_of(queue)
        before = written.get(key) or self._log.state.written.get(key)
        if before is None or queue_offset is None:
            return None
        try:
            check_written_after(
                queue, queue_offset, before.queue_offset, done=_WRITTEN, anew=_ANEW
            )
        except RefusedError as error:
            return error
        return None

    def _attempt(
        self, producer: Producer, queue: MessageQueue, messages: Sequence[CopyMessage]
    ) -> list[SendResult]:
        """Send a request; repeat it while it is certain that nothing is stored."""
        clock = self._source.clock
        patience = Patience(clock, retry_for_ms=self._retry_for_ms)
        while True:
            try:
                return send_gathered(producer, messages, queue)
            except SendUnknownError:
                raise
            except RmqError as error:
                # The topic was there when the copy was planned.
                pause_ms = patience.pause_ms(error, is_known=True)
                if clock.wait_ms(self._stop, pause_ms):
                    raise

    def _wait(self) -> None:
        clock = self._source.clock
        never = threading.Event()
        while (wait_ms := self._next_ms - clock.monotonic_ms()) >= 1:
            clock.wait_ms(never, int(wait_ms))


@dataclass(slots=True)
class _LaneOutcome:
    runs: list[StoredRun] = field(default_factory=list)
    written: dict[QueueKey, Witness] = field(default_factory=dict)
    unsure: list[tuple[QueueKey, int]] = field(default_factory=list)
    unsent: list[tuple[QueueKey, int]] = field(default_factory=list)
    weak: int = 0
    error: RmqError | None = None


def _requests(
    items: Sequence[tuple[QueueKey, CopyMessage]],
) -> Iterator[tuple[QueueKey, list[CopyMessage]]]:
    """Cut messages into requests; one request has messages of one source queue."""
    at = 0
    while at < len(items):
        key = items[at][0]
        gathered: Gathered[CopyMessage] = Gathered(has_queue=True)
        while at < len(items) and items[at][0] == key:
            for batch in gathered.add(items[at][1]):
                yield key, batch
            at += 1
        for batch in gathered.rest():
            yield key, batch


def copy_of(record: StoredMessage, topic: str) -> CopyMessage:
    """Return the message to send for a stored one.

    Raises DecodeError for a body or properties that are damaged, and ConfigError for
    properties that leave no room for those of the producer.
    """
    raw = record.raw_properties
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise DecodeError("its properties are not valid UTF-8") from None
    given: dict[str, str] = record_properties(
        record.properties.items(), tags=None, keys=None
    )
    if len(raw) > PROPERTIES_BYTES_MAX - PROPERTIES_RESERVE_BYTES:
        check_message(OutgoingMessage(b"", given))
    message = CopyMessage(topic, record.body, properties=given, flag=record.flag)
    object.__setattr__(message, "source_offset", record.queue_offset)
    return message
