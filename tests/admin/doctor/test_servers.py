"""Each check of servers finds the trouble that is planted."""

from __future__ import annotations

import json
import re

import pytest

from rmqcli.admin.doctor.diagnose import diagnose
from rmqcli.admin.doctor.facts import clock_skew_ms
from rmqcli.api.calls.namesrv import get_broker_cluster_info
from rmqcli.cli.main import run
from rmqcli.testing import EmbeddedCluster, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import (
    findings,
    only_finding,
    open_client,
    plant_runtime,
    plant_settings,
)
from tests.kit import raw
from tests.transport.peer import Peer, free_port

MIB = 1024 * 1024


def test_a_name_server_that_is_down_is_a_problem(rmq_cluster):
    down = f"127.0.0.1:{free_port()}"
    found = findings(f"{rmq_cluster.namesrv};{down}", "namesrv-answers")
    assert [(str(f.status), f.subject) for f in found] == [("problem", down)]
    (unknown,) = findings(f"{rmq_cluster.namesrv};{down}", "namesrv-agree")
    assert (str(unknown.status), unknown.subject) == ("unknown", down)


def test_name_servers_that_know_other_brokers_and_topics_are_found(
    rmq_cluster_factory,
):
    one, other = rmq_cluster_factory(), rmq_cluster_factory()
    one.create_topic("orders")
    both = f"{one.namesrv};{other.namesrv}"
    found = {
        (f.subject, str(f.status)): f.evidence for f in findings(both, "namesrv-agree")
    }
    assert found == {
        (one.namesrv, "problem"): "it does not know broker-a at"
        f" {other.broker().address}, which another name server does",
        (other.namesrv, "problem"): "it does not know broker-a at"
        f" {one.broker().address}, which another name server does",
        (other.namesrv, "warning"): "it does not know 1 topic that another name server"
        " knows: orders",
    }


