"""Half messages of transactions, until the producer commits them or rolls them back.

Imitated: the topics of half messages and operation records; checks, which ask a
producer of the group for the state of an undecided message (39); discarding a message
after too many checks; the time before the first check, which a message may set. All
state is in the two topics and in the offsets of CID_RMQ_SYS_TRANS in them, so a restart
loses nothing.
Not imitated: 5.x collects operation records for 3 s; here each is written at once.

Source: `TransactionalMessageServiceImpl`, `TransactionalMessageBridge` and
`AbstractTransactionalMessageCheckListener.sendCheckMessage` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.copy import copy_fields, fields_as_stored, look_message
from rmqcli.broker.message.delayed import REAL_QID, real_place
from rmqcli.broker.state.groups import TRANSACTION_GROUP
from rmqcli.broker.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqcli.store.message_store import MessageStore, StoreError
from rmqcli.units import read_count
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import CheckTransactionStateRequestHeader
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.properties import REAL_TOPIC, UNIQ_KEY
from rmqcli.wire.message.system_flag import with_transaction_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.broker.state.tables import BrokerTables
    from rmqcli.broker.state.writer import MessageWriter
    from rmqcli.clock import Now
    from rmqcli.wire.message.record import StoredMessage


def _push_check(broker: BrokerTables, half: StoredMessage) -> None:
    """Ask a producer of the message's group, if it has any, for the state (39)."""
    properties = half.properties
    group, place = properties.get("PGROUP"), real_place(properties)
    if not group or place is None:
        return
    topic, queue_id = place
    peer = broker.clients.any_producer_peer(group)
    if peer is None:
        return
    body = encode_message(
        dataclasses.replace(
            fields_as_stored(half, properties=half.raw_properties, topic=topic),
            queue_id=queue_id,
            queue_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
        )
    )
    unique_key = properties.get(UNIQ_KEY)
    header = CheckTransactionStateRequestHeader(
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.commit_log_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=half.offset_msg_id,
    )
    broker.push(peer, RequestCode.CHECK_TRANSACTION_STATE, header, body=body)


CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
_PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
_OP_TAG: Final = "d"  # TransactionalMessageUtil.REMOVE_TAG
_KEPT_MS_MAX: Final = 72 * 3600 * 1000  # fileReservedTime
_CHUNK: Final = 256
#: The most half messages that one run of the check reads.
_CHECKS_MAX: Final = 10_000


