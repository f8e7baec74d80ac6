"""`rmq sql` as a process: the commands of the guide, and an interrupt."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys

import pytest

from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.docs.commands import run_commands
from tests.kit.spark import no_java, patiently
from tests.kit.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ['{"id": 1}'] * 3, tags="New")
    cluster.send("orders", ['{"id": 2}'], tags="Paid")
    cluster.create_group("billing")
    cluster.send("%RETRY%billing", ["again"])
    return cluster


def test_the_commands_of_the_guide(cluster, tmp_path):
    def run():
        home = tmp_path / str(len(list(tmp_path.iterdir())))
        home.mkdir()
        done = run_commands("querying", cluster, home, spark=True)
        assert done.returncode == 0, done.stderr
        assert list((home / "tmp").iterdir()) == []
        return done

    done = patiently(run)
    heading, *table = done.stdout.splitlines()
    assert heading.split() == ["TAGS", "COUNT(1)"]
    assert sorted(line.split() for line in table[:2]) == [["New", "3"], ["Paid", "1"]]
    assert [json.loads(line) for line in table[2:6]] == [
        {"queue_offset": n, "id": "2" if n == 3 else "1"} for n in range(4)
    ]
    assert table[6] == "MAX(STORE_TIMESTAMP)"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", table[7])
    assert "orders: 4 messages in 1 queue\n" in done.stderr


def test_an_interrupt_ends_the_command_and_its_jvm(cluster, tmp_path):
    said = tmp_path / "said"
    query = "select count(*) from orders, range(1000000000000)"
    with (
        said.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "rmqcli", "sql", query, "-n", cluster.namesrv],
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        wait_until(lambda: "orders: 4 messages" in said.read_text())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, b"")
    assert said.read_text().splitlines()[-1] == "interrupted"
    wait_until(lambda: not is_alive(process.pid))


#: Ten million rows in partitions of five thousand.
MANY = "select id, repeat('x', 300) text from range(0, 10000000, 1, 2000)"


@contextlib.contextmanager
def rmq_sql(cluster, query, said, *arguments):
    """Run `rmq sql`, whose stderr goes to a file."""
    command = [sys.executable, "-m", "rmqcli", "sql", query, "-n", cluster.namesrv]
    with (
        said.open("wb") as stderr,
        subprocess.Popen(
            [*command, "-q", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def test_a_reader_that_has_enough_ends_the_command_quietly(cluster, tmp_path):
    said = tmp_path / "said"
    with rmq_sql(cluster, MANY, said, "-o", "jsonl") as process:
        assert process.stdout.readline().startswith(b'{"id":0,')
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
    assert said.read_text() == ""


def test_an_error_after_some_rows_is_said_after_whole_lines(cluster, tmp_path):
    said = tmp_path / "said"
    query = "select 1 / (id - 30000) n from range(0, 40000, 1, 20)"
    with rmq_sql(cluster, query, said, "-o", "jsonl") as process:
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    error = json.loads(said.read_text())["error"]
    assert error["message"].startswith("division by zero. ")
    assert 20_000 <= out.count(b"\n") <= 30_000
    assert json.loads(out.splitlines()[-1])["n"] < 0
    assert out.endswith(b"\n")


def test_a_broker_that_ends_its_connections_is_named_while_the_query_waits(
    cluster, tmp_path
):
    """The line comes at once, and not when the query ends."""
    cluster.faults.add(faults.disconnect(), code=RequestCode.PULL_MESSAGE)
    said = tmp_path / "said"
    query = "select queue_offset from orders"
    with rmq_sql(cluster, query, said, "-o", "jsonl") as process:
        wait_until(lambda: "; retrying\n" in said.read_text())
        assert process.poll() is None
        cluster.faults.clear()
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert [json.loads(line)["queue_offset"] for line in out.splitlines()] == [
        *range(4)
    ]
    (line,) = said.read_text().splitlines()
    assert re.fullmatch(
        r"warning: broker-a: [0-9.:]+ closed the connection without .*; retrying", line
    )


def is_alive(group):
    """Whether a process group has a process."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
