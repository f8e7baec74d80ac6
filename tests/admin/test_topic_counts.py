"""`Admin.topic_counts`: messages of topics and their rates, and what is not known."""

from __future__ import annotations

import asyncio

import pytest

from rmqcli import Admin
from rmqcli.aio import AsyncAdmin
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode


@pytest.fixture
def pair(rmq_cluster_factory):
    """Two brokers: topic orders is on both, and topic quiet only on the first."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("quiet", queue_nums=1, brokers=["broker-a"])
    cluster.send("orders", ["x"] * 10, broker="broker-a")
    cluster.send("orders", ["x"] * 20, broker="broker-b")
    return cluster


def numbers_of(counts):
    return {
        topic: (each.messages, each.rate_in) for topic, each in counts.topics.items()
    }


def test_a_rate_is_of_the_messages_between_two_readings(pair):
    clock = ManualClock()
    with Admin(namesrv=pair.namesrv, clock=clock) as admin:
        first = admin.topic_counts()
        assert numbers_of(first) == {"orders": (30, None), "quiet": (0, None)}
        assert {each.reason for each in first.topics.values()} == {None}
        pair.send("orders", ["x"] * 15, broker="broker-a")
        pair.send("orders", ["x"] * 25, broker="broker-b")
        clock.advance(2_000)
        second = admin.topic_counts(since=first)
    assert numbers_of(second) == {"orders": (70, 20.0), "quiet": (0, 0.0)}
    assert second.topics["orders"].ends == {"broker-a": 25, "broker-b": 45}
    assert {each.reason for each in second.topics.values()} == {None}


def test_coroutines_read_the_same(pair):
    async def main():
        async with AsyncAdmin(namesrv=pair.namesrv, clock=clock) as admin:
            first = await admin.topic_counts()
            clock.advance(1_000)
            return await admin.topic_counts(since=first)

    clock = ManualClock()
    assert numbers_of(asyncio.run(main())) == {"orders": (30, 0.0), "quiet": (0, 0.0)}


@pytest.mark.parametrize(
    "code", [RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_ALL_TOPIC_CONFIG]
)
def test_a_broker_that_does_not_answer_leaves_no_number_of_the_others(pair, code):
    """What the others have would look like all, and its return like a flood."""
    clock = ManualClock()
    with Admin(namesrv=pair.namesrv, clock=clock) as admin:
        found = [admin.topic_counts()]
        silence = pair.faults.add(faults.answer(1, "no"), code=code, broker="broker-b")
        for _ in range(3):
            clock.advance(1_000)
            found.append(admin.topic_counts(since=found[-1]))
            pair.faults.remove(silence)
    assert [each.topics["orders"].messages for each in found] == [30, None, 30, 30]
    assert [each.topics["orders"].rate_in for each in found] == [None, None, None, 0.0]
    reasons = [each.topics["orders"].reason for each in found]
    assert [reasons[0], reasons[3]] == [None, None]
    assert [str(each).split()[0] for each in reasons[1:3]] == ["broker-b:"] * 2
    assert [each.topics["quiet"].messages for each in found] == [0, 0, 0, 0]


@pytest.mark.parametrize("has_home", [True, False])
def test_a_broker_that_has_left_since_is_missed(pair, has_home, monkeypatch):
    """No group had read the topic there, so that no record has it."""
    if not has_home:
        for name in ("XDG_STATE_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
    clock = ManualClock()
    with Admin(namesrv=pair.namesrv, clock=clock) as admin:
        first = admin.topic_counts()
        pair.broker("broker-b").kill()
        clock.advance(60_000)  # after which an Admin asks for the brokers anew
        second = admin.topic_counts(since=first)
        third = admin.topic_counts(since=second)
    assert numbers_of(second) == {"orders": (None, None), "quiet": (0, 0.0)}
    for counts in (second, third):
        orders = counts.topics["orders"]
        assert (orders.messages, orders.rate_in) == (None, None)
        assert orders.ends == {"broker-a": 10, "broker-b": None}
        assert "broker-b" in str(orders.reason)


def test_a_topic_that_was_created_since_is_counted_from_zero(pair):
    """As `dlq list --sample` counts the letters of a new topic."""
    clock = ManualClock()
    with Admin(namesrv=pair.namesrv, clock=clock) as admin:
        first = admin.topic_counts()
        pair.create_topic("new", queues=1)
        pair.send("new", ["x"] * 6, broker="broker-a")
        clock.advance(2_000)
        new = admin.topic_counts(since=first).topics["new"]
    assert (new.messages, new.rate_in, new.reason) == (6, 3.0, None)


def test_a_topic_of_a_broker_that_did_not_tell_before_is_not_new(pair):
    clock = ManualClock()
    with Admin(namesrv=pair.namesrv, clock=clock) as admin:
        admin.create_topic("late", queue_nums=1, brokers=["broker-b"])
        pair.send("late", ["x"] * 6, broker="broker-b")
        silence = pair.faults.add(
            faults.answer(1, "no"),
            code=RequestCode.GET_ALL_TOPIC_CONFIG,
            broker="broker-b",
        )
        first = admin.topic_counts()
        pair.faults.remove(silence)
        clock.advance(1_000)
        late = admin.topic_counts(since=first).topics["late"]
    assert (late.messages, late.rate_in) == (6, None)
    assert "broker-b" in str(late.reason)
