"""Starting and stopping Spark.

The default is a local master: as many workers as there are cores, each task tried three
times, no web interface (it takes 1.3 s of the start; an application on a cluster has
one), bound to the loopback address.
Only the RDD layer is started: the SQL layer would take half of the start. Java takes
the classes from an archive where there is one (`class_archive`). What Spark and Java
print goes to a log file, never to the screen.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import rmqcli
from rmqcli.credentials import ENV_SECRETS
from rmqcli.errors import ConfigError, ConnectError, RmqError
from rmqcli.spark.class_archive import find_class_archive
from rmqcli.spark.failure import start_reason
from rmqcli.spark.java import find_java, write_shim
from rmqcli.spark.master import is_local
from rmqcli.spark.package import zip_package
from rmqcli.spark.scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark import SparkContext

    from rmqcli.spark.class_archive import ClassArchive, Kind
    from rmqcli.spark.java import Java

_LOCAL_TRIES: Final = 3
_JVM_EXIT_S: Final = 10

#: A local JVM only schedules, so what counts is how soon it is up: the small collector,
#: the quick compiler, no full collection while classes load, and no verification of
#: Spark's own jars (the last alone: 5.3 -> 4.1 s until the first task is done).
_LOCAL_JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=192m "
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    "-XX:-BytecodeVerificationRemote"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """`master` None is this machine; `workers_max` bounds the number of its workers."""

    name: str
    log_path: str
    workers_max: int
    #: which archive of Java's classes is for it
    kind: Kind = "export"
    master: str | None = None
    #: settings of Spark, which go before those made here
    conf: tuple[tuple[str, str], ...] = ()
    #: archives that Spark unpacks for the executors, as `FILE#FOLDER`
    archives: tuple[str, ...] = ()


@contextlib.contextmanager
def spark_context(options: SessionOptions) -> Iterator[SparkContext]:
    """Start a SparkContext for the time of the block; its JVM ends with the block.

    Raises ConfigError without a Java, ConnectError when no master of a cluster answers,
    and RmqError naming the log when Spark does not start. Call it from the main thread;
    the process keeps its SIGINT handler.
    """
    with scratch_folder() as folder, _other_jvm_kept():
        java = find_java(os.environ)
        classes = _Classes.of(options, java, folder)
        with (
            _environment(options, java, folder, classes.java_options()),
            _sigint_kept(),
        ):
            context = _start(options, folder)
        try:
            if not is_local(options.master):
                _ship(context, zip_package(folder), options)
            class_path = classes.class_path(context)
            yield context
        except BaseException:
            _stop(context, orderly=False)
            raise
        _stop(context, orderly=not is_local(options.master))
        classes.keep(class_path)


@dataclass(frozen=True, slots=True)
class _Classes:
    """The archive that a session uses, or records the names of its classes for."""

    archive: ClassArchive | None
    #: the file with the names, None for a session that does not record them
    names: str | None

    @classmethod
    def of(cls, options: SessionOptions, java: Java, folder: str) -> _Classes:
        home = _spark_home(os.environ)
        if home is None:
            return cls(None, None)
        archive = find_class_archive(
            options.kind,
            java=java,
            spark_home=home,
            spark_version=pyspark_version(),
            environ=os.environ,
        )
        if archive is None or archive.is_usable():
            return cls(archive, None)
        # The session of a cluster loads other classes, too.
        if is_local(options.master) and archive.may_be_made():
            return cls(archive, os.path.join(folder, "classes"))
        return cls(None, None)

    def java_options(self) -> str:
        if self.archive is None:
            return ""
        if self.names is None:
            return self.archive.options_to_use()
        return self.archive.options_to_record(self.names)

    def class_path(self, context: SparkContext) -> str | None:
        """Return the class path of the JVM, None when it is not needed."""
        from py4j.protocol import Py4JError

        if self.names is None:
            return None
        try:
            jvm = context._jvm  # noqa: SLF001  # PySpark offers no other way to it
            return str(jvm.System.getProperty("java.class.path"))
        except (Py4JError, OSError):
            return None

    def keep(self, class_path: str | None) -> None:
        """Let the archive be made from what was recorded."""
        if self.archive is not None and self.names is not None and class_path:
            self.archive.start_making(self.names, class_path, os.environ)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def pyspark_version() -> str:
    """Return the version of the PySpark that is installed here."""
    import pyspark

    return str(pyspark.__version__)


def check_spark_home(environ: Mapping[str, str], version: str) -> None:
    """Raise ConfigError when SPARK_HOME is another Spark than this PySpark.

    `version` is PySpark's. A minor version counts, because what a PySpark calls in its
    JVM changes with it. A folder that does not say its version is left to Spark.
    """
    home = environ.get("SPARK_HOME")
    jars = Path(home or "", "jars").glob("spark-core_*.jar") if home else ()
    for jar in jars:
        found = re.match(r"spark-core_[\d.]+-((\d+\.\d+)[\w.]*)", jar.name)
        if found is not None and found[2] != ".".join(version.split(".")[:2]):
            raise ConfigError(
                f"SPARK_HOME, {home}, holds Spark {found[1].removesuffix('.jar')}, and"
                f" PySpark here is {version}",
                hint="unset SPARK_HOME, for the Spark that came with PySpark",
            )


def settings(options: SessionOptions, folder: str) -> dict[str, str]:
    """Return the settings of Spark; a cluster keeps its own settings.

    In `folder` Spark puts everything that it keeps on the disk.
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
            # The driver may have found the package through sys.path alone.
            "spark.executorEnv.PYTHONPATH": str(Path(rmqcli.__file__).parents[1]),
        }
    return chosen | dict(options.conf)


