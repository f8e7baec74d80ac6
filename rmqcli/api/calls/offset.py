"""Requests about offsets: committed offsets, ends of queues, offsets by time, resets.

Source: ConsumerManageProcessor and AdminBrokerProcessor of the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.api.call import header_of, make_call
from rmqcli.wire.bodies.offset import ConsumerOffsetSerializeWrapper, ResetOffsetBody
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import offset as headers
from rmqcli.wire.pull_answer import lower_end

if TYPE_CHECKING:
    from rmqcli.api.call import Call
    from rmqcli.model import MessageQueue
    from rmqcli.wire.command import RemotingCommand

#: In the remark of a broker with a pending reset that ignored a commit.
PENDING_RESET_REMARK: Final = "previously reset"  # ConsumerManageProcessor


def query_consumer_offset(
    group: str,
    topic: str,
    queue_id: int,
    *,
    set_zero_if_not_found: bool | None = False,
) -> Call[int | None]:
    """The committed offset, or None when the broker says that there is none.

    A broker before 5.0 does not know `setZeroIfNotFound` and may answer 0 for a queue
    without a committed offset. There 0 is ambiguous, and only the table of
    `get_all_consumer_offset` is reliable. A consumer passes None, which leaves the
    choice to the broker, so that a new group begins at the beginning of a young queue.
    """
    return make_call(
        RequestCode.QUERY_CONSUMER_OFFSET,
        _committed_offset,
        what=f"committed offset of group {group} in {topic}:{queue_id}",
        header=headers.QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            set_zero_if_not_found=set_zero_if_not_found,
        ),
        also_ok=(ResponseCode.QUERY_NOT_FOUND,),
    )


def update_consumer_offset(
    group: str, topic: str, queue_id: int, *, commit_offset: int
) -> Call[str]:
    """Commit an offset, forward or back; return the broker's remark.

    Since 5.1 a broker with a pending reset ignores the request; it answers with code 0
    and mentions this only in the remark: PENDING_RESET_REMARK is in it.
    """
    return make_call(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        lambda answer: answer.remark or "",
        what=f"commit of group {group} in {topic}:{queue_id}",
        header=headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            commit_offset=commit_offset,
        ),
    )


def get_max_offset(topic: str, queue_id: int) -> Call[int]:
    """The next offset that will be written. 0 for a queue that does not exist."""
    return make_call(
        RequestCode.GET_MAX_OFFSET,
        lambda answer: header_of(headers.GetMaxOffsetResponseHeader, answer).offset,
        what=f"max offset of {topic}:{queue_id}",
        header=headers.GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id),
    )


def get_min_offset(topic: str, queue_id: int) -> Call[int]:
    """The oldest offset that still exists. 0 for a queue that does not exist."""
    return make_call(
        RequestCode.GET_MIN_OFFSET,
        lambda answer: lower_end(
            header_of(headers.GetMinOffsetResponseHeader, answer).offset
        ),
        what=f"min offset of {topic}:{queue_id}",
        header=headers.GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id),
    )


def get_earliest_msg_storetime(topic: str, queue_id: int) -> Call[int | None]:
    """When the oldest message of a queue was stored, in epoch ms; None without one.

    The broker answers whatever the permissions of the topic are.
    """
    return make_call(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        _earliest_time,
        what=f"time of the oldest message of {topic}:{queue_id}",
        header=headers.GetEarliestMsgStoretimeRequestHeader(
            topic=topic, queue_id=queue_id
        ),
    )


def search_offset_by_timestamp(
    topic: str,
    queue_id: int,
    timestamp_ms: int,
) -> Call[int]:
    """The offset for a store time (epoch ms), by the broker's own rule.

    Up to 5.1.0 this is the nearest message, from 5.1.1 on the first one that is not
    older. `admin.positions` hides the difference.
    """
    return make_call(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        lambda answer: header_of(headers.SearchOffsetResponseHeader, answer).offset,
        what=f"offset by time of {topic}:{queue_id}",
        header=headers.SearchOffsetRequestHeader(
            topic=topic,
            queue_id=queue_id,
            timestamp=timestamp_ms,
        ),
    )


def get_all_consumer_offset() -> Call[dict[tuple[str, str], dict[int, int]]]:
    """Every committed offset of a broker: (group, topic) -> queue id -> offset."""
    return make_call(
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        lambda answer: decode_body(
            ConsumerOffsetSerializeWrapper, answer.body
        ).by_group_and_topic(),
        what="committed offsets of all groups",
    )


def invoke_broker_to_reset_offset(
    group: str,
    topic: str,
    *,
    timestamp_ms: int,
    is_force: bool = True,
    queue_id: int | None = None,
    offset: int | None = None,
) -> Call[dict[MessageQueue, int]]:
    """Reset a group, in the broker or through its clients; return the new offsets.

    `queue_id` and `offset` count only from 5.2.0 on: a broker that pushes the reset to
    clients ignores them and uses `timestamp_ms` alone, so never send them without
    checking its version. The error is NotFoundError (206) when clients are needed and
    no member is online.
    """
    return make_call(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        lambda answer: (
            decode_body(ResetOffsetBody, answer.body).offset_table
            if answer.body
            else {}
        ),
        what=f"reset of group {group} in {topic}",
        header=headers.ResetOffsetRequestHeader(
            topic=topic,
            group=group,
            timestamp=timestamp_ms,
            is_force=is_force,
            queue_id=queue_id,
            offset=offset,
        ),
    )


def _earliest_time(answer: RemotingCommand) -> int | None:
    header = header_of(headers.GetEarliestMsgStoretimeResponseHeader, answer)
    return header.timestamp if header.timestamp > 0 else None


def _committed_offset(answer: RemotingCommand) -> int | None:
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    header = header_of(headers.QueryConsumerOffsetResponseHeader, answer)
    return header.offset if header.offset >= 0 else None
