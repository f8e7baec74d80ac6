"""Documentation that cannot drift: help of every command, and the README's tables."""

from __future__ import annotations

import importlib
import inspect
import re
import shlex
from pathlib import Path

import pytest

from rmqcli.cli.commands import COMMANDS, GROUPS
from rmqcli.cli.main import build_app
from rmqcli.errors import ExitCode

README = Path(__file__).parents[1] / "README.md"

every_command = pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.path)


def docstring_of(entry):
    function = getattr(importlib.import_module(entry.module), entry.attribute)
    return inspect.getdoc(function) or ""


@every_command
def test_the_table_says_what_the_docstring_says(entry):
    assert docstring_of(entry).splitlines()[0] == entry.help


@every_command
def test_help_is_one_sentence_and_has_an_example(entry):
    assert re.fullmatch(r"[A-Z][^\n]{10,71}\.", entry.help)
    examples = re.findall(
        r"^\s*(?:Example: )?(rmq .*)$", docstring_of(entry), re.MULTILINE
    )
    assert "Example:" in docstring_of(entry)
    assert any(line.startswith(f"rmq {entry.path}") for line in examples)


@every_command
def test_examples_use_options_that_exist(entry):
    command = build_app()
    for word in entry.path.split():
        command = command.get_command(None, word)
    known = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    for line in docstring_of(entry).splitlines():
        _, found, example = line.partition(f"rmq {entry.path} ")
        if found:
            words = shlex.split(example.partition(" | ")[0].partition(" > ")[0])
            flags = {
                word.partition("=")[0] for word in words if re.match("--[a-z]", word)
            }
            assert flags <= known


@every_command
def test_every_option_has_help(entry):
    command = build_app()
    for word in entry.path.split():
        command = command.get_command(None, word)
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        assert text, f"{entry.path}: {parameter.name} has no help"


@every_command
def test_the_readme_mentions_every_command(entry):
    assert f"rmq {entry.path}" in README.read_text(encoding="utf-8")


def test_every_group_of_commands_has_help():
    assert all(re.fullmatch(r"[A-Z].*\.", text) for text in GROUPS.values())


def test_the_readme_s_exit_codes_are_the_exit_codes():
    """Rows of a table that begin with a number in the first cell."""
    text = README.read_text(encoding="utf-8")
    rows = re.findall(r"^\|\s*`?(\d+)`?\s*\|", text, re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(ExitCode)
