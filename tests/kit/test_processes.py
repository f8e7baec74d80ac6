"""The kit's processes end with the tests, and port blocks do not overlap."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from tests.kit.artefacts import KIT
from tests.kit.guard import is_zombie
from tests.kit.ports import BLOCK_PORTS, PortBlock
from tests.kit.waiting import wait_until

#: Starts a process that would outlive it, prints "ready", and waits to be killed.
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
        # The child and the guard hold the pipe's other end: read() returns when both
        # have ended.
        assert parent.stdout.read() == b""


#: A file of tests that start processes and do not end them.
_TESTS = """
import subprocess, time

def start(**options):
    process = subprocess.Popen(["sleep", "600"], **options)
    print("pid", process.pid, flush=True)
    return process

def test_that_fails():
    process = start(start_new_session=True)
    assert process is None

def test_that_forgets():
    start()

def test_that_detaches():
    subprocess.run(["sh", "-c", "sleep 600 & echo pid $!"], start_new_session=True)

def test_that_is_killed():
    start()
    start(start_new_session=True)
    print("killable", flush=True)
    time.sleep(600)
"""


_HOOKS = """
from tests.conftest import _no_process_is_left, pytest_configure, pytest_unconfigure
"""


def run_tests(tmp_path, choice):
    """Run pytest on the file above, in a process whose output is a pipe."""
    (tmp_path / "conftest.py").write_text(_HOOKS)
    (tmp_path / "test_leaving.py").write_text(_TESTS)
    words = ["-q", "-s", "-p", "no:cacheprovider", "-k", choice, "--rootdir"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, str(tmp_path), str(tmp_path)],
        cwd=KIT.parent.parent,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def pids_in(output):
    return [int(pid) for pid in re.findall(r"pid (\d+)", output)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choice", "outcome"),
    [
        ("fails", r"1 failed, .*1 error"),
        ("forgets", r"1 passed, .*1 error"),
        ("detaches", "1 passed"),
    ],
)
def test_a_test_that_ends_leaves_no_process(tmp_path, choice, outcome):
    with run_tests(tmp_path, choice) as run:
        output, _ = run.communicate(timeout=30)
    assert re.search(outcome, output), output
    (pid,) = pids_in(output)
    assert is_zombie(pid)


def test_a_test_run_that_is_killed_leaves_no_process(tmp_path):
    with run_tests(tmp_path, "killed") as run:
        shown = ""
        while "killable" not in shown:
            line = run.stdout.readline()
            assert line, shown
            shown += line
        pids = pids_in(shown)
        run.send_signal(signal.SIGKILL)
        assert len(pids) == 2
        wait_until(lambda: all(is_zombie(pid) for pid in pids))


def test_two_port_blocks_share_no_port_and_are_below_the_ephemeral_range():
    one, other = PortBlock(), PortBlock()
    try:
        assert abs(one.first - other.first) >= BLOCK_PORTS
        assert max(one.first, other.first) + BLOCK_PORTS <= 32_000
    finally:
        one.close()
        other.close()
