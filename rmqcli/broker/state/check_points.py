"""Check points of POP: messages that are neither acknowledged nor revived yet.

The messages of one queue in a POP answer are a batch. The broker writes a check point
of the batch to the revive topic before it answers, and later a record of each
acknowledgement, both in RocketMQ's format. From these, a broker that was killed finds
out which messages are outstanding, and how far each queue was popped since the offsets
were last stored. When the invisible time of a batch is over, its outstanding messages
are revived: copied to the retry topic. In each revive queue, no check point up to the
committed offset, inclusive, has outstanding messages.

Imitated: the format and the queues of the revive topic; the copy in the retry topic,
with its properties and a reconsumeTimes that is higher by one; the creation of the
retry topic. A message can be revived any number of times: in RocketMQ, too, the client
or the proxy counts the attempts and moves a message to the dead letter queue. The
messages of an inner batch, which POP gives out as one, come back one by one; RocketMQ
fails to revive them.
Not imitated: the buffer that merges check points and acknowledgements; the scan every
second with a margin of two seconds (here, messages are revived to the millisecond);
reviving messages of masters that are down.

Source: `PopReviveService`, `PopBufferMergeService`, `PopCheckPoint`, `AckMsg` and
`PopAckConstants` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.broker.message.copy import copy_fields, look_message, look_messages
from rmqcli.broker.message.delayed import DELIVER_MS
from rmqcli.broker.request import Refusal
from rmqcli.broker.state.deadlines import Deadlines
from rmqcli.broker.topic_names import RETRY_PREFIX
from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError
from rmqcli.log import get_logger
from rmqcli.store.message_store import Appended, StoreError
from rmqcli.wire.bodies.pop import AckMsg, PopCheckPoint
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import TAGS
from rmqcli.wire.receipt_handle import normal_topic, pop_retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rmqcli.broker.state.tables import BrokerTables
    from rmqcli.broker.state.writer import Arrival, MessageWriter
    from rmqcli.clock import Now
    from rmqcli.wire.message.record import StoredMessage

REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
REVIVE_QUEUE_NUM: Final = 8  # reviveQueueNum
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"

#: The most batches that one broker keeps in memory; with that many, clients get no new
#: messages. RocketMQ keeps them only on disk.
CHECK_POINTS_MAX: Final = 200_000

_CK_TAG: Final = "ck"
_ACK_TAG: Final = "ack"
_BATCH_ACK_TAG: Final = "bAck"
_ACK_INTERVAL_MS: Final = 1_000  # PopAckConstants.ackTimeInterval
_RETRY_MS: Final = 10_000
#: A real broker's check points and acknowledgements are timer messages, which are
#: delivered in any order. After this margin, the acknowledgements of a check point have
#: been delivered, too.
_FOREIGN_MARGIN_MS: Final = 2_000
_READ_AT_ONCE_MAX: Final = 256
#: The most messages of a check point that is read from the revive topic.
_OFFSETS_MAX: Final = 1_024
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1

logger = get_logger(__name__)


class Key(NamedTuple):
    """Identifies the batch that a receipt handle refers to."""

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time_ms: int
    broker_name: str


@dataclass(slots=True)
class _Point:
    """A batch. `offsets` are those of its outstanding messages.

    `is_suspended`: the client did not consume them, so that the attempt does not count.
    """

    key: Key
    invisible_ms: int
    revive_queue_id: int
    revive_offset: int
    offsets: set[int] = field(default_factory=set)
    is_suspended: bool = False


class CheckPoints:
    """The batches with outstanding messages.

    `on_revived` is called with the topic and the group whose messages were revived,
    after their copies were stored in the retry topic.
    """

    def __init__(self, broker: BrokerTables, writer: MessageWriter) -> None:
        self._broker = broker
        self._writer = writer
        self.revive_topic = REVIVE_TOPIC_PREFIX + broker.settings.cluster
        self.on_revived: Callable[[str, str, Now], None] | None = None
        self._points: dict[Key, _Point] = {}
        #: revive queue -> its offsets of open check points, ascending
        self._open: list[dict[int, None]] = [{} for _ in range(REVIVE_QUEUE_NUM)]
        self._turn = 0
        self._is_writing = False
        self._deadlines = Deadlines[_Point](
            broker.background,
            self._revive,
            has_ended=lambda point: self._points.get(point.key) is not point,
            count=lambda: len(self._points),
        )
        if broker.profile.has_timer:
            writer.listen(self.revive_topic, self._arrived)

    def __len__(self) -> int:
        return len(self._points)

    @property
    def is_full(self) -> bool:
        """Whether no further batch can be added."""
        return len(self._points) >= CHECK_POINTS_MAX

    def next_queue_id(self) -> int:
        """Return the revive queue for the next request, in turn."""
        self._turn += 1
        return (self._turn - 1) % REVIVE_QUEUE_NUM

    def add(
        self,
        key: Key,
        offsets: Sequence[int],
        *,
        invisible_ms: int,
        revive_queue_id: int,
        now: Now,
        is_suspended: bool = False,
    ) -> None:
        """Store a check point of messages that are about to be delivered.

        Its key must not be known. Raises StoreError, and ValueError if there are too
        many check points.
        """
        if self.is_full:
            raise ValueError(f"the broker already has {CHECK_POINTS_MAX} check points")
        revive_ms = min(key.pop_time_ms + invisible_ms, _INT64_MAX)
        body = PopCheckPoint(
            start_offset=key.start_offset,
            pop_time=key.pop_time_ms,
            invisible_time=invisible_ms,
            num=len(offsets),
            queue_id=key.queue_id,
            topic=key.topic,
            consumer_group=key.group,
            queue_offset_diff=[offset - key.start_offset for offset in offsets],
            broker_name=key.broker_name,
            revive_time=revive_ms,
            suspend=is_suspended,
        )
        message = self._message(
            encode_body(body),
            _CK_TAG,
            revive_queue_id,
            revive_ms - _ACK_INTERVAL_MS,
            now,
        )
        (place,) = self._put([message], now)
        point = _Point(
            key,
            invisible_ms,
            revive_queue_id,
            place.queue_offset,
            set(offsets),
            is_suspended,
        )
        self._keep(point, now)
        # The pull offset is stored together with the groups' offsets. So `recover`
        # knows that the check points from there on are newer than those offsets.
        self._broker.offsets.commit_pull(
            REVIVE_GROUP, self.revive_topic, revive_queue_id, place.queue_offset + 1
        )

    def is_known(self, key: Key) -> bool:
        """Whether there is a batch of that key with outstanding messages."""
        return key in self._points

    def ack(self, key: Key, offsets: Iterable[int], now: Now) -> None:
        """Acknowledge messages of a batch.

        Unknown batches, and offsets that are not outstanding, are ignored, as in
        RocketMQ.
        """
        point = self._points.get(key)
        if point is None:
            return
        acked = sorted(point.offsets.intersection(offsets))
        if not acked:
            return
        with suppress(StoreError):  # as in RocketMQ, the client gets no error
            self._put([self._ack_message(point, acked, now)], now)
        self._take(point, acked)

    # --- the log ---

    def _message(
        self, body: bytes, tag: str, queue_id: int, deliver_ms: int, now: Now
    ) -> MessageFields:
        host = self._broker.settings.address
        return MessageFields(
            topic=self.revive_topic,
            body=body,
            queue_id=queue_id,
            born_timestamp_ms=now.epoch_ms,
            born_host=host,
            store_timestamp_ms=now.epoch_ms,
            store_host=host,
            properties={TAGS: tag, DELIVER_MS: str(deliver_ms)},
        )

    def _ack_message(
        self, point: _Point, acked: Sequence[int], now: Now
    ) -> MessageFields:
        key = point.key
        is_one = len(acked) == 1
        body = AckMsg(
            ack_offset=acked[0] if is_one else -1,
            ack_offset_list=None if is_one else list(acked),
            start_offset=key.start_offset,
            consumer_group=key.group,
            topic=key.topic,
            queue_id=key.queue_id,
            pop_time=key.pop_time_ms,
            broker_name=key.broker_name,
        )
        return self._message(
            encode_body(body),
            _ACK_TAG if is_one else _BATCH_ACK_TAG,
            point.revive_queue_id,
            key.pop_time_ms + point.invisible_ms,
            now,
        )

    def _put(self, messages: Sequence[MessageFields], now: Now) -> list[Appended]:
        before, self._is_writing = self._is_writing, True
        try:
            return self._writer.put(messages, now)
        finally:
            self._is_writing = before

    def _keep(self, point: _Point, now: Now, *, margin_ms: int = 0) -> None:
        self._points[point.key] = point
        self._open[point.revive_queue_id][point.revive_offset] = None
        due_ms = point.key.pop_time_ms + point.invisible_ms - now.epoch_ms + margin_ms
        self._deadlines.add(point, now.monotonic_ms + max(0, due_ms))

    def _take(self, point: _Point, offsets: Iterable[int]) -> None:
        """Remove messages that were acknowledged or revived from their batch."""
        point.offsets.difference_update(offsets)
        if point.offsets:
            return
        del self._points[point.key]
        queue_id = point.revive_queue_id
        opened = self._open[queue_id]
        opened.pop(point.revive_offset, None)
        first = next(iter(opened), None)
        if first is None:
            bounds = self._broker.store.queue_bounds(self.revive_topic, queue_id)
            first = 0 if bounds is None else bounds[1]
        # RocketMQ stores the last offset that is done, not the next one.
        self._broker.offsets.commit(
            REVIVE_GROUP, self.revive_topic, queue_id, first - 1
        )

    # --- reviving messages ---

    def _revive(self, point: _Point, now: Now) -> None:
        """Revive the outstanding messages of a batch whose invisible time is over."""
        key = point.key
        base = normal_topic(key.topic, key.group)
        known = self._broker.topics.get(base) is not None
        if not known or self._broker.groups.find_or_create(key.group) is None:
            self._take(point, list(point.offsets))
            return
        retry_topic = key.topic
        if not retry_topic.startswith(RETRY_PREFIX):
            retry_topic = pop_retry_topic(
                key.topic, key.group, v2=self._broker.settings.enable_retry_topic_v2
            )
        offsets = sorted(point.offsets)
        messages = [each for offset in offsets for each in self._find(key, offset)]
        try:
            self._create(retry_topic, key.group)
            self._put_copies(point, messages, retry_topic, now)
        except (StoreError, Refusal) as error:
            logger.warning(
                "could not revive messages topic=%s group=%s: %s; retrying in %d ms",
                base,
                key.group,
                error,
                _RETRY_MS,
            )
            self._deadlines.add(point, now.monotonic_ms + _RETRY_MS)
            return
        self._take(point, offsets)
        if messages and self.on_revived is not None:
            self.on_revived(base, key.group, now)

    def _put_copies(
        self,
        point: _Point,
        messages: Sequence[StoredMessage],
        retry_topic: str,
        now: Now,
    ) -> None:
        """Store the copies and the acknowledgement of their originals: all or none."""
        done = self._ack_message(point, sorted(point.offsets), now)
        try:
            copies = [self._copy(point, each, retry_topic, now) for each in messages]
            self._put([*copies, done], now)
        except ValueError:
            # The properties that `_copy` adds made them longer than 32 KiB.
            copies = [
                self._copy(point, each, retry_topic, now, is_marked=False)
                for each in messages
            ]
            self._put([*copies, done], now)

    def _create(self, retry_topic: str, group: str) -> None:
        """Make the retry topic, or give it as many queues as its topic has now."""
        queues = 1
        known = self._broker.topics.get(retry_topic)
        if self._broker.settings.use_separate_retry_queue:
            base = self._broker.topics.get(normal_topic(retry_topic, group))
            queues = queues if base is None else base.write_queue_nums
            if known is not None and known.write_queue_nums != queues:
                self._broker.topics.put(
                    dataclasses.replace(
                        known, read_queue_nums=queues, write_queue_nums=queues
                    )
                )
        if known is None:
            self._broker.topics.create_in_send_back(retry_topic, queue_nums=queues)
        for queue_id in range(queues):
            if self._broker.offsets.query(group, retry_topic, queue_id) is None:
                self._broker.offsets.commit(group, retry_topic, queue_id, 0)

    def _find(self, key: Key, offset: int) -> list[StoredMessage]:
        """The messages to revive: none if deleted, all those of an inner batch."""
        store = self._broker.store
        units = store.units(key.topic, key.queue_id, offset, 1)
        return look_messages(store, units[0].commit_log_offset) if units else []

    def _copy(
        self,
        point: _Point,
        message: StoredMessage,
        retry_topic: str,
        now: Now,
        *,
        is_marked: bool = True,
    ) -> MessageFields:
        properties = dict(message.properties)
        is_first = message.reconsume_times == 0 or FIRST_POP_TIME not in properties
        if is_marked and is_first:
            properties[FIRST_POP_TIME] = str(point.key.pop_time_ms)
        if is_marked:
            properties[ORIGIN_GROUP] = point.key.group  # 5.5
        is_separate = self._broker.settings.use_separate_retry_queue
        times = message.reconsume_times + (not point.is_suspended)
        copy = copy_fields(
            self._broker,
            message,
            now,
            topic=retry_topic,
            queue_id=point.key.queue_id if is_separate else 0,
            properties=properties,
            reconsume_times=min(times, _INT32_MAX),
        )
        copy.born_host = self._broker.settings.address
        return copy

    # --- after a restart ---

    def recover(self, now: Now) -> None:
        """Find the batches that were outstanding when the broker stopped.

        Call it before the broker answers requests.
        """
        store = self._broker.store
        for queue_id in range(REVIVE_QUEUE_NUM):
            bounds = store.queue_bounds(self.revive_topic, queue_id)
            if bounds is None:
                continue
            done = self._broker.offsets.query(REVIVE_GROUP, self.revive_topic, queue_id)
            at = bounds[0] if done is None else max(bounds[0], done + 1)
            table = self._broker.offsets.pull_table().get(
                (self.revive_topic, REVIVE_GROUP)
            )
            stored_until = (table or {}).get(queue_id, 0)
            while at < bounds[1]:
                units = store.units(self.revive_topic, queue_id, at, _READ_AT_ONCE_MAX)
                if not units:
                    break
                for unit in units:
                    self._read(
                        look_message(store, unit.commit_log_offset),
                        now,
                        moves_offsets=at >= stored_until,
                    )
                    at += 1
            self._broker.offsets.commit_pull(
                REVIVE_GROUP, self.revive_topic, queue_id, bounds[1]
            )

    def _arrived(self, new: Arrival) -> None:
        """Read a real broker's entry that the timers delivered to the revive topic."""
        if not self._is_writing:
            message = look_message(self._broker.store, new.place.commit_log_offset)
            self._read(message, new.now, margin_ms=_FOREIGN_MARGIN_MS)

    def _read(
        self,
        message: StoredMessage | None,
        now: Now,
        *,
        moves_offsets: bool = False,
        margin_ms: int = 0,
    ) -> None:
        if message is None:
            return
        tag = message.properties.get(TAGS)
        try:
            if tag == _CK_TAG:
                self._read_point(message, now, moves_offsets, margin_ms)
            elif tag in (_ACK_TAG, _BATCH_ACK_TAG):
                self._read_ack(decode_body(AckMsg, message.body))
        except BodyError as error:
            logger.warning(
                "unreadable entry of the revive topic skipped queue=%d offset=%d: %s",
                message.queue_id,
                message.queue_offset,
                error.message,
            )

    def _read_point(
        self, message: StoredMessage, now: Now, moves_offsets: bool, margin_ms: int
    ) -> None:
        body = decode_body(PopCheckPoint, message.body)
        key = self._key_of(body)
        if key is None:
            return
        diffs = body.queue_offset_diff
        if not diffs:
            diffs = list(range(max(0, min(body.num, _OFFSETS_MAX))))
        offsets = {body.start_offset + diff for diff in diffs[:_OFFSETS_MAX]}
        if not offsets or not 0 <= message.queue_id < REVIVE_QUEUE_NUM:
            return
        if moves_offsets:
            queue = key.group, key.topic, key.queue_id
            known = self._broker.offsets.query(*queue)
            if known is None or known <= max(offsets):
                self._broker.offsets.commit(*queue, max(offsets) + 1)
        self._keep(
            _Point(
                key,
                body.invisible_time,
                message.queue_id,
                message.queue_offset,
                offsets,
                body.suspend,
            ),
            now,
            margin_ms=margin_ms,
        )

    def _read_ack(self, body: AckMsg) -> None:
        key = self._key_of(body)
        point = None if key is None else self._points.get(key)
        if point is not None:
            self._take(point, body.ack_offset_list or [body.ack_offset])

    def _key_of(self, body: PopCheckPoint | AckMsg) -> Key | None:
        if body.topic is None or body.consumer_group is None:
            return None
        return Key(
            body.topic,
            body.consumer_group,
            body.queue_id,
            body.start_offset,
            body.pop_time,
            body.broker_name or self._broker.settings.broker_name,
        )
