"""Which requests a producer's tasks make, and when, with answers by the test."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import pytest

from rmqcli import tasks
from rmqcli.api.calls.send import SendAnswer, SendStatus
from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import ConnectError, DeadlineError, NotFoundError
from rmqcli.model import BrokerData, MessageQueue, QueueData, TopicRoute
from rmqcli.producer.config import ProducerConfig
from rmqcli.producer.message import ProducerMessage
from rmqcli.producer.producer import Producer
from rmqcli.producer.remoting.publisher import Prepared, Publisher
from rmqcli.producer.remoting.target import PublishTarget
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode

NAMESRVS = ("127.0.0.1:1", "127.0.0.1:2")


class Held:
    """A publisher, whose requests wait for the test. Satisfies tasks.Runner."""

    def __init__(self, group=None, *, clock=SYSTEM_CLOCK, **settings):
        self.asked: list[tuple[tasks.Request[Any], tasks.Pending[Any]]] = []
        self.timers: list[int] = []
        self.actions = []
        self.client = Client(ClientConfig(namesrv=NAMESRVS), clock=clock)
        self.publisher = Publisher(
            self.client,
            self,
            config=ProducerConfig(**settings),
            group=group,
            client_id="c1",
            rng=random.Random(1),
        )

    def submit(self, request):
        pending: tasks.Pending[Any] = tasks.Pending()
        self.asked.append((request, pending))
        return pending

    def call_later(self, delay_ms, action):
        self.timers.append(delay_ms)
        self.actions.append(action)

    def start(self, task):
        return tasks.start(task, self)

    def codes(self):
        return [(each.address, RequestCode(each.call.code)) for each, _ in self.asked]


def route_of(topic, *names, queue_nums=2):
    return TopicRoute(
        topic=topic,
        brokers=tuple(
            BrokerData(cluster="c", broker_name=name, addresses={0: f"{name}:1"})
            for name in names
        ),
        queues=tuple(
            QueueData(
                broker_name=name,
                read_queue_nums=queue_nums,
                write_queue_nums=queue_nums,
                perm=6,
            )
            for name in names
        ),
    )


@pytest.fixture
def held():
    made = Held()
    yield made
    made.client.close()


def test_senders_to_one_topic_share_the_request_for_its_route(held):
    first, second = (held.start(held.publisher.target("orders")) for _ in range(2))
    held.start(held.publisher.target("bills"))
    assert held.codes() == [("127.0.0.1:1", RequestCode.GET_ROUTEINFO_BY_TOPIC)] * 2
    held.asked[0][1].succeed(route_of("orders", "broker-a"))
    assert first.result() == second.result()
    assert first.result().queues == (
        MessageQueue("orders", "broker-a", 0),
        MessageQueue("orders", "broker-a", 1),
    )
    again = held.start(held.publisher.target("orders"))
    assert again.result() == first.result()
    assert len(held.asked) == 2


def test_fixed_queues_of_a_broker_that_is_away_are_left_out_of_the_turns(held):
    """As by Java's producer, which tries the next queue at once."""
    route = replace(
        route_of("orders", "broker-a"), order_topic_conf="broker-b:1;broker-a:1"
    )
    begin_send(held)
    held.asked[0][1].succeed(route)
    begin_send(held)
    assert held.codes() == [("broker-a:1", RequestCode.SEND_MESSAGE_V2)]


@pytest.mark.parametrize(
    ("send_timeout_ms", "share_ms"), [(1_000, 1_500), (3_000, 1_500), (60_000, 3_000)]
)
def test_a_name_server_that_hangs_leaves_a_send_time_for_the_next(
    send_timeout_ms, share_ms
):
    """A send failed after its 3 seconds, in which only the first was asked."""
    held = Held(send_msg_timeout_ms=send_timeout_ms, clock=ManualClock())
    found = held.start(held.publisher.target("orders"))
    ((request, pending),) = held.asked
    assert (request.address, request.timeout_ms) == ("127.0.0.1:1", share_ms)
    pending.fail(DeadlineError("no answer", address="127.0.0.1:1"))
    assert held.asked[1][0].address == "127.0.0.1:2"
    held.asked[1][1].succeed(route_of("orders", "broker-a"))
    assert len(found.result().queues) == 2
    held.client.close()


def prepared():
    return Prepared(topic="orders", msg_ids=("A1",), body=b"x", born_timestamp_ms=0)


def begin_send(held, queue=None, *, first=None, retry_times=0):
    held.asked.clear()
    send = held.publisher.send(
        prepared(),
        queue=queue,
        first=first,
        timeout_ms=60_000,
        retry_times=retry_times,
    )
    return held.start(send)


