"""What becomes of a reply: the frame's fields that no processor thinks of.

Source: `NettyRemotingAbstract.writeResponse` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.effects import Send
from rmqcli.wire.codes import LanguageCode
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand
from rmqcli.wire.header import to_ext_fields

if TYPE_CHECKING:
    from rmqcli.broker.profiles import Manners
    from rmqcli.broker.request import Reply, Request


def answer_to(request: Request, reply: Reply, manners: Manners) -> Send | None:
    """The answer to a request; None for a one-way request, which gets none."""
    command = request.command
    if command.is_oneway:
        return None
    fields = {} if reply.header is None else to_ext_fields(reply.header)
    if reply.ext_fields:
        fields |= reply.ext_fields
    answer = RemotingCommand(
        code=int(reply.code),
        language=int(LanguageCode.JAVA),
        version=manners.version,
        opaque=command.opaque,
        flag=RESPONSE_FLAG,
        remark=reply.remark,
        ext_fields=fields,
        body=reply.body,
    )
    return Send(request.peer, answer, request.is_binary and manners.answers_binary)
