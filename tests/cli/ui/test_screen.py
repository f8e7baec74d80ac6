"""Tables on a terminal fit it, never cut names and never interpret text as markup."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions

from rmqcli.cli.lag.view import HELD_TABLE, queue_columns
from rmqcli.cli.ui.output import Column, write_table
from rmqcli.cli.ui.rich.live import LiveScreen, Picture
from rmqcli.cli.ui.rich.table import shortened
from tests.kit.terminal import Terminal

NAME = "a-topic-with-a-long-name"
COLUMNS = (
    Column("topic"),
    Column("broker", priority=20),
    Column("lag", align="right"),
    Column("max", align="right", priority=30),
    Column("client", shorten=True, priority=10),
    Column("error", priority=1),
    Column("state", states={"OK": "good", "LOST": "bad"}),
    Column("reason", title=None),
)
ROW = {
    "topic": NAME,
    "broker": "broker-a",
    "lag": 5,
    "max": 1234567,
    "client": "192.168.100.200@4711#0123456789",
    "error": None,
    "state": "OK",
    "reason": "none",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def drawn(monkeypatch, *rows, width, columns=COLUMNS, color=False, left_out=""):
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    write_table(rows, columns=columns, color=color, stream=out, left_out=left_out)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_wide_terminal_shows_every_column_that_has_a_value(monkeypatch):
    assert drawn(monkeypatch, ROW, width=200) == [
        f"TOPIC{' ' * 21}BROKER    LAG      MAX  CLIENT{' ' * 27}STATE",
        f"{NAME}  broker-a    5  1234567  192.168.100.200@4711#0123456789  OK",
    ]


def test_a_wanted_column_is_there_without_a_value(monkeypatch):
    columns = (Column("a", priority=1), Column("n", priority=2, is_wanted=True))
    assert drawn(monkeypatch, {"a": 1, "n": None}, width=80, columns=columns) == [
        "A  N",
        "1  -",
    ]


def test_a_narrower_terminal_first_shortens_and_then_hides(monkeypatch):
    assert drawn(monkeypatch, ROW, width=80) == [
        f"TOPIC{' ' * 21}BROKER    LAG      MAX  CLIENT{' ' * 19}STATE",
        f"{NAME}  broker-a    5  1234567  192.168.100…#0123456789  OK",
    ]
    assert drawn(monkeypatch, ROW, width=60) == [
        "TOPIC                     LAG  CLIENT                  STATE",
        "a-topic-with-a-long-name    5  192.168.100…0123456789  OK",
        "hidden: BROKER, MAX; -o json shows all",
    ]
    assert drawn(monkeypatch, ROW, width=44) == [
        "TOPIC                     LAG  STATE",
        "a-topic-with-a-long-name    5  OK",
        "hidden: BROKER, MAX, CLIENT; -o json shows",
        "all",
    ]


def test_on_a_tiny_terminal_texts_are_folded_evenly_and_numbers_stay(monkeypatch):
    columns = (Column("topic"), Column("lag", align="right"), Column("state"))
    row = {"topic": "orders-eu", "lag": 12345, "state": "STOPPED"}
    assert drawn(monkeypatch, row, width=17, columns=columns) == [
        "TOPI         STAT",
        "C       LAG  E",
        "orde  12345  STOP",
        "rs-e         PED",
        "u",
    ]


@pytest.mark.parametrize("width", [1, 5, 10, 20, 37, 60, 80])
def test_a_name_is_never_cut(monkeypatch, width):
    lines = drawn(monkeypatch, ROW, width=width)
    if width > 20:
        assert all(cell_len(line) <= width for line in lines if "hidden" not in line)
    topics = "".join(line[: max(1, width)].split(" ")[0] for line in lines)
    assert width < 20 or NAME in topics


def test_one_long_name_is_folded_instead_of_hiding_the_other_columns(monkeypatch):
    lines = drawn(monkeypatch, {**ROW, "topic": "t" * 100}, width=80)
    assert lines == [
        f"TOPIC{' ' * 37}BROKER    LAG  CLIENT            STATE",
        f"{'t' * 40}  broker-a    5  192.168.…3456789  OK",
        "t" * 40,
        "t" * 20,
        "hidden: MAX; -o json shows all",
    ]


def test_wide_letters_and_emoji_take_two_cells(monkeypatch):
    columns = (Column("a"), Column("b"))
    rows = [{"a": "订单", "b": "x"}, {"a": "🚀abc", "b": "x"}, {"a": "é", "b": "x"}]
    assert drawn(monkeypatch, *rows, width=80, columns=columns) == [
        "A      B",
        "订单   x",
        "🚀abc  x",
        "é      x",
    ]


def test_text_is_never_markup_and_controls_are_visible(monkeypatch):
    columns = (Column("a"),)
    rows = [{"a": "[red]x[/red] :rocket: [link=http://x]y"}, {"a": "\x1b[2J\u202e"}]
    assert drawn(monkeypatch, *rows, width=80, columns=columns)[1:] == [
        "[red]x[/red] :rocket: [link=http://x]y",
        "\\x1b[2J\\u202e",
    ]


def test_colours_say_what_a_state_means(monkeypatch):
    rows = [ROW, {**ROW, "state": "LOST"}]
    text = "\n".join(drawn(monkeypatch, *rows, width=200, color=True))
    assert "\x1b[32mOK" in text
    assert "\x1b[31mLOST" in text
    assert "\x1b" not in "\n".join(drawn(monkeypatch, *rows, width=200))


def test_what_the_command_leaves_out_is_named_first(monkeypatch):
    last = drawn(monkeypatch, ROW, width=60, left_out="2 empty queues")[-1]
    assert last == "hidden: 2 empty queues, BROKER, MAX; -o json shows all"


def test_a_terminal_that_is_dumb_gets_plain_text(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    lines = drawn(monkeypatch, ROW, width=20, left_out="unseen")
    assert len(lines) == 2
    assert "192.168.100.200@4711#0123456789" in lines[1]


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 9, "abcd…ghij"),
        ("abcdefghij", 4, "ab…j"),
        ("abcdefghij", 1, "…"),
        ("名名名名名", 6, "名…名"),
    ],
)
def test_a_shortened_text_keeps_both_ends(text, width, short):
    assert shortened(text, width) == short
    assert cell_len(short) <= width


def test_a_text_of_megabytes_is_shortened_as_a_short_one_is():
    body = "ab" + r"\xff" * 1_000_000 + "yz"
    assert shortened(body, 10) == r"ab\xf…ffyz"


def picture(count, **more):
    rows = [{**ROW, "topic": f"t{index}"} for index in range(count)]
    return Picture(
        title="lag of [b]G", words=("now",), columns=COLUMNS, rows=rows, **more
    )


@pytest.mark.parametrize(
    ("count", "height", "last"),
    [
        (3, 24, "t2"),
        (20, 24, "t19"),
        (21, 24, "... 2 more rows"),
        (21, 7, "... 17 more rows"),
        (21, 5, "... 19 more rows"),
        (21, 4, "... 20 more rows"),
        (21, 1, "t0 "),
    ],
)
def test_a_live_picture_is_never_taller_than_the_screen(
    monkeypatch, count, height, last
):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", str(height))
    out = Terminal()
    screen = LiveScreen(out, color=False)
    size = ConsoleDimensions(120, height)
    console = screen._console
    console.print(picture(count).drawn(size=size))
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("lag of [b]G · now")
    assert lines[-1].startswith(last)
    assert len(lines) <= max(height, 4)


def test_a_live_picture_of_5_lines_and_20_columns_still_counts_what_it_leaves_out():
    """Folded cells pushed the number of other rows off the screen."""
    out = Terminal()
    rows = [{**ROW, "topic": f"a-topic-{index}"} for index in range(6)]
    shown = Picture("lag", ("now",), COLUMNS, rows, ("broker-b: no answer from it",))
    console = Console(file=out, width=20, color_system=None, no_color=True)
    console.print(shown.drawn(size=ConsoleDimensions(20, 5)))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "lag · now",
        "TOPIC     LAG  STATE",
        "a-topic-    5  OK",
        "0",
        "... 5 more rows",
    ]


def test_warnings_take_no_more_rows_from_a_live_picture_than_they_need():
    out = Terminal()
    warnings = [f"broker-{n}: no answer" for n in range(12)]
    shown = picture(40, warnings=warnings)
    console = Console(file=out, width=120, color_system=None, no_color=True)
    console.print(shown.drawn(size=ConsoleDimensions(120, 30)))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    # The title, a blank line, the names of the columns, and a line for the cursor.
    assert len(lines) == 29
    assert [line for line in lines if line.startswith("t")][-1].startswith("t12 ")
    assert lines[16:] == ["... 27 more rows", *warnings]


def test_the_last_picture_stays_when_the_live_screen_ends(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "24")
    out = Terminal()
    with LiveScreen(out, color=False) as screen:
        screen.show(picture(1))
        screen.show(picture(2, warnings=["broker-b: no \x1b answer"]))
    before, _, after = out.getvalue().partition("\x1b[?1049l")
    assert "\x1b[?1049h" in before
    assert "t1" in after
    assert after.splitlines()[-1].startswith("broker-b: no \\x1b answer")


def test_the_process_queues_of_two_brokers_differ_at_80_columns(monkeypatch):
    """Their brokers were hidden before their members: all rows looked the same."""
    row = {
        "topic": "orders", "broker_name": "broker-a", "queue_id": 0,
        "client_id": "192.168.100.200@4711#0123456789", "cached_count": 38,
        "cached_size_mib": 1, "span": 37, "span_limit": 2000, "taken_count": 0,
        "last_pull": "99ms ago", "last_consume": "99ms ago",
    }  # fmt: skip
    rows = [row, {**row, "broker_name": "broker-b"}]
    lines = drawn(monkeypatch, *rows, width=80, columns=HELD_TABLE)
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["orders", "broker-a", "0"],
        ["orders", "broker-b", "0"],
    ]


def test_the_queues_of_two_brokers_differ_beside_their_trends(monkeypatch):
    """In rmq top and rmq lag --sample, rates were shown in the place of brokers."""
    row = {
        "topic": "orders", "broker_name": "broker-a", "queue_id": 0, "committed": 125,
        "min_offset": 0, "max_offset": 225, "lag": 100, "expired": 0, "inflight": None,
        "age_ms": 1_027_000, "state": "KNOWN", "client_id": None, "rate_in": 0.0,
        "rate_out": 0.0, "drain_ms": None, "verdict": "STOPPED", "spark": "████████",
    }  # fmt: skip
    rows = [row, {**row, "broker_name": "broker-b", "drain_ms": 0}]
    columns = queue_columns(with_group=False, with_trend=True, with_spark=True)
    lines = drawn(monkeypatch, *rows, width=80, columns=columns)
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["orders", "broker-a", "0"],
        ["orders", "broker-b", "0"],
    ]
    assert "IN/S" in lines[0]
