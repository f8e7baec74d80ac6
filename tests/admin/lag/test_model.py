"""Tables of readings, and the lag and states that follow from them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rmqcli.admin.lag.members import Members
from rmqcli.admin.lag.model import BrokerFailure, GroupReading, GroupState, compute_lag
from rmqcli.admin.lag.process_queues import ClientQueues, read_running_info
from rmqcli.engine.queue_lag import LagState, QueueReading, queue_lag
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from rmqcli.wire.bodies.stats import QueueTimeSpan
from rmqcli.wire.subscription import SubscriptionData
from tests.kit.rows import each_row

NOW_MS = 1_767_322_800_000


def queue(committed, low, high, *, queue_id=0, topic="T", **more):
    return QueueReading(
        topic=topic,
        broker_name="broker-a",
        queue_id=queue_id,
        committed=committed,
        min_offset=low,
        max_offset=high,
        **more,
    )


def span(delay_time, *, min_time_stamp=NOW_MS - 90_000):
    return QueueTimeSpan(
        queue=MessageQueue("T", "broker-a", 0),
        min_time_stamp=min_time_stamp,
        max_time_stamp=NOW_MS,
        consume_time_stamp=NOW_MS - 60_000,
        delay_time=delay_time,
    )


def members(*client_ids, message_model="CLUSTERING", expression="*", topic="T"):
    found = Members()
    found.add(
        ConsumerConnection(
            connections=tuple(
                Connection(
                    client_id=c, client_addr="127.0.0.1:1", language=0, version=409
                )
                for c in client_ids
            ),
            subscriptions={topic: SubscriptionData(topic=topic, sub_string=expression)},
            message_model=message_model,
        )
    )
    return found


def only_queue(reading, **more):
    group = compute_lag(GroupReading(group="G", queues=[reading], **more))
    return group.queues[0]


@each_row(
    ("committed", "low", "high", "lag", "expired", "state"),
    [
        (5, 0, 10, 5, 0, LagState.KNOWN),
        (0, 0, 10, 10, 0, LagState.KNOWN),
        (10, 0, 10, 0, 0, LagState.OK),
        (0, 0, 0, 0, 0, LagState.OK),
        (4, 4, 10, 6, 0, LagState.KNOWN),
        (3, 4, 10, 6, 1, LagState.EXPIRED),
        (3, 10, 10, 0, 7, LagState.EXPIRED),
        (11, 0, 10, 0, 0, LagState.AHEAD),
        (5, 0, 0, 0, 0, LagState.AHEAD),
        (None, 0, 10, None, None, LagState.NO_COMMIT),
        (None, 7, 7, 0, None, LagState.NO_COMMIT),
        (5, None, None, None, None, LagState.UNKNOWN),
    ],
)
def test_lag_is_max_less_committed_inside_the_queue(
    committed, low, high, lag, expired, state
):
    found = only_queue(queue(committed, low, high))
    assert (found.lag, found.expired, found.state) == (lag, expired, state)


def test_a_row_names_its_queue_and_keeps_what_was_read():
    reading = queue(7, 4, 10, queue_id=3, topic="orders", inflight=2)
    row = queue_lag(reading, client_id="c1")
    assert {each.name: getattr(row, each.name) for each in fields(row)} == {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 3,
        "committed": 7,
        "min_offset": 4,
        "max_offset": 10,
        "lag": 3,
        "inflight": 2,
        "expired": 0,
        "age_ms": None,
        "state": LagState.KNOWN,
        "reason": None,
        "client_id": "c1",
        "unacknowledged": None,
        "visible_ms": None,
    }
    assert row.key == ("orders", "broker-a", 3)
    assert queue_lag(reading, has_members=False).inflight is None


def test_what_pop_has_handed_out_is_counted_where_it_is_stored():
    """Offset 3 is deleted, 4 and 6 lie before the committed offset, 7 does not."""
    handed_out = {3: 900, 4: 800, 6: 700, 7: 1_000}
    row = queue_lag(
        queue(7, 4, 10, handed_out=handed_out, inflight=9, time_span=span(40_000)),
        has_members=False,
    )
    assert (row.lag, row.inflight, row.unacknowledged) == (5, 3, 2)
    assert (row.visible_ms, row.age_ms, row.state) == (700, None, LagState.KNOWN)
    at_start = queue(7, 4, 10, handed_out={7: 1_000}, time_span=span(40_000))
    assert queue_lag(at_start).age_ms == 40_000
    acknowledged = queue_lag(queue(7, 4, 7, handed_out={}))
    assert (acknowledged.lag, acknowledged.inflight, acknowledged.unacknowledged) == (
        0,
        0,
        0,
    )
    assert acknowledged.visible_ms is None
    behind = queue_lag(queue(10, 4, 10, handed_out={9: 800}))
    assert (behind.lag, behind.state) == (1, LagState.KNOWN)
    never = queue_lag(queue(None, 4, 10, handed_out={4: 800}))
    assert (never.unacknowledged, never.inflight, never.lag) == (None, 1, None)


@pytest.mark.parametrize(
    ("committed", "handed_out", "reason"),
    [
        (7, {4: 800, 6: 700}, "no answer; at least 5 wait"),
        (10, {}, "no answer"),
        (7, None, "no answer"),
        (None, {4: 800}, "no answer"),
    ],
)
def test_where_pop_does_not_tell_a_reason_says_how_many_wait_at_least(
    committed, handed_out, reason
):
    reading = queue(committed, 4, 10, handed_out=handed_out, failure="no answer")
    row = queue_lag(reading)
    assert (row.lag, row.state, row.reason) == (None, LagState.UNKNOWN, reason)


def test_all_messages_of_a_retry_topic_wait_if_nothing_was_committed():
    row = queue_lag(queue(None, 4, 10, topic="%RETRY%G"))
    assert (row.lag, row.state) == (6, LagState.NO_COMMIT)
    assert row.reason == (
        "no offset was ever committed; members start at its first message"
    )


@pytest.mark.parametrize(("low", "high"), [(4, None), (None, 10)])
def test_a_queue_of_which_one_end_is_unknown_is_unknown(low, high):
    row = queue_lag(queue(7, low, high))
    assert (row.lag, row.state) == (None, LagState.UNKNOWN)
    assert row.reason == "the broker did not report the queue's ends"


@pytest.mark.parametrize(
    ("delay_time", "age_ms"), [(10**12 - 1, 10**12 - 1), (10**12, 10**12 - 2)]
)
def test_a_delay_of_the_broker_s_whole_clock_is_not_an_age(delay_time, age_ms):
    found = queue(5, 0, 10, time_span=span(delay_time, min_time_stamp=1))
    assert queue_lag(found).age_ms == age_ms


@pytest.mark.parametrize(
    "state", [LagState.KNOWN, LagState.NO_COMMIT, LagState.UNKNOWN]
)
def test_a_state_without_a_known_lag_has_a_reason(state):
    reading = {
        LagState.KNOWN: queue(1, 0, 2),
        LagState.NO_COMMIT: queue(None, 0, 2),
        LagState.UNKNOWN: queue(1, 0, 2, failure="127.0.0.1:1 did not answer"),
    }[state]
    found = only_queue(reading)
    assert found.state is state
    assert (found.reason is None) == (state is LagState.KNOWN)


def test_a_failure_hides_numbers_but_not_the_committed_offset():
    found = only_queue(queue(7, None, None, failure="no answer"))
    assert (found.committed, found.lag, found.reason) == (7, None, "no answer")


def test_a_broadcast_group_has_no_offsets_at_the_broker():
    online = members("c1", message_model="BROADCASTING")
    found = only_queue(queue(3, 0, 10), members=online)
    assert (found.state, found.lag, found.committed) == (LagState.BROADCAST, None, None)
    # Nor has it lost what was deleted beyond an offset from before it was one.
    assert only_queue(queue(3, 5, 10), members=online).expired is None


@pytest.mark.parametrize(
    ("committed", "time_span", "age_ms"),
    [
        (10, None, 0),  # everything is read: no query
        (5, None, None),
        (5, span(40_000), 40_000),
        (5, span(-3), 0),  # the broker's clock went back
        # the next message was deleted: the broker takes -1 for its store time
        (5, span(NOW_MS + 1), 90_000),
        (5, span(NOW_MS + 1, min_time_stamp=-1), None),
    ],
)
def test_age_is_that_of_the_oldest_unread_message(committed, time_span, age_ms):
    found = only_queue(queue(committed, 0, 10, time_span=time_span))
    assert found.age_ms == age_ms


def test_age_is_unknown_where_a_lag_is():
    reading = GroupReading(
        group="G",
        queues=[queue(10, 0, 10, queue_id=0), queue(None, 0, 10, queue_id=1)],
    )
    lag = compute_lag(reading)
    assert (lag.total_lag, lag.age_ms, lag.topics[0].age_ms) == (None, None, None)
    assert [each.age_ms for each in lag.queues] == [0, None]


def test_age_is_unknown_where_only_that_of_a_queue_is():
    """The messages of POP may have waited for days, and the group's age was 20 ms."""
    reading = GroupReading(
        group="G",
        queues=[
            queue(5, 0, 10, queue_id=0, time_span=span(20)),
            queue(10, 0, 10, queue_id=1, handed_out={7: 700}, time_span=span(0)),
        ],
    )
    lag = compute_lag(reading)
    assert (lag.total_lag, lag.age_ms, lag.known_age_ms) == (6, None, 20)
    (topic,) = lag.topics
    assert (topic.lag, topic.age_ms, topic.known_age_ms) == (6, None, 20)


