"""The values of the metrics: those of `rmq lag`, and absent where not known."""

from __future__ import annotations

import threading

import pytest

from rmqcli import Admin, Consumer
from rmqcli.admin.lag.memory import open_memory
from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.exporter.collect import CollectorOptions
from rmqcli.exporter.run import Exporter
from rmqcli.exporter.site import MetricsSite
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.bodies.consumer import ConsumerRunningInfo, ProcessQueueInfo
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import (
    heartbeat,
    plant_runtime,
    plant_settings,
)
from tests.exporter.pages import Scrapes, values_of
from tests.kit.waiting import PATIENCE_S
from tests.transport.peer import free_port

START_MS = 1_767_322_800_000


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def commit(cluster, group, offsets, *, topic="orders", broker="broker-a"):
    committed = cluster.broker(broker).state.offsets

    def write():
        for queue_id, offset in offsets.items():
            committed.commit(group, topic, queue_id, offset)

    cluster.call(write)


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Two queues with three messages, of which group `billing` has consumed one."""
    cluster = rmq_cluster_factory(clock=ManualClock(now_ms=START_MS))
    cluster.create_topic("orders", queues=2)
    cluster.create_group("billing")
    for queue_id in (0, 0, 1):
        cluster.send("orders", ["x"], queue_id=queue_id)
    commit(cluster, "billing", {0: 1, 1: 1})
    return cluster


@pytest.fixture
def two_brokers(rmq_cluster_factory):
    """Two brokers with a queue of one unread message each."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    for name in ("broker-a", "broker-b"):
        cluster.create_group("billing")
        cluster.send("orders", ["x"], broker=name)
        commit(cluster, "billing", {0: 0}, broker=name)
    return cluster


def about(values, metric):
    """The values of one metric, by the rest of the key."""
    return {key[1:]: value for key, value in values.items() if key[0] == metric}


def test_rocketmq_s_own_groups_have_no_values(cluster):
    commit(cluster, "CID_RMQ_SYS_TRANS", {0: 1})
    with Scrapes(cluster.namesrv) as scrapes:
        labels = {label for key in scrapes.collect() for label in key[1:]}
    assert "billing" in labels
    assert "CID_RMQ_SYS_TRANS" not in labels


def test_lag_age_and_losses_are_per_queue_topic_and_group(cluster):
    plant_settings(cluster, fileReservedTime="72")
    cluster.advance(36 * 3_600_000)
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    kept_for = about(values, "rocketmq_broker_retention_seconds")
    assert list(kept_for.values()) == [259_200]
    of_queue = ("broker-a", "DefaultCluster", "billing", "0", "orders")
    for metric, of_group, of_the_queue in (
        ("lag_messages", 1, 1),
        ("age_seconds", 129_600, 129_600),
        ("retention_ratio", 0.5, 0.5),
        ("lost_messages", 0, 0),
    ):
        assert values[f"rocketmq_group_{metric}", "billing"] == of_group
        assert values[f"rocketmq_group_queue_{metric}", *of_queue] == of_the_queue
    idle = ("broker-a", "DefaultCluster", "billing", "1", "orders")
    assert values["rocketmq_group_queue_lag_messages", *idle] == 0
    assert values["rocketmq_group_queue_age_seconds", *idle] == 0
    assert values["rocketmq_group_diff", "billing", "orders"] == 1
    assert values["rocketmq_group_dlqdiff", "billing", "%DLQ%billing"] == 0
    assert values["rocketmq_group_count", "billing"] == 0
    assert values["rocketmq_group_state", "billing", "STOPPED"] == 1
    place = ("broker-a", "DefaultCluster", "billing", "orders")
    assert values["rocketmq_consumer_offset", *place] == 2
    assert values["rocketmq_producer_offset", *place[:2], "orders"] == 3
    latency = values["rocketmq_group_get_latency_by_storetime_seconds", *place]
    assert latency == 129_600
    assert scrapes.errors == {}


def test_messages_in_a_retry_topic_are_told_apart(cluster):
    cluster.create_topic("%RETRY%billing", queues=1)
    for _ in range(3):
        cluster.send("%RETRY%billing", ["x"], queue_id=0)
    commit(cluster, "billing", {0: 1}, topic="%RETRY%billing")
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert about(values, "rocketmq_group_diff") == {("billing", "orders"): 1}
    assert about(values, "rocketmq_group_retrydiff") == {
        ("billing", "%RETRY%billing"): 2
    }


