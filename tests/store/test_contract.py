"""Both stores keep their contract with the broker, compared with a simple reference."""

from __future__ import annotations

import random

import pytest

from rmqcli.store.disk_store import DiskStore
from rmqcli.store.memory import MemoryStore
from rmqcli.store.message_store import StoreFullError
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.properties import encode_properties
from tests.store.folders import START_MS, TINY, message, stored

PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12
TOPICS = ("orders", "payments")


class Reference:
    """The expected contents of a store, kept in dicts and lists."""

    def __init__(self):
        self.log = {}  # commit log offset -> (fields, size, queue offset)
        self.end = 0
        self.queues = {}  # (topic, queue id) -> [(log offset, size, code)] from 0 on
        self.mins = {}

    def take(self, fields, place, code):
        self.log[place.commit_log_offset] = fields, place.size_bytes, place.queue_offset
        self.end = place.commit_log_offset + place.size_bytes
        key = fields.topic, fields.queue_id
        if fields.sys_flag in (PREPARED, ROLLED_BACK):
            assert place.queue_offset == 0
            return
        queue = self.queues.setdefault(key, [])
        self.mins.setdefault(key, 0)
        assert place.queue_offset == len(queue)
        queue.append((place.commit_log_offset, place.size_bytes, code))

    def delete(self, topic):
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]
            del self.mins[key]


def some_message(rng, number):
    base = message(number, topic=rng.choice(TOPICS), queue_id=rng.choice((0, 0, 1, 3)))
    host = rng.choice(("127.0.0.1:1", "[::1]:1"))
    properties: dict[str, str | None] = {
        "KEYS": f"order-{number}" + rng.choice(("", " both", "  twice  ")),
        "UNIQ_KEY": f"{number:032X}",
        "TAGS": "A",
    }
    text = rng.choice((properties, encode_properties(properties)))
    return MessageFields(
        topic=base.topic,
        queue_id=base.queue_id,
        body=base.body * rng.choice((0, 1, 9)),
        sys_flag=rng.choice((0, 0, 0, 0, PREPARED, COMMITTED, ROLLED_BACK)),
        born_host=host,
        born_timestamp_ms=base.born_timestamp_ms,
        store_timestamp_ms=base.store_timestamp_ms,
        properties=text,
    )


def check(store, reference):
    start, end = store.log_bounds()
    assert end == reference.end
    assert set(store.queues()) == set(reference.queues)
    for (topic, queue_id), queue in reference.queues.items():
        low = reference.mins[topic, queue_id]
        assert store.queue_bounds(topic, queue_id) == (low, len(queue))
        units = store.units(topic, queue_id, low, len(queue) + 5)
        assert [tuple(unit) for unit in units] == queue[low:]
        assert store.units(topic, queue_id, low - 1, 5) == []
        assert list(store.units(topic, queue_id, len(queue), 5)) == []
        for first, count in ((low, 1), (low + 1, 2), (len(queue) - 1, 1), (low, 0)):
            if low <= first:
                got = [
                    tuple(unit) for unit in store.units(topic, queue_id, first, count)
                ]
                assert got == queue[first : first + count]
        messages = stored(store.read_units(units)) if units else []
        assert [each.queue_offset for each in messages] == list(range(low, len(queue)))
        for offset in {low, len(queue) - 1}:
            if low <= offset < len(queue):
                fields = reference.log[queue[offset][0]][0]
                found = store.store_time_ms(topic, queue_id, offset)
                assert found == fields.store_timestamp_ms
        assert store.store_time_ms(topic, queue_id, len(queue)) is None
        assert store.store_time_ms(topic, queue_id, low - 1) is None
    assert store.queue_bounds("orders", 2) is None
    assert list(store.units("orders", 2, 0, 1)) == []
    assert store.store_time_ms("orders", 2, 0) is None
    for offset, (fields, size, queue_offset) in reference.log.items():
        record = store.message_at(offset)
        if offset < start:
            assert record is None
            assert store.read(offset, size) is None
            continue
        assert record is not None
        assert store.read(offset, size) == record
        (each,) = stored(record)
        assert (each.topic, each.queue_id, each.queue_offset, each.raw_body) == (
            fields.topic,
            fields.queue_id,
            queue_offset,
            fields.body,
        )
    assert store.message_at(end) is None
    assert store.read(end, 10) is None


