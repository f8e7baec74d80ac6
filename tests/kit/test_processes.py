"""What the kit holds is its own and goes with its process; needs no Java."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.kit.artefacts import KIT
from tests.kit.ports import BLOCK_PORTS, PortBlock

#: Starts a process that would outlive it, says its id, and waits to be killed.
_PARENT = """
import subprocess, sys
from tests.kit.guard import GUARD
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
GUARD.watch(child.pid)
print("ready", flush=True)
child.wait()
"""


def test_what_a_killed_test_process_started_ends_with_it():
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        cwd=KIT.parent.parent,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        parent.send_signal(signal.SIGKILL)
        # The child and the guard hold the pipe's other end: it ends when they have.
        assert parent.stdout.read() == b""


def test_two_port_blocks_share_no_port_and_are_below_the_ephemeral_range():
    one, other = PortBlock(), PortBlock()
    try:
        assert abs(one.first - other.first) >= BLOCK_PORTS
        assert max(one.first, other.first) + BLOCK_PORTS <= 32_000
    finally:
        one.close()
        other.close()
