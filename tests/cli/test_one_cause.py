"""A cluster without a working broker: every command gives the same answer.

A name server forgets a broker's topics together with the broker, so "does not exist" is
an answer about a topic only while a broker is registered.
"""

from __future__ import annotations

import json
import shlex

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.faults import Disconnect
from rmqcli.cli.arguments.table import COMMANDS
from rmqcli.cli.main import run
from rmqcli.cli.selection import readable_queues
from rmqcli.config import ClientConfig
from rmqcli.errors import NoBrokerError
from rmqcli.testing import EmbeddedCluster
from tests.kit.rows import each_row

#: Commands that ask the brokers, by what is typed.
ASKING = (
    "topics",
    "topics --all",
    "topic list",
    "groups",
    "group list",
    "brokers",
    "broker list",
    "cluster",
    "lag",
    "lag G",
    "lag --topic T",
    "lag --sample 1ms",
    "lag --watch 1s",
    "topic show T",
    "topic create T",
    "topic update T --queues 2",
    "topic permission T rw",
    "topic attributes T",
    "topic attributes T cleanup.policy=DELETE",
    "group show G",
    "group members G",
    "group stack G",
    "group create G",
    "group update G --retry-max-times 3",
    "group pause G",
    "group resume G",
    "group delete G --remove-offsets --yes",
    "producers",
    "producers T",
    "tail T",
    "tail T --from earliest --to latest",
    "tail T --around-group G",
    "send T hello",
    "send T hello --create",
    "consume T --group G",
    "copy T U",
    "copy T U --execute",
    "message show T@broker-a:0:0",
    "message show 7F00000100002A9F0000000000000000 --topic T",
    "message find T --key k",
    "message find T --grep a",
    "message trace 7F00000100002A9F0000000000000000",
    "message resend T@broker-a:0:0 --to-group G",
    "message recall 7F00000100002A9F0000000000000000 --topic T",
    "delayed T",
    "transactions T",
    "reset-offset G T --to earliest",
    "reset-offset G T --to-group H",
    "dlq list",
    "dlq show G",
    "dlq redrive G",
    "dlq export G --to-jsonl letters.jsonl",
    "retry show G",
    "retry flush G",
    "broker show broker-a",
    "broker config get",
    "broker config set flushDiskType=SYNC_FLUSH --broker broker-a",
    "broker config diff",
    "broker drain broker-a",
    "broker undrain broker-a",
    "broker clean-expired-queues",
    "broker clean-unused-topics",
    "definitions export",
    "definitions diff {definitions}",
    "definitions apply {definitions}",
    "acl user list",
    "acl user show U",
    "acl user create U --password-file {password}",
    "acl user update U --super",
    "acl user delete U",
    "acl user copy U --from broker-a --to broker-b",
    "acl rule list",
    "acl rule show U Topic:T",
    "acl rule create U Topic:T Pub",
    "acl rule update U Topic:T Pub",
    "acl rule delete U Topic:T",
    "acl rule copy U --from broker-a --to broker-b",
    "acl explain U Topic:T Pub",
    "acl config",
    "export T --to-parquet out --from earliest --to latest",
)
#: Where a broker is registered, these go on: a deletion whose connection ends may have
#: been done, `sql` starts Spark meanwhile, and what fails is what the others measure.
GOING_ON = (
    "topic delete T --yes",
    "sql 'select * from T'",
    "doctor",
    "bench produce T --count 1",
    "bench consume T --group G --count 1",
    "bench latency T --count 1",
)
#: With a hung broker, whose answer each waits for: those that are used most.
WAITING = (
    "topics",
    "groups",
    "brokers",
    "lag",
    "tail T",
    "send T hello",
    "topic delete T --yes",
)
#: What monitors run: one line, and exit code 3 for what is not known.
CHECKS = (
    "check lag G --warn 1 --crit 2",
    "check age G --warn 1s --crit 2s",
    "check dlq G --warn 1 --crit 2",
    "check retention G --warn 2s --crit 1s",
    "check topic T --warn 1s --crit 2s",
    "check broker broker-a --warn 1 --crit 2",
)
#: They ask the name servers, and no broker.
ASKING_NAME_SERVERS = (
    "nameserver config get",
    "nameserver config set listenPort=9876",
    "nameserver kv list",
    "nameserver kv get N K",
    "nameserver kv put N K V",
    "nameserver kv delete N K",
)
#: The other commands, and why they are in none of these tables.
_LOCAL = "it asks no server"
_ENDLESS = "it serves until it is ended, and its own tests say what it shows meanwhile"
OTHERS = {
    "bundle": "it archives the errors, and says what the archive lacks",
    "import": "it begins with an export, which only Spark writes",
    "top": _ENDLESS,
    "exporter": _ENDLESS,
    "mcp": _ENDLESS,
    "serve": "it starts the servers",
    "demo": "it starts the servers",
    "export-compact": _LOCAL,
    "spark package": _LOCAL,
    "profile list": _LOCAL,
    "profile show": _LOCAL,
    "profile add": _LOCAL,
    "profile use": _LOCAL,
    "profile remove": _LOCAL,
    "profile edit": _LOCAL,
    "completion install": _LOCAL,
    "completion bash": _LOCAL,
    "completion zsh": _LOCAL,
    "completion fish": _LOCAL,
    "explain": _LOCAL,
    "help": _LOCAL,
    "version": _LOCAL,
}
LIBRARY = {
    "topics": lambda admin: admin.topics(),
    "topic": lambda admin: admin.topic("T"),
    "groups": lambda admin: admin.groups(),
    "group": lambda admin: admin.group("G"),
    "lag": lambda admin: admin.lag("G"),
    "lags": lambda admin: admin.lags(),
    "plan_reset": lambda admin: admin.plan_reset("G", "T", to="earliest"),
    "read": lambda admin: list(admin.read("T")),
    "create_topic": lambda admin: admin.create_topic("T"),
    "create_group": lambda admin: admin.create_group("G"),
}


