"""Which error a status of gRPC or of RocketMQ becomes, and what it says to try."""

from __future__ import annotations

import grpc
import pytest

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
    UnsupportedError,
)
from rmqcli.proxy.status import error_of, grpc_error
from rmqcli.wire.protobuf import definition_pb2 as pb
from tests.kit.proxy.scripted import status
from tests.kit.rows import each_row

ENDPOINTS_HINT = "check the endpoints argument or ROCKETMQ_ENDPOINTS"
CA_HINT = (
    "name the CA that signed it with ca_file=FILE, or accept any certificate with"
    " insecure=True"
)
PLAIN_HINT = "a proxy without TLS needs plaintext=True"
TLS_HINT = "if the proxy uses TLS, leave plaintext=True out"


def ended(code, details="", *, is_tls=True, has_answered=False):
    """The error for a heartbeat that ended with a code of gRPC."""
    return grpc_error(
        code,
        details,
        what="heartbeat",
        address="it:1",
        is_tls=is_tls,
        has_answered=has_answered,
        timeout_ms=7,
    )


@each_row(
    ("details", "is_tls", "words", "hint"),
    [
        (
            "failed to connect to all addresses; connect: Connection refused (111)",
            True,
            "cannot connect to it:1: connection refused (111)",
            ENDPOINTS_HINT,
        ),
        (
            "failed to connect to all addresses; connect: Connection refused (111)",
            False,
            "cannot connect to it:1: connection refused (111)",
            ENDPOINTS_HINT,
        ),
        (
            "failed to connect to all addresses; last error: x: Timeout",
            True,
            "cannot connect to it:1: timeout",
            ENDPOINTS_HINT,
        ),
        (
            "failed to connect to all addresses; last error: x: Timeout",
            False,
            "cannot connect to it:1: timeout",
            TLS_HINT,
        ),
        (
            "Name resolution failed for proxy: no such host",
            False,
            "cannot connect to it:1: no such host",
            ENDPOINTS_HINT,
        ),
        (
            "DNS resolution failed",
            False,
            "cannot connect to it:1: dns resolution failed",
            ENDPOINTS_HINT,
        ),
        (
            "failed to connect; last error: ",
            True,
            "cannot connect to it:1: failed to connect; last error: ",
            ENDPOINTS_HINT,
        ),
        (
            "failed to connect: CERTIFICATE_VERIFY_FAILED: self signed: at x",
            True,
            (
                "TLS handshake with it:1 failed: its certificate is not accepted:"
                " self signed"
            ),
            CA_HINT,
        ),
        (
            "failed to connect: Hostname Verification Check failed",
            True,
            (
                "TLS handshake with it:1 failed: its certificate is not accepted:"
                " it does not name this host"
            ),
            CA_HINT,
        ),
        (
            "failed to connect: Peer name x is not in peer certificate",
            True,
            (
                "TLS handshake with it:1 failed: its certificate is not accepted:"
                " it does not name this host"
            ),
            CA_HINT,
        ),
        (
            "failed to connect: OPENSSL_internal:WRONG_VERSION_NUMBER",
            True,
            "TLS handshake with it:1 failed: the peer does not speak TLS",
            PLAIN_HINT,
        ),
        (
            "failed to connect: TLS handshake failed",
            True,
            "TLS handshake with it:1 failed",
            PLAIN_HINT,
        ),
        (
            "failed to connect: SSL_ERROR_SSL: OPENSSL_internal:TLSV1_ALERT_BAD",
            True,
            "TLS handshake with it:1 failed: tlsv1 alert bad",
            PLAIN_HINT,
        ),
    ],
)
def test_a_connection_that_failed_says_why_and_what_to_try(
    details, is_tls, words, hint
):
    """Nothing was sent: only a ConnectError lets a message be sent again."""
    error = ended(grpc.StatusCode.UNAVAILABLE, details, is_tls=is_tls)
    assert type(error) is ConnectError
    assert (str(error), str(error.hint), error.address) == (words, hint, "it:1")


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ("Socket closed", "heartbeat: it:1 is unavailable: Socket closed"),
        ("", "heartbeat: it:1 is unavailable"),
        (None, "heartbeat: it:1 is unavailable"),
    ],
)
def test_a_connection_that_ended_may_have_carried_the_call(details, words):
    error = ended(grpc.StatusCode.UNAVAILABLE, details)
    assert type(error) is DisconnectedError
    assert (str(error), error.hint, error.address) == (words, "", "it:1")


