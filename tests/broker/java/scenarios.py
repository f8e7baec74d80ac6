"""One Java process that executes client actions on request: see Scenarios.java."""

from __future__ import annotations

import json
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Self

from tests.kit.java_program import command_of
from tests.kit.process import java_environment

if TYPE_CHECKING:
    from tests.kit.cluster import RealCluster


class Scenarios:
    """Executes one command for each `ask(do=..., ...)`. A context manager."""

    def __init__(self, cluster: RealCluster) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  # until closed
        self._process = subprocess.Popen(
            command_of(cluster, "Scenarios", [cluster.namesrv]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=cluster.tools_home(),
            env=java_environment(cluster.tools_home()),
        )
        self._read()

    def ask(self, **spec: object) -> dict[str, Any]:
        """Return the answer to a command: `{"error": ...}` if Java threw."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(spec) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        self._complaints.seek(0)
        said = self._complaints.read().decode("utf-8", "replace")[-2000:]
        raise RuntimeError(f"Scenarios ended: {said}")

    def close(self) -> None:
        """End the process."""
        with self._process as process:
            process.kill()
        self._complaints.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
