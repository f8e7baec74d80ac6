"""Asks the user on a terminal, or says which command needs no question."""

from __future__ import annotations

import select
import shlex
import sys
from collections.abc import Sequence
from typing import Final

from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_terminal, wrapped
from rmqcli.errors import RefusedError
from rmqcli.hint import with_options

#: How often a question looks for signals: one that comes just before a read begins
#: does not end the read.
_LOOK_S: Final = 0.25


def ask(
    prompt: str,
    *,
    no_input: bool,
    hint: str,
    refused: str = "not confirmed: nothing was changed",
) -> str:
    """Write `prompt`, which ends with a blank, to stderr; return the line typed.

    Raises RefusedError, with the text `refused` and with `hint`, if the user cannot be
    asked, because stdin is not a terminal or because of `no_input`.
    """
    if no_input or not is_terminal(sys.stdin):
        raise RefusedError(refused, hint=hint)
    lines = safe(prompt, keep_newlines=True).removesuffix(" ").split("\n")
    sys.stderr.write("\n".join(wrapped(line) for line in lines) + " ")
    sys.stderr.flush()
    return read_line()


def read_line() -> str:
    """Return the line that the user types on the terminal that is stdin.

    It is empty at the end of the input. A signal such as Ctrl-C ends the wait.
    """
    while not select.select([sys.stdin], [], [], _LOOK_S)[0]:
        pass
    return sys.stdin.readline()


def is_name(answer: str, name: str) -> bool:
    """Whether the typed line is exactly `name`, apart from the end of the line."""
    return answer.removesuffix("\n").removesuffix("\r") == name


def this_command_with(words: Sequence[str]) -> str:
    """Return the command that is running, with more options, as a user types it."""
    arguments = [a for a in sys.argv[1:] if a != "--no-input"]
    return shlex.join(["rmq", *with_options(arguments, words)])
