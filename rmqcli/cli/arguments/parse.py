"""Parses ordinary arguments with a table, without Typer.

It exists because of what Typer costs at each start, and what its releases change.
Loading Typer and having it build one command takes a quarter of the time of a command
that sends one query to a cluster; since 0.29 Typer also imports pydantic whenever a
command runs, which takes longer than the whole command. Arguments are ordinary if they
are the complete name of a command, complete names of its options, and values that its
parsers accept. `parse` declines all others (`-vv`, `--`, a missing argument, a wrong
value); then Typer parses them, and reports what is wrong with them. The table is
generated from the declarations that Typer is given, too, and tests check that `parse`
either declines or finds what Typer finds, with the oldest and the newest Typer.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from rmqcli.cli.arguments.table import COMMANDS, COMMON, COMMON_ENVIRONMENT
from rmqcli.errors import UsageError

#: How a text becomes a value: "text" leaves it unchanged, "module:name" is a function
#: that parses it, ("choice", ...) are the accepted texts, ("int", least, most) is a
#: number between bounds, which may be None.
Reader = str | tuple[str | int | None, ...]


#: Of other options the last one counts. With these, that would be another cluster, or
#: messages that one of two conditions leaves out.
_ONCE = frozenset({"--profile", "--where"})


class Grammar(NamedTuple):
    """The arguments and options of a command."""

    #: in order: parameter, whether it takes all remaining words, and reader
    arguments: tuple[tuple[str, bool, Reader], ...]
    #: flag -> parameter, action (e.g. "store"), and reader
    options: dict[str, tuple[str, str, Reader]]
    #: environment variable -> parameter and reader
    environment: dict[str, tuple[str, Reader]]
    #: the arguments and options that must be given
    required: tuple[str, ...]
    #: whether the command also has the options of COMMON
    has_common: bool


class Parsed(NamedTuple):
    """A command's path, and values by parameter; missing ones have their defaults."""

    path: str
    values: dict[str, Any]
    #: the parameters that were typed; the others are from the environment
    typed: frozenset[str]


class _DeclinedError(Exception):
    """The arguments are not ordinary."""


def parse(arguments: Sequence[str], environ: Mapping[str, str]) -> Parsed | None:
    """Parse the arranged arguments of `rmq`; None if Typer has to parse them.

    `rmqcli.cli.arguments.arrange` puts the command first. Raises UsageError when an
    option of the command stands where the value of another one is missing, which Typer
    would take for that value, and for options of which the last must not count.
    """
    for length in (1, 2, 3):
        path = " ".join(arguments[:length])
        if path in COMMANDS:
            grammar = Grammar(*COMMANDS[path])
            _check_values(grammar, arguments[length:])
            try:
                return _parse(path, grammar, arguments[length:], environ)
            except _DeclinedError:
                return None
    return None


def _check_values(grammar: Grammar, words: Sequence[str]) -> None:
    known = {**COMMON, **grammar.options} if grammar.has_common else grammar.options
    once: set[str] = set()
    rest = iter(words)
    for word in rest:
        if word == "--":
            return
        flag = word.partition("=")[0]
        if flag in once:
            raise UsageError(f"option {flag} is given twice")
        if flag in _ONCE:
            once.add(flag)
        option = known.get(word)
        if option is None or option[1] not in ("store", "append"):
            continue
        value = next(rest, "")
        if value.startswith("--") and value.partition("=")[0] in known:
            raise UsageError(
                f"option {word} needs a value, but {value} is an option",
                hint=f"if it is the value, write: {word}={value}",
            )


def _parse(
    path: str, grammar: Grammar, words: Sequence[str], environ: Mapping[str, str]
) -> Parsed:
    values, places = _read_options(grammar, iter(words))
    _read_places(grammar, places, values)
    if not values.keys() >= set(grammar.required):
        raise _DeclinedError
    typed = frozenset(values)
    variables = grammar.environment
    if grammar.has_common:
        variables = {**COMMON_ENVIRONMENT, **variables}
    for variable, (name, reader) in variables.items():
        if name not in values and environ.get(variable):
            values[name] = _read(reader, environ[variable])
    return Parsed(path, values, typed)


def _read_options(
    grammar: Grammar, words: Iterator[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of the options, and the words that are not options."""
    texts: dict[str, str] = {}
    readers: dict[str, Reader] = {}
    values: dict[str, Any] = {}
    places: list[str] = []
    for word in words:
        if not word.startswith("-") or word == "-":
            places.append(word)
            continue
        flag, equals, text = word.partition("=")
        option = grammar.options.get(flag)
        if option is None and grammar.has_common:
            option = COMMON.get(flag)
        if option is None or (equals and not flag.startswith("--")):
            raise _DeclinedError
        name, action, reader = option
        if action in ("store", "append"):
            if not equals:
                text = _next(words)
            if action == "append":
                values.setdefault(name, []).append(_read(reader, text))
            else:  # only the last one is parsed and used
                texts[name], readers[name] = text, reader
        elif equals:
            raise _DeclinedError
        elif action == "count":
            values[name] = values.get(name, 0) + 1
        else:
            values[name] = action == "true"
    for name, text in texts.items():
        values[name] = _read(readers[name], text)
    return values, places


def _read_places(grammar: Grammar, words: list[str], values: dict[str, Any]) -> None:
    """Assign the words that are not options to the arguments, in order."""
    at = 0
    for name, is_repeated, reader in grammar.arguments:
        if at == len(words):
            break
        end = len(words) if is_repeated else at + 1
        found = [_read(reader, word) for word in words[at:end]]
        values[name] = found if is_repeated else found[0]
        at = end
    if at < len(words):
        raise _DeclinedError


def _next(words: Iterator[str]) -> str:
    for word in words:
        return word
    raise _DeclinedError


def _read(reader: Reader, text: str) -> Any:
    """Turn a text into a value. Raises _DeclinedError for an invalid one."""
    match reader:
        case "text":
            return text
        case ("choice", *choices):
            if text in choices:
                return text
            raise _DeclinedError
        case ("int", least, most):
            from rmqcli.cli.options import read_int  # which the command loads, too

            try:
                return read_int(
                    text, cast("int | None", least), cast("int | None", most)
                )
            except UsageError:
                raise _DeclinedError from None
        case str():
            module, _, function = reader.partition(":")
            try:
                return getattr(importlib.import_module(module), function)(text)
            except (UsageError, ValueError):
                raise _DeclinedError from None
    raise TypeError(f"{reader!r} is not a reader")
