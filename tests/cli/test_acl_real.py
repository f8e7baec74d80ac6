"""`rmq acl` on real brokers: 5.5.0 decides as `explain` says; 4.6.0 has ACL 1.0."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin, ClientConfig, Credentials
from rmqcli.admin.acl import AclDecision
from rmqcli.api.call import make_call
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.errors import BrokerError, DeniedError
from rmqcli.wire.codes import RequestCode
from tests.admin.access_cases import CASES, RIGHTS, rules_of
from tests.kit.configuration import Account

pytestmark = pytest.mark.java

ADMIN = Account("admin", "admin-secret")
#: (type of resource, action) -> a request that needs this right, and no other one
REQUESTS = {
    ("Topic", "Pub"): RequestCode.SEND_MESSAGE,
    ("Topic", "Get"): RequestCode.GET_TOPIC_STATS_INFO,
    ("Cluster", "Get"): RequestCode.AUTH_LIST_USER,
}


@pytest.fixture(scope="module")
def guarded(start_shared):
    return start_shared("5.5.0", superuser=ADMIN)


def config_of(cluster, account):
    return ClientConfig(
        namesrv=(cluster.namesrv,),
        credentials=Credentials(account.name, account.secret),
    )


@pytest.fixture
def rmq(guarded, capsys, monkeypatch):
    monkeypatch.setenv("RMQ_ACCESS_KEY", ADMIN.name)
    monkeypatch.setenv("RMQ_SECRET_KEY", ADMIN.secret)

    def run_it(*words):
        code = run([*map(str, words), "-n", guarded.namesrv, "-o", "jsonl"])
        out, err = capsys.readouterr()
        assert "secret" not in out + err
        return code, [json.loads(line) for line in out.splitlines()], err

    return run_it


@pytest.fixture
def password_of(tmp_path):
    def write(text):
        path = tmp_path / "password"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def test_a_broker_decides_as_the_table_says(guarded):
    with Admin(client=config_of(guarded, ADMIN)) as admin:
        for user in RIGHTS:
            password = f"{user}-secret"
            plan = admin.plan_user(user, is_new=True, password=password)
            assert admin.apply_definitions(plan).is_complete
            for name, settings in rules_of(user).items():
                _, resource, *rest = name.split(" ")
                plan = admin.plan_rule(
                    user,
                    resource,
                    is_new=True,
                    policy_type=rest[0] if rest else "Custom",
                    **settings,
                )
                assert admin.apply_definitions(plan).is_complete
        said = {
            case: admin.explain_access(*case, source_ip="127.0.0.1") for case in CASES
        }
    real = {}
    for user, resource, action in CASES:
        account = Account(user, f"{user}-secret")
        kind, _, name = resource.partition(":")
        with Client(config_of(guarded, account)) as client:
            call = make_call(REQUESTS[kind, action], lambda _: True, what="question")
            call.ext_fields.update(topic=name, queueId="0", producerGroup="g")
            try:
                client.invoke(guarded.broker_address(), call)
            except BrokerError as error:  # or what is allowed cannot be done
                is_denied = "has no permission to access" in error.remark
                real[user, resource, action] = not is_denied
            else:
                real[user, resource, action] = True
    assert real == {case: allowed for case, (allowed, _) in CASES.items()}
    for case, (allowed, _) in CASES.items():
        decision = said[case]["broker-a"]
        assert isinstance(decision, AclDecision)
        assert decision.is_allowed is allowed


def test_a_user_is_created_changed_and_deleted(rmq, guarded, password_of):
    file = password_of("alice-secret\n")
    words = ("acl", "user", "create", "alice", "--password-file", file)
    code, _, err = rmq(*words)
    assert code == 7
    assert "create user alice on broker-a" in err
    code, rows, _ = rmq(*words, "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["created"])
    assert rmq(*words, "--yes")[:2] == (0, [])
    user = {"user": "alice", "brokers": ["broker-a"], "error": None}
    assert rmq("acl", "user", "show", "alice")[1] == [
        {**user, "user_type": "Normal", "user_status": "enable"}
    ]
    rule = ("alice", "Topic:t*")
    code, rows, _ = rmq("acl", "rule", "create", *rule, "Pub,Sub", "--deny", "--yes")
    assert (code, [row["result"] for row in rows]) == (0, ["created"])
    assert rmq("acl", "rule", "update", *rule, "pub", "--allow", "--yes")[0] == 0
    (found,) = rmq("acl", "rule", "list", "alice")[1]
    assert (found["actions"], found["decision"]) == (["Pub"], "Allow")
    (found,) = rmq("acl", "explain", "alice", "Topic:tt", "Pub")[1]
    assert (found["decision"], found["rule"]) == ("allow", "User:alice Topic:t*")
    changed = password_of("other-secret")
    update = ("acl", "user", "update", "alice", "--password-file", changed)
    assert rmq(*update, "--yes")[0] == 0
    with Client(config_of(guarded, Account("alice", "other-secret"))) as client:
        call = make_call(RequestCode.AUTH_LIST_USER, lambda _: True, what="question")
        with pytest.raises(DeniedError, match="no matched policies"):
            client.invoke(guarded.broker_address(), call)
    assert rmq("acl", "rule", "delete", *rule, "--yes")[0] == 0
    assert rmq("acl", "rule", "list", "alice")[:2] == (0, [])
    assert rmq("acl", "user", "delete", "alice", "--yes")[0] == 0
    assert rmq("acl", "user", "show", "alice")[0] == 3
    code, _, err = rmq("acl", "user", "delete", "admin", "--yes")
    assert code == 7
    assert "this command uses its credentials" in err


def test_users_and_rules_are_definitions(rmq, guarded, tmp_path):
    file = tmp_path / "d.json"
    only = ("--only", "users", "--only", "rules")
    guarded.create_account(Account("carol", "carol-secret"), {"Topic:t": "Pub"})
    code = run(["definitions", "export", "--out", str(file), "-n", guarded.namesrv])
    assert code == 0
    assert "secret" not in file.read_text()
    data = json.loads(file.read_text())
    assert "passwords of users" in data["left_out"]
    assert rmq("definitions", "diff", file)[:2] == (0, [])
    for each in data["rules"]:
        if each["user"] == "carol":
            each["actions"] = ["Sub"]
    data["users"].append({"name": "dave"})
    file.write_text(json.dumps(data))
    code, rows, _ = rmq("definitions", "apply", file, *only, "--yes")
    assert code == 6
    assert [(row["result"], row["name"], row["error"]) for row in rows] == [
        (
            "skipped",
            "dave",
            "a new user needs a password, and a definitions file cannot contain one",
        ),
        ("changed", "User:carol Topic:t", None),
    ]
    data["users"] = [each for each in data["users"] if each["name"] != "carol"]
    data["rules"] = [each for each in data["rules"] if each["user"] != "carol"]
    data["users"].pop()
    file.write_text(json.dumps(data))
    code, rows, _ = rmq("definitions", "apply", file, *only, "--prune", "--yes")
    assert (code, [(row["result"], row["name"]) for row in rows]) == (
        0,
        [("deleted", "carol"), ("deleted", "User:carol Topic:t")],
    )
    assert rmq("acl", "user", "show", "carol")[0] == 3


def test_a_user_is_copied_to_a_broker_that_is_new(start_shared, capsys, monkeypatch):
    """With the password, and then with the rules, which need the user."""
    alice = Account("alice", "alice-secret")
    cluster = start_shared("5.5.0", brokers=2, superuser=ADMIN)
    cluster.create_account(alice, {"Topic:t*": "Get"})  # on broker-a
    monkeypatch.setenv("RMQ_ACCESS_KEY", ADMIN.name)
    monkeypatch.setenv("RMQ_SECRET_KEY", ADMIN.secret)

    def copied(kind, *more):
        words = ["acl", kind, "copy", "alice", "--from", "broker-a", *more]
        code = run([*words, "-n", cluster.namesrv, "-o", "jsonl"])
        out, err = capsys.readouterr()
        assert "alice-secret" not in out + err
        rows = [json.loads(line) for line in out.splitlines()]
        return code, [(row["result"], row["brokers"]) for row in rows]

    def remark_of_the_new_broker():
        call = make_call(RequestCode.GET_TOPIC_STATS_INFO, lambda _: True, what="x")
        call.ext_fields.update(topic="tt")
        with (
            Client(config_of(cluster, alice)) as client,
            pytest.raises(BrokerError) as caught,
        ):
            client.invoke(cluster.broker_address(1), call)
        return caught.value.remark

    assert remark_of_the_new_broker() == "User:alice is not found."
    assert copied("rule", "--yes") == (6, [("skipped", ["broker-b"])])
    assert copied("user") == (7, [])  # not confirmed
    assert copied("user", "--yes") == (0, [("created", ["broker-b"])])
    assert "no matched policies" in remark_of_the_new_broker()
    assert copied("rule", "--yes") == (0, [("created", ["broker-b"])])
    assert remark_of_the_new_broker() == "topic[tt] not exist"  # it may ask
    assert copied("user", "--yes") == (0, [])


def test_a_user_without_rights_is_denied(guarded, capsys, monkeypatch):
    guarded.create_account(Account("weak", "weak-secret"))
    monkeypatch.setenv("RMQ_ACCESS_KEY", "weak")
    monkeypatch.setenv("RMQ_SECRET_KEY", "weak-secret")
    code = run(["acl", "user", "list", "-n", guarded.namesrv])
    out, err = capsys.readouterr()
    assert (code, out) == (4, "")
    assert "has no permission to access" in err


PLAIN_ACL = """\
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: RocketMQ
  secretKey: "12345678"
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=PUB|SUB
"""


@pytest.mark.rmq_versions("4.6.0", "4.9.7")
def test_without_access_control_1_0_there_are_no_accounts(real_cluster, capsys):
    """A broker of 4.6.0 does not answer the request for them then."""
    code = run(["acl", "config", "-n", real_cluster.namesrv])
    out, err = capsys.readouterr()
    assert (code, out) == (1, "")
    assert "access control of broker-a is off: aclEnable is false" in err


def test_accounts_of_1_0_are_shown_without_keys(tmp_path, capsys):
    from tests.kit.cluster import RealCluster

    folder = tmp_path / "cluster" / "home" / "conf"
    folder.mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(PLAIN_ACL)
    with RealCluster(
        "4.6.0", tmp_path / "cluster", conf={"aclEnable": "true"}, is_brief=True
    ) as cluster:
        code = run(["acl", "config", "-n", cluster.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        assert code == 0
        assert json.loads(out) == [
            {
                "broker_name": "broker-a",
                "access_key": "RocketMQ",
                "admin": False,
                "default_topic_perm": "DENY",
                "default_group_perm": "SUB",
                "topic_perms": ["topicA=PUB|SUB"],
                "group_perms": None,
                "white_remote_address": None,
                "error": None,
            }
        ]
        assert "broker-a asks for no key from 127.0.0.1" in err
        assert "12345678" not in out + err
        code = run(["acl", "user", "list", "-n", cluster.namesrv])
        err = capsys.readouterr().err
        assert code == 1
        assert "access control 2.0 needs RocketMQ 5.3.0, and broker-a has 4.6.0" in err
