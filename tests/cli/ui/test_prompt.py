"""Questions are wrapped between words on a terminal, and Ctrl-C ends them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr

import pytest

from rmqcli.cli.ui.prompt import ask, is_name, this_command_with
from rmqcli.errors import RefusedError
from tests.kit.terminal import Terminal
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def typed(monkeypatch):
    """What the user types on the terminal that is stdin."""
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    with open(ours, "w"), open(theirs) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        yield


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ("80", "profile p (namesrv a:1) is protected.\nReally \\x1b[2J? [y/N] "),
        (
            "20",
            "profile p (namesrv\n  a:1) is protected.\nReally \\x1b[2J?\n  [y/N] ",
        ),
    ],
)
@pytest.mark.usefixtures("typed")
def test_a_question_breaks_between_words(monkeypatch, columns, shown):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", columns)
    terminal = Terminal()
    with redirect_stderr(terminal):
        prompt = "profile p (namesrv a:1) is protected.\nReally \x1b[2J? [y/N] "
        assert ask(prompt, no_input=False, hint="") == "y\n"
    assert terminal.getvalue() == shown


#: A signal that another thread takes leaves the read of the main thread alone, as one
#: does that comes just before the read.
INTERRUPTED = """
import signal, threading
from rmqcli.cli.ui import interrupts
from rmqcli.cli.ui.prompt import ask
threading.Thread(target=threading.Event().wait, daemon=True).start()
interrupts.install()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
try:
    ask("Really? ", no_input=False, hint="")
except interrupts.Interrupted:
    print("interrupted")
"""


def test_a_signal_that_does_not_end_the_read_ends_the_question():
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        assert process.stderr.read(len("Really? ")) == b"Really? "
        process.terminate()
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        os.close(ours)
        os.close(theirs)
    assert (out, err) == (b"interrupted\n", b"")


@pytest.mark.usefixtures("typed")
def test_nothing_is_asked_without_input():
    with pytest.raises(RefusedError, match="not confirmed: nothing was ch") as refusal:
        ask("Really? ", no_input=True, hint="run: this")
    assert refusal.value.hint == "run: this"


@pytest.mark.parametrize(
    ("answer", "is_it"),
    [
        ("orders\n", True),
        ("orders\r\n", True),
        ("orders", True),
        ("orders \n", False),
        ("Orders\n", False),
        ("orders\n\n", False),
        ("", False),
    ],
)
def test_a_name_is_typed_exactly(answer, is_it):
    assert is_name(answer, "orders") is is_it


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["topic", "delete", "a b"], "rmq topic delete 'a b' --profile p --yes"),
        (["topic", "--no-input", "x"], "rmq topic x --profile p --yes"),
        (["send", "T", "--", "-x", "--"], "rmq send T --profile p --yes -- -x --"),
    ],
)
def test_the_command_to_run_has_its_new_options_before_the_texts(
    monkeypatch, arguments, command
):
    monkeypatch.setattr("sys.argv", ["rmq", *arguments])
    assert this_command_with(["--profile", "p", "--yes"]) == command
