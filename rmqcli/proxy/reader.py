"""`ProxyReader`: read from a proxy without being registered as a client.

It opens no telemetry stream, so the proxy registers neither a producer nor a member of
a group. All methods wait for the answer in the caller's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rmqcli.client_id import new_proxy_client_id
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.proxy.channel import ProxyChannel
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.io_thread import io_thread
from rmqcli.proxy.metadata import MetadataMaker, host_name
from rmqcli.proxy.rpc import get_offset, pull_message, query_offset, query_route
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.proxy.rpc import ProxyQueue, PulledPart

#: The group with which RocketMQ's tools pull; it has no offsets.
_GROUP: Final = "TOOLS_CONSUMER"  # MixAll.TOOLS_CONSUMER_GROUP
_BATCH: Final = 32


class ProxyReader:
    """See the module. `config` names the proxy. Methods raise RmqError."""

    def __init__(self, config: ClientConfig, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._timeout_ms = config.timeout_ms
        self._access_point = parse_endpoints(config.endpoints)
        self._channel = ProxyChannel(
            self._access_point,
            config=config,
            metadata=MetadataMaker(
                new_proxy_client_id(host_name()),
                credentials=config.credentials,
                clock=clock,
            ),
            io=io_thread(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._channel.close()

    def route(self, topic: str) -> tuple[ProxyQueue, ...]:
        """The queues of a topic. Raises NotFoundError for an unknown topic."""
        return self._channel.invoke(
            query_route(topic, self._access_point), self._timeout_ms
        )

    # --- by offsets, which proxies up to 5.5.0 do not offer: UnsupportedError

    def min_offset(self, queue: ProxyQueue) -> int:
        """The offset of the first message that is still stored."""
        rpc = query_offset(queue, int(pb.QueryOffsetPolicy.BEGINNING))
        return self._channel.invoke(rpc, self._timeout_ms)

    def max_offset(self, queue: ProxyQueue) -> int:
        """The offset that the next message will get."""
        rpc = query_offset(queue, int(pb.QueryOffsetPolicy.END))
        return self._channel.invoke(rpc, self._timeout_ms)

    def offset_at(self, queue: ProxyQueue, time_ms: int) -> int:
        """The offset of the first message stored at or after a time (epoch ms)."""
        rpc = query_offset(
            queue, int(pb.QueryOffsetPolicy.TIMESTAMP), time_ms=max(0, time_ms)
        )
        return self._channel.invoke(rpc, self._timeout_ms)

    def committed(self, queue: ProxyQueue, group: str) -> int | None:
        """The committed offset of a group; None if it has committed none."""
        return self._channel.invoke(get_offset(queue, group), self._timeout_ms)

    def pull(
        self, queue: ProxyQueue, offset: int, *, expression: str, is_sql: bool
    ) -> PulledPart:
        """Messages from `offset` on, perhaps none; commits nothing."""
        rpc = pull_message(
            queue,
            group=_GROUP,
            offset=offset,
            batch_size=_BATCH,
            expression=expression,
            is_sql=is_sql,
        )
        return self._channel.pull_now(rpc, self._timeout_ms)
