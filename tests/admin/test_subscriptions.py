"""Members of one group with different subscriptions: members warn, commands show it."""

from __future__ import annotations

import json
import logging

import pytest

from rmqcli.cli.main import run
from tests.consumer.collecting import Seen, consumer
from tests.kit import raw
from tests.kit.java_program import JavaConsumer
from tests.kit.waiting import wait_until

BEAT_MS = 500


def warned(caplog):
    return [each.message for each in caplog.records if "different" in each.message]


def show(capsys, namesrv, *arguments):
    """Run a command; return its JSON, its stderr and its exit code."""
    capsys.readouterr()
    code = run([*arguments, "-o", "json", "-n", namesrv])
    out, err = capsys.readouterr()
    return json.loads(out), err, code


@pytest.fixture
def mixed(rmq_cluster):
    """A function that makes a member of group billing from topics and a number."""
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_topic("refunds", queues=2)

    def member(topics, number):
        return consumer(
            rmq_cluster,
            "billing",
            topics,
            Seen(),
            heartbeat_broker_interval_ms=BEAT_MS,
            client_ip=f"10.0.0.{number}",
            instance_name="one",
        )

    return member


def test_members_that_differ_are_warned_and_shown(mixed, rmq_cluster, caplog, capsys):
    """Each member filters out messages that the other wants, and offsets pass them."""
    caplog.set_level(logging.WARNING)
    with mixed({"orders": "A"}, 1) as one, mixed({"orders": "B", "refunds": "*"}, 2):
        wait_until(lambda: len(one.queues()) > 0)
        wait_until(lambda: any("refunds" in text for text in warned(caplog)))
        assert (
            "members have different subscriptions, so messages are lost group=billing"
            in warned(caplog)[0]
        )
        (group,), err, code = show(capsys, rmq_cluster.namesrv, "lag", "billing")
        refunds = "10.0.0.1@one has no subscription; 10.0.0.2@one has *"
        expected = [
            "members differ on orders: 10.0.0.1@one has A; 10.0.0.2@one has B",
            f"members differ on refunds: {refunds}",
        ]
        assert group["notes"] == expected
        assert code == 0
        run(["lag", "billing", "-n", rmq_cluster.namesrv])
        assert f"warning: billing: {expected[0]}" in capsys.readouterr().err
        found, err, code = show(capsys, rmq_cluster.namesrv, "group", "show", "billing")
    assert found["mismatches"] == expected
    lost = "members have different subscriptions, so messages are lost"
    assert f"{lost}: {expected[1]}" in err
    assert [
        [(s["topic"], s["sub_string"]) for s in member["subscriptions"]]
        for member in found["members"]
    ] == [
        [("%RETRY%billing", "*"), ("orders", "A")],
        [("%RETRY%billing", "*"), ("orders", "B"), ("refunds", "*")],
    ]
    assert code == 0


@pytest.mark.rmq_versions("5.5.0")
def test_a_java_member_that_differs_is_reported(
    real_cluster, new_topic, caplog, capsys
):
    topic = new_topic(queues=2)
    group = f"G-{topic}"
    ours = consumer(
        real_cluster, group, {topic: "B"}, Seen(), heartbeat_broker_interval_ms=BEAT_MS
    )
    with ours, JavaConsumer(real_cluster, group, topic, subExpression="A") as java:
        # Brokers keep a topic's newest expression: Java's.
        raw.wait_until(
            lambda: len(warned(caplog)) > 0,
            timeout_ms=120_000,
            what=lambda: "a warning of our member",
        )
        found, _, _ = show(capsys, real_cluster.namesrv, "group", "show", group)
        (group_lag,), _, _ = show(capsys, real_cluster.namesrv, "lag", group)
    assert f"{topic}: B here, A elsewhere" in warned(caplog)[0]
    parts = {f"{java.client_id} has A", f"{ours.client_id} has B"}
    (mismatch,) = found["mismatches"]
    assert (
        set(mismatch.removeprefix(f"members differ on {topic}: ").split("; ")) == parts
    )
    assert mismatch in group_lag["notes"]
