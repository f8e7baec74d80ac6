"""What a server has after a change counts, and not only what it answers.

A server may confirm a change and then refuse to show it: whether it was made is not
known. It may also confirm what it has not done.
"""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, ChangeUnknownError
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode

TOPIC, GROUP = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
)
DELETE_TOPIC = RequestCode.DELETE_TOPIC_IN_BROKER
DELETE_GROUP = RequestCode.DELETE_SUBSCRIPTIONGROUP
WIPE = RequestCode.WIPE_WRITE_PERM_OF_BROKER
#: commands, and the request whose effect is hidden afterwards
SETTINGS = [
    (("topic", "create", "new"), TOPIC),
    (("topic", "update", "orders", "--queues", "9"), TOPIC),
    (("topic", "permission", "orders", "r"), TOPIC),
    (("group", "create", "new"), GROUP),
    (("group", "update", "billing", "--max-retries", "3"), GROUP),
    (("group", "pause", "billing"), GROUP),
]
DELETIONS = [
    (("topic", "delete", "orders"), DELETE_TOPIC),
    (("group", "delete", "billing", "--remove-offsets"), DELETE_GROUP),
]


@pytest.fixture(autouse=True)
def _names(cluster):
    cluster.create_topic("orders")
    cluster.create_group("billing")


def hide_after(cluster, code, broker="broker-b"):
    """Let a server refuse all requests that come after the first one of `code`."""
    refusal = faults.answer(16, "not allowed")

    def hide(_):
        cluster.faults.add(refusal, broker=broker)

    cluster.faults.observe(code=code, broker=broker, on_request=hide)


@pytest.mark.parametrize(("words", "code"), SETTINGS)
def test_a_change_that_one_broker_refuses_and_another_may_have_made_is_not_denied(
    rmq, cluster, words, code
):
    """The command ended with the denial alone, as if nothing had been changed."""
    refusal = faults.answer(16, "not allowed")
    cluster.faults.add(refusal, code=code, broker="broker-a")
    cluster.faults.add(faults.disconnect(), code=code, broker="broker-b")
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 6
    assert [row["result"] for row in rows] == ["failed", "unknown"]
    assert "closed the connection" in err
    assert "it may have been done" in err


def test_a_summary_of_refused_and_unknown_changes_says_both(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=3)
    refusal = faults.answer(16, "not allowed")
    cluster.faults.add(refusal, code=GROUP, broker="broker-a")
    cluster.faults.add(faults.disconnect(), code=GROUP, broker="broker-b")
    said = "2 of 3 servers failed, or did not show whether it was done"
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(ChangeUnknownError, match=f"{said}, the first of them broker-b:"),
    ):
        admin.create_group("billing")


@pytest.mark.parametrize(("words", "code"), SETTINGS)
def test_settings_that_are_confirmed_and_not_shown_are_unknown(
    rmq, cluster, words, code
):
    """They were called failed, although the broker has them."""
    hide_after(cluster, code)
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 6
    hidden = next(row for row in rows if row["server"] == "broker-b")
    assert hidden["result"] == "unknown"
    assert "but did not show them afterwards: " in hidden["error"]
    assert "1 of 2 servers did not show whether it was done: broker-b" in err
    assert f"see whether it was done: rmq {words[0]} show {words[2]}" in err


def test_an_ordered_topic_that_is_not_shown_keeps_its_fixed_queues(rmq, cluster):
    """Without them, the broker that has made it ordered would undo that."""
    hide_after(cluster, TOPIC)
    code, rows, _ = rmq("topic", "update", "orders", "--order", "--yes")
    assert code == 6
    assert [row["result"] for row in rows] == ["changed", "unknown", "changed"]
    cluster.faults.clear()
    _, values, _ = rmq("nameserver", "kv", "get", "ORDER_TOPIC_CONFIG", "orders")
    assert [each["value"] for each in values] == ["broker-a:4;broker-b:4"]


