"""A message is recalled before its delivery time, or it is said why not."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, Producer, ProducerMessage
from rmqcli.cli.main import run
from rmqcli.errors import BrokerError, NotFoundError, RefusedError, UsageError

HOUR_MS = 3_600_000


@pytest.fixture
def start(rmq_cluster_factory):
    def start_(like="5.5.0", *, recall_message_enable=True):
        settings = {"recall_message_enable": recall_message_enable}
        cluster = rmq_cluster_factory(like=like, settings=settings)
        cluster.create_topic("orders")
        return cluster

    return start_


def send(cluster, body, **delay):
    with Producer(namesrv=cluster.namesrv) as producer:
        return producer.send(
            ProducerMessage("orders", body.encode(), keys=body, **delay)
        )


def waiting(admin):
    return [each.keys for each in admin.delayed("orders").messages]


def test_a_message_is_recalled_by_its_id_and_no_other_one_is(start):
    cluster = start()
    sent = send(cluster, "gone", delay_ms=HOUR_MS)
    send(cluster, "kept", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_recall(sent.msg_id, topic="orders")
        assert waiting(admin) == ["gone", "kept"]
        admin.apply_recall(planned)
        assert waiting(admin) == ["kept"]
        for ref in (sent.msg_id, planned.recall_handle):
            with pytest.raises(NotFoundError, match="waits for its delivery time"):
                admin.plan_recall(ref, topic="orders")


def test_the_command_recalls_by_a_handle_after_it_was_confirmed(start, capsys):
    cluster = start()
    sent = send(cluster, "gone", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        handle = admin.plan_recall(sent.msg_id, topic="orders").recall_handle
        do = ["message", "recall", handle, "-n", cluster.namesrv, "-o", "json"]
        assert run([*do, "--no-input"]) == 7
        assert waiting(admin) == ["gone"]
        capsys.readouterr()
        assert run([*do, "--yes"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["msg_id"], row["result"]) == (sent.msg_id, "recalled")
        assert waiting(admin) == []


def test_a_message_with_a_delay_level_cannot_be_recalled(start):
    cluster = start()
    sent = send(cluster, "level", delay_level=18)
    with Admin(namesrv=cluster.namesrv) as admin:
        with pytest.raises(RefusedError, match="waits in delay level 18 of broker-a"):
            admin.plan_recall(sent.msg_id, topic="orders")
        with pytest.raises(UsageError, match="needs its topic"):
            admin.plan_recall(sent.msg_id)


def test_a_broker_that_does_not_recall_says_so_and_the_message_still_waits(start):
    cluster = start(recall_message_enable=False)
    sent = send(cluster, "stays", delay_ms=HOUR_MS)
    with Admin(namesrv=cluster.namesrv) as admin:
        planned = admin.plan_recall(sent.msg_id, topic="orders")
        with pytest.raises(BrokerError, match="operation is forbidden"):
            admin.apply_recall(planned)
        assert waiting(admin) == ["stays"]
