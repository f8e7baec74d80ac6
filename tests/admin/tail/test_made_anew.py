"""A topic that is deleted, created again and filled while it is followed is read whole.

A broker goes on to hold the pulls of a topic that is deleted, and answers them with
messages of the new one, as if nothing had happened.
"""

from __future__ import annotations

import time
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli import connect
from rmqcli.admin.tail.batch import Batcher, TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.admin.tail.follow import Follower, FollowOptions
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.faults import drop_answer
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.testing import ManualClock
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.admin.lag.scripted_broker import (
    FOUND,
    ILLEGAL,
    ScriptedBroker,
    answer_fields,
    record,
)
from tests.admin.read.test_range import cluster as scripted
from tests.admin.read.test_range import queue as scripted_queue
from tests.kit.waiting import PATIENCE_S

QUEUE = MessageQueue("orders", "broker-a", 0)
ANOTHER = "the topic was deleted and created again, or its broker has lost messages"
BUSY = {"code": 2, "remark": "busy", "ext_fields": {}, "body": b""}


@pytest.fixture
def cluster():
    """A cluster whose held pulls end soon, also without a message."""
    settings = {"long_polling_enable": False, "short_polling_time_mills": 50}
    with EmbeddedCluster(queues=1, settings=settings) as cluster:
        cluster.create_topic("orders")
        cluster.send("orders", [f"old {n}" for n in range(4)])
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        yield client


class Following:
    """A follower, with what it has shown and said; it compares whenever it may."""

    def __init__(self, client, positions, **options):
        self.said: list[str] = []
        self.went_back: list[int] = []
        self.shown: list[str] = []
        self.missing: list[tuple[int, int]] = []
        options = {"compare_every_ms": 0, "lost_ms": 0} | options
        self.follower = Follower(
            client,
            positions,
            FollowOptions(**options),
            say=self.said.append,
            on_lost=lambda _queue, offset: self.went_back.append(offset),
        )

    def until(self, accepts):
        end = time.monotonic() + PATIENCE_S
        while not accepts():
            assert time.monotonic() < end, (self.shown, self.said)
            for chunk in self.follower.poll(50):
                self.missing += chunk.missing
                for each in decode_messages(chunk.body):
                    assert isinstance(each, StoredMessage)
                    self.shown.append(each.body.decode())

    def until_shown(self, count):
        self.until(lambda: len(self.shown) >= count)

    def until_settled(self, broker, count=3):
        """Poll until the broker has answered some more pulls."""
        pulls = broker.pulls
        self.until(lambda: broker.pulls >= pulls + count)


def make_anew(cluster, count):
    """Delete the topic, and create it again with `count` messages."""
    with connect(cluster.namesrv) as clients, clients.admin() as admin:
        admin.delete_topic("orders")
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", [f"new {n}" for n in range(count)])


@pytest.mark.parametrize("shown_before", [1, 200, 400])
@pytest.mark.parametrize("count", [40, 400, 1_000])
def test_a_topic_that_was_made_anew_before_it_is_followed_is_announced(
    client, cluster, shown_before, count
):
    """The rest of the range was read from the new topic, and nothing was said."""
    cluster.send("orders", [f"old {n}" for n in range(4, 400)])
    plan = TailPlan(
        ranges=(OffsetRange(QUEUE, 0, 400),), filter=TailFilter(), follow=True
    )
    batcher = Batcher(
        plan.filter,
        lambda _queue, messages: [
            each.body.decode() for each in messages if isinstance(each, StoredMessage)
        ],
        TailCounts(),
    )
    said: list[str] = []
    shown: list[str] = []
    new = [f"new {n}" for n in range(count)]
    end = time.monotonic() + PATIENCE_S
    is_made_anew = False
    for items in Tail(client, plan, batcher, say=said.append).items():
        shown += items
        if not is_made_anew and len(shown) >= shown_before:
            make_anew(cluster, count)
            is_made_anew = True
        if shown[-count:] == new:
            break
        assert time.monotonic() < end, (shown, said)
    assert shown[-count:] == new
    assert f"{QUEUE}: {ANOTHER}; continuing at offset 0" in said


