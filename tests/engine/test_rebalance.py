"""Which queues a member gets and gives up, when, and what that costs it."""

from __future__ import annotations

import pytest

from rmqcli.engine.process_queue import QueueState
from rmqcli.engine.rebalance import HANDOVER_LOCKED_MS, HANDOVER_MS, TAKE_OVER_MS
from rmqcli.engine.running_info import running_info
from tests.engine.world import (
    BROADCASTING,
    ME,
    OTHER,
    RETRY,
    START_MS,
    TOPIC,
    World,
    no_answer,
    queue_of,
    refusal,
    started,
)


def numbers_of(world):
    return sorted(
        queue.queue_id
        for queue, each in world.member.process_queues.items()
        if queue.topic == TOPIC and not each.dropped
    )


def rebalance(world):
    """Let one happen now: a notification (code 40), after the second between two."""
    world.engine.rebalances.soon()
    world.run(1_000)


def test_queues_are_shared_by_the_strategy():
    """AVG over all queues that name servers tell of."""
    world = World(queues=5)
    world.network.members = [OTHER, ME]
    world.start()
    assert numbers_of(world) == [0, 1, 2]
    world.network.members = [ME]
    rebalance(world)
    assert numbers_of(world) == [0, 1, 2, 3, 4]


def test_only_new_queues_are_begun():
    """Those that stay are left alone, with their pulls."""
    world = World(queues=4)
    world.network.members = [ME, OTHER]
    world.start()
    kept = world.process_queue(0)
    world.network.members = [ME]
    rebalance(world)
    assert world.process_queue(0) is kept
    assert [len(world.asked(n)) for n in range(4)] == [1, 1, 1, 1]


def test_a_queue_that_is_lost_is_dropped_stored_and_forgotten():
    """Committed once more, then not known any more."""
    world = started(queues=2)
    world.found([0, 1, 2], call=world.pull(1))
    lost = world.process_queue(1)
    world.network.members = [ME, OTHER]
    rebalance(world)
    assert lost.dropped
    assert numbers_of(world) == [0]
    assert world.committed(1) == 3
    assert world.offset(1) is None


def test_each_topic_is_rebalanced_every_20_s():
    """Nobody tells of a member that vanished without a word."""
    world = World(queues=2)
    world.network.members = [ME, OTHER]
    world.start()
    world.network.members = [ME]
    world.run(19_999 - TAKE_OVER_MS)
    assert numbers_of(world) == [0]
    world.run(1)
    assert numbers_of(world) == [0, 1]


def test_a_storm_of_changes_is_one_rebalance_a_second():
    """One at a time; wishes while one runs, or within the second, become one."""
    world = started()
    assert world.engine.rebalances.runs == 1
    for _ in range(100):
        world.engine.rebalances.soon()
        world.run(100)
    assert world.engine.rebalances.runs == 11


def test_one_rebalance_at_a_time():
    """Resume, a notification and the timer cannot run into each other."""
    world = World(queues=2)
    world.network.hold.add("consumer_ids")
    world.start()
    world.engine.rebalances.soon()
    world.engine.resume()
    world.run(30_000)
    (call,) = world.network.of("consumer_ids")
    world.network.hold.clear()
    call.answer([ME])
    world.run()
    assert len(world.network.of("consumer_ids")) == 2
    assert [len(world.asked(n)) for n in range(2)] == [1, 1]


def test_a_queue_that_is_being_acquired_is_not_acquired_twice():
    world = World(queues=2)
    world.network.hold.add("query_offset")
    world.start()
    world.run(30_000)
    assert world.engine.rebalances.runs == 2
    world.network.hold.clear()
    for call in world.network.of("query_offset"):
        call.answer(None)
    assert len(world.network.of("query_offset")) == 2
    assert [len(world.asked(n)) for n in range(2)] == [1, 1]


def test_a_forgotten_pull_begins_anew_after_two_minutes():
    """Over 120 s without so much as a look at it."""
    world = started()
    world.found([0, 1])
    before = world.process_queue()
    world.run(120_000)
    assert world.process_queue() is before
    world.run(20_000)
    assert world.process_queue() is not before
    assert before.dropped
    assert world.asked()[-1].queue_offset == 2
    assert world.committed() == 2


