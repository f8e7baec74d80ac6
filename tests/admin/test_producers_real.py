"""Producers of a real broker that are connected in ways that hide who they are."""

from __future__ import annotations

import pytest

from rmqcli import Admin, ClientConfig, Producer, ProducerMessage

pytestmark = [
    pytest.mark.java,
    pytest.mark.rmq_versions("5.5.0"),
    pytest.mark.real_only,
]


def send_and_find(cluster, **client):
    """Return the row of a producer that has sent a message and is still connected."""
    topic = cluster.create_topic(queues=1)
    config = ClientConfig(timeout_ms=60_000, **client)
    with (
        Producer("shop", client=config) as producer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        producer.send(ProducerMessage(topic, b"a"))
        (row,) = admin.producers(topic).producers
        listed = [each.client_id for each in admin.producers().producers]
    assert row.client_id is None
    assert producer.client_id not in listed
    return topic, row


def test_a_grpc_producer_behind_a_proxy_in_cluster_mode_is_not_said_to_be_gone(
    real_cluster, cluster_proxy
):
    topic, row = send_and_find(
        real_cluster, endpoints=(cluster_proxy.endpoints,), plaintext=True
    )
    assert (row.group, row.messages) == (topic, 1)
    assert row.reason == "sent through a proxy, which does not tell who sent"


def test_a_remoting_producer_behind_a_proxy_in_cluster_mode_is_not_said_to_be_gone(
    real_cluster, cluster_proxy
):
    _, row = send_and_find(real_cluster, namesrv=(cluster_proxy.remoting_address,))
    assert (row.group, row.messages) == (None, 1)
    assert row.reason == "the broker listed no producer at this address"
