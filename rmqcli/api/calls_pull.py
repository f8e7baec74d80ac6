"""PULL_MESSAGE: read a queue without leaving a trace.

The filter travels in the request (sysFlag bit 2), so no heartbeat and no group of ours
is needed; no offset is committed. The group is the built-in TOOLS_CONSUMER, because a
broker creates, and keeps, any group that it does not know.

Source: PullMessageProcessor of the broker, PullSysFlag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import Call
from rmqcli.model import TOOLS_CONSUMER_GROUP
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.pull_answer import PULL_OK_CODES, parse_pull_answer

if TYPE_CHECKING:
    from rmqcli.model import MessageQueue
    from rmqcli.wire.pull_answer import PullAnswer

FLAG_SUSPEND = 0x2  # PullSysFlag.FLAG_SUSPEND
FLAG_SUBSCRIPTION = 0x4  # PullSysFlag.FLAG_SUBSCRIPTION

#: More is never answered: a broker stops at 32 messages or 256 KiB, 8 or 64 KiB from
#: disk (MessageStoreConfig.maxTransferCountOnMessageInMemory and its three siblings).
MSG_NUMS_MAX = 32


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
        ok_codes=PULL_OK_CODES,
    )
