"""A broker that accepts connections but never answers does not affect other brokers.

Pure: requests to the hung broker never end here, not even by a deadline.
"""

from __future__ import annotations

import pytest

from rmqcli.wire.subscription import parse_subscription
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    START_MS,
    World,
    queue_of,
    refusal,
)

HUNG = "broker-b"
TOPICS = [f"topic-{number:02}" for number in range(40)]


def world_of_two_brokers(*, topics=TOPICS, **options):
    """Return a world with many topics, each with two queues on each of two brokers."""
    world = World(**options)
    world.network.queues.clear()
    world.member.subscriptions.pop("orders")
    for topic in topics:
        world.network.queues[topic] = [
            queue_of(number, topic=topic, broker=broker)
            for broker in ("broker-a", HUNG)
            for number in range(2)
        ]
        world.member.subscriptions[topic] = parse_subscription(
            topic, "*", sub_version=START_MS
        )
    return world


def pulled(world):
    return {call.args["ask"].queue for call in world.pulls()}


def queues_at(world, broker):
    return {
        queue
        for queues in world.network.queues.values()
        for queue in queues
        if queue.broker_name == broker
    }


@pytest.mark.parametrize(
    "options",
    [{}, {"orderly": True}, {"message_model": BROADCASTING}],
    ids=["concurrently", "orderly", "broadcasting"],
)
def test_a_start_consumes_from_the_healthy_broker_within_a_second(options):
    world = world_of_two_brokers(**options)
    world.network.hung.add(HUNG)
    world.begin()
    world.run(900)
    assert world.started == [None]
    assert pulled(world) >= queues_at(world, "broker-a")


@pytest.mark.parametrize("orderly", [False, True])
def test_queues_of_the_healthy_broker_that_come_with_a_rebalance_begin_at_once(orderly):
    """Another member leaves while a broker hangs, and its queues are taken over."""
    world = world_of_two_brokers(orderly=orderly)
    world.network.members = [ME, OTHER]
    world.begin()
    world.run(2_000)
    assert len(pulled(world)) == 80
    world.network.hung.add(HUNG)
    world.network.members = [ME]
    world.engine.rebalances.members_changed()
    world.run(900)
    assert pulled(world) >= queues_at(world, "broker-a")


@pytest.mark.parametrize("orderly", [False, True])
def test_queues_of_the_healthy_broker_are_given_up_at_once(orderly):
    """A member that joins while a broker hangs gets its share of the queues."""
    world = world_of_two_brokers(orderly=orderly, topics=TOPICS[:6])
    world.network.hung.add(HUNG)
    world.begin()
    world.run(5_000)
    world.network.members = [ME, OTHER]
    world.engine.rebalances.members_changed()
    world.run(900)
    owned = {q for q in world.member.process_queues if q.broker_name == "broker-a"}
    assert len(owned) == 12  # AVG: broker-a's queues are the first half of each topic
    assert all(not world.member.process_queues[queue].dropped for queue in owned)
    world.network.members = [OTHER + "0", ME]
    world.engine.rebalances.members_changed()
    world.run(900)
    assert {q.broker_name for q in world.member.process_queues} <= {"broker-a"}


def test_heartbeats_and_commits_to_the_healthy_broker_go_on():
    world = world_of_two_brokers(topics=["topic"])
    world.network.hung.add(HUNG)
    world.begin()
    world.run(0)
    queue = queue_of(0, topic="topic")
    world.run(900)
    (call,) = world.pulls(queue)
    world.found([0, 1, 2], call=call)
    world.network.calls.clear()
    world.run(60_000)
    heartbeats = [
        call.at_ms - START_MS
        for call in world.network.of("heartbeat")
        if call.args["broker"] == "broker-a"
    ]
    assert heartbeats == [30_000, 60_000]
    commits = [
        call.args["offset"]
        for call in world.network.of("update_offset")
        if call.args["queue"] == queue
    ]
    assert commits == [3] * 11  # every 5 s, after the first 10 s


def test_locks_of_the_healthy_broker_are_renewed():
    world = world_of_two_brokers(topics=["topic"], orderly=True)
    world.begin()
    world.run(0)
    world.network.hung.add(HUNG)
    world.run(61_000)
    ages_ms = {
        queue.broker_name: world.clock.now_ms - each.last_lock_ms
        for queue, each in world.member.process_queues.items()
    }
    assert ages_ms == {"broker-a": 0, HUNG: 61_000}


