"""The decisions of a member about the messages that a proxy has delivered to it."""

from __future__ import annotations

import pytest

from rmqcli.engine.config import ConsumerConfig
from rmqcli.engine.held_messages import HeldMessages, HeldState, Settlement
from rmqcli.model import MessageQueue
from tests.engine.held import BROKER, Delivery, Retry

ACK, REDELIVER = Settlement.ACK, Settlement.REDELIVER
DEAD_LETTER, LOST = Settlement.DEAD_LETTER, Settlement.LOST
MIB = 1024 * 1024


def make(*, in_order=False, retry=None, **settings):
    config = ConsumerConfig(**settings)
    return HeldMessages(config, retry or Retry(), in_order=in_order)


def deliver(held, *messages, now_ms=0, source=BROKER):
    asked = held.begin_receive(source, len(messages))
    assert asked == len(messages)
    verdicts = held.end_receive(source, asked, messages, now_ms=now_ms)
    held.validate()
    return verdicts


def offsets(batch):
    return [each.message.queue_offset for each in batch]


def told(verdicts):
    return [(v.settlement, v.held.message.queue_offset, v.delay_ms) for v in verdicts]


def test_batches_have_messages_of_one_queue_and_queues_take_turns():
    held = make(consume_message_batch_max_size=2)
    deliver(held, *(Delivery(offset, queue_id=0) for offset in range(3)))
    deliver(held, Delivery(7, queue_id=1))
    batches = [held.next_batch(0) for _ in range(4)]
    assert [offsets(each) for each in batches] == [[0, 1], [7], [2], []]


def test_a_consumed_message_is_acknowledged_and_then_gone():
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    assert told(held.succeeded(each)) == [(ACK, 0, 0)]
    assert (held.held_count, held.count(HeldState.SETTLING)) == (1, 1)
    held.settled(each)
    held.validate()
    assert (held.held_count, held.held_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("attempt", "level", "expected"),
    [
        (1, 0, (REDELIVER, 0, 1_000)),
        (2, 0, (REDELIVER, 0, 5_000)),
        (3, 0, (DEAD_LETTER, 0, 0)),
        (1, 3, (REDELIVER, 0, 10_000)),
        (1, 99, (REDELIVER, 0, 7_200_000)),
        (1, -1, (DEAD_LETTER, 0, 0)),
    ],
)
def test_a_failed_message_comes_again_by_the_server_s_rules(attempt, level, expected):
    held = make()
    deliver(held, Delivery(0, delivery_attempt=attempt))
    (each,) = held.next_batch(0)
    assert told(held.failed(each, now_ms=5, delay_level=level)) == [expected]
    held.validate()


def test_a_delay_is_no_longer_than_a_proxy_takes():
    class Slow(Retry):
        def delay_ms(self, attempt):
            return 24 * 3_600 * 1_000

    held = make(retry=Slow())
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    assert told(held.failed(each, now_ms=0)) == [(REDELIVER, 0, 43_200_000)]


def test_in_order_one_message_of_a_group_is_out_at_a_time():
    held = make(in_order=True, consume_message_batch_max_size=8)
    deliver(
        held,
        Delivery(0, message_group="a"),
        Delivery(1, message_group="a"),
        Delivery(2, message_group="b"),
        Delivery(3),
        Delivery(4),
    )
    first = [held.next_batch(0) for _ in range(4)]
    assert [offsets(each) for each in first] == [[0], [2], [3], []]
    (zero,) = first[0]
    held.succeeded(zero)
    assert held.next_batch(0) == []  # the ack has not ended yet
    held.settled(zero)
    held.validate()
    assert offsets(held.next_batch(0)) == [1]


