"""Which records a sent message makes, and how they are put into messages."""

from __future__ import annotations

from typing import Any

import pytest

from rmqcli.api.calls.send import SendAnswer, SendStatus
from rmqcli.config import ClientConfig
from rmqcli.producer.remoting.publisher import Prepared
from rmqcli.producer.remoting.trace import SentTraces, TraceDispatcher, _keys_of
from rmqcli.producer.transactions import LocalTransactionState
from rmqcli.testing import ManualClock
from rmqcli.trace.record import EndTransaction, Pub, TraceMessageType
from rmqcli.wire.headers.send import EndTransactionRequestHeader
from rmqcli.wire.message.batch import encode_items
from rmqcli.wire.message.properties import encode_properties

TYPES = TraceMessageType


class Kept:
    """A dispatcher that keeps what it is given."""

    topic = "traces"

    def __init__(self):
        self.records = []

    def append(self, records):
        self.records.extend(records)


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def traces(kept):
    return SentTraces(kept, "shop", clock=ManualClock(1_000_000))


def prepared(topic="orders", properties=None, **fields):
    return Prepared(
        topic=topic,
        msg_ids=("A1",),
        body=b"hello",
        properties=encode_properties(properties or {}),
        born_timestamp_ms=1,
        **fields,
    )


def answer(*ids, status=SendStatus.SEND_OK, fields=None):
    return SendAnswer(
        status=status,
        offset_msg_ids=ids,
        queue_id=3,
        queue_offset=77,
        fields=fields or {},
    )


def stored(traces, sent, answered, started_ms=100, ended_ms=107):
    traces.stored(sent, answered, "h:1", started_ms=started_ms, ended_ms=ended_ms)


def pub(**fields):
    values: dict[str, Any] = {
        "timestamp_ms": 100,
        "region_id": "DefaultRegion",
        "group": "shop",
        "topic": "orders",
        "msg_id": "A1",
        "tags": None,
        "keys": None,
        "store_host": "h:1",
        "body_bytes": 5,
        "cost_ms": 7,
        "message_type": TYPES.Normal_Msg,
        "offset_msg_id": "B1",
        "is_success": True,
    }
    return Pub(**values | fields)


def test_a_stored_message_is_reported_with_what_its_broker_answered(traces, kept):
    sent = prepared(properties={"TAGS": "t", "KEYS": "k1 k2"})
    stored(traces, sent, answer("B1", fields={"MSG_REGION": "hz"}))
    assert kept.records == [pub(tags="t", keys="k1 k2", region_id="hz")]


@pytest.mark.parametrize("status", list(SendStatus))
def test_only_send_ok_is_a_success(traces, kept, status):
    stored(traces, prepared(), answer("B1", status=status))
    assert kept.records == [pub(is_success=status is SendStatus.SEND_OK)]


def test_a_clock_that_is_set_back_makes_no_negative_time(traces, kept):
    stored(traces, prepared(), answer("B1"), started_ms=100, ended_ms=99)
    assert kept.records == [pub(cost_ms=0)]


@pytest.mark.parametrize(
    ("topic", "fields", "is_reported"),
    [
        ("orders", {}, True),
        ("orders", {"TRACE_ON": "true"}, True),
        ("orders", {"TRACE_ON": "false"}, False),
        ("traces", {}, False),
    ],
)
def test_traces_themselves_and_brokers_without_traces_are_left_out(
    traces, kept, topic, fields, is_reported
):
    stored(traces, prepared(topic), answer("B1", fields=fields))
    assert bool(kept.records) is is_reported


@pytest.mark.parametrize(
    ("properties", "fields", "kind"),
    [
        ({}, {}, TYPES.Normal_Msg),
        ({"TRAN_MSG": "true"}, {}, TYPES.Trans_Msg_Half),
        ({"TRAN_MSG": "false"}, {}, TYPES.Normal_Msg),
        ({}, {"is_elsewhere": True}, TYPES.Delay_Msg),
        ({"TRAN_MSG": "true"}, {"is_elsewhere": True}, TYPES.Delay_Msg),
    ],
)
def test_a_record_says_what_kind_of_message_it_is(
    traces, kept, properties, fields, kind
):
    stored(traces, prepared(properties=properties, **fields), answer("B1"))
    assert [each.message_type for each in kept.records] == [kind]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [(("B1", "B2"), ["B1", "B2"]), (("B1",), [None, None]), ((), [None, None])],
)
def test_each_message_of_a_batch_has_a_record_of_its_own(traces, kept, ids, expected):
    batch = Prepared(
        topic="orders",
        msg_ids=("A1", "A2"),
        body=encode_items(
            [
                (b"one", encode_properties({"KEYS": "k"}).encode(), 0),
                (b"three", encode_properties({"TAGS": "t"}).encode(), 0),
            ]
        ),
        is_batch=True,
        born_timestamp_ms=1,
    )
    stored(traces, batch, answer(*ids))
    first, second = expected
    assert kept.records == [
        pub(msg_id="A1", keys="k", body_bytes=3, offset_msg_id=first),
        pub(msg_id="A2", tags="t", body_bytes=5, offset_msg_id=second),
    ]


