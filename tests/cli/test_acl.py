"""`rmq acl`: users and rules of each broker, changed by plans; secrets stay hidden."""

from __future__ import annotations

import io
import json
import sys

import pytest

from rmqcli import Admin, NotFoundError, UsageError
from rmqcli.cli.main import run
from rmqcli.testing import faults

PASSWORD = "correct horse"


@pytest.fixture
def cluster(rmq_cluster_factory):
    return rmq_cluster_factory(brokers=2, settings={"authentication_enabled": True})


@pytest.fixture
def rmq(cluster, capsys):
    def run_it(*words, at=cluster):
        code = run(["acl", *map(str, words), "-n", at.namesrv, "-o", "jsonl"])
        out, err = capsys.readouterr()
        assert PASSWORD not in out + err
        return code, [json.loads(line) for line in out.splitlines()], err

    return run_it


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text(f"{PASSWORD}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def alice(rmq, file):
    rmq("user", "create", "alice", "--password-file", file, "--yes")
    return "alice"


def users_of(cluster, name="broker-a"):
    return cluster.broker(name).state.accounts.users


def test_a_user_is_created_on_each_broker_after_a_question(rmq, cluster, file):
    words = ("user", "create", "alice", "--password-file", file)
    code, rows, err = rmq(*words)
    assert (code, rows) == (7, [])
    assert err.startswith("create user alice on broker-a, broker-b\n")
    assert users_of(cluster) == {}
    code, rows, _ = rmq(*words, "--yes")
    row = {"result": "created", "kind": "user", "name": "alice", "error": None}
    assert (code, rows) == (0, [{**row, "brokers": ["broker-a", "broker-b"]}])
    for name in ("broker-a", "broker-b"):
        user = users_of(cluster, name)["alice"]
        assert (user.password, user.user_type) == (PASSWORD, "Normal")


def test_a_program_copies_a_user_and_its_rules(rmq, cluster, file):
    one = ("--broker", "broker-a", "--yes")
    rmq("user", "create", "bob", "--password-file", file, *one)
    rmq("rule", "create", "bob", "Topic:orders", "Pub", *one)
    with Admin(namesrv=cluster.namesrv) as admin:
        for kind in ("user", "rule"):
            planned = admin.plan_acl_copy(kind, "bob", source="broker-a")
            assert planned.brokers == ("broker-b",)
            assert admin.apply_definitions(planned).is_complete
        entries = {(e.kind, e.name, e.brokers) for e in admin.accounts().entries}
        both = ("broker-a", "broker-b")
        assert entries == {
            ("user", "bob", both),
            ("rule", "User:bob Topic:orders", both),
        }
        with pytest.raises(NotFoundError, match="there is no user carol"):
            admin.plan_acl_copy("user", "carol", source="broker-a")
        with pytest.raises(UsageError, match="must be 'user' or 'rule'"):
            admin.plan_acl_copy("topic", "bob", source="broker-a")
    assert users_of(cluster, "broker-b")["bob"].password == PASSWORD


def test_a_user_that_exists_is_not_changed_by_a_creation(rmq, alice, file, tmp_path):
    words = ("user", "create", alice, "--password-file", file)
    assert rmq(*words)[:2] == (0, [])
    code, _, err = rmq(*words, "--super", "--yes")
    assert code == 7
    assert "it exists with other settings; nothing was changed" in err
    other = tmp_path / "other"
    other.write_text("another")
    other.chmod(0o600)
    code, _, err = rmq("user", "create", alice, "--password-file", other, "--yes")
    assert code == 7
    assert "it exists with another password; nothing was changed" in err


def test_a_creation_that_failed_on_one_broker_can_be_repeated(rmq, cluster, file):
    cluster.faults.next(faults.answer(1, "no room"), code=3001, broker="broker-b")
    words = ("user", "create", "alice", "--password-file", file, "--yes")
    code, rows, _ = rmq(*words)
    assert code == 6
    assert [(row["result"], row["brokers"]) for row in rows] == [
        ("failed", ["broker-b"]),
        ("created", ["broker-a"]),
    ]
    code, rows, _ = rmq(*words)
    assert (code, [row["brokers"] for row in rows]) == (0, [["broker-b"]])


def test_a_password_that_a_broker_did_not_store_is_a_failure(
    rmq, cluster, alice, tmp_path
):
    cluster.faults.add(faults.answer(0), code=3002, broker="broker-b")
    other = tmp_path / "other"
    other.write_text("another")
    other.chmod(0o600)
    code, rows, err = rmq("user", "update", alice, "--password-file", other, "--yes")
    assert code == 6
    assert [(row["result"], row["brokers"], row["error"]) for row in rows] == [
        ("failed", ["broker-b"], "the broker has another value of password"),
        ("changed", ["broker-a"], None),
    ]
    assert 'password null -> "(new)"' in err
    assert users_of(cluster)["alice"].password == "another"


def test_a_password_comes_from_stdin_but_not_from_a_file_of_others(
    rmq, cluster, file, monkeypatch
):
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{PASSWORD}\n"))
    words = ("user", "create", "alice", "--password-file")
    assert rmq(*words, "-", "--yes")[0] == 0
    assert users_of(cluster)["alice"].password == PASSWORD
    file.chmod(0o644)
    code, _, err = rmq(*words, file, "--yes")
    assert code == 2
    assert "other users can read or write it" in err
    code, _, err = rmq("user", "create", "bob", "--yes")
    assert code == 7
    assert "the password cannot be asked for" in err


def test_users_that_brokers_have_differently_are_several_rows(rmq, cluster, alice):
    rmq("user", "update", alice, "--disable", "--broker", "broker-b", "--yes")
    assert [
        (row["user"], row["user_status"], row["brokers"])
        for row in rmq("user", "list")[1]
    ] == [("alice", "disable", ["broker-b"]), ("alice", "enable", ["broker-a"])]
    assert [
        (row["broker_name"], row["decision"], row["reason"])
        for row in rmq("explain", alice, "Topic:orders", "Pub")[1]
    ] == [
        ("broker-a", "deny", "no rule matches"),
        ("broker-b", "deny", "the user is disabled"),
    ]
    code, rows, _ = rmq("user", "copy", alice, "--from", "broker-a", "--yes")
    assert (code, rows[0]["brokers"]) == (0, ["broker-b"])
    assert len(rmq("user", "list")[1]) == 1


def test_a_rule_is_created_changed_copied_and_deleted(rmq, cluster, alice):
    rule = (alice, "Topic:orders")
    one = ("--broker", "broker-a", "--yes")
    code, _, err = rmq("rule", "create", *rule, "sub,PUB", *one)
    assert code == 0
    assert (
        'create rule User:alice Topic:orders on broker-a: actions ["Pub","Sub"]' in err
    )
    assert rmq("rule", "create", *rule, "Pub,Sub", "--broker", "broker-a")[0] == 0
    code, _, err = rmq("rule", "create", *rule, "Pub", *one)
    assert code == 7
    assert "it exists with other settings" in err
    words = ("rule", "update", *rule, "--deny", "--source-ip", "10.0.0.0/8")
    assert rmq(*words, *one)[0] == 0
    assert rmq("rule", "copy", alice, "--from", "broker-a", "--yes")[0] == 0
    assert rmq("rule", "show", *rule)[1] == [
        {
            "user": "alice",
            "resource": "Topic:orders",
            "actions": ["Pub", "Sub"],
            "decision": "Deny",
            "source_ips": ["10.0.0.0/8"],
            "policy_type": "Custom",
            "brokers": ["broker-a", "broker-b"],
            "error": None,
        }
    ]
    assert rmq("explain", *rule, "pub", "--source-ip", "10.1.2.3")[1][0] == {
        "broker_name": "broker-a",
        "decision": "deny",
        "rule": "User:alice Topic:orders",
        "reason": "the rule denies it",
    }
    assert rmq("rule", "delete", *rule, "--yes")[0] == 0
    assert rmq("rule", "delete", *rule, "--yes")[0] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("Topic:orders", "Publish"), "'Publish' is not one of All, Pub"),
        (("Topix:orders", "Pub"), "the resource must be * or Cluster"),
        (("Topic:a*b", "Pub"), "an asterisk at its end only"),
        (("Topic:o", "Pub", "--source-ip", "x"), "'x', which is no IP address"),
    ],
)
def test_a_rule_that_brokers_would_misread_is_refused(rmq, cluster, alice, words, said):
    code, _, err = rmq("rule", "create", alice, *words, "--yes")
    assert code == 2
    assert said in err
    assert cluster.broker().state.accounts.rules == {}