def test_the_retention_ratio_of_what_has_just_been_stored_is_not_0(cluster):
    plant_settings(cluster, fileReservedTime="72")
    cluster.advance(6)
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    ratio = values["rocketmq_group_retention_ratio", "billing"]
    assert ratio == pytest.approx(6 / 259_200_000)


def test_messages_that_retention_deleted_unread_are_lost(cluster):
    commit(cluster, "billing", {0: 0, 1: 0})
    cluster.broker().trim("orders", 2)
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert values["rocketmq_group_lost_messages", "billing"] == 3
    assert values["rocketmq_group_lag_messages", "billing"] == 0


def test_what_is_not_known_is_absent_and_never_0(cluster):
    cluster.create_group("new")
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert values["rocketmq_group_state", "new", "NO_COMMIT"] == 1
    assert ("rocketmq_group_lag_messages", "new") not in values
    assert ("rocketmq_group_age_seconds", "new") not in values
    assert values["rocketmq_group_count", "new"] == 0  # nobody is online: that is known
    # Nothing was read twice yet.
    assert about(values, "rocketmq_group_out_tps") == {}
    assert ("rocketmq_group_retention_ratio", "billing") not in values  # not shown


def test_rates_need_two_collections_that_are_far_enough_apart(cluster):
    with Scrapes(cluster.namesrv) as scrapes:
        scrapes.collect()
        cluster.send("orders", ["x"] * 400, queue_id=1)
        commit(cluster, "billing", {0: 2, 1: 200})
        scrapes.clock.ahead_ms += 200_000
        values = scrapes.collect()
    assert values["rocketmq_group_in_tps", "billing"] == pytest.approx(2, abs=0.2)
    assert values["rocketmq_group_out_tps", "billing"] == pytest.approx(1, abs=0.1)
    place = ("broker-a", "DefaultCluster")
    assert values["rocketmq_producer_tps", *place, "orders"] == pytest.approx(
        2, abs=0.2
    )
    consumed = pytest.approx(1, abs=0.1)
    assert values["rocketmq_group_consume_tps", *place, "billing", "orders"] == consumed
    of_queues = about(values, "rocketmq_group_queue_out_tps")
    assert {key[3]: value for key, value in of_queues.items()} == {
        "0": pytest.approx(0.005, abs=0.001),
        "1": pytest.approx(0.995, abs=0.1),
    }


def test_a_topic_keeps_its_rate_when_another_group_is_new(cluster):
    with Scrapes(cluster.namesrv) as scrapes:
        scrapes.collect()
        cluster.send("orders", ["x"] * 400, queue_id=1)
        for group in ("a-new", "z-new"):
            cluster.create_group(group)
            commit(cluster, group, {0: 2, 1: 401})
        scrapes.clock.ahead_ms += 200_000
        values = scrapes.collect()
    rates = about(values, "rocketmq_producer_tps")
    assert rates == {
        ("broker-a", "DefaultCluster", "orders"): pytest.approx(2, abs=0.2)
    }
    assert ("rocketmq_group_in_tps", "z-new") not in values


def test_a_group_that_has_read_everything_has_an_age_of_0(cluster):
    commit(cluster, "billing", {0: 2, 1: 1})
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert about(values, "rocketmq_group_age_seconds") == {("billing",): 0}
    place = ("broker-a", "DefaultCluster", "billing", "orders")
    assert values["rocketmq_group_get_latency_by_storetime_seconds", *place] == 0


def test_a_reset_to_an_earlier_offset_is_not_a_negative_rate(cluster):
    with Scrapes(cluster.namesrv) as scrapes:
        scrapes.collect()
        commit(cluster, "billing", {0: 0, 1: 0})
        scrapes.clock.ahead_ms += 20_000
        values = scrapes.collect()
    assert ("rocketmq_group_out_tps", "billing") not in values
    assert values["rocketmq_group_state", "billing", "REWOUND"] == 1


def test_a_group_that_is_deleted_vanishes_at_once(cluster):
    with Scrapes(cluster.namesrv) as scrapes:
        assert any("billing" in key for key in scrapes.collect())
        with Admin(namesrv=cluster.namesrv) as admin:
            admin.delete_group("billing", remove_offsets=True)
        assert [key for key in scrapes.collect() if "billing" in key] == []


