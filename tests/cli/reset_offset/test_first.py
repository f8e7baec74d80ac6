"""The first commit of a group is sent alone, because brokers may lose concurrent ones.

ConsumerOffsetManager creates the map of a group without a lock, so of two threads that
handle its first commits, one may replace the map of the other.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.cli.reset_offset.test_reset_offset import new_group
from tests.consumer.collecting import committed
from tests.kit.java_program import fill

QUEUES = 16


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def reset(namesrv, topic, capsys, *, group="G", to="5"):
    """Reset the group; return the exit code and the result of each queue."""
    words = ["reset-offset", group, topic, "--to", to, "--execute", "--yes"]
    code = run([*words, "-n", namesrv, "-o", "json", "-q", "--timeout", "5s"])
    rows = json.loads(capsys.readouterr().out)["queues"]
    return code, [row["result"] for row in rows]


@pytest.fixture
def topic(rmq_cluster):
    rmq_cluster.create_group("G")
    topic = rmq_cluster.create_topic("T", queues=4)
    rmq_cluster.send(topic, ["x"] * 40)
    return topic


@pytest.mark.slow
def test_where_the_first_gets_no_answer_the_others_stay(rmq_cluster, topic, capsys):
    rule = rmq_cluster.faults.next(
        faults.drop_request(), code=RequestCode.UPDATE_CONSUMER_OFFSET
    )
    results = ["UNKNOWN", *["NOT_ATTEMPTED"] * 3]
    assert reset(rmq_cluster.namesrv, topic, capsys) == (5, results)
    assert rule.hits == 1
    assert committed(rmq_cluster, "G", topic) == {}


def test_a_refusal_of_one_queue_is_not_the_others(rmq_cluster, topic, capsys):
    rmq_cluster.faults.next(
        faults.answer(1, "not this one"), code=RequestCode.UPDATE_CONSUMER_OFFSET
    )
    results = ["NOT_ATTEMPTED", *["CONFIRMED"] * 3]
    assert reset(rmq_cluster.namesrv, topic, capsys) == (6, results)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_group_that_never_committed_is_reset_whole(real_cluster, capsys):
    """Concurrent commits made 7 of 80 resets lose queues on 4.6.0, 1 of 80 on 5.5.0."""
    topic = real_cluster.create_topic(queues=QUEUES)
    fill(real_cluster, topic, 10 * QUEUES, body_bytes=8)
    for _ in range(30):
        group = new_group(real_cluster)
        code, results = reset(
            real_cluster.namesrv, topic, capsys, group=group, to="latest"
        )
        assert (code, results) == (0, ["CONFIRMED"] * QUEUES)
