"""A frame of `rmq top`: every line fits, and nothing in it is obeyed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from rmqcli.cli.lag.view import summary_columns
from rmqcli.cli.top.frame import FrameContent, FramePainter
from rmqcli.cli.ui.output import Column
from tests.kit.rows import each_row

COLUMNS = (
    Column("group", shorten=True),
    Column("total_lag", title="LAG", align="right"),
    Column("state", states={"STALLED": "bad"}),
    Column("note", priority=10),
)
ROWS = [
    {"group": "billing", "total_lag": 12_345, "state": "STALLED", "note": "x" * 70},
    {"group": "[red]a[/red]\x1b[31m", "total_lag": None, "state": "UNKNOWN"},
]


def content(**changes):
    settings = {
        "cluster": "127.0.0.1:9876",
        "time": "12:00:03Z every 2s",
        "tabs": [("1 groups", True), ("2 topics", False)],
        "path": "(2 by state)",
        "columns": COLUMNS,
        "rows": ROWS,
        "notes": ["broker-b: connection refused"],
        "command": "rmq lag --watch 2s",
        "keys": [("?", "help"), ("q", "quit")],
    }
    return FrameContent(**{**settings, **changes})


def lines_of(lines):
    return ["".join(each.text for each in line).rstrip() for line in lines]


def test_a_frame_has_the_table_what_is_wrong_the_command_and_the_keys():
    assert lines_of(
        FramePainter().draw(content(intro=["All is not well."]), 60, 12)
    ) == [
        " rmq top  127.0.0.1:9876                 12:00:03Z every 2s",
        " 1 groups  2 topics  (2 by state)",
        "All is not well.",
        r"GROUP                   LAG  STATE",
        r"billing               12345  STALLED",
        r"[red]a[/red]\x1b[31m      -  UNKNOWN",
        "hidden: NOTE",
        "",
        "",
        "broker-b: connection refused",
        "$ rmq lag --watch 2s",
        "? help  q quit",
    ]


def test_a_state_has_its_colour_and_the_chosen_row_is_reversed():
    painter = FramePainter()
    lines = painter.draw(content(cursor=1), 60, 12)
    first, second = lines[painter.first_line], lines[painter.first_line + 1]
    styles = {each.text.strip(): str(each.style) for each in first}
    assert styles["STALLED"] == "red"
    assert not any("reverse" in str(each.style) for each in first)
    assert all("reverse" in str(each.style) for each in second)


@each_row("height", range(10, 25))
def test_on_a_low_terminal_the_row_the_command_and_the_keys_remain(height):
    shown = lines_of(
        FramePainter().draw(
            content(
                intro=[f"intro {n}" for n in range(9)],
                notes=[f"note {n}" for n in range(9)],
                command="rmq lag " + "--group a-long-name " * 5,
            ),
            60,
            height,
        )
    )
    assert len(shown) == height
    assert shown[-1] == "? help  q quit"
    assert shown[-3].startswith("$ rmq lag")
    assert [line for line in shown if line.startswith("billing")]


@pytest.mark.parametrize("height", range(9, 14))
def test_on_a_low_terminal_a_question_remains(height):
    lines = lines_of(
        FramePainter().draw(
            content(
                intro=["a", "b", "c", "d"],
                notes=["e", "f", "g"],
                command="rmq lag " + "--group a-long-name " * 5,
                question="Really? [y/N]",
            ),
            60,
            height,
        )
    )
    assert (len(lines), lines[-1]) == (height, " Really? [y/N]")


def test_a_terminal_that_is_too_small_is_told_so():
    assert lines_of(FramePainter().draw(content(), 20, 5)) == [
        "The terminal has 20",
        "x 5 cells. rmq top",
        "needs 60 x 10. q",
        "quits.",
        "",
    ]


def test_without_utf_8_only_ascii_is_drawn():
    rows = [{"group": "bücher", "total_lag": 1, "state": "OK", "spark": "▁▄█"}]
    shown = content(
        rows=rows, columns=(*COLUMNS, Column("spark", title="TREND")), cluster="é"
    )
    lines = lines_of(FramePainter(is_ascii=True).draw(shown, 80, 12))
    assert lines[0].startswith(r" rmq top  \xe9")
    assert lines[3].split() == [r"b\xfccher", "1", "OK", "_-#"]
    assert "\n".join(lines).isascii()


def test_the_chosen_row_is_on_the_screen_and_the_table_does_not_jump():
    painter = FramePainter()
    rows = [
        {"group": f"g{n}" + "x" * (20 if n == 0 else 0), "total_lag": n}
        for n in range(100)
    ]
    first = lines_of(painter.draw(content(rows=rows), 60, 12))
    assert (painter.top, painter.room) == (0, 6)
    last = lines_of(painter.draw(content(rows=rows, cursor=99), 60, 12))
    assert painter.top == 94
    assert last[8].split()[:2] == ["g99", "99"]
    assert first[2] == last[2]  # the headings
    lines = lines_of(painter.draw(content(rows=rows, cursor=50), 60, 12))
    assert lines[3].split()[0] == "g50"


def test_lines_that_do_not_fit_are_counted():
    notes = [f"broker-{n}: no answer" for n in range(5)]
    lines = lines_of(FramePainter().draw(content(notes=notes), 60, 14))
    assert lines[-5:-2] == [
        "broker-0: no answer",
        "broker-1: no answer",
        "broker-2: no answer (+2)",
    ]


@given(
    texts=st.lists(st.text(max_size=120), min_size=1, max_size=6),
    width=st.integers(1, 130),
    height=st.integers(1, 40),
    cursor=st.integers(0, 5),
    is_ascii=st.booleans(),
)
def test_whatever_names_there_are_every_line_has_the_width_of_the_terminal(
    texts, width, height, cursor, is_ascii
):
    rows = [
        {"group": text, "total_lag": None, "state": text, "spark": text, "topics": []}
        for text in texts
    ]
    shown = content(
        rows=rows,
        columns=summary_columns(with_trend=False, with_spark=True)[:4],
        cursor=min(cursor, len(rows) - 1),
        intro=texts,
        notes=texts,
        command=texts[0],
        cluster=texts[0],
        path=texts[-1],
    )
    lines = FramePainter(is_ascii=is_ascii).draw(shown, width, height)
    drawn = ["".join(each.text for each in line) for line in lines]
    assert len(drawn) == height
    assert {cell_len(line) for line in drawn} == {width}
    assert not any(char < " " or char == "\x7f" for line in drawn for char in line)
    assert not is_ascii or all(line.isascii() for line in drawn)
