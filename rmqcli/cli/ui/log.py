"""Configures the package's log: escaped lines on stderr, at the level of `-v` or `-q`.

No other module configures logging. The level is WARNING by default, INFO with `-v`,
DEBUG with `-vv`, and ERROR with `-q`.
"""

from __future__ import annotations

import logging
import sys

from rmqcli.cli.ui.escape import safe
from rmqcli.cli.ui.messages import ERASE_LINE, is_screen, wrapped


class _SafeFormatter(logging.Formatter):
    """Formats a record as one escaped line, followed by a traceback with `-vv`.

    The module that logged it is named with `-v`.
    """

    def __init__(self, *, with_name: bool, with_traceback: bool) -> None:
        super().__init__()
        self._with_name = with_name
        self._with_traceback = with_traceback

    def format(self, record: logging.LogRecord) -> str:
        name = f"{record.name.removeprefix('rmqcli.')}: " if self._with_name else ""
        line = f"{record.levelname.lower()}: {name}{safe(record.getMessage())}"
        line = wrapped(line)
        if record.exc_info and self._with_traceback:
            trace = self.formatException(record.exc_info)
            line += "\n" + safe(trace, keep_newlines=True)
        return line


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]  # no subscript at run time
    """Writes to the current `sys.stderr`, which tests replace.

    On a terminal, a line that is drawn in place is erased first.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if sys.stderr is not None:
            self.stream = sys.stderr
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        return ERASE_LINE + line if is_screen(sys.stderr) else line


def configure(*, verbose: int, quiet: bool) -> None:
    """Send the `rmqcli` logger to stderr at the level that the flags ask for."""
    level = logging.ERROR if quiet else logging.WARNING
    if verbose:
        level = logging.INFO if verbose == 1 else logging.DEBUG
    logger = logging.getLogger("rmqcli")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = _StderrHandler(sys.stderr)
    handler.setFormatter(
        _SafeFormatter(with_name=verbose >= 1, with_traceback=verbose >= 2)
    )
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    logging.raiseExceptions = False  # a closed stderr is not an error