def test_totals_are_sums_and_the_greatest_age():
    reading = GroupReading(
        group="G",
        queues=[
            queue(5, 0, 10, queue_id=1, time_span=span(10)),
            queue(2, 0, 10, queue_id=0, time_span=span(20)),
            queue(0, 0, 1, topic="%RETRY%G", time_span=span(5)),
        ],
    )
    lag = compute_lag(reading)
    assert (lag.total_lag, lag.reason, lag.age_ms) == (14, None, 20)
    assert [(t.topic, t.lag, t.is_retry) for t in lag.topics] == [
        ("%RETRY%G", 1, True),
        ("T", 13, False),
    ]
    assert [(q.topic, q.queue_id) for q in lag.queues] == [
        ("%RETRY%G", 0),
        ("T", 0),
        ("T", 1),
    ]


def test_one_unknown_queue_makes_the_total_unknown_and_says_so():
    reading = GroupReading(
        group="G", queues=[queue(5, 0, 10), queue(None, 0, 3, queue_id=1)]
    )
    lag = compute_lag(reading)
    assert (lag.total_lag, lag.known_lag, lag.state) == (None, 5, GroupState.STOPPED)
    assert lag.reason is not None
    assert lag.reason.startswith("unknown in 1 of 2 queues: no offset was ever")


