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

from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.delayed import (
    TIMER_TOPIC,
    delay_levels_ms,
    delivered_levels,
    delivered_until_ms,
    runtime_and_config,
    stored_messages,
)
from rmqcli.admin.message.find import PENDING_TOPICS
from rmqcli.admin.message.outcome import MessageVerdict
from rmqcli.admin.message.records import decode_all
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
from rmqcli.api.calls.store import QUERY_END_MS, QUERY_MESSAGE_MAX, query_message
from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.units import counted, format_rfc3339, read_count
from rmqcli.wire.message.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


@dataclass(slots=True)
class _Copies:
    """All records with the message's id on its broker, by their topics."""

    by_topic: dict[str, list[PulledMessage]] = field(default_factory=dict)
    #: why there may be more, or None
    no_more: str | None = None

    def of(self, topic: str) -> list[PulledMessage]:
        return self.by_topic.get(topic, [])


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
    if message.message_queue.topic in (HALF_TOPIC, ROCKSDB_HALF_TOPIC):
        return _half(client, address, message)
    if message.message_queue.topic == TIMER_TOPIC:
        return _timed(client, address, message)
    return _levelled(client, address, message)


def _copies(
    client: Client, address: str, message: PulledMessage, topics: Iterable[str]
) -> _Copies:
    """Look up the records with the message's id in these topics, and in its own one."""
    found = _Copies()
    if not message.msg_id:
        found.no_more = "it has no unique id, by which its copies are found"
        return found
    call = {
        topic: query_message(
            topic,
            message.msg_id,
            begin_ms=1,
            end_ms=QUERY_END_MS,
            max_num=QUERY_MESSAGE_MAX,
        )
        for topic in {message.message_queue.topic, *topics}
    }
    answers = client.ask_many({topic: (address, each) for topic, each in call.items()})
    damaged = 0
    for topic, answer in answers.items():
        if isinstance(answer, RmqError):
            raise answer
        records, failures = decode_all(answer, message.broker_name)
        damaged += len(failures)
        found.by_topic[topic] = [
            each
            for each in records
            if each.msg_id == message.msg_id and each.message_queue.topic == topic
        ]
    own = found.of(message.message_queue.topic)
    if message.offset_msg_id not in {each.offset_msg_id for each in own}:
        found.no_more = (
            "the index does not find the message itself, so not its copies either"
        )
    elif damaged:
        found.no_more = (
            f"{counted(damaged, 'record')} with its id cannot be read: it may be its"
            " copy"
        )
    return found


def _delivered(
    copies: _Copies, message: PulledMessage, *, from_ms: int = 0
) -> PendingOutcome | None:
    """Return the message's copy in its own topic, the first one stored since then.

    A producer that sends the same message again gives it the same id, so that an older
    record with its id is not its copy. What is older, its broker's commit log tells;
    times do not where a clock was set back.
    """
    found = [
        each
        for each in copies.of(message.properties[REAL_TOPIC])
        if each.commit_log_offset > message.commit_log_offset
        and each.store_timestamp_ms >= from_ms
    ]
    if not found:
        return None
    return PendingOutcome(delivered=min(found, key=_commit_log_offset))


def _commit_log_offset(message: PulledMessage) -> int:
    return message.commit_log_offset


def _half(client: Client, address: str, message: PulledMessage) -> PendingOutcome:
    try:
        ended, why = _ends(client, address, message)
        end_error = None
    except RmqError as error:
        ended, why, end_error = {}, None, error
    topic = message.properties[REAL_TOPIC]
    copies = _copies(client, address, message, (topic, _GIVEN_UP_TOPIC))
    delivered = _delivered(copies, message)
    if delivered is not None:
        return delivered
    if copies.of(_GIVEN_UP_TOPIC):
        return PendingOutcome(
            verdict=MessageVerdict.ROLLED_BACK,
            evidence="the broker gave its transaction up: a copy is in"
            f" {_GIVEN_UP_TOPIC}",
        )
    if message.message_queue.topic == ROCKSDB_HALF_TOPIC:
        at = format_rfc3339(message.store_timestamp_ms)
        return PendingOutcome(
            evidence=f"a half message is there since {at}",
            reason="whether its transaction is open is not known: its broker notes that"
            " in RocksDB (transRocksDBEnable)",
        )
    # A check that finds it still open writes it again.
    others = copies.of(HALF_TOPIC)
    halves = [message, *(each for each in others if _is_same_half(each, message))]
    offsets = {each.queue_offset for each in halves}
    for each in halves:
        prepared = read_count(each.properties.get(PREPARED_OFFSET))
        if prepared is not None:
            offsets.add(prepared)
    at_ms = next((ended[each] for each in offsets if each in ended), None)
    since = format_rfc3339(min(halves, key=_commit_log_offset).store_timestamp_ms)
    if at_ms is not None and copies.no_more is not None:
        return PendingOutcome(
            evidence=f"its transaction ended at {format_rfc3339(at_ms)}",
            reason=copies.no_more,
        )
    if at_ms is not None:
        return PendingOutcome(
            verdict=MessageVerdict.ROLLED_BACK,
            evidence=f"its transaction ended at {format_rfc3339(at_ms)}, and no copy is"
            f" in {topic}",
        )
    evidence = f"a half message is there since {since}"
    reason = why if end_error is None else end_error.message
    if reason is None:  # what the broker gave up leaves only a copy
        reason = copies.no_more
    if reason is not None:
        return PendingOutcome(
            evidence=evidence,
            reason=f"whether its transaction has ended is not known: {reason}",
        )
    checks = max(map(checks_of, halves))
    is_late = client.broker_version(address) >= V5_0_0
    return PendingOutcome(
        verdict=MessageVerdict.HALF,
        evidence=f"its transaction is open since {since}, with {checks} checks so far",
        reason="brokers of 5.x write its end up to three seconds late"
        if is_late
        else None,
    )


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


