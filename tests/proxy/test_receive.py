"""Receives, acknowledgements and what follows them, at a scripted proxy."""

from __future__ import annotations

import threading

import grpc
import pytest

from rmqcli.errors import BodyError, BrokerError, DeadlineError, DisconnectedError
from rmqcli.proxy import rpc
from rmqcli.proxy.session import SIMPLE_CONSUMER
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.subscription import parse_subscription
from tests.kit.proxy.scripted import OK, status
from tests.kit.proxy.sessions import receive_now
from tests.kit.waiting import PATIENCE_S

PART = service.ReceiveMessageResponse


def message(number):
    part = PART()
    part.message.topic.name = "orders"
    part.message.body = b"%d" % number
    part.message.system_properties.receipt_handle = f"handle {number}"
    part.message.system_properties.message_id = f"id {number}"
    return part


@pytest.fixture
def receive(proxy, open_session):
    """`receive(**options)`: one receive, whose result or error it waits for."""
    session = open_session(
        proxy,
        client_type=SIMPLE_CONSUMER,
        group="billing",
        subscriptions={"orders": parse_subscription("orders", "*")},
    )
    (queue, *_) = session.in_caller(lambda via: session.route("orders", via))

    def run(timeout_ms=None, **options):
        call = rpc.receive_message(
            queue, group="billing", batch_size=32, polling_ms=5_000, **options
        )
        return receive_now(session, queue.endpoints, call, timeout_ms)

    run.session = session  # type: ignore[attr-defined]  # for the other calls
    return run


def test_messages_come_with_their_handles(proxy, receive):
    def answer(_request, _context):
        yield PART(status=OK)
        yield message(1)
        yield message(2)
        last = PART()
        last.delivery_timestamp.FromMilliseconds(1_234)
        yield last

    proxy.answers["ReceiveMessage"] = answer
    found = receive(invisible_ms=15_000)
    assert [each.body for each in found.messages] == [b"1", b"2"]
    assert [each.receipt_handle for each in found.messages] == ["handle 1", "handle 2"]
    assert found.messages[0].broker_name == "broker-a"
    assert (found.delivery_timestamp_ms, found.error) == (1_234, None)
    (asked,) = proxy.asked("ReceiveMessage")
    assert asked.group.name == "billing"
    assert (asked.batch_size, asked.auto_renew) == (32, False)
    assert asked.invisible_duration.seconds == 15
    assert asked.long_polling_timeout.seconds == 5


def test_no_message_is_no_error(receive):
    assert receive(auto_renew=True).messages == []


def test_a_refused_receive_raises(proxy, receive):
    proxy.answers["ReceiveMessage"] = lambda _request, _context: iter(
        [PART(status=status("ILLEGAL_INVISIBLE_TIME", "too short"))]
    )
    with pytest.raises(BrokerError) as failure:
        receive()
    assert str(failure.value) == (
        f"receive from orders@broker-a: {proxy.endpoints} answered"
        " ILLEGAL_INVISIBLE_TIME: too short"
    )
    assert failure.value.address == proxy.endpoints


def test_messages_before_a_break_are_not_lost(proxy, receive):
    def answer(_request, context):
        yield PART(status=OK)
        yield message(1)
        context.abort(grpc.StatusCode.UNAVAILABLE, "going down")

    proxy.answers["ReceiveMessage"] = answer
    found = receive()
    assert [each.body for each in found.messages] == [b"1"]
    assert isinstance(found.error, DisconnectedError)
    assert str(found.error) == (
        f"receive from orders@broker-a: {proxy.endpoints} is unavailable: going down"
    )
    assert found.error.address == proxy.endpoints


def test_a_break_without_a_message_raises(proxy, receive):
    def answer(_request, context):
        yield PART(status=OK)
        context.abort(grpc.StatusCode.UNAVAILABLE, "going down")

    proxy.answers["ReceiveMessage"] = answer
    with pytest.raises(DisconnectedError, match="going down"):
        receive()


def test_a_receive_that_is_held_too_long_ends_with_its_deadline(proxy, receive):
    over = threading.Event()

    def answer(_request, _context):
        over.wait()
        yield PART(status=OK)

    proxy.answers["ReceiveMessage"] = answer
    with pytest.raises(DeadlineError) as failure:
        receive(timeout_ms=200)
    over.set()
    assert str(failure.value) == (
        f"receive from orders@broker-a: no answer from {proxy.endpoints} within 200 ms"
    )
    assert failure.value.address == proxy.endpoints


