"""Following queues loses and repeats no message, does not spin, and reports outages."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rmqcli.admin.tail.batch import Batcher, TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.admin.tail.follow import Follower, FollowOptions
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.admin.lag.scripted_broker import ILLEGAL, ScriptedBroker, answer_fields
from tests.admin.read.test_range import cluster, queue
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import Peer, free_port

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.admin.read.body import Chunk
    from rmqcli.broker.cluster.embedded import EmbeddedCluster


def follow(
    follower: Follower, until: Callable[[list[tuple[int, int]]], bool]
) -> list[tuple[int, int]]:
    """Return queue id and offset of what arrives, until `until` accepts the list."""
    seen: list[tuple[int, int]] = []
    end = time.monotonic() + PATIENCE_S
    while not until(seen):
        assert time.monotonic() < end, seen
        for chunk in follower.poll(200):
            seen += [
                (chunk.queue.queue_id, message.queue_offset)
                for message in decode_messages(chunk.body)
                if isinstance(message, StoredMessage)
            ]
    return seen


def test_following_starts_at_the_given_offsets_and_takes_what_arrives() -> None:
    broker = ScriptedBroker({0: 40, 1: 3})
    said: list[str] = []
    with cluster(broker) as client:
        follower = Follower(client, {queue(0): 35, queue(1): 3}, say=said.append)
        seen = follow(follower, lambda seen: len(seen) == 5)
        broker.queues[1] = 5
        seen += follow(follower, lambda seen: len(seen) == 2)
        follower.stop()
    assert seen == [(0, o) for o in range(35, 40)] + [(1, 3), (1, 4)]
    assert said == []


def test_a_broker_that_never_waits_is_not_asked_in_a_spin() -> None:
    broker = ScriptedBroker({0: 0})
    with cluster(broker) as client:
        follower = Follower(client, {queue(0): 0}, say=print)
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            follower.poll(100)
        follower.stop()
    assert broker.pulls < 20


def test_an_outage_is_announced_and_nothing_is_lost_or_repeated() -> None:
    broker = ScriptedBroker({0: 10})
    port = free_port()
    said: list[str] = []
    with Peer(broker) as namesrv:
        broker.addresses = {0: f"127.0.0.1:{port}"}
        config = ClientConfig(namesrv=(namesrv.address,), timeout_ms=60_000)
        with Client(config) as client:
            follower = Follower(client, {queue(0): 0}, say=said.append)
            with Peer(broker, port=port):
                seen = follow(follower, lambda seen: len(seen) == 10)
            assert follow(follower, lambda _: len(said) == 1) == []
            broker.queues[0] = 20
            with Peer(broker, port=port):
                seen += follow(follower, lambda seen: len(seen) == 10)
                follower.stop()
    assert seen == [(0, o) for o in range(20)]
    assert len(said) == 2
    assert "retrying" in said[0]
    assert "is back; continuing" in said[1]


def test_messages_that_a_broker_lost_are_announced() -> None:
    broker = ScriptedBroker({0: 10})

    def ends_before(_queue: int, offset: int, _turn: int) -> dict[str, object] | None:
        return answer_fields(ILLEGAL, 10, high=10) if offset > 10 else None

    broker.override = ends_before
    said: list[str] = []
    lost: list[tuple[int, int]] = []
    with cluster(broker) as client:
        options = FollowOptions(lost_ms=0)
        follower = Follower(
            client,
            {queue(0): 15},
            options,
            say=said.append,
            on_lost=lambda queue, offset: lost.append((queue.queue_id, offset)),
        )
        follow(follower, lambda _: len(said) == 2)
        assert lost == [(0, 10)]
        broker.queues[0] = 12
        seen = follow(follower, lambda seen: len(seen) == 2)
        follower.stop()
    assert seen == [(0, 10), (0, 11)]
    assert "lost offsets 10 to 15" in said[1]


@pytest.mark.slow  # for 10 s the queue may still grow
def test_a_run_that_continues_begins_where_the_broker_lost_messages() -> None:
    broker = ScriptedBroker({0: 15})

    def ends_before(_queue: int, offset: int, _turn: int) -> dict[str, object] | None:
        return answer_fields(ILLEGAL, 10, high=10) if offset > 10 else None

    said: list[str] = []
    plan = TailPlan(
        ranges=(OffsetRange(queue(0), 0, 15),), filter=TailFilter(), follow=True
    )
    batcher = Batcher(plan.filter, lambda _q, messages: list(messages), TailCounts())
    with cluster(broker) as client:
        tail = Tail(client, plan, batcher, say=said.append)
        items = tail.items()
        while tail.counts.matched + len(next(items)) < 15:
            pass
        tail.count_shown()
        assert tail.positions == {queue(0): 15}
        broker.override = ends_before
        broker.queues[0] = 11
        assert [each.queue_offset for each in next(items)] == [10]
        assert tail.positions == {queue(0): 10}
        tail.count_shown()
        assert tail.positions == {queue(0): 11}
    assert said[-1] == "T@b-a:0: the broker lost offsets 10 to 15; continuing at 10"


@pytest.mark.slow
def test_a_queue_that_ended_too_early_and_has_grown_may_have_other_messages() -> None:
    """Its broker may have lost messages, and stored new ones at their offsets."""
    ends = iter([12, 10])

    def ends_before(_queue: int, offset: int, _turn: int) -> dict[str, object] | None:
        # The message before the queue's offset was removed.
        end = next(ends, None) if offset == 15 else 16
        return None if end is None else answer_fields(ILLEGAL, end, high=end)

    broker = ScriptedBroker({0: 16})
    broker.override = ends_before
    said: list[str] = []
    with cluster(broker) as client:
        follower = Follower(client, {queue(0): 15}, say=said.append)
        assert follow(follower, lambda seen: len(seen) == 1) == [(0, 15)]
        follower.stop()
    assert said == [
        "T@b-a:0: the queue now ends at offset 12, before offset 15; waiting",
        (
            "T@b-a:0: the queue has grown to offset 15 again; if its broker lost"
            " messages, new ones at offsets 10 to 15 are not shown"
        ),
    ]


def test_a_trimmed_queue_goes_on_at_its_start_and_says_what_is_missing() -> None:
    with cluster(ScriptedBroker({0: 120}, low=100)) as client:
        follower = Follower(client, {queue(0): 0}, say=print)
        chunks: list[Chunk] = []
        end = time.monotonic() + PATIENCE_S
        while not any(chunk.body for chunk in chunks) and time.monotonic() < end:
            chunks += follower.poll(200)
        follower.stop()
    assert chunks[0].missing == ((0, 100),)
    assert chunks[1].start == 100


def test_new_queues_are_picked_up() -> None:
    broker = ScriptedBroker({0: 1})
    said: list[str] = []
    with cluster(broker) as client:
        options = FollowOptions(route_every_ms=50)
        follower = Follower(client, {queue(0): 0}, options, say=said.append)
        follow(follower, lambda seen: len(seen) == 1)
        broker.queues[1] = 2
        seen = follow(follower, lambda seen: len(seen) == 2)
        follower.stop()
    assert seen == [(1, 0), (1, 1)]
    assert said == ["T@b-a:1: new queue; reading from its start"]


def test_a_queue_that_was_given_up_is_not_picked_up_as_a_new_one() -> None:
    denied = {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}
    broker = ScriptedBroker(
        {0: 1, 1: 1}, override=lambda queue_id, *_: denied if queue_id == 1 else None
    )
    said: list[str] = []
    with cluster(broker) as client:
        options = FollowOptions(route_every_ms=50)
        follower = Follower(
            client, {queue(0): 1, queue(1): 0}, options, say=said.append
        )
        end = time.monotonic() + PATIENCE_S
        while not follower.abandoned and time.monotonic() < end:
            follower.poll(200)
        assert list(follower.abandoned) == [queue(1)]
        broker.queues[2] = 1  # which shows that the route was read again
        assert follow(follower, lambda seen: len(seen) == 1) == [(2, 0)]
        follower.stop()
    assert [text for text in said if "new queue" in text] == [
        "T@b-a:2: new queue; reading from its start"
    ]


@pytest.mark.parametrize(
    ("code", "said_last"),
    [(1, "; retrying for up to 30s"), (2, "; retrying")],
    ids=["system error", "busy"],
)
def test_only_errors_that_are_not_retriable_have_a_limit(
    code: int, said_last: str
) -> None:
    failed = {"code": code, "remark": "no", "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 10}, override=lambda *_: failed)
    said: list[str] = []
    with cluster(broker) as client:
        follower = Follower(client, {queue(0): 0}, say=said.append)
        follow(follower, lambda _: bool(said))
        follower.stop()
    assert said[0].endswith(said_last)


def test_a_refusal_gives_the_queue_up() -> None:
    denied = {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 10}, override=lambda *_: denied)
    said: list[str] = []
    with cluster(broker) as client:
        follower = Follower(client, {queue(0): 0}, say=said.append)
        end = time.monotonic() + PATIENCE_S
        while not follower.is_over and time.monotonic() < end:
            follower.poll(200)
    assert list(follower.abandoned) == [queue(0)]
    assert "stopped reading T@b-a:0: " in said[0]


@pytest.mark.slow
def test_a_broker_that_left_the_route_is_read_again_when_it_is_back(
    rmq_cluster_factory: Callable[..., EmbeddedCluster],
) -> None:
    """While another broker is there, the route lacks the one that is restarted."""
    pair = rmq_cluster_factory(brokers=2)
    pair.create_topic("T", queues=1)
    places = {MessageQueue("T", name, 0): 0 for name in ("broker-a", "broker-b")}
    said: list[str] = []
    with Client(ClientConfig(namesrv=(pair.namesrv,))) as client:
        options = FollowOptions(refused_ms=0)
        follower = Follower(client, places, options, say=said.append)
        pair.send("T", ["before"], broker="broker-b")
        assert follow(follower, lambda seen: len(seen) == 1) == [(0, 0)]
        pair.broker("broker-b").kill()

        def has_left(_seen: object) -> bool:
            away = follower.away | follower.abandoned
            return any("is not in the" in error.message for error in away.values())

        assert follow(follower, has_left) == []
        pair.broker("broker-b").restart()
        pair.send("T", ["after"], broker="broker-b")
        assert follow(follower, lambda seen: len(seen) == 1) == [(0, 1)]
        follower.stop()
    assert "retrying" in said[0]
    assert said[1:] == ["broker-b is back; continuing"]


def test_all_queues_are_given_up_when_no_broker_has_answered_for_the_limit() -> None:
    broker = ScriptedBroker({0: 2, 1: 0})
    said: list[str] = []
    with Peer(broker) as namesrv:
        config = ClientConfig(namesrv=(namesrv.address,), timeout_ms=60_000)
        with Client(config) as client:
            follower = Follower(
                client,
                {queue(0): 0, queue(1): 0},
                FollowOptions(give_up_ms=0),
                say=said.append,
            )
            with Peer(broker) as served:
                broker.addresses = {0: served.address}
                follow(follower, lambda seen: len(seen) == 2)
            follow(follower, lambda _: follower.has_given_up)
    assert follower.is_over
    assert sorted(follower.abandoned) == [queue(0), queue(1)]
    assert len(said) == 1
    assert "retrying" in said[0]
