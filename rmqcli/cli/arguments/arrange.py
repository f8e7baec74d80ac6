"""Brings arguments into the order and the spelling that the parsers expect.

The command comes first: `rmq -n HOST lag` becomes `rmq lag -n HOST`. Spellings of other
tools that stand for one of ours are replaced (`rmqcli.cli.arguments.habits`). Words
that are wrong stay as they are, and a parser reports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rmqcli.cli.arguments import habits
from rmqcli.cli.arguments.table import COMMANDS, COMMON
from rmqcli.errors import UsageError

#: The common options that are not in COMMON, because their values differ by command.
_OUTPUT = ("-o", "--output")


class Piece(NamedTuple):
    """An option with its value, or a word that is none."""

    #: empty for an argument
    flag: str
    #: the value of the option, or the argument; None for a switch or a missing value
    value: str | None
    #: as it was typed
    words: tuple[str, ...]


def arrange(arguments: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the arguments with one of `paths`, the names of commands, first.

    They are returned unchanged if they name no command. Raises UsageError for an
    argument that is missing before one that was given as an option.
    """
    known = frozenset(paths)
    lead, rest = _split_lead(arguments)
    for length in (3, 2, 1):
        path = habits.command_of(" ".join(rest[:length]), known)
        if path in known:
            words = [*lead, *rest[length:]]
            return [*path.split(), *_with_our_options(path, words)]
    return [*rest, *lead]


def pieces(path: str, words: Sequence[str]) -> Iterator[Piece]:
    """Split the words after a command into options and arguments, until `--`."""
    options = COMMANDS[path][1] if path in COMMANDS else {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            yield from (Piece("", each, (each,)) for each in words[at:])
            return
        if not word.startswith("-") or word == "-":
            yield Piece("", word, (word,))
            continue
        flag, equals, value = word.partition("=")
        if equals and word.startswith("--"):
            yield Piece(flag, value, (word,))
        elif _takes_value(path, word, options) and at < len(words):
            yield Piece(word, words[at], (word, words[at]))
            at += 1
        else:
            yield Piece(word, None, (word,))


def _takes_value(
    path: str, flag: str, options: dict[str, tuple[str, str, object]]
) -> bool:
    row = options.get(flag) or COMMON.get(flag)
    if row is not None:
        return row[1] in ("store", "append")
    return flag in _OUTPUT or habits.takes_value(path, flag)


def _split_lead(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the common options before the command, and everything after them."""
    lead: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        flag, equals, _ = rest[0].partition("=")
        row = COMMON.get(flag)
        is_counted = flag.startswith("-v") and set(flag[1:]) == {"v"}
        if row is None and flag not in _OUTPUT and not is_counted:
            break
        takes_value = row is None or row[1] in ("store", "append")
        length = 2 if takes_value and not equals and not is_counted else 1
        lead += rest[:length]
        del rest[:length]
    return lead, rest


def _with_our_options(path: str, words: Sequence[str]) -> list[str]:
    """Return the words after a command with our options instead of habitual ones."""
    if path not in COMMANDS or not any(habits.is_habit(path, each) for each in words):
        return list(words)
    slots: dict[str, list[str]] = {}
    given: list[str] = []
    options: list[str] = []
    for piece in pieces(path, words):
        replaced = habits.OPTIONS.get((path, piece.flag))
        slot = habits.slot_of(path, piece.flag)
        if not piece.flag:
            given += piece.words
        elif replaced is not None:
            value = [] if piece.value is None else [piece.value]
            options += [*replaced.split(), *value]
        elif slot and piece.value is not None:
            slots.setdefault(slot, []).append(piece.value)
        elif habits.is_since(path, piece.flag) and piece.value is not None:
            start = piece.value
            is_age = start[:1].isdigit() and not start.isdigit()
            options += ["--from", f"-{start}" if is_age and "T" not in start else start]
        else:
            options += piece.words
    places: list[str] = []
    missing = ""
    for name, is_repeated, _ in COMMANDS[path][0]:
        found = slots.get(name) or (given if is_repeated else given[:1])
        if name not in slots:
            given = [] if is_repeated else given[1:]
        if found and missing:
            raise UsageError(
                f"missing argument {missing}", hint=f"see: rmq {path} --help"
            )
        missing = missing or ("" if found else name.removesuffix("s").upper())
        places += found
    places += given
    dashes = ["--"] if any(each[:1] == "-" and each != "-" for each in places) else []
    return [*options, *dashes, *places]
