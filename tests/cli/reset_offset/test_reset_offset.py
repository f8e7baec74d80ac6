"""`rmq reset-offset` on real brokers: the brokers have the reported offsets."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli.cli.main import run
from tests.cli.reset_offset.targets import TARGETS
from tests.kit import raw
from tests.kit.java_program import JavaConsumer, java_producer

SEND_MESSAGE = 10
QUERY_CONSUMER_OFFSET = 14
UPDATE_CONSUMER_OFFSET = 15
COUNT = 60


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def filled(real_cluster):
    """A topic with COUNT messages in each of two queues, and the producer's results."""
    topic = real_cluster.create_topic(queues=2)
    specs = [
        {"topic": topic, "bodyB64": "eA==", "brokerName": "broker-a", "queueId": n % 2}
        for n in range(2 * COUNT)
    ]
    return topic, java_producer(real_cluster, specs)


@pytest.fixture
def group(real_cluster):
    return new_group(real_cluster)


def new_group(cluster):
    name = f"G-{uuid.uuid4().hex[:12]}"
    body = json.dumps({"groupName": name, "consumeEnable": True, "brokerId": 0})
    code = raw.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert cluster.ask(code, body=body.encode()).code == 0
    return name


def commit(cluster, group, topic, offsets):
    for queue_id, offset in enumerate(offsets):
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        answer = cluster.ask(
            UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": str(offset)}
        )
        assert answer.code == 0


def committed(cluster, group, topic, queues=2):
    offsets = []
    for queue_id in range(queues):
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        answer = cluster.ask(QUERY_CONSUMER_OFFSET, fields)
        offsets.append(int(answer.ext_fields["offset"]))
    return offsets


