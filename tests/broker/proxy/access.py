"""What a proxy with access control answers: one table for the embedded and real ones.

`signed` makes the metadata of a call that an account signs. A row is a request and its
answer, `CODE: text`; the texts are the same in 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.configuration import Account
from tests.kit.proxy.raw_client import (
    GrpcClient,
    code_of,
    consumer_settings,
    message,
    producer_settings,
    resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Metadata = Mapping[str, str | None]

DATE = "20260101T000000Z"
TOPIC = "T"
GROUP = "G"
ADMIN = Account("admin", "admin-secret")
WRITER = Account("writer", "writer-secret")
READER = Account("reader", "reader-secret")
PREFIX = Account("prefix", "prefix-secret")
NOBODY = Account("none", "none-secret")
#: Their rights, in the form of the embedded proxy; ADMIN may do everything.
RIGHTS = {
    WRITER: {"Topic:T": "Pub"},
    READER: {"Topic:T": "Sub", "Group:G": "Sub"},
    PREFIX: {"Topic:T*": "Pub,Sub", "Topic:SECRET*": "Deny", "Group:*": "Sub"},
    NOBODY: {},
}


def signed(
    account: Account = ADMIN, *, date: str = DATE, word: str = "MQv2-HMAC-SHA1"
) -> dict[str, str]:
    """The metadata of a call that `account` signs."""
    key = account.secret.encode()
    digest = hmac.new(key, date.encode(), hashlib.sha1).hexdigest().upper()
    return {
        "x-mq-date-time": date,
        "authorization": f"{word} Credential={account.name}, "
        f"SignedHeaders=x-mq-date-time, Signature={digest}",
    }


def _header(text: str) -> dict[str, str]:
    return {"x-mq-date-time": DATE, "authorization": text}


def said(answer: Any) -> str:
    """The status of an answer in the form of a row: `OK` or `CODE: text`."""
    code, text = code_of(answer), answer.status.message
    return code if code == "OK" else f"{code}: {text}"


@dataclass(frozen=True)
class Row:
    """A call with this metadata, and its answer."""

    name: str
    metadata: Metadata
    expected: str
    act: Callable[[GrpcClient], str] = lambda client: said(client.route(TOPIC))

    def ask(self, endpoints: str) -> str:
        with GrpcClient(endpoints, metadata=self.metadata) as client:
            return self.act(client)


def telemetry(client: GrpcClient, settings: d.Settings) -> str:
    """The first answer of a stream, or the gRPC status that it ends with."""
    try:
        return said(client.telemetry(settings).answer)
    except grpc.RpcError as error:
        return error.code().name


def received(client: GrpcClient, group: str, topic: str) -> str:
    """The status of a receive; a refused one has no other parts."""
    answer = client.receive(group, topic)
    if answer.code in ("OK", "MESSAGE_NOT_FOUND"):
        return "OK"
    assert answer.kinds == ["status"]
    return f"{answer.code}: {answer.text}"


def _joined_and_received(client: GrpcClient) -> str:
    joined = telemetry(client, consumer_settings(GROUP, TOPIC))
    return received(client, GROUP, TOPIC) if joined == "OK" else joined


def _assigned(client: GrpcClient, group: d.Resource, topic: d.Resource) -> str:
    request = s.QueryAssignmentRequest(group=group, topic=topic)
    return said(client.call("QueryAssignment", request))


def _null(what: str) -> str:
    return f"UNAUTHORIZED: {what} is null."


_ANOTHER = "Topic:OTHER"
_WRONG = Account(ADMIN.name, "wrong")
_FAILED = "UNAUTHORIZED: check signature failed."
_NO_USER = "UNAUTHORIZED: username cannot be null."
_HEX = "UNAUTHORIZED: create authentication context error."
_PAIR = "UNAUTHORIZED: authentication keyValues length is incorrect, actual length=1."

SIGNATURES = [
    Row("signed", signed(), "OK"),
    Row(
        "digits in lower case",
        {
            **signed(),
            "authorization": "A Credential=admin, Signature="
            + signed()["authorization"].rpartition("=")[2].lower(),
        },
        "OK",
    ),
    Row("any date, any algorithm", signed(date="hello", word="ANY"), "OK"),
    Row("region", signed(Account("admin/region/x", ADMIN.secret)), "OK"),
    Row("not signed", {}, _NO_USER),
    Row("date alone", {"x-mq-date-time": DATE}, _NO_USER),
    Row("empty header", _header(""), _NO_USER),
    Row(
        "unknown account",
        signed(Account("nobody", "x")),
        "UNAUTHORIZED: User:nobody is not found.",
    ),
    Row("wrong secret", signed(_WRONG), _FAILED),
    Row("another date", {**signed(), "x-mq-date-time": "other"}, _FAILED),
    Row(
        "no date",
        {**signed(), "x-mq-date-time": None},
        "UNAUTHORIZED: datetime is null.",
    ),
    Row(
        "no algorithm",
        _header("garbage"),
        "UNAUTHORIZED: authentication header is incorrect.",
    ),
    Row("no pairs", _header("A b"), _PAIR),
    Row("a word after the pairs", _header("A Credential=admin, b"), _PAIR),
    Row("no signature", _header("A Credential=admin"), _FAILED),
    Row("signature of no digits", _header("A Credential=admin, Signature=zz"), _HEX),
    Row("odd digits", _header("A Credential=admin, Signature=abc"), _HEX),
    Row("no credential", _header("A Signature=ab"), _NO_USER),
    Row("empty credential", _header("A Credential=, Signature=ab"), _NO_USER),
    Row("region alone", _header("A Credential=/x, Signature=ab"), _NO_USER),
    Row(
        "slash alone",
        _header("A Credential=/, Signature=ab"),
        "UNAUTHORIZED: authentication credential length is incorrect, actual length=0.",
    ),
    Row("names in lower case", _header("A credential=admin, signature=ab"), _NO_USER),
    Row("neither signed nor a client id", {"x-mq-client-id": None}, _NO_USER),
    Row(
        "no client id",
        {**signed(), "x-mq-client-id": None},
        "CLIENT_ID_REQUIRED: client id cannot be empty",
    ),
    Row("bad topic", signed(_WRONG), _FAILED, lambda at: said(at.route("a b"))),
    Row("send", signed(_WRONG), _FAILED, lambda at: said(at.send(message(TOPIC)))),
    Row("heartbeat", signed(_WRONG), _FAILED, lambda at: said(at.heartbeat(GROUP))),
    Row("receive", signed(_WRONG), _FAILED, lambda at: received(at, GROUP, TOPIC)),
    Row(
        "telemetry of a consumer",
        signed(_WRONG),
        _FAILED,
        lambda at: telemetry(at, consumer_settings(GROUP, TOPIC)),
    ),
    Row(
        "telemetry of a producer",
        {},
        _NO_USER,
        lambda at: telemetry(at, producer_settings(TOPIC)),
    ),
]

_T, _OTHER = resource(TOPIC), resource("OTHER")
_G = resource(GROUP)

#: A call, the account that makes it, and what it lacks a right to (None: nothing).
_CALLS: list[tuple[str, Account, Callable[[GrpcClient], str], str | None]] = [
    ("route of a sender", WRITER, lambda at: said(at.route(TOPIC)), None),
    ("route of a receiver", READER, lambda at: said(at.route(TOPIC)), None),
    ("route without", READER, lambda at: said(at.route("OTHER")), "Topic:OTHER"),
    ("route by prefix", PREFIX, lambda at: said(at.route(TOPIC)), None),
    ("send", WRITER, lambda at: said(at.send(message(TOPIC))), None),
    ("send by prefix", PREFIX, lambda at: said(at.send(message(TOPIC))), None),
    ("send without", READER, lambda at: said(at.send(message(TOPIC))), "Topic:T"),
    (
        "send to another topic",
        WRITER,
        lambda at: said(at.send(message("OTHER"))),
        "Topic:OTHER",
    ),
    (
        "send without rights",
        NOBODY,
        lambda at: said(at.send(message(TOPIC))),
        "Topic:T",
    ),
    (
        "recall without",
        READER,
        lambda at: said(at.call("RecallMessage", s.RecallMessageRequest(topic=_T))),
        "Topic:T",
    ),
    (
        "end of a transaction without",
        READER,
        lambda at: said(at.call("EndTransaction", s.EndTransactionRequest(topic=_T))),
        "Topic:T",
    ),
    (
        "producer",
        WRITER,
        lambda at: telemetry(at, producer_settings(TOPIC)),
        None,
    ),
    (
        "producer without",
        READER,
        lambda at: telemetry(at, producer_settings(TOPIC)),
        "Topic:T",
    ),
    (
        "producer of nothing",
        NOBODY,
        lambda at: telemetry(at, producer_settings()),
        None,
    ),
    (
        "consumer",
        READER,
        lambda at: telemetry(at, consumer_settings(GROUP, TOPIC)),
        None,
    ),
    (
        "consumer of another group",
        READER,
        lambda at: telemetry(at, consumer_settings("X", TOPIC)),
        "Group:X",
    ),
    (
        "consumer of another topic",
        READER,
        lambda at: telemetry(at, consumer_settings(GROUP, TOPIC, "OTHER")),
        "Topic:OTHER",
    ),
    ("heartbeat without", WRITER, lambda at: said(at.heartbeat(GROUP)), "Group:G"),
    (
        "termination without",
        WRITER,
        lambda at: said(
            at.call(
                "NotifyClientTermination", s.NotifyClientTerminationRequest(group=_G)
            )
        ),
        "Group:G",
    ),
    ("assignment", READER, lambda at: _assigned(at, _G, _T), None),
    ("assignment without", WRITER, lambda at: _assigned(at, _G, _T), "Group:G"),
    ("assignment of another", READER, lambda at: _assigned(at, _G, _OTHER), _ANOTHER),
    ("receive", READER, _joined_and_received, None),
    ("receive by prefix", PREFIX, _joined_and_received, None),
    ("receive without", WRITER, lambda at: received(at, GROUP, TOPIC), "Group:G"),
    ("receive of another", READER, lambda at: received(at, GROUP, "OTHER"), _ANOTHER),
    (
        "ack of another group",
        READER,
        lambda at: said(at.ack("X", TOPIC, "x")),
        "Group:X",
    ),
    ("ack of another", READER, lambda at: said(at.ack(GROUP, "OTHER", "x")), _ANOTHER),
    (
        "change of another group",
        READER,
        lambda at: said(at.change("X", TOPIC, "x", 1_000)),
        "Group:X",
    ),
    (
        "forward of another",
        READER,
        lambda at: said(at.forward(GROUP, "OTHER", "x", "m")),
        _ANOTHER,
    ),
]


def _denied(account: Account, resource_key: str | None, detail: str) -> str:
    if resource_key is None:
        return "OK"
    return (
        f"UNAUTHORIZED: User:{account.name} has no permission to access"
        f" {resource_key} from 127.0.0.1, {detail}."
    )


RIGHTS_TABLE = [
    Row(name, signed(who), _denied(who, needed, "no matched policies"), act)
    for name, who, act, needed in _CALLS
] + [
    Row(
        "denied topic",
        signed(PREFIX),
        _denied(PREFIX, "Topic:SECRET-1", "the decision is deny"),
        lambda at: said(at.send(message("SECRET-1"))),
    ),
    Row("send nothing", signed(), _null("message"), lambda at: said(at.send())),
    Row(
        "send to no topic",
        signed(),
        _null("topic"),
        lambda at: said(at.send(message(""))),
    ),
    Row("route of no topic", signed(), _null("topic"), lambda at: said(at.route(""))),
    Row(
        "receive from no queue",
        signed(),
        _null("messageQueue"),
        lambda at: said(
            next(iter(at.start("ReceiveMessage", s.ReceiveMessageRequest(group=_G))))
        ),
    ),
    Row(
        "receive of no group",
        signed(),
        _null("group"),
        lambda at: received(at, "", TOPIC),
    ),
    Row(
        "ack of no topic",
        signed(),
        _null("topic"),
        lambda at: said(at.ack("X", "", "x")),
    ),
    Row(
        "heartbeat of no group",
        signed(),
        _null("group"),
        lambda at: said(at.heartbeat()),
    ),
    Row(
        "consumer of no group",
        signed(),
        _null("group"),
        lambda at: telemetry(at, consumer_settings("", TOPIC)),
    ),
    Row(
        "neither producer nor consumer",
        signed(),
        "INTERNAL_SERVER_ERROR: settings command doesn't have publishing or"
        " subscription.",
        lambda at: telemetry(at, d.Settings()).partition(". AclException")[0],
    ),
]

TABLE = {row.name: row for row in (*SIGNATURES, *RIGHTS_TABLE)}
