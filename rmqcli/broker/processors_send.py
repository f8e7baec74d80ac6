"""Who answers the requests of producers, and of consumers that send back.

Source: `BrokerController.registerProcessor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.end_transaction import end_transaction
from rmqcli.broker.reply_message import send_reply
from rmqcli.broker.request import Refusal, Reply
from rmqcli.broker.send_back import send_back
from rmqcli.broker.send_batch import send_batch
from rmqcli.broker.send_message import ANSWER_FIELDS, send_message
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers_send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.broker.processors import Processor
    from rmqcli.broker.request import Request
    from rmqcli.broker.send_check import SendHeader


def send(broker: Broker, request: Request) -> Reply:
    """Store a message or a batch. Refusals say the region too, as RocketMQ's do."""
    header: SendHeader
    try:
        if request.command.code == RequestCode.SEND_MESSAGE:
            header = request.header(SendMessageRequestHeader)
        else:
            header = request.header(SendMessageRequestHeaderV2)
        if header.batch:
            return send_batch(broker, request, header)
        return send_message(broker, request, header)
    except Refusal as refusal:
        refusal.ext_fields = {**ANSWER_FIELDS, **refusal.ext_fields}
        raise


def recall(broker: Broker, _request: Request) -> Reply:
    """Not imitated: 5.x refuses it too unless recallMessageEnable is set."""
    if not broker.manners.has_timer:
        return Reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {int(RequestCode.RECALL_MESSAGE)} not supported",
        )
    raise Refusal(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")


SEND_PROCESSORS: dict[int, Processor] = {
    RequestCode.SEND_MESSAGE: send,
    RequestCode.SEND_MESSAGE_V2: send,
    RequestCode.SEND_BATCH_MESSAGE: send,
    RequestCode.SEND_REPLY_MESSAGE: send_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: send_reply,
    RequestCode.CONSUMER_SEND_MSG_BACK: send_back,
    RequestCode.END_TRANSACTION: end_transaction,
    RequestCode.RECALL_MESSAGE: recall,
}
