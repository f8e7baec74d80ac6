"""Requests of brokers to a consumer, answered in the engine's thread.

NOTIFY_CONSUMER_IDS_CHANGED (40), RESET_CONSUMER_CLIENT_OFFSET (220),
GET_CONSUMER_STATUS_FROM_CLIENT (221), GET_CONSUMER_RUNNING_INFO (307) and
CONSUME_MESSAGE_DIRECTLY (309). Only brokers of this consumer's routes are answered, and
only about its own group; resets and direct consumption only for its own topics, and
resets only to offsets that the queue has. Java answers every peer it is connected to,
name servers included, and accepts every offset.

Source: ClientRemotingProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.engine.message import Origin, PulledItem, PulledRecord
from rmqcli.engine.running_info import consume_directly, consumer_status, running_info
from rmqcli.errors import RmqError
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue, dlq_topic
from rmqcli.server_requests import FloodLimit, thread_dump
from rmqcli.wire.bodies.offset import GetConsumerStatusBody, ResetOffsetBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.admin import GetConsumerRunningInfoRequestHeader
from rmqcli.wire.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rmqcli.wire.headers.offset import (
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.version import CLIENT_VERSION, version_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.consumer.backend import Job
    from rmqcli.engine.push_consumer import PushConsumer
    from rmqcli.wire.bodies.consumer import ConsumerRunningInfo

logger = get_logger(__name__)


@dataclass(eq=False)
class PeerRequests:
    """The request handler of a consumer's transport.

    `call` runs a job where listeners run; `answer_later(opaque)`
    returns a function that sends the answer to a request when it is ready.
    """

    engine: PushConsumer
    namesrv: str
    call: Callable[[Job], None]
    answer_later: Callable[[int], Callable[[RemotingCommand], None]]

    def __post_init__(self) -> None:
        self._member = self.engine.member
        self._limit = FloodLimit()
        #: for the log only
        self._strangers, self._changes = FloodLimit(), FloodLimit()
        self._started_epoch_ms = self._member.clock.epoch_ms()

    def running_info(self, *, jstack: str | None = None) -> ConsumerRunningInfo:
        """The answer to GET_CONSUMER_RUNNING_INFO."""
        return running_info(
            self._member,
            namesrv=self.namesrv,
            version_name=f"V{version_name(CLIENT_VERSION).replace('.', '_')}",
            started_epoch_ms=self._started_epoch_ms,
            jstack=jstack,
        )

    def handle(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        """Return the answer, or None if there is none or it is sent later.

        Requests that come too often are refused. Changes of the group's members are
        not: they cost little, and a rebalance must not miss the last one.
        """
        now_ms = self._member.now_ms()
        if not self._member.network.is_broker(address):
            if self._strangers.is_news(now_ms):
                logger.warning(
                    "request refused, not a broker of subscribed topics address=%s"
                    " code=%d",
                    address,
                    command.code,
                )
            return RemotingCommand(
                ResponseCode.NO_PERMISSION,
                remark="only brokers of the consumer's topics may send it requests",
            )
        is_members = command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        if not is_members and not self._limit.takes(now_ms):
            if self._limit.is_news(now_ms):
                logger.warning(
                    "too many requests of a broker are refused address=%s code=%d",
                    address,
                    command.code,
                )
            return RemotingCommand(
                ResponseCode.SYSTEM_BUSY,
                remark="too many requests to this consumer; try again in a second",
            )
        served = {
            int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): self._ids_changed,
            int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): self._reset,
            int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): self._status,
            int(RequestCode.GET_CONSUMER_RUNNING_INFO): self._running_info,
            int(RequestCode.CONSUME_MESSAGE_DIRECTLY): self._consume_directly,
        }
        serve = served.get(command.code)
        if serve is None:
            return RemotingCommand(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                remark=f"request code {command.code} is not supported",
            )
        return serve(command)

    def _ids_changed(self, command: RemotingCommand) -> None:
        header = from_ext_fields(
            NotifyConsumerIdsChangedRequestHeader, command.ext_fields
        )
        if header.consumer_group != self._member.group:
            return
        if self._changes.is_news(self._member.now_ms()):
            logger.info("members changed group=%s", header.consumer_group)
        self.engine.rebalances.members_changed()

    def _reset(self, command: RemotingCommand) -> None:
        header = from_ext_fields(ResetOffsetRequestHeader, command.ext_fields)
        offsets = decode_body(ResetOffsetBody, command.body).offset_table
        if header.group != self._member.group or not self._is_ours(header.topic):
            logger.warning(
                "reset refused, not subscribed group=%r topic=%r",
                header.group,
                header.topic,
            )
            return
        wanted = {q: at for q, at in offsets.items() if q.topic == header.topic}
        logger.warning(
            "reset by a broker topic=%s queues=%d", header.topic, len(wanted)
        )
        self.engine.reset(wanted)

    def _is_ours(self, topic: str) -> bool:
        return topic in self._member.subscriptions

    def _status(self, command: RemotingCommand) -> RemotingCommand:
        header = from_ext_fields(GetConsumerStatusRequestHeader, command.ext_fields)
        if header.group != self._member.group:
            return _no_consumer(header.group)
        offsets = consumer_status(self._member, header.topic)
        return RemotingCommand(
            ResponseCode.SUCCESS,
            body=encode_body(GetConsumerStatusBody(message_queue_table=offsets)),
        )

    def _running_info(self, command: RemotingCommand) -> RemotingCommand:
        header = from_ext_fields(
            GetConsumerRunningInfoRequestHeader, command.ext_fields
        )
        if header.consumer_group != self._member.group:
            return _no_consumer(header.consumer_group)
        info = self.running_info(jstack=thread_dump() if header.jstack_enable else None)
        return RemotingCommand(ResponseCode.SUCCESS, body=encode_body(info))

    def _consume_directly(self, command: RemotingCommand) -> RemotingCommand | None:
        header = from_ext_fields(
            ConsumeMessageDirectlyResultRequestHeader, command.ext_fields
        )
        if header.consumer_group != self._member.group:
            return _no_consumer(header.consumer_group)
        found = decode_messages(
            command.body, record_type=PulledRecord, item_type=PulledItem
        )
        message = found[0] if found else None
        if not isinstance(message, PulledRecord):
            return RemotingCommand(
                ResponseCode.SYSTEM_ERROR, remark="the message cannot be decoded"
            )
        queue = MessageQueue(
            header.topic or message.stored_topic,
            header.broker_name or "",
            message.queue_id,
        )
        # The dashboard passes a dead letter to the group that gave up the message.
        if not self._is_ours(queue.topic) and queue.topic != dlq_topic(
            self._member.group
        ):
            return RemotingCommand(
                ResponseCode.SYSTEM_ERROR,
                remark=f"topic {queue.topic} is not subscribed by this consumer",
            )
        message.origin = Origin(queue, 0, 0)
        send = self.answer_later(command.opaque)

        async def consume() -> None:
            member = self._member
            result = await consume_directly(
                message, member.listener, queue, member.clock
            )
            answer = RemotingCommand(ResponseCode.SUCCESS, body=encode_body(result))
            try:
                send(answer)
            except RmqError as error:
                logger.warning(
                    "could not return the CONSUME_MESSAGE_DIRECTLY result: %s", error
                )

        self.call(consume)
        return None


def _no_consumer(group: str) -> RemotingCommand:
    return RemotingCommand(
        ResponseCode.SYSTEM_ERROR,
        remark=f"no consumer of group {group} in this process",
    )