DEFINITIONS = {"format": "rmq-definitions", "format_version": 1, "topics": []}


def path_of(command):
    """Return the longest name of a command with which these words begin."""
    words = command.split()
    return next(
        path
        for path in (" ".join(words[:end]) for end in range(len(words), 0, -1))
        if path in COMMANDS
    )


def test_every_command_is_in_one_of_the_tables():
    """A new command answers as the others do, or has a reason not to."""
    tables = (*ASKING, *GOING_ON, *CHECKS, *ASKING_NAME_SERVERS)
    asking = set(map(path_of, tables))
    assert sorted(asking & OTHERS.keys()) == []
    assert sorted(COMMANDS.keys() - asking - OTHERS.keys()) == []
    assert sorted(OTHERS.keys() - COMMANDS.keys()) == []


@pytest.fixture
def say(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder; returns its error lines, exit code, stdout."""
    monkeypatch.chdir(tmp_path)
    password = tmp_path / "password"
    password.write_text("secret123")
    password.chmod(0o600)
    definitions = tmp_path / "definitions.json"
    definitions.write_text(json.dumps(DEFINITIONS))

    def run_it(command, namesrv, timeout="30s"):
        words = shlex.split(command.format(password=password, definitions=definitions))
        code = run([*words, "-n", namesrv, "--timeout", timeout])
        out, err = capsys.readouterr()
        errors = [line for line in err.splitlines() if line.startswith("error")]
        return errors, code, out

    return run_it


@pytest.fixture(scope="module")
def killed():
    """A name server with which no broker is registered any more."""
    with EmbeddedCluster(proxy=True) as cluster:
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.broker().kill()
        yield cluster


@pytest.fixture(scope="module")
def dead():
    """A cluster whose only broker is registered, and ends every connection."""
    with EmbeddedCluster() as cluster:
        for topic in ("T", "U", "%DLQ%G", "RMQ_SYS_TRACE_TOPIC"):
            cluster.create_topic(topic)
        cluster.create_group("G")
        cluster.send("T", ["a"])
        cluster.faults.add(Disconnect(is_handled=False), broker="broker-a")
        yield cluster


@pytest.fixture(scope="module")
def hung():
    """A cluster whose only broker is registered, and answers nothing (SIGSTOP)."""
    with EmbeddedCluster() as cluster:
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.broker().hang()
        yield cluster


def none_registered(cluster):
    return f"no broker is registered with the name server {cluster.namesrv}"


def none_answers(cluster):
    return f"no broker answers: broker-a ({cluster.broker().address})"


@pytest.mark.parametrize("command", [*ASKING, *GOING_ON])
def test_without_a_registered_broker_all_commands_say_the_same(killed, say, command):
    expected = ([f"error: {none_registered(killed)}"], 5, "")
    assert say(command, killed.namesrv) == expected


@pytest.mark.parametrize(
    "command", ["topic show T", "send T x", "tail T -g G", "consume T -g G"]
)
def test_without_a_registered_broker_nothing_is_said_of_a_proxy_s_topics(
    killed, capsys, monkeypatch, command
):
    """They said that the topic does not exist (3), as the proxy did."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    words = ["--endpoints", killed.endpoints, "--plaintext", "--timeout", "30s"]
    assert run([*command.split(), *words]) == 5
    out, err = capsys.readouterr()
    (error,) = [line for line in err.splitlines() if line.startswith("error")]
    assert out == ""
    assert error == (
        "error: no broker is registered with the name servers of the proxy"
        f" {killed.endpoints}, or there is no topic T"
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", ASKING)
def test_without_a_living_broker_all_commands_say_the_same(dead, say, command):
    errors, code, _ = say(command, dead.namesrv)
    assert (errors, code) == ([f"error: {none_answers(dead)}"], 5)


@pytest.mark.slow
@pytest.mark.parametrize("command", WAITING)
def test_with_a_hung_broker_commands_say_the_same(hung, say, command):
    errors, code, _ = say(command, hung.namesrv, "2s")
    assert (errors, code) == ([f"error: {none_answers(hung)}"], 5)


@pytest.mark.parametrize("command", CHECKS)
def test_checks_say_the_same_in_their_own_line(killed, say, command):
    name = command.split()[1].upper()
    errors, code, out = say(command, killed.namesrv)
    assert (errors, code) == ([], 3)
    assert out == f"{name} UNKNOWN: {none_registered(killed)}\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "topics"),
    [
        ("lag", ["%RETRY%G"]),
        ("lag G", ["%RETRY%G"]),
        ("lag G --topic T", ["T", "T", "T", "T"]),
    ],
)
def test_lag_shows_what_a_hung_broker_has_as_unknown(
    rmq_cluster, capsys, command, topics
):
    """The name server knows the queues, and a hung broker may come back."""
    rmq_cluster.create_topic("T", queues=4)
    rmq_cluster.create_topic("%RETRY%G", queues=1)
    rmq_cluster.broker().hang()
    words = [*command.split(), "-n", rmq_cluster.namesrv, "--timeout", "2s"]
    code = run([*words, "-o", "json"])
    out, err = capsys.readouterr()
    [group] = json.loads(out)
    assert code == 6
    assert (group["group"], group["state"]) == ("G", "UNKNOWN")
    assert group["total_lag"] is None
    assert group["members"] is None  # and not []: nobody told that there are none
    assert [queue["topic"] for queue in group["queues"]] == topics
    for queue in group["queues"]:
        assert (queue["state"], queue["lag"]) == ("UNKNOWN", None)
        assert "no answer" in queue["reason"]
    assert "broker-a: " in err


@pytest.mark.parametrize("command", ["lag", "lag G"])
def test_lag_does_not_know_that_nobody_is_online_where_a_broker_does_not_answer(
    rmq_cluster_factory, capsys, command
):
    """It showed no members, and that none are active: the other broker has none."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_group("G")
    cluster.broker("broker-b").hang()
    words = [*command.split(), "-n", cluster.namesrv, "--timeout", "1s"]
    assert run([*words, "-o", "json"]) == 6
    [group] = json.loads(capsys.readouterr().out)
    assert (group["group"], group["state"]) == ("G", "UNKNOWN")
    assert group["members"] is None
    told = "members are unknown: broker-b: no answer from 127.0.0.1:"
    assert group["client_reason"].startswith(told)
    [topic] = group["topics"]
    assert (topic["topic"], topic["queues"]) == (None, None)


def test_what_lag_has_seen_of_a_hung_broker_tells_groups_from_topics_of_pop(
    rmq_cluster, capsys
):
    """It showed a group "pop_T", which is the retry topic of POP, and not group pop."""
    rmq_cluster.create_topic("T", queues=2)
    rmq_cluster.create_topic("%RETRY%pop_T", queues=1)
    rmq_cluster.create_topic("%RETRY%new", queues=1)
    rmq_cluster.create_group("pop")
    with Client(ClientConfig(namesrv=(rmq_cluster.namesrv,))) as client:
        for queue in readable_queues(client, "T"):
            client.invoke(
                client.reader_of(queue),
                update_consumer_offset("pop", "T", queue.queue_id, commit_offset=0),
            )
    words = ["lag", "-n", rmq_cluster.namesrv, "--timeout", "2s", "-o", "json"]
    assert run(words) == 0
    capsys.readouterr()
    rmq_cluster.broker().hang()
    assert run(words) == 6
    shown = {
        (group["group"], queue["topic"])
        for group in json.loads(capsys.readouterr().out)
        for queue in group["queues"]
    }
    assert shown == {("new", "%RETRY%new"), ("pop", "T")}


@each_row("ask", LIBRARY.values(), ids=LIBRARY)
def test_without_a_registered_broker_the_library_says_the_same(killed, ask):
    config = ClientConfig(namesrv=(killed.namesrv,), timeout_ms=30_000)
    with Admin(client=config) as admin, pytest.raises(NoBrokerError) as caught:
        ask(admin)
    assert caught.value.message == none_registered(killed)


@each_row("ask", LIBRARY.values(), ids=LIBRARY)
def test_without_a_living_broker_the_library_says_the_same(dead, ask):
    config = ClientConfig(namesrv=(dead.namesrv,), timeout_ms=30_000)
    with Admin(client=config) as admin, pytest.raises(NoBrokerError) as caught:
        ask(admin)
    assert caught.value.message == none_answers(dead)


@pytest.mark.parametrize("command", [*ASKING, *GOING_ON, *ASKING_NAME_SERVERS])
def test_without_a_name_server_all_commands_say_the_same(say, command):
    expected = (["error: cannot connect to 127.0.0.1:9: connection refused"], 5, "")
    assert say(command, "127.0.0.1:9") == expected


@pytest.mark.parametrize("command", CHECKS)
def test_without_a_name_server_checks_say_the_same_in_their_own_line(say, command):
    name = command.split()[1].upper()
    why = "cannot connect to 127.0.0.1:9: connection refused"
    assert say(command, "127.0.0.1:9") == ([], 3, f"{name} UNKNOWN: {why}\n")
