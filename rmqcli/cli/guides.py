"""The guides: the Markdown files of `rmqcli/docs`, which `rmq help NAME` shows.

A guide's heading says what it is about. On a terminal a guide is drawn, and shown by a
pager if it is longer than the screen. Elsewhere it is written as the text it is, with
links that name the command for the other guide.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rmqcli.cli.ui.messages import color_is_on, is_screen

_FOLDER = Path(__file__).parents[1] / "docs"

#: The names of the guides, in the order of `rmq help`.
GUIDES = (
    "reading",
    "positions",
    "consuming",
    "sending",
    "measuring",
    "resetting",
    "administration",
    "exporting",
    "lakehouse",
    "querying",
    "dataframes",
    "clusters",
    "offline",
    "proxies",
    "library",
    "testing",
    "embedded-broker",
    "security",
    "exit-codes",
    "mqadmin",
    "troubleshooting",
)

_COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
#: What is said to tests after the language of a block of code.
_FENCE = re.compile(r"^(```\w+) .*$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_TO_A_GUIDE = re.compile(r"([\w-]+)\.md(?:#[\w-]+)?")
#: Links to the place of something in the same guide.
_INSIDE = "#"


def guide_source(name: str) -> str:
    """Return the Markdown of a guide, as it is in its file."""
    return (_FOLDER / f"{name}.md").read_text(encoding="utf-8")


def guide_title(name: str) -> str:
    """Return what a guide is about: the text of its heading."""
    return guide_source(name).partition("\n")[0].removeprefix("# ").replace("`", "")


def guide_text(name: str) -> str:
    """Return the Markdown of a guide as it is shown, with `rmq help` for links."""
    text = _FENCE.sub(r"\1", _COMMENT.sub("", guide_source(name)))
    return _LINK.sub(_shown_link, text)


def _shown_link(link: re.Match[str]) -> str:
    words, target = link[1], link[2]
    guide = _TO_A_GUIDE.fullmatch(target)
    if guide is not None and guide[1] in GUIDES:
        return f"{words} (`rmq help {guide[1]}`)"
    return words if target.startswith(_INSIDE) else f"{words} ({target})"


def show_guide(name: str) -> None:
    """Write a guide to stdout; on a terminal, drawn and screen by screen."""
    text = guide_text(name)
    if not is_screen(sys.stdout):
        sys.stdout.write(text)
        return
    from rmqcli.cli.ui.pager import show_in_pager
    from rmqcli.cli.ui.rich.markdown import drawn_markdown

    color = color_is_on("auto", sys.stdout)
    drawn = drawn_markdown(text, stream=sys.stdout, color=color)
    show_in_pager(drawn, stream=sys.stdout)
