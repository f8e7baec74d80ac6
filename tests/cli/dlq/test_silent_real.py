"""Messages and letters while one of two real brokers hangs: what it was not asked."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.admin.dlq.letters import make_letters
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_half_of_the_brokers_are_never_taken_for_all(fresh_cluster, capsys):
    cluster = fresh_cluster(brokers=2)
    topic = cluster.create_topic(queues=1)
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group("billing")
        admin.create_topic("%DLQ%billing", queue_nums=1, perm=6)
    make_letters(cluster, "billing", topic, "ab")
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = {
            queue.broker_name: producer.send(
                ProducerMessage(topic, queue.broker_name.encode(), keys="k"),
                queue=queue,
            )
            for queue in producer.queues(topic)
        }

    def rmq(*words):
        capsys.readouterr()
        limit = () if "--timeout" in words else ("--timeout", "2s")
        code = run([*words, *limit, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, " ".join(err.split())

    def show_all():
        code, rows, _ = rmq("message", "show", "k", "-t", topic, "--timeout", "10s")
        return code == 0 and len(rows) == 2

    wait_until(show_all)
    cluster.suspend_broker(1)
    try:
        code, (row,), err = rmq("dlq", "list")
        assert (code, row["count"], row["known_count"]) == (6, None, 1)
        assert row["reason"].startswith("broker-b: no answer from")
        assert "broker-b did not answer" in err
        unread = "%DLQ%billing@broker-b:0 was not read to its end: no answer"
        code, rows, err = rmq("dlq", "show", "billing")
        assert (code, [each["body"] for each in rows]) == (6, ["a"])
        assert unread in err
        code, (row,), err = rmq("dlq", "show", "billing", "--by", "tag")
        assert (code, row["count"]) == (6, 1)
        assert unread in err
        code, plan, err = rmq("dlq", "redrive", "billing")
        assert (code, [each["queue"] for each in plan["unread"]]) == (
            6,
            ["%DLQ%billing@broker-b:0"],
        )
        assert "this plan is incomplete and would be refused" in err
        for ref in ("k", sent["broker-a"].msg_id):
            code, (row,), err = rmq("message", "show", ref, "-t", topic)
            assert (code, row["body"]) == (6, "broker-a")
            assert "broker-b did not answer" in err
        there = sent["broker-b"]
        for there_ref in (there.msg_id, there.offset_msg_id):
            code, row, err = rmq("message", "show", there_ref or "", "-t", topic)
            assert (code, row) == (6, None)
            assert f"{there_ref} was not found: broker-b did not answer" in err
        code, row, err = rmq("message", "show", f"{topic}@broker-b:0:1")
        assert (code, row) == (5, None)
        assert "no answer from" in err
    finally:
        cluster.resume_broker(1)
