"""`rmq copy` on real brokers: the copies, their order, and a group that goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from itertools import chain

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.api.calls.config import update_broker_config
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from tests.admin.dlq.letters import client_of
from tests.copy.copying import stored
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java


def test_a_copy_is_complete_and_a_group_goes_on_in_it(real_cluster, tmp_path, capsys):
    source, target, group = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "stg")
    namesrv = real_cluster.namesrv
    for topic in (source, target):
        real_cluster.create_topic(topic, queues=3)
    assert run(["bench", "produce", source, "--count", "300", "-n", namesrv]) == 0
    with Admin(namesrv=namesrv) as admin:
        admin.create_group(group)
    with client_of(real_cluster, timeout_ms=30_000) as client:
        call = update_consumer_offset(group, source, 0, commit_offset=7)
        client.invoke(real_cluster.broker_address(), call)
    capsys.readouterr()
    words = ["copy", source, target, "--groups", group, "--execute", "--yes"]
    words += ["--log", str(tmp_path / "log"), "-n", namesrv, "-o", "json"]
    wait_until(lambda: sum(map(len, stored(real_cluster, source).values())) == 300)
    code = run(words)
    out, err = capsys.readouterr()
    assert code == 0, err
    assert json.loads(out)["copied"] == 300
    wait_until(lambda: sum(map(len, stored(real_cluster, target).values())) == 300)
    assert stored(real_cluster, target) == stored(real_cluster, source)
    with Admin(namesrv=namesrv) as admin:
        lag = admin.lag(group, topics=[target])
        assert {q.queue_id: q.committed for q in lag.queues}[0] == 7
    # The messages in the log are those of the brokers, of both topics.
    capsys.readouterr()
    assert run(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["copied"], again["unproven"], again["unread"]) == (0, [], [])


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_sql_that_a_broker_does_not_evaluate_copies_nothing(fresh_cluster, capsys):
    cluster = fresh_cluster(conf={"enablePropertyFilter": "false"})
    for topic in ("src", "dst"):
        cluster.create_topic(topic, queues=1)
    assert run(["bench", "produce", "src", "--count", "9", "-n", cluster.namesrv]) == 0
    words = ["copy", "src", "dst", "--execute", "--yes", "-n", cluster.namesrv]
    assert run([*words, "--sql", "n > 5"]) == 1
    assert "set enablePropertyFilter=true on the broker" in capsys.readouterr().err
    with client_of(cluster) as client:
        call = update_broker_config({"enablePropertyFilter": "true"})
        client.invoke(cluster.broker_address(), call)
    assert run([*words, "--sql", "n >>> 5"]) == 2
    assert "the expression is not valid SQL92: Encountered" in capsys.readouterr().err
    assert stored(cluster, "dst") == {}


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_a_copy_that_follows_and_is_killed_loses_nothing(real_cluster, tmp_path):
    """It is killed three times amid new messages; the last run copies the rest."""
    source, target = (f"{kind}-{uuid.uuid4().hex[:12]}" for kind in "st")
    for topic in (source, target):
        real_cluster.create_topic(topic, queues=2)
    words = [sys.executable, "-m", "rmqcli", "copy", source, target, "--yes"]
    words += ["--execute", "--log", str(tmp_path / "log"), "-n", real_cluster.namesrv]
    sent = 0

    def copied():
        return len({*chain(*stored(real_cluster, target).values())})

    with Producer(namesrv=real_cluster.namesrv) as producer:
        for _ in range(3):
            with subprocess.Popen([*words, "--follow", "-q"]) as process:
                try:
                    for _ in range(200):
                        sent += 1
                        producer.send(ProducerMessage(source, b"%d" % sent))
                    wait_until(lambda at=sent: copied() >= at)
                    sent += 1
                    producer.send(ProducerMessage(source, b"%d" % sent))
                finally:
                    process.kill()
    assert subprocess.run([*words, "-q"], check=False).returncode == 0
    wanted_of = stored(real_cluster, source)
    assert sum(map(len, wanted_of.values())) == 603

    def in_order():
        found = stored(real_cluster, target)
        return {queue: [*dict.fromkeys(bodies)] for queue, bodies in found.items()}

    # What a batch had stored when it was killed may come twice.
    wait_until(lambda: in_order() == wanted_of)
