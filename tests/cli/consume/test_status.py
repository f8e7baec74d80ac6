"""What `rmq consume` writes to stderr while it runs."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout

import pytest

from rmqcli.cli.consume.counts import Counts
from rmqcli.cli.consume.status import Status
from rmqcli.cli.ui.messages import Messages
from rmqcli.cli.ui.queues import queue_ranges
from rmqcli.engine.reports import Fate
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock
from rmqcli.wire.bodies.consumer import ConsumerRunningInfo, ProcessQueueInfo
from tests.kit.terminal import Terminal

Q0, Q1, Q2, Q5 = (MessageQueue("T", "b-a", n) for n in (0, 1, 2, 5))
RETRY = MessageQueue("%RETRY%g", "b-a", 0)


class Queues:
    """The part of a Consumer that `Status` uses."""

    def __init__(self, *queues, info=None):
        self.owned = list(queues)
        self.info = info

    def queues(self):
        return self.owned

    def running_info(self):
        return self.info


@pytest.mark.parametrize(
    ("queues", "text"),
    [
        ([], ""),
        ([Q0], "T@b-a:0"),
        ([Q0, Q1, Q2], "T@b-a:0-2"),
        ([Q0, Q1, Q5], "T@b-a:0-1,5"),
        ([RETRY, Q0, Q5], "%RETRY%g@b-a:0; T@b-a:0,5"),
        ([Q0, MessageQueue("T", "b-b", 1)], "T@b-a:0; T@b-b:1"),
    ],
)
def test_queues_in_few_words(queues, text):
    assert queue_ranges(queues) == text


@pytest.fixture
def make_status():
    def make(counts, *, in_place=False, clock=None):
        return Status(
            Messages(),
            counts,
            pull_threshold_for_queue=1000,
            in_place=in_place,
            clock=clock or ManualClock(),
        )

    return make


def test_a_line_when_the_queues_have_changed_and_settled_and_only_then(
    make_status, capsys
):
    clock = ManualClock()
    status = make_status(Counts(None), clock=clock)
    for owned, for_ms in (
        ([], 9_000),
        ([Q0], 300),  # the topic's other queue comes with the same rebalance
        ([Q0, Q1], 9_000),
        ([Q0], 9_000),
        ([], 300),
        ([Q0], 9_000),
        ([], 9_000),
    ):
        for wait_ms in (0, for_ms, 0):
            clock.advance(wait_ms)
            status.look(Queues(*owned))
    assert capsys.readouterr().err.splitlines() == [
        "owns 2 queues: T@b-a:0-1",
        "owns 1 queue: T@b-a:0",
        "owns no queues",
    ]


def test_the_summary_says_what_was_not_well(make_status):
    clock = ManualClock()
    counts = Counts(None)
    status = make_status(counts, clock=clock)
    counts.settle(counts.take(1_500), consumed=True)
    counts.settle(counts.take(1), consumed=True, undecodable=1)
    counts.settle(counts.take(2), consumed=False)
    counts.fail(3)
    counts.count_fate(Fate.DEAD_LETTER)
    counts.count_fate(Fate.RETRY_TOPIC)
    counts.take(3)
    clock.advance(2_000)
    assert status.summary() == (
        "1,501 consumed; 3 failed: 1 retry, 1 dead letter, 1 with unknown outcome;"
        " 1 undecodable; 3 started but not finished, not committed; 750.5/s"
    )


def test_the_line_has_rates_queues_cached_flow_control_and_retries(
    make_status, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")
    clock = ManualClock()
    counts = Counts(None)
    info = ConsumerRunningInfo(
        properties={},
        process_queues={
            Q0: ProcessQueueInfo(cached_msg_count=1_000, cached_msg_size_in_mib=3),
            Q1: ProcessQueueInfo(cached_msg_count=24),
        },
    )
    counts.settle(counts.take(500), consumed=True)
    counts.fail(2)
    counts.count_fate(Fate.RETRY_HERE)
    counts.count_fate(Fate.RETRY_TOPIC)
    with redirect_stderr(Terminal()) as screen:
        status = make_status(counts, in_place=True, clock=clock)
        clock.advance(500)
        status.look(Queues(Q0, Q1, info=info))
    assert screen.getvalue() == (
        "\r\x1b[K500 consumed · 1,000/s · 2 queues · cached 1,024 (3 MiB)"
        " · flow control on 1 · 2 failed: 2 retries"
    )


def test_the_line_stays_off_the_screen_while_a_message_is_written(make_status):
    """It was drawn between being erased and the message, which then followed it."""
    line = "\r\x1b[K0 consumed · 0/s · 0 queues · cached 0 (0 MiB)"
    consumer = Queues(info=ConsumerRunningInfo(properties={}))
    with redirect_stderr(Terminal()) as screen, redirect_stdout(Terminal()):
        status = make_status(Counts(None), in_place=True)
        status.look(consumer)
        with status.paused():
            status.look(consumer)
            screen.write("<a message>\n")
        status.look(consumer)
    assert screen.getvalue() == f"{line}\r\x1b[K<a message>\n{line}"
