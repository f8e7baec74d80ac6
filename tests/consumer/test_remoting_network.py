"""The engine's network sends requests to the right broker, and survives silent ones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rmqcli.api.routes import reading_address
from rmqcli.engine.interfaces import RetryMessage, SendBack
from rmqcli.errors import (
    BrokerError,
    DisconnectedError,
    NotFoundError,
    RmqError,
    TransportError,
)
from rmqcli.model import BrokerData, MessageQueue
from rmqcli.position import Ago, AtTime, Earliest
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.pull_answer import PullStatus
from rmqcli.wire.subscription import SubscriptionData
from tests.consumer.asking import Asking, heartbeat_of, pull_of
from tests.transport.peer import free_port

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
PULL = RequestCode.PULL_MESSAGE
BUSY = faults.answer(ResponseCode.SYSTEM_ERROR, "busy")
NO_ROUTE = faults.answer(ResponseCode.TOPIC_NOT_EXIST, "no route")
EMPTY_ROUTE = faults.answer(
    ResponseCode.SUCCESS, body=b'{"brokerDatas":[],"queueDatas":[]}'
)
#: the answer of a master that suggests its slave for the next pull
GO_TO_SLAVE = faults.answer(
    ResponseCode.PULL_NOT_FOUND,
    ext_fields={
        "suggestWhichBrokerId": "1",
        "nextBeginOffset": "0",
        "minOffset": "0",
        "maxOffset": "0",
    },
)


@pytest.fixture
def asking(rmq_cluster):
    with Asking(rmq_cluster.namesrv) as network:
        yield network


@pytest.fixture
def pair(rmq_cluster_factory):
    """Two masters, each with one queue of topic T, and a network that knows them."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("T", queues=1)
    with Asking(cluster.namesrv) as network:
        assert network.fetch_queues("T") == [
            MessageQueue("T", "broker-a", 0),
            MessageQueue("T", "broker-b", 0),
        ]
        yield cluster, network


@pytest.fixture
def with_slave(rmq_cluster):
    """A master and a slave with topic T, and a network that knows them."""
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.send("T", ["x"])
    rmq_cluster.add_slave()
    with Asking(rmq_cluster.namesrv) as network:
        network.fetch_queues("T")
        yield rmq_cluster, network


A, B = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-b", 0)
SQL = SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92")
SEND_BACK = SendBack(
    group="g",
    origin_topic="T",
    broker_name="broker-a",
    commit_log_offset=0,
    origin_msg_id="id",
    delay_level=0,
    max_reconsume_times=16,
)
RETRY = RetryMessage(
    group="g",
    topic="%RETRY%g",
    body=b"again",
    flag=0,
    properties={
        "RETRY_TOPIC": "T",
        "RECONSUME_TIME": "3",
        "MAX_RECONSUME_TIMES": "16",
    },
    reconsume_times=3,
    max_reconsume_times=16,
)


def flags(rule):
    """Return the fields of each pull that concern commits: sysFlag and commitOffset."""
    fields = [observed.command.ext_fields for observed in rule.requests]
    return [(each["sysFlag"], each["commitOffset"]) for each in fields]


# --- routes ---


def test_queues_are_fetched_from_the_next_name_server_when_one_is_dead(
    rmq_cluster, rmq_topic
):
    dead = f"127.0.0.1:{free_port()}"
    with Asking(dead, rmq_cluster.namesrv) as network:
        assert len(network.fetch_queues(rmq_topic)) == 4


@pytest.mark.parametrize(
    "fault",
    [NO_ROUTE, BUSY, EMPTY_ROUTE, faults.disconnect(), faults.corrupt("body")],
    ids=["no topic", "error", "empty", "disconnect", "damaged"],
)
def test_queues_are_kept_while_the_name_server_has_no_good_answer(
    rmq_cluster, rmq_topic, asking, fault
):
    before = asking.fetch_queues(rmq_topic)
    rule = rmq_cluster.faults.add(fault, code=ROUTE, broker="namesrv")
    assert asking.fetch_queues(rmq_topic) == before
    assert rule.hits > 0
    assert len(before) == 4


