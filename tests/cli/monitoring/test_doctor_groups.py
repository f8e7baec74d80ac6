"""`rmq doctor -o json` finds the queues that have no owner or two, and a late POP.

Members agree on the owners of queues, and brokers revive what was not acknowledged. So
the trouble has to be made: members whose allocation strategies contradict each other,
and a broker whose clock runs ahead of its timers.
"""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage, SimpleConsumer
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK, SystemClock
from rmqcli.engine.allocate import AllocateMessageQueueByConfig
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock
from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until

MINUTE_MS = 60_000


@pytest.fixture
def found_by(capfd):
    """`found_by(cluster, check)`: what one check finds, by `rmq doctor -o json`."""

    def call(cluster, check):
        code = run(["doctor", "--only", check, "-o", "json", "-n", cluster.namesrv])
        out, _ = capfd.readouterr()
        (result,) = json.loads(out)["checks"]
        return code, [
            (each["status"], each["subject"], each["evidence"], each["command"])
            for each in result["findings"]
        ]

    return call


class FiveMinutesBehind(SystemClock):
    """The clock of members that seem to have been there for five minutes.

    Of those that came within the last minute, `doctor` expects no owners yet.
    """

    def epoch_ms(self):
        return super().epoch_ms() - 5 * MINUTE_MS


def member(cluster, group, topic, number, queue_ids):
    """A member that takes these queues, whatever other members have."""
    queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in queue_ids]
    return consumer(
        cluster,
        group,
        topic,
        Seen(),
        strategy=AllocateMessageQueueByConfig(queues),
        heartbeat_broker_interval_ms=500,
        client_ip=f"10.0.0.{number}",
        instance_name="one",
        clock=FiveMinutesBehind(),
    )


def check_owners(cluster, topic, group, found_by):
    """Both members take queue 0, and nobody the other one, in which messages wait."""
    with Producer(namesrv=cluster.namesrv) as producer:
        for queue_id in (0, 1):
            queue = MessageQueue(topic, "broker-a", queue_id)
            producer.send(ProducerMessage(topic, b"x"), queue=queue)
    show = f"rmq lag {group} --process-queues"
    shared = f"1 queue held by two members, such as {topic}@broker-a:0 by"
    nobody = f"no member holds 1 queue with messages: {topic}@broker-a:1"

    def found():
        code, findings = found_by(cluster, "queue-owners")
        assert code == (1 if findings else 0)
        # On a shared cluster, other tests have groups in which members hang.
        return [each for each in findings if each[1] == group]

    with (
        member(cluster, group, topic, 1, [0]),
        member(cluster, group, topic, 2, [0]),
    ):
        expected = [
            ("warning", group, f"{shared} 10.0.0.1@one, 10.0.0.2@one", show),
            ("warning", group, nobody, show),
        ]
        # Asked too often, a member answers only some times in a second.
        wait_until(lambda: found() == expected)
    with (
        member(cluster, group, topic, 1, [0]),
        member(cluster, group, topic, 2, [1]),
    ):
        wait_until(lambda: found() == [])


def test_queues_that_two_members_hold_or_nobody_are_found(rmq_cluster, found_by):
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    check_owners(rmq_cluster, "orders", "billing", found_by)


@pytest.mark.java
@pytest.mark.real_only
@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_queues_that_two_members_hold_or_nobody_are_found_on_real_brokers(
    real_cluster, found_by
):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    real_cluster.create_topic(topic, queues=2)
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(group)
    check_owners(real_cluster, topic, group, found_by)


class StepClock(ManualClock):
    """A clock that can be set forward, as by hand: what is due later is not due yet."""

    ahead_ms = 0

    def epoch_ms(self):
        return super().epoch_ms() + self.ahead_ms


def test_what_pop_should_have_delivered_again_is_found(rmq_cluster_factory, found_by):
    clock = StepClock(now_ms=SYSTEM_CLOCK.epoch_ms() - 5 * MINUTE_MS)
    cluster = rmq_cluster_factory(clock=clock)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["x"] * 3)
    with SimpleConsumer(
        "billing", "orders", namesrv=cluster.namesrv, invisible_duration_ms=60_000
    ) as pop:
        received: list[object] = []
        while len(received) < 3:
            received += pop.receive(3 - len(received))
    assert found_by(cluster, "pop-revive") == (0, [])
    clock.ahead_ms = 5 * MINUTE_MS
    assert found_by(cluster, "pop-revive") == (
        1,
        [
            (
                "warning",
                "billing",
                "3 messages not acknowledged in time, waiting for a retry for up to 4m",
                "rmq lag billing",
            )
        ],
    )
    clock.ahead_ms = 0
    cluster.advance(2 * MINUTE_MS)  # the broker's timers go on
    assert found_by(cluster, "pop-revive") == (0, [])
