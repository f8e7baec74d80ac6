"""A JSON body has a value that every reader of JSON can read, or a reason for none."""

from __future__ import annotations

from contextlib import suppress

import pytest

from rmqcli.cli.schema_registry import read_decode
from rmqcli.decode import parse_decode
from rmqcli.errors import DecodeError, TextError
from tests.decode.decoding import WITHOUT_FILES
from tests.kit.rows import each_row
from tests.wire.message.bodies import BODIES

VALUES = {
    b'{"id":1,"amount":1.5}': '{"id":1,"amount":1.5}',
    b'{"id": 1, "amount": 1.5}': '{"id":1,"amount":1.5}',
    b'{"id":1,\n "amount":1.50}\n': '{"id":1,"amount":1.5}',
    b"[1,2]": "[1,2]",
    b'{"a":1,"a":2}': '{"a":2}',
    b"5": "5",
    b"-0": "-0.0",
    b"null": "null",
    b"true": "true",
    b'"text"': '"text"',
    b"[1e-999]": "[0.0]",
    b"12345678901234567890123": "12345678901234567890123",
    b'{"whole":"\\ud83d\\ude00"}': '{"whole":"\N{GRINNING FACE}"}',
    b"[" * 200 + b"]" * 200: "[" * 200 + "]" * 200,
    b'{"brackets":"' + b"[" * 300 + b'"}': '{"brackets":"' + "[" * 300 + '"}',
}
REASONS = {
    b"": "not JSON: the body is empty",
    b"plain": "not JSON: expected a value at line 1, column 1",
    b"\x00\xff": "not JSON: not UTF-8 at byte 1",
    b'{"a":1}{"b":2}': "not JSON: something follows the value at line 1, column 8",
    b'{"a" 1}': "not JSON: expected a colon at line 1, column 6",
    b"{a:1}": "not JSON: expected a name in double quotes at line 1, column 2",
    b"[1\n2]": (
        "not JSON: expected a comma or the end of the list or object at line 2,"
        " column 1"
    ),
    b'"a\nb"': "not JSON: a text has a control character at line 1, column 3",
    b'"\\x"': "not JSON: a text has an invalid escape at line 1, column 2",
    b'"\\u12"': "not JSON: a text has an invalid escape at line 1, column 3",
    b'"abc': "not JSON: a text has no end, beginning at line 1, column 1",
    b"NaN": "not JSON: NaN is not a JSON value",
    b"[-Infinity]": "not JSON: -Infinity is not a JSON value",
    b"1e999": "not JSON: a number is too large for a double",
    b"9" * 400: "not JSON: a number is too large for a double",
    b"[" + b"9" * 5_000 + b"]": "not JSON: a number is too large for a double",
    b'{"half":"\\ud800"}': "not JSON: a \\u escape is half of a character",
    b'{"half":"\xed\xa0\x80"}': "not JSON: not UTF-8 at byte 9",
    b"\xef\xbb\xbf{}": "not JSON: the body begins with a byte order mark",
    b'{"a":[' * 100 + b"[]" + b"]}" * 100: "the JSON is nested deeper than 200 levels",
    b"[" * 201 + b"]" * 201: "the JSON is nested deeper than 200 levels",
    b"[" * 100_000 + b"]" * 100_000: "the JSON is nested deeper than 200 levels",
}


@each_row("body", VALUES, ids=lambda body: repr(body[:20]))
def test_a_json_body_becomes_one_line_of_json(body):
    assert parse_decode("json")(body) == VALUES[body]


@each_row("body", REASONS, ids=lambda body: repr(body[:20]))
def test_a_body_that_is_not_json_gives_the_reason(body):
    with pytest.raises(DecodeError) as caught:
        parse_decode("json")(body)
    assert caught.value.message == REASONS[body]


@each_row("name", WITHOUT_FILES)
@each_row("body", BODIES, ids=range(len(BODIES)))
def test_a_body_of_any_kind_gives_a_line_or_a_reason(name, body):
    decode = parse_decode(name)
    with suppress(DecodeError):
        assert "\n" not in decode(body)


@pytest.mark.parametrize(
    ("parse", "registry"), [(parse_decode, ""), (read_decode, " registry:URL,")]
)
def test_another_format_is_refused_with_those_there_are(parse, registry):
    with pytest.raises(TextError) as caught:
        parse("jsn")
    assert caught.value.message == "'jsn': not a format of bodies"
    assert caught.value.hint == (
        "write one of: json, avro:FILE, protobuf:FILE:MESSAGE, msgpack, cbor, gzip,"
        f"{registry} gzip+FORMAT"
    )
