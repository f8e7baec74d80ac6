"""Which messages a filter shows, without a broker."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from rmqcli.admin.tail.filter import TailFilter, parse_pattern, parse_property_glob
from rmqcli.errors import DecodeError, TextError, UsageError
from tests.kit.rows import each_row


@dataclass
class Content:
    """What filters read of a message."""

    tags: str | None = "a"
    keys: str | None = "k1 k2"
    msg_id: str | None = "id"
    properties: dict[str, str] = field(
        default_factory=lambda: {"region": "eu-west", "kind": "x"}
    )
    text: bytes | None = b"hello world"

    @property
    def body(self):
        if self.text is None:
            raise DecodeError("the body is damaged")
        return self.text


def matches(content=None, **conditions):
    wanted: Any = TailFilter(**conditions)
    return wanted.matches(content or Content())


@each_row(
    ("conditions", "is_shown"),
    [
        ({}, True),
        ({"tag": "a"}, True),
        ({"tag": "b"}, False),
        ({"tag": "b || a"}, True),
        ({"tag": "*"}, True),
        ({"key": "k1"}, True),
        ({"key": "k2"}, True),
        ({"key": "k1 k2"}, True),
        ({"key": "id"}, True),
        ({"key": "k"}, False),
        ({"key": "k1 "}, False),
        ({"key": ""}, False),
        ({"properties": (("region", "eu-*"),)}, True),
        ({"properties": (("region", "EU-*"),)}, False),
        ({"properties": (("region", "us-*"),)}, False),
        ({"properties": (("zone", "*"),)}, False),
        ({"properties": (("region", "eu-*"), ("kind", "x"))}, True),
        ({"properties": (("region", "eu-*"), ("kind", "y"))}, False),
        ({"properties": (("kind", "y"), ("region", "eu-*"))}, False),
        ({"pattern": re.compile("wor")}, True),
        ({"pattern": re.compile("^wor")}, False),
        ({"key": "k1", "pattern": re.compile("no")}, False),
        ({"key": "k", "pattern": re.compile("wor")}, False),
    ],
)
def test_a_message_has_to_meet_every_condition(conditions, is_shown):
    assert matches(**conditions) is is_shown
    is_inverted = matches(invert=True, **conditions)
    # What is inverted are the conditions on the content, and not those on tags.
    assert is_inverted is (is_shown if set(conditions) <= {"tag"} else not is_shown)


def test_tags_are_not_inverted():
    assert matches(tag="b", key="other", invert=True) is False
    assert matches(tag="a", key="other", invert=True) is True


@pytest.mark.parametrize("keys", [None, ""])
def test_a_message_without_keys_has_only_its_id(keys):
    content = Content(keys=keys)
    assert matches(content, key="id")
    assert not matches(content, key="k1")


@pytest.mark.parametrize("invert", [False, True])
def test_a_message_that_cannot_be_decoded_is_shown(invert):
    """With --not it was left out, as if its body had matched."""
    content, hello = Content(text=None), re.compile("hello")
    assert matches(content, pattern=hello, invert=invert)
    assert matches(content, key="other", pattern=hello, invert=invert) is invert


def test_bytes_that_are_no_text_are_compared_as_replacement_characters():
    assert matches(Content(text=b"a\xffb"), pattern=re.compile("a\ufffdb"))


@pytest.mark.parametrize(
    ("conditions", "expression", "expression_type", "is_everything"),
    [
        ({}, "*", "TAG", True),
        ({"invert": True}, "*", "TAG", True),
        ({"tag": "*"}, "*", "TAG", True),
        ({"tag": "a || b"}, "a || b", "TAG", False),
        ({"sql": "a > 1"}, "a > 1", "SQL92", True),
        ({"key": "k"}, "*", "TAG", False),
        ({"properties": (("a", "b"),)}, "*", "TAG", False),
        ({"pattern": re.compile("a")}, "*", "TAG", False),
    ],
)
def test_the_broker_filters_what_it_can(
    conditions, expression, expression_type, is_everything
):
    made = TailFilter(**conditions)
    assert (made.expression, made.expression_type) == (expression, expression_type)
    assert made.is_everything is is_everything


def test_a_tag_expression_needs_a_tag():
    with pytest.raises(UsageError):
        TailFilter(tag="||")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("a=b", ("a", "b")), ("a=", ("a", "")), ("a=b=c", ("a", "b=c"))],
)
def test_a_property_is_a_name_and_a_glob(text, parsed):
    assert parse_property_glob(text) == parsed


@pytest.mark.parametrize(
    ("text", "what", "end"),
    [
        ("abc", "no '=' in it", 3),
        ("=b", "no name before '='", 2),
        ("", "no name before '='", 1),
    ],
)
def test_a_property_without_a_name_or_glob_is_marked(text, what, end):
    with pytest.raises(TextError, match=what) as refused:
        parse_property_glob(text)
    assert (refused.value.start, refused.value.end) == (0, end)
    assert refused.value.hint == "write NAME=GLOB, for example region=eu-*"


@pytest.mark.parametrize(
    ("text", "what", "start", "end"),
    [
        ("ab(", "missing \\), unterminated", 2, 3),
        ("*a", "nothing to repeat", 0, 1),
        ("a{99999999999}", "too large", 0, 14),
    ],
)
def test_a_pattern_that_is_wrong_is_marked_where_it_is(text, what, start, end):
    with pytest.raises(TextError, match=f"not a regular expression: {what}") as found:
        parse_pattern(text)
    assert (found.value.start, found.value.end) == (start, end)


def test_a_pattern_is_compiled():
    assert parse_pattern("a+").search("caat")
