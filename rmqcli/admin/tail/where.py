"""Conditions on messages: their fields, properties and, with a decoder, their values.

    value.order.amount > 100 AND properties.region IN ('eu', 'us')

The grammar is that of RocketMQ's SQL92 (`rmqcli.wire.sql92`), but NOT applies to a
whole comparison, names are paths, lists may have numbers, and nothing may follow an
expression. Logic is that of SQL: what a message does not have is unknown, and so is a
comparison with it, or of values that cannot be compared; only messages for which the
condition is true are chosen.

A text that is compared with a number or with TRUE or FALSE is read as one, because all
properties are texts; two texts are ordered by their characters. `store_timestamp` and
`born_timestamp` are compared with times in RFC 3339.

Some conditions say which messages can match at all: those with a tag, in a queue, of a
broker, stored at a time, or with the text of a property. A reader leaves out others
with `Where.tags`, `queue_ids`, `broker_names`, `store_times_ms` and `sql`. Only texts
that properties equal become SQL92: a broker compares numbers in other ways than these
conditions do.

CEL's and JMESPath's implementations in Python were too slow by a factor of ten and more
(measured with cel-python 0.5 and jmespath 1.1), and JMESPath has no unknown values.
"""

from __future__ import annotations

import datetime
import math
import operator
import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from rmqcli.dataclass import dataclass
from rmqcli.errors import DecodeError, TextError
from rmqcli.hint import Argument, Hint
from rmqcli.wire.sql92 import (
    FLOAT,
    LENGTH_MAX,
    PROPERTY,
    TEXT_WORDS,
    WORDS,
    GrammarError,
    Parser,
    Token,
    read_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.json import ValueReader
    from rmqcli.wire.message.record import PartialMessage, StoredMessage

    Evaluate: TypeAlias = "Callable[[_Row], Any]"
    #: field -> its values in all messages for which a condition can be true
    Limits: TypeAlias = "Mapping[str, frozenset[Any]]"
    #: the lowest and the highest store time of all messages for which it can be true
    Span: TypeAlias = tuple[float, float]

#: The fields of a record that have the same names here.
FIELDS: Final = (
    *(
        "topic",
        "queue_id",
        "queue_offset",
        "commit_log_offset",
        "msg_id",
        "offset_msg_id",
    ),
    *("tags", "keys", "born_host", "store_host", "reconsume_times", "flag"),
    *("sys_flag", "store_bytes"),
)
_TIMES: Final = {
    "store_timestamp": "store_timestamp_ms",
    "born_timestamp": "born_timestamp_ms",
}
#: The fields by which messages can be left unread, and the types of their values.
_LIMITING: Final = {"tags": str, "queue_id": int, "broker_name": str}
_NAMES: Final = (
    *("broker_name", *FIELDS, *_TIMES, "body", "decode_error"),
    *("properties.NAME", "value.PATH"),
)
_NUMBERS: Final = frozenset({int, float})
_SCALARS: Final = frozenset({int, float, str, bool})
_NUMBER: Final = re.compile(
    r"([+-]?)([0-9]{1,400})(\.[0-9]{0,400})?([eE][+-]?[0-9]{1,4})?", re.ASCII
)
_STEP: Final = re.compile(r'\.("(?:""|[^"])*"|[^.\[]+)|\[([0-9]+)\]')
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_REVERSED: Final = {"=": "=", ">": "<", ">=": "<=", "<": ">", "<=": ">="}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_LIKE_HINT: Final = "write CONTAINS, STARTSWITH or ENDSWITH"
_TIME_HINT: Final = "write a time such as '2026-01-02T03:04:05Z'"
_VALUE_HINT: Final = Hint("name their format with ", Argument("decode"))
_UNREAD: Final = object()
_ALWAYS: Final = (-math.inf, math.inf)
#: Texts and names of properties that all brokers read alike in an expression.
_SQL_TEXT: Final = re.compile(r"[ -&(-~]+")
_SQL_NAME: Final = re.compile(PROPERTY, re.ASCII | re.IGNORECASE)
#: Java evaluates a list of comparisons by recursion.
_SQL_LENGTH_MAX: Final = 1_000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS: Final = datetime.timedelta(milliseconds=1)


class Where:
    """A condition. Create one with `parse_where`. Safe to use from several threads.

    `undecodable` is for how many messages the condition needed the value of a body that
    the decoder could not read: their values were unknown.

    `tags`, `queue_ids` and `broker_names` are those of all messages for which the
    condition can be true, or None if it can be true of others. Between the two
    `store_times_ms`, both included, are their store times, and `sql` is an SQL92
    expression that is true of them; None without one. `decode` is the format of bodies
    as the user wrote it, None without one.
    """

    def __init__(self, text: str, node: _Node, decode: ValueReader | None) -> None:
        self.text = text
        self.decode = None if decode is None else decode.text
        limits = node.limits
        self.tags: frozenset[str] | None = limits.get("tags")
        self.queue_ids: frozenset[int] | None = limits.get("queue_id")
        self.broker_names: frozenset[str] | None = limits.get("broker_name")
        self.store_times_ms = node.stored_ms
        pushed = node.pushed
        if pushed is not None and len(pushed.sql) > _SQL_LENGTH_MAX:
            pushed = None
        self.sql = None if pushed is None else pushed.sql
        self.undecodable = 0
        self._evaluate = node.evaluate
        self._pushed = None if pushed is None else pushed.evaluate
        self._decode = decode

    def may_match_in(self, queue: MessageQueue) -> bool:
        """Whether the condition can be true of a message in this queue."""
        return (self.queue_ids is None or queue.queue_id in self.queue_ids) and (
            self.broker_names is None or queue.broker_name in self.broker_names
        )

    def matches(
        self, message: StoredMessage | PartialMessage, broker_name: str | None = None
    ) -> bool:
        """Whether the condition is true of a message of a broker.

        Also true if a damaged body is why that is unknown, as for all filters.
        """
        row = _Row(message, broker_name, self._decode)
        if self._cannot_match(row):
            return False
        found = self._evaluate(row)
        if row.is_undecodable:
            self.undecodable += 1
        return found is True or (found is None and row.is_damaged)

    def is_true_of(
        self, message: StoredMessage | PartialMessage, broker_name: str | None
    ) -> bool | None:
        """Whether the condition is true; None if it needed a body that is unreadable.

        For those who act on messages: a body that is damaged, or that the decoder
        cannot read, proves nothing, even where the condition asks for what is unknown.
        """
        row = _Row(message, broker_name, self._decode)
        if self._cannot_match(row):
            return False
        found = self._evaluate(row)
        return None if row.is_undecodable or row.is_damaged else found is True

    def _cannot_match(self, row: _Row) -> bool:
        """Whether the condition is not true, whatever the body is.

        A reader that leaves out others does not see such a message.
        """
        message, broker_name = row.message, row.broker_name
        return (
            (self.tags is not None and message.tags not in self.tags)
            or (self.broker_names is not None and broker_name not in self.broker_names)
            or (
                self.queue_ids is not None
                and getattr(message, "queue_id", None) not in self.queue_ids
            )
            or (self._pushed is not None and self._pushed(row) is not True)
        )


@dataclass(slots=True, eq=False)
class _Row:
    """A message whose body is read at most once."""

    message: StoredMessage | PartialMessage
    broker_name: str | None
    _decode: ValueReader | None
    is_damaged: bool = False
    is_undecodable: bool = False
    _value: Any = _UNREAD
    _error: str | None = None

    def body(self) -> bytes | None:
        """The body; None for a damaged one."""
        try:
            return self.message.body
        except DecodeError:
            self.is_damaged = True
            return None

    def value(self) -> Any:  # noqa: ANN401  # a value of JSON
        """The value of the body; None if it has none."""
        value = self._value
        if value is _UNREAD:
            self._read()
            value = self._value
        if self._error is not None:
            self.is_undecodable = True
        return value

    def decode_error(self) -> str | None:
        """Why the decoder cannot read the body; None if it can."""
        if self._value is _UNREAD:
            self._read()
        return self._error

    def _read(self) -> None:
        self._value = None
        body = self.body()
        if body is not None and self._decode is not None:
            try:
                self._value = self._decode.value(body)
            except DecodeError as error:
                self._error = error.message


@dataclass(frozen=True, slots=True)
class _Pushed:
    """What a broker can evaluate of a condition, which is not true where this is not.

    `evaluate` returns what the broker finds for `sql`.
    """

    sql: str
    evaluate: Evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """A part of a condition, and where it stands in the text.

    `evaluate` returns a value of JSON, or None for what is unknown; if `is_condition`
    is set, True, False or None. A constant has its value in `value`.
    """

    evaluate: Evaluate
    start: int
    end: int
    is_condition: bool = False
    is_constant: bool = False
    is_time: bool = False
    value: Any = None
    #: the name of the field that this is
    name: str | None = None
    #: the name of the property that this is
    property: str | None = None
    limits: Limits = field(default_factory=dict)
    stored_ms: Span = _ALWAYS
    pushed: _Pushed | None = None


def parse_where(text: str, *, decode: ValueReader | None = None) -> Where:
    """Return the condition that a text describes; `decode` reads values of bodies.

    Raises TextError, which says where the text is wrong.
    """
    if len(text) > LENGTH_MAX:
        what = f"longer than {LENGTH_MAX} characters"
        raise TextError(text[:100] + "...", what, start=0, end=100)
    parser = _Parser(text, has_values=decode is not None)
    condition = parser.condition()
    return Where(text, condition, decode)


class _Parser(Parser[_Node]):
    not_binds_first = False

    def __init__(self, text: str, *, has_values: bool) -> None:
        super().__init__(read_tokens(text, has_text_words=True, has_paths=True))
        self._text_given = text
        self._has_values = has_values

    def condition(self) -> _Node:
        """Parse the whole text."""
        try:
            return self._as_condition(self.parse(is_whole=True))
        except GrammarError as error:
            at, text = error.token.at, error.token.text
            what = error.what.replace("expected end", "expected AND, OR or the end")
            found = f", found {error.found}" if error.names_token else ""
            start = min(at, max(0, len(self._text_given) - 1))
            raise TextError(
                self._text_given,
                what + found,
                start=start,
                end=max(start + 1, at + len(text)),
                hint=self._hint(at, text),
            ) from None

    def _hint(self, at: int, text: str) -> str:
        """Return what to write in place of a word or sign of another language."""
        before = self._text_given[max(0, at - 1) : at]
        if text.upper() == "LIKE":
            return _LIKE_HINT
        if text == "!" or (text == "=" and before in ("=", "!")):
            return "equal is =, not equal is <>"
        if text == '"':
            word = self._text_given[at + 1 :].partition('"')[0].replace("'", "''")
            return f"a text is in single quotes: '{word}'"
        return ""

    def _refuse(self, node: _Node, what: str, *, hint: str = "") -> NoReturn:
        raise TextError(
            self._text_given, what, start=node.start, end=node.end, hint=hint
        )

    # --- values

    def constant(self, value: str | float | bool | None, token: Token) -> _Node:
        return _Node(
            evaluate=lambda _: value,
            start=token.at,
            end=token.at + len(token.text),
            is_constant=True,
            is_condition=value is None or isinstance(value, bool),
            value=value,
        )

    def number(self, token: Token) -> _Node:
        digits = token.text.rstrip("lL")
        node = self.constant(0, token)
        is_float = token.kind == FLOAT
        if math.isinf(float(digits)) if is_float else len(digits) > 300:
            self._refuse(node, "the number is too large")
        return self.constant(float(digits) if is_float else int(digits), token)

    def name(self, token: Token) -> _Node:
        text = token.text
        end = token.at + len(text)
        first = re.split(r"[.\[]", text, maxsplit=1)[0]
        here = _Node(evaluate=_unknown, start=token.at, end=end)
        if first in ("value", "decode_error") and not self._has_values:
            self._refuse(here, "the values of bodies are not read", hint=_VALUE_HINT)
        steps = [
            int(index) if index else _unquoted(name)
            for name, index in _STEP.findall(text[len(first) :])
        ]
        if first == "value":
            return replace(here, evaluate=_path(steps))
        if first == "properties":
            if len(steps) != 1 or isinstance(steps[0], int):
                self._refuse(here, "not a property", hint="write properties.NAME")
            name = str(steps[0])
            return replace(here, evaluate=_property(name), property=name)
        if steps or text not in (*FIELDS, *_TIMES, *_OTHERS):
            also = f", or properties.{text}" if not steps else ""
            hint = f"use one of: {', '.join(_NAMES)}{also}"
            self._refuse(here, "not a field of messages", hint=hint)
        if text in _OTHERS:
            return replace(here, evaluate=_OTHERS[text], name=text)
        if text in _TIMES:
            get = _field(_TIMES[text])
            return replace(here, evaluate=get, is_time=True, name=text)
        return replace(here, evaluate=_field(text), name=text)

    def negate(self, node: _Node) -> _Node:
        if not node.is_constant or type(node.value) not in _NUMBERS:
            self._refuse(node, "expected a number after -")
        value = -node.value
        return replace(node, evaluate=lambda _: value, value=value)

    # --- conditions

    def _as_condition(self, node: _Node) -> _Node:
        if node.is_condition:
            return node
        if node.is_constant or node.is_time:
            self._refuse(node, "expected a condition, found a value")
        value = node.evaluate
        return replace(node, evaluate=lambda row: _as_boolean(value(row)))

    def join(self, nodes: Sequence[_Node], *, decisive: bool) -> _Node:
        parts: list[Callable[[_Row], bool | None]] = [
            self._as_condition(node).evaluate for node in nodes
        ]

        def evaluate(row: _Row) -> bool | None:
            is_unknown = False
            for part in parts:
                found = part(row)
                if found is decisive:
                    return decisive
                if found is None:
                    is_unknown = True
            return None if is_unknown else not decisive

        found = [node.limits for node in nodes]
        lows, highs = zip(*(node.stored_ms for node in nodes), strict=True)
        wide, narrow = (min(lows), max(highs)), (max(lows), min(highs))
        return replace(
            _condition(nodes[0], nodes[-1], evaluate),
            limits=_of_any(found) if decisive else _of_all(found),
            stored_ms=wide if decisive else narrow,
            pushed=self._joined(nodes, decisive=decisive),
        )

    def _joined(self, nodes: Sequence[_Node], *, decisive: bool) -> _Pushed | None:
        """Return what a broker can evaluate of a condition that has these parts."""
        parts = [node.pushed for node in nodes if node.pushed is not None]
        if not parts or (decisive and len(parts) < len(nodes)):
            return None
        if len(parts) == 1:
            return parts[0]
        word, every = (" OR ", any) if decisive else (" AND ", all)
        tests = [part.evaluate for part in parts]
        return _Pushed(
            f"({word.join(part.sql for part in parts)})",
            lambda row: every(test(row) is True for test in tests),
        )

    def invert(self, node: _Node) -> _Node:
        part = self._as_condition(node).evaluate

        def evaluate(row: _Row) -> bool | None:
            found = part(row)
            return None if found is None else not found

        return _condition(node, node, evaluate)

    def is_null(self, node: _Node) -> _Node:
        value = node.evaluate
        return _condition(node, node, lambda row: value(row) is None)

    def equal(self, left: _Node, right: _Node) -> _Node:
        for node in (left, right):
            if node.is_constant and node.value is None:
                self._refuse(node, "nothing equals NULL", hint="write IS NULL")
        found = self._compared(left, right, operator.eq, has_order=False)
        for node, constant in ((left, right), (right, left)):
            kind = _LIMITING.get(node.name or "")
            if constant.is_constant and type(constant.value) is kind:
                limits = {str(node.name): frozenset({constant.value})}
                return replace(found, limits=limits)
            sql = _equal_sql(node, constant)
            if sql is not None:
                return replace(found, pushed=_Pushed(sql, found.evaluate))
        return self._within(found, "=", left, right)

    def _within(self, found: _Node, sign: str, left: _Node, right: _Node) -> _Node:
        """Return a comparison with the store times that it allows, if it is of them."""
        if right.name == "store_timestamp":
            sign, left, right = _REVERSED[sign], right, left
        if left.name != "store_timestamp" or not right.is_constant:
            return found
        at_ms = self._as_times(right, left).value
        return replace(
            found,
            stored_ms=(
                at_ms if sign in ("=", ">", ">=") else -math.inf,
                at_ms if sign in ("=", "<", "<=") else math.inf,
            ),
        )

    def order(self, sign: str, left: _Node, right: _Node) -> _Node:
        for node in (left, right):
            if node.is_condition:
                self._refuse(node, f"expected a value beside {sign}")
        found = self._compared(left, right, _ORDERS[sign], has_order=True)
        return self._within(found, sign, left, right)

    def _compared(
        self,
        left: _Node,
        right: _Node,
        test: Callable[[Any, Any], bool],
        *,
        has_order: bool,
    ) -> _Node:
        left, right = self._as_times(left, right), self._as_times(right, left)
        one, other = left.evaluate, right.evaluate
        if right.is_constant:
            wanted, kind = right.value, type(right.value)

            def evaluate(row: _Row) -> bool | None:
                found = one(row)
                if type(found) is kind:
                    is_so: bool = test(found, wanted)
                    return is_so
                return _test(found, wanted, test, has_order=has_order)

        else:

            def evaluate(row: _Row) -> bool | None:
                return _test(one(row), other(row), test, has_order=has_order)

        return _condition(left, right, evaluate)

    def _as_times(self, node: _Node, beside: _Node) -> _Node:
        """Return a time that is written beside a field of times as milliseconds."""
        if not beside.is_time or node.is_time:
            return node
        if not node.is_constant or not isinstance(node.value, str):
            self._refuse(node, "expected a time", hint=_TIME_HINT)
        try:
            moment = datetime.datetime.fromisoformat(node.value)
        except ValueError:
            self._refuse(node, "not a time", hint=_TIME_HINT)
        if moment.tzinfo is None:
            self._refuse(node, "a time without a time zone", hint=_TIME_HINT)
        value = (moment - _EPOCH) / _MS
        return replace(node, evaluate=lambda _: value, value=value)

    def between(self, node: _Node, low: _Node, high: _Node, *, is_not: bool) -> _Node:
        found = self.join(
            [self.order(">=", node, low), self.order("<=", node, high)], decisive=False
        )
        return self.invert(found) if is_not else found

    def _item(self) -> _Node:
        node = self._unary()
        if not node.is_constant or node.value is None:
            self._refuse(node, "expected a text or a number")
        return node

    def one_of(
        self, node: _Node, items: Sequence[str | _Node], *, is_not: bool
    ) -> _Node:
        nodes = [each for each in items if isinstance(each, _Node)]
        found = self.join([self.equal(node, each) for each in nodes], decisive=True)
        return self.invert(found) if is_not else found

    def text_test(self, word: str, node: _Node, part: str, *, is_not: bool) -> _Node:
        if node.is_condition or node.is_time:
            self._refuse(node, f"expected a text before {word}")
        test, value = _TEXT_TESTS[word], node.evaluate

        def evaluate(row: _Row) -> bool | None:
            found = value(row)
            if type(found) is not str:
                return None
            return bool(test(found, part)) is not is_not

        return _condition(node, node, evaluate)


def _condition(first: _Node, last: _Node, evaluate: Evaluate) -> _Node:
    return _Node(
        evaluate=evaluate,
        start=min(first.start, last.start),
        end=max(first.end, last.end),
        is_condition=True,
    )


def _equal_sql(node: _Node, constant: _Node) -> str | None:
    """Return an expression that says that a property equals a text, if one can."""
    name, text = node.property, constant.value
    if (
        name is None
        or not _SQL_NAME.fullmatch(name)
        or name.upper() in WORDS | TEXT_WORDS
        or not isinstance(text, str)
        or not _SQL_TEXT.fullmatch(text)
    ):
        return None
    return f"{name} = '{text}'"


def _of_all(parts: Sequence[Limits]) -> Limits:
    """The limits of a condition all of whose parts are true."""
    return {
        name: frozenset.intersection(*(each[name] for each in parts if name in each))
        for name in _LIMITING
        if any(name in each for each in parts)
    }


def _of_any(parts: Sequence[Limits]) -> Limits:
    """The limits of a condition one of whose parts is true."""
    return {
        name: frozenset().union(*(each[name] for each in parts))
        for name in _LIMITING
        if all(name in each for each in parts)
    }


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


# --- what a name stands for


def _unknown(_row: _Row) -> None:
    return None


def _field(name: str) -> Evaluate:
    get = operator.attrgetter(name)
    return lambda row: get(row.message)


def _property(name: str) -> Evaluate:
    return lambda row: row.message.properties.get(name)


def _body_text(row: _Row) -> str | None:
    body = row.body()
    try:
        return None if body is None else body.decode()
    except UnicodeDecodeError:
        return None


#: The other fields of a record.
_OTHERS: Final[dict[str, Evaluate]] = {
    "body": _body_text,
    "broker_name": operator.attrgetter("broker_name"),
    "decode_error": lambda row: row.decode_error(),
}


def _path(steps: Sequence[str | int]) -> Evaluate:
    if len(steps) == 1 and isinstance(steps[0], str):
        (name,) = steps

        def evaluate_one(row: _Row) -> Any:  # noqa: ANN401  # a value of JSON
            value = row.value()
            return value.get(name) if type(value) is dict else None

        return evaluate_one

    def evaluate(row: _Row) -> Any:  # noqa: ANN401  # a value of JSON
        value = row.value()
        for step in steps:
            if isinstance(step, str):
                value = value.get(step) if type(value) is dict else None
            elif type(value) is list and step < len(value):
                value = value[step]
            else:
                return None
        return value

    return evaluate


# --- comparisons


def _test(
    one: object, other: object, test: Callable[[Any, Any], bool], *, has_order: bool
) -> bool | None:
    """Compare two values; None if one is unknown or they cannot be compared."""
    kind, other_kind = type(one), type(other)
    if kind not in _SCALARS or other_kind not in _SCALARS:
        return None
    if kind is not other_kind:
        if kind is str:
            one = _read_as(one, other_kind)
        elif other_kind is str:
            other = _read_as(other, kind)
        elif bool in (kind, other_kind):
            return None
        if one is None or other is None:
            return None
        kind = type(one)
    if has_order and kind is bool:
        return None
    found: bool = test(one, other)
    return found


def _read_as(text: Any, kind: type) -> bool | float | None:  # noqa: ANN401  # a str
    return _as_boolean(text) if kind is bool else _as_number(text)


def _as_boolean(value: object) -> bool | None:
    if type(value) is bool:
        return value
    if type(value) is str:
        return {"true": True, "false": False}.get(value.lower())
    return None


def _as_number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[3] is None and found[4] is None:
        return int(text)
    number = float(text)
    return None if math.isinf(number) else number
