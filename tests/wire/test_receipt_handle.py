"""Receipt handles and maps of offsets agree with Java's ReceiptHandle and
ExtraInfoUtil."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.errors import HeaderError
from rmqcli.wire.receipt_handle import (
    NORMAL_TOPIC,
    RETRY_TOPIC_V1,
    RETRY_TOPIC_V2,
    ReceiptHandle,
    changed_handle,
    decode_order_count_info,
    decode_receipt_handle,
    decode_start_offset_info,
    encode_msg_offset_info,
    encode_order_count_info,
    encode_receipt_handle,
    encode_start_offset_info,
    normal_topic,
    pop_retry_topic,
    topic_type_of,
)
from tests.golden_vectors import load
from tests.kit.rows import EachRow, each_row

POP = load("pop")


def golden(kind: str) -> EachRow:
    cases = [(case["given"], case["expected"]) for case in POP if case["kind"] == kind]
    assert cases
    return each_row(("value", "expected"), cases)


def is_error(expected: object) -> bool:
    return isinstance(expected, dict) and "error" in expected


@golden("extra_info")
def test_a_pop_ck_is_written_as_java_writes_it(value: Any, expected: Any) -> None:
    handle = ReceiptHandle(
        start_offset=value["start_offset"],
        pop_time_ms=value["pop_time"],
        invisible_ms=value["invisible_time"],
        revive_queue_id=value["revive_queue_id"],
        topic_type=topic_type_of(value["topic"]),
        broker_name=value["broker_name"],
        queue_id=value["queue_id"],
        offset=value.get("offset"),
    )

    assert encode_receipt_handle(handle) == expected
    assert decode_receipt_handle(expected) == handle


@golden("receipt_handle")
def test_a_receipt_handle_is_read_as_java_reads_it(value: Any, expected: Any) -> None:
    """Java requires eight parts; a handle of seven is a POP_CK that a broker wrote."""
    if is_error(expected):
        try:
            handle = decode_receipt_handle(value)
        except HeaderError:
            return
        assert handle.offset is None
        return

    handle = decode_receipt_handle(value)

    assert handle.start_offset == expected["start_offset"]
    assert handle.pop_time_ms == expected["pop_time"]
    assert handle.invisible_ms == expected["invisible_time"]
    assert handle.next_visible_ms == expected["next_visible_time"]
    assert handle.revive_queue_id == expected["revive_queue_id"]
    assert handle.topic_type == expected["topic_type"]
    assert handle.broker_name == expected["broker_name"]
    assert handle.queue_id == expected["queue_id"]
    assert handle.offset == expected["offset"]
    assert handle.is_retry == expected["retry"]
    assert handle.real_topic("T", "g") == expected["real_topic"]
    if handle.commit_log_offset is None:
        assert expected["commit_log_offset"] == -1
    else:
        assert handle.commit_log_offset == expected["commit_log_offset"]
        assert encode_receipt_handle(handle) == expected["encoded"]


@pytest.mark.parametrize(
    "text", ["7 " * 600, "7 1 2 3 0 b 9999999999", "9" * 19 + " 1 2 3 0 b 3", "x"]
)
def test_a_handle_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(HeaderError) as caught:
        decode_receipt_handle(text)
    assert len(caught.value.message) < 300


def test_the_limits_of_a_handle() -> None:
    longest = "7 1 2 2147483647 0 " + "b" * 994 + " 2147483647"
    assert len(longest) == 1024
    handle = decode_receipt_handle(longest)
    assert (handle.revive_queue_id, handle.queue_id) == (2147483647, 2147483647)
    assert (handle.offset, handle.commit_log_offset) == (None, None)
    for text in (longest + "0", longest.replace("47 0", "48 0"), "7 1 2 3 0 b"):
        with pytest.raises(HeaderError):
            decode_receipt_handle(text)
    # A number may have a sign, and parts after the ninth are ignored.
    found = decode_receipt_handle("+7 -1 2 3 0 b 0 8 9 x")
    assert (found.start_offset, found.pop_time_ms) == (7, -1)
    assert (found.offset, found.commit_log_offset) == (8, 9)


def handle_of(**values: Any) -> ReceiptHandle:
    fields: dict[str, Any] = {
        "start_offset": 7,
        "pop_time_ms": 1,
        "invisible_ms": 2,
        "revive_queue_id": 3,
        "topic_type": NORMAL_TOPIC,
        "broker_name": "b",
        "queue_id": 0,
    }
    return ReceiptHandle(**{**fields, **values})


def test_a_handle_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(ValueError, match="space"):
        encode_receipt_handle(handle_of(broker_name="a b"))
    with pytest.raises(ValueError, match="offset"):
        encode_receipt_handle(handle_of(commit_log_offset=4))


def test_only_the_revive_queue_of_orderly_pop_means_in_order() -> None:
    assert handle_of(revive_queue_id=999).is_order
    assert not handle_of(revive_queue_id=7).is_order


def by_java_key(table: Any) -> Any:
    """Return the map with Java's keys: `retry@queue`, or `retry@qoQUEUE%OFFSET`."""
    named = {}
    for (topic_type, key), value in table.items():
        if isinstance(key, tuple):
            queue, offset = key
            key = queue if offset is None else f"qo{queue}%{offset}"
        named[f"{topic_type}@{key}"] = value
    return named or None


DECODERS = {
    "start_offset_info": decode_start_offset_info,
    "order_count_info": decode_order_count_info,
}


