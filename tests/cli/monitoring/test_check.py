"""`rmq check`: values, thresholds and exit codes, on the embedded cluster."""

from __future__ import annotations

import json
import shlex

import pytest

from rmqcli import Admin
from rmqcli.admin.check import (
    Measurement,
    MonitorStatus,
    Thresholds,
    measure_behaviour,
)
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.cli.monitoring.check import _RETENTION, _Report
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.bodies.stats import TopicOffset, TopicStatsTable
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import plant_runtime, plant_settings

START_MS = 1_767_322_800_000


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def cluster(rmq_cluster_factory):
    """Two queues with three messages, of which group `billing` has consumed one."""
    clock = ManualClock(now_ms=START_MS)
    cluster = rmq_cluster_factory(clock=clock)
    cluster.create_topic("orders", queues=2)
    cluster.create_group("billing")
    cluster.create_group("idle")
    for queue_id in (0, 0, 1):
        cluster.send("orders", ["x"], queue_id=queue_id)
    commit(cluster, "billing", {0: 1, 1: 1})
    commit(cluster, "idle", {0: 2, 1: 1})
    return cluster


def commit(cluster, group, offsets):
    committed = cluster.broker().state.offsets

    def write():
        for queue_id, offset in offsets.items():
            committed.commit(group, "orders", queue_id, offset)

    cluster.call(write)


@pytest.fixture
def check(cluster, capfd):
    def call(line):
        code = run(["check", *shlex.split(line), "-n", cluster.namesrv])
        out, err = capfd.readouterr()
        assert err == ""
        return code, out

    return call


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        ("--warn 2", 0, "LAG OK: billing: 1 message | 'billing'=1;2;\n"),
        (
            "--warn 1 --crit 2",
            1,
            "LAG WARNING: billing: 1 message (warning from 1) | 'billing'=1;1;2\n",
        ),
        (
            "--crit 1",
            2,
            "LAG CRITICAL: billing: 1 message (critical from 1) | 'billing'=1;;1\n",
        ),
    ],
)
def test_lag_is_compared_with_both_thresholds(check, options, code, line):
    assert check(f"lag billing {options}") == (code, line)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "lag billing --crit 5",
            "LAG WARNING: billing: 0 messages, {} | 'billing'=0;;5",
        ),
        (
            "lag billing --warn 100",
            "LAG WARNING: billing: 0 messages, {} | 'billing'=0;100;",
        ),
        ("age billing --crit 5m", "AGE WARNING: billing: 0ms, {} | 'billing'=0s;;300"),
        (
            "retention billing --crit 1h",
            "RETENTION WARNING: billing: nothing unread, {} | 'billing'=U;;3600:",
        ),
    ],
)
def test_an_offset_beyond_the_end_of_a_queue_is_not_ok(cluster, check, line, said):
    """The topic was created again: its messages may be unread, and count as read."""
    commit(cluster, "billing", {0: 6, 1: 1})
    doubt = (
        "committed beyond the end of 1 queue, which holds 2 messages that it may not"
        " have read"
    )
    assert check(line) == (1, said.format(doubt) + "\n")
    (measured,) = json.loads(check(f"{line} -o json")[1])["measurements"]
    assert measured["reason"] == doubt


def test_globs_choose_groups_and_the_worst_comes_first(check):
    assert check("lag '*' --crit 1") == (
        2,
        (
            "LAG CRITICAL: billing: 1 message (critical from 1); 1 other ok |"
            " 'billing'=1;;1 'idle'=0;;1\n"
        ),
    )
    assert check("lag 'x*' --crit 1") == (3, "LAG UNKNOWN: no group matches x*\n")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("lag billing 'x*' --warn 5", "group"),
        ("age 'b*' 'x*' --warn 5h", "group"),
        ("retention 'b*' 'x*' --crit 1h", "group"),
        ("dlq 'b*' 'x*' --warn 1", "group"),
        ("topic 'o*' 'x*' --warn 5h", "topic"),
        ("broker 'b*' 'x*' --warn 90", "broker"),
    ],
)
def test_a_glob_that_matches_nothing_is_unknown_beside_one_that_does(check, line, kind):
    """The others were well, and the check was OK."""
    code, out = check(f"{line} -o json")
    *_, unmatched = json.loads(out)["measurements"]
    assert (unmatched["subject"], unmatched["status"]) == ("x*", "unknown")
    assert unmatched["reason"] == f"no {kind} matches x*"
    assert code == 3


