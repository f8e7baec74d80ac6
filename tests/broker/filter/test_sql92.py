"""SQL92: bounds and errors; which messages match is in the table of behaviour."""

from __future__ import annotations

import pytest

from rmqcli.broker.filter.sql92 import compile_sql92, parse_sql92
from rmqcli.errors import UsageError
from rmqcli.wire.sql92 import LENGTH_MAX


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "NOT " * 4_000 + "a = 1",
        "-" * 10_000 + "a = 1",
        "a" + " = a" * 4_000,
        "a" + " IS NULL" * 2_000,
        "a = 1 OR " * 2_000,
        "/*" * 8_000,
        "'" + "''" * 8_000,
        "a = '" + "x" * LENGTH_MAX + "'",
        "1" * 16_000,
        "1E" + "9" * 16_000,
    ],
)
def test_hostile_texts_are_refused_quickly(expression):
    assert compile_sql92(expression) is None


def test_many_terms_in_a_row_do_not_count_as_depth():
    expression = " OR ".join(f"a = {number}" for number in range(1_000))
    condition = compile_sql92(expression)
    assert condition is not None
    assert condition({"a": "999"})
    assert not condition({"a": "1000"})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("a =", "SQL92: expected ( at position 3, found the end"),
        ("a IN ('b' 'c')", "SQL92: expected ) at position 10, found \"'c'\""),
        ("a > 'b'", "SQL92: only numbers can be compared with >"),
        ("a = NULL", "SQL92: NULL cannot be compared"),
        ("5", "SQL92: expected a condition, found a value"),
        (
            "a BETWEEN 3 AND 1",
            "SQL92: the bounds of BETWEEN 3 AND 1 are not in ascending order",
        ),
        ("a BETWEEN 1 AND 'x'", "SQL92: only numbers can be compared with <="),
        ("a BETWEEN NULL AND 1", "SQL92: only numbers can be compared with >="),
        ("a BETWEEN 1 AND TRUE", "SQL92: only numbers can be compared with <="),
    ],
)
def test_errors_name_the_problem_and_its_place(expression, message):
    with pytest.raises(UsageError) as caught:
        parse_sql92(expression)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("value", "expected"), [("2", False), ("3", True), ("4", False), ("x", False)]
)
def test_both_bounds_of_between_may_be_the_same(value, expected):
    condition = compile_sql92("a BETWEEN 3 AND 3")
    assert condition is not None
    assert condition({"a": value}) is expected


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("a = 3", "\u0663", True),  # Integer.valueOf reads the digits of any script
        ("a > 10", "-1\uff12", False),
        ("a < 10", "-1\uff12", True),
        ("a = 3", "\U0001d7db", False),  # a digit that is two chars
        ("a = 3.0", "\u0663", False),  # Double.valueOf does not
    ],
)
def test_digits_are_those_that_java_reads(expression, value, expected):
    """As 4.6.0 and 5.5.0 answer."""
    condition = compile_sql92(expression)
    assert condition is not None
    assert condition({"a": value}) is expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a > 1 AND b = 'x'", False),
        ("b = 'x' AND a > 1", False),
        ("a > 1 OR b = 'x'", True),
        ("NOT (a > 1 AND b = 'y')", True),
        ("NOT (a > 1 OR b = 'y')", False),
    ],
)
def test_a_condition_on_a_missing_property_is_neither_true_nor_false(
    expression, expected
):
    condition = compile_sql92(expression)
    assert condition is not None
    assert condition({"b": "x"}) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2147483647", True),
        ("2147483648", False),  # not an Integer
        (" 2147483647", False),
        ("+2147483647", True),
        ("", False),
        ("9" * 300, False),
    ],
)
def test_a_text_beside_an_integer_must_be_one(value, expected):
    condition = compile_sql92("a = 2147483647")
    assert condition is not None
    assert condition({"a": value}) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(" 2.50 ", True), ("2.5d", True), ("25e-1", True), ("NaN", False), ("x", False)],
)
def test_a_text_beside_a_double_is_read_as_java_does(value, expected):
    condition = compile_sql92("a = 2.5")
    assert condition is not None
    assert condition({"a": value}) is expected
