"""A time without a zone is in the machine's time zone, which the command shows."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rmqcli.cli.main import run
from tests.kit.rows import each_row
from tests.transport.peer import free_port


@pytest.fixture
def rmq(capsys):
    """Run `rmq` with a time zone as the machine's; return what it writes to stderr."""

    def rmq(*arguments, zone):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", zone)
            time.tzset()
            run([*arguments, "-n", f"127.0.0.1:{free_port()}"])
        return capsys.readouterr().err

    yield rmq
    time.tzset()


COMMANDS = [
    (["tail", "T", "--from"], "--from"),
    (["tail", "T", "--to"], "--to"),
    (["reset-offset", "G", "T", "--to"], "--to"),
    (["consume", "T", "-g", "G", "--for", "1s", "--from"], "--from"),
]


@each_row(("arguments", "option"), COMMANDS, ids=lambda a: str(a))
@each_row(
    ("zone", "text", "shown"),
    [
        ("UTC", "@2026-01-02T03:04:05", "2026-01-02T03:04:05Z (local)"),
        ("Asia/Shanghai", "@2026-01-02", "2026-01-02T00:00:00+08:00 (local)"),
        (
            "Pacific/Marquesas",
            "@2026-01-02 03:04",
            "2026-01-02T03:04:00-09:30 (local)",
        ),
        (
            "Europe/Berlin",
            "@2025-10-26T02:30",
            (
                "2025-10-26T02:30:00+02:00 (local, the earlier of two;"
                " the later is 2025-10-26T02:30:00+01:00)"
            ),
        ),
        ("Asia/Shanghai", "@1767322800000", "2026-01-02T03:00:00Z"),
    ],
)
def test_it_is_echoed_with_its_zone(rmq, arguments, option, zone, text, shown):
    err = rmq(*arguments, text, zone=zone)
    assert f"{option}: {shown}\n" in err, err


def test_export_echoes_both_ends(rmq, tmp_path):
    ends = ["--from", "@2026-01-02", "--to", "@2026-01-03"]
    folder = ["--to-parquet", str(tmp_path)]
    err = rmq("export", "T", *folder, *ends, zone="Asia/Tokyo")
    assert "--from: 2026-01-02T00:00:00+09:00 (local)\n" in err
    assert "--to: 2026-01-03T00:00:00+09:00 (local)\n" in err


def test_a_process_takes_the_time_zone_of_its_environment():
    command = ["tail", "T", "--from", "@2026-01-02", "-n", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(
        [sys.executable, "-m", "rmqcli", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"TZ": "Asia/Tokyo"},
    )
    assert "--from: 2026-01-02T00:00:00+09:00 (local)\n" in done.stderr


def test_quiet_says_nothing(rmq):
    err = rmq("tail", "T", "-q", "--from", "@2026-01-02", zone="UTC")
    assert "local" not in err


@pytest.mark.parametrize(
    "command",
    [
        ["tail", "T", "--from"],
        ["tail", "T", "--to"],
        ["consume", "T", "-g", "g", "--from"],
        ["reset-offset", "g", "T", "--to"],
        ["export", "T", "--to-parquet", "d", "--from"],
        ["sql", "select 1", "--from"],
    ],
    ids=lambda command: f"{command[0]} {command[-1]}",
)
def test_a_time_without_its_at_sign_is_named_as_what_it_is(capsys, command):
    assert run([*command, "2026-11-25"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"error: {command[-1]}: '2026-11-25': a time begins with '@'" in err
    assert "hint: write @2026-11-25\n" in err
