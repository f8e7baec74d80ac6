"""A member from its start to its end."""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any

import pytest

from rmqcli.engine.consume.request import run_at_once
from rmqcli.engine.listener import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from rmqcli.engine.message import Origin, PulledRecord
from rmqcli.engine.pull_message import CARRIED_MS
from rmqcli.engine.running_info import consume_directly, consumer_status
from rmqcli.errors import NotFoundError
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.pull_answer import PullStatus
from rmqcli.wire.subscription import parse_subscription
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
    stored,
)


def test_a_start_fetches_routes_then_sends_a_heartbeat_then_rebalances():
    """The rebalance waits for the heartbeat's answer. Source:
    testStart_OffsetShouldNotNUllAfterStart."""
    world = World()
    world.network.hold |= {"heartbeat", "fetch_queues"}
    world.start()
    assert world.network.names() == ["fetch_queues", "fetch_queues"]
    for call in world.network.of("fetch_queues"):
        call.answer([queue_of()] if call.args["topic"] == TOPIC else refusal(17))
    assert world.network.names()[2:] == ["heartbeat"]
    assert world.started == []
    world.network.hold.clear()
    world.network.of("heartbeat")[0].answer(None)
    assert world.started == [None]
    assert world.member.offsets is not None
    assert world.pulls()


def test_a_heartbeat_has_the_settings_and_subscriptions_of_the_member():
    """It includes the subscription of the retry topic."""
    world = started(tags="A || B")
    heartbeat = world.network.of("heartbeat")[0].args["heartbeat"]
    assert heartbeat.client_id == ME
    (consumer,) = heartbeat.consumers
    assert consumer.group_name == "g"
    assert consumer.consume_type == "CONSUME_PASSIVELY"
    assert consumer.message_model == "CLUSTERING"
    assert consumer.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
    texts = {each.topic: each.sub_string for each in consumer.subscriptions}
    assert texts == {TOPIC: "A || B", RETRY: "*"}


def test_broadcasting_has_no_retry_topic():
    world = started(message_model=BROADCASTING)
    (consumer,) = world.network.of("heartbeat")[0].args["heartbeat"].consumers
    assert [each.topic for each in consumer.subscriptions] == [TOPIC]
    assert consumer.message_model == "BROADCASTING"


@pytest.mark.parametrize("reason", ["no broker is known", "no broker accepts"])
def test_a_start_waits_for_a_broker_that_accepts_a_heartbeat(reason):
    """It tries once a second, and fetches the routes before each attempt."""
    world = World()
    if reason == "no broker is known":
        queues, world.network.queues = world.network.queues, {}
        world.start()
        assert not world.network.of("heartbeat")
        world.network.queues = queues
    else:
        world.network.fail["heartbeat"] = no_answer()
        world.start()
        world.run(3_000)
        assert len(world.network.of("heartbeat")) == 4
        world.network.fail.clear()
    assert world.started == []
    world.run(1_000)
    assert world.started == [None]
    assert world.pulls()


@pytest.mark.parametrize("expression_type", ["SQL92", "TAG"])
def test_a_start_lets_a_broker_check_sql_before_anything_else(expression_type):
    """The request is CHECK_CLIENT_CONFIG (46). If the broker refuses it, the start
    raises that error, and nothing else is sent."""
    world = World(tags="a > 1", expression_type=expression_type)
    world.network.fail["check_subscription"] = refusal(23, "no such syntax")
    world.start()
    if expression_type == "TAG":
        assert world.started == [None]
        return
    (error,) = world.started
    assert error.code == 23
    assert not world.network.of("heartbeat")
    assert not world.pulls()


def test_routes_are_fetched_and_heartbeats_sent_every_30_s():
    """They do not depend on each other."""
    world = started()
    world.network.calls.clear()
    world.run(60_000)

    def times(name):
        return [call.at_ms - START_MS for call in world.network.of(name)]

    assert times("heartbeat") == [30_000, 60_000]
    assert [
        call.at_ms - START_MS
        for call in world.network.of("fetch_queues")
        if call.args["topic"] == TOPIC
    ] == [30_000, 60_000]
    assert times("consumer_ids") == [20_000, 40_000, 60_000]