def test_a_glob_of_groups_without_a_lag_is_unknown_beside_one_that_has_one(
    cluster, check
):
    cluster.create_group("new")
    code, out = check("lag billing 'n*' 'x*' --warn 5 -o json")
    *_, new, unmatched = json.loads(out)["measurements"]
    assert new["reason"] == (
        "no group matches n*; left out: new, no committed offset, and no member"
        " subscribes to a topic"
    )
    assert unmatched["reason"] == "no group matches x*"
    assert code == 3


def test_five_subjects_are_named_the_worst_first_and_the_others_counted(cluster, check):
    for n in range(6):
        cluster.create_group(f"g{n}")
        commit(cluster, f"g{n}", {0: 0, 1: 0})
    code, out = check("lag '*' --crit 2")
    bad = "".join(f"g{n}: 3 messages (critical from 2); " for n in range(5))
    said, _, _ = out.partition(" |")
    assert (code, said) == (2, f"LAG CRITICAL: {bad}1 more not ok; 2 others ok")
    code, out = check("lag '*' --crit 9")
    good = "".join(f"g{n}: 3 messages; " for n in range(4))
    said, _, _ = out.partition(" |")
    assert (code, said) == (0, f"LAG OK: billing: 1 message; {good}3 others ok")


def test_a_glob_leaves_out_groups_that_have_no_lag_and_says_so(cluster, check):
    cluster.create_group("new")
    code, out = check("lag '*' --crit 2")
    assert (code, out) == (
        0,
        (
            "LAG OK: billing: 1 message; idle: 0 messages; 1 group left out |"
            " 'billing'=1;;2 'idle'=0;;2\n"
        ),
    )
    (left_out,) = json.loads(check("lag '*' --crit 2 -o json")[1])["left_out"]
    assert left_out == {
        "subject": "new",
        "reason": "no committed offset, and no member subscribes to a topic",
    }
    code, out = check("lag new --crit 2")
    assert code == 3
    assert out.startswith("LAG UNKNOWN: new: unknown, no committed offset, and no ")
    assert check("lag 'new*' --crit 2")[0] == 3


def test_a_name_that_does_not_exist_is_unknown_and_hides_nothing_worse(check):
    code, out = check("lag nobody idle --crit 1 -o json")
    assert code == 3
    rows = json.loads(out)["measurements"]
    assert [(row["subject"], row["status"]) for row in rows] == [
        ("idle", "ok"),
        ("nobody", "unknown"),
    ]
    assert "nobody" in rows[1]["reason"]
    assert check("lag nobody billing --crit 1")[0] == 2


def test_age_is_that_of_the_oldest_unread_message(cluster, check):
    cluster.advance(120_000)
    assert check("age billing --warn 1m --crit 5m") == (
        1,
        "AGE WARNING: billing: 2m (warning from 1m) | 'billing'=120s;60;300\n",
    )
    assert check("age idle --warn 1m") == (0, "AGE OK: idle: 0ms | 'idle'=0s;60;\n")