def rmq(cluster, capsys, *arguments):
    """Run `rmq reset-offset`; return exit code, JSON of stdout or None, and stderr."""
    capsys.readouterr()
    code = run(["reset-offset", *arguments, "-n", cluster.namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


def results(document):
    return [row["result"] for row in document["queues"]]


@pytest.mark.parametrize(("arguments", "expected"), TARGETS)
def test_each_position_is_applied_once_and_undone(
    real_cluster, filled, group, capsys, arguments, expected
):
    topic, _ = filled
    commit(real_cluster, group, topic, [30, 40])
    code, plan, err = rmq(real_cluster, capsys, group, topic, *arguments)
    assert (code, plan["mode"], plan["backup"]) == (0, "plan", None), err
    assert committed(real_cluster, group, topic) == [30, 40]

    do = [group, topic, *arguments, "--execute", "--yes"]
    code, done, err = rmq(real_cluster, capsys, *do)
    assert (code, set(results(done))) == (0, {"CONFIRMED"}), err
    assert done["mode"] == "applied"
    assert committed(real_cluster, group, topic) == expected
    if arguments[0] != "--shift":
        code, again, _ = rmq(real_cluster, capsys, *do)
        assert (code, set(results(again))) == (0, {"UNCHANGED"})
        assert again["backup"] is None

    undo = [group, topic, "--undo", "--execute", "--yes"]
    code, undone, err = rmq(real_cluster, capsys, *undo)
    assert (code, set(results(undone))) == (0, {"CONFIRMED"}), err
    assert committed(real_cluster, group, topic) == [30, 40]
    code, again, _ = rmq(real_cluster, capsys, *undo)
    assert (code, set(results(again))) == (0, {"UNCHANGED"})


def test_to_group_copies(real_cluster, filled, group, capsys):
    topic, _ = filled
    other = new_group(real_cluster)
    commit(real_cluster, other, topic, [11, 22])
    commit(real_cluster, group, topic, [1, 1])
    arguments = [group, topic, "--to-group", other, "--execute", "--yes"]
    assert rmq(real_cluster, capsys, *arguments)[0] == 0
    assert committed(real_cluster, group, topic) == [11, 22]


def test_a_plan_says_what_is_skipped_and_when(real_cluster, filled, group, capsys):
    topic, _ = filled
    commit(real_cluster, group, topic, [30, 99])
    arguments = [group, topic, "--to", "40", "--show-edges"]
    code, plan, _ = rmq(real_cluster, capsys, *arguments)
    first, second = plan["queues"]
    assert code == 0
    assert (first["delta"], first["skipped"], first["replayed"]) == (10, 10, 0)
    assert first["first_timestamp"] <= first["last_timestamp"]
    assert (first["before"]["queue_offset"], first["after"]["queue_offset"]) == (39, 40)
    assert (second["delta"], second["skipped"], second["replayed"]) == (-59, 0, 20)
    assert second["warnings"] == ["beyond the end: 99 is committed but the end is 60"]


def test_past_message_skips_one_message_only(real_cluster, filled, group, capsys):
    topic, sent = filled
    commit(real_cluster, group, topic, [20, 20])
    poison = next(s for s in sent if s["queueId"] == 1 and s["queueOffset"] == 20)
    later = next(s for s in sent if s["queueId"] == 1 and s["queueOffset"] == 25)
    for kind, spell in (
        ("msgId", str.upper),
        ("msgId", str.lower),
        ("offsetMsgId", str.upper),
    ):
        refused = [group, topic, "--past-message", later[kind]]
        code, _, err = rmq(real_cluster, capsys, *refused)
        assert code == 7
        assert "other messages would be skipped too" in err
        commit(real_cluster, group, topic, [20, 20])
        do = [group, topic, "--past-message", spell(poison[kind]), "--execute", "--yes"]
        code, done, err = rmq(real_cluster, capsys, *do)
        assert (code, results(done)) == (0, ["CONFIRMED"]), err
        assert committed(real_cluster, group, topic) == [20, 21]
        code, again, _ = rmq(real_cluster, capsys, *do)
        assert (code, results(again)) == (0, ["UNCHANGED"])
    code, _, err = rmq(real_cluster, capsys, group, topic, "--past-message", "0" * 32)
    assert code == 3, err


def test_past_message_skips_one_message_of_a_grpc_client(real_cluster, group, capsys):
    topic = real_cluster.create_topic(queues=1)
    grpc_id = f"01{uuid.uuid4().hex}".upper()
    fields = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "0",
        "flag": "0",
        "properties": f"UNIQ_KEY\x01{grpc_id}\x02",
    }
    assert real_cluster.ask(SEND_MESSAGE, fields, body=b"x").code == 0
    do = [group, topic, "--past-message", grpc_id, "--execute", "--yes"]
    code, done, err = rmq(real_cluster, capsys, *do)
    assert (code, results(done)) == (0, ["CONFIRMED"]), err
    assert committed(real_cluster, group, topic, queues=1) == [1]


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_a_plan_file_is_applied_unless_offsets_moved(
    real_cluster, filled, group, capsys, tmp_path, ending
):
    topic, _ = filled
    commit(real_cluster, group, topic, [30, 40])
    file = str(tmp_path / f"plan.{ending}")
    assert rmq(real_cluster, capsys, group, topic, "--to", "5", "--out", file)[0] == 0
    commit(real_cluster, group, topic, [31, 40])
    apply = [group, topic, "--apply", file, "--execute", "--yes"]
    code, _, err = rmq(real_cluster, capsys, *apply)
    assert code == 7
    assert "committed offset was 30, is now 31" in err
    assert committed(real_cluster, group, topic) == [31, 40]
    commit(real_cluster, group, topic, [30, 40])
    assert rmq(real_cluster, capsys, *apply)[0] == 0
    assert committed(real_cluster, group, topic) == [5, 5]
    code, again, _ = rmq(real_cluster, capsys, *apply)
    assert (code, results(again)) == (0, ["UNCHANGED", "UNCHANGED"])


def test_a_csv_of_kafka_is_applied(real_cluster, filled, group, capsys, tmp_path):
    topic, _ = filled
    commit(real_cluster, group, topic, [30, 40])
    file = tmp_path / "offsets.csv"
    file.write_text(f'"{topic}",0,12\n"{topic}",1,13\n')
    apply = [group, topic, "--apply", str(file), "--execute", "--yes"]
    assert rmq(real_cluster, capsys, *apply)[0] == 0
    assert committed(real_cluster, group, topic) == [12, 13]


def test_nothing_is_done_without_agreement(real_cluster, filled, group, capsys):
    topic, _ = filled
    commit(real_cluster, group, topic, [30, 40])
    do = [group, topic, "--to", "0", "--execute", "--no-input"]
    code, out, err = rmq(real_cluster, capsys, *do)
    assert (code, out) == (7, None)
    assert "--yes" in err
    assert committed(real_cluster, group, topic) == [30, 40]


def test_what_does_not_exist_is_3(real_cluster, filled, group, capsys):
    topic, _ = filled
    assert rmq(real_cluster, capsys, group, "no-topic", "--to", "0")[0] == 3
    assert rmq(real_cluster, capsys, "no-group", topic, "--to", "0")[0] == 3
    assert rmq(real_cluster, capsys, group, topic, "--undo")[0] == 3


def test_a_live_consumer_receives_from_there(real_cluster, filled, group, capsys):
    """On every version, the consumer receives all messages a second time."""
    topic, _ = filled
    # A fast consumer could be back at the end before the offsets are read back.
    with JavaConsumer(
        real_cluster, group, topic, persistMs=5000, slowMs=30
    ) as consumer:
        consumer.wait_for(2 * COUNT)
        consumer.wait_until(
            lambda: committed(real_cluster, group, topic) == [60, 60],
            what="commit of everything",
        )
        do = [group, topic, "--to", "earliest", "--execute", "--yes"]
        code, done, err = rmq(real_cluster, capsys, *do)
        assert (code, results(done)) == (0, ["CONFIRMED", "CONFIRMED"]), err
        assert done["client_ids"] == [consumer.client_id]
        consumer.wait_for(4 * COUNT)
    assert committed(real_cluster, group, topic) == [60, 60]


@pytest.mark.rmq_versions("4.9.7")
def test_what_a_live_consumer_overwrites_is_refused_or_proved(
    real_cluster, filled, group, capsys
):
    """An old broker pushes one time for all queues, so it cannot move queue 1 alone."""
    topic, _ = filled
    with JavaConsumer(real_cluster, group, topic, persistMs=1000) as consumer:
        consumer.wait_for(2 * COUNT)
        consumer.wait_until(
            lambda: committed(real_cluster, group, topic) == [60, 60],
            what="commit of everything",
        )
        do = [group, topic, "--shift", "-10", "--queue", "1", "--execute", "--yes"]
        code, out, err = rmq(real_cluster, capsys, *do)
        assert (code, out) == (7, None)
        assert "no timestamp gives these offsets" in err
        code, done, err = rmq(real_cluster, capsys, *do, "--wait")
        assert (code, results(done)) == (6, ["OVERWRITTEN"]), err
    assert committed(real_cluster, group, topic) == [60, 60]
