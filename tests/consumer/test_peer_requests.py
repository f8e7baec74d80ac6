"""A consumer carries out or refuses the requests of brokers."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from rmqcli.api.calls.offset import invoke_broker_to_reset_offset
from rmqcli.consumer.peer_requests import PeerRequests
from rmqcli.engine.consume.request import run_at_once
from rmqcli.wire.bodies.heartbeat import ConsumeMessageDirectlyResult
from rmqcli.wire.bodies.offset import ResetOffsetBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand
from rmqcli.wire.headers.client import NotifyConsumerIdsChangedRequestHeader
from tests.consumer.asking import Asking
from tests.consumer.collecting import Seen, committed, consumer
from tests.engine.world import BROKER, RETRY, TOPIC, World, queue_of, refusal, stored
from tests.kit.waiting import wait_until

A_BROKER = "127.0.0.1:10911"
A_NAME_SERVER = "127.0.0.1:9876"

IDS_CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
RESET = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
STATUS = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
INFO = RequestCode.GET_CONSUMER_RUNNING_INFO
DIRECTLY = RequestCode.CONSUME_MESSAGE_DIRECTLY


class Asked:
    """Sends requests to a member that has consumed 0 to 4 of its queue of 10."""

    def __init__(self, **options):
        self.world = World(queues=1, **options)
        self.world.network.ends[queue_of()] = 10
        self.world.start()
        self.world.found(range(5), max_offset=10)
        self.called: list[Any] = []
        self.answered: list[Any] = []
        self.requests = PeerRequests(
            self.world.engine,
            namesrv=A_NAME_SERVER,
            call=self.called.append,
            answer_later=lambda opaque: self.answered.append,
        )

    def ask(self, code, *, address=A_BROKER, body=b"", **fields):
        flag = ONEWAY_FLAG if code == IDS_CHANGED else 0
        command = RemotingCommand(code, ext_fields=fields, body=body, flag=flag)
        answer = self.requests.handle(address, command)
        self.world.run(200)
        return answer

    def reset(self, offset, *, address=A_BROKER, group="g", topic=TOPIC, queue=None):
        body = encode_body(ResetOffsetBody(offset_table={queue or queue_of(): offset}))
        fields = {"topic": topic, "group": group, "timestamp": "0", "isForce": "true"}
        return self.ask(RESET, address=address, body=body, **fields)

    def show(self, *, address=A_BROKER, group="g", topic=TOPIC):
        return self.ask(
            DIRECTLY,
            address=address,
            body=stored(queue_of(), 3),
            consumerGroup=group,
            clientId="c",
            topic=topic,
            brokerName=BROKER,
        )

    @property
    def pulled_from(self):
        return self.world.asked()[-1].queue_offset


@pytest.fixture
def asked():
    return Asked()


def requests_of(asked, address, group):
    """Return functions that send each request that a consumer serves, by its code."""
    return {
        IDS_CHANGED: lambda: asked.ask(
            IDS_CHANGED, address=address, consumerGroup=group
        ),
        RESET: lambda: asked.reset(0, address=address, group=group),
        STATUS: lambda: asked.ask(STATUS, address=address, topic=TOPIC, group=group),
        INFO: lambda: asked.ask(
            INFO, address=address, consumerGroup=group, clientId="c"
        ),
        DIRECTLY: lambda: asked.show(address=address, group=group),
    }


@pytest.mark.parametrize("address", [A_NAME_SERVER, "10.9.9.9:10911"])
@pytest.mark.parametrize("code", [IDS_CHANGED, RESET, STATUS, INFO, DIRECTLY])
def test_a_peer_that_is_no_broker_of_the_routes_is_refused(asked, code, address):
    runs = asked.world.engine.rebalances.runs
    answer = requests_of(asked, address, "g")[code]()
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.body == b""
    assert asked.pulled_from == 5
    assert asked.called == []
    assert asked.world.engine.rebalances.runs == runs


@pytest.mark.parametrize("code", [IDS_CHANGED, RESET, STATUS, INFO, DIRECTLY])
def test_requests_about_another_group_are_refused(asked, code):
    runs = asked.world.engine.rebalances.runs
    answer = requests_of(asked, A_BROKER, "other")[code]()
    if code in (STATUS, INFO, DIRECTLY):
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "no consumer of group other in this process"
    else:
        assert answer is None
    assert asked.pulled_from == 5
    assert asked.called == []
    assert asked.world.engine.rebalances.runs == runs


@pytest.mark.parametrize("code", [IDS_CHANGED, RESET, STATUS, INFO, DIRECTLY])
def test_a_broker_of_the_routes_is_answered(asked, code):
    runs = asked.world.engine.rebalances.runs
    answer = requests_of(asked, A_BROKER, "g")[code]()
    if code in (STATUS, INFO):
        assert answer.code == ResponseCode.SUCCESS
        assert b"orders" in answer.body
    else:
        assert answer is None
    assert asked.pulled_from == (0 if code is RESET else 5)
    assert len(asked.called) == (code is DIRECTLY)
    assert asked.world.engine.rebalances.runs == runs + (code is IDS_CHANGED)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, 0), (10, 10), (11, 5), (-1, 5), (-(2**63), 5), (2**63 - 1, 5)],
)
def test_a_reset_to_an_offset_that_the_queue_cannot_have_is_refused(
    asked, offset, expected, caplog
):
    asked.reset(offset)
    assert asked.pulled_from == expected
    assert asked.world.offset() == expected
    assert ("reset refused" in caplog.text) is (offset not in (0, 10))


def test_a_reset_is_not_carried_out_while_the_queue_s_end_is_unknown(asked, caplog):
    asked.world.network.fail["max_offset"] = refusal()
    asked.reset(0)
    assert asked.pulled_from == 5
    assert "reset failed queue=orders@broker-a:0 offset=0: no" in caplog.text


def test_a_reset_of_a_topic_that_is_not_subscribed_is_refused(asked):
    asked.reset(0, topic="payments")
    assert asked.pulled_from == 5
    # A subscribed topic in the header does not permit queues of another topic either.
    asked.reset(0, topic=RETRY)
    assert asked.pulled_from == 5


def test_a_reset_of_a_queue_of_another_member_is_ignored(asked):
    asked.reset(0, queue=queue_of(7))
    assert asked.pulled_from == 5
    assert queue_of(7) not in asked.world.member.process_queues


@pytest.mark.parametrize(
    ("topic", "is_shown"),
    [(TOPIC, True), (RETRY, True), ("%DLQ%g", True), ("payments", False)],
)
def test_only_messages_of_subscribed_topics_are_consumed_directly(
    asked, topic, is_shown
):
    """The group's dead letters are also consumed, as they are retried in this way."""
    answer = asked.show(topic=topic)
    assert len(asked.called) == is_shown
    if not is_shown:
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "topic payments is not subscribed by this consumer"