def test_an_empty_queue_without_commits_spoils_nothing():
    reading = GroupReading(
        group="G",
        queues=[queue(5, 0, 10), queue(None, 0, 0, topic="%RETRY%G")],
    )
    lag = compute_lag(reading)
    assert (lag.total_lag, lag.state) == (5, GroupState.STOPPED)


@pytest.mark.parametrize(
    ("committed", "reason"),
    [
        (1, "3 messages deleted before the group read them"),
        (3, "1 message deleted before the group read them"),
        (4, None),
        (10, None),
        (12, "committed 2 beyond the end of the queue"),
    ],
)
def test_a_queue_outside_its_messages_says_by_how_much(committed, reason):
    lag = compute_lag(GroupReading(group="G", queues=[queue(committed, 4, 10)]))
    assert [each.reason for each in lag.queues] == [reason]


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ([queue(10, 0, 10)], GroupState.OK),
        ([queue(None, 0, 0)], GroupState.NO_COMMIT),
        ([queue(5, 0, 10), queue(99, 0, 10, queue_id=1)], GroupState.AHEAD),
        ([queue(1, 3, 10), queue(99, 0, 10, queue_id=1)], GroupState.EXPIRED),
        ([queue(1, 3, 10), queue(1, None, None, queue_id=1)], GroupState.UNKNOWN),
        ([], GroupState.NO_COMMIT),
    ],
)
def test_a_group_is_as_bad_as_its_worst_queue(readings, state):
    assert compute_lag(GroupReading(group="G", queues=readings)).state is state


