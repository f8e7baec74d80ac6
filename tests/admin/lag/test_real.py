"""`rmq lag` on real brokers agrees with mqadmin, and tells what mqadmin does not."""

from __future__ import annotations

import json
import re
import uuid

import pytest

from rmqcli.cli.main import run
from tests.kit import raw
from tests.kit.java_program import JavaConsumer, fill, java_producer, mqadmin

UPDATE_CONSUMER_OFFSET = 15
SUBSCRIPTION_GROUP = {"groupName": "", "consumeEnable": True, "retryQueueNums": 1}


@pytest.fixture
def lag(capsys):
    """`lag(cluster, *arguments)` returns the groups by name, and the exit code."""

    def ask(cluster, *arguments):
        capsys.readouterr()
        code = run(["lag", *arguments, "-n", cluster.namesrv, "-o", "json"])
        out = capsys.readouterr().out
        return {item["group"]: item for item in json.loads(out)} if out else {}, code

    return ask


def new_group(cluster, *, brokers=(0,)):
    """Create a group on these brokers, which no client has used; return its name."""
    group = f"G-{uuid.uuid4().hex[:12]}"
    body = json.dumps({**SUBSCRIPTION_GROUP, "groupName": group}).encode()
    for broker in brokers:
        code = raw.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert cluster.ask(code, body=body, broker=broker).code == 0
    return group


def commit(cluster, group, topic, offsets, *, broker=0):
    for queue_id, offset in offsets.items():
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue_id),
            "commitOffset": str(offset),
        }
        answer = cluster.ask(UPDATE_CONSUMER_OFFSET, fields, broker=broker)
        assert answer.code == 0, answer.remark


def queues_of(group, topic):
    return {q["queue_id"]: q for q in group["queues"] if q["topic"] == topic}


def pick(queue, *names):
    return tuple(queue[name] for name in names)


def progress(cluster, group):
    """Return mqadmin's rows: (topic, broker, queue) -> (max, committed, lag)."""
    text = mqadmin(cluster, "consumerProgress", "-g", group)
    owner = r"\S+ +" if "#Client IP" in text else ""  # before 5.0
    row = re.compile(
        rf"^(\S+) +(\S+) +(\d+) +(\d+) +(\d+) +{owner}(-?\d+) ", re.MULTILINE
    )
    return {
        (topic, broker, int(queue_id)): tuple(map(int, numbers))
        for topic, broker, queue_id, *numbers in row.findall(text)
    }


def test_in_the_middle_of_a_backlog_it_equals_mqadmin(real_cluster, lag):
    topic = real_cluster.create_topic(queues=4)
    group = f"G-{uuid.uuid4().hex[:12]}"
    fill(real_cluster, topic, 2000, body_bytes=20, batch_size=10)
    with JavaConsumer(real_cluster, group, topic, stopAfter=500) as consumer:
        consumer.wait_for(500)
    found, code = lag(real_cluster, group)
    expected = progress(real_cluster, group)
    ours = {
        (q["topic"], q["broker_name"], q["queue_id"]): (
            q["max_offset"],
            q["committed"] or 0,
            q["lag"],
        )
        for q in found[group]["queues"]
    }
    # Failed messages reach the retry topic later, maybe between the two readings.
    ours, expected = (
        {key: value for key, value in table.items() if key[0] == topic}
        for table in (ours, expected)
    )
    assert len(expected) == 4
    assert ours == expected
    assert code == 0
    of_topic = [t for t in found[group]["topics"] if t["topic"] == topic]
    assert of_topic[0]["lag"] == sum(lag for _, _, lag in expected.values())
    behind = [q for q in queues_of(found[group], topic).values() if q["lag"]]
    assert all(0 < q["age_ms"] < 300_000 for q in behind)
    assert found[group]["members"] == []


def test_what_was_never_committed_is_not_zero(real_cluster, new_topic, lag):
    """mqadmin shows 0 for a queue at 0 and for one without any commit."""
    topic = new_topic(queues=3)
    group = new_group(real_cluster)
    fill(real_cluster, topic, 30, batch_size=5)
    commit(real_cluster, group, topic, {1: 0, 2: 4})
    found, code = lag(real_cluster, group)
    queues = queues_of(found[group], topic)
    names = ("committed", "lag", "state")
    assert pick(queues[0], *names) == (None, None, "NO_COMMIT")
    assert queues[0]["reason"] == (
        "no offset was ever committed; consumeFromWhere of the members decides where to"
        " start"
    )
    assert pick(queues[1], *names) == (0, 10, "KNOWN")
    assert pick(queues[2], *names) == (4, 6, "KNOWN")
    assert pick(found[group], "total_lag", "known_lag", "state") == (
        None,
        16,
        "STOPPED",
    )
    assert code == 0
    whole, _ = lag(real_cluster)
    assert queues_of(whole[group], topic).keys() == queues.keys()
    for queue_id, queue in queues_of(whole[group], topic).items():
        assert pick(queue, *names) == pick(queues[queue_id], *names)