def test_in_order_a_failed_message_is_tried_again_in_its_place():
    held = make(in_order=True)
    deliver(held, Delivery(0, message_group="a"), Delivery(1, message_group="a"))
    (zero,) = held.next_batch(0)
    assert told(held.failed(zero, now_ms=100)) == [(Settlement.TRY_HERE, 0, 1_000)]
    assert held.next_due_ms() == 1_100
    held.run_due(1_099)
    assert held.next_batch(1_099) == []
    held.run_due(1_100)
    assert held.next_batch(1_100) == [zero]
    assert zero.attempt == 2
    verdicts = held.failed(zero, now_ms=1_200, suspend_ms=50)
    assert told(verdicts) == [(Settlement.TRY_HERE, 0, 50)]
    held.run_due(1_250)
    assert held.next_batch(1_250) == [zero]
    assert told(held.failed(zero, now_ms=1_300)) == [(DEAD_LETTER, 0, 0)]
    assert held.next_batch(1_300) == []
    held.settled(zero)
    held.validate()
    (one,) = held.next_batch(1_300)
    assert one.message.queue_offset == 1
    held.succeeded(one)
    held.settled(one)
    held.validate()
    assert (held.held_count, held._lanes) == (0, {})


def test_in_order_what_is_behind_a_dead_letter_that_failed_is_given_back():
    """The lane went on, although its first message was delivered again later."""
    held = make(in_order=True)
    group = [Delivery(n, message_group="a", delivery_attempt=3) for n in range(3)]
    deliver(held, *group, Delivery(3, message_group="b"))
    (zero,) = held.next_batch(0)
    assert told(held.failed(zero, now_ms=5)) == [(DEAD_LETTER, 0, 0)]
    assert told(held.lost(zero)) == [(REDELIVER, 1, 1_000), (REDELIVER, 2, 1_000)]
    held.validate()
    assert offsets(held.next_batch(5)) == [3]
    assert held.next_batch(5) == []


def test_without_order_only_the_dead_letter_that_failed_is_lost():
    held = make()
    deliver(held, Delivery(0, delivery_attempt=3), Delivery(1))
    (zero,) = held.next_batch(0)
    held.failed(zero, now_ms=5)
    assert held.lost(zero) == []
    held.validate()
    assert offsets(held.next_batch(5)) == [1]


def test_a_lease_is_renewed_half_a_minute_before_its_end():
    held = make()
    deliver(held, Delivery(0, receipt_handle="first"))
    assert held.next_due_ms() == 30_000
    assert held.run_due(29_999).renew == []
    (each,) = held.run_due(30_000).renew
    assert held.run_due(30_001).renew == []  # only one renewal at a time
    assert held.renewed(each, "second", now_ms=30_100) == []
    assert (each.receipt_handle, each.until_ms) == ("second", 90_100)
    assert held.next_due_ms() == 60_100


def test_what_is_decided_during_a_renewal_uses_the_new_handle():
    held = make()
    deliver(held, Delivery(0, receipt_handle="first"))
    (each,) = held.next_batch(0)
    held.run_due(30_000)
    assert held.succeeded(each) == []
    held.validate()
    (verdict,) = held.renewed(each, "second", now_ms=30_100)
    assert (verdict.settlement, each.receipt_handle) == (ACK, "second")


def test_a_renewal_that_was_not_sent_is_tried_again():
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.run_due(30_000).renew
    held.not_renewed(each, now_ms=30_500, is_doubtful=False, is_lost=False)
    assert held.next_due_ms() == 31_500
    assert held.run_due(31_500).renew == [each]


def test_a_message_with_a_doubtful_handle_is_not_changed_again():
    """The server may have made another handle, and every handle causes a delivery."""
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    held.run_due(30_000)
    held.not_renewed(each, now_ms=30_500, is_doubtful=True, is_lost=False)
    assert held.next_due_ms() == 60_000
    assert told(held.failed(each, now_ms=31_000)) == [(LOST, 0, 0)]
    held.validate()
    assert held.held_count == 0


def test_a_message_whose_lease_is_over_is_not_handed_out():
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.run_due(30_000).renew
    held.not_renewed(each, now_ms=30_500, is_doubtful=False, is_lost=True)
    assert told(held.run_due(30_500).verdicts) == [(LOST, 0, 0)]
    assert held.next_batch(30_500) == []
    held.validate()


