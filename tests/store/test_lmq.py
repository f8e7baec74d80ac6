"""A message of a lite topic is in two queues: its topic's, and the lite topic's LMQ."""

from __future__ import annotations

import dataclasses

import pytest

from rmqcli.store.disk_store import DiskStore
from rmqcli.store.memory import MemoryStore
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.wire.message.properties import encode_properties
from tests.store.folders import TINY, message

LMQ = "%LMQ%$orders$alice"


def lite(number, offset, *, lmq=LMQ, topic="orders", as_text=False):
    fields = message(number, topic=topic, queue_id=3)
    properties = {
        "INNER_MULTI_DISPATCH": lmq,
        "INNER_MULTI_QUEUE_OFFSET": offset,
    }
    text = encode_properties(properties) if as_text else properties
    return dataclasses.replace(fields, properties=text)


def bounds(store):
    return [store.queue_bounds(*key) for key in (("orders", 3), (LMQ, 0))]


@pytest.fixture(params=["memory", "disk"])
def store(request, tmp_path):
    made = MemoryStore() if request.param == "memory" else DiskStore(tmp_path, TINY)
    yield made
    made.close()


def test_a_message_has_the_same_entry_in_both_queues(store):
    store.append([message(0, queue_id=3)], tags_codes=[1])
    store.append([lite(1, "0"), lite(2, "1")], tags_codes=[7, 8])
    store.append([lite(3, "2", as_text=True)], tags_codes=[9])
    assert bounds(store) == [(0, 4), (0, 3)]
    assert store.units(LMQ, 0, 0, 9) == store.units("orders", 3, 1, 9)


@pytest.mark.parametrize(
    ("lmq", "offset", "topic"),
    [
        pytest.param(LMQ, "5", "orders", id="not the next offset"),
        pytest.param(LMQ, "x", "orders", id="not a number"),
        pytest.param(LMQ, "0", "%DLQ%billing", id="a dead letter's copy"),
        pytest.param(LMQ, "0", "order", id="another topic"),
        pytest.param(f"{LMQ},{LMQ}", "0", "orders", id="several queues"),
    ],
)
def test_a_message_that_is_not_of_a_lite_topic_is_in_no_lmq(store, lmq, offset, topic):
    store.append([lite(1, offset, lmq=lmq, topic=topic)], tags_codes=[7])
    assert list(store.queues()) == [(topic, 3)] or store.queue_bounds(LMQ, 0) == (0, 0)


def test_a_lite_topic_that_cannot_be_a_folder_stores_nothing(tmp_path):
    with_slash = lite(1, "0", lmq="%LMQ%$orders$../x")
    store = DiskStore(tmp_path, TINY)
    with pytest.raises(ValueError, match="cannot be stored: its name"):
        store.append([with_slash], tags_codes=[7])
    assert store.log_bounds() == (0, 0)
    store.close()


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_the_lmq_is_found_again(tmp_path, end):
    store = DiskStore(tmp_path, TINY)
    for number in range(200):
        store.append([lite(number, str(number))], tags_codes=[7])
    getattr(store, end)()

    reader = ReadOnlyStore(tmp_path)
    assert bounds(reader)[1][1] == 200
    reader.close()
    store = DiskStore(tmp_path, TINY)
    assert bounds(store) == [(0, 200), (0, 200)]
    assert store.units(LMQ, 0, 0, 300) == store.units("orders", 3, 0, 300)
    store.close()


def test_readers_see_entries_that_are_only_in_the_log(tmp_path):
    store = DiskStore(tmp_path, TINY)
    store.append([lite(0, "0")], tags_codes=[7])
    reader = ReadOnlyStore(tmp_path)
    assert bounds(reader) == [(0, 1), (0, 1)]
    store.append([lite(1, "1")], tags_codes=[7])
    assert bounds(reader) == [(0, 2), (0, 2)]
    reader.close()
    store.close()
