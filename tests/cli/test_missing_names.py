"""A name that does not exist: every command says so in the same sentence."""

from __future__ import annotations

import json
import shlex

import pytest

from rmqcli.cli.main import run

#: Commands that take the name of a topic or of a group, each named by {name}.
TOPIC = {
    "topic show": "topic show {name}",
    "topic delete": "topic delete {name} --yes",
    "topic update": "topic update {name} --queues 2",
    "tail": "tail {name} --no-follow",
    "tail of a range": "tail {name} --from earliest --to latest",
    "lag": "lag --topic {name}",
    "lag of a group": "lag billing --topic {name}",
    "send": "send {name} hello",
    "consume": "consume {name} --group billing",
    "reset-offset": "reset-offset billing {name} --to earliest",
    "undo": "reset-offset billing {name} --undo",
    "export": "export {name} --to-parquet out --from earliest --to latest",
    "sql": "sql 'select * from {name}'",
}
GROUP = {
    "group show": "group show {name}",
    "group update": "group update {name} --retry-max-times 3",
    "group delete": "group delete {name} --remove-offsets --yes",
    "lag": "lag {name}",
    "lag with members": "lag {name} --process-queues --explain",
    "reset-offset": "reset-offset {name} orders --to earliest",
    "reset-offset to a group": "reset-offset billing orders --to-group {name}",
    "tail around a group": "tail orders --around-group {name}",
    "tail from a group": "tail orders --from group:{name} --to latest",
    "dlq show": "dlq show {name}",
    "dlq redrive": "dlq redrive {name}",
    "dlq export": "dlq export {name} --to-jsonl letters.jsonl",
    "dlq export to Parquet": "dlq export {name} --to-parquet out",
}
BROKER = {
    "topic create": "topic create new --broker {name}",
    "topic update": "topic update orders --queues 8 --broker {name}",
    "group create": "group create new --broker {name}",
    "group update": "group update billing --retry-max-times 3 --broker {name}",
    "group delete": "group delete billing -r --yes --broker {name}",
}
CLUSTER = {
    "topic create": "topic create new --cluster {name}",
    "group create": "group create new --cluster {name}",
}
QUEUE = {
    "tail": "tail orders --no-follow --queue {name}",
    "tail from a queue": "tail orders --to latest --from-queue orders@{name}=earliest",
    "send": "send orders hello --queue {name}",
    "reset-offset": "reset-offset billing orders --to earliest --queue {name}",
    "export": "export orders --to-parquet out --queue {name}",
}
ROWS = [
    *(("topic", "ordres", "; did you mean orders?", each) for each in TOPIC.values()),
    *(("topic", "ord", "; did you mean orders?", each) for each in TOPIC.values()),
    *(("topic", "Orders", "; did you mean orders?", each) for each in TOPIC.values()),
    *(("topic", "billing", "; billing is a group", each) for each in TOPIC.values()),
    *(("topic", "nothing", "", each) for each in TOPIC.values()),
    *(("group", "blling", "; did you mean billing?", each) for each in GROUP.values()),
    *(("group", "orders", "; orders is a topic", each) for each in GROUP.values()),
    *(("group", "nothing", "", each) for each in GROUP.values()),
    *(("broker", "brokr-a", "; did you mean broker-a?", e) for e in BROKER.values()),
    *(("broker", "nothing", "", each) for each in BROKER.values()),
    *(("queue", "brokr-a:0", "; did you mean broker-a:0?", e) for e in QUEUE.values()),
    *(("queue", "broker-a:99", "", each) for each in QUEUE.values()),
    *(
        ("cluster", "DefaultClust", "; did you mean DefaultCluster?", each)
        for each in CLUSTER.values()
    ),
]


@pytest.fixture(scope="module")
def namesrv():
    from rmqcli.testing import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        cluster.create_group("billing")
        cluster.send("orders", ["a"])
        yield cluster.namesrv


