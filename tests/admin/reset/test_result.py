"""Tables: what a read-back means, and which mechanism is chosen."""

from __future__ import annotations

import pytest

from rmqcli.admin.reset.method import (
    Mechanism,
    PushQueue,
    PushRequest,
    choose_method,
    find_push,
)
from rmqcli.admin.reset.result import judge, judge_unchanged

COMMIT, SERVER = Mechanism.COMMIT, Mechanism.SERVER_RESET


@pytest.mark.parametrize(
    ("committed", "target", "seen", "mechanism", "is_live", "result", "is_good"),
    [
        (10, 5, [5], COMMIT, False, "CONFIRMED", True),
        (None, 5, [5], COMMIT, False, "CONFIRMED", True),
        (10, 5, [], COMMIT, False, "UNKNOWN", False),
        (10, 5, [10], COMMIT, False, "UNCHANGED", False),
        (10, 5, [5, 10], COMMIT, True, "OVERWRITTEN", False),
        # the broker moved the clients, and they have read everything again
        (10, 5, [5, 10], SERVER, True, "CONFIRMED", True),
        # half way through the replay
        (10, 5, [5, 8], COMMIT, True, "CONFIRMED", True),
        # no member is online that could have read on
        (10, 5, [5, 8], COMMIT, False, "OVERWRITTEN", False),
        # skipped forward, and read on from there
        (10, 50, [50, 60], COMMIT, True, "CONFIRMED", True),
        (10, 50, [50, 12], COMMIT, True, "OVERWRITTEN", False),
        (10, 5, [10], SERVER, True, "UNCHANGED", False),
        (10, 5, [None], COMMIT, False, "OVERWRITTEN", False),
    ],
)
def test_judge(committed, target, seen, mechanism, is_live, result, is_good):
    outcome = judge(
        committed=committed,
        target=target,
        seen=seen,
        mechanism=mechanism,
        is_live=is_live,
    )
    assert (outcome.result.value, outcome.is_good) == (result, is_good)


def test_a_queue_left_alone_is_fine_though_consumers_read_on():
    outcome = judge_unchanged(target=5, seen=[5, 9])
    assert (outcome.result.value, outcome.is_good) == ("UNCHANGED", True)
    assert outcome.note == "a live consumer has since committed 9"


PUSH = PushRequest(timestamp_ms=0, is_force=True)


@pytest.mark.parametrize(
    ("is_live", "is_server_side", "push", "wants_proof", "mechanism"),
    [
        (False, False, None, False, Mechanism.COMMIT),
        (False, True, None, False, Mechanism.COMMIT),
        (True, True, None, False, Mechanism.SERVER_RESET),
        (True, False, PUSH, False, Mechanism.CLIENT_PUSH),
        (True, False, None, False, Mechanism.REFUSED),
        (True, False, None, True, Mechanism.COMMIT),
    ],
)
def test_choose_route(is_live, is_server_side, push, wants_proof, mechanism):
    method = choose_method(
        address="127.0.0.1:1",
        version="4.9.7",
        is_live=is_live,
        is_server_side=is_server_side,
        push=push,
        wants_proof=wants_proof,
    )
    assert method.mechanism is mechanism
    assert method.is_live == is_live
    assert bool(method.warning) == (is_live and not is_server_side)


def queues(*rows):
    return [
        PushQueue(queue_id=n, committed=committed, target=target, max_offset=60)
        for n, (committed, target) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("rows", "searches", "expected"),
    [
        ([(60, 0), (60, 0)], {0: {0: 0, 1: 0}}, (0, True)),
        ([(10, 60), (60, 60)], {-1: {0: 60, 1: 60}}, (-1, True)),
        # no time gives both
        ([(60, 0), (60, 5)], {0: {0: 0, 1: 0}}, None),
        # the second stays: without force it is not moved forward
        ([(60, 20), (30, None)], {7: {0: 20, 1: 40}}, (7, False)),
        # it would be pulled back with the first
        ([(60, 20), (30, None)], {7: {0: 20, 1: 25}}, None),
        # a broker refuses when one queue has no offset
        ([(60, 0), (None, 0)], {0: {0: 0, 1: 0}}, None),
        # an answer is missing
        ([(60, 0), (60, 0)], {0: {0: 0}}, None),
    ],
)
def test_find_push(rows, searches, expected):
    found = find_push(queues(*rows), searches)
    assert (found and (found.timestamp_ms, found.is_force)) == expected
