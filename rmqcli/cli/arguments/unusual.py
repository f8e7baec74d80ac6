"""Runs `rmq` with arguments that are not ordinary: help, the version, and mistakes.

What remains is parsed by Typer (`rmqcli.cli.arguments.typer_command`).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from rmqcli.cli.arguments.arrange import Piece, arrange, pieces
from rmqcli.cli.arguments.habits import hint_for_command
from rmqcli.cli.arguments.table import COMMANDS, COMMON
from rmqcli.cli.commands import CommandEntry, entries_below
from rmqcli.cli.help import command_help, help_of, show, unknown_command
from rmqcli.cli.ui.output import write_field_help
from rmqcli.errors import ExitCode, UsageError

_HELP = ("-h", "--help")


def run_unusual(words: Sequence[str], table: Sequence[CommandEntry]) -> object:
    """Run `rmq` with arranged arguments and return the result of the command.

    Raises UsageError for arguments that cannot be parsed.
    """
    entry, rest = _find(words, table)
    if entry is None:
        return _without_command(words, table)
    given = list(pieces(entry.path, rest))
    if any(each.flag in _HELP for each in given):
        show(command_help(entry))
        return None
    command = entry.load()
    asked = {_output(each) for each in given}
    if command.fields and "help" in asked:
        write_field_help(command.fields)
        return None
    if command.schema is not None and "schema" in asked:
        show(command.schema())
        return None
    from rmqcli.cli.arguments.typer_command import run_app

    return run_app(entry, rest)


def _output(piece: Piece) -> str | None:
    """Return the output format that an option asks for."""
    if piece.flag in ("-o", "--output"):
        return piece.value
    return piece.flag[2:] if piece.flag.startswith("-o") else None


def _find(
    words: Sequence[str], table: Sequence[CommandEntry]
) -> tuple[CommandEntry | None, list[str]]:
    for length in (3, 2, 1):
        path = " ".join(words[:length])
        for entry in table:
            if entry.path == path:
                return entry, list(words[length:])
    return None, list(words)


def _without_command(words: Sequence[str], table: Sequence[CommandEntry]) -> object:
    """Show help or the version, or say which command is missing or unknown."""
    if words[-1:] == ["help"]:  # `rmq topic help`
        words = [*words[:-1], "--help"]
    asks_help = any(word in _HELP for word in words)
    if asks_help and words[0].startswith("-"):  # `rmq --help lag`
        words = arrange(
            [each for each in words if each not in _HELP],
            [each.path for each in table],
        )
        entry, _ = _find(words, table)
        if entry is not None:
            show(command_help(entry))
            return None
    names = [word for word in words if not word.startswith("-")]
    if words[:1] == ["--version"]:
        from rmqcli import __version__

        show(f"rmq {__version__}\n")
        return None
    if words[:1] == ["broker"] and not asks_help:
        _check_serve(words[1:])
    if words and words[0].startswith("-") and not asks_help:
        raise _unknown_option(words[0])
    if not names or entries_below(f"{' '.join(names)} ", table=table):
        text = help_of(" ".join(names), table)
        if asks_help:
            show(text)
            return None
        sys.stderr.write(text)
        return ExitCode.USAGE
    raise unknown_command(" ".join(names), table)


def _unknown_option(word: str) -> UsageError:
    from rmqcli.cli.ui.errors import unknown_name

    hint = hint_for_command(word)
    if hint:
        return UsageError(f"option {word} does not exist", hint=hint)
    known = ["--version", "--help", "--output", *COMMON] if word[:2] == "--" else []
    return unknown_name("option", word, known, help_command="rmq")


def _check_serve(words: Sequence[str]) -> None:
    """Raise UsageError for `rmq broker` with options of `rmq serve`."""
    own = COMMANDS["serve"][1].keys() - COMMON.keys()
    if any(word.partition("=")[0] in own for word in words):
        raise UsageError(
            "rmq broker runs no cluster: it lists and shows brokers",
            hint=f"write: {shlex.join(['rmq', 'serve', *words])}",
        )
