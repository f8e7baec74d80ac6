"""`--store DIR` finds in folders of real brokers what Java read from those brokers."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from tests import golden_vectors
from tests.kit.records import body_of, checked_records
from tests.store import folders

COMPRESSED = 1  # MessageSysFlag.COMPRESSED_FLAG


@pytest.fixture
def rmq(capfd):
    """`rmq(...)` runs a command; returns stdout and stderr."""

    def call(*arguments, expect=0):
        code = run([*map(str, arguments)])
        out, err = capfd.readouterr()
        assert code == expect, err
        return out, err

    return call


@pytest.fixture(params=folders.VERSIONS)
def version(request):
    return request.param


@pytest.fixture
def folder(version, tmp_path):
    return folders.unpack(version, tmp_path)


def test_tail_gives_what_java_read(rmq, folder, version):
    expected = golden_vectors.load(f"store-{version}-messages")
    topics = sorted({case["topic"] for case in expected})
    whole = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]
    out, _ = rmq("tail", *topics, "--store", folder, *whole)
    records = checked_records(out.splitlines())
    same = (
        "topic",
        "queue_id",
        "queue_offset",
        "commit_log_offset",
        "offset_msg_id",
        "tags",
        "keys",
        "flag",
        "reconsume_times",
        "born_host",
        "store_host",
        "properties",
    )
    by_place = {record["commit_log_offset"]: record for record in records}
    # The brokers still checked transactions after Java had read everything.
    later = by_place.keys() - {case["commit_log_offset"] for case in expected}
    assert {by_place[place]["topic"] for place in later} <= {"RMQ_SYS_TRANS_HALF_TOPIC"}
    for case in expected:
        record = by_place[case["commit_log_offset"]]
        assert {name: record[name] for name in same} == {
            name: case[name] for name in same
        }
        # Java 5.x clears the flag of a body that it has decompressed.
        assert record["sys_flag"] & ~COMPRESSED == case["sys_flag"] & ~COMPRESSED
        assert record["store_bytes"] == case["store_size"]
        assert body_of(record) == base64.b64decode(case["body_b64"])


def test_lag_is_what_java_told(rmq, folder, version):
    expected = golden_vectors.load(f"store-{version}-offsets")
    groups = sorted({case["group"] for case in expected})
    out, _ = rmq("lag", *groups, "--store", folder, "-o", "json")
    found = {
        (group["group"], queue["topic"], queue["queue_id"]): queue
        for group in json.loads(out)
        for queue in group["queues"]
    }
    for case in expected:
        queue = found[case["group"], case["topic"], case["queue_id"]]
        is_read = case["committed_offset"] == case["max_offset"]
        state = "OK" if is_read else "KNOWN"
        if (version, case["topic"]) == ("5.5.0", "%RETRY%g_push"):
            # The group never committed there, which Java shows as 0.
            assert (queue["committed"], case["committed_offset"]) == (None, 0)
            state = "NO_COMMIT"
        else:
            assert queue["committed"] == case["committed_offset"]
        assert queue["min_offset"] == case["min_offset"]
        assert queue["max_offset"] == case["max_offset"]
        assert queue["lag"] == case["max_offset"] - case["committed_offset"]
        assert queue["state"] == state


def test_a_group_that_is_mistyped_as_a_position_is_named(rmq, folder):
    """It was taken for one that has committed nothing."""
    tail = ["tail", "g_orders", "--store", folder, "-o", "jsonl", "--to", "latest"]
    rmq(*tail, "--from", "group:g_pull")
    out, err = rmq(*tail, "--from", "group:g_pul", expect=3)
    assert (out, json.loads(err)["error"]["message"]) == (
        "",
        "group g_pul does not exist",
    )


def test_members_are_unknown_and_that_is_no_error(rmq, folder):
    out, err = rmq("lag", "g_pull", "--store", folder, "-o", "json", "--explain")
    (group,) = json.loads(out)
    assert group["members"] is None
    unknown = "members are unknown: a broker's folder was read, not a running broker"
    assert group["client_reason"] == unknown
    assert f"The group's {unknown}." in group["explain"]
    out, err = rmq("lag", "g_pull", "--store", folder)
    assert "members unknown" in err
    out, _ = rmq("lag", "--store", folder)
    (row,) = [line.split() for line in out.splitlines() if line.startswith("g_pull")]
    assert row[-2:] == ["-", "0"]  # members, dead letters


def test_topics(rmq, folder):
    out, _ = rmq("topics", "--store", folder, "-o", "json")
    rows = {row["topic"]: row for row in json.loads(out)}
    assert rows["g_orders"] == {
        "topic": "g_orders",
        "kind": "normal",
        "message_type": None,
        "perm": "rw",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
        "order": False,
        "brokers": ["broker-a"],
        "error": None,
    }
    assert rows.keys() == {"g_orders", "g_events", "g_delay"}


@pytest.mark.parametrize("version", ["5.5.0"], indirect=True)
def test_what_does_not_go_with_a_folder(rmq, folder, monkeypatch):
    store = ["--store", folder]
    for flags in (["-n", "a:1"], ["--tls"], ["--tls-ca", "x"], ["--acl-file", "x"]):
        _, err = rmq("topics", *flags, *store, expect=2)
        _, err = rmq("topics", *store, *flags, expect=2)
        assert "--store and --" in err
        assert "cannot be used together" in err
    _, err = rmq("lag", "g_pull", "--process-queues", *store, expect=2)
    assert "--store and --process-queues cannot be used together" in err
    target = folder.parent / "out"
    export = ["export", "g_orders", "--to-parquet", target, *store]
    _, err = rmq(*export, "--master", "spark://other:7077", expect=2)
    assert "only this machine can read the folder" in err
    assert not target.exists()
    monkeypatch.setenv("NAMESRV_ADDR", "192.0.2.1:9876")
    rmq("topics", *store)


def test_folders_that_cannot_be_read(rmq, tmp_path):
    _, err = rmq("topics", "--store", tmp_path / "none", expect=1)
    assert f"folder {tmp_path}/none does not exist" in err
    _, err = rmq("topics", "--store", tmp_path, expect=1)
    assert "is not a broker's store" in err


def test_sql_selects_from_a_folder(rmq, tmp_path):
    folder = folders.unpack("5.5.0", tmp_path)
    sql = ["--sql", "TAGS = 'TagB'", "--no-follow", "--from", "earliest"]
    out, _ = rmq("tail", "g_orders", "--store", folder, *sql, "-o", "jsonl")
    by_sql = {json.loads(line)["msg_id"] for line in out.splitlines()}
    tag = ["--tag", "TagB", "--no-follow", "--from", "earliest"]
    out, _ = rmq("tail", "g_orders", "--store", folder, *tag, "-o", "jsonl")
    by_tag = {json.loads(line)["msg_id"] for line in out.splitlines()}
    assert by_sql == by_tag != set()


def test_tail_follows_a_folder_that_grows(tmp_path):
    with EmbeddedCluster(store=tmp_path) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["one", "two"])
        cluster.broker().restart()
        command = ["-m", "rmqcli", "tail", "orders", "--store", str(tmp_path)]
        command += ["--format", "%v\\n", "--count", "4", "--for", "30s", "-q"]
        with subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(2)]
            cluster.send("orders", ["three"])
            lines.append(process.stdout.readline())
            cluster.send("orders", ["four"])
            lines.append(process.stdout.readline())
            assert lines == ["one\n", "two\n", "three\n", "four\n"]
            assert process.wait(30) == 0
