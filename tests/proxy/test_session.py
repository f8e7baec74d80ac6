"""Telemetry, settings, heartbeats and calls of a session, at a scripted proxy."""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from typing import Any

import pytest

from rmqcli.errors import (
    BodyError,
    BrokerError,
    BusyError,
    ConnectError,
    DeadlineError,
    DeniedError,
    DisconnectedError,
    NotFoundError,
    UnsupportedError,
    UsageError,
)
from rmqcli.proxy import rpc
from rmqcli.proxy.session import PUSH_CONSUMER, SIMPLE_CONSUMER, Filter
from rmqcli.wire.acl import Credentials
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.waiting import wait_until


def consumer(open_session, proxy, **options):
    return open_session(
        proxy,
        client_type=SIMPLE_CONSUMER,
        group="billing",
        subscriptions={"orders": Filter("a || b")},
        **options,
    )


def heartbeat(session, **options):
    return session.invoke(session.access_point, rpc.heartbeat(1, None), **options)


def test_the_settings_go_out_first_and_the_proxy_s_are_taken(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open(["orders"])
    said = proxy.telemetry[0].settings
    assert said.client_type == pb.ClientType.SIMPLE_CONSUMER
    assert said.subscription.group.name == "billing"
    assert not said.subscription.fifo
    (entry,) = said.subscription.subscriptions
    assert (entry.topic.name, entry.expression.expression) == ("orders", "a || b")
    assert session.settings.retry.max_attempts == 3
    assert session.settings.retry.delays_ms == (1, 2, 4, 5)
    assert session.settings.long_polling_ms == 20_000


def test_every_call_says_who_asks(proxy, open_session):
    session = open_session(proxy)
    heartbeat(session)
    ((_, _, metadata),) = [each for each in proxy.requests if each[0] == "Heartbeat"]
    assert metadata["x-mq-client-id"] == session.client_id
    asker, _, number = metadata["x-mq-request-id"].rpartition(":")
    assert (asker, number.isdigit()) == (session.client_id, True)
    assert metadata["x-mq-language"] == "PYTHON"
    assert metadata["x-mq-protocol"] == "v2"
    assert "authorization" not in metadata


def test_a_call_is_signed_by_its_date_in_utc(proxy, open_session):
    session = open_session(proxy, credentials=Credentials("key", "secret", "token"))
    heartbeat(session)
    ((_, _, metadata),) = [each for each in proxy.requests if each[0] == "Heartbeat"]
    date_time = metadata["x-mq-date-time"]
    signature = hmac.new(b"secret", date_time.encode(), hashlib.sha1).hexdigest()
    assert metadata["authorization"] == (
        "MQv2-HMAC-SHA1 Credential=key, SignedHeaders=x-mq-date-time,"
        f" Signature={signature.upper()}"
    )
    assert metadata["x-mq-session-token"] == "token"
    assert len(date_time) == len("20260102T030405Z")


def test_a_stream_that_ends_is_opened_again_with_the_settings(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open(["orders"])
    proxy.end_streams()
    wait_until(lambda: proxy.streams_opened >= 2)
    wait_until(lambda: len(proxy.telemetry) >= 2)
    assert proxy.telemetry[1].settings == proxy.telemetry[0].settings


def test_a_proxy_that_ends_every_stream_is_not_flooded(proxy, open_session):
    proxy.answers["Telemetry"] = lambda _commands, _context: iter(())
    session = consumer(open_session, proxy)
    with pytest.raises(DisconnectedError, match="ended the telemetry stream") as ended:
        session.open(["orders"])
    assert ended.value.address == proxy.endpoints
    # 100 to 200 ms, then twice that: the fourth comes after at least 700 ms.
    wait_until(lambda: len(proxy.asked("Telemetry")) >= 3)
    assert heartbeat(session) is True


def test_a_killed_proxy_is_found_again_and_told_the_settings(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open(["orders"])
    proxy.stop()
    with pytest.raises((ConnectError, DisconnectedError)):
        heartbeat(session, timeout_ms=2_000)
    proxy.start()
    wait_until(lambda: proxy.streams_opened >= 2)
    wait_until(lambda: len(proxy.telemetry) >= 2)
    assert proxy.telemetry[-1].settings.subscription.group.name == "billing"
    assert heartbeat(session) is True


def test_reconnect_opens_the_stream_on_a_new_connection(proxy, open_session):
    peers = []

    def answer(_request, context):
        peers.append(context.peer())
        return service.HeartbeatResponse(status=OK)

    proxy.answers["Heartbeat"] = answer
    session = consumer(open_session, proxy)
    session.open(["orders"])
    heartbeat(session)
    command = service.TelemetryCommand()
    command.reconnect_endpoints_command.nonce = "n"
    proxy.push(command)
    wait_until(lambda: proxy.streams_opened >= 2)
    heartbeat(session)
    assert len(set(peers)) == 2


def test_a_stack_trace_is_sent_when_it_is_asked_for(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open(["orders"])
    command = service.TelemetryCommand()
    command.print_thread_stack_trace_command.nonce = "n7"
    proxy.push(command)
    wait_until(lambda: len(proxy.telemetry) >= 2)  # sesame
    answer = proxy.telemetry[1]
    assert answer.thread_stack_trace.nonce == "n7"
    dump = answer.thread_stack_trace.thread_stack_trace
    assert "rmq-proxy" in dump
    assert re.search(
        r"\tat tests\.proxy\.test_session\."
        r"test_a_stack_trace_is_sent_when_it_is_asked_for\(test_session\.py:\d+\)",
        dump,
    )
    assert "/" not in dump
    assert "sesame" not in dump


@pytest.mark.parametrize("kind", ["print_thread_stack_trace", "verify_message"])
def test_a_flood_of_commands_is_ignored_and_logged_once(
    proxy, open_session, caplog, kind
):
    """The settings are still taken, and the client closes at once."""
    verified: list[bytes] = []

    def verify(message, done):
        verified.append(message.body)
        done(True)

    session = open_session(
        proxy, client_type=PUSH_CONSUMER, group="billing", on_verify=verify
    )
    session.open([])
    command = service.TelemetryCommand()
    getattr(command, f"{kind}_command").nonce = "n"
    for _ in range(5_000):
        proxy.push(command)
    last = service.TelemetryCommand(status=OK)
    last.settings.subscription.receive_batch_size = 7
    proxy.push(last)
    wait_until(lambda: session.settings.receive_batch_size == 7)
    wait_until(lambda: len(proxy.telemetry) > 20)
    assert len(proxy.telemetry) < 500
    assert len(verified) < 500
    (told,) = [r.message for r in caplog.records]
    assert told == (
        "too many telemetry commands are ignored"
        f" address={proxy.endpoints} kind={kind}_command"
    )


@pytest.mark.parametrize(
    ("is_consumed", "code"),
    [(True, pb.Code.OK), (False, pb.Code.FAILED_TO_CONSUME_MESSAGE)],
)
def test_a_message_is_verified(proxy, open_session, is_consumed, code):
    session = open_session(
        proxy,
        client_type=PUSH_CONSUMER,
        group="billing",
        on_verify=lambda message, done: done(is_consumed and message.body == b"x"),
    )
    session.open([])
    command = service.TelemetryCommand()
    command.verify_message_command.nonce = "n8"
    command.verify_message_command.message.body = b"x"
    proxy.push(command)
    wait_until(lambda: len(proxy.telemetry) >= 2)
    assert proxy.telemetry[1].verify_message_result.nonce == "n8"
    assert proxy.telemetry[1].status.code == code


def test_an_answer_without_a_stream_is_dropped_without_an_error(
    proxy, open_session, caplog
):
    """The proxy that asked does not wait for it any more."""
    asked: list[Any] = []
    session = open_session(
        proxy,
        client_type=PUSH_CONSUMER,
        group="billing",
        on_verify=lambda _message, done: asked.append(done),
    )
    session.open([])
    command = service.TelemetryCommand()
    command.verify_message_command.nonce = "n8"
    proxy.push(command)
    (done,) = wait_until(lambda: asked)
    proxy.answers["Telemetry"] = lambda _commands, _context: iter(())
    proxy.end_streams()

    def streams_after_an_answer():
        done(True)
        return len(proxy.asked("Telemetry"))

    wait_until(lambda: streams_after_an_answer() >= 3)
    del proxy.answers["Telemetry"]
    wait_until(lambda: proxy.streams_opened >= 2)
    assert heartbeat(session) is True
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


def test_what_nobody_verifies_is_not_implemented(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open([])
    command = service.TelemetryCommand()
    command.verify_message_command.nonce = "n9"
    proxy.push(command)
    wait_until(lambda: len(proxy.telemetry) >= 2)
    assert proxy.telemetry[1].status.code == pb.Code.NOT_IMPLEMENTED


def test_an_orphaned_transaction_is_passed_on(proxy, open_session):
    found = []
    session = open_session(
        proxy,
        on_orphaned=lambda message, transaction: found.append(
            (message.body, transaction)
        ),
    )
    session.open([])
    command = service.TelemetryCommand()
    command.recover_orphaned_transaction_command.transaction_id = "T1"
    command.recover_orphaned_transaction_command.message.body = b"half"
    proxy.push(command)
    wait_until(lambda: found)
    assert found == [(b"half", "T1")]


def test_a_proxy_that_does_not_answer_settings_ends_the_start(proxy, open_session):
    proxy.settings = None
    session = consumer(open_session, proxy, timeout_ms=300)
    with pytest.raises(DeadlineError) as failure:
        session.open([])
    assert failure.value.address == proxy.endpoints
    assert f"no settings from {proxy.endpoints} within " in failure.value.message


def test_refused_settings_end_the_start_with_the_proxy_s_words(proxy, open_session):
    def refuse(_commands, _context):
        yield service.TelemetryCommand(status=status("UNAUTHORIZED", "no such user"))

    proxy.answers["Telemetry"] = refuse
    with pytest.raises(DeniedError, match="UNAUTHORIZED: no such user"):
        consumer(open_session, proxy).open([])


def test_goodbye_is_said_once(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open([])
    session.close()
    session.close()
    (request,) = proxy.asked("NotifyClientTermination")
    assert request.group.name == "billing"
    with pytest.raises(DisconnectedError, match="closed"):
        heartbeat(session)


def test_a_route_is_asked_for_once(proxy, open_session):
    session = open_session(proxy)
    for _ in range(2):
        queues = session.in_caller(lambda via: session.route("orders", via))
        assert [each.queue.queue_id for each in queues] == [0, 1, 2, 3]
    assert len(proxy.asked("QueryRoute")) == 1
    session.forget_route("orders")
    session.in_caller(lambda via: session.route("orders", via))
    assert len(proxy.asked("QueryRoute")) == 2


@pytest.mark.parametrize(("others", "is_taken"), [(511, True), (512, False)])
def test_a_route_cannot_make_a_client_connect_to_more_than_512_servers(
    proxy, open_session, others, is_taken
):
    def answer(request, _context):
        found = proxy.route(request.topic.name, queues=others)
        for number, queue in enumerate(found.message_queues):
            (address,) = queue.broker.endpoints.addresses
            address.host = f"127.1.{number // 256}.{number % 256}"
        return found

    proxy.answers["QueryRoute"] = answer
    session = open_session(proxy)
    if is_taken:
        session.in_caller(lambda via: session.route("orders", via))
        return
    with pytest.raises(BodyError, match="the proxy names over 512 servers"):
        session.in_caller(lambda via: session.route("orders", via))


def test_the_topics_that_are_sent_to_are_stated(proxy, open_session):
    session = open_session(proxy)
    session.open([])
    session.add_topic("orders")
    wait_until(lambda: len(proxy.telemetry) >= 2)
    (topic,) = proxy.telemetry[1].settings.publishing.topics
    assert topic.name == "orders"


def test_calls_in_the_io_thread_give_the_same(proxy, open_session):
    session = open_session(proxy)
    call = rpc.heartbeat(1, None)

    def ask():
        answer = yield session.via.call(session.access_point, call)
        return answer

    assert session.run(ask()).result() is True


def test_a_callback_must_not_wait_for_its_own_thread(proxy, open_session):
    session = open_session(proxy)
    found = []
    done = threading.Event()

    def wait():
        try:
            heartbeat(session)
        except UsageError as error:
            found.append(error)
        done.set()

    session.post(wait)
    wait_until(done.is_set)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TOPIC_NOT_FOUND", NotFoundError),
        ("FORBIDDEN", DeniedError),
        ("TOO_MANY_REQUESTS", BusyError),
        ("NOT_IMPLEMENTED", UnsupportedError),
        ("INTERNAL_SERVER_ERROR", BrokerError),
        ("ILLEGAL_TOPIC", BrokerError),
    ],
)
def test_a_status_becomes_an_error_of_its_kind(proxy, open_session, name, kind):
    proxy.answers["QueryRoute"] = lambda _request, _context: service.QueryRouteResponse(
        status=status(name, "because\nof this")
    )
    session = open_session(proxy)
    with pytest.raises(kind) as failure:
        session.in_caller(lambda via: session.route("orders", via))
    assert type(failure.value) is kind
    assert str(failure.value) == (
        f"route of topic orders: {proxy.endpoints} answered {name}: because"
    )


@pytest.mark.parametrize(
    ("code", "text", "kind", "hint"),
    [
        ("UNAVAILABLE", "the reason", DisconnectedError, ""),
        ("CANCELLED", "the reason", DisconnectedError, ""),
        ("RESOURCE_EXHAUSTED", "the reason", BusyError, "try again in a moment"),
        (
            "UNAUTHENTICATED",
            "the reason",
            DeniedError,
            "check the credentials argument",
        ),
        (
            "PERMISSION_DENIED",
            "the reason",
            DeniedError,
            "check the credentials argument",
        ),
        ("INTERNAL", "the reason", BrokerError, ""),
        ("UNKNOWN", "the reason", BrokerError, ""),
        (
            "UNKNOWN",
            "group not found",
            NotFoundError,
            "create it with Admin.create_group()",
        ),
        (
            "INVALID_ARGUMENT",
            "telemetry failed. group not found: g-1",
            NotFoundError,
            "create it with Admin.create_group()",
        ),
        (
            "NOT_FOUND",
            "the reason",
            NotFoundError,
            "create it with Admin.create_group()",
        ),
        (
            "UNIMPLEMENTED",
            "the reason",
            UnsupportedError,
            "",  # it has answered, so it is a proxy
        ),
    ],
)
def test_a_grpc_status_becomes_an_error_of_its_kind(
    proxy, open_session, code, text, kind, hint
):
    import grpc

    proxy.answers["Heartbeat"] = lambda _request, context: context.abort(
        grpc.StatusCode[code], text
    )
    session = open_session(proxy)
    session.open([])
    with pytest.raises(kind) as failure:
        heartbeat(session)
    assert type(failure.value) is kind
    assert failure.value.hint == hint


def test_the_port_is_not_doubted_after_an_answer(proxy, open_session):
    import grpc

    session = open_session(proxy)
    heartbeat(session)
    proxy.answers["Heartbeat"] = lambda _request, context: context.abort(
        grpc.StatusCode.UNIMPLEMENTED, ""
    )
    with pytest.raises(UnsupportedError, match="does not support") as failure:
        heartbeat(session)
    assert failure.value.hint == ""


def test_a_proxy_that_answers_nothing_ends_with_the_deadline(proxy, open_session):
    over = threading.Event()
    proxy.answers["Heartbeat"] = lambda _request, _context: over.wait()
    session = open_session(proxy)
    with pytest.raises(DeadlineError, match="within 200 ms"):
        heartbeat(session, timeout_ms=200)
    over.set()


def test_an_answer_that_is_no_message_is_an_error_of_its_own(proxy, open_session):
    call = rpc.heartbeat(1, None)
    with pytest.raises(BodyError, match="cannot be read"):
        call.parse(b"\xff\xff\xff", "there")


def test_an_endpoint_that_cannot_be_dialled_is_refused(proxy, open_session):
    def answer(request, _context):
        found = proxy.route(request.topic.name)
        found.message_queues[0].broker.endpoints.addresses[0].port = 70_000
        return found

    proxy.answers["QueryRoute"] = answer
    session = open_session(proxy)
    with pytest.raises(BodyError, match="70000"):
        session.in_caller(lambda via: session.route("orders", via))


@pytest.mark.parametrize("is_in_io_thread", [False, True])
def test_an_error_names_the_server_that_it_came_from(
    proxy, open_session, is_in_io_thread
):
    proxy.answers["Heartbeat"] = lambda *_: service.HeartbeatResponse(
        status=status("INTERNAL_SERVER_ERROR", "no")
    )
    session = open_session(proxy)

    def task():
        yield session.submit(session.access_point, rpc.heartbeat(1, None))

    def ask():
        return session.run(task()).result() if is_in_io_thread else heartbeat(session)

    with pytest.raises(BrokerError) as failure:
        ask()
    assert failure.value.address == proxy.endpoints
    assert failure.value.message == (
        f"heartbeat: {proxy.endpoints} answered INTERNAL_SERVER_ERROR: no"
    )


def test_two_proxies_are_told_apart(open_session):
    with ScriptedProxy() as first, ScriptedProxy() as second:
        first.answers["QueryRoute"] = lambda request, _: second.route(
            request.topic.name
        )
        session = consumer(open_session, first)
        session.open(["orders"])
        assert len(first.telemetry) == len(second.telemetry) == 1


def test_the_name_of_java_s_exception_is_left_out(proxy, open_session):
    proxy.answers["Heartbeat"] = lambda *_: service.HeartbeatResponse(
        status=status(
            "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
            "org.apache.rocketmq.proxy.common.ProxyException: the expected type is"
            " NORMAL, but actual type is DELAY",
        )
    )
    session = open_session(proxy)
    session.open([])
    with pytest.raises(BrokerError) as failure:
        heartbeat(session)
    assert failure.value.message.endswith(
        " answered MESSAGE_PROPERTY_CONFLICT_WITH_TYPE: the expected type is NORMAL,"
        " but actual type is DELAY"
    )
