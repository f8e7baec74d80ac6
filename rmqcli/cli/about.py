"""`rmq help` and `rmq version`, which show the same as `--help` and `--version`."""

from __future__ import annotations

from typing import Annotated

from rmqcli import __version__
from rmqcli.cli.help import help_of, show
from rmqcli.cli.options import argument, command_options


@command_options(has_common=False)
def help_(
    words: Annotated[
        list[str] | None,
        argument(
            metavar="[COMMAND]...",
            help="A command, or options, positions or exit-codes.",
        ),
    ] = None,
) -> None:
    """Show the help of a command, or a page of help.

    Example: rmq help topic create
    """
    show(help_of(" ".join(words or [])))


@command_options(has_common=False)
def version() -> None:
    """Show the version of rmq.

    Example: rmq version
    """
    show(f"rmq {__version__}\n")