@pytest.mark.parametrize("error", [refusal(1), refusal(2), no_answer()])
def test_a_queue_whose_offset_is_not_known_is_left_alone_and_asked_for_again(error):
    """It waits, and never begins at 0 or at the end. Source: OffsetNotFoundIT,
    testPullMessage_ExceptionOccursWhenComputePullFromWhere."""
    world = World()
    world.network.committed[queue_of()] = 400
    world.network.fail["query_offset"] = error
    world.start()
    world.run(5_000)
    assert not world.member.process_queues
    assert not world.network.of("pull")
    assert not world.network.of("update_offset")
    assert not world.network.of("max_offset")
    world.network.fail.clear()
    world.run(1_000)
    assert world.pull().args["ask"].queue_offset == 400


def test_one_queue_without_an_offset_does_not_hold_the_others():
    """Every second query fails."""
    world = World(queues=4)
    world.network.hold.add("query_offset")
    world.start()
    for number, call in enumerate(world.network.of("query_offset")):
        call.answer(refusal() if number % 2 else 10)
    assert numbers_of(world) == [0, 2]
    world.network.hold.clear()
    world.run(1_000)
    assert numbers_of(world) == [0, 1, 2, 3]


# What cannot be allocated


@pytest.mark.parametrize("members", [[], [OTHER]])
def test_not_being_among_the_members(members):
    """An empty list changes nothing; a list without us takes all queues."""
    world = started(queues=2)
    world.network.members = members
    rebalance(world)
    assert numbers_of(world) == ([] if members else [0, 1])
    world.network.members = [ME]
    world.run(20_000)
    assert numbers_of(world) == [0, 1]


def test_no_queues_at_all_changes_nothing():
    """An answer with a topic without queues is a mistake."""
    world = started(queues=2)
    world.network.queues[TOPIC] = []
    world.run(40_000)
    assert numbers_of(world) == [0, 1]
    assert not world.process_queue(0).dropped


def test_brokers_that_do_not_answer_change_nothing():
    """The queues stay, and it is tried again each second."""
    world = started(queues=2)
    world.network.fail["consumer_ids"] = no_answer()
    rebalance(world)
    runs = world.engine.rebalances.runs
    world.run(10_000)
    assert world.engine.rebalances.runs == runs + 10
    assert numbers_of(world) == [0, 1]
    world.network.fail.clear()
    world.network.members = [ME, OTHER]
    world.run(1_000)
    assert numbers_of(world) == [0]


def test_name_servers_that_do_not_answer_change_nothing():
    world = started(queues=2)
    world.network.fail["fetch_queues"] = no_answer()
    world.run(120_000)
    assert numbers_of(world) == [0, 1]


def test_new_queues_are_taken_with_the_route_that_shows_them():
    """Not 20 s later, as Java's are."""
    world = started(queues=2)
    world.network.queues[TOPIC] = [queue_of(n) for n in range(4)]
    world.run(30_000)
    assert numbers_of(world) == [0, 1, 2, 3]


def test_queues_that_are_gone_are_given_up():
    world = started(queues=4)
    world.network.queues[TOPIC] = [queue_of(0)]
    world.run(30_000)
    assert numbers_of(world) == [0]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_topic_that_is_not_subscribed_any_more_is_given_up_in_good_order(orderly):
    """Stored and unlocked; Java drops it as it is."""
    world = started(orderly=orderly)
    world.found([0, 1])
    del world.member.subscriptions[TOPIC]
    rebalance(world)
    assert not world.member.process_queues
    assert world.committed() == 2
    unlocked = [call.args["queues"] for call in world.network.of("unlock")]
    assert unlocked == ([[queue_of()]] if orderly else [])


# What a change brings with it


