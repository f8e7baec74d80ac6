"""Telemetry, Heartbeat and the end of a client."""

from __future__ import annotations

import threading

import grpc
import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.errors import RmqError
from rmqcli.testing import ManualClock
from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.proxy.raw_client import (
    GrpcClient,
    code_of,
    consumer_settings,
    message,
    producer_settings,
    resource,
)
from tests.kit.waiting import wait_until
from tests.transport.peer import free_port


def test_a_consumer_gets_the_settings_of_its_group(cluster, client):
    cluster.create_group("G", retry_max_times=2, consume_message_orderly=True)
    answer = client.telemetry(consumer_settings("G", "T")).answer.settings
    subscription = answer.subscription
    assert answer.client_type == d.ClientType.SIMPLE_CONSUMER
    assert answer.backoff_policy.max_attempts == 3
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 32)
    assert subscription.long_polling_timeout.ToMilliseconds() == 20_000
    assert subscription.group.name == "G"
    assert subscription.lite_subscription_quota == 2_000
    assert subscription.max_lite_topic_size == 64
    assert not answer.metric.on


@pytest.mark.parametrize(
    ("policy", "initial_ms", "max_ms", "multiplier"),
    [
        ({"initial": 100, "max": 900, "multiplier": 3}, 100, 900, 3),
        ({}, 5_000, 7_200_000, 2),
        (None, 5_000, 7_200_000, 2),
        ({"initial": -1, "max": 1 << 40, "multiplier": "3"}, 5_000, 7_200_000, 2),
        ({"initial": 0, "max": (1 << 40) - 1, "multiplier": 0}, 0, (1 << 40) - 1, 0),
    ],
)
def test_a_group_may_back_off_exponentially(
    cluster, client, policy, initial_ms, max_ms, multiplier
):
    """What is missing or cannot be used has RocketMQ's default."""
    given = {"type": "EXPONENTIAL", "exponentialRetryPolicy": policy}
    cluster.create_group("G", raw={"groupRetryPolicy": given})
    answer = client.telemetry(consumer_settings("G", "T")).answer.settings
    backoff = answer.backoff_policy.exponential_backoff
    found = backoff.initial.ToMilliseconds(), backoff.max.ToMilliseconds()
    assert (*found, backoff.multiplier) == (initial_ms, max_ms, multiplier)


STEPS_S = [1, 5, 10, 30, *range(60, 601, 60), 1_200, 1_800, 3_600, 7_200]
STEPS_MS = [each * 1_000 for each in STEPS_S]


@pytest.mark.parametrize(
    ("policy", "steps_ms"),
    [
        (None, STEPS_MS),
        ({"customizedRetryPolicy": {"next": [100, 200]}}, [100, 200]),
        ({"customizedRetryPolicy": {"next": [-1, 1 << 40, "5", 7]}}, [0, 0, 0, 7]),
        ({"customizedRetryPolicy": {"next": []}}, STEPS_MS),
        ({"customizedRetryPolicy": [100]}, STEPS_MS),
        ("customized", STEPS_MS),
    ],
)
def test_a_group_may_have_delays_of_its_own(cluster, client, policy, steps_ms):
    cluster.create_group("G", raw={"groupRetryPolicy": policy})
    answer = client.telemetry(consumer_settings("G", "T")).answer.settings
    steps = answer.backoff_policy.customized_backoff.next
    assert [each.ToMilliseconds() for each in steps] == steps_ms


def test_a_producer_gets_limits(client):
    answer = client.telemetry(producer_settings("T")).answer.settings
    assert answer.publishing.max_body_size == 4 * 1024 * 1024
    assert answer.publishing.validate_message_type
    assert answer.backoff_policy.max_attempts == 3
    backoff = answer.backoff_policy.exponential_backoff
    assert backoff.initial.ToMilliseconds() == 10
    assert backoff.max.ToMilliseconds() == 1_000


@pytest.mark.parametrize(
    ("kind", "name"), [(1, "PRODUCER"), (4, "PULL_CONSUMER"), (77, "UNRECOGNIZED")]
)
def test_a_subscription_of_a_client_that_is_no_consumer_is_refused(client, kind, name):
    settings = consumer_settings("G", "T", kind=kind)
    with pytest.raises(grpc.RpcError) as raised:
        client.telemetry(settings)
    assert raised.value.code() is grpc.StatusCode.INTERNAL
    assert raised.value.details() == (
        "process client telemetryCommand failed. Client type is not consumer,"
        f" type: {name}"
    )


def test_each_settings_command_is_answered_and_an_empty_one_is_not(client):
    stream = client.telemetry(producer_settings("T"))
    stream.send(s.TelemetryCommand())
    stream.send(s.TelemetryCommand(settings=producer_settings("T", "U")))
    topics = stream.receive().settings.publishing.topics
    assert [topic.name for topic in topics] == ["T", "U"]


