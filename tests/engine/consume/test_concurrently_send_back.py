"""Messages that failed, or that a listener has had for too long, are sent back."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.listener import ConsumeConcurrentlyStatus
from rmqcli.wire.pull_answer import PullStatus
from tests.engine.world import (
    BROADCASTING,
    OTHER,
    RETRY,
    TOPIC,
    deliveries,
    failing,
    no_answer,
    offsets_of,
    queue_of,
    refusal,
    sent_back,
    started,
    stored,
)

LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
MINUTE_MS = 60_000


def test_a_message_that_no_broker_takes_back_is_consumed_here_again_after_5_s():
    """Meanwhile it holds the offset, and its count of retries increases by one."""
    times = []

    def act(messages, _):
        if messages[0].queue_offset == 1:
            times.append((world.elapsed_ms, messages[0].reconsume_times))
            return len(times) > 2
        return True

    world = started(act=act)
    world.network.fail |= {"send_back": refusal(), "send_retry": no_answer()}
    world.found([0, 1, 2])
    assert world.offset() == 1
    assert world.process_queue().msg_count == 1
    world.run(9_999)
    assert world.offset() == 1
    world.run(1)
    assert times == [(0, 0), (5_000, 1), (10_000, 2)]
    assert world.offset() == 3
    assert world.committed() in (None, 1)


def test_only_messages_that_could_not_be_sent_back_are_consumed_again():
    """They are consumed again in batches."""
    world = started(act=failing(1, 2), consume_message_batch_max_size=1)
    world.network.hold.add("send_back")
    world.network.fail["send_retry"] = refusal()
    world.found(range(4))
    first, second = world.network.of("send_back")
    first.answer(refusal())
    second.answer(None)
    world.network.hold.clear()
    assert world.offset() == 1
    world.seen.clear()
    world.run(5_000)
    assert world.offsets_seen() == [1]
    assert world.offset() == 4


def test_a_message_is_not_retried_here_once_its_queue_is_lost():
    """By then another member owns the queue."""
    world = started(act=failing(0))
    world.network.fail |= {"send_back": refusal(), "send_retry": refusal()}
    world.found([0])
    world.network.members = [OTHER]
    world.engine.rebalances.soon()
    world.run(20_000)
    assert world.offsets_seen() == [0]


@pytest.mark.parametrize(
    ("level", "times", "expected"), [(0, 0, 1), (3, 2, 3), (-1, 0, 17)]
)
def test_a_message_that_its_broker_refuses_goes_to_the_retry_topic_as_a_copy(
    level, times, expected
):
    """The member sends the copy as a producer does. Delay level -1 still means the
    dead-letter queue, and the original message id is kept."""
    kept = []

    def act(messages, context):
        context.delay_level_when_next_consume = level
        kept.append(messages[0])
        return LATER

    world = started(act=act)
    world.network.fail["send_back"] = refusal()
    properties: dict[str, Any] = {"KEYS": "k", "TRAN_MSG": "true"}
    world.found([3], times=times, body=b"hello", **properties)
    (call,) = world.network.of("send_retry")
    retry = call.args["message"]
    assert (retry.group, retry.topic, retry.body) == ("g", RETRY, b"hello")
    assert retry.properties == {
        "KEYS": "k",
        "ORIGIN_MESSAGE_ID": "7F00000100002A9F0000000000000BB8",
        "RETRY_TOPIC": TOPIC,
        "RECONSUME_TIME": str(expected),
        "MAX_RECONSUME_TIMES": "16",
        "DELAY": str(3 + times),
    }
    assert (retry.reconsume_times, retry.max_reconsume_times) == (expected, 16)
    assert kept[0].properties == properties
    assert world.offset() == 4


def test_the_counts_of_a_dead_letter_are_within_javas_integers(caplog):
    """The broker refused 2147483648. The log names the message."""

    def act(_, context):
        context.delay_level_when_next_consume = -1
        return LATER

    world = started(act=act, max_reconsume_times=2**31 - 1)
    world.network.fail["send_back"] = refusal()
    world.found([3])
    (call,) = world.network.of("send_retry")
    retry = call.args["message"]
    counts = retry.reconsume_times, retry.max_reconsume_times
    assert counts == (2_147_483_647, 2_147_483_646)
    assert "to the retry topic queue=orders@broker-a:0 offset=3: no" in caplog.text


def test_a_message_that_fails_again_keeps_its_first_id():
    world = started(act=failing(0))
    world.network.fail["send_back"] = refusal()
    world.found([0], ORIGIN_MESSAGE_ID="FIRST")
    (call,) = world.network.of("send_retry")
    assert call.args["message"].properties["ORIGIN_MESSAGE_ID"] == "FIRST"


def test_sending_back_holds_up_no_thread_and_no_other_message():
    """In Java the consume thread waits for up to 5 s; here no thread waits."""
    world = started(act=failing(0))
    world.network.hold.add("send_back")
    world.found([0])
    world.found([1, 2])
    assert world.offsets_seen() == [0, 1, 2]
    assert world.offset() == 0


# The sweep of messages that a listener has had for too long


def with_a_stuck_listener(**options):
    """Return a world whose listener has 20 messages and reports no outcome."""
    world = started(consume_message_batch_max_size=32, **options)
    world.holds_work, world.hold_ms = True, 15_000
    world.found(range(20))
    world.consume()
    return world


def test_messages_that_a_listener_has_for_15_minutes_are_sent_back_with_delay_level_3():
    """The sweep runs every 15 minutes and sends back at most 16 messages of a queue: of
    20 expired ones it sends 16 and leaves 4. The offset does not move."""
    world = with_a_stuck_listener()
    world.run(15 * MINUTE_MS)
    assert not sent_back(world)
    world.run(15 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == list(range(16))
    assert {each.delay_level for each in sent_back(world)} == {3}
    assert world.process_queue().msg_count == 4
    assert world.offset() is None
    world.run(15 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == list(range(20))


def test_a_message_that_the_sweep_sent_back_is_not_sent_back_when_it_fails():
    """Its listener returns later, with a failure."""
    world = with_a_stuck_listener(act=lambda *_: LATER)
    world.run(30 * MINUTE_MS)
    assert len(sent_back(world)) == 16
    world.settle()
    assert offsets_of(sent_back(world)) == list(range(20))
    assert world.offset() == 20


def test_a_sweep_keeps_messages_that_it_cannot_send_back():
    """As in Java, it tries 16 times, each time with the first message, and all 20 are
    left."""
    world = with_a_stuck_listener()
    world.network.fail |= {"send_back": refusal(), "send_retry": refusal()}
    world.run(30 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == [0] * 16
    assert world.process_queue().msg_count == 20


def test_a_sweep_ends_at_a_message_that_no_listener_has_and_later_sweeps_go_on():
    """In 4.6 no further sweep runs after such a message."""
    world = started(consume_timeout_ms=MINUTE_MS)
    world.holds_work, world.hold_ms = True, 15_000
    world.found([0, 1])
    world.run(3 * MINUTE_MS)
    assert not sent_back(world)
    world.consume()
    world.run(2 * MINUTE_MS)
    assert offsets_of(sent_back(world)) == [0, 1]


def test_a_sweep_ends_when_the_first_message_is_not_expired():
    """As in Java, later messages stay even if they are expired. Source:
    testPopRequest."""
    world = with_a_stuck_listener()
    world.process_queue().first().consume_start_ms += 20 * MINUTE_MS
    world.run(30 * MINUTE_MS)
    assert not sent_back(world)
    assert world.process_queue().msg_count == 20


def test_a_queue_is_kept_while_its_listener_works_for_150_s():
    """Its cache is over the threshold all the time, so its pull is delayed, but that is
    not taken for a lost pull."""
    world = started(pull_threshold_for_queue=10)
    before = world.process_queue()
    world.holds_work = True
    world.found(range(20))
    world.run(150_000)
    assert world.process_queue() is before
    assert not before.dropped
    world.work()
    assert world.offsets_seen() == list(range(20))
    assert world.offset() == 20


# Reports to on_failed


@pytest.mark.parametrize(
    ("level", "times", "expected"),
    [
        (0, 0, (0, "RETRY_TOPIC", 1, 3, None)),
        (1, 1, (0, "RETRY_TOPIC", 2, 3, None)),
        (0, 2, (0, "RETRY_TOPIC", 3, 3, None)),
        (0, 3, (0, "DEAD_LETTER", None, None, None)),
        (-1, 0, (0, "DEAD_LETTER", None, None, None)),
    ],
)
def test_on_failed_is_called_with_the_retry_of_a_failed_message(level, times, expected):
    """It is called only when the broker has accepted the message."""

    def act(_, context):
        context.delay_level_when_next_consume = level
        return LATER

    failed: list[Any] = []
    world = started(act=act, max_reconsume_times=3, on_failed=failed.append)
    world.network.hold.add("send_back")
    world.found([0], times=times)
    assert failed == []
    world.network.of("send_back")[0].answer(None)
    assert deliveries(failed) == [expected]


def test_on_failed_is_called_with_the_error_of_a_message_that_is_retried_here():
    failed: list[Any] = []
    world = started(act=failing(0), on_failed=failed.append)
    error = no_answer()
    world.network.fail |= {"send_back": refusal(), "send_retry": error}
    world.found([0])
    world.run(5_000)
    assert deliveries(failed) == [
        (0, "RETRY_HERE", 1, 16, error),
        (0, "RETRY_HERE", 2, 16, error),
    ]


@pytest.mark.parametrize("ending", ["closing", "dropped"])
def test_on_failed_says_that_a_message_no_broker_took_is_left_to_the_next_owner(ending):
    failed: list[Any] = []
    world = started(act=failing(0), on_failed=failed.append)
    world.network.hold |= {"send_back", "send_retry"}
    world.found([0])
    world.network.of("send_back")[0].answer(refusal())
    if ending == "closing":
        world.close()
    else:
        world.process_queue().drop("by the test")
    error = no_answer()
    world.network.of("send_retry")[0].answer(error)
    assert deliveries(failed) == [(0, "QUEUE_LOST", None, None, error)]


def test_on_failed_says_that_failures_of_a_dropped_queue_are_left_to_the_next_owner():
    failed: list[Any] = []
    world = started(act=failing(1, 2), on_failed=failed.append)
    world.holds_work = True
    world.found([0, 1, 2])
    world.consume()
    world.process_queue().drop("by the test")
    world.settle()
    assert deliveries(failed) == [
        (1, "QUEUE_LOST", None, None, None),
        (2, "QUEUE_LOST", None, None, None),
    ]


def test_on_failed_says_that_a_broadcasting_member_gives_a_message_up():
    failed: list[Any] = []
    world = started(act=failing(1), message_model=BROADCASTING, on_failed=failed.append)
    world.found([0, 1])
    assert deliveries(failed) == [(1, "GIVEN_UP", None, None, None)]


def test_on_failed_is_called_for_a_message_that_was_sent_back_before_it_failed():
    failed: list[Any] = []
    world = with_a_stuck_listener(act=lambda *_: LATER, on_failed=failed.append)
    world.run(30 * MINUTE_MS)
    assert failed == []
    world.settle()
    assert deliveries(failed[:16]) == [
        (offset, "SENT_BACK_BEFORE", None, None, None) for offset in range(16)
    ]
    assert [each.fate.name for each in failed[16:]] == ["RETRY_TOPIC"] * 4


@pytest.mark.parametrize("ending", ["broadcasting", "dropped", "kept"])
def test_on_failed_is_not_called_for_an_unreadable_message(ending):
    def refuse(message):
        raise ValueError("no place for it")

    failed: list[Any] = []
    options: dict[str, Any] = {}
    if ending == "broadcasting":
        options["message_model"] = BROADCASTING
    world = started(on_undecodable=refuse, on_failed=failed.append, **options)
    world.holds_work = True
    bad = bytearray(stored(queue_of(), 0))
    bad[4:8] = b"\x11\x22\x33\x44"  # an unknown magic
    world.answer(PullStatus.FOUND, 1, body=bytes(bad), max_offset=1)
    world.consume()
    if ending == "dropped":
        world.process_queue().drop("by the test")
    world.settle()
    assert failed == []
    assert sent_back(world) == []


@pytest.mark.injects_exceptions
def test_an_on_failed_that_raises_changes_nothing(caplog):
    def fail(failed):
        raise ZeroDivisionError("injected")

    world = started(act=failing(0), on_failed=fail)
    world.found([0])
    assert offsets_of(sent_back(world)) == [0]
    assert world.offset() == 1
    assert any(
        each.message.startswith("on_failed failed message=") and each.exc_info
        for each in caplog.records
    )


def test_a_close_waits_until_every_failed_message_is_sent_back():
    world = started(act=failing(0, 1))
    world.network.hold.add("send_back")
    world.found([0, 1])
    first, second = world.network.of("send_back")
    world.close()
    first.answer(None)
    world.run(1_000)
    assert world.closed == []
    second.answer(None)
    world.run(10)
    assert world.closed == [None]
    assert world.committed() == 2


@pytest.mark.parametrize("result", [False, LATER])
def test_reconsume_later_causes_no_warning(result, caplog):
    world = started(act=lambda *_: result)
    world.found([0])
    assert caplog.messages == []


def test_a_result_that_is_no_status_causes_a_warning(caplog):
    world = started(act=lambda *_: "done")
    world.found([0])
    assert caplog.messages == [
        "listener returned 'done', which is not a status; retrying later"
    ]
