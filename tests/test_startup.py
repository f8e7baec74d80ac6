"""What must not be loaded when `rmq` starts: a budget of 150 ms has no room for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import __version__
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.commands import COMMANDS
from tests.kit.waiting import PATIENCE_S

FORBIDDEN = {
    "asyncio",
    "fastavro",
    "grpc",
    "numpy",
    "prometheus_client",
    "pandas",
    "py4j",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "textual",
    "lz4",
    "backports.zstd",
    "multiprocessing",
    "concurrent.futures",
    "ssl",
    "tomllib",
    "sortedcontainers",
}
#: The arguments with which each command shows its help.
HELP_OF_EVERY_COMMAND = [[*entry.path.split(), "--help"] for entry in COMMANDS]

_PROBE = """
import json, sys
from rmqcli.cli.main import run
code = run(sys.argv[1:])
sys.stdout.flush()
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def modules_after(arguments):
    """Run `rmq` in a fresh process; return its exit code and the loaded modules."""
    process = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    code, modules = json.loads(process.stderr.splitlines()[-1])
    return code, set(modules)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 2),
        (["nonsense"], 2),
        (["--nonsense"], 2),
        (["topic"], 2),
    ],
)
def test_nothing_heavy_and_no_command_is_loaded(arguments, code):
    returned, modules = modules_after(arguments)
    assert returned == code
    assert not modules & FORBIDDEN
    commands = {entry.module for entry in COMMANDS} - {"rmqcli.cli.help"}
    assert not modules & commands
    assert "rmqcli.api" not in modules
    assert "rmqcli.wire" not in modules


@pytest.mark.slow
@pytest.mark.parametrize("arguments", HELP_OF_EVERY_COMMAND, ids=" ".join)
def test_a_command_s_help_loads_nothing_heavy(arguments):
    returned, modules = modules_after(arguments)
    assert returned == 0
    assert not modules & FORBIDDEN


def test_a_usage_error_of_a_command_loads_nothing_heavy():
    returned, modules = modules_after(["lag", "--nonsense"])
    assert returned == 2
    assert not modules & FORBIDDEN


def test_sending_to_brokers_loads_nothing_of_the_other_protocol():
    returned, modules = modules_after(["send", "orders", "x", "-n", "127.0.0.1:1"])
    assert returned == 5
    # Each message that an Accumulator gathers is a Future; that import takes 1.3 ms.
    assert not modules & FORBIDDEN - {"concurrent.futures"}
    assert not any(each.startswith("rmqcli.proxy") for each in modules)


def test_the_version_is_shown_without_the_command_line():
    code = (
        "import sys; sys.argv = ['rmq', '--version']\n"
        "from rmqcli.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as e: code = e.code\n"
        "print(code, *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    returned, *modules = done.stderr.split()
    assert (returned, done.stdout) == ("0", f"rmq {__version__}\n")
    assert not {"typer", "rmqcli.cli", "signal", "json"} & set(modules)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_version_that_cannot_be_written_is_reported(unbuffered):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rmqcli", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE_S,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == ("error: cannot write the output: no space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["lag", "G"],
        ["lag"],
        ["topics"],
        ["groups"],
        ["brokers"],
        ["reset-offset", "G", "T", "--to", "latest"],
        ["tail", "T", "--from", "earliest", "--to", "latest"],
    ],
    ids=" ".join,
)
def test_in_a_pipe_a_command_loads_nothing_heavy(cluster, arguments):
    returned, modules = modules_after([*arguments, "-n", cluster.namesrv])
    assert returned == 0
    assert not modules & FORBIDDEN
    assert "typer" not in modules  # its arguments are ordinary


def test_showing_a_message_loads_nothing_of_other_commands(cluster):
    words = ["message", "show", "T@broker-a:0:0", "-n", cluster.namesrv]
    returned, modules = modules_after(words)
    assert returned == 0
    others = {
        "rmqcli.admin.reset.backup",  # there are no backups
        "rmqcli.admin.reset.target",
        "rmqcli.api.calls.producer",
        "rmqcli.cli.message.find",
        "rmqcli.cli.tail.command",
    }
    assert modules & others == set()


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=1) as cluster:
        cluster.create_topic("T")
        cluster.create_group("G")
        cluster.send("T", ["x"])
        yield cluster


def test_lag_loads_nothing_heavy_when_it_runs():
    """No server listens on port 1, so it ends after it has loaded what it needs."""
    returned, modules = modules_after(
        ["lag", "g", "-n", "127.0.0.1:1", "--timeout", "500ms"]
    )
    assert returned == 5
    assert not modules & FORBIDDEN
