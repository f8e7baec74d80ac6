"""`-o pretty`: what is in a message cannot look like a line of ours."""

from __future__ import annotations

import gzip

import pytest
from rich.cells import cell_len

from rmqcli.cli.ui.records.text import MessageTable, Pretty
from rmqcli.decode import parse_decode
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.kit.rows import each_row

QUEUE = MessageQueue("orders", "broker-a", 3)
HEAD = "orders@broker-a:3 7  2023-11-14T22:13:20.000Z"
FORGED = "orders@broker-a:3 8  2023-11-14T22:13:20.000Z  tags=paid"


def lines_of(body, properties=None, *, color=False, **settings):
    data = encode_message(
        MessageFields(
            topic="orders",
            body=body,
            queue_offset=7,
            store_timestamp_ms=1_700_000_000_000,
            properties=properties or {},
        )
    )
    pretty = Pretty(color=color, **settings)
    [block] = pretty.blocks(QUEUE, decode_messages(data))
    return block.split("\n")


def test_in_colour_the_place_is_bold_and_what_the_producer_gave_is_dim():
    place, _, time = HEAD.rpartition("  ")
    assert lines_of(b"x", {"TAGS": "paid"}, color=True) == [
        f"\x1b[1m{place}\x1b[0m  {time}  \x1b[2mtags=paid\x1b[0m",
        "  x",
    ]


def test_lines_of_a_body_are_indented_below_the_line_about_it():
    assert lines_of(f"first\n{FORGED}\n\tthird".encode()) == [
        HEAD,
        "  first",
        f"  {FORGED}",
        "  \tthird",
    ]


@pytest.mark.parametrize("width", [80, 40, 20])
@pytest.mark.parametrize("filler", ["x", "\N{CJK UNIFIED IDEOGRAPH-7528}", " "])
def test_a_body_cannot_put_text_into_the_first_column_by_a_long_line(width, filler):
    """A terminal breaks a line that is wider than itself."""
    for length in range(width // 2 - 2, width + 1):
        first, *others = lines_of((filler * length + FORGED).encode(), width=width)
        assert first == HEAD
        assert all(line[:2] == "  " for line in others)
        assert max(map(cell_len, others)) <= width
        assert "".join(line[2:] for line in others) == filler * length + FORGED


def test_long_keys_continue_on_lines_of_their_own():
    keys = "k" * 70 + FORGED
    assert lines_of(b"x", {"KEYS": keys}, width=80) == [
        HEAD,
        "+ " + ("keys=" + keys)[:78],
        "+ " + ("keys=" + keys)[78:],
        "  x",
    ]
    assert lines_of(b"x", {"KEYS": "k"}, width=80) == [f"{HEAD}  keys=k", "  x"]


@pytest.mark.parametrize(
    "body",
    [b'{"a":1,"b":[1.5]}', b'{ "a" : 1,\n"b": [1.5] }\n'],
    ids=["compact", "blanks"],
)
def test_json_is_indented_however_its_blanks_are(body):
    assert lines_of(body) == [
        HEAD,
        "  {",
        '    "a": 1,',
        '    "b": [',
        "      1.5",
        "    ]",
        "  }",
    ]


@pytest.mark.parametrize("body", ['{"a":1,"a":2}', "[1.50]", '["\\u0061"]', "[NaN]"])
def test_json_that_would_be_shown_differently_is_shown_as_it_came(body):
    assert lines_of(body.encode()) == [HEAD, f"  {body}"]


def test_an_error_of_the_decoder_follows_the_body():
    assert lines_of(b"text", decode=parse_decode("json")) == [
        HEAD,
        "  text",
        "decode error: not JSON: expected a value at line 1, column 1",
    ]


def table_lines(width, *labels):
    """Return the lines of a table of messages with these tags, keys and bodies."""
    data = b"".join(
        encode_message(
            MessageFields(
                topic="orders",
                body=body.encode(),
                queue_offset=7,
                store_timestamp_ms=1_700_000_000_000,
                properties={"TAGS": tags, "KEYS": keys} if tags else {},
            )
        )
        for tags, keys, body in labels
    )
    table = MessageTable(width=width)
    rows = table.rows(QUEUE, decode_messages(data))
    return [table.heading(), *rows]


def test_a_table_fits_the_screen():
    assert table_lines(80, ("paid", "K1", "x" * 60), ("", "", "short")) == [
        "STORED           BROKER    QUEUE  OFFSET  TAGS  KEYS  BODY",
        "11-14T22:13:20Z  broker-a      3       7  paid  K1    " + "x" * 23 + "...",
        "11-14T22:13:20Z  broker-a      3       7  -     -     short",
    ]


@each_row("width", [20, 80, 99, 100, 200])
@each_row("text", ["x", "\N{CJK UNIFIED IDEOGRAPH-7528}", "\x1b[31m"])
def test_no_line_of_a_table_is_wider_than_the_screen(width, text):
    lines = table_lines(width, (text * 40, text * 40, text * 90), ("a", "b", text))
    assert max(map(cell_len, lines)) <= width


def test_a_table_in_a_file_has_full_times_and_keys():
    assert table_lines(None, ("paid", "k" * 40, "body"))[1] == (
        "2023-11-14T22:13:20.000Z  broker-a              3           7  paid          "
        + "k" * 40
        + "  body"
    )


@pytest.mark.parametrize(
    ("form", "body", "shown"),
    [
        ("gzip", gzip.compress(f"one\n{FORGED}".encode()), ["  one", f"  {FORGED}"]),
        ("gzip+json", gzip.compress(b'{"id":1}'), ["  {", '    "id": 1', "  }"]),
        ("msgpack", b"\x81\xa2id\x01", ["  {", '    "id": 1', "  }"]),
        ("msgpack", b"\xa4a\x1b[b", ["  a\\x1b[b"]),
        ("json", b'"a"', ['  "a"']),
        (
            "gzip",
            b"plain",
            ["  plain", "decode error: not gzip: the bytes do not begin as gzip's"],
        ),
    ],
)
def test_a_body_that_is_not_json_is_shown_as_its_value(form, body, shown):
    assert lines_of(body, decode=parse_decode(form))[1:] == shown
