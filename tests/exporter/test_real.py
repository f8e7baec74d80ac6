"""The exporter on real brokers: the values are those of `rmq lag`."""

from __future__ import annotations

import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from tests.admin.dlq.letters import client_of
from tests.exporter.pages import Scrapes
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_the_values_are_those_of_rmq_lag_and_brokers(real_cluster):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    namesrv = real_cluster.namesrv
    real_cluster.create_topic(topic, queues=2)
    with Admin(namesrv=namesrv) as admin:
        admin.create_group(group)
    with Producer(namesrv=namesrv) as producer:
        for number in range(10):
            producer.send(ProducerMessage(topic, f"{number}".encode()))
    with client_of(real_cluster, timeout_ms=30_000) as client:
        for queue_id in (0, 1):
            call = update_consumer_offset(group, topic, queue_id, commit_offset=1)
            client.invoke(real_cluster.broker_address(), call)

    def lag():
        with Admin(namesrv=namesrv) as admin:
            return admin.lag(group)

    wait_until(lambda: lag().total_lag == 8)
    with Scrapes(namesrv, timeout_ms=30_000, groups=(group[:8] + "*",)) as scrapes:
        values = scrapes.collect()
    found = lag()
    assert scrapes.errors == {}
    assert values["rocketmq_group_lag_messages", group] == 8
    assert values["rocketmq_group_diff", group, topic] == 8
    assert values["rocketmq_group_state", group, str(found.state)] == 1
    assert {
        (key[1], key[4], key[5]): value
        for key, value in values.items()
        if key[0] == "rocketmq_group_queue_lag_messages"
    } == {
        (queue.broker_name, str(queue.queue_id), queue.topic): queue.lag
        for queue in found.queues
    }
    assert found.age_ms is not None
    age_s = values["rocketmq_group_age_seconds", group]
    assert 0 <= age_s <= found.age_ms / 1000
    assert 0 < values["rocketmq_group_retention_ratio", group] < 0.1
    assert values["rocketmq_group_lost_messages", group] == 0
    assert values["rocketmq_group_dlqdiff", group, f"%DLQ%{group}"] == 0
    assert values["rocketmq_group_count", group] == 0
    (up,) = (key for key in values if key[0] == "rocketmq_broker_up")
    place = up[1:]
    assert place[:2] == ("broker-a", real_cluster.broker_address())
    ratio = values["rocketmq_brokeruntime_commitlog_disk_ratio", *place]
    assert 0 < ratio < 1
    assert values["rocketmq_broker_retention_seconds", *place] == 72 * 3600
    assert values["rocketmq_brokeruntime_send_threadpoolqueue_capacity", *place] > 0