def check_keys(store, reference, number_of_messages):
    start = store.log_bounds()[0]
    for topic in TOPICS:
        for number in range(0, number_of_messages, 7):
            for key in (f"order-{number}", f"{number:032X}"):
                expected = [
                    offset
                    for offset, (fields, _, _) in reference.log.items()
                    if offset >= start
                    and fields.topic == topic
                    and fields.store_timestamp_ms == START_MS + number * 10
                    and fields.sys_flag != ROLLED_BACK
                ]
                found = store.query_index(
                    topic, key, begin_ms=0, end_ms=2**62, count_max=9
                )
                assert found == expected, (topic, key)


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("seed", range(6))
def test_a_store_gives_back_what_was_put_in(folder, kind, seed):
    rng = random.Random(seed)
    store = MemoryStore() if kind == "memory" else DiskStore(folder, TINY)
    reference, number = Reference(), 0
    for _ in range(40):
        what = rng.random()
        if what < 0.8:
            count = rng.choice((0, 1, 2, 9))
            batch = [some_message(rng, number + each) for each in range(count)]
            number += count
            codes = [rng.randrange(-9, 9) for _ in batch]
            places = store.append(batch, tags_codes=codes)
            assert len(places) == count
            for fields, place, code in zip(batch, places, codes, strict=True):
                reference.take(fields, place, code)
        elif what < 0.9:
            store.flush()
        elif what < 0.93:
            key = rng.choice(TOPICS), rng.choice((0, 1, 2))
            store.delete_queue(*key)
            reference.queues.pop(key, None)
            reference.mins.pop(key, None)
        elif what < 0.97:
            topic, before = rng.choice(TOPICS), rng.choice((0, 2, 5, 1_000))
            store.trim(topic, before)
            for key in reference.mins:
                if key[0] == topic:
                    bounded = min(before, len(reference.queues[key]))
                    reference.mins[key] = max(reference.mins[key], bounded)
        else:
            topic = rng.choice(TOPICS)
            store.delete_topic(topic)
            reference.delete(topic)
    check(store, reference)
    check_keys(store, reference, number)
    store.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_trimmed_log_forgets_whole_messages_and_no_others(folder, kind):
    store = MemoryStore() if kind == "memory" else DiskStore(folder, TINY)
    reference = Reference()
    for number in range(200):
        fields = message(number, queue_id=number % 2)
        (place,) = store.append([fields], tags_codes=[number])
        reference.take(fields, place, number)
    at = reference.queues["orders", 0][80][0] if kind == "memory" else 16_384
    store.trim(None, at)
    assert store.log_bounds() == (at, reference.end)
    for key, queue in reference.queues.items():
        reference.mins[key] = sum(unit[0] < at for unit in queue)
    check(store, reference)
    store.trim(None, at - 1)
    check(store, reference)
    units = store.units("orders", 0, reference.mins["orders", 0], 3)
    gone = units[0]._replace(commit_log_offset=0, size_bytes=1_000)
    assert store.read_units([gone, *units]) == b""
    assert len(stored(store.read_units([units[0], gone, units[1]]))) == 1
    store.close()


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        (0, 2**62, [3, 2, 1, 0]),
        (START_MS + 2_000, START_MS + 3_999, [3, 2]),
        (START_MS + 4_000, 2**62, []),
        (0, START_MS - 1, []),
        (START_MS, START_MS, [0]),
    ],
)
def test_messages_of_a_key_come_newest_first_and_within_the_time_asked_for(
    folder, kind, begin, end, expected
):
    store = MemoryStore() if kind == "memory" else DiskStore(folder, TINY)
    places = [
        store.append(
            [
                MessageFields(
                    topic="t",
                    properties={"KEYS": "same", "UNIQ_KEY": "same" if n else "u"},
                    store_timestamp_ms=START_MS + n * 1_000,
                )
            ],
            tags_codes=[0],
        )[0].commit_log_offset
        for n in range(4)
    ]
    found = store.query_index("t", "same", begin_ms=begin, end_ms=end, count_max=9)
    assert list(dict.fromkeys(found)) == [places[n] for n in expected]
    few = store.query_index("t", "same", begin_ms=begin, end_ms=end, count_max=1)
    assert few == found[:1]
    assert store.query_index("u", "same", begin_ms=0, end_ms=2**62, count_max=9) == []
    assert store.query_index("t", "", begin_ms=0, end_ms=2**62, count_max=9) == []
    store.close()


def test_a_memory_store_is_full_beyond_its_capacity_and_takes_all_or_nothing():
    size = MemoryStore().append([message(0)], tags_codes=[0])[0].size_bytes
    store = MemoryStore(capacity_bytes=2 * size)
    store.append([message(0)], tags_codes=[0])
    with pytest.raises(StoreFullError, match=str(2 * size)):
        store.append([message(1), message(2)], tags_codes=[0, 0])
    assert store.queue_bounds("orders", 0) == (0, 1)
    assert store.log_bounds() == (0, size)
    store.append([message(1)], tags_codes=[0])
    with pytest.raises(StoreFullError):
        store.append([message(2)], tags_codes=[0])
    store.trim(None, size)
    store.append([message(2)], tags_codes=[0])
    assert store.queue_bounds("orders", 0) == (1, 3)
