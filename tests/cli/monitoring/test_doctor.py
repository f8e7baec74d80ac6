"""`rmq doctor`: the report, JSON, exit codes, and names of checks."""

from __future__ import annotations

import json
import os
import pty
import termios
from contextlib import redirect_stdout

import pytest

from rmqcli.cli.main import run
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.testing import ManualClock
from tests.admin.doctor.planting import plant_runtime


@pytest.fixture
def rmq(rmq_cluster, capsys):
    """`rmq(...)` runs a command; returns exit code, stdout and stderr."""

    def call(*arguments):
        code = run([*arguments, "-n", rmq_cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_exit_code_is_that_of_the_worst_finding(rmq, rmq_cluster):
    assert rmq("doctor", "--skip", "access-control")[0] == 0
    assert rmq("doctor")[0] == 1
    plant_runtime(rmq_cluster, commitLogDiskRatio="0.92")
    assert rmq("doctor")[0] == 2


def test_what_could_not_be_checked_counts_as_a_warning(rmq, rmq_cluster):
    plant_runtime(rmq_cluster, commitLogDiskRatio="-1", consumeQueueDiskRatio="-1")
    code, out, err = rmq("doctor", "--only", "disk")
    assert (code, err) == (1, "")
    assert out == (
        "unknown  broker-a\n"
        "         it does not report its disk\n"
        "         not checked: disk\n"
        "1 check: 1 unknown\n"
    )


def test_old_dead_letters_of_other_brokers_are_not_called_new(
    rmq_cluster_factory, capsys
):
    """A broker of 4.x finds the nearest letter to an hour ago, however old it is."""
    cluster = rmq_cluster_factory(
        brokers=2, like="4.6.0", clock=ManualClock(now_ms=SYSTEM_CLOCK.epoch_ms())
    )
    cluster.create_topic("%DLQ%billing", queues=1)
    cluster.send("%DLQ%billing", ["a", "b", "c"], queue_id=0, broker="broker-a")
    cluster.advance(2 * 3_600_000)
    cluster.send("%DLQ%billing", ["new"], queue_id=0, broker="broker-b")
    capsys.readouterr()
    assert run(["doctor", "--only", "dead-letters", "-n", cluster.namesrv]) == 1
    assert capsys.readouterr().out == (
        "warning  billing (dead-letters)\n"
        "         1 dead letter in the last hour, 4 in all\n"
        "         the group gives messages up\n"
        "         try: rmq dlq show billing\n"
        "1 check: 1 warning\n"
    )


def test_the_report_has_the_worst_first_with_what_to_do(rmq, rmq_cluster):
    plant_runtime(rmq_cluster, commitLogDiskRatio="0.83")
    code, out, _ = rmq("doctor")
    assert code == 2
    assert out == (
        "problem  broker-a (disk)\n"
        "         its disk is 83 % full\n"
        "         at 85 % it deletes the oldest messages, consumed or not\n"
        "         try: rmq broker show broker-a\n"
        "warning  broker-a (access-control)\n"
        "         it asks for no account: authenticationEnabled is not true\n"
        "         any client that reaches its port may read, change and delete\n"
        "         try: rmq broker show broker-a --settings\n"
        "41 checks: 39 ok; 1 warning, 1 problem\n"
    )


def test_the_last_line_counts_the_warnings_that_are_shown(rmq_cluster_factory, capsys):
    """Two brokers with the same warning were 1 warning: that of one check."""
    cluster = rmq_cluster_factory(brokers=2)
    assert run(["doctor", "-n", cluster.namesrv]) == 1
    out = capsys.readouterr().out
    assert out.count("warning  broker-") == 2
    assert out.endswith("\n41 checks: 40 ok; 2 warnings\n")


def test_json_has_every_check_with_its_findings(rmq, rmq_cluster):
    plant_runtime(rmq_cluster, commitLogDiskRatio="0.92")
    code, out, _ = rmq("doctor", "--only", "disk", "--only", "dispatch", "-o", "json")
    found = json.loads(out)
    assert code == 2
    assert sorted(found) == ["at", "brokers", "checks", "status"]
    assert (found["status"], found["brokers"]) == ("problem", ["broker-a"])
    assert found["checks"] == [
        {
            "name": "dispatch",
            "title": "stored messages can be consumed at once",
            "status": "ok",
            "findings": [],
        },
        {
            "name": "disk",
            "title": "disks have room",
            "status": "problem",
            "findings": [
                {
                    "status": "problem",
                    "subject": "broker-a",
                    "evidence": "its disk is 92 % full",
                    "meaning": "at 90 % it refuses messages; from 85 % on it deletes"
                    " the oldest messages, consumed or not",
                    "command": "rmq broker show broker-a",
                }
            ],
        },
    ]


def test_json_lines_have_a_row_for_each_finding_and_each_healthy_check(rmq):
    _, out, _ = rmq("doctor", "-o", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 41
    keys = ["check", "command", "evidence", "meaning", "status", "subject"]
    assert {tuple(sorted(row)) for row in rows} == {tuple(keys)}
    assert [r["check"] for r in rows if r["status"] != "ok"] == ["access-control"]


def test_the_list_of_checks_asks_no_server(capsys):
    assert run(["doctor", "--list", "-o", "json", "-n", "127.0.0.1:1"]) == 0
    checks = json.loads(capsys.readouterr().out)
    assert len(checks) == 41
    assert checks[0] == {
        "name": "namesrv-answers",
        "title": "every name server answers",
    }


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--only", "disks"], "there is no check 'disks'"),
        (["--skip", "nothing"], "there is no check 'nothing'"),
        (["--only", "disk", "--skip", "disk"], "no check is left"),
    ],
)
def test_a_name_that_no_check_has_is_a_usage_error(capsys, arguments, error):
    assert run(["doctor", *arguments, "-n", "127.0.0.1:1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {error}")


def test_a_name_server_that_is_down_is_an_error(capsys):
    assert run(["doctor", "-n", "127.0.0.1:1"]) == 5
    assert capsys.readouterr().out == ""


def test_names_from_the_cluster_do_not_reach_the_terminal_unescaped(rmq, rmq_cluster):
    plant_runtime(rmq_cluster, brokerVersionDesc="V\x1b[2J")
    _, out, _ = rmq("doctor")
    assert "\x1b" not in out


def test_the_report_is_as_wide_as_the_terminal(rmq_cluster, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 40))
    with os.fdopen(theirs, "w") as terminal, redirect_stdout(terminal):
        assert run(["doctor", "-n", rmq_cluster.namesrv, "--color", "never"]) in (0, 1)
    lines = b"".join(iter(lambda: _read(ours), b"")).decode().splitlines()
    os.close(ours)
    assert [line for line in lines if line.startswith("         ")][:2] == [
        "         it asks for no account:",
        "         authenticationEnabled is not",
    ]


def _read(terminal):
    """What a terminal shows next; nothing after its end."""
    try:
        return os.read(terminal, 65_536)
    except OSError:
        return b""
