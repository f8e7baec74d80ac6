"""SQL92 expressions over a message's properties, as RocketMQ's brokers evaluate them.

`rmqcli.wire.sql92` has the grammar. As in Java, text after a complete expression is
ignored (`n LIKE 'a'` means `n`). Logic is three-valued: None is unknown, which a
missing property is, too. Constants are text, Integer (int), `Long`, Double (float) or
Boolean (bool). A message for which Java cannot convert a value does not match.
Imitated: which operands each operator takes, checked when the expression is parsed.
Not imitated: hexadecimal floats.

Source: `SqlFilter`, `ComparisonExpression.__compare` and the package
`org.apache.rocketmq.filter.expression` in apache/rocketmq.
"""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rmqcli.errors import UsageError
from rmqcli.wire import sql92

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.broker.filter.message_filter import Condition


_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
#: Java reads the digits of every script, if they are one char.
_DIGITS: Final = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d){1,400}")
_DOUBLE: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_JAVA_BLANKS: Final = "".join(map(chr, range(33)))
_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": lambda text, part: text.startswith(part),
    "ENDSWITH": lambda text, part: text.endswith(part),
}


class Long(int):
    """An integer constant that Java keeps in 64 bits: too large for 32."""


Value: TypeAlias = str | int | float | bool | None
Evaluate: TypeAlias = "Callable[[Mapping[str, str]], Value]"


class EvaluationError(Exception):
    """The expression cannot be evaluated for this message; never leaves `sql92`."""


def to_double(text: str) -> float:
    """Convert text as Java's Double.valueOf does. Raises EvaluationError."""
    text = text.strip(_JAVA_BLANKS)
    if not _DOUBLE.fullmatch(text):
        raise EvaluationError(text)
    if not text.endswith("Infinity"):
        text = text.rstrip("fFdD")
    return float(text)


def compare(left: Value, right: Value) -> int:
    """Return a number below, at or above 0; -1 for types that have no order.

    Neither value may be None. Raises EvaluationError when a text cannot be converted to
    the other value's type, or where Java's comparison fails.
    """
    if type(left) is not type(right):
        if isinstance(left, bool):
            if isinstance(right, str):
                raise EvaluationError  # Java casts the wrong side
            return -1
        if isinstance(right, str):
            right = _converted(right, like=left)
        elif isinstance(left, str):
            left = _converted(left, like=right)
        elif isinstance(right, bool):
            return -1
    return _order(left, right)


