"""Messages that wait for their delivery time: in delay levels and in the timer topic.

A message with a delay level waits in a queue of SCHEDULE_TOPIC_XXXX, in the order in
which it was stored. A message for a given time (5.0 and later) is a record of the timer
topic, which keeps what was delivered, too: the due time of a record, compared with the
time up to which the broker has delivered, tells which of them still wait. A message
that is due later than the wheel reaches is written again from time to time; only its
last record counts. Two messages that were sent with one key are two. A recall is a
record of its own, with the key of what it deletes.

Source: ScheduleMessageService, TimerMessageStore, RecallMessageProcessor.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Final

from rmqcli.admin.brokers import denial_of, reader_addresses
from rmqcli.admin.lag.memory import untold_errors_of
from rmqcli.admin.read.range import view_entries
from rmqcli.api.calls.config import get_broker_config, get_broker_runtime_info
from rmqcli.api.calls.offset import get_max_offset, get_min_offset
from rmqcli.api.calls.pull import MSG_NUMS_MAX, pull_message
from rmqcli.api.calls.store import query_consume_queue
from rmqcli.api.positions import BrokerClock, broker_clock
from rmqcli.dataclass import dataclass
from rmqcli.engine.message import Origin, PulledItem, PulledRecord
from rmqcli.errors import NotFoundError, PartialError, RmqError, UnsupportedError
from rmqcli.model import SCHEDULE_TOPIC, MessageQueue
from rmqcli.units import DURATION_UNITS_MS, counted, read_count
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.errors import DeniedError
    from rmqcli.wire.message.record import StoredMessage

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"  # TimerMessageStore.TIMER_TOPIC
#: Records of all topics that are read on one broker, in each of the two topics.
SCANNED_MAX: Final = 1_000_000
_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"  # MessageConst.PROPERTY_TIMER_ROLL_TIMES
_LEVEL_KEY: Final = "scheduleMessageOffset_"
#: Brokers with more levels refuse pulls from their queues (SCHEDULE_TOPIC_QUEUE_NUM).
LEVELS_PULLED_MAX: Final = 18
_VIEWED_AT_ONCE: Final = 32
_LEVELS_DEFAULT: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_SLACK: Final = 1_000
#: Until a message is due within: the steps in which messages are counted, in ms.
STEPS_MS: Final = (60_000, 600_000, 3_600_000, 86_400_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """A message that waits. `due_ms` is by the broker's clock (epoch ms).

    `level` is its delay level, None for one with a delivery time of its own. `due_ms`
    is None where the broker does not show its delays, or does not have the level any
    more. `queue` and `queue_offset` are where it waits, `stored_ms` (epoch ms) is since
    when. `msg_id` is its UNIQ_KEY.
    """

    queue: MessageQueue
    queue_offset: int
    msg_id: str | None
    keys: str | None
    stored_ms: int
    level: int | None
    due_ms: int | None


@dataclass(slots=True)
class DelayedMessages:
    """What waits for a topic, and what could not be found out, by broker.

    `messages` are those that are due next, at most as many as were asked for; `count`
    is the number of all. `overdue` counts those of them that were due before, by the
    clock of their broker. `within` counts the others by the first of STEPS_MS that
    contains the time until they are due; None is later, or not known. `scanned` is how
    many records of all topics were read. `notes` has a remark about a broker's clock
    where it differs from this machine's, or is not known. `undated` counts the messages
    of a broker that does not show its settings, so that it is not known when they are
    due. `denial` is the error if all brokers denied access.
    """

    messages: list[DelayedMessage] = field(default_factory=list)
    count: int = 0
    overdue: int = 0
    within: dict[int | None, int] = field(default_factory=Counter)
    errors: dict[str, RmqError] = field(default_factory=dict)
    scanned: int = 0
    notes: dict[str, str] = field(default_factory=dict)
    undated: dict[str, int] = field(default_factory=Counter)
    denial: DeniedError | None = None

    def add(self, found: DelayedMessage, *, now_ms: int, limit: int) -> None:
        """Count a message, and keep it while it is one of the next."""
        self.count += 1
        if found.due_ms is None:
            self.within[None] += 1
            self.undated[found.queue.broker_name] += 1
        elif found.due_ms < now_ms:
            self.overdue += 1
        else:
            wait_ms = found.due_ms - now_ms
            self.within[next((e for e in STEPS_MS if wait_ms <= e), None)] += 1
        self.messages.append(found)
        if len(self.messages) > 2 * limit + _SLACK:
            self.keep(limit)

    def keep(self, limit: int) -> None:
        """Keep the messages that are due next; those without a known time are last."""
        self.messages.sort(
            key=lambda e: (
                e.due_ms is None,
                e.due_ms or 0,
                e.queue,
                e.queue_offset,
            )
        )
        del self.messages[limit:]


def _delayed(
    queue: MessageQueue,
    message: StoredMessage,
    *,
    level: int | None,
    due_ms: int | None,
) -> DelayedMessage:
    return DelayedMessage(
        queue=queue,
        queue_offset=message.queue_offset,
        msg_id=message.msg_id,
        keys=message.keys,
        stored_ms=message.store_timestamp_ms,
        level=level,
        due_ms=due_ms,
    )


def find_delayed(client: Client, topic: str, *, limit: int) -> DelayedMessages:
    """Find what waits for a topic on each of its brokers; keep `limit` messages.

    A broker that has left the route, and on which groups had queues of the topic, is
    among the errors. Raises NotFoundError for an unknown topic, and NoBrokerError when
    none answers.
    """
    addresses = reader_addresses(client.route(topic).brokers)
    found = DelayedMessages()
    has_answers = False
    for name, address in addresses.items():
        try:
            clock = clock_of_broker(client, address)
            if clock.note:
                found.notes[name] = clock.note
            now_ms = clock.epoch_ms
            waiting = delayed_by_level(client, name, address)
            for level, delay_ms, queue, message in waiting:
                found.scanned += 1
                if message.properties.get(REAL_TOPIC) == topic:
                    due_ms = None
                    if delay_ms is not None:
                        due_ms = message.store_timestamp_ms + delay_ms
                    each = _delayed(queue, message, level=level, due_ms=due_ms)
                    found.add(each, now_ms=now_ms, limit=limit)
            has_answers = True
            timers, scanned = waiting_timers(client, name, address, topic)
            found.scanned += scanned
            for each in timers:
                found.add(each, now_ms=now_ms, limit=limit)
        except RmqError as error:
            found.errors[name] = error
    if len(found.errors) == len(addresses):
        client.raise_if_none_answers(found.errors.values())
    if not has_answers:
        found.denial = denial_of(found.errors.get(name) for name in addresses)
    found.errors |= untold_errors_of(client, [topic])
    found.keep(limit)
    return found


def clock_of_broker(client: Client, address: str) -> BrokerClock:
    """Return a broker's current time."""
    asked_ms = client.clock.epoch_ms()
    runtime = client.invoke(address, get_broker_runtime_info())
    answered_ms = client.clock.epoch_ms()
    return broker_clock(runtime, asked_ms=asked_ms, answered_ms=answered_ms)


