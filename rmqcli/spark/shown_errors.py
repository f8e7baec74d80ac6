"""What Spark shows of an error: it prints only the text, so the hint becomes a line.

`shown_error` reads such a text, where a caller wants the error again.
"""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from rmqcli import errors
from rmqcli.errors import BrokerError, RmqError, TransportError
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How Python names one of our errors at the end of a traceback, and the hint below it.
_SHOWN: Final = re.compile(
    r"^\s*rmqcli\.errors\.(\w+): (.+)$(?:\n\s*hint: (.+)$)?", re.MULTILINE
)
#: The codes of broker errors that have an exit code of their own: a text has none.
_CODES: Final = {
    "NotFoundError": ResponseCode.TOPIC_NOT_EXIST,
    "DeniedError": ResponseCode.NO_PERMISSION,
    "BusyError": ResponseCode.SYSTEM_BUSY,
}
#: What begins each line that `warn` writes.
_WARNING: Final = "rocketmq: "


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
    sys.stderr.write(f"{_WARNING}{text}\n")
    sys.stderr.flush()


def shown_warnings(log: str) -> list[str]:
    """The texts that `warn` wrote to a log, each once, in the order of the first."""
    found = [line for line in log.splitlines() if line.startswith(_WARNING)]
    return [line.removeprefix(_WARNING) for line in dict.fromkeys(found)]


def shown_error(text: str) -> RmqError | None:
    """The last error of ours in a text of Spark's, None where it has none.

    An error whose attributes are not in its text becomes the nearest kind that needs
    none, with the same exit code.
    """
    found = _SHOWN.findall(text)
    if not found:
        return None
    name, message, hint = found[-1]
    kind: Any = getattr(errors, name, RmqError)
    if name in _CODES:
        code = _CODES[name]
        made: RmqError = kind(message, code=code, name=code.name, hint=hint)
    elif issubclass(kind, TransportError):
        made = TransportError(message, address="", hint=hint)
    elif issubclass(kind, BrokerError) or kind.__init__ is not RmqError.__init__:
        made = RmqError(message, hint=hint)
    else:
        made = kind(message, hint=hint)
    return made
