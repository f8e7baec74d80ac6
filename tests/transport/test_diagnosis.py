"""The protocol of a peer is guessed from its first bytes."""

from __future__ import annotations

import errno
import ssl

import pytest

from rmqcli.errors import FrameError
from rmqcli.transport.diagnosis import (
    describe_end,
    ended,
    guess_protocol,
    lost_place,
    not_remoting,
)
from tests.kit.rows import each_row


@each_row(
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
        # not SETTINGS: too short, another type, other flags, or a stream
        (b"\x00\x00\x00\x04\x00\x00\x00\x00", ""),
        (b"\x00\x00\x00\x05\x00\x00\x00\x00\x00", ""),
        (b"\x00\x00\x00\x04\x02\x00\x00\x00\x00", ""),
        (b"\x00\x00\x00\x04\x00\x01\x00\x00\x00", ""),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x01", ""),
        (b"\x00\x00\x00\x04\x01\x00\x00\x00\x00\x07", "HTTP/2 (gRPC?)"),
        (b"PUT", "HTTP"),
        (b"PUTS /", ""),
        (b"\x00\x00\x00\x03", ""),
        (b"", ""),
    ],
)
def test_guess_protocol(first, protocol):
    assert guess_protocol(first)[0] == protocol


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), "reset the connection"),
        (BrokenPipeError(errno.EPIPE, "pipe"), "closed the connection"),
        (
            OSError(errno.EHOSTUNREACH, "No route to host"),
            "lost the connection (no route to host)",
        ),
        (OSError("Some Reason"), "lost the connection (some reason)"),
        (OSError(), "lost the connection (oserror)"),
    ],
)
def test_the_end_of_a_connection_in_words(error, words):
    assert describe_end(error) == words


def test_the_end_of_tls_has_openssl_s_reason():
    error = ssl.SSLError(1, "[SSL: CERT_REQUIRED] certificate required")
    error.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert describe_end(error) == "ended TLS (tlsv13 alert certificate required)"


def test_errors_of_a_connection_name_the_peer_and_say_what_came():
    cause = FrameError("frame length 0 is not in 5..9")
    errors = [
        not_remoting("h:1", b"SSH-2.0-OpenSSH_9.6p1", cause),
        not_remoting("h:1", b"\0\0\0\0", cause),
        lost_place("h:1", 2, cause),
        ended("h:1", "closed the connection", answered=True, wants_tls=True),
        ended("h:1", "reset the connection", answered=False, wants_tls=False),
    ]
    start = "h:1 does not speak RocketMQ's remoting protocol: its first bytes"
    assert [each.message for each in errors] == [
        f"{start} look like SSH b'SSH-2.0-OpenSSH_': {cause.message}",
        f"{start} are b'\\x00\\x00\\x00\\x00': {cause.message}",
        f"h:1 sent unreadable data after 2 valid frames: {cause.message}",
        "h:1 closed the connection before it answered",
        "h:1 reset the connection without sending an answer",
    ]
    assert {each.address for each in errors} == {"h:1"}
    assert [each.__cause__ for each in errors] == [cause] * 3 + [None] * 2
    assert [each.is_grpc for each in errors] == [False] * 5
