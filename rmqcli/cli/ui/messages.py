"""Messages for people on stderr: notes, warnings, errors, progress.

Data is never written there. Every text is escaped for a terminal when it is written. A
stderr that is closed or broken is not an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import field
from typing import TextIO

from rmqcli.cli.ui.escape import safe
from rmqcli.dataclass import dataclass
from rmqcli.units import counted

_RED = "\x1b[31m"
_YELLOW = "\x1b[33m"
_CYAN = "\x1b[36m"
_RESET = "\x1b[0m"
ERASE_LINE = "\r\x1b[K"


def color_is_on(choice: str, stream: TextIO | None) -> bool:
    """Whether to colour what goes to `stream`, by `--color`, NO_COLOR and TERM."""
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether `stream` is open and a terminal."""
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):  # closed in the meantime
        return False


def is_screen(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal that can move its cursor and show styles."""
    return os.environ.get("TERM") != "dumb" and is_terminal(stream)


def screen_size(stream: TextIO | None) -> os.terminal_size:
    """Return the columns and lines of the terminal behind `stream`.

    The environment's COLUMNS and LINES take precedence; the default is 80 and 24.
    """
    columns, lines = (_number_of(name) for name in ("COLUMNS", "LINES"))
    if not (columns and lines) and stream is not None:
        with contextlib.suppress(OSError, ValueError):
            found = os.get_terminal_size(stream.fileno())
            columns, lines = columns or found.columns, lines or found.lines
    return os.terminal_size((columns or 80, lines or 24))


def _number_of(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def wrapped(line: str, stream: TextIO | None = None, *, indent: int = 2) -> str:
    """Wrap `line` between words if the stream is a terminal; None for stderr.

    From a command on it is not wrapped, so that the command can be copied, and neither
    is a line that is not ASCII.
    """
    stream = stream or sys.stderr
    if not line.isascii() or not is_screen(stream):
        return line
    width = screen_size(stream).columns
    if len(line) < width:
        return line
    before, command, after = line.partition("rmq ")
    text = before + (command + after).replace(" ", "\0")
    lines = wrap_words(text, width, rest=" " * indent)
    return "\n".join(lines).replace("\0", " ")


def wrap_words(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Break a text between words only, with `first` and `rest` before its lines."""
    import textwrap  # few commands write texts that are that long

    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


@dataclass(slots=True)
class Messages:
    """Writes messages to stderr; with `quiet`, only warnings and errors."""

    quiet: bool = False
    color: str = "auto"
    #: why stdout does not have the result of a change, which stderr then has
    output_error: OSError | None = field(default=None, init=False)
    _on_progress_line: bool = field(default=False, init=False)

    def info(self, text: str) -> None:
        """Write a note, as one line; with `-q`, write nothing.

        Newlines are escaped, so that a name that contains one does not look like two
        lines.
        """
        if not self.quiet:
            self.write_line(wrapped(safe(text)))

    def traceback(self, text: str) -> None:
        """Write a traceback, whose newlines are kept."""
        self.write_line(safe(text, keep_newlines=True))

    def warn(self, text: str) -> None:
        """Write a warning: something is wrong, but the command continues."""
        self._labelled("warning", _YELLOW, text)

    def warn_of_weak(self, count: int) -> None:
        """Warn of messages that are stored, but may be lost with their broker."""
        if count:
            self.warn(
                f"{counted(count, 'message is', 'messages are')} stored, but the broker"
                " could not flush or replicate them in time"
            )

    def error(self, text: str, *, hint: str = "", detail: str = "") -> None:
        """Write an error: `text`, `detail` such as carets below it, and a hint."""
        self._labelled("error", _RED, text, detail=safe(detail))
        if hint:
            self._labelled("hint", _CYAN, hint)

    def progress(self, text: str) -> None:
        """Show `text` in place on a terminal; do nothing elsewhere, and with `-q`.

        `rmqcli.cli.ui.progress` writes lines elsewhere, and limits how often.
        """
        if not self.quiet and is_terminal(sys.stderr):
            self._write(ERASE_LINE + safe(text))
            self._on_progress_line = bool(text)

    def draw(self, line: str) -> None:
        """Show `line`, which must be escaped and fit the terminal, in place."""
        if not self.quiet:
            self._write(ERASE_LINE + line)
            self._on_progress_line = True

    def clear_progress(self) -> None:
        """Remove the line that `progress` or `draw` shows."""
        if self._on_progress_line:
            self._on_progress_line = False
            self._write(ERASE_LINE)

    def _labelled(self, label: str, color: str, text: str, *, detail: str = "") -> None:
        line = wrapped(f"{label}: {safe(text)}")
        if detail:
            first, *rest = line.split("\n")
            # Carets belong to the first line, unless their text goes on in the next.
            found = [detail, *rest] if len(detail) <= len(first) else [*rest, detail]
            line = "\n".join([first, *found])
        if color_is_on(self.color, sys.stderr):
            line = f"{color}{label}:{_RESET}{line.removeprefix(f'{label}:')}"
        self.write_line(line)

    def write_line(self, text: str) -> None:
        """Write `text`, which must be escaped already, as a line."""
        self.clear_progress()
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        # There is no place left to report that stderr does not work.
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(text)
                sys.stderr.flush()