def tail_of(client, said, on_chunk=lambda: None, **plan):
    """A tail of the queue with 400 messages that gives out texts."""
    made = TailPlan(ranges=(OffsetRange(QUEUE, 0, 400),), filter=TailFilter(), **plan)

    def texts(_queue, messages):
        on_chunk()
        return [
            each.body.decode() for each in messages if isinstance(each, StoredMessage)
        ]

    batcher = Batcher(made.filter, texts, TailCounts())
    return Tail(client, made, batcher, say=said.append)


@pytest.mark.parametrize("count", [4, 1_000])
@pytest.mark.parametrize("ends_at", [None, 200])
def test_a_topic_that_is_made_anew_while_a_range_is_read_is_not_complete(
    client, cluster, count, ends_at
):
    """Messages of both topics were shown as those of one, and nothing was said."""
    cluster.send("orders", [f"old {n}" for n in range(4, 400)])
    tail = tail_of(client, [], count=ends_at)
    is_made_anew = False
    for _ in tail.items():
        if not is_made_anew:
            make_anew(cluster, count)
            is_made_anew = True
    assert tail.abandoned[QUEUE].message == f"{ANOTHER} while it was read"


def test_a_topic_that_is_made_anew_while_its_last_messages_are_read_is_not_complete(
    client, cluster
):
    cluster.send("orders", [f"old {n}" for n in range(4, 400)])
    made_anew: list[int] = []

    def once():
        if not made_anew:
            make_anew(cluster, 1_000)
            made_anew.append(1_000)

    tail = tail_of(client, [], on_chunk=once, last=100)
    assert sum(map(len, tail.items())) == 100
    assert tail.abandoned[QUEUE].message == f"{ANOTHER} while it was read"


@pytest.mark.parametrize("last", [10, 100])
@pytest.mark.parametrize(
    ("count", "when"),
    [
        *((count, "before it follows") for count in (40, 400, 401, 1_000)),
        *((count, "as it reads") for count in (400, 1_000)),
    ],
)
def test_a_topic_that_is_made_anew_after_its_last_messages_is_announced(
    client, cluster, last, count, when
):
    """What the new topic had up to the end of the old one was not shown."""
    cluster.send("orders", [f"old {n}" for n in range(4, 400)])
    said: list[str] = []
    shown: list[str] = []
    made_anew: list[int] = []

    def once():
        if not made_anew:
            make_anew(cluster, count)
            made_anew.append(count)

    as_it_reads = once if when == "as it reads" else lambda: None
    tail = tail_of(client, said, on_chunk=as_it_reads, last=last, follow=True)
    new = [f"new {n}" for n in range(count)]
    end = time.monotonic() + PATIENCE_S
    for items in tail.items():
        shown += items
        if len(shown) >= last:
            once()
        if shown[-count:] == new:
            break
        assert time.monotonic() < end, (shown, said)
    assert shown[-count:] == new
    assert f"{QUEUE}: {ANOTHER}; continuing at offset 0" in said


def test_a_topic_that_stays_while_it_is_read_is_complete(client, cluster):
    cluster.send("orders", [f"old {n}" for n in range(4, 400)])
    for plan in ({}, {"last": 100}):
        tail = tail_of(client, [], **plan)
        assert sum(map(len, tail.items())) == plan.get("last", 400)
        assert tail.abandoned == {}


