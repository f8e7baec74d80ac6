"""Real brokers and this store use a folder in turn, and no message is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rmqcli.store.disk_store import DiskStore
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.wire.ids import tags_code
from rmqcli.wire.message.encode import MessageFields
from tests.kit import raw
from tests.store.folders import number_of, stored

if TYPE_CHECKING:
    from rmqcli.wire.message.decode import StoredMessage

SEND_MESSAGE, PULL_MESSAGE, QUERY_MESSAGE = 10, 11, 12

#: Log files so small that both the broker and this store fill several.
CONF = {"mappedFileSizeCommitLog": "65536"}

TOPIC = "moved"


def body_of(number):
    return f"message {number} ".encode() * 10


def send(cluster, numbers):
    """Send messages to the broker, as a producer does."""
    for number in numbers:
        header = {
            "producerGroup": "p",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": str(time.time_ns() // 1_000_000),
            "flag": "0",
            "properties": f"KEYS\x01key-{number}\x02TAGS\x01A\x02",
            "reconsumeTimes": "0",
        }
        assert cluster.ask(SEND_MESSAGE, header, body=body_of(number)).code == 0


def append(cluster, numbers, *, is_killed):
    """Append messages to the folder of the stopped broker, as the broker would.

    Returns the bounds of the queue before that.
    """
    store = DiskStore(cluster.store_directory())
    before = store.queue_bounds(TOPIC, 0)
    for number in numbers:
        now_ms = time.time_ns() // 1_000_000
        fields = MessageFields(
            topic=TOPIC,
            body=body_of(number),
            born_timestamp_ms=now_ms,
            store_timestamp_ms=now_ms,
            store_host=cluster.broker_address(),
            properties={"KEYS": f"key-{number}", "TAGS": "A"},
        )
        store.append([fields], tags_codes=[tags_code("A")])
    assert numbers_in(store) == list(range(numbers.stop))
    assert find(store, 0) == find(store, numbers.stop - 1) == 1
    if is_killed:
        store.flush()
        store.abandon()
    else:
        store.close()
    return before


def numbers_in(store):
    low, high = store.queue_bounds(TOPIC, 0)
    units = store.units(TOPIC, 0, low, high - low)
    return numbers_of(stored(store.read_units(units)))


def numbers_of(messages):
    numbers = [number_of(each) for each in messages]
    assert [each.body for each in messages] == [body_of(each) for each in numbers]
    return numbers


def find(store, number):
    return len(
        store.query_index(TOPIC, f"key-{number}", begin_ms=0, end_ms=2**62, count_max=9)
    )


def pulled(cluster):
    """Pull all messages of the queue from the broker; return their numbers."""
    messages: list[StoredMessage] = []
    while True:
        answer = cluster.ask(
            PULL_MESSAGE,
            {
                "consumerGroup": "CID_ONSAPI_OWNER",
                "topic": TOPIC,
                "queueId": "0",
                "queueOffset": str(len(messages)),
                "maxMsgNums": "32",
                "sysFlag": "4",
                "commitOffset": "0",
                "suspendTimeoutMillis": "0",
                "subscription": "A",
                "subVersion": "0",
                "expressionType": "TAG",
            },
        )
        if answer.code != 0:
            break
        messages += stored(answer.body)
    assert [each.queue_offset for each in messages] == list(range(len(messages)))
    return numbers_of(messages)


def found_by_broker(cluster, number):
    answer = cluster.ask(
        QUERY_MESSAGE,
        {
            "topic": TOPIC,
            "key": f"key-{number}",
            "maxNum": "9",
            "beginTimestamp": "0",
            "endTimestamp": str(time.time_ns() // 1_000_000 + 60_000),
        },
    )
    return numbers_of(stored(answer.body)) if answer.code == 0 else []


def wait_for(cluster, numbers):
    """Wait until the broker returns exactly these messages.

    After a kill, the broker adds its last messages to the queues in the background.
    """
    raw.wait_until(
        lambda: pulled(cluster) == numbers,
        timeout_ms=60_000,
        what=lambda: f"pulled {len(pulled(cluster))} of {len(numbers)}",
    )


@pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.5.0")
def test_folder_goes_back_and_forth(fresh_cluster):
    cluster = fresh_cluster(conf=CONF)
    cluster.create_topic(TOPIC, queues=1)
    send(cluster, range(30))
    wait_for(cluster, list(range(30)))
    reader = ReadOnlyStore(cluster.store_directory())
    assert numbers_in(reader) == list(range(30))
    cluster.stop_broker()
    assert append(cluster, range(30, 800), is_killed=False) == (0, 30)

    cluster.start_broker()
    wait_for(cluster, list(range(800)))
    assert found_by_broker(cluster, 5) == [5]
    assert found_by_broker(cluster, 700) == [700]
    send(cluster, range(800, 820))
    wait_for(cluster, list(range(820)))
    assert numbers_in(reader) == list(range(820))
    cluster.kill_broker()
    assert append(cluster, range(820, 1500), is_killed=True) == (0, 820)

    cluster.start_broker()
    wait_for(cluster, list(range(1500)))
    assert found_by_broker(cluster, 1499) == [1499]
    send(cluster, range(1500, 1510))
    wait_for(cluster, list(range(1510)))
    assert numbers_in(reader) == list(range(1510))
    reader.close()