@pytest.mark.parametrize("is_from_check", [False, True])
def test_the_end_of_a_transaction_is_reported_with_its_half_message(
    traces, kept, is_from_check
):
    end = EndTransactionRequestHeader(
        topic="orders",
        producer_group="shop",
        tran_state_table_offset=0,
        commit_log_offset=0,
        commit_or_rollback=8,
        from_transaction_check=is_from_check,
        msg_id="A1",
        transaction_id="T1",
    )
    properties = {"TAGS": "t", "KEYS": "k"}
    traces.transaction_ended(
        end, LocalTransactionState.COMMIT_MESSAGE, properties, "h:1"
    )
    assert kept.records == [
        EndTransaction(
            timestamp_ms=1_000_000,
            region_id="DefaultRegion",
            group="shop",
            topic="orders",
            msg_id="A1",
            tags="t",
            keys="k",
            store_host="h:1",
            message_type=TYPES.Trans_msg_Commit,
            transaction_id="T1",
            state="COMMIT_MESSAGE",
            is_from_check=is_from_check,
        )
    ]


# --- records to messages ---


def test_the_keys_of_a_message_are_those_of_its_records_each_once():
    records = [pub(keys="k1 k2"), pub(msg_id="A2", keys="k1"), pub(msg_id="A3")]
    assert _keys_of(records) == "A1 k1 k2 A2 A3"


@pytest.mark.parametrize(
    ("length", "is_kept"),
    [
        # 4 bytes for each character and one between them, of 16,384: 5 for the id.
        (4_094, True),
        (4_095, False),
    ],
)
def test_of_a_message_with_very_many_keys_only_the_id_is_a_key(length, is_kept):
    key = "k" * length
    assert _keys_of([pub(msg_id="a", keys=key)]) == (f"a {key}" if is_kept else "a")


@pytest.fixture
def dispatcher():
    """A dispatcher that is not started, so that it keeps what waits."""
    config = ClientConfig(namesrv=("127.0.0.1:1",))
    made = TraceDispatcher(config, "traces", clock=ManualClock())
    yield made
    made._waiting.clear()
    made._thread.start()
    made._thread.end()


@pytest.mark.parametrize(
    ("count", "keys", "taken"),
    [
        (99, None, 99),
        (101, None, 100),
        # Keys of 16,384 bytes at most: 4 * 2 + 1 for an id, 4 * 500 + 1 for a key.
        (50, "k" * 500, 8),
        # One that is too large by itself still has to go out.
        (2, "k" * 5_000, 1),
    ],
)
def test_a_message_takes_records_up_to_its_bounds(dispatcher, count, keys, taken):
    records = [pub(msg_id=f"{each:02}"[:2], keys=keys) for each in range(count)]
    dispatcher._waiting.extend(records)
    assert dispatcher._take() == records[:taken]
    assert list(dispatcher._waiting) == records[taken:]


def test_records_that_find_no_room_are_dropped_as_a_whole_and_counted(
    dispatcher, caplog
):
    dispatcher._is_woken = True  # nothing takes them
    dispatcher.append([pub()] * 16_383)
    dispatcher.append([pub()] * 2)
    assert (len(dispatcher._waiting), dispatcher.dropped) == (16_383, 2)
    dispatcher.append([pub()])
    dispatcher.append([pub()] * 3)
    assert (len(dispatcher._waiting), dispatcher.dropped) == (16_384, 5)
    assert [each.getMessage() for each in caplog.records] == [
        (
            "traces are dropped, because they come faster than they are written"
            " topic=traces"
        )
    ]


def test_a_forked_child_keeps_no_records(dispatcher):
    dispatcher.append([pub()])
    dispatcher.forget_after_fork()
    dispatcher.append([pub()])
    assert not dispatcher._waiting
    assert dispatcher.dropped == 0
