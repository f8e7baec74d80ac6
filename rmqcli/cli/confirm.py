"""Confirmation by the user before something is changed or deleted.

`--yes` confirms in advance. If the user cannot be asked, because stdin is not a
terminal or because of `--no-input`, nothing is done, and the error's hint is the exact
command to run (exit code 7).
"""

from __future__ import annotations

from rmqcli.cli.options import Common
from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.prompt import ask, is_name, this_command_with
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
    if not is_name(answer, name):
        raise RefusedError(
            f"not confirmed: {name!r} was not typed, nothing was changed"
        )


def _ask(common: Common, prompt: str) -> str:
    # Another shell, or another folder, may have another profile.
    profile = [] if "profile" in common.typed else common.profile_words
    if common.profile is not None:
        prompt = f"{common.profile.title} ({common.profile.servers}): {prompt}"
    hint = f"run: {this_command_with([*profile, '--yes'])}"
    return ask(prompt, no_input=common.no_input, hint=hint)