@pytest.mark.parametrize(("is_lost", "level"), [(False, "WARNING"), (True, "DEBUG")])
def test_a_heartbeat_that_fails_is_news_unless_the_broker_is_known_to_be_lost(
    caplog, is_lost, level
):
    world = started()
    if is_lost:
        (pull,) = world.pulls()
        pull.answer(no_answer())
    caplog.set_level(logging.DEBUG)
    world.network.fail["heartbeat"] = no_answer()
    world.run(30_000)
    levels = [
        each.levelname
        for each in caplog.records
        if each.getMessage().startswith("heartbeat failed broker=broker-a: no answer")
    ]
    assert levels == [level]


@pytest.mark.parametrize("name", ["fetch_queues", "consumer_ids", "lock"])
def test_heartbeats_go_on_while_another_request_is_not_answered(name):
    """In Java one thread sends both."""
    world = started(orderly=True)
    world.found([0])
    world.network.hold.add(name)
    world.network.calls.clear()
    world.run(120_000)
    assert len(world.network.of("heartbeat")) == 4
    assert len(world.network.of("update_offset")) == 23


@pytest.mark.injects_exceptions
@pytest.mark.parametrize(
    ("name", "interval_ms", "options"),
    [
        ("fetch_queues", 30_000, {}),
        ("heartbeat", 30_000, {}),
        ("update_offset", 5_000, {}),
        ("lock", 20_000, {"orderly": True}),
        ("consumer_ids", 1_000, {}),  # a failed rebalance is repeated after a second
        ("send_back", 60_000, {"consume_timeout_ms": 60_000}),
    ],
)
def test_a_periodic_task_goes_on_after_an_unexpected_exception(
    name, interval_ms, options, caplog
):
    """The exception is logged, and the task runs again at its next time."""
    world = started(**options)
    if name == "send_back":
        world.holds_work = True
    world.found([0, 1])
    if name == "send_back":
        world.consume()
        world.process_queue().first().consume_start_ms = START_MS
    world.network.broken[name] = ZeroDivisionError("injected")
    world.hold_ms = 15_000
    if name == "send_back":
        world.network.broken["send_retry"] = ZeroDivisionError("injected")
    world.run(190_000)
    calls = world.network.of(name)
    times = {each.at_ms for each in calls if each.args.get("topic", TOPIC) == TOPIC}
    turns = sorted(times - {START_MS})
    assert len(turns) >= 2
    gaps = {after - before for before, after in itertools.pairwise(turns)}
    assert max(gaps) == interval_ms
    assert "injected" in caplog.text
    world.network.broken.clear()
    world.network.calls.clear()
    world.run(61_000)
    assert world.network.of(name)
    assert not world.process_queue().dropped


@pytest.mark.injects_exceptions
@pytest.mark.parametrize(
    "name",
    ["fetch_queues", "heartbeat", "consumer_ids", "query_offset", "lock", "pull"],
)
def test_a_start_goes_on_after_an_unexpected_exception_in_one_of_its_steps(name):
    """The step is repeated until it works."""
    world = World(orderly=True)
    world.network.broken[name] = ZeroDivisionError("injected")
    world.start()
    world.run(5_000)
    assert not world.pulls()
    world.network.broken.clear()
    world.run(31_000)
    assert world.started == [None]
    assert world.pulls()


class Moody:
    """An allocation strategy that raises or returns nonsense while `mood` is set."""

    name = "MOODY"

    def __init__(self):
        self.mood: object = None

    def allocate(self, *, group, current_cid, queues, cids):
        if isinstance(self.mood, Exception):
            raise self.mood
        return queues if self.mood is None else self.mood


