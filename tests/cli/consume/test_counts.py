"""`Counts` limits the number of consumed messages across several threads."""

from __future__ import annotations

import threading

from rmqcli.cli.consume.counts import Counts


def test_without_a_count_everything_is_granted():
    counts = Counts(None)
    assert counts.take(32) == 32
    counts.settle(32, consumed=True)
    assert (counts.consumed, counts.ended.is_set()) == (32, False)


def test_a_batch_gets_what_is_left_and_then_it_ends():
    counts = Counts(5)
    assert counts.take(3) == 3
    counts.settle(3, consumed=True)
    assert counts.take(3) == 2
    counts.settle(2, consumed=True)
    assert counts.ended.is_set()
    assert counts.take(1) == 0


def test_it_ends_only_when_the_last_one_was_consumed():
    counts = Counts(2)
    assert counts.take(1) == 1
    assert counts.take(1) == 1
    counts.settle(1, consumed=True)
    assert not counts.ended.is_set()
    counts.settle(1, consumed=True)
    assert counts.ended.is_set()


def test_a_failure_gives_its_ticket_to_a_thread_that_waits():
    counts = Counts(1)
    assert counts.take(1) == 1
    granted = []
    waiting = threading.Thread(target=lambda: granted.append(counts.take(1)))
    waiting.start()
    counts.settle(1, consumed=False)
    waiting.join(10)
    assert granted == [1]
    counts.settle(1, consumed=True)
    assert (counts.consumed, counts.ended.is_set()) == (1, True)


def test_nobody_waits_while_it_drains():
    counts = Counts(1)
    assert counts.take(1) == 1
    granted = []
    waiting = threading.Thread(target=lambda: granted.append(counts.take(1)))
    waiting.start()
    counts.drain()
    waiting.join(10)
    assert granted == [0]
    assert not counts.ended.is_set()


def test_an_error_ends_it_and_the_first_one_is_kept():
    counts = Counts(None)
    first = OSError("no space")
    counts.end(first)
    counts.end(OSError("closed"))
    assert counts.error is first
    assert counts.take(1) == 0
