"""After a driver was killed before any of its disk calls, a rerun writes all rows."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("partition_by", ["none", "date"])
def test_kill_at_each_disk_call_then_rerun_gives_each_row_once(tmp_path, partition_by):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.export.kill_points",
            str(tmp_path),
            partition_by,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(("scheme", "partition_by"), [("s3", "none"), ("hdfs", "date")])
def test_kill_at_each_call_to_a_remote_storage_then_rerun_gives_each_row_once(
    tmp_path, scheme, partition_by
):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.export.kill_points",
            str(tmp_path),
            partition_by,
            scheme,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("partition_by", ["none", "date"])
def test_kill_at_each_disk_call_of_a_compaction_loses_no_row(tmp_path, partition_by):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.export.kill_points",
            str(tmp_path),
            partition_by,
            "compact",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 40
