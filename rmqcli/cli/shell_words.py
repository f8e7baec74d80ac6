"""A command as `--exec` reads it without a shell, and what only a shell would obey."""

from __future__ import annotations

import re
import shlex
from typing import Final

from rmqcli.errors import TextError

#: The longest first, so that `>>` is not named as `>`.
_OPERATOR: Final = re.compile(
    r"\|\||\|&|\||&&|&>>|&>|&|;;|;|<<<|<<|<|>>|>&|>\||>|\(|\)|\n"
)
#: `$1` means nothing without a script, and `$` before a blank or quote is plain.
_EXPANSION: Final = re.compile(r"\$\(|\$\{|\$[A-Za-z_]\w*|`", re.ASCII)


def parse_words(text: str) -> list[str]:
    """The program and its arguments. Raises TextError when there are none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        what = str(error)[:1].lower() + str(error)[1:]
        raise TextError(text, what, start=0, end=max(1, len(text))) from None
    if not words:
        raise TextError(text, "no command in it", start=0, end=max(1, len(text)))
    return words


def check_no_shell_needed(text: str) -> None:
    """Raise TextError for an operator or an expansion that stands outside quotes.

    Inside double quotes a shell would still expand, so that counts too.
    """
    at, quote = 0, ""
    while at < len(text):
        char = text[at]
        if char == "\\" and quote != "'":
            at += 2
            continue
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        elif quote != "'":
            found = None if quote else _OPERATOR.match(text, at)
            found = found or _EXPANSION.match(text, at)
            if found is not None:
                raise TextError(
                    text,
                    f"only a shell knows {found.group()!r}, and there is none",
                    start=at,
                    end=found.end(),
                    hint="add --shell to let /bin/sh read it, or single quotes",
                )
        at += 1
