"""Traces are written and read as RocketMQ's Java clients write and read them."""

from __future__ import annotations

import base64
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.trace.codec import (
    RECORDS_MAX,
    DecodedTrace,
    decode_records,
    encode_records,
    trace_keys,
)
from rmqcli.trace.record import (
    ConsumeReturnType,
    EndTransaction,
    Pub,
    Recall,
    SubAfter,
    SubBefore,
    TraceMessageType,
    TraceRecord,
)
from tests.golden_vectors import from_base64, load
from tests.kit.java_program import run_java
from tests.kit.rows import each_row

CASES = [
    pytest.param(case, id=f"{case['rocketmq']} {case['case']}")
    for case in load("trace")
]
#: Java's property -> our field, where it is not the same in snake case.
NAMES = {
    "timeStamp": "timestamp_ms",
    "groupName": "group",
    "bodyLength": "body_bytes",
    "costTime": "cost_ms",
    "msgType": "message_type",
    "success": "is_success",
    "contextCode": "return_type",
    "transactionState": "state",
    "fromTransactionCheck": "is_from_check",
    "regionId": "region_id",
    "msgId": "msg_id",
    "storeHost": "store_host",
    "offsetMsgId": "offset_msg_id",
    "requestId": "request_id",
    "retryTimes": "retry_times",
    "transactionId": "transaction_id",
}


def values(record):
    """The fields of a record, as the golden file has them."""
    fields = {
        each.name: getattr(record, each.name) for each in dataclasses.fields(record)
    }
    if isinstance(fields.get("message_type"), TraceMessageType):
        fields["message_type"] = fields["message_type"].name
    return fields


def java_values(expected):
    """What Java has read, with our names; it does not know an absent text."""
    found = {NAMES.get(name, name): value for name, value in expected.items()}
    found.pop("traceType")
    return {name: None if v == "null" else v for name, v in found.items()}


@each_row("case", CASES)
def test_what_java_s_clients_write_is_read(case):
    decoded = decode_records(from_base64(case["bytes_b64"]))
    assert decoded.unreadable == 0
    assert [type(each).__name__ for each in decoded.records] == [
        each["traceType"] for each in case["expected_many"]
    ]
    for record, expected in zip(decoded.records, case["expected_many"], strict=True):
        found, wanted = values(record), java_values(expected)
        assert {name: found[name] for name in wanted} == wanted
        assert {found[name] for name in set(found) - set(wanted)} <= {None}


@each_row("case", CASES)
def test_what_is_read_is_written_as_java_s_clients_write_it(case):
    data = from_base64(case["bytes_b64"])
    records = decode_records(data).records
    assert encode_records(records).encode() == data
    keys = {key for record in records for key in trace_keys(record)}
    assert sorted(keys) == sorted({k for each in case["keys"] for k in each.split()})


PUB = Pub(
    timestamp_ms=1_700_000_000_000,
    region_id="DefaultRegion",
    group="shop",
    topic="orders",
    msg_id="A1",
    tags=None,
    keys=None,
    store_host="10.0.0.1:10911",
    body_bytes=3,
    cost_ms=2,
    message_type=TraceMessageType.Normal_Msg,
    offset_msg_id="B1",
    is_success=True,
)


def test_the_oldest_form_of_a_sent_message_has_no_offset_id():
    text = (
        b"Pub\x011\x01r\x01g\x01t\x01id\x01tag\x01k\x01h:1\x015\x012\x010\x01true\x02"
    )
    (pub,) = decode_records(text).records
    assert isinstance(pub, Pub)
    assert (pub.msg_id, pub.offset_msg_id, pub.is_success) == ("id", None, True)


def test_a_sent_message_may_state_its_client():
    text = encode_records([PUB]).replace("\x02", "\x0110.0.0.9\x02")
    (pub,) = decode_records(text.encode()).records
    assert isinstance(pub, Pub)
    assert (pub.offset_msg_id, pub.client_host) == ("B1", "10.0.0.9")


def test_a_delivery_that_ended_in_the_cloud_has_no_time_and_group():
    text = b"SubAfter\x01r\x01id\x017\x01true\x01k\x010\x01\x02"
    (after,) = decode_records(text).records
    assert after == SubAfter(
        request_id="r",
        msg_id="id",
        cost_ms=7,
        is_success=True,
        keys="k",
        return_type=ConsumeReturnType.SUCCESS,
    )


