"""What each call asks of a proxy, and the errors that its answer becomes."""

from __future__ import annotations

import pytest

from rmqcli.errors import BodyError, BrokerError
from rmqcli.model import MessageQueue
from rmqcli.proxy import rpc
from rmqcli.proxy.endpoints import endpoints_of, parse_endpoints
from rmqcli.proxy.rpc import ProxyQueue
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from rmqcli.wire.subscription import parse_subscription
from tests.kit.proxy.scripted import OK, status
from tests.kit.rows import each_row

ACCESS_POINT = parse_endpoints(("127.0.0.1:8081",))
ENDPOINTS = pb.Endpoints(
    scheme=pb.AddressScheme.IPv4, addresses=[pb.Address(host="127.0.0.1", port=8081)]
)
ORDERS = pb.Resource(name="orders")
BILLING = pb.Resource(name="billing")
RAW = pb.MessageQueue(
    topic=ORDERS,
    id=3,
    permission=pb.Permission.READ,
    broker=pb.Broker(name="broker-a", id=2, endpoints=ENDPOINTS),
    accept_message_types=[pb.MessageType.FIFO],
)
QUEUE = ProxyQueue(
    queue=MessageQueue("orders", "broker-a", 3),
    broker_id=2,
    endpoints=ACCESS_POINT,
    is_readable=True,
    is_writable=False,
    accept_message_types=frozenset({2}),
    raw=RAW,
)
MESSAGE = pb.Message(topic=ORDERS, body=b"one")

#: call, method, request, what it is called in errors
CALLS = [
    (
        rpc.query_route("orders", ACCESS_POINT),
        "QueryRoute",
        service.QueryRouteRequest(topic=ORDERS, endpoints=ENDPOINTS),
        "route of topic orders",
    ),
    (
        rpc.query_assignment("orders", "billing", ACCESS_POINT),
        "QueryAssignment",
        service.QueryAssignmentRequest(
            topic=ORDERS, group=BILLING, endpoints=ENDPOINTS
        ),
        "assignment of group billing for topic orders",
    ),
    (
        rpc.heartbeat(3, "billing"),
        "Heartbeat",
        service.HeartbeatRequest(
            group=BILLING, client_type=pb.ClientType.SIMPLE_CONSUMER
        ),
        "heartbeat",
    ),
    (
        rpc.heartbeat(1, None),
        "Heartbeat",
        service.HeartbeatRequest(client_type=pb.ClientType.PRODUCER),
        "heartbeat",
    ),
    (
        rpc.notify_client_termination("billing"),
        "NotifyClientTermination",
        service.NotifyClientTerminationRequest(group=BILLING),
        "unregistration",
    ),
    (
        rpc.notify_client_termination(None),
        "NotifyClientTermination",
        service.NotifyClientTerminationRequest(),
        "unregistration",
    ),
    (
        rpc.send_message([MESSAGE], "send to orders"),
        "SendMessage",
        service.SendMessageRequest(messages=[MESSAGE]),
        "send to orders",
    ),
    (
        rpc.end_transaction(
            topic="orders",
            msg_id="1",
            transaction_id="T1",
            is_commit=True,
            from_check=False,
        ),
        "EndTransaction",
        service.EndTransactionRequest(
            topic=ORDERS,
            message_id="1",
            transaction_id="T1",
            resolution=pb.TransactionResolution.COMMIT,
            source=pb.TransactionSource.SOURCE_CLIENT,
        ),
        "end of transaction T1",
    ),
    (
        rpc.end_transaction(
            topic="orders",
            msg_id="1",
            transaction_id="T1",
            is_commit=False,
            from_check=True,
        ),
        "EndTransaction",
        service.EndTransactionRequest(
            topic=ORDERS,
            message_id="1",
            transaction_id="T1",
            resolution=pb.TransactionResolution.ROLLBACK,
            source=pb.TransactionSource.SOURCE_SERVER_CHECK,
        ),
        "end of transaction T1",
    ),
    (
        rpc.recall_message("orders", "handle"),
        "RecallMessage",
        service.RecallMessageRequest(topic=ORDERS, recall_handle="handle"),
        "recall of a message of topic orders",
    ),
    (
        rpc.ack_messages("orders", "billing", [("1", "h1"), ("2", "h2")]),
        "AckMessage",
        service.AckMessageRequest(
            topic=ORDERS,
            group=BILLING,
            entries=[
                service.AckMessageEntry(message_id="1", receipt_handle="h1"),
                service.AckMessageEntry(message_id="2", receipt_handle="h2"),
            ],
        ),
        "ack of 2 messages of topic orders",
    ),
    (
        rpc.change_invisible_duration(
            topic="orders",
            group="billing",
            msg_id="1",
            receipt_handle="h1",
            invisible_ms=2_500,
        ),
        "ChangeInvisibleDuration",
        service.ChangeInvisibleDurationRequest(
            topic=ORDERS,
            group=BILLING,
            message_id="1",
            receipt_handle="h1",
            invisible_duration={"seconds": 2, "nanos": 500_000_000},
        ),
        "change of the invisible time of message 1",
    ),
    (
        rpc.forward_to_dead_letter_queue(
            topic="orders",
            group="billing",
            msg_id="1",
            receipt_handle="h1",
            delivery_attempt=17,
            max_delivery_attempts=16,
        ),
        "ForwardMessageToDeadLetterQueue",
        service.ForwardMessageToDeadLetterQueueRequest(
            topic=ORDERS,
            group=BILLING,
            message_id="1",
            receipt_handle="h1",
            delivery_attempt=17,
            max_delivery_attempts=16,
        ),
        "forwarding of message 1 to the dead-letter queue of billing",
    ),
]


