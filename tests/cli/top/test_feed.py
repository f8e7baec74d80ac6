"""The thread that reads a view: it goes on after errors, and ends when it is told."""

from __future__ import annotations

import queue
from typing import Any

import pytest

from rmqcli.admin.topic_counts import Rates
from rmqcli.api.calls.config import delete_subscription_group
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.top.brokers import BrokersView
from rmqcli.cli.top.feed import Feed
from rmqcli.cli.top.groups import GroupsView
from rmqcli.cli.top.topics import TopicsView
from rmqcli.config import ClientConfig
from rmqcli.errors import RmqError
from rmqcli.testing import ManualClock, faults
from tests.cli.top.test_app import commit
from tests.kit.waiting import PATIENCE_S


def config_of(cluster, **settings):
    return ClientConfig(namesrv=(cluster.namesrv,), **settings)


@pytest.mark.injects_exceptions
def test_a_defect_of_ours_is_shown_and_not_a_screen_that_stands_still():
    class Broken(BrokersView):
        def read(self, client):
            raise ValueError("a defect")

    posted: queue.Queue[Any] = queue.Queue()
    with EmbeddedCluster() as cluster:
        feed = Feed(Broken(), config_of(cluster), lambda _feed, x: posted.put(x))
        feed.start()
        found = posted.get(timeout=PATIENCE_S)
        assert feed.join(PATIENCE_S * 1_000)
    assert isinstance(found, RmqError)
    assert found.message == "internal error: ValueError: a defect"


def test_an_error_that_ends_the_reading_is_shown():
    class Ending(BrokersView):
        def run(self, feed):
            raise RmqError("no more")

    posted: queue.Queue[Any] = queue.Queue()
    with EmbeddedCluster() as cluster:
        feed = Feed(Ending(), config_of(cluster), lambda _feed, x: posted.put(x))
        feed.start()
        assert posted.get(timeout=PATIENCE_S).message == "no more"
        assert feed.join(PATIENCE_S * 1_000)


def test_a_feed_that_has_ended_keeps_no_client():
    """The screen keeps the feeds of views that were left; a client has buffers."""
    posted: queue.Queue[Any] = queue.Queue()
    with EmbeddedCluster() as cluster:
        feed = Feed(BrokersView(), config_of(cluster), lambda _feed, x: posted.put(x))
        feed.start()
        posted.get(timeout=PATIENCE_S)
        feed.close()
        assert feed.join(PATIENCE_S * 1_000)
    with pytest.raises(RuntimeError, match="the feed is not running"):
        _ = feed.client


def test_it_reads_again_after_an_error():
    class Failing(BrokersView):
        interval_ms = 1
        count = 0

        def read(self, client):
            self.count += 1
            if self.count == 1:
                raise RmqError("not now")
            return super().read(client)

    posted: queue.Queue[Any] = queue.Queue()
    with EmbeddedCluster() as cluster:
        feed = Feed(Failing(), config_of(cluster), lambda _feed, x: posted.put(x))
        feed.start()
        assert posted.get(timeout=PATIENCE_S).message == "not now"
        found = posted.get(timeout=PATIENCE_S)
        feed.close()
        assert feed.join(PATIENCE_S * 1_000)
    assert [each.broker_name for each in found.rows] == ["broker-a"]


def test_a_broker_that_hangs_does_not_keep_a_view_that_was_left():
    """It ends long before the answer, which is waited for for an hour, is given up."""
    asked: queue.Queue[None] = queue.Queue()

    class Asking(BrokersView):
        def read(self, client):
            asked.put(None)
            return super().read(client)

    with EmbeddedCluster() as cluster:
        cluster.brokers[0].hang()
        feed = Feed(Asking(), config_of(cluster, timeout_ms=3_600_000), lambda *_: None)
        feed.start()
        asked.get(timeout=PATIENCE_S)
        feed.close()
        assert feed.join(PATIENCE_S * 1_000)
        cluster.brokers[0].resume()


