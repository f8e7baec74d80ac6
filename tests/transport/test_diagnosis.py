"""The protocol of a peer is guessed from its first bytes."""

from __future__ import annotations

import pytest

from rmqcli.transport.diagnosis import guess_protocol


@pytest.mark.parametrize(
    ("first", "protocol"),
    [
        (b"HTTP/1.1 400 Bad", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /x HTTP/1.0", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP/2"),
        # SETTINGS of a gRPC server, with three settings and with none
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x7f", "HTTP/2 (gRPC?)"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", "HTTP/2 (gRPC?)"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),  # alert: protocol version
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS"),  # ClientHello
        (b"SSH-2.0-OpenSSH_9", "SSH"),
        (b"\x00\x00\x00\x03", ""),
        (b"", ""),
    ],
)
def test_guess_protocol(first, protocol):
    assert guess_protocol(first)[0] == protocol
