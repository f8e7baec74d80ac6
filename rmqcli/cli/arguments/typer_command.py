"""Unusual arguments, and arguments that are wrong: Typer parses one command's.

Ordinary arguments are parsed without Typer, with the same result: see
`rmqcli.cli.arguments.parse`. Typer gets a command that is made of our own declarations
(`rmqcli.cli.arguments.declared`), and every value is read by our own parsers; so
neither help nor errors depend on its version.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rmqcli.cli.arguments import habits
from rmqcli.cli.arguments.declared import Parameter, all_flags, parameters_of
from rmqcli.cli.commands import CommandEntry
from rmqcli.cli.options import Command, not_a_choice, read_int
from rmqcli.errors import RmqError, TextError, UsageError
from rmqcli.names import similar

#: Called with a command, its values by parameter, and the parameters that were typed.
Act = Callable[[Command, Mapping[str, Any], frozenset[str]], Any]

#: The option for a proxy of RocketMQ 5, in the commands that can use one.
_ENDPOINTS = "--endpoints"
#: What Typer says of more arguments than the command has.
_EXTRA = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.+)\)", re.DOTALL)


def run_app(
    entry: CommandEntry, words: Sequence[str], *, act: Act = Command.run
) -> object:
    """Parse the `words` after the command with Typer; return what the command returns.

    Calls `act` with the command, the values by parameter, and the parameters that were
    typed. Raises UsageError for arguments that cannot be parsed.
    """
    command = entry.load()
    parameters = parameters_of(command)
    parsed: list[tuple[dict[str, Any], frozenset[str]]] = []

    def keep(context: typer.Context, **values: Any) -> None:
        typed = frozenset(
            each
            for each in values
            if str(context.get_parameter_source(each)).endswith("COMMANDLINE")
        )
        parsed.append((values, typed))

    try:
        parser = _typer_command(keep, parameters)
        with parser.make_context(f"rmq {entry.path}", list(words)) as context:
            parser.invoke(context)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        raise _usage_error(error, entry, parameters, words) from error
    values, typed = parsed[0]
    return act(command, values, typed)


def _typer_command(
    function: Callable[..., None], parameters: Sequence[Parameter]
) -> TyperCommand:
    """Return a command of Typer that calls `function` with what it has parsed."""
    context = inspect.Parameter(
        "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
    )
    signature = inspect.Signature([context, *map(_typer_parameter, parameters)])
    function.__signature__ = signature  # type: ignore[attr-defined]  # what Typer reads
    function.__annotations__ = {
        each.name: each.annotation for each in signature.parameters.values()
    }
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": []},
    )
    app.command()(function)
    found = typer.main.get_command(app)
    if not isinstance(found, TyperCommand):
        raise TypeError("Typer made a group of one command")
    return found


def _typer_parameter(parameter: Parameter) -> inspect.Parameter:
    """Return the parameter of a function from which Typer makes the same parameter."""
    declaration = parameter.declaration
    settings: dict[str, Any] = {"show_default": False}
    if not parameter.is_switch:
        settings["parser"] = _Reader(parameter)
        settings["metavar"] = parameter.metavar
    if declaration.envvar:
        settings["envvar"] = declaration.envvar
    if declaration.count:
        settings["count"] = True
    kind: Any = parameter.type if parameter.is_switch else Any
    if parameter.is_repeated:
        kind = list[kind]
    if parameter.default is None and not parameter.is_required:
        kind = kind | None
    if declaration.is_argument:
        found = typer.Argument(**settings)
    else:
        names: Sequence[str] = parameter.accepted_flags
        if negatives := parameter.accepted_negative_flags:
            names = ["/".join(pair) for pair in zip(names, negatives, strict=True)]
        found = typer.Option(*names, **settings)
    return inspect.Parameter(
        parameter.name,
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[kind, found],
        default=(
            inspect.Parameter.empty if parameter.is_required else parameter.default
        ),
    )


class _Reader:
    """Adapts the reader of a parameter to Typer's `parser=`.

    Typer passes defaults to it, too; a value that is not text is returned unchanged.
    """

    def __init__(self, parameter: Parameter) -> None:
        self._read = reader_of(parameter)
        self.__name__ = "text"  # Typer's name of the type

    def __call__(self, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._read(value)
        except UsageError as error:
            raise typer.BadParameter(error.message) from error


def reader_of(parameter: Parameter) -> Callable[[str], object]:
    """Return what turns a text into a value of the parameter."""
    declaration = parameter.declaration
    if declaration.parser is not None:
        return declaration.parser
    if declaration.choices:

        def choose(text: str) -> str:
            if text in declaration.choices:
                return text
            raise not_a_choice(text, declaration.choices)

        return choose
    if parameter.type is int:
        return lambda text: read_int(text, declaration.min, declaration.max)
    return Path if parameter.type is Path else str


def _usage_error(
    error: typer.TyperException,
    entry: CommandEntry,
    parameters: Sequence[Parameter],
    words: Sequence[str],
) -> UsageError:
    """Turn an error of Typer, or of one of our option parsers, into a UsageError."""
    cause = error.__cause__
    option = _option_of(error, parameters)
    command = f"rmq {entry.path}"
    if isinstance(cause, TextError):
        cause.option = option
        cause.hint = habits.hint_for_value(entry.path, option, cause.text) or cause.hint
        return cause
    if isinstance(cause, RmqError):
        message = f"{option}: {cause.message}" if option else cause.message
        hints = (habits.hint_for_value(entry.path, option, each) for each in words)
        return UsageError(message, hint=next(filter(None, hints), cause.hint))
    unknown = getattr(error, "option_name", None)
    if unknown and unknown[1:].isdigit():  # Typer names the first digit only
        unknown = next((each for each in words if each.startswith(unknown)), unknown)
    see = f"see: {command} --help"
    if unknown == _ENDPOINTS and _ENDPOINTS not in all_flags(parameters):
        return UsageError(
            f"{command} does not support {_ENDPOINTS}: it needs a name server",
            hint="give --namesrv HOST:PORT",
        )
    if type(error).__name__ == "NoSuchOption" and unknown:
        message = f"option {unknown} does not exist"
        hint = habits.hint_for_flag(entry.path, unknown)
        near = "" if hint else _nearest(unknown, all_flags(parameters))
        if near:
            return UsageError(f"{message}; {near}")
        return UsageError(message, hint=hint or see)
    if type(error).__name__ == "MissingParameter":
        kind = "option" if option.startswith("-") else "argument"
        return UsageError(
            f"missing {kind} {option}", hint=f"write: {_shortest(command, parameters)}"
        )
    if (extra := _EXTRA.fullmatch(error.format_message())) is not None:
        extras = extra[1].split()
        what = "argument" if len(extras) == 1 else "arguments"
        hint = habits.hint_for_extra(entry.path, extras[0]) or see
        if any(each.declaration.is_argument for each in parameters) and hint == see:
            hint = f"a text with blanks needs quotes; {see}"
        return UsageError(f"unexpected {what}: {extra[1]}", hint=hint)
    message = error.format_message().rstrip(".")
    return UsageError(message[:1].lower() + message[1:], hint=see)


def _shortest(command: str, parameters: Sequence[Parameter]) -> str:
    """Return the command with the arguments and options that it needs."""
    needed = [each for each in parameters if each.is_required]
    words = [each.metavar for each in needed if each.declaration.is_argument]
    for each in needed:
        if not each.declaration.is_argument:
            words += [max(each.flags, key=len), each.metavar]
    return " ".join([command, *words])


def _nearest(flag: str, flags: Sequence[str]) -> str:
    found = similar(flag, flags) if len(flag) > len("--x") else []
    return f"did you mean {' or '.join(found)}?" if found else ""


def _option_of(error: typer.TyperException, parameters: Sequence[Parameter]) -> str:
    """The option or argument that a usage error is about, as the help names it.

    If the value came from the environment, this is the variable.
    """
    name = getattr(getattr(error, "param", None), "name", None)
    context = getattr(error, "ctx", None)
    for each in parameters:
        if each.name != name:
            continue
        source = None if context is None else context.get_parameter_source(name)
        if source is not None and source.name == "ENVIRONMENT":
            return each.declaration.envvar or ""
        return each.noun if each.declaration.is_argument else max(each.flags, key=len)
    return ""
