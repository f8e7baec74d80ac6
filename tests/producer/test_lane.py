"""Messages that wait for a queue are divided, in order, into acceptable requests."""

from __future__ import annotations

from rmqcli.producer.accumulator import Entry
from rmqcli.producer.lane import (
    BATCH_BYTES_MAX,
    BATCH_MESSAGES_MAX,
    Lane,
    takes_batches,
)


def slot(number, size=10, *, is_alone=False, properties_bytes=0):
    return Entry(
        "T",
        None,
        None,
        msg_id=str(number),
        size_bytes=size + properties_bytes,
        is_alone=is_alone,
        timeout_ms=1,
        now_ms=0,
    )


def lane_of(*slots):
    lane: Lane[Entry] = Lane()
    for each in slots:
        lane.put(each)
    return lane


def taken(lane):
    requests = []
    while not lane.is_empty:
        requests.append([int(each.msg_id) for each in lane.take()])
    return requests


def test_small_messages_share_a_request():
    assert taken(lane_of(*map(slot, range(3)))) == [[0, 1, 2]]


def test_a_message_that_goes_alone_keeps_its_place():
    lane = lane_of(slot(0), slot(1), slot(2, is_alone=True), slot(3), slot(4))
    assert taken(lane) == [[0, 1], [2], [3, 4]]


def test_a_batch_ends_at_its_limit_of_messages():
    lane = lane_of(*map(slot, range(BATCH_MESSAGES_MAX + 1)))
    assert [len(request) for request in taken(lane)] == [BATCH_MESSAGES_MAX, 1]


def test_a_batch_stays_under_its_limit_of_bytes():
    lane = lane_of(*(slot(n, BATCH_BYTES_MAX // 3) for n in range(7)))
    assert taken(lane) == [[0, 1], [2, 3], [4, 5], [6]]


def test_properties_count_too():
    """40 messages with 32,000 bytes of properties each do not fit into one batch."""
    lane = lane_of(*(slot(n, properties_bytes=32_000) for n in range(40)))
    assert [len(request) for request in taken(lane)] == [32, 8]


def test_a_lane_is_full_when_waiting_gains_nothing():
    assert not lane_of().is_full
    assert not lane_of(slot(0)).is_full
    assert lane_of(slot(0, is_alone=True)).is_full
    assert lane_of(slot(0, BATCH_BYTES_MAX)).is_full
    assert lane_of(*map(slot, range(BATCH_MESSAGES_MAX))).is_full


def test_what_is_put_back_comes_first_again():
    lane = lane_of(*map(slot, range(4)))
    first = lane.take()
    lane.put(slot(4))
    lane.put_back(first)
    assert taken(lane) == [[0, 1, 2, 3, 4]]
    assert lane.take_all() == []


def test_what_batches_are_not_for():
    assert takes_batches("T", is_delayed=False)
    assert not takes_batches("T", is_delayed=True)
    assert not takes_batches("%RETRY%g", is_delayed=False)