def test_the_broker_gets_the_result_of_a_message_consumed_directly(asked):
    assert asked.show() is None, "the answer follows when the listener has returned"
    (consume,) = asked.called
    run_at_once(consume())
    (answer,) = asked.answered
    assert answer.code == ResponseCode.SUCCESS
    assert decode_body(
        ConsumeMessageDirectlyResult, answer.body
    ) == ConsumeMessageDirectlyResult(
        order=False,
        auto_commit=True,
        consume_result="CR_SUCCESS",
        remark=None,
        spent_time_mills=0,
    )


def test_a_reset_that_a_broker_sends_takes_effect(rmq_cluster_factory):
    """This uses a real connection, whose address must be found in the route."""
    cluster = rmq_cluster_factory(like="4.9.7")
    topic = cluster.create_topic("T", queues=1)
    cluster.send(topic, ["a", "b", "c"])
    seen = Seen()
    often = {"persist_consumer_offset_interval_ms": 100}
    with (
        consumer(cluster, "g", topic, seen, **often),
        Asking(cluster.namesrv) as network,
    ):
        wait_until(lambda: committed(cluster, "g", topic) == {0: 3})
        call = invoke_broker_to_reset_offset("g", topic, timestamp_ms=0)
        address = cluster.brokers[0].address
        network.client.invoke(address, call, timeout_ms=5_000)
        wait_until(lambda: len(seen.bodies) == 6)
    assert committed(cluster, "g", topic) == {0: 3}


