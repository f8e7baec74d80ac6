"""Finds the messages that POP has handed out on one broker, as a task.

POP, and with it every gRPC client, moves the committed offset when it hands a message
out. Only the check points that the broker writes before it answers, and the records of
acknowledgements after them, tell which messages are not acknowledged yet. Both are
timer messages: until they are due they lie in `rmq_sys_wheel_timer`, then they are
copied to a queue of `rmq_sys_REVIVE_LOG_{cluster}`. The broker works through these
queues in order. It copies what was not acknowledged in time to the group's retry topic,
and commits the offset of the last check point that is done.

A check point is open if its copy lies beyond that offset, or if it is not copied yet.
The timers deliver in the order of time, so the newest time among the copies says which
check points are copied; no clock is needed for that. Check points are read before the
ends of retry topics, so that a message that moves in between counts twice rather than
not at all.

Not found: what orderly POP has handed out (it has no check points, and commits only
what was acknowledged), check points in memory (`enablePopBufferMerge`; the offset stays
before their messages), and those in the broker's own store
(`popConsumerKVServiceEnable`; no request reads it).

Source: PopMessageProcessor, PopReviveService, PopBufferMergeService, PopConsumerService
and HookUtils.transformTimerMessage in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from rmqcli.api.calls.offset import (
    get_max_offset,
    get_min_offset,
    query_consumer_offset,
    search_offset_by_timestamp,
)
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.tasks import Request, every
from rmqcli.units import read_count
from rmqcli.wire.bodies.pop import AckMsg, PopCheckPoint
from rmqcli.wire.body import decode_body
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import REAL_TOPIC
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.pull_answer import PullStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rmqcli.tasks import Task

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"  # TimerMessageStore.TIMER_TOPIC
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"  # PopAckConstants.REVIVE_TOPIC
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"  # PopAckConstants.REVIVE_GROUP

#: A proxy allows an invisible time of 12 hours (maxInvisibleTimeMills).
_INVISIBLE_MS_MAX: Final = 12 * 3_600_000
#: How far the clocks of this machine and of a broker may differ.
_CLOCK_SLACK_MS: Final = 3_600_000
#: A broker gives at most 32 messages in one answer.
_PAGES_MAX: Final = 1_000
#: The timer topic is read in pieces, the newest first, several at the same time.
_PIECE: Final = 4_096
_PIECES_AT_ONCE: Final = 8
#: Copies before the committed offset that are read to see how far the timers are.
_DONE_READ: Final = 16
#: The timers deliver what is due in the same second in any order.
_TIMER_PRECISION_MS: Final = 1_000
_OFFSETS_MAX: Final = 1_024

#: Group, topic, queue id, start offset, time of the pop, broker name.
_Key: TypeAlias = tuple[str, str, int, int, int, str | None]

R = TypeVar("R", PopCheckPoint, AckMsg)


@dataclass(slots=True)
class _Point:
    """A check point; `offsets` are those of its messages without acknowledgement."""

    offsets: set[int]
    #: epoch ms by the broker's clock
    visible_ms: int
    revive_queue_id: int
    #: where its copy lies in the revive topic; None if none was seen
    copied_at: int | None = None
    #: when the timers copy it; None for one that was never in the timer topic
    due_ms: int | None = None
    timer_offset: int | None = None


@dataclass(slots=True)
class HandedOut:
    """What POP has handed out on one broker and was not acknowledged.

    `reason` says why it is not complete, None when it is.
    """

    #: (group, topic) -> queue id -> offset -> when it is visible again (epoch ms by the
    #: broker's clock)
    offsets: dict[tuple[str, str], dict[int, dict[int, int]]] = field(
        default_factory=dict
    )
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class PopPlace:
    """A message that POP may have handed out to a group: its place in a queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PopDelivery:
    """The last time that POP handed out a message to a group.

    All times are epoch ms by the broker's clock. `visible_ms` is when the message is
    visible again unless it is acknowledged before. `acked_ms` is when it was
    acknowledged, None if there is no record of that. `is_open` says whether it is
    neither acknowledged nor moved to the retry topic.
    """

    popped_ms: int
    visible_ms: int
    acked_ms: int | None
    is_open: bool


