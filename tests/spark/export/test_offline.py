"""`rmq export --store` through Spark, without any broker."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests import golden_vectors
from tests.kit.waiting import PATIENCE_S
from tests.store import folders
from tests.store.folders import state_of

pytestmark = pytest.mark.java


@pytest.mark.parametrize("version", folders.VERSIONS)
def test_a_folder_is_exported(version, tmp_path):
    folder = folders.unpack(version, tmp_path)
    before = state_of(folder)
    target = tmp_path / "out"
    command = [sys.executable, "-m", "rmqcli", "export", "g_orders", "-o", "json"]
    command += ["--store", str(folder), "--to-parquet", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    expected = [
        (case["queue_id"], case["queue_offset"], case["commit_log_offset"])
        for case in golden_vectors.load(f"store-{version}-messages")
        if case["topic"] == "g_orders"
    ]
    assert json.loads(done.stdout)["rows"] == len(expected)
    columns = ["queue_id", "queue_offset", "commit_log_offset"]
    rows = [
        tuple(row.values())
        for path in target.glob("*.parquet")
        for row in pq.read_table(path, columns=columns).to_pylist()
    ]
    assert sorted(rows) == sorted(expected)
    assert state_of(folder) == before
