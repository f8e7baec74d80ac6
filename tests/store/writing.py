"""Fills a store with numbered messages, and reads their numbers back."""

from __future__ import annotations

from tests.store.folders import message, number_of, stored


def fill(store, count, *, start=0, queues=2, batch=7):
    for first in range(start, start + count, batch):
        numbers = range(first, min(first + batch, start + count))
        store.append(
            [message(number, queue_id=number % queues) for number in numbers],
            tags_codes=[65] * len(numbers),
        )


def numbers_in(store, queue_id=0, *, topic="orders"):
    """Return the numbers of a queue's messages, after checking their offsets."""
    low, high = store.queue_bounds(topic, queue_id)
    units = store.units(topic, queue_id, low, high - low)
    assert len(units) == high - low
    messages = stored(store.read_units(units))
    assert [each.queue_offset for each in messages] == list(range(low, high))
    assert [each.commit_log_offset for each in messages] == [
        unit.commit_log_offset for unit in units
    ]
    return [number_of(each) for each in messages]


def kill(store):
    store.abandon()
