"""Shows text by the user's pager: the program in PAGER, else `less`."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from typing import TextIO

from rmqcli.cli.ui.messages import screen_size

#: `less` ends at once if the text fits, shows styles, and leaves the text there.
_LESS = "FRX"


def show_in_pager(text: str, *, stream: TextIO) -> None:
    """Show `text` by the pager, on whose terminal it has to be; wait for its end.

    Writes to `stream` if the text fits the screen, or PAGER is empty, `cat`, or cannot
    be started. The user may leave the pager at any place; Ctrl-C belongs to the pager.
    """
    words = _pager()
    if words in ([], ["cat"]) or text.count("\n") < screen_size(stream).lines:
        stream.write(text)
        return
    stream.flush()
    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own program
            words,
            stdin=subprocess.PIPE,
            encoding="utf-8",
            env={"LESS": _LESS, **os.environ},
        )
    except OSError:
        stream.write(text)
        return
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        process.communicate(text)
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return


def _pager() -> list[str]:
    """Return the words of the pager's command; none if there is to be no pager."""
    try:
        return shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:  # a quote that is not closed
        return []