def pulled_since(pulls, count):
    """Return a condition that holds after that many more pulls."""
    wanted = pulls.seen + count
    return lambda: pulls.seen >= wanted


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 4, 5, 7, 40])
@pytest.mark.parametrize("start", [0, 4], ids=["read", "from the end"])
def test_every_message_of_a_topic_that_was_made_anew_is_shown_once(
    cluster, client, start, count
):
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    following = Following(client, {QUEUE: start})
    following.until_shown(4 - start)
    following.until(pulled_since(pulls, 4))
    make_anew(cluster, count)
    following.until_shown(4 - start + count)
    cluster.send("orders", ["last"])
    following.until_shown(4 - start + count + 1)
    following.until(pulled_since(pulls, 4))
    assert following.shown == [
        *(f"old {n}" for n in range(start, 4)),
        *(f"new {n}" for n in range(count)),
        "last",
    ]
    assert following.missing == []
    assert following.said.count(f"{QUEUE}: {ANOTHER}; continuing at offset 0") == 1
    assert following.went_back == [0]


@settings(max_examples=20, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["send", "make anew", "restart", "wait"]),
            st.integers(1, 40),
        ),
        max_size=8,
    )
)
def test_whatever_happens_the_last_topic_is_shown_whole_and_in_order(steps):
    options = {"long_polling_enable": False, "short_polling_time_mills": 20}
    with EmbeddedCluster(queues=1, settings=options) as cluster:
        cluster.create_topic("orders")
        broker = cluster.broker("broker-a")
        there = ["0"]
        cluster.send("orders", there)
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            following = Following(client, {QUEUE: 0}, probe_ms=50)
            following.until_shown(1)
            for number, (step, count) in enumerate([*steps, ("wait", 1)]):
                more = [f"{number + 1}.{n}" for n in range(count)]
                if step == "make anew":
                    # Nobody deletes a topic in the ms in which its message is stored.
                    now_ms = SYSTEM_CLOCK.epoch_ms()
                    following.until(partial(is_over, now_ms))
                    core = broker.state
                    cluster.call(partial(core.store.delete_topic, "orders"))
                    there = []
                elif step == "restart":
                    broker.restart()
                if step != "wait":
                    cluster.send("orders", more)
                    there += more
                else:
                    following.until(partial(ends_with, following.shown, there))
    assert following.missing == []
    assert sorted(set(following.shown)) == sorted(following.shown)


def is_over(epoch_ms):
    return SYSTEM_CLOCK.epoch_ms() > epoch_ms


def ends_with(shown, there):
    return shown[-len(there) :] == there


def test_messages_of_a_topic_that_was_made_anew_during_a_held_pull_are_all_shown():
    """The broker answered the pull with 3 of 7 messages, and nothing was said."""
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("orders")
        cluster.send("orders", ["old"] * 4)
        pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            following = Following(client, {QUEUE: 0})
            following.until_shown(4)
            following.until(lambda: _offset(pulls) == 4)
            make_anew(cluster, 7)
            following.until_shown(11)
    assert following.shown == ["old"] * 4 + [f"new {n}" for n in range(7)]
    assert following.said == [f"{QUEUE}: {ANOTHER}; continuing at offset 0"]


def _offset(pulls):
    return int(pulls.requests[-1].command.ext_fields["queueOffset"])


def test_what_was_shown_soon_after_a_comparison_is_compared_later(cluster):
    """Until then the new topic's first messages are missing; then it is shown whole."""
    clock = ManualClock()
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    with Client(ClientConfig(namesrv=(cluster.namesrv,)), clock=clock) as client:
        following = Following(client, {QUEUE: 4}, compare_every_ms=1_000)
        following.until(pulled_since(pulls, 2))
        core = cluster.broker("broker-a").state
        cluster.call(lambda: core.store.delete_topic("orders"))
        cluster.send("orders", [f"new {n}" for n in range(7)])
        following.until_shown(3)
        clock.advance(1_000)
        following.until_shown(10)
    assert following.shown == [f"new {n}" for n in (4, 5, 6, *range(7))]
    assert following.said == [f"{QUEUE}: {ANOTHER}; continuing at offset 0"]


