"""Who makes a call: the metadata of a gRPC call, and its signature.

The signature covers only the value of x-mq-date-time. As in RocketMQ, that value may be
any text and any time, and the header may name any algorithm.

Source: `ContextInitPipeline`, `GrpcConstants`, `DefaultAuthenticationContextBuilder`
and `DefaultAuthenticationHandler` in apache/rocketmq.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING, Final

from rmqcli.broker.proxy.status import ProxyError
from rmqcli.dataclass import dataclass
from rmqcli.wire.acl import signature
from rmqcli.wire.codes import LANGUAGE_NUMBERS
from rmqcli.wire.protobuf.definition_pb2 import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAME_CHARACTERS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The client that makes one call. Texts are empty where the client sent none.

    `address` is its `ip:port`. `left_ms` is the time until the call's deadline; None if
    it has none.
    """

    client_id: str
    language: str
    version: str
    address: str
    left_ms: int | None

    def need_client_id(self) -> None:
        """Raise ProxyError(CLIENT_ID_REQUIRED) if the call has no client id."""
        if not self.client_id.strip():
            raise ProxyError(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")

    def need_language(self) -> None:
        """Raise ValueError if Java's LanguageCode does not have the language."""
        if self.language not in LANGUAGE_NUMBERS:
            raise ValueError(f"No enum constant LanguageCode.{self.language[:40]}")


def caller_of(
    metadata: Iterable[tuple[str, str | bytes]], *, peer: str, left_s: float | None
) -> Caller:
    """Return the caller that a call's metadata describe.

    `peer` is gRPC's text, such as ipv4:1.2.3.4:5.
    """
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
) -> str | None:
    """Check that an account signed the call; return its access key.

    Without accounts every call passes, and the result is None. Raises
    ProxyError(UNAUTHORIZED) with the messages of a 5.5.0 proxy.
    """
    if accounts is None:
        return None
    fields = dict(_texts(metadata))
    date = fields.get("x-mq-date-time", "")
    name, signed = _parse(fields.get("authorization", ""), date)
    if not name:
        raise unauthorized("username cannot be null.")
    secret = accounts.get(name)
    if secret is None:
        raise unauthorized(f"User:{name[:_NAME_CHARACTERS_MAX]} is not found.")
    wanted = base64.b64decode(signature(date.encode(), secret))
    if signed is None or not hmac.compare_digest(signed, wanted):
        raise unauthorized("check signature failed.")
    return name


def _parse(header: str, date: str) -> tuple[str, bytes | None]:
    """Return the access key and the signature of an authorization header."""
    if not header:
        return "", None
    if not date:
        raise unauthorized("datetime is null.")
    _, space, rest = header.partition(" ")
    if not space:
        raise unauthorized("authentication header is incorrect.")
    name, signed = "", None
    for item in _split(rest, ","):
        key, equals, value = item.strip().partition("=")
        if not equals:
            raise unauthorized(
                "authentication keyValues length is incorrect, actual length=1."
            )
        if key == "Credential":
            parts = _split(value, "/")
            if not parts:
                raise unauthorized(
                    "authentication credential length is incorrect, actual length=0."
                )
            name = parts[0]
        elif key == "Signature":
            try:
                signed = binascii.unhexlify(value)
            except (binascii.Error, ValueError):
                raise unauthorized("create authentication context error.") from None
    return name, signed


def _split(text: str, separator: str) -> list[str]:
    """Split a text as Java's String.split does, without empty parts at the end.

    An empty text has one part, which is empty.
    """
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return [] if text and parts == [""] else parts


def unauthorized(message: str) -> ProxyError:
    """Return the error for an unsigned call, or one that its account may not make."""
    return ProxyError(Code.UNAUTHORIZED, message)


def _texts(metadata: Iterable[tuple[str, str | bytes]]) -> Iterable[tuple[str, str]]:
    return ((key, value) for key, value in metadata if isinstance(value, str))


def _address(peer: str) -> str:
    kind, _, address = peer.partition(":")
    return address if kind in ("ipv4", "ipv6") else peer
