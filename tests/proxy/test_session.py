"""Telemetry, settings, heartbeats and calls of a session, at a scripted proxy."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import hmac
import logging
import os
import re
import threading
from typing import Any

import pytest

from rmqcli.config import ClientConfig
from rmqcli.errors import (
    BodyError,
    BrokerError,
    BusyError,
    ConnectError,
    DeadlineError,
    DeniedError,
    DisconnectedError,
    NoBrokerError,
    NotFoundError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.proxy import channel, rpc
from rmqcli.proxy.endpoints import parse_endpoints
from rmqcli.proxy.reader import ProxyReader
from rmqcli.proxy.session import PRODUCER, PUSH_CONSUMER, SIMPLE_CONSUMER
from rmqcli.wire.acl import Credentials
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.subscription import parse_subscription
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.proxy.sessions import receive_now
from tests.kit.waiting import PATIENCE_S, wait_until


def consumer(open_session, proxy, **options):
    return open_session(
        proxy,
        client_type=SIMPLE_CONSUMER,
        group="billing",
        subscriptions={"orders": parse_subscription("orders", "a || b")},
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


def test_reconnect_opens_the_stream_on_a_new_connection(proxy, open_session, caplog):
    caplog.set_level(logging.INFO, "rmqcli")
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
    assert (
        f"proxy failed address={proxy.endpoints} error=the telemetry stream to"
        f" {proxy.endpoints} was replaced"
    ) in [each.getMessage() for each in caplog.records]


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


@pytest.mark.slow
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
    def verify(message, done):
        found = message.body, message.broker_name, str(message.endpoints)
        done(is_consumed and found == (b"x", "", proxy.endpoints))

    session = open_session(
        proxy, client_type=PUSH_CONSUMER, group="billing", on_verify=verify
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
    session = open_session(proxy, on_orphaned=lambda *each: found.append(each))
    session.open([])
    command = service.TelemetryCommand()
    command.recover_orphaned_transaction_command.transaction_id = "T1"
    command.recover_orphaned_transaction_command.message.body = b"half"
    proxy.push(command)
    ((message, transaction),) = wait_until(lambda: found)
    assert (message.body, transaction) == (b"half", "T1")
    assert (message.broker_name, message.endpoints) == ("", session.access_point)


def test_a_proxy_that_does_not_answer_settings_ends_the_start(proxy, open_session):
    proxy.settings = None
    session = consumer(open_session, proxy, timeout_ms=300)
    with pytest.raises(DeadlineError) as failure:
        session.open([])
    assert failure.value.address == proxy.endpoints
    assert failure.value.message == (
        f"telemetry: no settings from {proxy.endpoints} within 300 ms"
    )


def test_a_start_has_the_limit_that_it_is_given(proxy, open_session):
    proxy.settings = None
    session = consumer(open_session, proxy)
    with pytest.raises(DeadlineError) as failure:
        session.open([], timeout_ms=100)
    assert failure.value.address == proxy.endpoints
    assert failure.value.message == f"no settings from {proxy.endpoints} within 100 ms"


@pytest.mark.injects_exceptions
def test_a_start_fails_with_an_error_of_the_code_that_takes_the_settings(
    proxy, open_session
):
    def fail(_settings):
        raise ValueError("no room")

    session = consumer(open_session, proxy, on_settings=fail)
    with pytest.raises(RmqError, match="no room"):
        session.open([])


def test_refused_settings_end_the_start_with_the_proxy_s_words(proxy, open_session):
    def refuse(_commands, _context):
        yield service.TelemetryCommand(status=status("UNAUTHORIZED", "no such user"))

    proxy.answers["Telemetry"] = refuse
    with pytest.raises(DeniedError, match="UNAUTHORIZED: no such user"):
        consumer(open_session, proxy).open([])


def test_a_stream_that_ends_with_an_error_of_grpc_names_the_limit(proxy, open_session):
    import grpc

    def end(commands, context):
        next(commands)  # a status is lost when the stream ends before it is written to
        context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "")

    proxy.answers["Telemetry"] = end
    session = consumer(open_session, proxy, timeout_ms=70_000)
    with pytest.raises(DeadlineError) as failure:
        session.open([])
    assert str(failure.value) == (
        f"telemetry: no answer from {proxy.endpoints} within 70000 ms"
    )


def test_goodbye_is_said_once(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open([])
    session.close()
    session.close()
    (request,) = proxy.asked("NotifyClientTermination")
    assert request.group.name == "billing"
    with pytest.raises(DisconnectedError, match="the client is closed") as failure:
        heartbeat(session)
    assert failure.value.address == proxy.endpoints


def test_a_session_that_closes_in_a_task_says_goodbye_once(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open([])
    session.run(session.closing()).result()
    session.run(session.closing()).result()
    session.close()
    assert len(proxy.asked("NotifyClientTermination")) == 1


def test_a_callback_may_close_its_session(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open([])
    session.post(session.close)
    wait_until(lambda: proxy.asked("NotifyClientTermination"))
    with pytest.raises(DisconnectedError, match="the client is closed"):
        heartbeat(session)


def test_a_close_does_not_wait_for_a_callback_for_ever(proxy, open_session):
    may_end = threading.Event()
    session = consumer(open_session, proxy, timeout_ms=1)
    session.post(may_end.wait)
    session.close()
    may_end.set()


@pytest.mark.parametrize("call", ["submit", "receive"])
def test_calls_in_the_io_thread_fail_after_the_end(proxy, open_session, call):
    session = consumer(open_session, proxy)
    session.open([])
    session.close()

    def ask():
        yield getattr(session, call)(session.access_point, rpc.heartbeat(1, None))

    with pytest.raises(DisconnectedError, match="the client is closed"):
        session.run(ask()).result()


@pytest.mark.parametrize("method", ["Heartbeat", "ReceiveMessage"])
def test_calls_in_flight_fail_when_the_session_closes(proxy, open_session, method):
    asked, may_end = threading.Event(), threading.Event()

    def answer(_request, _context):
        asked.set()
        may_end.wait(PATIENCE_S)
        return service.HeartbeatResponse(status=OK)

    def answers(_request, _context):
        asked.set()
        may_end.wait(PATIENCE_S)
        yield service.ReceiveMessageResponse(status=OK)

    proxy.answers["Heartbeat"] = answer
    proxy.answers["ReceiveMessage"] = answers
    session = consumer(open_session, proxy)
    session.open([])
    (queue, *_) = session.in_caller(lambda via: session.route("orders", via))
    receive = rpc.receive_message(
        queue, group="billing", batch_size=1, polling_ms=60_000
    )

    def ask():
        if method == "Heartbeat":
            yield session.submit(session.access_point, rpc.heartbeat(1, None))
        yield session.receive(session.access_point, receive)

    future = session.run(ask())
    wait_until(asked.is_set)
    session.close()
    with pytest.raises(DisconnectedError) as failure:
        future.result(PATIENCE_S)
    may_end.set()
    what = "heartbeat" if method == "Heartbeat" else "receive from orders@broker-a"
    assert str(failure.value) == (
        f"{what}: the connection to {proxy.endpoints} was closed"
    )
    assert failure.value.address == proxy.endpoints


def test_a_receive_under_way_outlives_a_reconnect(proxy, open_session):
    asked, may_end = threading.Event(), threading.Event()

    def answers(_request, _context):
        asked.set()
        may_end.wait(PATIENCE_S)
        part = service.ReceiveMessageResponse()
        part.message.body = b"late"
        yield part

    proxy.answers["ReceiveMessage"] = answers
    session = consumer(open_session, proxy)
    session.open(["orders"])
    (queue, *_) = session.in_caller(lambda via: session.route("orders", via))
    receive = rpc.receive_message(
        queue, group="billing", batch_size=1, polling_ms=60_000
    )

    def ask():
        found = yield session.receive(session.access_point, receive)
        return found

    future = session.run(ask())
    wait_until(asked.is_set)
    command = service.TelemetryCommand()
    command.reconnect_endpoints_command.nonce = "n"
    proxy.push(command)
    wait_until(lambda: proxy.streams_opened >= 2)
    may_end.set()
    found = future.result(PATIENCE_S)
    assert ([each.body for each in found.messages], found.error) == ([b"late"], None)


def test_a_receive_that_has_ended_is_not_kept(proxy, open_session):
    session = consumer(open_session, proxy)
    (queue, *_) = session.in_caller(lambda via: session.route("orders", via))
    receive = rpc.receive_message(
        queue, group="billing", batch_size=1, polling_ms=5_000
    )
    before = kept_parsers()
    for _ in range(3):
        receive_now(session, session.access_point, receive)
    assert kept_parsers() == before


def kept_parsers():
    gc.collect()
    return sum(isinstance(each, rpc.ReceiveParser) for each in gc.get_objects())


@pytest.mark.injects_exceptions
def test_a_parser_that_fails_ends_its_call_with_that_error(proxy, open_session):
    def parse(_data, _address):
        raise ValueError("a mistake")

    session = open_session(proxy)
    call = dataclasses.replace(rpc.heartbeat(1, None), parse=parse)

    def ask():
        yield session.submit(session.access_point, call)

    with pytest.raises(RmqError, match="a mistake"):
        session.run(ask()).result()


#: A deadline so long that no test's duration matters. gRPC rounds it by up to 1 %.
LONG_MS = 80_000_000


@pytest.mark.parametrize(
    ("way", "timeout_ms", "seconds"),
    [
        ("invoke", None, 80_000),
        ("invoke", 50_000_000, 50_000),
        ("submit", None, 80_000),
        ("submit", 50_000_000, 50_000),
        ("receive", None, 30_000),  # its polling time and the slack
        ("receive", 50_000_000, 50_000),
    ],
)
def test_a_call_has_the_deadline_that_it_is_given_or_that_of_the_config(
    proxy, open_session, monkeypatch, way, timeout_ms, seconds
):
    monkeypatch.setattr(channel, "RECEIVE_SLACK_MS", 10_000_000)
    left: list[float] = []

    def answer(_request, context):
        left.append(context.time_remaining())
        return service.HeartbeatResponse(status=OK)

    def answers(_request, context):
        left.append(context.time_remaining())
        yield service.ReceiveMessageResponse(status=OK)

    proxy.answers.update(Heartbeat=answer, ReceiveMessage=answers)
    session = consumer(open_session, proxy, timeout_ms=LONG_MS)
    place, call = session.access_point, rpc.heartbeat(1, None)

    def ask():
        yield session.submit(place, call, timeout_ms)

    if way == "invoke":
        session.invoke(place, call, timeout_ms)
    elif way == "submit":
        session.run(ask()).result()
    else:
        (queue, *_) = session.in_caller(lambda via: session.route("orders", via))
        receive = rpc.receive_message(
            queue, group="billing", batch_size=1, polling_ms=20_000_000
        )
        receive_now(session, place, receive, timeout_ms)
    assert 0.99 * seconds < left[0] < 1.01 * seconds


def test_new_subscriptions_are_stated(proxy, open_session):
    session = consumer(open_session, proxy)
    session.open([])
    session.subscribe(
        {
            "payments": parse_subscription(
                "payments", "a > 1", expression_type="SQL92"
            ),
            "all": parse_subscription("all", "*"),
        }
    )
    wait_until(lambda: len(proxy.telemetry) >= 2)
    subscriptions = proxy.telemetry[1].settings.subscription.subscriptions
    assert [
        (each.topic.name, each.expression.type, each.expression.expression)
        for each in subscriptions
    ] == [("payments", pb.FilterType.SQL, "a > 1"), ("all", pb.FilterType.TAG, "*")]
    assert session.topics == ("payments", "all")


@pytest.mark.parametrize(
    ("client_type", "attempts"), [(PRODUCER, 3), (PUSH_CONSUMER, 17)]
)
def test_before_a_proxy_has_answered_its_usual_settings_count(
    proxy, open_session, client_type, attempts
):
    session = open_session(proxy, client_type=client_type)
    assert session.settings.retry.max_attempts == attempts


def test_a_client_id_names_the_host(proxy, open_session, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    assert open_session(proxy).client_id.startswith(f"box@{os.getpid()}@")


def test_a_server_is_ready_or_says_why_not(proxy, open_session):
    proxy.settings = None
    session = consumer(open_session, proxy)
    session.start()
    waiting = session.run(session.ready(session.access_point))
    wait_until(lambda: proxy.telemetry)
    proxy.answers["Telemetry"] = lambda _commands, _context: iter(())
    proxy.end_streams()
    with pytest.raises(DisconnectedError) as first:
        waiting.result(PATIENCE_S)
    assert str(first.value) == f"{proxy.endpoints} ended the telemetry stream"
    with pytest.raises(DisconnectedError) as later:
        session.run(session.ready(session.access_point)).result(PATIENCE_S)
    assert str(later.value) == f"the telemetry stream to {proxy.endpoints} is lost"
    assert first.value.address == later.value.address == proxy.endpoints


def test_who_waits_for_a_server_is_told_of_the_end(proxy, open_session):
    proxy.settings = None
    session = consumer(open_session, proxy)
    session.start()
    waiting = session.run(session.ready(session.access_point))
    wait_until(lambda: proxy.telemetry)
    has_begun = threading.Event()
    session.post(has_begun.set)  # runs after the task has begun
    assert has_begun.wait(PATIENCE_S)
    session.close()
    with pytest.raises(DisconnectedError) as failure:
        waiting.result(PATIENCE_S)
    assert str(failure.value) == f"the connection to {proxy.endpoints} was closed"
    assert failure.value.address == proxy.endpoints


def test_a_reader_asks_for_routes_and_is_no_client(proxy, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "box")
    config = ClientConfig(
        endpoints=(proxy.endpoints,),
        plaintext=True,
        timeout_ms=LONG_MS,
        credentials=Credentials("key", "secret"),
    )
    left: list[float] = []

    def answer(request, context):
        left.append(context.time_remaining())
        assert request.endpoints == parse_endpoints((proxy.endpoints,)).to_protobuf()
        return proxy.route(request.topic.name, queues=2)

    proxy.answers["QueryRoute"] = answer
    with ProxyReader(config) as reader:
        queues = reader.route("orders")
    assert [str(each.queue) for each in queues] == [
        "orders@broker-a:0",
        "orders@broker-a:1",
    ]
    assert 79_000 < left[0] < 81_000
    ((method, _, metadata),) = proxy.requests
    assert method == "QueryRoute"
    assert metadata["x-mq-client-id"].startswith(f"box@{os.getpid()}@")
    assert metadata["authorization"].startswith("MQv2-HMAC-SHA1 Credential=key,")


def test_a_route_is_asked_for_once(proxy, open_session):
    session = open_session(proxy)
    session.forget_route("orders")
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


@pytest.mark.parametrize("is_closed", [False, True], ids=["goes on", "closes"])
def test_a_receive_from_a_server_that_leaves_the_routes_still_brings_its_messages(
    proxy, open_session, is_closed
):
    """It was cancelled; what the server had sent stayed hidden for 60 s."""
    begun, may_end = threading.Event(), threading.Event()

    def answer(_request, context):
        begun.set()
        context.add_callback(may_end.set)
        assert may_end.wait(PATIENCE_S)
        message = pb.Message(topic=pb.Resource(name="orders"), body=b"late")
        message.system_properties.message_id = "m1"
        yield service.ReceiveMessageResponse(status=OK)
        yield service.ReceiveMessageResponse(message=message)

    with ScriptedProxy() as other:
        other.answers["ReceiveMessage"] = answer
        proxy.answers["QueryRoute"] = lambda request, _: other.route(request.topic.name)
        session = consumer(open_session, proxy)
        session.open(["orders"])
        (queue, *_) = session.in_caller(lambda via: session.route("orders", via))
        assert str(queue.endpoints) == other.endpoints
        receive = rpc.receive_message(
            queue, group="billing", batch_size=1, polling_ms=60_000
        )

        def ask():
            received = yield session.receive(queue.endpoints, receive)
            return received

        future = session.run(ask())
        wait_until(begun.is_set)
        del proxy.answers["QueryRoute"]
        session.run(session._refresh_routes()).result()
        assert not future.done()
        if is_closed:
            session.run(session.end_receives()).result()
            with pytest.raises(DisconnectedError):
                future.result(0)
            return
        may_end.set()
        (message,) = future.result(PATIENCE_S).messages
        assert message.body == b"late"


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
    answered = f"route of topic orders: {proxy.endpoints} answered {name}: because"
    assert str(failure.value) == answered


#: What proxies answer about two topics if brokers are registered, seen on 5.3.3 and
#: 5.5.0: in cluster mode, in local mode, with another name of the cluster, and where
#: the account has no right.
ANSWERS = {
    "cluster mode": ("OK", "OK"),
    "another cluster": ("OK", "TOPIC_NOT_FOUND"),
    "local mode": ("TOPIC_NOT_FOUND", "ILLEGAL_TOPIC"),
    "denied": ("UNAUTHORIZED", "UNAUTHORIZED"),
}


@pytest.mark.parametrize("names", ANSWERS.values(), ids=ANSWERS)
def test_a_topic_that_a_proxy_with_brokers_does_not_know_does_not_exist(
    proxy, open_session, names
):
    topics = ("DefaultHeartBeatSyncerTopic", "DefaultCluster")
    codes = dict(zip(topics, names, strict=True))
    proxy.answers["QueryRoute"] = lambda request, _context: service.QueryRouteResponse(
        status=status(codes.get(request.topic.name, "TOPIC_NOT_FOUND"))
    )
    session = open_session(proxy)
    with pytest.raises(NotFoundError, match=r"^topic orders does not exist$"):
        session.in_caller(lambda via: session.route("orders", via))


def test_a_proxy_that_knows_no_topic_at_all_tells_nothing_about_one(
    proxy, open_session
):
    proxy.answers["QueryRoute"] = lambda _request, _context: service.QueryRouteResponse(
        status=status("TOPIC_NOT_FOUND")
    )
    session = open_session(proxy)
    with pytest.raises(NoBrokerError) as failure:
        session.in_caller(lambda via: session.route("orders", via))
    assert str(failure.value) == (
        f"no broker is registered with the name servers of the proxy {proxy.endpoints},"
        " or there is no topic orders"
    )
    assert failure.value.address == proxy.endpoints


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
