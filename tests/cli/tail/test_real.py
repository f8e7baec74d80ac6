"""`rmq tail` on real brokers: it prints what was sent, and leaves nothing behind."""

from __future__ import annotations

import json

import pytest

from rmqcli.api.calls.config import get_all_subscription_group_config
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from tests.kit.java_program import fill

MESSAGES = 3_000


@pytest.fixture
def filled(real_cluster, new_topic):
    """A filled topic, and the address of the name server."""
    topic = new_topic()
    fill(real_cluster, topic, messages=MESSAGES, body_bytes=64, batch_size=25)
    return topic, real_cluster.namesrv


def lines_of(capfdbinary, *arguments):
    assert run(["tail", *arguments]) == 0
    return [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]


def groups_of(namesrv):
    with Client(ClientConfig(namesrv=(namesrv,))) as client:
        (address,) = client.masters().values()
        configs = client.invoke(address, get_all_subscription_group_config())
        return set(configs)


def number_of(record):
    return int(record["body"].rstrip("."))


def test_a_whole_topic_comes_once_in_order(filled, capfdbinary):
    topic, namesrv = filled
    whole = ["--from", "earliest", "--to", "latest"]
    records = lines_of(capfdbinary, topic, "-n", namesrv, *whole)
    assert sorted(map(number_of, records)) == list(range(MESSAGES))
    places: dict[int, int] = {}
    for record in records:
        queue_id = record["queue_id"]
        assert record["queue_offset"] == places.get(queue_id, 0)
        places[queue_id] = record["queue_offset"] + 1
    times = [record["store_timestamp"] for record in records]
    assert times == sorted(times)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_no_group_is_left_behind(fresh_cluster, capfdbinary):
    """A broker keeps any group that pulls. Elsewhere, other tests make groups."""
    cluster = fresh_cluster()
    topic = cluster.create_topic()
    fill(cluster, topic, messages=10, body_bytes=64)
    before = groups_of(cluster.namesrv)
    for end in (["--to", "latest"], ["--count", "10"]):
        flags = ["-n", cluster.namesrv, "--from", "earliest", *end]
        assert len(lines_of(capfdbinary, topic, *flags)) == 10
    assert groups_of(cluster.namesrv) == before


def test_tags_and_last_and_one_queue(filled, capfdbinary):
    topic, namesrv = filled
    common = [topic, "-n", namesrv, "--no-follow"]
    tagged = lines_of(capfdbinary, *common, "--from", "earliest", "--tag", "TagB")
    assert len(tagged) == MESSAGES // 3
    assert {record["tags"] for record in tagged} == {"TagB"}
    last = lines_of(capfdbinary, *common, "--last", "5", "--tag", "TagA || TagC")
    assert len(last) == 5
    assert "TagB" not in {record["tags"] for record in last}
    one = lines_of(capfdbinary, *common, "--from", "earliest", "--queue", "2")
    assert {record["queue_id"] for record in one} == {2}


@pytest.mark.timeout(300)
def test_filters_that_match_little_of_a_large_topic_end_with_all_matches(
    real_cluster, new_topic, capfdbinary
):
    topic = new_topic(queues=6)
    fill(real_cluster, topic, messages=100_000, body_bytes=100, keys=True)
    bounded = [topic, "-n", real_cluster.namesrv, "-o", "jsonl", "--for", "2m"]
    bounded += ["--from", "earliest", "--to", "latest"]
    for flags, numbers in (
        (["--key", "no-such-key"], []),
        (["--key", "key-99999"], [99_999]),
        (["--grep", r"^9999[0-9]\."], list(range(99_990, 100_000))),
        (["--property", "KEYS=key-5000?"], list(range(50_000, 50_010))),
    ):
        assert run(["tail", *bounded, *flags]) == 0
        out, err = capfdbinary.readouterr()
        records = [json.loads(line) for line in out.splitlines()]
        assert sorted(map(number_of, records)) == numbers
        assert b" shown, 100,000 read, " in err
        times = [record["store_timestamp"] for record in records]
        assert times == sorted(times)
