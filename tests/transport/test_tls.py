"""TLS verifies peers by default, uses the same loop, and explains its failures."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path

import pytest

from rmqcli.errors import ConfigError, ConnectError, DisconnectedError
from rmqcli.transport.options import TransportOptions
from rmqcli.transport.remoting import RemotingClient
from rmqcli.transport.tls import TlsOptions
from rmqcli.wire.command import RemotingCommand
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer, PeerConnection, echo, silent

CERTS = Path(__file__).parent / "certs"
CA = str(CERTS / "ca.pem")
PULL = RemotingCommand(11, body=b"body")


def cert(name: str) -> str:
    return str(CERTS / name)


def server_context(name: str = "local", *, client_ca: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert(f"{name}.pem"), cert(f"{name}.key"))
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CA)
    return context


def tls_client(
    *, connect_timeout_ms: int = 10_000, **options: object
) -> RemotingClient:
    tls = TlsOptions(**options)  # type: ignore[arg-type]  # a test's own words
    return RemotingClient(
        TransportOptions(tls=tls, connect_timeout_ms=connect_timeout_ms)
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_peer_whose_certificate_is_right_is_spoken_to(host):
    with Peer(tls=server_context()) as peer, tls_client(ca_file=CA) as client:
        answer = client.invoke(f"{host}:{peer.port}", PULL, timeout_ms=10_000)

        assert answer.body == b"body"


def test_bodies_of_megabytes_travel_both_ways():
    body = bytes(range(256)) * 16 * 1024
    with Peer(tls=server_context()) as peer, tls_client(ca_file=CA) as client:
        command = RemotingCommand(310, body=body)
        replies = [
            client.submit(peer.address, command, timeout_ms=20_000) for _ in range(8)
        ]
        client.wait(replies)

        assert all(r.result().body == body for r in replies)


def test_one_turn_of_the_loop_takes_all_records_that_have_arrived():
    """TLS gives one record a read, and a selector does not see decrypted bytes."""
    is_sent = threading.Event()

    def script(connection: PeerConnection) -> None:
        requests = [connection.read() for _ in range(7)]
        connection.answer(requests[0])
        go.wait(PATIENCE_S)
        for request in requests[1:]:
            connection.answer(request)
        is_sent.set()
        connection.until_closed()

    go = threading.Event()
    with Peer(script, tls=server_context()) as peer, tls_client(ca_file=CA) as client:
        replies = [
            client.submit(peer.address, PULL, timeout_ms=20_000) for _ in range(7)
        ]
        client.wait(replies[:1])
        go.set()
        assert is_sent.wait(PATIENCE_S)
        client.poll(0)

        assert [reply.is_done for reply in replies] == [True] * 7


def test_by_default_a_certificate_of_an_unknown_ca_is_refused():
    with Peer(tls=server_context()) as peer, tls_client() as client:
        with pytest.raises(ConnectError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=10_000)

        message = caught.value.message
        assert message.startswith(
            f"TLS handshake with {peer.address} failed: its certificate is not"
            " accepted: "
        )
        assert "ca_file=FILE" in caught.value.hint
        assert "insecure=True" in caught.value.hint


def test_by_default_a_certificate_for_another_name_is_refused():
    with (
        Peer(tls=server_context("elsewhere")) as peer,
        tls_client(ca_file=CA) as client,
    ):
        with pytest.raises(ConnectError, match="ip address mismatch"):
            client.invoke(peer.address, PULL, timeout_ms=10_000)
        with pytest.raises(ConnectError, match="hostname mismatch"):
            client.invoke(f"localhost:{peer.port}", PULL, timeout_ms=10_000)


def test_the_name_in_the_certificate_can_be_given():
    """Brokers advertise an IP address, but their certificates name a host."""
    with (
        Peer(tls=server_context("elsewhere")) as peer,
        tls_client(ca_file=CA, server_hostname="broker.example") as client,
    ):
        assert client.invoke(peer.address, PULL, timeout_ms=10_000).code == 0


def test_insecure_takes_any_certificate():
    with (
        Peer(tls=server_context("elsewhere")) as peer,
        tls_client(insecure=True) as client,
    ):
        assert client.invoke(peer.address, PULL, timeout_ms=10_000).code == 0


def test_a_client_certificate_is_shown_when_asked_for():
    context = server_context(client_ca=True)
    with (
        Peer(tls=context) as peer,
        tls_client(
            ca_file=CA, cert_file=cert("client.pem"), key_file=cert("client.key")
        ) as client,
    ):
        assert client.invoke(peer.address, PULL, timeout_ms=10_000).code == 0


def test_a_missing_client_certificate_is_said():
    context = server_context(client_ca=True)
    with Peer(tls=context) as peer, tls_client(ca_file=CA) as client:
        with pytest.raises((DisconnectedError, ConnectError)) as caught:
            client.invoke(peer.address, PULL, timeout_ms=10_000)

        assert "certificate required" in caught.value.message
        assert "connect with TLS" not in caught.value.hint


def test_old_tls_is_refused():
    context = server_context()
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        Peer(tls=context) as peer,
        tls_client(insecure=True) as client,
        pytest.raises(ConnectError, match=f"handshake with {peer.address} failed"),
    ):
        client.invoke(peer.address, PULL, timeout_ms=10_000)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(
            lambda c: c.send(b"HTTP/1.1 400 Bad Request\r\n\r\n") or c.until_closed(),
            id="http",
        ),
        pytest.param(lambda c: c.send(bytes(64)) or c.until_closed(), id="zeros"),
        pytest.param(lambda c: c.sock.recv(1) and c.close(), id="closes"),
        pytest.param(lambda c: c.sock.recv(1) and c.reset(), id="resets"),
    ],
)
def test_a_plaintext_peer_is_said_to_be_one(script):
    with Peer(script) as peer, tls_client(insecure=True) as client:
        with pytest.raises(ConnectError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=10_000)

        assert caught.value.message.startswith(
            f"TLS handshake with {peer.address} failed: the peer "
        )
        assert caught.value.hint == "try tls=None: the peer may not support TLS"


def test_a_handshake_that_never_ends_has_a_deadline():
    with (
        Peer(silent) as peer,
        tls_client(insecure=True, connect_timeout_ms=50) as client,
        pytest.raises(ConnectError, match=r"TLS handshake .* timed out after 50 ms"),
    ):
        client.invoke(peer.address, PULL, timeout_ms=10_000)


def test_the_hint_for_a_peer_that_only_speaks_tls_is_to_use_tls():
    """Without a ClientHello the peer closes or sends an alert; both give the hint."""
    with Peer(tls=server_context()) as peer, RemotingClient() as client:
        with pytest.raises(DisconnectedError) as caught:
            client.invoke(peer.address, PULL, timeout_ms=10_000)

        assert "connect with TLS" in caught.value.hint


def test_a_slow_handshake_holds_up_no_other_connection():
    """The selector drives the handshake together with the other connections."""
    release = threading.Event()

    def slow(connection: PeerConnection) -> None:
        release.wait(PATIENCE_S)
        wrapped = server_context().wrap_socket(connection.sock, server_side=True)
        with wrapped:
            echo(PeerConnection(wrapped))

    with (
        Peer(slow) as slow_peer,
        Peer(tls=server_context()) as peer,
        tls_client(ca_file=CA) as client,
    ):
        slow_reply = client.submit(slow_peer.address, PULL, timeout_ms=20_000)
        client.poll(0)
        assert client.invoke(peer.address, PULL, timeout_ms=10_000).code == 0
        assert not slow_reply.is_done
        release.set()
        client.wait([slow_reply])
        assert slow_reply.result().code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ca_file": "/nowhere/ca.pem"}, "TLS CA file /nowhere/ca.pem cannot be used"),
        ({"ca_file": __file__}, f"TLS CA file {__file__} cannot be used"),
        ({"cert_file": "/nowhere/c.pem"}, "TLS certificate /nowhere/c.pem cannot be"),
        (
            {"cert_file": cert("client.pem"), "key_file": cert("local.key")},
            "cannot be used: key values mismatch",
        ),
        (
            {"cert_file": cert("client.pem"), "key_file": cert("client-locked.key")},
            "client-locked.key cannot be used",
        ),
    ],
)
def test_unusable_files_are_named_before_anything_is_opened(options, words):
    with pytest.raises(ConfigError) as caught:
        tls_client(**options)

    assert words in caught.value.message


def test_a_locked_key_opens_with_its_password_which_is_never_shown():
    options = TlsOptions(
        ca_file=CA,
        cert_file=cert("client.pem"),
        key_file=cert("client-locked.key"),
        key_password="canary-password",
    )

    with (
        Peer(tls=server_context(client_ca=True)) as peer,
        RemotingClient(TransportOptions(tls=options)) as client,
    ):
        assert client.invoke(peer.address, PULL, timeout_ms=10_000).code == 0
    assert "canary" not in repr(options)
