"""POP: receive messages, acknowledge them, hide them for longer (5.0 and later).

The broker records which messages a group has received, and until when they are hidden.
No member owns a queue, and no client commits an offset. A message that is neither
acknowledged nor hidden again in time is delivered again, from a retry topic that the
broker keeps for the group and the topic.

Source: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor and
QueryAssignmentProcessor of the broker, MQClientAPIImpl#processPopResponse.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

from rmqcli.api.call import header_of, make_call, nothing
from rmqcli.dataclass import dataclass
from rmqcli.wire.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers import pop as headers
from rmqcli.wire.message.properties import POP_CK
from rmqcli.wire.receipt_handle import (
    ReceiptHandle,
    decode_order_count_info,
    decode_receipt_handle,
    decode_start_offset_info,
    encode_receipt_handle,
    topic_type_of,
)
from rmqcli.wire.version import V5_0_0, V5_1_3

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.api.call import Call
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.message.record import StoredMessage
    from rmqcli.wire.receipt_handle import OrderKey


_INIT_MODE_MIN: Final = 0  # ConsumeInitMode.MIN
_INIT_MODE_MAX: Final = 1  # ConsumeInitMode.MAX
_EMPTY_CODES: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
)


@dataclass(slots=True, kw_only=True)
class PopAnswer:
    """The answer to a POP: stored messages back to back in `body`, and their leases.

    `is_full` means that the broker holds too many requests, so this one did not wait.
    Numbers and offsets are those of the broker and have not been checked.
    """

    body: bytes = b""
    is_full: bool = False
    pop_time_ms: int = 0
    invisible_ms: int = 0
    revive_queue_id: int = 0
    #: (topic type, queue id) -> the lowest delivered offset of that queue
    start_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    #: how often messages of an orderly group were delivered before
    order_counts: dict[tuple[str, OrderKey], int] = field(default_factory=dict)

    def handle_of(self, message: StoredMessage, broker_name: str) -> ReceiptHandle:
        """Return the handle by which a message of `body` is acknowledged.

        Raises HeaderError when the broker's own handle cannot be read.
        """
        own = message.properties.get(POP_CK)
        if own is not None:  # from the retry topic, which the record does not name
            handle = decode_receipt_handle(own)
            if handle.offset is None:
                handle = replace(handle, offset=message.queue_offset)
            return handle
        topic_type = topic_type_of(message.topic)
        key = topic_type, message.queue_id
        return ReceiptHandle(
            start_offset=self.start_offsets.get(key, message.queue_offset),
            pop_time_ms=self.pop_time_ms,
            invisible_ms=self.invisible_ms,
            revive_queue_id=self.revive_queue_id,
            topic_type=topic_type,
            broker_name=broker_name,
            queue_id=message.queue_id,
            offset=message.queue_offset,
        )

    def deliveries_of(self, message: StoredMessage, handle: ReceiptHandle) -> int:
        """How often the message was delivered to the group before."""
        if not handle.is_order:
            return message.reconsume_times
        queue, counts = handle.queue_id, self.order_counts
        count = counts.get((handle.topic_type, (queue, handle.offset)))
        if count is None:
            count = counts.get((handle.topic_type, (queue, None)), 0)
        return count or message.reconsume_times


def pop_message(
    group: str,
    topic: str,
    *,
    max_msg_nums: int,
    invisible_ms: int,
    poll_ms: int,
    expression: str,
    expression_type: str,
    from_min: bool = False,
    is_order: bool = False,
) -> Call[PopAnswer]:
    """Receive up to 32 messages and hide them from the group for `invisible_ms`.

    While there is no message, the broker holds the request for up to `poll_ms`, so the
    request needs a longer deadline. The messages come from all the broker's queues and
    from the topic's retries. The first receive of a group from a
    queue begins at the queue's lowest offset with `from_min`, and otherwise near its
    end (but at 0 if the queue is young). With `is_order` a queue delivers nothing while
    a message of it is hidden.
    """
    return make_call(
        RequestCode.POP_MESSAGE,
        _pop_answer,
        what=f"pop of topic {topic} for group {group}",
        header=headers.PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1,
            max_msg_nums=max_msg_nums,
            invisible_time=invisible_ms,
            poll_time=poll_ms,
            # The broker replaces 0 by its own time. With our time it would not hold the
            # request of a client whose clock is late.
            born_time=0,
            init_mode=_INIT_MODE_MIN if from_min else _INIT_MODE_MAX,
            exp_type=expression_type,
            exp=expression,
            order=is_order,
        ),
        also_ok=_EMPTY_CODES,
        needs_version=V5_0_0,
    )


def ack_message(group: str, topic: str, handle: ReceiptHandle) -> Call[None]:
    """Acknowledge one message of `topic`, which is the subscribed topic.

    A second ack has no effect. A broker also accepts the handle of a message that is
    visible again; that ack has no effect either, or prevents another delivery.
    """
    return make_call(
        RequestCode.ACK_MESSAGE,
        nothing,
        what=f"ack of group {group} in {topic}:{handle.queue_id}",
        header=headers.AckMessageRequestHeader(
            consumer_group=group,
            topic=handle.real_topic(topic, group),
            queue_id=handle.queue_id,
            extra_info=encode_receipt_handle(handle),
            offset=_offset(handle),
        ),
        needs_version=V5_0_0,
    )


def batch_ack_message(
    group: str, broker_name: str, handles: Iterable[tuple[str, ReceiptHandle]]
) -> Call[None]:
    """Acknowledge messages of one broker, each by its subscribed topic and its handle.

    The broker silently ignores offsets that its queue does not have.
    """
    batches: dict[tuple[str, ReceiptHandle], set[int]] = {}
    for topic, handle in handles:
        batch = replace(handle, offset=None, commit_log_offset=None)
        position = _offset(handle) - handle.start_offset
        batches.setdefault((topic, batch), set()).add(position)
    acks = [
        BatchAck(
            consumer_group=group,
            topic=topic,
            retry=batch.topic_type,
            start_offset=batch.start_offset,
            queue_id=batch.queue_id,
            revive_queue_id=batch.revive_queue_id,
            pop_time=batch.pop_time_ms,
            invisible_time=batch.invisible_ms,
            bit_set=frozenset(positions),
        )
        for (topic, batch), positions in batches.items()
    ]
    return make_call(
        RequestCode.BATCH_ACK_MESSAGE,
        nothing,
        what=f"acks of group {group} at {broker_name}",
        body=encode_body(
            BatchAckMessageRequestBody(broker_name=broker_name, acks=acks)
        ),
        needs_version=V5_1_3,
    )


def change_invisible_time(
    group: str, topic: str, handle: ReceiptHandle, invisible_ms: int
) -> Call[ReceiptHandle]:
    """Hide a message for `invisible_ms` from now on; return its new handle.

    The old handle is void, although the broker still accepts requests with it: an ack
    has no effect, and after another change the message is delivered twice.
    """

    def parse(answer: RemotingCommand) -> ReceiptHandle:
        header = header_of(headers.ChangeInvisibleTimeResponseHeader, answer)
        return replace(
            handle,
            start_offset=_offset(handle),  # it is a batch of its own now
            pop_time_ms=header.pop_time,
            invisible_ms=header.invisible_time,
            revive_queue_id=header.revive_qid,
        )

    return make_call(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        parse,
        what=f"change of invisible time of group {group} in {topic}:{handle.queue_id}",
        header=headers.ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=handle.real_topic(topic, group),
            queue_id=handle.queue_id,
            extra_info=encode_receipt_handle(handle),
            offset=_offset(handle),
            invisible_time=invisible_ms,
        ),
        needs_version=V5_0_0,
    )


def orderly_pop_has_messages(group: str, topic: str, queue_id: int) -> Call[bool]:
    """Whether an orderly POP from the queue would find messages now. Hands none out.

    False if the group has all of them, or if what was handed out by orderly POP is
    neither acknowledged nor visible again. Messages in the group's retry topic count,
    too. The broker ignores filters.
    """
    return make_call(
        RequestCode.NOTIFICATION,
        lambda answer: header_of(headers.NotificationResponseHeader, answer).has_msg,
        what=f"messages of {topic}:{queue_id} for group {group}",
        header=headers.NotificationRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            poll_time=0,
            born_time=0,
            order=True,
        ),
        needs_version=V5_0_0,
    )


def _offset(handle: ReceiptHandle) -> int:
    if handle.offset is None:
        raise ValueError("the receipt handle is that of a batch: it has no offset")
    return handle.offset


def _pop_answer(answer: RemotingCommand) -> PopAnswer:
    if answer.code != ResponseCode.SUCCESS:
        return PopAnswer(is_full=answer.code == ResponseCode.POLLING_FULL)
    header = header_of(headers.PopMessageResponseHeader, answer)
    return PopAnswer(
        body=answer.body,
        pop_time_ms=header.pop_time,
        invisible_ms=header.invisible_time,
        revive_queue_id=header.revive_qid,
        start_offsets=decode_start_offset_info(header.start_offset_info),
        order_counts=decode_order_count_info(header.order_count_info),
    )
