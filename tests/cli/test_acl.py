"""`rmq acl`: users and rules of each broker, changed by plans; secrets stay hidden."""

from __future__ import annotations

import io
import json
import re
import sys

import pytest

from rmqcli import Admin, NotFoundError, UsageError
from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.bodies.acl import AclConfig, PlainAccessConfig
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from tests.kit.terminal import typed

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
    assert rmq(*words) == (0, [], "")
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
        (
            ("Topic:orders", "Publish"),
            (
                "ACTIONS: 'Publish' is not one of All, Pub, Sub, Create, Update,"
                ' Delete, Get, List"'
            ),
        ),
        (("Topix:orders", "Pub"), "the resource must be * or Cluster"),
        (("Topic:a*b", "Pub"), "an asterisk at its end only"),
        (("Topic:o", "Pub", "--source-ip", "x"), "'x', which is neither an IP address"),
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
    for words in (("user", "show", "bob"), ("rule", "show", alice, "Topic:x")):
        code, rows, _ = rmq(*words, "--timeout", "500ms")
        assert (code, [row["brokers"] for row in rows]) == (6, [["broker-b"]])


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
    cluster.create_topic("orders")
    cluster.create_group("billing")
    file = tmp_path / "d.json"
    assert (
        run(["definitions", "export", "--out", str(file), "-n", cluster.namesrv]) == 0
    )
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: not in the file: passwords of users")
    counts = "1 topic, 1 group, 1 user and 1 rule of cluster DefaultCluster"
    assert last == f"wrote {file}: {counts}"
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


@pytest.fixture
def table(cluster, capsys):
    """Runs `rmq acl` for people; returns the exit code, stdout and stderr."""

    def run_it(*words):
        capsys.readouterr()
        code = run(["acl", *map(str, words), "-n", cluster.namesrv])
        return (code, *capsys.readouterr())

    return run_it


def test_users_are_a_table(table, rmq, alice):
    rmq("user", "update", alice, "--disable", "--broker", "broker-b", "--yes")
    shown = """\
USER   TYPE    STATUS   BROKERS   ERROR
alice  Normal  disable  broker-b  -
alice  Normal  enable   broker-a  -
"""
    assert table("user", "list") == (0, shown, "")
    assert table("user", "show", alice) == (0, shown, "")


def test_rules_are_a_table(table, rmq, alice):
    created = table(
        *("rule", "create", alice, "Topic:orders", "Pub,Sub"),
        *("--source-ip", "10.0.0.0/8", "--source-ip", "10.1.1.1", "--yes"),
    )
    assert created == (
        0,
        """\
RESULT   KIND  NAME                     BROKERS            ERROR
created  rule  User:alice Topic:orders  broker-a,broker-b  -
""",
        (
            "create rule User:alice Topic:orders on broker-a, broker-b: actions"
            ' ["Pub","Sub"]; source_ips ["10.0.0.0/8","10.1.1.1"]\n'
        ),
    )
    rmq("rule", "create", alice, "*", "All", "--deny", "--default", "--yes")
    assert table("rule", "list", "--broker", "broker-a") == (
        0,
        """\
USER   RESOURCE      ACTIONS  DECISION  FROM                 POLICY   BROKERS   ERROR
alice  *             All      Deny      -                    Default  broker-a  -
alice  Topic:orders  Pub,Sub  Allow     10.0.0.0/8,10.1.1.1  Custom   broker-a  -
""",
        "",
    )
    rmq("user", "update", alice, "--disable", "--broker", "broker-b", "--yes")
    assert table("explain", alice, "Topic:orders", "Sub") == (
        0,
        """\
BROKER    DECISION  RULE                     REASON
broker-a  depends   User:alice Topic:orders  it depends on the client's address: \
the rule is for some only
broker-b  deny      -                        the user is disabled
""",
        "",
    )
    assert rmq("rule", "delete", alice, "*", "--default", "--yes")[0] == 0
    assert rmq("rule", "show", alice, "*")[0] == 3


