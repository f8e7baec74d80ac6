"""The table of behaviour on a real proxy in cluster mode: is the table right?"""

from __future__ import annotations

import json

import pytest

from tests.broker.proxy.behaviour import TABLE, Stage
from tests.broker.proxy.reflection import check_table, services
from tests.kit.proxy.real import RealProxy

pytestmark = [pytest.mark.rmq_versions("5.5.0"), pytest.mark.real_only]


#: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
UPDATE_GROUP = 200


@pytest.fixture(scope="module")
def stage(rmq_version, start_shared):
    cluster = start_shared(rmq_version, conf={"enableMixedMessageType": "true"})

    def create_topic(name, kind):
        attributes = None if kind is None else f"+message.type={kind}"
        cluster.create_topic(name, attributes=attributes)

    def create_group(name, attributes):
        changes = {f"+{key}": value for key, value in attributes.items()}
        body = json.dumps({"groupName": name, "attributes": changes}).encode()
        assert cluster.ask(UPDATE_GROUP, body=body).code == 0

    with RealProxy(cluster) as proxy:
        stage = Stage(proxy.endpoints, create_topic, create_group)
        yield stage
        stage.close()


@pytest.mark.parametrize("name", TABLE)
def test_real_proxy(stage, name):
    row = TABLE[name]
    assert row.act(stage) == row.expected


def test_reflection(stage):
    check_table(stage.endpoints)
    assert set(services(stage.endpoints)) == {
        "grpc.reflection.v1alpha.ServerReflection",
        "grpc.channelz.v1.Channelz",
        "apache.rocketmq.v2.MessagingService",
    }
