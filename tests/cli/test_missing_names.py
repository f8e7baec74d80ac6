"""A name that does not exist: every command says so in the same sentence."""

from __future__ import annotations

import json
import shlex

import pytest

from rmqcli.cli.arguments.table import COMMANDS
from rmqcli.cli.main import run
from tests.cli.test_one_cause import path_of
from tests.kit.waiting import wait_until

#: Commands that take the name of a topic or of a group, each named by {name}.
TOPIC = {
    "topic show": "topic show {name}",
    "topic delete": "topic delete {name} --yes",
    "topic update": "topic update {name} --queues 2",
    "tail": "tail {name} --no-follow",
    "tail of a range": "tail {name} --from earliest --to latest",
    "lag": "lag --topic {name}",
    "lag of a group": "lag billing --topic {name}",
    "tail from a queue": "tail orders --from-queue {name}@broker-a:0=earliest",
    "send": "send {name} hello",
    "consume": "consume {name} --group billing",
    "reset-offset": "reset-offset billing {name} --to earliest",
    "undo": "reset-offset billing {name} --undo",
    "export": "export {name} --to-parquet out --from earliest --to latest",
    "sql": "sql 'select * from {name}'",
    "copy": "copy {name} orders",
    "copy to": "copy orders {name}",
    "message show": "message show {name}@broker-a:0:0",
    "message show by ID": "message show 7F00000100002A9F0000000000000000 -t {name}",
    "message find": "message find {name} --key k",
    "message find by text": "message find {name} --grep a",
    "message resend": "message resend {name}@broker-a:0:0 --to-group billing",
    "message recall": "message recall 7F00000100002A9F0000000000000000 -t {name}",
    "delayed": "delayed {name}",
    "transactions": "transactions {name}",
    "producers": "producers {name}",
    "topic permission": "topic permission {name} rw",
    "topic attributes": "topic attributes {name} cleanup.policy=DELETE",
    "dlq redrive": "dlq redrive billing --to {name}",
    "retry flush": "retry flush billing --topic {name}",
    "bench produce": "bench produce {name} --count 1",
    "bench consume": "bench consume {name} --group billing --count 1",
    "bench latency": "bench latency {name} --count 1",
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
    "message show": "message show orders@broker-a:0:0 --group {name}",
    "message resend": "message resend orders@broker-a:0:0 --to-group {name}",
    "broker drain": "broker drain broker-a --skip-group {name} --no-wait --yes",
    "dlq show": "dlq show {name}",
    "dlq redrive": "dlq redrive {name}",
    "dlq export": "dlq export {name} --to-jsonl letters.jsonl",
    "dlq export to Parquet": "dlq export {name} --to-parquet out",
    "retry show": "retry show {name}",
    "retry flush": "retry flush {name}",
    "group members": "group members {name}",
    "group stack": "group stack {name}",
    "group pause": "group pause {name}",
    "group resume": "group resume {name}",
}
BROKER = {
    "topic create": "topic create new --broker {name}",
    "topic update": "topic update orders --queues 8 --broker {name}",
    "group create": "group create new --broker {name}",
    "group update": "group update billing --retry-max-times 3 --broker {name}",
    "group delete": "group delete billing -r --yes --broker {name}",
    "group pause": "group pause billing --broker {name}",
    "group resume": "group resume billing --broker {name}",
    "topic permission": "topic permission orders rw --broker {name}",
    "topic attributes": "topic attributes orders cleanup.policy=DELETE --broker {name}",
    "message show": "message show orders@{name}:0:0",
    "message resend": "message resend orders@{name}:0:0 --to-group billing",
    "broker show": "broker show {name}",
    "broker drain": "broker drain {name}",
    "broker undrain": "broker undrain {name}",
    "broker config get": "broker config get --broker {name}",
    "broker config set": "broker config set flushDiskType=SYNC_FLUSH --broker {name}",
    "broker config diff": "broker config diff --broker {name}",
    "broker clean-expired-queues": "broker clean-expired-queues --broker {name}",
    "broker clean-unused-topics": "broker clean-unused-topics --broker {name}",
    "acl user list": "acl user list --broker {name}",
    "acl user show": "acl user show U --broker {name}",
    "acl user create": "acl user create U --password-file {password} --broker {name}",
    "acl user update": "acl user update U --super --broker {name}",
    "acl user delete": "acl user delete U --broker {name}",
    "acl user copy": "acl user copy U --from {name}",
    "acl rule list": "acl rule list --broker {name}",
    "acl rule show": "acl rule show U Topic:orders --broker {name}",
    "acl rule create": "acl rule create U Topic:orders Pub --broker {name}",
    "acl rule update": "acl rule update U Topic:orders Pub --broker {name}",
    "acl rule delete": "acl rule delete U Topic:orders --broker {name}",
    "acl rule copy": "acl rule copy U --from {name}",
    "acl explain": "acl explain U Topic:orders Pub --broker {name}",
}
CLUSTER = {
    "topic create": "topic create new --cluster {name}",
    "group create": "group create new --cluster {name}",
    "definitions export": "definitions export --cluster {name}",
}
CHECKS = {
    "check lag": ("group", "check lag {name} --warn 1 --crit 2"),
    "check age": ("group", "check age {name} --warn 1s --crit 2s"),
    "check dlq": ("group", "check dlq {name} --warn 1 --crit 2"),
    "check retention": ("group", "check retention {name} --warn 2s --crit 1s"),
    "check topic": ("topic", "check topic {name} --warn 1s --crit 2s"),
    "check broker": ("broker", "check broker {name} --warn 1 --crit 2"),
}
#: Commands with a name of these kinds, or with options that choose brokers or servers,
#: that are in none of the tables, and why.
OTHERS = {
    "acl config": "it takes no names",
    "bundle": "it archives what it can, and says what the archive lacks",
    "exporter": "a group may be created while it runs",
    "import": "it begins with an export, which only Spark writes",
    "message trace": "a trace may be found although its topic was deleted",
    "profile add": "its names are those of profiles",
    "profile remove": "its names are those of profiles",
    "profile show": "its names are those of profiles",
    "profile use": "its names are those of profiles",
    "serve": "it starts the servers",
    "top": "it shows groups as they come and go",
    "definitions diff": "its file may name what does not exist",
    "definitions apply": "its file creates what does not exist",
}
#: The names of arguments that are those of topics, groups or brokers.
NAMES = {
    *("topic", "topics", "source", "target", "group", "groups", "to_group"),
    *("broker", "brokers", "name", "ref"),
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


def test_every_command_with_names_is_in_one_of_the_tables():
    """A new command says the same of a name that does not exist."""
    tables = (TOPIC, GROUP, BROKER, CLUSTER, QUEUE)
    commands = [command for table in tables for command in table.values()]
    commands += [command for _, command in CHECKS.values()]
    named = {
        path
        for path, (arguments, options, *_) in COMMANDS.items()
        if NAMES & {each[0] for each in (*arguments, *options.values())}
    }
    missing = named - set(map(path_of, commands)) - OTHERS.keys()
    assert sorted(missing) == []


@pytest.fixture(scope="module")
def namesrv():
    from rmqcli import Admin, Producer, ProducerMessage
    from rmqcli.testing import EmbeddedCluster

    with EmbeddedCluster() as cluster:
        cluster.create_topic("orders")
        cluster.create_topic("typed", attributes={"message.type": "FIFO"})
        cluster.create_topic("%DLQ%billing")
        cluster.create_group("billing")
        cluster.create_group("idle")
        cluster.send("orders", ["a"])
        with (
            Admin(namesrv=cluster.namesrv) as admin,
            Producer("shop-producer", namesrv=cluster.namesrv) as producer,
        ):
            producer.send(ProducerMessage("orders", b"b"))
            wait_until(lambda: admin.producers(group="shop-producer").producers)
            yield cluster.namesrv


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "meant", "command"),
    ROWS,
    ids=[f"{kind} {name}: {command.split()[0]}" for kind, name, _, command in ROWS],
)
def test_a_missing_name_is_one_sentence(
    namesrv, kind, name, meant, command, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    password = tmp_path / "password"
    password.write_text("secret123")
    password.chmod(0o600)
    words = shlex.split(command.format(name=name, password=password))
    code = run([*words, "-n", namesrv])
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error")]
    assert errors == [f"error: {kind} {name} does not exist{meant}"]
    assert "answered" not in err
    assert (code, out) == (3, "")


@pytest.mark.parametrize(
    ("kind", "command"),
    [("topic", "tail %LMQ%home --no-follow"), ("group", "lag %LMQ%phone")],
)
def test_what_is_of_an_lmq_is_not_said_to_be_missing(namesrv, capsys, kind, command):
    """Brokers have it, as after messages of MQTT, but name it in no list."""
    words = command.split()
    assert run([*words, "-n", namesrv]) == 3
    assert capsys.readouterr().err == (
        f"error: {kind} {words[1]} cannot be looked up: servers list no LMQs or their"
        " groups\nhint: use the topic to which the messages are sent, and its groups\n"
    )


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        ("billing blling", ["group blling does not exist; did you mean billing?"]),
        ("billing orders", ["group orders does not exist; orders is a topic"]),
        ("nothing blling", ["group blling does not exist; did you mean billing?"]),
    ],
)
def test_each_of_several_missing_groups_is_one_sentence(namesrv, words, warned, capsys):
    run(["lag", *words.split(), "-n", namesrv])
    lines = capsys.readouterr().err.splitlines()
    assert [each for each in lines if each.startswith("warning")] == [
        f"warning: {each}" for each in warned
    ]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["lag", "billing", ""], "group"),
        (["lag", "--topic", ""], "topic"),
        (["tail", " "], "topic"),
        (["topic", "show", ""], "topic"),
        (["group", "delete", "", "--yes"], "group"),
        (["reset-offset", "billing", "", "--to", "latest"], "topic"),
        (["consume", "orders", "--group", ""], "group"),
        (["send", "", "x"], "topic"),
        (["message", "show", "k", "--topic", " "], "topic"),
        (["message", "resend", "k", "--topic", "", "--to-group", "G"], "topic"),
        (["message", "recall", "k", "--topic", ""], "topic"),
    ],
)
def test_an_empty_name_is_said_to_be_empty(namesrv, capsys, command, kind):
    """A variable of the shell was not set. It was asked for at the name server."""
    assert run([*command, "-n", namesrv]) == 2
    assert capsys.readouterr().err == f"error: the {kind}'s name is empty\n"


