"""Start and stop Spark.

The default is a local master that is bound to the loopback address, with as many
workers as there are cores, at most three tries of a task, and no web interface, which
would add 1.3 s to the start (an application on a cluster has one). Only the RDD layer
is started, because the SQL layer would take half of the time of the start. Everything
that Spark and Java print goes to a log file, never to the screen.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rmqcli
from rmqcli.credentials import ENV_SECRETS
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, ConnectError, RmqError
from rmqcli.hint import Argument, Hint
from rmqcli.spark.failure import start_reason
from rmqcli.spark.java import find_java, write_shim
from rmqcli.spark.master import is_local
from rmqcli.spark.package import zip_package
from rmqcli.spark.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark import SparkContext

    from rmqcli.spark.java import Java

#: The loggers of PySpark that have a handler for stderr of their own.
PYSPARK_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")

_LOCAL_TRIES: Final = 3
_JVM_EXIT_S: Final = 10

#: A local JVM only schedules, so a quick start matters most. Therefore the serial
#: collector, only the C1 compiler, no full collection while classes are loaded, and no
#: verification of Spark's own jars (the last one alone reduces the time until the first
#: task is done from 5.3 s to 4.1 s).
_LOCAL_JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=192m "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    "-XX:-BytecodeVerificationRemote"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How to start a session.

    `master` is None for this machine; `workers_max` limits the number of workers there.
    """

    name: str
    log_path: str
    workers_max: int
    master: str | None = None
    #: settings of Spark, which take precedence over the ones made here
    conf: tuple[tuple[str, str], ...] = ()
    #: archives that Spark unpacks on the executors, as `FILE#FOLDER`
    archives: tuple[str, ...] = ()


@contextlib.contextmanager
def spark_context(options: SessionOptions) -> Iterator[SparkContext]:
    """Start a SparkContext for the duration of the block; its JVM ends with the block.

    Raises ConfigError when no suitable Java is found, ConnectError when no master of a
    cluster answers, and RmqError, which names the log, when Spark does not start. Call
    it from the main thread. The process keeps its SIGINT handler.
    """
    with (
        scratch_folder() as folder,
        _other_jvm_kept(),
        _python_log(options.log_path),
    ):
        java = find_java(os.environ)
        with _environment(options, java, folder), _sigint_kept():
            context = _start(options, folder)
        try:
            if not is_local(options.master):
                _ship(context, zip_package(folder), options)
            yield context
        except BaseException:
            _stop(context, orderly=False)
            raise
        _stop(context, orderly=not is_local(options.master))


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def pyspark_version() -> str:
    """Return the version of the PySpark that is installed here."""
    import pyspark

    return str(pyspark.__version__)


def check_spark_home(environ: Mapping[str, str], version: str) -> None:
    """Raise ConfigError when the Spark at SPARK_HOME does not match this PySpark.

    `version` is PySpark's. The minor versions must be equal, because the methods that
    PySpark calls in the JVM change with them. Nothing is raised when the version of the
    Spark in the folder cannot be determined.
    """
    home = environ.get("SPARK_HOME")
    jars = Path(home or "", "jars").glob("spark-core_*.jar") if home else ()
    for jar in jars:
        found = re.match(r"spark-core_[\d.]+-((\d+\.\d+)[\w.]*)", jar.name)
        if found is not None and found[2] != ".".join(version.split(".")[:2]):
            raise ConfigError(
                f"SPARK_HOME is {home} with Spark {found[1].removesuffix('.jar')}, but"
                f" the installed PySpark is {version}",
                hint="unset SPARK_HOME to use the Spark that comes with PySpark",
            )


def settings(options: SessionOptions, folder: str) -> dict[str, str]:
    """Return the settings for Spark.

    Most of them are for a local master, whose files are all kept in `folder`; a cluster
    keeps its own settings.
    """
    workers = max(1, min(cores(), options.workers_max))
    chosen = {
        "spark.app.name": options.name,
        "spark.master": options.master or f"local[{workers},{_LOCAL_TRIES}]",
        "spark.ui.showConsoleProgress": "false",
    }
    if options.archives:
        chosen["spark.archives"] = ",".join(options.archives)
    if is_local(options.master):
        chosen |= {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": (
                f'{_LOCAL_JAVA_OPTIONS} "-Djava.io.tmpdir={folder}"'
            ),
            "spark.local.dir": folder,
            "spark.python.daemon.module": "rmqcli.spark.daemon",
            # The driver may find the package only through sys.path.
            "spark.executorEnv.PYTHONPATH": str(Path(rmqcli.__file__).parents[1]),
        }
    return chosen | dict(options.conf)


@contextlib.contextmanager
def _other_jvm_kept() -> Iterator[None]:
    """Hide the JVM of an earlier session of this process; restore it after the block.

    PySpark keeps the JVM of a session that was stopped, and would start the new context
    in it.
    """
    from pyspark import SparkContext

    kept = SparkContext._gateway, SparkContext._jvm  # noqa: SLF001  # PySpark offers no other way
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    try:
        yield
    finally:
        SparkContext._gateway, SparkContext._jvm = kept  # noqa: SLF001


@contextlib.contextmanager
def _python_log(path: str) -> Iterator[None]:
    """Write what PySpark and Py4J log in this process to a file inside the block.

    Both would write tracebacks and lines of several thousand characters to stderr.
    Loggers to which the program has given handlers are left alone.
    """
    from pyspark.logger import PySparkLogger

    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    # Py4J logs some errors with the root logger, and others with its own.
    root, own = logging.getLogger(), map(PySparkLogger.getLogger, PYSPARK_LOGGERS)
    loggers = [logging.getLogger("py4j"), *own]
    if not root.handlers:
        loggers.append(root)
    kept = [(each, each.handlers[:], each.propagate) for each in loggers]
    for each in loggers:
        each.handlers[:] = [handler]
        each.propagate = False
    try:
        yield
    finally:
        for each, handlers, propagate in kept:
            each.handlers[:] = handlers
            each.propagate = propagate
        handler.close()


