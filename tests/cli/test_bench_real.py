"""`rmq bench` against real brokers: counts that the brokers confirm."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


def test_each_benchmark_counts_what_the_broker_has(real_cluster, capsys):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    namesrv = real_cluster.namesrv
    real_cluster.create_topic(topic, queues=2)

    def bench(*words):
        code = run(["bench", *words, "-n", namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    found = bench("produce", topic, "--count", "200", "--threads", "2", "--batch", "10")
    assert (found["messages"], found["statuses"]) == (200, {"SEND_OK": 200})
    with Admin(namesrv=namesrv) as admin:

        def stored():
            offsets = [queue.offset for queue in admin.topic(topic).queues]
            return sum(each.max_offset for each in offsets if each is not None)

        wait_until(lambda: stored() == 200)  # brokers count what they stored later
    found = bench("consume", topic, "--group", group, "--count", "200")
    assert found["messages"] == 200
    found = bench("latency", topic, "--count", "20", "--group", group)
    assert found["more"] == {"sent": 20, "not_received": 0, "received_twice": 0}
    assert found["latency_us"]["count"] == 20
