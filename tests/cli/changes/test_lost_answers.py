"""Where the answer to a change is lost, it may have been made, and that is said.

A connection may end after the broker has done what was requested. To call that a
failure would be wrong, and so would be to call it done.
"""

from __future__ import annotations

import json
import re

import pytest

from rmqcli import (
    Admin,
    ChangeUnknownError,
    ClientConfig,
    ConnectError,
    DeniedError,
    NoBrokerError,
)
from rmqcli.admin.brokers import failed_word, lost_answer
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
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
#: changes of the value that name servers have of a key, and what is there afterwards
KV = [
    (("put", "N", "orders", "new"), RequestCode.PUT_KV_CONFIG, "changed"),
    (("delete", "N", "orders"), RequestCode.DELETE_KV_CONFIG, "deleted"),
]
SERVERS = {"broker-a", "broker-b"}


@pytest.fixture(autouse=True)
def _names(cluster):
    cluster.create_topic("orders")
    cluster.create_group("billing")


@pytest.mark.parametrize(("words", "code"), DELETIONS)
def test_a_deletion_without_an_answer_that_is_not_made_yet_is_unknown(
    rmq, cluster, words, code
):
    """The server may still be at it."""
    cluster.faults.add(faults.disconnect(), code=code)
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 6
    assert rows[0]["result"] in ("unknown", "deleted")
    lost = [row for row in rows if row["result"] != "deleted"]
    assert {row["result"] for row in lost} == {"unknown"}
    assert all(row["error"].endswith(LOST) for row in lost)
    assert "failed" not in err
    is_of_namesrv = code == RequestCode.DELETE_TOPIC_IN_NAMESRV
    todo = "repeat the deletion" if is_of_namesrv else "see whether it was done: rmq "
    assert todo in err


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
    assert "1 of 2 servers did not show whether it was done" in err
    assert "see whether it was done: rmq group show" in err


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


@pytest.mark.slow
def test_a_deletion_on_brokers_that_hang_may_have_been_done(rmq, cluster):
    code = RequestCode.DELETE_TOPIC_IN_BROKER
    for name in SERVERS:

        def hang(_, name=name):
            cluster.faults.add(faults.drop_request(), broker=name)

        cluster.faults.observe(code=code, broker=name, on_request=hang)
        cluster.faults.add(faults.drop_answer(), code=code, broker=name)
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


def test_a_drain_whose_answer_cannot_be_read_may_have_been_done(rmq, cluster):
    """It was called a failure, although the name server's code said that it is done."""
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    cluster.faults.add(faults.answer(0), code=code)  # without the number of topics
    exit_code, shown, err = rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    assert exit_code == 6, err
    (row,) = shown["servers"]
    assert row["result"] == "unknown"
    assert row["error"].endswith("wipeTopicCount is missing" + LOST)


def test_the_library_raises_an_error_of_its_own(cluster):
    cluster.faults.add(faults.disconnect(), code=RequestCode.DELETE_SUBSCRIPTIONGROUP)
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


@pytest.mark.parametrize(("words", "code", "done"), KV)
def test_a_kv_change_without_an_answer_is_done_if_it_is_read_back(
    rmq, cluster, words, code, done
):
    rmq("nameserver", "kv", "put", "N", "orders", "old", "--yes")
    cluster.faults.add(faults.disconnect(is_handled=True), code=code)
    exit_code, rows, err = rmq("nameserver", "kv", *words, "--yes")
    assert (exit_code, [row["result"] for row in rows]) == (0, [done]), err


@pytest.mark.parametrize(("words", "code", "done"), KV)
def test_a_kv_change_without_an_answer_that_is_not_there_yet_is_unknown(
    rmq, cluster, words, code, done
):
    rmq("nameserver", "kv", "put", "N", "orders", "old", "--yes")
    cluster.faults.add(faults.disconnect(is_handled=False), code=code)
    exit_code, rows, err = rmq("nameserver", "kv", *words, "--yes")
    assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"])
    assert rows[0]["error"].endswith(LOST)
    assert "failed" not in err


