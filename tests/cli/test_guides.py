"""`rmq help GUIDE`: drawn and by pages on a terminal, plain text in a pipe."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys

import pytest

from rmqcli.cli.commands import COMMANDS
from rmqcli.cli.help import GUIDES, guide_text
from rmqcli.cli.main import run
from tests.kit.documents import text_of
from tests.kit.rows import each_row
from tests.kit.waiting import PATIENCE_S


@pytest.fixture
def rmq(capfd):
    """Run `rmq` in this process; returns exit code, stdout, stderr."""

    def run_it(*arguments):
        code = run(arguments)
        out, err = capfd.readouterr()
        return code, out, err

    return run_it


def test_help_without_a_topic_lists_the_guides_with_what_they_are_about(rmq):
    code, out, err = rmq("help")
    assert (code, err) == (0, "")
    assert "  reading          Read messages: rmq tail\n" in out
    assert "  options          Options that all commands take\n" in out
    assert "rmq --help lists the commands; rmq help COMMAND" in out
    assert all(f"  {name} " in out for name in GUIDES)
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", GUIDES)
def test_in_a_pipe_a_guide_has_lines_of_80_columns_and_its_code_as_it_is(rmq, name):
    written = guide_text(name)
    shown = rmq("help", name)[1]
    assert shown.split() == written.split()
    is_code = False
    kept = []
    for line in written.splitlines():
        is_code ^= line.startswith("```")
        if is_code or line.startswith(("```", "|", "#")):
            kept.append(line)
    lines = iter(shown.splitlines())
    assert all(line in lines for line in kept)  # in this order
    lines = shown.splitlines()
    assert [line for line in lines if len(line) > 80 and line not in kept] == []


def test_in_a_pipe_no_line_ends_inside_of_code_and_items_are_indented(rmq):
    lines = rmq("help", "profiles")[1].splitlines()
    assert "`--profile NAME` uses it, with every command that uses a cluster." in lines
    first = (
        "1. `--profile`, `--namesrv` or `--endpoints`. A profile together with other"
    )
    assert lines[lines.index(first) + 1] == "   servers than its own is refused."


def test_in_a_pipe_a_guide_is_markdown_with_the_commands_of_other_guides(rmq):
    code, out, err = rmq("help", "offline")
    assert (code, err) == (0, "")
    assert out.startswith("# Read a broker's folder without the broker: `--store`\n")
    assert "```sh\nrmq topics --store ~/store\n" in out
    assert "[rmq serve --store](embedded-broker.md)" in text_of("offline")
    assert "rmq serve --store (`rmq help embedded-broker`)" in " ".join(out.split())


@each_row("name", GUIDES)
def test_what_a_guide_says_to_tests_is_not_shown(name):
    text = guide_text(name)
    assert "no_run" not in text
    assert "```sh spark" not in text
    assert ".md)" not in text


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.path)
def test_help_of_a_command_is_that_of_its_option_and_names_its_guide(rmq, entry):
    words = entry.path.split()
    by_help, by_option = rmq("help", *words), rmq(*words, "--help")
    assert by_help == by_option
    assert by_help[0] == 0
    named = f"  The guide: rmq help {entry.guide}\n"
    assert (named in by_help[1]) == bool(entry.guide)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["readng"],
            "error: help topic readng does not exist; did you mean reading?\n",
        ),
        (["lagg"], "error: help topic lagg does not exist; did you mean lag?\n"),
        (["xyz"], "error: help topic xyz does not exist\nhint: see: rmq help\n"),
        (
            ["topic", "craete"],
            "error: command craete does not exist; did you mean create?\n",
        ),
        (
            ["lag", "offset"],
            ("error: command lag offset does not exist\nhint: write: rmq help lag\n"),
        ),
        (
            ["topic", "show", "orders"],
            (
                "error: command topic show orders does not exist\n"
                "hint: write: rmq help topic show\n"
            ),
        ),
        (
            ["updateTopic"],
            (
                "error: command updateTopic does not exist\n"
                "hint: write: rmq topic create TOPIC, or rmq topic update TOPIC\n"
            ),
        ),
    ],
)
def test_a_topic_that_does_not_exist_is_an_error_that_says_what_was_meant(
    rmq, words, error
):
    assert rmq("help", *words) == (2, "", error)


def in_a_terminal(*arguments, typed=b"", **environ):
    """Run `rmq` in a terminal of 80 by 24; return its exit code and the screen."""
    ours, theirs = pty.openpty()
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "PAGER")}
    with subprocess.Popen(
        [sys.executable, "-m", "rmqcli", *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**kept, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", **environ},
    ) as process:  # fmt: skip
        os.close(theirs)
        shown = b""
        while select.select([ours], [], [], PATIENCE_S)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the terminal was closed by its last program
                break
            if typed and shown:
                os.write(ours, typed)
                typed = b""
        code = process.wait(PATIENCE_S)
    os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


def test_on_a_terminal_a_guide_is_drawn_within_its_width():
    code, screen = in_a_terminal("help", "offline", PAGER="cat", NO_COLOR="1")
    assert code == 0
    assert "Read a broker's folder" in screen
    assert "```" not in screen
    assert max(map(len, screen.splitlines())) <= 80 + len("\x1b[1m\x1b[0m") * 4


def test_colours_are_off_with_no_color():
    colour = "\x1b[3"
    assert colour in in_a_terminal("help", "offline", PAGER="cat")[1].replace("[39", "")
    plain = in_a_terminal("help", "offline", PAGER="cat", NO_COLOR="1")[1]
    assert not any(f"{colour}{n}m" in plain for n in range(1, 8))


def test_a_long_guide_is_shown_by_the_program_in_pager():
    code, screen = in_a_terminal("help", "reading", PAGER="wc -l", NO_COLOR="1")
    assert code == 0
    assert int(screen.strip()) > 24


def test_a_pager_that_is_left_ends_the_command_quietly():
    code, screen = in_a_terminal("help", "dataframes", PAGER="head -1", NO_COLOR="1")
    assert code == 0
    assert "Traceback" not in screen
    assert len(screen.splitlines()) == 1


@pytest.mark.parametrize("pager", ["", "no-such-program", "less '"])
def test_without_a_pager_that_starts_the_guide_is_written(pager):
    code, screen = in_a_terminal("help", "offline", PAGER=pager, LINES="5")
    assert code == 0
    assert "DLedger" in screen
