"""`rmq broker list` and `show`, and the verbs that topics, groups and brokers share."""

from __future__ import annotations

import json
import re

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode


@pytest.fixture
def rmq(rmq_cluster, capsys):
    """`rmq(...)` runs a command; returns exit code, stdout and stderr."""

    def call(*arguments):
        code = run([*arguments, "-n", rmq_cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("kind", ["topic", "group", "broker"])
def test_list_is_the_same_as_the_plural(rmq, rmq_cluster, kind):
    rmq_cluster.create_topic("orders")
    rmq_cluster.create_group("billing")
    verb, plural = (
        rmq(*words, "-o", "jsonl") for words in ([kind, "list"], [kind + "s"])
    )
    assert verb[0] == plural[0] == 0
    listed, expected = (
        [
            {
                name: value
                for name, value in json.loads(line).items()
                if "uptime" not in name
            }
            for line in each[1].splitlines()
        ]
        for each in (verb, plural)
    )
    assert listed == expected != []


def test_a_broker_is_shown_with_what_it_reports_and_its_settings(rmq):
    code, out, _ = rmq("broker", "show", "broker-a", "-o", "json")
    (row,) = json.loads(out)
    assert code == 0
    assert (row["broker_name"], row["broker_id"], row["role"]) == (
        "broker-a",
        0,
        "MASTER",
    )
    assert row["version"] == "5.5.0"
    assert row["runtime"]["brokerVersionDesc"] == "V5_5_0"
    assert row["settings"]["brokerName"] == "broker-a"
    assert (row["settings_error"], row["error"]) == (None, None)


def test_the_table_has_the_settings_only_when_they_are_asked_for(rmq):
    code, out, _ = rmq("broker", "show", "broker-a")
    assert code == 0
    assert "brokerVersionDesc" in out
    assert "enablePropertyFilter" not in out
    _, out, _ = rmq("broker", "show", "broker-a", "--settings")
    assert "brokerVersionDesc" in out
    assert "enablePropertyFilter" in out


def test_settings_that_a_broker_does_not_show_are_null_with_the_reason(
    rmq, rmq_cluster
):
    rmq_cluster.faults.add(faults.answer(16), code=RequestCode.GET_BROKER_CONFIG)
    code, out, _ = rmq("broker", "show", "broker-a", "-o", "json")
    (row,) = json.loads(out)
    assert code == 0
    assert row["settings"] is None
    assert row["settings_error"]
    code, out, err = rmq("broker", "show", "broker-a", "--settings")
    assert code == 6  # they were asked for
    assert f"{row['address']} denied access: broker settings: " in " ".join(err.split())


def test_brokers_are_a_table_and_one_without_an_answer_is_partial(
    rmq_cluster_factory, capsys
):
    cluster = rmq_cluster_factory(brokers=2)
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    cluster.faults.add(faults.answer(1, "busy"), code=code, broker="broker-b")
    capsys.readouterr()
    for words in (["brokers"], ["broker", "list"]):
        assert run([*words, "-n", cluster.namesrv]) == 6
        out, err = capsys.readouterr()
        first, second = (cluster.broker(f"broker-{n}").address for n in "ab")
        error = f"runtime info: {second} answered SYSTEM_ERROR: busy"
        heading, one, other = (re.split(" {2,}", line) for line in out.splitlines())
        assert " ".join(heading) == (
            "CLUSTER BROKER ID ADDRESS VERSION IN_TPS OUT_TPS DISK IN SYNC UPTIME ERROR"
        )
        assert one[:4] == ["DefaultCluster", "broker-a", "0", first]
        assert (one[4:8], one[8], one[10]) == (
            ["5.5.0", "0.0", "0.0", "0%"],
            "0/0",
            "-",
        )
        assert other == ["DefaultCluster", "broker-b", "0", second, *"------", error]
        assert err == f"error: 1 of 2 brokers refused: {error}\n"


def test_a_broker_is_shown_as_tables_of_what_it_reports_and_of_its_settings(rmq):
    code, out, err = rmq("broker", "show", "broker-a", "--settings")
    assert (code, err) == (0, "")
    row, runtime, settings = (part.splitlines() for part in out.split("\n\n"))
    assert len(row) == 2
    for heading, names in (
        ("RUNTIME", runtime),
        ("SETTING", settings),
    ):
        assert names[0].split() == [heading, "VALUE"]
        assert names[1:] == sorted(names[1:])
        assert len(names) > 2


def test_a_broker_that_does_not_exist_is_named_with_what_it_was_meant_to_be(rmq):
    code, out, err = rmq("broker", "show", "brokr-a")
    assert (code, out) == (3, "")
    assert "broker brokr-a does not exist" in err


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (faults.answer(16, "no rights"), "denied access: "),
        (faults.answer(1, "busy"), "refused: "),
        (faults.drop_request(), "did not answer: GET_BROKER_RUNTIME_INFO to 127.0"),
    ],
)
def test_a_broker_that_refuses_is_not_said_not_to_have_answered(
    rmq_cluster_factory, capsys, fault, said
):
    """Its row had the answer."""
    cluster = rmq_cluster_factory(brokers=2)
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    cluster.faults.add(fault, code=code, broker="broker-b")
    assert run(["brokers", "-n", cluster.namesrv, "--timeout", "1s"]) == 6
    assert f"error: 1 of 2 brokers {said}" in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_an_error(rmq, rmq_cluster):
    rmq_cluster.faults.add(faults.answer(1), code=RequestCode.GET_BROKER_RUNTIME_INFO)
    code, out, _ = rmq("broker", "show", "broker-a", "-o", "json")
    assert code == 1
    assert json.loads(out)[0]["runtime"] is None


@pytest.mark.parametrize(
    "words",
    [
        ["--store", "/tmp/x"],
        ["--listen", "127.0.0.1:0"],
        ["--like=4.9.7"],
        ["--proxy-port", "8081"],
    ],
)
def test_the_options_of_a_cluster_name_serve(capsys, words):
    assert run(["broker", *words]) == 2
    assert capsys.readouterr().err == (
        "error: rmq broker runs no cluster: it lists and shows brokers\n"
        f"hint: write: rmq serve {' '.join(words)}\n"
    )


def test_broker_alone_shows_its_verbs(capsys):
    assert run(["broker"]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert "list List brokers" in err
    assert "show Show what a broker reports" in err


def test_only_rmq_broker_is_taken_for_rmq_serve(capsys):
    assert run(["topic", "--queues", "4"]) == 2
    assert "runs no cluster" not in capsys.readouterr().err