def test_the_stream_ends_with_the_clients_side(client):
    stream = client.telemetry(producer_settings("T"))
    stream.end()
    assert list(stream.stream) == []


def test_settings_outlive_the_stream_and_the_connection(cluster, client, connect):
    client.telemetry(consumer_settings("G", "T"))
    client.close()
    again = connect(cluster, client_id=client.client_id)
    assert code_of(again.heartbeat("G")) == "OK"


def test_a_silent_client_is_forgotten(start, connect):
    clock = ManualClock(now_ms=1_700_000_000_000)
    cluster = start(clock=clock)
    client = connect(cluster)
    client.telemetry(consumer_settings("G", "T"))
    cluster.advance(119_000)
    assert code_of(client.heartbeat("G")) == "OK"
    cluster.advance(119_000)
    assert cluster.proxy.client_ids() == [client.client_id]
    cluster.advance(6_000)
    wait_until(lambda: cluster.proxy.client_ids() == [])
    assert code_of(client.heartbeat("G")) == "UNRECOGNIZED_CLIENT_TYPE"


def test_a_client_that_says_goodbye_is_forgotten(cluster, client):
    client.telemetry(consumer_settings("G", "T"))
    assert cluster.proxy.client_ids() == [client.client_id]
    request = s.NotifyClientTerminationRequest(group=resource("G"))
    assert code_of(client.call("NotifyClientTermination", request)) == "OK"
    assert cluster.proxy.client_ids() == []


def test_the_proxy_asks_for_stack_traces(cluster, client):
    stream = client.telemetry(consumer_settings("G", "T"))
    answers = []
    ask = threading.Thread(
        target=lambda: answers.append(
            cluster.proxy.thread_stack_trace(client.client_id)
        )
    )
    ask.start()
    command = stream.receive().print_thread_stack_trace_command
    trace = s.ThreadStackTrace(nonce=command.nonce, thread_stack_trace="at main")
    stream.send(
        s.TelemetryCommand(status=d.Status(code=d.Code.OK), thread_stack_trace=trace)
    )
    ask.join()
    assert answers == ["at main"]


def test_the_proxy_lets_a_consumer_try_a_message(cluster, client):
    stream = client.telemetry(consumer_settings("G", "T"))
    answers = []
    ask = threading.Thread(
        target=lambda: answers.append(
            cluster.proxy.verify_message(client.client_id, "T", b"try me", tag="A")
        )
    )
    ask.start()
    command = stream.receive().verify_message_command
    assert (command.message.body, command.message.topic.name) == (b"try me", "T")
    assert command.message.system_properties.tag == "A"
    stream.send(
        s.TelemetryCommand(
            status=d.Status(code=d.Code.FAILED_TO_CONSUME_MESSAGE),
            verify_message_result=s.VerifyMessageResult(nonce=command.nonce),
        )
    )
    ask.join()
    assert answers == ["FAILED_TO_CONSUME_MESSAGE"]


def test_a_client_without_a_stream_cannot_be_asked(cluster):
    with pytest.raises(RmqError, match="client nobody has no telemetry stream"):
        cluster.proxy.thread_stack_trace("nobody")


def test_an_answer_that_nothing_waits_for_is_dropped(client):
    stream = client.telemetry(producer_settings("T"))
    stream.send(s.TelemetryCommand(thread_stack_trace=s.ThreadStackTrace(nonce="77")))
    stream.send(s.TelemetryCommand(settings=producer_settings("T")))
    assert code_of(stream.receive()) == "OK"


def test_after_a_restart_a_client_has_to_send_its_settings_again(tmp_path):
    options = {"proxy": ProxyOptions(port=free_port()), "store": tmp_path}
    settings = consumer_settings("G", "T")
    with EmbeddedCluster(**options) as cluster:
        cluster.create_topic("T", queues=1)
        with GrpcClient(cluster.endpoints, client_id="same") as client:
            client.telemetry(settings)
            assert code_of(client.heartbeat("G")) == "OK"
    with (
        EmbeddedCluster(**options) as cluster,
        GrpcClient(cluster.endpoints, client_id="same") as client,
    ):
        assert code_of(client.send(message("T"))) == "OK"
        assert code_of(client.heartbeat("G")) == "UNRECOGNIZED_CLIENT_TYPE"
        assert client.receive("G", "T").code == "INTERNAL_SERVER_ERROR"
        client.telemetry(settings)
        assert code_of(client.heartbeat("G")) == "OK"
        assert client.receive("G", "T").bodies == [b"hello"]
