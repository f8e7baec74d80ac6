"""`rmq dlq` on real brokers: letters of real consumers, and who receives them again."""

from __future__ import annotations

import json
import uuid

import pytest

from rmqcli import Admin
from rmqcli.admin.dlq.listing import growth
from rmqcli.api.calls.config import get_all_topic_config
from rmqcli.cli.main import run
from tests.admin.dlq.letters import client_of, make_letters
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.rmq_versions("4.6.0", "4.9.7", "5.5.0")


@pytest.fixture(autouse=True)
def _state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def group(real_cluster):
    name = f"g-{uuid.uuid4().hex[:12]}"
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(name)
    return name


def rmq(cluster, capsys, *words, output="json"):
    """Run a command; return exit code, JSON of stdout or None, and stderr."""
    capsys.readouterr()
    code = run([*words, "-n", cluster.namesrv, "-o", output])
    out, err = capsys.readouterr()
    if output == "jsonl":
        return code, [json.loads(line) for line in out.splitlines()], err
    return code, json.loads(out) if out else None, err


def perm(cluster, group):
    """The permission of the group's topic of dead letters, as its broker has it."""
    with client_of(cluster) as client:
        found = client.invoke(cluster.broker_address(), get_all_topic_config())
    return found[f"%DLQ%{group}"].perm


def permit(cluster, capsys, group, perm):
    """Change the permission of the topic of dead letters, and wait for the route."""
    update = ["topic", "update", f"%DLQ%{group}", "--perm", perm, "--yes"]
    code, _, err = rmq(cluster, capsys, *update)
    assert code == 0, err
    wanted = {"w": 2, "rw": 6}[perm]

    def is_known():
        with client_of(cluster) as client:
            (queues,) = client.route(f"%DLQ%{group}").queues
        return queues.perm == wanted

    wait_until(is_known)


def test_letters_are_listed_shown_and_sent_whatever_their_permission_is(
    real_cluster, new_topic, group, capsys
):
    topic = new_topic(queues=1)
    sent = make_letters(
        real_cluster, group, topic, [f"{n}" for n in range(70)], tags="T", keys="k"
    )
    old = real_cluster.version == "4.6.0"
    assert perm(real_cluster, group) == (2 if old else 6)
    # As it is on brokers that were upgraded: topics keep their permissions.
    permit(real_cluster, capsys, group, "w")
    code, rows, err = rmq(real_cluster, capsys, "dlq", "list")
    assert code == 0, err
    (row,) = [row for row in rows if row["group"] == group]
    assert (row["state"], row["count"]) == ("OK", 70)
    assert row["oldest"] <= row["newest"]
    do = ["dlq", "show", group, "--from", "earliest"]
    code, rows, err = rmq(real_cluster, capsys, *do)
    if old:
        assert (code, rows) == (4, [])
        assert f"rmq topic update %DLQ%{group} --perm rw" in err
        code, _, err = rmq(real_cluster, capsys, "dlq", "redrive", group)
        assert code == 4
        assert f"rmq topic update %DLQ%{group} --perm rw" in err
        permit(real_cluster, capsys, group, "rw")
        code, rows, err = rmq(real_cluster, capsys, *do)
    assert code == 0, err
    assert [row["body"] for row in rows] == [f"{n}" for n in range(70)]
    assert {row["origin_topic"] for row in rows} == {topic}
    assert {row["deliveries"] for row in rows} == {1}
    assert rows[0]["letter"] == "broker-a:0:0"
    assert rows[3]["msg_id"] == sent[3].msg_id
    if not old:
        assert rows[3]["origin_queue"] == f"{topic}@broker-a:0"
        assert [row["origin_offset"] for row in rows] == list(range(70))
        assert rows[3]["origin_msg_id"] == sent[3].offset_msg_id
    code, done, err = rmq(
        real_cluster, capsys, "dlq", "redrive", group, "--execute", "--yes"
    )
    assert (code, done["sent"], done["failed"]) == (0, 70, []), err
    with Admin(namesrv=real_cluster.namesrv) as admin:
        found = [m for m in admin.read(topic) if "RMQ_REDRIVEN_FROM" in m.properties]
    assert sorted(int(m.body) for m in found) == list(range(70))
    assert {(m.tags, m.keys, m.reconsume_times) for m in found} == {("T", "k", 0)}
    assert perm(real_cluster, group) == (6 if old else 2)


def count_of(cluster, capsys, group):
    """How many dead letters the group has by `rmq dlq list`."""
    _, rows, _ = rmq(cluster, capsys, "dlq", "list", "--all")
    return {row["group"]: row["count"] for row in rows}[group]


def consumed(cluster, capsys, topic, group, count, *flags):
    """What a member of the group receives."""
    do = ["consume", topic, "-g", group, "--from", "first", "--count", str(count)]
    code, rows, err = rmq(cluster, capsys, *do, *flags, output="jsonl")
    assert code == 0, err
    return rows