def test_groups_on_the_screen_are_read_each_time_and_the_others_less_often():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])
        for group in ("billing", "idle"):
            commit(cluster, group, "orders", 1)
        view = GroupsView()
        view.interval_ms = 3_600_000
        with Client(config_of(cluster)) as client:
            view.take(view.read(client))
            view.on_screen = ("billing",)
            for group in ("billing", "idle"):
                commit(cluster, group, "orders", 2)
            found = view.read(client)
    assert (found.is_full, list(found.rows)) == (False, ["billing"])
    view.take(found)
    assert {row["group"]: row["total_lag"] for row in view.rows()} == {
        "billing": 0,
        "idle": 1,
    }


def test_the_screen_says_how_old_rows_of_many_groups_can_be():
    with EmbeddedCluster() as cluster:
        for number in range(250):
            cluster.create_group(f"g{number}")
        view = GroupsView()
        view.interval_ms = 2_000
        with Client(config_of(cluster)) as client:
            view.take(view.read(client))
            before = view.intro(None)
            view.take(view.read(client))
    assert (before, view.intro(None)) == (
        (),
        ("250 groups: those off the screen every 3s",),
    )


def test_a_group_on_the_screen_that_is_deleted_vanishes_at_once():
    """Its last numbers stayed until all groups were read again."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"])
        for group in ("billing", "idle"):
            commit(cluster, group, "orders", 0)
            cluster.create_group(group)
        view = GroupsView()
        view.interval_ms = 3_600_000
        with Client(config_of(cluster)) as client:
            view.take(view.read(client))
            view.on_screen = ("billing", "idle")
            client.invoke(
                cluster.broker().address, delete_subscription_group("billing")
            )
            found = view.read(client)
    assert not found.is_full
    view.take(found)
    assert [row["group"] for row in view.rows()] == ["idle"]


def test_a_rate_is_that_of_the_last_ten_seconds():
    rates = Rates()
    taken = [
        rates.take("orders", at_ms, total)
        for at_ms, total in (
            (0, 100),
            (2_000, 120),
            (12_000, 120),
            (22_000, 120),
            (24_000, None),  # a broker did not answer
            (26_000, 200),
            (28_000, 10),  # created again
            (30_000, 30),
        )
    ]
    assert taken == [None, 10.0, 0.0, 0.0, None, None, None, 10.0]


def numbers_of(view, client, clock):
    """Read a view of topics two seconds later; return rate and messages of `orders`."""
    clock.advance(2_000)
    client.cluster_info(refresh=True)
    view.take(view.read(client))
    (row,) = [each for each in view.rows() if each["topic"] == "orders"]
    return row["rate_in"], row["messages"]


def test_what_a_broker_has_that_comes_back_was_not_sent_just_now(tmp_path):
    """The sum of both brokers jumped: 500 messages per second that nobody sent."""
    clock = ManualClock()
    with EmbeddedCluster(brokers=2, store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["x"] * 10, broker="broker-a")
        cluster.send("orders", ["x"] * 1_000, broker="broker-b")
        view = TopicsView()
        with Client(config_of(cluster), clock=clock) as client:
            seen = [numbers_of(view, client, clock) for _ in range(2)]
            cluster.broker("broker-b").kill()
            seen.append(numbers_of(view, client, clock))
            cluster.broker("broker-b").restart()
            seen += [numbers_of(view, client, clock) for _ in range(2)]
    assert seen == [
        (None, 1_010),
        (0.0, 1_010),
        (None, None),  # and not what is left, as if it were all
        (None, 1_010),
        (0.0, 1_010),
    ]


def test_the_messages_of_a_silent_broker_are_missing_from_no_sum():
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["x"] * 10, broker="broker-a")
        cluster.faults.add(faults.disconnect(), broker="broker-b")
        with Client(config_of(cluster)) as client:
            numbers = numbers_of(TopicsView(), client, ManualClock())
    assert numbers == (None, None)