def _converted(text: str, *, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return to_double(text)
    limit = _LONG_MAX if isinstance(like, Long) else _INT_MAX
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(text)
    number = int(text)
    if not -limit - 1 <= number <= limit:
        raise EvaluationError(text)
    return number


def _order(left: Value, right: Value) -> int:
    if isinstance(left, str) and isinstance(right, str):
        one, other = left.encode("utf-16-be"), right.encode("utf-16-be")
        return (one > other) - (one < other)
    if isinstance(left, int | float) and isinstance(right, int | float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
        return (left > right) - (left < right)
    raise EvaluationError


class Node(NamedTuple):
    """A part of an expression. Constants have a `value`, properties a `name`."""

    evaluate: Evaluate
    is_boolean: bool = False
    is_constant: bool = False
    value: Value = None
    name: str | None = None


def constant(value: Value) -> Node:
    """Return a node for a text, a number, true, false or unknown (None)."""
    is_boolean = value is None or isinstance(value, bool)
    return Node(lambda _: value, is_boolean, is_constant=True, value=value)


def as_boolean(node: Node) -> Node:
    """Return a node as a condition.

    A property alone is unknown if it is missing, and false otherwise. Raises UsageError
    for other values.
    """
    if node.is_boolean:
        return node
    if node.name is None:
        raise UsageError("SQL92: expected a condition, found a value")
    name = node.name
    return Node(lambda of: None if of.get(name) is None else False, is_boolean=True)


def _equal(left: Node, right: Node) -> Node:
    def evaluate(properties: Mapping[str, str]) -> Value:
        one, other = left.evaluate(properties), right.evaluate(properties)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return Node(evaluate, is_boolean=True)


def compile_sql92(expression: str, *, has_text_words: bool = True) -> Condition | None:
    """Return the condition that an expression describes, or None if it is invalid.

    With `has_text_words`, CONTAINS and the like are known (5.x).
    """
    if len(expression) > sql92.LENGTH_MAX:
        return None
    return _compiled(expression, has_text_words)


@functools.lru_cache(100)
def _compiled(expression: str, has_text_words: bool) -> Condition | None:
    try:
        return parse_sql92(expression, has_text_words=has_text_words)
    except UsageError:
        return None


def parse_sql92(expression: str, *, has_text_words: bool = True) -> Condition:
    """Return the condition that an expression describes.

    Raises UsageError, which says what is wrong and where. Unlike RocketMQ, this limits
    the length and the depth of nesting.
    """
    length = len(expression)
    if length > sql92.LENGTH_MAX:
        raise UsageError(
            f"SQL92: {length} characters exceed the limit of {sql92.LENGTH_MAX}"
        )
    try:
        parser = _Parser(sql92.read_tokens(expression, has_text_words=has_text_words))
        evaluate = as_boolean(parser.parse(is_whole=False)).evaluate
    except sql92.GrammarError as error:
        where = f" at position {error.token.at}, found {error.found}"
        raise UsageError(
            f"SQL92: {error.what}{where if error.names_token else ''}"
        ) from None

    def condition(properties: Mapping[str, str]) -> bool:
        try:
            return evaluate(properties) is True
        except EvaluationError:
            return False

    return condition


class _Parser(sql92.Parser[Node]):
    """Makes the nodes of a broker, as conditions and values of a message."""

    def constant(self, value: str | float | bool | None, _token: sql92.Token) -> Node:
        return constant(value)

    def number(self, token: sql92.Token) -> Node:
        is_float = token.kind == sql92.FLOAT
        return constant(_double(token.text) if is_float else _integer(token.text))

    def name(self, token: sql92.Token) -> Node:
        """Return a node for a message's property."""
        name = token.text
        return Node(lambda properties: properties.get(name), name=name)

    def join(self, nodes: Sequence[Node], *, decisive: bool) -> Node:
        """OR (`decisive` is True) or AND (False): one decisive part decides."""
        parts = [as_boolean(node).evaluate for node in nodes]

        def evaluate(properties: Mapping[str, str]) -> Value:
            is_unknown = False
            for part in parts:
                value = part(properties)
                if value is None:
                    is_unknown = True
                elif value is decisive:
                    return decisive
            return None if is_unknown else not decisive

        return Node(evaluate, is_boolean=True)

    def equal(self, left: Node, right: Node) -> Node:
        """The operator `=`.

        Raises UsageError for NULL as an operand, and for TRUE or FALSE on the left of
        another kind of constant.
        """
        for node in (left, right):
            if node.is_constant and node.value is None:
                raise UsageError("SQL92: NULL cannot be compared", hint="use IS NULL")
        if (
            left.is_constant
            and right.is_constant
            and left.is_boolean > right.is_boolean
        ):
            raise UsageError("SQL92: a condition cannot be compared with a value")
        return _equal(left, right)

    def invert(self, node: Node) -> Node:
        """The operator NOT."""
        inner = as_boolean(node).evaluate

        def evaluate(properties: Mapping[str, str]) -> Value:
            value = inner(properties)
            return None if value is None else not value

        return Node(evaluate, is_boolean=True)

    def negate(self, node: Node) -> Node:
        """Unary minus of a number; unknown for others, such as a property's text."""

        def evaluate(properties: Mapping[str, str]) -> Value:
            value = node.evaluate(properties)
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            return type(value)(-value)

        return Node(evaluate)

    def is_null(self, node: Node) -> Node:
        """The operator IS NULL."""
        return _equal(node, constant(None))

    def order(self, sign: str, left: Node, right: Node) -> Node:
        """The operators > >= < <=, for numbers or properties that hold numbers."""
        for node in (left, right):
            is_number = isinstance(node.value, int | float)
            if node.is_boolean or (node.is_constant and not is_number):
                raise UsageError(f"SQL92: only numbers can be compared with {sign}")
        test = _ORDERS[sign]

        def evaluate(properties: Mapping[str, str]) -> Value:
            one, other = left.evaluate(properties), right.evaluate(properties)
            if one is None or other is None:
                return None
            if isinstance(one, str) and isinstance(other, str):
                one, other = to_double(one), to_double(other)
            return test(compare(one, other))

        return Node(evaluate, is_boolean=True)

    def between(self, node: Node, low: Node, high: Node, *, is_not: bool) -> Node:
        """BETWEEN, both ends included; constant ends must be in ascending order.

        The order of the ends of NOT BETWEEN is not checked.
        """
        if is_not:
            outside = [self.order("<", node, low), self.order(">", node, high)]
            return self.join(outside, decisive=True)
        inside = [self.order(">=", node, low), self.order("<=", node, high)]
        if low.is_constant and high.is_constant and compare(high.value, low.value) < 0:
            raise UsageError(
                f"SQL92: the bounds of BETWEEN {low.value} AND {high.value} are not in"
                " ascending order"
            )
        return self.join(inside, decisive=False)

    def one_of(self, node: Node, items: Sequence[str | Node], *, is_not: bool) -> Node:
        """IN and NOT IN, for a property."""
        if node.name is None:
            raise UsageError("SQL92: IN must follow a property name")
        name, wanted = node.name, frozenset(items)

        def evaluate(properties: Mapping[str, str]) -> Value:
            value = properties.get(name)
            return None if value is None else (value in wanted) is not is_not

        return Node(evaluate, is_boolean=True)

    def text_test(self, word: str, node: Node, part: str, *, is_not: bool) -> Node:
        """CONTAINS, STARTSWITH, ENDSWITH. False without a text, even after NOT."""
        test = _TEXT_TESTS[word]

        def evaluate(properties: Mapping[str, str]) -> Value:
            value = node.evaluate(properties)
            if not part or not isinstance(value, str):
                return False
            return test(value, part) is not is_not

        return Node(evaluate, is_boolean=True)


def _integer(text: str) -> int:
    digits = text.rstrip("lL")
    number = int(digits) if len(digits) < 20 else _LONG_MAX + 1
    if number > _LONG_MAX:
        raise UsageError(f"SQL92: {digits[:40]} exceeds {_LONG_MAX}")
    return number if number <= _INT_MAX else Long(number)


def _double(text: str) -> float:
    """Return the value of a float literal. Raises UsageError if it is out of range.

    Zero is out of range, too: Java considers it to be below the smallest double.
    """
    number = float(text)
    if math.isinf(number) or number == 0:
        raise UsageError(f"SQL92: {text[:40]} is out of range")
    return number