@each_row(
    ("kind", "value", "expected"),
    [(c["kind"], c["given"], c["expected"]) for c in POP if c["kind"] in DECODERS],
)
def test_maps_of_offsets_are_read_as_in_java(kind: str, value: Any, expected: Any):
    """Java also keeps a queue id that is not a number, but never uses it."""
    if is_error(expected) or value == "0  12":
        with pytest.raises(HeaderError):
            DECODERS[kind](value)
    else:
        assert by_java_key(DECODERS[kind](value)) == expected


def test_maps_of_offsets_are_written_as_java_writes_them() -> None:
    """The longest text of each kind in the golden file is one that Java built."""
    built = {
        kind: max((c["given"] or "" for c in POP if c["kind"] == kind), key=len)
        for kind in (*DECODERS, "msg_offset_info")
    }
    types = (NORMAL_TOPIC, RETRY_TOPIC_V1, RETRY_TOPIC_V2)

    starts = {(t, q): o for t in types for q, o in ((3, 12), (4, 9223372036854775807))}
    offsets = {(t, q): o for t in types for q, o in ((3, [12, 13, 20]), (4, [7]))}
    counts = [(t, 3, o, n) for t in types for o, n in ((None, 2), (12, 1))]

    assert encode_start_offset_info(starts) == built["start_offset_info"]
    assert encode_msg_offset_info(offsets) == built["msg_offset_info"]
    assert encode_order_count_info(counts) == built["order_count_info"]


@pytest.mark.parametrize(
    ("kind", "text", "part"),
    [
        ("start_offset_info", "0 x 12", "'x'"),
        ("start_offset_info", "0 3 x", "'x'"),
        ("order_count_info", "0 x 2", "'x'"),
        ("order_count_info", "0 qox%5 2", "'x'"),
        ("order_count_info", "0 qo3%x 2", "'x'"),
        ("order_count_info", "0 qo3 2", "''"),
        ("order_count_info", "0 3 x", "'x'"),
        ("order_count_info", "0 2147483648 2", "'2147483648'"),
        ("order_count_info", "0 qo2147483648%5 2", "'2147483648'"),
        ("order_count_info", "0 qo3%9223372036854775808 2", "'9223372036854775808'"),
        ("order_count_info", "0 3 2147483648", "'2147483648'"),
    ],
)
def test_a_part_that_is_no_number_of_its_size_is_named(
    kind: str, text: str, part: str
) -> None:
    with pytest.raises(HeaderError) as caught:
        DECODERS[kind](text)
    assert caught.value.message.startswith(f"{part} in '{text}' is not a number from")


def test_the_greatest_numbers_in_a_map_of_offsets_are_read() -> None:
    queue, offset, count = 2147483647, 9223372036854775807, 2147483647
    text = f"0 {queue} {count};0 qo{queue}%{offset} {count}"
    assert decode_order_count_info(text) == {
        ("0", (queue, None)): count,
        ("0", (queue, offset)): count,
    }


def test_a_map_of_offsets_of_absurd_length_is_refused() -> None:
    with pytest.raises(HeaderError, match="characters"):
        decode_start_offset_info("0 3 " + "1" * 80_000)
    topic_type = "t" * ((1 << 16) - len(" 3 12"))
    longest = f"{topic_type} 3 12"
    assert decode_start_offset_info(longest) == {(topic_type, 3): 12}
    with pytest.raises(HeaderError, match="65537 characters"):
        decode_start_offset_info(f"{longest};")


@pytest.mark.parametrize("text", ["0 3", "0 3 12 4", "0 3 12;;0 4 12", "0 3 12;0 3 13"])
def test_a_map_of_offsets_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(HeaderError):
        decode_start_offset_info(text)


def test_no_map_of_offsets_is_an_empty_one() -> None:
    for decode in DECODERS.values():
        assert decode(None) == decode("") == {}


@golden("retry_topic")
def test_names_of_pop_retry_topics(value: Any, expected: Any) -> None:
    topic, group = value["topic"], value["group"]

    assert pop_retry_topic(topic, group, v2=False) == expected["v1"]
    assert pop_retry_topic(topic, group, v2=True) == expected["v2"]


@golden("normal_topic")
def test_the_topic_behind_a_pop_retry_topic(value: Any, expected: Any) -> None:
    assert normal_topic(value["topic"], value["group"]) == expected["of_group"]


@settings(deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for decode in (decode_receipt_handle, *DECODERS.values()):
        with contextlib.suppress(HeaderError):
            decode(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "3 1000 10000 5 0 broker-a 1 7 4096",
            "7 1000 10000 5 0 broker-a 1 7 4096",
            id="of a proxy in local mode",
        ),
        pytest.param(
            "7 1000 10000 5 0 broker-a 1 7",
            "7 1000 10000 5 0 broker-a 1 7",
            id="of a proxy in cluster mode",
        ),
        pytest.param(
            "3 1000 10000 999 0 broker-a 1 7",
            "3 1000 10000 999 0 broker-a 1 7",
            id="of orderly POP",
        ),
        pytest.param(
            "3 1000 10000 5 0 broker-a 1", "3 1000 10000 5 0 broker-a 1", id="no offset"
        ),
        pytest.param("another form", "another form", id="another form"),
    ],
)
def test_a_changed_message_is_a_batch_of_its_own(text, expected):
    assert changed_handle(text) == expected