def test_a_group_that_never_committed_anything(real_cluster, new_topic, lag):
    topic = new_topic(queues=1)
    group = new_group(real_cluster)
    fill(real_cluster, topic, 5, batch_size=5)
    found, code = lag(real_cluster, group)
    assert pick(found[group], "state", "total_lag", "queues") == ("NO_COMMIT", None, [])
    assert code == 0
    found, _ = lag(real_cluster, group, "--topic", topic)
    queue = queues_of(found[group], topic)[0]
    assert pick(queue, "state", "max_offset", "lag") == ("NO_COMMIT", 5, None)


def test_retries_and_dead_letters_are_shown_without_a_commit(
    real_cluster, new_topic, lag
):
    topic = new_topic(queues=1)
    group = new_group(real_cluster)
    fill(real_cluster, topic, 5, batch_size=5)
    commit(real_cluster, group, topic, {0: 5})
    for prefix, count in (("%RETRY%", 3), ("%DLQ%", 2)):
        name = real_cluster.create_topic(f"{prefix}{group}", queues=1)
        spec = {"topic": name, "bodyB64": "eA==", "brokerName": "broker-a"}
        # Without maxReconsumeTimes, 4.6.0 assumes 0 and moves the message to the DLQ.
        spec |= {"queueId": 0, "maxReconsumeTimes": "16"}
        java_producer(real_cluster, [spec] * count)
    for named in ([group], []):
        found, code = lag(real_cluster, *named)
        assert pick(found[group], "total_lag", "dead_letters") == (3, 2)
        (retry,) = queues_of(found[group], f"%RETRY%{group}").values()
        assert pick(retry, "committed", "lag", "state") == (None, 3, "NO_COMMIT")
        assert 0 < retry["age_ms"] < 300_000
        # Of all groups it may be 6: a broker does not tell how old messages are in a
        # topic of batches with an empty queue, which other tests leave behind.
        assert code in ((0,) if named else (0, 6))


def test_messages_in_queues_that_were_removed_are_not_lag(real_cluster, lag):
    """The report about all groups says the same as the one about this group."""
    topic = real_cluster.create_topic(queues=4)
    group = new_group(real_cluster)
    fill(real_cluster, topic, 40, batch_size=5)
    commit(real_cluster, group, topic, {0: 10, 1: 4, 2: 0, 3: 3})
    real_cluster.create_topic(topic, queues=2)
    named, _ = lag(real_cluster, group)
    every, _ = lag(real_cluster)
    for found in (named, every):
        rows = queues_of(found[group], topic)
        assert {q: rows[q]["committed"] for q in rows} == {0: 10, 1: 4}
    assert named[group]["total_lag"] == every[group]["total_lag"] > 0


def test_an_offset_beyond_the_end_is_ahead(real_cluster, new_topic, lag):
    topic = new_topic(queues=1)
    group = new_group(real_cluster)
    fill(real_cluster, topic, 5, batch_size=5)
    commit(real_cluster, group, topic, {0: 9})
    found, _ = lag(real_cluster, group)
    queue = queues_of(found[group], topic)[0]
    assert pick(queue, "state", "lag", "age_ms") == ("AHEAD", 0, 0)


def test_an_unknown_group_is_not_found(real_cluster, lag):
    assert lag(real_cluster, "no-such-group") == ({}, 3)


def test_a_known_group_is_shown_beside_an_unknown_one(real_cluster, lag):
    group = new_group(real_cluster)
    found, code = lag(real_cluster, group, "no-such-group")
    assert (list(found), code) == ([group], 6)


def test_an_unknown_topic_is_not_found(real_cluster, lag):
    group = new_group(real_cluster)
    assert lag(real_cluster, group, "--topic", "no-such-topic") == ({}, 3)


