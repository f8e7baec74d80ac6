"""`rmq tail` that starts while a broker hangs, or whose broker goes away.

It reports once that the broker is away and once that it is back, and shows everything.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
OFF = "The broker does not support consumer to filter message by SQL92"


def read_until(stream, words):
    """Read lines from `stream` up to the first with `words` in it; return them."""
    lines: list[str] = []
    while not lines or words not in lines[-1]:
        line = stream.readline()
        assert line, lines
        lines.append(line)
    return lines


def start(cluster, *flags):
    command = [sys.executable, "-m", "rmqcli", "tail", "T", "-n", cluster.namesrv]
    return subprocess.Popen(
        [*command, "-o", "jsonl", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_broker_that_hangs_at_the_start_comes_back():
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"] * 3, broker="broker-a")
        cluster.send("T", ["b"] * 4, broker="broker-b")
        away = cluster.broker("broker-b")
        away.hang()
        with start(
            cluster, "--from", "earliest", "--for", "30s", "--count", "7"
        ) as tail:
            assert tail.stdout is not None
            first = [json.loads(tail.stdout.readline()) for _ in range(3)]
            told = read_until(tail.stderr, "; retrying")
            away.resume()
            out, err = tail.communicate(timeout=PATIENCE_S)
    assert [record["body"] for record in first] == ["a"] * 3
    rest = [json.loads(line) for line in out.splitlines()]
    assert [(r["body"], r["queue_offset"]) for r in rest] == [
        ("b", offset) for offset in range(4)
    ]
    said = "".join([*told, err])
    assert said.count("retrying") == 1
    assert said.count("broker-b answers; reading T@broker-b:0 from offset 0") == 1
    assert "7 shown, 7 read, nothing missing" in said
    assert tail.returncode == 0


@pytest.mark.slow
def test_one_that_stays_away_is_exit_6():
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"] * 3, broker="broker-a")
        cluster.broker("broker-b").hang()
        with start(cluster, "--from", "earliest", "--for", "2s") as tail:
            out, err = tail.communicate(timeout=PATIENCE_S)
    assert len(out.splitlines()) == 3
    assert err.count("retrying") == 1
    assert "T@broker-b:0: abandoned: no answer from" in err
    assert tail.returncode == 6


@pytest.mark.slow
def test_one_that_goes_away_while_its_queues_are_read_is_announced_once():
    """Each of its queues said so, and then the follower once more."""
    with EmbeddedCluster(brokers=2, queues=4) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"], broker="broker-a")
        # more than one answer of each queue, and than the pipe to this test
        cluster.send("T", ["b" * 20_000] * 1_000, broker="broker-b")
        with start(cluster, "--from", "earliest", "--idle-timeout", "3s") as tail:
            assert tail.stdout is not None
            tail.stdout.readline()
            cluster.broker("broker-b").kill()
            out, err = tail.communicate(timeout=PATIENCE_S)
    assert len(out.splitlines()) < 1_000
    assert err.count("retrying") == 1
    assert tail.returncode == 6


@pytest.mark.slow
def test_one_that_goes_away_and_stays_away_is_exit_6():
    """Messages that it stored before it went away may not have been shown."""
    with EmbeddedCluster(brokers=2, queues=1) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"], broker="broker-a")
        cluster.send("T", ["b"], broker="broker-b")
        with start(cluster, "--from", "earliest", "--idle-timeout", "5s") as tail:
            assert tail.stdout is not None
            for _ in range(2):
                tail.stdout.readline()
            cluster.broker("broker-b").kill()
            _, err = tail.communicate(timeout=PATIENCE_S)
    assert "T@broker-b:0: abandoned at offset 1: " in err
    assert "2 shown, 2 read, 1 queue abandoned" in err
    assert "nothing missing" not in err
    assert tail.returncode == 6


@pytest.mark.slow
def test_one_that_stops_while_it_is_followed_is_reported_at_once_and_when_it_is_back():
    """It held the pulls like one that waits for messages, and tail said nothing."""
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("T")
        with start(cluster, "--from", "latest", "--count", "2") as tail:
            read_until(tail.stderr, "0 messages")
            cluster.send("T", ["a"])
            assert tail.stdout is not None
            tail.stdout.readline()
            cluster.broker("broker-a").hang()
            told = read_until(tail.stderr, "does not answer")
            cluster.broker("broker-a").resume()
            told += read_until(tail.stderr, "is back")
            cluster.send("T", ["b"])
            out, err = tail.communicate(timeout=PATIENCE_S)
    address = cluster.broker("broker-a").address
    assert told == [
        f"broker-a ({address}) does not answer; retrying\n",
        "broker-a is back; continuing\n",
    ]
    assert json.loads(out)["body"] == "b"
    assert err == "2 shown, 2 read, nothing missing\n"
    assert tail.returncode == 0


@pytest.mark.slow
def test_one_that_stops_while_it_is_followed_and_stays_away_is_exit_6():
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"])
        with start(cluster, "--for", "9s") as tail:
            assert tail.stdout is not None
            tail.stdout.readline()
            cluster.broker("broker-a").hang()
            _, err = tail.communicate(timeout=PATIENCE_S)
    assert "T@broker-a:0: abandoned at offset 1: no answer from" in err
    assert tail.returncode == 6


def test_following_ends_when_the_reader_of_the_pipe_has_closed_it():
    """`rmq tail T | head -1` waited for the next message, which might never come."""
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"])
        with start(cluster) as tail:
            assert tail.stdout is not None
            tail.stdout.readline()
            tail.stdout.close()
            assert tail.wait(PATIENCE_S) == 0
            assert tail.stderr.read() == "T@broker-a:0: offsets 0-0\n"


@pytest.mark.slow
def test_a_broker_that_does_not_check_the_sql_is_not_read_until_it_does(
    rmq_cluster_factory, capsys
):
    """That another broker accepts the expression does not show that this one does."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("t", queues=1)
    cluster.send("t", [b"a"] * 4)
    check = int(RequestCode.CHECK_CLIENT_CONFIG)
    words = ["tail", "t", "-n", cluster.namesrv, "--sql", "a IS NULL", "-o", "jsonl"]
    words += ["--from", "earliest"]
    cluster.faults.next(faults.disconnect(), code=check, broker="broker-b")
    code = run([*words, "--to", "latest"])
    out, err = capsys.readouterr()
    assert (code, out.count('"broker_name":"broker-a"')) == (6, 2), err
    assert "broker-b" not in out
    assert "1 queue abandoned" in err
    cluster.faults.next(faults.disconnect(), code=check, broker="broker-b")
    cluster.faults.next(faults.answer(1, OFF), code=check, broker="broker-b")
    code = run([*words, "--follow", "--for", "2s"])
    out, err = capsys.readouterr()
    assert (code, out.count('"broker_name":"broker-a"')) == (6, 2), err
    assert "broker-b" not in out
    assert "does not filter by SQL92" in err
