"""Requests that a peer sends down our connection, and what is answered. No I/O.

Source: NettyRemotingAbstract#processRequestCommand in apache/rocketmq.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rmqcli.one_line_log import one_line
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand, encode_command

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqcli.wire.frame import SerializeType

logger = one_line(logging.getLogger(__name__))


def encode_served(
    handler: Callable[[str, RemotingCommand], RemotingCommand | None] | None,
    address: str,
    command: RemotingCommand,
    *,
    serialize_type: SerializeType,
) -> bytes | None:
    """Let `handler` see the request; return the frame to send back, or None.

    A oneway request is never answered, not even with an error. Without a handler the
    answer is code 3; when the handler raises it is code 1, as in Java.
    """
    try:
        answer = _ask(handler, address, command)
        if answer is None or command.is_oneway:
            return None
        return _encode(answer, command.opaque, serialize_type)
    except Exception as error:
        logger.exception("handler failed address=%s code=%d", address, command.code)
        if command.is_oneway:
            return None
        remark = f"{type(error).__name__}: {error}"[:_REMARK_MAX]
        answer = RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        return _encode(answer, command.opaque, serialize_type)


_REMARK_MAX = 1_000


def _ask(
    handler: Callable[[str, RemotingCommand], RemotingCommand | None] | None,
    address: str,
    command: RemotingCommand,
) -> RemotingCommand | None:
    if handler is None:
        return RemotingCommand(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"request code {command.code} is not supported",
        )
    return handler(address, command)


def _encode(
    answer: RemotingCommand, opaque: int, serialize_type: SerializeType
) -> bytes:
    numbered = answer.with_opaque(opaque)
    numbered.flag = RESPONSE_FLAG
    return encode_command(numbered, serialize_type)
