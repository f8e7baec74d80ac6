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
from rmqcli.cli.main import run
from rmqcli.cli.selection import readable_queues
from rmqcli.config import ClientConfig
from rmqcli.errors import NoBrokerError

COMMANDS = {
    "topics": "topics",
    "topics with all": "topics --all",
    "groups": "groups",
    "brokers": "brokers",
    "lag": "lag",
    "lag, twice": "lag --sample 1ms",
    "lag, again and again": "lag --watch 1s",
    "topic show": "topic show T",
    "topic create": "topic create T",
    "topic update": "topic update T --queues 2",
    "topic delete": "topic delete T --yes",
    "group show": "group show G",
    "group create": "group create G",
    "group update": "group update G --retry-max-times 3",
    "group delete": "group delete G --remove-offsets --yes",
    "tail": "tail T",
    "tail of a range": "tail T --from earliest --to latest",
    "tail around a group": "tail T --around-group G",
    "send": "send T hello",
    "send that creates": "send T hello --create",
    "consume": "consume T --group G",
    "reset-offset": "reset-offset G T --to earliest",
    "reset-offset to a group": "reset-offset G T --to-group H",
    "export": "export T --to-parquet {folder} --from earliest --to latest",
    "sql": "sql 'select * from T'",
}
#: With a hung broker they show rows instead, which are UNKNOWN.
LAG_OF_NAMES = {"lag of a group": "lag G", "lag of a topic": "lag --topic T"}
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


def words_of(command, folder):
    return shlex.split(command.format(folder=folder))


def kill(cluster):
    """The broker is gone, and so is its registration."""
    cluster.broker().kill()


def hang(cluster):
    """The broker is registered, and answers nothing (SIGSTOP)."""
    cluster.broker().hang()


#: How a broker fails, what is said, and the time limit of an answer: only the limit
#: for a hung broker is ever reached.
STATES = {
    "killed": (kill, "no broker is registered with the name server {namesrv}", 30_000),
    "hung": (hang, "no broker answers: broker-a ({broker})", 2_000),
}


@pytest.fixture(params=STATES)
def broken(request, rmq_cluster):
    """A cluster without a working broker, what is to be said, and the time limit."""
    rmq_cluster.create_topic("T")
    rmq_cluster.create_group("G")
    rmq_cluster.send("T", ["a"])
    breaks, said, timeout_ms = STATES[request.param]
    address = rmq_cluster.broker().address
    breaks(rmq_cluster)
    said = said.format(namesrv=rmq_cluster.namesrv, broker=address)
    return rmq_cluster, said, timeout_ms


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_without_a_working_broker_all_commands_say_the_same(
    broken, command, capsys, tmp_path
):
    cluster, said, timeout_ms = broken
    words = words_of(command, tmp_path / "out")
    code = run([*words, "-n", cluster.namesrv, "--timeout", f"{timeout_ms}ms"])
    _, err = capsys.readouterr()
    assert [line for line in err.splitlines() if line.startswith("error")] == [
        f"error: {said}"
    ]
    assert code == 5


@pytest.mark.parametrize("command", LAG_OF_NAMES.values(), ids=LAG_OF_NAMES)
def test_lag_of_names_says_the_same_when_the_broker_was_killed(
    rmq_cluster, capsys, command
):
    rmq_cluster.create_topic("T")
    kill(rmq_cluster)
    assert run([*command.split(), "-n", rmq_cluster.namesrv]) == 5
    said = STATES["killed"][1].format(namesrv=rmq_cluster.namesrv)
    assert f"error: {said}\n" in capsys.readouterr().err


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
    assert group["client_reason"] == "members are unknown: no answer from broker-b"
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


@pytest.mark.parametrize("ask", LIBRARY.values(), ids=LIBRARY)
def test_without_a_working_broker_the_library_says_the_same(broken, ask):
    cluster, said, timeout_ms = broken
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms)
    with Admin(client=config) as admin, pytest.raises(NoBrokerError) as caught:
        ask(admin)
    assert caught.value.message == said


@pytest.mark.parametrize(
    "command",
    [*COMMANDS.values(), *LAG_OF_NAMES.values()],
    ids=[*COMMANDS, *LAG_OF_NAMES],
)
def test_without_a_name_server_all_commands_say_the_same(command, capsys, tmp_path):
    words = words_of(command, tmp_path / "out")
    code = run([*words, "-n", "127.0.0.1:9", "--timeout", "30s"])
    _, err = capsys.readouterr()
    assert [line for line in err.splitlines() if line.startswith("error")] == [
        "error: cannot connect to 127.0.0.1:9: connection refused"
    ]
    assert code == 5
