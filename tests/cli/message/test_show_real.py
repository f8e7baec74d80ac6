"""`rmq message` on real brokers: each verdict beside what a real group did."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, Consumer, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.admin.dlq.letters import kill
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.rmq_versions("4.6.0", "5.5.0")


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def group(real_cluster):
    name = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(name)
    return name


@pytest.fixture
def shown(real_cluster, capsys):
    """Return the verdict of the only group of the only message."""

    def shown_(ref, topic, group):
        do = ["message", "show", ref, "-t", topic, "-g", group]
        capsys.readouterr()
        code = run([*do, "-n", real_cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        assert code == 0, err
        ((found,),) = [row["groups"] for row in json.loads(out)]
        return found

    return shown_


def send(cluster, topic, *tags):
    """Send messages, and wait until the index has them, which is later."""
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = [producer.send(ProducerMessage(topic, b"a", tags=tag)) for tag in tags]
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: admin.find_messages(sent[-1].msg_id, topic=topic).messages)
    return sent


def member(cluster, group, topics, seen):
    return Consumer(
        group,
        topics,
        lambda message: seen.append(message.msg_id),
        consume_from="earliest",
        namesrv=cluster.namesrv,
    )


def test_what_a_group_consumed_filtered_or_has_before_it(
    real_cluster, new_topic, group, shown
):
    topic = new_topic(queues=1)
    seen: list[str] = []
    with member(real_cluster, group, {topic: "New"}, seen):
        # The first of these may be sent before the member is known to the broker.
        wait_until(
            lambda: (
                shown(send(real_cluster, topic, "New")[0].msg_id, topic, group)[
                    "reason"
                ]
                is None
            )
        )
        paid, new = send(real_cluster, topic, "Paid", "New")
        wait_until(lambda: new.msg_id in seen)
        wait_until(lambda: shown(new.msg_id, topic, group)["verdict"] == "consumed")
        assert shown(paid.msg_id, topic, group)["verdict"] == "filtered"
        assert paid.msg_id not in seen
    later = send(real_cluster, topic, "New", "New")[1]
    found = shown(later.msg_id, topic, group)
    assert (found["verdict"], found["waiting_before"]) == ("waiting", 1)
    assert shown(new.msg_id, topic, group)["verdict"] == "unknown"


def test_what_failed_is_in_retry_and_then_dead(real_cluster, new_topic, group, shown):
    topic = new_topic(queues=1)
    seen: list[str] = []
    with member(real_cluster, group, topic, seen):
        (sent,) = send(real_cluster, topic, "New")
        (other,) = send(real_cluster, topic, "New")
        wait_until(lambda: sent.msg_id in seen and other.msg_id in seen)
    kill(real_cluster, group, topic, [sent], delay_level=9)  # five minutes
    found = shown(sent.msg_id, topic, group)
    assert (found["verdict"], found["attempt"]) == ("in_retry", 2)
    assert found["attempts_max"] == 17
    assert found["next_at"] is not None
    assert found["where"].startswith("SCHEDULE_TOPIC_XXXX@")
    kill(real_cluster, group, topic, [other])
    found = shown(other.msg_id, topic, group)
    assert found["verdict"] == "dead"
    assert found["where"].startswith(f"%DLQ%{group}@")
    kill(real_cluster, group, topic, [sent])  # its retry comes all the same
    assert shown(sent.msg_id, topic, group)["verdict"] == "in_retry"


def test_a_reset_over_a_message_did_not_consume_it(
    real_cluster, new_topic, group, shown
):
    topic = new_topic(queues=1)
    seen: list[str] = []
    (first,) = send(real_cluster, topic, "New")
    with member(real_cluster, group, topic, seen):
        wait_until(lambda: first.msg_id in seen)
    skipped = send(real_cluster, topic, "New")[0]
    do = ["reset-offset", group, topic, "--to", "latest", "--execute", "--yes"]
    assert run([*do, "-n", real_cluster.namesrv]) == 0
    with member(real_cluster, group, topic, seen):
        last = send(real_cluster, topic, "New")[0]
        wait_until(lambda: last.msg_id in seen)
        found = shown(skipped.msg_id, topic, group)
    assert skipped.msg_id not in seen
    assert found["verdict"] == "unknown"
    assert found["reason"].startswith("a reset moved the group over it")


def test_a_key_and_an_id_are_found(real_cluster, new_topic, capsys):
    topic = new_topic(queues=2)
    with Producer(namesrv=real_cluster.namesrv) as producer:
        sent = [
            producer.send(ProducerMessage(topic, b"%d" % n, keys=f"k{n % 2}"))
            for n in range(150)
        ]
    find = ["message", "find", topic, "-n", real_cluster.namesrv, "-o", "jsonl"]

    def found(key):
        capsys.readouterr()
        code = run([*find, "--key", key])
        out, err = capsys.readouterr()
        bodies = sorted(int(json.loads(line)["body"]) for line in out.splitlines())
        return code, bodies, err

    wait_until(lambda: found(sent[-1].msg_id)[1] == [149])
    code, bodies, err = found("k1")
    if code == 0:
        assert bodies == list(range(1, 150, 2)), err
    else:  # more of one second than a broker tells
        assert code == 6
        assert len(bodies) >= 64
    assert found(sent[7].msg_id)[:2] == (0, [7])
    assert found("k")[:2] == (0, [])
    with Admin(namesrv=real_cluster.namesrv) as admin:
        for ref in (sent[7].offset_msg_id, sent[7].msg_id):
            assert ref is not None
            (message,) = admin.find_messages(ref).messages
            assert message.body == b"7"


def test_a_suspended_broker_is_named_and_leaves_time_for_the_others(
    fresh_cluster, capsys
):
    cluster = fresh_cluster(brokers=2)
    topic = cluster.create_topic()
    with Producer(namesrv=cluster.namesrv) as producer:
        queue = next(q for q in producer.queues(topic) if q.broker_name == "broker-a")
        sent = producer.send(ProducerMessage(topic, b"a"), queue=queue)
    cluster.suspend_broker(1)
    try:
        do = ["message", "show", sent.offset_msg_id, "-t", topic, "-o", "json"]
        code = run([*do, "-n", cluster.namesrv, "--timeout", "4s"])
    finally:
        cluster.resume_broker(1)
    out, err = capsys.readouterr()
    assert code == 6
    assert "broker-b did not answer" in " ".join(err.split())
    (row,) = json.loads(out)
    assert (row["msg_id"], row["stored"]["state"]) == (sent.msg_id, "stored")
    (error,) = row["errors"]
    assert error["error"].endswith(" in 4000 ms")