@dataclass(slots=True)
class PopDeliveries:
    """The deliveries that were found. `reason` says why there may be more, or None."""

    found: dict[PopPlace, PopDelivery] = field(default_factory=dict)
    reason: str | None = None


def read_deliveries(
    address: str,
    broker_name: str,
    *,
    revive_topic: str,
    places: Collection[PopPlace],
    since_ms: int,
) -> Task[PopDeliveries]:
    """Find what POP recorded about single messages, with their acknowledgements.

    `since_ms` (epoch ms by the broker's clock) is when the oldest of them was stored.
    Records before the last 13 hours are found, too, unless there are too many since. A
    place without a record is not in the result. Raises NotFoundError for a broker that
    has never used POP, and other RmqErrors.
    """
    scan = _Scan(address, broker_name, (), places)
    ends, _ = yield from every(
        Request(address, get_topic_stats_info(revive_topic)), scan.read_timers(since_ms)
    )
    yield from scan.read_copies(ends.keys())
    yield from scan.read_acknowledgements()
    return scan.deliveries()


def read_handed_out(
    address: str,
    broker_name: str,
    *,
    revive_queues: Collection[MessageQueue],
    groups: Collection[str],
    now_ms: int,
) -> Task[HandedOut]:
    """Find what is handed out. Empty `groups` mean all groups.

    `revive_queues` are the queues of the revive topic; `now_ms` is by the broker's
    clock. Raises RmqError.
    """
    scan = _Scan(address, broker_name, groups)
    yield from scan.read_timers(now_ms - _INVISIBLE_MS_MAX - _CLOCK_SLACK_MS)
    yield from scan.read_copies(revive_queues)
    yield from scan.read_acknowledgements()
    return scan.result()


