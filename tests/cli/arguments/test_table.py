"""The table of ordinary arguments agrees with Typer's definitions."""

from __future__ import annotations

from rmqcli.cli.arguments.generate import PLACE, render
from rmqcli.cli.arguments.table import COMMANDS as GRAMMARS
from rmqcli.cli.commands import COMMANDS


def test_the_table_is_up_to_date():
    """If this fails, run: python -m rmqcli.cli.arguments.generate"""
    assert PLACE.read_text(encoding="utf-8") == render()


def test_every_command_is_in_the_table():
    assert list(GRAMMARS) == [entry.path for entry in COMMANDS]
