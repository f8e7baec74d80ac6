"""Properties are read as in 4.9.1 and later, and written so that all can read them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.wire.message.properties import (
    encode_properties,
    lite_topic_of,
    lmq_name,
    lmq_of,
    parse_properties,
    without_property,
)
from tests.golden_vectors import load
from tests.kit.rows import each_row


def of_kind(kind: str) -> list[Any]:
    return [
        pytest.param(case, id=f"{case['rocketmq']} {index}")
        for index, case in enumerate(load("ids"))
        if case["kind"] == kind
    ]


@each_row("case", of_kind("properties_text"))
def test_text_is_parsed_as_java_parses_it(case):
    expected = case["expected"]
    if case["rocketmq"] == "4.6.0":
        # Only 4.6.0 drops values that contain 0x01, and keeps empty names.
        expected = {name: value for name, value in expected.items() if name}
        if "\x012\x013" in case["text"] or "\x011\x012" in case["text"]:
            assert expected.items() < parse_properties(case["text"]).items()
            return
    assert parse_properties(case["text"]) == expected


@each_row("case", of_kind("properties_map"))
def test_a_map_is_written_as_java_writes_it(case):
    """4.9.7 omits the last 0x02, and 4.6.0 writes null as the text "null"."""
    expected = case["text"]
    if case["rocketmq"] == "4.9.7" and expected:
        expected += "\x02"
    properties = case["map"]
    if case["rocketmq"] == "4.6.0":
        properties = {
            name: "null" if value is None else value
            for name, value in properties.items()
        }
    written = encode_properties(properties)
    # Java's order is that of a hash map.
    assert sorted(written.split("\x02")) == sorted(expected.split("\x02"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A\x011", {"A": "1"}),
        ("A\x011\x02A\x012", {"A": "2"}),  # the last of repeated names counts
        ("A\x011\x02A\x01\x02", {"A": "1"}),  # a property with no value is ignored
        ("A\x01b\x01c\x02", {"A": "b\x01c"}),
        ("no separator", {}),
        ("\x02\x02\x01\x01\x02", {}),
        (b"A\x01\xff\xfe\x02", {"A": "\ufffd\ufffd"}),
        ("k\x01v\x02" * 8000, {"k": "v"}),
    ],
)
def test_unusual_texts_are_read_as_java_reads_them(text, expected):
    assert parse_properties(text) == expected


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a\x02": "b"}, {"a": "\x02"}])
def test_separators_in_names_and_values_are_refused(properties):
    """Nothing is escaped, so other properties would be read back."""
    with pytest.raises(ValueError, match="holds a separator"):
        encode_properties(properties)


name = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
value = st.text(st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1)


@given(st.dictionaries(name, value))
def test_what_is_written_is_read_back(properties):
    written = encode_properties(properties)
    assert parse_properties(written) == properties
    assert parse_properties(written.encode()) == properties
    assert parse_properties(written.removesuffix("\x02")) == properties


# --- queues of lite topics (LMQ)


def test_the_name_of_an_lmq_has_the_topic_and_the_lite_topic():
    assert lmq_name("T", "a$b") == "%LMQ%$T$a$b"
    assert lite_topic_of("%LMQ%$T$a$b") == ("T", "a$b")


@pytest.mark.parametrize("name", ["", "T$a", "%LMQ%$T", "%LMQ%$T$", "%LMQ%$$a"])
def test_other_names_are_not_those_of_an_lmq(name):
    assert lite_topic_of(name) is None


@pytest.mark.parametrize(
    ("name", "offset", "found"),
    [
        ("%LMQ%$T$a", "7", ("%LMQ%$T$a", 7)),
        ("%LMQ%$T$a", "9" * 18, ("%LMQ%$T$a", 10**18 - 1)),
        ("%LMQ%$T$a", "9" * 19, None),
        ("%LMQ%$T$a", "-7", None),
        ("%LMQ%$T$a", "\u0667", None),
        ("%LMQ%$T$a", "", None),
        ("%LMQ%$T$a", None, None),
        ("%LMQ%$T$a,%LMQ%$T$b", "7", None),
        ("%LMQ%$Other$a", "7", None),  # copied from a message of another topic
        (None, "7", None),
    ],
)
def test_the_lmq_that_a_stored_message_is_in(name, offset, found):
    properties = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": offset}
    assert lmq_of("T", properties) == found


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\x011\x02b\x012\x02", "b\x012\x02"),
        ("b\x012\x02a\x011", "b\x012"),
        ("a\x011\x02a\x013\x02", ""),
        ("aa\x011\x02b\x01a\x02", "aa\x011\x02b\x01a\x02"),
        ("b\x012\x02", "b\x012\x02"),
    ],
)
def test_a_property_is_taken_out_of_the_text(text, left):
    assert without_property(text, "a") == left
