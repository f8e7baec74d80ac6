"""Readers say which queues of a topic no consumer may read."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from rmqcli.errors import PartialError
from tests.kit import raw

SETTINGS = {
    "topic": "orders",
    "defaultTopic": "TBW102",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Two brokers, each with four queues of the topic and a message in each."""
    cluster = rmq_cluster_factory(brokers=2)
    change(cluster, "broker-a")
    change(cluster, "broker-b")
    for queue_id in range(4):
        for broker in ("broker-a", "broker-b"):
            cluster.send("orders", ["paid"], queue_id=queue_id, broker=broker)
    return cluster


def change(cluster, broker, *, read=4):
    settings = {"readQueueNums": str(read), "writeQueueNums": "4", "perm": "6"}
    answer = raw.ask(cluster.broker(broker).address, 17, SETTINGS | settings)
    assert answer.code == 0, answer


def tail(cluster, *words):
    words = ("--from", "earliest", "--no-follow", "-n", cluster.namesrv, *words)
    return run(["tail", "orders", "-o", "jsonl", *words])


def test_a_tail_names_the_queues_that_no_consumer_may_read(cluster, capsys):
    """It left their messages out, and said that nothing was missing (exit code 0)."""
    change(cluster, "broker-b", read=2)

    code = tail(cluster)

    out, err = capsys.readouterr()
    assert code == 6
    assert len(out.splitlines()) == 6
    unread = "orders@broker-b:2, orders@broker-b:3"
    assert (
        f"warning: no consumer may read {unread}: messages there are not shown; see the"
        " permissions and numbers of queues with: rmq topic show orders\n"
    ) in err
    assert "6 shown, 6 read, 2 queues not read" in err
    assert "nothing missing" not in err


def test_lag_of_one_group_knows_the_offsets_in_queues_that_are_not_read_any_more(
    cluster,
):
    """It said that the group never committed there, and its lag was unknown."""
    for name in ("broker-a", "broker-b"):
        for queue_id in range(4):
            offsets = cluster.broker(name).state.offsets
            cluster.call(
                lambda at=offsets, q=queue_id: at.commit("billing", "orders", q, 1)
            )
    cluster.create_group("billing")
    cluster.send("orders", ["new"], queue_id=3, broker="broker-b")
    change(cluster, "broker-b", read=2)

    with Admin(namesrv=cluster.namesrv) as admin:
        lag = admin.lag("billing")
        (of_all,) = admin.lags().groups

    assert (lag.total_lag, lag.reason) == (1, None)
    assert {str(each.state) for each in lag.queues} == {"OK", "KNOWN"}
    assert of_all.total_lag == 1


def test_a_message_in_a_queue_that_cannot_be_read_is_not_said_not_to_exist(
    cluster, capsys
):
    change(cluster, "broker-b", read=2)

    code = run(["message", "show", "orders@broker-b:3:0", "-n", cluster.namesrv])

    assert code == 6
    assert capsys.readouterr().err == (
        "error: orders@broker-b:3 cannot be read: broker-b has more write queues than"
        " read queues of topic orders\nhint: make them readable: rmq topic update"
        " orders --queues 4 --broker broker-b\n"
    )


def test_a_tail_of_other_queues_is_complete(cluster, capsys):
    change(cluster, "broker-b", read=2)

    code = tail(cluster, "--queue", "broker-a:3", "--queue", "broker-b:1")

    out, err = capsys.readouterr()
    assert code == 0
    assert {json.loads(line)["broker_name"] for line in out.splitlines()} == {
        "broker-a",
        "broker-b",
    }
    assert "nothing missing" in err


def test_a_read_of_a_whole_topic_is_refused_while_queues_of_it_cannot_be_read(cluster):
    """So are exports, queries and copies, which had all messages but those."""
    change(cluster, "broker-b", read=2)

    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(PartialError) as caught,
    ):
        list(admin.read("orders"))

    assert caught.value.message == (
        "topic orders has more write queues than read queues: the messages in"
        " orders@broker-b:2, orders@broker-b:3 would be left out"
    )
    assert str(caught.value.hint) == (
        "make them readable: Admin.update_topic('orders') queue_nums=4,"
        " brokers=['broker-b']"
    )