def test_in_order_what_is_behind_a_lost_message_is_given_back():
    held = make(in_order=True)
    group = [Delivery(offset, message_group="a") for offset in range(3)]
    deliver(held, *group, Delivery(3, message_group="b"))
    zero, *_ = held.run_due(30_000).renew
    for each in list(held._held):
        is_lost = each is zero
        if is_lost:
            held.not_renewed(each, now_ms=30_100, is_doubtful=False, is_lost=True)
        else:
            held.renewed(each, "new", now_ms=30_100)
    assert told(held.run_due(30_100).verdicts) == [
        (LOST, 0, 0),
        (REDELIVER, 1, 1_000),
        (REDELIVER, 2, 1_000),
    ]
    held.validate()
    assert offsets(held.next_batch(30_100)) == [3]
    assert held.next_batch(30_100) == []


def test_in_order_a_message_that_is_held_takes_the_handle_of_its_new_delivery():
    held = make(in_order=True)
    deliver(held, Delivery(0, message_group="a", receipt_handle="first"))
    (each,) = held.next_batch(0)
    deliver(
        held, Delivery(0, message_group="a", receipt_handle="second"), now_ms=70_000
    )
    assert held.held_count == 1
    assert (each.receipt_handle, each.until_ms) == ("second", 130_000)
    held.succeeded(each)
    verdicts = deliver(
        held, Delivery(0, message_group="a", receipt_handle="third"), now_ms=70_000
    )
    assert told(verdicts) == [(ACK, 0, 0)]  # the message was already consumed
    assert verdicts[0].held.receipt_handle == "third"


def test_a_listener_that_takes_too_long_loses_its_message():
    held = make(consume_timeout_ms=40_000)
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    held.run_due(30_000)
    held.renewed(each, "second", now_ms=30_000)
    assert held.run_due(60_000).renew == []
    held.run_due(90_000)
    assert held.count(HeldState.RUNNING) == 1
    assert told(held.failed(each, now_ms=90_000)) == [(LOST, 0, 0)]
    held.validate()


def test_in_order_a_listener_keeps_its_message_however_long_it_takes():
    held = make(in_order=True, consume_timeout_ms=40_000)
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    held.run_due(30_000)
    held.renewed(each, "second", now_ms=30_000)
    assert held.run_due(60_000).renew == [each]


def test_a_queue_holds_no_more_messages_than_its_limit():
    held = make(pull_threshold_for_queue=3)
    assert held.begin_receive(BROKER, 2) == 2
    assert held.begin_receive(BROKER, 2) == 1
    assert held.begin_receive(BROKER, 2) == 0
    held.end_receive(BROKER, 2, [Delivery(0)], now_ms=0)
    assert held.begin_receive(BROKER, 2) == 1
    held.end_receive(BROKER, 1, [], now_ms=0)
    held.end_receive(BROKER, 1, [], now_ms=0)
    (each,) = held.next_batch(0)
    held.succeeded(each)
    assert held.begin_receive(BROKER, 5) == 2  # a message counts until it is settled
    held.settled(each)
    assert held.begin_receive(BROKER, 5) == 1


def test_a_topic_and_all_topics_have_limits_of_their_own():
    other = MessageQueue("orders", "broker-b", -1)
    held = make(pull_threshold_for_topic=3)
    assert held.begin_receive(BROKER, 2) == 2
    assert held.begin_receive(other, 2) == 1
    held = make(cached_bytes_max=5 * MIB)
    deliver(held, *(Delivery(offset, body_bytes=MIB) for offset in range(5)))
    assert held.begin_receive(MessageQueue("b", "broker-a", -1), 1) == 0


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"pull_threshold_size_for_queue_mib": 3}, 3 * 1_024),
        ({"pull_threshold_size_for_topic_mib": 3}, 3 * 1_024),
        ({"cached_bytes_max": 3 * MIB}, 3 * 1_024),
    ],
)
def test_room_of_a_mebibyte_is_for_1024_messages_of_a_kibibyte(settings, count):
    """Until messages have come, they are taken to have a kibibyte."""
    held = make(pull_threshold_for_queue=65_535, **settings)
    assert held.begin_receive(BROKER, 65_535) == count


