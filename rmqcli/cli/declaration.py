"""What is said about an argument or option where it is declared.

`rmqcli.cli.declared` puts it together with the parameter's name, type and default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """An argument or option, as `rmqcli.cli.options.argument` or `option` declares it.

    An option without names is called like its parameter.
    """

    names: tuple[str, ...] = ()
    #: earlier names of an option, which work but are not shown
    aliases: tuple[str, ...] = ()
    is_argument: bool = False
    help: str = ""
    #: the title above it in the help of a command
    section: str = ""
    #: what stands for the value in the help
    metavar: str = ""
    parser: Callable[[str], object] | None = None
    choices: tuple[str, ...] = ()
    #: bounds of an integer
    min: int | None = None
    max: int | None = None
    #: whether the value is how often the option is given
    count: bool = False
    envvar: str | None = None
    show_default: bool = True