def test_a_rule_of_the_policy_default_is_changed_as_that(rmq, alice):
    rmq("rule", "create", alice, "*", "All", "--deny", "--default", "--yes")
    changed = rmq("rule", "update", alice, "*", "Pub", "--allow", "--default", "--yes")
    assert (changed[0], changed[1][0]["name"]) == (0, "User:alice * Default")
    (row,) = rmq("rule", "list", alice)[1]
    assert (row["actions"], row["decision"]) == (["Pub"], "Allow")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("user list", "no users"),
        ("rule list", "no rules"),
    ],
)
def test_a_list_without_entries_says_so(table, words, said):
    assert table(*words.split()) == (0, "", f"{said}\n")


@pytest.mark.parametrize(
    "words",
    [
        "user list",
        "user show alice",
        "user update alice --super",
        "user delete alice",
        "rule list",
        "rule show alice Topic:t",
        "rule create alice Topic:t Pub",
        "rule update alice Topic:t Pub",
        "rule delete alice Topic:t",
        "explain alice Topic:t Pub",
    ],
)
def test_a_command_reads_only_the_cluster_and_the_brokers_that_are_named(table, words):
    code, _, err = table(*words.split(), "--cluster", "nope")
    assert (code, err.splitlines()[0]) == (3, "error: cluster nope does not exist")
    code, _, err = table(*words.split(), "--broker", "nope")
    assert (code, err.splitlines()[0]) == (3, "error: broker nope does not exist")


def test_rules_of_a_user_without_any_are_an_empty_list(table, alice):
    assert table("rule", "list", alice) == (0, "", "no rules\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("user show bob", "there is no user bob"),
        ("rule list bob", "there is no user bob"),
        ("rule show bob Topic:x", "there is no rule bob Topic:x"),
        ("rule show alice Topic:x", "there is no rule alice Topic:x"),
    ],
)
def test_what_is_not_found_is_named_with_its_kind(table, alice, words, said):
    assert table(*words.split()) == (3, "", f"error: {said}\n")


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        ("user show bob", 3001, "USER_NOT_EXIST"),
        ("user delete bob", 3001, "USER_NOT_EXIST"),
        ("rule list bob", 3001, "USER_NOT_EXIST"),
        ("rule show alice Topic:x", 3002, "POLICY_NOT_EXIST"),
        ("rule delete alice Topic:x", 3002, "POLICY_NOT_EXIST"),
    ],
)
def test_what_is_not_found_has_the_code_of_its_kind(rmq, alice, words, code, name):
    found = json.loads(rmq(*words.split())[2])["error"]
    assert (found["code"], found["code_name"]) == (code, name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "user update alice",
            "nothing to change\nhint: see: rmq acl user update --help",
        ),
        (
            "rule update alice *",
            "nothing to change\nhint: see: rmq acl rule update --help",
        ),
        ("explain alice Topic:orders Pub,Sub", "give one action"),
    ],
)
def test_a_command_that_asks_for_nothing_is_refused(table, words, said):
    assert table(*words.split()) == (2, "", f"error: {said}\n")


def test_a_change_to_what_is_so_already_says_that(table, alice, file):
    rule = ("rule", "create", alice, "Topic:orders", "Pub", "--yes")
    table(*rule)
    for words, said in (
        (
            ("user", "create", alice, "--password-file", file),
            "user alice exists already",
        ),
        (("user", "update", alice, "--enable", "--normal"), "user alice is so already"),
        (rule, "the rule is so already"),
        (
            ("rule", "update", alice, "Topic:orders", "--allow"),
            "the rule is so already",
        ),
        (
            ("user", "copy", alice, "--from", "broker-a"),
            "user alice is the same there",
        ),
        (
            ("rule", "copy", alice, "--from", "broker-a"),
            "the rules are the same there",
        ),
    ):
        assert table(*words) == (0, "", f"{said}\n")


