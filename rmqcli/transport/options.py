"""Settings of connections, and their counters."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials


@dataclass(slots=True, kw_only=True)
class TransportOptions:
    """Settings of a `RemotingClient`, for all its peers.

    Without `tls` connections are plaintext. With `credentials` every request is signed;
    name servers ignore that. `queued_bytes_max` bounds the bytes that wait to be sent
    to one peer. `address_map` is that of `ClientConfig`.
    """

    tls: TlsOptions | None = None
    credentials: Credentials | None = None
    connect_timeout_ms: int = 3_000  # NettyClientConfig.connectTimeoutMillis
    queued_bytes_max: int = 64 * 1024 * 1024
    address_map: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class TransportCounters:
    """Counts of what happened on all connections of a client; they only grow."""

    connections: int = 0
    frames: int = 0
    #: answers to requests that had expired, or second answers
    late_answers: int = 0
    #: answers to requests that were never made
    unknown_answers: int = 0
    peer_requests: int = 0
