"""Handles that a client made up reach no message that its account has no right to.

The thief has rights to topic `T` and group `G`, the owner to topics `SECRET` and
`LATER` and group `OWNERS`. The thief knows everything that is in the owner's handles.
"""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.proxy.options import ProxyOptions
from rmqcli.testing import ManualClock
from rmqcli.wire.protobuf import service_pb2 as s
from rmqcli.wire.recall_handle import RecallHandle, encode_recall_handle
from tests.broker.proxy.access import said, signed
from tests.kit.configuration import Account
from tests.kit.proxy.raw_client import (
    GrpcClient,
    code_of,
    consumer_settings,
    message,
    resource,
)

OWNER = Account("owner", "owner-secret")
THIEF = Account("thief", "thief-secret")
RIGHTS = {
    OWNER.name: {
        "Topic:SECRET": "Pub,Sub",
        "Topic:LATER": "Pub,Sub",
        "Group:OWNERS": "Sub",
    },
    THIEF.name: {
        "Topic:T": "Pub,Sub",
        "Topic:SOON": "Pub",
        "Topic:%DLQ%G": "Sub",
        "Group:G": "Sub",
    },
}
NOT_OF_THE_TOPIC = (
    "INVALID_RECEIPT_HANDLE: the receipt handle does not name a message of the topic"
)


@pytest.fixture
def cluster():
    accounts = {each.name: each.secret for each in (OWNER, THIEF)}
    options = ProxyOptions(accounts=accounts, rights=RIGHTS)
    # Without the second setting a recall names no topic, in a real 5.5.0 neither.
    settings = {
        "recall_message_enable": True,
        "append_topic_for_timer_delete_key": True,
    }
    clock = ManualClock(now_ms=1_700_000_000_000)
    with EmbeddedCluster(
        proxy=options, queues=1, settings=settings, clock=clock
    ) as cluster:
        cluster.create_topic("SECRET")
        cluster.create_topic("T")
        for topic in ("LATER", "SOON"):
            cluster.create_topic(topic, attributes={"message.type": "DELAY"})
        yield cluster


@pytest.fixture
def owner(cluster):
    with GrpcClient(cluster.endpoints, metadata=signed(OWNER)) as client:
        client.telemetry(consumer_settings("OWNERS", "SECRET"))
        yield client


@pytest.fixture
def thief(cluster):
    with GrpcClient(cluster.endpoints, metadata=signed(THIEF)) as client:
        client.telemetry(consumer_settings("G", "T"))
        yield client


def handles_like(handle):
    """The handle itself, and as one of a message in a retry topic of either version."""
    parts = handle.split(" ")
    return [" ".join([*parts[:4], kind, *parts[5:]]) for kind in "012"]


@pytest.fixture
def held(owner):
    """The handle of a secret message that the owner has received."""
    assert code_of(owner.send(message("SECRET", b"secret"))) == "OK"
    received = owner.receive("OWNERS", "SECRET", invisible_ms=60_000)
    assert received.bodies == [b"secret"]
    return received.handles[0]


def test_a_forged_handle_forwards_no_message_of_another_topic(owner, thief, held):
    assert code_of(thief.send(message("T", b"own"))) == "OK"
    assert [
        said(thief.forward("G", "T", handle, "m")) for handle in handles_like(held)
    ] == [NOT_OF_THE_TOPIC] * 3
    # The group has no dead letters; it would if anything had been forwarded.
    assert thief.receive("G", "%DLQ%G").code == "TOPIC_NOT_FOUND"
    assert code_of(owner.ack("OWNERS", "SECRET", held)) == "OK"


def test_a_true_handle_forwards_its_message(thief):
    assert code_of(thief.send(message("T", b"own"))) == "OK"
    received = thief.receive("G", "T")
    assert said(thief.forward("G", "T", received.handles[0], "m")) == "OK"
    assert thief.receive("G", "%DLQ%G").bodies == [b"own"]


@pytest.mark.parametrize("topic", ["T", "SECRET"])
@pytest.mark.parametrize("group", ["G", "OWNERS"])
def test_a_forged_handle_neither_acknowledges_nor_releases(
    cluster, owner, thief, held, topic, group
):
    for handle in handles_like(held):
        thief.ack(group, topic, handle)
        thief.change(group, topic, handle, 0)
    # Of the message and one sent now, the owner gets only the new one.
    assert code_of(owner.send(message("SECRET", b"new"))) == "OK"
    assert owner.receive("OWNERS", "SECRET").bodies == [b"new"]
    assert code_of(owner.change("OWNERS", "SECRET", held, 0)) == "OK"
    cluster.advance(1_000)
    assert owner.receive("OWNERS", "SECRET").bodies == [b"secret"]


def test_a_change_needs_the_right_to_the_topic(thief, held):
    assert "no permission to access Topic:SECRET" in said(
        thief.change("G", "SECRET", held, 1_000)
    )


def test_a_forged_recall_handle_recalls_no_message_of_another_topic(
    cluster, owner, thief
):
    due_ms = cluster.options.clock.epoch_ms() + 60_000
    sent = owner.send(message("LATER", b"later", delivery_ms=due_ms)).entries[0]
    forged = [
        encode_recall_handle(
            RecallHandle(
                topic=topic,
                broker_name="broker-a",
                timestamp_ms=str(due_ms),
                message_id=message_id,
            )
        )
        for topic in ("SOON", "LATER")
        for message_id in (sent.message_id, f"LATER+{sent.message_id}")
    ]
    for handle in (sent.recall_handle, *forged):
        for topic in ("SOON", "LATER"):
            request = s.RecallMessageRequest(
                topic=resource(topic), recall_handle=handle
            )
            thief.call("RecallMessage", request)
    cluster.advance(61_000)
    assert owner.receive("OWNERS", "LATER").bodies == [b"later"]
