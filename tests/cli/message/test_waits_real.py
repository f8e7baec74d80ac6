"""`rmq message show` on real brokers: messages that wait, of topics without groups."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from rmqcli import Admin, LocalTransactionState, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]

UNKNOW = LocalTransactionState.UNKNOW


@pytest.fixture
def shown(capsys):
    def shown_(cluster, sent, topic):
        capsys.readouterr()
        do = ["message", "show", sent.msg_id, "-t", topic]
        code = run([*do, "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        return json.loads(out)[0] if out else {"stored": {"state": (code, err)}}

    return shown_


def test_a_message_that_waits_is_not_stored_in_its_topic_although_it_has_no_group(
    fresh_cluster, rmq_version, shown
):
    is_new = rmq_version == "5.5.0"
    recall = {"recallMessageEnable": "true", "appendTopicForTimerDeleteKey": "true"}
    cluster = fresh_cluster(conf=recall if is_new else None)

    def topic_of(kind):
        name = f"t-{uuid.uuid4().hex[:12]}"
        with Admin(namesrv=cluster.namesrv) as admin:
            attributes = {"message.type": kind} if is_new else None
            admin.create_topic(name, queue_nums=1, attributes=attributes)
        return name

    delays, halves = topic_of("DELAY"), topic_of("TRANSACTION")
    with Producer(
        f"p-{delays}", namesrv=cluster.namesrv, on_check=lambda _: UNKNOW
    ) as producer:
        fields: Any = {"delay_ms": 1_200_000} if is_new else {"delay_level": 14}
        delayed = producer.send(ProducerMessage(delays, b"a", **fields))
        half = producer.send_in_transaction(
            ProducerMessage(halves, b"a"), lambda *_: UNKNOW
        )
        for sent, topic, state in (
            (delayed, delays, "delayed"),
            (half, halves, "half"),
        ):
            wait_until(
                lambda s=sent, t=topic, w=state: (
                    shown(cluster, s, t)["stored"]["state"] == w
                ),
            )
            assert shown(cluster, sent, topic)["groups"] == []
    assert shown(cluster, delayed, delays)["stored"]["next_at"] is not None
    if is_new:
        do = ["message", "recall", delayed.msg_id, "--topic", delays, "--yes"]
        assert run([*do, "-n", cluster.namesrv]) == 0
        wait_until(
            lambda: shown(cluster, delayed, delays)["stored"]["state"] == "recalled"
        )
