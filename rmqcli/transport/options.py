"""What a caller may decide about connections, and what they counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.wire.frame import SerializeType

if TYPE_CHECKING:
    from rmqcli.transport.tls import TlsOptions
    from rmqcli.wire.acl import Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """Settings of a `RemotingClient`; they hold for every peer of it.

    `tls` None speaks plaintext. With `credentials` every request is signed; name
    servers ignore that. `queued_bytes_max` bounds what may wait to be sent.
    """

    tls: TlsOptions | None = None
    credentials: Credentials | None = None
    connect_timeout_ms: int = 3_000  # NettyClientConfig.connectTimeoutMillis
    serialize_type: SerializeType = SerializeType.JSON
    queued_bytes_max: int = 64 * 1024 * 1024


@dataclass(slots=True)
class TransportCounters:
    """What happened so far on all connections of a client. Only ever grows."""

    connections: int = 0
    frames: int = 0
    #: answers to requests that had expired, or second answers
    late_answers: int = 0
    #: answers to requests that were never made
    unknown_answers: int = 0
    peer_requests: int = 0
