"""`rmq lag --watch` on a terminal while brokers keep silent, and when they are back."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest

from rmqcli.cli.main import run
from rmqcli.cli.ui import interrupts, output
from tests.cli.top.test_app import commit
from tests.kit.waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]


class Watch:
    """A running `rmq lag --watch 1s` on a terminal of 100 columns."""

    def __init__(self, namesrv, *words):
        self._ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "rmqcli", "lag", *words, "--watch", "1s"]
        self.process = subprocess.Popen(
            [*command, "-n", namesrv, "--timeout", "60s"],
            cwd=ROOT,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._text = ""

    def until(self, pattern):
        """Read until what was drawn since the last call matches; return the match."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = re.search(pattern, self._text, re.DOTALL)
            if found:
                self._text = self._text[found.end() :]
                return found
            if select.select([self._ours], [], [], 1)[0]:
                data = os.read(self._ours, 65536).decode()
                self._text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", data)
        raise AssertionError(f"{pattern} is not in {self._text!r}")

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


@pytest.fixture
def watch(rmq_cluster):
    rmq_cluster.create_topic("T")
    rmq_cluster.create_group("G")
    rmq_cluster.send("T", ["a"])
    started = Watch(rmq_cluster.namesrv)
    started.until(r"G .*every 1s|every 1s.*G ")
    yield started
    started.close()


@pytest.mark.slow
def test_a_broker_that_hangs_turns_what_is_shown_stale_and_comes_back(
    rmq_cluster, watch
):
    rmq_cluster.broker().hang()
    watch.until(r"no answer since \d\d:\d\d:\d\dZ.*G .*UNKNOWN")
    rmq_cluster.broker().resume()
    watch.until(r"lag of all groups · 2\d\d\d-.*NO_COMMIT")


@pytest.mark.slow
def test_a_broker_that_was_killed_turns_what_is_shown_stale_and_comes_back(
    rmq_cluster, watch
):
    rmq_cluster.broker().kill()
    watch.until(r"no answer since \d\d:.*UNKNOWN.*no broker is registered with")
    rmq_cluster.broker().restart()
    watch.until(r"lag of all groups · 2\d\d\d-.*NO_COMMIT")


@pytest.mark.slow
def test_an_interrupt_ends_it_at_once_while_a_broker_hangs(rmq_cluster, watch):
    rmq_cluster.broker().hang()
    watch.until("no answer since")
    watch.process.send_signal(signal.SIGINT)
    assert watch.process.wait(timeout=PATIENCE_S) == 130  # its own timeout is longer


def test_an_interrupt_while_the_reader_is_slow_cuts_no_line(rmq_cluster, monkeypatch):
    """A program that read the lines met half of one at the end."""
    rmq_cluster.create_topic("orders", queues=200)
    commit(rmq_cluster, "billing", "orders", 0)
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    parts = []

    def read():
        unread = bytearray(4)
        wait_until(
            lambda: (
                fcntl.ioctl(reading, termios.FIONREAD, unread) == 0
                and int.from_bytes(unread, sys.byteorder) == size
            )
        )
        os.kill(os.getpid(), signal.SIGINT)
        while data := os.read(reading, 1 << 16):
            parts.append(data)

    kept = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    kept[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)
    interrupts.install()
    monkeypatch.setattr(output, "_STUCK_MS", PATIENCE_S * 1_000)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        with open(writing, "w", encoding="utf-8") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            words = ["lag", "billing", "--watch", "1s", "-o", "jsonl"]
            assert run([*words, "-n", rmq_cluster.namesrv]) == 130
    finally:
        for signal_number, handler in kept.items():
            signal.signal(signal_number, handler)
    reader.join()
    os.close(reading)
    lines = b"".join(parts).decode().splitlines(keepends=True)
    assert lines
    assert all(line.endswith("\n") and json.loads(line) for line in lines)