@pytest.mark.parametrize(
    ("limit", "queues", "expected"),
    [(1_024, 2, 512), (1_024, 3, 341), (2, 3, 1), (None, 3, 1_000)],
)
def test_a_topic_s_limit_is_shared_by_all_queues(limit, queues, expected):
    """At least 1; without a limit the queue's own stays. The setting itself is never
    overwritten. Source: testMessageQueueChanged_CountThreshold."""
    world = started(queues=queues, pull_threshold_for_topic=limit)
    assert world.member.pull_threshold_for_queue == expected
    assert world.member.config.pull_threshold_for_queue == 1_000


@pytest.mark.parametrize(
    ("limit", "queues", "expected"), [(1_024, 2, 512), (1_024, 3, 341), (None, 3, 100)]
)
def test_a_topic_s_size_limit_is_shared_by_all_queues(limit, queues, expected):
    """Source: testMessageQueueChanged_SizeThreshold."""
    world = started(queues=queues, pull_threshold_size_for_topic_mib=limit)
    assert world.member.pull_threshold_size_for_queue_mib == expected


def test_the_retry_queue_counts_too():
    """All queues of the member, whatever their topic."""
    world = started(queues=2, pull_threshold_for_topic=1_024, has_retry_route=True)
    assert len(world.member.process_queues) == 3
    assert world.member.pull_threshold_for_queue == 341


@pytest.mark.parametrize(("queues", "expected"), [(1, "1024"), (2, "512"), (3, "341")])
def test_running_info_has_the_limit_that_counts(queues, expected):
    """testMessageQueueChanged_ConsumerRuntimeInfo, testConsumerRunningInfo."""
    world = started(queues=queues, pull_threshold_for_topic=1_024)
    info = running_info(
        world.member, namesrv="127.0.0.1:9876", version_name="V", started_epoch_ms=5
    )
    names = (
        "pullThresholdForQueue",
        "pullThresholdForTopic",
        "pullThresholdSizeForQueue",
        "pullThresholdSizeForTopic",
    )
    assert [info.properties[name] for name in names] == [expected, "1024", "100", "-1"]


def test_the_broker_knows_of_a_change_before_the_first_pull():
    """A new version, its heartbeat answered, then the pull, at once (5.x waits for 500
    ms)."""
    world = World()
    world.network.hold.add("heartbeat")
    world.start()
    world.clock.advance(5)
    world.network.of("heartbeat")[0].answer(1)
    assert not world.network.of("pull")
    second = world.network.of("heartbeat")[1]
    (consumer,) = second.args["heartbeat"].consumers
    versions = {each.topic: each.sub_version for each in consumer.subscriptions}
    assert versions == {TOPIC: START_MS + 5, RETRY: START_MS}
    second.answer(1)
    assert world.asked()[0].sub_version == START_MS + 5


def test_every_change_is_a_newer_version_of_the_subscription():
    world = started(queues=2)
    world.network.members = [ME, OTHER]
    rebalance(world)
    assert world.member.subscriptions[TOPIC].sub_version == START_MS + 1_000
    last = world.network.of("heartbeat")[-1].args["heartbeat"]
    assert last.consumers[0].subscriptions[0].sub_version == START_MS + 1_000


def test_a_heartbeat_that_no_broker_accepts_does_not_stop_the_pulls():
    world = World()
    world.network.hold.add("heartbeat")
    world.start()
    first = world.network.of("heartbeat")[0]
    first.answer(1)
    world.network.of("heartbeat")[1].answer(no_answer())
    assert world.pulls()


def test_the_retry_queue_is_owned_as_soon_as_it_is_there():
    """The first heartbeat makes it; a Java member has it with its next rebalance."""
    world = World()
    world.start()
    world.run(200)
    world.network.queues[RETRY] = [queue_of(topic=RETRY)]
    world.run(1_000)
    assert queue_of(topic=RETRY) in world.member.process_queues


def test_a_member_that_pauses_keeps_its_queues():
    """testSuspend: no rebalance, until it resumes."""
    world = started(queues=2)
    world.engine.pause()
    world.network.members = [ME, OTHER]
    world.run(60_000)
    assert numbers_of(world) == [0, 1]
    world.engine.resume()
    world.run(1_000)
    assert numbers_of(world) == [0]


