"""Members and producers of Java on real brokers: what they run, and where they send."""

from __future__ import annotations

import base64
import json
import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]


def test_the_stacks_of_a_java_member_show_where_its_listener_waits(
    real_cluster, new_topic, java_producer, capsys
):
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    body = base64.b64encode(b"hello").decode()
    java_producer(real_cluster, [{"topic": topic, "bodyB64": body}])
    with (
        JavaConsumer(real_cluster, group, topic, block=True) as consumer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        consumer.wait_until(lambda: consumer.is_blocked, what="the listener")
        (member,) = admin.member_stacks(group, client_id=consumer.client_id).members
        busy = member.stacks[0]
        assert busy.listener is not None
        assert busy.listener.startswith("app//Consumer.lambda$run$1(Consumer.java:")
        assert busy.state == "WAITING"
        assert len(busy.threads) == 1
        assert any("CountDownLatch.await" in frame for frame in busy.frames)
        do = ["group", "members", group, "-n", real_cluster.namesrv, "-o", "json"]
        capsys.readouterr()
        assert run(do) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["client_id"], row["language"]) == (consumer.client_id, "JAVA")
        assert row["since"] > "2024"
        assert topic in [each["topic"] for each in row["subscriptions"]]
        consumer.release()


def test_a_slow_java_member_is_why_its_group_is_behind(real_cluster, new_topic, capsys):
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    with Producer(namesrv=real_cluster.namesrv) as producer:
        message = ProducerMessage(topic, b"x")
        for sent in [producer.submit(message) for _ in range(1200)]:
            sent.result()

    def explanation():
        capsys.readouterr()
        assert run(["lag", group, "--explain", "-n", real_cluster.namesrv]) == 0
        return capsys.readouterr().out

    with JavaConsumer(real_cluster, group, topic, block=True) as consumer:
        consumer.wait_until(lambda: consumer.is_blocked, what="the listener")
        client, queue = consumer.client_id, f"{topic}@{real_cluster.broker_name()}:0"
        wait_until(lambda: "and has stopped fetching" in explanation())
        lines = explanation().splitlines()
        # Ten seconds after its start, which a busy machine may take, it commits 0.
        (row,) = [each.split() for each in lines if each.startswith(topic)]
        if row[3] == "-":
            assert (
                f"It has started in {queue}, and has not committed an offset there yet:"
                f" the first message that {client} has not finished is at offset 0, and"
                " the queue ends at 1200."
            ) in lines
        else:
            assert row[3] == "0"
            (line,) = [each for each in lines if each.startswith(f"{group} has ")]
            begin = f"{group} has 1,200 messages to read; the oldest has waited "
            assert line.startswith(begin)
        assert "1 member is online." in lines
        (line,) = [each for each in lines if each.startswith(f"{client} holds ")]
        assert line.endswith(
            f" unprocessed messages of {queue} (limit 1,000) and has stopped fetching:"
            " its listener is slow."
        )
        consumer.release()


def test_a_producer_that_is_connected_is_found_by_its_group_and_by_its_topic(
    real_cluster, new_topic, rmq_version
):
    topic, group = new_topic(queues=1), f"p-{uuid.uuid4().hex[:8]}"
    with (
        Producer(group, namesrv=real_cluster.namesrv) as producer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        producer.send(ProducerMessage(topic, b"a"))
        wait_until(lambda: admin.producers(group=group).producers)
        found = admin.producers(topic)
        if rmq_version == "4.6.0":
            assert [row.client_id for row in found.producers] == [None]
            assert list(found.errors) == [real_cluster.broker_name()]
            return
        (row,) = found.producers
        assert (row.group, row.messages, found.errors) == (group, 1, {})