@pytest.mark.parametrize(
    "line",
    [
        "Pub",
        "Pub\x011",
        "Unknown\x011\x012",
        "Pub\x01x\x01r\x01g\x01t\x01id\x01tag\x01k\x01h\x015\x012\x010\x01o\x01true",
        "Pub\x011\x01r\x01g\x01t\x01id\x01tag\x01k\x01h\x015\x012\x010\x01o\x01maybe",
        "Pub\x01"
        + "9" * 30
        + "\x01r\x01g\x01t\x01id\x01tag\x01k\x01h\x015\x012\x010\x01o\x01true",
        "SubBefore\x011\x01r\x01g\x01\x01id\x010\x01k",
        "SubAfter\x01r\x01\x017\x01true\x01k\x010",
        "Recall\x011\x01r\x01g\x01t\x01id\x01",
        "EndTransaction\x011\x01r\x01g\x01t\x01id\x01a\x01b\x01h\x012\x01i\x01\x01true",
    ],
)
def test_a_record_that_cannot_be_read_is_counted_and_does_not_hide_its_neighbours(line):
    text = encode_records([PUB]) + 2 * (line + "\x02") + encode_records([PUB])
    assert decode_records(text.encode()) == DecodedTrace((PUB, PUB), 2)


def test_no_more_records_of_one_message_are_read_than_clients_write():
    body = encode_records([PUB]) * (RECORDS_MAX + 10)
    decoded = decode_records(body.encode())
    assert (len(decoded.records), decoded.unreadable) == (RECORDS_MAX, 1)


def test_kinds_of_messages_and_results_that_are_not_known_are_absent():
    pub = encode_records([PUB]).replace("\x010\x01B1", "\x0177\x01B1")
    after = "SubAfter\x01r\x01id\x017\x01true\x01k\x0177\x011\x01g\x02"
    first, second = decode_records((pub + after).encode()).records
    assert isinstance(first, Pub)
    assert isinstance(second, SubAfter)
    assert (first.message_type, second.return_type) == (None, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", None),
        ("0000000000000000001", 1),  # 19 digits, as many as the largest number has
        ("00000000000000000001", None),
        ("--1", None),
        ("-", None),
        ("", None),
        ("1.0", None),
        ("\u0663", None),  # a digit to Python
    ],
)
def test_a_number_is_a_long_of_java(text, value):
    line = f"Recall\x01{text}\x01r\x01g\x01t\x01id\x01true\x02"
    decoded = decode_records(line.encode())
    assert [each.timestamp_ms for each in decoded.records] == (
        [] if value is None else [value]
    )
    assert decoded.unreadable == (value is None)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            # A region, a group and keys that are absent; the form before 4.9.
            "SubAfter\x01r\x01id\x01-7\x01FALSE\x01null",
            SubAfter(
                request_id="r", msg_id="id", cost_ms=-7, is_success=False, keys=None
            ),
        ),
        (
            "SubAfter\x01r\x01id\x017\x01true\x01\x014\x019\x01g",
            SubAfter(
                request_id="r",
                msg_id="id",
                cost_ms=7,
                is_success=True,
                keys=None,
                return_type=ConsumeReturnType.FAILED,
                timestamp_ms=9,
                group="g",
            ),
        ),
        (
            # A time without a group: of no version, and of no use.
            "SubAfter\x01r\x01id\x017\x01true\x01k\x010\x019",
            SubAfter(
                request_id="r",
                msg_id="id",
                cost_ms=7,
                is_success=True,
                keys="k",
                return_type=ConsumeReturnType.SUCCESS,
            ),
        ),
        (
            # No time, so that the group is not taken either.
            "SubAfter\x01r\x01id\x017\x01true\x01k\x010\x01\x01g",
            SubAfter(
                request_id="r",
                msg_id="id",
                cost_ms=7,
                is_success=True,
                keys="k",
                return_type=ConsumeReturnType.SUCCESS,
            ),
        ),
        (
            "SubBefore\x011\x01\x01null\x01r\x01id\x012\x01a b",
            SubBefore(
                timestamp_ms=1,
                region_id=None,
                group=None,
                request_id="r",
                msg_id="id",
                retry_times=2,
                keys="a b",
            ),
        ),
        (
            (
                "EndTransaction\x011\x01r\x01g\x01t\x01id\x01tag\x01k\x01h\x012\x01T"
                "\x01COMMIT_MESSAGE\x01true"
            ),
            EndTransaction(
                timestamp_ms=1,
                region_id="r",
                group="g",
                topic="t",
                msg_id="id",
                tags="tag",
                keys="k",
                store_host="h",
                message_type=TraceMessageType.Trans_msg_Commit,
                transaction_id="T",
                state="COMMIT_MESSAGE",
                is_from_check=True,
            ),
        ),
    ],
)
def test_each_field_of_a_record_is_read_from_its_place(line, expected):
    assert decode_records(f"{line}\x02".encode()) == DecodedTrace((expected,))


