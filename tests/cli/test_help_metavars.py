"""Help describes values by upper-case nouns or choices, and fits a screen."""

from __future__ import annotations

import re

from rmqcli.cli.arguments.declared import parameters_of
from rmqcli.cli.commands import COMMANDS
from rmqcli.cli.main import run
from rmqcli.cli.options import COMMON_SECTION

#: The words that stand for a value in the help.
NOUNS = {
    "ACTION",
    "ACTIONS",
    "ADDRESS",
    "BODY",
    "BROKER",
    "CLIENT",
    "CLUSTER",
    "CODE",
    "COMMAND",
    "DIR",
    "DURATION",
    "EXPR",
    "FIELD",
    "FILE",
    "FORMAT",
    "GLOB",
    "GROUP",
    "HANDLE",
    "HOST",
    "ID",
    "KEY",
    "LEVEL",
    "N",
    "NAME",
    "NAMESPACE",
    "POSITION",
    "PORT",
    "PROFILE",
    "RATE",
    "REF",
    "RESOURCE",
    "REGEX",
    "SHELL",
    "SIZE",
    "SOURCE",
    "SQL",
    "TABLE",
    "TAG",
    "TARGET",
    "TEMPLATE",
    "TOPIC",
    "URL",
    "USER",
    "VALUE",
}


def metavars():
    """Yield path, names and metavar of each parameter that takes a value."""
    for entry in COMMANDS:
        for parameter in parameters_of(entry.load()):
            if not parameter.is_switch:
                yield entry.path, "/".join(parameter.flags), parameter.metavar


def is_well_named(metavar):
    if metavar == "json" or ("|" in metavar and metavar == metavar.lower()):
        return True  # choices, as users type them
    words = re.findall(r"[A-Za-z]+", metavar)
    return bool(words) and NOUNS.issuperset(words)


def test_what_a_parameter_takes_is_an_upper_case_noun_or_its_choices():
    found = list(metavars())
    assert len(found) > 100
    assert [each for each in found if not is_well_named(each[2])] == []


def test_other_forms_would_be_found():
    wrong = ["<int range>", "topic", "T", "POS", "<str>", "N/s", "CMD", ""]
    assert not [each for each in wrong if is_well_named(each)]


def test_each_command_has_one_line_in_the_help_of_a_screen_of_80_columns(capsys):
    assert run(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for entry in COMMANDS:
        if " " not in entry.path:
            assert [line for line in lines if line.endswith(f"  {entry.help}")]


def test_many_options_are_in_sections():
    """More than a dozen in one list are not found by reading it."""
    for entry in COMMANDS:
        own = [
            each
            for each in parameters_of(entry.load())
            if not each.declaration.is_argument
            and each.declaration.section != COMMON_SECTION
        ]
        if len(own) > 12:
            assert [each.name for each in own if not each.declaration.section] == []