def test_a_broker_has_the_values_that_it_reports(cluster):
    plant_runtime(
        cluster,
        brokerVersionDesc="V5_3_3",
        putTps="10.5 11 12",
        getTransferredTps="20.5 21 22",
        commitLogDiskRatio="0.25",
        consumeQueueDiskRatio="0.5",
        dispatchBehindBytes="7",
        sendThreadPoolQueueSize="2",
        sendThreadPoolQueueCapacity="300",
        sendThreadPoolQueueHeadWaitTimeMills="1500",
        pullThreadPoolQueueSize="4",
        pullThreadPoolQueueCapacity="500",
        pullThreadPoolQueueHeadWaitTimeMills="2500",
        pageCacheLockTimeMills="3500",
        earliestMessageTimeStamp="1700000000002",
        bootTimestamp="1700000000001",
    )
    plant_settings(cluster, fileReservedTime="48")
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    place = ("broker-a", cluster.broker().address, "DefaultCluster")
    assert values["rocketmq_broker_up", *place] == 1
    assert values["rocketmq_broker_info", *place, "MASTER", "5.3.3"] == 1
    began_at = values["rocketmq_exporter_last_collection_timestamp_seconds",]
    found = {key[0]: value for key, value in values.items() if key[1:] == place}
    assert found == {
        "rocketmq_broker_up": 1,
        "rocketmq_broker_tps": 10.5,
        "rocketmq_broker_qps": 20.5,
        "rocketmq_brokeruntime_commitlog_disk_ratio": 0.25,
        "rocketmq_brokeruntime_consumequeue_disk_ratio": 0.5,
        "rocketmq_brokeruntime_dispatch_behind_bytes": 7,
        "rocketmq_brokeruntime_send_threadpool_queue_size": 2,
        "rocketmq_brokeruntime_send_threadpoolqueue_capacity": 300,
        "rocketmq_brokeruntime_send_threadpoolqueue_headwait_seconds": 1.5,
        "rocketmq_brokeruntime_pull_threadpoolqueue_size": 4,
        "rocketmq_brokeruntime_pull_threadpoolqueue_capacity": 500,
        "rocketmq_brokeruntime_pull_threadpoolqueue_headwait_seconds": 2.5,
        "rocketmq_brokeruntime_pagecache_lock_time_seconds": 3.5,
        "rocketmq_brokeruntime_earliest_message_timestamp_seconds": 1_700_000_000.002,
        "rocketmq_broker_boot_timestamp_seconds": 1_700_000_000.001,
        "rocketmq_broker_slaves": 0,
        "rocketmq_broker_slaves_in_sync": 0,
        "rocketmq_broker_retention_seconds": 172_800,
        "rocketmq_broker_timestamp_seconds": began_at,
    }


def test_a_slave_has_values_of_its_own_and_is_named_when_it_is_silent(cluster):
    slave = cluster.add_slave(behind=1)
    with Scrapes(cluster.namesrv, timeout_ms=1_000) as scrapes:
        values = scrapes.collect()
        slave.hang()
        silent = scrapes.collect()
    place = ("broker-a", slave.address, "DefaultCluster")
    assert values["rocketmq_broker_info", *place, "SLAVE", "5.5.0"] == 1
    (behind_bytes,) = about(values, "rocketmq_broker_commitlog_diff").values()
    assert values["rocketmq_broker_commitlog_diff", *place] == behind_bytes > 0
    assert list(about(values, "rocketmq_broker_slaves").values()) == [1]
    assert silent["rocketmq_broker_up", *place] == 0
    assert ("rocketmq_broker_info", *place, "SLAVE", "5.5.0") not in silent
    assert list(scrapes.errors) == ["broker-a:1"]


def test_names_choose_groups_and_so_do_globs(cluster):
    cluster.create_group("shipping")
    for chosen in (("billing",), ("bill*",)):
        with Scrapes(cluster.namesrv, groups=chosen) as scrapes:
            groups = {key[1] for key in scrapes.collect() if key[0].endswith("_state")}
            assert groups == {"billing"}
    with Scrapes(cluster.namesrv, groups=("nobody",)) as scrapes:
        values = scrapes.collect()
        assert about(values, "rocketmq_group_state") == {}
        assert scrapes.errors == {}


HOSTILE = 'a"\\\n\x1b[31m\x00\u202eb'


