"""A group is paused on each broker that has it, and what that leaves open is said."""

from __future__ import annotations

import pytest

from rmqcli import Admin
from rmqcli.errors import PartialError, RefusedError
from rmqcli.testing import faults

SET_GROUP, GET_GROUPS = 200, 201


def results(rows):
    return [(row["server"], row["result"], row["consume_enable"]) for row in rows]


def test_a_pause_is_shown_confirmed_made_and_undone(rmq, cluster):
    cluster.create_group("billing")
    code, rows, err = rmq("group", "pause", "billing")
    assert (code, rows) == (7, None)
    assert "broker-a: consumption is on, will be off" in err
    code, rows, _ = rmq("group", "pause", "billing", "--yes")
    assert code == 0
    assert results(rows) == [
        ("broker-a", "changed", False),
        ("broker-b", "changed", False),
    ]
    code, rows, err = rmq("group", "pause", "billing")
    assert (code, results(rows)[0]) == (0, ("broker-a", "unchanged", False))
    assert "nothing was changed: consumption is off" in err
    code, rows, _ = rmq("group", "resume", "billing", "--yes")
    assert code == 0
    assert results(rows)[0] == ("broker-a", "changed", True)


def test_a_broker_without_settings_of_the_group_is_named(rmq, cluster):
    """It creates the settings, with consumption on, at the first heartbeat."""
    assert rmq("group", "create", "billing", "--broker", "broker-a")[0] == 0
    code, rows, err = rmq("group", "pause", "billing", "--yes")
    assert code == 0
    assert results(rows) == [("broker-a", "changed", False)]
    said = "broker-b has no settings of the group, and creates them with consumption on"
    assert said in err


def test_a_broker_that_refuses_has_a_row(rmq, cluster):
    cluster.create_group("billing")
    cluster.faults.add(faults.answer(1, "no"), code=SET_GROUP, broker="broker-b")
    code, rows, err = rmq("group", "pause", "billing", "--yes")
    assert code == 6
    assert [(r["server"], r["result"]) for r in rows] == [
        ("broker-a", "changed"),
        ("broker-b", "failed"),
    ]
    assert "1 of 2 servers failed" in err


def test_a_broker_that_confirms_and_goes_on_is_found_out(rmq, cluster):
    cluster.create_group("billing")
    cluster.faults.add(faults.answer(0), code=SET_GROUP, broker="broker-b")
    code, rows, _ = rmq("group", "pause", "billing", "--yes")
    assert code == 6
    assert rows[1]["result"] == "failed"
    said = "broker-b confirmed the settings of group billing, but has others"
    assert rows[1]["error"] == said


def test_a_broker_that_shows_nothing_afterwards_is_not_called_changed(cluster):
    cluster.create_group("billing")
    cluster.faults.add(
        faults.answer(1, "no"), code=GET_GROUPS, broker="broker-b", nth=3
    )
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(PartialError, match="did not show them afterwards"),
    ):
        admin.pause_group("billing")


def test_a_broker_that_does_not_show_the_group_is_not_changed_without_a_question(
    rmq, cluster
):
    """It may show it a moment later, when the group is changed."""
    cluster.create_group("billing")
    assert rmq("group", "pause", "billing", "--broker", "broker-a", "--yes")[0] == 0
    busy = faults.answer(2, "busy")
    cluster.faults.next(busy, code=GET_GROUPS, broker="broker-b")
    code, rows, err = rmq("group", "pause", "billing")
    assert (code, rows) == (7, None)
    assert "warning: broker-b: " in err
    code, rows, _ = rmq("group", "pause", "billing", "--yes")
    assert (code, results(rows)[1]) == (0, ("broker-b", "changed", False))


def test_rocketmq_s_own_groups_are_left_alone(cluster):
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(RefusedError, match="is a system group"),
    ):
        admin.pause_group("CID_RMQ_SYS_TRANS")


def test_a_group_that_does_not_exist_is_not_found(rmq):
    assert rmq("group", "pause", "nope", "--yes")[0] == 3


def test_the_library_pauses_some_brokers_and_resumes_all(cluster):
    cluster.create_group("billing")
    with Admin(namesrv=cluster.namesrv) as admin:
        paused = admin.pause_group("billing", brokers=["broker-a"])
        assert [(r.server, r.result) for r in paused] == [("broker-a", "changed")]
        assert [r.result for r in admin.resume_group("billing")] == [
            "changed",
            "unchanged",
        ]
