"""The settings with which Spark is started."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pyspark
import pytest

from rmqcli.errors import ConfigError
from rmqcli.spark.session import (
    SessionOptions,
    check_spark_home,
    settings,
    spark_context,
)
from tests.kit.spark import no_java, spark_session


def test_an_application_on_a_cluster_keeps_its_web_page_and_the_settings_of_conf():
    options = SessionOptions(
        name="n",
        log_path="log",
        workers_max=1,
        conf=(("spark.executor.memory", "2g"), ("spark.app.name", "mine")),
        archives=("a.tar.gz#a", "b.tar.gz"),
    )
    local = settings(options, "folder")
    assert local["spark.ui.enabled"] == "false"
    assert local["spark.executor.memory"] == "2g"
    cluster = settings(replace(options, master="spark://h:7077"), "folder")
    assert cluster == {
        "spark.app.name": "mine",
        "spark.master": "spark://h:7077",
        "spark.ui.showConsoleProgress": "false",
        "spark.archives": "a.tar.gz#a,b.tar.gz",
        "spark.executor.memory": "2g",
    }


def test_another_spark_in_spark_home_is_named_with_both_versions(tmp_path):
    jars = tmp_path / "jars"
    jars.mkdir()
    environ = {"SPARK_HOME": str(tmp_path)}
    check_spark_home({}, "4.3.0")
    check_spark_home(environ, "4.3.0")
    (jars / "spark-core_2.13-4.3.1.jar").touch()
    check_spark_home(environ, "4.3.0")
    (jars / "spark-core_2.13-4.3.1.jar").rename(jars / "spark-core_2.12-3.5.1.jar")
    with pytest.raises(ConfigError) as caught:
        check_spark_home(environ, "4.3.0")
    assert caught.value.message == (
        f"SPARK_HOME is {tmp_path} with Spark 3.5.1, but the installed PySpark is 4.3.0"
    )
    assert caught.value.hint.startswith("unset SPARK_HOME")


#: A program that prints which slow modules are imported after a session with a job.
PROBE = """
import sys
from rmqcli.spark.session import SessionOptions, spark_context
with spark_context(SessionOptions(name="n", log_path=sys.argv[1], workers_max=1)) as c:
    assert c.parallelize([1, 2], 1).map(str).collect() == ["1", "2"]
print({"numpy", "pandas", "pyarrow", "pyspark", "pyspark.testing"} & set(sys.modules))
"""


@pytest.mark.spark
@pytest.mark.skipif(no_java() is not None, reason=f"{no_java()}")
def test_a_session_loads_no_library_that_only_its_workers_need(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", PROBE, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("{'pyspark'}\n", "")


@pytest.mark.spark
@pytest.mark.skipif(no_java() is not None, reason=f"{no_java()}")
def test_workers_import_the_installed_pyspark_and_compile_nothing(tmp_path):
    """Spark puts a zip of PySpark first on their path, which Python compiles anew."""
    options = SessionOptions(name="n", log_path=str(tmp_path / "log"), workers_max=1)
    with spark_context(options) as context:
        (found,) = (
            context.parallelize([0], 1)
            .map(lambda _: __import__("pyspark").__file__)
            .collect()
        )
    assert found == pyspark.__file__


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(no_java() is not None, reason=f"{no_java()}")
def test_a_session_uses_no_jvm_that_another_session_left(tmp_path):
    """PySpark keeps the JVM of a session that was stopped. The user's next session
    continues in it, even after a session of ours."""
    with spark_session(tmp_path) as before:
        assert before.range(3).count() == 3
    options = SessionOptions(name="n", log_path=str(tmp_path / "log"), workers_max=1)
    with spark_context(options) as context:
        assert context.parallelize([1, 2], 1).sum() == 3
        assert context.appName == "n"
    with spark_session(tmp_path) as after:
        assert after.range(3).count() == 3
