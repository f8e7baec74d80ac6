"""The Typer application: help, errors in arguments, and unusual arguments.

A command is built from the annotations of its options when it is needed. Ordinary
arguments are parsed without Typer, with the same result: see
`rmqcli.cli.arguments.parse`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from rmqcli.cli.commands import COMMANDS, GROUPS, CommandEntry
from rmqcli.cli.options import (
    COMMON_NAMES,
    COMMON_SECTION,
    Command,
    choice_parser,
    make_common,
    option,
)
from rmqcli.cli.ui.output import write_field_help
from rmqcli.errors import ExitCode, RmqError, TextError, UsageError

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_HELP = """Consume, inspect and move Apache RocketMQ queues.

Results go to stdout, messages to stderr. `rmq COMMAND --help` has examples.
"""

#: Called with a command, its values by parameter, and the parameters that were typed.
Act = Callable[[Command, Mapping[str, Any], frozenset[str]], Any]


class CommandGroup(TyperGroup):
    """A group that builds a command from its row of the table when it is needed.

    Typer's context and formatter types are in its private copy of click, hence Any.
    """

    def __init__(
        self,
        table: Sequence[CommandEntry],
        *,
        name: str,
        help: str,
        prefix: str = "",
        act: Act = Command.run,
        **attrs: Any,
    ) -> None:
        super().__init__(
            name=name,
            help=help,
            rich_markup_mode=None,
            context_settings=dict(CONTEXT_SETTINGS),
            **attrs,
        )
        self._table = table
        self._entries = entries_below(prefix, table=table)
        self._prefix = prefix
        self._act = act

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        if isinstance(entry, str):
            prefix = f"{self._prefix}{cmd_name} "
            return CommandGroup(
                self._table, name=cmd_name, help=entry, prefix=prefix, act=self._act
            )
        return typer_command(entry, name=cmd_name, act=self._act)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [
            (name, entry if isinstance(entry, str) else entry.help)
            for name, entry in self._entries.items()
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help(), err=True)
            raise typer.Exit(ExitCode.USAGE)
        return list(super().parse_args(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        # Typer takes its suggestions from `commands`, which is empty here.
        if args[0] not in self._entries and not args[0].startswith("-"):
            from rmqcli.cli.ui.errors import unknown_name

            raise unknown_name(
                "command", args[0], self._entries, help_command=ctx.command_path
            )
        return super().resolve_command(ctx, args)


class SectionedCommand(TyperCommand):
    """A command whose help lists its own options before the common ones."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                title = getattr(parameter, "rich_help_panel", None) or (
                    "Arguments"
                    if parameter.param_type_name == "argument"
                    else "Options"
                )
                sections.setdefault(title, []).append(record)
        for title in ("Arguments", "Options", *sections):
            records = sections.pop(title, None)
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def entries_below(
    prefix: str, *, table: Sequence[CommandEntry]
) -> dict[str, CommandEntry | str]:
    """Map each name that can follow `prefix` to a command's entry or a group's help."""
    entries: dict[str, CommandEntry | str] = {}
    for entry in table:
        if entry.path.startswith(prefix):
            name, _, rest = entry.path.removeprefix(prefix).partition(" ")
            entries[name] = GROUPS.get(f"{prefix}{name}", "") if rest else entry
    return entries


def typer_command(
    entry: CommandEntry, *, name: str, act: Act = Command.run
) -> TyperCommand:
    """Import the command's module and return its Typer command.

    When that is invoked, it calls `act` with the command, the values by parameter, and
    the parameters that were typed, and returns the result.
    """
    command = entry.load()

    def run(context: typer.Context, **values: Any) -> Any:
        typed = frozenset(
            each
            for each in values
            if str(context.get_parameter_source(each)).endswith("COMMANDLINE")
        )
        return act(command, values, typed)

    context = inspect.Parameter(
        "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
    )
    signature = inspect.Signature([context, *_parameters_of(command)])
    run.__signature__ = signature  # type: ignore[attr-defined]  # what Typer reads
    run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=dict(CONTEXT_SETTINGS),
    )
    # "\b" keeps an example's lines as they are written.
    text = inspect.cleandoc(command.function.__doc__ or "").replace(
        "\n\nExample", "\n\n\b\nExample"
    )
    app.command(name=name, cls=SectionedCommand, help=text)(run)
    found = typer.main.get_command(app)
    if not isinstance(found, TyperCommand):
        raise TypeError(f"{entry.module}:{entry.attribute} is not one command")
    for parameter in found.params:
        _name_value(parameter)
    return found


