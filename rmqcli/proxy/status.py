"""Convert a status to an error: RocketMQ's codes in an answer, and gRPC's codes.

gRPC reports UNAVAILABLE both when nothing was sent and when the connection ended during
a call. Only its text distinguishes the two cases, and only in the first case can a
message be sent again without the risk of storing it twice.

Source: definition.proto (Code), StatusCode.md in apache/rocketmq-apis.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import grpc

from rmqcli.errors import (
    BrokerError,
    BusyError,
    ConnectError,
    DeadlineError,
    DeniedError,
    DisconnectedError,
    FilterError,
    Missing,
    NoBrokerError,
    NotFoundError,
    RmqError,
    UnsupportedError,
)
from rmqcli.hint import Argument, Blank, Hint, LibraryCall, Setting
from rmqcli.wire.codes import LOST_REQUEST
from rmqcli.wire.protobuf import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

#: A server's text may be a stack trace, of which only the start is kept.
TEXT_MAX: Final = 500

OK: Final = int(pb.Code.OK)
_MULTIPLE: Final = int(pb.Code.MULTIPLE_RESULTS)

_FILTER_HINT: Final = "check the filter expression"
#: The error text of a broker that cannot parse a filter. A proxy passes it on with
#: INTERNAL_SERVER_ERROR, as it does for every code for which it has no counterpart.
_UNREADABLE_FILTER: Final = "parse the consumer's subscription failed"
#: What a proxy says to the settings of a client whose group no broker knows.
_UNKNOWN_GROUP: Final = re.compile(r"group not found: ([%|a-zA-Z0-9_-]+)")
_CREATE_GROUP: Final = Hint("create it with ", LibraryCall("Admin.create_group"))
_CREDENTIALS_HINT: Final = Hint("check ", Argument("credentials"))
#: Hints for what RocketMQ's proxies say with UNAUTHORIZED; it is their only code for
#: calls that are not signed, and for accounts without the right.
_DENIED_HINTS: Final = {
    "username cannot be null": Hint(
        "calls must be signed: give ", Argument("credentials")
    ),
    "has no permission": "give the account the right with mqadmin createAcl, or use"
    " another account",
}
_KINDS: Final[Mapping[int, tuple[type[BrokerError], str]]] = {
    int(pb.Code.UNAUTHORIZED): (DeniedError, _CREDENTIALS_HINT),
    int(pb.Code.PAYMENT_REQUIRED): (DeniedError, ""),
    int(pb.Code.FORBIDDEN): (
        DeniedError,
        "check the topic's permissions and the credentials",
    ),
    int(pb.Code.NOT_FOUND): (NotFoundError, ""),
    int(pb.Code.MESSAGE_NOT_FOUND): (NotFoundError, ""),
    int(pb.Code.TOPIC_NOT_FOUND): (
        NotFoundError,
        Hint(
            "a proxy creates no topics; create it with: ",
            LibraryCall("Admin.create_topic"),
            "; if it was there, check that its brokers run",
        ),
    ),
    int(pb.Code.CONSUMER_GROUP_NOT_FOUND): (NotFoundError, "create the group first"),
    int(pb.Code.OFFSET_NOT_FOUND): (NotFoundError, ""),
    int(pb.Code.TOO_MANY_REQUESTS): (BusyError, "try again in a moment"),
    int(pb.Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE): (
        BrokerError,
        "use a topic whose message.type accepts this kind of message",
    ),
    int(pb.Code.ILLEGAL_FILTER_EXPRESSION): (FilterError, _FILTER_HINT),
}
_UNSUPPORTED: Final = frozenset(
    map(
        int,
        (
            pb.Code.NOT_IMPLEMENTED,
            pb.Code.UNSUPPORTED,
            pb.Code.VERSION_UNSUPPORTED,
            pb.Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED,
        ),
    )
)
_INTERNAL: Final = (int(pb.Code.INTERNAL_ERROR), int(pb.Code.INTERNAL_SERVER_ERROR))
#: What it answers when it could not connect to a broker, which was asked nothing then.
_UNREACHABLE_BROKER: Final = re.compile(r"\bconnect to <?([^\s>]+:\d+)>? failed")
#: gRPC's codes for a call that a server failed to serve, perhaps after its work.
_GRPC_FAILED: Final = (
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DATA_LOSS,
)
#: The names of Java's exceptions before a text that explains itself.
_JAVA_CLASSES: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*Exception: ")
#: Parts of gRPC's text when it could not connect, so that nothing was sent.
_NEVER_SENT: Final = ("failed to connect", "name resolution", "dns resolution")


def code_name(code: int) -> str:
    """The name of a status code, or its number as text."""
    try:
        return pb.Code.Name(code)
    except ValueError:
        return str(int(code))


def check(
    status: pb.Status, *, what: str, address: str, topic: str | None = None
) -> None:
    """Raise the error of a status that is neither OK nor MULTIPLE_RESULTS."""
    if status.code not in (OK, _MULTIPLE):
        raise error_of(status, what=what, address=address, topic=topic)


def error_of(
    status: pb.Status, *, what: str, address: str, topic: str | None = None
) -> RmqError:
    """The error for a status; `remark` keeps the start of the server's text.

    `topic` is the topic of a call that is about nothing else.
    """
    code, name = int(status.code), code_name(status.code)
    remark = status.message[:TEXT_MAX]
    if code in _UNSUPPORTED:
        return UnsupportedError(f"{what}: {address} answered {name}{_words(remark)}")
    kind, hint = _KINDS.get(code, (BrokerError, ""))
    if code == pb.Code.INTERNAL_SERVER_ERROR and _UNREADABLE_FILTER in remark:
        kind, hint = FilterError, _FILTER_HINT
    if code == pb.Code.UNAUTHORIZED:
        hint = next((h for words, h in _DENIED_HINTS.items() if words in remark), hint)
    unreachable = _UNREACHABLE_BROKER.search(remark) if code in _INTERNAL else None
    if unreachable is not None:
        return NoBrokerError(
            f"{what}: the proxy {address} cannot connect to the broker"
            f" {unreachable[1]}",
            address=address,
            hint="check that the broker runs, and that the proxy can reach it",
        )
    if "recall failed, operation is forbidden" in remark:
        hint = "set recallMessageEnable=true on the broker"
    if "timerWheelEnable is false" in remark:
        hint = "set timerWheelEnable=true on the broker, and restart it"
    text = f"{what}: {address} answered {name}{_words(remark)}"
    is_missing = topic is not None and code == pb.Code.TOPIC_NOT_FOUND
    error = kind(
        f"topic {topic} does not exist" if is_missing else text,
        code=code,
        name=name,
        remark=remark,
        address=address,
        hint=hint,
    )
    is_lost = code in _INTERNAL and re.search(LOST_REQUEST, remark) is not None
    error.may_be_done = is_lost or code == pb.Code.PROXY_TIMEOUT
    if topic is not None and isinstance(error, NotFoundError) and is_missing:
        error.missing = Missing("topic", topic)
    return error


def grpc_error(
    code: grpc.StatusCode,
    details: str | None,
    *,
    what: str,
    address: str,
    is_tls: bool,
    has_answered: bool,
    timeout_ms: int,
) -> RmqError:
    """The error for a call that ended with a gRPC status instead of an answer.

    `has_answered` says whether this server has ever answered.
    """
    remark = (details or "")[:TEXT_MAX]
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineError(
            f"{what}: no answer from {address} within {timeout_ms} ms",
            address=address,
            hint="" if has_answered else _silent_hint(is_tls=is_tls),
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        if any(each in remark.lower() for each in _NEVER_SENT):
            return _not_connected(remark, address=address, is_tls=is_tls)
        return DisconnectedError(
            f"{what}: {address} is unavailable{_words(remark)}", address=address
        )
    if code is grpc.StatusCode.CANCELLED:
        return DisconnectedError(
            f"{what}: the call to {address} was cancelled", address=address
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return UnsupportedError(
            f"{address} does not support the call for {what}",
            hint=""
            if has_answered
            else "check that this is the gRPC port of a RocketMQ proxy, usually 8081",
        )
    unknown_group = _UNKNOWN_GROUP.search(remark)
    if unknown_group is not None:
        missing = Missing("group", unknown_group[1])
        error = NotFoundError(
            f"group {missing.name} does not exist",
            code=int(code.value[0]),
            name=code.name,
            remark=remark,
            address=address,
            hint=_CREATE_GROUP,
        )
        error.missing = missing
        return error
    kind: type[BrokerError] = BrokerError
    hint = ""
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        kind, hint = DeniedError, _CREDENTIALS_HINT
    elif code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        kind, hint = BusyError, "try again in a moment"
    elif code is grpc.StatusCode.NOT_FOUND or "group not found" in remark:
        kind, hint = NotFoundError, _CREATE_GROUP
    failed = kind(
        f"{what}: {address} ended the call with {code.name}{_words(remark)}",
        code=int(code.value[0]),
        name=code.name,
        remark=remark,
        address=address,
        hint=hint,
    )
    failed.may_be_done = kind is BrokerError and code in _GRPC_FAILED
    return failed


def _not_connected(remark: str, *, address: str, is_tls: bool) -> ConnectError:
    """The error for a failed connection attempt, with its cause and a hint."""
    lower = remark.lower()
    if (
        "certificate_verify_failed" in lower
        or "hostname verification" in lower
        or ("peer name" in lower)
    ):
        reason = _match(r"CERTIFICATE_VERIFY_FAILED: ([^:]+)", remark) or (
            "it does not name this host"
        )
        return ConnectError(
            f"TLS handshake with {address} failed: its certificate is not accepted:"
            f" {reason}",
            address=address,
            hint=Hint(
                "name the CA that signed it with ",
                Setting("ca_file", Blank("FILE")),
                ", or accept any certificate with ",
                Setting("insecure", True),
            ),
        )
    if "wrong_version_number" in lower:
        return ConnectError(
            f"TLS handshake with {address} failed: the peer does not speak TLS",
            address=address,
            hint=Hint("a proxy without TLS needs ", Setting("plaintext", True)),
        )
    if "tls handshake failed" in lower or "ssl_error" in lower:
        reason = _match(r"OPENSSL_internal:([A-Z0-9_]+)", remark).replace("_", " ")
        return ConnectError(
            f"TLS handshake with {address} failed{_words(reason)}",
            address=address,
            hint=Hint("a proxy without TLS needs ", Setting("plaintext", True)),
        )
    reason = remark.rpartition(": ")[2].strip() or remark
    hint = Hint("check ", Argument("endpoints"), " or ROCKETMQ_ENDPOINTS")
    if not is_tls and "connection refused" not in lower and "resol" not in lower:
        hint = Hint("if the proxy uses TLS, leave ", Setting("plaintext", True), " out")
    return ConnectError(
        f"cannot connect to {address}: {reason.lower()}", address=address, hint=hint
    )


def _silent_hint(*, is_tls: bool) -> str:
    if is_tls:
        return Hint(
            "does a RocketMQ proxy listen there? without TLS it needs ",
            Setting("plaintext", True),
        )
    return Hint(
        "does a RocketMQ proxy listen there? with TLS leave ",
        Setting("plaintext", True),
        " out",
    )


def _match(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    return found[1].strip().lower() if found else ""


def _words(remark: str) -> str:
    first = _JAVA_CLASSES.sub("", remark.strip().partition("\n")[0]).strip()
    return f": {first}" if first else ""