def test_after_a_failure_the_route_is_asked_for_at_once_and_once_a_second(held):
    """A replica that is the master now is learned without a wait of 30 s."""
    held.start(held.publisher.target("orders"))
    held.asked.pop()[1].succeed(route_of("orders", "broker-a"))
    gone = ConnectError("refused", address="broker-a:1")
    sent = begin_send(held)
    held.asked[0][1].fail(gone)
    assert sent.outcome() is gone
    assert held.codes() == [
        ("broker-a:1", RequestCode.SEND_MESSAGE_V2),
        ("127.0.0.1:1", RequestCode.GET_ROUTEINFO_BY_TOPIC),
    ]
    route = held.asked[1][1]
    begin_send(held)
    held.asked[0][1].fail(gone)
    assert len(held.asked) == 1
    route.succeed(route_of("orders", "broker-b"))
    begin_send(held)
    assert held.codes() == [("broker-b:1", RequestCode.SEND_MESSAGE_V2)]


@pytest.mark.parametrize(
    ("new_route", "then"),
    [
        (route_of("orders", "broker-a", queue_nums=2), ("broker-a:1", "1")),
        (route_of("orders", "broker-a", queue_nums=1), ("broker-a:1", "0")),
        (route_of("orders", "broker-b", queue_nums=1), ("broker-b:1", "0")),
    ],
    ids=["same route", "its queue is gone", "its broker is gone"],
)
def test_a_retry_stays_in_its_queue_while_the_route_has_it_and_no_other_broker(
    held, new_route, then
):
    held.start(held.publisher.target("orders"))
    held.asked.pop()[1].succeed(route_of("orders", "broker-a"))
    first = MessageQueue("orders", "broker-a", 1)
    begin_send(held, first=first, retry_times=2)
    gone = ConnectError("refused", address="broker-a:1")
    held.asked[0][1].fail(gone)
    (_, route), (second, answer) = held.asked[1:]
    route.succeed(new_route)
    answer.fail(gone)
    third, _ = held.asked[3]
    places = [(each.address, each.call.ext_fields["e"]) for each in (second, third)]
    assert places == [("broker-a:1", "1"), then]


@pytest.mark.parametrize("failure", [DeadlineError, ConnectError])
def test_a_broker_that_does_not_answer_is_left_out_for_ten_seconds(failure):
    """Every second send failed after its 3 seconds, while one of two brokers hung."""
    clock = ManualClock()
    held = Held(clock=clock)
    held.start(held.publisher.target("orders"))
    held.asked.pop()[1].succeed(route_of("orders", "broker-a", "broker-b"))

    def used(count):
        """The brokers to which so many sends go, none of which is answered."""
        places = set()
        for _ in range(count):
            begin_send(held)
            places.add(held.asked[0][0].address)
        return places

    def fail(name, after_ms):
        begin_send(held, MessageQueue("orders", name, 0))
        clock.advance(after_ms)
        held.asked[0][1].fail(failure("no answer", address=f"{name}:1"))

    fail("broker-b", 999)
    assert used(4) == {"broker-a:1", "broker-b:1"}
    fail("broker-b", 1_000)
    assert used(4) == {"broker-a:1"}
    begin_send(held, first=MessageQueue("orders", "broker-b", 1))
    assert held.asked[-1][0].address == "broker-a:1"
    begin_send(held, MessageQueue("orders", "broker-b", 1))
    assert held.asked[0][0].address == "broker-b:1", "the caller chose the queue"
    clock.advance(9_999)
    assert used(4) == {"broker-a:1"}
    clock.advance(1)
    assert used(4) == {"broker-a:1", "broker-b:1"}
    fail("broker-a", 3_000)
    fail("broker-b", 3_000)
    assert used(4) == {"broker-a:1", "broker-b:1"}, "no other broker is left"
    held.client.close()


def test_a_broker_that_answers_is_used_again_at_once():
    clock = ManualClock()
    held = Held(clock=clock)
    held.start(held.publisher.target("orders"))
    held.asked.pop()[1].succeed(route_of("orders", "broker-a", "broker-b"))
    queue = MessageQueue("orders", "broker-b", 0)
    begin_send(held, queue)
    clock.advance(3_000)
    held.asked[0][1].fail(DeadlineError("no answer", address="broker-b:1"))
    begin_send(held, queue)
    held.asked[0][1].succeed(
        SendAnswer(
            status=SendStatus.SEND_OK,
            queue_id=0,
            queue_offset=7,
            offset_msg_ids=("X",),
        )
    )
    places = set()
    for _ in range(4):
        begin_send(held)
        places.add(held.asked[0][0].address)
    assert places == {"broker-a:1", "broker-b:1"}
    held.client.close()


def test_a_topic_whose_broker_is_away_is_not_taken_for_a_new_one(held):
    """Another broker would create it, and its messages would be somewhere else."""
    held.start(held.publisher.target("orders"))
    held.asked.pop()[1].succeed(route_of("orders", "broker-a"))
    begin_send(held)
    held.asked[0][1].fail(ConnectError("refused", address="broker-a:1"))
    missing = NotFoundError("no route", code=17, name="TOPIC_NOT_EXIST")
    for each in range(1, 1 + len(NAMESRVS)):
        held.asked[each][1].fail(missing)
    assert len(held.asked) == 1 + len(NAMESRVS)  # no request for TBW102
    begin_send(held)
    assert held.codes() == [("broker-a:1", RequestCode.SEND_MESSAGE_V2)]