def test_a_message_that_is_larger_than_the_limit_is_consumed_too():
    held = make(cached_bytes_max=1)
    assert held.begin_receive(BROKER, 32) == 1
    assert held.begin_receive(BROKER, 32) == 0


def test_a_close_gives_back_what_no_listener_has_begun():
    held = make(in_order=True)
    deliver(
        held,
        Delivery(0, message_group="a"),
        Delivery(1, message_group="a"),
        Delivery(2, message_group="b"),
    )
    (zero,) = held.next_batch(0)
    (two,) = held.next_batch(0)
    held.failed(two, now_ms=0)
    held.stop()
    verdicts = held.give_back_all()
    given = sorted(told(verdicts), key=lambda each: each[1])
    assert given == [(REDELIVER, 1, 1_000), (REDELIVER, 2, 1_000)]
    for verdict in verdicts:
        held.settled(verdict.held)
    held.validate()
    assert held.next_batch(0) == []
    assert held.begin_receive(BROKER, 1) == 0
    assert told(held.succeeded(zero)) == [(ACK, 0, 0)]
    verdicts = held.end_receive(BROKER, 0, [Delivery(5), Delivery(6)], now_ms=0)
    assert told(verdicts) == [(REDELIVER, 5, 1_000), (REDELIVER, 6, 1_000)]
    held.validate()


def test_what_a_listener_left_waits_for_the_close():
    held = make(consume_message_batch_max_size=3)
    deliver(held, *map(Delivery, range(4)))
    batch = held.next_batch(0)
    held.succeeded(batch[0])
    held.left(batch[1:])
    held.validate()
    assert held.next_batch(0) == []
    given = told(held.give_back_all())
    assert sorted(given, key=lambda each: each[1]) == [
        (REDELIVER, 1, 1_000),
        (REDELIVER, 2, 1_000),
        (REDELIVER, 3, 1_000),
    ]


def test_messages_that_are_gone_are_not_kept_for_their_renewal():
    held = make()
    for offset in range(5_000):
        deliver(held, Delivery(offset))
        (each,) = held.next_batch(0)
        held.succeeded(each)
        held.settled(each)
    assert held.next_due_ms() is None
    assert len(held._looks) < 2_000


def test_a_state_cannot_be_skipped():
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    held.succeeded(each)
    with pytest.raises(RuntimeError, match="cannot become SETTLING"):
        held.succeeded(each)


def test_in_order_a_renewal_of_an_older_delivery_changes_nothing():
    held = make(in_order=True)
    deliver(held, Delivery(0, receipt_handle="first"))
    for number, ends in enumerate(
        (
            lambda each: held.renewed(each, "void", now_ms=40_000),
            lambda each: held.not_renewed(
                each, now_ms=40_000, is_doubtful=True, is_lost=True
            ),
        )
    ):
        now_ms = 30_000 + number * 40_000
        (each,) = held.run_due(now_ms).renew
        handle = f"delivered again {number}"
        deliver(held, Delivery(0, receipt_handle=handle), now_ms=now_ms + 5_000)
        assert ends(each) == []
        told_now = (each.receipt_handle, each.until_ms, each.is_doubtful)
        assert told_now == (handle, now_ms + 65_000, False)


def test_a_renewal_may_end_after_its_message_is_lost():
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.run_due(30_000).renew
    assert told(held.run_due(60_000).verdicts) == [(LOST, 0, 0)]
    verdicts = held.not_renewed(each, now_ms=61_000, is_doubtful=True, is_lost=False)
    assert verdicts == []
    assert held.next_due_ms() is None


def test_what_is_settled_twice_is_gone_once():
    held = make()
    deliver(held, Delivery(0))
    (each,) = held.next_batch(0)
    held.succeeded(each)
    held.settled(each)
    held.settled(each)
    held.validate()
    assert held.held_count == 0


def test_a_message_that_its_listener_left_goes_back_to_an_emptied_queue():
    held = make()
    deliver(held, Delivery(0))
    batch = held.next_batch(0)
    held.left(batch)
    held.validate()
    assert held.count(HeldState.CACHED) == 1
