"""What people read before a change is made, and where there is none to make."""

from __future__ import annotations

import pytest

from rmqcli.cli.main import run
from tests.kit.terminal import typed


@pytest.fixture
def cluster(cluster):
    """Queue 1 of topic orders has lost all its messages on broker-a, queue 0 has not.

    Key k of namespace NS has value v, and group billing is paused on broker-b.
    """
    cluster.create_topic("orders", queues=2)
    broker = cluster.broker()
    cluster.send("orders", ["x", "y"], queue_id=1, broker="broker-a")
    end = broker.state.store.log_bounds()[1]
    cluster.send("orders", ["z"], queue_id=0, broker="broker-a")
    broker.state.store.trim(None, end)
    cluster.create_group("billing")
    for words in (
        ["nameserver", "kv", "put", "NS", "k", "v"],
        ["group", "pause", "billing", "--broker", "broker-b"],
    ):
        assert run([*words, "--yes", "-n", cluster.namesrv]) == 0
    return cluster


@pytest.fixture
def say(cluster, capsys):
    """Runs a command for people; returns what `capsys` has, and the exit code."""

    def run_it(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err.replace(cluster.namesrv, "NAMESRV")

    return run_it


@pytest.mark.parametrize(
    ("command", "plan", "question"),
    [
        (
            "group pause billing",
            "broker-a: consumption is on, will be off\n",
            "This stops the consumption of group billing on broker-a.",
        ),
        (
            "group resume billing",
            "broker-b: consumption is off, will be on\n",
            "This resumes the consumption of group billing on broker-b.",
        ),
        (
            "topic permission orders r",
            (
                "broker-a: rw, will be r\n"
                "broker-b: rw, will be r\n"
                "warning: producers can no longer send to orders there\n"
            ),
            "This changes the permissions of topic orders on broker-a, broker-b.",
        ),
        (
            "topic permission orders w --broker broker-b",
            (
                "broker-b: rw, will be w\n"
                "warning: consumers can no longer read orders there\n"
            ),
            "This changes the permissions of topic orders on broker-b.",
        ),
        (
            "topic attributes orders +message.type=FIFO --broker broker-a",
            "broker-a: message.type is not set, will be FIFO\n",
            "This changes attributes of topic orders.",
        ),
        (
            "nameserver kv put NS new v",
            "NAMESRV: new has no value, will be v\n",
            "This sets new in NS on NAMESRV.",
        ),
        (
            "nameserver kv put NS k ",
            "NAMESRV: k is v, will be empty\n",
            "This sets k in NS on NAMESRV.",
        ),
        (
            "nameserver kv delete NS k",
            "NAMESRV: k is v, will have none\n",
            "This removes k in NS on NAMESRV.",
        ),
        (
            "broker clean-expired-queues",
            "broker-a: queue 1 of orders, which ends at 2\n",
            "This removes 1 queue.",
        ),
        (
            "broker clean-unused-topics",
            "",
            (
                "This removes no queue that is known, and any other queue without a"
                " topic, on broker-a, broker-b."
            ),
        ),
        (
            "broker config set maxMessageSize=1000 --broker broker-a",
            "broker-a: maxMessageSize is 4194304, will be 1000\n",
            "This changes 1 setting.",
        ),
        (
            "broker config set maxMessageSize=1000 --cluster DefaultCluster",
            (
                "broker-a: maxMessageSize is 4194304, will be 1000\n"
                "broker-b: maxMessageSize is 4194304, will be 1000\n"
            ),
            "This changes 2 settings.",
        ),
        (
            "broker drain broker-a",
            "NAMESRV: 15 topics of broker-a can be written, will be read-only\n",
            "This takes the write permission of 15 topics from broker-a.",
        ),
    ],
)
def test_a_change_is_shown_whole_before_its_question(say, command, plan, question):
    with typed("no\n"):
        found = say(*command.split(" "))
    said = "error: not confirmed: nothing was changed\n"
    assert found == (7, "", f"{plan}{question} [y/N] {said}")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "group pause billing --broker broker-b",
            "nothing was changed: consumption is off",
        ),
        (
            "group resume billing --broker broker-a",
            "nothing was changed: consumption is on",
        ),
        (
            "topic permission orders rw",
            "nothing was changed: it has these permissions",
        ),
        (
            "nameserver kv put NS k v",
            "nothing was changed: the name servers have this value",
        ),
        (
            "nameserver kv delete NS other",
            "nothing was changed: the name servers have no such value",
        ),
        (
            "broker clean-expired-queues --broker broker-b",
            "nothing was changed: there are no expired queues",
        ),
        (
            "broker undrain broker-a",
            "nothing was changed: name servers list broker-a with its permissions",
        ),
        ("topic attributes orders", "no attributes"),
        ("nameserver kv list", "no values in ORDER_TOPIC_CONFIG"),
    ],
)
def test_where_nothing_is_to_be_changed_that_is_all_that_is_said(say, command, said):
    code, _, err = say(*command.split(" "))
    assert (code, err) == (0, f"{said}\n")


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (
            "nameserver kv get NS j",
            (
                "no name server has a value for j in NS\n"
                "hint: list the keys with: rmq nameserver kv list NS"
            ),
        ),
        (
            "nameserver kv list ORDER_TOPIC_CONFG",
            (
                "no name server has a value in ORDER_TOPIC_CONFG; did you mean"
                " ORDER_TOPIC_CONFIG?"
            ),
        ),
        ("nameserver kv list OTHERS", "no name server has a value in OTHERS"),
    ],
)
def test_a_value_that_no_name_server_has_is_not_found(say, command, error):
    assert say(*command.split(" ")) == (3, "", f"error: {error}\n")


def test_values_are_a_table(say, cluster):
    for command in ("nameserver kv list NS", "nameserver kv get NS k"):
        code, out, err = say(*command.split(" "))
        assert (code, err) == (0, "")
        assert [line.split() for line in out.splitlines()] == [
            ["SERVER", "KEY", "VALUE", "ERROR"],
            [cluster.namesrv, "k", "v", "-"],
        ]


def test_attributes_are_a_table(say):
    code, _, _ = say(
        *("topic", "attributes", "orders", "+message.type=FIFO", "--yes"),
        *("--broker", "broker-b"),
    )
    assert code == 0
    assert say("topic", "attributes", "orders") == (
        0,
        """\
BROKER    NAME          VALUE  ERROR
broker-b  message.type  FIFO   -
""",
        "",
    )
