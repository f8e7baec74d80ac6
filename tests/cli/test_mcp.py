"""`rmq mcp` before it serves, and what it does with input that is no message."""

from __future__ import annotations

import json
import stat
import subprocess
import sys

import pytest

from rmqcli.cli.main import run


def test_without_the_extra_the_command_names_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert run(["mcp", "-n", "127.0.0.1:9"]) == 2
    assert "hint: run: pip install 'rmqcli[mcp]'\n" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--deadline", "10ms"], "--deadline must be at least 1s"),
        (["--max-result", "1KiB"], "--max-result must be between 4KiB and 16MiB"),
        (["--redact", "/none.toml"], "/none.toml: No such file or directory"),
        (["--redact-pattern", "("], "'(' is not a regular expression"),
        (["--log", "/none/calls"], "/none/calls: No such file or directory"),
        (["-o", "json"], "option -o does not exist"),
        (["--output", "json"], "option --output does not exist"),
    ],
)
def test_options_that_cannot_be_used_end_before_anything_is_served(
    capsys, options, words
):
    assert run(["mcp", "-n", "127.0.0.1:9", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, words in err) == ("", True), err


#: A server whose cluster does not exist.
COMMAND = ["-m", "rmqcli", "mcp", "-n", "127.0.0.1:9"]


@pytest.fixture
def server():
    with subprocess.Popen(
        [sys.executable, *COMMAND],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@pytest.mark.slow
def test_it_ends_with_its_input_and_its_log_of_calls_is_private_and_utf_8(tmp_path):
    """Only the owner can read the log, whose encoding does not depend on the locale."""
    log = tmp_path / "calls"
    words = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning:rmqcli"]
    done = subprocess.run(
        [sys.executable, *words, *COMMAND, "--log", str(log)],
        input=b"",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert log.read_text() == ""
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.slow
def test_what_is_no_message_is_ignored_and_stdout_has_only_messages(server):
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "none\x1b[31m", "arguments": {}},
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = [json.dumps(hello), "\x00{", "[]", json.dumps(ready), json.dumps(call)]
    server.stdin.write("".join(f"{line}\n" for line in lines))
    server.stdin.flush()
    answers = {}
    while 2 not in answers:
        answer = json.loads(server.stdout.readline())
        assert answer["jsonrpc"] == "2.0"
        answers[answer.get("id")] = answer
    out, err = server.communicate()
    assert (server.returncode, out) == (0, "")
    assert answers[1]["result"]["serverInfo"]["name"] == "rmq"
    assert answers[2]["result"]["isError"] is True
    assert "none\\u{1b}[31m" in answers[2]["result"]["content"][0]["text"]
    assert "\x1b" not in err
    logged = [line for line in err.splitlines() if line.startswith('{"at"')]
    assert json.loads(logged[-1])["outcome"] == "error"
