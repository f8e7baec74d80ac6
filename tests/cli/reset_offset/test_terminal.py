"""`rmq reset-offset --execute` asks on a terminal, and checks again after the answer.

In between, offsets may have moved; then it changes nothing.
"""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.api.calls.offset import query_consumer_offset, update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
PROMPT = "Type G to confirm: "
DO = ("reset-offset", "G", "T", "--to", "earliest", "--execute", "-o", "json")
#: The first terminal that a session leader opens becomes its controlling terminal, so
#: that Ctrl-C reaches it.
ON_TERMINAL = ("sh", "-c", 'exec "$@" <"$0"')


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.send("T", ["x"] * 200)
        yield cluster


@pytest.fixture
def client(cluster):
    """A client, after it has committed offsets 30 and 40 for the group."""
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        commit(cluster, client, 30, 40)
        yield client


def commit(cluster, client, *offsets):
    for queue_id, offset in enumerate(offsets):
        call = update_consumer_offset("G", "T", queue_id, commit_offset=offset)
        client.invoke(cluster.broker().address, call)


def committed(cluster, client):
    return [
        client.invoke(cluster.broker().address, query_consumer_offset("G", "T", each))
        for each in (0, 1)
    ]


def start(cluster, tmp_path, *flags, terminal=None):
    command = [sys.executable, "-m", "rmqcli", *DO, *flags, "-n", cluster.namesrv]
    return subprocess.Popen(
        command if terminal is None else [*ON_TERMINAL, terminal, *command],
        cwd=ROOT,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """Wait for the end; return exit code, JSON of stdout or None, and stderr."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return process.returncode, json.loads(out) if out else None, err


def read_prompt(process):
    """Read stderr up to the question, and return it."""
    said = ""
    while not said.endswith(PROMPT):
        character = process.stderr.read(1)
        assert character, said
        said += character
    return said


def asked(cluster, tmp_path, answer, *flags, meanwhile=lambda: None):
    """Run it on a terminal and type `answer`, after a call of `meanwhile`.

    Returns exit code, JSON of stdout or None, the text up to the question, and the
    rest of stderr.
    """
    ours, theirs = pty.openpty()
    try:
        with start(cluster, tmp_path, *flags, terminal=os.ttyname(theirs)) as process:
            said = read_prompt(process)
            meanwhile()
            os.write(ours, answer)
            code, out, err = finish(process)
    finally:
        os.close(ours)
        os.close(theirs)
    return code, out, said, err


def test_the_plan_is_shown_and_the_name_agrees(cluster, client, tmp_path):
    code, done, said, err = asked(cluster, tmp_path, b"G\n")
    assert code == 0, err
    assert [row["result"] for row in done["queues"]] == ["CONFIRMED"] * 2
    assert "broker-a      0         30" in said
    assert "This changes the offsets of group G in 2 queues of T.\n" in said
    assert committed(cluster, client) == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (b"y\n", 7, "'G' was not typed"),
        (b"G, yes\n", 7, "'G' was not typed"),
        (b"GG\n", 7, "'G' was not typed"),
        (b"\n", 7, "'G' was not typed"),
        (b"\x04", 7, "'G' was not typed"),  # end of input
        (b"\x03", 130, ""),  # Ctrl-C
    ],
)
def test_anything_else_changes_nothing(cluster, client, tmp_path, answer, code, words):
    got, out, _, err = asked(cluster, tmp_path, answer)
    assert (got, out) == (code, None)
    assert words in err
    assert "Traceback" not in err
    assert committed(cluster, client) == [30, 40]
    assert list(tmp_path.iterdir()) == []  # no backup without a reset


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize(
    ("is_terminal", "begin"), [(True, "\x1b[1mBROKER"), (False, "BROKER")]
)
def test_the_plan_has_colours_if_stderr_is_a_terminal(
    cluster, monkeypatch, tmp_path, is_terminal, begin
):
    class Stream(io.StringIO):
        def isatty(self):
            return is_terminal

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", stream := Stream())
    words = ["reset-offset", "G", "T", "--to", "earliest", "--execute", "--no-input"]
    assert run([*words, "-n", cluster.namesrv]) == 7
    assert stream.getvalue().startswith(begin)


def test_without_a_terminal_the_command_to_run_is_said(cluster, client, tmp_path):
    with start(cluster, tmp_path) as process:
        code, out, err = finish(process)
    assert (code, out) == (7, None)
    command = f"rmq {' '.join(DO)} -n {cluster.namesrv} --yes"
    assert json.loads(err.splitlines()[-1])["error"]["hint"] == f"run: {command}"
    assert committed(cluster, client) == [30, 40]


def test_offsets_that_move_while_somebody_thinks_are_drift(cluster, client, tmp_path):
    def somebody_commits():
        commit(cluster, client, 31)

    code, out, _, err = asked(cluster, tmp_path, b"G\n", meanwhile=somebody_commits)
    assert (code, out) == (7, None)
    moved = "T@broker-a:0: committed offset was 30, is now 31; nothing was changed"
    assert moved in err
    assert committed(cluster, client) == [31, 40]
    assert list(tmp_path.iterdir()) == []
