"""No example is without a test."""

from __future__ import annotations

import json
import re

from rmqcli.cli.arguments.habits import HINTS
from rmqcli.cli.commands import COMMANDS
from tests.kit.documents import ROOT, every_example, text_of

#: What the fence of an example may say, by language.
NOTES = {
    "sh": r"|spark|no_run",
    "python": r"",
    "json": r"|[\w.-]+",  # without a name: a file of another program
    "toml": r"[\w.-]+",
    "properties": r"",  # settings of other programs
}


def test_every_example_says_how_it_is_tested():
    assert [
        each for each in every_example()
        if not re.fullmatch(NOTES.get(each.language, "-"), each.note)
    ] == []  # fmt: skip


def test_no_line_of_code_is_wrapped_on_a_terminal_of_80_columns():
    """A command or program that is wrapped could not be copied from the screen."""
    assert [
        line for each in every_example() if each.document != "README"
        for line in each.text.splitlines() if len(line) > 78
    ] == []  # fmt: skip


def test_a_test_runs_every_program():
    """A test gets a program by `program(document, section)`, with literal names."""
    run = {
        match.groups()
        for path in (ROOT / "tests").rglob("test_*.py")
        for match in re.finditer(
            r'program\(\s*"([\w-]+)",\s*"([^"]+)"', path.read_text(encoding="utf-8")
        )
    }
    programs = {
        (each.document, each.section) for each in every_example()
        if each.language == "python"
    }  # fmt: skip
    assert programs == run


def test_files_of_a_document_are_named_by_its_commands():
    named = {
        (each.document, each.note) for each in every_example()
        if each.language in ("json", "toml") and each.note
    }  # fmt: skip
    used = {
        (each.document, name) for each in every_example() if each.language == "sh"
        for _, name in named if name in each.text
    }  # fmt: skip
    assert named <= used


def test_what_other_programs_read_is_json_and_names_a_command_that_exists():
    read = [
        json.loads(each.text) for each in every_example()
        if each.language == "json" and not each.note
    ]  # fmt: skip
    assert [each["mcpServers"]["rocketmq"]["command"] for each in read] == ["rmq"]
    words = read[0]["mcpServers"]["rocketmq"]["args"]
    assert words[0] in {entry.path for entry in COMMANDS}


def test_mqadmin_s_commands_have_the_same_answer_in_the_guide_as_in_the_hints():
    """`rmq topicList` says what to write, and so does the guide."""
    rows = {
        name: row.split(" | ")[1]
        for row in re.findall(r"^\| (`.*) \|$", text_of("mqadmin"), re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row.split(" | ")[0])
    }
    answers = {
        name: re.findall(r"rmq [a-z-]+(?: (?:show|create|update|delete))?", hint)
        for name, hint in HINTS.items()
        if re.fullmatch("[a-z]+[A-Z][A-Za-z]+", name)  # mqadmin's own
    }
    assert answers.keys() <= rows.keys()
    for name, commands in answers.items():
        assert [each for each in commands if each not in rows[name]] == []


def test_the_words_that_troubleshooting_begins_with_are_in_the_program():
    """What a row quotes is somewhere in the sources, apart from what is filled in."""
    sources = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "rmqcli").rglob("*.py")
    )
    joined = re.sub(r'"\s*\n\s*f?"', "", sources)
    cells = re.findall(r"^\| (.*?) \|", text_of("troubleshooting"), re.MULTILINE)
    filled_in = r"\.\.\.|\b[XY]\b|[\w.]+:\d+|%DLQ%"
    quoted = [
        fragment.strip(" :")
        for cell in cells
        for quote in re.findall(r"`([^`]*)`", cell)
        for fragment in re.split(filled_in, quote)
    ]
    assert [each for each in quoted if each not in joined] == []
