"""`rmq dlq list` counts letters, and never shows an unknown number as a smaller one."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import make_letters


def listed(cluster, capsys, *words):
    capsys.readouterr()
    code = run(["dlq", "list", "-n", cluster.namesrv, "-o", "json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else None, err


@pytest.mark.parametrize("like", ["5.5.0", "4.6.0"])
def test_letters_of_all_brokers_are_counted_although_they_may_not_be_pulled(
    rmq_cluster_factory, capsys, like
):
    cluster = rmq_cluster_factory(brokers=2, queues=2, like=like)
    cluster.create_topic("orders")
    for group, count in (("billing", 5), ("audit", 2)):
        cluster.create_group(group)
        make_letters(cluster, group, "orders", ["x"] * count)
    code, rows, err = listed(cluster, capsys)
    assert code == 0, err
    assert [(row["group"], row["state"], row["count"]) for row in rows] == [
        ("audit", "OK", 2),
        ("billing", "OK", 5),
    ]
    for row in rows:
        assert row["oldest"] <= row["newest"]
        assert row["brokers"] == ["broker-a", "broker-b"]
        assert row["growth"] is None
        assert row["reason"] == "growth needs --sample"


@pytest.mark.parametrize(("like", "is_told"), [("4.6.0", True), ("4.9.7", False)])
def test_letters_that_an_old_broker_still_delays_are_not_passed_over_in_silence(
    rmq_cluster_factory, capsys, like, is_told
):
    """A message that had just died was missing in the count, and nothing said so."""
    cluster = rmq_cluster_factory(brokers=2, queues=1, like=like)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", ["x"])
    code, (row,), err = listed(cluster, capsys)
    assert (code, row["count"]) == (0, 1), err
    words = (
        "broker-a, broker-b run RocketMQ before 4.9.2, which stores a dead letter only"
        " after one more delay, of up to 2 hours: letters that wait for it are not"
        " counted"
    )
    assert (words in err) == is_told


def test_one_old_broker_runs_alone_and_a_new_one_is_not_named(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(like="4.6.0", queues=1)
    cluster.create_group("billing")
    _, _, err = listed(cluster, capsys)
    assert "broker-a runs RocketMQ before 4.9.2, which stores" in err


def test_groups_with_letters_are_a_table_and_the_others_are_counted(
    rmq_cluster, capsys
):
    rmq_cluster.create_topic("orders", queues=1)
    for group in ("audit", "billing", "shop"):
        rmq_cluster.create_group(group)
        rmq_cluster.create_topic(f"%DLQ%{group}", queues=1)
    words = ["dlq", "list", "-n", rmq_cluster.namesrv]
    capsys.readouterr()
    assert run(words) == 0
    hidden = "%s without dead letters not shown; --all shows them\n"
    said = f"no dead letters\n{hidden % '3 groups'}"
    assert capsys.readouterr() == ("", said)
    for group in ("audit", "billing"):
        make_letters(rmq_cluster, group, "orders", "ab")
    _, (audit, billing), _ = listed(rmq_cluster, capsys)
    rows = [
        [row["group"], "OK", "2", row["oldest"], row["newest"], "broker-a", "-"]
        for row in (audit, billing)
    ]
    heading = ["GROUP", "STATE", "COUNT", "OLDEST", "NEWEST", "BROKERS", "REASON"]
    assert run(words) == 0
    out, err = capsys.readouterr()
    assert [line.split() for line in out.splitlines()] == [heading, *rows]
    assert err == hidden % "1 group"
    assert run([*words, "--all", "--sample", "1ms"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines()] == [
        heading[:3],
        *(row[:3] for row in rows),
        ["shop", "OK", "0"],
    ]
    assert ("GROWTH" in out.splitlines()[0].split(), err) == (True, "")


def test_a_second_look_shows_how_many_letters_arrived(rmq_cluster, capsys):
    rmq_cluster.create_topic("orders")
    rmq_cluster.create_group("billing")
    make_letters(rmq_cluster, "billing", "orders", ["x"] * 3)
    code, rows, err = listed(rmq_cluster, capsys, "--sample", "10ms")
    assert code == 0, err
    assert [(row["count"], row["growth"]) for row in rows] == [(3, 0)]
    assert rows[0]["sample_ms"] >= 10


@pytest.mark.parametrize(
    "code", [RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_ALL_TOPIC_CONFIG]
)
def test_a_first_look_that_did_not_see_the_letters_leaves_their_growth_unknown(
    rmq_cluster_factory, capsys, code
):
    """All letters of a group would be new, if it seemed to have had none."""
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", ["x"] * 4)
    no = faults.answer(1, "no")
    cluster.faults.next(no, code=code, broker="broker-b")
    cluster.faults.next(no, code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    code, rows, err = listed(cluster, capsys, "--sample", "10ms")
    assert code == 6
    assert [(row["count"], row["growth"]) for row in rows] == [(4, None)]
    assert rows[0]["reason"].startswith("broker-b: ")
    assert "the growth of 1 group is unknown: broker-b: " in err


def test_one_group_whose_letters_may_not_be_seen_is_unknown_and_no_other(
    rmq_cluster, capsys
):
    """Permission was denied for the statistics of one of ten groups."""
    rmq_cluster.create_topic("orders")
    names = [f"group-{n}" for n in range(10)]
    for name in names:
        rmq_cluster.create_group(name)
        make_letters(rmq_cluster, name, "orders", ["x"])
    rmq_cluster.faults.next(
        faults.answer(16, "no permission"), code=RequestCode.GET_TOPIC_STATS_INFO
    )
    code, rows, err = listed(rmq_cluster, capsys)
    assert code == 6
    assert [row["group"] for row in rows] == names
    unknown = [row for row in rows if row["state"] == "UNKNOWN"]
    assert [(row["count"], row["known_count"]) for row in unknown] == [(None, 0)]
    assert "no permission" in unknown[0]["reason"]
    assert sum(row["count"] or 0 for row in rows) == 9
    assert "the dead letters of 1 group are unknown" in err


def test_a_silent_broker_makes_counts_unknown(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(brokers=2, queues=1)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", ["x"] * 4)
    cluster.faults.add(faults.disconnect(), broker="broker-b")
    code, rows, err = listed(cluster, capsys)
    assert code == 6
    (row,) = rows
    assert (row["state"], row["count"], row["known_count"]) == ("UNKNOWN", None, 2)
    assert (row["oldest"], row["newest"]) == (None, None)
    assert row["reason"].startswith("broker-b: ")
    assert "broker-b did not answer" in err


def test_groups_without_letters_are_shown_on_request(rmq_cluster, capsys):
    rmq_cluster.create_topic("%DLQ%quiet", queues=1)
    code, rows, err = listed(rmq_cluster, capsys)
    assert (code, rows) == (0, [])
    assert "1 group without dead letters not shown; --all shows them" in err
    code, rows, _ = listed(rmq_cluster, capsys, "--all")
    assert [(row["group"], row["count"], row["oldest"]) for row in rows] == [
        ("quiet", 0, None)
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dlq", "list"], "no dead letters\n"),
        (["groups"], "no consumer groups\n"),
        (["lag"], "no consumer groups\n"),
        (["retry", "show", "billing"], "nothing waits\n"),
        (["producers"], "no producers\n"),
        (["transactions", "orders"], "no open transactions\n"),
        (["group", "members", "billing"], "no member of group billing is online\n"),
    ],
)
def test_an_empty_list_is_a_sentence_and_no_table(rmq_cluster, capsys, words, sentence):
    rmq_cluster.create_topic("orders")
    if words[0] not in ("groups", "lag"):
        rmq_cluster.create_group("billing")
    capsys.readouterr()
    run([*words, "-n", rmq_cluster.namesrv])
    out, err = capsys.readouterr()
    assert (out, err.startswith(sentence)) == ("", True)


@pytest.mark.slow
def test_a_list_that_is_empty_because_a_broker_is_silent_is_not_called_empty(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_group("billing")
    cluster.broker("broker-b").hang()
    for words in (["dlq", "list"], ["retry", "show", "billing"], ["producers"]):
        capsys.readouterr()
        assert run([*words, "-n", cluster.namesrv, "--timeout", "1s"]) == 6
        out, err = capsys.readouterr()
        assert out == ""
        assert "no dead letters" not in err
        assert "nothing waits" not in err
        assert "no producers" not in err


def test_a_broker_whose_version_cannot_say_it_is_not_said_to_be_silent(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(like="4.6.0")
    cluster.create_topic("orders")
    namesrv = ("-n", cluster.namesrv)
    assert run(["send", "orders", "x", "--delay", "10s", *namesrv]) == 0
    capsys.readouterr()
    assert run(["producers", "orders", *namesrv]) == 6
    assert capsys.readouterr().err.endswith(
        "error: broker-a runs RocketMQ 4.6.0, which lists the producers of a given"
        " group only\nhint: give --group\n"
    )
    assert run(["delayed", "orders", *namesrv]) == 6
    assert capsys.readouterr().err.endswith(
        "\nerror: broker-a does not show the 1 message of all topics in"
        " SCHEDULE_TOPIC_XXXX\nhint: brokers of 4.6.0 do not; newer ones do\n"
    )
    assert run(["delayed", "orders", *namesrv, "-o", "json"]) == 6
    found = json.loads(capsys.readouterr().out)
    assert (found["count"], found["known_count"]) == (None, 0)


def test_the_letters_of_a_broker_that_died_and_left_the_route_are_missed(
    rmq_cluster_factory, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders")
    cluster.create_group("billing")
    make_letters(cluster, "billing", "orders", ["x"] * 5)
    code, rows, err = listed(cluster, capsys)
    assert (code, [row["count"] for row in rows]) == (0, [5])
    cluster.broker("broker-b").kill()
    code, rows, err = listed(cluster, capsys)
    assert code == 6
    assert "broker-b did not answer: it is no longer in the route" in err
    assert [(row["state"], row["count"]) for row in rows] == [("UNKNOWN", None)]
    assert rows[0]["reason"] == "broker-b: it is no longer in the route"
