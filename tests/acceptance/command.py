"""Runs `rmq` in a separate process, as a shell does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: No command of these tests takes longer, unless it hangs.
PATIENCE_S = 240


def rmq(
    *arguments: str,
    namesrv: str,
    stdin: bytes | None = None,
    expect: Sequence[int] = (0,),
    **environ: str,
) -> subprocess.CompletedProcess[bytes]:
    """Run one command; fail with its stderr if the exit code is not in `expect`."""
    done = subprocess.run(
        [sys.executable, "-m", "rmqcli", *arguments],
        input=stdin or b"",
        capture_output=True,
        check=False,
        timeout=PATIENCE_S,
        env=os.environ | {"NAMESRV_ADDR": namesrv, "NO_COLOR": "1"} | environ,
    )
    words = done.stderr.decode(errors="replace")
    assert done.returncode in expect, f"exit {done.returncode}: {words[-2000:]}"
    assert "Traceback" not in words
    return done


def records(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """Return the records that a command wrote to stdout as JSON Lines."""
    return [json.loads(line) for line in done.stdout.splitlines()]