@pytest.mark.parametrize(("kind", "command"), CHECKS.values(), ids=CHECKS)
def test_checks_say_which_name_was_meant(namesrv, capsys, kind, command):
    name = {"topic": "ordres", "group": "blling", "broker": "brokr-a"}[kind]
    meant = {"topic": "orders", "group": "billing", "broker": "broker-a"}[kind]
    assert run([*command.format(name=name).split(), "-n", namesrv]) == 3
    said = f"unknown, {kind} {name} does not exist; did you mean {meant}? |"
    assert said in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("command", "sentence", "hint"),
    [
        (
            "producers --group shop-prod",
            (
                "no producer of group shop-prod is connected to a broker;"
                " did you mean shop-producer?"
            ),
            "list the producers that are online with: rmq producers",
        ),
        (
            "producers orders --group nothing -o json",
            "no producer of group nothing is connected to a broker",
            "list the producers that are online with: rmq producers",
        ),
        (
            "topic attributes typed --remove message.typ --yes",
            "topic typed has no attribute message.typ; did you mean message.type?",
            None,
        ),
        (
            "topic attributes orders --remove cleanup.policy --yes",
            "topic orders has no attribute cleanup.policy",
            "it has none",
        ),
        (
            "group update billing --remove-attribute nothing",
            "group billing has no attribute nothing",
            "it has none",
        ),
        (
            "nameserver kv list ORDER",
            "no name server has a value in ORDER; did you mean ORDER_TOPIC_CONFIG?",
            None,
        ),
        ("nameserver kv list nothing", "no name server has a value in nothing", None),
        (
            "tail orders --from-queue %DLQ%billing@broker-a:99=earliest",
            "queue broker-a:99 does not exist",
            "topic %DLQ%billing has queues 0 to 3 on broker-a",
        ),
    ],
)
def test_a_name_of_another_kind_that_does_not_exist_is_one_sentence(
    namesrv, command, sentence, hint, capsys
):
    """These printed an empty list, or that nothing had changed."""
    code = run([*command.split(), "-n", namesrv, "-o", "json"])
    out, err = capsys.readouterr()
    error = json.loads(err)["error"]
    assert (error["message"], error["hint"]) == (sentence, hint)
    assert (code, out) == (3, "")


@pytest.mark.parametrize(
    ("output", "written"), [("table", ""), ("json", "[]\n"), ("jsonl", "")]
)
def test_a_group_without_members_is_said_to_be_offline(
    namesrv, output, written, capsys
):
    """In JSON a group that is offline looked like an answer that lacks something."""
    assert run(["group", "members", "idle", "-o", output, "-n", namesrv]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (written, "no member of group idle is online\n")


def test_the_own_namespace_of_rocketmq_may_be_empty(namesrv, capsys):
    assert run(["nameserver", "kv", "list", "-n", namesrv]) == 0
    assert capsys.readouterr().err == "no values in ORDER_TOPIC_CONFIG\n"


def test_a_group_without_dead_letters_is_not_said_to_be_missing(
    namesrv, capsys, tmp_path
):
    sentence = "error: group idle has no dead letters: there is no %DLQ%idle\n"
    for command in GROUP.values():
        if command.startswith("dlq"):
            arguments = command.format(name="idle").split()[:3]
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