def test_a_hostile_name_of_a_group_breaks_neither_the_page_nor_a_terminal(cluster):
    commit(cluster, HOSTILE, {0: 1, 1: 1})
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    shown = 'a"\\\\n\\x1b[31m\\x00\\u202eb'
    assert values["rocketmq_group_lag_messages", shown] == 1
    assert values["rocketmq_group_lag_messages", "billing"] == 1


@pytest.mark.slow
def test_values_of_a_silent_broker_age_and_then_vanish_and_others_go_on(two_brokers):
    on_a = ("broker-a", "DefaultCluster", "billing", "0", "orders")
    on_b = ("broker-b", "DefaultCluster", "billing", "0", "orders")
    lag, of_group = "rocketmq_group_queue_lag_messages", "rocketmq_group_lag_messages"
    read_at = "rocketmq_broker_queues_timestamp_seconds"
    with Scrapes(
        two_brokers.namesrv, timeout_ms=1_000, stale_after_ms=90_000
    ) as scrapes:
        before = scrapes.collect()
        assert before[of_group, "billing"] == 2
        group_read_at = ("rocketmq_group_timestamp_seconds", "billing")
        for name in ("broker-a", "broker-b"):
            assert 0 <= before[group_read_at] - before[read_at, name] < PATIENCE_S
        two_brokers.broker("broker-b").hang()
        two_brokers.send("orders", ["x"], broker="broker-a")
        scrapes.clock.ahead_ms += 60_000
        kept = scrapes.collect()
        assert kept[lag, *on_a] == 2
        assert kept[lag, *on_b] == 1
        assert kept[of_group, "billing"] == 2  # as it was read, and when:
        assert kept[read_at, "broker-b"] == before[read_at, "broker-b"]
        assert kept[read_at, "broker-a"] >= before[read_at, "broker-a"] + 60
        assert kept[group_read_at] == before[group_read_at]
        assert kept["rocketmq_group_state", "billing", "UNKNOWN"] == 1
        assert kept["rocketmq_group_diff", "billing", "orders"] == 2
        place = ("broker-b", "DefaultCluster")
        assert kept["rocketmq_consumer_offset", *place, "billing", "orders"] == 0
        assert kept["rocketmq_producer_offset", *place, "orders"] == 1
        kept_of = {key[0] for key in about(kept, "rocketmq_broker_tps")}
        assert kept_of == {"broker-a", "broker-b"}
        up = {key[0]: value for key, value in about(kept, "rocketmq_broker_up").items()}
        assert up == {"broker-a": 1, "broker-b": 0}
        assert set(scrapes.errors) == {"broker-b"}

        scrapes.clock.ahead_ms += 60_000
        gone = scrapes.collect()
        assert gone[lag, *on_a] == 2
        assert (lag, *on_b) not in gone
        assert (of_group, "billing") not in gone
        assert gone["rocketmq_group_lag_at_least_messages", "billing"] == 2
        assert (read_at, "broker-b") not in gone
        names = {key[0] for key in about(gone, "rocketmq_broker_tps")}
        assert names == {"broker-a"}

        two_brokers.broker("broker-b").resume()
        again = scrapes.collect()
        assert again[of_group, "billing"] == 3
        assert scrapes.errors == {}


@pytest.mark.slow
def test_a_total_is_not_kept_when_more_is_known_by_now(two_brokers):
    with Scrapes(two_brokers.namesrv, timeout_ms=1_000) as scrapes:
        scrapes.collect()
        two_brokers.broker("broker-b").hang()
        two_brokers.send("orders", ["x"] * 5, broker="broker-a")
        values = scrapes.collect()
    assert ("rocketmq_group_lag_messages", "billing") not in values
    assert values["rocketmq_group_lag_at_least_messages", "billing"] == 6


