"""Exports on a standalone cluster that encrypts: lost workers, unfit executors."""

from __future__ import annotations

import os
import re
import sys

import pytest

from tests.kit.spark import no_java
from tests.kit.spark_cluster import SparkCluster, bare_python, executors_path
from tests.kit.waiting import PATIENCE_S, wait_until
from tests.spark.export.inline import expected, offsets_in
from tests.spark.export.processes import ExportProcess

pytestmark = [
    pytest.mark.java,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
    pytest.mark.xdist_group("spark-standalone"),
]
ENCRYPTED = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "s3cret-of-tests",
    "spark.network.crypto.enabled": "true",
}
QUEUES = {0: (0, 60_000), 1: (500, 60_000)}


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    path = executors_path(folder / "lib")
    with SparkCluster(
        folder / "spark", workers=2, defaults=ENCRYPTED, path=[path],
        python=bare_python(),
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture
def cluster(started):
    """The cluster, after replacing workers that tests have killed."""
    started.add_workers(2 - started.workers)
    return started


def export(cluster, path, *, python=None, **options):
    """Start an export whose source contains keys."""
    conf = {**ENCRYPTED, "spark.executor.memory": "512m"}
    settings = {"master": cluster.url, "conf": list(conf.items()), **options}
    return ExportProcess(
        path,
        QUEUES,
        options=settings,
        source={"is_secret": True},
        env={"PYSPARK_PYTHON": str(python or bare_python())},
    )


def is_writing(process):
    return re.search("offsets_done=[1-9]", process.errors.read_text())


def last_line(process):
    return process.errors.read_text().splitlines()[-1]


def test_a_worker_lost_during_the_run_neither_loses_nor_repeats_rows(tmp_path, cluster):
    path = tmp_path / "out"
    with export(cluster, path) as process:
        wait_until(lambda: is_writing(process))
        cluster.kill_worker()
        summary = process.summary()
    assert summary["rows"] == 119_500
    assert offsets_in(path) == expected(QUEUES)
    log = path / "_rmq" / "runs" / summary["run_id"] / "spark.log"
    assert "Lost executor" in log.read_text()


def test_an_export_that_lost_all_workers_continues_with_new_ones(tmp_path, cluster):
    path = tmp_path / "out"
    with export(cluster, path) as process:
        wait_until(lambda: is_writing(process))
        cluster.kill_worker()
        cluster.kill_worker()
        waiting = "info: waiting for the Spark cluster"
        wait_until(lambda: waiting in process.errors.read_text())
        cluster.add_workers(2)
        summary = process.summary()
    assert summary["rows"] == 119_500
    assert offsets_in(path) == expected(QUEUES)


def test_a_python_missing_on_the_executors_is_named(tmp_path, cluster):
    path = tmp_path / "out"
    with export(cluster, path, python="/no/such/python") as process:
        assert process.process.wait(PATIENCE_S) == 2
    assert last_line(process) == (
        "ConfigError: the executors cannot start '/no/such/python' as Python"
    )
    assert not path.exists()


def test_the_error_for_another_python_on_executors_names_both_versions(
    tmp_path, cluster
):
    path = tmp_path / "out"
    with export(cluster, path, python=older_python(tmp_path)) as process:
        assert process.process.wait(PATIENCE_S) == 2
    here = ".".join(map(str, sys.version_info[:2]))
    assert last_line(process) == (
        "ConfigError: the executors run Python 3.7, but PySpark requires the driver's"
        f" version, {here}"
    )
    assert not path.exists()


def older_python(folder):
    """Create a Python that claims to be 3.7 when Spark's worker checks its version."""
    (folder / "sitecustomize.py").write_text(
        "import builtins, sys\n"
        "load = builtins.__import__\n"
        "def and_then(name, *rest, **named):\n"
        "    module = load(name, *rest, **named)\n"
        "    if name == 'pyspark.worker_util':\n"
        "        sys.version_info = (3, 7, 0, 'final', 0)\n"
        "    return module\n"
        "builtins.__import__ = and_then\n"
    )
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH={folder}{os.pathsep}$PYTHONPATH exec {bare_python()} "$@"\n'
    )
    program.chmod(0o755)
    return program