def test_a_cancelled_call_names_the_server():
    error = ended(grpc.StatusCode.CANCELLED)
    assert type(error) is DisconnectedError
    assert str(error) == "heartbeat: the call to it:1 was cancelled"
    assert error.address == "it:1"


@pytest.mark.parametrize(
    ("is_tls", "has_answered", "hint"),
    [
        (True, True, ""),
        (False, True, ""),
        (
            True,
            False,
            "does a RocketMQ proxy listen there? without TLS it needs plaintext=True",
        ),
        (
            False,
            False,
            "does a RocketMQ proxy listen there? with TLS leave plaintext=True out",
        ),
    ],
)
def test_a_port_is_doubted_only_before_its_first_answer(is_tls, has_answered, hint):
    late = ended(
        grpc.StatusCode.DEADLINE_EXCEEDED, is_tls=is_tls, has_answered=has_answered
    )
    assert type(late) is DeadlineError
    assert str(late) == "heartbeat: no answer from it:1 within 7 ms"
    assert (str(late.hint), late.address) == (hint, "it:1")
    unknown = ended(grpc.StatusCode.UNIMPLEMENTED, has_answered=has_answered)
    assert type(unknown) is UnsupportedError
    assert str(unknown) == "it:1 does not support the call for heartbeat"
    assert bool(unknown.hint) is not has_answered


@pytest.mark.parametrize(
    ("code", "details", "kind", "hint"),
    [
        ("UNAUTHENTICATED", "no", DeniedError, "check the credentials argument"),
        ("PERMISSION_DENIED", "no", DeniedError, "check the credentials argument"),
        ("RESOURCE_EXHAUSTED", "no", BusyError, "try again in a moment"),
        ("NOT_FOUND", "no", NotFoundError, "create it with Admin.create_group()"),
        ("INTERNAL", "group not found", NotFoundError, None),
        ("INTERNAL", "no", BrokerError, ""),
    ],
)
def test_another_code_of_grpc_is_kept_with_its_text(code, details, kind, hint):
    error = ended(grpc.StatusCode[code], f" {details} \nand\nmore")
    assert isinstance(error, BrokerError)
    assert type(error) is kind
    assert str(error) == f"heartbeat: it:1 ended the call with {code}: {details}"
    assert error.code == grpc.StatusCode[code].value[0]
    assert (error.name, error.address) == (code, "it:1")
    assert error.remark == f" {details} \nand\nmore"
    assert hint is None or str(error.hint) == hint


def test_an_unknown_group_is_named():
    error = ended(grpc.StatusCode.INTERNAL, "failed. group not found: %RETRY%g-1|a")
    assert isinstance(error, NotFoundError)
    assert str(error) == "group %RETRY%g-1|a does not exist"
    assert error.missing == Missing("group", "%RETRY%g-1|a")
    assert (error.code, error.name, error.address) == (13, "INTERNAL", "it:1")
    assert error.remark == "failed. group not found: %RETRY%g-1|a"
    assert str(error.hint) == "create it with Admin.create_group()"


def test_an_unknown_topic_is_named_where_the_call_is_about_it_alone():
    missing = status("TOPIC_NOT_FOUND", "No topic route info")
    error = error_of(missing, what="route", address="it:1", topic="orders")
    assert isinstance(error, NotFoundError)
    assert (str(error), error.remark) == (
        "topic orders does not exist",
        "No topic route info",
    )
    assert error.missing == Missing("topic", "orders")
    assert (error.code, error.name, error.address) == (
        40_402,
        "TOPIC_NOT_FOUND",
        "it:1",
    )
    denied = error_of(status("FORBIDDEN"), what="route", address="it:1", topic="orders")
    assert "route: it:1 answered FORBIDDEN" in str(denied)


