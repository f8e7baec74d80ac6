"""A broker's runtime info becomes numbers, or None for what it does not report."""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.brokers import (
    BrokerRow,
    Replica,
    SyncState,
    ThreadPoolQueue,
    addresses_of_host,
    list_brokers,
)
from rmqcli.api.client import Client
from rmqcli.broker.faults import answer
from rmqcli.cli.broker import COLUMNS
from rmqcli.cli.ui.output import row_of
from rmqcli.config import ClientConfig
from rmqcli.errors import ConnectError
from rmqcli.model import BrokerData
from rmqcli.wire import fastjson
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import plant_settings
from tests.kit.waiting import wait_until
from tests.transport.peer import Peer, free_port


def brokers_saying(table):
    """Return the rows of a cluster whose master reports `table`; its slave is down."""
    gone = f"127.0.0.1:{free_port()}"
    cluster: dict[str, object] = {}

    def script(connection):
        for request in connection.requests():
            is_cluster = request.code == RequestCode.GET_BROKER_CLUSTER_INFO
            body = cluster if is_cluster else {"table": table}
            connection.answer(
                request, ext_fields={}, body=fastjson.dumps(body).encode()
            )

    with Peer(script) as peer:
        cluster |= {
            "brokerAddrTable": {
                "b-a": {
                    "brokerAddrs": {"0": peer.address, "1": gone},
                    "brokerName": "b-a",
                    "cluster": "C",
                }
            },
            "clusterAddrTable": {"C": ["b-a"]},
        }
        with Client(ClientConfig(namesrv=(peer.address,), timeout_ms=60_000)) as client:
            return list_brokers(client)


@pytest.mark.parametrize(
    ("table", "version", "out_tps", "disk"),
    [
        (
            {
                "brokerVersionDesc": "V5_3_3",
                "getTransferredTps": "1.5 2 3",
                "commitLogDiskRatio": "0.18",
            },
            "5.3.3",
            1.5,
            0.18,
        ),
        # 4.x spells the name like this, and reports -1 for a disk that it cannot read.
        (
            {
                "brokerVersionDesc": "V4_6_0",
                "getTransferedTps": "2.0 2 3",
                "commitLogDiskRatio": "-1.0",
            },
            "4.6.0",
            2.0,
            None,
        ),
        ({"getTransferredTps": " ", "commitLogDiskRatio": "NaN"}, None, None, None),
        ({"brokerVersionDesc": "V5_0_0_SNAPSHOT"}, "5.0.0-SNAPSHOT", None, None),
    ],
)
def test_a_row(table, version, out_tps, disk):
    master, slave = brokers_saying(table)
    assert (master.version, master.out_tps, master.commit_log_disk_ratio) == (
        version,
        out_tps,
        disk,
    )
    assert (master.role, slave.role) == ("MASTER", "SLAVE")
    assert slave.version is None
    assert isinstance(slave.error, ConnectError)


@pytest.mark.parametrize(
    ("log", "queues", "shown"),
    [
        ("0.43", "0.43", "43%"),
        ("0.2", "0.876", "88%"),
        ("0.9", "-1.0", "90%"),
        ("-1.0", "0.05", "5%"),
        ("0.0", "0.0", "0%"),
        ("1.0", "0.5", "100%"),
        ("-1.0", "NaN", None),
        ("1.2", "", None),
    ],
)
def test_the_fuller_disk_is_shown_as_a_percentage(log, queues, shown):
    table = {"commitLogDiskRatio": log, "consumeQueueDiskRatio": queues}
    master, slave = brokers_saying(table)
    assert row_of(COLUMNS, master)["disk"] == shown
    assert row_of(COLUMNS, slave)["disk"] is None


def test_ratios_stay_numbers_for_programs():
    table = {"commitLogDiskRatio": "0.12345", "consumeQueueDiskRatio": "0.5"}
    row = row_of(COLUMNS, brokers_saying(table)[0])
    assert (row["commit_log_disk_ratio"], row["consume_queue_disk_ratio"]) == (
        0.123,
        0.5,
    )


def rows_of(namesrv):
    with Client(ClientConfig(namesrv=(namesrv,))) as client:
        return list_brokers(client)


def test_a_master_shows_its_slaves_and_each_slave_how_far_it_is_behind(
    rmq_cluster_factory,
):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders")
    cluster.send("orders", ["x" * 100] * 10)
    cluster.add_slave()
    slow = cluster.add_slave(behind=4)
    master, quick, late = rows_of(cluster.namesrv)
    assert (master.slaves, master.slaves_in_sync, master.slaves_reason) == (2, 2, None)
    assert (master.behind_bytes, quick.behind_bytes) == (None, 0)
    assert late.behind_bytes > 400
    assert (late.slaves, late.slaves_in_sync) == (None, None)
    slow.kill()
    assert rows_of(cluster.namesrv)[0].slaves == 1


