"""Send failed messages to the retry topic of their group.

First the message's broker is asked to copy it (CONSUMER_SEND_MSG_BACK). If that fails,
the message is sent to the retry topic as by a producer. If both fail, the member keeps
the message. No consume thread waits for this; in Java it does, for up to 5 s.

Java's fallback modifies the message that it sends back, loses ORIGIN_MESSAGE_ID, and
turns a message for the dead-letter queue into a retry. Here the fallback works on a
copy and keeps both: the id, and that the message becomes a dead letter.

Source: DefaultMQPushConsumerImpl#sendMessageBack, ConsumeMessageOrderlyService
#sendMessageBack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.engine.interfaces import RetryMessage, SendBack
from rmqcli.errors import RmqError
from rmqcli.log import get_logger

if TYPE_CHECKING:
    from rmqcli.engine.member import Member
    from rmqcli.engine.message import PulledMessage
    from rmqcli.tasks import Task

logger = get_logger(__name__)

_MAX_RECONSUME_TIMES: Final = 16  # what getMaxReconsumeTimes makes of -1
_UNLIMITED: Final = 2**31 - 1  # Integer.MAX_VALUE
_FIRST_DELAY_LEVEL: Final = 3  # setDelayTimeLevel(3 + msg.getReconsumeTimes())


def retries_max_of(member: Member) -> int:
    """How often a message that is consumed concurrently is retried."""
    limit = member.config.max_reconsume_times
    return _MAX_RECONSUME_TIMES if limit is None else limit


def send_message_back(
    member: Member, message: PulledMessage, delay_level: int
) -> Task[None]:
    """Send back a message that was consumed concurrently.

    `delay_level` is that of the listener's context. Raises RmqError when no broker
    accepted the message.
    """
    max_times = retries_max_of(member)
    back = SendBack(
        group=member.group,
        origin_topic=message.topic,
        broker_name=message.broker_name,
        commit_log_offset=message.commit_log_offset,
        origin_msg_id=message.msg_id or message.offset_msg_id,
        delay_level=delay_level,
        max_reconsume_times=max_times,
    )
    try:
        yield from member.network.send_back(back)
    except RmqError as error:
        logger.warning(
            "send back failed, sending to the retry topic queue=%s offset=%d: %s",
            message.message_queue,
            message.queue_offset,
            error,
        )
        times = message.reconsume_times + 1
        if delay_level < 0:  # a dead letter is one with more retries than allowed
            max_times = min(max_times, _UNLIMITED - 1)
            times = max_times + 1
        retry = retry_message(
            member, message, times=times, max_reconsume_times=max_times
        )
        yield from member.network.send_retry(retry)


def send_orderly_back(member: Member, message: PulledMessage) -> Task[None]:
    """Send a message of an orderly queue to the dead-letter queue.

    It goes through the retry topic. Raises RmqError when no broker accepted it.
    """
    limit = member.config.max_reconsume_times
    retry = retry_message(
        member,
        message,
        # Above the limit, as brokers since 5.1.1 require.
        times=message.reconsume_times + 1,
        max_reconsume_times=_UNLIMITED if limit is None else limit,
    )
    yield from member.network.send_retry(retry)


def retry_message(
    member: Member,
    message: PulledMessage,
    *,
    times: int,
    max_reconsume_times: int,
) -> RetryMessage:
    """The message for the retry topic; the broker counts it as retry `times`."""
    properties = dict(message.properties)
    origin_id = (
        properties.get("ORIGIN_MESSAGE_ID") or message.msg_id or message.offset_msg_id
    )
    properties.pop("TRAN_MSG", None)
    properties["ORIGIN_MESSAGE_ID"] = origin_id
    properties["RETRY_TOPIC"] = message.topic
    properties["RECONSUME_TIME"] = str(times)
    properties["MAX_RECONSUME_TIMES"] = str(max_reconsume_times)
    properties["DELAY"] = str(_FIRST_DELAY_LEVEL + message.reconsume_times)
    return RetryMessage(
        group=member.group,
        topic=member.retry_topic,
        body=message.body,
        flag=message.flag,
        properties=properties,
        reconsume_times=times,
        max_reconsume_times=max_reconsume_times,
    )
