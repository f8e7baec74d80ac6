"""`rmq top` as a command: what it needs, and a process of its own in a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from tests.kit.waiting import PATIENCE_S

LEFT = b"\x1b[?1049l"  # back to the normal screen


def test_without_a_terminal_it_names_the_command_to_use(capsys):
    assert run(["top", "billing"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "error: rmq top needs a terminal that can move its cursor",
        "hint: elsewhere run: rmq lag billing --watch 2s -o jsonl",
    ]


def test_an_interval_that_is_too_short_is_refused(capsys):
    assert run(["top", "--interval", "100ms"]) == 2
    assert capsys.readouterr().err == "error: --interval must be at least 200ms\n"


def in_terminal(words, *, env=None, size=(24, 80)):
    """Start `rmq` in a terminal of its own; return the process and our end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(env or {})},
    )
    os.close(theirs)
    return process, ours


def read_until(ours, wanted, *, seen=b""):
    """Read from a terminal until `wanted` is there, or the terminal has ended."""
    end = time.monotonic() + PATIENCE_S
    while wanted not in seen and time.monotonic() < end:
        try:
            seen += os.read(ours, 65_536)
        except OSError:  # the process has closed it
            break
    assert wanted in seen
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(("how", "code"), [("q", 0), ("ctrl-c", 130), ("SIGTERM", 0)])
def test_it_leaves_the_terminal_as_it_was_and_its_exit_code_says_how(how, code):
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.create_group("billing")
        process, ours = in_terminal(["top", "-n", cluster.namesrv])
        try:
            seen = read_until(ours, b"billing")
            read_until(ours, b"rmq lag --watch 2s", seen=seen)
            if how == "SIGTERM":
                process.send_signal(signal.SIGTERM)
            else:
                os.write(ours, b"q" if how == "q" else b"\x03")
            read_until(ours, LEFT)
            assert process.wait(PATIENCE_S) == code
        finally:
            process.kill()
            process.wait()
            os.close(ours)


def test_no_colour_is_written_where_none_is_wanted():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"])
        cluster.create_group("billing")
        process, ours = in_terminal(
            ["top", "-n", cluster.namesrv], env={"NO_COLOR": "1", "LC_ALL": "C"}
        )
        try:
            seen = read_until(ours, b"NO_COMMIT")
            os.write(ours, b"q")
            seen = read_until(ours, LEFT, seen=seen)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
            os.close(ours)
    assert seen.isascii()
    coloured = [b"\x1b[3%dm" % number for number in range(1, 8)]
    assert [each for each in coloured if each in seen] == []
    assert b"38;2;" not in seen
    assert b"38;5;" not in seen


def test_without_the_extra_it_says_how_to_install_it():
    script = (
        "import sys; sys.modules['textual'] = None\n"
        "from rmqcli.cli.main import run\n"
        "sys.exit(run(['top']))"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        seen = read_until(ours, b"rmqcli[tui]")
        assert process.wait(PATIENCE_S) == 2
    os.close(ours)
    assert b"rmq top needs Textual, which the extra tui installs" in seen
