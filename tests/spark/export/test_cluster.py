"""The requests of the driver to brokers before a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.cli.spark.sql import Ranges, SqlCommandOptions
from rmqcli.cli.ui.wording import with_flags
from rmqcli.config import ClientConfig
from rmqcli.errors import BrokerError, PartialError
from rmqcli.position import Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.export import SINCE_LAST
from rmqcli.spark.export.plan import ExportPlan, ExportRequest
from rmqcli.spark.extent import plan_queue
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode

REQUEST = ExportRequest(topic="T", from_position="earliest", to_position="latest")


def plan_of(cluster):
    queues = [plan_queue(extent) for extent in cluster.resolve(REQUEST)]
    return ExportPlan(
        run_id="r", created_at_ms=1, request=REQUEST, queues=tuple(queues)
    )


def cluster_at(namesrv):
    return BrokerCluster(
        config=ClientConfig(namesrv=(namesrv,)),
        start=Earliest(),
        end=Latest(),
        note=lambda _: None,
    )


def test_the_size_of_messages_is_estimated_from_a_few(rmq_cluster):
    topic = rmq_cluster.create_topic("T")
    rmq_cluster.send(topic, ["x" * 3000] * 50)
    cluster = cluster_at(rmq_cluster.namesrv)
    size = cluster.message_bytes(plan_of(cluster))
    assert size is not None
    assert 3000 < size < 3400


def test_the_size_of_no_message_is_unknown(rmq_cluster):
    rmq_cluster.create_topic("T")
    cluster = cluster_at(rmq_cluster.namesrv)
    assert cluster.message_bytes(plan_of(cluster)) is None


def test_an_estimate_that_cannot_be_made_is_no_error(rmq_cluster):
    rmq_cluster.send(rmq_cluster.create_topic("T"), ["x"])
    plan = plan_of(cluster_at(rmq_cluster.namesrv))
    assert cluster_at("127.0.0.1:1").message_bytes(plan) is None


def test_the_queues_are_those_of_the_request(rmq_cluster):
    topic = rmq_cluster.create_topic("T", queues=4)
    for queue_id in range(4):
        rmq_cluster.send(topic, ["x"] * 5, queue_id=queue_id)
    cluster = cluster_at(rmq_cluster.namesrv)
    for position in ("earliest", SINCE_LAST):
        request = replace(REQUEST, queues=("1", "broker-a:3"), from_position=position)
        assert [each.queue.queue_id for each in cluster.resolve(request)] == [1, 3]


@pytest.mark.slow
def test_a_topic_of_which_a_broker_has_left_is_not_exported_as_if_it_were_whole(
    rmq_cluster_factory, monkeypatch, tmp_path, capsys
):
    """The manifest said that the rest was complete."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    both = rmq_cluster_factory(brokers=2)
    both.create_topic("T", queues=1)
    both.create_group("billing")
    for each in both.brokers:
        both.send("T", ["x"] * 2, broker=each.name)
        offsets = each.state.offsets
        both.call(lambda at=offsets: at.commit("billing", "T", 0, 0))
    assert run(["lag", "billing", "-n", both.namesrv]) == 0
    cluster = cluster_at(both.namesrv)
    assert len(cluster.resolve(REQUEST)) == 2
    both.broker("broker-b").kill()
    with pytest.raises(PartialError, match="which is no longer in the route") as caught:
        cluster.resolve(REQUEST)
    assert caught.value.message.startswith("groups had queues of T on broker-b, ")
    for accepted, request in (
        (replace(cluster, allow_gaps=True), REQUEST),
        (cluster, replace(REQUEST, queues=("0",))),
    ):
        (extent,) = accepted.resolve(request)
        assert extent.queue.broker_name == "broker-a"
    words = ["sql", "select count(*) from T", "-n", both.namesrv]
    assert run(words) == 6
    assert "for what is left, use --allow-gaps" in capsys.readouterr().err


def test_of_a_topic_that_no_group_reads_it_is_said_that_a_broker_has_left(
    rmq_cluster_factory, monkeypatch, tmp_path
):
    """Half of it was exported, and counted, as if it were whole."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    both = rmq_cluster_factory(brokers=2)
    both.create_topic("T", queues=1)
    assert run(["brokers", "-n", both.namesrv]) == 0
    notes: list[str] = []
    cluster = replace(cluster_at(both.namesrv), note=notes.append)
    assert (len(cluster.resolve(REQUEST)), notes) == (2, [])
    both.broker("broker-b").kill()
    (extent,) = cluster.resolve(REQUEST)
    assert extent.queue.broker_name == "broker-a"
    (note,) = map(with_flags, notes)
    assert note.startswith("broker-b is no longer in the route (last seen ")
    assert note.endswith(
        " ago): what it may have of the topic is not exported; if it was removed for"
        " good: rmq lag --forget"
    )

    said: list[str] = []
    with (
        Client(cluster.config) as client,
        Ranges(client, SqlCommandOptions(), warn=said.append) as ranges,
    ):
        ranges.of("T")
        ranges.of("T")
    assert [each.partition(" (")[0] for each in said] == [
        "broker-b is no longer in the route"
    ]


def test_a_topic_that_a_broker_does_not_let_read_is_not_exported_as_nothing(
    rmq_cluster,
):
    """As dead letters are up to 4.9.1: no rows, and exit code 0."""
    topic = rmq_cluster.create_topic("T", queues=1, perm=2)
    rmq_cluster.send(topic, ["x"] * 2)
    cluster = cluster_at(rmq_cluster.namesrv)
    with pytest.raises(PartialError) as caught:
        cluster.resolve(REQUEST)
    assert caught.value.message == (
        "topic T is not readable on broker-a: its messages there would be left out"
    )
    assert "perm" in str(caught.value.hint)
    assert replace(cluster, allow_gaps=True).resolve(REQUEST) == []


@pytest.mark.parametrize(
    ("broker", "noted"), [("broker-b", [True, False]), (None, None)]
)
def test_a_queue_whose_last_message_cannot_be_read_is_noted(
    rmq_cluster_factory, broker, noted
):
    """One broker that refuses does not keep the others' messages from an export."""
    with rmq_cluster_factory(brokers=2) as cluster:
        cluster.create_topic("T", queues=1)
        for name in ("broker-a", "broker-b"):
            cluster.send("T", ["x"], broker=name)
        notes: list[str] = []
        source = replace(cluster_at(cluster.namesrv), note=notes.append)
        queues = plan_of(source).queues
        cluster.faults.add(
            faults.answer(1, "no disk"), code=RequestCode.PULL_MESSAGE, broker=broker
        )
        if noted is None:
            with pytest.raises(BrokerError, match="no disk"):
                source.last_messages("T", queues)
            return
        found = source.last_messages("T", queues)
        assert [each.last is not None for each in found] == noted
        (note,) = notes
        assert "T@broker-b:0: its last message was not read (" in note