def test_retention_is_the_time_that_is_left(cluster, check):
    plant_settings(cluster, fileReservedTime="72")
    cluster.advance(60 * 3_600_000)
    assert check("retention billing --warn 24h --crit 6h") == (
        1,
        (
            "RETENTION WARNING: billing: 12h (warning from 1d) |"
            " 'billing'=43200s;86400:;21600:\n"
        ),
    )
    code, out = check("retention idle --warn 24h")
    assert (code, out) == (
        0,
        "RETENTION OK: idle: nothing unread | 'idle'=U;86400:;\n",
    )
    (idle,) = json.loads(check("retention idle --warn 24h -o json")[1])["measurements"]
    assert (idle["status"], idle["value"], idle["reason"]) == (
        "ok",
        None,
        "nothing unread",
    )


def test_messages_that_were_deleted_unread_are_critical(cluster, check):
    cluster.broker().trim("orders", 2)
    code, out = check("retention billing --warn 1h")
    assert code == 2
    assert "1 message was deleted unread" in out


def test_dead_letters_are_counted(cluster, check):
    assert check("dlq billing --warn 1")[0] == 0
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send("%DLQ%billing", ["a", "b"])
    assert check("dlq '*' --warn 1") == (
        1,
        (
            "DLQ WARNING: billing: 2 dead letters (warning from 1); 1 other ok |"
            " 'billing'=2;1; 'idle'=0;1;\n"
        ),
    )
    assert check("dlq nobody --warn 1")[0] == 3


def test_a_topic_whose_producers_have_stopped_is_found(cluster, check):
    cluster.advance(600_000)
    assert check("topic orders --warn 10m --crit 1h") == (
        1,
        "TOPIC WARNING: orders: 10m (warning from 10m) | 'orders'=600s;600;3600\n",
    )
    assert check("topic orders --warn 11m")[0] == 0
    cluster.create_topic("empty", queues=1)
    code, out = check("topic empty --warn 1h")
    assert (code, out) == (
        2,
        "TOPIC CRITICAL: empty: no message is stored | 'empty'=U;3600;\n",
    )
    assert check("topic nothing --warn 1h")[0] == 3


def test_a_topic_whose_messages_were_on_a_broker_that_has_left_is_unknown(
    rmq_cluster_factory, capfd
):
    """No message was stored, it said, although only the other broker had any."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["x"], broker="broker-b")
    offsets = cluster.broker("broker-b").state.offsets
    cluster.call(lambda: offsets.commit("billing", "orders", 0, 0))
    words = ["check", "topic", "orders", "--warn", "10m", "-n", cluster.namesrv]
    assert run(words) == 0
    with Admin(namesrv=cluster.namesrv) as admin:
        assert admin.lag("billing").total_lag == 1
    cluster.broker("broker-b").kill()
    capfd.readouterr()
    assert run(words) == 3
    assert capfd.readouterr().out.startswith(
        "TOPIC UNKNOWN: orders: unknown, broker-b: it is no longer in the route"
    )


def test_a_message_whose_store_time_is_not_told_is_not_no_message(cluster, check):
    offsets = {
        MessageQueue("orders", "broker-a", 0): TopicOffset(
            min_offset=0, max_offset=2, last_update_timestamp=-1
        )
    }
    body = encode_body(TopicStatsTable(offset_table=offsets))
    cluster.faults.add(
        faults.answer(0, body=body), code=RequestCode.GET_TOPIC_STATS_INFO
    )
    code, out = check("topic orders --warn 1h")
    assert code == 3
    assert "broker-a: it does not tell when a message was stored" in out


def test_a_topic_that_only_a_slave_has_is_as_old_as_its_clock_says(
    rmq_cluster_factory, capfd
):
    """Its clock, years behind ours, was taken for a master's only."""
    cluster = rmq_cluster_factory(clock=ManualClock(now_ms=START_MS))
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["x"])
    cluster.add_slave()
    cluster.fail_over()
    cluster.advance(600_000)
    assert run(["check", "topic", "orders", "--warn", "1h", "-n", cluster.namesrv]) == 0
    assert "orders: 10m" in capfd.readouterr().out


