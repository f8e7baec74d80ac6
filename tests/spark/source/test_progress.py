"""Offsets of a stream: their JSON in a checkpoint, and shares of a limited batch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.witness import Witness
from rmqcli.errors import ConfigError
from rmqcli.model import MessageQueue
from rmqcli.spark.source.progress import (
    LAST_MESSAGES,
    behind_latest,
    limited,
    messages_from_json,
    offsets_from_json,
    offsets_to_json,
)
from rmqcli.spark.source.subscription import Subscription


def queue(queue_id, *, topic="orders", broker="broker-a"):
    return MessageQueue(topic, broker, queue_id)


def test_offsets_are_kept_by_topic_broker_and_queue():
    offsets = {queue(10): 7, queue(2): 5, queue(0, broker="broker-b"): 1}
    kept = offsets_to_json(offsets)
    assert json.dumps(kept) == (
        '{"orders": {"broker-a": {"2": 5, "10": 7}, "broker-b": {"0": 1}}}'
    )
    assert offsets_from_json(kept, Subscription(topics=("orders",))) == offsets


def test_the_messages_before_the_offsets_are_kept_beside_them():
    offsets = {queue(0): 7, queue(1): 5, queue(2): 0}
    messages = {queue(0): Witness(6, "A1", 70), queue(1): Witness(4, None, 80)}
    kept = offsets_to_json(offsets, messages)
    assert json.dumps(kept) == (
        '{"orders": {"broker-a": {"0": 7, "1": 5, "2": 0}}, "last messages":'
        ' {"orders": {"broker-a": {"0": ["A1", 70], "1": [null, 80]}}}}'
    )
    assert offsets_from_json(kept, Subscription(topics=("orders",))) == offsets
    assert messages_from_json(kept) == messages
    assert messages_from_json(offsets_to_json(offsets)) == {}


@pytest.mark.parametrize("value", [5, ["A1"], ["A1", "x"], {"a": 1}, None])
def test_a_checkpoint_with_unreadable_messages_is_refused(value):
    kept = {
        **offsets_to_json({queue(0): 7}),
        LAST_MESSAGES: {"orders": {"broker-a": {"0": value}}},
    }
    with pytest.raises(ConfigError, match="are not messages that RocketMQ stores"):
        messages_from_json(kept)


def test_a_checkpoint_of_another_topic_is_refused():
    with pytest.raises(
        ConfigError, match=r"belongs to topic orders, but .* to payments"
    ):
        offsets_from_json(
            offsets_to_json({queue(0): 1}), Subscription(topics=("payments",))
        )


@pytest.mark.parametrize("value", [{"index": 3}, {"a": {"b": {"c": 1}}}, [1], None, 5])
def test_a_checkpoint_of_another_source_is_refused(value):
    with pytest.raises(ConfigError, match="are not RocketMQ offsets"):
        offsets_from_json(value, Subscription(topics=("orders",)))


def test_a_limited_batch_is_shared_by_how_far_queues_are_behind():
    start = {queue(0): 100, queue(1): 0}
    end = {queue(0): 1000, queue(1): 90, queue(2): 10}
    assert limited(start, end, rows_max=100) == {
        queue(0): 190,
        queue(1): 9,
        queue(2): 1,
    }
    assert limited(start, end, rows_max=5000) == end


@given(
    behind=st.lists(st.integers(0, 1000), min_size=1, max_size=12),
    rows_max=st.integers(1, 3000),
)
def test_a_limited_batch_takes_as_many_rows_as_it_may(behind, rows_max):
    start = {queue(n): 7 * n for n in range(len(behind))}
    end = {queue(n): 7 * n + left for n, left in enumerate(behind)}
    to = limited(start, end, rows_max=rows_max)
    assert sum(to[q] - start[q] for q in start) == min(rows_max, sum(behind))
    assert all(start[q] <= to[q] <= end[q] for q in start)


def test_a_queue_that_begins_again_shares_the_limit_from_0():
    start, end = {queue(0): 90, queue(1): 10}, {queue(0): 30, queue(1): 20}
    assert limited(start, end, rows_max=20) == {queue(0): 15, queue(1): 15}


def test_the_progress_says_how_far_each_topic_is_behind():
    progress = {
        "sources": [
            {
                "endOffset": '{"orders": {"broker-a": {"0": 5, "1": 8}}}',
                "latestOffset": '{"orders": {"broker-a": {"0": 15, "1": 8, "2": 2}},'
                ' "paid": {"broker-a": {"0": 1}}, "begun again": {"orders@b:0": 9}}',
            },
            {"endOffset": '{"kafka": {"0": 5}}', "latestOffset": '{"kafka": {"0": 7}}'},
            {"endOffset": None, "latestOffset": None},
        ]
    }
    assert behind_latest(progress) == {
        "orders": {
            "avgOffsetsBehindLatest": 4.0,
            "maxOffsetsBehindLatest": 10,
            "minOffsetsBehindLatest": 0,
        },
        "paid": {
            "avgOffsetsBehindLatest": 1.0,
            "maxOffsetsBehindLatest": 1,
            "minOffsetsBehindLatest": 1,
        },
    }
    assert behind_latest({}) == {}


def test_a_topic_that_several_sources_read_is_as_far_behind_as_all_of_them():
    behind, up_to_date = (
        {
            "endOffset": f'{{"orders": {{"broker-a": {{"0": {offset}}}}}}}',
            "latestOffset": '{"orders": {"broker-a": {"0": 15}}}',
        }
        for offset in (5, 15)
    )
    assert behind_latest({"sources": [behind, up_to_date]}) == {
        "orders": {
            "avgOffsetsBehindLatest": 5.0,
            "maxOffsetsBehindLatest": 10,
            "minOffsetsBehindLatest": 0,
        }
    }
