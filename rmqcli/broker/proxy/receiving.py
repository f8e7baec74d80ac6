"""ReceiveMessage: each call is one POP request, which the broker may hold.

The stream has the status, then the messages, then the delivery timestamp. A message
that can no longer be delivered to its client becomes visible again after a second. A
call that the broker holds costs the proxy neither a thread nor a timer.

Imitated: the checks in RocketMQ's order, the polling time, the second check of tags,
and that messages without attempts left go to the dead letter queue instead.

Source: `ReceiveMessageActivity`, `ReceiveMessageResponseStreamWriter`,
`ConsumerProcessor` and `MQClientAPIImpl.processPopResponse` in apache/rocketmq.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Final, Protocol

from rmqcli.broker.proxy.activity import Activity, Shared
from rmqcli.broker.proxy.checks import check_invisible, checked_names, duration_ms
from rmqcli.broker.proxy.clients import BATCH_SIZE, POLLING_MS_MAX
from rmqcli.broker.proxy.handles import RENEWED_MS, Delivery, Handles
from rmqcli.broker.proxy.message import grpc_message
from rmqcli.broker.proxy.sessions import subscription_of
from rmqcli.broker.proxy.status import (
    ProxyError,
    internal_error,
    ok,
    refused,
    status_of,
)
from rmqcli.dataclass import dataclass
from rmqcli.errors import HeaderError
from rmqcli.log import get_logger
from rmqcli.units import read_count
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import Header, from_ext_fields
from rmqcli.wire.headers import pop
from rmqcli.wire.message.decode import DecodeFailure, decode_messages
from rmqcli.wire.message.properties import LITE_TOPIC, POP_CK, lmq_of
from rmqcli.wire.protobuf.definition_pb2 import ClientType, Code, Settings
from rmqcli.wire.protobuf.service_pb2 import ReceiveMessageResponse
from rmqcli.wire.receipt_handle import (
    ReceiptHandle,
    decode_order_count_info,
    decode_receipt_handle,
    decode_start_offset_info,
    encode_receipt_handle,
    topic_type_of,
)
from rmqcli.wire.subscription import TAG, SubscriptionData, tag_matches

if TYPE_CHECKING:
    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.broker.proxy.routes import Queue
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.message.record import StoredMessage
    from rmqcli.wire.protobuf.service_pb2 import ReceiveMessageRequest

logger = get_logger(__name__)

_POLLING_MS_MIN: Final = 5_000  # grpcClientConsumerMinLongPollingTimeoutMillis
_INVISIBLE_MS_MIN: Final = 10_000  # minInvisibleTimeMillsForRecv
_POLLING_TIME_SINCE: Final = "5.0.3"
_INIT_MAX: Final = 1  # ConsumeInitMode.MAX
_LITE_RENEWED_MAX: Final = 100  # maxLiteRenewNumPerChannel
_SETTINGS_WAIT_MS: Final = 1_000
#: How long writing an answer may take; then a client that does not read is given up.
_WRITE_MS_MAX: Final = 60_000

_NOTHING_CODES: Final = frozenset(
    {
        int(ResponseCode.POLLING_TIMEOUT),
        int(ResponseCode.PULL_NOT_FOUND),
    }
)


class ResponseWriter(Protocol):
    """The response stream of one call."""

    async def write(self, message: ReceiveMessageResponse) -> None:
        """Send one part; wait until the client has room for it."""


@dataclass(slots=True)
class Popped:
    """A message that the broker delivered, and its receipt handle."""

    stored: StoredMessage
    handle: ReceiptHandle
    #: how often the message was received before
    reconsume_times: int
    #: of a message that was received from its lite topic
    lite_topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The parameters of a call, after the checks."""

    topic: str
    group: str
    subscription: SubscriptionData
    polling_ms: int
    invisible_ms: int
    is_fifo: bool
    attempts_max: int
    left_ms: int
    is_lite: bool