def test_an_unknown_topic_is_an_error(asking):
    assert isinstance(asking.fetch_queues("nobody_made_it"), NotFoundError)


def test_no_name_server_is_an_error():
    with Asking(f"127.0.0.1:{free_port()}") as network:
        assert isinstance(network.fetch_queues("T"), TransportError)


def test_a_broker_s_address_is_that_of_the_newest_route(rmq_cluster, asking):
    """A route that is kept because no newer one arrived must not hide a new address."""
    for topic in ("old", "new"):
        rmq_cluster.create_topic(topic)
        asking.fetch_queues(topic)
    rmq_cluster.faults.add(NO_ROUTE, code=ROUTE, topic="old")
    moved = (
        '{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:9"},"brokerName":"broker-a",'
        '"cluster":"C"}],"queueDatas":[{"brokerName":"broker-a","perm":6,'
        '"readQueueNums":1,"topicSysFlag":0,"writeQueueNums":1}]}'
    )
    answer = faults.answer(ResponseCode.SUCCESS, body=moved.encode())
    rmq_cluster.faults.add(answer, code=ROUTE, topic="new")
    asking.fetch_queues("new")
    asking.fetch_queues("old")
    broker = asking.client.known_routes.broker("broker-a")
    assert broker.addresses == {0: "127.0.0.1:9"}


@pytest.mark.parametrize(
    ("ids", "wanted", "chosen"),
    [
        ((0, 1), 0, 0),
        ((0, 1), 1, 1),
        ((0, 2), 1, 2),
        ((0, 3), 1, 0),
        ((1, 2), 0, 1),
        ((2, 3), 0, 2),
    ],
)
def test_a_pull_goes_to_the_wanted_broker_id_else_to_another_one(ids, wanted, chosen):
    """When the master is missing, any other broker id replaces it."""
    addresses = {each: f"host:{each}" for each in ids}
    broker = BrokerData(cluster="C", broker_name="b", addresses=addresses)
    assert reading_address(broker, wanted) == (chosen, f"host:{chosen}")


# --- membership ---


def test_heartbeats_reach_every_broker_and_slave(pair):
    cluster, network = pair
    cluster.add_slave()
    network.fetch_queues("T")
    heartbeats = cluster.faults.observe(code=RequestCode.HEART_BEAT)
    outcomes = network.heartbeat_all(heartbeat_of("T"))
    assert outcomes == {"broker-a": None, "broker-b": None}
    network.poll_until(lambda: len(heartbeats.requests) == 3)


def test_a_heartbeat_that_one_broker_refuses_is_accepted_by_the_other(pair):
    cluster, network = pair
    cluster.faults.add(BUSY, code=RequestCode.HEART_BEAT, broker="broker-a")
    outcomes = network.heartbeat_all(heartbeat_of("T"))
    assert isinstance(outcomes["broker-a"], BrokerError)
    assert outcomes["broker-b"] is None


def test_a_slave_accepts_the_heartbeat_that_its_master_does_not_answer(with_slave):
    cluster, network = with_slave
    cluster.fail_over()
    assert network.heartbeat_all(heartbeat_of("T")) == {"broker-a": None}


def test_a_heartbeat_to_a_broker_in_no_route_is_an_error(asking):
    assert asking.heartbeat_all(heartbeat_of("T")) == {}
    assert isinstance(asking.heartbeat(heartbeat_of("T"), "broker-a"), NotFoundError)


def test_a_broker_of_forgotten_topics_gets_no_more_heartbeats(pair):
    cluster, network = pair
    cluster.send("only_a", ["x"], broker="broker-a")
    network.fetch_queues("only_a")
    assert network.network.brokers() == ["broker-a", "broker-b"]
    network.network.keep_topics(["only_a"])
    assert network.network.brokers() == ["broker-a"]
    network.network.keep_topics([])
    assert network.network.brokers() == []


