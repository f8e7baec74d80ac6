"""Rows are written whole, also when an interrupt comes while the pipe is full."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from rmqcli.cli.ui import interrupts, output
from rmqcli.cli.ui.interrupts import Interrupted
from rmqcli.cli.ui.output import write_whole

ROWS = b"".join(b"%07d\n" % number for number in range(100_000))


@pytest.fixture
def pipe():
    """A pipe: the descriptor to read from, and the stream to write to."""
    kept = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    kept[signal.SIGHUP] = signal.getsignal(signal.SIGHUP)
    interrupts.install()
    reading, writing = os.pipe()
    with open(writing, "w", encoding="utf-8") as stream:
        yield reading, stream
    os.close(reading)
    for number, handler in kept.items():
        signal.signal(number, handler)


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_waits_for_a_reader_that_still_reads(pipe):
    reading, stream = pipe
    parts = []

    def read():
        for number in range(len(ROWS)):
            if number == 3:
                interrupt()
            parts.append(os.read(reading, 1 << 16))
            if sum(map(len, parts)) == len(ROWS):
                return

    thread = threading.Thread(target=read)
    thread.start()
    with pytest.raises(Interrupted):
        write_whole(ROWS, stream)
    thread.join()
    assert b"".join(parts) == ROWS


def test_an_interrupt_is_raised_if_nobody_reads(pipe, monkeypatch):
    _, stream = pipe
    monkeypatch.setattr(output, "_STUCK_MS", 50)
    timer = threading.Timer(0.05, interrupt)
    timer.start()
    with pytest.raises(Interrupted):
        write_whole(ROWS, stream)
    timer.join()


@pytest.mark.parametrize("data", ["ä\n", "ä\n".encode()])
def test_it_comes_after_what_was_written_before(pipe, data):
    reading, stream = pipe
    stream.write("first\n")
    write_whole(data, stream)
    assert os.read(reading, 100) == "first\nä\n".encode()
