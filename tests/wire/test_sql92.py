"""The grammar of SQL92 expressions: what belongs together, and where an error is.

The parser here shows an expression with all its brackets. `tests/broker/filter` has
what the expressions mean.
"""

from __future__ import annotations

import pytest

from rmqcli.wire.sql92 import GrammarError, Parser, Token, read_tokens
from tests.kit.rows import each_row


class Shown(Parser[str]):
    """Returns each part as `(operator operands)`."""

    def constant(self, value, token):
        return repr(value)

    def number(self, token):
        return f"{token.kind[0]}{token.text}"

    def name(self, token):
        return token.text

    def join(self, nodes, *, decisive):
        return f"({'OR' if decisive else 'AND'} {' '.join(nodes)})"

    def equal(self, left, right):
        return f"(= {left} {right})"

    def invert(self, node):
        return f"(NOT {node})"

    def negate(self, node):
        return f"(- {node})"

    def is_null(self, node):
        return f"(NULL? {node})"

    def order(self, sign, left, right):
        return f"({sign} {left} {right})"

    def between(self, node, low, high, *, is_not):
        return f"({'!' * is_not}BETWEEN {node} {low} {high})"

    def one_of(self, node, items, *, is_not):
        return f"({'!' * is_not}IN {node} {items})"

    def text_test(self, word, node, part, *, is_not):
        return f"({'!' * is_not}{word} {node} {part!r})"


class ShownWithNotLast(Shown):
    """As in SQL, NOT belongs to a whole comparison."""

    not_binds_first = False


def shown(text, *, parser=Shown, is_whole=True, **options):
    tokens = read_tokens(text, **{"has_text_words": True, **options})
    return parser(tokens).parse(is_whole=is_whole)


@each_row(
    ("text", "found"),
    [
        ("a", "a"),
        ("a = 1", "(= a i1)"),
        ("a <> 1", "(NOT (= a i1))"),
        ("a = 1 = b", "(= (= a i1) b)"),
        ("a > 1", "(> a i1)"),
        ("a >= 1 < b", "(< (>= a i1) b)"),
        ("a <= -1", "(<= a (- i1))"),
        ("a = +-+1", "(= a (- i1))"),
        ("a > 1 = b < 2", "(= (> a i1) (< b i2))"),
        ("a OR b AND c or d", "(OR a (AND b c) d)"),
        ("(a OR b) and c AND d", "(AND (OR a b) c d)"),
        ("NOT a = 1", "(= (NOT a) i1)"),
        ("NOT NOT a", "(NOT (NOT a))"),
        ("a IS NULL", "(NULL? a)"),
        ("a is not null IS NULL", "(NULL? (NOT (NULL? a)))"),
        ("a = NULL", "(= a None)"),
        ("true = FALSE", "(= True False)"),
        ("a BETWEEN 1 AND 2 AND b", "(AND (BETWEEN a i1 i2) b)"),
        ("a NOT BETWEEN b AND -2", "(!BETWEEN a b (- i2))"),
        ("a IN ('x')", "(IN a ['x'])"),
        ("a not in ('x', 'it''s', '')", "(!IN a ['x', \"it's\", ''])"),
        ("a CONTAINS 'x'", "(CONTAINS a 'x')"),
        ("a NOT startswith 'x'", "(!STARTSWITH a 'x')"),
        ("a ENDSWITH 'x' = TRUE", "(= (ENDSWITH a 'x') True)"),
        ("a = 0", "(= a i0)"),
        ("a = 10L", "(= a i10L)"),
        ("a = 1.", "(= a f1.)"),
        ("a = .5e-3", "(= a f.5e-3)"),
        ("a = 1E+3", "(= a f1E+3)"),
        ("$a_1=_b", "(= $a_1 _b)"),
        ("a/* b */=--c\n1\t", "(= a i1)"),
        ("a = 'x\ny'", "(= a 'x\\ny')"),
    ],
)
def test_what_belongs_together(text, found):
    assert shown(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("NOT a = 1", "(NOT (= a i1))"),
        ("NOT a AND NOT NOT b", "(AND (NOT a) (NOT (NOT b)))"),
        ("a = 1 OR b IS NOT NULL", "(OR (= a i1) (NOT (NULL? b)))"),
    ],
)
def test_not_may_belong_to_a_whole_comparison(text, found):
    assert shown(text, parser=ShownWithNotLast) == found


