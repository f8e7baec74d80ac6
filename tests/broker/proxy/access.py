"""What a proxy with access control answers: one table for the embedded and real ones.

`signed` makes the metadata of a call that an account signs. A row is a request and its
answer, `CODE: text`; the texts are the same at 5.3.3 and 5.5.0.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from tests.kit.configuration import Account
from tests.kit.grpc_client import (
    GrpcClient,
    code_of,
    consumer_settings,
    message,
    producer_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmqcli.wire.protobuf import definition_pb2 as d

    Metadata = Mapping[str, str | None]

DATE = "20260101T000000Z"
TOPIC = "T"
GROUP = "G"
ADMIN = Account("admin", "admin-secret")


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
    """The status of an answer as a row has it."""
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
    """The status of a receive; one that is refused is nothing else."""
    answer = client.receive(group, topic)
    if answer.code in ("OK", "MESSAGE_NOT_FOUND"):
        return "OK"
    assert answer.kinds == ["status"]
    return f"{answer.code}: {answer.text}"


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

TABLE = {row.name: row for row in SIGNATURES}
