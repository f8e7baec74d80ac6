"""`rmq dlq export` from real brokers: Parquet has the rows of JSON lines."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import uuid

import pytest

from rmqcli import Admin
from tests.admin.dlq.letters import client_of, make_letters
from tests.kit.waiting import wait_until
from tests.spark.export.processes import PROJECT
from tests.spark.export.test_real import _ms, exported

pytestmark = pytest.mark.spark

SAME = (
    *("topic", "broker_name", "queue_id", "queue_offset", "commit_log_offset"),
    *("msg_id", "offset_msg_id", "tags", "keys", "born_host", "store_host"),
    *("reconsume_times", "flag", "sys_flag"),
)


def rmq_export(cluster, group, *flags):
    command = [sys.executable, "-m", "rmqcli", "dlq", "export", group, *flags]
    command += ["-n", cluster.namesrv]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_letters_in_parquet_are_those_in_json_lines(real_cluster, new_topic, tmp_path):
    topic, group = new_topic(queues=1), f"g-{uuid.uuid4().hex[:12]}"
    letters = f"%DLQ%{group}"
    with Admin(namesrv=real_cluster.namesrv) as admin:
        admin.create_group(group)
        make_letters(real_cluster, group, topic, ["größer", " ", "[1, 2]"])
        more = {"tags": "T", "keys": ("k1", "k2"), "properties": {"n": "ä"}}
        make_letters(real_cluster, group, topic, [f"{n}" for n in range(20)], **more)
        admin.update_topic(letters, perm=6)  # 4.6.0 creates it write-only

    def is_readable():
        with client_of(real_cluster) as client:
            return client.route(letters).read_queues()

    wait_until(is_readable)
    file, folder = tmp_path / "letters.jsonl", tmp_path / "out"
    rmq_export(real_cluster, group, "--to-jsonl", str(file))
    rmq_export(real_cluster, group, "--to-parquet", str(folder))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    rows = exported(folder)
    assert len(lines) == len(rows) == 23
    for line in lines:
        row = rows[line["queue_id"], line["queue_offset"]]
        assert {name: row[name] for name in SAME if name in row} == {
            name: line[name] for name in SAME if name in row
        }
        assert dict(row["properties"]) == line["properties"]
        text = line["body"]
        body = base64.b64decode(line["body_b64"]) if text is None else text.encode()
        assert row["body"] == body
        for name in ("born_timestamp", "store_timestamp"):
            assert _ms(row[name]) == line_ms(line[name])


def line_ms(text):
    """The milliseconds of a time in a line."""
    from datetime import datetime

    return _ms(datetime.fromisoformat(text))
