"""A consumer whose listeners do not keep up limits the bytes that it caches."""

from __future__ import annotations

import threading

import pytest

from tests.consumer.collecting import committed, consumer
from tests.kit.waiting import wait_until

MIB = 1024 * 1024
QUEUES, MESSAGES_IN_QUEUE = 64, 32
BODY = b"x" * 64 * 1024


@pytest.mark.slow
def test_a_consumer_of_64_full_queues_caches_64_mib_and_consumes_all_messages(
    rmq_cluster,
):
    """128 MiB are stored. The cache keeps the default limit within 10 %."""
    topic = rmq_cluster.create_topic("T", queues=QUEUES)
    for queue_id in range(QUEUES):
        rmq_cluster.send(topic, [BODY] * MESSAGES_IN_QUEUE, queue_id=queue_id)
    go_on = threading.Event()
    seen: list[tuple[int, int]] = []

    def listen(message):
        go_on.wait(60)
        seen.append((message.queue_id, message.queue_offset))

    with consumer(rmq_cluster, "g", topic, listen) as running:

        def held_bytes():
            infos = running.running_info().process_queues
            return len(BODY) * sum(each.cached_msg_count for each in infos.values())

        wait_until(lambda: held_bytes() > 0.9 * 64 * MIB)
        peak_bytes = max(_looks(held_bytes, 100))
        go_on.set()
        while len(seen) < QUEUES * MESSAGES_IN_QUEUE:
            peak_bytes = max(peak_bytes, *_looks(held_bytes, 5))
        assert 57 * MIB < peak_bytes <= 64 * MIB * 1.1
    assert len(seen) == len(set(seen)) == QUEUES * MESSAGES_IN_QUEUE
    assert committed(rmq_cluster, "g", topic) == dict.fromkeys(range(QUEUES), 32)


def _looks(held_bytes, count):
    """Return `count` samples of the cached bytes, taken while pulls continue."""
    found = []
    for _ in range(count):
        found.append(held_bytes())
        threading.Event().wait(0.005)
    return found
