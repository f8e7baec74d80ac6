"""The table by which the code of an answer becomes an error.

Source: ResponseCode and RemotingSysResponseCode in apache/rocketmq; what a code means
to the caller is decided here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rmqcli.errors import (
    BrokerError,
    BusyError,
    DeniedError,
    Missing,
    NotFoundError,
    UnsupportedError,
)
from rmqcli.hint import Hint, LibraryCall
from rmqcli.wire.codes import LOST_REQUEST, ResponseCode, response_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.errors import NameKind, RmqError
    from rmqcli.wire.command import RemotingCommand

#: A remark is a sentence, or a stack trace whose first lines are enough.
REMARK_MAX = 500
_NO_ANSWER: Final = re.compile(r"no answer from (\S+) to (.+) in (\d+ ms)")
_LIST_TOPICS: Final = Hint("list topics with: ", LibraryCall("Admin.topics"))
_LIST_GROUPS: Final = Hint("list groups with: ", LibraryCall("Admin.groups"))
_LIST_BROKERS: Final = Hint("list brokers with: ", LibraryCall("Admin.brokers"))

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
    ResponseCode.TOPIC_NOT_EXIST: (NotFoundError, _LIST_TOPICS),
    ResponseCode.QUERY_NOT_FOUND: (NotFoundError, ""),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (NotFoundError, _LIST_GROUPS),
    ResponseCode.CONSUMER_NOT_ONLINE: (NotFoundError, ""),
    ResponseCode.NO_MESSAGE: (NotFoundError, ""),
    ResponseCode.BROKER_NOT_EXIST: (NotFoundError, _LIST_BROKERS),
}


#: Which field of a request has the name that an answer of this code says is missing.
#: `b` is the topic in the short form of a SEND request.
_MISSING: Final[dict[int, tuple[NameKind, tuple[str, ...]]]] = {
    ResponseCode.TOPIC_NOT_EXIST: ("topic", ("topic", "b")),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: ("group", ("consumerGroup", "group")),
}
#: The code of RocketMQ for each kind of name, and how to list those that exist.
_KINDS: Final[dict[NameKind, tuple[ResponseCode, str]]] = {
    "topic": (ResponseCode.TOPIC_NOT_EXIST, _LIST_TOPICS),
    "group": (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, _LIST_GROUPS),
    "broker": (ResponseCode.BROKER_NOT_EXIST, _LIST_BROKERS),
    "cluster": (
        ResponseCode.BROKER_NOT_EXIST,
        Hint("list clusters with: ", LibraryCall("Admin.brokers")),
    ),
}

#: Names of queues for multi-dispatch, and of groups that consume them, begin so.
_LMQ_PREFIX: Final = "%LMQ%"  # MixAll.LMQ_PREFIX


def unanswered(why: str) -> str:
    """Say that a server did not answer, and why; its name comes before that.

    The message of a DeadlineError begins with "no answer", which would say it twice.
    """
    said = _NO_ANSWER.sub(r"\2 to \1 timed out after \3", why)
    return f"did not answer: {said}"


def not_found(
    kind: NameKind,
    name: str,
    *,
    meant: str = "",
    remark: str = "",
    address: str = "",
    hint: str = "",
    is_elsewhere: bool = False,
) -> NotFoundError:
    """Return the error for a topic, group, broker or cluster that does not exist.

    Every such error is made here, so that all of them read alike. `meant` says what the
    name may have been meant to be. `remark` is what the peer at `address` answered;
    both are empty when no single peer said so. With `is_elsewhere` only that peer does
    not have it.
    """
    code, how_to_list = _KINDS[kind]
    where = f" at {address}, though the cluster has it" if is_elsewhere else ""
    says = f"{kind} {name} does not exist{where}{meant and '; ' + meant}"
    if name.startswith(_LMQ_PREFIX):
        says = (
            f"{kind} {name} cannot be looked up: servers list no LMQs or their groups"
        )
        hint = "use the topic to which the messages are sent, and its groups"
    error = NotFoundError(
        says,
        code=code,
        remark=remark,
        address=address,
        hint=hint or how_to_list,
    )
    error.missing = Missing(kind, name)
    return error


def lost_broker(text: str) -> NotFoundError:
    """Return the error, with this text, for a broker that is known and not there."""
    code, how_to_list = _KINDS["broker"]
    return NotFoundError(text, code=code, hint=how_to_list)


def is_nothing_there(error: RmqError) -> bool:
    """Whether a broker answered `view_message_by_id` that it has no such message.

    That is SYSTEM_ERROR, and so is a denial of ACL 1.0.
    """
    return (
        isinstance(error, BrokerError)
        and error.code == ResponseCode.SYSTEM_ERROR
        and not isinstance(error, DeniedError)
    )


def error_of(
    answer: RemotingCommand,
    *,
    what: str,
    address: str,
    fields: Mapping[str, str] | None = None,
) -> RmqError:
    """Return the error for an answer that is not a success.

    `fields` are those of the request. The broker's own text is kept in `remark`, cut to
    `REMARK_MAX` characters. ACL 1.0 denies access with the general code 1; for that
    code the remark decides.
    """
    name = response_name(answer.code)
    remark = (answer.remark or "")[:REMARK_MAX]
    if fields and answer.code in _MISSING:
        kind_of_name, keys = _MISSING[answer.code]
        for missing in filter(None, map(fields.get, keys)):
            return not_found(kind_of_name, missing, remark=remark, address=address)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UnsupportedError(
            f"{address} does not support the request for {what}",
            hint="it needs a newer RocketMQ",
        )
    kind, hint = _TABLE.get(answer.code, (BrokerError, ""))
    if answer.code == ResponseCode.SYSTEM_ERROR and "AclException" in remark:
        kind, hint = DeniedError, "check the credentials"
    if "recall failed, operation is forbidden" in remark:
        hint = "set recallMessageEnable=true on the broker"
    first_line = remark.strip().split("\n", 1)[0].strip()
    words = f": {first_line}" if remark else ""
    error = kind(
        f"{what}: {address} answered {name}{words}",
        code=answer.code,
        name=name,
        remark=remark,
        address=address,
        hint=hint,
    )
    # The peer may be a proxy's remoting port.
    is_internal = answer.code == ResponseCode.SYSTEM_ERROR
    error.may_be_done = is_internal and re.search(LOST_REQUEST, remark) is not None
    return error
