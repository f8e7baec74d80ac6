"""Ten groups on a real broker, and an account that may read nine of them.

What the account may not read is unknown with the reason, never 0, healthy or left out.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from rmqcli import Admin, ClientConfig, Credentials, Producer, ProducerMessage
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.cli.main import run
from tests.admin.dlq.letters import client_of, kill
from tests.kit.configuration import Account
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.java

ADMIN = Account("admin", "admin-secret")
READER = Account("reader", "reader-secret")
#: May read everything except for one group, its topic and its dead letters.
RIGHTS = {
    "Topic:*": "Get,Sub,List",
    "Group:*": "Get,Sub,List",
    "Cluster:*": "Get,List",
    "Group:g7": "Deny",
    "Topic:t7": "Deny",
    "Topic:%DLQ%g7": "Deny",
}
GROUPS = [f"g{number}" for number in range(10)]
OTHERS = [group for group in GROUPS if group != "g7"]
NO_LETTERS = "has no permission to access Topic:%DLQ%g7"
NO_TOPIC = "has no permission to access Topic:t7"
NO_GROUP = "has no permission to access Group:g7"


@pytest.fixture(scope="module")
def shop(start_shared):
    """Each group has given up on two messages, and its offset is between them."""
    cluster = start_shared("5.5.0", superuser=ADMIN)
    credentials = Credentials(ADMIN.name, ADMIN.secret)
    config = ClientConfig(namesrv=(cluster.namesrv,), credentials=credentials)
    sent = {}
    with Admin(client=config) as admin:
        for group in GROUPS:
            admin.create_group(group)
            admin.create_topic(f"t{group[1:]}", queue_nums=1)
            # As the broker makes it, this topic may not be read.
            admin.create_topic(f"%DLQ%{group}", queue_nums=1, perm=6)
    with (
        Producer(client=config) as producer,
        client_of(cluster, credentials=credentials) as client,
    ):
        for group in GROUPS:
            topic = f"t{group[1:]}"
            sent[group] = [
                producer.send(ProducerMessage(topic, body)) for body in (b"a", b"b")
            ]
            kill(cluster, group, topic, sent[group], credentials=credentials)
            commit = update_consumer_offset(group, topic, 0, commit_offset=1)
            client.invoke(cluster.broker_address(), commit)
        calls = [
            get_topic_stats_info(f"{prefix}{group[1:]}")
            for prefix in ("t", "%DLQ%g")
            for group in GROUPS
        ]

        def are_stored():
            answers = [client.invoke(cluster.broker_address(), call) for call in calls]
            return all(
                sum(e.max_offset for e in each.values()) == 2 for each in answers
            )

        wait_until(are_stored)
    cluster.create_account(READER, RIGHTS)
    return SimpleNamespace(namesrv=cluster.namesrv, sent=sent)


@pytest.fixture
def rmq(shop, capsys, tmp_path, monkeypatch):
    """Runs a command as the reader; returns exit code, rows and stderr."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    monkeypatch.setenv("RMQ_ACCESS_KEY", READER.name)
    monkeypatch.setenv("RMQ_SECRET_KEY", READER.secret)

    def call(*words):
        capsys.readouterr()
        code = run([*words, "-n", shop.namesrv, "-o", "json"])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, json.loads(out) if out else None, " ".join(err.split())

    return call


def test_dead_letters_of_one_group_in_ten_are_denied(rmq):
    code, rows, err = rmq("dlq", "list")
    counts = {row["group"]: row["count"] for row in rows}
    assert counts == dict.fromkeys(OTHERS, 2) | {"g7": None}
    (denied,) = (row for row in rows if row["group"] == "g7")
    assert denied["state"] == "UNKNOWN"
    assert NO_LETTERS in denied["reason"]
    assert (code, NO_LETTERS in err) == (6, True)

    code, rows, _ = rmq("dlq", "show", "g1")
    assert (code, [row["body"] for row in rows]) == (0, ["a", "b"])
    code, rows, err = rmq("dlq", "show", "g7")
    assert (code, rows or [], NO_LETTERS in err) == (4, [], True)


def test_a_redrive_without_rights_sends_and_loses_nothing(rmq):
    code, _, err = rmq("dlq", "redrive", "g7", "--execute", "--yes")
    assert (code, NO_LETTERS in err) == (4, True)
    # The reader may send to no topic.
    code, done, _ = rmq("dlq", "redrive", "g2", "--execute", "--yes")
    assert code == 6
    assert "has no permission to access Topic:t2" in json.dumps(done)
    code, rows, _ = rmq("dlq", "show", "g2")
    assert [row["redriven"] for row in rows] == ["no", "no"]


def test_a_message_of_one_group_in_ten_is_denied(rmq, shop):
    letter = shop.sent["g7"][0].msg_id
    code, rows, err = rmq("message", "show", letter, "-t", "t7")
    assert (code, rows, NO_TOPIC in err) == (4, None, True)
    code, rows, err = rmq("message", "show", letter)  # other topics were searched
    assert (code, rows, NO_TOPIC in err) == (6, None, True)
    code, _, err = rmq("message", "find", "t7", "--key", "k")
    assert (code, NO_TOPIC in err) == (4, True)
    letter = shop.sent["g1"][0].msg_id

    def verdicts():
        _, rows, _ = rmq("message", "show", letter, "-t", "t1")
        return [each["verdict"] for row in rows or () for each in row["groups"]]

    wait_until(lambda: verdicts() == ["dead"])  # a moment later, it is in the index
    code, (row,), err = rmq("message", "show", letter, "-t", "t1", "-g", "g7")
    assert (code, row["groups"][0]["verdict"]) == (6, "unknown")
    assert NO_GROUP in row["groups"][0]["reason"]
    assert NO_LETTERS in err  # one refusal is told for each broker


def test_the_lag_of_one_group_in_ten_is_denied(rmq):
    code, rows, _ = rmq("lag")
    lags = {row["group"]: row["total_lag"] for row in rows}
    assert lags == dict.fromkeys(OTHERS, 1) | {"g7": None}
    (denied,) = (row for row in rows if row["group"] == "g7")
    assert (code, denied["state"], denied["members"]) == (6, "UNKNOWN", None)
    assert NO_GROUP in denied["reason"]
    for words in (("lag",), ("group", "stack")):
        code, rows, err = rmq(*words, "g7")
        assert (code, rows, NO_GROUP in err) == (4, None, True), words


@pytest.mark.parametrize(
    ("words", "denied"),
    [
        (("group", "members", "g7"), NO_GROUP),
        (("topic", "show", "t7"), NO_TOPIC),
        (("producers", "t7"), NO_TOPIC),
        (("copy", "t7", "t1"), NO_TOPIC),
    ],
)
def test_what_may_not_be_read_at_all_is_denied(rmq, words, denied):
    code, _, err = rmq(*words)
    assert (code, denied in err) == (4, True)


def test_doctor_does_not_call_a_denied_group_healthy(rmq):
    code, found, _ = rmq("doctor", "--only", "no-member", "--only", "dead-letters")
    findings = [each for check in found["checks"] for each in check["findings"]]
    found_of = {(each["status"], each["subject"]) for each in findings}
    assert found_of == {("unknown", "g7"), *(("warning", group) for group in OTHERS)}
    of_denied = [each["evidence"] for each in findings if each["subject"] == "g7"]
    assert any(NO_GROUP in evidence for evidence in of_denied)
    assert any(NO_LETTERS in evidence for evidence in of_denied)
    assert code == 1
