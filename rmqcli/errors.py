"""The one error tree, and the exit codes it maps to.

    RmqError                     everything rmqcli raises on purpose
    ├── UsageError               bad arguments: 2
    │   └── TextError            a text that breaks its grammar, and where
    ├── WireError                a peer's bytes make no sense
    │   ├── FrameError           not a remoting frame: the connection is lost
    │   ├── HeaderError          a frame whose header cannot be read
    │   ├── BodyError            an answer's JSON body cannot be read
    │   └── DecodeError          a stored message cannot be read; its neighbours can
    ├── TransportError           5
    │   ├── ConnectError         no connection to this address
    │   ├── DisconnectedError    it ended while an answer was due
    │   ├── DeadlineError        no answer in time
    │   └── SendUnknownError     a message was sent and may be stored, or not
    ├── BrokerError              the peer answered with an error code
    │   ├── NotFoundError        3
    │   ├── DeniedError          4
    │   ├── FilterError          2: a filter expression that cannot be read
    │   └── BusyError            1, worth a retry
    ├── AckError                 messages were not acknowledged, and which
    ├── ReceiptHandleError       a received message is not ours any more
    ├── UnsupportedError         this broker's version cannot do it
    ├── StorageError             where an export is written refused it, or failed
    │   ├── StorageNotFoundError 3: the bucket or file system does not exist
    │   ├── StorageDeniedError   4
    │   └── StorageUnreachableError  5, worth a retry
    ├── PartialError             6: some was done or read, some was not
    ├── RefusedError             7: drift, or not confirmed
    └── ConfigError              2: a settings file or secret that cannot be used

Instances can be pickled: Spark carries them from a worker to the driver. For that every
class keeps its state in `self.args` or plain attributes and rebuilds from `__dict__`.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar


class ExitCode(enum.IntEnum):
    """What `rmq` returns to the shell. Part of the public interface."""

    OK = 0
    FAILED = 1  # the broker refused, for a reason not listed below
    USAGE = 2  # bad flags or arguments; also Typer's own code
    NOT_FOUND = 3  # topic, group, message or cluster does not exist
    DENIED = 4  # credentials missing or not allowed
    UNREACHABLE = 5  # no connection, or no answer in time
    PARTIAL = 6  # some of what was asked for could not be done; the rest is shown
    REFUSED = 7  # offsets moved since the plan, or the change was not confirmed
    EMPTY = 8  # nothing to show, and --fail-if-empty was given
    INTERRUPTED = 130  # Ctrl-C or SIGTERM


class RmqError(Exception):
    """Base of every error rmqcli raises on purpose.

    `message` says what happened in the user's terms; `hint` is one thing to try
    next, or empty. `retriable` is true when doing the same again may succeed.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # The default rebuilds from self.args, which is not every class's signature.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[RmqError], args: tuple[object, ...], state: dict[str, object]
) -> RmqError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(RmqError):
    """The command line or an argument of the library makes no sense."""

    exit_code = ExitCode.USAGE


class TextError(UsageError):
    """A text does not follow its grammar: `text[start:end]` is the part at fault.

    `message` quotes the whole text first, so that a caret can be drawn under the part.
    """

    def __init__(
        self, text: str, what: str, *, start: int, end: int, hint: str = ""
    ) -> None:
        super().__init__(f"{text!r}: {what}", hint=hint)
        self.text = text
        self.what = what
        self.start = start
        self.end = end
        #: the option or argument that the text was given to; the command line sets it
        self.option = ""


class ConfigError(RmqError):
    """A settings file or a secret cannot be used as it is."""

    exit_code = ExitCode.USAGE


class WireError(RmqError):
    """Bytes from a peer that cannot be what they should be."""


class FrameError(WireError):
    """Bytes that cannot be a remoting frame. The stream has lost its place."""


class HeaderError(WireError):
    """A frame whose header cannot be read."""


class BodyError(WireError):
    """The body of an answer cannot be read."""


class DecodeError(WireError):
    """A stored message cannot be read."""


class TransportError(RmqError):
    """A peer could not be reached or did not answer."""

    exit_code = ExitCode.UNREACHABLE
    retriable = True

    def __init__(self, message: str, *, address: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.address = address


class ConnectError(TransportError):
    """No connection to this address could be made."""


class DisconnectedError(TransportError):
    """The connection ended, or spoke something else, while an answer was due."""


class DeadlineError(TransportError):
    """No answer came in time. Whether the peer acted on the request is unknown."""


class SendUnknownError(TransportError):
    """A message was sent and no answer came: the broker may have stored it.

    Sending it again may store it twice, so nothing does that without being asked.
    `msg_ids` are the ids of the messages (UNIQ_KEY; one, or those of a batch), by which
    the broker's index finds what was stored. The cause is the last DeadlineError or
    DisconnectedError.
    """

    retriable = False

    def __init__(
        self,
        message: str,
        *,
        address: str,
        msg_ids: tuple[str, ...],
        hint: str = "",
    ) -> None:
        super().__init__(message, address=address, hint=hint)
        self.msg_ids = msg_ids


class TimeLimitError(RmqError):
    """Something took longer than its caller wanted to wait. It may still end well."""


class BrokerError(RmqError):
    """A peer answered with a code other than success.

    `code` is RocketMQ's ResponseCode, `name` its Java name (or its number as text),
    `remark` the peer's own words, not yet made safe for a terminal.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        name: str,
        remark: str = "",
        address: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.name = name
        self.remark = remark
        self.address = address


class NotFoundError(BrokerError):
    """A topic, group, queue or message does not exist (codes 17, 22, 26, 206 ...)."""

    exit_code = ExitCode.NOT_FOUND


class DeniedError(BrokerError):
    """Credentials are missing or not allowed (code 16, or an AclException)."""

    exit_code = ExitCode.DENIED


class FilterError(BrokerError):
    """A proxy, or the broker behind it, cannot read a filter expression."""

    exit_code = ExitCode.USAGE


class BusyError(BrokerError):
    """The peer has too much to do (codes 2, 14, 215)."""

    retriable = True


class ReceiptHandleError(RmqError):
    """The receipt handle of a message is not valid, or may not be.

    Its invisible time is over, or was changed by a request that was not answered. The
    message will be delivered again.
    """


class AckError(RmqError):
    """Messages were not acknowledged, or it is not known that they were.

    `failures` has each of these messages with its own error; all others were
    acknowledged. They will be delivered again when their invisible time is over.
    """

    def __init__(
        self, message: str, *, failures: tuple[tuple[Any, RmqError], ...], hint: str
    ) -> None:
        super().__init__(message, hint=hint)
        self.failures = failures


class UnsupportedError(RmqError):
    """The broker is too old, or has switched off what was asked for."""


class StorageError(RmqError):
    """An object store or file system that an export uses refused a request, or failed.

    `place` is the URL of what was read or written there.
    """

    def __init__(self, message: str, *, place: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.place = place


class StorageNotFoundError(StorageError):
    """The bucket or file system does not exist."""

    exit_code = ExitCode.NOT_FOUND


class StorageDeniedError(StorageError):
    """The credentials are missing, wrong, or not allowed to do this."""

    exit_code = ExitCode.DENIED


class StorageUnreachableError(StorageError):
    """The storage did not answer, or was too busy to do it."""

    exit_code = ExitCode.UNREACHABLE
    retriable = True


class PartialError(RmqError):
    """Some of what was asked for was done or read, and some was not."""

    exit_code = ExitCode.PARTIAL


class RefusedError(RmqError):
    """Not done: the state differs from the plan, or the change was not confirmed."""

    exit_code = ExitCode.REFUSED
