"""Permissions and attributes of topics are shown, changed and read back."""

from __future__ import annotations

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.terminal import typed

SET_TOPIC = 17


@pytest.fixture
def cluster(cluster):
    cluster.create_topic("orders", queues=2)
    return cluster


def results(rows):
    return [(row["server"], row["result"], row["perm"]) for row in rows]


def test_taking_a_permission_away_says_who_is_shut_out(rmq):
    code, rows, err = rmq("topic", "permission", "orders", "r")
    assert (code, rows) == (7, None)
    assert "broker-a: rw, will be r" in err
    assert "producers can no longer send to orders there" in err
    code, rows, err = rmq("topic", "permission", "orders", "w", "--yes")
    assert code == 0
    assert results(rows) == [("broker-a", "changed", "w"), ("broker-b", "changed", "w")]
    assert "consumers can no longer read orders there" in err
    code, rows, err = rmq("topic", "permission", "orders", "w")
    assert (code, results(rows)[0]) == (0, ("broker-a", "unchanged", "w"))
    assert "nothing was changed" in err


def test_a_topic_of_one_broker_is_changed_there(rmq):
    rmq("topic", "create", "alone", "--broker", "broker-b")
    code, rows, _ = rmq("topic", "permission", "alone", "r", "--yes")
    assert (code, results(rows)) == (0, [("broker-b", "changed", "r")])
    assert rmq("topic", "permission", "nope", "r", "--yes")[0] == 3


def test_a_broker_that_confirms_and_does_nothing_is_found_out(rmq, cluster):
    cluster.faults.add(faults.answer(0), code=SET_TOPIC, broker="broker-b")
    code, rows, _ = rmq("topic", "permission", "orders", "r", "--yes")
    assert code == 6
    assert [row["result"] for row in rows] == ["changed", "failed"]
    said = "broker-b confirmed the settings of topic orders, but has others"
    assert rows[1]["error"] == said


def test_a_broker_that_does_not_show_the_topic_is_left_alone_and_not_in_the_question(
    rmq, cluster
):
    """The question named the broker, which the change then left alone."""
    rmq("topic", "create", "T")
    busy = faults.answer(2, "busy")
    change = ("topic", "permission", "T", "r")
    cluster.faults.next(busy, code=RequestCode.GET_TOPIC_CONFIG, broker="broker-b")
    with typed("no\n"):
        code, rows, err = rmq(*change)
    assert (code, rows) == (7, None)
    assert "warning: broker-b is left alone: " in err
    assert "This changes the permissions of topic T on broker-a. [y/N]" in err
    cluster.faults.next(busy, code=RequestCode.GET_TOPIC_CONFIG, broker="broker-b")
    code, rows, _ = rmq(*change, "--yes")
    assert (code, [row["result"] for row in rows]) == (6, ["changed", "failed"])
    code, rows, _ = rmq(*change, "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["unchanged", "changed"])


def test_brokers_without_attributes_are_named_before_any_plan(
    rmq_cluster_factory, capsys
):
    """The plan said what the attribute will be, and the change was refused then."""
    old = rmq_cluster_factory(like="4.6.0")
    old.create_topic("orders", queues=1)
    words = ("topic", "attributes", "orders", "+message.type=FIFO")
    assert run([*words, "-n", old.namesrv]) == 1
    err = capsys.readouterr().err
    assert "broker-a runs RocketMQ 4.6.0, and attributes need 5.0.0" in err
    assert "will be" not in err


def test_attributes_are_shown_set_and_removed(rmq):
    assert rmq("topic", "attributes", "orders")[:2] == (0, [])
    set_it = ["topic", "attributes", "orders", "+message.type=FIFO"]
    code, rows, err = rmq(*set_it)
    assert (code, rows) == (7, None)
    assert "broker-a: message.type is not set, will be FIFO" in err
    code, rows, _ = rmq(*set_it, "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["changed", "changed"])
    code, rows, _ = rmq("topic", "attributes", "orders")
    assert [(r["broker_name"], r["name"], r["value"]) for r in rows] == [
        ("broker-a", "message.type", "FIFO"),
        ("broker-b", "message.type", "FIFO"),
    ]
    remove = ["topic", "attributes", "orders", "--remove", "message.type", "--yes"]
    code, rows, err = rmq(*remove)
    assert (code, [row["result"] for row in rows]) == (0, ["changed", "changed"])
    assert "message.type is FIFO, will be removed" in err
    code, rows, err = rmq(*remove)
    assert (code, rows) == (3, None)
    assert "topic orders has no attribute message.type" in err
    assert rmq("topic", "attributes", "orders")[:2] == (0, [])


def test_an_attribute_is_either_set_or_removed(rmq):
    code, _, err = rmq("topic", "attributes", "orders", "+a=b", "--remove", "a")
    assert code == 2
    assert "cannot be set and removed at once" in err
