"""Requests that store messages.

Source: SendMessageProcessor of the broker, MQClientAPIImpl.processSendResponse and
SendStatus of the client.
"""

from __future__ import annotations

import enum
from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.api.call import make_call
from rmqcli.dataclass import dataclass
from rmqcli.errors import BodyError, HeaderError
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.send import SendMessageResponseHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.api.call import Call
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.headers.send import SendMessageRequestHeaderV2


class SendStatus(enum.Enum):
    """How safely a message was stored. Members keep Java's names.

    All of them mean that the message was stored.
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"


_STATUS = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
}
_ALSO_OK = tuple(code for code in _STATUS if code)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAnswer:
    """Where a message, or each message of a batch, was stored.

    `offset_msg_ids` has one id per message. The messages of a batch have consecutive
    offsets from `queue_offset` on. `fields` are all of the answer, such as MSG_REGION.
    """

    status: SendStatus
    offset_msg_ids: tuple[str, ...]
    queue_id: int
    queue_offset: int
    transaction_id: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


def send_message(header: SendMessageRequestHeaderV2, body: bytes) -> Call[SendAnswer]:
    """Store one message."""
    return make_call(
        RequestCode.SEND_MESSAGE_V2,
        _send_result,
        what=f"send to topic {header.topic}",
        header=header,
        body=body,
        also_ok=_ALSO_OK,
    )


def send_batch_message(
    header: SendMessageRequestHeaderV2, body: bytes
) -> Call[SendAnswer]:
    """Store several messages in one queue.

    `body` is what `wire.message.batch` encodes.
    """
    return make_call(
        RequestCode.SEND_BATCH_MESSAGE,
        _send_result,
        what=f"batch send to topic {header.topic}",
        header=header,
        body=body,
        also_ok=_ALSO_OK,
    )


def _send_result(answer: RemotingCommand) -> SendAnswer:
    try:
        header = from_ext_fields(SendMessageResponseHeader, answer.ext_fields)
    except HeaderError as error:  # which for a caller would be one of the request
        raise BodyError(f"an answer to a send cannot be read: {error}") from error
    return SendAnswer(
        status=_STATUS[answer.code],
        offset_msg_ids=tuple(header.msg_id.split(",")),
        queue_id=header.queue_id,
        queue_offset=header.queue_offset,
        transaction_id=header.transaction_id,
        fields=answer.ext_fields,
    )
