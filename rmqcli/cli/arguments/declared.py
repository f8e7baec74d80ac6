"""What a command's arguments and options are, read from their declarations.

`option` and `argument` of `rmqcli.cli.options` declare a parameter; this module says
what the declarations of a command amount to. Help, completion, the table of ordinary
arguments and Typer are all given what it finds. It needs no Typer.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, replace
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from rmqcli.cli.options import COMMON_DECLARATIONS, Command, Declaration, make_common
from rmqcli.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a command."""

    name: str
    declaration: Declaration
    #: the type of one value: bool, int, str, Path, or Any for a parser's or a choice
    type: Any
    #: whether the value is a list
    is_repeated: bool
    is_required: bool
    default: Any = None
    #: flags such as --follow, and those that stand for the opposite
    flags: tuple[str, ...] = ()
    negative_flags: tuple[str, ...] = ()

    @property
    def is_switch(self) -> bool:
        """Whether its flags take no value."""
        return self.type is bool or self.declaration.count

    @property
    def accepted_flags(self) -> tuple[str, ...]:
        """The flags and their earlier names."""
        given = [one.partition("/")[0].strip() for one in self.declaration.aliases]
        return (*self.flags, *given)

    @property
    def accepted_negative_flags(self) -> tuple[str, ...]:
        """The flags of the opposite and their earlier names."""
        given = [one.partition("/")[2].strip() for one in self.declaration.aliases]
        return (*self.negative_flags, *(one for one in given if one))

    @property
    def metavar(self) -> str:
        """What stands for its value in help and errors; empty for a switch."""
        if self.is_switch and not self.declaration.is_argument:
            return ""
        if self.declaration.metavar:
            return self.declaration.metavar
        if self.declaration.choices:
            return "|".join(self.declaration.choices)
        by_type: dict[Any, str] = {int: "N", Path: "FILE"}
        return by_type.get(self.type, self.name.rstrip("_").upper())

    @property
    def noun(self) -> str:
        """The metavar without the brackets and dots of an argument."""
        return self.metavar.replace("...", "").strip("[]")


def parameters_of(command: Command) -> list[Parameter]:
    """Return a command's parameters: its own in their order, then the common ones."""
    if command.options_type is not None:
        fields = command.options_type.__dataclass_fields__
        own = list(_parameters(command.options_type, fields))
    else:
        own = list(_parameters(command.function, command.declared))
    if not command.has_common:
        return own
    common = [
        _with_formats(each, command) if each.name == "output" else each
        for each in _parameters(make_common, COMMON_DECLARATIONS)
        if each.name != "output" or command.formats
    ]
    return [*own, *common]


def common_parameters() -> list[Parameter]:
    """Return the options that every command has, except the output format."""
    found = _parameters(make_common, COMMON_DECLARATIONS)
    return [each for each in found if each.name != "output"]


def _parameters(
    source: Callable[..., Any], declared: Mapping[str, Field[Any]]
) -> Iterator[Parameter]:
    kinds = get_type_hints(source)
    for name, parameter in inspect.signature(source).parameters.items():
        if name not in declared:
            continue
        settings = {**declared[name].metadata}
        if callable(text := settings.get("help")):
            settings["help"] = text()
        yield _parameter(name, kinds[name], Declaration(**settings), parameter.default)


def _parameter(
    name: str, kind: Any, declaration: Declaration, default: Any
) -> Parameter:
    if isinstance(kind, types.UnionType) or get_origin(kind) is Union:
        kind = next(each for each in get_args(kind) if each is not type(None))
    is_repeated = get_origin(kind) is list
    if is_repeated:
        kind = get_args(kind)[0]
    if declaration.parser is not None or declaration.choices:
        kind = Any
    names = declaration.names
    if not names and not declaration.is_argument:
        names = ("--" + name.strip("_").replace("_", "-"),)
    pairs = [tuple(part.strip() for part in one.split("/", 1)) for one in names]
    is_required = default is inspect.Parameter.empty
    return Parameter(
        name=name,
        declaration=declaration,
        type=kind,
        is_repeated=is_repeated,
        is_required=is_required,
        default=None if is_required else default,
        flags=tuple(pair[0] for pair in pairs),
        negative_flags=tuple(pair[1] for pair in pairs if len(pair) == 2),
    )


def _with_formats(parameter: Parameter, command: Command) -> Parameter:
    """Return `--output` with the formats of this command."""
    more = [("help", command.fields), ("schema", command.schema)]
    choices = (*command.formats, *(name for name, exists in more if exists))
    declaration = replace(parameter.declaration, choices=choices)
    return replace(
        parameter, declaration=declaration, default=command.formats[0], type=Any
    )


def all_flags(parameters: Sequence[Parameter]) -> list[str]:
    """Return the flags that the help shows, in its order."""
    return [
        flag
        for each in parameters
        if not each.declaration.is_argument
        for flag in (*each.flags, *each.negative_flags)
    ]
