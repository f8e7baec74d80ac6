"""The errors for executors that cannot write parts, or that are never granted."""

from __future__ import annotations

import os
import platform
import sys

import pytest
from pyspark.errors import PySparkRuntimeError

from rmqcli.errors import ConfigError, DeadlineError
from rmqcli.spark.export.executors import (
    ExecutorReport,
    ResourceWatch,
    check_report,
    look,
)
from rmqcli.spark.export.job import translated
from rmqcli.testing.clock import ManualClock

MASTER = "spark://h:7077"


def watch_of(notes, clock, master=MASTER):
    return ResourceWatch(master, timeout_ms=60_000, note=notes.append, clock=clock)


def test_an_executor_that_has_everything_is_accepted(tmp_path):
    report = look(0, folder=str(tmp_path))
    assert report == ExecutorReport(
        host=platform.node(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        executable=sys.executable,
        missing=(),
        sees_folder=True,
    )
    check_report(report, folder=str(tmp_path))


def test_all_missing_packages_are_named_with_a_way_to_ship_them():
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


def test_an_idle_cluster_is_reported_once_and_then_given_up():
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


def test_the_idle_time_starts_over_after_each_task():
    notes: list[str] = []
    clock = ManualClock(0)
    watch = watch_of(notes, clock)
    for clock.now_ms, running in ((0, 0), (50_000, 1), (100_000, 0), (109_000, 0)):
        watch.update(running)
    clock.now_ms = 110_000
    with pytest.raises(DeadlineError):
        watch.update(0)
    assert len(notes) == 1


def test_the_hint_for_spark_connect_does_not_suggest_less_memory():
    clock = ManualClock(0)
    watch = watch_of([], clock, "sc://h:15002")
    watch.update(0)
    clock.now_ms = 60_000
    with pytest.raises(DeadlineError, match="sc://h:15002 has run no task") as caught:
        watch.update(0)
    assert caught.value.hint == "wait longer with executor_timeout_ms=MS"


#: Shortened texts of Spark's exceptions for a Python that cannot run its workers.
OTHER_VERSION = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Traceback (most recent call last):
  File "/spark/worker_util.py", line 63, in check_python_version
    raise PySparkRuntimeError(
pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in\
 worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with\
 different minor versions.
"""
NO_PROGRAM = """Job aborted due to stage failure: java.io.IOException: Cannot run\
 program "env/bin/python": Exec failed, error: 2 (No such file or directory)
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1110)
"""
TOO_OLD = """Job aborted due to stage failure: org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "/usr/lib/python3.6/runpy.py", line 193, in _run_module_as_main
      "__main__", mod_spec)
  SyntaxError: bad
PYTHONPATH was:
  /spark/python/lib/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number
"""


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            OTHER_VERSION,
            (
                "the executors run Python 3.12, but PySpark requires the driver's"
                " version, 3.11"
            ),
            "set PYSPARK_PYTHON to a Python 3.11 of the executors, or pack an",
        ),
        (
            NO_PROGRAM,
            "the executors cannot start 'env/bin/python' as Python",
            "set PYSPARK_PYTHON to the path of Python on the executors, or pack an",
        ),
        (
            TOO_OLD,
            "the executors' Python cannot run Spark's worker: SyntaxError: bad",
            "set PYSPARK_PYTHON to a Python on the executors that has the driver's",
        ),
    ],
)
def test_a_python_that_cannot_run_spark_is_named_with_a_hint(text, message, hint):
    error = translated(PySparkRuntimeError(text))
    assert isinstance(error, ConfigError)
    assert error.message == message
    assert error.hint.startswith(hint)
