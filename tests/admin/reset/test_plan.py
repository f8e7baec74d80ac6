"""Tables: what a plan says about each queue, and when a plan is refused."""

from __future__ import annotations

import pytest

from rmqcli.admin.reset.cluster_identity import ClusterIdentity
from rmqcli.admin.reset.method import Mechanism, ResetMethod
from rmqcli.admin.reset.plan import (
    GroupFacts,
    QueueFacts,
    check_drift,
    make_plan,
    plan_queue,
    restore,
    shift,
)
from rmqcli.errors import RefusedError
from rmqcli.model import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def facts(committed, wanted, *, low=10, high=100, note=""):
    return QueueFacts(
        queue=QUEUE,
        committed=committed,
        min_offset=low,
        max_offset=high,
        wanted=wanted,
        note=note,
    )


@pytest.mark.parametrize(
    ("committed", "wanted", "target", "delta", "skipped", "replayed"),
    [
        (50, 60, 60, 10, 10, 0),
        (50, 20, 20, -30, 0, 30),
        (50, 50, 50, 0, 0, 0),
        (50, 0, 10, -40, 0, 40),  # clamped to the oldest
        (50, 200, 100, 50, 50, 0),  # clamped to the end
        (5, 20, 20, 15, 10, 0),  # 5 to 9 were deleted, not skipped
        (120, 90, 90, -30, 0, 10),  # 100 to 119 never existed
        (None, 20, 20, None, None, None),
        (50, None, None, None, None, None),
    ],
)
def test_plan_queue(committed, wanted, target, delta, skipped, replayed):
    plan = plan_queue(facts(committed, wanted))
    assert plan.target == target
    assert plan.delta == delta
    assert (plan.skipped, plan.replayed) == (skipped, replayed)
    assert plan.is_change == (target is not None and delta != 0)


@pytest.mark.parametrize(
    ("committed", "wanted", "warning"),
    [
        (5, 20, "expired: 5 is committed but the oldest message is 10"),
        (120, 20, "beyond the end: 120 is committed but the end is 100"),
        (50, 200, "clamped: 200 is outside the queue, using 100"),
        (None, 20, "no offset was committed here before"),
    ],
)
def test_plan_queue_warns(committed, wanted, warning):
    (said,) = plan_queue(facts(committed, wanted)).warnings
    assert said.startswith(warning)


@pytest.mark.parametrize(
    ("committed", "count", "target"),
    [(50, 10, 60), (50, -10, 40), (50, 99, 100), (5, 10, 20), (None, 10, None)],
)
def test_shift_counts_from_what_is_there(committed, count, target):
    assert plan_queue(shift(facts(committed, None), count)).target == target


@pytest.mark.parametrize(("saved", "target"), [(70, 70), (3, 10), (None, 10)])
def test_restore(saved, target):
    assert plan_queue(restore(facts(50, None), saved)).target == target


def plan_of(*queue_facts, mechanism=Mechanism.COMMIT, **group):
    method = ResetMethod(address="127.0.0.1:1", mechanism=mechanism, warning="why")
    return make_plan(
        GroupFacts(group="G", topic="T", cluster=ClusterIdentity((), {}), **group),
        queue_facts,
        {("T", "broker-a"): method},
    )


def test_only_a_change_can_be_refused():
    refused = plan_of(facts(50, 60), mechanism=Mechanism.REFUSED)
    assert refused.refusals == ("why",)
    assert refused.warnings == ("why",)
    nothing = plan_of(facts(50, 50), mechanism=Mechanism.REFUSED)
    assert (nothing.refusals, nothing.warnings) == ((), ())


def test_the_group_is_warned_about():
    plan = plan_of(facts(50, 50), client_ids=("a", "b"), retry_pending=3)
    live, pending = plan.warnings
    assert live == "2 clients are online and reading T"
    assert pending.startswith("3 messages wait in %RETRY%G")


def test_a_broadcast_group_is_refused():
    assert "broadcast mode" in plan_of(facts(5, 6), is_broadcast=True).refusals[0]


@pytest.mark.parametrize(
    ("committed", "planned", "is_fine"),
    [
        (50, (50, 60), True),
        (60, (50, 60), True),  # already applied
        (51, (50, 60), False),
        (None, (None, 60), True),
        (50, (None, 60), False),
        (50, (50, 5), False),  # the target has expired
    ],
)
def test_check_drift(committed, planned, is_fine):
    plan = plan_of(facts(committed, planned[1]))
    if is_fine:
        check_drift(plan, {QUEUE: planned})
    else:
        with pytest.raises(RefusedError, match="offsets moved since"):
            check_drift(plan, {QUEUE: planned})
