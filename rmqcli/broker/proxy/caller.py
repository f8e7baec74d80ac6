"""Who makes a call: the metadata of a gRPC call, and its signature.

The signature covers the value of x-mq-date-time and nothing else; as in RocketMQ it may
be any text, old or new, and any algorithm may be named. Not imitated: permissions of
an account for single topics and groups.

Source: `ContextInitPipeline`, `GrpcConstants` and
`DefaultAuthenticationContextBuilder` in apache/rocketmq.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.broker.proxy.status import ProxyError
from rmqcli.wire.acl import signature
from rmqcli.wire.codes import LANGUAGE_NUMBERS
from rmqcli.wire.protobuf.definition_pb2 import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The client that makes one call. Texts are empty where the client sent none.

    `address` is its `ip:port`. `left_ms` is what is left of its deadline; None if it
    set none.
    """

    client_id: str
    language: str
    version: str
    address: str
    left_ms: int | None

    def need_client_id(self) -> None:
        """Raises ProxyError(CLIENT_ID_REQUIRED) for a call without one."""
        if not self.client_id.strip():
            raise ProxyError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")

    def need_language(self) -> None:
        """Raises ValueError for a language that Java's LanguageCode does not have."""
        if self.language not in LANGUAGE_NUMBERS:
            raise ValueError(f"No enum constant LanguageCode.{self.language[:40]}")


def caller_of(
    metadata: Iterable[tuple[str, str | bytes]], *, peer: str, left_s: float | None
) -> Caller:
    """The caller, from a call's metadata. `peer` is gRPC's, such as ipv4:1.2.3.4:5."""
    fields = dict(_texts(metadata))
    return Caller(
        client_id=fields.get("x-mq-client-id", ""),
        language=fields.get("x-mq-language", ""),
        version=fields.get("x-mq-client-version", ""),
        address=_address(peer),
        left_ms=None if left_s is None else max(0, int(left_s * 1000)),
    )


def check_signature(
    metadata: Iterable[tuple[str, str | bytes]], accounts: Mapping[str, str] | None
) -> None:
    """Check that an account signed the call; without accounts all calls may pass.

    Raises ProxyError(UNAUTHORIZED).
    """
    if accounts is None:
        return
    fields = dict(_texts(metadata))
    name, signed = _parse(fields.get("authorization", ""))
    secret = accounts.get(name)
    if secret is None:
        raise _unauthorized(f"user {name[:100]!r} is not found")
    date = fields.get("x-mq-date-time", "")
    wanted = base64.b64decode(signature(date.encode(), secret))
    if not date or not hmac.compare_digest(signed, wanted):
        raise _unauthorized("check signature failed")


def _parse(header: str) -> tuple[str, bytes]:
    """The access key and the signature in an authorization header."""
    _, space, rest = header.partition(" ")
    parts = {
        name.strip(): value.strip()
        for name, _, value in (item.partition("=") for item in rest.split(","))
    }
    credential, digits = parts.get("Credential"), parts.get("Signature")
    if not space or credential is None or digits is None:
        raise _unauthorized("authentication header is incorrect")
    try:
        signed = binascii.unhexlify(digits)
    except (binascii.Error, ValueError):
        raise _unauthorized("authentication header is incorrect") from None
    return credential.partition("/")[0], signed


def _unauthorized(message: str) -> ProxyError:
    return ProxyError(Code.UNAUTHORIZED, message)


def _texts(metadata: Iterable[tuple[str, str | bytes]]) -> Iterable[tuple[str, str]]:
    return ((key, value) for key, value in metadata if isinstance(value, str))


def _address(peer: str) -> str:
    kind, _, address = peer.partition(":")
    return address if kind in ("ipv4", "ipv6") else peer
