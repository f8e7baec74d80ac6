"""SendMessage and RecallMessage.

Imitated: the checks in RocketMQ's order; a message group always goes to the same queue;
several messages go to one queue as a batch and get one entry. As with RocketMQ, the
messages of a batch are in no lite topic.

Source: `SendMessageActivity`, `RecallMessageActivity` and `ProducerProcessor` in
apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.message.delayed import is_delayed
from rmqcli.broker.proxy.activity import Activity, Shared
from rmqcli.broker.proxy.checks import check_topic
from rmqcli.broker.proxy.message import kind_of, properties_of, sys_flag_of
from rmqcli.broker.proxy.status import (
    ProxyError,
    common_status,
    internal_error,
    ok,
    refused,
    status,
)
from rmqcli.broker.topic_names import DEFAULT_TOPIC, DLQ_PREFIX, RETRY_PREFIX
from rmqcli.errors import WireError
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers import send
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.properties import UNIQ_KEY, encode_properties
from rmqcli.wire.message.system_flag import TRANSACTION_PREPARED
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.protobuf.definition_pb2 import Code
from rmqcli.wire.recall_handle import decode_recall_handle

if TYPE_CHECKING:
    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.broker.proxy.routes import Queue
    from rmqcli.broker.proxy.transactions import ProxyTransactions
    from rmqcli.wire.command import RemotingCommand

_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"

#: Codes of answers after which the message is stored -> the status of the entry.
_STORED_CODES: Final = {
    int(ResponseCode.SUCCESS): Code.OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): Code.MASTER_PERSISTENCE_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): Code.HA_NOT_AVAILABLE,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): Code.SLAVE_PERSISTENCE_TIMEOUT,
}


class Sending(Activity):
    """Serves the calls, in the proxy's event loop."""

    def __init__(self, shared: Shared, transactions: ProxyTransactions) -> None:
        super().__init__(shared)
        self._transactions = transactions

    async def send_message(
        self, caller: Caller, request: service.SendMessageRequest
    ) -> service.SendMessageResponse:
        """SendMessage: one message, or a batch for one topic."""
        if not request.messages:
            raise ProxyError(Code.MESSAGE_CORRUPTED, "no message to send")
        first = request.messages[0]
        topic = first.topic.name
        check_topic(topic)
        items = []
        for message in request.messages:
            if message.topic != first.topic:
                raise ProxyError(Code.MESSAGE_CORRUPTED, "topic in message is not same")
            properties = properties_of(message, caller, self._clock.epoch_ms())
            items.append(BatchItem(body=message.body, properties=properties))
        if not topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            await self._routes.check_type(topic, kind_of(items[0].properties))
        is_single = len(items) == 1
        system = first.system_properties
        sharding_key = system.message_group or system.lite_topic if is_single else ""
        queue = await self._routes.any_writable(topic, sharding_key)
        if queue is None:
            raise ProxyError(Code.FORBIDDEN, "no writable queue")
        if not is_single and any(is_delayed(each.properties) for each in items):
            # A broker stores a batch as it is: its messages would be delivered at once.
            raise internal_error("Delayed messages are not supported for batching")
        sys_flag = sys_flag_of(first)
        answer = await self._send(topic, queue, items, sys_flag)
        entry = self._entry(topic, queue, items, sys_flag, answer)
        return service.SendMessageResponse(
            status=common_status([entry.status.code], empty="send status is empty"),
            entries=[entry],
        )

    async def _send(
        self, topic: str, queue: Queue, items: list[BatchItem], sys_flag: int
    ) -> RemotingCommand:
        first = items[0]
        is_batch = len(items) > 1
        try:
            properties = encode_properties(first.properties)
            body = encode_batch(items) if is_batch else first.body
        except ValueError as error:
            raise internal_error(str(error)) from error
        born_ms = first.properties.get(_BORN_TIMESTAMP)
        header = send.SendMessageRequestHeaderV2(
            producer_group=topic,
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=self._clock.epoch_ms() if born_ms is None else int(born_ms),
            flag=0,
            properties=properties,
            reconsume_times=0,
            unit_mode=False,
            batch=is_batch,
            bname=queue.broker_name,
        )
        code = (
            RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
        )
        return await self._links.ask(queue.address, code, header, body=body)

    def _entry(
        self,
        topic: str,
        queue: Queue,
        items: list[BatchItem],
        sys_flag: int,
        answer: RemotingCommand,
    ) -> service.SendResultEntry:
        """Return the entry for a broker's answer. Raises ProxyError for a refusal."""
        code = _STORED_CODES.get(answer.code)
        if code is None:
            raise refused(answer)
        if code != Code.OK:
            name = ResponseCode(answer.code).name
            return service.SendResultEntry(
                status=status(code, f"send message failed, sendStatus={name}")
            )
        header = from_ext_fields(send.SendMessageResponseHeader, answer.ext_fields)
        transaction_id = header.transaction_id or ""
        if sys_flag & TRANSACTION_PREPARED and transaction_id:
            self._transactions.add(
                topic,
                transaction_id,
                address=queue.address,
                queue_offset=header.queue_offset,
                commit_log_offset=decode_offset_msg_id(header.msg_id).commit_log_offset,
            )
        return service.SendResultEntry(
            status=ok(),
            offset=header.queue_offset,
            message_id=",".join(item.properties[UNIQ_KEY] for item in items),
            transaction_id=transaction_id,
            recall_handle=header.recall_handle or "",
        )

    async def recall_message(
        self, _caller: Caller, request: service.RecallMessageRequest
    ) -> service.RecallMessageResponse:
        """RecallMessage: withdraw a message that waits for its delivery time."""
        topic = request.topic.name
        check_topic(topic)
        await self._routes.check_type(topic, "DELAY")
        broker_name = _broker_of(request.recall_handle)
        address = await self._routes.address_of(broker_name)
        if address is None:
            raise ProxyError(Code.BAD_REQUEST, f"cannot find broker {broker_name}")
        answer = await self._links.ask(
            address,
            RequestCode.RECALL_MESSAGE,
            send.RecallMessageRequestHeader(
                topic=topic, recall_handle=request.recall_handle
            ),
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)
        header = from_ext_fields(send.RecallMessageResponseHeader, answer.ext_fields)
        return service.RecallMessageResponse(status=ok(), message_id=header.msg_id)


def _broker_of(recall_handle: str) -> str:
    """Return the name of the broker in a recall handle. Raises ProxyError."""
    try:
        return decode_recall_handle(recall_handle).broker_name
    except WireError as error:
        raise internal_error(error.message) from error
