"""The topics of a statement, as far as they are certain without Spark."""

from __future__ import annotations

import pytest

from rmqcli.spark.sql.guess import guess_topics


@pytest.mark.parametrize(
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
