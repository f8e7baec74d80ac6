"""The last commits of a member are answered, and a topic's first one is sent alone."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.engine.offset_store import RemoteBrokerOffsetStore
from rmqcli.errors import DeadlineError
from rmqcli.tasks import start
from tests.engine.world import GROUP, World, queue_of


def commits(world):
    """Return the queues of the commits that wait for an answer."""
    return [call.args["queue"] for call in open_commits(world)]


def open_commits(world):
    return [call for call in world.network.of("update_offset") if call.is_open]


@pytest.fixture
def world():
    world = World()
    world.network.hold.add("update_offset")
    return world


def persist_last(world, queues):
    """Start `persist_last`; return a list to which its outcome is added at the end."""
    for number, queue in enumerate(queues):
        world.member.offsets.table.put(queue, 10 + number)
    ended: list[Any] = []
    pending = start(world.member.offsets.persist_last(queues), world.member)
    pending.on_done(lambda _: ended.append(pending.outcome()))
    return ended


@pytest.mark.parametrize("outcome", [None, DeadlineError("no answer", address="b:1")])
def test_the_first_commit_of_a_topic_at_a_broker_is_answered_before_the_others_go_out(
    world, outcome
):
    """When four first commits are sent at once, RocketMQ 4.6.0 lost one in every tenth
    run."""
    ended = persist_last(world, [queue_of(n) for n in range(4)])
    assert commits(world) == [queue_of(0)]
    open_commits(world)[0].answer(outcome)
    assert commits(world) == [queue_of(n) for n in (1, 2, 3)]
    assert ended == []
    for call in open_commits(world):
        call.answer(None)
    errors = {} if outcome is None else {queue_of(0): outcome}
    assert ended == [errors]
    assert [call.args["offset"] for call in world.network.of("update_offset")] == [
        10,
        11,
        12,
        13,
    ]


def test_topics_and_brokers_do_not_wait_for_each_other(world):
    queues = [
        queue_of(0),
        queue_of(1),
        queue_of(0, topic="%RETRY%g"),
        queue_of(0, broker="broker-b"),
    ]
    ended = persist_last(world, queues)
    assert commits(world) == [queues[0], queues[2], queues[3]]
    while open_commits(world):
        open_commits(world)[0].answer(None)
    assert ended == [{}]


def test_persist_last_ends_at_once_without_anything_to_commit(world):
    store = RemoteBrokerOffsetStore(GROUP, world.network)
    pending = start(store.persist_last([queue_of(0)]), world.member)
    assert pending.is_done
    assert world.network.calls == []
