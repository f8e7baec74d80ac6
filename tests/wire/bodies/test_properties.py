"""Requests that change settings are read by Java's Properties.load."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqcli.wire.bodies.properties import decode_properties, encode_properties


def test_a_plain_setting_is_one_line():
    assert encode_properties({"fileReservedTime": "48", "a": "x/y,z"}) == (
        b"fileReservedTime=48\na=x/y,z\n"
    )


def test_what_java_would_misread_is_escaped():
    """Java decodes the text as Latin-1, and a backslash escapes the next character."""
    assert encode_properties({"a": " ü\n\\", "b": "\U0001f600"}) == (
        b"a=\\u0020\\u00fc\\u000a\\u005c\nb=\\ud83d\\ude00\n"
    )


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"a=1\nb = 2\nc:3\nd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"# a=1\n! b=2\n\n  c=3\r\n", {"c": "3"}),
        (b"a=1\\\n   2\nb=x\\\\\n", {"a": "12", "b": "x\\"}),
        (b"a\\=b=c=d\n", {"a=b": "c=d"}),
        (b"a=\\u00fc\\t\\q\n", {"a": "ü\tq"}),
        (b"a=\xfc", {"a": "ü"}),
        (b"a\nb=", {"a": "", "b": ""}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"a=1\\", {"a": "1"}),
        (b"a=\\u12\n", {"a": "u12"}),
    ],
)
def test_requests_are_read_as_java_reads_them(body, found):
    assert decode_properties(body) == found


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text(
    st.characters(exclude_categories=["Cs"]))))  # fmt: skip
@example({"": ""})
@example({"a b": "c\\"})
def test_what_is_written_is_read_again(properties):
    assert decode_properties(encode_properties(properties)) == properties


@given(st.binary(max_size=200))
def test_every_body_can_be_read(body):
    decode_properties(body)