def test_a_user_is_deleted_with_its_rules(rmq, cluster, alice):
    rmq("rule", "create", alice, "*", "All", "--yes")
    code, _, err = rmq("user", "delete", alice)
    assert code == 7
    assert "delete user alice on broker-a, broker-b (with its rules)" in err
    assert rmq("user", "delete", alice, "--yes")[0] == 0
    assert users_of(cluster) == {}
    assert cluster.broker().state.accounts.rules == {}


@pytest.mark.parametrize(
    "words",
    [
        ("user", "show", "bob"),
        ("user", "update", "bob", "--disable", "--yes"),
        ("user", "delete", "bob", "--yes"),
        ("user", "copy", "bob", "--from", "broker-a", "--yes"),
        ("rule", "list", "bob"),
        ("rule", "create", "bob", "*", "All", "--yes"),
        ("rule", "copy", "bob", "--from", "broker-a", "--yes"),
        ("explain", "bob", "Topic:t", "Pub"),
    ],
)
def test_an_unknown_user_is_named(rmq, words):
    code, rows, err = rmq(*words)
    assert (code, rows) == (3, [])
    assert "bob" in err


def test_a_broker_that_does_not_answer_is_named(rmq, cluster, alice):
    cluster.faults.add(faults.disconnect(), code=3005, broker="broker-b")
    code, rows, err = rmq("user", "list")
    assert code == 6
    assert [row["brokers"] for row in rows] == [["broker-a"], ["broker-b"]]
    assert rows[1]["error"] is not None
    assert "broker-b did not answer" in err


