"""The grammar of RocketMQ's SQL92 expressions, for all that evaluate them.

AND OR NOT, = <> > >= < <=, BETWEEN, IN, IS NULL, from 5.0 on also CONTAINS, STARTSWITH,
ENDSWITH; numbers, text, TRUE, FALSE, NULL, names. Length and depth are bounded. What
the parts of an expression mean is up to a subclass of `Parser`.

Source: `SelectorParser.jj` in apache/rocketmq.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

N = TypeVar("N")

END: Final = "end"
BAD: Final = "bad"
INTEGER: Final = "integer"
FLOAT: Final = "float"
STRING: Final = "string"
NAME: Final = "name"

#: Keywords, in upper or lower case; each is its own kind of token.
WORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
)
#: Keywords from 5.0 on.
TEXT_WORDS: Final = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
LENGTH_MAX: Final = 16_384
DEPTH_MAX: Final = 50

#: The name of a property.
PROPERTY: Final = "[A-Z_$][A-Z0-9_$]*"
_ORDER_SIGNS: Final = (">", ">=", "<", "<=")


def _token(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"""
          (?P<blank>[ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/)
        | (?P<float>[0-9]+\.[0-9]*(?:E[+-]?[0-9]+)? | \.[0-9]+(?:E[+-]?[0-9]+)?
                   | [0-9]+E[+-]?[0-9]+)
        | (?P<integer>0 | [1-9][0-9]*L?)
        | (?P<string>'(?:''|[^'])*')
        | (?P<name>{name})
        | (?P<sign><> | >= | <= | [=<>+\-(),])
        """,
        re.VERBOSE | re.IGNORECASE | re.DOTALL | re.ASCII,
    )


_PROPERTY_TOKEN: Final = _token(PROPERTY)
#: A name may also be a path: `value.items[0]."unit price"`.
_PATH_TOKEN: Final = _token(
    rf"""{PROPERTY}(?:\.(?:{PROPERTY}|"(?:""|[^"])*")|\[[0-9]{{1,9}}\])*"""
)


class Token(NamedTuple):
    """A keyword, name, sign or literal, with its text in the expression.

    The kind of a keyword or sign is the keyword or sign itself.
    """

    kind: str
    text: str
    at: int