def test_a_user_gets_the_type_and_the_status_that_are_given(rmq, cluster, file):
    words = ("user", "create", "root", "--super", "--password-file", file, "--yes")
    assert rmq(*words)[0] == 0
    assert users_of(cluster)["root"].user_type == "Super"
    for word, field, value in (
        ("--normal", "user_type", "Normal"),
        ("--super", "user_type", "Super"),
        ("--disable", "user_status", "disable"),
        ("--enable", "user_status", "enable"),
    ):
        assert rmq("user", "update", "root", word, "--yes")[0] == 0
        assert getattr(users_of(cluster)["root"], field) == value


def test_a_user_is_copied_to_the_brokers_that_are_named(rmq_cluster_factory, file):
    settings = {"authentication_enabled": True}
    cluster = rmq_cluster_factory(brokers=3, settings=settings)
    words = ["acl", "user", "create", "alice", "--broker", "broker-a", "--yes"]
    words += ["--password-file", str(file)]
    assert run([*words, "-n", cluster.namesrv]) == 0
    words = ["acl", "user", "copy", "alice", "--from", "broker-a", "--to", "broker-c"]
    assert run([*words, "--yes", "-n", cluster.namesrv]) == 0
    assert users_of(cluster, "broker-b") == {}
    assert users_of(cluster, "broker-c")["alice"].password == PASSWORD


def test_a_deletion_asks_for_the_name_of_the_user(table, cluster, alice):
    with typed("alice\n"):
        code, _, err = table("user", "delete", alice)
    assert (code, users_of(cluster)) == (0, {})
    assert err == (
        "delete user alice on broker-a, broker-b (with its rules)\n"
        "This deletes 1 user in cluster DefaultCluster.\n"
        "Type alice to confirm: "
    )


def config_of(*, keyless=(), accounts=()):
    body = AclConfig(
        global_white_addrs=list(keyless), plain_access_configs=list(accounts)
    )
    return faults.answer(0, body=encode_body(body))


def test_accounts_of_1_0_are_a_table(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(brokers=2, like="4.9.7")
    words = ["acl", "config", "-n", cluster.namesrv]
    code = RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG
    cluster.faults.add(config_of(), code=code, times=2)
    assert run(words) == 0
    assert capsys.readouterr() == ("", "no accounts\n")
    shop = PlainAccessConfig(
        access_key="shop",
        white_remote_address="10.0.0.*",
        default_topic_perm="DENY",
        default_group_perm="SUB",
        topic_perms=["orders=PUB|SUB"],
        group_perms=["billing=SUB"],
    )
    root = PlainAccessConfig(access_key="root", admin=True)
    known = config_of(keyless=("10.1.1.1", "10.1.1.2"), accounts=(shop, root))
    cluster.faults.add(known, code=code, broker="broker-a")
    cluster.faults.add(faults.answer(1, "busy"), code=code, broker="broker-b")
    assert run(words) == 6
    out, err = capsys.readouterr()
    at = cluster.broker("broker-b").address
    error = f"accounts of access control 1.0: {at} answered SYSTEM_ERROR: busy"
    assert [re.split(" {2,}", line) for line in out.splitlines()] == [
        [
            *("BROKER", "ACCESS KEY", "ADMIN", "TOPICS", "GROUPS", "TOPIC_PERMS"),
            *("GROUP_PERMS", "WITHOUT KEY", "ERROR"),
        ],
        [
            *("broker-a", "shop", "no", "DENY", "SUB", "orders=PUB|SUB"),
            *("billing=SUB", "10.0.0.*", "-"),
        ],
        ["broker-a", "root", "yes", *"------"],
        ["broker-b", *"-------", error],
    ]
    assert err == (
        "broker-a asks for no key from 10.1.1.1, 10.1.1.2\n"
        f"error: broker-b did not answer: {error}\n"
    )
