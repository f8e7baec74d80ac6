"""A standalone cluster of Spark, and a Spark Connect server: PySpark's own programs.

Everything listens on 127.0.0.1, on ports that the system chooses. Each worker leads a
process group, so it can be killed with its executors, as when a machine fails.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyspark

from rmqcli.spark.export.executors import PACKAGES
from rmqcli.spark.java import find_java
from tests.kit.waiting import wait_until

PROJECT = Path(__file__).parents[2]
_HOME = Path(pyspark.__file__).parent
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"


class SparkProcesses:
    """Processes of Spark with one environment, which end with the block.

    `defaults` has the settings of their spark-defaults.conf, and `env` further
    environment variables. `path` lists the folders on the PYTHONPATH of their Python
    workers, which run `python`.
    """

    def __init__(
        self, folder, *, defaults=None, path=(), python=sys.executable, env=None
    ):
        self.folder = Path(folder)
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        lines = [f"{name} {value}\n" for name, value in (defaults or {}).items()]
        (conf / "spark-defaults.conf").write_text("".join(lines))
        self.conf = conf
        self._env = {
            **os.environ,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_JAVA_OPTS": _JAVA,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": str(python),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "JAVA_HOME": find_java(os.environ).home,
            **(env or {}),
        }
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self._started):
            kill_group(process)

    def start(self, name, *command):
        """Start one of Spark's programs; return the process and its log file."""
        log = self.folder / f"{name}-{len(self._started)}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                list(map(str, command)),
                env=self._env,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process, log

    def wait_for(self, started, pattern):
        """Wait until `pattern` is in the log of a started program; return the match."""
        process, log = started
        found = re.compile(pattern)

        def is_there():
            assert process.poll() is None, log.read_text()
            return found.search(log.read_text())

        return wait_until(is_there, f"{pattern} in {log}")


class SparkCluster(SparkProcesses):
    """A master and its workers, each with `cores` cores; `url` is the master's."""

    def __init__(self, folder, *, workers, cores=1, **settings):
        super().__init__(folder, **settings)
        self._cores = cores
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            self.url = self._start_master()
            self.add_workers(workers)
        except BaseException:
            self.__exit__()
            raise

    def _start_master(self):
        daemon = self._daemon("Master", "--port", "0")
        pattern = r"Starting Spark master at (spark://127\.0\.0\.1:\d+)"
        return self.wait_for(daemon, pattern)[1]

    def add_workers(self, count):
        """Start `count` workers, and wait until the master has registered them."""
        arguments = ("--cores", self._cores, "--memory", "1g", self.url)
        daemons = [self._daemon("Worker", *arguments) for _ in range(count)]
        for daemon in daemons:
            self.wait_for(daemon, "Successfully registered with master")
            self._workers.append(daemon[0])

    def kill_worker(self):
        """Kill a worker with its executors, without notice to the master."""
        kill_group(self._workers.pop())

    @property
    def workers(self):
        """The number of workers that are alive."""
        return len(self._workers)

    def _daemon(self, name, *arguments):
        program = f"org.apache.spark.deploy.{name.lower()}.{name}"
        address = ("--host", "127.0.0.1", "--webui-port", "0")
        return self.start(
            name, _HOME / "bin" / "spark-class", program, *address, *arguments
        )


class ConnectServer(SparkProcesses):
    """A Spark Connect server with executors of `master`; `url` is the server's."""

    def __init__(self, folder, *, master="local[2]", **settings):
        super().__init__(folder, **settings)
        conf = {
            "spark.master": master,
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": _JAVA,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": "0",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        flags = [word for item in conf.items() for word in ("--conf", "=".join(item))]
        self._env["SPARK_DAEMON_MEMORY"] = "1g"
        name = "org.apache.spark.sql.connect.service.SparkConnectServer"
        try:
            server = self.start(
                "connect", _HOME / "bin" / "spark-submit", "--class", name, *flags
            )
            pattern = r"Spark Connect server started at: \S*?:(\d+)"
            self.url = f"sc://127.0.0.1:{self.wait_for(server, pattern)[1]}"
        except BaseException:
            self.__exit__()
            raise
        self.log = server[1]


def kill_group(process):
    """Kill a process that leads a group, and the group. Idempotent."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def executors_path(folder, *, packages=PACKAGES):
    """Make a folder of what executors import: compiled packages, and these tests.

    It does not contain rmqcli, which has to be sent to the executors.
    """
    folder = Path(folder)
    folder.mkdir()
    (folder / "tests").symlink_to(PROJECT / "tests")
    for name in packages:
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        home = Path(found.origin).parent
        place = folder.joinpath(*name.split("."))
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(home)
        for libraries in home.parent.glob(f"{name}.libs"):
            (folder / libraries.name).symlink_to(libraries)
    return folder


def bare_python():
    """The base interpreter: the same version, without this environment's packages."""
    return getattr(sys, "_base_executable", sys.executable)