@pytest.mark.parametrize(
    ("kind", "name", "meant", "command"),
    ROWS,
    ids=[f"{kind} {name}: {command.split()[0]}" for kind, name, _, command in ROWS],
)
def test_a_missing_name_is_one_sentence(
    namesrv, kind, name, meant, command, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code = run([*shlex.split(command.format(name=name)), "-n", namesrv])
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error")]
    assert errors == [f"error: {kind} {name} does not exist{meant}"]
    assert "answered" not in err
    assert (code, out) == (3, "")


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("lag blling --crit 1", "group blling does not exist; did you mean billing?"),
        ("lag orders --crit 1", "group orders does not exist; orders is a topic"),
        ("lag nothing --crit 1", "group nothing does not exist"),
        ("age blling --crit 1s", "group blling does not exist; did you mean billing?"),
        (
            "retention blling --crit 1s",
            "group blling does not exist; did you mean billing?",
        ),
        ("dlq blling --crit 1", "group blling does not exist; did you mean billing?"),
        ("dlq orders --crit 1", "group orders does not exist; orders is a topic"),
        ("topic ordres --crit 1s", "topic ordres does not exist; did you mean orders?"),
        ("topic billing --crit 1s", "topic billing does not exist; billing is a group"),
        (
            "broker brokr-a --crit 1",
            "broker brokr-a does not exist; did you mean broker-a?",
        ),
        ("broker orders --crit 1", "broker orders does not exist; orders is a topic"),
    ],
)
def test_a_check_of_a_missing_name_gives_the_same_sentence(
    namesrv, command, sentence, capsys
):
    assert run(["check", *command.split(), "-o", "json", "-n", namesrv]) == 3
    report = json.loads(capsys.readouterr().out)
    (measured,) = report["measurements"]
    assert (measured["value"], measured["reason"]) == (None, sentence)


def test_a_group_without_dead_letters_is_not_said_to_be_missing(
    namesrv, capsys, tmp_path
):
    sentence = "error: group billing has no dead letters: there is no %DLQ%billing\n"
    for command in GROUP.values():
        if command.startswith("dlq"):
            arguments = command.format(name="billing").split()[:3]
            to = ["--to-parquet", str(tmp_path / "out")] if "export" in command else []
            assert run([*arguments, *to, "-n", namesrv]) == 3
            assert sentence in capsys.readouterr().err


def test_a_topic_that_only_its_broker_does_not_know_is_not_said_to_be_a_topic(capsys):
    """A slave that became master has not yet learned of a new topic."""
    from rmqcli.broker.faults import Answer
    from rmqcli.testing import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        cluster.faults.add(Answer(code=17), code=30)  # GET_MAX_OFFSET
        command = "tail orders --from earliest --to latest"
        assert run([*command.split(), "-n", cluster.namesrv]) == 3
        address = cluster.broker().address
    err = capsys.readouterr().err
    assert f"error: topic orders does not exist at {address}, though the" in err
    assert "is a topic" not in err
    assert "hint: a broker that was started or became master lately may not" in err


def test_what_the_server_answered_is_shown_with_v(namesrv, capsys):
    assert run(["topic", "show", "ordres", "-v", "-n", namesrv]) == 3
    err = capsys.readouterr().err
    assert "error: topic ordres does not exist; did you mean orders?\n" in err
    assert f"{namesrv} answered TOPIC_NOT_EXIST: No topic route info" in err


def test_json_says_which_name_was_meant(namesrv, capsys):
    assert run(["topic", "show", "ordres", "-o", "json", "-n", namesrv]) == 3
    assert json.loads(capsys.readouterr().err) == {
        "error": {
            "kind": "NotFoundError",
            "message": "topic ordres does not exist; did you mean orders?",
            "hint": None,
            "exit_code": 3,
            "code": 17,
            "code_name": "TOPIC_NOT_EXIST",
        }
    }


@pytest.mark.parametrize("command", ["topics", "lag", "tail orders", "send orders x"])
def test_an_option_that_does_not_exist_is_one_sentence(command, capsys):
    assert run([*command.split(), "--tiemout", "5s"]) == 2
    assert capsys.readouterr().err == (
        "error: option --tiemout does not exist; did you mean --timeout?\n"
    )
