"""TLS to a proxy: verified by default; each mismatch is one line with a hint."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from rmqcli.config import ClientConfig
from rmqcli.errors import (
    ConfigError,
    ConnectError,
    DeadlineError,
    DisconnectedError,
    TransportError,
)
from rmqcli.proxy import rpc
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.session import PRODUCER, Session
from rmqcli.proxy.tls import secure
from rmqcli.transport.tls import TlsOptions
from tests.kit.proxy.scripted import ScriptedProxy

CERTS = Path(__file__).parents[1] / "transport" / "certs"


def pair(name):
    return (CERTS / f"{name}.key").read_bytes(), (CERTS / f"{name}.pem").read_bytes()


@pytest.fixture
def session():
    """`session(endpoints, **config)`: a session that is closed at the end."""
    with ExitStack() as stack:

        def make(endpoints, **config):
            client = ClientConfig(endpoints=(endpoints,), timeout_ms=5_000, **config)
            made = Session(client, client_type=PRODUCER)
            stack.callback(made.close)
            return made

        yield make


def ask_both_ways(session, timeout_ms=5_000):
    """The outcome in the caller's thread and in the I/O thread."""
    call = rpc.heartbeat(PRODUCER, None)

    def task():
        answer = yield session.via.call(session.access_point, call, timeout_ms)
        return answer

    outcomes = []
    for ask in (
        lambda: session.invoke(session.access_point, call, timeout_ms),
        lambda: session.run(task()).result(),
    ):
        try:
            outcomes.append(ask())
        except (ConfigError, TransportError) as error:
            outcomes.append(error)
    return outcomes


def test_a_certificate_of_a_trusted_authority_is_accepted(session):
    with ScriptedProxy(tls=pair("local")) as proxy:
        tls = TlsOptions(ca_file=str(CERTS / "ca.pem"))
        assert ask_both_ways(session(proxy.endpoints, tls=tls)) == [True, True]


def test_any_certificate_is_accepted_when_that_is_wanted(session):
    with ScriptedProxy(tls=pair("elsewhere")) as proxy:
        tls = TlsOptions(insecure=True)
        assert ask_both_ways(session(proxy.endpoints, tls=tls)) == [True, True]


@pytest.mark.parametrize(
    ("certificate", "name"),
    [
        ("local", "localhost"),
        ("wildcard", "any.example"),
        ("unnamed", "proxy.example"),
    ],
)
def test_any_certificate_is_trusted_under_a_name_of_its_own(session, certificate, name):
    with ScriptedProxy(tls=pair(certificate)) as proxy:
        tls = TlsOptions(insecure=True)
        found = secure(tls, parse_endpoints((proxy.endpoints,)), timeout_ms=60_000)
        assert found.host_name == name
        assert ask_both_ways(session(proxy.endpoints, tls=tls)) == [True, True]


def test_an_expired_certificate_is_refused_even_if_any_is_wanted(session):
    with ScriptedProxy(tls=pair("expired")) as proxy:
        tls = TlsOptions(insecure=True)
        for error in ask_both_ways(session(proxy.endpoints, tls=tls)):
            assert isinstance(error, ConnectError)
            assert str(error) == (
                f"TLS handshake with {proxy.endpoints} failed: its certificate cannot"
                " be used: certificate has expired"
            )
            assert error.address == proxy.endpoints


def test_a_client_shows_its_certificate(session):
    ca = CERTS / "ca.pem"
    with ScriptedProxy(tls=pair("local"), clients_from=ca.read_bytes()) as proxy:
        tls = TlsOptions(
            ca_file=str(ca),
            cert_file=str(CERTS / "client.pem"),
            key_file=str(CERTS / "client.key"),
        )
        assert ask_both_ways(session(proxy.endpoints, tls=tls)) == [True, True]
        tls = TlsOptions(ca_file=str(ca))
        for outcome in ask_both_ways(session(proxy.endpoints, tls=tls)):
            assert isinstance(outcome, (ConnectError, DisconnectedError))


def test_a_certificate_and_its_key_may_be_in_one_file(session, tmp_path):
    ca, both = CERTS / "ca.pem", tmp_path / "both.pem"
    key, chain = pair("client")
    both.write_bytes(key + chain)
    with ScriptedProxy(tls=pair("local"), clients_from=ca.read_bytes()) as proxy:
        tls = TlsOptions(ca_file=str(ca), cert_file=str(both))
        assert ask_both_ways(session(proxy.endpoints, tls=tls)) == [True, True]