def flood(asked, count, *, address=A_BROKER):
    """Ask for running infos with thread dumps at one moment; return the answers."""
    command = RemotingCommand(
        INFO,
        ext_fields={"consumerGroup": "g", "clientId": "c", "jstackEnable": "true"},
    )
    return [asked.requests.handle(address, command) for _ in range(count)]


def test_a_flood_of_requests_is_refused_and_logged_once(asked, caplog):
    """What is refused makes no thread dump; later requests are served again."""
    codes = [each.code for each in flood(asked, 1_000)]
    assert codes == [ResponseCode.SUCCESS] * 20 + [ResponseCode.SYSTEM_BUSY] * 980
    assert [r.message for r in caplog.records] == [
        "too many requests of a broker are refused address=127.0.0.1:10911 code=307"
    ]
    asked.world.run(1_000)
    codes = [each.code for each in flood(asked, 10)]
    assert codes == [ResponseCode.SUCCESS] * 5 + [ResponseCode.SYSTEM_BUSY] * 5
    assert len(caplog.records) == 1


def test_a_flood_runs_the_listener_only_as_often_as_the_limit_allows(asked):
    command = RemotingCommand(
        DIRECTLY,
        ext_fields={"consumerGroup": "g", "topic": TOPIC, "brokerName": BROKER},
        body=stored(queue_of(), 3),
    )
    for _ in range(1_000):
        asked.requests.handle(A_BROKER, command)
    assert len(asked.called) == 20


def test_a_flood_of_a_stranger_is_logged_once_and_costs_brokers_nothing(asked, caplog):
    answers = flood(asked, 1_000, address="10.9.9.9:10911")
    assert {each.code for each in answers} == {ResponseCode.NO_PERMISSION}
    assert len(caplog.records) == 1
    assert [each.code for each in flood(asked, 1)] == [ResponseCode.SUCCESS]


def test_a_flood_of_changes_of_members_is_logged_once_and_not_refused(asked, caplog):
    """Each may be the last one, after which the group must be rebalanced."""
    caplog.set_level(logging.INFO)
    runs = asked.world.engine.rebalances.runs
    command = RemotingCommand(
        IDS_CHANGED, ext_fields={"consumerGroup": "g"}, flag=ONEWAY_FLAG
    )
    for _ in range(100):
        assert asked.requests.handle(A_BROKER, command) is None
    asked.world.run(200)
    for _ in range(100):
        asked.requests.handle(A_BROKER, command)
    assert asked.world.engine.rebalances.runs > runs
    assert caplog.messages.count("members changed group=g") == 1


@pytest.mark.slow
def test_a_flood_of_changes_of_members_keeps_no_consumer_from_closing(
    rmq_cluster, caplog
):
    """It goes on until the consumer has closed, with its offsets committed."""
    caplog.set_level(logging.INFO)
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.send("orders", ["a", "b"])
    state = rmq_cluster.broker().state
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group="billing")
    is_over = threading.Event()
    sent = 0

    def push():
        group = state.clients.consumer_group("billing")
        for peer in list(group.by_peer) if group else ():
            for _ in range(2_000):
                state.push(peer, IDS_CHANGED, header)

    def flood():
        nonlocal sent
        while not is_over.is_set():
            rmq_cluster.call(push)
            sent += 2_000

    flooding = threading.Thread(target=flood)
    seen = Seen()
    try:
        with consumer(rmq_cluster, "billing", "orders", seen):
            wait_until(lambda: sorted(seen.bodies) == ["a", "b"])
            flooding.start()
            wait_until(lambda: sent >= 20_000)
    finally:
        is_over.set()
        flooding.join()
    assert committed(rmq_cluster, "billing", "orders") == {0: 2}
    assert caplog.messages.count("members changed group=billing") == 1
