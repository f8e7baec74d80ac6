"""No example is without a test."""

from __future__ import annotations

import re

from tests.kit.documents import ROOT, every_example

#: What the fence of an example may say, by language.
NOTES = {
    "sh": r"|spark|no_run",
    "python": r"",
    "json": r"[\w.-]+",
    "toml": r"[\w.-]+",
    "properties": r"",  # settings of other programs
}


def test_every_example_says_how_it_is_tested():
    assert [
        each for each in every_example()
        if not re.fullmatch(NOTES.get(each.language, "-"), each.note)
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
        if each.language in ("json", "toml")
    }  # fmt: skip
    used = {
        (each.document, name) for each in every_example() if each.language == "sh"
        for _, name in named if name in each.text
    }  # fmt: skip
    assert named <= used
