"""`rmq`: finds the command, runs it, and turns every error into text and an exit code.

The only place where an exception becomes something a person reads. Nothing below prints
an error, and nothing below calls `sys.exit`.
"""

from __future__ import annotations

import importlib
import inspect
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from rmqcli.cli.commands import COMMANDS, GROUPS, CommandEntry
from rmqcli.cli.ui import interrupts
from rmqcli.errors import ExitCode

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_HELP = """Consume, inspect and move Apache RocketMQ queues.

Data goes to stdout, words to stderr. `rmq COMMAND --help` has examples.
"""


class CommandGroup(TyperGroup):
    """A group whose commands are rows of a table until one of them is needed.

    Typer's types of context and formatter are its private copy of click's, hence Any.
    """

    def __init__(
        self,
        table: Sequence[CommandEntry],
        *,
        name: str,
        help: str,
        prefix: str = "",
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

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self._entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self._entries.get(cmd_name)
        if entry is None:
            return None
        if isinstance(entry, str):
            prefix = f"{self._prefix}{cmd_name} "
            return CommandGroup(self._table, name=cmd_name, help=entry, prefix=prefix)
        return load_command(entry, name=cmd_name)

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
        # Typer suggests from `commands`, which is empty here.
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
    """The names typed after `prefix`: a command's entry, or a group's help."""
    entries: dict[str, CommandEntry | str] = {}
    for entry in table:
        if entry.path.startswith(prefix):
            name, _, rest = entry.path.removeprefix(prefix).partition(" ")
            entries[name] = GROUPS.get(f"{prefix}{name}", "") if rest else entry
    return entries


def load_command(entry: CommandEntry, *, name: str) -> TyperCommand:
    """Import the command's module and return the command, ready to run."""
    function = getattr(importlib.import_module(entry.module), entry.attribute)
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=dict(CONTEXT_SETTINGS),
    )
    # "\b" keeps an example's lines as they are written.
    text = inspect.cleandoc(function.__doc__ or "").replace(
        "\n\nExample", "\n\n\b\nExample"
    )
    app.command(name=name, cls=SectionedCommand, help=text)(function)
    command = typer.main.get_command(app)
    if not isinstance(command, TyperCommand):
        raise TypeError(f"{entry.module}:{entry.attribute} is not one command")
    for parameter in command.params:
        _name_value(parameter)
    return command


def _name_value(parameter: Any) -> None:
    """Show what a parameter takes as an upper-case noun, if it does not say it.

    Typer would say `<int range>` or `topic`.
    """
    if parameter.metavar is not None or getattr(parameter, "is_flag", False):
        return
    if parameter.param_type_name == "argument":
        parameter.metavar = parameter.name.upper()
    elif not getattr(parameter, "count", False):
        is_number = parameter.type.name.startswith(("int", "float"))
        parameter.metavar = "N" if is_number else parameter.name.upper()


def build_app(table: Sequence[CommandEntry] = COMMANDS) -> CommandGroup:
    """The whole of `rmq` as one group; imports no command."""
    version = TyperOption(
        param_decls=["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the version and exit.",
    )
    return CommandGroup(table, name="rmq", help=_HELP, params=[version])


def _show_version(ctx: Any, _param: Any, value: object) -> None:
    if value and not ctx.resilient_parsing:
        from rmqcli import __version__

        typer.echo(f"rmq {__version__}")
        raise typer.Exit


def run(arguments: Sequence[str], *, table: Sequence[CommandEntry] = COMMANDS) -> int:
    """Run `rmq` with `arguments` and return its exit code. Never raises, never exits.

    For tests: writes to whatever `sys.stdout` and `sys.stderr` are now.
    """
    try:
        with build_app(table).make_context("rmq", list(arguments)) as context:
            result = context.command.invoke(context)
        _flush_stdout()
    except BaseException as error:  # noqa: BLE001  # the one boundary
        from rmqcli.cli.ui import errors as failures

        return failures.report(error, arguments)
    return int(result) if isinstance(result, int) else ExitCode.OK


def main(table: Sequence[CommandEntry] = COMMANDS) -> NoReturn:
    """Run `rmq` as a process."""
    if sys.stdout is None:  # closed by the caller: `rmq ... >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # lives as long as we do
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Data is UTF-8 wherever it goes; a terminal says itself what it can show.
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    interrupts.install()
    code = run(sys.argv[1:], table=table)
    interrupts.ignore()
    sys.exit(code)


def _flush_stdout() -> None:
    """Meet a full disk or a closed pipe here, where it can still be reported."""
    if sys.stdout is not None:
        sys.stdout.flush()
