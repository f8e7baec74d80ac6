"""A Spark session for tests: local[2], quiet, one for each test module.

`spark_session()` starts a JVM, which takes seconds; a module's fixture keeps it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings

from rmqcli.errors import ConfigError
from rmqcli.spark.java import find_java


def no_java() -> str | None:
    """Return why Spark cannot run here, or None if it can."""
    try:
        find_java(os.environ)
    except ConfigError as error:
        return error.message
    return None


#: Spark's error when a Python process takes more than 10 s to start: a limit that a
#: busy machine reaches and that no setting changes.
_SLOW_START = "Python worker failed to connect back"


def patiently(run):
    """Return what `run()` returns; retry while Python starts too slowly for Spark."""
    for _ in range(9):
        try:
            return run()
        except Exception as error:
            if _SLOW_START not in str(error):
                raise
    return run()


#: Java compiles less thoroughly, which halves the CPU time of a short session.
_BRIEF_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


def output_of(program, folder, **environ):
    """Run a Python program that uses Spark, in `folder`; return what it printed.

    Adds `environ` to the environment. The first `python3` on PATH is this one, because
    Spark starts its workers as `python3`. Raises AssertionError with the program's
    errors if it fails.
    """
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))

    def run():
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env={
                **os.environ,
                "PATH": path,
                "SPARK_SUBMIT_OPTS": _BRIEF_JAVA,
                **environ,
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return patiently(run)


@contextlib.contextmanager
def spark_session(folder, **settings):
    """A session with the data source registered, which ends with the block."""
    from pyspark.sql import SparkSession

    from rmqcli import RocketMQDataSource

    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        builder = SparkSession.builder.master("local[2]")
        chosen = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(folder),
            "spark.local.dir": str(folder),
            "spark.driver.extraJavaOptions": _BRIEF_JAVA,
            **settings,
        }
        for name, value in chosen.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(RocketMQDataSource)
    try:
        yield session
    finally:
        session.stop()