def test_an_unknown_authority_is_refused(session):
    with ScriptedProxy(tls=pair("local")) as proxy:
        for error in ask_both_ways(session(proxy.endpoints)):
            assert isinstance(error, ConnectError)
            assert str(error).startswith(
                f"TLS handshake with {proxy.endpoints} failed: its certificate is not"
                " accepted:"
            )
            assert "insecure=True" in error.hint


def test_a_certificate_for_another_host_is_refused(session):
    with ScriptedProxy(tls=pair("elsewhere")) as proxy:
        tls = TlsOptions(ca_file=str(CERTS / "ca.pem"))
        for error in ask_both_ways(session(proxy.endpoints, tls=tls)):
            assert isinstance(error, ConnectError)
            assert "its certificate is not accepted: it does not name" in str(error)


def test_another_name_may_be_looked_for(session):
    with ScriptedProxy(tls=pair("elsewhere")) as proxy:
        tls = TlsOptions(
            ca_file=str(CERTS / "ca.pem"), server_hostname="broker.example"
        )
        assert ask_both_ways(session(proxy.endpoints, tls=tls)) == [True, True]


@pytest.mark.parametrize("insecure", [False, True])
def test_tls_to_a_port_without_it(session, insecure):
    with ScriptedProxy() as proxy:
        tls = TlsOptions(insecure=insecure)
        for error in ask_both_ways(session(proxy.endpoints, tls=tls)):
            assert str(error) == (
                f"TLS handshake with {proxy.endpoints} failed: the peer does not speak"
                " TLS"
            )
            assert error.hint == "a proxy without TLS needs plaintext=True"
            assert error.address == proxy.endpoints


def test_plaintext_to_a_port_with_tls(session):
    with ScriptedProxy(tls=pair("local")) as proxy:
        for error in ask_both_ways(session(proxy.endpoints, plaintext=True)):
            assert isinstance(error, ConnectError)
            assert "leave plaintext=True out" in error.hint


@pytest.mark.parametrize("plaintext", [False, True])
def test_a_port_that_says_nothing(session, plaintext):
    # The system queues the connections; they are not accepted or answered.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoints = f"127.0.0.1:{silent.getsockname()[1]}"
        for error in ask_both_ways(session(endpoints, plaintext=plaintext), 300):
            assert isinstance(error, DeadlineError)
            assert "does a RocketMQ proxy listen there?" in error.hint


@pytest.mark.parametrize("times", [0, 1])
def test_a_port_that_presents_its_certificate_once_at_most(times):
    """With `insecure` the certificate is fetched first; both steps have the limit."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTS / "local.pem", CERTS / "local.key")

    def present():
        if not times:
            return
        connection, _ = listener.accept()
        with suppress(OSError), server.wrap_socket(connection, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=present)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ConnectError) as failure:
            secure(
                TlsOptions(insecure=True), parse_endpoints((address,)), timeout_ms=300
            )
        thread.join()
    assert str(failure.value) == f"cannot connect to {address}: timed out"
    assert failure.value.address == address
    assert str(failure.value.hint) == (
        "check the endpoints argument or ROCKETMQ_ENDPOINTS"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"ca_file": "/nowhere"},
            "TLS CA file /nowhere cannot be used: no such file or directory",
        ),
        (
            {"ca_file": str(CERTS / "local.key")},
            f"TLS CA file {CERTS / 'local.key'} cannot be used: not in PEM form",
        ),
        (
            {"cert_file": "/nowhere", "key_file": str(CERTS / "client.key")},
            "TLS certificate /nowhere cannot be used: no such file or directory",
        ),
        (
            {"cert_file": str(CERTS / "client.pem"), "key_file": "/nowhere"},
            "TLS key /nowhere cannot be used: no such file or directory",
        ),
        (
            {
                "cert_file": str(CERTS / "client.pem"),
                "key_file": str(CERTS / "local.key"),
            },
            (
                f"TLS certificate {CERTS / 'client.pem'} cannot be used:"
                " key values mismatch"
            ),
        ),
        (
            {
                "cert_file": str(CERTS / "make.sh"),
                "key_file": str(CERTS / "client.key"),
            },
            f"TLS certificate {CERTS / 'make.sh'} cannot be used: not in PEM form",
        ),
        (
            {
                "cert_file": str(CERTS / "client.pem"),
                "key_file": str(CERTS / "client-locked.key"),
                "key_password": "canary-password",
            },
            "a proxy client cannot use a key with a password",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_named(session, options, words):
    with ScriptedProxy(tls=pair("local")) as proxy:
        tls = TlsOptions(**options)
        for error in ask_both_ways(session(proxy.endpoints, tls=tls)):
            assert isinstance(error, ConfigError)
            assert str(error) == words