@pytest.mark.parametrize(("words", "code"), DELETIONS)
def test_a_deletion_without_an_answer_that_is_read_back_is_done(
    rmq, cluster, words, code
):
    lost = faults.disconnect(is_handled=True)
    cluster.faults.add(lost, code=code, broker="broker-b")
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 0, err
    assert {row["result"] for row in rows} == {"deleted"}
    assert rmq(*words, "--yes")[0] == 3


@pytest.mark.parametrize(("words", "code"), DELETIONS)
def test_a_deletion_that_a_broker_confirms_and_has_not_made_has_failed(
    rmq, cluster, words, code
):
    """Name servers would forget the topic, which then cannot be deleted any more."""
    rule = cluster.faults.add(faults.answer(0), code=code, broker="broker-b")
    exit_code, rows, _ = rmq(*words, "--yes")
    assert exit_code == 6
    assert [(row["server"], row["result"]) for row in rows] == [
        ("broker-a", "deleted"),
        ("broker-b", "failed"),
    ]
    assert rows[1]["error"].endswith(", but has it afterwards")
    cluster.faults.remove(rule)
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 0, err
    assert {"server": "broker-b", "result": "deleted"}.items() <= rows[1].items()


def test_a_topic_that_a_name_server_has_forgotten_without_an_answer_is_deleted(
    rmq, cluster
):
    lost = faults.disconnect(is_handled=True)
    cluster.faults.add(lost, code=RequestCode.DELETE_TOPIC_IN_NAMESRV)
    code, rows, err = rmq("topic", "delete", "orders", "--yes")
    assert code == 0, err
    assert [row["result"] for row in rows] == ["deleted", "deleted", "deleted"]


def test_the_topics_of_a_group_can_be_deleted_after_the_group(rmq, cluster):
    """The second run said that the group does not exist, and left its topics."""
    cluster.create_topic("%RETRY%billing")
    words = ("group", "delete", "billing", "--remove-offsets", "--remove-topics")
    refusal = faults.answer(16, "not allowed")
    rule = cluster.faults.add(refusal, code=DELETE_TOPIC, broker="broker-b")
    code, rows, _ = rmq(*words, "--yes")
    assert code == 6
    assert [row["result"] for row in rows] == [
        "deleted",
        "deleted",
        "deleted",
        "failed",
    ]
    cluster.faults.remove(rule)
    code, rows, err = rmq(*words, "--yes")
    assert code == 0, err
    assert [(row["name"], row["result"]) for row in rows] == [
        ("billing", "unchanged"),
        ("billing", "unchanged"),
        *[("%RETRY%billing", "deleted")] * 3,
    ]
    code, _, err = rmq(*words, "--yes")
    assert code == 3
    assert "group billing does not exist" in err


def test_a_drain_that_a_name_server_confirms_and_does_not_show_is_unknown(rmq, cluster):
    """It was called failed, with the exit code of a denial."""
    hide_after(cluster, WIPE, broker="namesrv")
    code, shown, _ = rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    assert code == 6
    assert shown["state"] == "unknown"
    (row,) = shown["servers"]
    assert row["result"] == "unknown"
    assert "was told to change the write permission, but did not show" in row["error"]


def test_a_broker_that_hangs_once_it_is_drained_does_not_hide_the_drain(rmq, cluster):
    """The drain was made, and ended with the broker's error and without a result."""

    def hang(_):
        cluster.faults.add(faults.drop_request(), broker="broker-a")

    cluster.faults.observe(code=WIPE, on_request=hang)
    code, shown, err = rmq(
        "broker", "drain", "broker-a", "--no-wait", "--yes", "--timeout", "500ms"
    )
    assert code == 0, err
    assert shown["state"] == "read-only"
    assert [row["writable"] for row in shown["servers"]] == [0]


