"""The exporter on two real brokers, of which one hangs, comes back, and then dies."""

from __future__ import annotations

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.model import MessageQueue
from tests.admin.dlq.letters import client_of
from tests.exporter.pages import Scrapes
from tests.kit.cluster import RealCluster
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]

LAG = "rocketmq_group_queue_lag_messages"


@pytest.fixture
def cluster(rmq_version, tmp_path, monkeypatch):
    """Two brokers, and a group that is 3 behind on each of them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with RealCluster(rmq_version, tmp_path, brokers=2, is_brief=True) as cluster:
        cluster.create_topic("orders", queues=1)
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_group("billing")
        with Producer(namesrv=cluster.namesrv) as producer:
            for index in range(2):
                queue = MessageQueue("orders", cluster.broker_name(index), 0)
                for number in range(4):
                    message = ProducerMessage("orders", f"{number}".encode())
                    producer.send(message, queue=queue)
        with client_of(cluster, timeout_ms=30_000) as client:
            for index in range(2):
                call = update_consumer_offset("billing", "orders", 0, commit_offset=1)
                client.invoke(cluster.broker_address(index), call)
        yield cluster


def up(values):
    return {
        key[1]: value for key, value in values.items() if key[0] == "rocketmq_broker_up"
    }


def lags(values):
    return {key[1]: value for key, value in values.items() if key[0] == LAG}


def test_values_of_a_broker_that_hangs_or_dies_age_and_vanish_and_others_go_on(cluster):
    both = {"broker-a": 3, "broker-b": 3}
    with Scrapes(cluster.namesrv, timeout_ms=5_000) as scrapes:
        wait_until(lambda: lags(scrapes.collect()) == both)
        values = scrapes.collect()
        assert up(values) == {"broker-a": 1, "broker-b": 1}
        assert values["rocketmq_group_lag_messages", "billing"] == 6

        cluster.suspend_broker(1)
        values = scrapes.collect()
        assert "broker-b" in scrapes.errors
        assert up(values) == {"broker-a": 1, "broker-b": 0}
        assert lags(values) == both
        assert values["rocketmq_group_state", "billing", "UNKNOWN"] == 1
        read_at = values["rocketmq_broker_queues_timestamp_seconds", "broker-b"]
        assert read_at < values["rocketmq_broker_queues_timestamp_seconds", "broker-a"]

        scrapes.clock.ahead_ms += 3_600_000  # it hangs for an hour
        values = scrapes.collect()
        assert up(values) == {"broker-a": 1, "broker-b": 0}
        assert lags(values) == {"broker-a": 3}
        assert ("rocketmq_group_lag_messages", "billing") not in values
        assert values["rocketmq_group_lag_at_least_messages", "billing"] == 3

        cluster.resume_broker(1)
        wait_until(lambda: lags(scrapes.collect()) == both)
        values = scrapes.collect()
        assert values["rocketmq_group_lag_messages", "billing"] == 6

        for index in range(2):
            cluster.kill_broker(index)
        values = scrapes.collect()
        assert set(up(values).values()) <= {0}
        assert lags(values) == both
        assert values["rocketmq_exporter_last_collection_success",] == 0
        scrapes.clock.ahead_ms += 3_600_000
        values = scrapes.collect()
        assert lags(values) == {}
        assert ("rocketmq_group_lag_at_least_messages", "billing") not in values
