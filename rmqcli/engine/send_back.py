"""How a message that failed gets into its group's retry topic.

First the broker is asked to copy it (36); when that fails it is sent there as a
producer would. Only when both fail has it to be kept.

Nobody waits for it; in Java the consume thread does, up to 5 s (T21).

Decision: Java's fallback changes the message it sends back, loses ORIGIN_MESSAGE_ID and
turns "to the dead letters" into a retry; here it works on a copy and does not (T20).

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
    from rmqcli.engine.message import Message, MessageItem
    from rmqcli.tasks import Task

logger = get_logger(__name__)

_MAX_RECONSUME_TIMES: Final = 16
_UNLIMITED: Final = 2**31 - 1
_FIRST_DELAY_LEVEL: Final = 3


def retries_max_of(member: Member) -> int:
    """How often a message that is consumed in any order is tried again."""
    limit = member.config.max_reconsume_times
    return _MAX_RECONSUME_TIMES if limit is None else limit


def send_message_back(
    member: Member, message: Message | MessageItem, delay_level: int
) -> Task[None]:
    """Put a message that was consumed in any order up for another try.

    `delay_level` as in the listener's context. Raises RmqError when nobody took it.
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
        logger.warning("sent back as a producer does, for the broker said: %s", error)
        times = max_times + 1 if delay_level < 0 else message.reconsume_times + 1
        retry = retry_message(
            member, message, times=times, max_reconsume_times=max_times
        )
        yield from member.network.send_retry(retry)


def send_orderly_back(member: Member, message: Message | MessageItem) -> Task[None]:
    """Give up a message of an orderly queue: to the dead letters, by way of the retry
    topic. Raises RmqError when nobody took it.
    """
    limit = member.config.max_reconsume_times
    retry = retry_message(
        member,
        message,
        times=message.reconsume_times + 1,  # 5.1.1: over the limit, as brokers ask
        max_reconsume_times=_UNLIMITED if limit is None else limit,
    )
    yield from member.network.send_retry(retry)


def retry_message(
    member: Member,
    message: Message | MessageItem,
    *,
    times: int,
    max_reconsume_times: int,
) -> RetryMessage:
    """What is sent into the retry topic; `times` is what the broker counts."""
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
