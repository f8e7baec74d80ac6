"""Subscriptions to lite topics: SyncLiteSubscription, and what ends them.

The brokers keep the subscriptions; the proxy passes changes to all brokers with the
topic. A client that leaves, or whose telemetry stream ends, loses its own; with
RocketMQ only if the stream breaks off.

Source: `ClientActivity.syncLiteSubscription`, `ClientProcessor`,
`GrpcClientSettingsManager.offlineClientLiteSubscription`, `LiteSubscriptionService` in
apache/rocketmq.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from rmqcli.broker.proxy.activity import Activity, Shared
from rmqcli.broker.proxy.checks import check_lite_topic, checked_names
from rmqcli.broker.proxy.clients import KnownClient, lite_quota
from rmqcli.broker.proxy.status import ProxyError, internal_error, ok, refused
from rmqcli.errors import HeaderError
from rmqcli.log import get_logger
from rmqcli.wire.bodies.lite import (
    COMPLETE_REMOVE,
    LITE_BIND_TOPIC,
    PARTIAL_ADD,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
)
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.header import from_ext_fields
from rmqcli.wire.headers.pop import NotifyUnsubscribeLiteRequestHeader
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.protobuf.definition_pb2 import ClientType, Code, LiteSubscriptionAction

if TYPE_CHECKING:
    from rmqcli.broker.proxy.caller import Caller
    from rmqcli.wire.bodies.config import SubscriptionGroupConfig
    from rmqcli.wire.command import RemotingCommand
    from rmqcli.wire.protobuf.definition_pb2 import OffsetOption as GrpcOffsetOption

logger = get_logger(__name__)

#: How many more lite topics than its quota the proxy lets a client subscribe.
_QUOTA_BUFFER: Final = 300


def check_bound(config: SubscriptionGroupConfig | None, group: str, topic: str) -> None:
    """Raise ProxyError(ILLEGAL_TOPIC) unless a group is bound to `topic`."""
    bound = None if config is None else config.attributes.get(LITE_BIND_TOPIC)
    if bound != topic:
        raise ProxyError(
            Code.ILLEGAL_TOPIC,
            f"lite group {group} is expected to bind topic {bound or 'null'}, but"
            f" actual is {topic}",
        )


class LiteSubscriptions(Activity):
    """Serves the call, in the proxy's event loop."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        self._tasks: set[asyncio.Task[None]] = set()

    async def sync_lite_subscription(
        self, caller: Caller, request: service.SyncLiteSubscriptionRequest
    ) -> service.SyncLiteSubscriptionResponse:
        """SyncLiteSubscription: subscribe or unsubscribe lite topics for a client.

        Clients also use this call to detect a proxy that stores batches as they are
        sent: older proxies lack it.
        """
        topic, group = checked_names(request.topic, request.group)
        if request.action not in LiteSubscriptionAction.values():
            raise internal_error("unknown LiteSubscriptionAction: UNRECOGNIZED")
        action = LiteSubscriptionAction.Name(request.action)
        lite_topics = list(dict.fromkeys(request.lite_topic_set))
        option = None
        if action == PARTIAL_ADD:
            for lite_topic in lite_topics:
                check_lite_topic(lite_topic)
            if request.HasField("offset_option"):
                option = _option(request.offset_option)
        config = await self._routes.group(group)
        check_bound(config, group, topic)
        quota = 0 if config is None else lite_quota(config)
        if len(lite_topics) > quota + _QUOTA_BUFFER:
            raise ProxyError(
                Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"lite subscription quota exceeded: {quota}",
            )
        change = LiteSubscriptionDTO(
            action=action,
            client_id=caller.client_id,
            group=group,
            topic=topic,
            lite_topic_set=lite_topics,
            offset_option=option,
            version=request.version,
        )
        await self._pass_on(change)
        return service.SyncLiteSubscriptionResponse(status=ok())

    async def _pass_on(self, change: LiteSubscriptionDTO) -> None:
        """Send a change to all brokers with the topic. Raises ProxyError."""
        body = encode_body(LiteSubscriptionCtlRequestBody(subscription_set=[change]))
        for address in await self._routes.readable_masters(change.topic or ""):
            answer = await self._links.ask(
                address, RequestCode.LITE_SUBSCRIPTION_CTL, body=body
            )
            if answer.code != ResponseCode.SUCCESS:
                raise refused(answer)

    def left(self, client: KnownClient) -> None:
        """Unsubscribe everything for a client that has left; does not wait."""
        settings = client.settings
        if settings is None or settings.client_type != ClientType.LITE_PUSH_CONSUMER:
            return
        for entry in settings.subscription.subscriptions[:1]:
            change = LiteSubscriptionDTO(
                action=COMPLETE_REMOVE,
                client_id=client.client_id,
                group=settings.subscription.group.name,
                topic=entry.topic.name,
            )
            task = asyncio.get_running_loop().create_task(self._quietly(change))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _quietly(self, change: LiteSubscriptionDTO) -> None:
        try:
            await self._pass_on(change)
        except ProxyError as error:
            logger.warning(
                "could not unsubscribe client=%s: %s", change.client_id, error.message
            )

    def unsubscribed(self, command: RemotingCommand) -> None:
        """Tell a client that its broker ended the subscription to a lite topic."""
        try:
            header = from_ext_fields(
                NotifyUnsubscribeLiteRequestHeader, command.ext_fields
            )
        except HeaderError as error:
            logger.warning("request of a broker ignored: %s", error.message)
            return
        client = self._clients.find(header.client_id)
        if client is not None and client.stream is not None:
            told = service.NotifyUnsubscribeLiteCommand(lite_topic=header.lite_topic)
            client.stream.push(
                service.TelemetryCommand(notify_unsubscribe_lite_command=told)
            )


def _option(option: GrpcOffsetOption) -> OffsetOption:
    kind = option.WhichOneof("offset_type")
    if kind is None:
        raise internal_error("Unknown OffsetOption type: OFFSETTYPE_NOT_SET")
    return OffsetOption(type=kind.upper(), value=int(getattr(option, kind)))