@pytest.mark.parametrize(("words", "code", "done"), KV)
def test_a_kv_change_whose_effect_cannot_be_read_either_is_unknown(
    rmq, cluster, words, code, done
):
    rmq("nameserver", "kv", "put", "N", "orders", "old", "--yes")
    cluster.faults.add(faults.disconnect(is_handled=True), code=code)
    read = RequestCode.GET_KV_CONFIG
    cluster.faults.add(faults.answer(1, "no"), code=read, nth=2)
    exit_code, rows, _ = rmq("nameserver", "kv", *words, "--yes")
    assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"])


def test_an_undrain_without_an_answer_that_is_not_there_yet_is_unknown(rmq, cluster):
    """Both ways back are tried, and neither answers."""
    rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    lost = faults.disconnect(is_handled=False)
    cluster.faults.add(lost, code=RequestCode.ADD_WRITE_PERM_OF_BROKER)
    cluster.faults.add(lost, code=CONFIG)
    exit_code, rows, err = rmq("broker", "undrain", "broker-a", "--yes")
    assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"]), err
    assert rows[0]["error"].endswith(LOST)


def test_an_undrain_that_the_name_server_may_still_do_is_unknown(rmq, cluster):
    """It said "failed", because the broker had confirmed the second way back."""
    rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    lost = faults.disconnect(is_handled=False)
    cluster.faults.add(lost, code=RequestCode.ADD_WRITE_PERM_OF_BROKER)
    cluster.faults.add(faults.answer(0), code=CONFIG)
    exit_code, rows, err = rmq("broker", "undrain", "broker-a", "--yes")
    assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"]), err
    assert rows[0]["error"].endswith(LOST)


@pytest.mark.parametrize("code", [RequestCode.ADD_WRITE_PERM_OF_BROKER, CONFIG])
def test_an_undrain_without_an_answer_that_is_read_back_is_done(rmq, cluster, code):
    rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    if code == CONFIG:  # the way through the broker
        refused = faults.answer(1, "no")
        cluster.faults.add(refused, code=RequestCode.ADD_WRITE_PERM_OF_BROKER)
    cluster.faults.add(faults.disconnect(is_handled=True), code=code)
    exit_code, rows, err = rmq("broker", "undrain", "broker-a", "--yes")
    assert (exit_code, [row["result"] for row in rows]) == (0, ["changed"]), err


@pytest.mark.parametrize("code", [RequestCode.DELETE_TOPIC_IN_BROKER])
def test_the_topics_of_a_group_without_an_answer_are_unknown(rmq, cluster, code):
    cluster.create_topic("%RETRY%billing")
    cluster.faults.add(faults.disconnect(), code=code)
    words = ("group", "delete", "billing", "--remove-offsets", "--remove-topics")
    exit_code, rows, err = rmq(*words, "--yes")
    assert exit_code == 6
    lost = [row for row in rows if row["result"] != "deleted"]
    assert {row["result"] for row in lost} == {"unknown"}
    assert all(row["error"].endswith(LOST) for row in lost)
    assert "failed" not in err


@pytest.mark.parametrize("is_handled", [True, False])
def test_a_clean_up_of_expired_queues_without_an_answer_is_looked_after(
    rmq, cluster, is_handled
):
    store = cluster.broker().state.store
    cluster.send("orders", ["x"], queue_id=1, broker="broker-a")
    store.trim(None, store.log_bounds()[1])
    code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
    cluster.faults.add(faults.disconnect(is_handled=is_handled), code=code)
    exit_code, rows, err = rmq("broker", "clean-expired-queues", "--yes")
    assert (rows[0]["topic"], rows[0]["queue_id"]) == ("orders", 1)
    if is_handled:
        assert (exit_code, [row["result"] for row in rows]) == (0, ["removed"])
    else:
        assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"])
        assert rows[0]["error"].endswith(LOST)
        assert "failed" not in err


