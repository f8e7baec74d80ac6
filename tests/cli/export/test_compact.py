"""`rmq export-compact`: its output and its refusals."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stderr
from dataclasses import fields

import pytest

from rmqcli.cli.export.compact import FIELDS
from rmqcli.cli.main import run
from rmqcli.spark.export.compact import CompactSummary
from tests.kit.terminal import Terminal
from tests.spark.export.inline import InlineRunner, expected, export_of, offsets_in
from tests.spark.export.sources import MadeCluster


@pytest.fixture
def rmq(capfd):
    """Run `rmq export-compact` in this process; returns exit code, stdout, stderr."""

    def run_it(*arguments):
        code = run(["export-compact", *map(str, arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


def test_an_export_is_compacted_and_the_numbers_are_printed(rmq, tmp_path):
    export_of(tmp_path, MadeCluster({0: (0, 250)})).run()
    export_of(tmp_path, MadeCluster({0: (0, 300)}), since_last=True).run()
    code, out, _ = rmq(tmp_path, "-o", "json")
    summary = json.loads(out)
    assert code == 0
    assert summary["topic"] == "orders"
    assert (summary["files_before"], summary["files"]) == (4, 2)
    assert (summary["runs_before"], summary["runs"]) == (2, 2)
    assert offsets_in(tmp_path) == expected({0: (0, 300)})
    code, out, _ = rmq(f"file://{tmp_path}", "--rows-per-file", "300", "-o", "jsonl")
    assert (code, json.loads(out)["files_before"]) == (0, 2)
    code, out, _ = rmq(tmp_path, "--bytes-per-file", "1KiB")
    assert (code, len(out.splitlines())) == (0, 2)


def test_a_terminal_shows_the_progress(rmq, tmp_path, monkeypatch):
    export_of(tmp_path, MadeCluster({0: (0, 250)})).run()
    export_of(tmp_path, MadeCluster({0: (0, 300)}), since_last=True).run()
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with redirect_stderr(terminal):
        rmq(tmp_path)
    shown = terminal.getvalue()
    assert "rows merged" in shown
    assert re.search(r"of 2\d\d\b", shown)
    assert shown.endswith("\r\x1b[K")


def test_fields_of_help_are_the_keys_of_the_summary():
    assert [column.name for column in FIELDS] == [
        field.name for field in fields(CompactSummary)
    ]


def test_a_folder_without_an_export_exits_2_and_stays_unchanged(rmq, tmp_path):
    code, _, err = rmq(tmp_path)
    assert code == 2
    assert "holds no finished export" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_on_this_machine_exits_2(rmq):
    code, out, err = rmq("s3://b/p")
    assert (code, out) == (2, "")
    assert err == (
        "error: 's3://b/p': rmq cannot compact an export in s3 URLs, only in folders on"
        " this machine\n"
        "        ^^^\n"
        "hint: copy it to a folder, compact it there, and copy it back; for a folder"
        " with this name write ./s3://b/p\n"
    )


def test_an_unfinished_run_exits_7(rmq, tmp_path):
    export_of(tmp_path, MadeCluster({0: (0, 100)})).run()
    more = MadeCluster({0: (0, 300)})
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, more, since_last=True, runner=InlineRunner(1)).run()
    code, _, err = rmq(tmp_path)
    assert code == 7
    assert "hint: finish that run first: export again with --resume" in err
