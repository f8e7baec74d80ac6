"""Results are bounded, and have no character that cannot be seen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.mcp.results import TopicPart, TopicsResult


def bounded(result, bytes_max):
    # The SDK takes a second to load: not for each worker that only collects the tests.
    from rmqcli.mcp import server

    return server.bounded(result, bytes_max)


def topic(name):
    return TopicPart(
        topic=name,
        kind="normal",
        message_type=None,
        perm=None,
        read_queue_nums=None,
        write_queue_nums=None,
        brokers=[],
    )


def size_of(value):
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def test_a_small_result_is_whole():
    value = bounded(TopicsResult(topics=[topic("a")] * 3), 64 << 10)
    assert [row["topic"] for row in value["topics"]] == ["a"] * 3
    assert value["cut"] == []


def test_rows_are_left_out_until_it_fits():
    value = bounded(TopicsResult(topics=[topic("a" * 200)] * 100), 8 << 10)
    assert size_of(value) <= 8 << 10
    assert len(value["topics"]) == 12
    assert value["cut"] == ["12 of 100 in topics: a result has at most 8KiB"]


@pytest.mark.slow
def test_brokers_without_an_answer_are_rows_too():
    errors = {f"broker-{n}": "x" * 500 for n in range(100)}
    value = bounded(TopicsResult(topics=[], unanswered=errors), 8 << 10)
    assert size_of(value) <= 8 << 10
    assert value["cut"] == ["12 of 100 in unanswered: a result has at most 8KiB"]


def test_invisible_characters_are_shown():
    name = "a\u200b\u202eb\U000e0041\x1b[31m\nc\td é 组"
    value = bounded(TopicsResult(topics=[topic(name)]), 8 << 10)
    assert value["topics"][0]["topic"] == (
        "a\\u{200b}\\u{202e}b\\u{e0041}\\u{1b}[31m\nc\td é 组"
    )


@given(st.lists(st.text(max_size=10_000), max_size=60), st.integers(4 << 10, 64 << 10))
def test_no_result_is_larger_than_its_bound(names, bytes_max):
    value = bounded(TopicsResult(topics=[topic(name) for name in names]), bytes_max)
    assert size_of(value) <= bytes_max
    is_cut = len(value["topics"]) < len(names)
    assert bool(value["cut"]) == is_cut
