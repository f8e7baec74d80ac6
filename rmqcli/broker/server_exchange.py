"""One request through a core, with the faults that were asked for. Socket-free.

A frame is decoded, maybe harmed, and handed to the core; an answer of the core is maybe
harmed, and written. An exception in a core becomes an answer with code 1.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from rmqcli.broker.faults import (
    Answer,
    Corrupt,
    Delay,
    Disconnect,
    Drop,
    Reorder,
    damaged,
)
from rmqcli.errors import FrameError, HeaderError
from rmqcli.one_line_log import one_line
from rmqcli.wire.codes import LanguageCode, ResponseCode
from rmqcli.wire.command import (
    RESPONSE_FLAG,
    RemotingCommand,
    decode_command,
    encode_command,
)
from rmqcli.wire.frame import SerializeType
from rmqcli.wire.version import V5_5_0

if TYPE_CHECKING:
    from rmqcli.broker.effects import Send
    from rmqcli.broker.faults import Action
    from rmqcli.broker.server import Server
    from rmqcli.broker.server_connection import Connection
    from rmqcli.wire.frame import Frame

logger = one_line(logging.getLogger(__name__))

_REMARK_MAX: Final = 1_000
_MARKS_MAX: Final = 10_000


def handle_frame(server: Server, connection: Connection, frame: Frame) -> None:
    """Take one frame of a client; whatever is in it, only its sender suffers."""
    port = connection.port
    try:
        command = decode_command(frame)
    except HeaderError as error:
        logger.debug("%s closed: %s", connection.peer.address, error)
        server.finish(connection)
        return
    if port.faults is not None and not command.is_response:
        action = port.faults.decide(port.name, command)
        if action is not None and not _begin(server, connection, command, action):
            return
    is_binary = frame.serialize_type == SerializeType.ROCKETMQ
    core = port.core
    if core is None:
        return
    port.was_used = True
    try:
        effects = core.handle(
            connection.peer, command, server.now(), is_binary=is_binary
        )
    except Exception as error:
        logger.exception("%s failed at request code %d", port.name, command.code)
        remark = f"{type(error).__name__}: {error}"[:_REMARK_MAX]
        _answer(server, connection, command, code=1, remark=remark)
        return
    server.apply(effects)


def deliver(server: Server, connection: Connection, effect: Send) -> None:
    """Write an answer or a push of a core."""
    command = effect.command
    data = _encoded(command, is_binary=effect.is_binary)
    if connection.marks and command.is_response:
        action = connection.marks.pop(command.opaque, None)
        if action is not None:
            _end(server, connection, data, action)
            return
    server.write(connection, data)


def _encoded(command: RemotingCommand, *, is_binary: bool) -> bytes:
    if is_binary:
        try:
            return encode_command(command, SerializeType.ROCKETMQ)
        except HeaderError:
            pass  # a code of more than 16 bits: JSON can say it
    try:
        return encode_command(command)
    except FrameError as error:
        return encode_command(_refusal(command, code=1, remark=error.message))


def _begin(
    server: Server, connection: Connection, command: RemotingCommand, action: Action
) -> bool:
    """What a fault does before the core sees the request; whether it still does."""
    match action:
        case Answer():
            _answer(
                server,
                connection,
                command,
                code=action.code,
                remark=action.remark,
                ext_fields=action.ext_fields,
                body=action.body,
            )
            return False
        case Drop(is_handled=False):
            return False
        case Disconnect(is_handled=False):
            server.finish(connection)
            return False
        case _:
            if not command.is_oneway and len(connection.marks) < _MARKS_MAX:
                connection.marks[command.opaque] = action
            return True


def _end(server: Server, connection: Connection, data: bytes, action: Action) -> None:
    """What a fault does with the answer."""
    match action:
        case Disconnect():
            server.finish(connection)
        case Delay():
            due_ms = server.now().monotonic_ms + action.delay_ms
            server.agenda.at(due_ms, lambda _now: _write_late(server, connection, data))
        case Reorder():
            connection.held_back.append(data)
        case Corrupt():
            server.write(connection, damaged(data, action.part))
        case _:
            return  # Drop: nobody learns of it


def _write_late(server: Server, connection: Connection, data: bytes) -> None:
    if connection.peer.number in connection.port.connections:
        server.write(connection, data)


def _answer(
    server: Server,
    connection: Connection,
    command: RemotingCommand,
    *,
    code: int,
    remark: str | None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> None:
    if command.is_oneway or command.is_response:
        return
    answer = _refusal(command, code=code, remark=remark)
    answer.ext_fields = ext_fields or {}
    answer.body = body
    server.write(connection, encode_command(answer))


def _refusal(
    command: RemotingCommand, *, code: int, remark: str | None
) -> RemotingCommand:
    return RemotingCommand(
        code=ResponseCode.SYSTEM_ERROR if code == 1 else code,
        language=int(LanguageCode.JAVA),
        version=V5_5_0,
        opaque=command.opaque,
        flag=RESPONSE_FLAG,
        remark=remark,
    )