class Receiving(Activity):
    """Serves the call, in the proxy's event loop."""

    def __init__(self, shared: Shared, handles: Handles) -> None:
        super().__init__(shared)
        self._handles = handles

    async def receive_message(
        self, caller: Caller, request: ReceiveMessageRequest, writer: ResponseWriter
    ) -> None:
        """ReceiveMessage: write the whole answer."""
        try:
            plan = await self._plan(caller, request)
            found = await self._receive(caller, request, plan)
        except Exception as error:  # noqa: BLE001  # becomes the answer's status
            await self._finish(writer, ReceiveMessageResponse(status=status_of(error)))
            return
        waiting = found[::-1]
        try:
            async with asyncio.timeout(_WRITE_MS_MAX / 1000):
                await writer.write(ReceiveMessageResponse(status=ok()))
                while waiting:
                    each = waiting[-1]
                    message = grpc_message(
                        each.stored,
                        topic=plan.topic,
                        handle=encode_receipt_handle(each.handle),
                        attempt=each.reconsume_times + 1,
                        queue_offset=each.handle.offset if each.lite_topic else None,
                    )
                    await writer.write(ReceiveMessageResponse(message=message))
                    waiting.pop()
                await self._finish(writer, None)
        finally:
            for each in waiting:  # the client has gone, or does not read
                self._give_back(caller, plan, each)

    async def _finish(
        self, writer: ResponseWriter, response: ReceiveMessageResponse | None
    ) -> None:
        if response is not None:
            await writer.write(response)
        last = ReceiveMessageResponse()
        last.delivery_timestamp.FromMilliseconds(self._clock.epoch_ms())
        await writer.write(last)

    # --- the request ---

    async def _plan(self, caller: Caller, request: ReceiveMessageRequest) -> _Plan:
        """Check a request, in RocketMQ's order. Raises ProxyError.

        Waits up to 1 s for the client's settings.
        """
        await self._clients.wait_for_settings(caller.client_id, _SETTINGS_WAIT_MS)
        settings = await self._clients.settings_of(caller.client_id)
        if settings is None:
            raise internal_error("the client has not sent its settings")
        if caller.left_ms is None:
            raise internal_error("the call has no deadline")
        held_ms = polling_ms(request, settings, caller.version, caller.left_ms)
        topic, group = checked_names(request.message_queue.topic, request.group)
        invisible_ms = duration_ms(request.invisible_duration)
        if request.auto_renew:
            invisible_ms = RENEWED_MS
        else:
            check_invisible(invisible_ms, min_ms=_INVISIBLE_MS_MIN)
        return _Plan(
            topic=topic,
            group=group,
            subscription=subscription_of(topic, request.filter_expression),
            polling_ms=held_ms,
            invisible_ms=invisible_ms,
            is_fifo=settings.subscription.fifo,
            attempts_max=settings.backoff_policy.max_attempts,
            left_ms=caller.left_ms,
            is_lite=settings.client_type == ClientType.LITE_PUSH_CONSUMER,
        )

    # --- the POP ---

    async def _receive(
        self, caller: Caller, request: ReceiveMessageRequest, plan: _Plan
    ) -> list[Popped]:
        """Return the messages for the client. Raises ProxyError, also without any."""
        popped = asyncio.ensure_future(self._pop(caller, request, plan))
        try:
            received = await asyncio.shield(popped)
        except asyncio.CancelledError:
            # The client has gone; the broker may still answer, up to 20 s later.
            popped.add_done_callback(lambda done: self._return_all(caller, plan, done))
            raise
        found = [each for each in received if self._is_for_client(plan, each)]
        if not found:
            raise ProxyError(Code.MESSAGE_NOT_FOUND, "no match message")
        if request.auto_renew:
            self._start_renewing(caller, plan, found)
        return found

    async def _pop(
        self, caller: Caller, request: ReceiveMessageRequest, plan: _Plan
    ) -> list[Popped]:
        if request.batch_size < 0:
            raise internal_error(
                f"batch size must not be negative: {request.batch_size}"
            )
        queue = await self._routes.readable(
            plan.topic, request.message_queue.broker.name
        )
        if queue is None:
            raise ProxyError(Code.FORBIDDEN, "no readable queue")
        if plan.is_lite:
            return await self._pop_lite(caller, request, plan, queue)
        header = pop.PopMessageRequestHeader(
            consumer_group=plan.group,
            topic=plan.topic,
            queue_id=queue.queue_id,
            max_msg_nums=min(request.batch_size, BATCH_SIZE),
            invisible_time=plan.invisible_ms,
            poll_time=plan.polling_ms,
            born_time=self._clock.epoch_ms(),
            init_mode=_INIT_MAX,
            exp_type=plan.subscription.expression_type or TAG,
            exp=plan.subscription.sub_string,
            order=plan.is_fifo,
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        code = RequestCode.POP_MESSAGE
        answer = await self._answer(queue, code, header, plan.left_ms)
        return read_answer(answer, queue.broker_name, is_fifo=plan.is_fifo)

    async def _pop_lite(
        self, caller: Caller, request: ReceiveMessageRequest, plan: _Plan, queue: Queue
    ) -> list[Popped]:
        """Receive messages of the lite topics that the client subscribes.

        Source: ConsumerProcessor.popLiteMessage.
        """
        unacked = self._handles.count(caller.client_id, plan.group)
        if unacked > _LITE_RENEWED_MAX:
            raise ProxyError(
                Code.FORBIDDEN,
                f"The client [{caller.client_id}] has too many unacked messages."
                f" Unacked count: {unacked}",
            )
        header = pop.PopLiteMessageRequestHeader(
            client_id=caller.client_id,
            consumer_group=plan.group,
            topic=plan.topic,
            max_msg_num=min(request.batch_size, BATCH_SIZE),
            invisible_time=plan.invisible_ms,
            poll_time=plan.polling_ms,
            born_time=self._clock.epoch_ms(),
            attempt_id=request.attempt_id if request.HasField("attempt_id") else None,
        )
        code = RequestCode.POP_LITE_MESSAGE
        answer = await self._answer(queue, code, header, plan.left_ms)
        return read_lite_answer(answer, queue.broker_name, plan.topic)

    async def _answer(
        self, queue: Queue, code: int, header: Header, left_ms: int
    ) -> RemotingCommand:
        """Return the answer with messages. Raises ProxyError for any other."""
        answer = await self._links.ask(queue.address, code, header, timeout_ms=left_ms)
        if answer.code in _NOTHING_CODES:
            raise ProxyError(Code.MESSAGE_NOT_FOUND, "no new message")
        if answer.code == ResponseCode.POLLING_FULL:
            raise ProxyError(Code.TOO_MANY_REQUESTS, "polling full")
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        return answer

    def _is_for_client(self, plan: _Plan, each: Popped) -> bool:
        """Whether to deliver a message; otherwise it is acknowledged or forwarded here.

        Source: PopMessageResultFilterImpl.
        """
        delivery = _delivery(plan, each)
        if not tag_matches(plan.subscription, each.stored.tags):
            self._handles.spawn_ack(delivery)
            return False
        if each.reconsume_times >= plan.attempts_max:
            message_id = each.stored.msg_id or each.stored.offset_msg_id
            self._handles.spawn_forward(delivery, message_id)
            return False
        return True

    def _start_renewing(self, caller: Caller, plan: _Plan, found: list[Popped]) -> None:
        if not self._clients.is_online(caller.client_id, plan.group):
            for each in found:
                self._handles.spawn_nack(_delivery(plan, each))
            raise ProxyError(
                Code.MESSAGE_NOT_FOUND,
                f"The client [{caller.client_id}] is disconnected.",
            )
        for each in found:
            self._handles.renew(
                caller.client_id,
                _delivery(plan, each),
                reconsume_times=each.reconsume_times,
            )

    def _give_back(self, caller: Caller, plan: _Plan, each: Popped) -> None:
        self._handles.spawn_return(caller.client_id, _delivery(plan, each))

    def _return_all(
        self, caller: Caller, plan: _Plan, done: asyncio.Future[list[Popped]]
    ) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        for each in done.result():
            self._give_back(caller, plan, each)


def _delivery(plan: _Plan, each: Popped) -> Delivery:
    return Delivery(plan.topic, plan.group, each.handle, each.lite_topic)


def polling_ms(
    request: ReceiveMessageRequest, settings: Settings, version: str, left_ms: int
) -> int:
    """Return how long the broker may hold the request. Raises ProxyError.

    `version` is that of the client, and `left_ms` the time until the call's deadline.
    """
    if request.HasField("long_polling_timeout"):
        asked_ms = duration_ms(request.long_polling_timeout)
    else:
        asked_ms = left_ms - duration_ms(settings.request_timeout) // 2
    held_ms = min(max(asked_ms, _POLLING_MS_MIN), POLLING_MS_MAX)
    if left_ms >= _POLLING_MS_MIN:
        return min(held_ms, left_ms)
    # A client of an old version, or of none, does not know the newer code.
    raise ProxyError(
        Code.BAD_REQUEST
        if version < _POLLING_TIME_SINCE
        else Code.ILLEGAL_POLLING_TIME,
        "The deadline time remaining is not enough for polling, please check "
        "network condition",
    )


def read_answer(
    answer: RemotingCommand, broker_name: str, *, is_fifo: bool
) -> list[Popped]:
    """Return the messages of a POP answer with their handles.

    A record that cannot be read is skipped with a warning; it becomes visible again
    when its invisible time ends. Raises HeaderError for an answer without the values
    that handles consist of.
    """
    header = from_ext_fields(pop.PopMessageResponseHeader, answer.ext_fields)
    starts = decode_start_offset_info(header.start_offset_info)
    counts = decode_order_count_info(header.order_count_info) if is_fifo else {}
    found = []
    for stored in decode_messages(answer.body):
        if isinstance(stored, DecodeFailure):
            logger.warning("could not decode popped record broker=%s", broker_name)
            continue
        kind, queue_id = topic_type_of(stored.topic), stored.queue_id
        offset = stored.queue_offset
        reconsume_times = stored.reconsume_times
        kept = stored.properties.get(POP_CK)
        if kept is not None:
            handle = _with_place(decode_receipt_handle(kept), stored)
        else:
            start = starts.get((kind, queue_id))
            if start is None:
                raise HeaderError(
                    f"POP answer has no start offset for queue {queue_id}"
                )
            handle = ReceiptHandle(
                start_offset=start,
                pop_time_ms=header.pop_time,
                invisible_ms=header.invisible_time,
                revive_queue_id=header.revive_qid,
                topic_type=kind,
                broker_name=broker_name,
                queue_id=queue_id,
                offset=offset,
                commit_log_offset=stored.commit_log_offset,
            )
            count = counts.get((kind, (queue_id, offset)))
            if count is None:
                count = counts.get((kind, (queue_id, None)))
            reconsume_times = count or reconsume_times
        found.append(Popped(stored, handle, reconsume_times))
    return found


def read_lite_answer(
    answer: RemotingCommand, broker_name: str, topic: str
) -> list[Popped]:
    """Return the messages of an answer with those of lite topics.

    Their queue is that of the lite topic. Their delivery counts are left out if there
    is not one for each message. A record that cannot be read is skipped.

    Source: MQClientAPIImpl.processPopLiteResponse.
    """
    header = from_ext_fields(pop.PopLiteMessageResponseHeader, answer.ext_fields)
    messages = decode_messages(answer.body)
    counts = [
        read_count(each, digits_max=9) or 0
        for each in (header.order_count_info or "").split(";")
    ]
    if len(counts) != len(messages):
        counts = [0] * len(messages)
    found = []
    for stored, count in zip(messages, counts, strict=True):
        if isinstance(stored, DecodeFailure):
            logger.warning("could not decode popped record broker=%s", broker_name)
            continue
        lmq = lmq_of(topic, stored.properties)
        lite_topic = stored.properties.get(LITE_TOPIC)
        if lmq is None or lite_topic is None:
            raise HeaderError("POP answer has a message that is in no lite topic")
        handle = ReceiptHandle(
            start_offset=0,
            pop_time_ms=header.pop_time,
            invisible_ms=header.invisible_time,
            revive_queue_id=header.revive_qid,
            topic_type=topic_type_of(topic),
            broker_name=broker_name,
            queue_id=0,
            offset=lmq[1],
            commit_log_offset=stored.commit_log_offset,
        )
        found.append(Popped(stored, handle, count, lite_topic))
    return found


def _with_place(handle: ReceiptHandle, stored: StoredMessage) -> ReceiptHandle:
    offset = stored.queue_offset if handle.offset is None else handle.offset
    return dataclasses.replace(
        handle, offset=offset, commit_log_offset=stored.commit_log_offset
    )