@pytest.mark.injects_exceptions
@pytest.mark.parametrize(
    "mood", [ValueError("no"), KeyError("x"), RecursionError(), 7, [[]]]
)
@pytest.mark.parametrize("is_before_start", [False, True])
def test_an_allocation_strategy_that_raises_once_is_called_again(
    mood, is_before_start, caplog
):
    """It is called again after a second, and earlier queues are not affected."""
    strategy = Moody()
    world = World(strategy=strategy, queues=2)
    if not is_before_start:
        world.start()
    strategy.mood = mood
    if is_before_start:
        world.start()
    else:
        world.network.queues[TOPIC] = [queue_of(n) for n in range(4)]
    world.run(30_000)
    assert len(world.pulls()) == (0 if is_before_start else 2)
    assert "failed unexpectedly" in caplog.text
    strategy.mood = None
    world.run(1_000)
    assert len(world.pulls()) == (2 if is_before_start else 4)


@pytest.mark.injects_exceptions
def test_rate_samples_and_the_check_for_slow_listeners_survive_an_exception(caplog):
    world = started(queues=1)
    world.holds_work = True
    sampled = []

    class Broken(dict[str, Any]):
        def values(self):
            sampled.append(world.elapsed_ms)
            raise ZeroDivisionError

    world.member.stats.topics = Broken()
    world.run(30_000)
    assert sampled == [10_000, 20_000, 30_000]
    world.found(range(5))
    (request,) = world.workers.requests
    request.begun.append(None)  # a thread has taken the request, and blocks
    next(request.batches)
    world.workers.requests.clear()
    world.workers.error = ZeroDivisionError("injected")
    world.run(100)
    assert "injected" in caplog.text
    world.workers.error = None
    world.run(20)
    assert world.workers.shared == [request]


@pytest.mark.injects_exceptions
def test_a_message_that_could_neither_be_sent_back_nor_handed_out_is_tried_again(
    caplog,
):
    """The message is not lost."""
    calls = itertools.count()
    world = started(act=lambda *_: next(calls) > 0)
    world.network.fail |= {"send_back": refusal(), "send_retry": refusal()}
    world.found([0])
    world.workers.error = ZeroDivisionError("injected")
    world.run(12_000)
    assert caplog.text.count("failed unexpectedly") == 2
    world.workers.error = None
    world.run(5_000)
    assert world.offsets_seen() == [0, 0]
    assert world.offset() == 1


def test_a_pull_is_repeated_after_any_error_code_of_a_broker():
    """Source: PullMessageServiceTest."""
    world = started()
    for code in (1, 2, 13, 16, 17, 19, 24, 25, 26, 206, 215, 999):
        world.fail_pull(refusal(code))
        world.next_pull_after_ms()
    world.found([0])
    assert world.offsets_seen() == [0]


# Close


def test_a_close_waits_for_listeners_then_commits_unlocks_and_unregisters():
    """Source: testShutdown."""
    world = started(orderly=True, queues=2)
    world.found([0, 1], call=world.pull(0))
    world.network.calls.clear()
    world.close()
    world.run(100)
    calls = [(call.name, *call.args.values()) for call in world.network.calls]
    assert calls == [
        ("update_offset", queue_of(0), 2),
        ("unlock", [queue_of(0), queue_of(1)]),
        ("unregister", "broker-a"),
    ]
    assert world.closed == [None]
    assert not world.member.process_queues


def test_a_close_waits_for_the_listener_that_works_and_commits():
    """Source: testGracefulShutdown."""
    world = started(await_termination_ms=2_000)
    world.holds_work = True
    world.found([0, 1, 2])
    world.consume()
    world.close(2_000)
    world.run(1_000)
    assert world.closed == []
    world.settle()
    world.run(10)
    assert world.closed == [None]
    assert world.committed() == 3


def test_a_close_does_not_wait_for_messages_that_no_listener_got():
    """The queue's next owner gets them."""
    world = started()
    world.holds_work = True
    world.found(range(32))
    world.close()
    world.run(100)
    assert world.closed == [None]
    assert world.committed() is None
    world.work()
    assert not world.seen