@pytest.fixture
def leftover(cluster):
    """On broker-a, billing has read a queue of a topic that is gone."""
    broker = cluster.broker()
    cluster.send("orders", ["x"], queue_id=0, broker="broker-a")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        call = update_consumer_offset("billing", "orders", 0, commit_offset=1)
        client.invoke(broker.address, call)
    broker.state.topics.delete("orders")


@pytest.mark.parametrize("is_handled", [True, False])
def test_a_clean_up_of_unused_topics_without_an_answer_is_looked_after(
    rmq, cluster, leftover, is_handled
):
    lost = faults.disconnect(is_handled=is_handled)
    code = RequestCode.CLEAN_UNUSED_TOPIC
    cluster.faults.add(lost, code=code, broker="broker-a")
    exit_code, rows, err = rmq("broker", "clean-unused-topics", "--yes")
    if is_handled:
        assert (exit_code, [row["result"] for row in rows]) == (0, ["removed"])
    else:
        assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"])
        assert rows[0]["error"].endswith(LOST)
        assert "failed" not in err


def test_a_clean_up_that_was_for_nothing_that_is_known_may_have_been_done(rmq, cluster):
    code = RequestCode.CLEAN_UNUSED_TOPIC
    cluster.faults.add(faults.disconnect(is_handled=True), code=code, broker="broker-b")
    exit_code, rows, err = rmq("broker", "clean-unused-topics", "--yes")
    assert exit_code == 6, err
    assert [(row["broker_name"], row["result"]) for row in rows] == [
        ("broker-b", "unknown")
    ]


def test_a_clean_up_whose_effect_cannot_be_read_either_is_unknown_by_its_type(
    cluster, leftover
):
    """The error was a PartialError, so that the summary called it a failure."""
    lost = faults.disconnect(is_handled=True)
    cluster.faults.add(lost, code=RequestCode.CLEAN_UNUSED_TOPIC, broker="broker-a")
    read = RequestCode.QUERY_CONSUME_QUEUE
    cluster.faults.add(faults.disconnect(), code=read, nth=2)
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(ChangeUnknownError, match="whether it did is not known"),
    ):
        admin.clean_unused_topics()


def test_a_drain_without_an_answer_is_not_called_failed_as_a_whole(rmq, cluster):
    """Its `state` was failed, beside a name server whose result was unknown."""
    code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    cluster.faults.add(faults.disconnect(is_handled=False), code=code)
    _, shown, _ = rmq("broker", "drain", "broker-a", "--no-wait", "--yes")
    assert shown["state"] == "unknown"


AUTHENTICATED = {"authentication_enabled": True}


def account_on_one(cluster):
    """Create alice and a rule of hers on broker-a only."""
    with Admin(namesrv=cluster.namesrv) as admin:
        user = admin.plan_user(
            "alice", is_new=True, password="secret", brokers=["broker-a"]
        )
        assert admin.apply_definitions(user).is_complete
        rule = admin.plan_rule(
            "alice", "Topic:orders", is_new=True, actions=["Pub"], brokers=["broker-a"]
        )
        assert admin.apply_definitions(rule).is_complete
    return cluster


@pytest.fixture
def accounts(rmq_cluster_factory):
    return account_on_one(rmq_cluster_factory(brokers=2, settings=AUTHENTICATED))