def test_a_slave_that_copies_nothing_is_counted_as_out_of_sync(rmq_cluster_factory):
    """Its master tells of connected slaves only."""
    cluster = rmq_cluster_factory()
    cluster.add_slave()
    cluster.add_slave()
    body = b'{"master":true,"inSyncSlaveNums":1,"haConnectionInfo":[{"addr":"a:1"}]}'
    cluster.faults.add(answer(0, body=body), code=RequestCode.GET_BROKER_HA_STATUS)
    master, *slaves = (row_of(COLUMNS, each) for each in rows_of(cluster.namesrv))
    names = ("in_sync", "slaves", "slaves_in_sync", "slaves_registered")
    assert [master[name] for name in names] == ["1/2", 1, 1, 2]
    assert [row["slaves_registered"] for row in slaves] == [None, None]


def test_a_broker_of_4_x_says_why_its_slaves_are_not_known(rmq_cluster_factory):
    cluster = rmq_cluster_factory(like="4.9.7")
    cluster.add_slave()
    master, slave = rows_of(cluster.namesrv)
    assert (master.slaves, master.slaves_in_sync) == (None, None)
    assert master.slaves_reason == "RocketMQ 4.9.7 does not report its slaves"
    assert slave.behind_bytes == 0  # both report where their logs end


def test_each_value_has_its_place():
    master, slave = brokers_saying(
        {
            "brokerVersionDesc": "V4_9_7",
            "putTps": "10.5 11 12",
            "getTransferredTps": "20.5 21 22",
            "commitLogDiskRatio": "0.25",
            "consumeQueueDiskRatio": "0.5",
            "bootTimestamp": "1700000000001",
            "earliestMessageTimeStamp": "1700000000002",
            "pageCacheLockTimeMills": "0",
            "sendThreadPoolQueueSize": "0",
            "sendThreadPoolQueueCapacity": "1",
            "pullThreadPoolQueueSize": "2",
            "pullThreadPoolQueueCapacity": "100000",
            "pullThreadPoolQueueHeadWaitTimeMills": "0",
            "dispatchBehindBytes": "0",
        }
    )
    assert master == BrokerRow(
        cluster="C",
        broker_name="b-a",
        broker_id=0,
        address=master.address,
        version="4.9.7",
        in_tps=10.5,
        out_tps=20.5,
        commit_log_disk_ratio=0.25,
        consume_queue_disk_ratio=0.5,
        boot_timestamp_ms=1_700_000_000_001,
        earliest_message_ms=1_700_000_000_002,
        page_cache_lock_ms=0,
        send_queue=ThreadPoolQueue(size=0, capacity=1),
        pull_queue=ThreadPoolQueue(size=2, capacity=100_000, head_wait_ms=0),
        dispatch_behind_bytes=0,
        slaves_reason=master.slaves_reason,
        slaves_registered=1,
    )
    assert slave == BrokerRow(
        cluster="C",
        broker_name="b-a",
        broker_id=1,
        address=slave.address,
        error=slave.error,
    )


def test_the_queues_of_thread_pools_are_read():
    row = brokers_saying(
        {
            "sendThreadPoolQueueSize": "7",
            "sendThreadPoolQueueCapacity": "10000",
            "sendThreadPoolQueueHeadWaitTimeMills": "150",
            "pullThreadPoolQueueSize": "1",
            "pageCacheLockTimeMills": "12",
            "dispatchBehindBytes": "-1",
            "earliestMessageTimeStamp": "-1",
        }
    )[0]
    assert row.send_queue == ThreadPoolQueue(size=7, capacity=10_000, head_wait_ms=150)
    assert row.pull_queue is None  # without its capacity the size says nothing
    assert row.page_cache_lock_ms == 12
    assert (row.dispatch_behind_bytes, row.earliest_message_ms) == (None, None)


@pytest.mark.java
def test_real_brokers_report_slaves_from_5_0_on(real_cluster):
    """Other tests send to the broker, too, but not all the time."""

    def idle():
        (row,) = rows_of(real_cluster.namesrv)
        is_idle = (row.send_queue.size, row.page_cache_lock_ms) == (0, 0)
        return row if is_idle else None

    row = wait_until(idle)
    if real_cluster.version == "4.6.0":
        assert row.slaves_reason == "RocketMQ 4.6.0 does not report its slaves"
    else:
        assert (row.slaves, row.slaves_in_sync, row.slaves_reason) == (0, 0, None)
    assert row.send_queue.capacity == 10_000