def runtime_and_config(
    client: Client, address: str
) -> tuple[dict[str, str], dict[str, str] | RmqError]:
    """Return what a broker says of itself, and its settings.

    Raises the error of the first; that of the settings, which not everybody may read,
    is returned.
    """
    runtime, config = client.gather(
        [
            client.submit(address, get_broker_runtime_info()),
            client.submit(address, get_broker_config()),
        ]
    )
    if isinstance(runtime, RmqError):
        raise runtime
    return runtime, config


def delayed_by_level(
    client: Client, name: str, address: str
) -> Iterator[tuple[int, int | None, MessageQueue, PulledMessage]]:
    """Yield what waits in the delay levels of a broker, for all topics.

    Yields the level, its delay in ms (None if the broker does not show its settings, or
    has the level no more), the queue and the message. Raises PartialError after
    SCANNED_MAX messages, if there are more.
    """
    runtime, config = runtime_and_config(client, address)
    delays = delay_levels_ms(config)
    left = SCANNED_MAX
    # Messages also wait, for ever, in a level that the broker had before a change.
    levels = max(LEVELS_PULLED_MAX, *delays, *delivered_levels(runtime))
    for level, (start, end) in _pending(client, address, levels, runtime).items():
        queue = MessageQueue(SCHEDULE_TOPIC, name, level - 1)
        delay_ms = delays.get(level)
        read_end = min(end, start + left)
        read = stored_messages if level <= LEVELS_PULLED_MAX else _viewed_messages
        for message in read(client, address, queue, start, read_end):
            left -= 1
            yield level, delay_ms, queue, message
        if read_end < end:
            raise PartialError(
                f"{name} holds more delayed messages than the {SCANNED_MAX:,} that were"
                " read"
            )


