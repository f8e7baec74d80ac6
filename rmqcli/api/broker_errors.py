"""The table by which the code of an answer becomes an error.

Source: ResponseCode and RemotingSysResponseCode in apache/rocketmq; what a code means
to the caller is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import (
    BrokerError,
    BusyError,
    DeniedError,
    NotFoundError,
    UnsupportedError,
)
from rmqcli.wire.codes import ResponseCode, response_name

if TYPE_CHECKING:
    from rmqcli.errors import RmqError
    from rmqcli.wire.command import RemotingCommand

#: A remark is a sentence, or a stack trace whose first lines are enough.
REMARK_MAX = 500

_TABLE: dict[int, tuple[type[BrokerError], str]] = {
    ResponseCode.SYSTEM_BUSY: (BusyError, "try again in a moment"),
    ResponseCode.SERVICE_NOT_AVAILABLE: (
        BusyError,
        "the broker is starting or stopping, is read-only, or its disk is full",
    ),
    ResponseCode.FLOW_CONTROL: (BusyError, "try again in a moment"),
    ResponseCode.NO_PERMISSION: (
        DeniedError,
        "check the topic's permissions and the credentials",
    ),
    ResponseCode.TOPIC_NOT_EXIST: (NotFoundError, "list topics with: Admin.topics()"),
    ResponseCode.QUERY_NOT_FOUND: (NotFoundError, ""),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (
        NotFoundError,
        "list groups with: Admin.groups()",
    ),
    ResponseCode.CONSUMER_NOT_ONLINE: (NotFoundError, ""),
    ResponseCode.NO_MESSAGE: (NotFoundError, ""),
    ResponseCode.BROKER_NOT_EXIST: (
        NotFoundError,
        "list brokers with: Admin.brokers()",
    ),
    ResponseCode.USER_NOT_EXIST: (DeniedError, "check the access key"),
}


def error_of(answer: RemotingCommand, *, what: str, address: str) -> RmqError:
    """Return the error for an answer that is not a success.

    The broker's own text is kept in `remark`, cut to `REMARK_MAX` characters. ACL 1.0
    denies access with the general code 1; for that code the remark decides.
    """
    name = response_name(answer.code)
    remark = (answer.remark or "")[:REMARK_MAX]
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UnsupportedError(
            f"{address} does not support the request for {what}",
            hint="it needs a newer RocketMQ",
        )
    kind, hint = _TABLE.get(answer.code, (BrokerError, ""))
    if answer.code == ResponseCode.SYSTEM_ERROR and "AclException" in remark:
        kind, hint = DeniedError, "check the credentials"
    words = f": {_first_line(remark)}" if remark else ""
    return kind(
        f"{what}: {address} answered {name}{words}",
        code=answer.code,
        name=name,
        remark=remark,
        address=address,
        hint=hint,
    )


def _first_line(remark: str) -> str:
    return remark.strip().split("\n", 1)[0].strip()
