"""The remoting port of the embedded proxy: real answers, and Java's clients."""

from __future__ import annotations

from base64 import b64decode, b64encode

import pytest

from rmqcli.broker.proxy.options import ProxyOptions
from tests.broker.proxy.remoting import TABLE, Stage
from tests.kit.embedded import CLIENT_VERSION, JavaOnEmbedded
from tests.kit.java_program import JavaConsumer, java_producer

pytestmark = [pytest.mark.rmq_versions("5.5.0"), pytest.mark.real_only]


@pytest.fixture(scope="module")
def stage(real_cluster, cluster_proxy):
    def create_topic(name, kind):
        attributes = None if kind is None else f"+message.type={kind}"
        real_cluster.create_topic(name, attributes=attributes)

    return Stage(cluster_proxy.remoting_address, create_topic)


@pytest.mark.parametrize("name", TABLE)
def test_real_proxy(stage, name):
    row = TABLE[name]
    assert row.act(stage) == row.expected


class _BehindProxy(JavaOnEmbedded):
    """An embedded cluster whose Java clients know only the proxy's address."""

    @property
    def namesrv(self) -> str:
        return self.cluster.proxy.remoting_address


@pytest.fixture
def behind(rmq_version, tmp_path):
    options = ProxyOptions(remoting_port=0)
    with _BehindProxy(CLIENT_VERSION, tmp_path, brokers=2, proxy=options) as cluster:
        yield cluster


@pytest.mark.parametrize("orderly", [False, True])
def test_java_producers_and_consumers_work_through_the_port(behind, orderly):
    topic = behind.create_topic(queues=2)
    sent = java_producer(
        behind,
        [
            {"topic": topic, "bodyB64": b64encode(b"m%d" % number).decode()}
            for number in range(10)
        ],
    )
    assert {each["brokerName"] for each in sent} == {"broker-a", "broker-b"}
    with JavaConsumer(behind, f"G-{topic}", topic, orderly=orderly) as consumer:
        found = consumer.wait_for(10)
    assert sorted(b64decode(each["bodyB64"]) for each in found) == [
        b"m%d" % number for number in range(10)
    ]
