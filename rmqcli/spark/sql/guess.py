"""What a statement tells before Spark is there to parse it. Pure.

A statement that is certainly not one query is refused at once. A misspelt topic can be
reported at once, too, and the ranges of topics be looked up while Spark starts. Topics
are guesses, and Spark's parser has the last word on what a statement reads. A name is a
guess only where nothing but a table can stand, so a topic may be missed, but what is
found is one that the statement names.

Source: SqlBaseLexer.g4, the rules statement, relation and relationPrimary of
SqlBaseParser.g4.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqcli.errors import TextError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN: Final = re.compile(
    r"""
    (?P<skipped>\s+|--(?:\\\n|[^\r\n])*)
    |(?P<comment>/\*)
    |(?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |`(?P<quoted>(?:[^`]|``)*)`
    |(?P<word>\w+)
    |(?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
#: Comments contain comments, but `/*+` begins a hint.
_COMMENT_EDGE: Final = re.compile(r"/\*(?!\+)|\*/")
QUERIES_HINT: Final = "write SELECT, WITH, FROM, VALUES, TABLE, EXPLAIN or DESCRIBE"
ONE_QUERY_HINT: Final = "write one query, and run the other with a command of its own"
#: The words with which Spark's statements begin that are no queries.
_COMMANDS: Final = (
    "add", "alter", "analyze", "begin", "cache", "call", "clear", "comment",
    "commit", "create", "declare", "delete", "dfs", "drop", "execute", "export",
    "grant", "import", "insert", "list", "load", "lock", "merge", "msck", "refresh",
    "replace", "reset", "revoke", "rollback", "set", "show", "start", "truncate",
    "uncache", "unlock", "unset", "update", "use",
)  # fmt: skip
_STARTS: Final = ("select", "with", "from", "table", "explain", "(")
#: Words that may follow FROM or JOIN and are not the name of a table there.
_NOT_NAMES: Final = ("lateral", "values", "table", "stream", "select", "identifier")
#: What may follow a name; before anything else, it is a part of something longer.
_AFTER: Final = (")", ",", ";", "|")


class _Token(NamedTuple):
    """A word in lower case, a sign, or "" for a text; `name` is of an identifier.

    `start` is its position in the statement.
    """

    text: str
    name: str | None = None
    is_quoted: bool = False
    start: int = 0


def check_statement(text: str) -> None:
    """Raise UsageError, or TextError with a line, for what is certainly not one query.

    Spark's parser and `rmqcli.spark.sql.statement` find what else is wrong.
    """
    tokens = list(_tokens(text))
    ends = [token.text == ";" and not token.is_quoted for token in tokens]
    if all(ends):
        raise UsageError("the query is empty", hint=QUERIES_HINT)
    if tokens[0].text in _COMMANDS and not tokens[0].is_quoted:
        raise UsageError(
            f"only queries can be run, not {tokens[0].text.upper()}", hint=QUERIES_HINT
        )
    for place, (before, is_end) in enumerate(itertools.pairwise(ends), 1):
        if before and not is_end and not ends[0]:
            raise _second_statement(text, tokens[place].start)


def _second_statement(text: str, start: int) -> TextError:
    number = text.count("\n", 0, start) + 1
    first = text.rfind("\n", 0, start) + 1
    line = text[first:].partition("\n")[0].rstrip()
    what = "a second statement begins here"
    return TextError(
        line,
        what if number == 1 else f"line {number}: {what}",
        start=start - first,
        end=len(line),
        hint=ONE_QUERY_HINT,
    )


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
    place = 0
    while match := _TOKEN.match(text, place):
        place, start = match.end(), match.start()
        if match["comment"] is not None:
            place = _comment_end(text, place)
        elif match["quoted"] is not None:
            name = match["quoted"].replace("``", "`")
            yield _Token(name.lower(), name, is_quoted=True, start=start)
        elif match["word"] is not None:
            word = match["word"]
            is_name = not word[0].isdigit()
            yield _Token(word.lower(), word if is_name else None, start=start)
        elif match["skipped"] is None:
            yield _Token(match["sign"] or "", start=start)


def _comment_end(text: str, start: int) -> int:
    """The position after a comment of which `start` is inside."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)