def test_after_an_outage_a_queue_is_compared_at_once(cluster, client):
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    following = Following(client, {QUEUE: 4}, compare_every_ms=1_000_000)
    following.until(pulled_since(pulls, 4))
    broker = cluster.broker("broker-a")
    cluster.call(lambda: broker.state.store.delete_topic("orders"))
    cluster.send("orders", [f"new {n}" for n in range(7)])
    broker.restart()
    following.until_shown(7)
    assert following.shown[-7:] == [f"new {n}" for n in range(7)]
    assert following.went_back == [0]


def test_a_broker_that_was_restarted_with_its_messages_has_the_same_queue(
    cluster, client
):
    following = Following(client, {QUEUE: 0})
    following.until_shown(4)
    for n in range(3):
        cluster.broker("broker-a").restart()
        cluster.send("orders", [f"more {n}"])
        following.until_shown(5 + n)
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    following.until(pulled_since(pulls, 4))
    assert following.shown == [
        *(f"old {n}" for n in range(4)),
        *(f"more {n}" for n in range(3)),
    ]
    assert (following.went_back, following.missing) == ([], [])
    assert not [text for text in following.said if ANOTHER in text]


def test_messages_that_were_removed_are_missing_and_the_queue_is_the_same():
    broker = ScriptedBroker({0: 4})
    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0})
        following.until_shown(4)
        following.until_settled(broker)
        broker.queues[0], broker.low = 12, 10
        following.until_shown(6)
        broker.low = 12  # nothing is left of the queue
        following.until_settled(broker)
        broker.queues[0] = 13
        following.until_shown(7)
    assert following.shown == [f"0:{n}" for n in (0, 1, 2, 3, 10, 11, 12)]
    assert following.missing == [(4, 10)]
    assert (following.said, following.went_back) == ([], [])


def test_closing_the_client_is_no_trouble_of_a_broker(cluster):
    """The pulls that the broker holds end without an answer then."""
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        following = Following(client, {QUEUE: 4})
        held = cluster.faults.add(drop_answer(), code=RequestCode.PULL_MESSAGE)
        following.until(pulled_since(held, 1))
    assert following.said == []
    assert following.follower.abandoned == {}


def test_a_compaction_that_removes_the_remembered_message_shows_nothing():
    broker = ScriptedBroker({0: 4})

    def compacted(_queue: int, offset: int, _turn: int) -> dict[str, object] | None:
        if offset > 3:
            return None
        answer = answer_fields(FOUND, 6, high=6)
        return answer | {"body": record(5)}

    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0})
        following.until_shown(4)
        following.until_settled(broker)
        broker.queues[0], broker.override = 6, compacted
        following.until_shown(6)
        following.until_settled(broker)
    assert following.shown == [f"0:{n}" for n in range(6)]
    assert (following.said, following.went_back) == ([], [])


def test_a_broker_that_does_not_answer_the_comparison_is_asked_again():
    broker = ScriptedBroker({0: 4})
    refused: list[int] = []

    def busy(_queue: int, offset: int, _turn: int) -> dict[str, object] | None:
        if offset == 3 and len(refused) < 3:
            refused.append(offset)
            return BUSY
        return None

    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0})
        following.until_shown(4)
        following.until_settled(broker)
        broker.override = busy
        broker.queues[0] = 6
        following.until_shown(6)
        following.until_settled(broker)
    assert refused == [3] * 3
    assert following.shown == [f"0:{n}" for n in range(6)]
    assert following.went_back == []
    assert "is back; continuing" in following.said[-1]


def test_a_queue_that_lost_its_end_goes_on_with_the_messages_stored_since():
    """It is not begun at its start: most of its messages were shown."""
    broker = ScriptedBroker({0: 15})
    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0})
        following.until_shown(15)
        following.until_settled(broker)
        broker.make_record = lambda _queue, offset: record(
            offset, store_ms=1_700_000_000_000 + offset + (1_000 if offset > 9 else 0)
        )
        broker.queues[0] = 17
        following.until_shown(22)
        following.until_settled(broker)
    assert following.shown == [f"0:{n}" for n in (*range(15), *range(10, 17))]
    assert following.said == [
        f"{scripted_queue()}: {ANOTHER}; continuing at offset 10",
    ]
    assert following.went_back == [10]


