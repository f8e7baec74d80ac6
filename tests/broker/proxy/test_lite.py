"""The table of lite topics on the embedded proxy, and what only a test double shows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from rmqcli.broker.faults import Answer
from rmqcli.testing import ManualClock
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.protobuf import definition_pb2 as d
from tests.broker.proxy.lite import CASES, COMPLETE_ADD, PARTIAL_ADD, Lite, names
from tests.broker.proxy.test_sending import counts, stored
from tests.broker.wire_client import WireClient
from tests.kit.waiting import wait_until

DELETE_TOPIC_IN_BROKER = 215
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def lite_cluster(start):
    return start(clock=ManualClock())


@pytest.fixture
def make_lite(lite_cluster):
    """A function that makes a topic with groups; receives take no time."""

    def wait_for(receive):
        done = pool.submit(receive)
        while True:
            wait_until(lambda: done.done() or held(lite_cluster), what="a receive")
            if done.done():
                return done.result()
            lite_cluster.advance(5_000)
            wait_until(lambda: done.done() or not held(lite_cluster), what="the answer")

    def make():
        made.append(
            Lite(
                lite_cluster.endpoints,
                lambda name, kind: lite_cluster.create_topic(
                    name, attributes={"message.type": kind} if kind else {}
                ),
                lambda name, attributes: lite_cluster.create_group(
                    name, attributes=attributes
                ),
                wait_for,
            )
        )
        return made[-1]

    made: list[Lite] = []
    with ThreadPoolExecutor(1) as pool:
        yield make
        for each in made:
            each.close()


@pytest.fixture
def lite(make_lite):
    return make_lite()


def held(cluster):
    return cluster.call(lambda: len(cluster.broker().state.lite.holds))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_embedded_proxy(lite, name):
    assert CASES[name].act(lite) == CASES[name].expected


def test_a_message_is_in_its_topic_and_in_the_queue_of_its_lite_topic(
    lite_cluster, lite
):
    lite.send("a1", "b1", "a2")
    lmq = f"%LMQ%${lite.topic}$a"
    second = stored(lite_cluster, lmq, 0, 1)
    assert (second.topic, second.properties["__LITE_TOPIC"]) == (lite.topic, "a")
    assert second.properties["INNER_MULTI_DISPATCH"] == lmq
    assert second.properties["INNER_MULTI_QUEUE_OFFSET"] == "1"
    assert counts(lite_cluster, f"%LMQ%${lite.topic}$b", 1) == [1]
    assert sum(counts(lite_cluster, lite.topic)) == 3


def test_a_waiting_receive_gets_the_next_message(lite):
    with lite.member("a") as member, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(member.receive, lite.group, lite.topic)
        lite.send("a1")
        assert names(waiting.result().messages) == ["a1"]


def test_an_unsubscribed_lite_topic_is_not_delivered_once_more(lite):
    """RocketMQ delivers it, if the client has not received since its last ack."""
    with lite.member("a") as member:
        lite.send("a1")
        member.gather(1)
        assert member.sync(d.LiteSubscriptionAction.PARTIAL_REMOVE, "a") == "OK"
        lite.send("a2")
        assert member.nothing() == "MESSAGE_NOT_FOUND"


def test_a_restart_of_the_broker_keeps_offsets_and_forgets_subscriptions(
    lite_cluster, lite
):
    with lite.member("a") as member:
        lite.send("a1", "a2")
        first, _ = member.gather(2, acks=False)
        assert member.done(first) == "OK"
        lite_cluster.broker().restart()
        assert member.sync(COMPLETE_ADD, "a") == "OK"
        assert names(member.gather(1)) == ["a2"]


def test_a_client_without_a_call_loses_its_subscriptions(lite_cluster, lite):
    with lite.member("a") as member:
        lite_cluster.advance(360_000)
        lite.send("a1")
        state = lite_cluster.broker().state
        ready = lambda: state.lite.ready(member.client_id, lite.group)  # noqa: E731
        assert lite_cluster.call(ready) == []


def test_a_broken_stream_ends_the_subscriptions(lite_cluster, lite):
    with lite.member("a") as member:
        lite.send("a1")
        state = lite_cluster.broker().state
        ready = lambda: state.lite.ready(member.client_id, lite.group)  # noqa: E731
        assert lite_cluster.call(ready) == [f"%LMQ%${lite.topic}$a"]
        member.stream.stream.cancel()
        wait_until(lambda: not lite_cluster.call(ready), what="the end")


def test_subscriptions_whose_brokers_cannot_be_found_are_left_to_expire(
    lite_cluster, lite, caplog
):
    with lite.member("a") as member:
        lite_cluster.advance(2_000)  # the proxy asks for the route again
        lite_cluster.faults.next(
            Answer(code=0, body=b"{"), code=RequestCode.GET_ROUTEINFO_BY_TOPIC
        )
        member.stream.stream.cancel()
        wait_until(lambda: "could not unsubscribe" in caplog.text)


@pytest.mark.parametrize(("minutes", "is_left"), [("60", False), ("-1", True)])
def test_a_lite_topic_without_messages_expires(lite_cluster, lite, minutes, is_left):
    lite_cluster.create_topic(
        lite.topic,
        attributes={"message.type": "LITE", "lite.topic.expiration": minutes},
    )
    with lite.member("a") as member:
        lite.send("a1")
        member.gather(1)
        lmq = f"%LMQ%${lite.topic}$a"
        offsets = lite_cluster.broker().state.offsets
        lite_cluster.advance(59 * 60_000)
        assert counts(lite_cluster, lmq, 1) == [1]
        lite_cluster.advance(DAY_MS)
        assert counts(lite_cluster, lmq, 1) == [int(is_left)]
        offset = lite_cluster.call(lambda: offsets.query(lite.group, lmq, 0))
        assert offset == (1 if is_left else None)


def test_messages_of_a_topic_that_is_made_again_are_not_blocked(lite_cluster, lite):
    with lite.member("a") as member:
        lite.send("a1")
        assert names(member.gather(1, acks=False)) == ["a1"]
        with WireClient(lite_cluster.broker().address) as wire:
            assert wire.ask(DELETE_TOPIC_IN_BROKER, topic=lite.topic).code == 0
        lite_cluster.create_topic(lite.topic, attributes={"message.type": "LITE"})
        lite.send("a2")
        assert member.sync(PARTIAL_ADD, "a") == "OK"
        assert names(member.gather(1)) == ["a2"]


def test_a_client_with_more_than_100_messages_to_renew_receives_no_more(lite):
    with lite.member(*"abcdef") as member:
        for letter, count in zip("abcde", (32, 32, 32, 4, 1), strict=True):
            lite.send(*[letter] * count)
            assert names(member.get(auto_renew=True).messages) == [letter] * count
        lite.send("f")
        refused = member.get(auto_renew=True)
    assert (refused.code, refused.messages) == ("FORBIDDEN", [])


def test_a_receive_by_a_client_that_is_not_a_lite_consumer_fails(lite):
    with pytest.raises(grpc.RpcError, match="lite group must use LITE mode"):
        lite.producer.telemetry(
            d.Settings(
                client_type=d.ClientType.SIMPLE_CONSUMER,
                subscription=d.Subscription(group=d.Resource(name=lite.group)),
            )
        )


def test_a_message_is_not_forwarded_as_one_of_another_lite_topic(lite):
    with lite.member("a") as member:
        lite.send("a1")
        (each,) = member.gather(1, acks=False)
        assert member.bury(each, lite_topic="z") == "INVALID_RECEIPT_HANDLE"
        assert member.bury(each, lite_topic="a") == "OK"
