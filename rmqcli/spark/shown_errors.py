"""Add hints to the errors that Spark shows, and recreate errors from Spark's texts.

Spark prints only the text of an error, so `with_hints` appends the hint to the text.
`shown_error` recreates the error from such a text.
"""

from __future__ import annotations

import contextlib
import copy
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from rmqcli import errors
from rmqcli.errors import BrokerError, NotFoundError, RmqError, TransportError
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.api.client import Client
    from rmqcli.config import ClientConfig

#: An RmqError at the end of a Python traceback, and the hint on the line below it.
_SHOWN: Final = re.compile(
    r"^\s*rmqcli\.errors\.(\w+): (.+)$(?:\n\s*hint: (.+)$)?", re.MULTILINE
)
#: The codes for recreated broker errors whose class has its own exit code, because the
#: text does not contain the code.
_CODES: Final = {
    "NotFoundError": ResponseCode.TOPIC_NOT_EXIST,
    "DeniedError": ResponseCode.NO_PERMISSION,
    "BusyError": ResponseCode.SYSTEM_BUSY,
}
#: The prefix of each line that `warn` writes.
_WARNING: Final = "rocketmq: "


@contextlib.contextmanager
def with_hints() -> Iterator[None]:
    """Give an RmqError that the block raises a text of two lines: message and hint.

    Its traceback is dropped, because it would hide these lines.
    """
    try:
        yield
    except RmqError as error:
        shown = copy.copy(error)
        if error.hint:
            shown.args = (f"{error.message}\nhint: {error.hint}",)
        raise shown from None


@contextlib.contextmanager
def open_client(config: ClientConfig) -> Iterator[Client]:
    """Open a client for the block, whose NotFoundErrors say which name was meant."""
    from rmqcli.api.client import Client

    with Client(config) as client:
        try:
            yield client
        except NotFoundError as error:
            from rmqcli.admin.mistakes import explain_missing

            raise explain_missing(client, error) from None


def warn(text: str) -> None:
    """Write a line to stderr, which Spark keeps in the logs of its Python processes."""
    sys.stderr.write(f"{_WARNING}{text}\n")
    sys.stderr.flush()


def shown_warnings(log: str) -> list[str]:
    """The texts that `warn` wrote to a log, without duplicates, in their order."""
    found = [line for line in log.splitlines() if line.startswith(_WARNING)]
    return [line.removeprefix(_WARNING) for line in dict.fromkeys(found)]


class LoggedWarnings:
    """The texts that `warn` writes to a log while Spark runs."""

    def __init__(self, log_path: str) -> None:
        self._log_path = log_path
        #: how much of the log was read, and the texts that were returned
        self._read_bytes = 0
        self._returned: set[str] = set()

    def new(self) -> list[str]:
        """The texts that were not returned before, without duplicates."""
        new: list[str] = []
        with open(self._log_path, "rb") as file:
            file.seek(self._read_bytes)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # the rest of it is still to be written
                self._read_bytes += len(line)
                if line.startswith(_WARNING.encode()):
                    new += shown_warnings(line.decode(errors="replace"))
        new = [each for each in dict.fromkeys(new) if each not in self._returned]
        self._returned.update(new)
        return new


def shown_error(text: str) -> RmqError | None:
    """The last RmqError that Spark's text contains; None when it contains none.

    If the error's class has attributes that are not in the text, the result is of the
    nearest class without them that has the same exit code.
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