@each_row(
    ("call", "method", "request_", "what"), CALLS, ids=[each[1] for each in CALLS]
)
def test_a_call_carries_what_it_was_given_and_names_itself_in_errors(
    call, method, request_, what
):
    assert call.method == f"/apache.rocketmq.v2.MessagingService/{method}"
    assert type(request_).FromString(call.request) == request_
    assert call.what == what
    with pytest.raises(BodyError) as unreadable:
        call.parse(b"\xff\xff\xff", "there:1")
    assert str(unreadable.value) == f"{what}: the answer of there:1 cannot be read"
    answer = getattr(service, f"{method}Response")
    refusal = answer(status=status("INTERNAL_SERVER_ERROR", "no"))
    with pytest.raises(BrokerError) as refused:
        call.parse(refusal.SerializeToString(), "there:1")
    assert str(refused.value) == (f"{what}: there:1 answered INTERNAL_SERVER_ERROR: no")
    assert refused.value.address == "there:1"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {},
            service.ReceiveMessageRequest(
                filter_expression=pb.FilterExpression(
                    type=pb.FilterType.TAG, expression="*"
                )
            ),
        ),
        (
            {
                "subscription": parse_subscription(
                    "orders", "a > 1", expression_type="SQL92"
                ),
                "invisible_ms": 15_000,
                "auto_renew": True,
                "attempt_id": "A1",
            },
            service.ReceiveMessageRequest(
                filter_expression=pb.FilterExpression(
                    type=pb.FilterType.SQL, expression="a > 1"
                ),
                invisible_duration={"seconds": 15},
                auto_renew=True,
                attempt_id="A1",
            ),
        ),
    ],
    ids=["defaults", "all"],
)
def test_a_receive_carries_what_it_was_given(options, expected):
    call = rpc.receive_message(
        QUEUE, group="billing", batch_size=7, polling_ms=5_000, **options
    )
    expected.MergeFrom(
        service.ReceiveMessageRequest(
            group=BILLING,
            message_queue=RAW,
            batch_size=7,
            long_polling_timeout={"seconds": 5},
        )
    )
    assert service.ReceiveMessageRequest.FromString(call.request) == expected
    assert call.method == "/apache.rocketmq.v2.MessagingService/ReceiveMessage"
    assert call.what == "receive from orders@broker-a"
    assert (call.broker_name, call.polling_ms, call.batch_size) == (
        "broker-a",
        5_000,
        7,
    )


# --- answers ---


@pytest.mark.parametrize(
    ("permission", "is_readable", "is_writable"),
    [
        (pb.Permission.NONE, False, False),
        (pb.Permission.READ, True, False),
        (pb.Permission.WRITE, False, True),
        (pb.Permission.READ_WRITE, True, True),
    ],
)
def test_a_queue_is_read_from_routes_and_assignments(
    permission, is_readable, is_writable
):
    raw = pb.MessageQueue()
    raw.CopyFrom(RAW)
    raw.permission = permission
    expected = ProxyQueue(
        queue=MessageQueue("orders", "broker-a", 3),
        broker_id=2,
        endpoints=endpoints_of(ENDPOINTS),
        is_readable=is_readable,
        is_writable=is_writable,
        accept_message_types=frozenset({2}),
        raw=raw,
    )
    route = service.QueryRouteResponse(status=OK, message_queues=[raw])
    call = rpc.query_route("orders", ACCESS_POINT)
    assert call.parse(route.SerializeToString(), "there:1") == (expected,)
    assignment = service.QueryAssignmentResponse(status=OK)
    assignment.assignments.add(message_queue=raw)
    assigned = rpc.query_assignment("orders", "billing", ACCESS_POINT)
    assert assigned.parse(assignment.SerializeToString(), "there:1") == (expected,)


