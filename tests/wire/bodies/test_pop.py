"""Bodies of POP requests are written and read as in Java."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.errors import BodyError
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.pop import (
    BatchAck,
    BatchAckMessageRequestBody,
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rmqcli.wire.body import decode_body, encode_body
from tests.golden_vectors import load
from tests.kit.rows import EachRow, each_row

POP = load("pop")


def golden(kind: str) -> EachRow:
    cases = [(case["given"], case["expected"]) for case in POP if case["kind"] == kind]
    assert cases
    return each_row(("value", "expected"), cases)


@golden("batch_ack")
def test_a_batch_of_acks_is_written_and_read_as_in_java(value: Any, expected: Any):
    """The bit set is base64 of little-endian bytes, without trailing zero bytes."""
    ack = BatchAck(
        consumer_group="g",
        topic="T",
        retry="1",
        start_offset=7,
        queue_id=3,
        revive_queue_id=5,
        pop_time=1700000000123,
        invisible_time=15000,
        bit_set=frozenset(value),
    )
    body = BatchAckMessageRequestBody(broker_name="broker-a", acks=[ack])

    assert encode_body(body).decode() == expected
    assert decode_body(BatchAckMessageRequestBody, expected.encode()) == body


@golden("batch_ack_accepted")
def test_odd_batches_of_acks(value: Any, expected: Any) -> None:
    if "error" in expected:
        with pytest.raises(BodyError):
            decode_body(BatchAckMessageRequestBody, value.encode())
        return

    acks = decode_body(BatchAckMessageRequestBody, value.encode()).acks

    assert acks is not None
    (ack,) = acks
    assert ack.bit_set == frozenset(expected.pop("bit_set"))
    assert {name: getattr(ack, name) for name in expected} == expected


def test_a_bit_set_of_absurd_length_is_refused() -> None:
    text = '{"acks":[{"b":"' + "A" * 20_000 + '"}]}'

    with pytest.raises(BodyError, match="too long"):
        decode_body(BatchAckMessageRequestBody, text.encode())


@golden("assignments")
def test_assignments(value: Any, expected: Any) -> None:
    body = QueryAssignmentResponseBody(
        message_queue_assignments=[
            MessageQueueAssignment(
                message_queue=MessageQueue("T", "broker-a", -1),
                mode="POP",
                attachments={"k": "v"},
            ),
            MessageQueueAssignment(message_queue=MessageQueue("T", "broker-b", 3)),
        ]
    )

    assert encode_body(body).decode() == expected
    assert decode_body(QueryAssignmentResponseBody, expected.encode()) == body


@golden("no_assignments")
def test_an_answer_without_assignments(value: Any, expected: Any) -> None:
    body = QueryAssignmentResponseBody()

    assert encode_body(body).decode() == expected
    assert decode_body(QueryAssignmentResponseBody, expected.encode()) == body


@golden("assignment_request")
def test_the_question_for_assignments(value: Any, expected: Any) -> None:
    body = QueryAssignmentRequestBody(
        topic="T",
        consumer_group="g",
        client_id="c",
        strategy_name="AVG",
        message_model="CLUSTERING",
    )

    assert encode_body(body).decode() == expected
    assert decode_body(QueryAssignmentRequestBody, expected.encode()) == body


@golden("set_mode")
def test_a_change_of_mode(value: Any, expected: Any) -> None:
    body = SetMessageRequestModeRequestBody(
        topic="T", consumer_group="g", mode="POP", pop_share_queue_num=8
    )

    assert encode_body(body).decode() == expected
    assert decode_body(SetMessageRequestModeRequestBody, expected.encode()) == body


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("{}", "PULL"),
        ('{"mode":"POP"}', "POP"),
        ('{"mode":1}', "POP"),
        ('{"mode":0}', "PULL"),
        ('{"mode":2}', None),
        ('{"mode":"PUSH"}', None),
    ],
)
def test_modes(text: str, mode: str | None) -> None:
    body = decode_body(SetMessageRequestModeRequestBody, text.encode())

    assert body.mode == mode


def test_the_file_of_modes() -> None:
    """Reflection filled the file's object in Java; one entry has no topic."""
    (case,) = [
        case
        for case in load("bodies")
        if case["class"] == "MessageRequestModeSerializeWrapper"
        and case["expected"]["messageRequestModeMap"]
        and case["rocketmq"] == "5.5.0"
        and case["name"].endswith(" 0")
    ]

    body = decode_body(MessageRequestModeSerializeWrapper, case["text"].encode())

    modes = body.message_request_mode_map["%RETRY%g1"]
    assert modes["TopicTest42"] == SetMessageRequestModeRequestBody(
        topic="order-events_1",
        consumer_group="g83",
        mode="PULL",
        pop_share_queue_num=-1,
    )
    assert modes["order-events_141"].topic is None
    assert modes["order-events_141"].pop_share_queue_num == 70
