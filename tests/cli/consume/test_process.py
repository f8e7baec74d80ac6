"""`rmq consume` as a process: signals, pipes, terminals, several members."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rmqcli.cli.main import run
from tests.kit.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[3]

#: Writes each message with one write, because several commands share the file.
SLOW_ECHO = "sleep 0.01; printf '%s\\n' $(cat)"


class Member:
    """A process that consumes in a group; its output goes to files."""

    def __init__(self, namesrv, folder, *flags, topic="T", group="g"):
        self.out_path, self.err_path = folder / "out", folder / "err"
        words = [
            "consume",
            topic,
            "-g",
            group,
            "-n",
            namesrv,
            "--from",
            "first",
            *flags,
        ]
        with self.out_path.open("wb") as out, self.err_path.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rmqcli", *words],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    def lines(self):
        return self.out_path.read_text().splitlines()

    def err(self):
        return self.err_path.read_text()

    def end(self, signum=signal.SIGTERM):
        self.process.send_signal(signum)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(rmq_cluster, tmp_path):
    """A function that starts members; those that still run are killed at the end."""
    members: list[Any] = []

    def start_one(*flags):
        folder = tmp_path / f"member-{len(members)}"
        folder.mkdir()
        members.append(Member(rmq_cluster.namesrv, folder, *flags))
        return members[-1]

    yield start_one
    for member in members:
        if member.process.poll() is None:
            member.process.kill()
            member.process.wait(PATIENCE_S)


@pytest.fixture
def lag(rmq_cluster, capfd):
    """A function that returns the queues of T as `rmq lag g` shows them."""

    def look():
        capfd.readouterr()
        assert run(["lag", "g", "-n", rmq_cluster.namesrv, "-o", "json"]) == 0
        (group,) = json.loads(capfd.readouterr().out)
        return [queue for queue in group["queues"] if queue["topic"] == "T"]

    return look


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_commits_and_leaves_and_nothing_comes_twice(
    rmq_cluster, start, lag, signum
):
    rmq_cluster.send("T", [str(n) for n in range(400)])
    flags = ["--exec", SLOW_ECHO, "--shell", "--exec-input", "raw"]
    member = start(*flags)
    wait_until(lambda: len(member.lines()) > 20, "twenty messages")
    assert member.end(signum) == 130
    seen = member.lines()
    assert len(seen) < 400
    err = member.err()
    assert "finishing messages in progress; press Ctrl-C again to abandon them" in err
    assert f"{len(seen)} consumed; " in err
    assert err.endswith("interrupted\n")
    assert all(queue["client_id"] is None for queue in lag())
    other = start("-o", "raw", "--count", str(400 - len(seen)))
    assert other.process.wait(PATIENCE_S) == 0
    assert sorted(seen + other.lines(), key=int) == [str(n) for n in range(400)]


def test_in_order_too(rmq_cluster, start):
    rmq_cluster.send("T", [str(n) for n in range(400)])
    flags = ["--orderly", "--threads", "4", "--exec-input", "raw"]
    member = start("--exec", SLOW_ECHO, "--shell", *flags)
    wait_until(lambda: len(member.lines()) > 20, "twenty messages")
    assert member.end() == 130
    seen = member.lines()
    other = start("--orderly", "-o", "raw", "--count", str(400 - len(seen)))
    assert other.process.wait(PATIENCE_S) == 0
    assert sorted(seen + other.lines(), key=int) == [str(n) for n in range(400)]


def test_a_command_in_progress_ends_before_the_consumer_leaves(
    rmq_cluster, start, tmp_path
):
    """Ctrl-C on a terminal does not reach the command: it has its own process group."""
    rmq_cluster.send("T", ["x"])
    go = tmp_path / "go"
    command = f"echo begun; while ! test -e {go}; do sleep 0.02; done; echo ended"
    member = start("--exec", command, "--shell")
    wait_until(lambda: member.lines() == ["begun"], "the command")
    assert os.getpgid(member.process.pid) == os.getpgid(0)
    member.process.send_signal(signal.SIGINT)
    wait_until(
        lambda: "finishing messages in progress" in member.err(), "the first words"
    )
    go.touch()
    assert member.process.wait(PATIENCE_S) == 130
    assert member.lines() == ["begun", "ended"]
    assert "1 consumed" in member.err()


@pytest.mark.slow
def test_a_commit_that_a_stopped_broker_does_not_confirm_is_said_and_is_exit_6(
    rmq_cluster, start, tmp_path
):
    rmq_cluster.send("T", ["x"])
    go = tmp_path / "go"
    command = f"echo begun; while ! test -e {go}; do sleep 0.02; done"
    member = start("--exec", command, "--shell", "--count", "1")
    wait_until(lambda: member.lines() == ["begun"], "the command")
    rmq_cluster.broker().hang()
    go.touch()
    assert member.process.wait(PATIENCE_S) == 6
    rmq_cluster.broker().resume()
    assert (
        "warning: the last commit is not confirmed, so messages may be consumed again"
        " queues=T@broker-a:"
    ) in member.err()
    assert member.err().endswith(
        "error: not every message that was consumed is known to be committed: the group"
        " g may receive some again\nhint: see where it stands with: rmq lag g\n"
    )


def test_a_second_signal_ends_the_command_too(rmq_cluster, start):
    rmq_cluster.send("T", ["x"])
    command = 'trap "echo told; exit 1" TERM; echo begun; while :; do sleep 0.05; done'
    member = start("--exec", command, "--shell")
    wait_until(lambda: member.lines() == ["begun"], "the command")

    def ends():
        member.process.send_signal(signal.SIGTERM)
        return member.process.poll() is not None

    wait_until(ends, "the process")
    assert member.process.returncode == 130
    wait_until(lambda: member.lines() == ["begun", "told"], "the command's last word")
    assert (
        "stopped at once: messages in progress will be delivered again" in member.err()
    )
    again = start("--count", "1", "-o", "raw")
    assert again.process.wait(PATIENCE_S) == 0
    assert again.lines() == ["x"]


def test_a_reader_that_goes_away_ends_it_and_loses_nothing(rmq_cluster, start):
    rmq_cluster.send("T", [str(n) for n in range(2_000)])
    words = ["consume", "T", "-g", "g", "--from", "first", "-o", "raw", "--batch", "1"]
    with subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words, "-n", rmq_cluster.namesrv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        seen = [process.stdout.readline().strip() for _ in range(3)]
        process.stdout.close()
        err = process.stderr.read()
        assert process.wait(PATIENCE_S) == 0
    assert "error" not in err
    assert "Traceback" not in err
    told = re.search(r"(\S+) consumed;", err)
    assert told is not None
    consumed = int(told[1].replace(",", ""))
    other = start("-o", "raw", "--count", str(2_000 - consumed))
    assert other.process.wait(PATIENCE_S) == 0
    # Messages that the pipe accepted were committed; the others were not.
    assert len(set(other.lines())) == 2_000 - consumed
    assert not set(seen) & set(other.lines())


@pytest.mark.slow
def test_members_share_the_queues_and_lag_shows_who_owns_which(rmq_cluster, start, lag):
    rmq_cluster.create_topic("T")
    members = [start("-o", "raw") for _ in range(2)]
    ids = [
        wait_until(
            lambda m=member: re.search(r"joined group g as (\S+)", m.err()), "a member"
        ).group(1)
        for member in members
    ]
    # Each member has two queues: sorted ids get adjacent queues, as in Java.
    wait_until(
        lambda: sorted(str(q["client_id"]) for q in lag()) == sorted(ids * 2),
        "two queues each",
    )
    rmq_cluster.send("T", [str(n) for n in range(100)])
    wait_until(lambda: sum(len(m.lines()) for m in members) == 100, "all messages")
    for member in members:
        assert len(member.lines()) == 50
        owns = r"owns [23] queues: .*T@broker-a:(0-1|2-3)"
        wait_until(lambda m=member, o=owns: re.search(o, m.err()), "who owns what")
    assert members[0].end() == 130
    rmq_cluster.send("T", [str(n) for n in range(100, 200)])
    everything = sorted(map(str, range(200)))
    wait_until(
        lambda: sorted(members[0].lines() + members[1].lines()) == everything,
        "the messages that came after one left",
    )
    assert members[1].end() == 130


def test_on_a_terminal_a_line_says_how_it_goes(rmq_cluster, start):
    rmq_cluster.send("T", ["x"] * 8)
    ours, theirs = pty.openpty()
    words = ["consume", "T", "-g", "g", "--from", "first", "-n", rmq_cluster.namesrv]
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        wanted = re.compile(
            rb"\r\x1b\[K8 consumed \xc2\xb7 \d+/s \xc2\xb7 5 queues \xc2\xb7 cached 0"
        )
        while not wanted.search(shown):
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGTERM)
        while b"interrupted" not in shown:
            shown += os.read(ours, 4096)
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(ours)
    # The status line is erased before the next line is written.
    assert b"\r\x1b[Kfinishing messages in progress" in shown
