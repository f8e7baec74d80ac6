"""What a real proxy that was killed still knows of its clients: nothing, as ours."""

from __future__ import annotations

import json

import pytest

from tests.kit.proxy.raw_client import GrpcClient, code_of, consumer_settings, message

pytestmark = [pytest.mark.rmq_versions("5.5.0"), pytest.mark.real_only]

UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200


def test_after_a_kill_a_client_has_to_send_its_settings_again(fresh_cluster):
    """The official Python client does not, and receives nothing from then on."""
    cluster = fresh_cluster(proxy=True)
    topic = cluster.create_topic(queues=1)
    body = json.dumps({"groupName": "G"}).encode()
    assert cluster.ask(UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body).code == 0
    settings = consumer_settings("G", topic)
    with GrpcClient(cluster.endpoints, client_id="same") as client:
        client.telemetry(settings)
        assert code_of(client.heartbeat("G")) == "OK"
    cluster.kill_broker()
    cluster.start_broker()
    with GrpcClient(cluster.endpoints, client_id="same") as client:
        assert code_of(client.send(message(topic))) == "OK"
        assert code_of(client.heartbeat("G")) == "UNRECOGNIZED_CLIENT_TYPE"
        assert client.receive("G", topic).code == "INTERNAL_SERVER_ERROR"
        client.telemetry(settings)
        assert code_of(client.heartbeat("G")) == "OK"
        assert client.receive("G", topic).bodies == [b"hello"]
