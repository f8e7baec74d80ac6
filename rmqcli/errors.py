"""The tree of errors, and the exit codes of `rmq` that it maps to.

    RmqError                     everything rmqcli raises on purpose
    ├── UsageError               2: a call that is not possible as it was made
    │   └── ConfigError          a value that cannot be used; also a ValueError
    │       └── TextError        a text that does not follow its grammar
    ├── WireError                a peer's bytes do not follow the protocol
    │   ├── FrameError           not a remoting frame: the connection is lost
    │   ├── HeaderError          a frame whose header cannot be read
    │   ├── BodyError            an answer's JSON body cannot be read
    │   └── DecodeError          a stored message cannot be read; its neighbours can
    ├── TransportError           5
    │   ├── ConnectError         no connection; also a ConnectionError
    │   ├── NoBrokerError        no broker is registered, or none answers
    │   ├── DisconnectedError    the connection ended before the answer
    │   ├── DeadlineError        no answer in time; also a TimeoutError
    │   └── SendUnknownError     a message was sent and may be stored, or not
    ├── TimeLimitError           an operation took longer than its caller allowed
    ├── BrokerError              the peer answered with an error code
    │   ├── NotFoundError        3
    │   ├── DeniedError          4
    │   ├── FilterError          2: a filter expression that cannot be read
    │   └── BusyError            1, worth a retry
    ├── AckError                 messages that were not acknowledged
    ├── ReceiptHandleError       the receipt handle of a message is no longer valid
    ├── UnsupportedError         the broker, or a proxy, cannot do it
    │   └── StaticTopicError     nothing here can read or change a static topic
    ├── StorageError             the storage of an export refused a request or failed
    │   ├── StorageNotFoundError 3: the bucket or file system does not exist
    │   ├── StorageDeniedError   4
    │   └── StorageUnreachableError  5, worth a retry
    ├── PartialError             6: some was done or read, some was not
    │   └── ChangeUnknownError   a change was requested and may be made, or not
    └── RefusedError             7: the state changed, or no confirmation was given

A value of a wrong type is a TypeError of Python's, whose message names the argument.
The numbers are exit codes; an error without one has exit code 1 or that of its base
class.

Instances can be pickled, because Spark sends them from a worker to the driver.
Therefore every class keeps its state in `self.args` or in plain attributes, and is
rebuilt from `args` and `__dict__`.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar, Literal, NamedTuple, Self


class ExitCode(enum.IntEnum):
    """The exit codes of `rmq`. They are part of the public interface."""

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
    """The base class of the errors that rmqcli raises on purpose.

    `message` says what happened in the user's terms; `hint` is one thing to try next,
    or empty. `retriable` is true when the same operation may succeed if it is repeated,
    and `exit_code` is that of a command that ends with the error. `may_be_done` is
    whether the peer, or the broker behind a proxy, may have done what was requested.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    retriable: ClassVar[bool] = False
    may_be_done: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # The default passes self.args to the class, which not every signature accepts.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[RmqError], args: tuple[object, ...], state: dict[str, object]
) -> RmqError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(RmqError):
    """A call is not possible as it was made, or not in the present state."""

    exit_code = ExitCode.USAGE


class ConfigError(UsageError, ValueError):
    """An argument, a setting, a settings file or a secret cannot be used as it is."""