class _Scan:
    """One pass over the logs of a broker."""

    def __init__(
        self,
        address: str,
        broker_name: str,
        groups: Collection[str],
        places: Collection[PopPlace] | None = None,
    ) -> None:
        self._address = address
        self._timers = MessageQueue(TIMER_TOPIC, broker_name, 0)
        self._groups = frozenset(groups)
        #: (group, topic, queue id) -> the offsets in question; None for all messages
        self._wanted: dict[tuple[str, str, int], set[int]] | None = None
        if places is not None:
            self._wanted = {}
            for each in places:
                queue = (each.group, each.topic, each.queue_id)
                self._wanted.setdefault(queue, set()).add(each.queue_offset)
        self._points: dict[_Key, _Point] = {}
        #: check point -> offset -> when it was acknowledged
        self._acked: dict[_Key, dict[int, int]] = {}
        self._pages = 0
        self._is_cut = False
        self._timer_end = 0
        #: the newest due time among copies that came from the timers
        self._newest_ms: int | None = None
        #: revive queue -> its committed offset, -1 without one
        self._done: dict[int, int] = {}
        #: revive queue -> the oldest due time among its copies that were read
        self._oldest_ms: dict[int, int] = {}

    def read_timers(self, since_ms: int) -> Task[None]:
        """Read the check points in the timer topic since then, the newest first."""
        low, high = yield from every(
            Request(self._address, get_min_offset(TIMER_TOPIC, 0)),
            Request(self._address, get_max_offset(TIMER_TOPIC, 0)),
        )
        self._timer_end = high
        if low >= high:
            return
        start = yield Request(
            self._address, search_offset_by_timestamp(TIMER_TOPIC, 0, since_ms)
        )
        low = max(low, min(start, high))
        while high > low and not self._is_cut:
            pieces: list[Task[None]] = []
            while high > low and len(pieces) < _PIECES_AT_ONCE:
                begin = max(low, high - _PIECE)
                pieces.append(
                    self._read(self._timers, begin, high, "ck", self._take_timer)
                )
                high = begin
            yield from every(*pieces)

    def read_copies(self, queues: Collection[MessageQueue]) -> Task[None]:
        """Read what lies in the revive topic and is not done, and a little before."""
        ordered = sorted(queues)
        calls = [
            query_consumer_offset(REVIVE_GROUP, queue.topic, queue.queue_id)
            for queue in ordered
        ]
        offsets = yield from every(*(Request(self._address, call) for call in calls))
        for queue, committed in zip(ordered, offsets, strict=True):
            self._done[queue.queue_id] = -1 if committed is None else committed
        yield from every(*map(self._read_copies_of, ordered))
        yield from every(*map(self._read_more_copies_of, ordered))

    def _read_copies_of(self, queue: MessageQueue) -> Task[None]:
        start = max(0, self._done[queue.queue_id] + 1 - _DONE_READ)
        yield from self._read(queue, start, None, "*", self._take_copy)

    def _read_more_copies_of(self, queue: MessageQueue) -> Task[None]:
        """Read back until all copies of the newest time are known."""
        at = max(0, self._done[queue.queue_id] + 1 - _DONE_READ)
        while at > 0 and not self._is_cut:
            oldest_ms = self._oldest_ms.get(queue.queue_id)
            if oldest_ms is None or self._is_copied_by(oldest_ms):
                return
            begin = max(0, at - _DONE_READ)
            yield from self._read(queue, begin, at, "*", self._take_copy)
            at = begin

    def read_acknowledgements(self) -> Task[None]:
        """Read the acknowledgements of open check points from the timer topic."""
        starts = [
            point.timer_offset
            for key, point in self._points.items()
            if point.timer_offset is not None
            and (self._wanted is not None or self._is_open(key, point))
        ]
        if not starts:
            return
        at, pieces = min(starts), []
        while at < self._timer_end:
            end = at + _PIECE
            pieces.append(
                self._read(self._timers, at, end, "ack || bAck", self._take_ack)
            )
            at = end
        for begin in range(0, len(pieces), _PIECES_AT_ONCE):
            yield from every(*pieces[begin : begin + _PIECES_AT_ONCE])

    def result(self) -> HandedOut:
        """Return what is open and has no acknowledgement."""
        found = HandedOut()
        if self._is_cut:
            found.reason = (
                "its broker has more check points of POP than are read"
                f" ({_PAGES_MAX * 32:,})"
            )
        for key, point in self._points.items():
            if not self._is_open(key, point):
                continue
            group, topic, queue_id = key[:3]
            queues = found.offsets.setdefault((group, topic), {})
            offsets = queues.setdefault(queue_id, {})
            for offset in point.offsets.difference(self._acked.get(key, ())):
                offsets[offset] = max(point.visible_ms, offsets.get(offset, 0))
        return found

    def deliveries(self) -> PopDeliveries:
        """Return the last delivery of each message in question."""
        result = PopDeliveries()
        if self._is_cut:
            result.reason = (
                "its broker has more records of POP since the message was stored than"
                f" are read ({_PAGES_MAX * 32:,})"
            )
        for key, point in self._points.items():
            group, topic, queue_id = key[:3]
            acked = self._acked.get(key, {})
            for offset in self._wanted_of(group, topic, queue_id) & point.offsets:
                place = PopPlace(group, topic, queue_id, offset)
                known = result.found.get(place)
                if known is None or known.popped_ms <= key[4]:
                    acked_ms = acked.get(offset)
                    result.found[place] = PopDelivery(
                        popped_ms=key[4],
                        visible_ms=point.visible_ms,
                        acked_ms=acked_ms,
                        is_open=acked_ms is None and self._is_open(key, point),
                    )
        return result

    def _wanted_of(self, group: str, topic: str, queue_id: int) -> set[int]:
        return (self._wanted or {}).get((group, topic, queue_id), set())

    def _is_open(self, key: _Key, point: _Point) -> bool:
        """Whether the broker has not yet revived what was not acknowledged."""
        if point.copied_at is not None:
            return point.copied_at > self._done.get(point.revive_queue_id, -1)
        # All copies that are due at about the newest time were read, so that one which
        # was not read is still to come.
        return point.due_ms is None or not self._is_copied_by(point.due_ms)

    def _is_copied_by(self, due_ms: int) -> bool:
        """Whether the timers have copied everything that was due then."""
        newest_ms = self._newest_ms
        return newest_ms is not None and due_ms < newest_ms - _TIMER_PRECISION_MS

    def _read(
        self,
        queue: MessageQueue,
        at: int,
        end: int | None,
        expression: str,
        take: Callable[[StoredMessage], None],
    ) -> Task[None]:
        """Call `take` with the records of a range; without `end`, up to the last."""
        while end is None or at < end:
            if self._pages >= _PAGES_MAX:
                self._is_cut = True
                return
            self._pages += 1
            answer = yield Request(
                self._address, pull_message(queue, at, expression=expression)
            )
            for record in decode_messages(answer.body):
                if isinstance(record, StoredMessage) and (
                    end is None or record.queue_offset < end
                ):
                    take(record)
            if answer.status is PullStatus.NO_NEW_MSG or answer.next_begin_offset <= at:
                return
            at = answer.next_begin_offset

    def _take_timer(self, record: StoredMessage) -> None:
        if not record.properties.get(REAL_TOPIC, "").startswith(REVIVE_TOPIC_PREFIX):
            return  # a delayed message of someone whose tag is ck
        point = self._point(record, _number(record, "REAL_QID") or 0)
        if point is not None:
            point.due_ms = _number(record, "TIMER_OUT_MS")
            point.timer_offset = record.queue_offset

    def _take_copy(self, record: StoredMessage) -> None:
        due_ms = _number(record, "TIMER_OUT_MS")
        if due_ms is not None:
            self._newest_ms = max(due_ms, self._newest_ms or 0)
            oldest_ms = self._oldest_ms.get(record.queue_id, due_ms)
            self._oldest_ms[record.queue_id] = min(due_ms, oldest_ms)
        if record.properties.get("TAGS") == "ck":
            point = self._point(record, record.queue_id)
            if point is not None:
                point.copied_at = record.queue_offset
        else:
            self._take_ack(record)

    def _point(self, record: StoredMessage, revive_queue_id: int) -> _Point | None:
        found = self._wanted_record(PopCheckPoint, record)
        if found is None:
            return None
        body, key = found
        point = self._points.get(key)
        if point is not None:
            return point
        diffs = body.queue_offset_diff or range(max(0, body.num))
        offsets = {body.start_offset + diff for diff in diffs[:_OFFSETS_MAX]}
        if self._wanted is not None and not (offsets & self._wanted_of(*key[:3])):
            return None
        visible_ms = body.pop_time + body.invisible_time
        point = self._points[key] = _Point(offsets, visible_ms, revive_queue_id)
        return point

    def _take_ack(self, record: StoredMessage) -> None:
        if record.properties.get("TAGS") not in ("ack", "bAck"):
            return
        found = self._wanted_record(AckMsg, record)
        if found is None:
            return
        body, key = found
        acked = self._acked.setdefault(key, {})
        # The record in the timer topic is older than its copy in the revive topic.
        at_ms = record.store_timestamp_ms
        for offset in body.ack_offset_list or (body.ack_offset,):
            acked[offset] = min(at_ms, acked.get(offset, at_ms))

    def _wanted_record(
        self, kind: type[R], record: StoredMessage
    ) -> tuple[R, _Key] | None:
        """The body of a record and its key; None if it is of no wanted group."""
        try:
            body = decode_body(kind, record.body)
        except BodyError:
            return None
        group, topic = body.consumer_group, body.topic
        if group is None or topic is None:
            return None
        if self._groups and group not in self._groups:
            return None
        at = body.start_offset
        return body, (group, topic, body.queue_id, at, body.pop_time, body.broker_name)


def _number(record: StoredMessage, name: str) -> int | None:
    return read_count(record.properties.get(name))
