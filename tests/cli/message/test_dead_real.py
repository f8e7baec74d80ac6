"""`rmq message show` on real brokers: a message that a group gave up after a retry."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.cli.main import run
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]

#: The first retry, and so its dead letter on 4.6.0, waits in level 3.
LEVELS = "1s 2s 4s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


def test_a_message_is_dead_while_its_letter_waits_for_a_delay_and_after_it(
    fresh_cluster, rmq_version, capsys
):
    cluster = fresh_cluster(conf={"messageDelayLevel": LEVELS})
    topic = cluster.create_topic(queues=1)
    group = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group(group)
    with Producer(namesrv=cluster.namesrv) as producer:
        sent = producer.send(ProducerMessage(topic, b"a"))

    def rmq(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, " ".join(err.split())

    do = ("consume", topic, "--group", group, "--from", "earliest", "--exec", "false")
    _, _, err = rmq(*do, "--max-retries", "1", "--for", "7s")
    is_old = rmq_version == "4.6.0"
    died = "dead letter on its way to" if is_old else "dead letter in"
    assert f"{died} %DLQ%{group}" in err

    def verdict():
        do = ("message", "show", sent.msg_id, "-t", topic, "-g", group, "-o", "json")
        _, out, err = rmq(*do)
        ((found,),) = [row["groups"] for row in json.loads(out)] if out else ((err,),)
        return found

    found = verdict()
    assert (found["verdict"], found["attempt"]) == ("dead", 2), found
    if is_old and found["where"].startswith("SCHEDULE_TOPIC_XXXX@"):
        assert found["evidence"].startswith("its dead letter is on its way: it waits ")
    wait_until(lambda: verdict()["where"].startswith(f"%DLQ%{group}@"))
    found = verdict()
    assert (found["verdict"], found["evidence"]) == (
        "dead",
        "a copy is in the dead-letter topic",
    )
