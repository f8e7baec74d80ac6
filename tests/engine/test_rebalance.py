"""Rebalances: which queues a member acquires and gives up, and when."""

from __future__ import annotations

import pytest

from rmqcli.engine.process_queue import QueueState
from rmqcli.engine.rebalance import HANDOVER_LOCKED_MS, HANDOVER_MS, TAKE_OVER_MS
from rmqcli.engine.running_info import running_info
from tests.engine.world import (
    BROADCASTING,
    GROUP,
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
    """Request a rebalance, and run until it has ended, a second after the last one."""
    world.engine.rebalances.soon()
    world.run(1_000)


@pytest.mark.injects_exceptions
@pytest.mark.parametrize("error", [ValueError, SystemExit, pytest.fail.Exception])
def test_a_strategy_that_raises_is_asked_again_by_the_next_rebalance(error, caplog):
    class Failing:
        name = "FAILING"
        fails = True

        def allocate(self, *, queues, **_):
            if self.fails:
                raise error("injected")
            return queues

    strategy = Failing()
    world = World(queues=2, strategy=strategy)
    world.start()
    assert numbers_of(world) == []
    assert error.__name__ in caplog.text
    strategy.fails = False
    rebalance(world)
    assert numbers_of(world) == [0, 1]


def test_queues_are_shared_by_the_allocation_strategy():
    """The strategy is AVG, and shares all queues of the topic's route."""
    world = World(queues=5)
    world.network.members = [OTHER, ME]
    world.start()
    assert numbers_of(world) == [0, 1, 2]
    world.network.members = [ME]
    rebalance(world)
    assert numbers_of(world) == [0, 1, 2, 3, 4]


def test_a_strategy_gets_the_group_and_what_each_member_sorts_alike():
    """Members that sorted differently would take the same queue, or leave one."""
    given: list[dict[str, object]] = []

    class Recording:
        name = "RECORDING"

        def allocate(self, **arguments):
            given.append(arguments)
            return []

    world = World(queues=3, strategy=Recording())
    world.network.queues[TOPIC].reverse()
    world.network.members = [OTHER, ME]
    world.start()
    assert given[0] == {
        "group": GROUP,
        "current_cid": ME,
        "queues": [queue_of(0), queue_of(1), queue_of(2)],
        "cids": [ME, OTHER],
    }


def test_a_rebalance_leaves_queues_alone_that_stay():
    """Their pulls under way continue."""
    world = World(queues=4)
    world.network.members = [ME, OTHER]
    world.start()
    kept = world.process_queue(0)
    world.network.members = [ME]
    rebalance(world)
    assert world.process_queue(0) is kept
    assert [len(world.asked(n)) for n in range(4)] == [1, 1, 1, 1]


def test_a_queue_that_is_lost_is_dropped_committed_and_forgotten():
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
    """Otherwise a member that vanished without unregistering would not be noticed."""
    world = World(queues=2)
    world.network.members = [ME, OTHER]
    world.start()
    world.network.members = [ME]
    world.run(19_999 - TAKE_OVER_MS)
    assert numbers_of(world) == [0]
    world.run(1)
    assert numbers_of(world) == [0, 1]


def test_many_changes_cause_one_rebalance_a_second():
    """Requests during a rebalance, or within a second after its start, cause one
    rebalance."""
    world = started()
    assert world.engine.rebalances.runs == 1
    for _ in range(100):
        world.engine.rebalances.soon()
        world.run(100)
    assert world.engine.rebalances.runs == 11


def test_only_one_rebalance_runs_at_a_time():
    """It may be requested by resume, by a notification or by the timer."""
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


def test_a_queue_that_was_not_pulled_for_two_minutes_begins_anew():
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
def test_a_queue_whose_offset_is_not_known_waits_and_is_queried_again(error, caplog):
    """It never begins at 0 or at the end. Source: OffsetNotFoundIT,
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
    assert sum("offsets unknown" in text for text in caplog.messages) == 1
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


# Allocations that are not possible


@pytest.mark.parametrize("members", [[], [OTHER]])
def test_a_member_that_is_not_in_the_list_of_members_gives_its_queues_up(members):
    """An empty list changes nothing."""
    world = started(queues=2)
    world.network.members = members
    rebalance(world)
    assert numbers_of(world) == ([] if members else [0, 1])
    world.network.members = [ME]
    world.run(20_000)
    assert numbers_of(world) == [0, 1]


def test_a_route_without_queues_changes_nothing():
    """Such a route is taken for a mistake."""
    world = started(queues=2)
    world.network.queues[TOPIC] = []
    world.run(40_000)
    assert numbers_of(world) == [0, 1]
    assert not world.process_queue(0).dropped


def test_brokers_that_do_not_answer_change_nothing():
    """The queues stay, and the members are queried again every second."""
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


def test_a_failure_that_lasts_is_logged_when_it_begins_changes_and_ends(caplog):
    """A broker that hung filled the log of `rmq consume` with a line a second."""
    caplog.set_level("INFO", "rmqcli.engine.rebalance")
    world = started(queues=2)
    world.network.fail["consumer_ids"] = no_answer()
    rebalance(world)
    world.run(10_000)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caplog.messages[0].startswith("rebalance failed topic=orders: ")
    world.network.fail["consumer_ids"] = refusal(remark="busy")
    world.run(10_000)
    assert len(caplog.messages) == 2
    assert "busy" in caplog.messages[1]
    world.network.fail.clear()
    world.run(40_000)
    assert caplog.messages[2:] == ["rebalance works again topic=orders"]
    world.network.fail["consumer_ids"] = no_answer()
    world.run(40_000)
    assert caplog.messages[3:] == caplog.messages[:1]


def test_name_servers_that_do_not_answer_change_nothing():
    world = started(queues=2)
    world.network.fail["fetch_queues"] = no_answer()
    world.run(120_000)
    assert numbers_of(world) == [0, 1]


def test_new_queues_are_consumed_as_soon_as_the_route_shows_them():
    """In Java they wait for the next rebalance, for up to 20 s."""
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
def test_queues_of_a_topic_that_is_no_longer_subscribed_are_committed_and_unlocked(
    orderly,
):
    """In Java they are only dropped."""
    world = started(orderly=orderly)
    world.found([0, 1])
    del world.member.subscriptions[TOPIC]
    rebalance(world)
    assert not world.member.process_queues
    assert world.committed() == 2
    unlocked = [call.args["queues"] for call in world.network.of("unlock")]
    assert unlocked == ([[queue_of()]] if orderly else [])


def test_a_topic_that_is_no_longer_subscribed_is_rebalanced_once_more(caplog):
    world = started()
    rebalance(world)
    del world.member.subscriptions[TOPIC]
    rebalance(world)
    world.run(120_000)
    assert caplog.messages == []


# Effects of a change


@pytest.mark.parametrize(
    ("limit", "queues", "expected"),
    [(1_024, 2, 512), (1_024, 3, 341), (2, 3, 1), (None, 3, 1_000)],
)
def test_a_topic_s_threshold_is_divided_by_the_number_of_queues(
    limit, queues, expected
):
    """The result is at least 1. Without a topic's threshold the queue's own setting
    counts, which is never overwritten. Source:
    testMessageQueueChanged_CountThreshold."""
    world = started(queues=queues, pull_threshold_for_topic=limit)
    assert world.member.pull_threshold_for_queue == expected
    assert world.member.config.pull_threshold_for_queue == 1_000


@pytest.mark.parametrize(
    ("limit", "queues", "expected"), [(1_024, 2, 512), (1_024, 3, 341), (None, 3, 100)]
)
def test_a_topic_s_size_threshold_is_divided_by_the_number_of_queues(
    limit, queues, expected
):
    """Source: testMessageQueueChanged_SizeThreshold."""
    world = started(queues=queues, pull_threshold_size_for_topic_mib=limit)
    assert world.member.pull_threshold_size_for_queue_mib == expected


def test_a_topic_s_threshold_is_divided_by_retry_queues_too():
    """It is divided by the number of all queues of the member, of any topic."""
    world = started(queues=2, pull_threshold_for_topic=1_024, has_retry_route=True)
    assert len(world.member.process_queues) == 3
    assert world.member.pull_threshold_for_queue == 341


@pytest.mark.parametrize(("queues", "expected"), [(1, "1024"), (2, "512"), (3, "341")])
def test_the_running_info_has_the_divided_threshold(queues, expected):
    """Source: testMessageQueueChanged_ConsumerRuntimeInfo, testConsumerRunningInfo."""
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


def test_a_changed_subscription_is_sent_in_a_heartbeat_before_the_first_pull():
    """The pull is sent when the heartbeat is answered; 5.x waits for 500 ms instead."""
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


def test_the_retry_queue_is_consumed_as_soon_as_it_is_there():
    """The first heartbeat makes the broker create it. A Java member begins it with its
    next rebalance."""
    world = World()
    world.start()
    world.run(200)
    world.network.queues[RETRY] = [queue_of(topic=RETRY)]
    world.run(1_000)
    assert queue_of(topic=RETRY) in world.member.process_queues


def test_a_paused_member_keeps_its_queues_and_does_not_rebalance():
    """It rebalances when it resumes. Source: testSuspend."""
    world = started(queues=2)
    world.engine.pause()
    world.network.members = [ME, OTHER]
    world.run(60_000)
    assert numbers_of(world) == [0, 1]
    world.engine.resume()
    world.run(1_000)
    assert numbers_of(world) == [0]


def test_a_broadcasting_member_has_all_queues():
    """It queries no members and locks nothing."""
    world = started(queues=3, message_model=BROADCASTING, orderly=True)
    assert numbers_of(world) == [0, 1, 2]
    assert not world.network.of("consumer_ids")
    assert not world.network.of("lock")


# Orderly


def test_new_orderly_queues_are_locked_with_one_request_for_each_broker():
    """They are consumed at once, because their ProcessQueue begins with the lock."""
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


def test_a_queue_that_another_member_has_locked_is_requested_again_after_500_ms():
    """It may be later, because rebalances are at least a second apart."""
    world = World(orderly=True, queues=2)
    world.network.locked_by_others.add(queue_of(1))
    world.start()
    assert numbers_of(world) == [0]
    world.network.locked_by_others.clear()
    world.run(1_000)
    assert numbers_of(world) == [0, 1]


def test_an_orderly_queue_is_given_up_when_its_listener_has_ended():
    """Until then it stays locked, and the next owner waits."""
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
    """The listener's later result has no effect. Source: UNLOCK_DELAY_TIME_MILLS."""
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
    """In Java it is not consumed for 120 s. There are never two calls at once."""
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
    """With quick listeners, no message is consumed twice because a member joins."""
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
    """The batch under way ends, no other batch begins, and no message is consumed
    twice."""
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


def test_a_notification_of_changed_members_causes_a_rebalance_after_100_ms():
    world = started()
    for _ in range(100):
        world.engine.rebalances.members_changed()
        world.run(10)
    assert world.engine.rebalances.runs == 11


# Giving up and closing


@pytest.mark.parametrize("orderly", [False, True])
def test_results_for_a_queue_that_was_given_up_have_no_effect(orderly):
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
    world.engine.rebalance.give_up(queue_of())  # a second call has no effect


@pytest.mark.parametrize("orderly", [False, True])
def test_a_queue_that_goes_to_another_member_is_neither_pulled_nor_handed_out(orderly):
    """The listener's call under way ends, and its result counts."""
    world = World(orderly=orderly, queues=2, shares_slow_pulls=False)
    world.start()
    world.holds_work = True
    world.found(range(5), call=world.pull(1))
    (request,) = world.workers.requests
    if not orderly:
        request.begun.append(None)  # a thread has taken the request
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
def test_a_member_that_closes_acquires_no_queue(orderly, held):
    """It acquires none even when the answer arrives for which a rebalance waited."""
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


def test_a_reset_does_not_make_the_lock_of_a_queue_newer():
    """The queue begins again without a new request for the lock."""
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


def test_a_reset_of_a_locked_queue_does_not_query_the_offset_again():
    """A broker that has not stored the new offset yet could answer with the old one."""
    world = started(orderly=True)
    world.found([0, 1])
    world.network.calls.clear()
    world.engine.move({queue_of(): 1})
    world.run(300)
    assert not world.network.of("query_offset")
    assert world.asked()[-1].queue_offset == 1


def test_the_age_of_a_lock_counts_from_its_request():
    """The answer, or the offset of the queue, may arrive much later."""
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
    """The rebalance that requested the lock has ended by then."""
    world = World(orderly=True)
    world.network.hold.add("lock")
    world.start()
    world.run(800)
    world.network.hold.clear()
    world.network.of("lock")[0].answer(set())
    assert not world.member.process_queues
    world.run(1_000)
    assert numbers_of(world) == [0]


@pytest.mark.injects_exceptions
def test_a_queue_is_tried_again_after_an_impossible_offset(caplog):
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


# Schedules, and heartbeats after a change


def times_of(world, name):
    return [call.at_ms - START_MS for call in world.network.of(name)]


def test_the_next_regular_rebalance_is_20_s_after_the_last_one():
    """This is also true when the last one was requested and not regular."""
    world = started()
    world.run(5_000)
    world.engine.rebalances.soon()
    world.run(45_000)
    assert times_of(world, "consumer_ids") == [0, 5_000, 25_000, 45_000]


def test_of_two_requests_during_a_rebalance_the_more_urgent_one_counts():
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


def test_a_queue_that_cannot_begin_causes_one_heartbeat():
    """Further attempts do not change the version of the subscription."""
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


def test_a_queue_that_comes_back_from_another_member_causes_another_heartbeat():
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
