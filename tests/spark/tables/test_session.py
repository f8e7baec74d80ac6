"""`rmq export --format delta` without the package, or with one for another Spark.

Delta Lake 4.0.0 is for PySpark 4.0, and these tests use a later version.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.spark.session import pyspark_version
from tests.kit.artefacts import UnavailableError
from tests.kit.spark import no_java
from tests.kit.waiting import PATIENCE_S
from tests.spark.export.processes import PROJECT
from tests.spark.tables.jars import jars_of, pyspark_minor

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]


@pytest.fixture
def export(tmp_path):
    """Exports a topic into a table in a folder; returns exit code, stdout, stderr."""
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", ["a", "b"])

        def run_it(*arguments):
            command = [sys.executable, "-m", "rmqcli", "export", "orders"]
            command += ["--to-table", str(tmp_path / "t"), "-n", cluster.namesrv]
            done = subprocess.run(
                [*command, "--format", *arguments],
                cwd=PROJECT,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
            return done.returncode, done.stdout, done.stderr

        yield run_it


def test_a_missing_package_is_two_lines(export, tmp_path):
    code, out, err = export("delta")
    assert (code, out) == (2, "")
    error, hint = err.splitlines()
    assert error == (
        "error: Delta Lake is not among the packages of this Spark session (PySpark"
        f" {pyspark_version()}, Scala 2.13)"
    )
    assert "--conf spark.jars.packages=io.delta:delta-spark" in hint
    assert not (tmp_path / "t").exists()


@pytest.mark.java  # Maven
def test_a_package_for_another_spark_is_two_lines(export):
    if pyspark_minor() == "4.0":
        pytest.skip("the package fits this PySpark")
    try:
        jars = jars_of("delta", "4.0")
    except UnavailableError as error:
        pytest.skip(str(error))
    code, out, err = export("delta", "--conf", jars)
    assert (code, out) == (2, "")
    what, hint = err.splitlines()[-2:]
    assert what.startswith("error: Delta Lake of this Spark session (")
    assert f" does not work with PySpark {pyspark_version()} (Scala 2.13): " in what
    assert "Error: " in what.rpartition("(Scala 2.13): ")[2]
    assert hint.startswith("hint: ")
    assert "\tat " not in err
