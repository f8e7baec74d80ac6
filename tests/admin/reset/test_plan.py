"""Tables: what a plan says about each queue, and when a plan is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli.admin.lag.model import PopLag
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


@pytest.mark.parametrize("committed", [10, 50, 100])
@pytest.mark.parametrize("wanted", [10, 100])
def test_what_is_in_the_queue_is_no_reason_to_warn(committed, wanted):
    assert plan_queue(facts(committed, wanted)).warnings == ()


def test_deleted_messages_are_counted_and_a_remark_stands_for_the_clamping():
    (said,) = plan_queue(facts(5, 200, note="no message is that new")).warnings[:1]
    assert said.endswith(", 5 were deleted unread")
    plan = plan_queue(facts(50, 200, note="no message is that new"))
    assert (plan.target, plan.warnings) == (100, ("no message is that new",))
    assert plan_queue(facts(50, None, note="not known")).warnings == ("not known",)


@pytest.mark.parametrize(
    ("committed", "wanted", "moved"),
    [
        (50, 60, (50, 60)),
        (60, 50, (50, 60)),
        (5, 20, (10, 20)),
        (120, 90, (90, 100)),
        (None, 20, None),
        (50, None, None),
    ],
)
def test_a_reset_moves_over_existing_messages_alone(committed, wanted, moved):
    assert plan_queue(facts(committed, wanted)).moved_range == moved


@pytest.mark.parametrize(
    ("committed", "count", "target"),
    [
        (50, 10, 60),
        (50, -10, 40),
        (50, 99, 100),
        (5, 10, 20),
        (120, -10, 90),
        (None, 10, None),
    ],
)
def test_shift_counts_from_what_is_there(committed, count, target):
    assert plan_queue(shift(facts(committed, None), count)).target == target


@pytest.mark.parametrize(("saved", "target"), [(70, 70), (3, 10), (None, 10)])
def test_restore(saved, target):
    assert plan_queue(restore(facts(50, None), saved)).target == target


def plan_of(*queue_facts, mechanism=Mechanism.COMMIT, why="why", **group):
    method = ResetMethod(address="127.0.0.1:1", mechanism=mechanism, warning=why)
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


def held(*, inflight, retry_lag=0, reason=None):
    return PopLag(
        inflight=inflight,
        overdue=0,
        visible_ms=None,
        visible_in_ms=None,
        retry_lag=retry_lag,
        reason=reason,
    )


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"client_ids": ("a",)}, "1 client is online and reading T"),
        ({"clients_unknown": "broker-b is silent"}, "broker-b is silent"),
        ({"retry_pending": 1}, "1 message waits in %RETRY%G and will still"),
        ({"retry_unknown": 1}, "1 queue of %RETRY%G could not be read"),
        ({"retry_unknown": 2}, "2 queues of %RETRY%G could not be read"),
        ({"pop": held(inflight=1)}, "1 message is handed out and not acknowledged"),
        ({"pop": held(inflight=2)}, "2 messages are handed out and not acknow"),
        (
            {"pop": held(inflight=None, reason="no permission")},
            (
                "messages may be handed out and not acknowledged, and are then"
                " delivered again: no permission"
            ),
        ),
        (
            {"pop": held(inflight=0, retry_lag=1)},
            "1 message waits in retry topics of POP",
        ),
    ],
)
def test_each_thing_that_a_reset_does_not_change_is_said_once(group, said):
    (warning,) = plan_of(facts(50, 60), why="", **group).warnings
    assert warning.startswith(said)


def test_a_group_of_which_pop_holds_nothing_is_not_warned_about():
    assert plan_of(facts(50, 60), why="", pop=held(inflight=0)).warnings == ()


def at(queue_id, committed, wanted):
    queue = MessageQueue("T", "broker-a", queue_id)
    return replace(facts(committed, wanted), queue=queue)


def test_queues_are_sorted_by_what_becomes_of_them():
    plan = plan_of(at(2, 50, 60), at(0, 50, 50), at(1, 50, None))
    assert [each.queue.queue_id for each in plan.queues] == [0, 1, 2]
    assert [each.queue.queue_id for each in plan.changes] == [2]
    assert [each.queue.queue_id for each in plan.impossible] == [1]


def test_what_several_queues_refuse_is_said_once_after_the_broadcast():
    plan = plan_of(
        at(0, 50, 60), at(1, 50, 60), mechanism=Mechanism.REFUSED, is_broadcast=True
    )
    broadcast, why = plan.refusals
    assert "broadcast mode" in broadcast
    assert why == "why"


def test_only_methods_of_changes_are_warned_about_and_each_text_once():
    methods = {
        ("T", name): ResetMethod(
            address="127.0.0.1:1", mechanism=Mechanism.COMMIT, warning=f"why {number}"
        )
        for name, number in [("broker-a", 1), ("broker-b", 1), ("broker-c", 2)]
    }
    queues = [
        replace(facts(50, wanted), queue=MessageQueue("T", name, 0))
        for name, wanted in [("broker-a", 60), ("broker-b", 60), ("broker-c", 50)]
    ]
    group = GroupFacts(group="G", topic="T", cluster=ClusterIdentity((), {}))
    assert make_plan(group, queues, methods).warnings == ("why 1",)


@pytest.mark.parametrize(
    ("count", "more"),
    [(1, "is now 51"), (2, "is now 51 and 1 more queue"), (3, " and 2 more queues")],
)
def test_drift_names_the_first_queue_and_counts_the_others(count, more):
    plan = plan_of(*(at(each, 51, 60) for each in range(count)), at(7, 51, 60))
    expected = {each.queue: (50, 60) for each in plan.queues[:count]}
    with pytest.raises(RefusedError) as caught:
        check_drift(plan, expected)
    assert "T@broker-a:0: committed offset was 50, is now 51" in caught.value.message
    assert caught.value.message.endswith(more)


def test_a_target_that_is_gone_is_named_with_the_ends_of_the_queue():
    plan = plan_of(facts(50, 5))
    with pytest.raises(RefusedError) as caught:
        check_drift(plan, {QUEUE: (50, 5)})
    assert caught.value.message.endswith(
        "T@broker-a:0: target 5 is outside the queue (10 to 100)"
    )


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
