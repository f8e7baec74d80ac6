"""Messages to the user are escaped, go to stderr and never make a command fail."""

from __future__ import annotations

import io
import logging
import re
from contextlib import redirect_stderr

import pytest

from rmqcli.cli.ui import log
from rmqcli.cli.ui.messages import Messages, color_is_on
from rmqcli.cli.ui.progress import Progress
from rmqcli.testing import ManualClock
from tests.kit.terminal import Terminal


@pytest.fixture
def terminal(monkeypatch):
    """A terminal to which a test redirects stderr."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_everything_is_made_safe(capsys):
    messages = Messages()
    messages.info("a\x1b[2J\nb")
    messages.warn("\u202e\n")
    messages.error("\x9b", hint="\x07", detail="\r")
    assert capsys.readouterr().err == (
        "a\\x1b[2J\\nb\nwarning: \\u202e\\n\nerror: \\x9b\n\\r\nhint: \\x07\n"
    )


def test_a_name_with_a_newline_makes_no_second_line(capsys):
    Messages().info("g\nerror: all is lost: OK, lag 0")
    assert capsys.readouterr().err == "g\\nerror: all is lost: OK, lag 0\n"


def test_quiet_keeps_warnings_and_errors(capsys):
    messages = Messages(quiet=True)
    messages.info("no")
    messages.warn("yes")
    messages.error("yes")
    assert capsys.readouterr().err == "warning: yes\nerror: yes\n"


def test_labels_are_coloured_on_a_terminal(terminal):
    with redirect_stderr(terminal):
        Messages().error("x")
        Messages(color="never").error("x")
    assert terminal.getvalue() == "\x1b[31merror:\x1b[0m x\nerror: x\n"


def test_a_long_line_breaks_between_words_on_a_terminal(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with redirect_stderr(terminal):
        Messages(color="never").warn("three brokers did not answer")
        Messages(color="never").error("it failed", hint="run: rmq lag some-group --yes")
        Messages(color="never").info("the members are listed by: rmq group show g")
        log.configure(verbose=0, quiet=False)
        logging.getLogger("rmqcli.x").warning("broker-a is back; continuing")
    assert terminal.getvalue() == (
        "warning: three\n  brokers did not\n  answer\n"
        "error: it failed\nhint: run:\n  rmq lag some-group --yes\n"
        "the members are\n  listed by:\n  rmq group show g\n"
        "\r\x1b[Kwarning: broker-a is\n  back; continuing\n"
    )


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            "40",
            [
                "error: 'select v': column v cannot be",
                "               ^",
                "  resolved, did you mean body?",
                "hint: x",
            ],
        ),
        (  # what the carets point to is not in the first line
            "15",
            [
                "error: 'select",
                "  v': column v",
                "  cannot be",
                "  resolved, did",
                "  you mean",
                "  body?",
                "               ^",
                "hint: x",
            ],
        ),
    ],
)
def test_carets_stand_below_the_text_of_a_long_error(
    terminal, monkeypatch, columns, lines
):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", "24")
    with redirect_stderr(terminal):
        Messages(color="never").error(
            "'select v': column v cannot be resolved, did you mean body?",
            detail="               ^",
            hint="x",
        )
    assert terminal.getvalue().splitlines() == lines


def test_colours_take_no_room_in_a_line(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    with redirect_stderr(terminal):
        Messages().error("no broker")
        Messages().warn("three brokers did not answer")
    assert terminal.getvalue() == (
        "\x1b[31merror:\x1b[0m no broker\n"
        "\x1b[33mwarning:\x1b[0m three\n  brokers did not\n  answer\n"
    )


@pytest.mark.parametrize("stream", [None, io.StringIO()])
def test_no_colour_where_there_is_no_terminal(stream):
    assert not color_is_on("auto", stream)
    assert color_is_on("always", stream)


def test_a_closed_stream_is_no_terminal_and_no_error(monkeypatch):
    closed = io.StringIO()
    closed.close()
    assert not color_is_on("auto", closed)
    monkeypatch.setattr("sys.stderr", closed)
    Messages().warn("into the void")
    monkeypatch.setattr("sys.stderr", None)
    Messages().warn("into the void")


def test_progress_in_place_gives_way_to_lines(terminal):
    messages = Messages()
    with redirect_stderr(terminal):
        messages.progress("50%\x1b[2J")
        messages.warn("x")
        messages.progress("60%")
        messages.clear_progress()
        messages.clear_progress()
    assert terminal.getvalue() == (
        "\r\x1b[K50%\\x1b[2J\r\x1b[K\x1b[33mwarning:\x1b[0m x\n\r\x1b[K60%\r\x1b[K"
    )


def plain(text):
    return re.sub("\x1b\\[[0-9;]*[mK]", "", text)


def test_a_bar_is_redrawn_ten_times_a_second_at_most(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    clock = ManualClock(0)
    with redirect_stderr(terminal):
        progress = Progress(Messages(), "reading", total=2000, clock=clock)
        for done in range(1000):
            clock.now_ms = done
            progress.update(done, "note")
        progress.close()
    shown = plain(terminal.getvalue()).split("\r")
    assert len(shown) == 12
    assert shown[-1] == ""
    assert shown[10].startswith("reading ━━━━━━━━")
    assert shown[10].rstrip().endswith("45%  2s left  900 of 2,000  1,000/s  note")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (80, "45%  2s left  900 of 2,000  1,000/s  2 of 3 tasks"),
        (60, "45%  2s left  900 of 2,000  1,000/s"),
        (40, "45%  2s left"),
        (24, "45%"),
    ],
)
def test_a_bar_leaves_out_what_does_not_fit(terminal, monkeypatch, columns, says):
    monkeypatch.setenv("COLUMNS", str(columns))
    clock = ManualClock(0)
    with redirect_stderr(terminal):
        progress = Progress(Messages(), "reading", total=2000, clock=clock)
        for clock.now_ms in range(0, 1000, 100):
            progress.update(clock.now_ms, "2 of 3 tasks")
    last = plain(terminal.getvalue()).split("\r")[-1]
    assert last.rstrip().endswith(says)
    assert last.count("━") >= 7
    assert len(last) < columns


@pytest.mark.parametrize("columns", [1, 2, 5, 10])
def test_a_bar_never_wraps(terminal, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    with (
        redirect_stderr(terminal),
        Progress(Messages(), "[b]reading", total=2, clock=ManualClock(0)) as progress,
    ):
        progress.update(1)
    assert "\n" not in terminal.getvalue()
    lines = plain(terminal.getvalue()).split("\r")
    assert all(len(line) <= max(1, columns - 1) for line in lines)


def test_work_of_unknown_size_has_no_bar(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    clock = ManualClock(0)
    with redirect_stderr(terminal):
        progress = Progress(Messages(), "sent", clock=clock)
        for clock.now_ms in range(0, 2001, 1000):
            progress.update(clock.now_ms)
    last = plain(terminal.getvalue()).split("\r")[-1]
    assert last.rstrip() == "sent 2,000  1,000/s"


def test_elsewhere_a_line_every_ten_seconds(capsys):
    clock = ManualClock(0)
    with Progress(Messages(), "reading", clock=clock) as progress:
        for second in range(31):
            clock.now_ms = second * 1000
            progress.update(second)
    assert capsys.readouterr().err.splitlines() == [
        "reading 10  1/s",
        "reading 20  1/s",
        "reading 30  1/s",
    ]


def test_the_end_is_a_line_when_there_was_one_before(capsys):
    clock = ManualClock(0)
    for seconds in (9, 12):
        with Progress(Messages(), "read", total=50, clock=clock) as progress:
            started_ms = clock.now_ms
            for _ in range(seconds):
                clock.now_ms += 1000
                progress.update((clock.now_ms - started_ms) // 1000, "1 of 2 tasks")
            progress.end(50, "2 of 2 tasks")
            progress.end(50, "2 of 2 tasks")
    assert capsys.readouterr().err.splitlines() == [
        "read  20%  10 of 50  1/s  1 of 2 tasks",
        "read 100%  50 of 50  4/s  2 of 2 tasks",
    ]


def test_quiet_shows_no_progress(terminal):
    with (
        redirect_stderr(terminal),
        Progress(Messages(quiet=True), "x", clock=ManualClock(0)) as progress,
    ):
        progress.update(1)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("verbose", "quiet", "shown"),
    [
        (0, True, ["error: e"]),
        (0, False, ["warning: w\\x1b", "error: e"]),
        (1, False, ["info: x: i", "warning: x: w\\x1b", "error: x: e"]),
        (2, False, ["debug: x: d", "info: x: i", "warning: x: w\\x1b", "error: x: e"]),
    ],
)
def test_the_log_shows_what_v_asks_for(capsys, verbose, quiet, shown):
    log.configure(verbose=verbose, quiet=quiet)
    logger = logging.getLogger("rmqcli.x")
    logger.debug("d")
    logger.info("i")
    logger.warning("w%s", "\x1b")
    logger.error("e")
    assert capsys.readouterr().err.splitlines() == shown


@pytest.mark.parametrize(("verbose", "has_traceback"), [(1, False), (2, True)])
def test_a_logged_traceback_needs_two_v(capsys, verbose, has_traceback):
    log.configure(verbose=verbose, quiet=False)
    try:
        int("\x1b")
    except ValueError:
        logging.getLogger("rmqcli.x").exception("it broke")
    err = capsys.readouterr().err
    assert ("Traceback" in err) == has_traceback
    assert "\x1b" not in err


def test_a_logged_line_takes_the_place_of_one_that_is_drawn(terminal):
    with redirect_stderr(terminal):
        log.configure(verbose=0, quiet=False)
        Messages().progress("8 consumed")
        logging.getLogger("rmqcli.x").warning("lost")
    assert terminal.getvalue() == "\r\x1b[K8 consumed\r\x1b[Kwarning: lost\n"