def test_everybody_has_all_queues_when_broadcasting():
    """No member is asked for, nothing is locked."""
    world = started(queues=3, message_model=BROADCASTING, orderly=True)
    assert numbers_of(world) == [0, 1, 2]
    assert not world.network.of("consumer_ids")
    assert not world.network.of("lock")


# Orderly


def test_new_orderly_queues_are_locked_in_one_request_a_broker():
    """And consumed at once, for a ProcessQueue is born locked."""
    world = World(orderly=True)
    world.network.queues[TOPIC] = [
        queue_of(0),
        queue_of(1),
        queue_of(0, broker="broker-b"),
    ]
    world.start()
    locks = [call.args["queues"] for call in world.network.of("lock")]
    assert locks == [[queue_of(0), queue_of(1)], [queue_of(0, broker="broker-b")]]
    world.found([0], call=world.pull(0))
    assert world.elapsed_ms == 0
    assert world.offsets_seen() == [0]


def test_a_queue_that_another_member_has_locked_is_requested_again():
    """After 500 ms, as far as the second between two rebalances lets it."""
    world = World(orderly=True, queues=2)
    world.network.locked_by_others.add(queue_of(1))
    world.start()
    assert numbers_of(world) == [0]
    world.network.locked_by_others.clear()
    world.run(1_000)
    assert numbers_of(world) == [0, 1]


def test_an_orderly_queue_whose_listener_works_is_given_up_when_that_ends():
    """Kept and not unlocked; the next owner waits."""
    world = started(orderly=True)
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.network.members = [OTHER]
    rebalance(world)
    world.run(HANDOVER_LOCKED_MS)
    lost = world.process_queue()
    assert lost.dropped
    assert lost.try_unlock_times == 1
    assert not world.network.of("unlock")
    world.settle()
    world.run(1_000)
    assert not world.member.process_queues
    assert [call.args["queues"] for call in world.network.of("unlock")] == [
        [queue_of()]
    ]


def test_a_listener_that_does_not_end_loses_its_lock_20_s_after_the_last_renewal():
    """UNLOCK_DELAY_TIME_MILLS; what it has is void then."""
    world = started(orderly=True)
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.network.members = [OTHER]
    rebalance(world)
    world.run(HANDOVER_LOCKED_MS)
    renewed_ms = world.process_queue().last_lock_ms
    world.run(renewed_ms + 20_000 - world.clock.now_ms)
    assert not world.network.of("unlock")
    world.run(1_000)
    assert len(world.network.of("unlock")) == 1
    commits = len(world.network.of("update_offset"))
    world.settle()
    world.run(60_000)
    assert len(world.network.of("update_offset")) == commits


def test_a_queue_lost_and_regained_while_its_listener_works_begins_once_it_ended():
    """Java leaves it dead for 120 s; never two calls."""
    world = started(orderly=True)
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.network.members = [OTHER]
    rebalance(world)
    world.run(HANDOVER_LOCKED_MS)
    world.network.members = [ME]
    rebalance(world)
    assert world.process_queue().dropped
    assert len(world.asked()) == 2
    world.settle()
    world.run(1_000)
    assert not world.process_queue().dropped
    assert [ask.queue_offset for ask in world.asked()] == [0, 2, 0]


def test_a_member_that_loses_a_queue_commits_what_its_listener_is_consuming():
    """Nothing comes twice because a member came, if listeners are quick."""
    world = started(queues=2)
    world.holds_work = True
    world.found([0, 1, 2], call=world.pull(1))
    world.consume()
    world.network.members = [ME, OTHER]
    world.engine.rebalances.members_changed()
    world.run(150)
    lost = world.process_queue(1)
    assert not lost.dropped
    world.settle()
    world.run(HANDOVER_MS)
    assert lost.dropped
    assert world.committed(1) == 3
    assert numbers_of(world) == [0]


