"""The values of the metrics: those of `rmq lag`, and absent where not known."""

from __future__ import annotations

import threading

import pytest

from rmqcli import Admin, Consumer
from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.exporter.collect import CollectorOptions
from rmqcli.exporter.run import Exporter
from rmqcli.exporter.site import MetricsSite
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import plant_settings
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
    assert values["rocketmq_group_consume_tps", *place, "billing", "orders"] > 0


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
        ):
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

    def on_run(run):
        began_ms.append(clock.now_ms - START_MS)
        readiness.append(site.answer("/readyz", "").status)
        clock.advance(durations_ms[len(began_ms) - 1])
        if len(began_ms) == len(durations_ms):
            stop.set()

    with Client(ClientConfig(namesrv=(cluster.namesrv,)), clock=clock) as client:
        Exporter(client, CollectorOptions(interval_ms=30_000)).run(site, on_run, stop)
    assert began_ms == [0, 30_000, 60_000, 120_000, 210_000]
    assert readiness == [200] * 5


def test_a_collection_that_read_nothing_does_not_make_the_site_ready():
    stop = threading.Event()
    site = MetricsSite(SYSTEM_CLOCK, stale_after_ms=90_000)
    answers = []

    def on_run(run):
        answers.append(site.answer("/readyz", "").data)
        stop.set()

    unknown = ClientConfig(namesrv=(f"127.0.0.1:{free_port()}",))
    with Client(unknown) as client:
        Exporter(client, CollectorOptions()).run(site, on_run, stop)
    assert answers == [b"nothing has been read from the cluster yet\n"]


def test_a_broker_that_left_the_route_is_down_and_its_groups_are_not_known(two_brokers):
    with Scrapes(two_brokers.namesrv, timeout_ms=1_000) as scrapes:
        scrapes.collect()
        two_brokers.broker("broker-b").close()
        scrapes.clock.ahead_ms += 120_000
        values = scrapes.collect()
    assert values["rocketmq_broker_up", "broker-b", "", ""] == 0
    assert ("rocketmq_group_lag_messages", "billing") not in values
    assert values["rocketmq_group_state", "billing", "UNKNOWN"] == 1


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