def test_a_send_s_result_is_that_of_each_message_and_no_more():
    answer = service.SendMessageResponse(status=status("MULTIPLE_RESULTS"))
    for number, code in enumerate(("OK", "SLAVE_PERSISTENCE_TIMEOUT", "OK")):
        answer.entries.add(
            status=status(code),
            message_id=f"id {number}",
            transaction_id=f"T{number}",
            offset=number + 10,
            recall_handle=f"recall {number}",
        )
    data = answer.SerializeToString()
    two = rpc.send_message([MESSAGE, MESSAGE], "send to orders")
    assert two.parse(data, "there:1") == [
        rpc.SendEntry(
            code=20_000,
            msg_id="id 0",
            transaction_id="T0",
            queue_offset=10,
            recall_handle="recall 0",
        ),
        rpc.SendEntry(
            code=pb.Code.SLAVE_PERSISTENCE_TIMEOUT,
            msg_id="id 1",
            transaction_id="T1",
            queue_offset=11,
            recall_handle="recall 1",
        ),
    ]
    answer.entries[1].status.CopyFrom(status("INTERNAL_SERVER_ERROR", "full"))
    with pytest.raises(BrokerError) as refused:
        two.parse(answer.SerializeToString(), "there:1")
    assert str(refused.value) == (
        "send to orders: there:1 answered INTERNAL_SERVER_ERROR: full"
    )
    assert refused.value.address == "there:1"
    with pytest.raises(
        BodyError, match=r"^send to orders: there:1 answered OK without"
    ):
        two.parse(service.SendMessageResponse(status=OK).SerializeToString(), "there:1")


def test_an_ack_s_failures_name_their_handle_and_the_server():
    answer = service.AckMessageResponse(status=status("MULTIPLE_RESULTS"))
    answer.entries.add(status=OK, receipt_handle="h1")
    answer.entries.add(
        status=status("INVALID_RECEIPT_HANDLE", "expired"), receipt_handle="h2"
    )
    answer.entries.add(status=status("INTERNAL_ERROR"), receipt_handle="not asked")
    call = rpc.ack_messages("orders", "billing", [("1", "h1"), ("2", "h2")])
    (failure,) = call.parse(answer.SerializeToString(), "there:1")
    assert failure.receipt_handle == "h2"
    assert isinstance(failure.error, BrokerError)
    assert failure.error.address == "there:1"
    assert str(failure.error) == (
        "ack of 2 messages of topic orders: there:1 answered INVALID_RECEIPT_HANDLE:"
        " expired"
    )


def test_a_change_without_a_new_handle_is_an_error():
    call = rpc.change_invisible_duration(
        topic="orders",
        group="billing",
        msg_id="1",
        receipt_handle="h1",
        invisible_ms=2_500,
    )
    answer = service.ChangeInvisibleDurationResponse(status=OK)
    with pytest.raises(BodyError) as failure:
        call.parse(answer.SerializeToString(), "there:1")
    assert str(failure.value) == (
        "change of the invisible time of message 1: there:1 answered without a receipt"
        " handle"
    )


def test_a_proxy_without_the_newest_call_does_not_keep_batches_apart():
    call = rpc.keeps_batches_apart()
    assert call.method == "/apache.rocketmq.v2.MessagingService/SyncLiteSubscription"
    assert call.request == b""
    assert call.what == "batches"
    assert call.parse(b"anything", "there:1") is True


def fed(parts):
    """The messages of an answer of those parts, of at most 16 messages."""
    call = rpc.receive_message(QUEUE, group="billing", batch_size=16, polling_ms=5_000)
    parser = rpc.ReceiveParser(call, ACCESS_POINT)
    for part in parts:
        parser.feed(part)
    return parser.end().messages


def message_of(size):
    """A part with a message, `size` bytes in all."""
    part = service.ReceiveMessageResponse()
    part.message.body = bytes(size - 64)
    part.message.body += bytes(size - part.ByteSize())
    assert part.ByteSize() == size
    return part.SerializeToString()


@pytest.mark.parametrize(
    ("parts", "messages"),
    [
        (16 * [message_of(100)], 16),
        (17 * [message_of(100)], "has more than the 16 messages that were requested"),
        (16 * [message_of(4 << 20)], 16),
        (15 * [message_of(4 << 20)] + [message_of((4 << 20) + 1)], "is larger than"),
        (64 * [service.ReceiveMessageResponse(status=OK).SerializeToString()], 0),
        (
            65 * [service.ReceiveMessageResponse(status=OK).SerializeToString()],
            "has more than 64 parts besides its messages",
        ),
    ],
    ids=["messages", "messages+1", "bytes", "bytes+1", "others", "others+1"],
)
def test_a_receive_s_answer_has_exact_bounds(parts, messages):
    if isinstance(messages, int):
        assert len(fed(parts)) == messages
        return
    with pytest.raises(BodyError, match=f"the answer {messages}"):
        fed(parts)
