"""What Spark shows of an error: it prints only the text, so the hint becomes a line."""

from __future__ import annotations

import contextlib
import copy
import sys
from typing import TYPE_CHECKING

from rmqcli.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def with_hints() -> Iterator[None]:
    """Give an RmqError of the block a text of two lines: what happened, what to try.

    Where it was raised in here would only be in the way of reading them.
    """
    try:
        yield
    except RmqError as error:
        shown = copy.copy(error)
        if error.hint:
            shown.args = (f"{error.message}\nhint: {error.hint}",)
        raise shown from None


def warn(text: str) -> None:
    """Write a line to stderr: Spark keeps what its Python processes write there."""
    sys.stderr.write(f"rocketmq: {text}\n")
    sys.stderr.flush()