@pytest.mark.parametrize(
    ("addresses", "host", "found"),
    [
        (["10.0.0.1:10911", "10.0.0.2:10911"], "10.0.0.2:10911", ["10.0.0.2:10911"]),
        (["10.0.0.1:10911"], "10.0.0.1:10912", []),
        (["[fe80::1]:10911"], "[fe80:0:0:0:0:0:0:1]:10911", ["[fe80::1]:10911"]),
        (["[fe80::2]:10911"], "[fe80:0:0:0:0:0:0:1]:10911", []),
        # What a name stands for is not known here: the record states its host.
        (["broker-a.example:10911"], "10.0.0.1:10911", ["broker-a.example:10911"]),
        (["broker-a.example:10911"], "10.0.0.1:10912", []),
    ],
)
def test_the_host_of_an_offset_id_is_found_among_the_addresses_of_a_broker(
    addresses, host, found
):
    broker = BrokerData(
        cluster="c", broker_name="a", addresses=dict(enumerate(addresses))
    )
    assert addresses_of_host(broker, host) == found


KNOWN = {
    "replicasInfoTable": {
        "broker-a": {
            "masterBrokerId": 3,
            "masterAddress": "10.0.0.3:10911",
            "masterEpoch": 7,
            "syncStateSetEpoch": 12,
            "inSyncReplicas": [
                {
                    "brokerName": "broker-a",
                    "brokerId": 3,
                    "brokerAddress": "10.0.0.3:10911",
                    "alive": True,
                },
                {"brokerName": "broker-a", "brokerId": 1},
            ],
            "notInSyncReplicas": [
                {
                    "brokerName": "broker-a",
                    "brokerId": 2,
                    "brokerAddress": "10.0.0.2:10911",
                    "alive": False,
                }
            ],
        }
    }
}


def controlled(cluster, *, leader="", known=None, **settings):
    """Return the row of a cluster whose name server plays a controller."""
    plant_settings(
        cluster,
        **{
            "enableControllerMode": "true",
            "controllerAddr": f" 127.0.0.1:1; {cluster.namesrv};",
            **settings,
        },
    )
    led = {"controllerLeaderAddress": leader} if leader else {}
    cluster.faults.add(answer(0, ext_fields={"isLeader": "true", **led}), code=1005)
    body = json.dumps(KNOWN if known is None else known).encode()
    cluster.faults.add(answer(0, body=body), code=1006)
    with Client(ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=60_000)) as client:
        (row,) = list_brokers(client)
    return row


def test_the_replicas_that_a_controller_knows_are_listed(rmq_cluster):
    row = controlled(rmq_cluster, leader=rmq_cluster.namesrv)
    assert row.sync_state == SyncState(
        master_epoch=7,
        sync_state_set_epoch=12,
        in_sync=(
            Replica(broker_id=1, address="", is_alive=None),
            Replica(broker_id=3, address="10.0.0.3:10911", is_alive=True),
        ),
        not_in_sync=(Replica(broker_id=2, address="10.0.0.2:10911", is_alive=False),),
    )
    assert row.sync_state_reason is None
    assert (row.slaves, row.slaves_in_sync) == (0, 0)
    shown = row_of(COLUMNS, row)
    assert shown["in_sync"] == "1/2"
    assert shown["sync_state"]["not_in_sync"] == (
        {"broker_id": 2, "address": "10.0.0.2:10911", "is_alive": False},
    )


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"leader": ""}, "cannot connect to 127.0.0.1:1"),
        ({"leader": "127.0.0.1:1"}, "cannot connect to 127.0.0.1:1"),
        ({"leader": "no address"}, "'no address'"),
        ({"known": {}, "leader": None}, "does not know it"),
        ({"known": {"replicasInfoTable": 1}, "leader": None}, "replicasInfoTable"),
        ({"controllerAddr": ""}, "no controller leads"),
    ],
)
def test_why_a_controller_tells_nothing(rmq_cluster, told, reason):
    if told.get("leader", "") is None:
        told = {**told, "leader": rmq_cluster.namesrv}
    row = controlled(rmq_cluster, **told)
    assert row.sync_state is None
    assert reason in row.sync_state_reason
    assert row.error is None


def test_a_broker_that_shows_no_settings_may_have_a_controller(rmq_cluster):
    rmq_cluster.faults.add(answer(16, "no"), code=RequestCode.GET_BROKER_CONFIG)
    with Client(
        ClientConfig(namesrv=(rmq_cluster.namesrv,), timeout_ms=60_000)
    ) as client:
        (row,) = list_brokers(client)
    assert row.sync_state_reason is not None
    assert row.sync_state_reason.startswith("its settings were not shown: ")


def test_a_broker_without_a_controller_needs_no_reason(rmq_cluster):
    row = controlled(rmq_cluster, enableControllerMode="false")
    assert (row.sync_state, row.sync_state_reason) == (None, None)
    assert row_of(COLUMNS, row)["in_sync"] == "0/0"