class Transactions:
    """The half messages of one broker, and which of them have ended.

    A half message ends when its producer commits it or rolls it back.
    """

    def __init__(self, broker: BrokerTables, writer: MessageWriter) -> None:
        self._broker = broker
        self._writer = writer
        self._numbers = itertools.count(1)
        #: offsets of half messages that have ended, from `_operations`
        self._ended: set[int] = set()
        #: (offset of an operation record, offsets of the half messages that it ends)
        self._operations: deque[tuple[int, tuple[int, ...]]] = deque()
        self._next_operation: int | None = None
        interval_ms = broker.settings.transaction_check_interval_ms
        if interval_ms is None:
            interval_ms = broker.profile.transaction_check_interval_ms
        broker.background.every(interval_ms, broker.started, self._check)

    def half(self, fields: MessageFields, properties: dict[str, str]) -> MessageFields:
        """Return the half message that is stored for a message.

        Changes `properties`.
        Source: TransactionalMessageBridge.parseHalfMessageInner.
        """
        properties[REAL_TOPIC] = fields.topic
        properties[REAL_QID] = str(fields.queue_id)
        unique_key = properties.get(UNIQ_KEY)
        if unique_key and self._broker.profile.adds_transaction_id:
            properties["__transactionId__"] = unique_key
        return dataclasses.replace(
            fields,
            topic=HALF_TOPIC,
            queue_id=0,
            sys_flag=with_transaction_type(fields.sys_flag, 0),
            properties=properties,
        )

    def unique_key(self) -> str:
        """Return a new UNIQ_KEY for a message without one.

        Keys are made from the broker's start time and a counter, so that they are
        repeatable.
        """
        started_ms = self._broker.started.epoch_ms & 0xFFFFFFFFFFFF
        return f"7F000001{started_ms:012X}{next(self._numbers) & 0xFFFFFFFFFFFF:012X}"

    def ended(self, half_offset: int, now: Now) -> None:
        """Store an operation record: a half message has ended. Raises StoreError."""
        broker = self._broker
        broker.topics.create_in_send_back(OP_TOPIC)
        separator = "," if broker.profile.adds_transaction_id else ""
        self._writer.put(
            [
                MessageFields(
                    topic=OP_TOPIC,
                    body=f"{half_offset}{separator}".encode(),
                    born_timestamp_ms=now.epoch_ms,
                    born_host=broker.settings.address,
                    store_timestamp_ms=now.epoch_ms,
                    store_host=broker.settings.address,
                    properties={"TAGS": _OP_TAG, "WAIT": "true"},
                )
            ],
            now,
        )

    def _check(self, now: Now) -> None:
        """Check messages that have been undecided for too long.

        Source: TransactionalMessageServiceImpl.check.
        """
        bounds = self._broker.store.queue_bounds(HALF_TOPIC, 0)
        if bounds is None:
            return
        self._read_operations()
        at = min(max(self._progress(HALF_TOPIC) or 0, bounds[0]), bounds[1])
        start = at
        try:
            for half_offset, message in _messages(
                self._broker.store, HALF_TOPIC, at, min(bounds[1], at + _CHECKS_MAX)
            ):
                if (
                    message is not None
                    and half_offset not in self._ended
                    and not self._settle(message, now)
                ):
                    break
                at = half_offset + 1
        except StoreError:
            pass  # the store is full: the next run checks these messages
        if at != start or self._progress(HALF_TOPIC) is None:
            self._broker.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, at)
        self._forget_before(at)

    def _settle(self, message: StoredMessage, now: Now) -> bool:
        """Check, discard or put back an undecided message; False if it is too young."""
        settings = self._broker.settings
        properties = dict(message.properties)
        if read_count(properties.get(_PREPARED_OFFSET)) in self._ended:
            return True
        times = read_count(properties.get(_CHECK_TIMES)) or 0
        age_ms = now.epoch_ms - message.born_timestamp_ms
        if times >= settings.transaction_check_max or age_ms > _KEPT_MS_MAX:
            self._discard(message, now)
            return True
        if message.store_timestamp_ms >= now.epoch_ms:
            return False
        immunity_ms = immunity_of(properties, settings.transaction_timeout_ms)
        # A birth time in the future comes from a wrong clock: check the message now.
        if 0 <= age_ms < immunity_ms:
            if CHECK_IMMUNITY not in properties:
                return False
            properties.setdefault(_PREPARED_OFFSET, str(message.queue_offset))
            self._put_back(message, properties, now)
            return True
        properties[_CHECK_TIMES] = str(times + 1)
        again = self._put_back(message, properties, now)
        if again is not None:
            _push_check(self._broker, again)
        return True

    def _put_back(
        self, message: StoredMessage, properties: dict[str, str], now: Now
    ) -> StoredMessage | None:
        """Store a half message again at the queue's end.

        So the check can move past it to the messages behind it.
        """
        fields = copy_fields(
            self._broker, message, now, topic=HALF_TOPIC, properties=properties
        )
        place = self._writer.put([fields], now)[0]
        return look_message(self._broker.store, place.commit_log_offset)

    def _discard(self, message: StoredMessage, now: Now) -> None:
        """Copy a message that was never decided to TRANS_CHECK_MAX_TIME_TOPIC."""
        self._broker.topics.create_in_send_back(CHECK_MAX_TIME_TOPIC)
        fields = copy_fields(self._broker, message, now, topic=CHECK_MAX_TIME_TOPIC)
        self._writer.put([fields], now)

    def _read_operations(self) -> None:
        """Read the operation records since the last call."""
        bounds = self._broker.store.queue_bounds(OP_TOPIC, 0)
        if bounds is None:
            return
        at = self._next_operation
        if at is None:
            at = self._progress(OP_TOPIC) or 0
        at = min(max(at, bounds[0]), bounds[1])
        for offset, message in _messages(self._broker.store, OP_TOPIC, at, bounds[1]):
            if message is not None and message.tags == _OP_TAG:
                ends = _half_offsets(message.raw_body)
                self._operations.append((offset, ends))
                self._ended.update(ends)
        self._next_operation = bounds[1]

    def _forget_before(self, half_offset: int) -> None:
        """Drop operation records whose half messages are all before `half_offset`."""
        done: int | None = None
        while self._operations and all(
            each < half_offset for each in self._operations[0][1]
        ):
            offset, ends = self._operations.popleft()
            self._ended.difference_update(ends)
            done = offset + 1
        if done is not None:
            self._broker.offsets.commit(TRANSACTION_GROUP, OP_TOPIC, 0, done)

    def _progress(self, topic: str) -> int | None:
        progress: int | None = self._broker.offsets.query(TRANSACTION_GROUP, topic, 0)
        return progress


def immunity_of(properties: dict[str, str], default_ms: int) -> int:
    """Return for how many ms after its birth a half message is not checked.

    Source: TransactionalMessageUtil.getImmunityTime.
    """
    text = properties.get(CHECK_IMMUNITY)
    seconds = read_count(text)
    return default_ms if seconds is None else seconds * 1_000


def _messages(
    store: MessageStore, topic: str, start: int, end: int
) -> Iterator[tuple[int, StoredMessage | None]]:
    """Yield the messages of queue 0 in [start, end) with their queue offsets.

    A message that cannot be read, for example because its log file was deleted, is
    None.
    """
    at = start
    while at < end:
        units = store.units(topic, 0, at, min(_CHUNK, end - at))
        if not units:
            return
        for unit in units:
            yield at, look_message(store, unit.commit_log_offset)
            at += 1


def _half_offsets(body: bytes) -> tuple[int, ...]:
    """The offsets of the half messages that an operation record ends.

    In 4.x, it is always one.
    """
    parts = body.decode("ascii", "replace").split(",")
    return tuple(number for part in parts if (number := read_count(part)) is not None)
