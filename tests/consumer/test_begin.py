"""Where a group begins, what it subscribes to, and how its threads wait."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from rmqcli import ConsumeFromWhere, ConsumerConfig
from rmqcli.consumer.begin import parse_begin, with_begin
from rmqcli.consumer.latch import Latch
from rmqcli.consumer.subscriptions import sql, subscriptions_of
from rmqcli.errors import ConfigError
from rmqcli.position import Ago, AtGroup, AtNow, AtOffset, AtTime, Earliest, Latest
from tests.kit.waiting import PATIENCE_S, wait_until

#: Settings that a position replaces, and one that it keeps.
CONFIG = ConsumerConfig(consume_timestamp_ms=5, pull_batch_size=7)


@pytest.mark.parametrize(
    ("text", "position", "settings"),
    [
        (
            "earliest",
            Earliest(),
            {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET},
        ),
        (
            "latest",
            Latest(),
            {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET},
        ),
        (
            "now",
            AtNow(),
            {
                "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
                "consume_timestamp_ms": None,
                "consume_ago_ms": 0,
            },
        ),
        (
            "-15m",
            Ago(900_000),
            {
                "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
                "consume_timestamp_ms": None,
                "consume_ago_ms": 900_000,
            },
        ),
        (
            "@1700000000000",
            None,
            {
                "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
                "consume_timestamp_ms": 1_700_000_000_000,
            },
        ),
    ],
)
def test_a_position_becomes_java_s_settings(text, position, settings):
    found = parse_begin(text)
    if position is None:
        assert isinstance(found, AtTime)
    else:
        assert found == position
    assert parse_begin(found) is found
    assert with_begin(CONFIG, found) == replace(CONFIG, **settings)


@pytest.mark.parametrize("position", [AtOffset(7), AtGroup("other")])
def test_a_group_begins_at_no_other_position(position):
    with pytest.raises(ConfigError, match="can begin only at") as refused:
        parse_begin(position)
    assert refused.value.hint == (
        "write earliest, latest, now, @2026-01-02T03:04:05Z or -15m"
    )


def test_each_topic_has_the_tags_of_all_or_its_own():
    found = subscriptions_of("orders", 5)
    assert [(each.sub_string, each.sub_version) for each in found.values()] == [
        ("*", 5)
    ]
    found = subscriptions_of(iter(["orders", "payments"]), 5)
    assert {name: each.sub_string for name, each in found.items()} == {
        "orders": "*",
        "payments": "*",
    }
    by_sql = sql("payments", "a > 1")
    found = subscriptions_of({"orders": "b || c", "payments": by_sql}, 5)
    assert found["orders"].tags_set == {"b", "c"}
    assert found["orders"].sub_version == 5
    assert found["payments"] is by_sql
    assert (by_sql.expression_type, by_sql.sub_string) == ("SQL92", "a > 1")
    assert subscriptions_of(by_sql, 5) == {"payments": by_sql}
    found = subscriptions_of(["orders", by_sql, "orders"], 5)
    assert {name: each.sub_string for name, each in found.items()} == {
        "orders": "*",
        "payments": "a > 1",
    }


def test_a_wait_ends_when_it_is_set_or_its_time_is_over():
    latch = Latch()
    assert latch.wait(1) is False
    found: list[bool] = []
    threads = [
        threading.Thread(target=lambda: found.append(latch.wait(PATIENCE_S * 1_000)))
        for _ in range(3)
    ]
    for each in threads:
        each.start()
    wait_until(lambda: len(latch._waiters) == 3)
    latch.set()
    latch.set()
    for each in threads:
        each.join()
    assert found == [True] * 3
    assert latch.wait(0) is True
    assert not latch._waiters
