"""PULL_MESSAGE: read a queue without leaving a trace.

The filter travels in the request (sysFlag bit 2), so no heartbeat and no group of ours
is needed; no offset is committed. The group is the built-in TOOLS_CONSUMER, because a
broker creates, and keeps, any group that it does not know.

Source: PullMessageProcessor of the broker, PullSysFlag, PullStatus of the client.
"""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.api.call import Call
from rmqcli.model import TOOLS_CONSUMER_GROUP
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers_pull import PullMessageResponseHeader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.model import MessageQueue
    from rmqcli.wire.command import RemotingCommand

FLAG_SUSPEND = 0x2  # PullSysFlag.FLAG_SUSPEND
FLAG_SUBSCRIPTION = 0x4  # PullSysFlag.FLAG_SUBSCRIPTION

#: More is never answered: a broker stops at 32 messages or 256 KiB, 8 or 64 KiB from
#: disk (MessageStoreConfig.maxTransferCountOnMessageInMemory and its three siblings).
MSG_NUMS_MAX = 32


class PullStatus(enum.Enum):
    """What a pull found. Members keep Java's names."""

    FOUND = "FOUND"
    NO_NEW_MSG = "NO_NEW_MSG"
    NO_MATCHED_MSG = "NO_MATCHED_MSG"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


_STATUS = {
    int(ResponseCode.SUCCESS): PullStatus.FOUND,
    int(ResponseCode.PULL_NOT_FOUND): PullStatus.NO_NEW_MSG,
    int(ResponseCode.PULL_RETRY_IMMEDIATELY): PullStatus.NO_MATCHED_MSG,
    int(ResponseCode.PULL_OFFSET_MOVED): PullStatus.OFFSET_ILLEGAL,
}
_OK_CODES = frozenset(_STATUS)
_NUMBERS = operator.itemgetter(
    "nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"
)


@dataclass(slots=True)
class PullAnswer:
    """A broker's answer to a pull; treat as immutable (one is made per 32 messages).

    The four numbers are the broker's word and not yet checked against anything.
    `body` holds stored messages back to back, empty unless FOUND.
    """

    status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int
    body: bytes


def pull_message(
    queue: MessageQueue,
    queue_offset: int,
    *,
    max_msg_nums: int = MSG_NUMS_MAX,
    suspend_ms: int = 0,
    expression: str = "*",
    expression_type: str = "TAG",
) -> Call[PullAnswer]:
    """Messages of `queue` from `queue_offset` on, as many as the broker gives.

    With `suspend_ms` over 0 the broker holds the request until something arrives or
    that time is over, which it notices up to 5 s late: give it a longer deadline.
    """
    # Written out: bulk reads make ten thousand of these a second.
    fields = {
        "consumerGroup": TOOLS_CONSUMER_GROUP,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(max_msg_nums),
        "sysFlag": str(FLAG_SUBSCRIPTION | (FLAG_SUSPEND if suspend_ms else 0)),
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subVersion": "0",
        "subscription": expression,
        "expressionType": expression_type,
    }
    return Call(
        code=int(RequestCode.PULL_MESSAGE),
        parse=parse_pull_answer,
        what=f"pull of {queue}",
        ext_fields=fields,
        ok_codes=_OK_CODES,
    )


def parse_pull_answer(answer: RemotingCommand) -> PullAnswer:
    """Read an answer whose code is one of the four of PullStatus."""
    numbers = _plain_numbers(answer.ext_fields)
    if numbers is not None:
        return PullAnswer(_STATUS[answer.code], *numbers, answer.body)
    header = from_ext_fields(PullMessageResponseHeader, answer.ext_fields)
    return PullAnswer(
        _STATUS[answer.code],
        header.next_begin_offset,
        header.min_offset,
        header.max_offset,
        header.suggest_which_broker_id,
        answer.body,
    )


def _plain_numbers(fields: Mapping[str, str]) -> tuple[int, int, int, int] | None:
    """The numbers of a usual answer, at a fifth of the cost; None for any other.

    Up to 18 digits always fit 64 bits.
    """
    try:
        texts = _NUMBERS(fields)
    except KeyError:
        return None  # the header's own reader says what is missing
    joined = "".join(texts)
    if not (joined.isdecimal() and joined.isascii()) or max(map(len, texts)) > 18:
        return None
    try:
        next_begin, low, high, broker_id = map(int, texts)
    except ValueError:
        return None  # one of them is empty
    return next_begin, low, high, broker_id