def test_a_cluster_that_goes_down_keeps_its_values_until_they_are_stale(cluster):
    with Scrapes(cluster.namesrv, timeout_ms=1_000) as scrapes:
        before = scrapes.collect()
        cluster.close()
        down = scrapes.collect()
        for metric in (
            "rocketmq_group_lag_messages",
            "rocketmq_group_timestamp_seconds",
            "rocketmq_group_diff",
            "rocketmq_group_queue_lag_messages",
            "rocketmq_broker_queues_timestamp_seconds",
            "rocketmq_broker_tps",
        ):
            assert about(before, metric)
            assert about(down, metric) == about(before, metric)
        assert down["rocketmq_group_state", "billing", "UNKNOWN"] == 1
        assert about(down, "rocketmq_broker_up") == {}  # nobody tells
        scrapes.clock.ahead_ms += 91_000
        gone = scrapes.collect()
    began_at = before["rocketmq_exporter_last_collection_timestamp_seconds",]
    read_at = before["rocketmq_group_timestamp_seconds", "billing"]
    assert 0 <= read_at - began_at < PATIENCE_S
    for values, collections, failures in ((before, 1, 0), (down, 2, 1), (gone, 3, 2)):
        of_exporter = {
            key[0].removeprefix("rocketmq_exporter_"): value
            for key, value in values.items()
            if key[0].startswith("rocketmq_exporter_")
        }
        assert of_exporter.pop("collection_duration_seconds") >= 0
        assert of_exporter.pop("groups", None) == (1 if values is before else None)
        assert of_exporter == {
            "collections_total": collections,
            "failed_collections_total": failures,
            "last_collection_success": float(values is before),
            "last_collection_timestamp_seconds": began_at,
            "interval_seconds": 30,
            "stale_after_seconds": 90,
        }
    assert [key for key in gone if not key[0].startswith("rocketmq_exporter_")] == []
    assert "connection refused" in scrapes.errors["name servers"]


