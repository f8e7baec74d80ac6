"""Guess the topics of a statement before Spark is there to parse it. Pure.

A misspelt topic can then be reported at once, and the ranges of topics be looked up
while Spark starts. A guess is never more than that: Spark's parser has the last word on
what a statement reads. A name is a guess only where nothing but a table can stand, so a
topic may be missed, but what is found is one that the statement names.

Source: SqlBaseLexer.g4, the rules relation and relationPrimary of SqlBaseParser.g4.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN: Final = re.compile(
    r"""
    (?P<skipped>\s+|--[^\r\n]*|/\*.*?\*/)
    |(?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
    |`(?P<quoted>(?:[^`]|``)*)`
    |(?P<word>\w+)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_STARTS: Final = ("select", "with", "from", "table", "explain", "(")
#: Words that may follow FROM or JOIN and are not the name of a table there.
_NOT_NAMES: Final = ("lateral", "values", "table", "stream", "select", "identifier")
#: What may follow a name; before anything else, it is a part of something longer.
_AFTER: Final = (")", ",", ";", "|")


class _Token(NamedTuple):
    """A word in lower case, a sign, or "" for a text; `name` is of an identifier."""

    text: str
    name: str | None = None
    is_quoted: bool = False


def guess_topics(text: str) -> tuple[str, ...]:
    """The names of topics that a statement certainly reads, in the order of first use.

    Empty when the statement is not a query, or when its names may have another meaning.
    """
    tokens = [_Token("("), *_tokens(text), _Token(")")]
    words = [each.text for each in tokens]
    # The name that a recursive WITH defines may be followed by more words than AS.
    if words[1] not in _STARTS or "recursive" in words:
        return ()
    defined = _defined(tokens)
    found: dict[str, None] = {}
    #: for each open parenthesis, whether it is around a query, or has a query's FROM
    is_query: list[bool] = []
    for place, token in enumerate(tokens[:-1]):
        if token.text == "(":
            is_query.append(words[place + 1] in _STARTS)
        elif token.text == ")" and len(is_query) > 1:
            is_query.pop()
        elif token.text in ("from", "join") and not token.is_quoted and is_query[-1]:
            topic = _table_at(tokens, place + 1)
            is_of_operator = words[place - 1] == "distinct"  # IS DISTINCT FROM
            if topic is not None and not is_of_operator:
                found[topic] = None
    return tuple(topic for topic in found if topic.lower() not in defined)


def _table_at(tokens: list[_Token], place: int) -> str | None:
    """The name of the table at a place, None when something else stands there."""
    token, after = tokens[place], tokens[min(place + 1, len(tokens) - 1)]
    if token.name is None or (not token.is_quoted and token.text in _NOT_NAMES):
        return None
    return token.name if after.name is not None or after.text in _AFTER else None


def _defined(tokens: list[_Token]) -> set[str]:
    """The names, in lower case, before AS and a parenthesis, also with columns."""
    found = set()
    for place, token in enumerate(tokens[:-1]):
        if token.text != "as" or tokens[place + 1].text != "(":
            continue
        before = place - 1
        if tokens[before].text == ")":
            while before > 0 and tokens[before].text != "(":
                before -= 1
            before -= 1
        found.add((tokens[before].name or "").lower())
    return found


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match["quoted"] is not None:
            name = match["quoted"].replace("``", "`")
            yield _Token(name.lower(), name, is_quoted=True)
        elif match["word"] is not None:
            is_name = not match["word"][0].isdigit()
            yield _Token(match["word"].lower(), match["word"] if is_name else None)
        elif match["text"] is not None:
            yield _Token("")
        elif match["sign"] is not None:
            yield _Token(match["sign"])
