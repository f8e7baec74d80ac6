"""What people read, on stderr: notes, warnings, errors, progress.

Data never goes here. Every text is made safe for a terminal on its way out, and a
stderr that is closed or gone is no reason to fail.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass, field
from typing import TextIO

from rmqcli.cli.ui.escape import safe

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
    except (OSError, ValueError):  # closed under us
        return False


def is_screen(stream: TextIO | None) -> bool:
    """Whether `stream` is a terminal that can move its cursor and show styles."""
    return os.environ.get("TERM") != "dumb" and is_terminal(stream)


def screen_size(stream: TextIO | None) -> os.terminal_size:
    """Columns and lines of the terminal behind `stream`; COLUMNS and LINES go first.

    80 columns and 24 lines where the terminal does not say.
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


def _wrapped(line: str) -> str:
    """On a terminal, `line` broken between words.

    Not where it holds a command: that must stay whole, to be copied.
    """
    if not line.isascii() or "rmq " in line or not is_screen(sys.stderr):
        return line
    width = screen_size(sys.stderr).columns
    if len(line) < width:
        return line
    import textwrap  # only for the few lines that are that long

    return textwrap.fill(
        line,
        width,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


@dataclass(slots=True)
class Messages:
    """Writes to people on stderr. `quiet` leaves only warnings and errors."""

    quiet: bool = False
    color: str = "auto"
    _on_progress_line: bool = field(default=False, init=False)

    def info(self, text: str) -> None:
        """Say something that is good to know, in one line. Nothing with `-q`.

        A newline is shown as such: a name that has one must not look like two lines.
        """
        if not self.quiet:
            self.write_line(_wrapped(safe(text)))

    def traceback(self, text: str) -> None:
        """Show a traceback, which has lines of its own."""
        self.write_line(safe(text, keep_newlines=True))

    def warn(self, text: str) -> None:
        """Say that something is not as it should be, though work goes on."""
        self._labelled("warning", _YELLOW, text)

    def error(self, text: str, *, hint: str = "", detail: str = "") -> None:
        """Say what failed, in three lines at most: what, `detail` below it, a hint."""
        self._labelled("error", _RED, text)
        if detail:
            self.write_line(safe(detail))
        if hint:
            self._labelled("hint", _CYAN, hint)

    def progress(self, text: str) -> None:
        """Show `text` in place on a terminal; elsewhere, and with `-q`, nothing.

        For lines elsewhere use `rmqcli.cli.ui.progress`, which also limits how often.
        """
        if not self.quiet and is_terminal(sys.stderr):
            self._write(ERASE_LINE + safe(text))
            self._on_progress_line = bool(text)

    def draw(self, line: str) -> None:
        """Show `line`, which is safe and fits the terminal, in place."""
        if not self.quiet:
            self._write(ERASE_LINE + line)
            self._on_progress_line = True

    def clear_progress(self) -> None:
        """Take away what `progress` shows."""
        if self._on_progress_line:
            self._on_progress_line = False
            self._write(ERASE_LINE)

    def _labelled(self, label: str, color: str, text: str) -> None:
        if color_is_on(self.color, sys.stderr):
            label = f"{color}{label}:{_RESET}"
        else:
            label = f"{label}:"
        self.write_line(_wrapped(f"{label} {safe(text)}"))

    def write_line(self, text: str) -> None:
        """Write `text`, which is safe already, as a line of its own."""
        self.clear_progress()
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        # There is no place left to report that stderr does not work.
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(text)
                sys.stderr.flush()
