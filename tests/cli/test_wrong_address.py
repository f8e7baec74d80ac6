"""An address that is not a name server's is called that, by every command."""

from __future__ import annotations

import pytest

from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.cli.main import run
from tests.transport.peer import Peer, PeerConnection


@pytest.fixture
def proxied(rmq_cluster_factory, monkeypatch):
    for name in ("ROCKETMQ_ENDPOINTS", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    return rmq_cluster_factory(proxy=ProxyOptions())


#: Commands that ask a name server.
BY_NAMESRV = [
    "brokers",
    "consume T --group G",
    "groups",
    "lag",
    "lag G",
    "send T x",
    "tail T --no-follow",
    "topic show T",
    "topics",
]
#: Commands that can use a proxy.
BY_PROXY = ["consume T --group G", "send T x", "tail T --group G", "topic show T"]


@pytest.mark.parametrize("command", BY_NAMESRV)
def test_a_broker_in_place_of_a_name_server_is_said_to_be_none(
    rmq_cluster, capfd, command
):
    address = rmq_cluster.broker().address
    assert run([*command.split(), "-n", address]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert f"error: {address} is a broker, not a name server" in err
    assert err.splitlines()[-1] == (
        "hint: give the address of a name server, not of a broker; its port is 9876 by"
        " default"
    )


@pytest.mark.parametrize("command", BY_NAMESRV)
def test_a_proxy_in_place_of_a_name_server_is_called_that(proxied, capfd, command):
    assert run([*command.split(), "-n", proxied.endpoints]) == 2
    out, err = capfd.readouterr()
    address = proxied.endpoints
    assert out == ""
    assert err == (
        f"error: {address} is a gRPC server, as proxies are, not a name server\n"
        "hint: give the address of a name server, not of a proxy; its port is 9876 by"
        " default\n"
    )


def refuses(connection):
    for request in connection.requests():
        connection.answer(request, code=16, remark="no permission")


def answers_garbage(connection):
    for request in connection.requests():
        connection.answer(request, body=b"{{ not JSON")


def speaks_http(connection):
    connection.read()
    connection.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@pytest.mark.parametrize(
    "script", [refuses, answers_garbage, speaks_http, PeerConnection.reset]
)
@pytest.mark.parametrize("command", [*BY_NAMESRV, "topic create new --yes"])
def test_the_second_name_server_answers_where_the_first_does_not(
    rmq_cluster, command, script
):
    """A refusal or an answer that could not be read by the first ended the command."""
    rmq_cluster.create_topic("T")
    rmq_cluster.create_group("G")
    rmq_cluster.send("T", [b"x"])
    more = {"consume": ["--count", "1"], "tail": ["--timeout", "1m"]}
    words = [*command.split(), *more.get(command.split()[0], [])]
    with Peer(script) as first:
        assert run([*words, "-n", f"{first.address};{rmq_cluster.namesrv}"]) == 0


@pytest.mark.parametrize("words", [["--plaintext"], []], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("kind", ["name server", "broker"])
@pytest.mark.parametrize("command", BY_PROXY)
def test_a_server_that_is_no_proxy_in_place_of_a_proxy_is_called_what_it_is(
    proxied, capfd, command, kind, words
):
    address = proxied.broker().address if kind == "broker" else proxied.namesrv
    assert run([*command.split(), "--endpoints", address, *words]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err == (
        f"error: {address} is a {kind}, not a proxy\n"
        f"hint: give the address of a proxy, not of a {kind}; its port for gRPC is 8081"
        " by default\n"
    )


def test_a_proxy_that_does_not_run_is_not_called_anything_else(capfd):
    assert run(["send", "T", "x", "--endpoints", "127.0.0.1:1", "--plaintext"]) == 5
    assert capfd.readouterr().err.startswith("error: cannot connect to 127.0.0.1:1")


@pytest.mark.java
@pytest.mark.parametrize("words", [["--plaintext"], []], ids=["plaintext", "TLS"])
@pytest.mark.parametrize("kind", ["name server", "broker"])
def test_real_servers_in_place_of_a_proxy_are_called_what_they_are(
    real_cluster, capfd, kind, words
):
    broker = real_cluster.broker_address()
    address = broker if kind == "broker" else real_cluster.namesrv
    assert run(["send", "T", "x", "--endpoints", address, *words]) == 2
    assert f"error: {address} is a {kind}, not a proxy\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("variable", "words", "is_said"),
    [
        (None, (), True),
        ("127.0.0.1:9876", (), False),
        (None, ("-n", "127.0.0.1:9876"), False),
        (None, ("-n", "127.0.0.1:1"), False),
    ],
)
def test_the_default_name_server_is_called_that_where_none_was_named(
    monkeypatch, capfd, variable, words, is_said
):
    """The hint did not say that NAMESRV_ADDR is not set."""
    for name in ("ROCKETMQ_ENDPOINTS", "NAMESRV_ADDR"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv("NAMESRV_ADDR", variable)
    assert run(["topics", *words, "--timeout", "1s"]) == 5
    err = capfd.readouterr().err
    hint = (
        "hint: NAMESRV_ADDR is not set, and 127.0.0.1:9876 is the default; set it, or"
        " give --namesrv"
    )
    assert (err.splitlines()[-1] == hint) == is_said


@pytest.mark.parametrize(
    "command",
    ["brokers", "groups", "lag", "send T x", "tail T --no-follow", "topic show T"],
)
def test_an_address_that_is_wrong_does_not_hide_a_name_server_after_it(
    proxied, capfd, command
):
    """The command ended with the error of the wrong one, although the next is right."""
    proxied.create_topic("T", queues=1)
    for wrong in (proxied.endpoints, proxied.broker().address):
        code = run([*command.split(), "-n", f"{wrong};{proxied.namesrv}"])
        assert code == 0, capfd.readouterr().err


def test_doctor_names_the_address_that_is_wrong(proxied, capfd):
    for wrong in (proxied.endpoints, proxied.broker().address):
        capfd.readouterr()
        check = ["doctor", "--only", "namesrv-answers"]
        assert run([*check, "-n", f"{wrong};{proxied.namesrv}"]) == 2
        assert f"problem  {wrong} (namesrv-answers)" in capfd.readouterr().out


def test_a_wrong_address_is_named_if_no_name_server_answers(proxied, capfd):
    wrong, silent = proxied.endpoints, "127.0.0.1:1"
    assert run(["topics", "-n", f"{silent};{wrong}"]) == 2
    assert f"error: {wrong} is a gRPC server" in capfd.readouterr().err
