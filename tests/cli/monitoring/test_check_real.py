"""`rmq check` against real brokers: each check with a value that is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import contextmanager

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.admin.check import measure_behaviour
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from tests.admin.dlq.letters import client_of
from tests.exporter.pages import ShiftedClock
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def check_by_behaviour(cluster, group, *, minutes):
    """Judge a group as runs some minutes ago did; return the last verdict."""
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=30_000)
    verdicts = []
    for ago in minutes:
        clock = ShiftedClock()
        clock.ahead_ms = -ago * 60_000
        with Client(config, clock=clock) as client:
            (measured,) = measure_behaviour(client, [group])
        verdicts.append(measured.verdict)
    return verdicts[-1]


def test_each_check_knows_its_value(real_cluster, capsys):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    namesrv = real_cluster.namesrv
    real_cluster.create_topic(topic, queues=1)
    with Admin(namesrv=namesrv) as admin:
        admin.create_group(group)
    with Producer(namesrv=namesrv) as producer:
        for number in range(3):
            producer.send(ProducerMessage(topic, f"{number}".encode()))
    with client_of(real_cluster, timeout_ms=30_000) as client:
        call = update_consumer_offset(group, topic, 0, commit_offset=1)
        client.invoke(real_cluster.broker_address(), call)

    def check(*words):
        code = run(["check", *words, "-n", namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        (row,) = json.loads(out)["measurements"]
        assert (row["reason"], err) == (None, "")
        return code, row["value"]

    def is_dispatched():
        with Admin(namesrv=namesrv) as admin:
            return admin.lag(group).total_lag == 2

    wait_until(is_dispatched)
    assert check("lag", group, "--warn", "2", "--crit", "3") == (1, 2)
    assert check("lag", group, "--crit", "2") == (2, 2)
    assert check("dlq", group, "--warn", "1") == (0, 0)
    code, age_ms = check("age", group, "--warn", "1h")
    assert code == 0
    assert 0 <= age_ms < 3_600_000
    code, age_ms = check("topic", topic, "--warn", "1h")
    assert code == 0
    assert 0 <= age_ms < 3_600_000
    code, left_ms = check("retention", group, "--warn", "1h")
    assert code == 0
    assert left_ms > 3_600_000
    code, percent = check("broker", "broker-a", "--crit", "100")
    assert code == 0
    assert 0 <= percent < 100


def test_a_group_that_stands_still_and_one_that_went_back(real_cluster):
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    real_cluster.create_topic(topic, queues=1)
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(group)
    with Producer(namesrv=real_cluster.namesrv) as producer:
        for number in range(30):
            producer.send(ProducerMessage(topic, f"{number}".encode()))

    def commit(offset):
        with client_of(real_cluster, timeout_ms=30_000) as client:
            call = update_consumer_offset(group, topic, 0, commit_offset=offset)
            client.invoke(real_cluster.broker_address(), call)

    def is_dispatched():
        with Admin(namesrv=real_cluster.namesrv) as admin:
            return admin.lag(group).total_lag == 29

    commit(1)
    wait_until(is_dispatched)
    assert check_by_behaviour(real_cluster, group, minutes=(16,)) == "UNKNOWN"
    assert check_by_behaviour(real_cluster, group, minutes=(11, 6)) == "STOPPED"
    commit(30)
    assert check_by_behaviour(real_cluster, group, minutes=(5,)) == "OK"
    commit(0)
    assert check_by_behaviour(real_cluster, group, minutes=(4,)) == "REWOUND"


@contextmanager
def consuming(cluster, group, topic):
    """Run `rmq consume` in a process of its own; yield the process."""
    words = ["consume", topic, "-g", group, "--from", "earliest"]
    with subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *words, "-n", cluster.namesrv],
        stdout=subprocess.DEVNULL,
        env=os.environ,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_member_that_hangs_is_found_after_the_window(real_cluster):
    """Its process is stopped, so that its connections and its queues stay.

    The check of the fourth minute is the first one that sees a message wait, and that
    of ten minutes later is the first one that says so.
    """
    topic, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "tg")
    real_cluster.create_topic(topic, queues=1)
    namesrv = real_cluster.namesrv
    with Admin(namesrv=namesrv) as admin:
        admin.create_group(group)
    verdicts = []
    with (
        Producer(namesrv=namesrv) as producer,
        Admin(namesrv=namesrv) as admin,
        consuming(real_cluster, group, topic) as process,
    ):

        def is_consumed(count):
            queues = admin.lag(group).queues
            return [q.committed for q in queues if q.topic == topic] == [count]

        for sent, minute in enumerate((3, 4, 9, 13, 14)):
            producer.send(ProducerMessage(topic, b"x"))
            if sent == 0:
                wait_until(lambda: is_consumed(1))
                process.send_signal(signal.SIGSTOP)
            verdicts.append(
                check_by_behaviour(real_cluster, group, minutes=(20 - minute,))
            )
        assert verdicts == ["OK"] * 4 + ["STALLED"]
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: is_consumed(5))
        assert check_by_behaviour(real_cluster, group, minutes=(5,)) == "OK"
