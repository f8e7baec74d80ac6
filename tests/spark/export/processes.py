"""Exports in separate processes, and the processes that they start."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.kit.waiting import wait_until

PROJECT = Path(__file__).parents[3]


class ExportProcess:
    """Runs `tests.spark.export.run_export` in a new session. A context manager.

    Its stderr goes to the file `errors`, by default `<path>.stderr`.
    """

    def __init__(self, path, queues, *, env=None, errors=None, **settings) -> None:
        settings["queues"] = {str(q): list(span) for q, span in queues.items()}
        self.errors = Path(errors or f"{path}.stderr")
        with open(self.errors, "wb") as stderr:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.spark.export.run_export",
                    str(path),
                    json.dumps(settings),
                ],
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=PROJECT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self._stdout = self.process.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._stdout.close()
        wait_until(lambda: not in_session(self.process.pid))

    def wait_for(self, text: str) -> None:
        """Wait until `text` is on the process's stderr, or the process has ended."""
        wait_until(
            lambda: text in self.errors.read_text() or self.process.poll() is not None
        )

    def summary(self):
        """Wait for the end of the process; return the summary that it printed."""
        out = self._stdout.read()
        code = self.process.wait()
        assert code == 0, self.errors.read_text()
        return json.loads(out)


def in_session(session: int) -> list[int]:
    """Return the processes of a session, including those of all its process groups."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            stat = Path("/proc", name, "stat").read_text()
            fields = stat.rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(name))
    return found