def test_any_broker_returns_the_members_of_a_group(pair):
    cluster, network = pair
    for name in ("c1", "c2"):
        with Asking(cluster.namesrv) as other:
            other.fetch_queues("T")
            other.heartbeat_all(heartbeat_of("T", client_id=name))
            assert name in other.consumer_ids("g", "broker-a")
            assert name in other.consumer_ids("g", "broker-b")
    network.heartbeat_all(heartbeat_of("T", client_id="c3"))
    assert network.consumer_ids("g", "broker-b") == ["c3"]
    assert network.unregister("c3", "g", "broker-b") is None
    assert isinstance(network.consumer_ids("g", "broker-b"), BrokerError)
    assert network.consumer_ids("g", "broker-a") == ["c3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "arguments", "limit_ms"),
    [
        ("consumer_ids", ("g", "broker-a"), 3_000),
        ("consumer_connection", ("g", "T"), 3_000),
        ("heartbeat", (heartbeat_of("T"), "broker-a"), 3_000),
        ("unregister", ("c1", "g", "broker-a"), 3_000),
        ("check_subscription", ("c1", "g", SQL, "broker-a"), 3_000),
        ("query_offset", ("g", A), 5_000),
        ("update_offset", ("g", A, 0), 5_000),
        ("max_offset", (A,), 5_000),
        ("lock", ("g", "c1", [A]), 1_000),
        ("unlock", ("g", "c1", [A]), 1_000),
        ("send_back", (SEND_BACK,), 5_000),
        ("send_retry", (replace(RETRY, topic="T"),), 5_000),
        ("pull", (pull_of(A, timeout_ms=4_321),), 4_321),
    ],
)
def test_each_request_has_a_time_limit(
    rmq_cluster, asking, method, arguments, limit_ms
):
    rmq_cluster.create_topic("T", queues=1)
    asking.fetch_queues("T")
    asking.client.time_limits.clear()
    getattr(asking, method)(*arguments)
    assert asking.client.time_limits[-1] == limit_ms


def test_name_servers_have_3_s_each_for_a_route(rmq_cluster, rmq_topic):
    with Asking(*[rmq_cluster.namesrv] * 3) as network:
        network.fetch_queues(rmq_topic)
        (limit_ms,) = network.client.time_limits
    assert limit_ms is not None
    assert 2_000 < limit_ms <= 3_000


X = MessageQueue("T", "broker-x", 0)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("check_subscription", ("c1", "g", SQL, "broker-x")),
        ("lock", ("g", "c1", [X])),
        ("unlock", ("g", "c1", [X])),
        ("send_back", (replace(SEND_BACK, broker_name="broker-x"),)),
        ("max_offset", (X,)),
        ("resolve", (X, Earliest())),
        ("query_offset", ("g", X)),
        ("update_offset", ("g", X, 0)),
        ("pull", (pull_of(X),)),
    ],
)
def test_a_broker_in_no_route_is_named_with_the_topic(
    rmq_cluster, asking, method, arguments
):
    rmq_cluster.create_topic("T", queues=1)
    asking.fetch_queues("T")
    error = getattr(asking, method)(*arguments)
    assert isinstance(error, NotFoundError)
    assert error.message == "no broker broker-x is in the route of topic T"
    assert (error.code, error.name) == (211, "BROKER_NOT_EXIST")


def test_a_group_s_members_are_those_that_a_broker_of_the_topic_knows(pair):
    _, network = pair
    network.heartbeat_all(heartbeat_of("T", client_id="c7"))
    found = network.consumer_connection("g", "T")
    assert [each.client_id for each in found.connections] == ["c7"]
    error = network.consumer_connection("g", "unknown")
    assert isinstance(error, NotFoundError)
    assert error.message == "no broker (any) is in the route of topic unknown"


def test_a_check_of_an_expression_names_the_member(rmq_cluster, asking):
    rmq_cluster.create_topic("T", queues=1)
    asking.fetch_queues("T")
    checks = rmq_cluster.faults.observe(code=RequestCode.CHECK_CLIENT_CONFIG)
    asking.check_subscription("c7", "g", SQL, "broker-a")
    (asked,) = checks.requests
    body = json.loads(asked.command.body)
    assert (body["clientId"], body["group"]) == ("c7", "g")
    assert body["subscriptionData"]["subString"] == "a > 1"


