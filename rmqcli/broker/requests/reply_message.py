"""Replies to request messages: 324 and 325, pushed to the requester as 326.

Java's `DefaultMQProducer.request` puts its client id and a correlation id into a
message. The consumer of that message sends the reply to `<cluster>_REPLY_TOPIC` of the
broker that had the message, and the broker pushes it to the requester's connection.
Imitated: the checks of a send; the pushed header and PUSH_REPLY_TIME;
storeReplyMessageEnable; the sender of the reply gets its answer only after the
requester has answered, and gets SYSTEM_ERROR if the requester is unknown, has closed
its connection, does not answer for 10 s, or refuses the reply.
Not imitated: RocketMQ stores the reply after the requester has answered; here, it is
stored before.

Source: `ReplyMessageProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Refusal, Reply
from rmqcli.broker.requests import send_message
from rmqcli.broker.state.client_calls import NoAnswer
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.client import ReplyMessageRequestHeader
from rmqcli.wire.headers.send import SendMessageResponseHeader
from rmqcli.wire.ids import encode_offset_msg_id
from rmqcli.wire.message.properties import encode_properties, parse_properties

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.message.encode import MessageFields

REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"  # PROPERTY_MESSAGE_REPLY_TO_CLIENT
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"  # PROPERTY_PUSH_REPLY_TIME
#: Bytes that PUSH_REPLY_TIME may take of the 32 KiB.
_OWN_PROPERTIES_BYTES: Final = 64


@handles(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
def send_reply(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Push a reply to the client that it names; answer after that client (324, 325)."""
    try:
        return _push(broker, request, send_message.send_header(request))
    except Refusal as refusal:
        refusal.ext_fields = {**send_message.ANSWER_FIELDS, **refusal.ext_fields}
        raise


def _push(
    broker: BrokerState, request: BrokerRequest, header: send_message.SendHeader
) -> Reply | None:
    config = send_message.need_topic(broker, request, header)
    queue_id = send_message.need_queue(broker, header, config)
    body = send_message.need_body(broker, request.command.body)
    text = send_message.need_properties(
        broker, header.properties, room_bytes=_OWN_PROPERTIES_BYTES
    )
    properties = parse_properties(text)
    client_id = properties.get(REPLY_TO_CLIENT)
    fields = send_message.fields_of(
        broker, request, header, config, queue_id, body, text
    )
    stored = _stored(broker, request, fields)
    if client_id is None:
        return _failed(
            f"push reply message fail, {REPLY_TO_CLIENT} is null, "
            "can not reply message",
            stored,
        )
    peer = broker.clients.producer_peer(client_id)
    if peer is None:
        return _failed(
            f"push reply message fail, channel of <{client_id}> not found.", stored
        )
    properties[PUSH_REPLY_TIME] = str(request.now.epoch_ms)

    def done(answer: RemotingCommand | NoAnswer) -> None:
        if isinstance(answer, NoAnswer) or answer.code != ResponseCode.SUCCESS:
            reply = _failed(f"push reply message to {client_id}fail.", stored)
        else:
            reply = Reply(header=stored, ext_fields=send_message.ANSWER_FIELDS)
        broker.answer(request, reply)

    broker.client_calls.call(
        peer,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        request.now,
        done=done,
        header=_pushed_header(header, fields, properties),
        body=body,
    )
    return None


def _stored(
    broker: BrokerState, request: BrokerRequest, fields: MessageFields
) -> SendMessageResponseHeader:
    """Store the reply; return a response header with its place.

    If the reply is not stored, its message id and offset are 0. As in RocketMQ, that is
    not an error.
    """
    msg_id, queue_offset = "0", 0
    if broker.settings.store_reply_message_enable:
        with suppress(Refusal):
            place = send_message.put_or_refuse(broker, [fields], request.now)[0]
            host, queue_offset = broker.settings.address, place.queue_offset
            msg_id = encode_offset_msg_id(host, place.commit_log_offset)
    return SendMessageResponseHeader(
        msg_id=msg_id, queue_id=fields.queue_id, queue_offset=queue_offset
    )


def _failed(remark: str, stored: SendMessageResponseHeader) -> Reply:
    return Reply(ResponseCode.SYSTEM_ERROR, remark, stored, send_message.ANSWER_FIELDS)


def _pushed_header(
    header: send_message.SendHeader, fields: MessageFields, properties: dict[str, str]
) -> ReplyMessageRequestHeader:
    return ReplyMessageRequestHeader(
        producer_group=header.producer_group,
        topic=fields.topic,
        default_topic=header.default_topic,
        default_topic_queue_nums=header.default_topic_queue_nums,
        queue_id=fields.queue_id,
        sys_flag=header.sys_flag,
        born_timestamp=header.born_timestamp,
        flag=header.flag,
        properties=encode_properties(properties),
        reconsume_times=header.reconsume_times,
        unit_mode=bool(header.unit_mode),
        born_host=fields.born_host,
        store_host=fields.store_host,
        store_timestamp=fields.store_timestamp_ms,
    )
