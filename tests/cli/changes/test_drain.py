"""A drain says when a broker can be stopped, and never more than it knows."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from rmqcli import Admin, LocalTransactionState, Producer, ProducerMessage
from rmqcli.admin.drain import _delayed
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.errors import NotFoundError
from rmqcli.model import PERM_WRITE
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode, ResponseCode
from tests.admin.doctor.planting import plant_settings
from tests.kit.waiting import PATIENCE_S, wait_until

RUNTIME, WIPE, ADD, SET_CONFIG = 28, 205, 327, 25
QUICK = ("--settle", "1ms")
UNKNOWN = LocalTransactionState.UNKNOW


@pytest.fixture
def cluster(cluster):
    cluster.create_topic("orders", queues=2)
    return cluster


def commit(cluster, group, queue_offset, *, topic="orders", broker="broker-a"):
    cluster.create_group(group)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue_id in range(2):
            call = update_consumer_offset(
                group, topic, queue_id, commit_offset=queue_offset
            )
            client.invoke(cluster.broker(broker).address, call)


def perms(cluster, topic, broker="broker-a"):
    """The permissions of a topic at a broker as the name server lists them."""
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        queues = client.route(topic).queues
    return [queue.perm for queue in queues if queue.broker_name == broker]


def test_nothing_happens_without_a_confirmation_and_the_plan_names_what_would_fail(
    rmq, cluster
):
    code, found, err = rmq("broker", "drain", "broker-a")
    assert (code, found) == (7, None)
    assert "topics of broker-a can be written, will be read-only" in err
    assert "not confirmed: nothing was changed" in err
    assert perms(cluster, "orders") == [6]


def test_a_topic_that_only_this_broker_takes_is_named(rmq, cluster):
    assert rmq("topic", "create", "alone", "--broker", "broker-a")[0] == 0
    assert rmq("topic", "create", "shop", "--broker", "broker-b")[0] == 0
    _, _, err = rmq("broker", "drain", "broker-a")
    assert "no other broker takes messages of alone: their producers will fail" in err


def test_a_quiet_broker_without_unread_messages_is_drained(rmq, cluster):
    cluster.send("orders", ["x"], queue_id=0, broker="broker-a")
    commit(cluster, "billing", 1)
    code, found, err = rmq("broker", "drain", "broker-a", "--yes", *QUICK)
    (drained, other) = rmq("topic", "show", "orders")[1]["brokers"]
    assert (drained["perm"], drained["route_perm"]) == ("rw", "r")
    assert (other["perm"], other["route_perm"]) == ("rw", "rw")
    assert code == 0
    assert (found["state"], found["arrived"], found["unread"]) == ("drained", 0, [])
    assert [row["writable"] for row in found["servers"]] == [0]
    assert perms(cluster, "orders") == [4]
    assert perms(cluster, "orders", "broker-b") == [6]
    assert "broker-a is drained: nothing has arrived for" in err
    assert f"to undo: rmq broker undrain broker-a -n {cluster.namesrv}" in err


def test_a_group_that_has_messages_to_read_is_named(rmq, cluster):
    cluster.send("orders", ["x", "y"], queue_id=0, broker="broker-a")
    commit(cluster, "billing", 0)
    drain = ["broker", "drain", "broker-a", "--yes", *QUICK]
    code, found, err = rmq(*drain, "--wait", "20ms")
    assert code == 6
    assert found["state"] == "draining"
    assert [(each["group"], each["lag"]) for each in found["unread"]] == [
        ("billing", 2)
    ]
    said = "billing has 2 messages to read there, of orders, and no member is online"
    assert said in err
    assert "to undo: rmq broker undrain broker-a" in err
    code, found, err = rmq(*drain, "--skip-group", "billing")
    assert (code, found["state"]) == (0, "drained")
    assert "not checked: what billing has to read" in err


def test_a_drain_does_not_wait_for_the_group_that_revives_what_pop_handed_out(
    rmq, cluster
):
    """It commits the offset of the last check point, and behind that are the records of
    acknowledgements: no broker of which a group reads by POP was ever drained."""
    group, topic = "CID_RMQ_SYS_REVIVE_GROUP", "rmq_sys_REVIVE_LOG_DefaultCluster"
    cluster.send(topic, ["check point", "ack"], queue_id=0, broker="broker-a")
    offsets = cluster.broker("broker-a").state.offsets
    cluster.call(lambda: offsets.commit(group, topic, 0, 0))
    _, (lag,), _ = rmq("lag", group)
    assert lag["total_lag"] == 2
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.drain_progress("broker-a").unread == ()


def test_a_lag_that_is_not_known_is_not_nothing(rmq, cluster):
    """The group has committed in one queue only, and the other one has messages."""
    cluster.send("orders", ["x"], queue_id=1, broker="broker-a")
    cluster.create_group("billing")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset("billing", "orders", 0, commit_offset=0)
        client.invoke(cluster.broker().address, call)
    code, found, err = rmq(
        "broker", "drain", "broker-a", "--yes", *QUICK, "--wait", "20ms"
    )
    assert (code, found["state"]) == (6, "draining")
    (unread,) = found["unread"]
    assert (unread["group"], unread["lag"]) == ("billing", None)
    assert unread["reason"]
    assert "what billing has to read there is not known" in err


def test_messages_that_other_brokers_have_do_not_matter(rmq, cluster):
    cluster.send("orders", ["x"], queue_id=0, broker="broker-b")
    commit(cluster, "billing", 0)
    commit(cluster, "billing", 0, broker="broker-b")
    code, found, _ = rmq("broker", "drain", "broker-a", "--yes", *QUICK)
    assert (code, found["state"]) == (0, "drained")


def test_what_arrives_is_counted_by_topic(cluster):
    """A producer may keep its route for 30 s."""
    with Admin(namesrv=cluster.namesrv) as admin:
        steps = admin.apply_drain(admin.plan_drain("broker-a"))
        assert [(step.result, step.writable) for step in steps] == [("changed", 0)]
        first = admin.drain_progress("broker-a", settle_ms=1)
        assert (first.arrived, first.is_safe) == (None, False)
        cluster.send("orders", ["x", "y"], queue_id=1, broker="broker-a")
        second = admin.drain_progress("broker-a", since=first, settle_ms=1)
        assert (second.arrived, second.arriving) == (2, {"orders": 2})
        assert second.blockers[0] == "2 messages arrived, in orders"
        assert second.quiet_ms == 0
        third = admin.drain_progress("broker-a", since=second)
        assert (third.arrived, third.is_safe) == (0, False)
        assert "of 40 s (producers keep routes for 30 s)" in third.blockers[0]
        fourth = admin.drain_progress("broker-a", since=third, settle_ms=1)
        assert (fourth.is_safe, fourth.blockers) == (True, [])


def test_an_open_transaction_is_waited_for(rmq, cluster):
    """A commit goes to the broker that was called safe to stop, and is lost."""
    assert rmq("topic", "create", "payments", "--broker", "broker-a")[0] == 0
    names = {"namesrv": cluster.namesrv}
    with (
        Producer("shop", on_check=lambda _: UNKNOWN, **names) as producer,
        Admin(**names) as admin,
    ):
        message = ProducerMessage("payments", b"1")
        producer.send_in_transaction(message, lambda *_: UNKNOWN)
        wait_until(lambda: admin.open_transactions("payments").count == 1)
        first = admin.drain_progress("broker-a", settle_ms=1)
        assert first.open_transactions == 1
        assert "1 transaction is open there" in first.blockers
        drain = ["broker", "drain", "broker-a", "--yes", *QUICK]
        code, found, err = rmq(*drain, "--wait", "20ms")
        assert (code, found["state"]) == (6, "draining")
        assert found["open_transactions"] == 1
        assert "1 transaction is open there" in err
        code, found, err = rmq(*drain, "--skip-transactions")
        assert (code, found["state"]) == (0, "drained")
        assert "not checked: open transactions" in err
        assert found["open_transactions"] is None


def test_where_open_transactions_are_not_known_a_broker_is_not_called_safe(
    rmq, cluster
):
    assert rmq("topic", "create", "payments", "--broker", "broker-a")[0] == 0
    with Producer(
        "shop", namesrv=cluster.namesrv, on_check=lambda _: UNKNOWN
    ) as producer:
        message = ProducerMessage("payments", b"1")
        producer.send_in_transaction(message, lambda *_: UNKNOWN)
    refused = faults.answer(16, "no permission")
    cluster.faults.add(refused, code=30, topic="RMQ_SYS_TRANS_HALF_TOPIC")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.drain_progress("broker-a", settle_ms=1)
    assert (found.open_transactions, found.is_safe) == (None, False)
    assert found.blockers[-1].startswith(
        "how many transactions are open there is not known: "
    )


def test_a_permission_that_came_back_is_no_silence(cluster):
    """A topic that is created on the broker makes it register its topics again."""
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.apply_drain(admin.plan_drain("broker-a"))
        first = admin.drain_progress("broker-a", settle_ms=1)
        admin.create_topic("new", brokers=["broker-a"])
        second = admin.drain_progress("broker-a", since=first, settle_ms=1)
        assert not second.is_write_off
        assert second.quiet_ms == 0
        assert "lists" in second.blockers[0]
        assert "with the write permission" in second.blockers[0]


def test_silence_counts_from_the_first_look_that_saw_the_permission_off(cluster):
    """Before it was taken, producers could fetch a route to the broker."""
    with Admin(namesrv=cluster.namesrv) as admin:
        before = admin.drain_progress("broker-a", settle_ms=1)
        assert not before.is_write_off
        admin.apply_drain(admin.plan_drain("broker-a"))
        first = admin.drain_progress("broker-a", since=before, settle_ms=1)
        assert (first.arrived, first.is_write_off) == (0, True)
        assert (first.quiet_ms, first.is_safe) == (0, False)
        second = admin.drain_progress("broker-a", since=first, settle_ms=1)
        assert second.quiet_ms == second.at_ms - first.at_ms
        assert second.is_safe


def test_a_permission_that_came_back_is_taken_again(rmq, cluster):
    broker = cluster.broker()
    wiped = cluster.faults.observe(code=WIPE)
    came_back: list[bool] = []

    def come_back(_):
        if not came_back:
            came_back.append(True)
            broker.state.topics.register_again()

    cluster.faults.observe(code=RUNTIME, broker="broker-a", on_request=come_back)
    code, found, err = rmq("broker", "drain", "broker-a", "--yes", *QUICK)
    assert (code, found["state"]) == (0, "drained")
    assert "the write permission of broker-a came back" in err
    assert wiped.seen == 2
    assert perms(cluster, "orders") == [4]


def test_a_name_server_that_refuses_has_a_row_and_the_broker_is_not_called_safe(
    rmq_cluster_factory, capsys
):
    one, other = rmq_cluster_factory(), rmq_cluster_factory()
    other.faults.add(faults.answer(1, "read only"), code=WIPE)
    both = f"{one.namesrv};{other.namesrv}"
    do = ["broker", "drain", "broker-a", "--yes", *QUICK, "-n", both, "-o", "json"]
    assert run(do) == 6
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["state"] == "failed"
    assert [(row["server"], row["result"]) for row in found["servers"]] == [
        (one.namesrv, "changed"),
        (other.namesrv, "failed"),
    ]
    assert "read only" in err
    assert "producers may go on sending to broker-a" in err
    assert "is safe" not in err


def test_a_broker_that_stops_answering_is_not_called_drained(rmq, cluster):
    cluster.faults.add(faults.answer(1, "gone"), code=RUNTIME, broker="broker-a", nth=2)
    code, found, err = rmq("broker", "drain", "broker-a", "--yes", *QUICK)
    assert (code, found) == (6, None)
    assert "whether broker-a is drained is not known" in err
    assert "to undo: rmq broker undrain broker-a" in err


def test_an_interrupted_drain_says_how_to_undo_it(cluster):
    command = [sys.executable, "-m", "rmqcli", "broker", "drain", "broker-a", "--yes"]
    with subprocess.Popen(
        [*command, "-n", cluster.namesrv],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith("waiting:"):
                process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert f"to undo: rmq broker undrain broker-a -n {cluster.namesrv}\n" in said


def test_all_topics_writable_is_undone_by_one_request_for_each_name_server(
    rmq, cluster
):
    (drained,) = rmq("broker", "drain", "broker-a", "--yes", "--no-wait")[1]["servers"]
    added = cluster.faults.observe(code=ADD)
    written = cluster.faults.observe(code=SET_CONFIG)
    code, rows, err = rmq("broker", "undrain", "broker-a")
    assert (code, rows) == (7, None)
    assert f"lists {drained['topics']} topics of broker-a, 0 of them with the" in err
    code, rows, _ = rmq("broker", "undrain", "broker-a", "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["changed"])
    assert rows[0]["topics"] == drained["topics"]
    assert (added.seen, written.seen) == (1, 0)
    assert perms(cluster, "orders") == [6]
    code, rows, err = rmq("broker", "undrain", "broker-a")
    assert (code, [row["result"] for row in rows]) == (0, ["unchanged"])
    assert "nothing was changed" in err


def test_a_read_only_topic_is_read_only_after_the_undrain(rmq, cluster):
    """Request 327 would give it the write permission, which the broker refuses."""
    rmq("topic", "create", "archive", "--perm", "r")
    rmq("broker", "drain", "broker-a", "--yes", "--no-wait")
    added = cluster.faults.observe(code=ADD)
    code, rows, _ = rmq("broker", "undrain", "broker-a", "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["changed"])
    assert added.seen == 0
    assert perms(cluster, "orders") == [6]
    assert perms(cluster, "archive")[0] & PERM_WRITE == 0


def test_a_topic_of_rocketmq_s_own_gets_no_permission_that_it_did_not_have(
    rmq, cluster
):
    """Request 327 gives those both permissions, too."""
    cluster.create_topic("BenchmarkTest", queues=1, perm=4)
    rmq("broker", "drain", "broker-a", "--yes", "--no-wait")
    code, rows, _ = rmq("broker", "undrain", "broker-a", "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["changed"])
    assert perms(cluster, "orders") == [6]
    assert perms(cluster, "BenchmarkTest") == [4]


def test_permissions_that_the_broker_does_not_tell_are_not_written_back(rmq, cluster):
    """It was taken to be writable, and its own permission was then set so."""
    rmq("broker", "drain", "broker-a", "--yes", "--no-wait")
    cluster.faults.add(faults.answer(16, "no permission"), code=26)
    written = cluster.faults.observe(code=SET_CONFIG)
    code, found, err = rmq("broker", "undrain", "broker-a", "--yes")
    assert (code, found, len(written.requests)) == (4, None, 0)
    assert "no permission" in err
    assert perms(cluster, "orders") == [4]


def test_a_name_server_without_request_327_is_undrained_through_the_broker(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(like="4.6.0")
    cluster.create_topic("orders", queues=2)
    names = ["-n", cluster.namesrv, "-o", "json"]
    assert run(["broker", "drain", "broker-a", "--yes", "--no-wait", *names]) == 0
    assert perms(cluster, "orders") == [4]
    capsys.readouterr()
    assert run(["broker", "undrain", "broker-a", "--yes", *names]) == 0
    assert [r["result"] for r in json.loads(capsys.readouterr().out)] == ["changed"]
    assert perms(cluster, "orders") == [6]


def test_a_permission_that_does_not_come_back_is_a_failure(rmq, cluster):
    rmq("broker", "drain", "broker-a", "--yes", "--no-wait")
    cluster.faults.add(faults.answer(0, ext_fields={"addTopicCount": "4"}), code=ADD)
    cluster.faults.add(faults.answer(0), code=SET_CONFIG)
    code, rows, err = rmq("broker", "undrain", "broker-a", "--yes")
    assert (code, [row["result"] for row in rows]) == (6, ["failed"])
    assert "still lists 1 topic of the broker without the write permission" in err


def test_a_plan_names_the_broker_and_changes_nothing(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_topic("fixed", order=True, brokers=["broker-b"])
        plan = admin.plan_drain("broker-b")
    assert plan.broker_name == "broker-b"
    assert plan.address == cluster.broker("broker-b").address
    assert plan.only_here == plan.ordered == ("fixed",)
    assert plan.other_namesrvs is None
    assert perms(cluster, "fixed", broker="broker-b") == [6]


def test_a_topic_that_other_brokers_only_read_is_written_on_this_one_only(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.update_topic("orders", perm=4, brokers=["broker-a"])
        assert admin.plan_drain("broker-b").only_here == ("orders",)
        assert admin.plan_drain("broker-a").only_here == ()


def test_what_is_drained_already_is_planned_as_unchanged(rmq, cluster):
    assert rmq("broker", "drain", "broker-a", "--yes", *QUICK)[0] == 0
    with Admin(namesrv=cluster.namesrv) as admin:
        (step,) = admin.plan_drain("broker-a").steps
        assert (step.result, step.writable) == ("unchanged", 0)
        (step,) = admin.plan_drain("broker-b").steps
        assert step.result == "planned"
        assert step.writable


def test_name_servers_that_are_not_asked_are_named(cluster):
    servers = f"{cluster.namesrv};10.0.0.9:9876"
    plant_settings(cluster, broker="broker-a", namesrvAddr=servers)
    plant_settings(cluster, broker="broker-b", namesrvAddr=cluster.namesrv)
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.plan_drain("broker-a").other_namesrvs == ("10.0.0.9:9876",)
        assert admin.plan_drain("broker-b").other_namesrvs == ()


def test_a_broker_that_does_not_exist_is_not_drained(cluster):
    with Admin(namesrv=cluster.namesrv) as admin, pytest.raises(NotFoundError):
        admin.plan_drain("nope")


def test_timers_in_rocksdb_are_unknown_and_not_none(cluster):
    """The runtime info is that of the timer wheel, which then is empty."""
    plant_settings(cluster, timerRocksDBEnable="true")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.drain_progress("broker-a", settle_ms=1)
        assert found.delayed is None
        unknown = "how many delayed messages wait there is not known"
        assert unknown in found.blockers
        found = admin.drain_progress("broker-a", skip_delayed=True)
        assert unknown not in found.blockers


def test_delayed_messages_are_unknown_where_the_settings_are(cluster):
    """The broker may keep its timers in RocksDB."""
    denied = faults.answer(ResponseCode.NO_PERMISSION, "denied")
    cluster.faults.add(denied, code=RequestCode.GET_BROKER_CONFIG)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.drain_progress("broker-a", settle_ms=1)
    assert found.delayed is None
    assert "how many delayed messages wait there is not known" in found.blockers


@pytest.mark.parametrize("properties", [{"DELAY": "18"}, {"TIMER_DELAY_SEC": "7200"}])
def test_messages_that_wait_for_their_delivery_time_are_waited_for(cluster, properties):
    """The first of its delay level, too, which the broker has not delivered yet."""
    cluster.send("orders", [Seed(body=b"x", properties=properties)], broker="broker-a")
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.drain_progress("broker-a", settle_ms=1)
    assert found.delayed == 1
    assert "1 delayed message waits there" in found.blockers


@pytest.mark.parametrize(
    ("runtime", "expected"),
    [
        ({}, 0),
        ({"scheduleMessageOffset_3": "5,7", "scheduleMessageOffset_4": "1,1"}, 2),
        ({"scheduleMessageOffset_3": "5,7", "timerCongestNum": "4"}, 6),
        ({"timerCongestNum": "4", "timerOffsetBehind": "3"}, 7),
        ({"timerOffsetBehind": "?"}, None),
        ({"scheduleMessageOffset_3": "?"}, None),
        ({"timerCongestNum": "-1"}, None),
    ],
)
def test_delayed_messages_are_counted_or_unknown(runtime, expected):
    assert _delayed(runtime) == expected
