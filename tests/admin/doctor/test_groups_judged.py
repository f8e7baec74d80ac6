"""Troubles of groups that an embedded cluster ends at once are judged as values."""

from __future__ import annotations

import pytest

from rmqcli.admin.doctor.diagnose import choose_checks, judge
from rmqcli.admin.doctor.facts import Facts
from rmqcli.admin.lag.assemble import ORDERLY
from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import GroupReading, compute_lag
from rmqcli.admin.lag.process_queues import ClientQueues, HeldQueue, QueueLimits
from rmqcli.config import ClientConfig
from rmqcli.engine.queue_lag import QueueReading
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import Connection, ConsumerConnection
from rmqcli.wire.bodies.route import ClusterInfo
from rmqcli.wire.subscription import SubscriptionData

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def findings(name, lag, **facts):
    """Return status and evidence of what one check finds in a group."""
    given = Facts(
        at_ms=NOW_MS,
        config=ClientConfig(namesrv=("127.0.0.1:1",)),
        info=ClusterInfo({}, {}),
        brokers=[],
        lags=[lag],
        **facts,
    )
    (result,) = judge(choose_checks([name]), given).results
    return [(str(each.status), each.evidence) for each in result.findings]


def pop_group(*visible_ms, clock_ahead_ms=0, reason=None):
    """A group with a message for each time at which one is visible again."""
    queue = QueueReading(
        topic="orders",
        broker_name="broker-a",
        queue_id=0,
        committed=9,
        min_offset=0,
        max_offset=9,
        handed_out=dict(enumerate(visible_ms)),
        clock_ahead_ms=clock_ahead_ms,
    )
    reading = GroupReading(
        group="billing", at_ms=NOW_MS, queues=[queue], pop_unknown=reason
    )
    return compute_lag(reading)


def test_messages_of_pop_that_were_not_delivered_again_are_found():
    late = pop_group(NOW_MS - 2 * MINUTE_MS, NOW_MS - MINUTE_MS, NOW_MS - 1)
    assert findings("pop-revive", late) == [
        (
            "warning",
            "2 messages not acknowledged in time, waiting for a retry for up to 2m",
        )
    ]


@pytest.mark.parametrize(
    "lag",
    [
        pop_group(),
        pop_group(NOW_MS + MINUTE_MS, NOW_MS - 59_000),
        # By the broker's clock, which is two minutes behind, it is visible just now.
        pop_group(NOW_MS - 2 * MINUTE_MS, clock_ahead_ms=-2 * MINUTE_MS),
        # Orderly groups have no check points that could be late.
        pop_group(reason=ORDERLY),
    ],
)
def test_messages_of_pop_that_are_not_late_are_no_finding(lag):
    assert findings("pop-revive", lag) == []


def test_check_points_that_cannot_be_read_are_unknown():
    lag = pop_group(reason="check points are in RocksDB")
    assert findings("pop-revive", lag) == [("unknown", "check points are in RocksDB")]


def held(client_id, queue_id):
    return HeldQueue(
        queue=MessageQueue("orders", "broker-a", queue_id),
        client_id=client_id,
        commit_offset=0,
        cached_count=0,
        cached_size_mib=0,
        cached_min_offset=None,
        cached_max_offset=None,
        span=0,
        span_limit=2000,
        limits=QueueLimits(),
        taken_count=0,
        taken_min_offset=None,
        taken_max_offset=None,
        locked=False,
        last_lock_ms=None,
        dropped=False,
        last_pull_ms=NOW_MS,
        last_consume_ms=NOW_MS,
        flags=(),
    )


def group(
    holdings,
    *,
    started_ms=NOW_MS - 5 * MINUTE_MS,
    failure=None,
    end=5,
    committed=0,
    by_proxy=(),
):
    """A group with a member for each entry of `holdings`, and two queues.

    Those of `by_proxy` are members that cannot be asked.
    """
    members = Members()
    members.add(
        ConsumerConnection(
            connections=tuple(
                Connection(client_id=name, client_addr=f"{name}:1")
                for name in [*holdings, *by_proxy]
            ),
            subscriptions={"orders": SubscriptionData(topic="orders", sub_string="*")},
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
        )
    )
    clients = {
        name: ClientQueues(
            client_id=name,
            failure=failure,
            started_ms=started_ms,
            queues=tuple(held(name, number) for number in numbers),
        )
        for name, numbers in holdings.items()
    }
    queues = [
        QueueReading(
            topic="orders",
            broker_name="broker-a",
            queue_id=number,
            committed=committed,
            min_offset=0,
            max_offset=end,
        )
        for number in (0, 1)
    ]
    reading = GroupReading(
        group="billing", members=members, clients=clients, queues=queues
    )
    return compute_lag(reading)


def test_a_queue_with_messages_that_no_member_holds_is_found():
    assert findings("queue-owners", group({"one": [0], "two": []})) == [
        ("warning", "no member holds 1 queue with messages: orders@broker-a:1")
    ]


def test_a_queue_that_two_members_hold_is_found():
    ((status, evidence),) = findings("queue-owners", group({"one": [0, 1], "two": [1]}))
    assert status == "warning"
    assert evidence.startswith("1 queue held by two members, such as ")
    assert evidence.endswith("by one, two")


@pytest.mark.parametrize(
    "lag",
    [
        group({"one": [0], "two": [1]}),
        group({"one": [0, 1], "two": []}),  # more members than queues are no trouble
        group({"one": [0], "two": []}, end=0),  # an empty queue needs no owner
        group({"one": [0], "two": []}, started_ms=NOW_MS - 10_000),  # rebalancing
    ],
)
def test_queues_with_one_owner_or_without_need_of_one_are_no_finding(lag):
    assert findings("queue-owners", lag) == []


def test_a_queue_without_a_commit_that_no_member_holds_is_found():
    """Nobody ever consumed it, so that its lag is not known; 5 messages are there."""
    lag = group({"one": [0], "two": []}, committed=None)
    assert findings("queue-owners", lag) == [
        ("warning", "no member holds 1 queue with messages: orders@broker-a:1")
    ]
    empty = group({"one": [0], "two": []}, committed=None, end=0)
    assert findings("queue-owners", empty) == []


@pytest.mark.parametrize(
    ("started_ms", "reason"),
    [
        (None, "it is not known when these members started: one, two"),
        (NOW_MS + 61 * MINUTE_MS, "the clocks of these members are ahead: one, two"),
    ],
)
def test_members_whose_age_is_not_known_make_owners_unknown(started_ms, reason):
    lag = group({"one": [0], "two": []}, started_ms=started_ms)
    assert findings("queue-owners", lag) == [("unknown", reason)]


def test_members_that_do_not_answer_may_have_queues_that_stand_still():
    lag = group({"one": [0, 1]}, failure="timed out")
    assert findings("member-queues", lag) == [
        ("unknown", "no answer about its queues: one")
    ]


def test_members_that_do_not_tell_their_queues_make_owners_unknown():
    assert findings("queue-owners", group({"one": [0, 1]}, failure="timed out")) == [
        ("unknown", "no answer about its queues: one")
    ]


def test_members_that_cannot_be_asked_beside_others_make_owners_unknown():
    """Such as gRPC members in a group in which others pull."""
    lag = group({"one": [0]}, by_proxy=["two", "three"])
    assert findings("queue-owners", lag) == [
        ("unknown", "members that tell no queues: three, two")
    ]
    assert findings("queue-owners", group({}, by_proxy=["two"])) == []
