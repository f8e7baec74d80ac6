"""What is said of executors that cannot write parts, or do not come."""

from __future__ import annotations

import os
import platform
import sys

import pytest

from rmqcli.errors import ConfigError, DeadlineError
from rmqcli.spark.export.executors import (
    ExecutorReport,
    ResourceWatch,
    check_report,
    look,
)
from rmqcli.testing.clock import ManualClock

MASTER = "spark://h:7077"


def watch_of(notes, clock):
    return ResourceWatch(MASTER, timeout_ms=60_000, note=notes.append, clock=clock)


def test_an_executor_that_has_everything_is_taken(tmp_path):
    report = look(0, folder=str(tmp_path))
    assert report == ExecutorReport(
        host=platform.node(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        executable=sys.executable,
        missing=(),
        sees_folder=True,
    )
    check_report(report, folder=str(tmp_path))


def test_all_that_is_missing_is_named_with_a_way_to_ship_it():
    report = ExecutorReport("h", "3.11", "/usr/bin/python3", ("lz4", "numpy"), True)
    with pytest.raises(ConfigError) as caught:
        check_report(report, folder="/out")
    assert caught.value.message == (
        "Python 3.11 (/usr/bin/python3) of the executor on h lacks lz4, numpy"
    )
    assert "archives='ENV.tar.gz#env'" in caught.value.hint


def test_a_folder_that_the_executor_does_not_see_is_named(tmp_path):
    folder = os.path.join(tmp_path, "not-there")
    report = look(0, folder=folder)
    with pytest.raises(ConfigError, match=r"cannot write to .*not-there") as caught:
        check_report(report, folder=folder)
    assert "under the same path" in caught.value.hint


def test_a_cluster_without_a_task_is_mentioned_once_and_given_up_later():
    notes: list[str] = []
    clock = ManualClock(0)
    watch = watch_of(notes, clock)
    for seconds in range(60):
        clock.now_ms = seconds * 1000
        watch.update(0)
        assert len(notes) == (seconds >= 10)
    [note] = notes
    assert note == (
        f"waiting for the Spark cluster {MASTER} to grant executors; giving up after"
        " 60 s"
    )
    clock.now_ms = 60_000
    with pytest.raises(DeadlineError, match="has run no task for 60 s") as caught:
        watch.update(0)
    assert caught.value.exit_code == 5
    assert "executor_timeout_ms=MS" in caught.value.hint


def test_the_time_without_a_task_begins_anew_after_each_task():
    notes: list[str] = []
    clock = ManualClock(0)
    watch = watch_of(notes, clock)
    for clock.now_ms, running in ((0, 0), (50_000, 1), (100_000, 0), (109_000, 0)):
        watch.update(running)
    clock.now_ms = 110_000
    with pytest.raises(DeadlineError):
        watch.update(0)
    assert len(notes) == 1