def test_a_live_group_has_owners_and_what_they_hold(real_cluster, new_topic, lag):
    topic = new_topic(queues=2)
    group = f"G-{uuid.uuid4().hex[:12]}"
    fill(real_cluster, topic, 40, batch_size=5)
    with JavaConsumer(real_cluster, group, topic, block=True) as consumer:
        found = {}

        def holds_all():
            reading, _ = lag(real_cluster, group, "--process-queues")
            found.update(reading.get(group, {}))  # empty until a broker knows it
            held = [q for q in found.get("process_queues", ()) if q["topic"] == topic]
            return sum(q["cached_count"] for q in held) == 40

        # The consumer's first heartbeat may miss the broker; the next is 30 s later.
        raw.wait_until(holds_all, timeout_ms=60_000, what=lambda: str(found))
        client_id = consumer.client_id
    member = found["members"][0]
    assert pick(member, "client_id", "version", "language") == (
        client_id,
        real_cluster.version,
        "JAVA",
    )
    assert {q["client_id"] for q in found["queues"] if q["topic"] == topic} == {
        client_id
    }
    held = [q for q in found["process_queues"] if q["topic"] == topic]
    names = ("cached_min_offset", "cached_max_offset", "span", "span_limit", "dropped")
    assert [pick(q, *names) for q in held] == [(0, 19, 19, 2000, False)] * 2
    assert sum(q["max_offset"] for q in found["queues"] if q["topic"] == topic) == 40


def test_a_broadcast_group_has_no_lag_at_the_broker(real_cluster, new_topic, lag):
    topic = new_topic(queues=2)
    group = f"G-{uuid.uuid4().hex[:12]}"
    fill(real_cluster, topic, 10, batch_size=5)
    with JavaConsumer(real_cluster, group, topic, broadcast=True) as consumer:
        consumer.wait_for(10)
        found, code = lag(real_cluster, group)
    queues = queues_of(found[group], topic)
    assert [pick(q, "state", "lag", "max_offset") for q in queues.values()] == [
        ("BROADCAST", None, 5)
    ] * 2
    assert (found[group]["state"], code) == ("BROADCAST", 0)


def test_jsonl_is_a_group_a_line_and_csv_a_queue_a_line(
    real_cluster, new_topic, capsys
):
    topic = new_topic(queues=2)
    groups = [new_group(real_cluster) for _ in range(2)]
    for group in groups:
        commit(real_cluster, group, topic, {0: 0, 1: 0})
    arguments = ["lag", *groups, "-q", "-n", real_cluster.namesrv, "-o"]
    assert run([*arguments, "jsonl"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["group"] for line in lines] == groups
    assert run([*arguments, "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].startswith("group,topic,broker_name,queue_id,committed,min_offset")
    cells = rows[1].split(",")
    assert cells[:8] == [groups[0], topic, "broker-a", "0", "0", "0", "0", "0"]
    assert cells[11] == "OK"
    assert len(rows) == 5


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_messages_in_queues_that_were_removed_from_a_topic_are_told(
    real_cluster, lag, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    topic = real_cluster.create_topic(queues=4)
    group = new_group(real_cluster)
    fill(real_cluster, topic, 40, batch_size=5)
    commit(real_cluster, group, topic, dict.fromkeys(range(4), 5))
    found, code = lag(real_cluster, group)
    assert (found[group]["total_lag"], code) == (20, 0)
    words = ["topic", "update", topic, "--queues", "2", "--yes"]
    assert run([*words, "-n", real_cluster.namesrv]) == 0
    told = (
        f"queues 2, 3 of {topic} on broker-a are beyond the topic's queues: 10 messages"
        " that no consumer reads"
    )
    for arguments in ((group,), ("--all",), (group,)):
        found, code = lag(real_cluster, *arguments)
        assert found[group]["total_lag"] == 10
        assert told in found[group]["notes"]


@pytest.mark.rmq_versions("5.5.0")
def test_an_empty_queue_of_a_batch_topic_does_not_hide_the_age(real_cluster, lag):
    """Java cannot tell the times of such a topic: a NullPointerException."""
    topic = real_cluster.create_topic(
        queues=2, brokers=[0], attributes="+queue.type=BatchCQ"
    )
    group = new_group(real_cluster)
    batch = [{"topic": topic, "bodyB64": "eA=="}] * 3
    (sent,) = java_producer(real_cluster, [{"batch": batch}])
    assert sent["sendStatus"] == "SEND_OK"
    commit(real_cluster, group, topic, {0: 0, 1: 0})
    found, code = lag(real_cluster)
    queues = queues_of(found[group], topic).values()
    waiting = [queue for queue in queues if queue["lag"]]
    assert [queue["lag"] for queue in waiting] == [3]
    assert 0 < waiting[0]["age_ms"] < 300_000
    assert (code, found[group]["notes"]) == (0, [])
