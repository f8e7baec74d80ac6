"""Requests as handlers read them, and the answers that handlers give.

`BrokerRequest` reads the header and `read_body` the body; a handler returns a `Reply`
or raises `Refusal`; `answer_to` adds the fields of the command that handlers do not
set.

Source: `RemotingCommand.createResponseCommand`, `RemotingSerializable` and
`NettyRemotingAbstract.writeResponse` in apache/rocketmq.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from rmqcli.broker.effects import Peer, Send
from rmqcli.dataclass import dataclass
from rmqcli.errors import HeaderError, WireError
from rmqcli.wire.bodies.properties import decode_properties
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import LanguageCode, ResponseCode
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand
from rmqcli.wire.header import Header, from_ext_fields, to_ext_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rmqcli.broker.profiles import VersionProfile
    from rmqcli.clock import Now

#: The largest body with changed settings.
_CONFIG_BYTES_MAX: Final = 256 * 1024

HeaderT = TypeVar("HeaderT", bound=Header)
T = TypeVar("T")


class Refusal(Exception):  # noqa: N818  # an answer rather than an error
    """Raised by a handler to answer with a code other than success."""

    def __init__(
        self,
        code: int,
        remark: str,
        *,
        header: Header | None = None,
        ext_fields: dict[str, str] | None = None,
    ) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.header = header
        self.ext_fields = ext_fields or {}


def system_error(remark: str) -> Refusal:
    """The refusal for all that has no code of its own."""
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def no_permission(remark: str) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark)


def no_topic(remark: str) -> Refusal:
    return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)


def no_group(remark: str) -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)


@dataclass(frozen=True, slots=True)
class Reply:
    """A handler's answer. `ext_fields` are added to the header's.

    `version` is that of the client whose answer is passed on; None for a broker's own.
    """

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    version: int | None = None


def answered(answer: Callable[[], T]) -> T | Reply:
    """Call a handler; return its answer, or the Refusal that it raises, as a Reply."""
    try:
        return answer()
    except Refusal as refusal:
        return Reply(refusal.code, refusal.remark, refusal.header, refusal.ext_fields)


@dataclass(frozen=True, slots=True)
class BrokerRequest:
    """A request, the connection that sent it, and when it arrived."""

    peer: Peer
    command: RemotingCommand
    now: Now
    is_binary: bool = False

    def header(self, cls: type[HeaderT]) -> HeaderT:
        """Return the header as a `cls`.

        Raises Refusal(1) if a mandatory field is missing, as a Java broker answers
        after a NullPointerException, or if a field is not a number.
        """
        try:
            return from_ext_fields(cls, self.command.ext_fields)
        except HeaderError as error:
            raise system_error(error.message) from error

    def body(self, cls: type[T]) -> T:
        """Return the JSON body as a `cls`. Raises Refusal(1) if it cannot be read."""
        return read_body(partial(decode_body, cls), self)


def read_body(parse: Callable[[bytes], T], request: BrokerRequest) -> T:
    """Return the body, read by `parse`.

    Raises Refusal(1) if it cannot be read, as a Java broker answers after an exception.
    """
    try:
        return parse(bytes(request.command.body))
    except WireError as error:
        raise system_error(error.message) from error


def read_config(request: BrokerRequest, black_list: Collection[str]) -> dict[str, str]:
    """Return the settings that a request changes. Raises Refusal: 1 and 16."""
    body = bytes(request.command.body)
    if len(body) > _CONFIG_BYTES_MAX:
        raise system_error(
            f"the configuration has {len(body)} bytes; the maximum is"
            f" {_CONFIG_BYTES_MAX}",
        )
    properties = decode_properties(body)
    if not properties.keys().isdisjoint(black_list):
        raise no_permission("Can not update config in black list.")
    return properties


def answer_to(
    request: BrokerRequest, reply: Reply, profile: VersionProfile
) -> Send | None:
    """Return the answer to a request, or None for a one-way request."""
    command = request.command
    if command.is_oneway:
        return None
    fields = {} if reply.header is None else to_ext_fields(reply.header)
    if reply.ext_fields:
        fields |= reply.ext_fields
    answer = RemotingCommand(
        code=int(reply.code),
        language=int(LanguageCode.JAVA),
        version=profile.version if reply.version is None else reply.version,
        opaque=command.opaque,
        flag=RESPONSE_FLAG,
        remark=reply.remark,
        ext_fields=fields,
        body=reply.body,
    )
    return Send(request.peer, answer, request.is_binary and profile.answers_binary)