def test_a_member_that_loses_a_locked_queue_commits_before_it_unlocks():
    """The batch that was begun ends, no other begins, and nothing comes twice."""
    world = started(orderly=True)
    world.holds_work = True
    world.found([0, 1, 2])
    world.consume()
    world.network.members = [OTHER]
    world.engine.rebalances.members_changed()
    world.run(HANDOVER_LOCKED_MS // 2)
    assert not world.network.of("unlock")
    world.settle()
    world.run(100)
    calls = [
        (call.name, call.args.get("offset"))
        for call in world.network.calls
        if call.name in ("update_offset", "unlock")
    ]
    assert calls == [("update_offset", 3), ("unlock", None)]
    assert not world.member.process_queues


def test_a_member_that_gains_a_queue_waits_for_the_last_owner_to_commit():
    world = World(queues=2)
    world.network.members = [ME, OTHER]
    world.begin()
    world.run(TAKE_OVER_MS - 1)
    assert not world.network.of("query_offset")
    world.run(1)
    assert world.network.of("query_offset")


def test_news_of_members_wait_for_a_tenth_of_a_second_only():
    world = started()
    for _ in range(100):
        world.engine.rebalances.members_changed()
        world.run(10)
    assert world.engine.rebalances.runs == 11


# Giving up and closing


@pytest.mark.parametrize("orderly", [False, True])
def test_a_queue_that_is_given_up_is_dropped_and_late_results_are_void(orderly):
    world = started(orderly=orderly)
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    given_up = world.process_queue()
    world.engine.rebalance.give_up(queue_of())
    assert given_up.dropped
    assert world.member.process_queues == {}
    world.settle()
    assert world.offset() is None or world.offset() == 0
    assert world.committed() is None
    world.engine.rebalance.give_up(queue_of())  # once more is nothing


@pytest.mark.parametrize("orderly", [False, True])
def test_a_hand_over_stops_the_work_and_the_pulls_of_its_queue(orderly):
    """What was begun ends; nothing else of the queue is begun or handed out."""
    world = World(orderly=orderly, queues=2, share_slow_pulls=False)
    world.start()
    world.holds_work = True
    world.found(range(5), call=world.pull(1))
    (request,) = world.workers.requests
    if not orderly:
        request.begun.append(None)  # a thread took it
    waiting = world.pull(1)
    world.network.members = [ME, OTHER]
    world.engine.rebalances.members_changed()
    world.run(100)
    lost = world.process_queue(1)
    assert lost.state is QueueState.RELEASED
    assert request.is_cancelled
    world.found(range(5, 9), call=waiting)
    assert world.workers.requests == [request]
    assert lost.msg_count == 5
    assert not world.pulls(queue_of(1))
    world.run(HANDOVER_LOCKED_MS)
    assert lost.dropped


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("held", ["consumer_ids", "fetch_queues"])
def test_a_member_that_closes_acquires_nothing_more(orderly, held):
    """Not even with the answer that a rebalance had waited for."""
    world = World(orderly=orderly)
    world.start()
    world.run(5_000)
    world.network.queues[TOPIC] = [queue_of(0), queue_of(1)]
    world.network.hold.add(held)
    world.run(60_000)
    late = [call for call in world.network.of(held) if call.is_open]
    assert late
    world.close()
    world.network.calls.clear()
    world.network.hold.clear()
    for call in late:
        call.answer([ME] if held == "consumer_ids" else world.network.queues[TOPIC])
    world.run(60_000)
    assert world.closed == [None]
    assert world.member.process_queues == {}
    assert not set(world.network.names()) & {"lock", "query_offset", "pull"}


def test_a_reset_of_a_locked_queue_keeps_its_lock_as_old_as_it_is():
    """It begins again without asking for the lock, which so is no newer."""
    world = started(orderly=True)
    world.found([0, 1])
    world.run(10_000)
    before = world.process_queue()
    locked_ms = before.last_lock_ms
    before.lock_lost()
    world.engine.move({queue_of(): 0})
    world.run(300)
    again = world.process_queue()
    assert again is not before
    assert (again.locked, again.last_lock_ms) == (False, locked_ms)


def test_a_reset_of_a_locked_queue_is_pulled_from_the_new_offset_without_a_question():
    """A broker that has not stored it yet could answer with the old one."""
    world = started(orderly=True)
    world.found([0, 1])
    world.network.calls.clear()
    world.engine.move({queue_of(): 1})
    world.run(300)
    assert not world.network.of("query_offset")
    assert world.asked()[-1].queue_offset == 1


def test_a_lock_is_as_old_as_its_request():
    """However late the offset of the queue, or the answer of the lock, comes."""
    world = World(orderly=True)
    world.network.hold |= {"lock", "query_offset"}
    world.start()
    asked_ms = world.clock.now_ms
    world.run(700)
    world.network.of("lock")[0].answer({queue_of()})
    world.run(4_000)
    world.network.hold.clear()
    world.network.of("query_offset")[0].answer(None)
    assert world.process_queue().last_lock_ms == asked_ms


def test_a_lock_that_is_refused_late_is_asked_for_again_within_a_second():
    """The rebalance has ended by then, and took the queue for as good as acquired."""
    world = World(orderly=True)
    world.network.hold.add("lock")
    world.start()
    world.run(800)
    world.network.hold.clear()
    world.network.of("lock")[0].answer(set())
    assert not world.member.process_queues
    world.run(1_000)
    assert numbers_of(world) == [0]


def test_an_offset_that_makes_no_sense_stops_no_queue(caplog):
    """Whatever goes wrong while a queue is acquired, it is tried again."""
    world = World()
    world.network.hold.add("query_offset")
    world.start()
    world.run(800)
    world.network.hold.clear()
    world.network.of("query_offset")[0].answer("nonsense")
    assert "failed unexpectedly" in caplog.text
    assert not world.member.process_queues
    world.run(1_000)
    assert numbers_of(world) == [0]


# Plans, and what brokers are told of a change


def times_of(world, name):
    return [call.at_ms - START_MS for call in world.network.of(name)]


def test_the_next_regular_rebalance_is_20_s_after_the_last_one():
    """Also when that one was asked for: what was planned before it does nothing."""
    world = started()
    world.run(5_000)
    world.engine.rebalances.soon()
    world.run(45_000)
    assert times_of(world, "consumer_ids") == [0, 5_000, 25_000, 45_000]


def test_of_two_wishes_during_a_rebalance_the_more_urgent_one_counts():
    world = started()
    world.run(5_000)
    world.network.hold.add("consumer_ids")
    world.engine.rebalances.soon()
    world.run(10)
    world.engine.rebalances.members_changed()
    world.engine.rebalances.soon()
    world.run(10)
    world.network.hold.clear()
    world.network.of("consumer_ids")[-1].answer([ME])
    world.run(1_000)
    assert times_of(world, "consumer_ids") == [0, 5_000, 5_100]


def test_a_queue_that_cannot_begin_is_told_to_brokers_once():
    """However often it is tried: its heartbeat has gone out, its version stays."""
    world = World(queues=2)
    world.network.queues["more"] = [queue_of(topic="more")]
    world.member.subscriptions["more"] = world.member.subscriptions[TOPIC]
    world.network.fail["query_offset"] = no_answer()
    world.start()
    beats = len(world.network.of("heartbeat"))
    versions = [each.sub_version for each in world.member.subscriptions.values()]
    world.run(10_500)
    assert world.engine.rebalances.runs == 11
    assert len(world.network.of("heartbeat")) == beats == 3
    assert versions == [
        each.sub_version for each in world.member.subscriptions.values()
    ]


def test_a_queue_that_was_assigned_to_another_meanwhile_is_told_again():
    world = World()
    world.network.fail["query_offset"] = no_answer()
    world.start()
    assert times_of(world, "heartbeat") == [0, 0]
    world.network.members = [OTHER]
    rebalance(world)
    world.network.members = [ME]
    rebalance(world)
    assert times_of(world, "heartbeat") == [0, 0, 2_000]
    assert world.member.subscriptions[TOPIC].sub_version == START_MS + 2_000
