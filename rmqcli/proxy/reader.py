"""`ProxyReader`: read from a proxy without being registered as a client.

It opens no telemetry stream, so the proxy registers neither a producer nor a member of
a group. All methods wait for the answer in the caller's thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rmqcli.client_id import new_proxy_client_id
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.proxy.channel import ProxyChannel
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.io_thread import io_thread
from rmqcli.proxy.metadata import MetadataMaker, host_name
from rmqcli.proxy.route import find_route
from rmqcli.proxy.via import CallerVia

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.config import ClientConfig
    from rmqcli.proxy.rpc import ProxyQueue


class ProxyReader:
    """See the module. `config` names the proxy. Methods raise RmqError."""

    def __init__(self, config: ClientConfig, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._timeout_ms = config.timeout_ms
        self._clock = clock
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
        """The queues of a topic. Raises as `find_route` does."""
        via = CallerVia(
            lambda _, rpc, timeout_ms=None: self._channel.invoke(
                rpc, timeout_ms or self._timeout_ms
            ),
            self._clock,
        )
        return via.run(lambda via: find_route(topic, self._access_point, via))
