"""A broker that has left the route is missed by each command, not only by `rmq lag`."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig

GONE = "it is no longer in the route"


@pytest.fixture
def cluster(rmq_cluster_factory, tmp_path, monkeypatch):
    """What is left of two brokers, of which an earlier `Admin.lag` knew both.

    Group billing had read topics orders, on both, and alone, on the broker that left.
    """
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    for topic in ("orders", "%RETRY%billing", "%DLQ%billing"):
        cluster.create_topic(topic, queues=1)
        for broker in cluster.brokers:
            cluster.send(topic, ["x"], broker=broker.name)
    cluster.send("alone", ["x"], broker="broker-b", queue_id=0)
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for name, topic in (
            ("broker-a", "orders"),
            ("broker-b", "orders"),
            ("broker-b", "alone"),
        ):
            call = update_consumer_offset("billing", topic, 0, commit_offset=0)
            client.invoke(cluster.broker(name).address, call)
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.lag("billing").total_lag is not None
    cluster.broker("broker-b").kill()
    return cluster


@pytest.fixture
def rmq(cluster, capsys):
    def call(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("topic show orders", "topic orders: normal, 1 queue, 1 message"),
        ("group show billing", "topics: orders"),
        ("group members billing", ""),
        ("dlq show billing", "broker-a:0:0"),
        ("retry show billing", "%RETRY%billing@broker-a:0"),
        ("delayed orders", "orders: at least 0 delayed messages"),
        ("transactions orders", ""),
        ("producers orders", ""),
        ("bench produce orders --count 5", "ended by count"),
    ],
)
def test_it_is_named_and_the_rest_is_called_partial(rmq, words, shown):
    code, out, err = rmq(*words.split())
    assert code == 6
    assert shown in out
    assert "no open transactions" not in out
    assert "broker-b" in err
    assert GONE in err
    assert "hint: if it was removed for good: rmq lag --forget" in err
    assert rmq("lag", "--forget")[0] == 0
    if words == "group members billing":  # which never had a member
        return
    assert rmq(*words.split())[0] == 0


@pytest.mark.parametrize(
    ("words", "kind"), [("topic show alone", "topic"), ("tail alone --for 1s", "topic")]
)
def test_a_topic_that_only_it_had_is_not_said_not_to_exist(rmq, words, kind):
    code, _, err = rmq(*words.split())
    assert code == 6
    assert err.startswith(
        f"error: {kind} alone is on no broker that is left, and was on broker-b, which"
        " is no longer in the route (last seen "
    )
    code, _, err = rmq("topic", "show", "never")
    assert (code, err.splitlines()[0]) == (3, "error: topic never does not exist")


def test_dead_letters_that_only_it_may_have_are_not_said_to_be_none(rmq, cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.delete_topic("%DLQ%billing")
    code, _, err = rmq("dlq", "show", "billing")
    assert code == 6
    assert err.startswith(
        "error: group billing has no dead letters on the brokers that are left:"
        " broker-b is no longer in the route, and may have some\n"
    )
    assert rmq("dlq", "show", "audit")[0] == 3


def test_the_plan_of_a_copy_counts_only_the_queues_that_are_left(
    rmq, rmq_cluster_factory, tmp_path
):
    target = rmq_cluster_factory()
    target.create_topic("dst", queues=1)
    words = ("copy", "orders", "dst", "--to-namesrv", target.namesrv)
    code, _, err = rmq(*words, "--log", str(tmp_path / "log"))
    assert code == 6
    assert f"warning: orders@broker-b:0: {GONE}\n" in err
    assert (
        "\n1 queue to 1 queue: each to the one with the same index, in order\n" in err
    )


def test_a_deleted_topic_comes_back_with_the_broker(cluster, rmq):
    code, out, _ = rmq("topic", "delete", "orders", "--yes", "-o", "json")
    assert code == 6
    steps = json.loads(out)
    assert [(each["server"], each["result"], each["error"]) for each in steps] == [
        ("broker-a", "deleted", None),
        (cluster.namesrv, "deleted", None),
        ("broker-b", "failed", GONE),
    ]
