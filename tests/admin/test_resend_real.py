"""Java members consume a message that is resent, and real brokers recall messages."""

from __future__ import annotations

import base64
import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.errors import BrokerError
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_java_member_consumes_the_message_again_and_reports_the_result(
    real_cluster, new_topic, java_producer
):
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    body = base64.b64encode(b"hello").decode()
    java_producer(real_cluster, [{"topic": topic, "bodyB64": body}])
    place = f"{topic}@{real_cluster.broker_name()}:0:0"
    with (
        JavaConsumer(real_cluster, group, topic) as consumer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        consumer.wait_for(1)
        planned = admin.plan_resend(place, group=group)
        assert planned.client_id == consumer.client_id
        result = admin.apply_resend(planned)
        assert (result.consume_result, result.is_consumed) == ("CR_SUCCESS", True)
        assert len(consumer.wait_for(2)) == 2


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_java_member_that_refuses_the_message_says_so(
    real_cluster, new_topic, java_producer
):
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:8]}"
    body = base64.b64encode(b"hello").decode()
    java_producer(real_cluster, [{"topic": topic, "bodyB64": body}])
    place = f"{topic}@{real_cluster.broker_name()}:0:0"
    with (
        JavaConsumer(
            real_cluster, group, topic, failTimes=1, failAs="THROW"
        ) as consumer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        wait_until(lambda: admin.group(group).members)
        result = admin.apply_resend(admin.plan_resend(place, group=group))
        assert (result.consume_result, result.is_consumed) == (
            "CR_THROW_EXCEPTION",
            False,
        )
        assert "IllegalStateException" in (result.remark or "")
        assert consumer.client_id == result.plan.client_id


@pytest.mark.rmq_versions("5.5.0")
def test_a_real_broker_recalls_a_message_and_delivers_the_others(fresh_cluster):
    cluster = fresh_cluster(conf={"recallMessageEnable": "true"})
    topic = cluster.create_topic(queues=1)
    with (
        Producer(namesrv=cluster.namesrv) as producer,
        Admin(namesrv=cluster.namesrv) as admin,
    ):
        gone = producer.send(ProducerMessage(topic, b"gone", delay_ms=15_000))
        producer.send(ProducerMessage(topic, b"kept", delay_ms=15_000))
        wait_until(lambda: admin.delayed(topic).count == 2)
        admin.apply_recall(admin.plan_recall(gone.msg_id, topic=topic))
        assert admin.delayed(topic).count == 1
        wait_until(lambda: list(admin.read(topic)))
        wait_until(lambda: admin.delayed(topic).count == 0)
        assert [each.body for each in admin.read(topic)] == [b"kept"]


@pytest.mark.rmq_versions("5.5.0")
def test_a_real_broker_without_the_setting_refuses(real_cluster, new_topic):
    topic = new_topic(queues=1)
    with (
        Producer(namesrv=real_cluster.namesrv) as producer,
        Admin(namesrv=real_cluster.namesrv) as admin,
    ):
        sent = producer.send(ProducerMessage(topic, b"x", delay_ms=300_000))
        planned = admin.plan_recall(sent.msg_id, topic=topic)
        with pytest.raises(BrokerError, match="operation is forbidden"):
            admin.apply_recall(planned)
        assert admin.delayed(topic).count == 1