def test_a_broker_whose_commit_log_s_disk_is_not_reported_is_unknown(cluster, check):
    plant_runtime(cluster, commitLogDiskRatio="-1.0", consumeQueueDiskRatio="0.3")
    code, out = check("broker broker-a --warn 40")
    assert code == 3
    assert "at least 30 % full, it does not report the disk of its commit log" in out
    assert check("broker broker-a --crit 30")[0] == 2


def test_a_glob_without_a_group_names_the_broker_that_does_not_tell_them(
    cluster, check
):
    cluster.faults.add(faults.answer(1, "no"), code=RequestCode.GET_ALL_CONSUMER_OFFSET)
    code, out = check("lag '*' --warn 1")
    assert code == 3
    assert out.startswith("LAG UNKNOWN: broker-a: committed offsets of all groups: ")
    cluster.faults.add(
        faults.answer(1, "no"), code=RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    )
    code, out = check("dlq '*' --warn 1")
    assert code == 3
    assert out.startswith("DLQ UNKNOWN: broker-a: ")


def test_a_master_that_left_only_slaves_behind_is_missed(rmq_cluster_factory, capfd):
    """Two minutes after its death, only a slave answered for the name."""
    cluster = rmq_cluster_factory()
    cluster.add_slave()
    cluster.fail_over()
    assert run(["check", "broker", "*", "-n", cluster.namesrv]) == 2
    assert capfd.readouterr().out.startswith(
        "BROKER CRITICAL: broker-a: no master is registered, only slaves; 1 other ok |"
    )


def test_brokers_answer_and_have_room(cluster, check):
    code, out = check("broker '*' --warn 1 --crit 2")
    assert code == 0
    assert out.startswith("BROKER OK: broker-a: 0 % full | 'broker-a'=0%;1;2")
    assert check("broker other")[0] == 3


@pytest.mark.parametrize(
    ("line", "before", "after"),
    [
        ("lag billing --warn 90", 0, 3),
        ("lag '*' --crit 20", 2, 2),
        ("age billing --warn 1h", 0, 3),
        ("retention '*' --warn 1h", 0, 3),
        ("dlq billing --warn 9", 0, 3),
        ("broker '*'", 0, 2),
        ("broker broker-b", 0, 2),
    ],
)
def test_a_broker_that_has_died_and_left_the_route_is_missed(
    rmq_cluster_factory, capfd, line, before, after
):
    """Without the record of earlier runs, less would wait, and all would be well."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1)
    for name, count in (("broker-a", 28), ("broker-b", 60)):
        cluster.send("orders", ["x"] * count, broker=name)
        offsets = cluster.broker(name).state.offsets
        cluster.call(lambda at=offsets: at.commit("billing", "orders", 0, 0))
        plant_settings(cluster, name, fileReservedTime="72")
    words = ["check", *shlex.split(line), "-n", cluster.namesrv]
    assert run(words) == before, capfd.readouterr()
    cluster.broker("broker-b").kill()
    assert run(words) == after
    out = capfd.readouterr().out
    assert "broker-b" in out.splitlines()[-1]


def test_what_is_known_is_critical_although_the_rest_is_not(cluster, check):
    """A group that never committed in one queue has no known lag."""
    cluster.create_group("new")
    commit(cluster, "new", {0: 0})
    assert check("lag new --crit 3")[0] == 3
    code, out = check("lag new --crit 2")
    assert code == 2
    assert "at least 2 messages (critical from 2), unknown in 1 of 2 queues" in out


def test_a_cluster_that_cannot_be_reached_is_unknown(capfd):
    """Not 5, as elsewhere: a plugin has no such code."""
    words = ["lag", "billing", "--crit", "1", "-n", "127.0.0.1:9"]
    assert run(["check", *words]) == 3
    out, err = capfd.readouterr()
    assert out.startswith("LAG UNKNOWN: ")
    assert "127.0.0.1:9" in out
    assert err == ""
    assert run(["check", *words, "-o", "json"]) == 3
    assert json.loads(capfd.readouterr().out)["status"] == "unknown"


def test_a_broker_that_shows_no_retention_leaves_it_unknown(cluster, check):
    code, out = check("retention billing --crit 1h")
    assert code == 3
    assert "broker-a does not show fileReservedTime" in out


def test_prometheus_has_a_status_and_each_known_value(check):
    assert check("lag billing nobody --warn 1 -o prometheus") == (
        3,
        """\
