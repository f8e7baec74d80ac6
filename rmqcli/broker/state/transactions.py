"""Half messages: kept apart until their producer commits or rolls back.

Imitated: the two topics; checks of undecided messages, which ask a producer of the
group (39); the end after too many checks; the time that a message may request before
its first check. All state is in the topics and in two offsets of CID_RMQ_SYS_TRANS, so
a restart loses nothing. Not imitated: 5.x collects operation records for 3 s; here each
is written at once.

Source: `TransactionalMessageServiceImpl`, `TransactionalMessageBridge` and
`AbstractTransactionalMessageCheckListener.sendCheckMessage` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.copy import copy_fields, look_message
from rmqcli.broker.message.delayed import REAL_QID, REAL_TOPIC, real_place
from rmqcli.broker.state.groups import TRANSACTION_GROUP
from rmqcli.broker.topic_names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from rmqcli.store.message_store import StoreError
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.client import CheckTransactionStateRequestHeader
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.properties import UNIQ_KEY
from rmqcli.wire.message.system_flag import with_transaction_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.broker.context import BrokerContext
    from rmqcli.broker.state.clients import ClientTable
    from rmqcli.broker.state.offsets import ConsumerOffsets
    from rmqcli.broker.state.topics import TopicTable
    from rmqcli.broker.state.writer import MessageWriter
    from rmqcli.clock import Now
    from rmqcli.store.message_store import MessageStore
    from rmqcli.wire.message.record import StoredMessage


def _push_check(
    context: BrokerContext, clients: ClientTable, half: StoredMessage
) -> None:
    """Ask one producer of the message's group how it ended, if the group has one."""
    properties = half.properties
    group, place = properties.get("PGROUP"), real_place(properties)
    if not group or place is None:
        return
    topic, queue_id = place
    peer = clients.any_producer_peer(group)
    if peer is None:
        return
    body = encode_message(
        MessageFields(
            topic=topic,
            body=half.raw_body,
            queue_id=queue_id,
            queue_offset=half.queue_offset,
            commit_log_offset=half.commit_log_offset,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_timestamp_ms=half.born_timestamp_ms,
            born_host=half.born_host,
            store_timestamp_ms=half.store_timestamp_ms,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            prepared_transaction_offset=half.prepared_transaction_offset,
            properties=half.raw_properties,
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
    context.push(peer, RequestCode.CHECK_TRANSACTION_STATE, header, body=body)


CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
_PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
_OP_TAG: Final = "d"  # TransactionalMessageUtil.REMOVE_TAG
_KEPT_MS_MAX: Final = 72 * 3600 * 1000  # fileReservedTime
_CHUNK: Final = 256
_DIGITS_MAX: Final = 18
#: How many half messages one turn reads.
_CHECKS_MAX: Final = 10_000


class Transactions:
    """Half messages of one broker, and which of them have ended."""

    def __init__(
        self,
        context: BrokerContext,
        *,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        writer: MessageWriter,
    ) -> None:
        self._context = context
        self._topics = topics
        self._offsets = offsets
        self._clients = clients
        self._writer = writer
        self._numbers = itertools.count(1)
        #: half offsets that operation records end, from the progress on
        self._ended: set[int] = set()
        #: (offset of the operation record, half offsets it ends)
        self._operations: deque[tuple[int, tuple[int, ...]]] = deque()
        self._next_operation: int | None = None
        interval_ms = context.settings.transaction_check_interval_ms
        if interval_ms is None:
            interval_ms = context.profile.transaction_check_interval_ms
        context.background.every(interval_ms, context.started, self._check)

    def half(self, fields: MessageFields, properties: dict[str, str]) -> MessageFields:
        """The message as it is stored until its end. `properties` are changed.

        Source: TransactionalMessageBridge.parseHalfMessageInner.
        """
        properties[REAL_TOPIC] = fields.topic
        properties[REAL_QID] = str(fields.queue_id)
        unique_key = properties.get(UNIQ_KEY)
        if unique_key and self._context.profile.adds_transaction_id:
            properties["__transactionId__"] = unique_key
        return dataclasses.replace(
            fields,
            topic=HALF_TOPIC,
            queue_id=0,
            sys_flag=with_transaction_type(fields.sys_flag, 0),
            properties=properties,
        )

    def unique_key(self) -> str:
        """A UNIQ_KEY for a message that has none; counted, so repeatable."""
        started_ms = self._context.started.epoch_ms & 0xFFFFFFFFFFFF
        return f"7F000001{started_ms:012X}{next(self._numbers) & 0xFFFFFFFFFFFF:012X}"

    def ended(self, half_offset: int, now: Now) -> None:
        """Store that a half message has ended. Raises StoreError."""
        context = self._context
        self._topics.create_in_send_back(OP_TOPIC, queue_nums=1, perm=6)
        separator = "," if context.profile.adds_transaction_id else ""
        self._writer.put(
            [
                MessageFields(
                    topic=OP_TOPIC,
                    body=f"{half_offset}{separator}".encode(),
                    born_timestamp_ms=now.epoch_ms,
                    born_host=context.settings.address,
                    store_timestamp_ms=now.epoch_ms,
                    store_host=context.settings.address,
                    properties={"TAGS": _OP_TAG, "WAIT": "true"},
                )
            ],
            now,
        )

    def _check(self, now: Now) -> None:
        """Check messages that are undecided for too long. Source: check()."""
        bounds = self._context.store.queue_bounds(HALF_TOPIC, 0)
        if bounds is None:
            return
        self._read_operations()
        at = min(max(self._progress(HALF_TOPIC) or 0, bounds[0]), bounds[1])
        start = at
        try:
            for half_offset, message in _messages(
                self._context.store, HALF_TOPIC, at, min(bounds[1], at + _CHECKS_MAX)
            ):
                if (
                    message is not None
                    and half_offset not in self._ended
                    and not self._settle(message, now)
                ):
                    break
                at = half_offset + 1
        except StoreError:
            pass  # full: checked again next time
        if at != start or self._progress(HALF_TOPIC) is None:
            self._offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, at)
        self._forget_before(at)

    def _settle(self, message: StoredMessage, now: Now) -> bool:
        """Check or end an undecided message; False if it is too young for a check."""
        settings = self._context.settings
        properties = dict(message.properties)
        if _number(properties.get(_PREPARED_OFFSET)) in self._ended:
            return True
        times = _number(properties.get(_CHECK_TIMES)) or 0
        age_ms = now.epoch_ms - message.born_timestamp_ms
        if times >= settings.transaction_check_max or age_ms > _KEPT_MS_MAX:
            self._discard(message, now)
            return True
        if message.store_timestamp_ms >= now.epoch_ms:
            return False
        immunity_ms = immunity_of(properties, settings.transaction_timeout_ms)
        # A message born in the future means a wrong clock, and does not wait.
        if 0 <= age_ms < immunity_ms:
            if CHECK_IMMUNITY not in properties:
                return False
            properties.setdefault(_PREPARED_OFFSET, str(message.queue_offset))
            self._put_back(message, properties, now)
            return True
        properties[_CHECK_TIMES] = str(times + 1)
        again = self._put_back(message, properties, now)
        if again is not None:
            _push_check(self._context, self._clients, again)
        return True

    def _put_back(
        self, message: StoredMessage, properties: dict[str, str], now: Now
    ) -> StoredMessage | None:
        """Store a half message again at the queue's end, so that the queue moves on."""
        fields = copy_fields(
            message,
            now,
            store_host=self._context.settings.address,
            topic=HALF_TOPIC,
            queue_id=0,
            properties=properties,
        )
        place = self._writer.put([fields], now)[0]
        return look_message(self._context.store, place.commit_log_offset)

    def _discard(self, message: StoredMessage, now: Now) -> None:
        """Store a message that was never decided in TRANS_CHECK_MAX_TIME_TOPIC."""
        self._topics.create_in_send_back(CHECK_MAX_TIME_TOPIC, queue_nums=1, perm=6)
        fields = copy_fields(
            message,
            now,
            store_host=self._context.settings.address,
            topic=CHECK_MAX_TIME_TOPIC,
            queue_id=0,
        )
        self._writer.put([fields], now)

    def _read_operations(self) -> None:
        """Read the operation records since the last call."""
        bounds = self._context.store.queue_bounds(OP_TOPIC, 0)
        if bounds is None:
            return
        at = self._next_operation
        if at is None:
            at = self._progress(OP_TOPIC) or 0
        at = min(max(at, bounds[0]), bounds[1])
        for offset, message in _messages(self._context.store, OP_TOPIC, at, bounds[1]):
            if message is not None and message.tags == _OP_TAG:
                ends = _half_offsets(message.raw_body)
                self._operations.append((offset, ends))
                self._ended.update(ends)
        self._next_operation = bounds[1]

    def _forget_before(self, half_offset: int) -> None:
        """Drop operation records that only end messages before `half_offset`."""
        done: int | None = None
        while self._operations and all(
            each < half_offset for each in self._operations[0][1]
        ):
            offset, ends = self._operations.popleft()
            self._ended.difference_update(ends)
            done = offset + 1
        if done is not None:
            self._offsets.commit(TRANSACTION_GROUP, OP_TOPIC, 0, done)

    def _progress(self, topic: str) -> int | None:
        progress: int | None = self._offsets.query(TRANSACTION_GROUP, topic, 0)
        return progress


def immunity_of(properties: dict[str, str], default_ms: int) -> int:
    """How long after its birth a half message is not checked.

    Source: TransactionalMessageUtil.getImmunityTime.
    """
    text = properties.get(CHECK_IMMUNITY)
    seconds = _number(text)
    return default_ms if seconds is None else seconds * 1_000


def _messages(
    store: MessageStore, topic: str, start: int, end: int
) -> Iterator[tuple[int, StoredMessage | None]]:
    """Queue 0's messages in order; None for one whose bytes were deleted."""
    at = start
    while at < end:
        units = store.units(topic, 0, at, min(_CHUNK, end - at))
        if not units:
            return
        for unit in units:
            yield at, look_message(store, unit.commit_log_offset)
            at += 1


def _half_offsets(body: bytes) -> tuple[int, ...]:
    """The offsets that an operation record ends: one (4.x), or a list (5.x)."""
    parts = body.decode("ascii", "replace").split(",")
    return tuple(number for part in parts if (number := _number(part)) is not None)


def _number(text: str | None) -> int | None:
    if text and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
        return int(text)
    return None
