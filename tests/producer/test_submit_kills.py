"""`Producer.submit` while a broker is killed: what futures say is true."""

from __future__ import annotations

import pytest

from rmqcli import Admin, Producer, ProducerConfig, ProducerMessage
from rmqcli.errors import RmqError, SendUnknownError
from rmqcli.testing import faults
from tests.kit.waiting import PATIENCE_S, wait_until

CONFIG = ProducerConfig(
    send_msg_timeout_ms=PATIENCE_S * 1_000, async_messages_max=1_000
)
QUEUES = 3


class Submits:
    """Submits numbered messages, every second one to a chosen queue."""

    def __init__(self, producer, topic):
        self._producer = producer
        self._topic = topic
        self._queues = producer.queues(topic)
        self.futures = []

    def submit(self, count):
        for _ in range(count):
            number = len(self.futures)
            message = ProducerMessage(self._topic, b"%d" % number)
            queue = self._queues[number // 2 % QUEUES] if number % 2 else None
            self.futures.append(self._producer.submit(message, queue=queue))

    def stores_again(self):
        self.submit(1)
        return self.futures[-1].exception() is None


def check_a_kill(namesrv, topic, *, kill, restart):
    """Submit before a broker is killed, while it is down, and after its restart."""
    with Producer(namesrv=namesrv, config=CONFIG) as producer:
        submits = Submits(producer, topic)
        submits.submit(3_000)
        kill()
        submits.submit(200)
        restart()
        wait_until(submits.stores_again)
        submits.submit(500)
        errors = [each.exception() for each in submits.futures]
    failed = {n: error for n, error in enumerate(errors) if error is not None}
    assert failed
    # Those that had no answer when the broker was killed, and those while it was down.
    assert sum(n < 3_000 for n in failed) <= CONFIG.async_messages_max
    assert max(failed) < len(errors) - 500
    assert all(isinstance(error, RmqError) for error in failed.values())
    unknown = {n for n, e in failed.items() if isinstance(e, SendUnknownError)}

    said = {}
    for n, future in enumerate(submits.futures):
        if n not in failed:
            result = future.result()
            said[result.queue.queue_id, result.queue_offset] = n

    def read():
        with Admin(namesrv=namesrv) as admin:
            messages = list(admin.read(topic, to="latest"))
        return {(m.queue_id, m.queue_offset): int(m.body) for m in messages}

    # A broker answers before the queues have what it has stored.
    wait_until(lambda: said.keys() <= read().keys())
    found = read()
    assert {place: found[place] for place in said} == said
    assert set(found.values()) - set(said.values()) <= unknown
    for queue_id in range(QUEUES):
        there = [found[place] for place in sorted(found) if place[0] == queue_id]
        chosen = [n for n in there if n % 2]
        assert len(chosen) > 50
        assert chosen == sorted(set(chosen))
        assert {n // 2 % QUEUES for n in chosen} == {queue_id}


def test_a_killed_broker_has_what_futures_call_stored_and_nothing_else(rmq_cluster):
    broker = rmq_cluster.broker("broker-a")
    rmq_cluster.create_topic("orders", queues=QUEUES)
    # A request, among the six or more, that is stored and not answered until the kill.
    rmq_cluster.faults.add(faults.drop_answer(), topic="orders", nth=4, times=1)
    check_a_kill(
        rmq_cluster.namesrv, "orders", kill=broker.kill, restart=broker.restart
    )


@pytest.mark.java
def test_a_real_broker_has_what_futures_call_stored_and_nothing_else(fresh_cluster):
    cluster = fresh_cluster()
    # SIGKILL does not lose the page cache, so the broker keeps what it has answered.
    check_a_kill(
        cluster.namesrv,
        cluster.create_topic(queues=QUEUES),
        kill=cluster.kill_broker,
        restart=cluster.start_broker,
    )
