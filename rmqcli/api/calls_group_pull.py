"""PULL_MESSAGE as a member of a group: its subscription, and its commit on the way.

Source: PullAPIWrapper#pullKernelImpl, PullSysFlag.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import Call
from rmqcli.api.calls_pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.pull_answer import PULL_OK_CODES, parse_pull_answer

if TYPE_CHECKING:
    from rmqcli.model import MessageQueue
    from rmqcli.wire.pull_answer import PullAnswer

FLAG_COMMIT_OFFSET = 0x1  # PullSysFlag.FLAG_COMMIT_OFFSET

_MSG_BYTES_MAX = "262144"  # DefaultMQPushConsumer.pullBatchSizeInBytes


class _PullOf:
    """What a pull is in an error: put into words only then."""

    __slots__ = ("_queue",)

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue

    def __str__(self) -> str:
        return f"pull of {self._queue}"


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
    """Messages of `queue` for a member of `group`, held for up to `suspend_ms`.

    `commit_offset` None commits nothing: a slave must not be asked to. Without
    `expression` the broker goes by the group's heartbeat.
    """
    flags = FLAG_SUSPEND
    if commit_offset is not None:
        flags |= FLAG_COMMIT_OFFSET
    # Written out: a busy consumer makes thousands of these a second.
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
