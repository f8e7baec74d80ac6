"""`rmq top` on real brokers: the same numbers as the commands, and a reset."""

from __future__ import annotations

import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from tests.admin.dlq.letters import client_of, make_letters
from tests.cli.top.screen import on_screen
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


def test_from_the_groups_to_a_message_a_dead_letter_and_a_reset(real_cluster):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    real_cluster.create_topic(topic, queues=1)
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(group)
        with Producer(namesrv=real_cluster.namesrv) as producer:
            for number in range(3):
                producer.send(ProducerMessage(topic, f"body-{number}".encode()))
        with client_of(real_cluster, timeout_ms=30_000) as client:
            call = update_consumer_offset(group, topic, 0, commit_offset=1)
            client.invoke(real_cluster.broker_address(), call)
        make_letters(real_cluster, group, topic, ["dead"])
        wait_until(lambda: admin.lag(group).total_lag == 3)

    async def story(screen):
        await screen.until(f"{group} has 3 messages to read")
        await screen.press("enter")
        await screen.until("body-0", "body-2")
        await screen.press("end", "enter")
        await screen.until("verdict", group, "body-0")
        await screen.press("escape", "escape", "d")
        if real_cluster.version == "4.6.0":
            await screen.until("not read: see below", "is write-only")
        else:
            await screen.until("ORIGIN", "dead")
        await screen.press("escape", "3")
        await screen.until(f"MASTER  {real_cluster.version}")
        await screen.press("5")
        await screen.until("$ rmq cluster", "1/1  ", "STOPPED")
        assert screen.line("test ").split()[1] in ("warning", "problem")
        await screen.press("2", "/")
        await screen.type(topic)
        await screen.until(f"{topic} ", "1 by topic")
        assert screen.line(topic).split()[-2:] == ["4", "broker-a"]
        await screen.press("1", "/")
        await screen.type(group)
        await screen.until(f"{group}  ", "STOPPED")
        assert screen.line(group).split()[1] == "3"
        await screen.press("r")
        await screen.type("earliest")
        await screen.until("x changes the offsets in 1 queue")
        await screen.press("x")
        await screen.type(group)
        await screen.until("1 queue: 1 CONFIRMED")

    on_screen(
        real_cluster.namesrv,
        story,
        group=group,
        allow_changes=True,
        timeout_ms=30_000,
        size=(140, 30),
    )
    with Admin(namesrv=real_cluster.namesrv) as admin:
        assert admin.lag(group, topics=[topic]).total_lag == 4
