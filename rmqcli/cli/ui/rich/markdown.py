"""Draws a page of Markdown for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.markdown import Markdown

from rmqcli.cli.ui.rich.table import console_for

if TYPE_CHECKING:
    from typing import TextIO

#: Longer lines are hard to read.
_WIDTH_MAX: Final = 100
#: Colours of the terminal's own palette, without a background.
_CODE_THEME: Final = "ansi_dark"


def drawn_markdown(text: str, *, stream: TextIO, color: bool) -> str:
    """Return Markdown as lines for the terminal `stream`, with their styles."""
    console = console_for(stream, color=color)
    page = Markdown(text, code_theme=_CODE_THEME, hyperlinks=False)
    with console.capture() as capture:
        console.print(page, width=min(console.width, _WIDTH_MAX))
    return capture.get()
