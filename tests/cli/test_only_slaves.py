"""What commands say of a broker of which only a slave is left, which may be behind.

A slave answers as its master does, with what it had copied when the master died.
Measured on 5.5.0 (`slaveReadEnable`): a slave that was started again alone listed
neither a topic nor a group that the master had, and no dead letters.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode

BEHIND = "broker-b currently has no master, and its slave may be behind"


@pytest.fixture
def rmq(rmq_cluster_factory, capsys):
    """Run `rmq`; return its exit code, its lines of JSON, and what it says on stderr.

    The slave of broker-b has 4 of 10 messages of the last queue. Its master is dead.
    """
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=2)
    cluster.create_group("billing")
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send("orders", [str(number) for number in range(40)])
    cluster.add_slave("broker-b", behind=6)
    cluster.broker("broker-b").kill()

    def run_it(*words):
        capsys.readouterr()
        code = run([*words, "-n", cluster.namesrv, "-o", "jsonl"])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return run_it


@pytest.mark.parametrize(
    "command",
    [
        "topic show orders",
        "group show billing",
        "dlq show billing",
        "retry show billing",
        "delayed orders",
        "transactions orders",
        "message find orders --key k",
        "message show 7F0000010000000000000000000000FF",
        "topic show nowhere",
    ],
)
def test_what_a_slave_tells_does_not_count_as_complete(command, rmq):
    """They ended with exit code 0, or said that a thing does not exist."""
    code, _, err = rmq(*command.split())

    assert code == 6
    assert BEHIND in err


def test_a_tail_says_that_the_master_was_not_read(rmq):
    """It said that nothing was missing."""
    code, rows, err = rmq("tail", "orders", "--from", "earliest", "--no-follow")

    assert code == 6
    assert len(rows) == 34
    assert f"{BEHIND}: what it lacks is not shown" in err
    assert "34 shown, 34 read, the master of broker-b not read" in err


def test_a_tail_of_another_broker_is_complete(rmq):
    words = ("--from", "earliest", "--no-follow", "--queue", "broker-a:0")

    code, rows, err = rmq("tail", "orders", *words)

    assert (code, len(rows)) == (0, 10)
    assert "nothing missing" in err


def test_the_number_of_dead_letters_is_unknown(rmq):
    code, rows, _ = rmq("dlq", "list")

    assert code == 6
    assert [(row["count"], row["state"]) for row in rows] == [(None, "UNKNOWN")]


def test_the_messages_and_the_rate_of_a_topic_are_unknown(rmq):
    """34 of 40 messages, with a rate of 0, although producers wait for the master."""
    code, (orders,), err = rmq("topics", "--sample", "10ms")

    assert (code, orders["messages"], orders["rate_in"]) == (6, None, None)
    assert orders["reason"] == BEHIND
    assert f"not all numbers of 1 topic are known: {BEHIND}" in err


@pytest.mark.parametrize("command", ["topics", "groups"])
def test_a_list_warns_of_what_a_slave_may_lack(command, rmq):
    code, rows, err = rmq(command)

    assert (code, len(rows)) == (0, 1)
    assert f"warning: {BEHIND}: what it lacks is not listed" in err


def test_an_export_of_what_a_slave_has_needs_a_flag(rmq, tmp_path):
    """34 of 40 messages were taken for a complete export."""
    words = ("--from", "earliest", "--to", "latest")

    code, _, err = rmq("export", "orders", *words, "--to-parquet", str(tmp_path / "e"))

    assert code == 6
    assert BEHIND in err
    assert "--allow-gaps" in err


def test_a_slave_that_acts_for_its_master_is_not_taken_for_one(
    rmq_cluster_factory, capsys
):
    """`reset-offset` showed a plan without the offsets that the master had.

    Measured on 5.5.0 (`enableSlaveActingMaster`, `supportActingMaster`): the route has
    the slave's address under id 0, without the permission to write; the list of the
    cluster's brokers has it under id 1.
    """
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=2)
    cluster.create_group("billing")
    cluster.send("orders", ["paid"] * 4)
    slave = cluster.add_slave()
    cluster.broker().kill()
    route = {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": slave.address},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": True,
            }
        ],
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 4,
                "readQueueNums": 2,
                "topicSysFlag": 0,
                "writeQueueNums": 2,
            }
        ],
    }
    cluster.faults.add(
        faults.answer(0, body=json.dumps(route).encode()),
        code=RequestCode.GET_ROUTEINFO_BY_TOPIC,
    )
    words = ["reset-offset", "billing", "orders", "--to", "earliest"]

    code = run([*words, "-n", cluster.namesrv])

    assert code == 3
    assert "broker broker-a of topic orders currently has no master" in (
        capsys.readouterr().err
    )