def test_of_a_given_target_only_the_addresses_are_renewed(held):
    queue = MessageQueue("orders", "broker-a", 1)
    target = PublishTarget(
        topic="orders", queues=(queue,), addresses={"broker-a": "old:1"}
    )
    held.publisher.note_target(target)
    begin_send(held)
    held.asked[0][1].fail(ConnectError("refused", address="old:1"))
    held.asked[1][1].succeed(route_of("orders", "broker-a", "broker-b"))
    assert held.publisher.known_queues("orders") == (queue,)
    begin_send(held)
    assert held.codes() == [("broker-a:1", RequestCode.SEND_MESSAGE_V2)]


def test_what_a_broker_would_get_that_left_the_route_goes_to_the_others():
    """`rmq send` waited for the broker with every second message, up to 5 s."""
    clock = ManualClock()
    held = Held(clock=clock)
    first = MessageQueue("orders", "broker-b", 0)
    target = PublishTarget(
        topic="orders",
        queues=(MessageQueue("orders", "broker-a", 0), first),
        addresses={"broker-a": "broker-a:1", "broker-b": "broker-b:1"},
    )
    held.publisher.note_target(target)
    both = route_of("orders", "broker-a", "broker-b", queue_nums=1)
    alone = route_of("orders", "broker-a", queue_nums=1)
    begin_send(held, first=first)
    held.asked[0][1].fail(ConnectError("refused", address="broker-b:1"))
    held.asked[1][1].succeed(alone)
    clock.advance(1_000)
    begin_send(held, first=first)
    assert held.codes() == [
        ("127.0.0.1:1", RequestCode.GET_ROUTEINFO_BY_TOPIC),  # is it back?
        ("broker-a:1", RequestCode.SEND_MESSAGE_V2),
    ]
    route = held.asked[0][1]
    begin_send(held, first)
    assert held.codes() == [("broker-b:1", RequestCode.SEND_MESSAGE_V2)]  # as chosen
    route.succeed(both)
    begin_send(held, first=first)
    assert held.codes() == [("broker-b:1", RequestCode.SEND_MESSAGE_V2)]
    held.client.close()


@pytest.mark.parametrize(
    ("group", "timers"), [(None, [1_000]), ("shop", [1_000, 2_000])]
)
def test_routes_and_heartbeats_are_repeated_after_their_end(group, timers):
    held = Held(
        group, poll_namesrv_interval_ms=1_000, heartbeat_broker_interval_ms=2_000
    )
    held.start(held.publisher.target("orders"))
    held.asked.pop()[1].succeed(route_of("orders", "broker-b", "broker-a"))
    held.publisher.start()
    assert held.timers == timers
    held.actions[0]()
    assert held.codes() == [("127.0.0.1:1", RequestCode.GET_ROUTEINFO_BY_TOPIC)]
    assert held.timers == timers
    held.asked.pop()[1].succeed(route_of("orders", "broker-b", "broker-a"))
    assert held.timers == [*timers, 1_000]
    if group is not None:
        held.actions[1]()
        assert held.codes() == [
            ("broker-a:1", RequestCode.HEART_BEAT),
            ("broker-b:1", RequestCode.HEART_BEAT),
        ]
        for request, pending in held.asked:
            assert request.timeout_ms == 3_000
            pending.succeed(None)
        assert held.timers == [*timers, 1_000, 2_000]
    held.client.close()


def test_each_attempt_has_the_time_that_is_left_or_that_of_its_setting(held):
    def attempt(held):
        held.start(held.publisher.target("orders"))
        held.asked.pop()[1].succeed(route_of("orders", "broker-a"))
        begin_send(held)
        return held.asked.pop()[0].timeout_ms

    assert 50_000 < attempt(held) <= 60_000
    limited = Held(send_msg_max_timeout_per_request_ms=700)
    assert attempt(limited) == 700
    limited.client.close()


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_producer_that_leaves_says_which_broker_refused(
    rmq_cluster, rmq_topic, caplog, is_refused
):
    caplog.set_level(logging.INFO, "rmqcli")
    if is_refused:
        rmq_cluster.faults.add(
            faults.answer(1, "no"), code=RequestCode.UNREGISTER_CLIENT
        )
    with Producer("shop", namesrv=rmq_cluster.namesrv) as producer:
        producer.send(ProducerMessage(rmq_topic, b"x"))
    told = [each for each in caplog.messages if "unregister" in each]
    start = f"unregister failed address={rmq_cluster.broker().address} error="
    assert [each[: len(start)] for each in told] == ([start] if is_refused else [])