@pytest.mark.parametrize(
    ("like", "said"),
    [
        ("5.5.0", "access control is off: authenticationMetadataProvider is not set"),
        ("4.6.0", "access control 2.0 needs RocketMQ 5.3.0, and broker-a has 4.6.0"),
    ],
)
def test_a_broker_without_users_says_why(rmq, rmq_cluster_factory, file, like, said):
    other = rmq_cluster_factory(like=like)
    for words in (
        ("user", "list"),
        ("user", "create", "alice", "--password-file", file, "--yes"),
        ("rule", "create", "alice", "*", "All", "--yes"),
        ("explain", "alice", "Topic:t", "Pub"),
    ):
        code, _, err = rmq(*words, at=other)
        assert code == 1
        assert said in err


def test_1_0_has_no_accounts_on_new_brokers(rmq):
    code, rows, err = rmq("config")
    assert (code, rows) == (1, [])
    assert "access control 1.0 ended with 5.3.0" in err
    assert "list users with: rmq acl user list" in err


def test_definitions_have_users_and_rules_but_no_passwords(
    cluster, rmq, alice, tmp_path, capsys
):
    rmq("rule", "create", alice, "Topic:orders", "Pub", "--yes")
    file = tmp_path / "d.json"
    assert (
        run(["definitions", "export", "--out", str(file), "-n", cluster.namesrv]) == 0
    )
    err = capsys.readouterr().err
    assert "not in the file: passwords of users" in err
    assert "1 user and 1 rule" in err
    data = json.loads(file.read_text())
    assert PASSWORD not in file.read_text()
    assert data["users"] == [
        {"name": "alice", "user_type": "Normal", "user_status": "enable"}
    ]
    assert data["rules"] == [
        {
            "user": "alice",
            "resource": "Topic:orders",
            "actions": ["Pub"],
            "source_ips": [],
            "decision": "Allow",
        }
    ]