def _parameters_of(command: Command) -> list[inspect.Parameter]:
    """Return the parameters that Typer parses: the command's own, then common ones."""
    own = _parameters(command.options_type or command.function)
    if not command.has_common:
        return own
    own = [each for each in own if each.name in command.own_names]
    common = [
        _output_parameter(each, command) if each.name == "output" else each
        for each in _parameters(make_common)
        if each.name in COMMON_NAMES and each.name not in command.own_names
    ]
    return [*own, *common]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters as keyword-only ones with evaluated annotations."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(
            annotation=hints.get(parameter.name, str),
            kind=inspect.Parameter.KEYWORD_ONLY,
        )
        for parameter in inspect.signature(function).parameters.values()
    ]


def _output_parameter(
    parameter: inspect.Parameter, command: Command
) -> inspect.Parameter:
    """Return the parameter `--output` with the formats of this command."""
    formats, fields, schema = command.formats, command.fields, command.schema
    choices = (*formats, *(["help"] if fields else []), *(["schema"] if schema else []))

    def describe(value: str) -> str:
        if value == "help" and fields:
            write_field_help(fields)
            raise typer.Exit
        if value == "schema" and schema is not None:
            typer.echo(schema(), nl=False)
            raise typer.Exit
        return value

    annotation = option(
        "--output",
        "-o",
        rich_help_panel=COMMON_SECTION,
        parser=choice_parser(choices),
        metavar="|".join(choices),
        callback=describe,
        is_eager=True,
        help="Output format"
        + ("; help lists its fields" if fields else "")
        + (", schema prints their JSON Schema." if schema else "."),
    )
    return parameter.replace(annotation=Annotated[str, annotation], default=formats[0])


def _name_value(parameter: Any) -> None:
    """Set an upper-case noun as the metavar of a parameter that has none.

    Typer would show `<int range>` or `topic`.
    """
    if parameter.metavar is not None or getattr(parameter, "is_flag", False):
        return
    if parameter.param_type_name == "argument":
        parameter.metavar = parameter.name.upper()
    elif not getattr(parameter, "count", False):
        is_number = parameter.type.name.startswith(("int", "float"))
        parameter.metavar = "N" if is_number else parameter.name.upper()


def build_app(
    table: Sequence[CommandEntry] = COMMANDS, *, act: Act = Command.run
) -> CommandGroup:
    """Return `rmq` as a group without importing a command. `act`: see typer_command."""
    version = TyperOption(
        param_decls=["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )
    return CommandGroup(table, name="rmq", help=_HELP, params=[version], act=act)


def _show_version(ctx: Any, _param: Any, value: object) -> None:
    if value and not ctx.resilient_parsing:
        from rmqcli import __version__

        typer.echo(f"rmq {__version__}")
        raise typer.Exit


def run_app(
    arguments: Sequence[str],
    *,
    table: Sequence[CommandEntry] = COMMANDS,
    act: Act = Command.run,
) -> object:
    """Parse `arguments` with Typer, and return what the command returns.

    Also shows help and the version. Raises UsageError for arguments that cannot be
    parsed. `act`: see typer_command.
    """
    try:
        with build_app(table, act=act).make_context("rmq", list(arguments)) as context:
            return context.command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        raise _usage_error(error) from error


#: The option for a proxy of RocketMQ 5, in the commands that can use one.
_ENDPOINTS: Final = "--endpoints"


def _usage_error(error: typer.TyperException) -> UsageError:
    """Turn an error of Typer, or of one of our option parsers, into a UsageError."""
    cause = error.__cause__
    option = _option_of(error)
    if isinstance(cause, TextError):
        cause.option = option
        return cause
    if isinstance(cause, RmqError):
        message = f"{option}: {cause.message}" if option else cause.message
        return UsageError(message, hint=cause.hint)
    context = getattr(error, "ctx", None)
    message = error.format_message().rstrip(".")
    hint = f"see: {context.command_path} --help" if context is not None else ""
    near = getattr(error, "possibilities", None)
    if getattr(error, "option_name", None) == _ENDPOINTS and context is not None:
        message = (
            f"{context.command_path} does not support {_ENDPOINTS}: it needs a name"
            " server"
        )
        hint = "give --namesrv HOST:PORT"
    elif near:
        message = error.message
        hint = f"did you mean {' or '.join(sorted(near))}?"
    return UsageError(message[:1].lower() + message[1:], hint=hint)


def _option_of(error: typer.TyperException) -> str:
    """The option or argument that a usage error is about, as it is typed."""
    parameter = getattr(error, "param", None)
    if parameter is None:
        return ""
    if getattr(parameter, "param_type_name", "") == "argument":
        return str(parameter.metavar or parameter.name).upper().strip("[].")
    return str(max(parameter.opts, key=len))
