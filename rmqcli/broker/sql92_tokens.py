"""The words of an SQL92 expression.

Source: the token part of `SelectorParser.jj` in apache/rocketmq.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

END: Final = "end"
BAD: Final = "bad"
INTEGER: Final = "integer"
FLOAT: Final = "float"
STRING: Final = "string"
NAME: Final = "name"

#: In any case; each is its own kind of token.
_WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
)
#: From 5.0 on.
TEXT_WORDS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>[ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/)
    | (?P<float>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)? | \.[0-9]+(?:E[+-]?[0-9]+)?
               | [0-9]+E[+-]?[0-9]+)
    | (?P<integer>0 | [1-9][0-9]*L?)
    | (?P<string>'(?:''|[^'])*')
    | (?P<name>[A-Z_$][A-Z0-9_$]*)
    | (?P<sign><> | >= | <= | [=<>+\-(),])
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """A word, a sign (its own kind) or a literal; `text` as it was written."""

    kind: str
    text: str
    at: int


def read_tokens(expression: str, *, has_text_words: bool) -> list[Token]:
    """All tokens and an END; BAD instead where no token begins.

    No error yet: Java reads a token at a time, and may have enough before.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(expression):
        match = _TOKEN.match(expression, at)
        if match is None:
            return [*tokens, Token(BAD, expression[at], at)]
        kind, text = str(match.lastgroup), match.group()
        if kind == "sign":
            tokens.append(Token(text, text, at))
        elif kind == NAME:
            word = text.upper()
            is_word = word in _WORDS or (has_text_words and word in TEXT_WORDS)
            tokens.append(Token(word if is_word else NAME, text, at))
        elif kind != "blank":
            tokens.append(Token(kind, text, at))
        at = match.end()
    tokens.append(Token(END, "", at))
    return tokens