def test_a_broker_that_did_not_answer_makes_the_group_unknown():
    failure = BrokerFailure(
        broker_name="broker-b", address="127.0.0.1:2", message="no answer in 5000 ms"
    )
    lag = compute_lag(
        GroupReading(group="G", queues=[queue(5, 0, 10)], failures=[failure])
    )
    assert (lag.state, lag.total_lag, lag.known_lag) == (GroupState.UNKNOWN, None, 5)
    assert lag.reason == "broker-b: no answer in 5000 ms"
    assert lag.is_partial


def test_the_owner_is_who_holds_the_queue():
    online = members("c1", "c2", expression="TagA")
    held = {MessageQueue("T", "broker-a", 0): ProcessQueueInfo()}
    info = ConsumerRunningInfo(properties={}, process_queues=held)
    holder = read_running_info("c2", info, now_ms=NOW_MS)
    found = compute_lag(
        GroupReading(
            group="G",
            queues=[queue(5, 0, 10), queue(5, 0, 10, queue_id=1)],
            members=online,
            clients={"c1": ClientQueues(client_id="c1"), "c2": holder},
        )
    )
    assert [q.client_id for q in found.queues] == ["c2", None]
    assert found.topics[0].expression == "TagA"


def test_brokers_that_know_different_filters_are_a_mismatch():
    found = members("c1", expression="TagA")
    found.add(
        ConsumerConnection(
            connections=(),
            subscriptions={"T": SubscriptionData(topic="T", sub_string="TagB")},
        )
    )
    assert found.mismatches(None) == [
        "brokers know different filters for T: TagA and TagB"
    ]


def test_members_that_subscribe_differently_are_named():
    def client(client_id, *topics):
        subscriptions = tuple(SubscriptionData(topic=topic) for topic in topics)
        return ClientQueues(client_id=client_id, subscriptions=subscriptions)

    found = members("c1", "c2").mismatches(
        {"c1": client("c1", "T", "U"), "c2": client("c2", "T")}
    )
    assert found == ["members differ on U: c1 has *; c2 has no subscription"]


def test_the_few_that_differ_are_named_before_the_many():
    def client(client_id, expression):
        subscription = SubscriptionData(topic="T", sub_string=expression)
        return ClientQueues(client_id=client_id, subscriptions=(subscription,))

    expressions = {"c1": "A", "c2": "A", "c3": "B", "c4": "A", "c5": "A", "c6": "A"}
    clients = {name: client(name, text) for name, text in expressions.items()}
    assert members(*clients).mismatches(clients) == [
        "members differ on T: c3 has B; c1, c2, c4 and 2 more have A"
    ]
    four = {name: clients[name] for name in ("c1", "c2", "c3", "c4")}
    assert members(*four).mismatches(four) == [
        "members differ on T: c3 has B; c1, c2, c4 have A"
    ]


@pytest.mark.parametrize(
    ("one", "other"), [("A || B", "B||A"), ("A||A", "A"), ("", "*")]
)
def test_filters_that_select_the_same_are_no_difference(one, other):
    clients = {
        name: ClientQueues(
            client_id=name,
            subscriptions=(SubscriptionData(topic="T", sub_string=text),),
        )
        for name, text in (("c1", one), ("c2", other))
    }
    assert members("c1", "c2").mismatches(clients) == []


def test_a_member_that_did_not_tell_is_not_compared():
    subscription = SubscriptionData(topic="T", sub_string="A")
    clients = {
        "c1": ClientQueues(client_id="c1", subscriptions=(subscription,)),
        "c2": ClientQueues(client_id="c2", failure="no answer"),
    }
    assert members("c1", "c2").mismatches(clients) == []


def test_a_member_that_several_brokers_see_is_as_the_first_one_sees_it():
    found = Members()
    for address in ("10.0.0.1:1", "10.0.0.1:2"):
        connection = Connection(
            client_id="c1", client_addr=address, language=0, version=409
        )
        found.add(ConsumerConnection(connections=(connection,), subscriptions={}))
    assert [each.client_addr for each in found.connections.values()] == ["10.0.0.1:1"]
