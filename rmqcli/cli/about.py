"""`rmq help` shows guides and the help of commands; `rmq version` the version."""

from __future__ import annotations

from typing import Annotated

from rmqcli import __version__
from rmqcli.cli.help import GUIDES, help_of_topic, show, show_guide
from rmqcli.cli.options import argument, command_options


@command_options(has_common=False)
def help_(
    words: Annotated[
        list[str] | None,
        argument(
            metavar="[TOPIC|COMMAND]...",
            help="A guide, a command or its group, or options.",
        ),
    ] = None,
) -> None:
    """Show a guide, or the help of a command.

    Example: rmq help reading

    Without a topic, the guides are listed. On a terminal a long guide is shown by the
    program in PAGER, less by default.
    """
    topic = " ".join(words or [])
    if topic in GUIDES:
        show_guide(topic)
    else:
        show(help_of_topic(topic))


@command_options(has_common=False)
def version() -> None:
    """Show the version of rmq.

    Example: rmq version
    """
    show(f"rmq {__version__}\n")
