"""Batches of orderly POP: what blocks a queue, and where it continues."""

from __future__ import annotations

import dataclasses

import pytest

from rmqcli.broker.state import order_info
from rmqcli.clock import Now
from rmqcli.wire.bodies.pop import ConsumerOrderInfo
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.offset import UpdateConsumerOffsetRequestHeader
from tests.broker.driving import need
from tests.broker.popping import ack, bodies, change, handles, pop, pop_header
from tests.broker.pulling import driver_with_topic, put


def test_a_batch_of_the_largest_size_is_acknowledged_message_by_message():
    """32 messages: the bits of all of them fit the number that is stored."""
    driver = driver_with_topic()
    put(driver, *["A"] * 33)
    batch = handles(pop(driver, order=True))
    offsets = []

    for handle in batch:
        ack(driver, handle)
        offsets.append(driver.broker.offsets.query("g", "T", 0))

    assert offsets == list(range(1, 33))
    assert bodies(pop(driver, order=True)) == ["A"]


def test_a_handle_of_an_earlier_batch_has_no_effect():
    driver = driver_with_topic()
    put(driver, "A")
    (old,) = handles(pop(driver, order=True, invisible_time=1_000))
    driver.wait(1_000)
    (new,) = handles(pop(driver, order=True, invisible_time=60_000))

    ack(driver, old)
    assert driver.broker.offsets.query("g", "T", 0) == 0
    ack(driver, new)

    assert driver.broker.offsets.query("g", "T", 0) == 1


def test_a_message_of_a_batch_that_the_broker_no_longer_knows_is_acknowledged():
    driver = driver_with_topic()
    put(driver, "A", "B", "C")
    first, _, _ = handles(pop(driver, order=True))
    driver.broker.order_infos.load(ConsumerOrderInfo(table={}), driver.now)

    assert ack(driver, first) == 0

    assert driver.broker.offsets.query("g", "T", 0) == 1
    assert bodies(pop(driver, order=True)) == ["B", "C"]


def test_a_reset_frees_the_queue():
    """Its offset is that of the reset, and not the one after the batch."""
    driver = driver_with_topic()
    put(driver, "A", "B")
    ack(driver, handles(pop(driver, order=True, max_msg_nums=1))[0])
    pop(driver, order=True)
    driver.broker.offsets.reset("g", "T", 0, 0)

    assert bodies(pop(driver, order=True)) == ["A", "B"]


def test_what_was_consumed_by_a_reset_is_not_acknowledged():
    driver = driver_with_topic()
    put(driver, "A", "B")
    first, _ = handles(pop(driver, order=True))
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group="g", topic="T", queue_id=0, commit_offset=2
    )
    need(driver.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header))

    assert ack(driver, first) == 0
    assert change(driver, first, 1_000).ext_fields == {
        "popTime": "0",
        "invisibleTime": "0",
        "reviveQid": "0",
    }
    assert driver.broker.offsets.query("g", "T", 0) == 2


def test_messages_of_other_tags_are_passed_in_order():
    driver = driver_with_topic()
    put(driver, "A", "B", "A", "B")

    batch = handles(pop(driver, order=True, exp="B", exp_type="TAG"))
    assert [each.offset for each in batch] == [1, 3]
    ack(driver, batch[0])
    assert driver.broker.offsets.query("g", "T", 0) == 3
    ack(driver, batch[1])

    assert driver.broker.offsets.query("g", "T", 0) == 4


def test_a_stored_batch_without_times_of_its_own_is_acknowledged():
    driver = driver_with_topic()
    put(driver, "A", "B")
    first, _ = handles(pop(driver, order=True))
    infos = driver.broker.order_infos
    (queues,) = infos.body().table.values()
    bare = dataclasses.replace(
        queues[0], invisible_time=None, offset_next_visible_time=None
    )
    infos.load(ConsumerOrderInfo(table={"T@g": {0: bare}}), driver.now)

    assert ack(driver, first) == 0

    assert driver.broker.offsets.query("g", "T", 0) == 1
    assert bodies(pop(driver, order=True)) == []
    assert bodies(pop(driver, order=True, invisible_time=0)) == ["B"]


def test_the_oldest_batches_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(order_info, "QUEUES_MAX", 2)
    driver = driver_with_topic(queues=3)
    for queue_id in range(3):
        put(driver, "A", queue_id=queue_id)
        pop(driver, order=True, queue_id=queue_id)
        driver.wait(1)

    assert len(driver.broker.order_infos) == 2
    assert bodies(pop(driver, order=True, queue_id=0)) == ["A"]


@pytest.mark.parametrize(("past_a_day_ms", "kept"), [(0, 2), (1, 1)])
def test_a_batch_is_forgotten_a_day_after_its_queue_was_last_read(past_a_day_ms, kept):
    """The broker looks for such batches at each thousandth change of one."""
    driver = driver_with_topic()
    put(driver, "A")
    put(driver, "B", queue_id=1)
    pop(driver, order=True)
    driver.wait(86_400_000 + past_a_day_ms)
    (handle,) = handles(pop(driver, order=True, queue_id=1))
    for _ in range(997):
        change(driver, handle, 60_000)
    assert len(driver.broker.order_infos) == 2

    change(driver, handle, 60_000)

    assert len(driver.broker.order_infos) == kept


def test_no_more_batches_are_loaded_than_a_broker_keeps(monkeypatch):
    monkeypatch.setattr(order_info, "QUEUES_MAX", 2)
    driver = driver_with_topic(queues=3)
    infos = driver.broker.order_infos
    put(driver, "A")
    pop(driver, order=True)
    (queues,) = infos.body().table.values()

    three = dict.fromkeys(range(3), queues[0])
    infos.load(ConsumerOrderInfo(table={"T@g": three}), driver.now)

    assert list(infos.body().table["T@g"]) == [0, 1]


def test_a_waiting_request_is_woken_although_the_clocks_are_a_millisecond_apart():
    """Times in whole ms: one clock may reach its next ms after the other does.

    The request was woken a ms too early, and then waited until its time was over.
    """
    driver = driver_with_topic()
    put(driver, "A")
    pop(driver, order=True, invisible_time=10_000)
    header = pop_header(driver, order=True, poll_time=30_000)
    assert driver.ask(RequestCode.POP_MESSAGE, header) is None
    driver.now = Now(driver.now.monotonic_ms, driver.now.epoch_ms - 1)
    driver.wait(10_000)
    assert len(driver.broker.pop_holds) == 1
    driver.wait(1)
    assert len(driver.broker.pop_holds) == 0