@pytest.fixture
def departed(cluster, rmq, tmp_path, monkeypatch):
    """A cluster whose broker-b was seen and has left; groups are not recorded."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    commit = [
        lambda each=each: each.state.offsets.commit("billing", "orders", 0, 0)
        for each in cluster.brokers
    ]
    for each in commit:
        cluster.call(each)
    assert rmq("groups")[0] == 0
    cluster.broker("broker-b").kill()
    return cluster


@pytest.mark.parametrize(
    "words",
    [
        "broker config set maxMessageSize=5000000 --cluster DefaultCluster",
        "topic delete orders",
    ],
)
def test_a_broker_that_has_left_is_a_part_that_is_not_changed(rmq, departed, words):
    """They ended with exit code 0 and did not name the broker."""
    code, rows, err = rmq(*words.split(), "--yes")
    assert code == 6
    (failed,) = [row for row in rows if row["result"] == "failed"]
    assert (failed.get("server") or failed["broker_name"]) == "broker-b"
    assert " servers failed: broker-b: it is no longer in the route" in err
    assert "if it was removed for good: rmq lag --forget" in err


def test_a_reset_names_a_broker_that_has_left_and_of_which_nothing_is_known(
    rmq, departed
):
    _, _, err = rmq("reset-offset", "billing", "orders", "--to", "earliest")
    said = "warning: what group billing has on broker-b is not moved: it is no longer"
    assert said in err


def order_kv(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        return admin.kv_values("ORDER_TOPIC_CONFIG")[0].values


@pytest.fixture
def two_namesrvs(cluster, rmq_cluster_factory, capsys):
    """Run `rmq` with a second name server, which is that of another cluster."""
    other = rmq_cluster_factory()
    other.create_topic("orders")

    def run_it(*words):
        capsys.readouterr()
        both = f"{cluster.namesrv};{other.namesrv}"
        code = run([*words, "-n", both, "-o", "json", "--yes"])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run_it, other


@pytest.mark.parametrize("before", [None, "broker-a:1"])
@pytest.mark.parametrize(
    "fault", [faults.answer(1, "disk full"), faults.disconnect(is_handled=True)]
)
def test_fixed_queues_that_one_name_server_does_not_store_are_taken_back(
    two_namesrvs, cluster, before, fault
):
    """Brokers took from the other one that the topic is ordered, at their next start.

    And the command had said that none was changed.
    """
    rmq, other = two_namesrvs
    put = ["nameserver", "kv", "put", "ORDER_TOPIC_CONFIG", "orders"]
    if before is not None:
        assert rmq(*put, before)[0] == 0
    other.faults.add(fault, code=RequestCode.PUT_KV_CONFIG, times=1)
    code, _, err = rmq("topic", "update", "orders", "--order")
    assert code == 6
    assert f"name server {other.namesrv} did not store the fixed queues" in err
    assert "so no broker was changed" in err
    assert "rmq topic show" not in err  # which does not show them
    values = {} if before is None else {"orders": before}
    assert [order_kv(each) or {} for each in (cluster, other)] == [values, values]


def test_a_name_server_that_may_keep_the_fixed_queues_is_named(two_namesrvs, cluster):
    rmq, other = two_namesrvs
    code = RequestCode.PUT_KV_CONFIG
    other.faults.add(faults.answer(1, "disk full"), code=code)
    refusal = faults.answer(1, "disk full")
    cluster.faults.add(refusal, code=RequestCode.DELETE_KV_CONFIG)
    exit_code, _, err = rmq("topic", "update", "orders", "--order")
    assert exit_code == 6
    assert f"; {cluster.namesrv} may have those of topic orders" in err
    assert order_kv(cluster) == {"orders": "broker-a:4;broker-b:4"}


def test_a_topic_that_one_name_server_lists_still_can_be_deleted(two_namesrvs):
    """The second run said that the topic does not exist, and it stayed in the route."""
    rmq, other = two_namesrvs
    delete = RequestCode.DELETE_TOPIC_IN_NAMESRV
    rule = other.faults.add(faults.answer(1, "busy"), code=delete)
    code, rows, err = rmq("topic", "delete", "orders")
    assert code == 6
    assert (rows[-1]["server"], rows[-1]["result"]) == (other.namesrv, "failed")
    other.faults.remove(rule)
    code, rows, err = rmq("topic", "delete", "orders")
    assert code == 0, err
    assert (rows[-1]["server"], rows[-1]["result"]) == (other.namesrv, "deleted")
    assert rmq("topic", "delete", "orders")[0] == 3
