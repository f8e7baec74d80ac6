"""`rmq`: finds the command, runs it, and turns every error into text and an exit code.

Only this module turns an exception into a message for the user. No layer below prints
an error or calls `sys.exit`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from rmqcli.cli.arguments.arrange import arrange
from rmqcli.cli.arguments.parse import parse
from rmqcli.cli.commands import COMMANDS, CommandEntry
from rmqcli.cli.ui import interrupts
from rmqcli.errors import ExitCode


def run(arguments: Sequence[str], *, table: Sequence[CommandEntry] = COMMANDS) -> int:
    """Run `rmq` with `arguments` and return its exit code. Never raises, never exits.

    Writes to the current `sys.stdout` and `sys.stderr`, which tests replace.
    """
    try:
        result = _run(arguments, table)
        if sys.stdout is not None:
            sys.stdout.flush()  # while a full disk or a closed pipe can be reported
    except BaseException as error:  # noqa: BLE001  # the one boundary
        from rmqcli.cli.configuration.output import output_by_profile
        from rmqcli.cli.ui import errors as failures

        return failures.report(error, arguments, output_by_profile)
    return int(result) if isinstance(result, int) else ExitCode.OK


def _run(arguments: Sequence[str], table: Sequence[CommandEntry]) -> object:
    """Run the command and return its result.

    Typer, which is slow to load, is used only for arguments that `parse` declines, and
    for another table than COMMANDS.
    """
    words = arrange(arguments, [entry.path for entry in table])
    parsed = parse(words, os.environ) if table is COMMANDS else None
    if parsed is None:
        from rmqcli.cli.arguments.unusual import run_unusual

        return run_unusual(words, table)
    entry = next(each for each in table if each.path == parsed.path)
    return entry.load().run(parsed.values, parsed.typed)


def main(table: Sequence[CommandEntry] = COMMANDS) -> NoReturn:
    """Run `rmq` as a process."""
    prepare_stdout()
    interrupts.install()
    code = run(sys.argv[1:], table=table)
    interrupts.ignore()
    sys.exit(code)


def prepare_stdout() -> None:
    """Make stdout UTF-8 with a buffer, also if PYTHONUNBUFFERED took that away.

    Without a buffer, when a pipe takes only a part of a write because a signal came,
    Python drops the rest without an error. A terminal keeps its encoding.
    """
    if sys.stdout is None:  # closed by the caller: `rmq ... >&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # lives as long as we do
    if not isinstance(sys.stdout, io.TextIOWrapper):
        return
    is_terminal = sys.stdout.isatty()
    encoding = None if is_terminal else "utf-8"
    sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")
    raw = sys.stdout.buffer
    if isinstance(raw, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
            line_buffering=is_terminal,
        )