def test_a_broker_that_a_proxy_cannot_reach_is_no_failure_of_the_proxy():
    """It was an INTERNAL_SERVER_ERROR (1), for which `rmq send` did not wait."""
    java = "org.apache.rocketmq.remoting.exception.RemotingConnectException: "
    text = f"{java}connect to 10.0.0.1:10911 failed"
    error = error_of(status("INTERNAL_SERVER_ERROR", text), what="send", address="it:1")
    assert type(error) is NoBrokerError
    assert str(error) == (
        "send: the proxy it:1 cannot connect to the broker 10.0.0.1:10911"
    )
    assert (error.exit_code, error.retriable, error.may_be_done) == (5, True, False)
    text = f"{java}connect to null failed"  # no address is known
    error = error_of(status("INTERNAL_SERVER_ERROR", text), what="send", address="it:1")
    assert type(error) is BrokerError


def test_only_the_start_of_a_server_s_text_is_kept():
    by_grpc = ended(grpc.StatusCode.INTERNAL, 501 * "x")
    by_code = error_of(
        status("INTERNAL_SERVER_ERROR", 501 * "x"), what="send", address="it:1"
    )
    for error in (by_grpc, by_code):
        assert isinstance(error, BrokerError)
        assert error.remark == 500 * "x"


@each_row(
    ("name", "code", "remark", "kind", "hint"),
    [
        (
            "UNAUTHORIZED",
            40_100,
            "no",
            DeniedError,
            "check the credentials argument",
        ),
        (
            "UNAUTHORIZED",
            40_100,
            "username cannot be null",
            DeniedError,
            "calls must be signed: give the credentials argument",
        ),
        (
            "UNAUTHORIZED",
            40_100,
            "User:bob has no permission to access",
            DeniedError,
            "give the account the right with mqadmin createAcl, or use another account",
        ),
        (
            # Only UNAUTHORIZED says it about the account.
            "FORBIDDEN",
            40_300,
            "the topic has no permission",
            DeniedError,
            "check the topic's permissions and the credentials",
        ),
        ("PAYMENT_REQUIRED", 40_200, "no", DeniedError, ""),
        ("NOT_FOUND", 40_400, "no", NotFoundError, ""),
        ("MESSAGE_NOT_FOUND", 40_401, "no", NotFoundError, ""),
        (
            "TOPIC_NOT_FOUND",
            40_402,
            "no",
            NotFoundError,
            (
                "a proxy creates no topics; create it with: Admin.create_topic(); if it"
                " was there, check that its brokers run"
            ),
        ),
        (
            "CONSUMER_GROUP_NOT_FOUND",
            40_403,
            "no",
            NotFoundError,
            "create the group first",
        ),
        ("OFFSET_NOT_FOUND", 40_404, "no", NotFoundError, ""),
        ("TOO_MANY_REQUESTS", 42_900, "no", BusyError, "try again in a moment"),
        (
            "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
            40_014,
            "no",
            BrokerError,
            "use a topic whose message.type accepts this kind of message",
        ),
        (
            "ILLEGAL_FILTER_EXPRESSION",
            40_010,
            "no",
            FilterError,
            "check the filter expression",
        ),
        (
            "INTERNAL_SERVER_ERROR",
            50_001,
            "parse the consumer's subscription failed",
            FilterError,
            "check the filter expression",
        ),
        ("INTERNAL_SERVER_ERROR", 50_001, "no", BrokerError, ""),
        (
            "BAD_REQUEST",
            40_000,
            "parse the consumer's subscription failed",
            BrokerError,
            "",
        ),
    ],
)
def test_a_code_of_rocketmq_becomes_an_error_of_its_kind(
    name, code, remark, kind, hint
):
    error = error_of(status(name, remark), what="send", address="it:1")
    assert isinstance(error, BrokerError)
    assert type(error) is kind
    assert str(error) == f"send: it:1 answered {name}: {remark}"
    assert (error.code, error.name, error.remark) == (code, name, remark)
    assert (str(error.hint), error.address) == (hint, "it:1")