def test_words_for_texts_are_names_before_5_0():
    assert shown("contains = 1", has_text_words=False) == "(= contains i1)"


def test_a_name_may_be_a_path_where_paths_are_known():
    path = 'value.items[0]."unit ""price"""'
    assert shown(f"{path} > 1", has_paths=True) == f"(> {path} i1)"
    with pytest.raises(GrammarError) as caught:
        shown("value.items")
    assert caught.value.token == Token("bad", ".", 5)


@pytest.mark.parametrize(
    ("text", "what", "token"),
    [
        ("", "expected (", Token("end", "", 0)),
        ("a =", "expected (", Token("end", "", 3)),
        ("a = 1 b", "expected end", Token("name", "b", 6)),
        ("a ? 1", "expected end", Token("bad", "?", 2)),
        ("(a", "expected )", Token("end", "", 2)),
        ("a IS 1", "expected NULL", Token("integer", "1", 5)),
        ("a BETWEEN 1 OR 2", "expected AND", Token("OR", "OR", 12)),
        ("a IN 'x'", "expected (", Token("string", "'x'", 5)),
        ("a IN (1)", "expected string", Token("integer", "1", 6)),
        ("a IN ('x' 'y')", "expected )", Token("string", "'y'", 10)),
        ("a CONTAINS b", "expected string", Token("name", "b", 11)),
    ],
)
def test_an_error_names_the_token_that_is_wrong(text, what, token):
    with pytest.raises(GrammarError) as caught:
        shown(text)
    assert (caught.value.what, caught.value.token) == (what, token)
    assert caught.value.names_token


@pytest.mark.parametrize("text", ["a NOT b", "a NOT", "a NOT NOT IN ('x')"])
def test_a_not_behind_an_operand_needs_an_operator(text):
    with pytest.raises(GrammarError) as caught:
        shown(text)
    assert caught.value.what == "expected AND or OR before NOT"
    assert caught.value.token == Token("NOT", "NOT", 2)
    assert not caught.value.names_token


def test_what_follows_is_ignored_as_in_java_unless_its_first_token_is_invalid():
    assert shown("a = 1 b ?", is_whole=False) == "(= a i1)"
    with pytest.raises(GrammarError):
        shown("a = 1 ? b", is_whole=False)


def test_an_error_shows_at_most_40_characters_of_a_token():
    for text, found in (("a " + "b" * 41, repr("b" * 40)), ("(", "the end")):
        with pytest.raises(GrammarError) as caught:
            shown(text)
        assert caught.value.found == found


@pytest.mark.parametrize("parser", [Shown, ShownWithNotLast])
@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("NOT ", ""), ("-", ""), ("+", "")]
)
def test_an_expression_is_nested_up_to_50_levels(opening, closing, parser):
    def nested(depth):
        return shown(opening * depth + "a" + closing * depth, parser=parser)

    assert nested(49).count("a") == 1
    with pytest.raises(GrammarError, match="nested more than 50 levels deep"):
        nested(50)
    # Beside each other there may be any number.
    wide = " AND ".join(f"{opening}a{closing}" for _ in range(200))
    assert shown(wide, parser=parser).count("a") == 200


@pytest.mark.parametrize("operator", ["= 1", "<> 1", "IS NULL", "> 1", "IN ('x')"])
def test_there_are_fewer_than_50_comparisons_in_a_row(operator):
    assert shown("a" + f" {operator}" * 49).count("a") == 1
    with pytest.raises(GrammarError, match="more than 50 comparisons in a row"):
        shown("a" + f" {operator}" * 50)
