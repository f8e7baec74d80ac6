"""TLS settings for gRPC, which takes certificates as bytes and always verifies them.

gRPC for Python cannot be told to accept any certificate. With `insecure`, this module
first asks the server for its certificate and then trusts it, whatever name it has. An
expired certificate is still refused.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, ConnectError
from rmqcli.hint import Argument, Hint, Setting

if TYPE_CHECKING:
    from rmqcli.proxy.endpoints import Endpoints
    from rmqcli.transport.tls import TlsOptions

_PLAIN_HINT = Hint("a proxy without TLS needs ", Setting("plaintext", True))


@dataclass(frozen=True, slots=True)
class Secured:
    """gRPC's credentials, and the name that the server's certificate must have."""

    credentials: grpc.ChannelCredentials
    host_name: str


def secure(options: TlsOptions, endpoints: Endpoints, *, timeout_ms: int) -> Secured:
    """Return the TLS settings of `options` for a server.

    Raises ConfigError for a file that cannot be used, and ConnectError when the server
    must be asked for its certificate and does not present one.
    """
    roots = _read("CA file", options.ca_file)
    chain = _read("certificate", options.cert_file)
    key = _read("key", options.key_file or options.cert_file)
    if roots is not None:
        _check_roots(roots, options.ca_file)
    if options.cert_file is not None:
        _check_pair(options)
        if options.key_password:
            raise ConfigError(
                "a proxy client cannot use a key with a password",
                hint="remove the password with: openssl pkey -in KEY -out PLAIN",
            )
    name = options.server_hostname or endpoints.host
    if options.insecure:
        roots, name = _shown(endpoints, timeout_ms=timeout_ms)
    credentials = grpc.ssl_channel_credentials(
        roots, key if chain is not None else None, chain
    )
    return Secured(credentials, name)


def _read(what: str, name: str | None) -> bytes | None:
    if name is None:
        return None
    try:
        return Path(name).read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"TLS {what} {name} cannot be used: {reason}") from error


def _check_roots(roots: bytes, name: str | None) -> None:
    """Raise ConfigError unless `roots` has a certificate; gRPC's error is unclear."""
    try:
        ssl.create_default_context(cadata=roots.decode("ascii"))
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            f"TLS CA file {name} cannot be used: not in PEM form"
        ) from None


def _check_pair(options: TlsOptions) -> None:
    try:
        ssl.create_default_context().load_cert_chain(
            options.cert_file or "", options.key_file, options.key_password or ""
        )
    except OSError as error:
        code = getattr(error, "reason", None)
        reason = code.replace("_", " ").lower() if code else "not in PEM form"
        raise ConfigError(
            f"TLS certificate {options.cert_file} cannot be used: {reason}"
        ) from error


def _shown(endpoints: Endpoints, *, timeout_ms: int) -> tuple[bytes, str]:
    """The certificate that the server presents, and a name in it."""
    host, port = endpoints.addresses[0]
    try:
        pem = ssl.get_server_certificate((host, port), timeout=timeout_ms / 1_000)
        context = ssl.create_default_context(cadata=pem)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        with (
            socket.create_connection((host, port), timeout_ms / 1_000) as connection,
            context.wrap_socket(connection, server_hostname=host) as wrapped,
        ):
            shown = wrapped.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        raise ConnectError(
            f"TLS handshake with {endpoints} failed: its certificate cannot be used:"
            f" {error.verify_message.lower()}",
            address=str(endpoints),
        ) from error
    except (ssl.SSLError, ConnectionResetError) as error:
        raise ConnectError(
            f"TLS handshake with {endpoints} failed: the peer does not speak TLS",
            address=str(endpoints),
            hint=_PLAIN_HINT,
        ) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        if isinstance(error, TimeoutError):
            reason = "timed out"  # of a handshake, ssl names a line of its source, too
        raise ConnectError(
            f"cannot connect to {endpoints}: {reason}",
            address=str(endpoints),
            hint=Hint("check ", Argument("endpoints"), " or ROCKETMQ_ENDPOINTS"),
        ) from error
    names = [
        str(each[1]) for each in shown.get("subjectAltName", ()) if each[0] == "DNS"
    ]
    names += [
        str(each[1])
        for part in shown.get("subject", ())
        for each in part
        if each[0] == "commonName"
    ]
    # A wildcard matches any label in its place, so "any" is a valid name for it.
    return pem.encode(), names[0].replace("*", "any") if names else host
