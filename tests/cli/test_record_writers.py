"""Every command that writes records of messages keeps to the schema of `rmq tail`."""

from __future__ import annotations

import json

import pytest

from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from tests.admin.dlq.letters import make_letters
from tests.kit.records import body_of, checked_records

TEXTS = ["text", '{"a":1}', '{"a": 1}', "[1,2]", "5", "größer"]
#: What `rmq dlq show` adds to a record.
OF_LETTERS = (
    "letter",
    "origin_topic",
    "deliveries",
    "origin_msg_id",
    "origin_queue",
    "origin_offset",
    "redriven_times",
    "redriven_from",
    "redriven",
)
BODIES = [text.encode() for text in TEXTS]


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    return cluster


def lines_of(cluster, capfdbinary, *arguments):
    code = run([*arguments, "-n", cluster.namesrv])
    out, err = capfdbinary.readouterr()
    assert code == 0, err.decode()
    return out.splitlines()


@pytest.mark.parametrize("decode", [(), ("--decode", "json")])
def test_consume_writes_records_of_the_schema(cluster, capfdbinary, decode):
    cluster.send("orders", BODIES)
    flags = ["-g", "g", "--from", "first", "--threads", "1", "--count", "6", *decode]
    lines = lines_of(cluster, capfdbinary, "consume", "orders", *flags, "-o", "jsonl")
    assert [body_of(each) for each in checked_records(lines)] == BODIES


def test_letters_that_are_exported_are_records_of_the_schema(
    cluster, capfdbinary, tmp_path
):
    make_letters(cluster, "billing", "orders", TEXTS)
    path = tmp_path / "letters.jsonl"
    lines_of(cluster, capfdbinary, "dlq", "export", "billing", "--to-jsonl", str(path))
    records = checked_records(path.read_bytes().splitlines())
    assert sorted(map(body_of, records)) == sorted(BODIES)


def test_found_messages_are_records_of_the_schema(cluster, capfdbinary):
    cluster.send("orders", [Seed(body=body, keys=["k"]) for body in BODIES])
    find = ["message", "find", "orders", "--key", "k", "-o", "jsonl"]
    records = checked_records(lines_of(cluster, capfdbinary, *find))
    assert sorted(map(body_of, records)) == sorted(BODIES)


def test_letters_are_records_of_the_schema_after_what_is_known_of_their_deaths(
    cluster, capfdbinary
):
    make_letters(cluster, "billing", "orders", TEXTS)
    show = ["dlq", "show", "billing", "-o", "jsonl"]
    rows = [json.loads(line) for line in lines_of(cluster, capfdbinary, *show)]
    records = [
        {name: value for name, value in row.items() if name not in OF_LETTERS}
        for row in rows
    ]
    for record in records:  # rows of a list have all columns
        assert record.pop("error") is None
    checked = checked_records(map(json.dumps, records))
    assert sorted(map(body_of, checked)) == sorted(BODIES)
    assert {tuple(row)[: len(OF_LETTERS)] for row in rows} == {OF_LETTERS}
