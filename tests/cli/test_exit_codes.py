"""Every documented exit code, and signals, pipes and terminals.

Real processes show what a process adds to a command: its status, signals and files.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.cli.main import run
from tests.cli.sample_command import TABLE
from tests.kit.rows import each_row
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
PROCESS = [sys.executable, "-m", "tests.cli.sample_process"]


def start(*arguments, **settings):
    settings.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(
        [*PROCESS, *arguments],
        cwd=ROOT,
        stdout=settings.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def finish(*arguments, **settings):
    with start(*arguments, **settings) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@each_row(
    ("arguments", "code"),
    [
        (["sample", "failed"], 1),
        (["sample", "broker"], 1),
        (["sample", "bug"], 1),
        (["sample", "--nonsense"], 2),
        ([], 2),
        (["sample", "not-found"], 3),
        (["sample", "denied"], 4),
        (["sample", "unreachable"], 5),
        (["sample", "deadline"], 5),
        (["sample", "partial"], 6),
        (["sample", "refused"], 7),
        (["sample", "exit"], 8),
        (["sample", "interrupt"], 130),
    ],
)
def test_exit_code(arguments, code):
    assert run(arguments, table=TABLE) == code


@pytest.mark.slow
@pytest.mark.parametrize(
    ("do", "code"),
    [("rows", 0), ("exit", 8), ("interrupt", 130)],
)
def test_a_process_ends_with_the_exit_code(do, code):
    assert finish("sample", do)[0] == code


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_runs_the_clean_up_and_ends_with_130(signum):
    with start("sample", "wait", stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signum)
        process.send_signal(signum)  # timeout(1) sends it twice
        out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, "cleaned up\n", "interrupted\n")


def test_steps_that_belong_together_are_not_torn_apart():
    with start("sample", "together", stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate("go on\n", timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (130, "whole\n", "interrupted\n")


def test_a_signal_that_is_ignored_stays_ignored():
    """`nohup` and background jobs of scripts start processes with ignored signals."""

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with start("sample", "wait", stdin=subprocess.PIPE, preexec_fn=ignore) as process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate("", timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (0, "cleaned up\n", "")


def test_a_closed_pipe_ends_quietly():
    with start("sample", "flood") as process:
        assert process.stdout.read(10) == "y" * 10
        process.stdout.close()
        assert process.wait(timeout=PATIENCE_S) == 0
        assert process.stderr.read() == ""


@pytest.mark.parametrize("do", ["rows", "flood"])
def test_a_full_disk_is_an_error(do):
    with open("/dev/full", "w") as full:
        code, _, err = finish("sample", do, stdout=full)
    assert code == 1
    assert err == "error: cannot write the output: no space left on device\n"


def test_a_closed_stdout_is_no_accident():
    code, _, err = finish("sample", "rows", preexec_fn=lambda: os.close(1))
    assert (code, err) == (0, "")


def test_a_closed_stderr_does_not_change_the_exit_code():
    code, out, _ = finish("sample", "failed", preexec_fn=lambda: os.close(2))
    assert (code, out) == (1, "")


@pytest.mark.parametrize("do", ["ask", "ask-name"])
def test_without_a_terminal_nothing_is_confirmed(do, monkeypatch, capfd):
    arguments = ["sample", do, "two words"]
    monkeypatch.setattr("sys.argv", ["rmq", *arguments])  # the hint repeats them
    with open(os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert run(arguments, table=TABLE) == 7
        out, err = capfd.readouterr()
        assert out == ""
        assert err == (
            "error: not confirmed: nothing was changed\n"
            f"hint: run: rmq sample {do} 'two words' --yes\n"
        )
        assert run(["sample", do, "--yes"], table=TABLE) == 0
    assert capfd.readouterr() == ("done\n", "")


def test_a_process_without_a_terminal_does_not_ask():
    assert finish("sample", "ask") == (
        7,
        "",
        "error: not confirmed: nothing was changed\nhint: run: rmq sample ask --yes\n",
    )


def on_a_terminal(answer, *arguments):
    """Run with a terminal as stdin and type `answer`; return code, stdout, stderr."""
    ours, theirs = pty.openpty()
    try:
        with start(*arguments, stdin=theirs) as process:
            os.write(ours, answer)
            out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, out, err


@pytest.mark.parametrize(
    ("do", "answer", "code"),
    [
        ("ask", b"y\n", 0),
        ("ask", b"YES\n", 0),
        ("ask", b"\n", 7),
        ("ask", b"no\n", 7),
        ("ask", b"\x04", 7),  # end of input
        ("ask-name", b"orders\n", 0),
        ("ask-name", b"order\n", 7),
        ("ask-name", b"y\n", 7),
        ("ask-name", b"yes, reset orders\n", 7),  # it contains the name
        ("ask-name", b"orders-old\n", 7),
        ("ask-name", b"my orders\n", 7),
        ("ask-name", b"ORDERS\n", 7),
        ("ask-name", b" orders\n", 7),
        ("ask-name", b"\n", 7),
    ],
)
def test_on_a_terminal_a_person_is_asked(do, answer, code, monkeypatch, capfd):
    ours, theirs = pty.openpty()
    with open(ours, "wb", buffering=0) as keyboard, open(theirs) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        keyboard.write(answer)
        returned = run(["sample", do], table=TABLE)
    out, err = capfd.readouterr()
    assert (returned, out) == (code, "done\n" if code == 0 else "")
    assert err.startswith("Really?")


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\x04", 7)])
def test_a_process_asks_on_its_terminal(answer, code):
    returned, out, err = on_a_terminal(answer, "sample", "ask")
    assert (returned, out) == (code, "done\n" if code == 0 else "")
    assert err.startswith("Really?")


def test_no_input_never_asks():
    code, _, err = on_a_terminal(b"y\n", "sample", "ask", "--no-input")
    assert code == 7
    assert "Really?" not in err
    assert "--no-input" not in err


@pytest.mark.parametrize(
    ("environ", "flags", "is_colored"),
    [
        ({"TERM": "xterm"}, [], True),
        ({"TERM": "xterm"}, ["--color", "never"], False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, [], False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, ["--color", "always"], True),
        ({"TERM": "dumb"}, [], False),
    ],
)
def test_colour_on_a_terminal(environ, flags, is_colored, monkeypatch):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as screen, open(theirs, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        code = run(["sample", "rows", *flags], table=TABLE)
        text = screen.read(65536)
    assert code == 0
    assert (b"\x1b[32mOK" in text) == is_colored
    assert b"\x1b]" not in text


def test_a_process_shows_colour_on_its_terminal():
    inherited = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    ours, theirs = pty.openpty()
    try:
        code, _, _ = finish(
            "sample", "rows", stdout=theirs, env=inherited | {"TERM": "xterm"}
        )
        text = os.read(ours, 65536)
    finally:
        os.close(ours)
        os.close(theirs)
    assert code == 0
    assert b"\x1b[32mOK" in text


def test_a_pipe_gets_no_colour():
    assert "\x1b" not in finish("sample", "rows")[1]


@pytest.mark.parametrize(
    "arguments", [["--help"], ["sample", "--help"], ["sample", "rows"]], ids=" ".join
)
def test_a_terminal_of_one_column_is_no_accident(arguments, monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "1")
    monkeypatch.setenv("LINES", "1")
    assert run(arguments, table=TABLE) == 0
    out, err = capfd.readouterr()
    assert (out != "", err) == (True, "")


def test_an_argument_that_is_not_utf8_is_shown_not_fatal():
    code, _, err = finish(b"sample\xff")
    assert code == 2
    assert "command sample\\udcff does not exist" in err


def test_output_is_utf8_in_any_locale():
    environ = os.environ | {
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
    }
    code, _, err = finish("sample", "rows", "-o", "jsonl", env=environ)
    assert (code, err) == (0, "")