class GrammarError(Exception):
    """An expression does not follow the grammar, at a token.

    `names_token` says whether the token itself is wrong, or what follows from it.
    """

    def __init__(self, what: str, token: Token, *, names_token: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.token = token
        self.names_token = names_token

    @property
    def found(self) -> str:
        """The token, as a message shows it."""
        return repr(self.token.text[:40]) if self.token.text else "the end"


def read_tokens(
    expression: str, *, has_text_words: bool, has_paths: bool = False
) -> list[Token]:
    """Return all tokens and an END, or a BAD at the place where no token begins.

    BAD is not an error yet: Java reads one token at a time, and may not reach it.
    """
    pattern = _PATH_TOKEN if has_paths else _PROPERTY_TOKEN
    tokens: list[Token] = []
    at = 0
    while at < len(expression):
        match = pattern.match(expression, at)
        if match is None:
            return [*tokens, Token(BAD, expression[at], at)]
        kind, text = str(match.lastgroup), match.group()
        if kind == "sign":
            tokens.append(Token(text, text, at))
        elif kind == NAME:
            word = text.upper()
            is_word = word in WORDS or (has_text_words and word in TEXT_WORDS)
            tokens.append(Token(word if is_word else NAME, text, at))
        elif kind != "blank":
            tokens.append(Token(kind, text, at))
        at = match.end()
    tokens.append(Token(END, "", at))
    return tokens


class Parser(Generic[N]):
    """A recursive-descent parser, with one method for each rule of the grammar.

    A subclass makes the nodes. Its methods may raise what they want for operands that
    cannot be.
    """

    #: As in RocketMQ, whose `NOT a = 1` is `(NOT a) = 1`; else `NOT (a = 1)`.
    not_binds_first = True

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    # --- the nodes

    def constant(self, value: str | float | bool | None, token: Token) -> N:
        """Return a node for a text, true, false or NULL."""
        raise NotImplementedError

    def number(self, token: Token) -> N:
        """Return a node for an INTEGER or a FLOAT."""
        raise NotImplementedError

    def name(self, token: Token) -> N:
        """Return a node for a name."""
        raise NotImplementedError

    def join(self, nodes: Sequence[N], *, decisive: bool) -> N:
        """Return a node for OR (`decisive` is True) or AND (False)."""
        raise NotImplementedError

    def equal(self, left: N, right: N) -> N:
        raise NotImplementedError

    def invert(self, node: N) -> N:
        raise NotImplementedError

    def negate(self, node: N) -> N:
        raise NotImplementedError

    def is_null(self, node: N) -> N:
        raise NotImplementedError

    def order(self, sign: str, left: N, right: N) -> N:
        raise NotImplementedError

    def between(self, node: N, low: N, high: N, *, is_not: bool) -> N:
        raise NotImplementedError

    def one_of(self, node: N, items: Sequence[str | N], *, is_not: bool) -> N:
        """Return a node for IN; `_item` reads the items, which are texts."""
        raise NotImplementedError

    def text_test(self, word: str, node: N, part: str, *, is_not: bool) -> N:
        """Return a node for CONTAINS, STARTSWITH or ENDSWITH."""
        raise NotImplementedError

    # --- the rules

    def parse(self, *, is_whole: bool) -> N:
        """Parse the expression. With `is_whole` nothing may follow it.

        Otherwise, as in Java, what follows is ignored, but its first token must be
        valid.
        """
        node = self._or()
        if self._peek() == BAD or (is_whole and self._peek() != END):
            self._expect(END)
        return node

    def _or(self) -> N:
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else self.join(parts, decisive=True)

    def _and(self) -> N:
        parts = [self._condition()]
        while self._take("AND"):
            parts.append(self._condition())
        return parts[0] if len(parts) == 1 else self.join(parts, decisive=False)

    def _condition(self) -> N:
        if self.not_binds_first or not self._take("NOT"):
            return self._equality()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"nested more than {DEPTH_MAX} levels deep")
        node = self.invert(self._condition())
        self._depth -= 1
        return node

    def _equality(self) -> N:
        left = self._comparison()
        for _ in range(DEPTH_MAX):
            if self._take("="):
                left = self.equal(left, self._comparison())
            elif self._take("<>"):
                left = self.invert(self.equal(left, self._comparison()))
            elif self._take("IS"):
                is_not = self._take("NOT")
                self._expect("NULL")
                left = self.is_null(left)
                left = self.invert(left) if is_not else left
            else:
                return left
        raise self._wrong(f"more than {DEPTH_MAX} comparisons in a row")

    def _comparison(self) -> N:
        left = self._unary()
        for _ in range(DEPTH_MAX):
            sign = self._peek()
            if sign in _ORDER_SIGNS:
                self._at += 1
                left = self.order(sign, left, self._unary())
                continue
            is_not = sign == "NOT"
            word = self._peek(1) if is_not else sign
            if word not in TEXT_WORDS and word not in ("BETWEEN", "IN"):
                if is_not:
                    raise self._wrong("expected AND or OR before NOT")
                return left
            self._at += 2 if is_not else 1
            left = self._worded(word, left, is_not=is_not)
        raise self._wrong(f"more than {DEPTH_MAX} comparisons in a row")

    def _worded(self, word: str, left: N, *, is_not: bool) -> N:
        if word == "BETWEEN":
            low = self._unary()
            self._expect("AND")
            return self.between(left, low, self._unary(), is_not=is_not)
        if word != "IN":
            return self.text_test(word, left, self._text(), is_not=is_not)
        self._expect("(")
        items = [self._item()]
        while self._take(","):
            items.append(self._item())
        self._expect(")")
        return self.one_of(left, items, is_not=is_not)

    def _unary(self) -> N:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"nested more than {DEPTH_MAX} levels deep")
        if self._take("+"):
            node = self._unary()
        elif self._take("-"):
            node = self.negate(self._unary())
        elif self.not_binds_first and self._take("NOT"):
            node = self.invert(self._unary())
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> N:
        token = self._tokens[self._at]
        if token.kind == STRING:
            return self.constant(self._text(), token)
        if token.kind in CONSTANTS:
            self._at += 1
            return self.constant(CONSTANTS[token.kind], token)
        if token.kind in (INTEGER, FLOAT):
            self._at += 1
            return self.number(token)
        if token.kind == NAME:
            self._at += 1
            return self.name(token)
        self._expect("(")
        node = self._or()
        self._expect(")")
        return node

    def _item(self) -> str | N:
        return self._text()

    def _text(self) -> str:
        return self._expect(STRING)[1:-1].replace("''", "'")

    def _peek(self, ahead: int = 0) -> str:
        at = min(self._at + ahead, len(self._tokens) - 1)
        return self._tokens[at].kind

    def _take(self, kind: str) -> bool:
        if self._peek() != kind:
            return False
        self._at += 1
        return True

    def _expect(self, kind: str) -> str:
        token = self._tokens[self._at]
        if token.kind != kind:
            raise self._wrong(f"expected {kind}", names_token=True)
        self._at += 1
        return token.text

    def _wrong(self, what: str, *, names_token: bool = False) -> GrammarError:
        return GrammarError(what, self._tokens[self._at], names_token=names_token)
