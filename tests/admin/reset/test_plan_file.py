"""Plan files, ours and Kafka's: what they may contain, and errors that name faults."""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.reset.cluster_identity import ClusterIdentity
from rmqcli.admin.reset.method import Mechanism, ResetMethod
from rmqcli.admin.reset.plan import GroupFacts, QueueFacts, make_plan
from rmqcli.admin.reset.plan_file import read_plan, write_plan
from rmqcli.admin.witness import Noted, Witness
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue

NOTED = "group,topic,broker_name,queue_id,committed,target,max_offset,last_message"
A0, A1 = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
B0 = MessageQueue("T", "b", 0)


def read(path, text, *, queues=(A0, A1)):
    path.write_text(text)
    return read_plan(path, group="G", topic="T", queues=list(queues))


def test_what_was_written_is_read(tmp_path):
    facts = [
        QueueFacts(queue=q, committed=c, min_offset=0, max_offset=9, wanted=w)
        for q, c, w in ((A0, 3, 5), (A1, None, 7), (B0, 1, None))
    ]
    method = ResetMethod(address="127.0.0.1:1", mechanism=Mechanism.COMMIT)
    methods = {("T", "a"): method, ("T", "b"): method}
    plan = make_plan(
        GroupFacts(group="G", topic="T", cluster=ClusterIdentity((), {})),
        facts,
        methods,
    )
    rows = [
        {"broker_name": "a", "queue_id": 0, "committed": 3, "target": 5},
        {"broker_name": "a", "queue_id": 1, "committed": None, "target": 7},
        {"broker_name": "b", "queue_id": 0, "committed": 1, "target": None},
    ]
    document = {"group": "G", "topic": "T", "queues": rows}
    noted = {A0: Noted(9, Witness(8, "0A", 1_000)), A1: Noted(9, None)}
    for name in ("p.json", "p.csv"):
        write_plan(tmp_path / name, plan, document, noted)
        found = read_plan(tmp_path / name, group="G", topic="T", queues=[])
        assert found.targets == {A0: 5, A1: 7}
        assert found.planned_from == {A0: 3, A1: None}
        assert found.noted == noted
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p.csv", "p.json"]
    with pytest.raises(UsageError, match=r"\.json or \.csv"):
        write_plan(tmp_path / "p.txt", plan, document, {})


def test_a_plan_without_last_messages_is_read_as_before(tmp_path):
    row = {"broker_name": "a", "queue_id": 0, "committed": 3, "target": 5}
    document = {"group": "G", "topic": "T", "queues": [row]}
    found = read(tmp_path / "p.json", json.dumps(document))
    assert (found.targets, found.noted) == ({A0: 5}, {})


@pytest.mark.parametrize(
    "more",
    [
        {"last_message": None},
        {"last_message": 5, "max_offset": 9},
        {"last_message": [8, "0A"], "max_offset": 9},
        {"last_message": [-1, "0A", 1], "max_offset": 9},
        {"last_message": None, "max_offset": "9"},
        {"last_message": None, "max_offset": True},
    ],
)
def test_a_damaged_last_message_is_not_a_plan(tmp_path, more):
    row = {"broker_name": "a", "queue_id": 0, "committed": 3, "target": 5, **more}
    document = {"group": "G", "topic": "T", "queues": [row]}
    with pytest.raises(UsageError, match="is not a plan"):
        read(tmp_path / "p.json", json.dumps(document))


def test_a_queue_of_a_csv_whose_last_message_was_not_read_is_not_compared(tmp_path):
    found = read(tmp_path / "p.csv", f"{NOTED}\nG,T,a,0,3,5,,\n")
    assert (found.targets, found.noted) == ({A0: 5}, {})


@pytest.mark.parametrize("text", ['"T",0,5\n"T",1,7\n', "G,T,0,5\r\nG,T,1,7\r\n\r\n"])
def test_a_csv_of_kafka_names_no_broker(tmp_path, text):
    found = read(tmp_path / "k.csv", text)
    assert found.targets == {A0: 5, A1: 7}
    assert found.planned_from == {}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "contains no queue"),
        ("T,0,x", "target 'x' is not a number"),
        ("T,0,-1", "is not a number"),
        ("T,0,9999999999999999999", "exceeds"),
        ("T,9,5", "queue 9 of T does not exist"),
        ("U,0,5", "topic 'U' is not 'T'"),
        ("H,T,0,5", "group 'H' is not 'G'"),
        ("T,0,5\nT,0,6", "appears twice"),
        ("T,0", "unexpected number of columns: 2"),
        (f"{NOTED}\nG,T,a,0,3,5", "line 2: unexpected number of columns: 6"),
        (f"{NOTED}\nG,T,a,0,3,5,x,null", "line 2: max_offset 'x' is not a number"),
        (f"{NOTED}\nG,T,a,0,3,5,9,", "line 2: last_message is not a message"),
        (f"{NOTED}\nG,T,a,0,3,5,9,8", "line 2: last_message is not a message"),
        ('"T', "is not a CSV file"),
        ("{", "is not a plan"),
        ('{"group": "G"}', "is not a plan"),
        ('{"group": "G", "topic": "T", "queues": [5]}', "is not a plan"),
        (json.dumps({"group": "G", "topic": "T", "queues": 5}), "is not a plan"),
        ("{" + '"a":[' * 100_000, "is not a plan"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, what):
    with pytest.raises(UsageError, match=what):
        read(tmp_path / "f", text)


def test_a_queue_of_two_brokers_needs_their_names(tmp_path):
    with pytest.raises(UsageError, match="queue 0 of T is on a, b"):
        read(tmp_path / "f", "T,0,5", queues=(A0, B0))


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "f").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not a text file"):
        read_plan(tmp_path / "f", group="G", topic="T", queues=[])