def test_a_retry_reaches_the_group_that_failed_and_no_other(
    real_cluster, new_topic, group, capsys
):
    topic, other = new_topic(queues=1), f"{group}-b"
    flags = ["--exec", "false", "--max-reconsume", "1", "--max-failures", "2"]
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(other)
    rmq(real_cluster, capsys, "send", topic, "a", "--tag", "T", output="jsonl")
    fail = ["consume", topic, "-g", group, "--from", "first", *flags]
    assert run([*fail, "-n", real_cluster.namesrv]) == 1
    place = "on its way to" if real_cluster.version == "4.6.0" else "in"
    assert f"dead letter {place} %DLQ%{group}" in capsys.readouterr().err
    assert len(consumed(real_cluster, capsys, topic, other, 1)) == 1
    if real_cluster.version == "4.6.0":
        permit(real_cluster, capsys, group, "rw")
    _, _, err = rmq(real_cluster, capsys, "dlq", "list")
    is_told = "letters that wait for it are not counted" in err
    assert is_told == (real_cluster.version == "4.6.0")
    # Up to 4.9.1 a letter keeps the delay of the last retry, and arrives after it.
    wait_until(lambda: count_of(real_cluster, capsys, group) == 1)
    do = ["dlq", "redrive", group, "--to", "retry", "--execute", "--yes"]
    code, done, err = rmq(real_cluster, capsys, *do)
    assert (code, done["sent"], done["failed"]) == (0, 1, []), err
    (row,) = consumed(real_cluster, capsys, topic, group, 1)
    assert (row["body"], row["topic"], row["tags"]) == ("a", topic, "T")
    assert row["properties"]["RMQ_REDRIVEN_FROM"] == "broker-a:0:0"
    code, (row,), _ = rmq(real_cluster, capsys, "lag", other)
    assert row["total_lag"] == 0


@pytest.mark.rmq_versions("4.9.7", "5.5.0")
def test_what_waits_for_a_retry_is_shown_with_its_time(
    real_cluster, new_topic, group, capsys
):
    """It is shown in its delay level, and a member gets it then, not before."""
    topic = new_topic(queues=1)
    rmq(real_cluster, capsys, "send", topic, "a", "--key", "k", output="jsonl")
    fail = ["consume", topic, "-g", group, "--from", "first", "--exec", "false"]
    assert run([*fail, "--max-failures", "1", "-n", real_cluster.namesrv]) == 1
    code, (row,), err = rmq(real_cluster, capsys, "retry", "show", group)
    assert code == 0, err
    assert (row["place"], row["topic"], row["keys"]) == ("delay", topic, "k")
    assert (row["attempt"], row["attempts_max"]) == (2, 17)
    (again,) = consumed(real_cluster, capsys, topic, group, 1)
    assert again["reconsume_times"] == 1
    assert again["store_timestamp"] >= row["next_at"][:-5]
    code, rows, _ = rmq(real_cluster, capsys, "retry", "show", group)
    assert (code, rows) == (0, [])


def test_growth_sql_and_until_are_those_of_the_letters(
    real_cluster, new_topic, group, capsys
):
    topic = new_topic(queues=1)
    make_letters(real_cluster, group, topic, "ab", properties={"n": "1"})
    with Admin(namesrv=real_cluster.namesrv) as admin:

        def letters():
            (found,) = [e for e in admin.dead_letters().groups if e.group == group]
            return found

        before = letters()
        make_letters(real_cluster, group, topic, "cde", properties={"n": "2"})
        wait_until(lambda: letters().count == 5)
        assert growth(before, letters()) == 3
        assert growth(letters(), letters()) == 0
        assert growth(None, letters()) == 5
    if real_cluster.version == "4.6.0":
        code, _, err = rmq(real_cluster, capsys, "dlq", "show", group, "--sql", "n > 1")
        assert code == 1
        assert "write-only on broker-a" in err
        permit(real_cluster, capsys, group, "rw")
    sql = ["--sql", "n > 1"]
    code, rows, err = rmq(real_cluster, capsys, "dlq", "show", group, *sql)
    assert (code, [row["body"] for row in rows]) == (0, ["c", "d", "e"]), err
    do = ["dlq", "redrive", group, "--execute", "--yes"]
    code, done, err = rmq(real_cluster, capsys, *do, *sql, "--until", "4")
    assert (code, done["sent"]) == (0, 2), err
    code, plan, err = rmq(real_cluster, capsys, "dlq", "redrive", group)
    assert (code, plan["targets"]) == (0, [{"topic": topic, "count": 3}]), err
    code, plan, err = rmq(
        real_cluster, capsys, "dlq", "redrive", group, "--queue", "broker-a:0"
    )
    assert (code, plan["read"], plan["queues"]) == (0, 5, ["broker-a:0"]), err