class TextError(ConfigError):
    """A text does not follow its grammar: `text[start:end]` is the wrong part.

    Without `start` and `end` the whole text is.
    `message` quotes the whole text first, so that a caret can be drawn under that part.
    """

    def __init__(
        self,
        text: str,
        what: str,
        *,
        start: int = 0,
        end: int | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(f"{text!r}: {what}", hint=hint)
        self.text = text
        self.what = what
        self.start = start
        self.end = len(text) if end is None else end
        #: the option or argument that the text was given to; the command line sets it
        self.option = ""


class WireError(RmqError):
    """A peer's bytes do not follow the protocol or the format."""


class FrameError(WireError):
    """Bytes that are not a remoting frame.

    The connection cannot be used any more, because the next frame cannot be found.
    """


class HeaderError(WireError):
    """A frame whose header cannot be read."""


class BodyError(WireError):
    """The body of an answer cannot be read."""

    may_be_done = True  # perhaps the answer says so


class DecodeError(WireError):
    """A stored message cannot be read."""


class TransportError(RmqError):
    """A peer could not be reached or did not answer.

    `address` is the peer's, or several addresses separated by semicolons. `is_grpc` is
    whether the peer's first bytes were those of a gRPC server.
    """

    exit_code = ExitCode.UNREACHABLE
    retriable = True
    is_grpc: bool = False
    may_be_done = True

    def __init__(self, message: str, *, address: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.address = address


class ConnectError(TransportError, ConnectionError):
    """No connection to this address could be made."""

    may_be_done = False


class NoBrokerError(TransportError):
    """The name server knows no broker, or none of those that it knows answers.

    Then nothing is known about topics and groups: a topic that has a name server's
    route only while its broker is registered may well exist.
    """

    may_be_done = False


class DisconnectedError(TransportError):
    """The connection ended, or broke the protocol, before the answer arrived."""


class DeadlineError(TransportError, TimeoutError):
    """No answer came in time. Whether the peer acted on the request is unknown.

    `was_asked` is false where the time was over before anything was sent to the peer.
    """

    was_asked: bool = True


class SendUnknownError(TransportError):
    """A message was sent and no answer came: the broker may have stored it.

    A proxy answers, but cannot know it either once it has lost its broker. Sending the
    message again may store it twice. The producer has done that only after a lost
    connection to a broker, and under the same id. `msg_ids` are the ids (UNIQ_KEY) of
    the message or of the messages of a batch; with them the broker's index finds what
    was stored. The cause is the last DeadlineError or DisconnectedError.
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
    """An operation took longer than its caller allowed. It may still succeed."""


class BrokerError(RmqError):
    """A peer answered with a code other than success.

    `code` is RocketMQ's ResponseCode or, from a proxy, the Code of the gRPC protocol;
    `name` is its name (or its number as text), by default that of an enum's member.
    `remark` is the peer's own text, which is not yet safe for a terminal. `address` is
    the peer's, or empty.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int,
        name: str = "",
        remark: str = "",
        address: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.code = int(code)
        self.name: str = name or getattr(code, "name", "")
        self.remark = remark
        self.address = address


NameKind = Literal["topic", "group", "broker", "cluster"]


class Missing(NamedTuple):
    """A name that does not exist, and what kind of thing it would name."""

    kind: NameKind
    name: str


class NotFoundError(BrokerError):
    """A topic, group, queue, message or broker does not exist.

    Codes 17, 22, 26, 206 and others. `missing` is the name that was not found, if the
    error is about a topic, group, broker or cluster.
    """

    exit_code = ExitCode.NOT_FOUND
    missing: Missing | None = None


class DeniedError(BrokerError):
    """Permission was denied: by the credentials, or by the topic's settings.

    Code 16, or an AclException in the remark.
    """

    exit_code = ExitCode.DENIED


class FilterError(BrokerError):
    """A proxy, or the broker behind it, cannot read a filter expression."""

    exit_code = ExitCode.USAGE


class BusyError(BrokerError):
    """The peer is overloaded, or not available at the moment (codes 2, 14, 215)."""

    retriable = True


class ReceiptHandleError(RmqError):
    """The receipt handle of a message is not valid, or may not be valid.

    Usually the message's invisible time is over, or was changed by a request that was
    not answered; then the message will be delivered again.
    """


class AckError(RmqError):
    """Messages were not acknowledged, or it is unknown whether they were.

    `failures` has a pair of message and error for each of them; these messages will be
    delivered again when their invisible time is over. All other messages were
    acknowledged.
    """

    def __init__(
        self, message: str, *, failures: tuple[tuple[Any, RmqError], ...], hint: str
    ) -> None:
        super().__init__(message, hint=hint)
        self.failures = failures


class UnsupportedError(RmqError):
    """The broker or the proxy cannot do what was requested.

    A broker may be too old, or have the feature switched off; some operations are not
    possible through a proxy.
    """


class StaticTopicError(UnsupportedError):
    """A topic is a static topic (`mqadmin updateStaticTopic`), which is not supported.

    Its queues are numbered across its brokers and move between them.
    """

    @classmethod
    def of(cls, topic: str) -> Self:
        """Return the error for this topic."""
        return cls(
            f"topic {topic} is a static topic, and those are not supported: its queues"
            " are mapped to queues of several brokers",
            hint="use RocketMQ's own tools, and its clients for Java, for this topic",
        )


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
    """The storage did not answer, or was too busy."""

    exit_code = ExitCode.UNREACHABLE
    retriable = True


class PartialError(RmqError):
    """Some of what was asked for was done or read, and some was not."""

    exit_code = ExitCode.PARTIAL


class ChangeUnknownError(PartialError):
    """A change was requested, and no answer came that can be read: it may be made.

    The cause is the DeadlineError, DisconnectedError or WireError, or the error of the
    broker that passed the request on and got no answer.
    """


class RefusedError(RmqError):
    """Not done: the state differs from the plan, or the change was not confirmed."""

    exit_code = ExitCode.REFUSED


def interrupt_behind(error: BaseException) -> BaseException:
    """Return the KeyboardInterrupt that Python has hidden behind `error`, else `error`.

    An interrupt that reaches `Condition.wait` of `threading` while it takes its lock
    back leaves it as RuntimeError ("release unlocked lock"). So do `Event.wait` and
    `Thread.start`, which wait in the same way.
    """
    hidden = error.__context__
    if isinstance(error, RuntimeError) and isinstance(hidden, KeyboardInterrupt):
        return hidden
    return error
