"""SQL92 expressions over a message's properties.

RocketMQ's grammar: AND OR NOT, = <> > >= < <=, BETWEEN, IN, IS NULL, from 5.0 on also
CONTAINS, STARTSWITH, ENDSWITH; numbers, text, TRUE, FALSE, NULL, names of properties.
Length and depth are bounded. A message for which it cannot be evaluated does not match.
What stands behind a whole expression is ignored (`n LIKE 'a'` is `n`), as Java does.

Source: `SelectorParser.jj` and `SqlFilter` in apache/rocketmq.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rmqcli.broker import sql92_nodes as nodes
from rmqcli.broker.sql92_tokens import (
    BAD,
    END,
    FLOAT,
    INTEGER,
    NAME,
    STRING,
    TEXT_WORDS,
    read_tokens,
)
from rmqcli.broker.sql92_values import EvaluationError, Long
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.message_filter import Condition
    from rmqcli.broker.sql92_nodes import Node

LENGTH_MAX: Final = 16_384
DEPTH_MAX: Final = 50

_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_ORDERS: Final = (">", ">=", "<", "<=")
_CONSTANTS: Final = {"TRUE": True, "FALSE": False, "NULL": None}
_KEPT_MAX: Final = 100
_kept: dict[tuple[str, bool], Condition | None] = {}


def compile_sql92(expression: str, *, has_text_words: bool = True) -> Condition | None:
    """The condition that the text stands for; None when it is not of the grammar.

    `has_text_words`: CONTAINS and the like are known (5.x).
    """
    if len(expression) > LENGTH_MAX:
        return None
    key = expression, has_text_words
    if key not in _kept:
        if len(_kept) >= _KEPT_MAX:
            _kept.clear()
        try:
            _kept[key] = parse_sql92(expression, has_text_words=has_text_words)
        except UsageError:
            _kept[key] = None
    return _kept[key]


def parse_sql92(expression: str, *, has_text_words: bool = True) -> Condition:
    """The condition that the text stands for. Raises UsageError, saying what and where.

    Other than RocketMQ this bounds the length and how deep parts are nested.
    """
    if len(expression) > LENGTH_MAX:
        raise UsageError(
            f"SQL92: {len(expression)} characters are over the limit of {LENGTH_MAX}"
        )
    evaluate = _Parser(expression, has_text_words=has_text_words).parse().evaluate

    def condition(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except EvaluationError:
            return False

    return condition


class _Parser:
    """One rule of the grammar a method."""

    def __init__(self, expression: str, *, has_text_words: bool) -> None:
        self._tokens = read_tokens(expression, has_text_words=has_text_words)
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        """As in Java, what follows a whole expression is not looked at, but one token
        is read."""
        node = nodes.as_boolean(self._or())
        if self._peek() == BAD:
            self._expect(END)
        return node

    def _or(self) -> Node:
        parts = [self._and()]
        while self._take("OR"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else nodes.join(parts, decisive=True)

    def _and(self) -> Node:
        parts = [self._equality()]
        while self._take("AND"):
            parts.append(self._equality())
        return parts[0] if len(parts) == 1 else nodes.join(parts, decisive=False)

    def _equality(self) -> Node:
        left = self._comparison()
        for _ in range(DEPTH_MAX):
            if self._take("="):
                left = nodes.equal(left, self._comparison())
            elif self._take("<>"):
                left = nodes.invert(nodes.equal(left, self._comparison()))
            elif self._take("IS"):
                is_not = self._take("NOT")
                self._expect("NULL")
                left = nodes.is_null(left)
                left = nodes.invert(left) if is_not else left
            else:
                return left
        raise UsageError(f"SQL92: more than {DEPTH_MAX} comparisons in a row")

    def _comparison(self) -> Node:
        left = self._unary()
        for _ in range(DEPTH_MAX):
            sign = self._peek()
            if sign in _ORDERS:
                self._at += 1
                left = nodes.order(sign, left, self._unary())
                continue
            is_not = sign == "NOT"
            word = self._peek(1) if is_not else sign
            if word not in TEXT_WORDS and word not in ("BETWEEN", "IN"):
                if is_not:
                    raise UsageError("SQL92: NOT stands where AND or OR is needed")
                return left
            self._at += 2 if is_not else 1
            left = self._worded(word, left, is_not=is_not)
        raise UsageError(f"SQL92: more than {DEPTH_MAX} comparisons in a row")

    def _worded(self, word: str, left: Node, *, is_not: bool) -> Node:
        if word == "BETWEEN":
            low = self._unary()
            self._expect("AND")
            make = nodes.not_between if is_not else nodes.between
            return make(left, low, self._unary())
        if word != "IN":
            return nodes.text_test(word, left, self._text(), is_not=is_not)
        self._expect("(")
        items = [self._text()]
        while self._take(","):
            items.append(self._text())
        self._expect(")")
        return nodes.one_of(left, items, is_not=is_not)

    def _unary(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise UsageError(f"SQL92: nested deeper than {DEPTH_MAX}")
        if self._take("+"):
            node = self._unary()
        elif self._take("-"):
            node = nodes.negate(self._unary())
        elif self._take("NOT"):
            node = nodes.invert(self._unary())
        else:
            node = self._primary()
        self._depth -= 1
        return node

    def _primary(self) -> Node:
        token = self._tokens[self._at]
        if token.kind == STRING:
            return nodes.constant(self._text())
        if token.kind in _CONSTANTS:
            self._at += 1
            return nodes.constant(_CONSTANTS[token.kind])
        if token.kind in (INTEGER, FLOAT):
            self._at += 1
            is_float = token.kind == FLOAT
            return nodes.constant(
                _double(token.text) if is_float else _integer(token.text)
            )
        if token.kind == NAME:
            self._at += 1
            return nodes.property_of(token.text)
        self._expect("(")
        node = self._or()
        self._expect(")")
        return node

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
            shown = repr(token.text[:40]) if token.text else "the end"
            raise UsageError(f"SQL92: {kind} expected at {token.at}, not {shown}")
        self._at += 1
        return token.text


def _integer(text: str) -> int:
    digits = text.rstrip("lL")
    number = int(digits) if len(digits) < 20 else _LONG_MAX + 1
    if number > _LONG_MAX:
        raise UsageError(f"SQL92: {digits[:40]} is over {_LONG_MAX}")
    return number if number <= _INT_MAX else Long(number)


def _double(text: str) -> float:
    """Zero is refused too: Java takes it to be below the least double."""
    number = float(text)
    if math.isinf(number) or number == 0:
        raise UsageError(f"SQL92: {text[:40]} is out of range")
    return number
