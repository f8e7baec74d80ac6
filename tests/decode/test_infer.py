"""A schema is inferred from bodies by Spark's rules, and the bodies fit it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.decode.infer import infer_schema
from rmqcli.decode.settings import Names
from rmqcli.errors import UsageError
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.rows import SCHEMA_BYTES_MAX, first_bodies
from tests.decode.decoding import decode, decoder_of
from tests.kit.doses import doses
from tests.kit.rows import each_row
from tests.spark.export.sources import MadeSource

NAMES = Names("--decode", "--schema", "--infer")


def inferred(*texts):
    return infer_schema([text.encode() for text in texts], names=NAMES)


@each_row(
    ("texts", "ddl"),
    [
        (['{"b": 1, "a": "x"}'], "`a` string, `b` bigint"),
        (['{"a": true}', '{"a": null}', "{}"], "`a` boolean"),
        (['{"a": null}'], "`a` string"),
        (['{"a": 1}', '{"a": 1.5}'], "`a` double"),
        (['{"a": 1}', '{"a": 9223372036854775808}'], "`a` decimal(38,0)"),
        (['{"a": -9223372036854775808}'], "`a` bigint"),
        (['{"a": 9223372036854775807}'], "`a` bigint"),
        (['{"a": -9223372036854775809}'], "`a` decimal(38,0)"),
        (['{"a": %s}' % ("9" * 38)], "`a` decimal(38,0)"),
        (['{"a": -%s}' % ("9" * 38)], "`a` decimal(38,0)"),
        (['{"a": 1%s}' % ("0" * 38)], "`a` string"),
        (['{"a": -1%s}' % ("0" * 38)], "`a` string"),
        (['{"a": 9223372036854775808}', '{"a": 1.5}'], "`a` double"),
        (['{"a": 1}', '{"a": "x"}'], "`a` string"),
        (['{"a": 1}', '{"a": [1]}'], "`a` string"),
        (['{"a": {}}'], "`a` string"),
        (['{"a": {}}', '{"a": {"b": 1}}'], "`a` struct<`b`:bigint>"),
        (
            ['{"a": {"b": 1}}', '{"a": {"c": [1, 1.5]}}'],
            "`a` struct<`b`:bigint,`c`:array<double>>",
        ),
        (['{"a": []}'], "`a` array<string>"),
        (['{"a": [{"x": 1}, {"y": 0}]}'], "`a` array<struct<`x`:bigint,`y`:bigint>>"),
        (['{"a`b": 1, "": 2}'], "`a``b` bigint"),
        (["no JSON", "[1]", '{"a": 1}', "\xff"], "`a` bigint"),
    ],
)  # fmt: skip
def test_the_inferred_schema_fits_all_bodies(texts, ddl):
    assert inferred(*texts) == ddl


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "--infer: none of the messages is a JSON object"),
        (["x", "[1]"], "--infer: none of the messages is a JSON object"),
        (["{}"], "--infer: none of the messages is a JSON object with a field"),
        (['{"a": 1, "A": 2}'], "fields 'A' and 'a' clash"),
        (
            [json.dumps({str(n): n for n in range(2_001)})],
            "the schema has more than 2000 fields",
        ),
    ],
)
def test_an_error_says_why_no_schema_could_be_inferred(texts, words):
    with pytest.raises(UsageError) as caught:
        inferred(*texts)
    assert words in caught.value.message
    assert "--schema" in caught.value.hint


def test_values_nested_too_deeply_are_strings():
    schema = inferred('{"a": ' + "[" * 100 + "1" + "]" * 100 + "}")
    assert schema == "`a` " + "array<" * 30 + "string" + ">" * 30


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**38) + 1, 10**38 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=doses(4))
@given(st.lists(st.dictionaries(st.sampled_from("xyz"), JSON, min_size=1), min_size=1))
def test_bodies_fit_the_schema_inferred_from_them(objects):
    bodies = [json.dumps(each).encode() for each in objects]
    decoder = decoder_of(infer_schema(bodies, names=NAMES))
    assert [corrupt for _, corrupt in decode(decoder, *bodies)] == [None] * len(bodies)


@dataclass(frozen=True)
class Asked(MadeSource):
    """Records which ranges are read."""

    asked: list[tuple[int, int, int]] = field(default_factory=list)

    def read(self, wanted, *, on_trouble=None):
        self.asked.append((wanted.queue.queue_id, wanted.start, wanted.end))
        return super().read(wanted)


def sampled(ranges, messages_max, source=None, tags=frozenset()):
    source = source or Asked()
    wanted = [
        OffsetRange(MessageQueue("orders", "broker-a", queue_id), start, end)
        for queue_id, (start, end) in enumerate(ranges)
    ]
    bodies = first_bodies(wanted, messages_max, read=source.read, tags=tags)
    return len(list(bodies)), source.asked


def test_about_as_many_messages_are_read_from_every_queue():
    assert sampled([(10, 1000), (0, 2), (5, 500)], 10) == (
        10,
        [(1, 0, 2), (2, 5, 9), (0, 10, 14)],
    )
    assert sampled([(0, 3), (7, 7)], 10) == (3, [(0, 0, 3)])
    assert sampled([(0, 5)] * 3, 2) == (2, [(0, 0, 1), (1, 0, 1)])


def test_only_messages_with_the_given_tags_are_used():
    assert sampled([(0, 9)], 9, tags=frozenset("A")) == (3, [(0, 0, 9)])


def test_reading_stops_when_bodies_reach_the_byte_limit():
    large = Asked(body_bytes=SCHEMA_BYTES_MAX // 4, step=1)
    assert sampled([(0, 100)], 100, large)[0] == 4
