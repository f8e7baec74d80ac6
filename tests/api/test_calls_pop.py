"""POP: answers give receipt handles, and acks carry what the handles contain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqcli.api.calls.pop import (
    ack_message,
    batch_ack_message,
    change_invisible_time,
    pop_message,
)
from rmqcli.errors import HeaderError
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.receipt_handle import (
    ReceiptHandle,
    decode_receipt_handle,
    encode_receipt_handle,
)


def pop(**given: Any):
    options: dict[str, Any] = {
        "max_msg_nums": 16,
        "invisible_ms": 60_000,
        "poll_ms": 15_000,
        "expression": "A || B",
        "expression_type": "TAG",
    } | given
    return pop_message("g", "orders", **options)


def record(queue_id, offset, *, topic="orders", times=0, **properties):
    return encode_message(
        MessageFields(
            topic=topic,
            body=b"x",
            queue_id=queue_id,
            queue_offset=offset,
            commit_log_offset=offset * 1_000,
            reconsume_times=times,
            properties=properties,
        )
    )


def answer(*records, code=0, revive=3, starts="0 1 10", counts=None):
    fields = {
        "popTime": "1700000000000",
        "invisibleTime": "60000",
        "reviveQid": str(revive),
        "restNum": "0",
        "startOffsetInfo": starts,
        "msgOffsetInfo": "",
    }
    if counts is not None:
        fields["orderCountInfo"] = counts
    return pop().parse(RemotingCommand(code, ext_fields=fields, body=b"".join(records)))


def handles(found):
    return [
        encode_receipt_handle(found.handle_of(each, "broker-a"))
        for each in decode_messages(found.body)
    ]


def test_a_pop_asks_the_broker_to_put_its_own_time_in():
    assert pop(from_min=True, is_order=True).ext_fields == {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "-1",
        "maxMsgNums": "16",
        "invisibleTime": "60000",
        "pollTime": "15000",
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "A || B",
        "order": "true",
    }
    assert pop().ext_fields["initMode"] == "1"


def test_a_message_is_named_by_its_batch_and_its_offset():
    found = answer(record(1, 10), record(1, 12))
    assert handles(found) == [
        "10 1700000000000 60000 3 0 broker-a 1 10",
        "10 1700000000000 60000 3 0 broker-a 1 12",
    ]


def test_a_retry_is_named_as_the_broker_did():
    given = "4 1700000000001 60000 2 1 broker-a 0 7"
    assert handles(answer(record(0, 7, POP_CK=given))) == [given]


def test_a_name_that_cannot_be_read_is_an_error():
    found = answer(record(0, 7, POP_CK="4 x"))
    with pytest.raises(HeaderError):
        handles(found)


def test_a_message_of_an_unnamed_batch_is_a_batch_of_its_own():
    assert handles(answer(record(5, 40))) == [
        "40 1700000000000 60000 3 0 broker-a 5 40"
    ]


@pytest.mark.parametrize("code", [19, 209, 210])
def test_an_answer_without_messages_is_empty(code):
    found = pop().parse(RemotingCommand(code))
    assert (found.body, found.is_full) == (b"", code == 209)


def deliveries(found):
    return [
        found.deliveries_of(each, found.handle_of(each, "broker-a"))
        for each in decode_messages(found.body)
    ]


def test_a_retry_counts_its_deliveries_itself():
    assert deliveries(answer(record(1, 10), record(1, 11, times=2))) == [0, 2]


def test_the_broker_counts_the_deliveries_of_an_orderly_queue():
    found = answer(
        record(1, 10),
        record(1, 11),
        record(2, 5),
        revive=999,
        counts="0 1 3;0 qo1%11 4",
    )
    assert deliveries(found) == [3, 4, 0]


RETRY = decode_receipt_handle("4 1700000000001 60000 2 1 broker-a 0 7")
FIRST = decode_receipt_handle("10 1700000000000 60000 3 0 broker-a 1 10")
THIRD = decode_receipt_handle("10 1700000000000 60000 3 0 broker-a 1 12")


def test_an_ack_names_the_topic_in_which_the_message_lies():
    assert ack_message("g", "orders", RETRY).ext_fields == {
        "consumerGroup": "g",
        "topic": "%RETRY%g_orders",
        "queueId": "0",
        "extraInfo": "4 1700000000001 60000 2 1 broker-a 0 7",
        "offset": "7",
    }


def test_acks_of_one_batch_go_together():
    pairs = [("orders", FIRST), ("orders", THIRD), ("orders", RETRY)]
    body = json.loads(batch_ack_message("g", "broker-a", pairs).body)
    assert body == {
        "brokerName": "broker-a",
        "acks": [
            {
                "c": "g", "t": "orders", "r": "0", "so": 10, "q": 1, "rq": 3,
                "pt": 1700000000000, "it": 60000, "b": "BQ==",
            },
            {
                "c": "g", "t": "orders", "r": "1", "so": 4, "q": 0, "rq": 2,
                "pt": 1700000000001, "it": 60000, "b": "CA==",
            },
        ],
    }  # fmt: skip


def test_a_batch_has_no_offset_to_acknowledge():
    batch = decode_receipt_handle("10 1700000000000 60000 3 0 broker-a 1")
    with pytest.raises(ValueError, match="that of a batch"):
        ack_message("g", "orders", batch)


def test_a_hidden_message_gets_a_handle_of_its_own():
    call = change_invisible_time("g", "orders", THIRD, 90_000)
    assert call.ext_fields == {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "1",
        "extraInfo": "10 1700000000000 60000 3 0 broker-a 1 12",
        "offset": "12",
        "invisibleTime": "90000",
        "suspend": "false",
    }
    fields = {"popTime": "1700000009999", "invisibleTime": "90000", "reviveQid": "5"}
    assert call.parse(RemotingCommand(0, ext_fields=fields)) == ReceiptHandle(
        start_offset=12,
        pop_time_ms=1700000009999,
        invisible_ms=90_000,
        revive_queue_id=5,
        topic_type="0",
        broker_name="broker-a",
        queue_id=1,
        offset=12,
    )
