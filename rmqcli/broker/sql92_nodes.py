"""The parts of an SQL92 expression: what each is worth for one message.

Values are three-valued: None is unknown, as a missing property is. Which operands an
operator takes is checked when it is made, as RocketMQ does.

Source: the package `org.apache.rocketmq.filter.expression`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from rmqcli.broker.sql92_values import EvaluationError, compare, to_double
from rmqcli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.broker.sql92_values import Value

    Evaluate: TypeAlias = Callable[[Mapping[str, str]], Value]

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


class Node(NamedTuple):
    """A part. Constants have their value, properties their name."""

    evaluate: Evaluate
    is_boolean: bool = False
    is_constant: bool = False
    value: Value = None
    name: str | None = None


def constant(value: Value) -> Node:
    """Text, a number, true, false or unknown."""
    is_boolean = value is None or isinstance(value, bool)
    return Node(lambda _: value, is_boolean, is_constant=True, value=value)


def property_of(name: str) -> Node:
    """A message's property."""
    return Node(lambda properties: properties.get(name), name=name)


def as_boolean(node: Node) -> Node:
    """A condition; a property alone is false unless it is missing."""
    if node.is_boolean:
        return node
    if node.name is None:
        raise UsageError("SQL92: a value stands where a condition is needed")
    name = node.name
    return Node(lambda of: None if of.get(name) is None else False, is_boolean=True)


def negate(node: Node) -> Node:
    """Minus; unknown for what is no number."""

    def evaluate(properties: Mapping[str, str]) -> Value:
        value = node.evaluate(properties)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return type(value)(-value)

    return Node(evaluate)


def invert(node: Node) -> Node:
    """NOT."""
    inner = as_boolean(node).evaluate

    def evaluate(properties: Mapping[str, str]) -> Value:
        value = inner(properties)
        return None if value is None else not value

    return Node(evaluate, is_boolean=True)


def join(nodes: Sequence[Node], *, decisive: bool) -> Node:
    """OR (decisive: true) or AND (false): the first decisive value is the whole's."""
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


def equal(left: Node, right: Node) -> Node:
    """= . Unknown is refused as an operand."""
    for node in (left, right):
        if node.is_constant and node.value is None:
            raise UsageError("SQL92: NULL cannot be compared", hint="use IS NULL")
    if left.is_constant and right.is_constant and left.is_boolean > right.is_boolean:
        raise UsageError("SQL92: a condition cannot be compared with a value")
    return _equal(left, right)


def is_null(node: Node) -> Node:
    """IS NULL."""
    return _equal(node, constant(None))


def _equal(left: Node, right: Node) -> Node:
    def evaluate(properties: Mapping[str, str]) -> Value:
        one, other = left.evaluate(properties), right.evaluate(properties)
        if one is None:
            return True if other is None else None
        return other is not None and compare(one, other) == 0

    return Node(evaluate, is_boolean=True)


def order(sign: str, left: Node, right: Node) -> Node:
    """> >= < <= of numbers, or of properties that hold numbers."""
    for node in (left, right):
        is_number = isinstance(node.value, int | float)
        if node.is_boolean or (node.is_constant and not is_number):
            raise UsageError(f"SQL92: only numbers can be compared by {sign}")
    test = _ORDERS[sign]

    def evaluate(properties: Mapping[str, str]) -> Value:
        one, other = left.evaluate(properties), right.evaluate(properties)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            one, other = to_double(one), to_double(other)
        return test(compare(one, other))

    return Node(evaluate, is_boolean=True)


def between(node: Node, low: Node, high: Node) -> Node:
    """BETWEEN, both ends included; constants must be in order."""
    if low.is_constant and high.is_constant:
        _check_ends(low.value, high.value)
    return join([order(">=", node, low), order("<=", node, high)], decisive=False)


def not_between(node: Node, low: Node, high: Node) -> Node:
    """NOT BETWEEN: below or above; the ends are not checked."""
    return join([order("<", node, low), order(">", node, high)], decisive=True)


def _check_ends(low: Value, high: Value) -> None:
    if low is None or high is None:
        raise UsageError("SQL92: an end of BETWEEN is NULL")
    try:
        is_empty = compare(high, low) < 0
    except EvaluationError:
        is_empty = True
    if is_empty:
        raise UsageError(f"SQL92: BETWEEN {low} AND {high} is the wrong way round")


def one_of(node: Node, items: Sequence[str], *, is_not: bool) -> Node:
    """IN and NOT IN, of a property."""
    if node.name is None:
        raise UsageError("SQL92: IN needs a property before it")
    name, wanted = node.name, frozenset(items)

    def evaluate(properties: Mapping[str, str]) -> Value:
        value = properties.get(name)
        return None if value is None else (value in wanted) is not is_not

    return Node(evaluate, is_boolean=True)


def text_test(word: str, node: Node, part: str, *, is_not: bool) -> Node:
    """CONTAINS, STARTSWITH, ENDSWITH. False without text, also after NOT."""
    test = _TEXT_TESTS[word]

    def evaluate(properties: Mapping[str, str]) -> Value:
        value = node.evaluate(properties)
        if not part or not isinstance(value, str):
            return False
        return test(value, part) is not is_not

    return Node(evaluate, is_boolean=True)
