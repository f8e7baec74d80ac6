"""TLS over a non-blocking socket, and errors that explain its failures.

The caller's selector drives the handshake, so it has the caller's deadline. Imports
`ssl` (15 ms): load this module only when TLS is used.
"""

from __future__ import annotations

import errno
import selectors
import ssl
from typing import TYPE_CHECKING

from rmqcli.errors import ConfigError, ConnectError
from rmqcli.hint import Blank, Hint, Setting
from rmqcli.transport.stream import WOULD_BLOCK, Stream

if TYPE_CHECKING:
    import socket

    from rmqcli.transport.address import Address
    from rmqcli.transport.tls import TlsOptions

_PLAIN_HINT = Hint("try ", Setting("tls", None), ": the peer may not support TLS")
#: OpenSSL's reasons for bytes that are not a TLS record.
_NOT_TLS = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "UNKNOWN_PROTOCOL",
        "HTTP_REQUEST",
        "HTTPS_PROXY_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
        "UNEXPECTED_MESSAGE",
        "BAD_RECORD_TYPE",
    }
)


class TlsDialer:
    """Makes TLS streams with one set of `TlsOptions`."""

    def __init__(self, options: TlsOptions) -> None:
        """Load the certificates. Raises ConfigError, which names an unusable file."""
        self._options = options
        self._context = _build_context(options)

    def open(self, sock: socket.socket, address: Address) -> TlsStream:
        """Wrap a connected socket in TLS; the handshake is still to be done."""
        name = self._options.server_hostname or address.certificate_host
        try:
            wrapped = self._context.wrap_socket(
                sock,
                server_hostname=name,
                do_handshake_on_connect=False,
            )
        except (OSError, ValueError) as error:  # already closed, or a host of dots
            sock.close()
            raise handshake_error(address, error) from error
        return TlsStream(wrapped)


class TlsStream(Stream):
    """A stream with TLS."""

    #: One read gives one record, of 16 KiB at most.
    short_read_is_all = False
    sock: ssl.SSLSocket

    def handshake(self) -> int:
        """Continue the handshake; return the events to wait for, 0 when it is done.

        Raises OSError, of which `ssl.SSLError` is a subclass, when it fails.
        """
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        return 0

    def recv_into(self, room: memoryview) -> int:
        try:
            return self.sock.recv_into(room)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK
        except ssl.SSLEOFError as error:
            raise ConnectionResetError(errno.ECONNRESET, str(error)) from error

    def send(self, data: memoryview) -> int:
        try:
            return self.sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return WOULD_BLOCK
        except ssl.SSLEOFError as error:
            raise BrokenPipeError(errno.EPIPE, str(error)) from error


def handshake_error(address: Address, error: Exception) -> ConnectError:
    """Return the error for a failed handshake with `address`, and what to try."""
    start = f"TLS handshake with {address} failed: "
    if isinstance(error, ssl.SSLCertVerificationError):
        return ConnectError(
            f"{start}its certificate is not accepted: {error.verify_message.lower()}",
            address=address.text,
            hint=Hint(
                "name the CA that signed it with ",
                Setting("ca_file", Blank("FILE")),
                ", or accept any certificate with ",
                Setting("insecure", True),
            ),
        )
    reason = getattr(error, "reason", None) or ""
    if reason in _NOT_TLS:
        return ConnectError(
            f"{start}the peer does not speak TLS",
            address=address.text,
            hint=_PLAIN_HINT,
        )
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return ConnectError(
            f"{start}the peer closed the connection",
            address=address.text,
            hint=_PLAIN_HINT,
        )
    words = reason.replace("_", " ").lower() or str(error)
    return ConnectError(f"{start}{words}", address=address.text)


def _build_context(options: TlsOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise _unusable("CA file", options.ca_file, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.cert_file is not None:
        try:
            # A password, be it empty, keeps OpenSSL from asking the terminal for one.
            context.load_cert_chain(
                options.cert_file, options.key_file, options.key_password or ""
            )
        except OSError as error:
            files = options.cert_file
            if options.key_file is not None:
                files = f"{files} with key {options.key_file}"
            raise _unusable("certificate", files, error) from error
    return context


def _unusable(what: str, name: str | None, error: OSError) -> ConfigError:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "not in PEM form").replace("_", " ").lower()
    else:
        reason = (error.strerror or str(error)).lower()
    return ConfigError(f"TLS {what} {name} cannot be used: {reason}")
