r"""Log records of one line each, whatever names and remarks of peers are in them.

A program that uses the library formats its log as it likes, and most formats print a
message as it is. A newline in a group's name, a broker's name or a remark would then
begin a line that looks like another record: it is shown as `\n`.
"""

from __future__ import annotations

import logging


def get_logger(name: str) -> logging.Logger:
    """The logger of that name; control characters in what it logs are made visible.

    Tracebacks stay as they are: they are of several lines anyway.
    """
    logger = logging.getLogger(name)
    if not any(isinstance(each, _OneLine) for each in logger.filters):
        logger.addFilter(_OneLine())
    return logger


class _OneLine(logging.Filter):
    """Lets every record pass. Runs only for records that some handler may take."""

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
