"""The completion files agree with the command tree, and the shells can use them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rmqcli.cli.completion.scripts import render_all, write_all
from tests.cli.sample_command import TABLE
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]


def test_the_files_in_the_project_are_up_to_date():
    """If this fails, run: python -m rmqcli.cli.completion.scripts completions"""
    for name, content in render_all().items():
        path = ROOT / "completions" / name
        assert path.read_text(encoding="utf-8") == content, f"{name} is out of date"


def test_they_are_written_where_asked(tmp_path):
    write_all(tmp_path / "new")
    written = {path.name for path in (tmp_path / "new").iterdir()}
    assert written == {"rmq.bash", "_rmq", "rmq.fish"}


def test_pressing_tab_starts_no_python():
    for content in render_all().values():
        code = [line for line in content.splitlines() if not line.startswith("#")]
        assert "python" not in "\n".join(code)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Completion files of the sample commands, and a folder `work` with a data.txt."""
    folder = tmp_path_factory.mktemp("completions")
    for name, content in render_all(TABLE).items():
        (folder / name).write_text(content, encoding="utf-8")
    (folder / "work").mkdir()
    (folder / "work" / "data.txt").touch()
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_read_its_file(files, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    name = "_rmq" if shell == "zsh" else f"rmq.{shell}"
    subprocess.run([shell, "-n", str(files / name)], check=True, timeout=PATIENCE_S)


def complete_in_bash(files, *words):
    """Return the completions that bash offers for the last of `words`."""
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"source {files}/rmq.bash; cd {files}/work; COMP_WORDS=({quoted}); "
        f"COMP_CWORD={len(words) - 1}; _rmq; "
        'if ((${#COMPREPLY[@]})); then printf "%s\\n" "${COMPREPLY[@]}"; fi'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["rmq", "s"], ["sample"]),
        (["rmq", "n"], ["nest"]),
        (["rmq", "nest", ""], ["echo", "-h", "--help"]),
        (["rmq", "sample", "--outp"], ["--output"]),
        (["rmq", "sample", "-o", "js"], ["json", "jsonl"]),
        (["rmq", "sample", "--output", "=", "cs"], ["csv"]),
        (["rmq", "sample", "--output", "="], ["table", "json", "jsonl", "csv", "help"]),
        (["rmq", "sample", "x", "-q", "--color", "n"], ["never"]),
        (["rmq", "sample", "--tls-ca", ""], ["data.txt"]),
        (["rmq", "sample", "--timeout", ""], []),
        (["rmq", "nest", "-h", "echo", "-o", "h"], ["hex"]),
        # bash splits an address at its colon
        (["rmq", "nest", "echo", "-n", "h", ":", "9876", "--out"], ["--output"]),
        (["rmq", "sample", "--", "-"], []),
        (["rmq", "unknown", "-"], []),
    ],
)
def test_bash_offers(files, words, offered):
    assert complete_in_bash(files, *words) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("word", "offered"),
    [
        ("re", ["reading", "resetting", "reset-offset", "retry"]),
        ("exit", ["exit-codes"]),
    ],
)
def test_bash_offers_the_topics_of_help(tmp_path, word, offered):
    write_all(tmp_path)
    (tmp_path / "work").mkdir()
    assert complete_in_bash(tmp_path, "rmq", "help", word) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_offers_the_names_of_codes_to_explain(tmp_path):
    write_all(tmp_path)
    (tmp_path / "work").mkdir()
    offered = complete_in_bash(tmp_path, "rmq", "explain", "CONTROLLER_B")
    assert offered == [
        "CONTROLLER_BROKER_ID_INVALID",
        "CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS",
        "CONTROLLER_BROKER_METADATA_NOT_EXIST",
        "CONTROLLER_BROKER_NEED_TO_BE_REGISTERED",
        "CONTROLLER_BROKER_NOT_ALIVE",
    ]