def _pending(
    client: Client, address: str, levels: int, runtime: Mapping[str, str]
) -> dict[int, tuple[int, int]]:
    """Return the offsets of each delay level that were not delivered yet.

    A broker reports the start of a level only once it has looked at it.
    """
    delivered = delivered_levels(runtime)
    ends = client.ask_many(
        {
            (level, call.code): (address, call)
            for level in range(1, levels + 1)
            for call in (
                get_min_offset(SCHEDULE_TOPIC, level - 1),
                get_max_offset(SCHEDULE_TOPIC, level - 1),
            )
        },
    )
    for each in ends.values():
        if isinstance(each, RmqError):
            raise each
    low, high = int(RequestCode.GET_MIN_OFFSET), int(RequestCode.GET_MAX_OFFSET)
    found: dict[int, tuple[int, int]] = {}
    for level in range(1, levels + 1):
        start, end = ends[level, low], ends[level, high]
        if isinstance(start, int) and isinstance(end, int):
            start = max(start, delivered.get(level, 0))
            if start < end:
                found[level] = start, end
    return found


def delivered_levels(runtime: Mapping[str, str]) -> dict[int, int]:
    """Return the offsets up to which the delay levels were delivered, if reported."""
    found: dict[int, int] = {}
    for name, text in runtime.items():
        level = read_count(name.removeprefix(_LEVEL_KEY))
        start = read_count(text.partition(",")[0])
        if name.startswith(_LEVEL_KEY) and level is not None and start is not None:
            found[level] = start
    return found


def waiting_levels(runtime: Mapping[str, str]) -> dict[int, tuple[int, int]]:
    """Return the offset and the end of each delay level that the broker has looked at.

    It reports them as `scheduleMessageOffset_3=17,20`.
    """
    found: dict[int, tuple[int, int]] = {}
    for level, start in delivered_levels(runtime).items():
        end = read_count(runtime[f"{_LEVEL_KEY}{level}"].partition(",")[2])
        if end is not None:
            found[level] = start, end
    return found


def delay_levels_ms(settings: Mapping[str, str] | RmqError | None) -> dict[int, int]:
    """Return the delay of each level by a broker's settings; none if it shows none.

    A level whose text is not a delay is left out: a broker shows whatever its setting
    was changed to, and reads it when it starts.
    """
    if settings is None or isinstance(settings, RmqError):
        return {}
    found = {}
    texts = settings.get("messageDelayLevel", _LEVELS_DEFAULT).split()
    for level, text in enumerate(texts, 1):
        count, unit_ms = read_count(text[:-1]), DURATION_UNITS_MS.get(text[-1])
        if count is not None and unit_ms is not None:
            found[level] = count * unit_ms
    return found


def waiting_timers(
    client: Client, name: str, address: str, topic: str
) -> tuple[list[DelayedMessage], int]:
    """Return what waits in a broker's timer topic for a topic, and the records read.

    Raises PartialError when the topic has more than SCANNED_MAX records, and
    UnsupportedError for a broker that keeps timers in RocksDB.
    """
    if client.broker_version(address) < V5_0_0:
        return [], 0
    runtime, config = runtime_and_config(client, address)
    if not isinstance(config, RmqError) and config.get("timerRocksDBEnable") == "true":
        raise UnsupportedError(f"{name} keeps timer messages in RocksDB, unreadable")
    try:
        low = client.invoke(address, get_min_offset(TIMER_TOPIC, 0))
        high = client.invoke(address, get_max_offset(TIMER_TOPIC, 0))
    except NotFoundError:
        return [], 0
    start = max(low, high - SCANNED_MAX)
    timers = _Timers(topic)
    queue = MessageQueue(TIMER_TOPIC, name, 0)
    for message in stored_messages(client, address, queue, start, high):
        timers.take(queue, message)
    if start > low:
        raise PartialError(
            f"{name} has {counted(high - low, 'record')} of timer messages, more than"
            f" the {SCANNED_MAX:,} that are read"
        )
    return timers.waiting(delivered_until_ms(client, runtime)), high - start