def copy(capsys, cluster, kind):
    words = ["acl", kind, "copy", "alice", "--from", "broker-a", "--yes"]
    capsys.readouterr()
    code = run([*words, "-n", cluster.namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


COPIES = [
    ("user", RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_USER),
    ("rule", RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_LIST_ACL),
]


@pytest.mark.parametrize(("kind", "code", "read"), COPIES)
@pytest.mark.parametrize("is_handled", [True, False])
def test_a_copy_of_an_account_without_an_answer_is_looked_after(
    accounts, capsys, kind, code, read, is_handled
):
    if kind == "rule":
        assert copy(capsys, accounts, "user")[0] == 0
    accounts.faults.add(faults.disconnect(is_handled=is_handled), code=code)
    exit_code, rows, err = copy(capsys, accounts, kind)
    (row,) = rows
    if is_handled:
        assert (exit_code, row["result"]) == (0, "created"), err
    else:
        assert (exit_code, row["result"]) == (6, "unknown")
        assert row["error"].endswith(LOST)
        assert "failed" not in err


@pytest.mark.parametrize(("kind", "code", "read"), COPIES)
def test_a_copy_of_an_account_that_cannot_be_read_back_either_is_unknown(
    accounts, capsys, kind, code, read
):
    """It was called a failure, as if the broker had refused it."""
    if kind == "rule":
        assert copy(capsys, accounts, "user")[0] == 0
    sent = accounts.faults.observe(code=code, on_request=lambda _: hide())

    def hide():
        accounts.faults.add(faults.disconnect(), code=read, broker="broker-b")

    accounts.faults.add(faults.disconnect(is_handled=True), code=code)
    exit_code, rows, err = copy(capsys, accounts, kind)
    assert sent.seen == 1
    assert (exit_code, [row["result"] for row in rows]) == (6, ["unknown"]), err
    assert rows[0]["error"].startswith("whether it was created is not known: ")


def test_a_copy_of_an_account_names_a_broker_that_has_left(
    rmq_cluster_factory, capsys, tmp_path, monkeypatch
):
    """The command ended with exit code 0, as if the account were everywhere."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = account_on_one(rmq_cluster_factory(brokers=3, settings=AUTHENTICATED))
    assert run(["groups", "-n", cluster.namesrv]) == 0
    cluster.broker("broker-b").kill()
    code, rows, err = copy(capsys, cluster, "user")
    assert (code, [row["brokers"] for row in rows]) == (6, [["broker-c"]])
    assert "nothing is changed on broker-b: it is no longer in the route" in err


@pytest.mark.parametrize("kind", ["user", "rule"])
def test_a_copy_to_a_broker_that_has_left_does_not_call_the_source_the_only_one(
    rmq_cluster_factory, capsys, tmp_path, monkeypatch, kind
):
    """It said that broker-a is the only broker of the cluster."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    cluster = account_on_one(rmq_cluster_factory(brokers=2, settings=AUTHENTICATED))
    assert run(["groups", "-n", cluster.namesrv]) == 0
    cluster.broker("broker-b").kill()
    code, rows, err = copy(capsys, cluster, kind)
    assert (code, rows) == (6, [])
    assert "nothing is changed on broker-b: it is no longer in the route" in err
    assert "only broker" not in err


def test_a_copy_goes_to_the_masters_although_a_broker_has_only_slaves_left(
    rmq_cluster_factory, capsys
):
    """It was refused, because broker-b currently has no master."""
    cluster = account_on_one(rmq_cluster_factory(brokers=3, settings=AUTHENTICATED))
    cluster.add_slave("broker-b")
    cluster.broker("broker-b").kill()
    code, rows, err = copy(capsys, cluster, "user")
    assert (code, [row["brokers"] for row in rows]) == (6, [["broker-c"]])
    assert "nothing is changed on broker-b: broker broker-b currently has no" in err


def test_a_copy_from_the_only_broker_is_refused(rmq_cluster_factory, capsys):
    cluster = account_on_one(rmq_cluster_factory(brokers=1, settings=AUTHENTICATED))
    code, _, err = copy(capsys, cluster, "user")
    assert code == 2
    assert "broker-a is the only broker of cluster DefaultCluster" in err


ACCOUNT_CHANGES = [
    (("user", "create", "carol", "--password-file"), RequestCode.AUTH_CREATE_USER),
    (("user", "update", "alice", "--disable"), RequestCode.AUTH_UPDATE_USER),
    (("user", "delete", "alice"), RequestCode.AUTH_DELETE_USER),
    (("rule", "create", "alice", "Topic:new", "Pub"), RequestCode.AUTH_CREATE_ACL),
    (("rule", "delete", "alice", "Topic:orders"), RequestCode.AUTH_DELETE_ACL),
]


@pytest.fixture
def acl(accounts, capsys, tmp_path):
    """Run a change of accounts; hide those of the broker after a request."""
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)

    def run_it(words, code):
        refusal = faults.answer(16, "not allowed")

        def hide(_):
            for hidden in ("LIST_USER", "LIST_ACL", "GET_USER"):
                accounts.faults.add(refusal, code=RequestCode[f"AUTH_{hidden}"])

        accounts.faults.observe(code=code, on_request=hide)
        words = [*words, str(password)] if words[-1] == "--password-file" else words
        more = ["--broker", "broker-a", "--yes", "-n", accounts.namesrv, "-o", "json"]
        exit_code = run(["acl", *words, *more])
        out, err = capsys.readouterr()
        return exit_code, json.loads(out), err

    return run_it


@pytest.mark.parametrize(("words", "code"), ACCOUNT_CHANGES)
def test_a_change_of_accounts_that_are_not_shown_any_more_is_unknown(acl, words, code):
    """A new user was said to be missing, and the others were called done."""
    exit_code, (row,), err = acl(words, code)
    assert (exit_code, row["result"], row["brokers"]) == (6, "unknown", ["broker-a"])
    assert re.match("whether it was (creat|chang|delet)ed is not known: ", row["error"])
    assert f"{row['kind']} {row['name']} on broker-a: whether it was" in err


@pytest.mark.parametrize(("words", "code"), ACCOUNT_CHANGES)
def test_a_refused_change_of_accounts_that_are_not_shown_any_more_has_failed(
    acl, accounts, words, code
):
    """A deletion that the broker refused was called done, with exit code 0."""
    accounts.faults.add(faults.answer(16, "no"), code=code)
    exit_code, (row,), _ = acl(words, code)
    assert (exit_code, row["result"]) == (4, "failed")
    assert row["error"].endswith(" answered NO_PERMISSION: no")


def test_one_lost_copy_among_two_is_not_called_a_failure(rmq_cluster_factory, capsys):
    """The summary said "1 of 2 changes failed"."""
    cluster = account_on_one(rmq_cluster_factory(brokers=3, settings=AUTHENTICATED))
    cluster.faults.add(
        faults.disconnect(is_handled=False),
        code=RequestCode.AUTH_CREATE_USER,
        broker="broker-c",
    )
    code, rows, err = copy(capsys, cluster, "user")
    assert code == 6
    assert [(row["result"], row["brokers"]) for row in rows] == [
        ("unknown", ["broker-c"]),
        ("created", ["broker-b"]),
    ]
    assert "1 of 2 changes may have been done: user alice: " in err
    assert "failed" not in err


def test_a_copy_that_one_broker_refuses_and_another_may_have_made_is_not_denied(
    rmq_cluster_factory, capsys
):
    cluster = account_on_one(rmq_cluster_factory(brokers=3, settings=AUTHENTICATED))
    create = RequestCode.AUTH_CREATE_USER
    cluster.faults.add(faults.answer(16, "no"), code=create, broker="broker-b")
    cluster.faults.add(faults.disconnect(), code=create, broker="broker-c")
    code, rows, err = copy(capsys, cluster, "user")
    assert (code, [row["result"] for row in rows]) == (6, ["failed", "unknown"])
    assert "it may have been done" in err


def test_in_the_library_one_lost_answer_among_two_has_the_same_type(cluster):
    lost = faults.disconnect(is_handled=False)
    cluster.faults.add(lost, code=GROUP, broker="broker-b")
    with (
        Admin(namesrv=cluster.namesrv) as admin,
        pytest.raises(
            ChangeUnknownError, match="1 of 2 servers did not show whether it was done"
        ),
    ):
        admin.update_group("billing", retry_max_times=3)