# HELP rmq_check_status 0 ok, 1 warning, 2 critical, 3 unknown
# TYPE rmq_check_status gauge
rmq_check_status{check="lag"} 3
rmq_check_status{check="lag",group="billing"} 1
rmq_check_status{check="lag",group="nobody"} 3
# TYPE rmq_check_lag_messages gauge
rmq_check_lag_messages{group="billing"} 1
""",
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lag billing", "--warn, --crit or both are needed, or --behaviour"),
        ("age billing", "--warn, --crit or both are needed"),
        (
            "lag billing --behaviour --crit 2",
            "--behaviour needs no --warn or --crit; use one or the other",
        ),
        ("lag billing --crit 2 --window 5m", "--window needs --behaviour"),
        ("lag billing --behaviour --window 5s", "--window must be between 1m and 1d"),
        ("lag billing --behaviour --window 2d", "--window must be between 1m and 1d"),
        ("lag billing --warn 3 --crit 2", "--warn has to be below --crit"),
        ("retention billing --warn 1h --crit 2h", "--warn has to be above --crit"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(capfd, line, words):
    assert run(["check", *shlex.split(line), "-n", "127.0.0.1:9"]) == 2
    assert words in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        (
            "lag 'pay*'",
            (
                "for example: rmq check lag 'pay*' --warn 1000 --crit 10000,"
                " or rmq check lag 'pay*' --behaviour"
            ),
        ),
        ("age billing", "for example: rmq check age billing --warn 30s --crit 5m"),
        ("dlq '*'", "for example: rmq check dlq '*' --warn 1"),
        ("retention b", "for example: rmq check retention b --warn 24h --crit 6h"),
        ("topic orders", "for example: rmq check topic orders --warn 10m --crit 1h"),
    ],
)
def test_without_thresholds_the_hint_is_a_command_that_can_be_run(capfd, line, hint):
    assert run(["check", *shlex.split(line), "-n", "127.0.0.1:9"]) == 2
    assert capfd.readouterr().err.splitlines()[1:] == [f"hint: {hint}"]


@pytest.mark.parametrize("line", ["age idle --warn 0s", "topic orders --crit 0ms"])
def test_a_threshold_that_every_age_reaches_is_refused(capfd, line):
    """A group that was up to date ended with a warning."""
    assert run(["check", *shlex.split(line), "-n", "127.0.0.1:9"]) == 2
    assert f"{line.split()[2]} must be greater than zero" in capfd.readouterr().err


def test_no_time_left_is_a_threshold(check):
    assert check("retention idle --crit 0s")[0] == 0


@pytest.fixture
def look_before(cluster):
    """Add a sample to the histories, as a run of the check some minutes ago did."""

    def look(minutes):
        clock = ManualClock(SYSTEM_CLOCK.epoch_ms() - minutes * 60_000)
        config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=30_000)
        with Client(config, clock=clock) as client:
            measure_behaviour(client, ["*"])

    return look


def test_a_check_by_behaviour_without_history_says_so(check):
    assert check("lag billing --behaviour") == (
        3,
        (
            "LAG UNKNOWN: billing: 1 message, a verdict needs 10m of history in 3"
            " samples or more; so far there is 0ms in 1 sample | 'billing'=1;;\n"
        ),
    )
    assert check("lag idle --behaviour") == (
        0,
        "LAG OK: idle: 0 messages | 'idle'=0;;\n",
    )
    assert check("lag nobody --behaviour")[0] == 3


def test_a_group_that_stands_still_is_found_without_thresholds(
    cluster, check, look_before
):
    for minutes in (11, 6, 1):
        look_before(minutes)
    assert check("lag '*' --behaviour") == (
        2,
        (
            "LAG CRITICAL: billing: 1 message, STOPPED, orders@broker-a:0: nothing"
            " consumed at offset 1 for 11m or more, and brokers know no member; 1 other"
            " ok | 'billing'=1;; 'idle'=0;;\n"
        ),
    )
    code, out = check("lag billing --behaviour -o json")
    assert code == 2
    assert json.loads(out)["measurements"][0]["verdict"] == "STOPPED"
    # Another window has a history of its own.
    assert check("lag billing --behaviour --window 5m")[0] == 3
    commit(cluster, "billing", {0: 2})
    assert check("lag billing --behaviour")[0] == 0


def test_a_group_that_went_back_is_critical(cluster, check, look_before):
    cluster.send("orders", ["x"] * 50, queue_id=0)
    commit(cluster, "billing", {0: 52})
    look_before(1)
    commit(cluster, "billing", {0: 0})
    code, out = check("lag billing --behaviour")
    assert code == 2
    assert "REWOUND, orders@broker-a:0 went back from offset 52 to 0 |" in out


def test_a_broker_that_does_not_answer_is_unknown_whatever_the_history(
    rmq_cluster_factory, capfd
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    for name in ("broker-a", "broker-b"):
        offsets = cluster.broker(name).state.offsets
        cluster.call(lambda at=offsets: at.commit("billing", "orders", 0, 0))
    words = ["check", "lag", "billing", "--behaviour", "-n", cluster.namesrv]
    assert run(words) == 0
    cluster.broker("broker-b").kill()
    assert run(words) == 3
    assert "broker-b" in capfd.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}', "null"])
def test_a_history_that_cannot_be_used_begins_anew_and_says_so(
    tmp_path, check, look_before, text
):
    for minutes in (11, 6, 1):
        look_before(minutes)
    for path in (tmp_path / "state/rmqcli/behaviour").iterdir():
        path.write_text(text)
    code, out = check("lag billing --behaviour")
    assert code == 3
    assert "the history begins anew, because " in out
    assert check("lag billing --behaviour")[1].count("begins anew") == 0


def test_without_a_place_for_the_history_nothing_is_known(tmp_path, check):
    (tmp_path / "state").write_text("not a folder")
    code, out = check("lag idle --behaviour")
    assert code == 3
    assert "idle: 0 messages, the history cannot be kept: " in out


@pytest.fixture
def apart(rmq_cluster_factory):
    """Group pay1 is on broker-a only, pay2 on broker-b only, and broker-b hangs."""
    cluster = rmq_cluster_factory(brokers=2)
    with Admin(namesrv=cluster.namesrv) as admin:
        for broker, topic, group in (
            ("broker-a", "ta", "pay1"),
            ("broker-b", "tb", "pay2"),
        ):
            admin.create_topic(topic, queue_nums=1, brokers=[broker])
            admin.create_topic(f"%RETRY%{group}", queue_nums=1, brokers=[broker])
            admin.create_group(group, brokers=[broker])
            offsets = cluster.broker(broker).state.offsets
            for name in (topic, f"%RETRY%{group}"):
                cluster.call(lambda g=group, t=name, at=offsets: at.commit(g, t, 0, 0))
        admin.delete_topic("%RETRY%pay2")
    cluster.broker("broker-b").hang()
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("check", ["lag", "age", "retention"])
def test_a_glob_beside_a_broker_that_hangs_may_have_missed_groups(apart, capfd, check):
    """The group that was found is well; the broker that hangs may have another one."""
    bound = "1" if check == "lag" else "1s"
    words = ["check", check, "pay*", "--warn", bound, "-n", apart.namesrv]
    code = run([*words, "--timeout", "1s", "-o", "json"])
    seen, unseen = json.loads(capfd.readouterr().out)["measurements"]
    assert (seen["subject"], seen["status"]) == ("pay1", "ok")
    assert (unseen["subject"], unseen["status"], unseen["value"]) == (
        "pay*",
        "unknown",
        None,
    )
    assert unseen["reason"].startswith("there may be more groups: broker-b: no answer")
    assert code == 3


def test_beside_a_broker_that_hangs_no_group_is_said_not_to_exist(apart, capfd):
    words = ["check", "lag", "pay2", "pay1*", "--warn", "1", "-n", apart.namesrv]
    assert run([*words, "--timeout", "1s", "-o", "json"]) == 3
    found = json.loads(capfd.readouterr().out)["measurements"]
    (pay2,) = [each for each in found if each["subject"] == "pay2"]
    assert pay2["reason"].startswith("broker-b: no answer")


def test_without_the_clock_of_a_broker_the_age_of_a_message_is_unknown(cluster, capfd):
    """It was taken by the clock of this machine, which may be hours apart."""
    denied = faults.answer(16, "no")
    cluster.faults.add(denied, code=RequestCode.GET_BROKER_RUNTIME_INFO)
    words = ["check", "topic", "orders", "--warn", "10m", "-n", cluster.namesrv]
    assert run([*words, "-o", "json"]) == 3
    (found,) = json.loads(capfd.readouterr().out)["measurements"]
    assert found["value"] is None
    assert found["reason"].startswith("broker-a: its clock is not known: ")


def test_no_time_left_is_written_as_such():
    """A time that is known in part, and is over, was written as unknown."""
    over = Measurement(subject="g", value=None, at_least=0.0, reason="no answer")
    thresholds = Thresholds(critical=60_000, is_low_bad=True)
    report = _Report(_RETENTION, thresholds, [over], [], MonitorStatus.CRITICAL, "")
    assert report.nagios().startswith(
        "RETENTION CRITICAL: g: at most 0ms (critical from 1m), no answer | "
    )


@pytest.mark.parametrize("name", ["CID_RMQ_SYS_TRACE", "TOOLS_CONSUMER"])
@pytest.mark.parametrize(
    ("what", "value"), [("lag", 3), ("dlq", 1), ("age", None), ("retention", None)]
)
def test_a_glob_matches_no_group_of_rocketmq_itself(cluster, capsys, name, what, value):
    """Nobody consumes their messages, so every check of all groups was critical."""
    cluster.create_group(name)
    commit(cluster, name, {0: 0, 1: 0})
    cluster.create_topic(f"%DLQ%{name}", queues=1)
    cluster.send(f"%DLQ%{name}", ["letter"])

    def subjects(*patterns):
        words = ["check", what, *patterns, "--crit", "1h" if value is None else "9"]
        run([*words, "-o", "json", "-n", cluster.namesrv])
        found = json.loads(capsys.readouterr().out)["measurements"]
        return {each["subject"]: each["value"] for each in found}

    assert subjects("*").keys() == {"billing", "idle"}
    assert subjects(f"{name[:5]}*").keys() <= {f"{name[:5]}*"}
    for patterns in ([name], ["bill*", name]):
        found = subjects(*patterns)
        assert found.keys() == {name, *(["billing"] if len(patterns) > 1 else [])}
        assert value is None or found[name] == value


def test_a_group_of_rocketmq_without_dead_letters_exists(cluster, capsys):
    """It was said not to exist."""
    cluster.create_group("TOOLS_CONSUMER")
    words = ["check", "dlq", "TOOLS_CONSUMER", "--crit", "1", "-n", cluster.namesrv]
    assert run(words) == 0
    assert "TOOLS_CONSUMER: 0 dead letters" in capsys.readouterr().out
