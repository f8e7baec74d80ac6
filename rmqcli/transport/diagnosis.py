"""Errors for broken connections, with a guess at the peer's protocol. Pure."""

from __future__ import annotations

from rmqcli.errors import DisconnectedError, WireError

_GRPC = "HTTP/2 (gRPC?)"
#: Enough to tell protocols apart; errors show no more bytes than this.
FIRST_BYTES_MAX = 16

_PORT_HINT = (
    "RocketMQ listens on 9876 (name server), 10911 (broker) and 8080 (proxy remoting)"
)
_TLS_HINT = "this peer speaks TLS: connect with TLS"


def guess_protocol(first: bytes) -> tuple[str, str]:
    """Return the protocol that begins with `first`, empty if unknown, and a hint."""
    if first.startswith(b"HTTP/") or first.split(b" ")[0] in _HTTP_METHODS:
        return "HTTP", _PORT_HINT
    if first.startswith(b"PRI *"):
        return "HTTP/2", _PORT_HINT
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return "TLS", _TLS_HINT
    # A server's first HTTP/2 frame: SETTINGS (type 4) on stream 0.
    if len(first) >= 9 and first[3] == 4 and first[4] < 2 and not any(first[5:9]):
        return _GRPC, "gRPC is served on a proxy's other port; " + _PORT_HINT
    if first.startswith(b"SSH-"):
        return "SSH", _PORT_HINT
    return "", _PORT_HINT


_HTTP_METHODS = frozenset(
    {b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"CONNECT", b"PATCH"}
)


def not_remoting(address: str, first: bytes, error: WireError) -> DisconnectedError:
    """Return the error for a connection whose very first bytes are not a frame."""
    protocol, hint = guess_protocol(first)
    verb = f"look like {protocol}" if protocol else "are"
    found = DisconnectedError(
        f"{address} does not speak RocketMQ's remoting protocol: its first bytes"
        f" {verb} {first[:FIRST_BYTES_MAX]!r}: {error.message}",
        address=address,
        hint=hint,
    )
    found.is_grpc = protocol == _GRPC
    found.__cause__ = error
    return found


def lost_place(address: str, frames: int, error: WireError) -> DisconnectedError:
    """Return the error for a stream that became unreadable after `frames` frames."""
    found = DisconnectedError(
        f"{address} sent unreadable data after {frames} valid frames: {error.message}",
        address=address,
    )
    found.__cause__ = error
    return found


def ended(
    address: str, reason: str, *, answered: bool, wants_tls: bool
) -> DisconnectedError:
    """Return the error for a connection that the peer or the network ended.

    `answered` is whether the peer sent a frame on this connection, and `wants_tls`
    whether one that never does may be waiting for TLS.
    """
    if answered:
        return DisconnectedError(
            f"{address} {reason} before it answered", address=address
        )
    return DisconnectedError(
        f"{address} {reason} without sending an answer",
        address=address,
        hint="a peer that only speaks TLS does this: connect with TLS"
        if wants_tls
        else "",
    )


def describe_end(error: OSError) -> str:
    """Return what the peer or the network did, as words to put after the address."""
    if isinstance(error, ConnectionResetError):
        return "reset the connection"
    if isinstance(error, BrokenPipeError):
        return "closed the connection"
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):  # ssl.SSLError
        return f"ended TLS ({reason.replace('_', ' ').lower()})"
    words = (error.strerror or str(error) or type(error).__name__).lower()
    return f"lost the connection ({words})"
