"""`rmq definitions` on real brokers: what is applied is there, and what they refuse."""

from __future__ import annotations

import json

import pytest

from rmqcli.cli.main import run

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("4.6.0", "5.5.0")]

FIFO = {"message.type": "FIFO"}


@pytest.fixture(scope="module")
def cluster(rmq_version, start_shared):
    return start_shared(rmq_version)


@pytest.fixture
def rmq(cluster, capsys):
    def run_it(*words):
        code = run(["definitions", *map(str, words), "-n", cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err

    return run_it


def rows_of(out):
    return [json.loads(line) for line in out.splitlines()]


def write(path, topics, groups):
    data = {"format": "rmq-definitions", "format_version": 1}
    path.write_text(json.dumps({**data, "topics": topics, "groups": groups}))
    return path


def test_definitions_on_real_brokers(rmq, rmq_version, tmp_path):
    is_new = rmq_version.startswith("5")
    many = [{"name": f"many-{number}", "read_queue_nums": 2} for number in range(40)]
    topics = [
        *many,
        {"name": "steps", "perm": "r", "order": True, "attributes": FIFO},
    ]
    groups = [
        {"name": "billing", "retry_max_times": 3},
        {"name": "audit", "consume_enable": False, "consume_message_orderly": True},
    ]
    file = write(tmp_path / "d.json", topics, groups)
    code, out, err = rmq("apply", file, "--yes", "-o", "jsonl")
    rows = rows_of(out)
    assert "no longer in the route" not in err
    assert {row["name"] for row in rows if row["result"] == "created"} == {
        *(each["name"] for each in many),
        "steps",
        "billing",
        "audit",
    }
    skipped = [
        (row["name"], row["error"]) for row in rows if row["result"] != "created"
    ]
    version = "needs RocketMQ 5.0.0, and the broker has 4.6.0"
    assert (code, skipped) == (
        (0, [])
        if is_new
        else (
            6,
            [
                ("steps", f"attributes: {version}"),
                ("audit", f"consume_message_orderly: {version}"),
            ],
        )
    )
    exported = tmp_path / "exported.json"
    assert rmq("export", "--out", exported)[0] == 0
    assert rmq("diff", exported)[:2] == (0, "")
    data = json.loads(exported.read_text())
    assert data["source"]["brokers"] == {"broker-a": rmq_version}
    assert [each["name"] for each in data["topics"]] == sorted(
        str(each["name"]) for each in topics
    )
    steps = data["topics"][-1]
    assert (steps["perm"], steps["order"]) == ("r", True)
    assert steps.get("attributes") == (FIFO if is_new else None)
    assert [
        (each["name"], each["consume_enable"], each["retry_max_times"])
        for each in data["groups"]
    ] == [("audit", False, 16), ("billing", True, 3)]

    # Changes, an attribute that is removed, and what is not in the file any more.
    less = [{"name": "steps", "perm": "rw", "order": False}]
    if is_new:
        less[0]["attributes"] = {}
    file = write(tmp_path / "d.json", less, [{"name": "billing", "retry_max_times": 5}])
    code, out, _ = rmq("apply", file, "--yes", "-o", "jsonl")
    assert (code, {row["result"] for row in rows_of(out)}) == (0, {"changed"})
    code, out, _ = rmq("apply", file, "--prune", "--yes", "-o", "jsonl")
    assert (code, {row["result"] for row in rows_of(out)}) == (0, {"deleted"})
    assert len(rows_of(out)) == 41
    assert rmq("diff", file)[:2] == (0, "")

    # What a real broker refuses is named, and the rest is done.
    if is_new:
        wrong = {"name": "wrong", "attributes": {"message.type": "NONE"}}
        file = write(tmp_path / "d.json", [{"name": "good"}, wrong], [])
        code, out, _ = rmq("apply", file, "--yes", "-o", "jsonl", "--only", "topics")
        failed, made = rows_of(out)
        assert code == 6
        assert (failed["result"], failed["name"]) == ("failed", "wrong")
        assert "value is not in set:" in failed["error"]
        assert (made["result"], made["name"]) == ("created", "good")
