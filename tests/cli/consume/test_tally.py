"""How many messages may be consumed, when several threads ask at once."""

from __future__ import annotations

import threading

from rmqcli.cli.consume.tally import Tally


def test_without_a_count_everything_is_granted():
    tally = Tally(None)
    assert tally.take(32) == 32
    tally.settle(32, consumed=True)
    assert (tally.consumed, tally.ended.is_set()) == (32, False)


def test_a_batch_gets_what_is_left_and_then_it_ends():
    tally = Tally(5)
    assert tally.take(3) == 3
    tally.settle(3, consumed=True)
    assert tally.take(3) == 2
    tally.settle(2, consumed=True)
    assert tally.ended.is_set()
    assert tally.take(1) == 0


def test_it_ends_only_when_the_last_one_was_consumed():
    tally = Tally(2)
    assert tally.take(1) == 1
    assert tally.take(1) == 1
    tally.settle(1, consumed=True)
    assert not tally.ended.is_set()
    tally.settle(1, consumed=True)
    assert tally.ended.is_set()


def test_a_failure_gives_its_ticket_to_a_thread_that_waits():
    tally = Tally(1)
    assert tally.take(1) == 1
    granted = []
    waiting = threading.Thread(target=lambda: granted.append(tally.take(1)))
    waiting.start()
    tally.settle(1, consumed=False)
    waiting.join(10)
    assert granted == [1]
    tally.settle(1, consumed=True)
    assert (tally.consumed, tally.ended.is_set()) == (1, True)


def test_nobody_waits_while_it_drains():
    tally = Tally(1)
    assert tally.take(1) == 1
    granted = []
    waiting = threading.Thread(target=lambda: granted.append(tally.take(1)))
    waiting.start()
    tally.drain()
    waiting.join(10)
    assert granted == [0]
    assert not tally.ended.is_set()


def test_an_error_ends_it_and_the_first_one_is_kept():
    tally = Tally(None)
    first = OSError("no space")
    tally.end(first)
    tally.end(OSError("closed"))
    assert tally.error is first
    assert tally.take(1) == 0
