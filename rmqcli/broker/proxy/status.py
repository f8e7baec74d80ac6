"""Statuses of answers: success, and refusals by handlers and by brokers.

A failed call ends with the gRPC status OK; the body of its answer has a status that
describes the failure.

Source: `ResponseBuilder` and `GrpcProxyException` in apache/rocketmq.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rmqcli.errors import RmqError, WireError
from rmqcli.log import get_logger
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.protobuf.definition_pb2 import Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqcli.wire.command import RemotingCommand

logger = get_logger(__name__)

_MESSAGE_CHARACTERS_MAX: Final = 1_000

#: A broker's response code -> the status; all others become INTERNAL_SERVER_ERROR.
_CODES: Final = {
    int(ResponseCode.SUCCESS): Code.OK,
    int(ResponseCode.SYSTEM_BUSY): Code.TOO_MANY_REQUESTS,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): Code.NOT_IMPLEMENTED,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): Code.CONSUMER_GROUP_NOT_FOUND,
    int(ResponseCode.TOPIC_NOT_EXIST): Code.TOPIC_NOT_FOUND,
    int(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED): (
        Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    ),
}


class ProxyError(Exception):
    """Raised by a handler to answer with a status other than OK."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def internal_error(message: str) -> ProxyError:
    """The error for all that has no code of its own."""
    return ProxyError(Code.INTERNAL_SERVER_ERROR, message)


def ok() -> Status:
    """The status of a call that succeeded."""
    return status(Code.OK)


def status(code: Code, message: str | None = None) -> Status:
    """Return a status. The default message is the code's name."""
    text = Code.Name(code) if message is None else message
    return Status(code=code, message=text[:_MESSAGE_CHARACTERS_MAX])


def common_status(codes: Iterable[Code], *, empty: str) -> Status:
    """Return the status of an answer with entries: theirs, if all have the same code.

    `empty` is the message if there are no entries.
    """
    found = set(codes)
    if not found:
        return status(Code.INTERNAL_SERVER_ERROR, empty)
    return status(found.pop() if len(found) == 1 else Code.MULTIPLE_RESULTS)


def status_of(error: Exception) -> Status:
    """Return the status for an exception; one that is not expected is logged."""
    if isinstance(error, ProxyError):
        return status(error.code, error.message)
    if isinstance(error, RmqError):
        return status(Code.INTERNAL_SERVER_ERROR, error.message)
    logger.error("call of the proxy failed", exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


@contextmanager
def reading_answer() -> Iterator[None]:
    """Raise ProxyError in place of WireError: a broker's answer cannot be read."""
    try:
        yield
    except WireError as error:
        raise internal_error(error.message) from error


def refused(answer: RemotingCommand) -> ProxyError:
    """Return the error for a failed answer of a broker or name server."""
    code = _CODES.get(answer.code, Code.INTERNAL_SERVER_ERROR)
    return ProxyError(code, answer.remark or str(answer.code))
