"""Tables: what a read-back means."""

from __future__ import annotations

from rmqcli.admin.reset.method import Mechanism
from rmqcli.admin.reset.result import judge, judge_unchanged
from tests.kit.rows import each_row

COMMIT, SERVER = Mechanism.COMMIT, Mechanism.SERVER_RESET


@each_row(
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