@each_row(
    ("name", "remark", "expected"),
    [
        ("PROXY_TIMEOUT", "wait response on the channel <b:1> timeout, 2(ms)", True),
        # 5.3.3 and 5.5.0: ExceptionUtils.getErrorDetailMessage
        (
            "INTERNAL_SERVER_ERROR",
            (
                "send request to </10.0.0.1:10911> failed. RemotingSendRequestException"
                ". org.apache.rocketmq.remoting.netty.ResponseFuture"
                ".executeInvokeCallback(ResponseFuture.java:67)"
            ),
            True,
        ),
        ("INTERNAL_SERVER_ERROR", "the header. RemotingCommandException", True),
        ("INTERNAL_SERVER_ERROR", "null. RemotingException", True),
        (
            "INTERNAL_SERVER_ERROR",
            "RemotingCommand [code=310, language=JAVA, version=495, " + 500 * "x",
            True,
        ),
        # MQClientAPIImpl of 5.0 to 5.2, in the callbacks of acks and changes
        ("INTERNAL_SERVER_ERROR", "send request to b:1 failed. Request: RPC", True),
        ("INTERNAL_SERVER_ERROR", "unknown reason. addr: b:1, timeoutMillis: 2", True),
        ("INTERNAL_ERROR", "send request to <b:1> failed", True),
        (
            "INTERNAL_SERVER_ERROR",
            (
                "connect to 10.0.0.1:10911 failed. RemotingConnectException."
                " org.apache.rocketmq.remoting.netty.NettyRemotingClient"
                ".lambda$invoke$9(NettyRemotingClient.java:809)"
            ),
            False,
        ),
        (
            "INTERNAL_SERVER_ERROR",
            "invokeAsyncImpl invoke too fast. RemotingTooMuchRequestException",
            False,
        ),
        ("INTERNAL_SERVER_ERROR", "the message is illegal, maybe msg body", False),
        ("ILLEGAL_MESSAGE_TAG", "send request to <b:1> failed", False),
        ("TOO_MANY_REQUESTS", "flow limit", False),
    ],
)
def test_a_refusal_is_told_from_a_request_that_the_broker_may_have_served(
    name, remark, expected
):
    error = error_of(status(name, remark), what="send", address="it:1")
    assert error.may_be_done is expected


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        ("UNKNOWN", "Application error processing RPC", True),
        ("INTERNAL", "Received RST_STREAM with error code 2", True),
        ("INTERNAL", "group not found: g", False),
        ("INVALID_ARGUMENT", "no", False),
        ("RESOURCE_EXHAUSTED", "slow down", False),
        ("UNAVAILABLE", "Socket closed", True),
        ("UNAVAILABLE", "failed to connect to all addresses", False),
        ("DEADLINE_EXCEEDED", "", True),
    ],
)
def test_a_call_that_ended_in_the_middle_may_have_been_served(code, details, expected):
    assert ended(grpc.StatusCode[code], details).may_be_done is expected


@pytest.mark.parametrize(
    "name",
    [
        "NOT_IMPLEMENTED",
        "UNSUPPORTED",
        "VERSION_UNSUPPORTED",
        "VERIFY_FIFO_MESSAGE_UNSUPPORTED",
    ],
)
def test_what_a_proxy_does_not_support_is_no_failure_of_the_broker(name):
    error = error_of(status(name, "why"), what="send", address="it:1")
    assert type(error) is UnsupportedError
    assert str(error) == f"send: it:1 answered {name}: why"


def test_a_code_that_is_not_known_yet_is_shown_as_its_number():
    unknown = pb.Status.FromString(b"\x08\xdf\xd4\x03")  # mypy knows no such code
    error = error_of(unknown, what="send", address="it:1")
    assert isinstance(error, BrokerError)
    assert (error.code, error.name) == (59_999, "59999")
    assert str(error) == "send: it:1 answered 59999"
