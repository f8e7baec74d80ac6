"""What clients do with received messages: Ack, ChangeInvisibleDuration, Forward.

A receipt handle contains everything that a broker needs to find a message, so the proxy
stores a handle only while it renews its message. During that time the client keeps
using the handle that it received, and the proxy replaces it with the newest one.

Imitated: messages received with auto_renew are invisible for 60 s, and renewed 10 s
before that ends, for up to 3 h; messages of a client that leaves become visible after
1 s. Messages of lite topics are renewed without their lite topic, as in RocketMQ 5.5.0,
which has no effect.

Source: `AckMessageActivity`, `ChangeInvisibleDurationActivity`,
`ForwardMessageToDLQActivity`, `DefaultReceiptHandleManager` in apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Final

from rmqcli.broker.proxy.activity import Activity, Shared
from rmqcli.broker.proxy.checks import check_invisible, checked_names, duration_ms
from rmqcli.broker.proxy.clients import RETRY_MS
from rmqcli.broker.proxy.status import (
    ProxyError,
    common_status,
    internal_error,
    ok,
    reading_answer,
    refused,
    status_of,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import HeaderError
from rmqcli.log import get_logger
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers import pop
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.headers.store import ViewMessageRequestHeader
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.properties import lmq_name, lmq_of
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.protobuf.definition_pb2 import Code
from rmqcli.wire.receipt_handle import (
    ReceiptHandle,
    decode_receipt_handle,
    encode_receipt_handle,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from rmqcli.broker.proxy.caller import Caller

logger = get_logger(__name__)

RENEWED_MS: Final = 60_000  # defaultInvisibleTimeMills
NACK_MS: Final = 1_000  # NACK_INVISIBLE_TIME, invisibleTimeMillisWhenClear
_AHEAD_MS: Final = 10_000  # renewAheadTimeMillis
_RENEW_MS_MAX: Final = 3 * 3600 * 1000  # renewMaxTimeMillis
_RENEW_FAILURES_MAX: Final = 3  # maxRenewRetryTimes
#: RenewStrategyPolicy
_RENEW_STEPS_MS: Final = (
    *(60_000, 180_000, 300_000),
    *(600_000, 1_800_000, 3_600_000),
)
#: The most messages that are renewed at once; others become visible again unless they
#: are acknowledged in time.
RENEWED_MAX: Final = 200_000
#: The most entries of one call that are processed concurrently.
_ENTRIES_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that a group has received: the topic that was asked for, its handle.

    `lite_topic` is that of a message that was received from its lite topic.
    """

    topic: str
    group: str
    handle: ReceiptHandle
    lite_topic: str | None = None

    @property
    def real_topic(self) -> str:
        """The topic that holds the message, which may be a retry topic."""
        return self.handle.real_topic(self.topic, self.group)


