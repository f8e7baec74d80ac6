"""Traces and Java: `mqadmin` reads ours, and those of Java's clients are read here."""

from __future__ import annotations

import base64
import re
import uuid

import pytest

from rmqcli import Consumer, Producer, ProducerMessage
from rmqcli.trace.record import (
    ConsumeReturnType,
    Pub,
    SubAfter,
    SubBefore,
    TraceRecord,
)
from tests.kit.java_program import JavaConsumer, mqadmin
from tests.kit.traces import written
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


def rows(cluster, msg_id):
    """What `mqadmin` prints about a message: kind, group and status of each row."""
    command = ("queryMsgTraceById", "-i", msg_id)
    return re.findall(
        r"^(Pub|Sub) +(\S+) +\S+ +\S+ \S+ +\d+ms +(success|failed)",
        mqadmin(cluster, *command),
        re.MULTILINE,
    )


@pytest.mark.rmq_versions("5.5.0")
def test_mqadmin_shows_the_traces_of_our_clients(real_cluster):
    topic, group = real_cluster.create_topic(), f"G-{uuid.uuid4().hex[:8]}"
    namesrv = real_cluster.namesrv
    with Producer("shop", namesrv=namesrv, trace=True) as producer:
        sent = producer.send(ProducerMessage(topic, b"hello", keys="k", tags="Paid"))
        batch = producer.send_batch(
            [ProducerMessage(topic, b"a"), ProducerMessage(topic, b"b")]
        )
    seen = []

    def handle(message):
        seen.append(message.msg_id)
        return message.body != b"b" or message.reconsume_times > 0

    with Consumer(
        group,
        topic,
        handle,
        namesrv=namesrv,
        consume_from="earliest",
        trace=True,
    ):
        wait_until(lambda: len(seen) == 4, timeout_s=120)
    found: dict[str, list[tuple[str, ...]]] = {}

    def is_complete():
        found.update((each.msg_id, rows(real_cluster, each.msg_id)) for each in wanted)
        return all(found.values())

    wanted = [sent, *batch]
    wait_until(is_complete, timeout_s=120)
    ok = [("Pub", "shop", "success"), ("Sub", group, "success")]
    assert found[sent.msg_id] == ok
    assert found[batch[0].msg_id] == ok
    assert sorted(found[batch[1].msg_id]) == [
        *ok[:1],
        ("Sub", group, "failed"),
        ("Sub", group, "success"),
    ]


def test_the_traces_of_java_s_clients_are_read(real_cluster, java_producer):
    topic, group = real_cluster.create_topic(), f"G-{uuid.uuid4().hex[:8]}"
    # Java's producer loses the trace with which the trace topic would be created.
    with Producer("first", namesrv=real_cluster.namesrv, trace=True) as producer:
        producer.send(ProducerMessage(topic, b"first"))
    wait_until(lambda: written(real_cluster.namesrv))
    body = base64.b64encode(b"hello").decode()
    (sent,) = java_producer(
        real_cluster,
        [{"topic": topic, "bodyB64": body, "keys": "k1 k2", "tags": "Paid"}],
        trace=True,
    )
    msg_id = sent["msgId"]
    mine: list[TraceRecord] = []

    def is_complete():
        mine[:] = [e for e in written(real_cluster.namesrv) if e.msg_id == msg_id]
        return len(mine) == 5

    with JavaConsumer(
        real_cluster, group, topic, trace=True, failTimes=1, delayLevel=1
    ) as consumer:
        consumer.wait_for(4)  # each message is consumed twice
        wait_until(is_complete)  # what it has not sent when it ends may be lost
    (pub,) = (each for each in mine if isinstance(each, Pub))
    assert (pub.topic, pub.tags, pub.keys) == (topic, "Paid", "k1 k2")
    assert (pub.group, pub.body_bytes) == ("rmqcli-tests-producer", 5)
    assert (pub.is_success, pub.offset_msg_id) == (True, sent["offsetMsgId"])
    before = [each for each in mine if isinstance(each, SubBefore)]
    assert sorted((each.group, each.retry_times) for each in before) == [
        (group, 0),
        (group, 1),
    ]
    after = {each.request_id: each for each in mine if isinstance(each, SubAfter)}
    ends = [
        after[each.request_id] for each in sorted(before, key=lambda e: e.retry_times)
    ]
    assert [(each.is_success, each.return_type) for each in ends] == [
        (False, ConsumeReturnType.FAILED),
        (True, ConsumeReturnType.SUCCESS),
    ]