def test_an_endless_answer_is_cut(proxy, receive):
    def answer(_request, context):
        while context.is_active():
            yield message(1)

    proxy.answers["ReceiveMessage"] = answer
    found = receive()
    assert len(found.messages) == 32
    assert isinstance(found.error, BodyError)
    assert found.error.message == (
        "receive from orders@broker-a: the answer has more than the 32 messages that"
        " were requested; the rest is refused"
    )


def test_an_answer_of_many_bytes_is_cut_and_its_stream_ended(proxy, receive):
    """Memory stays bounded whatever a proxy sends; what came is still valid."""
    sent: list[int] = []
    ended = threading.Event()

    def answer(_request, context):
        context.add_callback(ended.set)
        large = message(1)
        large.message.body = bytes(8 << 20)
        while context.is_active():
            sent.append(1)
            yield large

    proxy.answers["ReceiveMessage"] = answer
    found = receive()
    assert len(found.messages) == 7
    assert found.error is not None
    assert found.error.message == (
        "receive from orders@broker-a: the answer is larger than 67108864 bytes; the"
        " rest is refused"
    )
    assert ended.wait(PATIENCE_S)
    assert len(sent) < 20


def test_an_answer_of_endless_parts_without_messages_is_cut(proxy, receive):
    def answer(_request, context):
        while context.is_active():
            yield PART(status=OK)

    proxy.answers["ReceiveMessage"] = answer
    with pytest.raises(BodyError, match="the answer has more than 64 parts besides"):
        receive()


def test_failed_acks_are_told_one_by_one(proxy, receive):
    def answer(request, _context):
        found = service.AckMessageResponse(status=status("MULTIPLE_RESULTS"))
        first, second = request.entries
        found.entries.add(status=OK, receipt_handle=first.receipt_handle)
        found.entries.add(
            status=status("INVALID_RECEIPT_HANDLE", "expired"),
            receipt_handle=second.receipt_handle,
        )
        return found

    proxy.answers["AckMessage"] = answer
    session = receive.session
    call = rpc.ack_messages("orders", "billing", [("1", "h1"), ("2", "h2")])
    (failure,) = session.invoke(session.access_point, call)
    assert failure.receipt_handle == "h2"
    assert failure.error.name == "INVALID_RECEIPT_HANDLE"


def test_a_change_gives_a_new_handle(proxy, receive):
    session = receive.session
    call = rpc.change_invisible_duration(
        topic="orders",
        group="billing",
        msg_id="1",
        receipt_handle="old",
        invisible_ms=20_000,
    )
    assert session.invoke(session.access_point, call) == "new handle"
    (asked,) = proxy.asked("ChangeInvisibleDuration")
    assert (asked.receipt_handle, asked.invisible_duration.seconds) == ("old", 20)


def test_a_message_is_forwarded_to_the_dead_letters(proxy, receive):
    session = receive.session
    call = rpc.forward_to_dead_letter_queue(
        topic="orders",
        group="billing",
        msg_id="1",
        receipt_handle="h",
        delivery_attempt=17,
        max_delivery_attempts=16,
    )
    assert session.invoke(session.access_point, call) is None
    (asked,) = proxy.asked("ForwardMessageToDeadLetterQueue")
    assert (asked.delivery_attempt, asked.max_delivery_attempts) == (17, 16)


def test_an_assignment_may_be_all_queues_of_a_broker(proxy, receive):
    def answer(request, _context):
        found = service.QueryAssignmentResponse(status=OK)
        found.assignments.add(message_queue=proxy.queue(request.topic.name, -1))
        return found

    proxy.answers["QueryAssignment"] = answer
    session = receive.session
    call = rpc.query_assignment("orders", "billing", session.access_point)
    (assigned,) = session.invoke(session.access_point, call)
    assert (assigned.queue.broker_name, assigned.queue.queue_id) == ("broker-a", -1)
    assert assigned.raw.id == -1
    assert pb.MessageType.NORMAL in assigned.accept_message_types
