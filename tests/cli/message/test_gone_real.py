"""`rmq message show` on real brokers: a message whose file was deleted."""

from __future__ import annotations

import json
import os

import pytest

from rmqcli import Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def show(capsys):
    def show_(cluster, *words):
        capsys.readouterr()
        words = ("message", "show", *words, "--timeout", "20s")
        code = run([*words, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, " ".join(err.split())

    return show_


def test_a_message_whose_file_was_deleted_is_not_shown(fresh_cluster, show):
    cluster = fresh_cluster(conf={"mappedFileSizeCommitLog": 1 << 20})
    topic = cluster.create_topic(queues=1)
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = [
            producer.send(ProducerMessage(topic, os.urandom(1 << 18), keys=("k",)))
            for _ in range(10)
        ]
    first, last = sent[0], sent[-1]
    wait_until(lambda: show(cluster, last.msg_id, "-t", topic)[0] == 0)
    code, (row,), err = show(cluster, first.msg_id, "-t", topic)
    assert (code, row["stored"]["state"]) == (0, "stored"), err
    cluster.stop_broker()
    min((cluster.store_directory() / "commitlog").iterdir()).unlink()
    cluster.start_broker()
    wait_until(lambda: show(cluster, last.msg_id, "-t", topic)[0] == 0)
    for ref in (first.msg_id, first.offset_msg_id):
        code, rows, err = show(cluster, ref, "-t", topic)
        assert (code, rows) == (3, None), err
        assert f"no broker has a message {ref}" in err
        assert "it may have been deleted" in err
    code, rows, err = show(cluster, f"{topic}@broker-a:0:0")
    assert (code, rows) == (3, None), err
    assert f"{topic}@broker-a:0 has no message at offset 0" in err
    code, rows, err = show(cluster, "k", "-t", topic)
    assert (code, [row["queue_offset"] for row in rows]) == (0, list(range(3, 10))), err
