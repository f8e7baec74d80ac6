"""Lite topics are not imitated: what RocketMQ does with them is refused in words."""

from __future__ import annotations

import grpc
import pytest

from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.broker.proxy.access import said
from tests.kit.proxy.raw_client import consumer_settings, message, resource

REFUSED = "NOT_IMPLEMENTED: the embedded proxy does not support lite topics"


@pytest.fixture
def client(cluster, client):
    cluster.create_topic("L", attributes={"message.type": "LITE"})
    cluster.create_group("G", attributes={"lite.bind.topic": "L"})
    return client


def test_a_message_for_a_lite_topic_is_refused(client):
    assert said(client.send(message("L", lite_topic="a"))) == REFUSED


def test_a_subscription_to_lite_topics_is_refused(client):
    request = s.SyncLiteSubscriptionRequest(
        topic=resource("L"), group=resource("G"), lite_topic_set=["a"]
    )
    assert said(client.call("SyncLiteSubscription", request)) == REFUSED


def test_a_consumer_of_lite_topics_is_refused(client):
    settings = consumer_settings("G", "L", kind=d.ClientType.LITE_PUSH_CONSUMER)
    with pytest.raises(grpc.RpcError, match="does not support lite topics"):
        client.telemetry(settings)
