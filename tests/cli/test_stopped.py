"""Output is whole if the process is stopped and continued while a pipe is full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.waiting import PATIENCE_S, wait_until

TEXT = "".join(f"{number:09}\n" for number in range(100_000))
WRITES = """
import sys
from rmqcli.cli.main import prepare_stdout
from rmqcli.cli.ui.output import write_whole
prepare_stdout()
text = "".join(f"{number:09}\\n" for number in range(100_000))
"""


@pytest.mark.parametrize(
    "how", ["write_whole(text)", "sys.stdout.write(text); sys.stdout.flush()"]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_ctrl_z_and_fg_lose_nothing(how, unbuffered):
    """With PYTHONUNBUFFERED=1, as in many containers, `rmq sql` lost rows and exited
    with 0."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITES + how],
        bufsize=0,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
    ) as process:
        state = Path(f"/proc/{process.pid}/stat")

        def is_in(*letters):
            return state.read_text().rpartition(")")[2].split()[0] in letters

        assert process.stdout is not None
        out = process.stdout.read(1)
        wait_until(lambda: is_in("S"))  # the pipe is full
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_in("T"))
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: not is_in("T"))
        out += process.communicate(timeout=PATIENCE_S)[0]
    assert process.returncode == 0
    assert out.decode() == TEXT
