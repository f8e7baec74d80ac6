r"""Keeps every log record on one line, whatever names and remarks of peers are in it.

A program that uses the library chooses the format of its log, and most formats print a
message as it is. A newline in a group's name, a broker's name or a remark would then
begin a line that looks like another record. So a newline is shown as `\n`.
"""

from __future__ import annotations

import logging


def get_logger(name: str) -> logging.Logger:
    """Return the logger of that name, which escapes control characters in arguments.

    Tracebacks are not changed; they have several lines anyway.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(each, _OneLine) for each in logger.filters):
        logger.addFilter(_OneLine())
    return logger


class _OneLine(logging.Filter):
    """Escapes the arguments of a record and lets every record pass.

    It runs only for records whose level is enabled.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_visible, record.args))
        return True


def _visible(argument: object) -> object:
    if argument is None or isinstance(argument, int | float):
        return argument  # for %d
    text = str(argument)
    if text.isprintable():
        return argument
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
