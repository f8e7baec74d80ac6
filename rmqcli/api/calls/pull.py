"""PULL_MESSAGE, for readers that leave no trace and for members of a group.

A reader sends its filter in the request (sysFlag bit 2), so that it needs no heartbeat
and no group of its own, and it commits nothing. It names the built-in group
TOOLS_CONSUMER, because a broker creates, and keeps, any group that it does not know. A
member sends the version of its subscription, and the offset to commit.

Source: PullMessageProcessor of the broker, PullAPIWrapper#pullKernelImpl, PullSysFlag.
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

FLAG_COMMIT_OFFSET = 0x1  # PullSysFlag.FLAG_COMMIT_OFFSET
FLAG_SUSPEND = 0x2  # PullSysFlag.FLAG_SUSPEND
FLAG_SUBSCRIPTION = 0x4  # PullSysFlag.FLAG_SUBSCRIPTION

#: A broker never returns more: it stops at 32 messages or 256 KiB from memory, or at 8
#: messages or 64 KiB from disk (maxTransferCountOnMessageInMemory of MessageStoreConfig
#: and its three siblings).
MSG_NUMS_MAX = 32
_MSG_BYTES_MAX = "262144"  # DefaultMQPushConsumer.pullBatchSizeInBytes


class _PullOf:
    """The name of a pull in errors, which becomes text only when it is needed."""

    __slots__ = ("_queue",)

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue

    def __str__(self) -> str:
        return f"pull of {self._queue}"


def pull_message(
    queue: MessageQueue,
    queue_offset: int,
    *,
    max_msg_nums: int = MSG_NUMS_MAX,
    suspend_ms: int = 0,
    expression: str = "*",
    expression_type: str = "TAG",
) -> Call[PullAnswer]:
    """Messages of `queue` from `queue_offset` on, as many as the broker returns.

    With `suspend_ms` over 0 the broker holds the request until a message arrives or
    that time has passed, which it may notice up to 5 s late. So the request needs a
    longer deadline.
    """
    # Written out for speed: bulk reads make ten thousand of these a second.
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
        what=_PullOf(queue),
        ext_fields=fields,
        ok_codes=PULL_OK_CODES,
    )


def pull_for_group(
    group: str,
    queue: MessageQueue,
    queue_offset: int,
    *,
    commit_offset: int | None,
    max_msg_nums: int,
    suspend_ms: int,
    sub_version: int,
    expression: str | None,
    expression_type: str,
) -> Call[PullAnswer]:
    """Messages of `queue` for a member of `group`.

    The broker holds the request for up to `suspend_ms`. With `commit_offset` None
    nothing is committed; a pull from a slave needs that. Without `expression` the
    broker uses the subscription of the group's heartbeat.
    """
    flags = FLAG_SUSPEND
    if commit_offset is not None:
        flags |= FLAG_COMMIT_OFFSET
    # Written out for speed: a busy consumer makes thousands of these a second.
    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": str(queue.queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(max_msg_nums),
        "commitOffset": str(commit_offset or 0),
        "suspendTimeoutMillis": str(suspend_ms),
        "subVersion": str(sub_version),
        "expressionType": expression_type,
        "bname": queue.broker_name,
        "maxMsgBytes": _MSG_BYTES_MAX,
    }
    if expression is not None:
        flags |= FLAG_SUBSCRIPTION
        fields["subscription"] = expression
    fields["sysFlag"] = str(flags)
    return Call(
        code=int(RequestCode.PULL_MESSAGE),
        parse=parse_pull_answer,
        what=_PullOf(queue),
        ext_fields=fields,
        ok_codes=PULL_OK_CODES,
    )
