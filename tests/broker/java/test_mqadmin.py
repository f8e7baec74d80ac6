"""mqadmin works with the embedded cluster and prints what it should."""

from __future__ import annotations

import base64
import re

import pytest

from tests.kit.java_program import JavaConsumer, java_producer, mqadmin
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.5.0")


@pytest.fixture(scope="module")
def orders(embedded):
    """Ten messages, three with the key `order-1`, and Java's send results."""
    topic = embedded.create_topic(queues=1)
    specs = [
        {
            "topic": topic,
            "bodyB64": base64.b64encode(b"order %d" % number).decode(),
            "tags": "Paid",
            "keys": f"order-{number % 4}",
            "brokerName": "broker-a",
            "queueId": 0,
        }
        for number in range(10)
    ]
    return topic, java_producer(embedded, specs)


def test_cluster_list(embedded):
    printed = mqadmin(embedded, "clusterList")
    for broker in embedded.cluster.brokers:
        assert re.search(rf"DefaultCluster\s+{broker.name}\s+0\s+127", printed), printed


def test_settings_write_permissions_and_values_of_name_servers(embedded):
    broker, namesrv = embedded.cluster.broker(), embedded.cluster.namesrv
    set_it = ["-k", "maxMessageSize", "-v", "5000"]
    mqadmin(embedded, "updateBrokerConfig", "-b", broker.address, *set_it)
    assert broker.state.settings.max_message_size == 5000
    mqadmin(embedded, "updateNamesrvConfig", "-k", "productEnvName", "-v", "east")
    assert "east" in mqadmin(embedded, "getNamesrvConfig")
    mqadmin(embedded, "updateKvConfig", "-s", "NS", "-k", "k", "-v", "v")
    mqadmin(embedded, "deleteKvConfig", "-s", "NS", "-k", "k")
    printed = mqadmin(embedded, "wipeWritePerm", "-b", "broker-a")
    assert (
        f"wipe write perm of broker[broker-a] in name server[{namesrv}] OK" in printed
    )
    mqadmin(embedded, "cleanExpiredCQ", "-b", broker.address)
    mqadmin(embedded, "cleanUnusedTopic", "-b", broker.address)
    if embedded.version == "5.5.0":
        printed = mqadmin(embedded, "addWritePerm", "-b", "broker-a")
        assert f"in name server[{namesrv}] OK" in printed
    else:
        broker.state.topics.register_again()


def test_topic_list_route_and_status(embedded, orders):
    topic, _ = orders
    assert topic in mqadmin(embedded, "topicList").split()
    route = mqadmin(embedded, "topicRoute", "-t", topic)
    assert '"brokerName":"broker-a"' in route.replace(" ", "")
    status = mqadmin(embedded, "topicStatus", "-t", topic)
    assert re.search(r"broker-a\s+0\s+0\s+10\s+20\d\d-", status), status


def test_topics_are_made_and_deleted(embedded):
    topic = "made-by-mqadmin"
    mqadmin(embedded, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "3")
    route = mqadmin(embedded, "topicRoute", "-t", topic)
    assert '"readQueueNums":3' in route.replace(" ", "")
    mqadmin(embedded, "deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert topic not in mqadmin(embedded, "topicList").split()


def test_messages_by_id_and_key(embedded, orders):
    topic, sent = orders
    named = ["-t", topic] if embedded.version.startswith("5") else []
    by_id = mqadmin(embedded, "queryMsgById", "-i", sent[3]["offsetMsgId"], *named)
    assert re.search(r"Queue Offset:\s+3\b", by_id), by_id
    by_key = mqadmin(embedded, "queryMsgByKey", "-t", topic, "-k", "order-1")
    found = set(re.findall(r"^([0-9A-F]{32,})\b.*", by_key, re.MULTILINE))
    assert found == {sent[n]["msgId"] for n in (1, 5, 9)}, by_key


def test_messages_are_printed(embedded, orders):
    topic, _ = orders
    printed = mqadmin(embedded, "printMsg", "-t", topic)
    assert {f"order {n}" for n in range(10)} <= set(re.findall(r"order \d", printed))


def test_progress_connection_and_status_of_a_live_group(embedded, orders):
    topic, _ = orders
    group = f"g-{topic}"
    with JavaConsumer(embedded, group, topic) as consumer:
        consumer.wait_for(10)

        def is_committed():
            progress = mqadmin(embedded, "consumerProgress", "-g", group)
            return re.search(rf"{topic}\s+broker-a\s+0\s+10\s+10\s", progress)

        consumer.wait_until(lambda: bool(is_committed()), what="committed offsets")
        connection = mqadmin(embedded, "consumerConnection", "-g", group)
        assert consumer.client_id in connection
        assert "CONSUME_PASSIVELY" in connection
        status = mqadmin(embedded, "consumerStatus", "-g", group)
        assert consumer.client_id in status


def test_offsets_are_reset(embedded, orders):
    topic, _ = orders
    group = f"r-{topic}"
    with JavaConsumer(embedded, group, topic, persistMs=300) as consumer:
        consumer.wait_for(10)
    arguments = ["resetOffsetByTime", "-g", group, "-t", topic, "-s", "0"]
    printed = mqadmin(embedded, *arguments)
    assert "broker-a" in printed, printed
    with JavaConsumer(embedded, group, topic) as consumer:
        assert len(consumer.wait_for(10)) == 10


def test_broker_status_and_config(embedded):
    address = embedded.cluster.brokers[0].address
    status = mqadmin(embedded, "brokerStatus", "-b", address)
    for key in ("bootTimestamp", "brokerVersionDesc", "putTps", "commitLogMaxOffset"):
        assert re.search(rf"^{key}\s+:", status, re.MULTILINE), status
    config = mqadmin(embedded, "getBrokerConfig", "-b", address)
    assert re.search(r"^brokerName\s+=\s+broker-a", config, re.MULTILINE), config


def test_settings_are_changed_at_once_or_refused(embedded):
    broker = embedded.cluster.brokers[0]

    def update(name, value):
        where = ["-b", broker.address, "-k", name, "-v", value]
        return mqadmin(embedded, "updateBrokerConfig", *where)

    # On a busy machine mqadmin may give up after a few seconds.
    wait_until(lambda: "success" in update("maxFilterMessageSize", "16001"))
    settings = embedded.cluster.call(lambda: broker.state.settings)
    assert settings.max_filter_message_size == 16_001
    wait_until(lambda: "success" in update("maxFilterMessageSize", "16000"))

    assert "success" not in update("flushDelayOffsetInterval", "1000")
    config = embedded.cluster.call(lambda: broker.state.configuration.properties())
    assert "flushDelayOffsetInterval" not in config
