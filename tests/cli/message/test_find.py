"""`rmq message find`: the index for keys, reading for everything else, and an end."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.api.calls.store import query_message
from rmqcli.api.client import Client
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode

NOT_FOUND = faults.answer(22, "can not find message, maybe time range not correct")


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    for n in range(6):
        region = ("eu-west", "us")[n % 2]
        seed = Seed(
            body=b'{"id": %d}' % n, keys=[f"k{n % 3}"], properties={"region": region}
        )
        cluster.send("orders", [seed], broker="broker-" + "ab"[n % 2])
    return cluster


def find(cluster, capsys, *words):
    """Run `rmq message find orders`; return exit code, bodies and stderr."""
    capsys.readouterr()
    do = ["message", "find", "orders", *words]
    code = run([*do, "-n", cluster.namesrv, "-o", "jsonl"])
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    return code, [json.loads(row["body"])["id"] for row in rows], err


def test_a_key_is_found_by_the_index_of_all_brokers(cluster, capsys):
    code, found, err = find(cluster, capsys, "--key", "k1")
    assert (code, sorted(found), err) == (0, [1, 4], "2 found by the index\n")
    assert find(cluster, capsys, "--key", "k") == (0, [], "0 found by the index\n")
    assert find(cluster, capsys, "--key", "k", "--fail-if-empty")[0] == 8


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--key", "k1", "--scan"), [1, 4]),
        (("--key", "k1", "--from", "1"), [4]),
        (("--key", "k1", "--queue", "broker-b:0"), [1]),
        (("--property", "region=eu-*"), [0, 2, 4]),
        (("--grep", '"id": [45]'), [4, 5]),
        (("--key", "k1", "--property", "region=us"), [1]),
    ],
)
def test_everything_else_is_found_by_reading_the_topic(
    cluster, capsys, words, expected
):
    code, found, err = find(cluster, capsys, *words)
    assert (code, sorted(found)) == (0, expected)
    assert f"{len(expected)} shown, " in err
    assert err.endswith(" read, nothing missing\n")


def test_times_bound_a_search_by_the_index(cluster, capsys):
    after = ("--from", "@2100-01-01T00:00:00Z")
    before = ("--to", "@2001-01-01T00:00:00Z")
    for words in (after, before):
        code, found, err = find(cluster, capsys, "--key", "k1", *words)
        said = f"{words[0]}: {words[1].removeprefix('@')}"
        assert (code, found) == (0, [])
        assert err == f"{said}\n0 found by the index\n"


@pytest.mark.parametrize("what", [["--key", "k1"], ["--grep", "x"]])
def test_a_search_that_ends_before_it_begins_is_refused(cluster, capsys, what):
    """It found nothing, with exit code 0, as if there were no such message."""
    later = ("--from", "@2026-01-02T00:00:00Z", "--to", "@2026-01-01T00:00:00Z")
    code, found, err = find(cluster, capsys, *what, *later)
    assert (code, found) == (2, [])
    assert "--to is before --from" in err


def test_a_broker_without_an_index_has_its_topic_read(cluster, capsys):
    cluster.faults.add(NOT_FOUND, code=RequestCode.QUERY_MESSAGE, broker="broker-b")
    code, found, err = find(cluster, capsys, "--key", "k1")
    assert (code, sorted(found)) == (0, [1, 4])
    assert err.startswith(
        "warning: broker-b: the index does not know every message of the topic; reading"
        " the topic instead\n"
    )
    assert err.endswith("2 shown, 6 read, nothing missing\n")


def test_a_broker_whose_index_was_switched_off_has_its_topic_read(cluster, capsys):
    """Its index still tells what was stored before, which is not all of the key."""
    address = cluster.broker("broker-b").address
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = query_message("orders", "k1", begin_ms=1, end_ms=2**62, max_num=64)
        before = client.invoke(address, call)
    cluster.send("orders", [Seed(body=b'{"id": 7}', keys=["k1"])], broker="broker-b")
    query = {"code": RequestCode.QUERY_MESSAGE, "broker": "broker-b"}
    cluster.faults.next(faults.answer(0, body=before), **query)
    cluster.faults.add(NOT_FOUND, **query)
    code, found, err = find(cluster, capsys, "--key", "k1")
    assert (code, sorted(found)) == (0, [1, 4, 7])
    assert "broker-b: the index does not know every message of the topic" in err


def test_a_silent_broker_is_named_and_what_others_have_is_shown(cluster, capsys):
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    code, found, err = find(cluster, capsys, "--key", "k1")
    assert (code, found) == (6, [4])
    assert "broker-b did not answer" in err


def test_records_that_cannot_be_read_are_counted_and_not_left_out(cluster, capsys):
    damaged = faults.answer(0, body=bytes([0, 0, 0, 8, 1, 2, 3, 4]))
    cluster.faults.add(damaged, code=RequestCode.QUERY_MESSAGE, broker="broker-b")
    code, found, err = find(cluster, capsys, "--key", "k1")
    assert (code, found) == (6, [4])
    said, error = err.splitlines()
    assert said == "1 found by the index"
    told = json.loads(error)["error"]
    assert (told["message"], told["hint"]) == (
        "1 record on broker-b cannot be read: each may be a message of the key",
        "read the topic with --scan, which shows damaged messages in place",
    )


def test_a_broker_that_does_not_tell_all_messages_of_a_key_is_named(cluster, capsys):
    seeds = [Seed(body=b'{"id": 9}', keys=["k"])] * 3
    with Admin(namesrv=cluster.namesrv) as admin:
        brokers = ["broker-a", "broker-b"]
        plan = admin.plan_broker_settings({"maxMsgsNumBatch": "1"}, brokers=brokers)
        admin.apply_settings(plan)
    for holders in (brokers[:1], brokers):
        cluster.send("orders", seeds, broker=holders[-1])
        code, found, err = find(cluster, capsys, "--key", "k")
        said, error = err.splitlines()
        told = json.loads(error)["error"]
        assert (code, len(found)) == (6, len(holders))
        assert told["hint"] == (
            "search a shorter time with --from and --to, or read the topic with --scan"
        )
        if len(holders) == 1:
            assert said == "1 found by the index; broker-a has more than it tells"
            assert told["message"] == "1 broker did not tell all messages of the key"
        else:
            assert said == (
                "2 found by the index; broker-a, broker-b have more than they tell"
            )
            assert told["message"] == "2 brokers did not tell all messages of the key"


def test_a_format_excludes_an_output_format(cluster, capsys):
    do = ["message", "find", "orders", "--key", "k", "-n", cluster.namesrv]
    assert run([*do, "--format", "%t", "-o", "json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["message"] == (
        "--format and --output cannot be used together"
    )


def test_a_search_for_nothing_is_refused(cluster, capsys):
    search = ["message", "find", "orders", "-n", cluster.namesrv]
    assert run(search) == 2
    assert capsys.readouterr().err == (
        "error: nothing to find: give --key, --property, --grep or --where\n"
    )
    assert run([*search, "--key", " "]) == 2
    assert capsys.readouterr().err == (
        "error: --key is empty\nhint: give what to search for\n"
    )


def test_an_unknown_topic_is_not_an_empty_one(cluster, capsys):
    code = run(["message", "find", "ordres", "--key", "k", "-n", cluster.namesrv])
    assert code == 3
    assert "topic ordres does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("find", "orders", "--key", "k"),
        ("show", "k", "--topic", "orders"),
        ("show", "7F0000010000000000000000000000AA", "--topic", "orders"),
        ("resend", "k", "--topic", "orders", "--to-group", "billing"),
    ],
    ids=lambda words: words[0],
)
def test_a_search_that_every_broker_denies_is_denied(rmq_cluster, capsys, words):
    """The exit code was 6, as if a part had been searched."""
    rmq_cluster.create_topic("orders")
    for code in (RequestCode.QUERY_MESSAGE, RequestCode.PULL_MESSAGE):
        denied = faults.answer(16, "no rights to orders")
        rmq_cluster.faults.add(denied, code=code, topic="orders")
    assert run(["message", *words, "-n", rmq_cluster.namesrv]) == 4
    out, err = capsys.readouterr()
    assert (out, "no rights to orders" in err) == ("", True)
