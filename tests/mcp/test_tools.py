"""What the tools of `rmq mcp` say of results that are not whole."""

from __future__ import annotations

import contextlib

import pytest

from rmqcli import ClientConfig
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker import faults
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.mcp import tools
from rmqcli.mcp.redact import Redaction
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import heartbeat
from tests.kit import raw
from tests.kit.clock import SetClock


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def call(cluster, name, **arguments):
    box = tools.Toolbox(
        ClientConfig(namesrv=(cluster.namesrv,)), Redaction(), lambda _: ("", "")
    )
    (tool,) = [each for each in tools.TOOLS if each.name == name]
    return tool.run(box, tool.arguments(**arguments)).model_dump()


@pytest.fixture
def join(cluster):
    """Make clients members of group billing until the test ends."""
    with contextlib.ExitStack() as clients:

        def member(client_id):
            config = ClientConfig(namesrv=(cluster.namesrv,))
            client = clients.enter_context(Client(config))
            heartbeat(client, "billing", client_id)

        yield member


def commit(cluster, group, queue_id, offset):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        question = update_consumer_offset(
            group, "orders", queue_id, commit_offset=offset
        )
        client.invoke(cluster.broker().address, question)


@pytest.fixture
def cluster(rmq_cluster):
    rmq_cluster.create_topic("orders", queues=2)
    rmq_cluster.create_group("billing")
    for queue_id in (0, 1):
        rmq_cluster.send("orders", ["x"] * 3, queue_id=queue_id)
        commit(rmq_cluster, "billing", queue_id, 0)
    return rmq_cluster


def test_lag_has_the_notes_of_what_is_in_no_number(cluster):
    """Half of the messages were in no number, and nothing said so."""
    call(cluster, "lag", group="billing")
    settings = {
        "topic": "orders",
        "defaultTopic": "TBW102",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
    }
    assert raw.ask(cluster.broker().address, 17, settings).code == 0
    found = call(cluster, "lag", group="billing")
    assert found["total_lag"] == 3
    (note,) = found["notes"]
    assert note == (
        "queue 1 of orders on broker-a is beyond the topic's queues: 3 messages that no"
        " consumer reads"
    )


def test_members_that_brokers_do_not_tell_have_a_reason(cluster, join):
    """What proxies write of their clients was denied, and the members were all."""
    join("one")
    denied = faults.answer(16, "no rights")
    cluster.faults.add(denied, topic="DefaultHeartBeatSyncerTopic")
    found = call(cluster, "lag", group="billing")
    assert found["members"] == ["one"]
    assert found["members_reason"].startswith(
        "members behind proxies are not known: broker-a: "
    )
    (row,) = call(cluster, "groups", filter="billing")["groups"]
    assert row["reason"].startswith("members behind proxies are not known: broker-a: ")
    (row,) = call(cluster, "groups", filter="CID_ONSAPI_PULL")["groups"]
    assert row["reason"] == "the members of system groups are not queried"


@pytest.mark.slow
def test_members_and_groups_that_are_left_out_are_counted(cluster, join, monkeypatch):
    monkeypatch.setattr(tools, "_ROWS_MAX", 1)
    join("one")
    join("two")
    found = call(cluster, "lag", group="billing")
    assert (found["members"], found["cut"]) == (["one"], ["the first 1 of 2 members"])
    cluster.create_group("shipping")
    commit(cluster, "shipping", 0, 0)
    found = call(cluster, "message", ref="orders@broker-a:0:0")
    assert len(found["messages"][0]["groups"]) == 1
    assert found["cut"] == ["the first 1 of 2 groups"]


def test_dead_letters_that_are_not_known_come_first(cluster, monkeypatch):
    monkeypatch.setattr(tools, "_ROWS_MAX", 1)
    for group in ("billing", "shipping"):
        cluster.send(f"%DLQ%{group}", ["x"])
    cluster.faults.add(
        faults.answer(16, "no rights"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="%DLQ%shipping",
    )
    found = call(cluster, "dead_letters")
    assert [(row["group"], row["count"]) for row in found["groups"]] == [
        ("shipping", None)
    ]
    assert found["cut"] == ["the first 1 of 2 groups"]


def test_a_time_in_a_queue_that_is_not_in_its_order_is_named():
    """Messages since the time were left out, as after a clock was set back."""
    clock = SetClock(1_700_000_000_000)
    with EmbeddedCluster(queues=1, clock=clock) as cluster:
        cluster.create_topic("T")
        for hours in (0, 2, 0, 2):
            clock.now_ms = 1_700_000_000_000 + hours * 3_600_000
            cluster.send("T", ["x"], queue_id=0)
        found = call(cluster, "tail", topic="T", since="@1700003600000")
    (warning,) = found["cut"]
    assert warning.startswith("T@broker-a:0: store times are not in order here")
