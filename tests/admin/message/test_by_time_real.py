"""Messages of real brokers without an index are found by the times in their ids."""

from __future__ import annotations

import json
from shutil import rmtree

import pytest

from rmqcli import (
    Admin,
    ClientConfig,
    LocalTransactionState,
    Producer,
    ProducerMessage,
)
from rmqcli.cli.main import run
from tests.conftest import start_cluster
from tests.kit.java_program import java_producer
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]


LACKING = (
    "is not known: the index does not find the message itself, so not its copies either"
)


def show(cluster, capsys, *words):
    """Run `rmq message`; return its code, its rows, and what it said."""
    capsys.readouterr()
    code = run(["message", *words, "-n", cluster.namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else [], " ".join(err.split())


def test_ids_are_found_where_the_index_is_off(rmq_version, tmp_path, capsys):
    """Ids of Java's producer, of ours, and of 5.5.0's proxy."""
    conf = {"messageIndexEnable": "false"}
    has_proxy = rmq_version == "5.5.0"
    with start_cluster(rmq_version, tmp_path, conf=conf, proxy=has_proxy) as cluster:
        topic = cluster.create_topic("orders", queues=4)
        sent = [each.msg_id for each in ours(cluster, topic)]
        specs = [{"topic": topic, "bodyB64": "YQ=="}]
        sent += [each["msgId"] for each in java_producer(cluster, specs)]
        if has_proxy:
            config = ClientConfig(endpoints=(cluster.endpoints,), plaintext=True)
            with Producer(client=config) as producer:
                sent.append(producer.send(ProducerMessage(topic, b"b")).msg_id)
        for msg_id in sent:
            code, rows, err = show(cluster, capsys, "show", msg_id, "-t", topic)
            assert (code, [row["msg_id"] for row in rows]) == (0, [msg_id]), err
            assert f"of {topic} stored between " in err
        code, rows, err = show(cluster, capsys, "show", sent[0])
        assert (code, rows) == (6, [])
        assert "--topic TOPIC" in err
        other = sent[0][:-4] + "FFFF"
        code, rows, err = show(cluster, capsys, "show", other, "-t", topic)
        assert (code, rows) == (6, [])
        assert f"not in what was read by its time: {len(sent)} messages stored" in err


def test_ids_are_found_where_index_files_were_deleted(rmq_version, tmp_path, capsys):
    """The index knows what was sent later, so that it does not look switched off."""
    with start_cluster(rmq_version, tmp_path) as cluster:
        topic = cluster.create_topic("orders", queues=1)
        first = ours(cluster, topic)[0].msg_id
        cluster.stop_broker()
        folders = list(tmp_path.rglob("index"))
        assert folders
        for folder in folders:
            rmtree(folder)
        cluster.start_broker()
        last = ours(cluster, topic)[-1].msg_id
        words = ("find", topic, "--key", last)
        wait_until(lambda: len(show(cluster, capsys, *words)[1]) == 1)
        code, rows, err = show(cluster, capsys, "show", first, "-t", topic)
        assert (code, [row["msg_id"] for row in rows]) == (0, [first]), err


def ours(cluster, topic):
    with Producer(namesrv=cluster.namesrv) as producer:
        return [producer.send(ProducerMessage(topic, b"%d" % n)) for n in range(5)]


def test_waiting_messages_are_found_where_the_index_is_off(
    rmq_version, tmp_path, capsys
):
    """A broker of 4.6.0 does not show them, and so says nothing about them."""
    conf = {"messageIndexEnable": "false", "transactionCheckInterval": "3600000"}
    with start_cluster(rmq_version, tmp_path, conf=conf) as cluster:
        topic = cluster.create_topic("orders", queues=1)
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.create_group("billing")
        delayed = [ProducerMessage(topic, b"a", delay_level=9)]
        if rmq_version == "5.5.0":
            delayed.append(ProducerMessage(topic, b"a", delay_ms=3_600_000))
        with Producer("shop", namesrv=cluster.namesrv, on_check=unknow) as producer:
            sent = [producer.send(each) for each in delayed]
            half = producer.send_in_transaction(ProducerMessage(topic, b"h"), unknow)
        found = [
            show(cluster, capsys, "show", each.msg_id, "-t", topic, "-g", "billing")
            for each in [*sent, half]
        ]
    if rmq_version == "4.6.0":
        assert [(code, rows) for code, rows, _ in found] == [(6, []), (6, [])]
        assert all("broker-a cannot look it up" in err for _, _, err in found)
        return
    assert [
        (code, row["topic"], group["verdict"], group["reason"])
        for code, (row,), _ in found
        for group in row["groups"]
    ] == [
        (0, "SCHEDULE_TOPIC_XXXX", "delayed", None),
        (0, "rmq_sys_wheel_timer", "unknown", f"whether it was recalled {LACKING}"),
        (
            0,
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "unknown",
            f"whether its transaction has ended {LACKING}",
        ),
    ]


def unknow(*_):
    return LocalTransactionState.UNKNOW