def test_members_at_an_unknown_broker_are_an_error(asking):
    assert isinstance(asking.consumer_ids("g", "broker-a"), NotFoundError)
    assert asking.unregister("c1", "g", "broker-a") is None


def test_brokers_returns_the_brokers_of_the_known_routes(pair):
    cluster, network = pair
    cluster.create_topic("only_a", queues=1)
    cluster.add_slave()
    names = network.network.brokers
    assert sorted(names("T")) == names() == ["broker-a", "broker-b"]
    assert names("unknown") == []
    network.fetch_queues("T")
    for broker in cluster.brokers:
        assert network.network.is_broker(broker.address)
    namesrv, _, port = cluster.namesrv.partition(":")
    assert not network.network.is_broker(f"{namesrv}:{port}")


def test_a_heartbeat_to_one_broker_does_not_wait_for_another_one(pair):
    cluster, network = pair
    cluster.broker("broker-b").hang()
    heartbeat = heartbeat_of("T")
    first, second = (
        network.start(network.network.heartbeat(heartbeat, name))
        for name in ("broker-a", "broker-b")
    )
    network.poll_until(lambda: first.is_done)
    assert first.result() is None
    assert not second.is_done
    cluster.broker("broker-b").resume()
    network.poll_until(lambda: second.is_done)
    assert second.result() is None


@pytest.mark.parametrize(("text", "is_good"), [("a > 1", True), ("a >", False)])
def test_a_broker_checks_an_expression(rmq_cluster_factory, text, is_good):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": True})
    cluster.create_topic("T")
    wanted = SubscriptionData(topic="T", sub_string=text, expression_type="SQL92")
    with Asking(cluster.namesrv) as network:
        network.fetch_queues("T")
        outcome = network.check_subscription("c1", "g", wanted, "broker-a")
    assert outcome is None if is_good else isinstance(outcome, BrokerError)


# --- offsets ---


def test_offsets_are_committed_and_queried(asking, rmq_cluster, rmq_topic):
    rmq_cluster.create_group("g")
    rmq_cluster.send(rmq_topic, ["x", "y", "z"], queue_id=0)
    queue = asking.fetch_queues(rmq_topic)[0]
    assert asking.update_offset("g", queue, 2) is None
    assert asking.query_offset("g", queue) == 2
    asking.network.update_offset_oneway("g", queue, 3)
    assert asking.query_offset("g", queue) == 3
    assert asking.max_offset(queue) == 3
    assert asking.resolve(queue, AtTime(0, "")) == 0
    assert asking.resolve(queue, Ago(60_000)) == 0
    assert asking.resolve(queue, AtTime(10**14, "")) == 3


def test_a_missing_offset_is_none_where_the_broker_says_so(
    asking, rmq_cluster, rmq_topic
):
    """The broker answers 0 for a queue that still has its first message, so that no
    message is skipped."""
    rmq_cluster.send(rmq_topic, ["x", "y", "z"], queue_id=0)
    queue = asking.fetch_queues(rmq_topic)[0]
    assert asking.query_offset("g", queue) == 0
    rmq_cluster.broker().trim(rmq_topic, 2)
    assert asking.query_offset("g", queue) is None


def test_a_failed_query_is_an_error_and_not_a_missing_offset(
    asking, rmq_cluster, rmq_topic
):
    """A consumer that took it for a missing offset would begin the queue again."""
    queue = asking.fetch_queues(rmq_topic)[0]
    for fault in (BUSY, NO_ROUTE, faults.disconnect(), faults.corrupt("header")):
        rmq_cluster.faults.next(fault, code=RequestCode.QUERY_CONSUMER_OFFSET)
        assert isinstance(asking.query_offset("g", queue), RmqError)


def test_offsets_are_queried_at_the_slave_when_the_master_died(with_slave):
    cluster, network = with_slave
    cluster.create_group("g")
    assert network.update_offset("g", A, 1) is None
    cluster.fail_over()
    assert isinstance(network.query_offset("g", A), TransportError)
    network.fetch_queues("T")
    assert network.max_offset(A) == 1
    assert not isinstance(network.query_offset("g", A), RmqError)