def closing_with_a_pull_that_commits_2():
    """Return a world that has consumed up to 4, and an open pull that commits 2."""
    world = started()
    world.found([0, 1])
    world.found([2, 3])
    (waiting,) = world.pulls()
    assert waiting.args["ask"].commit_offset == 2
    assert world.offset() == 4
    return world, waiting


def test_a_close_waits_for_a_pull_that_could_undo_its_commit():
    """The pull carries an older offset, which the broker's threads may store after the
    commit (observed with 5.5.0)."""
    world, _ = closing_with_a_pull_that_commits_2()
    world.close()
    world.run(CARRIED_MS - 10)
    world.network.committed[queue_of()] = 2
    assert world.closed == []
    world.run(20)
    assert world.closed == [None]
    assert world.committed() == 4


def test_a_close_does_not_wait_for_a_pull_that_is_answered():
    world, waiting = closing_with_a_pull_that_commits_2()
    world.close()
    world.answer(PullStatus.NO_NEW_MSG, 4, call=waiting)
    world.run(10)
    assert world.closed == [None]
    assert world.committed() == 4


def test_a_close_commits_again_when_a_pull_has_undone_its_commit():
    world, _ = closing_with_a_pull_that_commits_2()
    world.network.hold.add("update_offset")
    world.close()
    world.run(CARRIED_MS)
    world.network.committed[queue_of()] = 2
    world.network.of("update_offset")[-1].answer(None)
    world.network.of("update_offset")[-1].answer(None)
    world.run(10)
    assert world.closed == [None]
    assert world.committed() == 4


def test_a_close_does_not_read_its_commit_back_when_no_pull_could_undo_it():
    world, waiting = closing_with_a_pull_that_commits_2()
    world.answer(PullStatus.NO_NEW_MSG, 4, call=waiting)
    world.network.calls.clear()
    world.close()
    world.run(10)
    assert world.closed == [None]
    assert world.network.names() == ["update_offset", "unregister"]


def test_a_close_gives_up_on_a_listener_after_its_timeout():
    """Python cannot interrupt a listener. Its later result has no effect, and its
    message is not committed."""
    world = started()
    world.holds_work = True
    world.found([0, 1])
    world.consume()
    world.close(2_000)
    world.run(1_999)
    assert world.closed == []
    world.run(10)
    assert world.closed == [None]
    assert world.committed() is None
    commits = len(world.network.of("update_offset"))
    world.settle()
    world.run(60_000)
    assert len(world.network.of("update_offset")) == commits
    assert world.committed() is None


def test_a_close_waits_until_a_failed_message_is_in_the_retry_topic():
    """Only then does the offset move."""
    world = started(act=lambda *_: False)
    world.network.hold.add("send_back")
    world.found([0])
    world.close()
    world.run(1_000)
    assert world.closed == []
    world.network.of("send_back")[0].answer(None)
    world.run(10)
    assert world.closed == [None]
    assert world.committed() == 1


def test_a_closed_member_sends_nothing():
    """It sends no pull, commit or heartbeat."""
    world = started(orderly=True)
    held = world.pull()
    world.close()
    world.run(100)
    world.network.calls.clear()
    world.found([0, 1], call=held)
    world.engine.rebalances.soon()
    world.run(200_000)
    world.engine.rebalances.soon()  # long after the last rebalance
    world.engine.rebalances.members_changed()
    assert world.network.names() == []
    assert not world.seen


def test_a_close_during_a_start_ends_the_start():
    world = World()
    world.network.fail["heartbeat"] = no_answer()
    world.start()
    world.close()
    world.run(5_000)
    assert world.closed == [None]
    assert world.started == [None]
    assert not world.pulls()


def test_a_close_does_not_wait_for_ever_for_brokers_that_do_not_answer():
    world = started()
    world.network.fail |= {"unregister": no_answer(), "update_offset": no_answer()}
    world.found([0])
    world.close()
    world.run(100)
    assert world.closed == [None]


@pytest.mark.slow
def test_a_thousand_members_leave_no_thread():
    """The engine starts no thread, and a closed member has no timer left."""
    before = set(threading.enumerate())
    for _ in range(1_000):
        world = started()
        world.close()
        world.run(10)
        assert world.closed == [None]
    assert set(threading.enumerate()) <= before


