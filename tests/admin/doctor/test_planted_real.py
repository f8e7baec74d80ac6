"""Trouble that is planted on real brokers is found; silence is not health."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.admin.doctor.diagnose import diagnose
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.broker import COLUMNS
from rmqcli.cli.ui.output import row_of
from rmqcli.clock import SYSTEM_CLOCK
from tests.admin.doctor.planting import heartbeat, open_client
from tests.conftest import start_cluster
from tests.consumer.collecting import Seen, consumer
from tests.kit import raw
from tests.kit.half_messages import send_half
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.java,
    pytest.mark.real_only,
    pytest.mark.rmq_versions("4.6.0", "5.5.0"),
]

_SEND_MESSAGE = 10
_UPDATE_BROKER_CONFIG = 25
_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
_WIPE_WRITE_PERM_OF_BROKER = 205


def found_by(diagnosis, check):
    """Return what one check found, as (status, subject, evidence)."""
    (result,) = [each for each in diagnosis.results if each.name == check]
    return {(str(f.status), f.subject, f.evidence) for f in result.findings}


def diagnosed(cluster):
    with open_client(cluster.namesrv, timeout_ms=10_000) as client:
        return diagnose(client)


def member(cluster, topics, number):
    return consumer(
        cluster,
        "billing",
        topics,
        Seen(),
        heartbeat_broker_interval_ms=500,
        client_ip=f"10.0.0.{number}",
        instance_name="one",
    )


def must(cluster, code, body, *, broker, fields=None):
    answer = cluster.ask(code, fields, body=body.encode(), broker=broker)
    assert answer.code == 0, answer


def send(cluster, topic, *, broker=0, queue_id=0):
    fields = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    must(cluster, _SEND_MESSAGE, "x", broker=broker, fields=fields)


def plant(cluster):
    """Plant what an operator's hand or a program may leave behind."""
    cluster.create_topic("orders", queues=1)
    cluster.create_topic("lonely", queues=1, brokers=[0])
    cluster.create_topic("%RETRY%gone", queues=1)
    cluster.create_topic("%DLQ%gone", queues=1)
    for topic in ("orders", "orders", "%DLQ%gone"):
        send(cluster, topic)
    must(cluster, _UPDATE_BROKER_CONFIG, "fileReservedTime=72", broker=0)
    must(cluster, _UPDATE_BROKER_CONFIG, "fileReservedTime=48", broker=1)


def found_without_permission(cluster):
    """Wipe a broker's write permission; its next registration brings that back."""
    answer = raw.ask(
        cluster.namesrv, _WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-b"}
    )
    assert answer.code == 0, answer
    return {each[:2] for each in found_by(diagnosed(cluster), "broker-permission")}


