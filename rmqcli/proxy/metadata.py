"""The metadata of every call, which identifies the client and contains the signature.

The signature is the HMAC-SHA1 of the value of `x-mq-date-time` only. Official clients
put local time there and mark it as UTC; this client sends UTC.

Source: Signature in apache/rocketmq-clients, GrpcConstants and
DefaultAuthenticationContextBuilder in apache/rocketmq.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmqcli.clock import Clock
    from rmqcli.wire.acl import Credentials

Metadata = tuple[tuple[str, str], ...]

#: A name that proxies know; with GOLANG, RUST or RMQ they end the telemetry stream.
LANGUAGE: Final = "PYTHON"
#: Some status codes depend on the version: ILLEGAL_POLLING_TIME is sent from 5.0.3 on.
VERSION: Final = "5.1.0"
_ALGORITHM: Final = "MQv2-HMAC-SHA1"


class MetadataMaker:
    """Creates the metadata of one client's calls. Thread-safe."""

    def __init__(
        self, client_id: str, *, credentials: Credentials | None, clock: Clock
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._client_id = client_id
        self._fixed: Metadata = (
            ("x-mq-client-id", client_id),
            ("x-mq-language", LANGUAGE),
            ("x-mq-client-version", VERSION),
            ("x-mq-protocol", "v2"),
        )
        token = credentials.security_token if credentials is not None else None
        if token:
            self._fixed += (("x-mq-session-token", token),)
        self._numbers = itertools.count(1)

    def make(self) -> Metadata:
        """The metadata of the next call."""
        request_id = ("x-mq-request-id", f"{self._client_id}:{next(self._numbers)}")
        if self._credentials is None:
            return (*self._fixed, request_id)
        moment = datetime.fromtimestamp(self._clock.epoch_ms() / 1_000, UTC)
        date_time = moment.strftime("%Y%m%dT%H%M%SZ")
        return (
            *self._fixed,
            request_id,
            ("x-mq-date-time", date_time),
            ("authorization", authorization(self._credentials, date_time)),
        )


def authorization(credentials: Credentials, date_time: str) -> str:
    """The value of the header `authorization` for a call at that date and time."""
    key = credentials.secret_key.encode()
    signature = hmac.new(key, date_time.encode(), hashlib.sha1).hexdigest().upper()
    return (
        f"{_ALGORITHM} Credential={credentials.access_key},"
        f" SignedHeaders=x-mq-date-time, Signature={signature}"
    )


def host_name() -> str:
    """This host's name in printable ASCII, to which gRPC's metadata is limited."""
    name = socket.gethostname()[:64]
    return name if name.isascii() and name.isprintable() and name else "localhost"