def test_the_number_of_timers_does_not_grow_in_a_day_without_messages():
    world = started(orderly=True, queues=4)
    world.hold_ms = 15_000
    world.run(60 * 60 * 1_000)
    plans = len(world.member.timers._heap)
    world.run(60 * 60 * 1_000)
    assert len(world.member.timers._heap) <= plans + 4 < 64


# Requests of a broker to a member


def a_message():
    body = stored(queue_of(), 3, body=b"hello")
    (message,) = decode_messages(body, record_type=PulledRecord)
    assert isinstance(message, PulledRecord)
    message.origin = Origin(queue_of(), 0, 0)
    return message


def shown(world):
    return run_at_once(
        consume_directly(a_message(), world.member.listener, queue_of(), world.clock)
    )


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ConsumeOrderlyStatus.SUCCESS, "CR_SUCCESS"),
        (ConsumeOrderlyStatus.ROLLBACK, "CR_ROLLBACK"),
        (ConsumeOrderlyStatus.COMMIT, "CR_COMMIT"),
        (ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, "CR_LATER"),
        (None, "CR_SUCCESS"),
    ],
)
def test_a_message_shown_directly_in_order(result, expected):
    """Source: ConsumeMessageOrderlyServiceTest
    .testConsumeMessageDirectly_WithNoException."""
    world = World(orderly=True, act=lambda *_: result)
    answer = shown(world)
    assert (answer.consume_result, answer.order) == (expected, True)
    assert answer.auto_commit is True


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, "CR_SUCCESS"),
        (ConsumeConcurrentlyStatus.RECONSUME_LATER, "CR_LATER"),
        (None, "CR_SUCCESS"),
    ],
)
def test_a_message_shown_directly_in_any_order(result, expected):
    world = World(act=lambda *_: result)
    answer = shown(world)
    assert (answer.consume_result, answer.order) == (expected, False)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_shown_directly_whose_listener_raises(orderly):
    """Offsets do not move. Source: testConsumeMessageDirectly_WithException."""

    def act(*_):
        raise ValueError("no")

    world = World(orderly=orderly, act=act)
    answer = shown(world)
    assert answer.consume_result == "CR_THROW_EXCEPTION"
    assert answer.remark == "ValueError: no"
    assert world.offset() is None


def test_get_consumer_status_returns_the_offsets_of_one_topic():
    """The request is GET_CONSUMER_STATUS_FROM_CLIENT (221). Source:
    ClientRemotingProcessorTest."""
    world = started(queues=2)
    world.found([0, 1], call=world.pull(1))
    world.member.offsets.table.put(queue_of(topic="other"), 9)
    assert consumer_status(world.member, TOPIC) == {queue_of(1): 2}


def test_the_rates_of_the_running_info_are_those_of_the_last_minute():
    """Source: ConsumeMessageConcurrentlyServiceTest.testPullMessage_ConsumeSuccess."""
    world = started()
    world.found([0])
    world.run(10_000)
    world.found(range(1, 30))
    world.run(10_000)
    status = world.member.stats.of(TOPIC).status(world.clock.now_ms)
    # Of 20 s, and of the 10 s before the first message.
    assert (status.consume_ok_tps, status.consume_failed_tps) == (1.0, 0.0)
    assert status.pull_tps == 1.0


def test_two_members_share_and_one_that_leaves_gives_its_queues_back():
    """The other member gets the queues as soon as brokers notify it."""
    world = World(queues=4)
    world.network.members = [ME, OTHER]
    world.start()
    assert len(world.member.process_queues) == 2
    world.network.members = [ME]
    world.engine.rebalances.soon()
    world.run(1_000)
    assert len(world.member.process_queues) == 4


# A start that does not wait for its cluster


def no_route(topic):
    return NotFoundError(f"no route of {topic}", code=17, name="TOPIC_NOT_EXIST")


