"""Spark Connect servers and clients are checked before anything is sent."""

from __future__ import annotations

import socket
import sys

import pytest

from rmqcli.cli.export.command import ExportCommandOptions, resume_command
from rmqcli.cli.main import run
from rmqcli.cli.options import Common
from rmqcli.errors import ConfigError, ConnectError, RefusedError, UsageError
from rmqcli.spark.connect import (
    CLIENT_MODULES,
    check_client_packages,
    check_private,
    check_remote_answers,
    remote_address,
)
from rmqcli.spark.master import shown_url


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("sc://h", "h", 15002),
        ("sc://h/", "h", 15002),
        ("sc://h:7", "h", 7),
        ("SC://h:7/;use_ssl=true;user_id=me", "h", 7),
        ("sc://[::1]:7/", "::1", 7),
        ("sc://[::1]", "::1", 15002),
    ],
)
def test_the_address_of_a_server_is_taken_from_its_url(url, host, port):
    found = remote_address(url)
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    "url",
    ["h:15002", "spark://h:1", "sc://", "sc:///", "sc://h:x", "sc://h/path",
     "sc://h:1/;token", "sc://h:1;token=hunter2/x"],
)  # fmt: skip
def test_a_text_that_is_not_a_server_url_is_refused_without_showing_its_token(url):
    with pytest.raises(UsageError, match="is not the URL of a Spark") as caught:
        remote_address(url)
    assert "hunter2" not in caught.value.message
    assert caught.value.hint == "give sc://HOST:15002 as the remote argument"


def test_a_token_is_never_shown():
    assert shown_url("sc://h:1/;token=hunter2;use_ssl=true") == (
        "sc://h:1/;token=TOKEN;use_ssl=true"
    )
    options = ExportCommandOptions(
        topic="T", to_parquet="out", remote="sc://h/;token=hunter2"
    )
    text = resume_command(Common(), "T", "out", repeated=options.flags_to_repeat())
    assert text.endswith("--remote 'sc://h/;token=TOKEN'")


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        ("sc://h:1/;use_ssl=true", {}),
        ("sc://h:1/;token=t", {}),
        ("sc://h:1", {"SPARK_CONNECT_AUTHENTICATE_TOKEN": "t"}),
        ("sc://localhost:1", {}),
        ("sc://127.0.0.1:1", {}),
        ("sc://[::1]:1", {}),
    ],
)
def test_keys_are_sent_over_tls_and_to_this_machine(url, environ):
    check_private(url, environ)


@pytest.mark.parametrize("url", ["sc://h:1", "sc://10.0.0.1:1/;use_ssl=false"])
def test_keys_are_not_sent_to_another_machine_in_clear_text(url):
    with pytest.raises(RefusedError, match="would travel to the Spark") as caught:
        check_private(url, {})
    assert ":1/;use_ssl=true'" in caught.value.hint


def test_all_packages_that_the_client_lacks_are_named_at_once(monkeypatch):
    for module in ("grpc_status", "google.rpc", "pandas"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(
        "rmqcli.spark.connect.CLIENT_MODULES",
        {**dict.fromkeys(("none_such.rpc",), "none-such"), **CLIENT_MODULES},
    )
    with pytest.raises(ConfigError) as caught:
        check_client_packages()
    assert caught.value.message.startswith("this Python lacks none-such, ")
    assert caught.value.hint == "pip install 'rmqcli[connect]'"


def test_an_unreachable_server_is_named_with_the_reason():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_remote_answers(f"sc://127.0.0.1:{port}")
    url = f"sc://127.0.0.1:{port}/;token=hunter2"
    with pytest.raises(ConnectError, match="cannot be reached") as caught:
        check_remote_answers(url)
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--master", "local[2]"], "--master and --remote cannot be used together"),
        (["--conf", "spark.a=b"], "--conf and --remote cannot be used together"),
        (["--archives", "a.zip"], "--archives and --remote cannot be used together"),
    ],
)
def test_options_that_the_server_decides_are_refused(words, message, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["export", "T", "--to-parquet", str(out), "--remote", "sc://h:1", *words]
    assert run(command) == 2
    err = capsys.readouterr().err
    assert message in err
    assert f"leave {words[0]} out" in err
    assert not out.exists()


@pytest.fixture
def export(rmq_cluster, tmp_path, capsys):
    """Runs `rmq export T --remote URL`; returns the folder and stderr."""
    rmq_cluster.send(rmq_cluster.create_topic("T"), ["x"])

    def run_it(url, *, code):
        out = tmp_path / "out"
        words = ["export", "T", "--to-parquet", str(out), "-n", rmq_cluster.namesrv]
        assert run([*words, "--remote", url]) == code
        return out, capsys.readouterr().err

    return run_it


def test_keys_are_refused_before_a_run_begins(export, monkeypatch):
    monkeypatch.setenv("RMQ_ACCESS_KEY", "access")
    monkeypatch.setenv("RMQ_SECRET_KEY", "hunter2")
    out, err = export("sc://10.255.255.1:1", code=7)
    assert "would travel to the Spark Connect server sc://10.255.255.1:1" in err
    assert "--remote 'sc://10.255.255.1:1/;use_ssl=true'" in err
    assert "hunter2" not in err
    assert not out.exists()


def test_missing_packages_are_reported_before_a_run_begins(export, monkeypatch):
    monkeypatch.setattr(
        "rmqcli.spark.connect.CLIENT_MODULES", {"none_such": "none-such"}
    )
    out, err = export("sc://127.0.0.1:1", code=2)
    assert "this Python lacks none-such, which the client of Spark" in err
    assert "pip install 'rmqcli[connect]'" in err
    assert not out.exists()


def test_a_silent_server_is_reported_before_a_run_begins(export, monkeypatch):
    monkeypatch.setattr("rmqcli.spark.connect.CLIENT_MODULES", {})
    out, err = export("sc://127.0.0.1:1", code=5)
    assert "the Spark Connect server sc://127.0.0.1:1 cannot be reached" in err
    assert not out.exists()
