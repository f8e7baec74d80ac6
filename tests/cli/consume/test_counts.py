"""`Counts` limits the number of consumed messages across several threads."""

from __future__ import annotations

import threading

import pytest

from rmqcli.cli.consume.counts import Counts
from rmqcli.engine.reports import Fate
from rmqcli.errors import PartialError, RmqError


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


def counted_run(consumed=0, fates=(), unknown=0, **options):
    """The counts of a run that consumed some messages and failed at others."""
    counts = Counts(None, **options)
    if consumed:
        counts.settle(counts.take(consumed), consumed=True)
    for fate in fates:
        counts.fail(1)
        counts.count_fate(fate)
    if unknown:
        counts.fail(unknown)
    return counts


@pytest.mark.parametrize(
    ("fates", "unknown", "words"),
    [
        ([], 0, ""),
        ([Fate.RETRY_TOPIC], 0, "1 retry"),
        ([Fate.RETRY_TOPIC, Fate.RETRY_HERE, Fate.DELIVERED_AGAIN], 0, "3 retries"),
        ([Fate.DEAD_LETTER, Fate.RETRY_HERE], 0, "1 retry, 1 dead letter"),
        (
            [Fate.QUEUE_LOST, Fate.GIVEN_UP, Fate.DEAD_LETTER, Fate.DEAD_LETTER],
            0,
            "2 dead letters, 1 given up, 1 not committed",
        ),
        (
            [Fate.SENT_BACK_BEFORE],
            1_000,
            "1 sent back earlier, 1,000 with unknown outcome",
        ),
        ([], 1, "1 with unknown outcome"),
        (1_500 * [Fate.RETRY_TOPIC], 0, "1,500 retries"),
    ],
)
def test_what_became_of_failed_messages_is_counted_by_kind(fates, unknown, words):
    counts = counted_run(fates=fates, unknown=unknown)
    assert counts.failures() == words
    assert counts.has_dead_letters() == (Fate.DEAD_LETTER in fates)


@pytest.mark.parametrize(
    ("run", "kind", "words", "hint"),
    [
        ({"fates": [Fate.GIVEN_UP]}, RmqError, "the only delivery failed: 1 gi", ""),
        (
            {"fates": 2 * [Fate.GIVEN_UP]},
            RmqError,
            "all 2 deliveries failed: 2 given up",
            "",
        ),
        (
            {"consumed": 1_999, "fates": [Fate.GIVEN_UP]},
            PartialError,
            "1 of 2,000 deliveries failed: 1 given up",
            "",
        ),
        (
            {"consumed": 1, "fates": 3 * [Fate.GIVEN_UP], "failures_max": 3},
            PartialError,
            ("3 of 4 deliveries failed: 3 given up; stopped after 3 failures in a row"),
            "find out why the command fails, or use --max-failures 0 for no limit",
        ),
        (
            {"fates": 2 * [Fate.GIVEN_UP], "failures_max": 3},
            RmqError,
            "all 2 deliveries failed: 2 given up",
            "",
        ),
    ],
)
def test_a_run_ends_with_the_share_of_failed_deliveries(run, kind, words, hint):
    error = counted_run(**run).failure()
    assert type(error) is kind
    assert error.message.startswith(words)
    assert error.hint == hint


def test_a_run_without_failures_ends_without_an_error():
    assert counted_run(consumed=3).failure() is None


def test_what_could_not_be_decoded_is_counted_only_if_it_was_consumed():
    counts = Counts(5)
    assert counts.take(3) == 3
    assert counts.at_work == 3
    counts.settle(3, consumed=False, undecodable=2)
    assert (counts.at_work, counts.consumed, counts.undecodable) == (0, 0, 0)
    assert counts.take(9) == 5
    counts.settle(5, consumed=True, undecodable=2)
    assert (counts.at_work, counts.consumed, counts.undecodable) == (0, 5, 2)
    assert counts.ended.is_set()
    assert counts.has_news.is_set()
    assert counts.take(1) == 0


def test_a_success_begins_the_count_of_failures_in_a_row_again():
    counts = Counts(None, failures_max=2)
    for _ in range(2):
        counts.fail(1)
        counts.settle(counts.take(1), consumed=True)
    assert not counts.ended.is_set()
    counts.fail(5)
    assert not counts.gave_up
    counts.fail(5)
    assert (counts.gave_up, counts.failed) == (True, 12)
    assert counts.ended.is_set()
