"""The topics of a statement, as far as they are certain without Spark."""

from __future__ import annotations

import pytest

from rmqcli.errors import TextError, UsageError
from rmqcli.spark.sql.guess import check_statement, guess_topics
from tests.kit.rows import each_row


@each_row(
    ("text", "topics"),
    [
        ("select * from orders", ("orders",)),
        ("SELECT * FROM Orders o JOIN `my-topic` AS p ON true", ("Orders", "my-topic")),
        ("select 1 from a where x in (select y from b) -- from c", ("a", "b")),
        ("from a |> where x |> join b", ("a", "b")),
        ("from a|> limit 1", ("a",)),
        ("explain extended select 1 from `%RETRY%g`;", ("%RETRY%g",)),
        ("(select 1 from a) union (select 2 from b)", ("a", "b")),
        ("with a as (select * from b) select * from a", ("b",)),
        ("with a(x, y) as (select * from b), c as (table a) select 1 from c", ("b",)),
        ("select 'it''s from x', \"from y\" /* from z */ from a", ("a",)),
        (r"select 'it\'s from x' from a", ("a",)),
        ("select extract(year from t), trim(both from x) from a", ("a",)),
        ("select substring(x from 2) from a", ("a",)),
        ("select a is distinct from b from c", ("c",)),
        ("select * from range(3) join lateral (select 1 from a)", ("a",)),
        ("select * from csv.`x`", ()),
        ("select * from my-topic", ()),
        ("select * from values (1)", ()),
        ("select * from `values`", ("values",)),
        ("with recursive a as (select 1) select * from a", ()),
        ("delete from a", ()),
        ("select * from", ()),
        ("select * from 1", ()),
        ("select ) from a", ("a",)),
        ("", ()),
        (")(", ()),
        ("select `a``b` from `a``b`", ("a`b",)),
    ],
)
def test_a_name_is_guessed_where_only_a_table_can_stand(text, topics):
    assert guess_topics(text) == topics


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("select 1; select 2", "select 1; select 2", "select 2"),
        ("select 1;;drop table a -- ;", "select 1;;drop table a -- ;", "drop table a"),
        ("select 1;\n  select 2;\nselect 3", "  select 2;", "select 2;"),
        ("select r'\\'; select '\\''", "select r'\\'; select '\\''", "select '"),
        ("select 1 /* a /* b */ */; x", "select 1 /* a /* b */ */; x", "x"),
    ],
)
def test_a_second_statement_is_refused_with_its_line(text, line, part):
    with pytest.raises(TextError) as caught:
        check_statement(text)
    error = caught.value
    assert "a second statement begins here" in error.what
    assert error.what.startswith("line 2: ") == ("\n" in text)
    assert error.text == line
    assert line[error.start : error.end].startswith(part)


@pytest.mark.parametrize(
    "text",
    [
        "select 1;",
        "select 1 ; ; -- select 2",
        "select 1; /* select 2; /* 3 */ ; */",
        "select ';', \"; select 2\", 'it''s; x', 'it\\'s; x' from `;`",
        "select `;` from `a;b`; -- \\\n select 2",
        "select `insert` from `drop`",
        "`set` x",
        "selec 1",
        "explain insert into a select 1",
    ],
)
def test_what_may_be_one_query_is_left_to_spark(text):
    check_statement(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("insert into a select 1", "only queries can be run, not INSERT"),
        ("/* 1 */ Drop TABLE a", "only queries can be run, not DROP"),
        ("begin select 1; end", "only queries can be run, not BEGIN"),
        ("set a = 1; select 1", "only queries can be run, not SET"),
        ("-- select 1", "the query is empty"),
        (" ;; ", "the query is empty"),
        (" \n", "the query is empty"),
    ],
)
def test_what_is_certainly_no_query_is_refused(text, words):
    with pytest.raises(UsageError) as caught:
        check_statement(text)
    assert caught.value.message == words