def test_after_an_outage_the_last_message_that_was_shown_is_compared():
    """A broker that was killed may have lost what it stored since a comparison."""
    broker = ScriptedBroker({0: 15}, batch=5)
    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0}, compare_every_ms=60_000)
        following.until_shown(15)
        following.until_settled(broker, 2)
        broker.override = lambda *_: BUSY
        following.until(lambda: following.said)
        broker.make_record = lambda _queue, offset: record(
            offset, store_ms=1_700_000_000_000 + offset + (1_000 if offset > 9 else 0)
        )
        broker.override, broker.queues[0] = None, 17
        following.until_shown(22)
    assert following.shown == [f"0:{n}" for n in (*range(15), *range(10, 17))]
    assert following.went_back == [10]


@pytest.mark.parametrize("count", [1, 4, 9])
def test_all_queues_of_a_topic_are_compared_while_the_broker_holds_their_pulls(count):
    """It may hold them for long: with as few messages as before none would arrive."""
    with EmbeddedCluster(queues=3) as cluster:
        cluster.create_topic("orders")
        cluster.send("orders", ["old"] * 12)
        pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
        queues = [MessageQueue("orders", "broker-a", n) for n in range(3)]
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            following = Following(
                client, dict.fromkeys(queues, 4), probe_ms=100, suspend_ms=600_000
            )
            following.until(pulled_since(pulls, 6))
            core = cluster.broker("broker-a").state
            cluster.call(lambda: core.store.delete_topic("orders"))
            cluster.send("orders", ["new"] * 3 * count)
            following.until_shown(3 * count)
    assert following.shown == ["new"] * 3 * count
    assert following.went_back == [0, 0, 0]


def test_a_queue_that_ends_before_the_next_offset_is_not_complete(cluster):
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        following = Following(client, {QUEUE: 4}, lost_ms=600_000)
        following.until(pulled_since(pulls, 4))
        assert following.follower.away == {}
        core = cluster.broker("broker-a").state
        cluster.call(lambda: core.store.delete_topic("orders"))
        following.until(lambda: following.said)
        (error,) = following.follower.away.values()
    assert following.said == [
        f"{QUEUE}: the queue now ends at offset 0, before offset 4; waiting"
    ]
    assert str(error) == "the queue ends at offset 0"


def test_a_queue_is_read_from_its_start_if_the_clock_of_its_broker_was_set_back():
    broker = ScriptedBroker({0: 4})
    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0})
        following.until_shown(4)
        following.until_settled(broker)
        broker.make_record = lambda _queue, offset: record(offset, store_ms=1 + offset)
        broker.queues[0] = 6
        following.until_shown(10)
    assert following.went_back == [0]


def test_a_slave_that_has_caught_up_is_known_to_have_the_same_messages():
    broker = ScriptedBroker({0: 4})

    def behind(_queue: int, offset: int, _turn: int) -> dict[str, object] | None:
        return answer_fields(ILLEGAL, 2, high=2) if offset == 4 else None

    broker.override = behind
    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 0}, lost_ms=60_000)
        following.until_shown(4)
        following.until(lambda: following.said)
        broker.override, broker.queues[0] = None, 6
        following.until_shown(6)
    assert following.shown == [f"0:{n}" for n in range(6)]
    assert following.said == [
        f"{scripted_queue()}: the queue now ends at offset 2, before offset 4; waiting",
        f"{scripted_queue()}: the queue has grown to offset 4 again",
    ]


def test_a_busy_queue_is_not_compared_with_each_pull():
    broker = ScriptedBroker({0: 1_000}, batch=8)
    with scripted(broker) as client:
        following = Following(client, {scripted_queue(): 8}, compare_every_ms=60_000)
        following.until_shown(992)
    assert broker.pulls <= 992 / 8 + 2  # the message before the first, and the next