def test_fields_that_a_later_version_may_add_are_left_out():
    """No more of a line is looked at than any record has, however long it is."""
    recall = "Recall\x011\x01r\x01g\x01t\x01id\x01true"
    many = recall + 100_000 * "\x01more"
    (found,) = decode_records(many.encode()).records
    assert encode_records([found]) == f"{recall}\x02"


NUMBERS = st.integers(0, 2**63 - 1)
TEXTS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1
).filter(lambda text: text != "null")
OPTIONAL = st.none() | TEXTS
COMMON = {"timestamp_ms": NUMBERS, "region_id": OPTIONAL, "group": OPTIONAL}
SENT = {"topic": OPTIONAL, "msg_id": TEXTS, "tags": OPTIONAL, "keys": OPTIONAL}
RECORDS = st.one_of(
    st.builds(
        Pub,
        **COMMON,
        **SENT,
        store_host=OPTIONAL,
        body_bytes=NUMBERS,
        cost_ms=NUMBERS,
        message_type=st.sampled_from(TraceMessageType),
        offset_msg_id=OPTIONAL,
        is_success=st.booleans(),
        client_host=st.none(),
    ),
    st.builds(
        SubBefore,
        **COMMON,
        request_id=TEXTS,
        msg_id=TEXTS,
        retry_times=NUMBERS,
        keys=OPTIONAL,
    ),
    st.builds(
        SubAfter,
        request_id=TEXTS,
        msg_id=TEXTS,
        cost_ms=NUMBERS,
        is_success=st.booleans(),
        keys=OPTIONAL,
        return_type=st.sampled_from(ConsumeReturnType),
        timestamp_ms=NUMBERS,
        group=OPTIONAL,
    ),
    st.builds(
        EndTransaction,
        **COMMON,
        **SENT,
        store_host=OPTIONAL,
        message_type=st.sampled_from(TraceMessageType),
        transaction_id=OPTIONAL,
        state=TEXTS,
        is_from_check=st.booleans(),
    ),
    st.builds(Recall, **COMMON, topic=OPTIONAL, msg_id=TEXTS, is_success=st.booleans()),
)


@given(st.lists(RECORDS))
def test_what_is_written_is_read_again(records):
    decoded = decode_records(encode_records(records).encode())
    assert decoded == DecodedTrace(tuple(records))


@given(st.lists(RECORDS, min_size=1), st.data())
def test_records_that_were_damaged_never_raise(records, data):
    body = bytearray(encode_records(records).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.sampled_from(b"\x00\x01\x02-9x\xff"))
    decoded = decode_records(bytes(body))
    assert len(decoded.records) + decoded.unreadable <= body.count(b"\x02") + 1


@given(st.binary(max_size=2_000))
def test_any_bytes_never_raise(body):
    assert len(decode_records(body).records) <= len(body)


@given(st.text(st.sampled_from("ab\x01\x02"), max_size=8))
def test_separators_in_a_text_do_not_make_other_fields(text):
    (recall,) = decode_records(
        encode_records(
            [
                Recall(
                    timestamp_ms=1,
                    region_id=None,
                    group=text,
                    topic=text,
                    msg_id="id",
                    is_success=True,
                )
            ]
        ).encode()
    ).records
    wanted = text.replace("\x01", "\ufffd").replace("\x02", "\ufffd") or None
    assert isinstance(recall, Recall)
    assert (recall.group, recall.topic, recall.msg_id) == (wanted, wanted, "id")


@pytest.mark.java
@pytest.mark.rmq_versions("4.6.0", "5.5.0")
def test_java_reads_what_is_written(real_cluster):
    """No record makes Java's reader fail, although it drops empty fields."""
    records: list[TraceRecord] = [
        PUB,
        SubBefore(
            timestamp_ms=5,
            region_id="",
            group="g",
            request_id="r",
            msg_id="A1",
            retry_times=2,
            keys="",
        ),
        SubAfter(
            request_id="r",
            msg_id="A1",
            cost_ms=3,
            is_success=False,
            keys=None,
            return_type=ConsumeReturnType.FAILED,
            timestamp_ms=9,
            group="g",
        ),
    ]
    data = base64.b64encode(encode_records(records).encode()).decode()
    (line,) = run_java(
        real_cluster, "Traces", [], stdin=json.dumps({"data": data}) + "\n"
    ).splitlines()
    read = json.loads(line)["contexts"]
    assert [each["traceType"] for each in read] == ["Pub", "SubBefore", "SubAfter"]
    assert [each["msgId"] for each in read] == ["A1", "A1", "A1"]
    assert [each["keys"] for each in read] == ["null", "null", "null"]
    assert (read[1]["retryTimes"], read[2]["contextCode"]) == (2, 4)
    assert [each["success"] for each in read] == [True, True, False]
