"""What proxies in cluster mode tell each other about their clients.

Source: HeartbeatSyncerData and RemoteChannel of the proxy in apache/rocketmq.
"""

from __future__ import annotations

from rmqcli.wire.bodies.consumer import language_field
from rmqcli.wire.body import Body
from rmqcli.wire.fields import declared
from rmqcli.wire.subscription import SubscriptionData


@declared
class HeartbeatSyncerData(Body):
    """A record of DefaultHeartBeatSyncerTopic: a client is there, or has left.

    `heartbeat_type` is REGISTER or UNREGISTER. `local_proxy_id` has the proxy's
    address, its remoting port and its gRPC port, separated by %. `channel_data` is the
    JSON text of a `RemoteChannel`.
    """

    heartbeat_type: str | None = None
    client_id: str = ""
    language: int | None = language_field()
    version: int = 0
    last_update_timestamp: int = 0
    subscription_data_set: tuple[SubscriptionData, ...] = ()
    group: str | None = None
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    local_proxy_id: str | None = None
    channel_data: str | None = None


@declared
class RemoteChannel(Body):
    """How a client is connected to its proxy; `type` is GRPC_V2 or REMOTING."""

    type: str | None = None
    remote_address: str | None = None
    local_address: str | None = None
    remote_proxy_ip: str | None = None
