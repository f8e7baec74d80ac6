"""A consumer of queues whose oldest messages a real broker has deleted."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from rmqcli.engine.config import ConsumeFromWhere, ConsumerConfig
from tests.consumer.collecting import ConsumerUnderTest, Seen
from tests.kit.java_program import fill
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java
FROM_FIRST = ConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_trimmed_queue_is_consumed_from_what_is_left_and_an_empty_one_waits(
    fresh_cluster, caplog
):
    """Messages that are later sent to the empty queue are consumed, too. Until the
    broker notices that its first files are missing (up to a minute), it answers a pull
    at offset 0 with a message of another offset, from the first file that is left. The
    consumer must reject this answer."""
    caplog.set_level(logging.WARNING)
    cluster = fresh_cluster(
        conf={"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 6000}
    )
    topic = cluster.create_topic(queues=1)
    empty = cluster.create_topic(queues=1)
    fill(cluster, topic, 20_000, body_bytes=200, batch_size=50)
    cluster.stop_broker()
    logs = sorted((cluster.store_directory() / "commitlog").iterdir())
    for log in logs[:2]:
        log.unlink()
    cluster.start_broker()
    seen, filtered = Seen(), Seen()
    topics = [topic, empty]
    with (
        ConsumerUnderTest(
            "g", topics, seen, namesrv=cluster.namesrv, config=FROM_FIRST
        ) as some,
        ConsumerUnderTest(
            "tags",
            dict.fromkeys(topics, "no_such_tag"),
            filtered,
            namesrv=cluster.namesrv,
            config=FROM_FIRST,
        ) as none,
    ):
        wait_until(lambda: end_of(some, topic) == 20_000)
        wait_until(lambda: end_of(none, topic) == 20_000)
        offsets = sorted(m.queue_offset for m in seen.messages)
        assert offsets == list(range(offsets[0], 20_000))
        assert 1_000 < offsets[0] < 10_000
        assert filtered.bodies == []
        send(cluster, empty, "now")
        wait_until(lambda: "now" in seen.bodies)
    said = [each.message for each in caplog.records]
    invalid = [each for each in said if "invalid pull result" in each]
    assert all("offset=0 status=FOUND next=300" in each for each in invalid)
    assert sum("from=0 to=" in each for each in said) >= 1


def end_of(consumer, topic):
    """Return the offset up to which the topic's only queue is consumed."""
    offsets = [at for queue, at in consumer.offsets().items() if queue.topic == topic]
    return max(offsets, default=0)


def send(cluster, topic, body):
    sent = subprocess.run(
        [sys.executable, "-m", "rmqcli", "send", topic, body, "-o", "json"],
        env=os.environ | {"NAMESRV_ADDR": cluster.namesrv},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(sent.stdout)
