"""The same rows as table, JSON, JSON Lines and CSV have the same contents."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from rmqcli.cli.ui.output import (
    Column,
    RowWriter,
    emit_json,
    write_field_help,
    write_rows,
    write_summary,
)

COLUMNS = (
    Column("topic", "its name"),
    Column("lag", "how far behind", title="BEHIND", align="right"),
    Column("state", "how it is", states={"OK": "good", "UNKNOWN": "bad"}),
    Column("reason", "why", title=None),
)
ROWS = (
    {"topic": "t" * 60, "lag": 5, "state": "OK", "reason": None},
    {"topic": "b", "lag": None, "state": "UNKNOWN(hung)", "reason": "no answer"},
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal and counts its flushes."""

    encoding = "utf-8"
    flushes = 0
    is_terminal = True

    def isatty(self):
        return self.is_terminal

    def flush(self):
        self.flushes += 1


def written(fmt, rows=ROWS, *, columns=COLUMNS, color=False, stream=None):
    out = stream or io.StringIO()
    write_rows(rows, columns=columns, fmt=fmt, color=color, stream=out)
    return out.getvalue()


def test_table_aligns_and_never_cuts_a_name():
    assert written("table") == (
        "TOPIC" + " " * 57 + "BEHIND  STATE\n"
        f"{'t' * 60}       5  OK\n" + "b" + " " * 59 + "       -  UNKNOWN(hung)\n"
    )


def test_table_without_rows_has_headings():
    assert written("table", ()) == "TOPIC  BEHIND  STATE\n"


def test_table_colours_only_states_and_only_when_asked():
    assert "\x1b" not in written("table")
    colored = written("table", color=True)
    assert "\x1b[32mOK\x1b[0m" in colored
    assert "\x1b[31mUNKNOWN(hung)\x1b[0m" in colored
    assert colored.count("\x1b") == 4


def test_table_counts_cells_of_wide_characters():
    columns = (Column("a"), Column("b"))
    rows = [{"a": "订单", "b": "x"}, {"a": "abcd", "b": "x"}]
    assert written("table", rows, columns=columns) == "A     B\n订单  x\nabcd  x\n"


@pytest.mark.parametrize("fmt", ["table", "json", "jsonl"])
def test_no_control_byte_gets_out(fmt):
    row = {"topic": "".join(map(chr, range(0xA0))) + "\u202e\udc80", "lag": 1}
    text = written(fmt, [row])
    assert not {c for c in text if c < " " or "\x7f" <= c < "\xa0"} - {"\n"}
    assert "\u202e" not in text
    assert "\udc80" not in text


def test_csv_on_a_terminal_is_escaped_too():
    assert "\x1b" not in written("csv", [{"topic": "\x1b[2J"}], stream=Terminal())


def test_json_is_a_list_of_whole_rows():
    assert json.loads(written("json")) == list(ROWS)
    assert json.loads(written("json", ())) == []


def test_jsonl_is_a_row_a_line_with_all_keys():
    lines = written("jsonl").splitlines()
    assert [json.loads(line) for line in lines] == list(ROWS)


def test_json_to_a_terminal_that_is_not_utf8_stays_json():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    write_rows([{"a": "é€👩\x7f"}], columns=(), fmt="jsonl", stream=stream)
    assert json.loads(raw.getvalue()) == {"a": "é€👩\x7f"}


def test_csv_reads_back():
    rows = [{"topic": 'a,"b"\nc', "lag": -3, "state": True, "reason": {"k": [1]}}]
    read = list(csv.reader(io.StringIO(written("csv", rows), newline="")))
    assert read == [
        ["topic", "lag", "state", "reason"],
        ['a,"b"\nc', "-3", "true", '{"k":[1]}'],
    ]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", '"\'\r=1"'),
        (-1, "-1"),  # a number is not a formula
        (-1.5, "-1.5"),
        ("a=1", "a=1"),
        (None, ""),
        (" x", '" x"'),
    ],
)
def test_csv_disarms_formulas(value, cell):
    text = written("csv", [{"a": value}], columns=(Column("a"),))
    assert text == f"a\r\n{cell}\r\n"


@pytest.mark.parametrize(("is_terminal", "flushes"), [(True, 4), (False, 1)])
def test_rows_appear_one_by_one_on_a_terminal_and_in_batches_elsewhere(
    is_terminal, flushes
):
    stream = Terminal()
    stream.is_terminal = is_terminal
    writer = RowWriter(columns=COLUMNS, fmt="jsonl", stream=stream)
    writer.write([{"a": 1}, {"a": 2}, {"a": 3}])
    assert stream.flushes == flushes


def test_emit_json_is_indented_and_safe():
    out = io.StringIO()
    emit_json({"a": "\x9b\u202e"}, stream=out)
    assert out.getvalue() == '{\n  "a": "\\u009b\\u202e"\n}\n'


def test_field_help_lists_every_field():
    out = io.StringIO()
    write_field_help(COLUMNS, stream=out)
    assert out.getvalue().splitlines()[1] == "lag     how far behind"
    assert len(out.getvalue().splitlines()) == 4


def test_field_help_breaks_between_words_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "24")
    out = Terminal()
    write_field_help((Column("lag", "how far the group is behind"),), stream=out)
    assert out.getvalue() == "lag  how far the group\n     is behind\n"


def test_an_unknown_format_is_a_bug():
    with pytest.raises(ValueError, match="xml"):
        RowWriter(columns=COLUMNS, fmt="xml")


@pytest.mark.parametrize(
    ("fmt", "is_table", "text"),
    [
        ("json", False, '{\n  "dir": "d",\n  "queues": [\n    {\n      "id": 1\n'),
        ("jsonl", False, '{"dir":"d","queues":[{"id":1}]}\n'),
        ("auto", False, '{\n  "dir": "d",\n'),
        ("table", True, "ID\n1\n"),
    ],
)
def test_a_summary_is_an_object_or_the_table_of_its_queues(capsys, fmt, is_table, text):
    summary = {"dir": "d", "queues": [{"id": 1}]}
    shown = {"columns": (Column("id"),), "fmt": fmt, "color": False}
    assert write_summary(summary, **shown) == is_table
    assert capsys.readouterr().out.startswith(text)


def test_a_summary_is_a_table_on_a_terminal(monkeypatch):
    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    summary = {"dir": "d", "queues": [{"id": 1}]}
    assert write_summary(summary, columns=(Column("id"),), fmt="auto", color=False)
    assert out.getvalue() == "ID\n1 \n"