def test_an_unknown_broker_is_an_error_only_after_its_route_was_fetched(
    asking, rmq_cluster
):
    rmq_cluster.create_topic("T", queues=1)
    assert asking.max_offset(A) == 0
    assert isinstance(asking.max_offset(B), NotFoundError)


def test_the_route_of_an_unknown_broker_is_fetched_for_a_position(asking, rmq_cluster):
    rmq_cluster.create_topic("T", queues=1)
    assert asking.resolve(A, Earliest()) == 0


# --- locks ---


def test_locks_are_held_by_one_member(asking, rmq_topic):
    queues = asking.fetch_queues(rmq_topic)
    assert asking.lock("g", "c1", queues) == set(queues)
    assert asking.lock("g", "c2", queues) == set()
    assert asking.unlock("g", "c1", queues[:1]) is None
    assert asking.lock("g", "c2", queues) == set(queues[:1])
    asking.network.unlock_oneway("g", "c1", queues[1:])
    asking.poll_until(lambda: asking.lock("g", "c2", queues) == set(queues))


def test_a_slave_is_not_asked_for_locks(with_slave):
    cluster, network = with_slave
    seen = cluster.faults.observe(code=RequestCode.LOCK_BATCH_MQ)
    cluster.fail_over()
    network.fetch_queues("T")
    assert isinstance(network.lock("g", "c1", [A]), NotFoundError)
    assert seen.seen == 0


# --- pulls ---


def test_a_pull_brings_messages_and_commits(asking, rmq_cluster, rmq_topic):
    rmq_cluster.create_group("g")
    rmq_cluster.send(rmq_topic, ["x", "y"], queue_id=0)
    queue = asking.fetch_queues(rmq_topic)[0]
    answer = asking.pull(pull_of(queue, commit_offset=1))
    assert answer.status is PullStatus.FOUND
    assert (answer.next_begin_offset, answer.max_offset) == (2, 2)
    assert asking.query_offset("g", queue) == 1


def test_a_suggested_slave_is_pulled_from_and_not_asked_to_commit(with_slave):
    cluster, network = with_slave
    cluster.faults.next(GO_TO_SLAVE, code=PULL)
    seen = cluster.faults.observe(code=PULL)
    for _ in range(3):
        network.pull(pull_of(A, commit_offset=1))
    # The slave is not slow, so it suggests the master again.
    assert flags(seen) == [("7", "1"), ("6", "0"), ("7", "1")]


def test_a_pull_goes_to_the_master_again_after_the_suggested_slave_died(with_slave):
    cluster, network = with_slave
    cluster.faults.next(GO_TO_SLAVE, code=PULL)
    network.pull(pull_of(A))
    cluster.broker("broker-a", 1).kill()
    assert isinstance(network.pull(pull_of(A)), TransportError)
    assert network.pull(pull_of(A)).status is PullStatus.FOUND


def test_a_pull_goes_to_the_slave_when_the_master_died(with_slave):
    cluster, network = with_slave
    cluster.fail_over()
    network.fetch_queues("T")
    assert network.pull(pull_of(A)).status is PullStatus.FOUND


def test_a_broker_that_refuses_a_pull_leaves_the_suggested_slave_in_place(with_slave):
    cluster, network = with_slave
    cluster.faults.next(GO_TO_SLAVE, code=PULL)
    network.pull(pull_of(A, commit_offset=1))
    cluster.faults.next(BUSY, code=PULL)
    assert isinstance(network.pull(pull_of(A, commit_offset=1)), BrokerError)
    seen = cluster.faults.observe(code=PULL)
    network.pull(pull_of(A, commit_offset=1))
    assert flags(seen) == [("6", "0")]