def _start(options: SessionOptions, folder: str) -> SparkContext:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    check_spark_home(os.environ, pyspark_version())
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings(options, folder).items()))
    try:
        with open(options.log_path, "ab") as log:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})
        # When a call first has an argument, PySpark's converters of NumPy values import
        # PySpark's test utilities, and pandas with them (0.4 s). No call here passes
        # such a value, so this gateway gets none of these converters.
        client = gateway._gateway_client  # noqa: SLF001  # PySpark has no option for it
        client.converters = [
            each
            for each in client.converters or ()
            if not type(each).__name__.startswith("Numpy")
        ]
        context = SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
    except (PySparkException, Py4JError, OSError) as error:
        raise _not_started(error, options) from error
    # The server would print a traceback when the JVM ends before this process.
    server = context._accumulatorServer  # noqa: SLF001  # PySpark has no option for it
    server.handle_error = lambda *_: None
    return context


def _ship(context: SparkContext, path: str, options: SessionOptions) -> None:
    """Send a zip of Python modules to the executors."""
    from py4j.protocol import Py4JError

    try:
        context.addPyFile(path)
    except (Py4JError, OSError) as error:
        # If the master does not answer, the constructor of SparkContext still returns
        # without an error.
        raise _not_started(error, options) from error


def _not_started(error: BaseException, options: SessionOptions) -> RmqError:
    reason = start_reason(error, options.log_path)
    if "masters are unresponsive" in reason:
        return ConnectError(
            f"the Spark master {options.master} does not answer PySpark"
            f" {pyspark_version()}",
            address=options.master or "",
            hint=Hint(
                "check ",
                Argument("master"),
                f", and that the master also runs Spark {pyspark_version()}",
            ),
        )
    return RmqError(
        f"Spark did not start: {reason}",
        hint=f"see its log, {keep_log(options.log_path)}",
    )


def keep_log(log_path: str) -> str:
    """Copy the log to a separate file, and return its path.

    The folder of the log is removed when nothing was exported.
    """
    handle, path = tempfile.mkstemp(prefix="rmq-spark-", suffix=".log")
    os.close(handle)
    with contextlib.suppress(OSError):
        shutil.copyfile(log_path, path)
    return path


def _stop(context: SparkContext, *, orderly: bool) -> None:
    """Stop Spark; its JVM has ended when this returns.

    Unless `orderly`, the JVM is killed. That saves 1.5 s and loses nothing, because all
    of its files are in the scratch folder. After an interrupt there is no other way:
    an interrupted call leaves the connection to the JVM out of step. An orderly stop
    tells the master of a cluster that the application has ended.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = context._gateway  # noqa: SLF001  # PySpark offers no other way to it
    if orderly:
        # This fails when the JVM has already ended.
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
    # From now on py4j need not tell the JVM which Python objects are garbage.
    gateway._gateway_client.is_connected = False  # noqa: SLF001
    server = context._accumulatorServer  # noqa: SLF001
    ending = threading.Thread(target=server.shutdown) if server is not None else None
    if ending is not None:
        ending.start()  # it waits until the JVM closes its connection
    _end_process(gateway.proc, at_once=not orderly)
    if ending is not None:
        ending.join()
    gateway.close()
    SparkContext._active_spark_context = None  # noqa: SLF001


def _end_process(process: subprocess.Popen[bytes], *, at_once: bool) -> None:
    if process.stdin is not None:
        process.stdin.close()
    if at_once:
        process.kill()
    try:
        process.wait(_JVM_EXIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _spark_home(environ: Mapping[str, str]) -> str | None:
    """Return the folder of Spark: SPARK_HOME, or the Spark that PySpark contains.

    Returns None when that folder has no jars.
    """
    import pyspark

    home = environ.get("SPARK_HOME") or os.path.dirname(
        os.path.realpath(pyspark.__file__)
    )
    return home if os.path.isdir(os.path.join(home, "jars")) else None


def _without_python(home: str, folder: str) -> str:
    """Return a folder like that of Spark, but without the zip of PySpark.

    Spark puts that zip first on the path of its Python processes, which then compile
    what they import of PySpark again at each start. A query starts three of them (0.7 s
    of CPU each). Without it, they import the installed package.
    """
    shown = Path(folder, "spark")
    shown.mkdir(exist_ok=True)
    for each in Path(home).iterdir():
        if each.name != "python":
            (shown / each.name).symlink_to(each.resolve())
    return str(shown)


@contextlib.contextmanager
def _environment(options: SessionOptions, java: Java, folder: str) -> Iterator[None]:
    """Set the environment variables that Spark reads when it starts; restore them."""
    changes: dict[str, str | None] = {"JAVA_HOME": java.home}
    # Workers receive the credentials with their tasks; the JVM must not inherit them.
    changes |= dict.fromkeys(ENV_SECRETS)
    if not java.has_vector:
        changes["JAVA_HOME"] = write_shim(java, folder)
    if is_local(options.master):
        # Without this setting workers run the first `python3` on PATH.
        changes["PYSPARK_PYTHON"] = sys.executable
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Without this variable a script of Spark starts Python to find it (0.1 s).
    home = _spark_home(os.environ)
    if home is not None:
        is_here = is_local(options.master)
        changes["SPARK_HOME"] = _without_python(home, folder) if is_here else home
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _sigint_kept() -> Iterator[None]:
    """Restore the SIGINT handler, which a new SparkContext replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