def start_without_waiting(*topics):
    """Start a member whose requests for routes wait for the test."""
    world = World()
    del world.member.subscriptions[TOPIC]
    for topic in topics:
        world.member.subscriptions[topic] = parse_subscription(
            topic, "*", sub_version=START_MS
        )
    world.network.hold.add("fetch_queues")
    world.begin(wait_for_cluster=False)
    return world


def answer_routes(world, answers):
    for call in world.network.of("fetch_queues"):
        if call.is_open:
            call.answer(answers[call.args["topic"]])


def test_a_start_that_does_not_wait_fails_where_no_topic_has_a_route():
    """The error is that of a topic that the user named, never of the retry topic."""
    world = start_without_waiting("a", "b")
    error = no_route("a")
    answer_routes(world, {RETRY: no_answer(), "a": error, "b": no_route("b")})
    assert world.started == [error]
    assert world.engine.start_error is not None
    assert world.network.of("heartbeat") == []


def test_a_start_that_does_not_wait_fails_with_the_worst_error():
    """Unanswered requests matter more than a topic that does not exist."""
    world = start_without_waiting("a", "b")
    error = no_answer()
    answer_routes(world, {RETRY: no_route(RETRY), "a": no_route("a"), "b": error})
    assert world.started == [error]


def test_a_start_that_does_not_wait_begins_with_the_topics_that_have_a_route():
    world = start_without_waiting("a", "b")
    queue = queue_of(topic="b")
    world.network.queues = {"b": [queue]}
    answer_routes(world, {RETRY: no_route(RETRY), "a": no_route("a"), "b": [queue]})
    world.run()
    assert world.started == [None]
    assert [call.args["ask"].queue for call in world.pulls()] == [queue]


def test_start_error_says_what_keeps_a_start_waiting():
    world = World()
    assert world.engine.start_error is None
    error = no_answer()
    world.network.fail["fetch_queues"] = error
    world.network.hold.add("heartbeat")
    world.start()
    assert world.started == []
    assert world.engine.start_error is error
    refused = refusal()
    world.network.of("heartbeat")[0].answer(refused)
    assert world.engine.start_error is refused


def test_a_retry_topic_without_a_route_keeps_no_start_waiting():
    world = started()
    assert world.engine.start_error is None


def test_only_routes_of_subscribed_topics_are_kept():
    world = started()
    assert world.network.kept == {TOPIC, RETRY}


def test_the_route_of_the_retry_topic_is_fetched_at_growing_intervals():
    world = started()
    world.run(14_000)
    times = [
        call.at_ms - START_MS
        for call in world.network.of("fetch_queues")
        if call.args["topic"] == RETRY
    ]
    assert times[:2] == [0, 0]  # for the start, and for its first rebalance
    assert times[2:] == [0, 100, 300, 700, 1_500, 3_100, 6_300, 12_700]


def test_the_route_of_the_retry_topic_is_not_fetched_again_once_it_is_there():
    world = started(has_retry_route=True)
    world.run(14_000)
    assert len(world.network.of("fetch_queues")) == 2


def test_the_route_of_the_retry_topic_is_fetched_until_each_broker_has_it():
    """Retries on one of two brokers of a new group came 30 s late."""
    world = World(has_retry_route=True)
    world.network.queues[TOPIC].append(queue_of(broker="broker-b"))
    world.start()
    world.run(650)
    late = queue_of(topic=RETRY, broker="broker-b")
    world.network.queues[RETRY].append(late)
    world.run(1_000)
    assert late in world.member.process_queues
    world.run(12_000)
    times = [
        call.at_ms - START_MS
        for call in world.network.of("fetch_queues")
        if call.args["topic"] == RETRY
    ]
    assert times == [0, 0, 100, 300, 700]


def test_an_expression_is_checked_once_its_topic_has_a_route():
    world = World(tags="a > 1", expression_type="SQL92")
    queues = world.network.queues.pop(TOPIC)
    world.start()
    world.run(1_500)
    assert world.network.of("check_subscription") == []
    world.network.queues[TOPIC] = queues
    world.run(500)
    assert [call.args["text"] for call in world.network.of("check_subscription")] == [
        "a > 1"
    ]
    assert world.started == [None]