def test_pages_for_when_no_collection_ends_tell_that_nothing_is_read(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        run = Exporter(client, CollectorOptions()).collect()
    values = values_of(run.stale_pages)
    assert values["rocketmq_exporter_last_collection_success",] == 0
    assert values["rocketmq_exporter_collections_total",] == 1
    assert [key for key in values if not key[0].startswith("rocketmq_exporter_")] == []


def test_a_collection_begins_with_each_interval(cluster):
    """One that takes longer ends first, and the next interval is waited for."""
    clock, stop = ManualClock(now_ms=START_MS), threading.Event()
    site = MetricsSite(clock, stale_after_ms=90_000)
    durations_ms = [0, 10_000, 30_001, 70_000, 0]
    began_ms, readiness = [], []

    def on_collection(run):
        began_ms.append(clock.now_ms - START_MS)
        readiness.append(site.answer("/readyz", "").status)
        clock.advance(durations_ms[len(began_ms) - 1])
        if len(began_ms) == len(durations_ms):
            stop.set()

    with Client(ClientConfig(namesrv=(cluster.namesrv,)), clock=clock) as client:
        Exporter(client, CollectorOptions(interval_ms=30_000)).run(
            site, on_collection, stop
        )
    assert began_ms == [0, 30_000, 60_000, 120_000, 210_000]
    assert readiness == [200] * 5


def test_a_collection_that_read_nothing_does_not_make_the_site_ready():
    stop = threading.Event()
    site = MetricsSite(SYSTEM_CLOCK, stale_after_ms=90_000)
    answers = []

    def on_collection(run):
        answers.append(site.answer("/readyz", "").data)
        stop.set()

    unknown = ClientConfig(namesrv=(f"127.0.0.1:{free_port()}",))
    with Client(unknown) as client:
        Exporter(client, CollectorOptions()).run(site, on_collection, stop)
    assert answers == [b"nothing has been read from the cluster yet\n"]


def test_a_broker_that_left_the_route_is_down_and_its_groups_are_not_known(two_brokers):
    with Scrapes(two_brokers.namesrv, timeout_ms=1_000) as scrapes:
        scrapes.collect()
        two_brokers.broker("broker-b").close()
        values = scrapes.collect()
        assert {key[0] for key in about(values, "rocketmq_broker_tps")} == {"broker-a"}
        lags = about(values, "rocketmq_group_queue_lag_messages")
        assert {key[0] for key in lags} == {"broker-a", "broker-b"}
        scrapes.clock.ahead_ms += 120_000
        values = scrapes.collect()
    assert values["rocketmq_broker_up", "broker-b", "", ""] == 0
    assert ("rocketmq_group_lag_messages", "billing") not in values
    assert ("rocketmq_group_count", "billing") not in values  # it was 0
    assert values["rocketmq_group_state", "billing", "UNKNOWN"] == 1


@pytest.mark.slow
def test_a_group_that_is_forgotten_while_a_broker_is_silent_vanishes(two_brokers):
    """Until then the silent broker may still have the group, which was deleted."""
    commit(two_brokers, "shipping", {0: 0}, broker="broker-b")
    with Scrapes(two_brokers.namesrv, timeout_ms=1_000) as scrapes:
        scrapes.collect()
        two_brokers.broker("broker-b").hang()
        on_b = ("broker-b", "DefaultCluster", "shipping", "0", "orders")
        assert ("rocketmq_group_queue_lag_messages", *on_b) in scrapes.collect()
        memory = open_memory(scrapes.client)
        assert memory is not None
        memory.forget()
        values = scrapes.collect()
    assert [key for key in values if "shipping" in key] == []
    lags = about(values, "rocketmq_group_queue_lag_messages")
    assert {(key[0], key[2]) for key in lags} == {
        ("broker-a", "billing"),
        ("broker-b", "billing"),
    }


def test_one_group_that_a_broker_refuses_is_not_known_and_others_are(cluster):
    cluster.create_group("shipping")
    commit(cluster, "shipping", {0: 1, 1: 1})
    cluster.faults.add(
        faults.answer(1, remark="no"),
        code=RequestCode.GET_CONSUMER_CONNECTION_LIST,
        group="billing",
    )
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert about(values, "rocketmq_group_lag_messages") == {("shipping",): 1}
    assert values["rocketmq_exporter_last_collection_success",] == 0
    assert list(scrapes.errors) == ["groups"]
    assert scrapes.errors["groups"].startswith("broker-a: billing: ")


def test_a_collection_that_lacks_a_denied_topic_is_no_success(cluster):
    """It was one, and --once exited with 0, though the lag of groups was not known."""
    denied = faults.answer(16, "no rights")
    cluster.faults.add(denied, code=RequestCode.GET_TOPIC_STATS_INFO, topic="orders")
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert about(values, "rocketmq_group_lag_messages") == {}
    assert values["rocketmq_exporter_last_collection_success",] == 0
    assert list(scrapes.errors) == ["groups"]
    assert scrapes.errors["groups"].startswith("broker-a: billing: stats of topic ord")


@pytest.mark.parametrize(
    ("metric", "code", "topic", "about", "said"),
    [
        (
            "rocketmq_group_count",
            None,
            "DefaultHeartBeatSyncerTopic",
            "groups",
            "billing: members behind proxies are not known: broker-a: ",
        ),
        (
            "rocketmq_group_dlqdiff",
            RequestCode.GET_TOPIC_STATS_INFO,
            "%DLQ%billing",
            "groups",
            "billing: broker-a: stats of topic %DLQ%billing: ",
        ),
        (
            "rocketmq_group_retention_ratio",
            RequestCode.GET_BROKER_CONFIG,
            None,
            "settings of broker-a",
            "broker settings: ",
        ),
    ],
    ids=["members", "dead letters", "settings"],
)
def test_a_collection_that_was_denied_a_value_is_no_success(
    cluster, metric, code, topic, about, said
):
    """The value was absent, and nothing said why: --once exited with 0."""
    cluster.create_topic("%DLQ%billing")
    with Scrapes(cluster.namesrv) as scrapes:
        scrapes.collect()
        assert scrapes.errors == {}
    cluster.faults.add(faults.answer(16, "no rights"), code=code, topic=topic)
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert not any(key[0] == metric for key in values)
    assert values["rocketmq_exporter_last_collection_success",] == 0
    assert list(scrapes.errors) == [about]
    assert scrapes.errors[about].startswith(said)


def test_groups_that_no_broker_tells_are_not_0(cluster):
    cluster.faults.add(
        faults.answer(1, remark="no"), code=RequestCode.GET_ALL_CONSUMER_OFFSET
    )
    with Scrapes(cluster.namesrv) as scrapes:
        values = scrapes.collect()
    assert ("rocketmq_exporter_groups",) not in values
    assert values["rocketmq_exporter_last_collection_success",] == 0


def test_members_tell_what_they_have_cached(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["x"] * 10, queue_id=0)
    called, go_on = threading.Event(), threading.Event()

    def wait(_message):
        called.set()
        go_on.wait()

    consumer = Consumer(
        "billing",
        {"orders": "*"},
        wait,
        namesrv=cluster.namesrv,
        consume_from="earliest",
    )
    with consumer, Scrapes(cluster.namesrv, process_queues=True) as scrapes:
        try:
            assert called.wait(PATIENCE_S)
            found = scrapes.collect()
        finally:
            go_on.set()
    (key,) = (
        key
        for key in about(found, "rocketmq_client_queue_span_messages")
        if key[-1] == "orders"
    )
    assert (key[0], key[3:]) == ("broker-a", ("billing", "0", "orders"))
    assert found["rocketmq_client_queue_span_messages", *key] == 9
    assert found["rocketmq_client_queue_cached_messages", *key] == 10
    assert found["rocketmq_client_queue_span_limit_messages", *key] == 2_000
    assert found["rocketmq_client_queue_flow_control", *key] == 0
    assert found["rocketmq_client_up", key[1], "billing"] == 1
    assert found["rocketmq_group_count", "billing"] == 1


@pytest.mark.parametrize("is_orderly", [False, True])
def test_what_is_wrong_with_a_queue_that_a_member_holds_is_told(cluster, is_orderly):
    """A third queue was taken away from the member: it says nothing about the group."""
    held = {
        0: ProcessQueueInfo(cached_msg_count=1_001, last_consume_timestamp=2**50),
        1: ProcessQueueInfo(cached_msg_count=1, cached_msg_max_offset=3),
        2: ProcessQueueInfo(droped=True),
    }
    info = ConsumerRunningInfo(
        properties={
            "PROP_CONSUMEORDERLY": str(is_orderly).lower(),
            "consumeConcurrentlyMaxSpan": "77",
        },
        process_queues={
            MessageQueue("orders", "broker-a", queue_id): each
            for queue_id, each in held.items()
        },
    )
    cluster.faults.add(
        faults.answer(0, body=encode_body(info)),
        code=RequestCode.GET_CONSUMER_RUNNING_INFO,
    )
    with Scrapes(cluster.namesrv, process_queues=True) as scrapes:
        heartbeat(scrapes.client, "billing", "172.17.0.2@1")
        values = scrapes.collect()
    assert about(values, "rocketmq_client_up") == {("172.17.0.2@1", "billing"): 1}
    found = {
        queue_id: {
            key[0].removeprefix("rocketmq_client_queue_"): value
            for key, value in values.items()
            if key[1:]
            == (*place[:1], "172.17.0.2@1", *place[1:], "billing", queue_id, "orders")
        }
        for place in [("broker-a", "DefaultCluster")]
        for queue_id in ("0", "1", "2")
    }
    limit = {} if is_orderly else {"span_limit_messages": 77}
    assert found == {
        "0": {
            "span_messages": 0,
            **limit,
            "cached_messages": 1_001,
            "flow_control": 1,
            "stuck": 0,
        },
        "1": {
            "span_messages": 3,
            **limit,
            "cached_messages": 1,
            "flow_control": 0,
            "stuck": 1,
        },
        "2": {},
    }


def test_a_member_that_does_not_answer_is_down(cluster):
    cluster.faults.add(
        faults.answer(1, "no"), code=RequestCode.GET_CONSUMER_RUNNING_INFO
    )
    with Scrapes(cluster.namesrv, process_queues=True) as scrapes:
        heartbeat(scrapes.client, "billing", "172.17.0.2@1")
        values = scrapes.collect()
    assert about(values, "rocketmq_client_up") == {("172.17.0.2@1", "billing"): 0}
    assert about(values, "rocketmq_client_queue_span_messages") == {}
    assert values["rocketmq_group_lag_messages", "billing"] == 1


def test_messages_in_flight_are_those_that_members_have_pulled(cluster):
    pulled = cluster.broker().state.offsets

    def pull():
        pulled.commit_pull("billing", "orders", 0, 2)
        pulled.commit_pull("billing", "orders", 1, 1)

    cluster.call(pull)
    with Scrapes(cluster.namesrv) as scrapes:
        assert about(scrapes.collect(), "rocketmq_group_in_flight_messages") == {}
        heartbeat(scrapes.client, "billing", "172.17.0.2@1")
        values = scrapes.collect()
    assert values["rocketmq_group_count", "billing"] == 1
    assert values["rocketmq_group_in_flight_messages", "billing"] == 1
    of_queues = about(values, "rocketmq_group_queue_in_flight_messages")
    assert {key[3]: value for key, value in of_queues.items()} == {"0": 1, "1": 0}