@pytest.mark.parametrize("orderly", [False, True])
def test_a_close_leaves_the_healthy_broker_at_once_and_ends_in_time(orderly):
    world = world_of_two_brokers(topics=["topic"], orderly=orderly)
    world.begin()
    world.run(0)
    (call,) = world.pulls(queue_of(0, topic="topic"))
    world.found([0, 1, 2], call=call)
    (call,) = world.pulls(queue_of(0, topic="topic", broker=HUNG))
    world.found([0], call=call)
    world.network.hung.add(HUNG)
    world.network.calls.clear()
    world.close(10_000)
    world.run(300)
    done = [
        (each.name, each.args.get("offset"))
        for each in world.network.calls
        if not each.is_open
    ]
    unlocked = [("unlock", None)] if orderly else []
    assert done == [("update_offset", 3), *unlocked, ("unregister", None)]
    assert world.closed == []
    world.run(9_700)
    assert world.closed == [None]


def test_an_expression_is_checked_by_the_broker_that_answers():
    world = World(tags="a > 1", expression_type="SQL92")
    world.network.queues["orders"] = [queue_of(), queue_of(broker="broker-0")]
    world.network.hung.add("broker-0")
    world.network.hold.add("check_subscription")
    world.begin()
    world.run(100)
    first, second = world.network.of("check_subscription")
    assert (first.args["broker"], second.args["broker"]) == ("broker-0", "broker-a")
    second.answer(refusal(23, "no such syntax"))
    world.run()
    (error,) = world.started
    assert error.code == 23
    first.answer(None)
    assert world.started == [error]


@pytest.mark.parametrize("held", ["lock", "query_offset"])
def test_a_late_answer_begins_no_queue_that_was_lost_meanwhile(held):
    world = World(orderly=True)
    world.network.hold.add(held)
    world.start()
    (late,) = world.network.of(held)
    world.network.members = [OTHER]
    world.engine.rebalances.members_changed()
    world.run(1_000)
    world.network.hold.clear()
    world.network.calls.clear()
    late.answer({queue_of()} if held == "lock" else 7)
    world.run(5_000)
    assert world.member.process_queues == {}
    assert world.offset() is None
    assert not world.pulls()
    assert [call.args["queues"] for call in world.network.of("unlock")] == [
        [queue_of()]
    ]


@pytest.mark.parametrize("held", ["lock", "query_offset"])
def test_a_late_answer_begins_no_queue_of_a_member_that_closes(held):
    """The queue is unlocked, so the broker does not keep its lock for a minute."""
    world = World(orderly=True)
    world.network.hold.add(held)
    world.start()
    (late,) = world.network.of(held)
    world.network.calls.clear()
    world.close()
    world.run(10)
    assert [call.args["queues"] for call in world.network.of("unlock")] == [
        [queue_of()]
    ]
    late.answer({queue_of()} if held == "lock" else 7)
    world.run(5_000)
    assert world.member.process_queues == {}
    assert not world.pulls()
    assert world.network.names()[-1] == "unlock"


def test_a_broker_that_holds_all_pulls_is_probed_and_its_silence_is_logged_once(caplog):
    world = world_of_two_brokers(topics=["T"], probe_broker_interval_ms=3_000)
    world.start()
    world.run(20_000)
    assert caplog.messages == []
    world.network.hung.add(HUNG)
    world.run(20_000)
    assert caplog.messages == [f"{HUNG} does not answer; retrying"]
    world.network.hung.clear()
    for call in world.network.of("max_offset"):
        if call.is_open:
            call.answer(0)
    world.run(3_000)
    assert caplog.messages[1:] == [f"{HUNG} is back; continuing"]
    probed = {call.args["queue"].broker_name for call in world.network.of("max_offset")}
    assert probed == {"broker-a", HUNG}


def test_a_broker_that_refuses_a_probe_answers(caplog):
    world = world_of_two_brokers(topics=["T"], probe_broker_interval_ms=3_000)
    world.network.fail["max_offset"] = refusal()
    world.start()
    world.run(20_000)
    assert caplog.messages == []


def test_without_an_interval_no_broker_is_probed():
    world = world_of_two_brokers(topics=["T"])
    world.start()
    world.run(20_000)
    assert world.network.of("max_offset") == []
