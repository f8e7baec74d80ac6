"""Messages that no consumer gets, or not yet: half messages, and delayed ones.

Until a transaction is committed its message lies in RMQ_SYS_TRANS_HALF_TOPIC, and a
message with a delay in SCHEDULE_TOPIC_XXXX or, with a delivery time (5.x), in
rmq_sys_wheel_timer. These topics keep their records afterwards. What ends such a wait
is a copy in the message's own topic, with the same unique id, a record of a rollback, a
recall, or that the broker gave the transaction up.

The order of the requests matters: a broker stores the copy of a committed message
before the record of the end. So copies are looked up last.

Source: TransactionalMessageServiceImpl, EndTransactionProcessor,
ScheduleMessageService, TimerMessageStore, RecallMessageProcessor in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.admin.delayed import (
    TIMER_TOPIC,
    delay_levels_ms,
    delivered_levels,
    delivered_until_ms,
    runtime_and_config,
    stored_messages,
)
from rmqcli.admin.message.records import PENDING_TOPICS, decode_all
from rmqcli.admin.message.verdict import MessageVerdict
from rmqcli.admin.transactions import (
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_OFFSET,
    ROCKSDB_HALF_TOPIC,
    checks_of,
    ended_offsets,
)
from rmqcli.api.calls.config import get_broker_runtime_info
from rmqcli.api.calls.offset import (
    get_max_offset,
    get_min_offset,
    search_offset_by_timestamp,
)
from rmqcli.api.calls.store import query_message
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.units import counted, format_rfc3339, read_count
from rmqcli.wire.message.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage

_GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
_DUE: Final = "TIMER_OUT_MS"
#: Records of ended transactions that are read to find one.
_ENDS_READ_MAX: Final = 20_000
#: Brokers deliver a little late: by then a copy should be there.
_LATE_MS: Final = 10_000
#: The timers of a broker have a precision of one second.
_EARLY_MS: Final = 1_000


@dataclass(slots=True, kw_only=True)
class PendingOutcome:
    """What became of a message that waited.

    `delivered` is its copy in its own topic, if that is there; then the rest does not
    apply. `next_at_ms` (epoch ms by the broker's clock) is when it is due.
    """

    delivered: PulledMessage | None = None
    verdict: MessageVerdict = MessageVerdict.UNKNOWN
    evidence: str | None = None
    reason: str | None = None
    next_at_ms: int | None = None


def is_pending(message: PulledMessage) -> bool:
    """Whether a message is in a topic of those that wait, for a topic of its own."""
    topic = message.message_queue.topic
    return topic in PENDING_TOPICS and bool(message.properties.get(REAL_TOPIC))


def judge_pending(
    client: Client, address: str, message: PulledMessage
) -> PendingOutcome:
    """Return what became of a message for which `is_pending` is true.

    `address` is that of its broker. Raises RmqError when that does not answer.
    """
    waiting = _Waiting(client, address, message)
    if message.message_queue.topic in (HALF_TOPIC, ROCKSDB_HALF_TOPIC):
        return waiting.half()
    if message.message_queue.topic == TIMER_TOPIC:
        return waiting.timed()
    return waiting.levelled()


class _Waiting:
    """A message that waits, or waited, for `topic`; reads what became of it."""

    def __init__(self, client: Client, address: str, message: PulledMessage) -> None:
        self._client = client
        self._address = address
        self._message = message
        self._topic = message.properties[REAL_TOPIC]
        #: all records with the message's id on its broker, by their topics
        self._copies: dict[str, list[PulledMessage]] = {}
        #: why there may be more, or None
        self._no_more: str | None = None

    def half(self) -> PendingOutcome:
        """Return what became of a half message."""
        message = self._message
        try:
            ended, why = self._ends()
        except RmqError as error:
            ended, why = {}, error.message
        self._look_up(self._topic, _GIVEN_UP_TOPIC)
        delivered = self._delivered()
        if delivered is not None:
            return delivered
        if self._copies.get(_GIVEN_UP_TOPIC):
            return PendingOutcome(
                verdict=MessageVerdict.ROLLED_BACK,
                evidence="the broker gave its transaction up: a copy is in"
                f" {_GIVEN_UP_TOPIC}",
            )
        if message.message_queue.topic == ROCKSDB_HALF_TOPIC:
            at = format_rfc3339(message.store_timestamp_ms)
            return PendingOutcome(
                evidence=f"a half message is there since {at}",
                reason="whether its transaction is open is not known: its broker notes"
                " that in RocksDB (transRocksDBEnable)",
            )
        # A check that finds it still open writes it again.
        others = self._copies.get(HALF_TOPIC, ())
        halves = [message, *(each for each in others if _is_same_half(each, message))]
        offsets = {each.queue_offset for each in halves}
        for each in halves:
            prepared = read_count(each.properties.get(PREPARED_OFFSET))
            if prepared is not None:
                offsets.add(prepared)
        at_ms = next((ended[each] for each in offsets if each in ended), None)
        if at_ms is not None:
            evidence = f"its transaction ended at {format_rfc3339(at_ms)}"
            if self._no_more is not None:
                return PendingOutcome(evidence=evidence, reason=self._no_more)
            return PendingOutcome(
                verdict=MessageVerdict.ROLLED_BACK,
                evidence=f"{evidence}, and no copy is in {self._topic}",
            )
        since = format_rfc3339(min(halves, key=_commit_log_offset).store_timestamp_ms)
        reason = why or self._no_more  # what the broker gave up leaves only a copy
        if reason is not None:
            return PendingOutcome(
                evidence=f"a half message is there since {since}",
                reason=f"whether its transaction has ended is not known: {reason}",
            )
        checks = max(map(checks_of, halves))
        is_late = self._client.broker_version(self._address) >= V5_0_0
        late = "brokers of 5.x write its end up to three seconds late"
        return PendingOutcome(
            verdict=MessageVerdict.HALF,
            evidence=f"its transaction is open since {since}, with {checks} checks so"
            " far",
            reason=late if is_late else None,
        )

    def timed(self) -> PendingOutcome:
        """Return what became of a message with a delivery time."""
        runtime = self._client.invoke(self._address, get_broker_runtime_info())
        self._look_up(self._topic)
        records = [self._message, *self._copies.get(TIMER_TOPIC, ())]
        waiting = [each for each in records if TIMER_DEL_UNIQKEY not in each.properties]
        # One that is due later than the wheel reaches is written again.
        last = max(waiting, key=lambda each: each.queue_offset, default=self._message)
        due_ms = read_count(last.properties.get(_DUE))
        if due_ms is None:
            return PendingOutcome(reason="its record does not say when it is due")
        delivered = self._delivered(from_ms=due_ms - _EARLY_MS)
        if delivered is not None:
            return delivered
        for each in records:
            if (
                TIMER_DEL_UNIQKEY in each.properties
                and read_count(each.properties.get(_DUE)) == due_ms
            ):
                at = format_rfc3339(each.store_timestamp_ms)
                return PendingOutcome(
                    verdict=MessageVerdict.RECALLED, evidence=f"it was recalled at {at}"
                )
        if self._no_more is not None:
            return PendingOutcome(
                evidence=f"it is due at {format_rfc3339(due_ms)}",
                reason=f"whether it was recalled is not known: {self._no_more}",
                next_at_ms=due_ms,
            )
        return self._due(due_ms, runtime)

    def levelled(self) -> PendingOutcome:
        """Return what became of a message in a delay level."""
        message = self._message
        runtime, config = runtime_and_config(self._client, self._address)
        self._look_up(self._topic)
        level = message.queue_id + 1  # ScheduleMessageService.queueId2DelayLevel
        due_ms = level_due_ms(message, delay_levels_ms(config))
        from_ms = 0 if due_ms is None else due_ms - _EARLY_MS
        delivered = self._delivered(from_ms=from_ms)
        if delivered is not None:
            return delivered
        done = delivered_levels(runtime).get(level)
        if done is not None and message.queue_offset < done:
            return PendingOutcome(
                evidence="the broker has delivered its delay level up to this message",
                reason=f"no copy of it was found in {self._topic}: it may be deleted,"
                " or not yet in the index",
            )
        if due_ms is None:
            return PendingOutcome(
                verdict=MessageVerdict.DELAYED,
                evidence=f"it waits in delay level {level}",
                reason="the broker does not show its delays"
                if isinstance(config, RmqError)
                else "messageDelayLevel of the broker does not have it",
            )
        return self._due(due_ms, runtime)

    def _due(self, due_ms: int, runtime: Mapping[str, str]) -> PendingOutcome:
        if due_ms + _LATE_MS <= delivered_until_ms(self._client, runtime):
            return PendingOutcome(
                evidence=f"it was due at {format_rfc3339(due_ms)}",
                reason=f"no copy of it was found in {self._topic}: it may be late,"
                " deleted, or not yet in the index"
                if self._message.msg_id
                else "it has no unique id, by which its copy is found",
            )
        return PendingOutcome(
            verdict=MessageVerdict.DELAYED,
            evidence="it waits for its delay to end",
            next_at_ms=due_ms,
        )

    def _look_up(self, *topics: str) -> None:
        """Look up the copies with the message's id in these topics, and in its own."""
        message = self._message
        own_topic, msg_id = message.message_queue.topic, message.msg_id
        if not msg_id:
            self._no_more = "it has no unique id, by which its copies are found"
            return
        questions = {}
        for topic in {own_topic, *topics}:
            questions[topic] = self._address, query_message(topic, msg_id, begin_ms=1)
        damaged = 0
        for topic, answer in self._client.ask_many(questions).items():
            if isinstance(answer, RmqError):
                raise answer
            records, failures = decode_all(answer, message.broker_name)
            damaged += len(failures)
            self._copies[topic] = [
                each
                for each in records
                if each.msg_id == msg_id and each.message_queue.topic == topic
            ]
        own = self._copies[own_topic]
        if message.offset_msg_id not in {each.offset_msg_id for each in own}:
            self._no_more = (
                "the index does not find the message itself, so not its copies either"
            )
        elif damaged:
            self._no_more = (
                f"{counted(damaged, 'record')} with its id cannot be read: it may be"
                " its copy"
            )

    def _delivered(self, *, from_ms: int = 0) -> PendingOutcome | None:
        """Return the message's copy in its own topic, the first one stored since then.

        A producer that sends the same message again gives it the same id, so that an
        older record with its id is not its copy. What is older, its broker's commit log
        tells; times do not where a clock was set back.
        """
        found = [
            each
            for each in self._copies.get(self._topic, ())
            if each.commit_log_offset > self._message.commit_log_offset
            and each.store_timestamp_ms >= from_ms
        ]
        if not found:
            return None
        return PendingOutcome(delivered=min(found, key=_commit_log_offset))

    def _ends(self) -> tuple[dict[int, int], str | None]:
        """Return the half messages that ended since this one was stored, and when.

        Also why there may be more, or None.
        """
        client, address, message = self._client, self._address, self._message
        queue = MessageQueue(OP_TOPIC, message.broker_name, 0)
        try:
            end = client.invoke(address, get_max_offset(OP_TOPIC, 0))
        except NotFoundError:
            return {}, None  # no transaction has ended
        start = self._first_behind(queue, end)
        until = min(end, start + _ENDS_READ_MAX)
        found: dict[int, int] = {}
        wanted = message.queue_offset
        for record in stored_messages(client, address, queue, start, until):
            for each in ended_offsets(record):
                found.setdefault(each, record.store_timestamp_ms)
            if wanted in found:
                return found, None
        if until < end:
            return found, (
                f"since then {counted(end - start, 'record')} of ends were stored, and"
                f" {_ENDS_READ_MAX:,} are read"
            )
        return found, None

    def _first_behind(self, queue: MessageQueue, end: int) -> int:
        """Return the offset of the first record in a queue that is behind the message.

        The broker's search by time tells where to look, and the places in its commit
        log decide: where the clock was set back, what is behind the message may look
        older.
        """
        client, address, message = self._client, self._address, self._message
        place = queue.topic, queue.queue_id
        at_ms = message.store_timestamp_ms - 1
        near = client.invoke(address, search_offset_by_timestamp(*place, at_ms))
        low = client.invoke(address, get_min_offset(*place))
        high = end
        probes = [near, near - 1]
        while low < high:
            probe = (low + high) // 2
            if probes:
                probe = min(max(probes.pop(), low), high - 1)
            found = stored_messages(client, address, queue, probe, probe + 1)
            record = next(found, None)
            if record is None or record.commit_log_offset > message.commit_log_offset:
                high = probe
            else:
                low = probe + 1
        return high


def _commit_log_offset(message: PulledMessage) -> int:
    return message.commit_log_offset


def _is_same_half(other: PulledMessage, message: PulledMessage) -> bool:
    """Whether a half message with the same id is not that of another attempt to send.

    Copies keep the born time. At most one of them is not from a check.
    """
    if other.queue_offset == message.queue_offset:
        return True
    is_checked = any(
        checks_of(each) or PREPARED_OFFSET in each.properties
        for each in (other, message)
    )
    return is_checked and other.born_timestamp_ms == message.born_timestamp_ms


def level_due_ms(message: PulledMessage, delays_ms: Mapping[int, int]) -> int | None:
    """Return when a message in a delay level is due, or None if that is not known.

    `delays_ms` are those of the levels.
    """
    delay_ms = delays_ms.get(message.queue_id + 1)
    return None if delay_ms is None else message.store_timestamp_ms + delay_ms
