"""Questions are wrapped between words on a terminal."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from rmqcli.cli.ui.prompt import ask
from tests.kit.terminal import Terminal


@pytest.fixture
def typed(monkeypatch):
    """What the user types on the terminal that is stdin."""

    class Keyboard(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stdin", Keyboard("y\n"))


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