@dataclass(slots=True)
class _Renewed:
    """A message that is renewed while its client lives, with its newest handle."""

    delivery: Delivery
    reconsume_times: int
    #: when the client received it, in epoch ms
    since_ms: int
    renewals: int = 0
    failures: int = 0
    #: held while a renewal replaces the handle
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class Handles(Activity):
    """Serves the three calls and renews messages, in the proxy's event loop."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        #: (client id, group) -> the handle that the client has -> the message
        self._renewed: dict[tuple[str, str], dict[str, _Renewed]] = {}
        self._count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        shared.clients.on_leave.append(self._left)

    # --- the calls ---

    async def ack_message(
        self, caller: Caller, request: service.AckMessageRequest
    ) -> service.AckMessageResponse:
        """AckMessage: the answer has a status for each entry."""
        topic, group = checked_names(request.topic, request.group)
        entries: list[service.AckMessageResultEntry] = []
        for at in range(0, len(request.entries), _ENTRIES_AT_ONCE):
            some = request.entries[at : at + _ENTRIES_AT_ONCE]
            entries += await asyncio.gather(
                *(self._ack_entry(caller, topic, group, entry) for entry in some)
            )
        codes = [entry.status.code for entry in entries]
        return service.AckMessageResponse(
            status=common_status(codes, empty="ack message result is empty"),
            entries=entries,
        )

    async def _ack_entry(
        self, caller: Caller, topic: str, group: str, entry: service.AckMessageEntry
    ) -> service.AckMessageResultEntry:
        status = ok()
        try:
            handle = await self.take(caller.client_id, group, entry.receipt_handle)
            self._need_fresh(handle)
            lite_topic = entry.lite_topic if entry.HasField("lite_topic") else None
            await self.ack(Delivery(topic, group, handle, lite_topic))
        except Exception as error:  # noqa: BLE001  # becomes the entry's status
            status = status_of(error)
        return service.AckMessageResultEntry(
            message_id=entry.message_id,
            receipt_handle=entry.receipt_handle,
            status=status,
        )

    async def change_invisible_duration(
        self, caller: Caller, request: service.ChangeInvisibleDurationRequest
    ) -> service.ChangeInvisibleDurationResponse:
        """ChangeInvisibleDuration: a new handle in the answer replaces the old one."""
        topic, group = checked_names(request.topic, request.group)
        invisible_ms = duration_ms(request.invisible_duration)
        check_invisible(invisible_ms)
        self._need_session(caller)
        handle = await self.take(caller.client_id, group, request.receipt_handle)
        self._need_fresh(handle)
        delivery = Delivery(topic, group, handle, request.lite_topic)
        changed = await self.change(delivery, invisible_ms, suspend=request.suspend)
        return service.ChangeInvisibleDurationResponse(
            status=ok(), receipt_handle=encode_receipt_handle(changed)
        )

    async def forward_message_to_dead_letter_queue(
        self, caller: Caller, request: service.ForwardMessageToDeadLetterQueueRequest
    ) -> service.ForwardMessageToDeadLetterQueueResponse:
        """ForwardMessageToDeadLetterQueue: copy the message, then acknowledge it."""
        topic, group = checked_names(request.topic, request.group)
        self._need_session(caller)
        handle = await self.take(caller.client_id, group, request.receipt_handle)
        lite_topic = request.lite_topic if request.HasField("lite_topic") else None
        delivery = Delivery(topic, group, handle, lite_topic)
        await self._need_true_place(delivery)
        await self.forward(delivery, request.message_id)
        return service.ForwardMessageToDeadLetterQueueResponse(status=ok())

    # --- requests to brokers ---

    async def ack(self, of: Delivery) -> None:
        """Acknowledge a message. Raises ProxyError."""
        answer = await self._links.ask(
            await self._address(of.handle),
            RequestCode.ACK_MESSAGE,
            pop.AckMessageRequestHeader(
                consumer_group=of.group,
                topic=of.real_topic,
                queue_id=of.handle.queue_id,
                extra_info=encode_receipt_handle(of.handle),
                offset=_offset_of(of.handle),
                lite_topic=of.lite_topic,
            ),
        )
        if answer.code != ResponseCode.SUCCESS:
            raise internal_error("ack failed: status is abnormal")

    async def change(
        self, of: Delivery, invisible_ms: int, *, suspend: bool = False
    ) -> ReceiptHandle:
        """Make a message invisible for a time from now; return its new handle.

        Raises ProxyError.
        """
        answer = await self._links.ask(
            await self._address(of.handle),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            pop.ChangeInvisibleTimeRequestHeader(
                consumer_group=of.group,
                topic=of.real_topic,
                queue_id=of.handle.queue_id,
                extra_info=encode_receipt_handle(of.handle),
                offset=_offset_of(of.handle),
                invisible_time=invisible_ms,
                suspend=suspend,
                lite_topic=of.lite_topic or None,
            ),
        )
        if answer.code != ResponseCode.SUCCESS:
            raise internal_error("changeInvisibleDuration failed: status is abnormal")
        cls = pop.ChangeInvisibleTimeResponseHeader
        with reading_answer():
            header = from_ext_fields(cls, answer.ext_fields)
        return dataclasses.replace(
            of.handle,
            start_offset=_offset_of(of.handle),
            pop_time_ms=header.pop_time,
            invisible_ms=header.invisible_time,
            revive_queue_id=header.revive_qid,
        )

    async def forward(self, of: Delivery, message_id: str) -> None:
        """Put a copy into the group's dead letter queue, and acknowledge the message.

        Raises ProxyError if the copy fails; then the message is not acknowledged. A
        failed acknowledgement is only logged.
        """
        place = _place_of(of.handle)
        answer = await self._links.ask(
            await self._address(of.handle),
            RequestCode.CONSUMER_SEND_MSG_BACK,
            ConsumerSendMsgBackRequestHeader(
                offset=place,
                group=of.group,
                delay_level=-1,
                origin_msg_id=message_id,
                origin_topic=of.real_topic,
                max_reconsume_times=0,
            ),
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        try:
            self._need_fresh(of.handle)
            await self.ack(of)
        except ProxyError as error:
            logger.debug("ack after forward failed: %s", error.message)

    def spawn_nack(self, of: Delivery) -> None:
        """Make a message visible again in 1 s; does not wait for the broker."""
        self._spawn(self._nack(of))

    def spawn_return(self, client_id: str, of: Delivery) -> None:
        """Stop renewing a message, and make it visible again in 1 s; does not wait."""
        self._spawn(self._return(client_id, of))

    def spawn_ack(self, of: Delivery) -> None:
        """Acknowledge a message that is not for the client; does not wait."""
        self._spawn(_logged("ack", of.group, self.ack(of)))

    def spawn_forward(self, of: Delivery, message_id: str) -> None:
        """Forward a message that has no attempts left; does not wait."""
        forward = self.forward(of, message_id)
        self._spawn(_logged("forward", of.group, forward, level=logging.WARNING))

    async def _nack(self, of: Delivery, invisible_ms: int = NACK_MS) -> None:
        change = self.change(of, invisible_ms)
        await _logged("change of the invisible time", of.group, change)

    async def _return(self, client_id: str, of: Delivery) -> None:
        text = encode_receipt_handle(of.handle)
        newest = await self.take(client_id, of.group, text)
        await self._nack(dataclasses.replace(of, handle=newest))

    async def _need_true_place(self, of: Delivery) -> None:
        """Raise ProxyError unless the message at the handle's place is of its topic.

        A broker copies whatever message has the commit log offset, so a made-up handle
        could copy a message that the caller has no right to. RocketMQ's proxy forwards
        it.
        """
        answer = await self._links.ask(
            await self._address(of.handle),
            RequestCode.VIEW_MESSAGE_BY_ID,
            ViewMessageRequestHeader(offset=_place_of(of.handle), topic=of.real_topic),
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        found = decode_messages(answer.body)
        if not (found and isinstance(found[0], StoredMessage) and _is_at(found[0], of)):
            raise ProxyError(
                Code.INVALID_RECEIPT_HANDLE,
                "the receipt handle does not name a message of the topic",
            )

    async def _address(self, handle: ReceiptHandle) -> str:
        address = await self._routes.address_of(handle.broker_name)
        if address is None:
            raise ProxyError(
                Code.INVALID_RECEIPT_HANDLE, f"cannot find broker {handle.broker_name}"
            )
        return address

    def _need_session(self, caller: Caller) -> None:
        """Raise ProxyError for an unknown client: RocketMQ fails on a null there."""
        if self._clients.find(caller.client_id) is None:
            raise internal_error("the client has not sent its settings")

    def _need_fresh(self, handle: ReceiptHandle) -> None:
        if handle.next_visible_ms <= self._clock.epoch_ms():
            raise ProxyError(Code.INVALID_RECEIPT_HANDLE, "receipt handle is expired")

    # --- renewal ---

    def renew(self, client_id: str, of: Delivery, *, reconsume_times: int) -> None:
        """Keep a message invisible from now on while the client lives."""
        if self._count >= RENEWED_MAX:
            logger.warning(
                "message not renewed group=%s: %d messages are already being renewed",
                of.group,
                self._count,
            )
            return
        held = self._renewed.setdefault((client_id, of.group), {})
        text = encode_receipt_handle(of.handle)
        self._count += text not in held
        # A renewal does not name the lite topic.
        plain = dataclasses.replace(of, lite_topic=None)
        held[text] = _Renewed(plain, reconsume_times, self._clock.epoch_ms())

    def count(self, client_id: str, group: str) -> int:
        """Return how many messages of a client are kept invisible."""
        return len(self._renewed.get((client_id, group), ()))

    async def take(self, client_id: str, group: str, text: str) -> ReceiptHandle:
        """Stop renewing a handle, and return its newest form.

        Waits for the end of a renewal, whose requests have time limits: the broker may
        have replaced the handle already, and then does nothing with the old one. Raises
        ProxyError(INTERNAL_SERVER_ERROR) for a text that is not a handle. Source:
        ReceiptHandleGroup.HandleData#lock, which waits for 3 s at most.
        """
        key = client_id, group
        renewed = self._renewed.get(key, {}).get(text)
        if renewed is not None:
            async with renewed.lock:
                if self._forget(key, text, renewed):
                    return renewed.delivery.handle
        try:
            handle = decode_receipt_handle(text)
        except HeaderError as error:
            raise internal_error(error.message) from error
        _offset_of(handle)
        return handle

    def _left(self, client_id: str, group: str) -> None:
        held = self._renewed.pop((client_id, group), None)
        for each in (held or {}).values():
            self._count -= 1
            self._spawn(self._return_renewed(each))

    async def _return_renewed(self, each: _Renewed) -> None:
        async with each.lock:
            await self._nack(each.delivery)

    async def run_due(self) -> None:
        """Renew the messages whose invisible time ends within 10 s."""
        now_ms = self._clock.epoch_ms()
        due = [
            (key, text, each)
            for key, held in self._renewed.items()
            for text, each in held.items()
            if each.delivery.handle.next_visible_ms - now_ms <= _AHEAD_MS
        ]
        for at in range(0, len(due), _ENTRIES_AT_ONCE):
            some = due[at : at + _ENTRIES_AT_ONCE]
            await asyncio.gather(
                *(self._renew(key, text, each, now_ms) for key, text, each in some)
            )

    async def _renew(
        self, key: tuple[str, str], text: str, each: _Renewed, now_ms: int
    ) -> None:
        async with each.lock:
            if not self._is_renewed(key, text, each):
                return  # it was taken while others were renewed
            is_over = now_ms - each.since_ms >= _RENEW_MS_MAX
            if is_over or each.failures >= _RENEW_FAILURES_MAX:
                self._forget(key, text, each)
            if is_over:
                step = min(each.reconsume_times, len(RETRY_MS) - 1)
                await self._nack(each.delivery, RETRY_MS[step])
            elif each.failures < _RENEW_FAILURES_MAX:
                await self._renew_once(key, text, each)

    async def _renew_once(
        self, key: tuple[str, str], text: str, each: _Renewed
    ) -> None:
        step = min(each.renewals, len(_RENEW_STEPS_MS) - 1)
        try:
            newest = await self.change(each.delivery, _RENEW_STEPS_MS[step])
            each.delivery = dataclasses.replace(each.delivery, handle=newest)
        except ProxyError as error:
            logger.warning("renewal failed group=%s: %s", key[1], error.message)
            each.failures += 1
            if error.code == Code.INVALID_RECEIPT_HANDLE:
                self._forget(key, text, each)
        else:
            each.failures = 0
            each.renewals += 1

    def _is_renewed(self, key: tuple[str, str], text: str, each: _Renewed) -> bool:
        return self._renewed.get(key, {}).get(text) is each

    def _forget(self, key: tuple[str, str], text: str, each: _Renewed) -> bool:
        """Stop renewing a message; return False if it is not renewed any more."""
        if not self._is_renewed(key, text, each):
            return False
        del self._renewed[key][text]
        self._count -= 1
        if not self._renewed[key]:
            del self._renewed[key]
        return True

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _logged(
    what: str,
    group: str,
    work: Coroutine[None, None, object],
    level: int = logging.DEBUG,
) -> None:
    """Wait for a request to a broker; an error is only logged."""
    try:
        await work
    except ProxyError as error:
        logger.log(level, "%s failed group=%s: %s", what, group, error.message)


def _place_of(handle: ReceiptHandle) -> int:
    """Return where the message is in the broker's log. Raises ProxyError."""
    if handle.commit_log_offset is None or handle.commit_log_offset < 0:
        raise ProxyError(Code.INVALID_RECEIPT_HANDLE, "commit log offset is empty")
    return handle.commit_log_offset


def _is_at(message: StoredMessage, of: Delivery) -> bool:
    """Whether a message is in the queue that a handle names, or in its lite topic's."""
    place: tuple[str, int] | None = message.topic, message.queue_offset
    queue_id, wanted = message.queue_id, of.real_topic
    if of.lite_topic:
        place, queue_id = lmq_of(message.topic, message.properties), 0
        wanted = lmq_name(wanted, of.lite_topic)
    return place == (wanted, of.handle.offset) and queue_id == of.handle.queue_id


def _offset_of(handle: ReceiptHandle) -> int:
    """Return where the message is in its queue. Raises ProxyError."""
    if handle.offset is None:
        raise internal_error("the receipt handle has no offset")
    return handle.offset
