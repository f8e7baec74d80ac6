"""Questions are wrapped between words on a terminal."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from rmqcli.cli.ui.prompt import ask, is_name, this_command_with
from rmqcli.errors import RefusedError
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
