"""Commits at the end: each with an answer, and never the first ones side by side."""

from __future__ import annotations

import pytest

from rmqcli.engine.offset_store import RemoteBrokerOffsetStore
from rmqcli.errors import DeadlineError
from tests.engine.world import GROUP, queue_of


class Updates:
    """A network that keeps commits, to be answered one by one."""

    def __init__(self):
        self.open = []

    def update_offset(self, group, queue, offset, done=None):
        assert group == GROUP
        self.open.append((queue, offset, done))

    def answer(self, outcome=None):
        queue, offset, done = self.open.pop(0)
        done(outcome)
        return queue, offset


@pytest.fixture
def network():
    return Updates()


@pytest.fixture
def store(network):
    return RemoteBrokerOffsetStore(GROUP, network)


@pytest.mark.parametrize("outcome", [None, DeadlineError("no answer", address="b:1")])
def test_one_commit_of_a_topic_goes_first_for_the_broker_makes_its_map(
    store, network, outcome
):
    """Four first commits at once: 4.6.0 kept three of them, in one run of ten."""
    for number in range(4):
        store.table.put(queue_of(number), 10 + number)
    ended: list[object] = []
    store.persist_last([queue_of(n) for n in range(4)], ended.append)
    assert len(network.open) == 1
    assert network.answer(outcome) == (queue_of(0), 10)
    assert [queue for queue, _, _ in network.open] == [queue_of(n) for n in (1, 2, 3)]
    assert ended == []
    assert [network.answer() for _ in range(3)] == [
        (queue_of(n), 10 + n) for n in (1, 2, 3)
    ]
    assert ended == [None]


def test_topics_and_brokers_do_not_wait_for_each_other(store, network):
    queues = [
        queue_of(0),
        queue_of(1),
        queue_of(0, topic="%RETRY%g"),
        queue_of(0, broker="broker-b"),
    ]
    for queue in queues:
        store.table.put(queue, 1)
    ended: list[object] = []
    store.persist_last(queues, ended.append)
    assert [queue for queue, _, _ in network.open] == [queues[0], queues[2], queues[3]]
    for _ in range(4):
        network.answer()
    assert ended == [None]


def test_without_anything_to_commit_it_ends_at_once(store, network):
    ended: list[object] = []
    store.persist_last([queue_of(0)], ended.append)
    assert (network.open, ended) == ([], [None])
