"""`rmq serve` prints its addresses, refuses unsafe options and ends on a signal."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    Credentials,
    DeniedError,
    Producer,
    ProducerMessage,
)
from rmqcli.cli.main import run
from rmqcli.cli.serve import broker_ports, parse_listen
from rmqcli.errors import UsageError
from rmqcli.wire.bodies.config import parse_properties_text
from rmqcli.wire.codes import RequestCode
from tests.broker.wire_client import WireClient
from tests.kit import raw
from tests.kit.ports import PortBlock
from tests.kit.proxy.raw_client import GrpcClient, code_of
from tests.kit.waiting import PATIENCE_S

CLUSTER_INFO, MAX_OFFSET, BROKER_CONFIG = 106, 30, 26


@contextmanager
def rmq_broker(*options):
    """Start `rmq serve`, and yield its process and rows; kill it at the end."""
    where = ["--listen", "127.0.0.1:0", "-o", "jsonl"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "serve", *where, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        ports = ("--proxy-port", "--proxy-remoting-port")
        count = 2 + sum(name in options for name in ports)
        yield process, [json.loads(process.stdout.readline()) for _ in range(count)]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def until_ready(lines):
    """Yield the lines of stderr up to the last one of the start."""
    for line in lines:
        yield line
        if "not for production" in line:
            return


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_ends_when_told(signum):
    with rmq_broker() as (process, (names, broker)):
        assert names["server"] == "namesrv"
        assert (broker["server"], broker["version"]) == ("broker-a", "5.5.0")
        with WireClient(names["address"]) as client:
            info = client.ask(CLUSTER_INFO)
        assert broker["address"].encode() in info.body
        said = "".join(until_ready(process.stderr))
        process.send_signal(signum)
        said += process.communicate(timeout=PATIENCE_S)[1]
        assert process.returncode == 0
        assert said == (
            f"ready: export NAMESRV_ADDR={names['address']}\n"
            "messages are kept in memory only; press Ctrl-C to stop\n"
            "for development and tests, not for production\n"
            "stopped\n"
        )


def test_faults_come_from_a_file(tmp_path):
    path = tmp_path / "faults.json"
    path.write_text(
        '{"faults": [{"do": "answer", "answer_code": 2, "remark": "busy",'
        ' "code": "GET_MAX_OFFSET"}]}',
        encoding="utf-8",
    )
    with (
        rmq_broker("--faults", str(path)) as (_, rows),
        WireClient(rows[1]["address"]) as client,
    ):
        answer = client.ask(MAX_OFFSET, topic="t", queueId=0)
        assert (answer.code, answer.remark) == (2, "busy")


_REMOTE = (
    "--listen '{}' can be reached from other machines, and there is no authentication\n"
    "hint: use 127.0.0.1, or add --allow-remote"
)
_PORTS = "hint: choose a lower port, or --listen HOST:0 for any free ports"
_VIP = (
    "port {} of a broker (with --broker-port {}) or its VIP port {} is also the port of"
    " the name server\n"
    "hint: choose another --broker-port or --listen"
)
_PROXY = "{} needs --proxy-port\nhint: add --proxy-port"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--listen", "0.0.0.0:9876"], _REMOTE.format("0.0.0.0:9876")),
        (["--listen", ":9876"], _REMOTE.format(":9876")),
        (["--listen", "[::]:9876"], _REMOTE.format("[::]:9876")),
        (["--listen", "example.org:9876"], _REMOTE.format("example.org:9876")),
        (
            ["--listen", "127.0.0.1"],
            "--listen '127.0.0.1' is not HOST:PORT\nhint: for example 127.0.0.1:9876",
        ),
        (["--listen", "127.0.0.1:70000"], "port 70000 of --listen is not in 0..65535"),
        (
            ["--listen", "127.0.0.1:65000"],
            "port 66035 of broker 1, for name server port 65000, exceeds 65535\n"
            + _PORTS,
        ),
        (
            ["--broker-port", "65530", "--brokers", "2"],
            "port 65540 of broker 2, with --broker-port 65530, exceeds 65535\n"
            + _PORTS,
        ),
        (["--broker-port", "9876"], _VIP.format(9876, 9876, 9874)),
        (["--broker-port", "9868", "--brokers", "2"], _VIP.format(9878, 9868, 9876)),
        (
            ["--proxy-tls-key", "k"],
            (
                "--proxy-tls-cert and --proxy-tls-key need --proxy-port\n"
                "hint: add --proxy-port"
            ),
        ),
        (["--proxy-accounts", "a"], _PROXY.format("--proxy-accounts")),
        (["--proxy-remoting-port", "0"], _PROXY.format("--proxy-remoting-port")),
        (
            ["--proxy-port", "0", "--proxy-tls-key", "k"],
            "--proxy-tls-cert and --proxy-tls-key must be used together",
        ),
    ],
)
def test_options_that_cannot_be_used_are_refused(arguments, error, capsys):
    assert run(["serve", *arguments]) == 2
    assert capsys.readouterr() == ("", f"error: {error}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--broker-port", "2"], "--broker-port"),
        (["--like", "4.5.0"], "4.5.0"),
        (["--faults", "/nonexistent.json"], "cannot read faults"),
        (["--proxy-port", "0", "--like", "4.9.7"], "has no proxy"),
    ],
)
def test_values_that_cannot_be_used_are_refused(arguments, message, capsys):
    assert run(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_taken_port_is_one_clear_error(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if port > 60_000:
            pytest.skip("no room for the broker's port above this one")
        assert run(["serve", "--listen", f"127.0.0.1:{port}"]) == 5
    out, said = capsys.readouterr()
    assert out == ""
    assert f"cannot listen on 127.0.0.1:{port}: the port is taken" in said
    assert "hint:" in said


def test_a_taken_port_of_the_proxy_is_one_clear_error_too():
    """gRPC wrote a line of its own C code before it."""
    environment = {k: v for k, v in os.environ.items() if k != "GRPC_VERBOSITY"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["serve", "--listen", "127.0.0.1:0", "--proxy-port", str(port)]
        ended = subprocess.run(
            [sys.executable, "-m", "rmqcli", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stdout) == (5, "")
    assert ended.stderr == (
        f"error: cannot listen on 127.0.0.1:{port}: the port is taken\n"
        "hint: stop the process that listens there, or choose another port for the"
        " proxy\n"
    )


def test_listening_for_others_must_be_allowed():
    assert parse_listen("0.0.0.0:0", allow_remote=True) == ("0.0.0.0", 0)
    assert parse_listen(":9876", allow_remote=True) == ("0.0.0.0", 9876)
    assert parse_listen("[::1]:9876", allow_remote=False) == ("::1", 9876)
    assert parse_listen("localhost:1", allow_remote=False) == ("localhost", 1)


def test_broker_ports_follow_from_the_name_server_s():
    assert broker_ports(9876, 3) == (10911, 10921, 10931)
    assert broker_ports(0, 3) == ()
    with pytest.raises(UsageError):
        broker_ports(64_490, 3)


def test_broker_ports_count_from_the_one_that_is_given():
    assert broker_ports(9876, 3, first=20_000) == (20_000, 20_010, 20_020)
    assert broker_ports(0, 1, first=65_535) == (65_535,)
    with pytest.raises(UsageError, match="port 65536 of broker 2, with --broker-port"):
        broker_ports(0, 2, first=65_526)


def test_the_first_broker_listens_at_the_given_port():
    with (
        closing(PortBlock()) as ports,
        rmq_broker("--broker-port", str(ports.first)) as (_, (_, broker)),
        WireClient(broker["address"]) as client,
    ):
        assert broker["address"] == f"127.0.0.1:{ports.first}"
        assert client.ask(MAX_OFFSET, topic="TBW102", queueId=0).code == 0


@pytest.mark.parametrize(
    ("options", "shown"), [((), "false"), (("--property-filter",), "true")]
)
def test_sql_filters_are_an_option(options, shown):
    with (
        rmq_broker(*options) as (_, (_, broker)),
        WireClient(broker["address"]) as client,
    ):
        properties = parse_properties_text(bytes(client.ask(BROKER_CONFIG).body))
    assert properties["enablePropertyFilter"] == shown


def test_a_proxy_is_an_option():
    with rmq_broker("--proxy-port", "0") as (process, rows):
        assert [row["server"] for row in rows] == ["namesrv", "broker-a", "proxy"]
        said = list(until_ready(process.stderr))
        assert said[1] == f"gRPC clients: endpoints {rows[2]['address']}\n"
        with GrpcClient(rows[2]["address"]) as client:
            assert code_of(client.route("unknown")) == "TOPIC_NOT_FOUND"


@pytest.fixture
def accounts_file(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / "accounts.toml"
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


def test_a_remoting_port_of_the_proxy_is_an_option():
    options = ("--proxy-port", "0", "--proxy-remoting-port", "0")
    with rmq_broker(*options) as (_, rows):
        names = ["namesrv", "broker-a", "proxy", "proxy-remoting"]
        assert [row["server"] for row in rows] == names
        answer = raw.ask(rows[-1]["address"], RequestCode.CHECK_CLIENT_CONFIG)
        assert answer.code == 0


def test_accounts_of_the_proxy_are_an_option(accounts_file):
    accounts = """
        [admin]
        secret_key = "admin-secret"
        [shop]
        secret_key = "shop-secret"
        rights = { "Topic:orders" = "Pub" }
    """
    options = ["--proxy-port", "0", "--proxy-accounts", accounts_file(accounts)]
    with rmq_broker(*options) as (_, rows):
        namesrv, endpoints = rows[0]["address"], rows[2]["address"]
        with Admin(namesrv=namesrv) as admin:
            admin.create_topic("orders")
            admin.create_topic("bills")

        def send(topic, credentials):
            config = ClientConfig(
                endpoints=(endpoints,), plaintext=True, credentials=credentials
            )
            with Producer(client=config) as producer:
                return producer.send(ProducerMessage(topic, b"x")).status.name

        assert send("bills", Credentials("admin", "admin-secret")) == "SEND_OK"
        assert send("orders", Credentials("shop", "shop-secret")) == "SEND_OK"
        for credentials, words in (
            (Credentials("shop", "shop-secret"), "no permission to access Topic:bills"),
            (Credentials("shop", "wrong"), "check signature failed"),
            (None, "username cannot be null"),
        ):
            with pytest.raises(DeniedError, match=words):
                send("bills", credentials)


_ACCOUNT = (
    'hint: write for each account a table such as [shop], with secret_key = "..." and'
    ' optionally rights = { "Topic:orders" = "Pub,Sub" }\n'
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"accounts.toml contains no account\n{_ACCOUNT}"),
        ("shop", f"accounts.toml: not valid TOML\n{_ACCOUNT}"),
        (
            "shop = 's3cret'",
            "accounts.toml: account 1 is not a table of secret_key and rights\n"
            + _ACCOUNT,
        ),
        ("[shop]", "account 1 is not a table"),
        ("[a]\nsecret_key='s3cret'\n[b]\nsecret_key=1", "account 2 is not a table"),
        ("[a]\nsecret_key='s3cret'\nright='x'", "account 1 is not a table"),
        ("[a]\nsecret_key='s3cret'\nrights=['Pub']", "account 1 is not a table"),
        ("[a]\nsecret_key='s3cret'\nrights={'Topic:*'=1}", "account 1 is not a table"),
        ("[a]\nsecret_key='s3cret'\nrights={'Topic:*'='Read'}", "is not an action"),
        ("[a]\nsecret_key=''", "a proxy account has an empty access key or secret key"),
        (
            "[a]\nsecret_key='s3cret'" + " " * 70_000,
            "more than 65,536 bytes",
        ),
    ],
)
def test_accounts_that_cannot_be_read_are_refused(accounts_file, capsys, text, message):
    options = ["--proxy-port", "0", "--proxy-accounts", accounts_file(text)]
    assert run(["serve", *options]) == 2
    _, said = capsys.readouterr()
    assert message in said
    assert "s3cret" not in said


def test_accounts_that_others_can_read_are_refused(accounts_file, capsys):
    path = accounts_file("[a]\nsecret_key='s3cret'", mode=0o644)
    assert run(["serve", "--proxy-port", "0", "--proxy-accounts", path]) == 2
    assert "other users can read or write it (mode 0644)" in capsys.readouterr().err


def test_a_folder_outlives_a_kill(tmp_path):
    fields = {"a": "p", "b": "orders", "c": "TBW102", "d": 1, "e": 0, "f": 0, "h": 0}
    options = ["--store", str(tmp_path), "--flush", "sync"]
    with rmq_broker(*options) as (process, (_, broker)):
        assert broker["store"] == str(tmp_path)
        kept = f"messages are kept in {tmp_path}; press Ctrl-C to stop\n"
        assert kept in until_ready(process.stderr)
        with WireClient(broker["address"]) as client:
            answer = client.ask(310, body=b"kept", g=1_700_000_000_000, **fields)
            assert answer.code == 0
        process.kill()
        process.wait(10)
    with (
        rmq_broker(*options) as (_, (_, broker)),
        WireClient(broker["address"]) as client,
    ):
        answer = client.ask(MAX_OFFSET, topic="orders", queueId=0)
        assert answer.ext_fields["offset"] == "1"


def test_a_folder_in_use_is_one_clear_error(tmp_path, capsys):
    with rmq_broker("--store", str(tmp_path)):
        assert run(["serve", "--listen", "127.0.0.1:0", "--store", str(tmp_path)]) == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert "is in use by another process" in said
