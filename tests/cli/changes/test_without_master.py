"""A broker of which only a slave is left is named by changes of a whole cluster."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run


@pytest.fixture
def half():
    """Two brokers with topic orders and group billing; broker-b has only a slave."""
    with EmbeddedCluster(brokers=2) as made:
        made.create_topic("orders", queues=2)
        with Admin(namesrv=made.namesrv) as admin:
            admin.create_group("billing")
        made.add_slave("broker-b")
        made.broker("broker-b").kill()
        yield made


@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["topic", "create", "new"], "created"),
        (["topic", "update", "orders", "--queues", "4"], "changed"),
        (["topic", "permission", "orders", "r", "--yes"], "changed"),
        (
            ["topic", "attributes", "orders", "+message.type=FIFO", "--yes"],
            "changed",
        ),
        (["group", "create", "new"], "created"),
        (["group", "update", "billing", "--no-consume"], "changed"),
        (["group", "pause", "billing", "--yes"], "changed"),
        (["group", "delete", "billing", "--remove-offsets", "--yes"], "deleted"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else value,
)
def test_a_change_of_the_cluster_has_failed_on_a_broker_without_a_master(
    half, capsys, words, result
):
    code = run([*words, "-n", half.namesrv, "-o", "jsonl"])
    out, err = capsys.readouterr()
    rows = [json.loads(line) for line in out.splitlines()]
    assert [
        (row.get("server", row.get("broker_name")), row["result"], row["error"])
        for row in rows
    ] == [
        ("broker-a", result, None),
        ("broker-b", "failed", "broker broker-b currently has no master"),
    ]
    assert code == 6, err
