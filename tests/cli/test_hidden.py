"""A topic that is not readable on one of its brokers: what is there is not left out."""

from __future__ import annotations

import json

import pytest

from rmqcli import connect
from rmqcli.cli.main import run
from tests.admin.doctor.planting import plant_settings

WHERE = "topic orders is not readable on broker-b: its messages there"
HINT = "make it readable: rmq topic update orders --perm rw --broker broker-b"


@pytest.fixture(autouse=True)
def _state_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("g")
    cluster.send("orders", ["a", "b"])
    hide(cluster, "broker-b", perm=2)
    return cluster


def hide(cluster, *brokers, perm):
    with connect(cluster.namesrv) as clients, clients.admin() as admin:
        admin.update_topic("orders", perm=perm, brokers=brokers)


@pytest.fixture
def rmq(cluster, capsys):
    """`rmq(...)` runs a command; returns exit code, stdout and stderr."""

    def call(*arguments):
        code = run([*arguments, "-n", cluster.namesrv])
        return code, *capsys.readouterr()

    return call


def test_a_broker_that_nobody_may_read_is_named_and_not_the_topic(rmq, cluster):
    """The hint was to change the topic, which changes nothing there."""
    plant_settings(cluster, "broker-b", brokerPermission="2")
    _, _, err = rmq("tail", "orders", "--from", "earliest", "--to", "latest")
    assert f"{WHERE} are not read; set brokerPermission=6 on broker-b, which" in err
    hide(cluster, "broker-a", perm=2)
    code, _, err = rmq("reset-offset", "g", "orders", "--to", "latest")
    assert code == 2
    assert "hint: set brokerPermission=6 on broker-b, which lets nobody read\n" in err


@pytest.mark.parametrize(
    "words",
    [("tail", "orders", "--from", "earliest"), ("message", "find", "orders")],
    ids=["tail", "message find"],
)
def test_messages_that_cannot_be_read_are_missing(rmq, words):
    """The summary said "nothing missing", and the exit code was 0."""
    to = ("--to", "latest", "-o", "raw")
    find = ("--grep", ".") if words[0] == "message" else ()
    code, out, err = rmq(*words, *to, *find)
    assert (code, out) == (6, "a\n")
    assert f"warning: {WHERE} are not read; {HINT}\n" in err
    assert "nothing missing" not in err
    assert "broker-b not read" in err


def test_queues_that_were_not_asked_for_are_not_missing(rmq):
    code, out, err = rmq(
        "tail",
        "orders",
        "--last",
        "9",
        "--no-follow",
        "-o",
        "raw",
        "--queue",
        "broker-a:0",
    )
    assert (code, out) == (0, "a\n")
    assert "not readable" not in err


def test_a_reset_says_which_queues_it_does_not_move(rmq, cluster):
    """It moved those of one broker, and reported success."""
    words = ("reset-offset", "g", "orders", "--to", "latest", "-o", "json")
    code, out, err = rmq(*words)
    assert code == 6
    assert f"1 queue is not moved on broker-b: {WHERE} would be left out; {HINT}" in err
    code, out, err = rmq(*words, "--execute", "--yes")
    assert code == 6
    queues = json.loads(out)["queues"]
    assert [(each["broker_name"], each["result"]) for each in queues] == [
        ("broker-a", "CONFIRMED"),
        ("broker-b", "NOT_ATTEMPTED"),
    ]


def test_a_reset_of_hidden_queues_alone_fails(rmq):
    code, _, err = rmq(
        "reset-offset", "g", "orders", "--to", "latest", "--queue", "broker-b:0"
    )
    assert code == 6
    assert f"{WHERE} would be left out" in err


@pytest.mark.parametrize("perm", [0, 2])
def test_a_topic_that_is_readable_nowhere_is_no_unknown_group(rmq, cluster, perm):
    """The error was that the group does not exist."""
    hide(cluster, "broker-a", "broker-b", perm=perm)
    code, _, err = rmq("reset-offset", "g", "orders", "--to", "latest")
    assert code == 2
    assert "error: topic orders has no readable queue" in err
    assert (
        "hint: make it readable: rmq topic update orders --perm rw --broker broker-a"
        " --broker broker-b" in err
    )
