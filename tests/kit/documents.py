"""The documents for users, the README and the guides, and the examples in them.

An example is a block of code. What follows its language in the fence says how it is
tested; readers do not see it:

    ```sh            run with the other commands of its document
    ```sh spark      run like them, where Spark can run
    ```sh no_run     needs what tests do not have; its options and values are checked
    ```python        a program, which a test gets by `program(...)` and runs
    ```json NAME     a file that the commands of the document use (also toml)

A block after a mark such as `<!-- test-command -->` is run by the gate.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES_FOLDER = ROOT / "rmqcli" / "docs"

_BLOCK = re.compile(
    r"^(?P<mark><!-- [\w-]+ -->\n)?```(?P<language>\w+) ?(?P<note>[^\n]*)\n"
    r"(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


class Example(NamedTuple):
    """A block of code, the heading above it, and what its fence says."""

    document: str
    section: str
    language: str
    note: str
    text: str
    has_mark: bool


def documents() -> list[str]:
    """Return the names of the documents; "README" is the first."""
    return ["README", *sorted(path.stem for path in GUIDES_FOLDER.glob("*.md"))]


def text_of(document: str) -> str:
    """Return the Markdown of a document."""
    path = README if document == "README" else GUIDES_FOLDER / f"{document}.md"
    return path.read_text(encoding="utf-8")


def examples(document: str) -> list[Example]:
    """Return the examples of a document, in order."""
    text = text_of(document)
    blocks = list(_BLOCK.finditer(text))
    inside = [range(block.start("text"), block.end()) for block in blocks]
    headings = [
        (match.start(), match[1])
        for match in _HEADING.finditer(text)
        if not any(match.start() in each for each in inside)
    ]
    return [
        Example(
            document,
            [title for start, title in headings if start < block.start()][-1],
            block["language"],
            block["note"],
            block["text"],
            has_mark=block["mark"] is not None,
        )
        for block in blocks
    ]


def every_example() -> list[Example]:
    """Return the examples of all documents."""
    return [each for document in documents() for each in examples(document)]


def program(document: str, section: str) -> str:
    """Return the one program in Python below a heading."""
    [found] = [
        each.text for each in examples(document)
        if each.language == "python" and each.section == section
    ]  # fmt: skip
    return found
