"""`rmq retry flush` on real brokers, with a Java member that failed to consume."""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

#: Of a minute.
LEVEL = 5


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def flush(cluster, capsys, group, *words):
    """Run the command; return exit code, JSON of stdout or None, and stderr."""
    capsys.readouterr()
    command = ["retry", "flush", group, "-n", cluster.namesrv, "-o", "json", *words]
    code = run(command)
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, " ".join(err.split())


def send(cluster, java_producer, topic, *bodies):
    specs = [
        {"topic": topic, "bodyB64": base64.b64encode(body).decode()} for body in bodies
    ]
    java_producer(cluster, specs)


@pytest.mark.rmq_versions("4.9.7", "5.3.3", "5.5.0")
def test_a_java_member_gets_each_message_now_and_once_more_at_its_time(
    real_cluster, new_topic, java_producer, capsys
):
    """The plan says how often: of two that failed, two copies and two originals."""
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    send(real_cluster, java_producer, topic, b"a", b"b")
    with JavaConsumer(
        real_cluster, group, topic, failTimes=1, delayLevel=LEVEL
    ) as consumer:
        consumer.wait_for(2)
        wait_until(lambda: flush(real_cluster, capsys, group)[1]["count"] == 2)
        _, plan, err = flush(real_cluster, capsys, group)
        assert (plan["second_deliveries"], plan["members"]) == (2, 1), err
        code, done, err = flush(real_cluster, capsys, group, "--execute", "--yes")
        assert (code, done["sent"], done["failed"]) == (0, 2, []), err
        now = consumer.wait_for(4)
        waiting = flush(real_cluster, capsys, group)[1]
        assert [(each["reason"], each["count"]) for each in waiting["skipped"]] == [
            ("flushed before; the original still waits", 2)
        ]
        wait_until(
            lambda: not flush(real_cluster, capsys, group)[1]["skipped"],
            timeout_s=120,
        )
        seen = consumer.wait_for(6)
    assert {each["topic"] for each in now} == {topic}
    assert Counter((each["msgId"], each["reconsumeTimes"]) for each in seen) == {
        **{(each["msgId"], 0): 1 for each in now},
        **{(each["msgId"], 1): 2 for each in now},
    }
    with Admin(namesrv=real_cluster.namesrv) as admin:
        stored = list(admin.read(f"%RETRY%{group}"))
    assert len(stored) == 4
    copies = [each for each in stored if "RMQ_FLUSHED_FROM" in each.properties]
    originals = [each for each in stored if each not in copies]
    extra = {"RMQ_FLUSHED_FROM"}
    left_out = {"DELAY", "WAIT", "__CRC32#"}
    for copy in copies:
        (original,) = [each for each in originals if each.msg_id == copy.msg_id]
        assert copy.queue_id == original.queue_id
        assert copy.born_timestamp_ms == original.born_timestamp_ms
        assert set(copy.properties) - extra - left_out == (
            set(original.properties) - left_out
        )
        for name in ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "UNIQ_KEY"):
            assert copy.properties[name] == original.properties[name]


@pytest.mark.rmq_versions("4.6.0")
def test_a_broker_of_4_6_0_does_not_show_what_waits_and_nothing_is_copied(
    real_cluster, new_topic, java_producer, capsys
):
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    send(real_cluster, java_producer, topic, b"a")
    with JavaConsumer(
        real_cluster, group, topic, failTimes=1, delayLevel=LEVEL
    ) as consumer:
        consumer.wait_for(1)
        wait_until(lambda: flush(real_cluster, capsys, group)[0] == 1)
        code, done, err = flush(real_cluster, capsys, group, "--execute", "--yes")
        assert (code, done) == (1, None), err
        assert "does not show" in err
        assert "brokers of 4.6.0 do not; newer ones do" in err
    with Admin(namesrv=real_cluster.namesrv) as admin:
        assert list(admin.read(f"%RETRY%{group}")) == []


@pytest.mark.rmq_versions("5.5.0")
def test_while_a_group_holds_locks_the_first_copy_is_dead_and_the_flush_ends(
    real_cluster, new_topic, java_producer, capsys
):
    """An orderly member keeps its own retries, and brokers take no others."""
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    send(real_cluster, java_producer, topic, b"a", b"b")
    with JavaConsumer(
        real_cluster, group, topic, failTimes=1, delayLevel=18
    ) as consumer:
        consumer.wait_for(2)
        wait_until(lambda: flush(real_cluster, capsys, group)[1]["count"] == 2)
    with JavaConsumer(real_cluster, group, topic, orderly=True) as consumer:
        send(real_cluster, java_producer, topic, b"c")
        consumer.wait_for(1)
        code, done, err = flush(real_cluster, capsys, group, "--execute", "--yes")
    assert (code, done["sent"]) == (7, 0), err
    assert [each["status"] for each in done["failed"]] == ["DEAD_AGAIN"]
    assert f"stored a copy in %DLQ%{group} instead of %RETRY%{group}" in err
    assert flush(real_cluster, capsys, group)[1]["count"] == 2