def test_a_broker_that_does_not_answer_is_a_problem_and_unknown_to_all_other_checks(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    (silent,) = findings(cluster.namesrv, "broker-answers")
    assert (str(silent.status), silent.subject) == ("problem", "broker-b")
    assert silent.command == "rmq broker show broker-b"
    for name in ("disk", "subscriptions", "topic-brokers", "dead-letters", "slaves"):
        found = findings(cluster.namesrv, name)
        (unknown,) = [f for f in found if f.subject == "broker-b"]
        assert str(unknown.status) == "unknown", name
        assert "it did not answer" in unknown.evidence


@pytest.mark.slow
def test_a_silent_broker_is_waited_for_once_and_for_all_of_the_timeout(
    rmq_cluster_factory,
):
    """Each kind of facts waited for it anew: with three of them `doctor` took 15 s."""
    cluster = rmq_cluster_factory(brokers=4)
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.faults.add(faults.drop_request(), broker="broker-b")
    asked = cluster.faults.observe(broker="broker-b")
    with open_client(cluster.namesrv, timeout_ms=4_000) as client:
        diagnosis = diagnose(client)
    assert [each.command.code for each in asked.requests] == [
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_CONFIG,
    ]
    results = {each.name: each.findings for each in diagnosis.results}
    (silent,) = results["broker-answers"]
    assert (silent.status, silent.subject) == ("problem", "broker-b")
    # One that answered after half of the timeout was called silent, too.
    assert re.fullmatch(
        r"no answer from \S+ to GET_BROKER_RUNTIME_INFO in 4000 ms", silent.evidence
    )
    assert {each.subject for each in results["disk"]} == {"broker-b"}
    told = {each.subject for each in results["access-control"]}
    assert told == {"broker-a", "broker-b", "broker-c", "broker-d"}


@pytest.mark.slow
def test_a_silent_name_server_is_asked_once(rmq_cluster):
    asked = []

    def hang(connection):
        asked.extend(connection.requests())

    with Peer(hang) as peer:
        both = f"{peer.address};{rmq_cluster.namesrv}"
        with open_client(both, timeout_ms=10_000) as client:
            diagnosis = diagnose(client, only=["namesrv-answers", "disk"])
        found = {each.name: each.findings for each in diagnosis.results}
        (silent,) = found["namesrv-answers"]
        assert (silent.status, silent.subject) == ("problem", peer.address)
        assert found["disk"] == ()
    assert [each.code for each in asked] == [RequestCode.GET_BROKER_CLUSTER_INFO]


def test_a_broker_that_died_and_left_the_route_is_a_problem_until_it_is_forgotten(
    rmq_cluster_factory, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = rmq_cluster_factory(brokers=2)
    assert findings(cluster.namesrv, "broker-answers") == []
    address = cluster.broker("broker-b").address
    cluster.broker("broker-b").kill()
    for _ in range(2):
        (found,) = findings(cluster.namesrv, "broker-answers")
        assert (str(found.status), found.subject) == ("problem", "broker-b")
        assert found.evidence.startswith(
            "it is no longer in the route; it was last seen "
        )
        assert found.evidence.endswith(f" ago at {address}")
        assert found.command == "rmq lag --forget"
    for name in ("disk", "subscriptions", "topic-brokers", "dead-letters", "slaves"):
        (missed,) = [
            f for f in findings(cluster.namesrv, name) if f.subject == "broker-b"
        ]
        assert str(missed.status) == "unknown", name
        assert missed.evidence == "it is no longer in the route"
    assert run(["lag", "--forget", "-n", cluster.namesrv]) == 0
    assert findings(cluster.namesrv, "broker-answers") == []


def test_a_broker_that_advertises_an_address_without_a_way_to_it(rmq_cluster_factory):
    port = free_port()
    cluster = rmq_cluster_factory(
        broker_ports=(port,), settings={"address": f"127.0.0.2:{port}"}
    )
    (found,) = findings(cluster.namesrv, "broker-address")
    assert str(found.status) == "problem"
    assert found.evidence == (
        f"it advertises 127.0.0.2:{port}, where it cannot be reached; it answers at"
        f" 127.0.0.1:{port}"
    )
    way = f"127.0.0.2:{port}=127.0.0.1:{port}"
    assert found.command == f"rmq doctor --address-map {way}"
    assert findings(cluster.namesrv, "broker-answers") == []
    mapped = {f"127.0.0.2:{port}": f"127.0.0.1:{port}"}
    assert findings(cluster.namesrv, "broker-address", address_map=mapped) == []


def test_a_stranger_at_the_name_server_s_host_is_not_taken_for_the_broker(
    rmq_cluster_factory,
):
    stranger = rmq_cluster_factory(settings={"broker_name": "stranger"})
    port = int(stranger.broker("stranger").address.rpartition(":")[2])
    cluster = rmq_cluster_factory(settings={"address": f"127.0.0.2:{port}"})
    assert findings(cluster.namesrv, "broker-address") == []
    assert only_finding(cluster, "broker-answers")[0] == "problem"


def test_a_broker_name_without_a_master_is_a_problem(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.add_slave()
    cluster.fail_over()
    assert only_finding(cluster, "broker-master") == (
        "problem",
        "broker-a",
        "no master is registered, only the slaves 1",
    )


def test_what_only_a_master_tells_is_unknown_without_one(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_group("billing")
    cluster.add_slave("broker-b")
    cluster.fail_over("broker-b")
    reason = ("unknown", "broker-b", "no master is registered, only slaves")
    for name in (
        "topic-brokers",
        "topic-route",
        "transactions",
        "timer-backlog",
        "delay-backlog",
        "dispatch",
        "no-member",
        "consume-disabled",
    ):
        assert only_finding(cluster, name) == reason, name
    for name in ("disk", "clock-skew", "dead-letters"):
        assert findings(cluster.namesrv, name) == [], name


def test_brokers_of_other_versions_are_found(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    plant_runtime(cluster, "broker-b", brokerVersionDesc="V5_3_3")
    assert only_finding(cluster, "broker-version") == (
        "warning",
        "DefaultCluster",
        "5.3.3: broker-b; 5.5.0: broker-a",
    )


def test_settings_that_differ_are_found(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    plant_settings(cluster, "broker-b", maxMessageSize="1024")
    assert only_finding(cluster, "broker-settings") == (
        "warning",
        "DefaultCluster",
        "maxMessageSize differs: 1024 on broker-b; 4194304 on broker-a",
    )


@pytest.mark.parametrize(
    ("ahead_ms", "expected"),
    [
        (3_000, None),
        (30_000, "warning"),
        (-30_000, "warning"),
        (600_000, "problem"),
        (-600_000, "problem"),
    ],
)
def test_a_broker_s_clock_that_is_wrong_is_found(rmq_cluster, ahead_ms, expected):
    with open_client(rmq_cluster.namesrv) as client:
        boot_ms = client.clock.epoch_ms() + ahead_ms
    plant_runtime(
        rmq_cluster,
        bootTimestamp=str(boot_ms),
        runtime="[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
    )
    found = findings(rmq_cluster.namesrv, "clock-skew")
    assert [str(f.status) for f in found] == ([] if expected is None else [expected])


def test_a_broker_that_does_not_tell_its_time_is_unknown(rmq_cluster):
    plant_runtime(rmq_cluster, runtime="")
    assert only_finding(rmq_cluster, "clock-skew") == (
        "unknown",
        "broker-a",
        "it does not report its time",
    )


@pytest.mark.parametrize(
    ("up_s", "expected"), [(10, 0), (9, 0), (8, -1_000), (25, 5_000), (0, -9_000)]
)
def test_the_skew_of_a_clock_is_what_the_second_of_its_answer_proves(up_s, expected):
    """Asked at 10.5 s and answered at 20 s, of a broker that was started at 0 s."""
    runtime = {
        "bootTimestamp": "1000000000000",
        "runtime": f"[ 0 days, 0 hours, 0 minutes, {up_s} seconds ]",
    }
    found = clock_skew_ms(
        runtime, asked_ms=1_000_000_010_000, answered_ms=1_000_000_020_000
    )
    assert found == expected


def test_slaves_that_are_behind_or_gone_are_found(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    slave = cluster.add_slave()
    assert findings(cluster.namesrv, "slaves") == []
    plant_settings(cluster, haMaxGapNotInSync="100")
    cluster.create_topic("orders")
    slave.set_behind(1)
    cluster.send("orders", ["x" * 1000])
    found = findings(cluster.namesrv, "slaves")
    assert [(str(f.status), f.subject) for f in found] == [("problem", "broker-a:1")]
    assert "behind its master" in found[0].evidence


def test_a_registered_slave_that_copies_nothing_is_a_problem(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.add_slave()
    cluster.faults.add(
        faults.answer(0, body=b'{"master":true,"haConnectionInfo":[]}'),
        code=RequestCode.GET_BROKER_HA_STATUS,
    )
    assert only_finding(cluster, "slaves") == (
        "problem",
        "broker-a",
        "slaves that copy from it: 0 of 1 registered",
    )


def test_a_slave_out_of_sync_is_a_warning(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.add_slave()
    body = b'{"master":true,"inSyncSlaveNums":0,"haConnectionInfo":[{"addr":"a:1"}]}'
    cluster.faults.add(
        faults.answer(0, body=body), code=RequestCode.GET_BROKER_HA_STATUS
    )
    assert only_finding(cluster, "slaves")[0] == "warning"


@pytest.mark.parametrize("like", ["4.9.7", "5.5.0"])
def test_a_sync_master_alone_is_a_problem(rmq_cluster_factory, like):
    cluster = rmq_cluster_factory(like=like)
    plant_settings(cluster, brokerRole="SYNC_MASTER")
    status, _, evidence = only_finding(cluster, "slaves")
    assert (status, evidence) == (
        "problem",
        "it is a SYNC_MASTER, and no slave is in sync",
    )


def test_a_master_that_does_not_tell_its_slaves_is_unknown(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.add_slave()
    cluster.faults.add(faults.answer(1, "no"), code=RequestCode.GET_BROKER_HA_STATUS)
    status, subject, evidence = only_finding(cluster, "slaves")
    assert (status, subject) == ("unknown", "broker-a")
    assert evidence.startswith("its slaves: ")
    assert evidence.endswith("answered SYSTEM_ERROR: no")


@pytest.mark.parametrize(
    ("permission", "does"),
    [
        ("4", "is read only"),
        ("2", "is written only"),
        ("0", "is neither read nor written"),
    ],
)
def test_a_broker_that_is_not_read_or_written_is_a_warning(
    rmq_cluster, permission, does
):
    plant_settings(rmq_cluster, brokerPermission=permission)
    assert only_finding(rmq_cluster, "broker-permission") == (
        "warning",
        "broker-a",
        f"brokerPermission is {permission}: it {does}",
    )


def test_a_broker_whose_write_permission_was_wiped_is_a_problem(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders")
    assert findings(cluster.namesrv, "broker-permission") == []
    answer = raw.ask(cluster.namesrv, 205, {"brokerName": "broker-b"})
    assert answer.code == 0
    assert only_finding(cluster, "broker-permission") == (
        "problem",
        "broker-b",
        "the name server has no write permission for its only topic",
    )


@pytest.mark.parametrize(
    ("size", "head_ms", "expected"),
    [
        ("4999", "0", None),
        ("5000", "0", "warning"),
        ("8000", "0", "problem"),
        ("1", "200", "problem"),
        ("1", "199", None),
        ("0", "5000", None),  # nothing waits: the time is of an earlier request
    ],
)
def test_requests_that_wait_for_threads_are_found(rmq_cluster, size, head_ms, expected):
    plant_settings(rmq_cluster, waitTimeMillsInSendQueue="200")
    plant_runtime(
        rmq_cluster,
        sendThreadPoolQueueSize=size,
        sendThreadPoolQueueCapacity="10000",
        sendThreadPoolQueueHeadWaitTimeMills=head_ms,
    )
    found = findings(rmq_cluster.namesrv, "flow-control")
    assert [str(f.status) for f in found] == ([] if expected is None else [expected])


def test_a_pull_queue_that_is_full_is_found(rmq_cluster):
    plant_runtime(
        rmq_cluster,
        pullThreadPoolQueueSize="99000",
        pullThreadPoolQueueCapacity="100000",
    )
    assert only_finding(rmq_cluster, "flow-control") == (
        "problem",
        "broker-a",
        "99,000 of 100,000 requests wait for a pull thread, the first for 0ms",
    )


@pytest.mark.parametrize(
    ("lock_ms", "expected"), [("499", None), ("500", "warning"), ("1000", "problem")]
)
def test_a_busy_page_cache_is_found(rmq_cluster, lock_ms, expected):
    plant_runtime(rmq_cluster, pageCacheLockTimeMills=lock_ms)
    found = findings(rmq_cluster.namesrv, "page-cache")
    assert [str(f.status) for f in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("behind", "expected"),
    [(63 * MIB, None), (64 * MIB, "warning"), (1024 * MIB, "problem")],
)
def test_messages_that_are_not_dispatched_are_found(rmq_cluster, behind, expected):
    plant_runtime(rmq_cluster, dispatchBehindBytes=str(behind))
    found = findings(rmq_cluster.namesrv, "dispatch")
    assert [str(f.status) for f in found] == ([] if expected is None else [expected])


def test_a_broker_without_long_polling_is_found(rmq_cluster_factory):
    cluster = rmq_cluster_factory(settings={"long_polling_enable": False})
    (found,) = findings(cluster.namesrv, "long-polling")
    assert (str(found.status), found.subject) == ("warning", "broker-a")
    assert found.command == (
        "rmq broker config set longPollingEnable=true --broker broker-a"
    )


def test_a_broker_whose_timers_are_off_is_found(rmq_cluster):
    """Clients of a proxy received nothing from it, and doctor said that all was ok."""
    assert findings(rmq_cluster.namesrv, "timers") == []
    plant_settings(rmq_cluster, timerWheelEnable="false")
    (found,) = findings(rmq_cluster.namesrv, "timers")
    assert (str(found.status), found.subject) == ("warning", "broker-a")
    assert found.command == "rmq broker show broker-a --settings"


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("page-cache", "pageCacheLockTimeMills"),
        ("dispatch", "dispatchBehindBytes"),
        ("flow-control", "sendThreadPoolQueueSize"),
        ("disk", "commitLogDiskRatio"),
    ],
)
def test_what_a_broker_does_not_report_is_unknown(rmq_cluster, name, missing):
    changes = {missing: ""}
    if name == "disk":
        changes["consumeQueueDiskRatio"] = "-1.0"
    plant_runtime(rmq_cluster, **changes)
    assert only_finding(rmq_cluster, name)[0] == "unknown"


def test_settings_that_are_denied_are_unknown_with_the_reason(rmq_cluster):
    rmq_cluster.faults.add(
        faults.answer(16, "no rights"), code=RequestCode.GET_BROKER_CONFIG
    )
    status, subject, evidence = only_finding(rmq_cluster, "long-polling")
    assert (status, subject) == ("unknown", "broker-a")
    assert evidence.startswith("it does not show its settings: ")
    # A broker that asks for rights has access control.
    assert findings(rmq_cluster.namesrv, "access-control") == []


def test_each_request_is_sent_once_to_each_broker():
    """Also by all checks together, in a cluster without groups."""
    with EmbeddedCluster(brokers=2) as cluster:
        seen = cluster.faults.observe()
        with open_client(cluster.namesrv) as client:
            client.namesrv(get_broker_cluster_info())
            before = seen.seen
            diagnose(client)
        asked = [
            (
                each.broker,
                each.command.code,
                tuple(sorted(each.command.ext_fields.items())),
            )
            for each in list(seen.requests)[before:]
            if each.broker != "namesrv"
        ]
    repeated = {each[:2] for each in asked if asked.count(each) > 1}
    assert repeated <= REPEATED


#: Requests that the reading of lags repeats, whose order matters there.
REPEATED = {
    (name, code)
    for name in ("broker-a", "broker-b")
    for code in (
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_MAX_OFFSET,  # of the ends of transactions, twice
    )
}


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"inSyncReplicas": "1"}, "warning"),
        ({"inSyncReplicas": "1", "minInSyncReplicas": "1"}, "warning"),
        ({"inSyncReplicas": "2"}, "problem"),
        ({"inSyncReplicas": "1", "minInSyncReplicas": "2"}, "problem"),
    ],
)
def test_a_sync_master_alone_that_waits_for_no_slave_stores_on_one_disk(
    rmq_cluster, settings, status
):
    """From 5.0 on it waits for inSyncReplicas - 1 slaves, which is none by default."""
    plant_settings(rmq_cluster, brokerRole="SYNC_MASTER", **settings)
    (found,) = findings(rmq_cluster.namesrv, "slaves")
    assert str(found.status) == status
    assert ("SEND_OK" in found.meaning) == (status == "warning")


def test_a_replica_out_of_the_sync_state_set_is_named(rmq_cluster):
    address = rmq_cluster.namesrv
    plant_settings(rmq_cluster, enableControllerMode="true", controllerAddr=address)
    alive = {2: {"alive": False}, 3: {"alive": True}, 4: {}}
    replicas = [
        {"brokerName": "broker-a", "brokerId": n, "brokerAddress": f"h:{n}", **each}
        for n, each in alive.items()
    ]
    table = {"broker-a": {"inSyncReplicas": [], "notInSyncReplicas": replicas}}
    body = json.dumps({"replicasInfoTable": table}).encode()
    fields = {"controllerLeaderAddress": address}
    rmq_cluster.faults.add(faults.answer(0, ext_fields=fields), code=1005)
    rmq_cluster.faults.add(faults.answer(0, body=body), code=1006)
    assert only_finding(rmq_cluster, "slaves") == (
        "warning",
        "broker-a",
        "replicas that are not in its SyncStateSet: 2 (h:2, gone), 3 (h:3), 4 (h:4)",
    )