def test_planted_trouble_is_found_and_brokers_that_are_silent_or_gone(
    rmq_version, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with start_cluster(rmq_version, tmp_path / "cluster", brokers=2) as cluster:
        plant(cluster)
        with (
            member(cluster, {"orders": "A"}, 1),
            member(cluster, {"orders": "B"}, 2),
            open_client(cluster.namesrv) as client,
        ):
            config = '{"groupName":"audit","consumeEnable":true}'
            must(cluster, _UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config, broker=1)
            call = update_consumer_offset("audit", "orders", 0, commit_offset=9)
            client.invoke(cluster.broker_address(1), call)
            wait_until(lambda: found_by(diagnosed(cluster), "subscriptions"))
            diagnosis = diagnosed(cluster)
        expected = {
            "topic-brokers": (
                "warning",
                "broker-b",
                "it lacks 1 topic that another broker of its cluster has: lonely",
            ),
            "broker-settings": (
                "warning",
                "DefaultCluster",
                "fileReservedTime differs: 48 on broker-b; 72 on broker-a",
            ),
        }
        for check, finding in expected.items():
            assert finding in found_by(diagnosis, check), check
        subjects = {
            "orphaned-retry": ("warning", "%RETRY%gone"),
            "orphaned-letters": ("warning", "%DLQ%gone"),
            "dead-letters": ("warning", "gone"),
            "subscriptions": ("problem", "billing"),
            "offsets-ahead": ("problem", "audit"),
        }
        for check, pair in subjects.items():
            pairs = {each[:2] for each in found_by(diagnosis, check)}
            assert pair in pairs, (check, found_by(diagnosis, check))
        wait_until(
            lambda: found_without_permission(cluster) == {("problem", "broker-b")}
        )

        cluster.suspend_broker(1)
        with open_client(cluster.namesrv, timeout_ms=10_000) as client:
            diagnosis = diagnose(client)
        cluster.resume_broker(1)
        assert str(diagnosis.status) == "problem"
        silent = {each[:2] for each in found_by(diagnosis, "broker-answers")}
        assert silent == {("problem", "broker-b")}
        for check in ("disk", "topic-brokers", "dead-letters", "subscriptions"):
            pairs = {each[:2] for each in found_by(diagnosis, check)}
            assert ("unknown", "broker-b") in pairs, check

        cluster.kill_broker(1)
        with open_client(cluster.namesrv) as client:
            wait_until(
                lambda: "broker-b" not in client.cluster_info(refresh=True).brokers
            )
        (gone,) = found_by(diagnosed(cluster), "broker-answers")
        assert gone[:2] == ("problem", "broker-b")
        assert gone[2].startswith("it is no longer in the route; it was last seen ")


#: What `plant_much` plants, by check.
PLANTED = {
    "broker-permission": {("warning", "broker-b")},
    "broker-settings": {("warning", "DefaultCluster")},
    "client-ids": {("problem", "twins")},
    "consume-disabled": {("warning", "off")},
    "dead-letters": {("warning", "gone")},
    "long-polling": {("warning", "broker-a"), ("warning", "broker-b")},
    "no-member": {("warning", "audit"), ("warning", "off")},
    "offsets-ahead": {("problem", "ahead")},
    "orphaned-letters": {("warning", "%DLQ%gone")},
    "orphaned-retry": {("warning", "%RETRY%gone")},
    "subscriptions": {("problem", "billing")},
    "topic-brokers": {("warning", "broker-b")},
    "topic-writable": {("warning", "closed")},
}
#: What is found besides: brokers are open to all, and the twins answer nothing.
BESIDES = {
    "access-control": {("warning", "broker-a"), ("warning", "broker-b")},
    "member-queues": {("unknown", "twins")},
    "queue-owners": {("unknown", "twins")},
}


def plant_much(cluster):
    cluster.create_topic("orders", queues=1)
    cluster.create_topic("lonely", queues=1, brokers=[0])
    cluster.create_topic("closed", queues=1, perm=4)
    cluster.create_topic("%RETRY%gone", queues=1)
    cluster.create_topic("%DLQ%gone", queues=1)
    send(cluster, "%DLQ%gone")
    offsets = {"billing": 2, "twins": 2, "audit": 1, "off": 1, "ahead": 9}
    for index in (0, 1):
        send(cluster, "orders", broker=index)
        send(cluster, "orders", broker=index)
        for group, offset in offsets.items():
            config = {"groupName": group, "consumeEnable": group != "off"}
            must(
                cluster,
                _UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                json.dumps(config),
                broker=index,
            )
            with open_client(cluster.namesrv) as client:
                call = update_consumer_offset(group, "orders", 0, commit_offset=offset)
                client.invoke(cluster.broker_address(index), call)
        must(cluster, _UPDATE_BROKER_CONFIG, "longPollingEnable=false", broker=index)
    must(cluster, _UPDATE_BROKER_CONFIG, "fileReservedTime=48", broker=0)
    must(cluster, _UPDATE_BROKER_CONFIG, "brokerPermission=4", broker=1)


def test_each_planted_trouble_is_found_and_no_other(rmq_version, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with start_cluster(rmq_version, tmp_path / "cluster", brokers=2) as cluster:
        plant_much(cluster)
        with (
            member(cluster, {"orders": "A"}, 1),
            member(cluster, {"orders": "B"}, 2),
            open_client(cluster.namesrv) as one,
            open_client(cluster.namesrv) as other,
        ):
            for client in (one, other):
                heartbeat(client, "twins", "10.0.0.9@same")
            wait_until(lambda: found_by(diagnosed(cluster), "subscriptions"))
            diagnosis = diagnosed(cluster)
    found = {
        result.name: {(str(each.status), each.subject) for each in result.findings}
        for result in diagnosis.results
        if result.findings
    }
    assert (found.pop("known-cves", None) is not None) == (rmq_version == "4.6.0")
    assert found == PLANTED | BESIDES


def replication(cluster):
    """Return what `rmq brokers` shows of a master, and how far slaves are behind."""
    with Admin(namesrv=cluster.namesrv) as admin:
        rows = [row_of(COLUMNS, each) for each in admin.brokers()]
    assert [row["error"] for row in rows] == [None, None, None]
    behind = [row["behind_bytes"] for row in rows]
    return rows[0]["in_sync"], rows[0]["slaves_registered"], behind


def test_slaves_disks_and_messages_that_nobody_gets_are_found(
    rmq_version, tmp_path, monkeypatch
):
    """The second slave has a wrong haMasterAddress, so that it copies nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tells_slaves = rmq_version != "4.6.0"
    limit = "haMaxGapNotInSync" if tells_slaves else "haSlaveFallbehindMax"
    conf = {
        "transactionCheckInterval": 1_000,
        "transactionTimeOut": 1_000,
        # After 15 checks, the default, the broker would discard the half message,
        # maybe before the slave has copied all.
        "transactionCheckMax": 100_000,
        "diskMaxUsedSpaceRatio": 10,
        limit: 4_000,
    }
    slaves = [{}, {"haMasterAddress": "127.0.0.1:9"}]
    with start_cluster(
        rmq_version, tmp_path / "cluster", conf=conf, slaves=slaves
    ) as cluster:
        cluster.create_topic("orders", queues=2)
        for queue_id in [0] * 40 + [1]:
            send(cluster, "orders", queue_id=queue_id)
        config = '{"groupName":"billing","retryQueueNums":0}'
        must(cluster, _UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, config, broker=0)
        with open_client(cluster.namesrv) as client:
            for queue_id, offset in ((0, 40), (1, 0)):
                call = update_consumer_offset(
                    "billing", "orders", queue_id, commit_offset=offset
                )
                client.invoke(cluster.broker_address(), call)
            cluster.create_topic("orders", queues=1)
            send_half(
                client,
                cluster.broker_address(),
                "orders",
                key="k",
                born_ms=SYSTEM_CLOCK.epoch_ms(),
            )
        wait_until(lambda: replication(cluster)[2][:2] == [None, 0])
        in_sync, registered, behind = replication(cluster)
        # Until the broker has asked the producer for the first time.
        wait_until(lambda: found_by(diagnosed(cluster), "transactions"))
        diagnosis = diagnosed(cluster)
    # Before 5.0 a master does not tell its slaves.
    assert (in_sync, registered) == ("1/2" if tells_slaves else None, 2)
    assert behind[2] > 4_000
    found = {
        check: {(status, subject) for status, subject, _ in found_by(diagnosis, check)}
        for check in ("slaves", "transactions", "removed-queues", "retry-queues")
    }
    assert found == {
        "slaves": {("problem", "broker-a:2")}
        | ({("problem", "broker-a")} if tells_slaves else set()),
        "transactions": {("problem", "shop")},
        "removed-queues": {("warning", "billing")},
        "retry-queues": {("warning", "billing")},
    }
    # How full the disk is, is for the machine; the broker begins at 10 % of it.
    disks = {subject for _, subject, _ in found_by(diagnosis, "disk")}
    assert {"broker-a", "broker-a:1"} <= disks