def test_a_pull_whose_broker_is_in_no_known_route_fetches_the_route_first(
    asking, rmq_cluster, rmq_topic
):
    rmq_cluster.send(rmq_topic, ["x"], queue_id=0)
    queue = MessageQueue(rmq_topic, "broker-a", 0)
    assert asking.pull(pull_of(queue)).status is PullStatus.FOUND
    stranger = MessageQueue(rmq_topic, "broker-x", 0)
    assert isinstance(asking.pull(pull_of(stranger)), NotFoundError)


def test_a_pull_that_cannot_be_sent_fails_as_one_without_an_answer_does(with_slave):
    _, network = with_slave
    network.client.close()
    assert isinstance(network.pull(pull_of(A)), DisconnectedError)


# --- retries ---


def offset_of(seeded):
    return decode_offset_msg_id(seeded.offset_msg_id).commit_log_offset


def back_of(seeded, *, broker_name="broker-a", delay_level=0):
    return replace(
        SEND_BACK,
        broker_name=broker_name,
        commit_log_offset=offset_of(seeded),
        delay_level=delay_level,
    )


def test_a_message_sent_back_with_delay_level_minus_1_is_a_dead_letter(
    asking, rmq_cluster
):
    rmq_cluster.create_topic("T", queues=1)
    rmq_cluster.create_group("g")
    (seeded,) = rmq_cluster.send("T", ["x"])
    asking.fetch_queues("T")
    assert asking.send_back(back_of(seeded, delay_level=-1)) is None
    asking.fetch_queues("%DLQ%g")
    assert asking.max_offset(MessageQueue("%DLQ%g", "broker-a", 0)) == 1


def test_sending_back_a_message_of_an_unknown_broker_is_an_error(
    asking, rmq_cluster, rmq_topic
):
    (seeded,) = rmq_cluster.send(rmq_topic, ["x"])
    back = back_of(seeded, broker_name="broker-x")
    assert isinstance(asking.send_back(back), NotFoundError)


def test_a_retry_is_sent_with_the_fields_that_java_sends(asking, rmq_cluster):
    rmq_cluster.create_topic("%RETRY%g", queues=1)
    sends = rmq_cluster.faults.observe(code=RequestCode.SEND_MESSAGE_V2)
    assert asking.send_retry(RETRY) is None
    (fields,) = [each.command.ext_fields for each in sends.requests]
    assert fields.pop("g").isdecimal()  # bornTimestamp
    assert fields == {
        "a": "CLIENT_INNER_PRODUCER",
        "b": "%RETRY%g",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "h": "0",
        "i": "RETRY_TOPIC\x01T\x02",
        "j": "3",
        "k": "false",
        "l": "16",
        "m": "false",
        "n": "broker-a",
    }
    assert asking.max_offset(MessageQueue("%RETRY%g", "broker-a", 0)) == 1


def test_a_retry_may_have_no_properties(asking, rmq_cluster):
    rmq_cluster.create_topic("%RETRY%g", queues=1)
    sends = rmq_cluster.faults.observe(code=RequestCode.SEND_MESSAGE_V2)
    assert asking.send_retry(replace(RETRY, properties={})) is None
    assert [each.command.ext_fields["i"] for each in sends.requests] == [""]


def test_a_retry_goes_to_the_next_broker_when_one_refuses(pair):
    cluster, network = pair
    cluster.create_topic("%RETRY%g", queues=2)
    code = RequestCode.SEND_MESSAGE_V2
    refused = cluster.faults.next(BUSY, code=code)
    sends = cluster.faults.observe(code=code)
    assert network.send_retry(RETRY) is None
    assert refused.hits == 1
    assert sorted(each.broker for each in sends.requests) == ["broker-a", "broker-b"]


def test_a_retry_that_no_broker_accepts_is_an_error(pair):
    cluster, network = pair
    cluster.create_topic("%RETRY%g", queues=2)
    rule = cluster.faults.add(BUSY, code=RequestCode.SEND_MESSAGE_V2)
    assert isinstance(network.send_retry(RETRY), BrokerError)
    assert rule.hits == 2


def test_a_retry_without_a_topic_is_an_error(asking):
    assert isinstance(asking.send_retry(RETRY), NotFoundError)