def _ends(
    client: Client, address: str, message: PulledMessage
) -> tuple[dict[int, int], str | None]:
    """Return the half messages that ended since this one was stored, and when.

    Also why there may be more, or None.
    """
    queue = MessageQueue(OP_TOPIC, message.broker_name, 0)
    try:
        end = client.invoke(address, get_max_offset(OP_TOPIC, 0))
    except NotFoundError:
        return {}, None  # no transaction has ended
    start = _first_behind(client, address, queue, message, end)
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


def _first_behind(
    client: Client, address: str, queue: MessageQueue, message: PulledMessage, end: int
) -> int:
    """Return the offset of the first record in a queue that is behind a message.

    The broker's search by time tells where to look, and the places in its commit log
    decide: where the clock was set back, what is behind the message may look older.
    """
    at_ms = message.store_timestamp_ms - 1
    near = client.invoke(
        address, search_offset_by_timestamp(queue.topic, queue.queue_id, at_ms)
    )
    low = client.invoke(address, get_min_offset(queue.topic, queue.queue_id))
    high = end
    probes = [near, near - 1]
    while low < high:
        probe = min(max(probes.pop(), low), high - 1) if probes else (low + high) // 2
        record = next(stored_messages(client, address, queue, probe, probe + 1), None)
        if record is None or record.commit_log_offset > message.commit_log_offset:
            high = probe
        else:
            low = probe + 1
    return high


def _timed(client: Client, address: str, message: PulledMessage) -> PendingOutcome:
    runtime = client.invoke(address, get_broker_runtime_info())
    topic = message.properties[REAL_TOPIC]
    copies = _copies(client, address, message, (topic,))
    records = [message, *copies.of(TIMER_TOPIC)]
    waiting = [each for each in records if TIMER_DEL_UNIQKEY not in each.properties]
    # One that is due later than the wheel reaches is written again.
    last = max(waiting, key=lambda each: each.queue_offset, default=message)
    due_ms = read_count(last.properties.get(_DUE))
    if due_ms is None:
        return PendingOutcome(reason="its record does not say when it is due")
    delivered = _delivered(copies, message, from_ms=due_ms - _EARLY_MS)
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
    if copies.no_more is not None:
        return PendingOutcome(
            evidence=f"it is due at {format_rfc3339(due_ms)}",
            reason=f"whether it was recalled is not known: {copies.no_more}",
            next_at_ms=due_ms,
        )
    return _due(due_ms, delivered_until_ms(client, runtime), topic, message)


def _levelled(client: Client, address: str, message: PulledMessage) -> PendingOutcome:
    runtime, config = runtime_and_config(client, address)
    topic = message.properties[REAL_TOPIC]
    copies = _copies(client, address, message, (topic,))
    level = message.queue_id + 1  # ScheduleMessageService.queueId2DelayLevel
    due_ms = level_due_ms(message, delay_levels_ms(config))
    from_ms = 0 if due_ms is None else due_ms - _EARLY_MS
    delivered = _delivered(copies, message, from_ms=from_ms)
    if delivered is not None:
        return delivered
    done = delivered_levels(runtime).get(level)
    if done is not None and message.queue_offset < done:
        return PendingOutcome(
            evidence="the broker has delivered its delay level up to this message",
            reason=f"no copy of it was found in {topic}: it may be deleted, or not yet"
            " in the index",
        )
    if due_ms is None:
        return PendingOutcome(
            verdict=MessageVerdict.DELAYED,
            evidence=f"it waits in delay level {level}",
            reason="the broker does not show its delays"
            if isinstance(config, RmqError)
            else "messageDelayLevel of the broker does not have it",
        )
    return _due(due_ms, delivered_until_ms(client, runtime), topic, message)


def _due(
    due_ms: int, until_ms: int, topic: str, message: PulledMessage
) -> PendingOutcome:
    if due_ms + _LATE_MS <= until_ms:
        return PendingOutcome(
            evidence=f"it was due at {format_rfc3339(due_ms)}",
            reason=f"no copy of it was found in {topic}: it may be late, deleted, or"
            " not yet in the index"
            if message.msg_id
            else "it has no unique id, by which its copy is found",
        )
    return PendingOutcome(
        verdict=MessageVerdict.DELAYED,
        evidence="it waits for its delay to end",
        next_at_ms=due_ms,
    )


def level_due_ms(message: PulledMessage, delays_ms: Mapping[int, int]) -> int | None:
    """Return when a message in a delay level is due, or None if that is not known.

    `delays_ms` are those of the levels.
    """
    delay_ms = delays_ms.get(message.queue_id + 1)
    return None if delay_ms is None else message.store_timestamp_ms + delay_ms
