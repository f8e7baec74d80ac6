"""Java processes: their command lines, and servers in process groups of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING

from tests.kit.artefacts import class_archive
from tests.kit.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Packages of Java 17 that netty and the store access; older client jars do not load
#: without these flags.
MODULE_FLAGS = (
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.security.x509=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
)
#: Small and quick to start, because several processes share two cores.
SMALL_FLAGS = ("-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
#: Only the first of Java's two compilers: the second pays off only after minutes.
_BRIEF_FLAG = "-XX:TieredStopAtLevel=1"


def java_command(
    class_path: str,
    main_class: str,
    *,
    flags: Sequence[str],
    arguments: Sequence[str],
    is_brief: bool = False,
) -> list[str]:
    """The command line of a Java program with the kit's common flags.

    The program loads its classes from their archive if there is one (see
    class_archive.py). With `is_brief` Java compiles for a short-lived process.
    """
    archive = class_archive(class_path)
    # Java starts without an archive that does not fit; it need not report that.
    quick = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off"]
    return [
        "java",
        *SMALL_FLAGS,
        *(quick if archive.exists() else []),
        *([_BRIEF_FLAG] if is_brief else []),
        *MODULE_FLAGS,
        *flags,
        "-cp",
        class_path,
        main_class,
        *arguments,
    ]


def java_environment(home: Path) -> dict[str, str]:
    """The environment without variables that would change RocketMQ's behaviour."""
    drop = ("NAMESRV_ADDR", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in drop and not name.startswith("ROCKETMQ_")
    }
    return {**kept, "ROCKETMQ_HOME": str(home)}


class ServerProcess:
    """A long-running Java process whose output goes to `log`."""

    def __init__(self, command: Sequence[str], *, log: Path, home: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
                env=java_environment(home),
                start_new_session=True,
            )
        GUARD.watch(self._process.pid)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of the process group."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Return the exit code; None while the process runs."""
        return self._process.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process unless it has ended."""
        if self.exit_code() is None:
            os.kill(self.pid, number)

    def stop(self, *, timeout_ms: int = 40_000) -> None:
        """Send SIGTERM and wait; kill the process if it does not end. Idempotent."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        try:
            self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            self.kill()
        self._forget()

    def kill(self) -> None:
        """Kill the process at once, with SIGKILL. Idempotent."""
        self.send(signal.SIGKILL)
        self._process.wait()
        self._forget()

    def _forget(self) -> None:
        if not self._forgotten:
            self._forgotten = True
            GUARD.forget(self.pid)

    _forgotten = False

    def last_lines(self, count: int = 40) -> str:
        """The last lines of the log, for an error message."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-count:])
