"""What Spark, Py4J and Java print never reaches the screen, whatever happens."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from rmqcli.broker.faults import drop_answer
from rmqcli.spark.session import PYSPARK_LOGGERS
from rmqcli.wire.codes import RequestCode
from tests.kit.spark import no_java, patiently
from tests.kit.waiting import PATIENCE_S, wait_until


def needs_spark(test):
    """Mark a test that starts Spark."""
    skip = pytest.mark.skipif(no_java() is not None, reason=no_java() or "")
    return pytest.mark.spark(pytest.mark.slow(pytest.mark.nightly(skip(test))))


def test_every_logger_of_pyspark_with_a_handler_of_its_own_is_known():
    root = Path(pyspark.__file__).parent
    found = {
        name
        for path in root.rglob("*.py")
        if "tests" not in path.parts
        for name in re.findall(
            r'^\s*\w+ = PySparkLogger\.getLogger\("(\w+)"\)',
            path.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    }
    assert found == set(PYSPARK_LOGGERS)


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory()
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["a", "b", "c", "d"])
    return cluster


def java_of(group):
    """The process of Java in a process group, None when there is none."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.readlink(entry / "exe").endswith("/java"):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    return int(entry.name)
        except OSError:  # it has ended
            continue
    return None


def told_of_a_kill(cluster, said, *arguments):
    """Run `rmq`, kill its Java while a task waits for a broker; return code, stderr."""
    with (
        said.open("wb") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "rmqcli", *arguments, "-n", cluster.namesrv],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        ) as process,
    ):
        # From then on only tasks pull, and they wait until they have an answer.
        wait_until(lambda: java_of(process.pid), "Java runs")
        if arguments[0] == "sql":
            wait_until(lambda: b"orders: " in said.read_bytes(), "the range is known")
        rule = cluster.faults.add(
            drop_answer(), code=RequestCode.PULL_MESSAGE, topic="orders"
        )
        wait_until(lambda: rule.requests, "a pull")
        # Not the first Java, which only finds out how to start the second one.
        os.kill(java_of(process.pid), signal.SIGKILL)
        code = process.wait(PATIENCE_S)
    cluster.faults.remove(rule)
    return code, said.read_text(encoding="utf-8").splitlines()


@needs_spark
@pytest.mark.parametrize("kind", ["sql", "export"])
def test_a_java_that_is_killed_in_the_middle_is_an_error_and_a_hint(
    cluster, tmp_path, kind
):
    arguments = {
        "sql": ["sql", "select count(*) from orders"],
        "export": ["export", "orders", "--to-parquet", str(tmp_path / "out")],
    }[kind]
    code, lines = told_of_a_kill(cluster, tmp_path / "said", *arguments)
    assert code != 0
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1
    assert "Java process ended" in errors[0]
    assert not [line for line in lines if "Traceback" in line or len(line) > 300]
    assert len(lines) <= 8


@needs_spark
def test_an_error_in_the_data_is_one_line_on_the_screen(cluster):
    def run():
        return subprocess.run(
            [
                *(sys.executable, "-m", "rmqcli", "sql", "-n", cluster.namesrv),
                "select 1 / (n - n) from (select count(*) n from orders)",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    done = patiently(run)
    assert done.returncode == 1
    notes, error = done.stderr.splitlines()
    assert notes == "orders: 4 messages in 1 queue"
    assert error.startswith("error: division by zero. ")
    assert "starting Spark" not in done.stderr


@needs_spark
def test_a_terminal_is_told_that_spark_starts(cluster):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "sql", "values (1)", "-n", cluster.namesrv],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = bytearray()
        while b"starting Spark" not in shown:
            data = os.read(ours, 1 << 16)
            assert data
            shown.extend(data)
        process.kill()
    os.close(ours)
