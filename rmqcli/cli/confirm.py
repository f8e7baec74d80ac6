"""Confirmation by the user before something is changed or deleted.

`--yes` confirms in advance. If the user cannot be asked, because stdin is not a
terminal or because of `--no-input`, nothing is done, and the error's hint is the exact
command to run (exit code 7).
"""

from __future__ import annotations

import sys

from rmqcli.cli.options import Common
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import is_terminal
from rmqcli.errors import RefusedError


def confirm(common: Common, question: str) -> None:
    """Ask `question` with y/N. Raises RefusedError unless the answer is yes."""
    if common.assume_yes:
        return
    answer = _ask(common, f"{question} [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise RefusedError("not confirmed: nothing was changed")


def confirm_by_name(common: Common, question: str, *, name: str) -> None:
    """Ask the user to type `name`, to confirm a serious change.

    Raises RefusedError unless exactly `name` is typed.
    """
    if common.assume_yes:
        return
    answer = _ask(common, f"{question}\nType {safe(name)} to confirm: ")
    # Only the end of the line is removed: the name must match exactly.
    if answer.removesuffix("\n").removesuffix("\r") != name:
        raise RefusedError(
            f"not confirmed: {name!r} was not typed, nothing was changed"
        )


def _ask(common: Common, prompt: str) -> str:
    if common.no_input or not is_terminal(sys.stdin):
        raise RefusedError(
            "not confirmed: nothing was changed", hint=f"run: {_command_with_yes()}"
        )
    sys.stderr.write(safe(prompt, keep_newlines=True))
    sys.stderr.flush()
    return sys.stdin.readline()


def _command_with_yes() -> str:
    import shlex  # only when a command is refused

    arguments = [a for a in sys.argv[1:] if a != "--no-input"]
    split_at = arguments.index("--") if "--" in arguments else len(arguments)
    arguments.insert(split_at, "--yes")
    return shlex.join(["rmq", *arguments])