def test_an_expression_that_no_broker_checked_is_sent_again_after_a_second():
    world = World(tags="a > 1", expression_type="SQL92")
    error = no_answer()
    world.network.fail["check_subscription"] = error
    world.start()
    world.run(2_999)
    assert len(world.network.of("check_subscription")) == 3
    assert world.engine.start_error is error
    world.network.fail.clear()
    world.run(1)
    assert world.started == [None]


# The duration of a close, and its log messages


@pytest.mark.parametrize(
    ("timeout_ms", "closed_after_ms"),
    [(0, 3_000), (3_000, 3_000), (4_000, 4_000), (5_000, 5_000), (60_000, 5_000)],
)
def test_a_close_waits_for_brokers_for_3_to_5_s(timeout_ms, closed_after_ms, caplog):
    world = started()
    world.network.hung.add("broker-a")
    world.close(timeout_ms)
    world.run(closed_after_ms - 1)
    assert world.closed == []
    world.run(1)
    assert world.closed == [None]
    assert world.member.process_queues == {}
    (said,) = caplog.messages
    assert said == (
        "closing although not all brokers answered; a broker that did not may notice"
        " later that this member left brokers=1"
    )


def test_a_close_waits_for_brokers_for_the_rest_of_its_timeout():
    world = started()
    world.holds_work = True
    world.found([0])
    world.consume()
    world.network.hung.add("broker-a")
    world.close(10_000)
    world.run(6_000)
    world.settle()
    world.run(3_999)
    assert world.closed == []
    world.run(1)
    assert world.closed == [None]


def test_a_close_that_all_brokers_answer_logs_no_warning(caplog):
    world = started(orderly=True)
    queue = world.process_queue()
    world.found([0])
    world.close()
    world.run(10)
    assert world.closed == [None]
    assert caplog.messages == []
    assert (queue.dropped, queue.locked) == (True, False)


def test_a_close_can_be_made_to_wait_less():
    world = started()
    world.holds_work = True
    world.found([0])
    world.consume()
    world.close(60_000)
    world.run(1_000)
    world.engine.close_sooner(500)
    world.engine.close_sooner(30_000)  # this does not extend the time again
    world.run(499)
    assert world.closed == []
    world.run(6)
    assert world.closed == [None]


def test_a_close_waits_until_resets_at_each_broker_are_stored():
    world = World()
    far = queue_of(broker="broker-b")
    world.network.queues[TOPIC] = [queue_of(), far]
    world.start()
    world.network.hung.add("broker-b")
    world.engine.move({queue_of(): 5, far: 5})
    world.run(10)
    world.close()
    world.run(1_000)
    assert "unregister" not in world.network.names()
    world.network.hung.clear()
    for call in world.network.of("update_offset"):
        if call.is_open:
            call.answer(None)
    world.run(10)
    assert world.closed == [None]


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_close_begins_no_further_orderly_batch(batch_size):
    """Messages that no listener has got go to the queue's next owner."""
    world = started(orderly=True, consume_message_batch_max_size=batch_size)
    world.holds_work = True
    world.found(range(5))
    world.close()
    world.work()
    world.run(10)
    assert world.closed == [None]
    assert world.seen == []
    assert world.committed() is None


def test_routes_heartbeats_and_offsets_come_as_often_as_set():
    """The first commit comes after two intervals."""
    world = started(
        poll_namesrv_interval_ms=7_000,
        heartbeat_broker_interval_ms=11_000,
        persist_consumer_offset_interval_ms=4_000,
    )
    world.found([0])
    world.network.calls.clear()
    world.run(22_000)

    def times(name, topic=TOPIC):
        return [
            call.at_ms - START_MS
            for call in world.network.of(name)
            if call.args.get("topic", topic) == topic
        ]

    assert times("fetch_queues") == [7_000, 14_000, 21_000]
    assert times("heartbeat") == [11_000, 22_000]
    assert times("update_offset") == [8_000, 12_000, 16_000, 20_000]
