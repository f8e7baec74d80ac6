"""Conditions choose the messages for which they are true, by SQL's logic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.tail.where import parse_where
from rmqcli.decode import parse_decode
from rmqcli.errors import TextError
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.kit.rows import each_row

JSON = parse_decode("json")


def decoded(fields: MessageFields) -> StoredMessage:
    [message] = decode_messages(encode_message(fields))
    assert isinstance(message, StoredMessage)
    return message


def stored(value: object = None, *, body=None, **properties: str):
    raw = json.dumps(value).encode() if body is None else body
    fields = MessageFields(
        topic="orders",
        body=raw,
        queue_offset=7,
        properties=properties,
        store_timestamp_ms=1_767_323_045_678,  # 2026-01-02T03:04:05.678Z
    )
    return decoded(fields)


ORDER = stored(
    {
        "id": 5,
        "price": 7.5,
        "paid": True,
        "by": {"name": "it's me", "a b": "x"},
        "items": [{"sku": "A1"}],
        "none": None,
        "text": "12",
    },
    TAGS="Paid",
    KEYS="k1 k2",
    region="eu-west",
    amount="10",
    done="TRUE",
)


@each_row(
    "text",
    [
        "value.id = 5",
        "value.id = 5.0 AND value.price > 7 AND value.price <= 7.5",
        "NOT value.id = 6",
        "NOT value.id > 6 AND value.paid",
        "value.paid = TRUE AND NOT value.paid = FALSE",
        "value.by.name = 'it''s me'",
        "value.by.\"a b\" = 'x'",
        "value.items[0].sku = 'A1'",
        "value.none IS NULL AND value.gone IS NULL AND value.gone.deep IS NULL",
        "value.id IS NOT NULL",
        "value.items[1] IS NULL AND value.id[0] IS NULL AND value.by[0] IS NULL",
        "value.text > 9 AND value.text < 100",  # a text beside a number is one
        "properties.amount > 9 AND properties.amount < 1E2",
        "properties.amount < '9'",  # two texts are ordered by their characters
        "properties.amount = 10.0 AND 10 = properties.amount",
        "properties.amount BETWEEN 10 AND 11 AND value.id NOT BETWEEN -1 AND 4",
        "properties.amount IN (1, 10) AND properties.region IN ('eu-west')",
        "properties.region NOT IN ('us', 'x')",
        "properties.region STARTSWITH 'eu' AND properties.region NOT CONTAINS 'us'",
        "properties.done AND properties.done = TRUE",
        "tags = 'Paid' AND keys CONTAINS 'k2' AND topic = 'orders'",
        "queue_offset >= 7 AND reconsume_times = 0",
        "queue_id >= 0",
        "store_timestamp > '2026-01-02T03:04:05.677Z'",
        "store_timestamp <= '2026-01-02T04:04:05.678+01:00'",
        "'2026-01-02T03:04:06Z' > store_timestamp",
        "store_timestamp BETWEEN '2026-01-02T00:00:00Z' AND '2026-01-03T00:00:00Z'",
        "body CONTAINS '\"sku\"'",
        "value.gone = 1 OR value.id = 5",
        "value.region = 'x' OR properties.region = 'eu-west'",
        "(value.gone = 1) IS NULL",
        "value.id = 5 -- a comment\n",
    ],
)
def test_a_condition_that_is_true(text):
    assert parse_where(text, decode=JSON).matches(ORDER)


@each_row(
    "text",
    [
        "value.id = 6",
        "value.id <> 5",
        "value.gone = 1",
        "value.gone <> 1",
        "NOT value.gone = 1",
        "value.gone NOT IN (1)",
        "NOT value.gone CONTAINS 'x'",
        "value.by = 'x'",
        "NOT value.by = 'x'",
        "value.by = value.by",
        "value.text = 'twelve' OR properties.region > 5",
        "NOT properties.region > 5",
        "value.paid > 0 OR value.paid = 1 OR NOT value.paid = 1",
        "value.id",
        "value.by",
        "properties.region",
        "value.none IS NOT NULL",
        "NOT (value.gone = 1 AND value.id = 5)",
        "FALSE",
        "NULL",
        "store_timestamp < '2026-01-02T03:04:05.678Z'",
    ],
)
def test_a_condition_that_is_false_or_unknown(text):
    assert not parse_where(text, decode=JSON).matches(ORDER)


@each_row(
    ("text", "start", "end", "what"),
    [
        ("", 0, 1, "expected (, found the end"),
        ("value.id >", 9, 10, "expected (, found the end"),
        ("value.id = 5 x", 13, 14, "expected AND, OR or the end, found 'x'"),
        ("value.id LIKE 'a'", 9, 13, "expected AND, OR or the end, found 'LIKE'"),
        ("value.id = ~", 11, 12, "expected (, found '~'"),
        ("value.id == 5", 10, 11, "expected (, found '='"),
        ("region = 'eu'", 0, 6, "not a field of messages"),
        ("tags.x = 'eu'", 0, 6, "not a field of messages"),
        ("properties = 'eu'", 0, 10, "not a property"),
        ("properties.a.b = 'eu'", 0, 14, "not a property"),
        ("value.a = NULL", 10, 14, "nothing equals NULL"),
        ("value.a > TRUE", 10, 14, "expected a value beside >"),
        ("value.a > 1 > 2", 0, 11, "expected a value beside >"),
        ("5", 0, 1, "expected a condition, found a value"),
        ("NOT 'a'", 4, 7, "expected a condition, found a value"),
        ("value.a = NOT value.b", 10, 13, "expected (, found 'NOT'"),
        ("-value.a = 1", 1, 8, "expected a number after -"),
        ("value.a IN (value.b)", 12, 19, "expected a text or a number"),
        ("value.a IN (NULL)", 12, 16, "expected a text or a number"),
        ("store_timestamp > 5", 18, 19, "expected a time"),
        ("store_timestamp > 'noon'", 18, 24, "not a time"),
        ("born_timestamp > '2026-01-02'", 17, 29, "a time without a time zone"),
        ("value.a = 1E999", 10, 15, "the number is too large"),
        ("value.a = " + "9" * 400, 10, 410, "the number is too large"),
        ("NOT " * 60 + "TRUE", 204, 207, "nested more than 50 levels deep"),
        ("(" * 60 + "TRUE" + ")" * 60, 50, 51, "nested more than 50 levels deep"),
    ],
)
def test_an_error_in_a_condition_has_its_place(text, start, end, what):
    with pytest.raises(TextError) as caught:
        parse_where(text, decode=JSON)
    error = caught.value
    assert (error.what, error.start, error.end) == (what, start, end)


def test_values_need_a_decoder_and_long_texts_are_refused():
    with pytest.raises(TextError, match="the values of bodies are not read"):
        parse_where("value.a = 1")
    with pytest.raises(TextError, match="longer than 16384 characters"):
        parse_where("value.a = 1 OR " * 2_000, decode=JSON)
    assert parse_where("properties.region = 'eu-west'").matches(ORDER)


def test_a_body_without_a_value_is_unknown_and_counted():
    where = parse_where("value.a IS NULL OR queue_offset = 0", decode=JSON)
    assert where.matches(stored(body=b"no JSON"))
    assert not parse_where("NOT value.a = 1", decode=JSON).matches(stored(body=b"{"))
    assert where.undecodable == 1
    assert parse_where("queue_offset = 7", decode=JSON).matches(stored(body=b"{"))


def test_the_error_of_a_decoder_is_a_field_and_not_counted():
    for text, shown in [
        ("decode_error IS NOT NULL", [False, True]),
        ("decode_error IS NULL", [True, False]),
        ("decode_error CONTAINS 'expected a name'", [False, True]),
        ("decode_error CONTAINS 'something else'", [False, False]),
    ]:
        where = parse_where(text, decode=JSON)
        found = [where.matches(each) for each in (ORDER, stored(body=b"{"))]
        assert (found, where.undecodable) == (shown, 0)
    where = parse_where("decode_error IS NOT NULL OR value.a = 1", decode=JSON)
    assert where.matches(stored(body=b"{"))
    assert where.undecodable == 0
    where = parse_where("value.a = 1 OR decode_error IS NOT NULL", decode=JSON)
    assert where.matches(stored(body=b"{"))
    assert where.undecodable == 1
    for text in ("decode_error IS NULL", "decode_error.a = 1"):
        with pytest.raises(TextError, match="the values of bodies are not read"):
            parse_where(text)


def test_the_broker_is_a_field_that_may_be_unknown():
    where = parse_where("broker_name = 'broker-a'")
    assert where.matches(ORDER, "broker-a")
    assert not where.matches(ORDER, "broker-b")
    assert not where.matches(ORDER)
    assert parse_where("broker_name IS NULL").matches(ORDER)
    with pytest.raises(TextError, match="not a field of messages"):
        parse_where("broker_name.x = 'a'")


def test_a_damaged_body_is_shown_unless_something_else_decides():
    fields = MessageFields(topic="T", body=b"no zlib", sys_flag=1, queue_offset=3)
    damaged = decoded(fields)
    for text, is_shown in [
        ("value.a = 1", True),
        ("body CONTAINS 'x'", True),
        ("value.a = 1 AND queue_offset = 3", True),
        ("value.a = 1 AND queue_offset = 4", False),
        ("queue_offset = 4 AND value.a = 1", False),
        ("queue_offset = 3", True),
    ]:
        assert parse_where(text, decode=JSON).matches(damaged) == is_shown


@each_row("body", [b"no JSON", b"no zlib"], ids=["odd", "damaged"])
@each_row("tags", [None, "B"])
@each_row(
    "text",
    [
        "tags = 'A' AND value.a = 1",
        "value.a = 1 AND tags = 'A'",
        "queue_id = 3 AND value.a = 1",
        "value.a = 1 AND queue_id = 3",
        "value.a = 1 AND broker_name = 'broker-b'",
    ],
)
def test_a_body_is_not_needed_where_the_condition_cannot_be_true(text, tags, body):
    """A broker that knows the condition does not even return such a message."""
    is_compressed = body == b"no zlib"
    fields = MessageFields(
        topic="T",
        body=body,
        sys_flag=1 if is_compressed else 0,
        properties={} if tags is None else {"TAGS": tags},
    )
    message = decoded(fields)
    where = parse_where(text, decode=JSON)
    assert not where.matches(message, "broker-a")
    assert where.is_true_of(message, "broker-a") is False
    assert where.undecodable == 0


@each_row(
    ("text", "limits"),
    [
        ("tags = 'A'", ({"A"}, None, None)),
        ("'A' = tags AND queue_id = 3", ({"A"}, {3}, None)),
        ("tags IN ('A', 'B') AND tags IN ('B', 'C')", ({"B"}, None, None)),
        ("tags = 'A' OR tags = 'B'", ({"A", "B"}, None, None)),
        ("tags = 'A' OR queue_id = 3", (None, None, None)),
        ("(tags = 'A' AND queue_id = 1) OR tags = 'B'", ({"A", "B"}, None, None)),
        ("broker_name = 'broker-a' AND flag = 0", (None, None, {"broker-a"})),
        ("NOT tags = 'A'", (None, None, None)),
        ("tags <> 'A'", (None, None, None)),
        ("tags NOT IN ('A')", (None, None, None)),
        ("tags = 5", (None, None, None)),
        ("queue_id = '3'", (None, None, None)),
        ("queue_id = 3.0", (None, None, None)),
        ("queue_id BETWEEN 1 AND 2", (None, None, None)),
        ("tags = keys", (None, None, None)),
        ("tags = 'A' OR TRUE", (None, None, None)),
        ("tags = 'A' AND tags = 'B'", (set(), None, None)),
    ],
)
def test_a_condition_says_which_messages_can_match(text, limits):
    where = parse_where(text)
    assert (where.tags, where.queue_ids, where.broker_names) == limits


LIMITING = st.recursive(
    st.builds("tags = '{}'".format, st.sampled_from("AB"))
    | st.builds("queue_id = {}".format, st.sampled_from([0, 1]))
    | st.builds("broker_name = '{}'".format, st.sampled_from(["a", "b"]))
    | st.just("flag = 0"),
    lambda inner: (
        st.builds("NOT ({})".format, inner)
        | st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
    ),
    max_leaves=6,
)


@given(
    text=LIMITING,
    tag=st.sampled_from(["A", "B", "C"]),
    queue_id=st.sampled_from([0, 1, 2]),
    broker_name=st.sampled_from(["a", "b", "c"]),
)
def test_no_message_that_matches_is_left_out(text, tag, queue_id, broker_name):
    fields = MessageFields(
        topic="orders", body=b"x", queue_id=queue_id, properties={"TAGS": tag}
    )
    where = parse_where(text)
    if where.matches(decoded(fields), broker_name):
        assert where.tags is None or tag in where.tags
        assert where.may_match_in(MessageQueue("orders", broker_name, queue_id))


# --- the same as an evaluation in plain Python

NAMES = ("a", "b")
SCALARS = (None, True, False, 0, 1, 2, -1, 1.5, "", "1", "1.5", "true", "x", "é")
CONSTANTS = tuple(each for each in SCALARS if each is not None)


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)


def atoms():
    names = [f"{kind}.{each}" for kind in ("value", "properties") for each in NAMES]
    name, signs = st.sampled_from(names), st.sampled_from
    constant = st.sampled_from(CONSTANTS)
    ordered = st.sampled_from(
        [each for each in CONSTANTS if not isinstance(each, bool)]
    )
    several = st.lists(constant, min_size=1)
    return (
        st.tuples(signs(["=", "<>"]), name, constant)
        | st.tuples(signs(["<", ">", "<=", ">="]), name, ordered)
        | st.tuples(signs(["IS NULL", "IS NOT NULL"]), name)
        | st.tuples(signs(["IN", "NOT IN"]), name, several)
        | st.tuples(
            signs(["BETWEEN", "NOT BETWEEN"]), name, st.tuples(ordered, ordered)
        )
        | st.tuples(signs(["CONTAINS", "NOT CONTAINS"]), name, st.just("1"))
    )


CONDITIONS = st.recursive(
    atoms(),
    lambda inner: (
        st.tuples(st.just("NOT"), inner)
        | st.tuples(
            st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)
        )
    ),
    max_leaves=6,
)


def text_of(node: Any) -> str:
    sign, rest = node[0], node[1:]
    if sign == "NOT":
        return f"NOT ({text_of(rest[0])})"
    if sign in ("AND", "OR"):
        return "(" + f" {sign} ".join(map(text_of, rest[0])) + ")"
    if len(rest) == 1:
        return f"{rest[0]} {sign}"
    name, operand = rest
    if sign.endswith("BETWEEN"):
        return f"{name} {sign} {literal(operand[0])} AND {literal(operand[1])}"
    if sign.endswith("IN"):
        return f"{name} {sign} ({', '.join(map(literal, operand))})"
    return f"{name} {sign} {literal(operand)}"


def number_of(text: str) -> float | None:
    return {"1": 1, "1.5": 1.5}.get(text)


def pair_of(one: Any, other: Any) -> tuple[Any, Any] | None:
    """Both values as one type, or None if SQL could not compare them."""
    kinds = {"bool": bool, "str": str}
    kind, wanted = (
        next((name for name in kinds if isinstance(each, kinds[name])), "number")
        for each in (one, other)
    )
    if kind == wanted:
        return one, other
    if kind == "str":
        found = number_of(one) if wanted == "number" else {"true": True}.get(one)
        return None if found is None else (found, other)
    if wanted == "str":
        swapped = pair_of(other, one)
        return None if swapped is None else (swapped[1], swapped[0])
    return None


def expected(node: Any, record: dict[str, dict[str, Any]]) -> Any:
    sign, rest = node[0], node[1:]
    if sign == "NOT":
        found = expected(rest[0], record)
        return None if found is None else not found
    if sign in ("AND", "OR"):
        found_all = [expected(each, record) for each in rest[0]]
        decisive = sign == "OR"
        if decisive in found_all:
            return decisive
        return None if None in found_all else not decisive
    if sign.startswith("NOT "):
        return expected(("NOT", (sign.removeprefix("NOT "), *rest)), record)
    kind, name = rest[0].split(".")
    value = record[kind].get(name)
    if sign == "IS NULL":
        return value is None
    if sign == "IS NOT NULL":
        return value is not None
    operand = rest[1]
    if sign == "IN":
        return expected(("OR", [("=", rest[0], each) for each in operand]), record)
    if sign == "BETWEEN":
        low, high = operand
        parts = [(">=", rest[0], low), ("<=", rest[0], high)]
        return expected(("AND", parts), record)
    if sign == "CONTAINS":
        return operand in value if isinstance(value, str) else None
    pair = None if value is None else pair_of(value, operand)
    if pair is None or (isinstance(pair[0], bool) and sign not in ("=", "<>")):
        return None
    one, other = pair
    return {
        "=": one == other,
        "<>": one != other,
        "<": sign == "<" and one < other,
        ">": sign == ">" and one > other,
        "<=": sign == "<=" and one <= other,
        ">=": sign == ">=" and one >= other,
    }[sign]


@given(
    node=CONDITIONS,
    value=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(SCALARS)),
    properties=st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(["1", "1.5", "true", "x", "é"])
    ),
)
def test_rows_are_those_of_the_same_condition_in_python(node, value, properties):
    where = parse_where(text_of(node), decode=JSON)
    wanted = expected(node, {"value": value, "properties": properties}) is True
    assert where.matches(stored(value, **properties)) == wanted


@pytest.mark.parametrize("text", ["value.id == 5", "value.id != 5", "keys != 'a'"])
def test_signs_of_other_languages_are_named(text):
    with pytest.raises(TextError) as caught:
        parse_where(text, decode=JSON)
    assert caught.value.hint == "equal is =, not equal is <>"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('tags = "TagA"', "a text is in single quotes: 'TagA'"),
        ('keys CONTAINS "it\'s"', "a text is in single quotes: 'it''s'"),
        ('tags IN ("a", "b")', "a text is in single quotes: 'a'"),
        ('tags = "TagA', "a text is in single quotes: 'TagA'"),
    ],
)
def test_double_quotes_are_answered_with_single_ones(text, hint):
    with pytest.raises(TextError) as caught:
        parse_where(text)
    assert caught.value.hint == hint
