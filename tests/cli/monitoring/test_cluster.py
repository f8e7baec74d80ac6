"""`rmq cluster`: one screen, JSON, and brokers that do not answer."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import open_client, plant_runtime
from tests.kit.terminal import Terminal


@pytest.fixture
def pair(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.create_group("billing")
    cluster.send("orders", ["a", "b", "c"], broker="broker-a")
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send("%DLQ%billing", ["x"], broker="broker-a")
    with open_client(cluster.namesrv) as client:
        for broker in cluster.brokers:
            call = update_consumer_offset("billing", "orders", 0, commit_offset=0)
            client.invoke(broker.address, call)
    return cluster


def show(capsys, cluster, *arguments):
    code = run(["cluster", *arguments, "-n", cluster.namesrv])
    out, err = capsys.readouterr()
    return code, out, err


def test_json_sums_the_cluster_up(pair, capsys):
    code, out, _ = show(capsys, pair, "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert (found["status"], found["groups"]) == ("warning", {"STOPPED": 1})
    assert (found["topics"]["normal"], found["topics"]["dlq"]) == (1, 1)
    assert (found["lag"], found["known_lag"]) == (3, 3)
    letters = found["dead_letters"], found["new_dead_letters"]
    assert (*letters, found["groups_with_letters"]) == (1, 1, 1)
    assert (found["reasons"], found["errors"]) == ({}, [])
    assert [row["broker_name"] for row in found["brokers"]] == ["broker-a", "broker-b"]
    assert {each["check"] for each in found["findings"]} == {
        "access-control",
        "dead-letters",
        "no-member",
    }


def test_the_screen_has_what_is_wrong_first_and_fits(pair, capsys):
    plant_runtime(pair, "broker-b", commitLogDiskRatio="0.92")
    code, out, _ = show(capsys, pair)
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "problem  broker-b (disk): its disk is 92 % full"
    assert len(lines) <= 22
    assert "groups        1: 1 STOPPED; 3 messages wait" in lines
    assert "dead letters  1 in 1 group, 1 in the last hour" in lines
    notes = [line for line in lines if "rmq doctor" in line]
    assert notes == ["         what to do: rmq doctor"]
    heading = next(line for line in lines if line.startswith("BROKER"))
    words = "BROKER ROLE VERSION IN SYNC DISK SEND PULL CACHE IN/S OUT/S UP ERROR"
    assert " ".join(heading.split()) == words


def test_findings_and_brokers_that_do_not_fit_are_counted(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(brokers=11)
    code, out, _ = show(capsys, cluster)
    lines = out.splitlines()
    assert code == 0
    assert lines[:6] == [
        *(
            f"warning  broker-{name} (access-control): it asks for no account:"
            " authenticationEnabled is not true"
            for name in "abcde"
        ),
        "         6 more: rmq doctor",
    ]
    assert [line[:8] for line in lines[8:-4]] == [f"broker-{n}" for n in "abcdefghij"]
    with redirect_stdout(Terminal()) as screen:
        assert run(["cluster", "-n", cluster.namesrv]) == 0
    assert "hidden: 1 broker not shown: rmq brokers" in screen.getvalue()
    assert lines[-3:] == [
        "topics        35: 35 system",
        "groups        0; 0 messages wait",
        "dead letters  0 in 0 groups, 0 in the last hour",
    ]


def test_a_silent_broker_is_named_and_its_numbers_are_unknown(pair, capsys):
    pair.faults.add(faults.disconnect(), broker="broker-b")
    code, out, err = show(capsys, pair, "-o", "json")
    found = json.loads(out)
    assert code == 6
    assert "broker-b did not answer" in err
    assert found["status"] == "problem"
    assert found["findings"][0]["check"] == "broker-answers"
    assert (found["topics"], found["dead_letters"]) == (None, None)
    assert sorted(found["reasons"]) == [
        "dead_letters",
        "groups",
        "lag",
        "new_dead_letters",
        "topics",
    ]
    assert (found["lag"], found["known_lag"]) == (None, 3)
    assert found["errors"][0]["broker_name"] == "broker-b"


@pytest.mark.slow
def test_that_a_broker_gave_no_answer_is_said_once(pair, capsys):
    """The text was "broker-b did not answer: no answer from 127.0.0.1:10911 to ..."."""
    pair.faults.add(faults.drop_request(), broker="broker-b")
    code, _, err = show(capsys, pair, "--timeout", "2s")
    assert code == 6
    assert re.search(
        r"broker-b did not answer: GET_\w+ to 127\.0\.0\.1:\d+ timed out after", err
    )
    assert "no answer" not in err


def test_groups_that_the_only_broker_does_not_tell_are_not_none(rmq_cluster, capsys):
    """It said "0; 0 messages wait", and that no check found anything."""
    rmq_cluster.create_group("billing")
    rmq_cluster.faults.add(
        faults.answer(1, "no"), code=RequestCode.GET_ALL_CONSUMER_OFFSET
    )
    code, out, err = show(capsys, rmq_cluster, "-o", "json")
    found = json.loads(out)
    assert code == 6
    assert "not everything is known: groups: broker-a: " in err
    assert (found["groups"], found["lag"]) == ({}, None)
    error = json.loads(err.splitlines()[-1])["error"]
    assert error["hint"] == "see what could not be checked with: rmq doctor"
    for name in ("groups", "lag"):
        assert found["reasons"][name].startswith("broker-a: ")
    _, out, _ = show(capsys, rmq_cluster)
    assert "groups        at least 0; at least 0 messages wait" in out.splitlines()


def test_the_offsets_of_one_group_that_a_broker_refuses_are_missed(pair, capsys):
    for n in range(9):
        pair.create_group(f"audit-{n}")
    denied = faults.answer(16, "no permission for billing")
    code = RequestCode.GET_CONSUMER_CONNECTION_LIST
    pair.faults.add(denied, code=code, group="billing")
    code, out, err = show(capsys, pair, "-o", "json")
    found = json.loads(out)
    assert (code, found["lag"]) == (6, None)
    assert len(found["refused"]) == 1
    assert found["refused"][0].startswith("group billing: ")
    assert "not everything is known: group billing: " in err


def test_a_group_that_has_not_committed_refuses_nothing(pair, capsys):
    pair.create_group("audit")
    code, out, _ = show(capsys, pair, "-o", "json")
    assert (code, json.loads(out)["refused"]) == (0, [])


def test_dead_letters_are_counted_where_it_is_not_known_how_many_are_new(pair, capsys):
    pair.faults.add(faults.answer(1, "no"), code=RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
    code, out, err = show(capsys, pair, "-o", "json")
    found = json.loads(out)
    assert (code, found["dead_letters"], found["new_dead_letters"]) == (6, 1, None)
    assert "new dead letters: a broker did not report how many are new" in err
    reason = "a broker did not report how many are new"
    assert found["reasons"]["new_dead_letters"] == reason
    _, out, _ = show(capsys, pair)
    line = "dead letters  1 in 1 group, not known how many in the last hour"
    assert line in out.splitlines()


def test_new_letters_of_which_only_the_least_number_is_known_are_not_counted(
    rmq_cluster_factory, capsys
):
    clock = ManualClock(now_ms=SYSTEM_CLOCK.epoch_ms())
    cluster = rmq_cluster_factory(clock=clock, like="4.6.0")
    cluster.create_topic("%DLQ%billing", queues=1, perm=2)
    for age_min in (80, 59, 10):
        cluster.send("%DLQ%billing", [f"{age_min} min"])
        cluster.advance({80: 21, 59: 49, 10: 10}[age_min] * 60_000)
    code, out, err = show(capsys, cluster, "-o", "json")
    found = json.loads(out)
    assert (code, found["dead_letters"], found["new_dead_letters"]) == (6, 3, None)
    reason = "%DLQ%billing is write-only: at least 1 of its letters is new"
    assert found["reasons"]["new_dead_letters"] == reason
    assert f"new dead letters: {reason}" in err


def test_topics_of_a_broker_without_a_master_are_not_left_out(pair, capsys):
    pair.add_slave("broker-b")
    pair.fail_over("broker-b")
    _, out, _ = show(capsys, pair, "-o", "json")
    found = json.loads(out)
    assert found["topics"] is None
    assert (
        found["reasons"]["topics"] == "broker-b: no master is registered, only slaves"
    )


@pytest.mark.parametrize("ahead_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_an_hour_off_does_not_change_for_how_long_a_broker_runs(
    rmq_cluster_factory, capsys, ahead_ms
):
    clock = ManualClock(now_ms=SYSTEM_CLOCK.epoch_ms() + ahead_ms)
    cluster = rmq_cluster_factory(clock=clock)
    cluster.advance(125_000)
    _, out, _ = show(capsys, cluster, "-o", "json")
    (row,) = json.loads(out)["brokers"]
    assert (row["uptime_ms"], row["uptime"]) == (125_000, "2m5s")


def test_the_library_has_the_same(pair):
    with Admin(namesrv=pair.namesrv) as admin:
        summary = admin.cluster()
        diagnosis = admin.doctor(only=["no-member"])
    assert (summary.lag, summary.groups) == (3, {"STOPPED": 1})
    assert diagnosis.status == "warning"
    ((result, finding),) = diagnosis.findings
    assert (result.name, finding.subject) == ("no-member", "billing")
    assert finding.command == "rmq lag billing"


def test_a_broker_that_died_and_left_the_route_is_missed(
    pair, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert show(capsys, pair, "-o", "json")[0] == 0
    pair.broker("broker-b").kill()
    code, out, err = show(capsys, pair, "-o", "json")
    found = json.loads(out)
    assert (code, found["status"]) == (6, "problem")
    assert "broker-b did not answer: it is no longer in the route" in err
    assert found["findings"][0]["check"] == "broker-answers"
    assert found["findings"][0]["subject"] == "broker-b"
    assert (found["topics"], found["lag"], found["dead_letters"]) == (None, None, None)
    assert found["known_lag"] == 3
    assert [each["broker_name"] for each in found["errors"]] == ["broker-b"]
