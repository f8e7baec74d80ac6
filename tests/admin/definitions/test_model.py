"""A file of definitions is read as written, and what it must not have is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.definitions.model import (
    Definition,
    Definitions,
    parse_definitions,
    sorted_definitions,
)
from rmqcli.errors import ConfigError
from tests.kit.rows import each_row

ORDERS = {"name": "orders", "read_queue_nums": 4, "perm": "rw"}
NAMES = st.from_regex(r"[a-z]{1,6}", fullmatch=True).filter(lambda name: len(name) > 1)


def file_with(*topics, groups=(), **more):
    data = {"format": "rmq-definitions", "format_version": 1, "topics": list(topics)}
    return json.dumps(data | {"groups": list(groups)} | more)


def test_a_file_is_the_definitions_that_it_lists():
    found = parse_definitions(
        file_with(
            {"name": "steps", "attributes": {"message.type": "FIFO"}},
            {**ORDERS, "brokers": ["broker-b", "broker-a"]},
            groups=[{"name": "billing", "retry_max_times": 3}],
            source={"cluster": "C", "brokers": {"broker-a": "5.5.0"}},
        )
    )
    assert found == Definitions(
        definitions=(
            Definition(
                kind="topic",
                name="orders",
                settings={"read_queue_nums": 4, "perm": "rw"},
                brokers=("broker-a", "broker-b"),
            ),
            Definition(
                kind="topic",
                name="steps",
                settings={"attributes": {"message.type": "FIFO"}},
            ),
            Definition(kind="group", name="billing", settings={"retry_max_times": 3}),
        ),
        kinds=("topic", "group"),
        cluster="C",
        versions={"broker-a": "5.5.0"},
    )


@each_row(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\ufeff \n", "the file is empty"),
        ("{", "not JSON: Expecting property name"),
        ("[" * 100_000, "not JSON: too deep"),
        ("[]", "not a file of definitions"),
        ('{"format": "other"}', "not a file of definitions"),
        (file_with(format_version=2), "the file has format version 2"),
        (file_with(format_version="1"), "format_version must be a number from 1"),
        (file_with(format_version=True), "format_version must be a number from 1"),
        (file_with(topic=[]), "unknown key 'topic'"),
        (
            '{"format": "rmq-definitions", "format_version": 1}',
            "the file has no section",
        ),
        (file_with({"name": 1}), "topics[0] must be an object with a name"),
        (file_with({**ORDERS, "read_queues": 4}), "unknown key 'read_queues'"),
        (file_with({**ORDERS, "perm": "x"}), "perm must be rw, r, w or none"),
        (file_with({**ORDERS, "order": 1}), "order must be true or false"),
        (
            file_with({**ORDERS, "read_queue_nums": True}),
            "read_queue_nums must be a number from 1 to 65535",
        ),
        (
            file_with({**ORDERS, "attributes": {"a": "b,-message.type"}}),
            "attributes must have no comma, = or + in a name or value, and no name",
        ),
        (
            file_with({**ORDERS, "attributes": {"-a": "b"}}),
            "and no name that starts with -",
        ),
        (
            file_with({**ORDERS, "attributes": {str(n): "x" for n in range(101)}}),
            "attributes must have at most 100 entries",
        ),
        (
            file_with({**ORDERS, "attributes": {"a": 1}}),
            "attributes must be an object whose names and values are non-empty strings",
        ),
        (file_with({**ORDERS, "brokers": []}), "brokers must be a list of names"),
        (file_with({"name": "%RETRY%g"}), "definitions have no system topics"),
        (file_with({"name": "TBW102"}), "definitions have no system topics"),
        (
            file_with(groups=[{"name": "TOOLS_CONSUMER"}]),
            "definitions have no system groups",
        ),
        (file_with({"name": "a b"}), "topics[0] ('a b'): "),
        (file_with(ORDERS, ORDERS), "the file defines topic 'orders' twice"),
        (
            file_with(ORDERS, {**ORDERS, "brokers": ["b"]}),
            "the file defines topic 'orders' twice",
        ),
        (
            file_with(ORDERS).replace('"perm"', '"name": "orders", "perm"'),
            "the key 'name' appears twice",
        ),
        (file_with(ORDERS).replace("4", "NaN"), "NaN is not JSON"),
    ],
)
def test_what_a_file_must_not_have_is_named(text, message):
    with pytest.raises(ConfigError) as caught:
        parse_definitions(text)
    assert message in caught.value.message


def test_the_settings_of_brokers_may_differ():
    found = parse_definitions(
        file_with({**ORDERS, "brokers": ["a"]}, {**ORDERS, "brokers": ["b"]})
    )
    assert [each.brokers for each in found.definitions] == [("a",), ("b",)]


@pytest.mark.slow
@given(
    st.dictionaries(
        NAMES,
        st.fixed_dictionaries(
            {},
            optional={
                "read_queue_nums": st.integers(1, 65_535),
                "perm": st.sampled_from(["rw", "r", "w", "none", 7]),
                "order": st.booleans(),
                "attributes": st.dictionaries(NAMES, NAMES, max_size=3),
            },
        ),
        max_size=6,
    ),
    st.sampled_from([None, ("a",), ("a", "b")]),
)
def test_what_is_written_is_read_again(topics, brokers):
    written = Definitions(
        definitions=sorted_definitions(
            Definition(kind="topic", name=name, settings=settings, brokers=brokers)
            for name, settings in topics.items()
        ),
        kinds=("topic",),
        cluster="C",
        versions={"a": "5.5.0"},
    )
    assert parse_definitions(written.to_text()) == written
