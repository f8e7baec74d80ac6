"""Reading a request's body. Source: `RemotingSerializable` in apache/rocketmq."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rmqcli.broker.request import Refusal
from rmqcli.errors import WireError
from rmqcli.wire.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.broker.request import Request

T = TypeVar("T")


def read_body(parse: Callable[[bytes], T], request: Request) -> T:
    """What `parse` makes of the body.

    Raises Refusal(1) where it cannot be read, as a Java broker answers its exception.
    """
    try:
        return parse(bytes(request.command.body))
    except WireError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, error.message) from error
