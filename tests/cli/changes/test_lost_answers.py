"""Where the answer to a change is lost, it may have been made, and that is said.

A connection may end after the broker has done what was requested. To call that a
failure would be wrong, and so would be to call it done.
"""

from __future__ import annotations

import json

import pytest

from rmqcli import (
    Admin,
    ChangeUnknownError,
    ConnectError,
    DeniedError,
    NoBrokerError,
)
from rmqcli.admin.brokers import failed_word, lost_answer
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode

LOST = "; it may have been done"
TOPIC, GROUP = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
)
CONFIG = RequestCode.UPDATE_BROKER_CONFIG
READ = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
#: a command, and the requests whose answers are lost
DELETIONS = [
    (("topic", "delete", "orders"), RequestCode.DELETE_TOPIC_IN_BROKER),
    (("topic", "delete", "orders"), RequestCode.DELETE_TOPIC_IN_NAMESRV),
    (
        ("group", "delete", "billing", "--remove-offsets"),
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    ),
]
#: a command whose effect is read back, the request, and by what that is read
READ_BACK = [
    (("topic", "create", "new"), TOPIC),
    (("topic", "update", "orders", "--queues", "9"), TOPIC),
    (("topic", "permission", "orders", "r"), TOPIC),
    (("group", "create", "new"), GROUP),
    (("group", "update", "billing", "--max-retries", "3"), GROUP),
    (("group", "pause", "billing"), GROUP),
    (
        (
            "broker",
            "config",
            "set",
            "maxMessageSize=5000000",
            "--cluster",
            "DefaultCluster",
        ),
        CONFIG,
    ),
]
SERVERS = {"broker-a", "broker-b"}


@pytest.fixture(autouse=True)
def _names(cluster):
    cluster.create_topic("orders")
    cluster.create_group("billing")


@pytest.mark.parametrize(("words", "code"), DELETIONS)
@pytest.mark.parametrize("is_handled", [True, False])
def test_a_deletion_without_an_answer_is_unknown(rmq, cluster, words, code, is_handled):
    """It said "failed" of what was done, with exit code 5."""
    cluster.faults.add(faults.disconnect(is_handled=is_handled), code=code)
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 6
    assert rows[0]["result"] in ("unknown", "deleted")
    lost = [row for row in rows if row["result"] != "deleted"]
    assert {row["result"] for row in lost} == {"unknown"}
    assert all(row["error"].endswith(LOST) for row in lost)
    assert "failed" not in err
    assert "see whether it was done: rmq " in err


@pytest.mark.parametrize(("words", "code"), READ_BACK)
def test_a_change_without_an_answer_that_is_read_back_is_done(
    rmq, cluster, words, code
):
    cluster.faults.add(faults.disconnect(is_handled=True), code=code)
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 0, err
    found = {row.get("server") or row["broker_name"]: row["result"] for row in rows}
    assert {found[name] for name in SERVERS} <= {"created", "changed"}


@pytest.mark.parametrize(("words", "code"), READ_BACK)
def test_a_change_without_an_answer_that_is_not_there_yet_is_unknown(
    rmq, cluster, words, code
):
    """The broker may still be at it."""
    cluster.faults.add(faults.disconnect(is_handled=False), code=code)
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 6, err
    found = {row.get("server") or row["broker_name"]: row for row in rows}
    for name in SERVERS:
        assert found[name]["result"] == "unknown"
        assert found[name]["error"].endswith(LOST)
    assert "failed" not in err
    assert "whether it was done" in err


def test_one_lost_answer_among_two_is_not_called_a_failure(rmq, cluster):
    lost = faults.disconnect(is_handled=False)
    cluster.faults.add(lost, code=GROUP, broker="broker-b")
    code, rows, err = rmq("group", "pause", "billing", "--yes")
    assert code == 6
    assert [row["result"] for row in rows] == ["changed", "unknown"]
    assert "1 of 2 servers did not answer" in err
    assert "see whether it was done: rmq group members" in err


def test_a_pause_whose_effect_cannot_be_read_either_is_unknown(rmq, cluster):
    cluster.faults.add(faults.disconnect(is_handled=True), code=GROUP)
    # The settings are read for the question, for the change, and afterwards.
    cluster.faults.add(faults.answer(1, "no"), code=READ, broker="broker-a", nth=3)
    code, rows, _ = rmq("group", "pause", "billing", "--yes")
    assert code == 6
    assert [row["result"] for row in rows] == ["unknown", "changed"]


@pytest.mark.parametrize(
    "error",
    [
        ConnectError("refused", address="a:1"),
        NoBrokerError("none", address="a:1"),
        DeniedError("no", code=16, name="NO_PERMISSION"),
    ],
)
def test_what_was_not_sent_or_was_refused_has_failed(error):
    assert lost_answer(error) is error
    assert failed_word(error) == "failed"


def test_a_deletion_on_brokers_that_hang_may_have_been_done(rmq, cluster):
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    cluster.faults.add(faults.drop_answer(), code=code)
    exit_code, rows, err = rmq("topic", "delete", "orders", "--yes", "--timeout", "1s")
    assert (exit_code, rows) == (5, None)
    assert "no broker answers" in err
    assert "the topic may have been deleted; see whether it was done: rmq topic" in err


def test_a_drain_without_an_answer_that_is_not_there_yet_is_unknown(rmq, cluster):
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    cluster.faults.add(faults.disconnect(is_handled=False), code=code)
    exit_code, shown, err = rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    assert exit_code == 6, err
    (row,) = shown["servers"]
    assert row["result"] == "unknown"
    assert row["error"].endswith(LOST)


def test_the_library_raises_an_error_of_its_own(cluster):
    cluster.faults.add(
        faults.disconnect(is_handled=True), code=RequestCode.DELETE_SUBSCRIPTIONGROUP
    )
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(ChangeUnknownError) as caught,
    ):
        admin.delete_group("billing", remove_offsets=True)
    assert caught.value.hint == "see whether it was done: Admin.group('billing')"


def test_an_account_without_an_answer_is_unknown(rmq_cluster_factory, capsys, tmp_path):
    cluster = rmq_cluster_factory(settings={"authentication_enabled": True})
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    code = RequestCode.AUTH_CREATE_USER
    cluster.faults.add(faults.disconnect(is_handled=False), code=code)
    words = ("acl", "user", "create", "alice", "--password-file", str(password))
    assert run([*words, "--yes", "-n", cluster.namesrv, "-o", "json"]) == 6
    out, _ = capsys.readouterr()
    (row,) = json.loads(out)
    assert row["result"] == "unknown"
    assert row["error"].endswith(LOST)