@contextlib.contextmanager
def _other_jvm_kept() -> Iterator[None]:
    """Set the JVM of an earlier session of this process aside, for the next one.

    PySpark keeps it when that session is stopped, and would start a context in it.
    """
    from pyspark import SparkContext

    kept = SparkContext._gateway, SparkContext._jvm  # noqa: SLF001  # PySpark offers no other way
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    try:
        yield
    finally:
        SparkContext._gateway, SparkContext._jvm = kept  # noqa: SLF001


def _start(options: SessionOptions, folder: str) -> SparkContext:
    # What py4j says when a call is interrupted is not for the screen.
    logging.getLogger("py4j").propagate = False
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
        # With the first argument of a call PySpark's converters of NumPy values import
        # its test utilities, and pandas with them (0.4 s). No call here has such a
        # value, so this gateway does without these converters.
        client = gateway._gateway_client  # noqa: SLF001  # PySpark has no option for it
        client.converters = [
            each
            for each in client.converters or ()
            if not type(each).__name__.startswith("Numpy")
        ]
        context = SparkContext(gateway=gateway, conf=SparkConf(_jvm=gateway.jvm))
    except (PySparkException, Py4JError, OSError) as error:
        raise _not_started(error, options) from error
    # It would print a traceback when the JVM ends before this process.
    server = context._accumulatorServer  # noqa: SLF001  # PySpark has no option for it
    server.handle_error = lambda *_: None
    return context


def _ship(context: SparkContext, path: str, options: SessionOptions) -> None:
    """Give the executors a file of Python modules."""
    from py4j.protocol import Py4JError

    try:
        context.addPyFile(path)
    except (Py4JError, OSError) as error:
        # Without an answer of the master the constructor ends as if all were well.
        raise _not_started(error, options) from error


def _not_started(error: BaseException, options: SessionOptions) -> RmqError:
    reason = start_reason(error, options.log_path)
    if "masters are unresponsive" in reason:
        return ConnectError(
            f"the Spark master {options.master} does not answer PySpark"
            f" {pyspark_version()}",
            address=options.master or "",
            hint="check the master argument, and that the master runs Spark"
            f" {pyspark_version()}, too",
        )
    return RmqError(
        f"Spark did not start: {reason}",
        hint=f"see its log, {keep_log(options.log_path)}",
    )


def keep_log(log_path: str) -> str:
    """Copy the log to a file of its own: its folder goes when nothing was exported."""
    handle, path = tempfile.mkstemp(prefix="rmq-spark-", suffix=".log")
    os.close(handle)
    with contextlib.suppress(OSError):
        shutil.copyfile(log_path, path)
    return path


def _stop(context: SparkContext, *, orderly: bool) -> None:
    """Stop Spark; its JVM has ended when this returns.

    Without `orderly` the JVM is killed, which saves 1.5 s and loses nothing: all that
    it keeps is in the scratch folder. After an interrupt there is no other way, because
    an interrupted call leaves the connection to the JVM out of step. Stopping in order
    tells the master of a cluster that the application has ended.
    """
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = context._gateway  # noqa: SLF001  # PySpark offers no other way to it
    if orderly:
        # A JVM that died cannot be stopped any more.
        with contextlib.suppress(Py4JError, OSError):
            context.stop()
    # The JVM need not hear of objects that are collected from now on.
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
    """Return the folder of Spark, None when it is neither named nor PySpark's own."""
    import pyspark

    home = environ.get("SPARK_HOME") or os.path.dirname(
        os.path.realpath(pyspark.__file__)
    )
    return home if os.path.isdir(os.path.join(home, "jars")) else None


@contextlib.contextmanager
def _environment(
    options: SessionOptions, java: Java, folder: str, java_options: str = ""
) -> Iterator[None]:
    """Set the environment variables that the start of Spark reads; restore them.

    `java_options` are for the JVM of the driver, whatever the master is.
    """
    changes: dict[str, str | None] = {"JAVA_HOME": java.home}
    # Workers get the keys with their tasks; the JVM must not inherit them.
    changes |= dict.fromkeys(ENV_SECRETS)
    if not java.has_vector:
        changes["JAVA_HOME"] = write_shim(java, folder)
    if is_local(options.master):
        # Without it workers run the first `python3` on PATH.
        changes["PYSPARK_PYTHON"] = sys.executable
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"
    if java_options:
        # The user's come last, and count.
        given = os.environ.get("SPARK_SUBMIT_OPTS", "")
        changes["SPARK_SUBMIT_OPTS"] = f"{java_options} {given}".rstrip()
    # Otherwise a script of Spark starts a Python to find it (0.1 s).
    home = _spark_home(os.environ)
    if home is not None:
        changes["SPARK_HOME"] = home
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