def delivered_until_ms(client: Client, runtime: Mapping[str, str]) -> int:
    """Return up to which due time the broker has delivered, to the second."""
    now_ms = client.clock.epoch_ms()
    at_ms = broker_clock(runtime, asked_ms=now_ms, answered_ms=now_ms).epoch_ms
    behind_s = read_count(runtime.get("timerReadBehind")) or 0
    return at_ms - behind_s * 1_000


class _Timers:
    """The records of the timer topic that are about one topic."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        #: the last record of each message, by its UNIQ_KEY, or its offset without one,
        #: by when it is due, and by how often it was written again
        self._last: dict[tuple[str | int, int, int], list[DelayedMessage]] = {}
        #: (what a recall deletes, when that is due)
        self._recalled: set[tuple[str, int]] = set()

    def take(self, queue: MessageQueue, message: StoredMessage) -> None:
        """Take the next record, in the order of the topic."""
        properties = message.properties
        due_ms = read_count(properties.get("TIMER_OUT_MS"))
        if properties.get(REAL_TOPIC) != self._topic or due_ms is None:
            return
        if deleted := properties.get(TIMER_DEL_UNIQKEY):
            self._recalled.add((deleted, due_ms))
            return
        key = properties.get("UNIQ_KEY") or message.queue_offset
        turn = read_count(properties.get(_ROLL_TIMES)) or 0
        if before := self._last.get((key, due_ms, turn - 1)):
            del before[0]
        found = self._last.setdefault((key, due_ms, turn), [])
        found.append(_delayed(queue, message, level=None, due_ms=due_ms))

    def waiting(self, until_ms: int) -> list[DelayedMessage]:
        """Return what is due after this time and was not recalled."""
        return [
            each
            for (key, due_ms, _), found in self._last.items()
            if due_ms > until_ms
            and (f"{self._topic}+{key}", due_ms) not in self._recalled
            and (str(key), due_ms) not in self._recalled
            for each in found
        ]


def stored_messages(
    client: Client, address: str, queue: MessageQueue, start: int, end: int
) -> Iterator[PulledMessage]:
    """Yield the messages of a range of one queue; those removed are left out.

    Raises UnsupportedError for a broker of 4.6.0: it has no settings of its own topics,
    and so it refuses to read them; its entries of consume queues are empty, too.
    """
    origin = Origin(queue, start, end)
    while start < end:
        call = pull_message(queue, start, max_msg_nums=min(MSG_NUMS_MAX, end - start))
        try:
            answer = client.invoke(address, call)
        except NotFoundError as error:
            raise UnsupportedError(
                f"{queue.broker_name} does not show the"
                f" {counted(end - start, 'message')} of all topics in {queue.topic}",
                hint="brokers of 4.6.0 do not; newer ones do",
            ) from error
        reached = start
        for message in decode_messages(
            answer.body, record_type=PulledRecord, item_type=PulledItem
        ):
            if isinstance(message, PulledRecord | PulledItem):
                message.origin = origin
                reached = message.queue_offset + 1
                if start <= message.queue_offset < end:
                    yield message
        reached = max(reached, answer.next_begin_offset)
        if reached <= start:
            raise PartialError(
                f"{queue}: {address} returned no message for offset {start}"
            )
        start = reached


def _viewed_messages(
    client: Client, address: str, queue: MessageQueue, start: int, end: int
) -> Iterator[PulledMessage]:
    """Yield the messages of a range of a queue that no client may pull, one by one."""
    while start < end:
        count = min(_VIEWED_AT_ONCE, end - start)
        call = query_consume_queue(queue.topic, queue.queue_id, start, count=count)
        entries = (client.invoke(address, call).queue_data or [])[:count]
        if not entries:
            raise PartialError(f"{queue}: {address} has no entry for offset {start}")
        for offset, body in view_entries(client, address, queue, entries, start):
            for message in decode_messages(body, record_type=PulledRecord):
                if isinstance(message, PulledRecord) and message.queue_offset == offset:
                    message.origin = Origin(queue, offset, offset + 1)
                    yield message
        start += len(entries)
