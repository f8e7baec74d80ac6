"""The index of real brokers beside reading the topic: nothing is missing unsaid."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from tests.conftest import start_cluster
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.real_only]

#: What is sent: the text of KEYS, and how many messages have it.
SENT = (
    ("Aa", 3),
    ("BB", 2),
    ("k Aa", 2),
    ("k BB", 2),
    ("twice twice", 40),
    ("many", 150),
    ("order-1 AaAa", 1),
    ("order-1 BBBB", 1),
)
#: A key, and how many messages have it.
FOUND = {
    "Aa": 5,
    "BB": 4,
    "k": 4,
    "k Aa": 2,
    "twice": 40,
    "twice twice": 40,
    "many": 150,
    "order-1": 2,
    "AaAa": 1,
    "BBBB": 1,
    "CCCC": 0,
}


def looked_up(cluster, topic, key, *words):
    out, err = io.StringIO(), io.StringIO()
    do = ["message", "find", topic, "--key", key, *words, "-n", cluster.namesrv]
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*do, "-o", "jsonl"])
    bodies = [json.loads(line)["body"] for line in out.getvalue().splitlines()]
    return code, sorted(bodies), err.getvalue()


def fill(cluster):
    """Send what is in SENT to two topics whose names have the same hash."""
    topics = [cluster.create_topic(f"t-{each}-find", queues=2) for each in ("Aa", "BB")]
    sent = []
    with Producer(namesrv=cluster.namesrv) as producer:
        for topic in topics:
            for keys, times in SENT:
                sent += [
                    producer.send(ProducerMessage(topic, b"%d" % n, keys=keys.split()))
                    for n in range(times)
                ]
    return topics[0], sent[0].msg_id


def compare(cluster, topic, msg_id, *words):
    for key, count in {**FOUND, msg_id: 1}.items():
        code, read, err = looked_up(cluster, topic, key, *words, "--scan")
        assert (code, len(read)) == (0, count), (key, err)
        code, found, err = looked_up(cluster, topic, key, *words)
        if code == 0:
            assert found == read, (key, err)
        else:  # more of one second than a broker tells
            assert code == 6, (key, err)
            assert "did not tell all messages of the key" in err
            assert set(found) <= set(read)


@pytest.fixture(scope="module")
def cluster(rmq_version, tmp_path_factory):
    with start_cluster(rmq_version, tmp_path_factory.mktemp("find")) as cluster:
        yield cluster


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_the_index_finds_what_reading_finds(cluster):
    topic, msg_id = fill(cluster)
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: len(admin.find_messages("BBBB", topic=topic).messages) == 1)
    compare(cluster, topic, msg_id)


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_broker_that_tells_few_messages_at_a_time_is_asked_for_the_rest(cluster):
    """Its setting maxMsgsNumBatch is changed while it runs."""
    topic = cluster.create_topic("few-find", queues=2)
    with Producer(namesrv=cluster.namesrv) as producer:
        for n in range(4):
            producer.send(ProducerMessage(topic, b"%d" % n, keys=["few"]))
        later_ms = SYSTEM_CLOCK.epoch_ms() + 2_000  # the index has whole seconds
        wait_until(lambda: SYSTEM_CLOCK.epoch_ms() > later_ms)
        for n in range(4, 8):
            producer.send(ProducerMessage(topic, b"%d" % n, keys=["few"]))
    with Admin(namesrv=cluster.namesrv) as admin:
        wait_until(lambda: len(admin.find_messages("few", topic=topic).messages) == 8)
        plan = admin.plan_broker_settings(
            {"maxMsgsNumBatch": "5"}, brokers=[cluster.broker_name()]
        )
        admin.apply_settings(plan)
        try:
            code, found, err = looked_up(cluster, topic, "few")
        finally:
            plan = admin.plan_broker_settings(
                {"maxMsgsNumBatch": "64"}, brokers=[cluster.broker_name()]
            )
            admin.apply_settings(plan)
    assert (code, found) == (0, [str(n) for n in range(8)]), err


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_what_was_stored_after_the_index_was_switched_off_is_found(cluster):
    topic = cluster.create_topic("off-find", queues=1)

    def switch(value):
        settings = {"messageIndexEnable": value}
        plan = admin.plan_broker_settings(settings, brokers=[cluster.broker_name()])
        admin.apply_settings(plan)

    with (
        Producer(namesrv=cluster.namesrv) as producer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        producer.send(ProducerMessage(topic, b"0", keys=["k"]))
        wait_until(lambda: len(admin.find_messages("k", topic=topic).messages) == 1)
        code, found, err = looked_up(cluster, topic, "k")
        assert (code, found) == (0, ["0"])
        assert "1 found by the index" in err
        switch("false")
        try:
            producer.send(ProducerMessage(topic, b"1", keys=["k"]))
            code, found, err = looked_up(cluster, topic, "k")
        finally:
            switch("true")
    assert (code, found) == (0, ["0", "1"]), err
    assert "the index does not know every message of the topic" in err


@pytest.mark.rmq_versions("5.5.0")
def test_what_an_index_in_rocksdb_does_not_tell_is_found_by_reading(
    rmq_version, tmp_path
):
    """It answers for a few days only, and a search without times is for all."""
    conf = {"indexRocksDBEnable": "true", "indexFileReadEnable": "false"}
    with start_cluster(rmq_version, tmp_path, conf=conf) as cluster:
        topic, msg_id = fill(cluster)
        code, found, err = looked_up(cluster, topic, "k")
        assert (code, len(found)) == (0, 4)
        assert "the index does not know every message of the topic" in err
        compare(cluster, topic, msg_id)
