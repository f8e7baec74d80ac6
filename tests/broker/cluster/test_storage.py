"""Clusters that keep everything in folders."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.cluster.storage import broker_folder
from rmqcli.errors import ConfigError
from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.message_store import StoreError
from tests.broker.wire_client import WireClient

UPDATE_OFFSET, QUERY_OFFSET = 15, 14


def bounds(cluster, topic, queue_id=0, name="broker-a"):
    broker = cluster.broker(name)
    return cluster.call(lambda: broker.store.queue_bounds(topic, queue_id))


def commit(cluster, offset):
    cluster.create_group("g")
    with WireClient(cluster.broker().address) as client:
        answer = client.ask(
            UPDATE_OFFSET,
            consumerGroup="g",
            topic="orders",
            queueId=0,
            commitOffset=offset,
        )
        assert answer.code == 0


def committed(cluster):
    with WireClient(cluster.broker().address) as client:
        answer = client.ask(QUERY_OFFSET, consumerGroup="g", topic="orders", queueId=0)
    return answer.ext_fields.get("offset")


def test_a_folder_keeps_messages_topics_and_offsets(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b", "c"])
        commit(cluster, 2)
    assert (tmp_path / "commitlog").is_dir()
    assert not (tmp_path / "abort").exists()
    with EmbeddedCluster(store=tmp_path) as cluster:
        assert bounds(cluster, "orders") == (0, 3)
        config = cluster.call(lambda: cluster.broker().state.topics.get("orders"))
        assert config is not None
        assert config.write_queue_nums == 1
        assert committed(cluster) == "2"


def test_topics_and_groups_are_written_before_the_answer(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        commit(cluster, 0)  # answered over the network
        config = ConfigFolder(tmp_path / "config")
        topics, groups = (
            config.read("topics.json"),
            config.read("subscriptionGroup.json"),
        )
        assert isinstance(topics, dict)
        assert isinstance(groups, dict)
        assert "orders" in topics["topicConfigTable"]
        assert "g" in groups["subscriptionGroupTable"]


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_killed_broker_of_a_folder_comes_back(tmp_path, flush):
    with EmbeddedCluster(store=tmp_path, flush=flush) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])
        commit(cluster, 1)
        cluster.broker().kill()
        cluster.broker().restart()
        assert bounds(cluster, "orders") == (0, 2)
        assert committed(cluster) == "1"
        (placed,) = cluster.send("orders", ["c"])
        assert placed.queue_offset == 2


def test_several_brokers_have_a_folder_each(tmp_path):
    for expected in ((0, 2), (0, 4)):
        with EmbeddedCluster(store=tmp_path, brokers=2, queues=1) as cluster:
            cluster.create_topic("orders")
            cluster.send("orders", [str(n) for n in range(4)])
            assert bounds(cluster, "orders") == expected
            assert bounds(cluster, "orders", name="broker-b") == expected
    assert {each.name for each in tmp_path.iterdir()} == {"broker-a", "broker-b"}
    with pytest.raises(ConfigError, match="holds the data of 2 brokers, not of one"):
        EmbeddedCluster(store=tmp_path)


def test_the_folder_of_one_broker_is_refused_for_several(tmp_path):
    with EmbeddedCluster(store=tmp_path):
        pass
    with pytest.raises(ConfigError, match="holds the data of one broker, not of 2"):
        EmbeddedCluster(store=tmp_path, brokers=2)


def test_a_folder_in_use_is_one_clear_error(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        with pytest.raises(StoreError, match="is in use"):
            EmbeddedCluster(store=tmp_path)
        cluster.send("orders", ["still works"])


def test_config_that_cannot_be_read_leaves_the_folder_free(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders")
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).write_text("{", encoding="utf-8")
    with pytest.raises(StoreError):
        EmbeddedCluster(store=tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        (tmp_path / "config" / name).unlink(missing_ok=True)
    with EmbeddedCluster(store=tmp_path):
        pass


def test_slaves_have_their_own_folder(tmp_path):
    folder = broker_folder(tmp_path, name="broker-a", broker_id=1, brokers=1)
    assert folder == tmp_path / "broker-a-1"
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a"])
        slave = cluster.add_slave()
        assert cluster.call(lambda: slave.store.queue_bounds("orders", 0)) == (0, 1)
