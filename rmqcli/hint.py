"""Hints of errors, as data: what to try, and which arguments and calls that names.

A hint is a text for users of the library. It keeps its parts, so that the command line
can name the flag of an argument and the command of a call in their places:

    Hint("to delete it anyway, add ", Setting("force", True))
    for programs                to delete it anyway, add force=True
    on the command line         to delete it anyway, add --force

A hint that names neither an argument nor a call is an ordinary str. See
`rmqcli.cli.ui.wording` for the flags and commands. Treat the parts as immutable: frozen
classes take twice as long to create, and every start creates these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeAlias

from rmqcli.dataclass import dataclass
from rmqcli.model import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    Value: TypeAlias = (
        "str | int | bool | MessageQueue | dict[str, str] | list[str] | Blank | None"
    )


@dataclass(slots=True)
class Blank:
    """A value that the reader knows, such as FILE."""

    text: str

    def __repr__(self) -> str:
        return self.text


@dataclass(slots=True)
class Setting:
    """An argument with the value that it should have.

    A MessageQueue stands for a list with this queue.
    """

    name: str
    value: Value

    def __str__(self) -> str:
        value = repr(self.value)
        if isinstance(self.value, MessageQueue):
            value = f"[{value}]"
        return f"{self.name}={value}"


@dataclass(slots=True)
class Argument:
    """An argument that should be given, checked or left out."""

    name: str

    def __str__(self) -> str:
        return self.name if "_" in self.name else f"the {self.name} argument"


@dataclass(slots=True)
class LibraryCall:
    """A call of the library, such as `Admin.topic`, with its first argument if any."""

    name: str
    argument: str | None = None

    def __str__(self) -> str:
        argument = "" if self.argument is None else repr(self.argument)
        return f"{self.name}({argument})"


@dataclass(slots=True)
class ForPrograms:
    """A text that the command line leaves out: it has nothing that does the same."""

    text: str

    def __str__(self) -> str:
        return self.text


class Hint(str):
    """A text with the parts of which it is made; parts of other hints are included."""

    __slots__ = ("parts",)

    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> Self:
        """Join the parts. Settings that follow each other are separated by commas."""
        flat: list[Part] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Hint) else (part,))
        text, before = "", None
        for part in flat:
            if isinstance(before, Setting) and isinstance(part, Setting):
                text += ", "
            text += str(part)
            before = part
        made = super().__new__(cls, text)
        made.parts = tuple(flat)
        return made

    def __reduce__(self) -> tuple[type[Hint], tuple[Part, ...]]:
        return Hint, self.parts


def command_line(command: str, *names: str, options: Sequence[str] = ()) -> str:
    """Return a command that can be pasted into a shell: `rmq lag billing`.

    `names` are its arguments, and words that need quotes have them.
    """
    import shlex  # for the few texts that contain a command

    words = [*command.split(), *placed(*names)]
    return shlex.join(with_options(words, options))


def placed(*names: str) -> list[str]:
    """Return the arguments of a command: after `--` if one begins with a dash."""
    is_like_an_option = any(name.startswith("-") for name in names)
    return ["--", *names] if is_like_an_option else [*names]


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of a command with more options, which come before `--`."""
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], *options, *words[at:]]


if TYPE_CHECKING:
    Part: TypeAlias = "str | Setting | Argument | LibraryCall | ForPrograms"
