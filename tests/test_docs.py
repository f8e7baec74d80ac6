"""Documentation that cannot drift: help of every command, the guides, the design."""

from __future__ import annotations

import inspect
import re
import shlex

import pytest

from rmqcli.cli.arguments.declared import all_flags, parameters_of
from rmqcli.cli.commands import COMMANDS, GROUPS, entries_below
from rmqcli.cli.help import GUIDES
from rmqcli.errors import ExitCode
from tests.kit.documents import GUIDES_FOLDER, README, ROOT, documents, text_of
from tests.kit.rows import each_row

PACKAGE = ROOT / "rmqcli"
GUIDE_FILES = [GUIDES_FOLDER / f"{name}.md" for name in GUIDES]
FOR_MAINTAINERS = [
    *(PACKAGE / name / "DESIGN.md" for name in ("", "broker", "proxy", "spark")),
    PACKAGE / "CHANGELOG.md",
    ROOT / ".github" / "CONTRIBUTING.md",
]
DOCUMENTS = [README, *GUIDE_FILES, *FOR_MAINTAINERS]


def name_of(path):
    """Name a document in the id of a test."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


every_command = each_row("entry", COMMANDS, ids=lambda entry: entry.path)


def docstring_of(entry):
    return inspect.getdoc(entry.load().function) or ""


@every_command
def test_the_table_says_what_the_docstring_says(entry):
    assert docstring_of(entry).splitlines()[0] == entry.help


@every_command
def test_help_is_one_sentence_and_has_an_example(entry):
    assert re.fullmatch(r"[A-Z][^\n]{10,71}\.", entry.help)
    examples = re.findall(
        r"^\s*(?:Example: )?(rmq .*)$", docstring_of(entry), re.MULTILINE
    )
    assert docstring_of(entry).split("\n\n")[1].startswith("Example: rmq ")
    assert any(line.startswith(f"rmq {entry.path}") for line in examples)


@every_command
def test_examples_use_options_that_exist(entry):
    known = set(all_flags(parameters_of(entry.load())))
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
    for parameter in parameters_of(entry.load()):
        text = parameter.declaration.help
        assert text, f"{entry.path}: {parameter.name} has no help"


@each_row(
    "entry",
    [each for each in COMMANDS if each.section != "This tool"],
    ids=lambda entry: entry.path,
)
def test_a_command_names_the_guide_that_explains_it(entry):
    assert f"rmq {entry.path}" in text_of(entry.guide)


def test_the_list_of_guides_is_that_of_the_files():
    assert sorted(GUIDES) == documents()[1:]


def test_no_guide_has_the_name_of_a_command():
    assert not set(GUIDES) & set(entries_below("", table=COMMANDS))


@each_row("name", GUIDES)
def test_a_guide_begins_with_what_it_is_for(name):
    heading, blank, first = text_of(name).split("\n")[:3]
    assert re.fullmatch(r"# [A-Z][^\n]{5,75}", heading)
    assert not blank
    assert re.match(r"For ", first)


def test_the_readme_names_every_guide():
    text = text_of("README")
    assert [each for each in GUIDES if f"rmqcli/docs/{each}.md" not in text] == []


@pytest.mark.parametrize(
    ("document", "lines_max"),
    [(README, 250), (PACKAGE / "DESIGN.md", 450)],
    ids=["README", "DESIGN"],
)
def test_what_everybody_reads_is_short(document, lines_max):
    assert len(document.read_text(encoding="utf-8").splitlines()) <= lines_max


def test_every_group_of_commands_has_help():
    assert all(re.fullmatch(r"[A-Z].*\.", text) for text in GROUPS.values())


def test_the_guide_s_exit_codes_are_the_exit_codes():
    """Rows of a table that begin with a number in the first cell."""
    rows = re.findall(r"^\|\s*(\d+)\s*\|", text_of("exit-codes"), re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(ExitCode)


@each_row("document", DOCUMENTS, ids=name_of)
def test_links_between_documents_lead_to_files(document):
    links = re.findall(r"\]\(([^)#:]+)[)#]", document.read_text(encoding="utf-8"))
    assert [each for each in links if not (document.parent / each).exists()] == []


@each_row("document", DOCUMENTS, ids=name_of)
def test_links_to_a_section_lead_to_a_heading(document):
    for target, section in re.findall(
        r"\]\(([\w-]+\.md|)#([\w-]+)\)", document.read_text(encoding="utf-8")
    ):
        text = (document.parent / (target or document.name)).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", each).lower() for each in headings]
        assert section in [each.replace(" ", "-") for each in anchors]


@pytest.mark.parametrize("document", FOR_MAINTAINERS, ids=name_of)
def test_source_files_that_documents_name_exist(document):
    """Paths such as `engine/rebalance.py` are below rmqcli, others below the root."""
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    assert [
        each for each in sorted(named)
        if not ((PACKAGE / each).is_file() or (ROOT / each).is_file())
    ] == []  # fmt: skip


def test_the_map_of_the_design_names_every_module_and_folder_of_two_levels():
    """Modules of the package's top, and folders down to those of its packages."""
    text = (PACKAGE / "DESIGN.md").read_text(encoding="utf-8")
    the_map = text.partition("## The map")[2].partition("###")[0]
    words = set(re.findall(r"[a-z_]+/?", the_map))
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__main__"}
    folders = {
        f"{path.parent.name}/"
        for pattern in ("*/__init__.py", "*/*/__init__.py")
        for path in PACKAGE.glob(pattern)
    }
    assert sorted((modules | folders) - words) == []
