"""`group:G` and `--around-group G`: a group that does not exist is an error.

A group exists when it has settings or offsets, even if it has none in the topic.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig


@pytest.fixture(scope="module")
def cluster():
    """Topic T with three messages in each of two queues, and four groups.

    `settled` has only settings, and `tool` only an offset in another topic. `half` has
    settings and an offset in one queue of T, `moved` settings and offsets in both.
    """
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("T")
        cluster.create_topic("Other")
        for queue_id in range(2):
            cluster.send("T", [f"{queue_id}-{n}" for n in range(3)], queue_id=queue_id)
        cluster.send("Other", ["o"], queue_id=0)
        for group in ("settled", "half", "moved", "tool"):
            cluster.create_group(group)
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            for group, topic, queue_id, offset in (
                ("tool", "Other", 0, 1),
                ("half", "T", 1, 2),
                ("moved", "T", 0, 1),
                ("moved", "T", 1, 1),
            ):
                call = update_consumer_offset(
                    group, topic, queue_id, commit_offset=offset
                )
                client.invoke(cluster.broker().address, call)
        state = cluster.broker().state
        cluster.call(lambda: state.groups.delete("tool"))
        yield cluster


@pytest.fixture
def rmq(cluster, capfd):
    def run_it(*arguments):
        code = run([*arguments, "-n", cluster.namesrv])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


def places(out):
    records = [json.loads(line) for line in out.splitlines()]
    return sorted((r["queue_id"], r["queue_offset"]) for r in records)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tail", "T", "--from", "group:setled", "--to", "latest"],
        ["tail", "T", "--from", "earliest", "--to", "group:setled"],
        ["tail", "T", "--from-queue", "T@broker-a:1=group:setled", "--to", "latest"],
        ["tail", "T", "--around-group", "setled"],
        ["reset-offset", "moved", "T", "--to", "group:setled", "--yes"],
        ["reset-offset", "moved", "T", "--to-group", "setled", "--yes"],
    ],
    ids=lambda arguments: " ".join(arguments[2:4]),
)
def test_a_mistyped_group_is_not_found(rmq, arguments):
    code, out, err = rmq(*arguments)
    assert (code, out) == (3, "")
    assert "error: group setled does not exist; did you mean settled?" in err


@pytest.mark.parametrize("flag", ["--from", "--to"])
def test_export_refuses_a_mistyped_group_before_it_writes(rmq, tmp_path, flag):
    folder = tmp_path / "out"
    code, _, err = rmq("export", "T", "--to-parquet", str(folder), flag, "group:nope")
    assert code == 3, err
    assert "error: group nope does not exist\n" in err
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("group", ["settled", "tool"])
def test_a_group_that_has_committed_nothing_there_begins_at_the_min_offset(rmq, group):
    code, out, err = rmq("tail", "T", "--from", f"group:{group}", "--to", "latest")
    assert code == 0, err
    assert places(out) == [(q, o) for q in range(2) for o in range(3)]
    assert (
        "T@broker-a:0-1: each 0 to 3, 3 messages;"
        f" group {group} has committed nothing here" in err
    )


def test_as_an_end_such_a_group_leaves_nothing_before_it(rmq):
    code, out, err = rmq("tail", "T", "--from", "earliest", "--to", "group:half")
    assert code == 0, err
    assert places(out) == [(1, 0), (1, 1)]
    assert "T@broker-a:0: 0 to 0, 0 messages; group half has committed nothing" in err


def test_around_a_group_only_queues_with_a_commit_are_shown(rmq):
    code, out, err = rmq("tail", "T", "--around-group", "half", "-B", "1", "-A", "1")
    assert code == 0, err
    assert places(out) == [(1, 1), (1, 2)]
    assert "T@broker-a:0: half has committed nothing" in err


def test_a_reset_leaves_a_queue_where_the_other_group_has_committed_nothing(rmq):
    code, out, err = rmq(
        "reset-offset", "moved", "T", "--to-group", "half", "-o", "json"
    )
    assert code == 6, err
    rows = json.loads(out)["queues"]
    assert [(row["queue_id"], row["target"]) for row in rows] == [(0, None), (1, 2)]


@pytest.mark.parametrize("to", [("--to-group", "settled"), ("--to", "group:settled")])
@pytest.mark.parametrize("execute", [(), ("--execute", "--yes")], ids=["plan", "run"])
def test_a_reset_to_a_group_that_has_committed_nothing_says_so(rmq, to, execute):
    code, _, err = rmq("reset-offset", "moved", "T", *to, *execute)
    assert code == 6, err
    assert (
        "nothing to do: 2 queues have no target, because group settled has committed"
        " nothing here" in err
    )
    assert "already at its target" not in err
