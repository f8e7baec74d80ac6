"""The conditions of a WHERE narrow the range to read, and never lose a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyspark.sql.datasource as api
import pytest

from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.source.filters import CLOCK_STEP_MS, Pushed

pytestmark = pytest.mark.skipif(
    not hasattr(api, "Filter"), reason="this PySpark pushes no filters down"
)
QUEUE = MessageQueue("orders", "broker-a", 1)


def pushed(*filters):
    found = Pushed()
    taken = [found.take(each) for each in filters]
    return found, taken


def test_conditions_on_queues_choose_them_exactly():
    found, taken = pushed(
        api.IsNotNull(("queue_id",)),
        api.EqualTo(("queue_id",), 1),
        api.In(("broker_name",), ("broker-a", "broker-b")),
    )
    assert taken == [True, True, True]
    assert found.keeps(QUEUE)
    assert not found.keeps(MessageQueue("orders", "broker-a", 2))
    assert not found.keeps(MessageQueue("orders", "broker-c", 1))


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([("GreaterThan", 10)], (11, 100)),
        ([("GreaterThanOrEqual", 10)], (10, 100)),
        ([("LessThan", 10)], (5, 10)),
        ([("LessThanOrEqual", 10)], (5, 11)),
        ([("EqualTo", 10)], (10, 11)),
        ([("GreaterThan", 10), ("LessThan", 20), ("LessThan", 30)], (11, 20)),
        ([("GreaterThan", 500)], (501, 501)),
        ([("LessThan", -3)], (5, 5)),
        ([("LessThan", 0), ("LessThan", 9)], (5, 5)),
    ],
)
def test_conditions_on_offsets_clip_ranges(filters, kept):
    found, taken = pushed(
        *(getattr(api, kind)(("queue_offset",), value) for kind, value in filters)
    )
    assert all(taken)
    clipped = found.clip(OffsetRange(QUEUE, 5, 100))
    assert (clipped.start, clipped.end) == kept


def test_conditions_on_tags_are_all_of_it():
    found, taken = pushed(api.In(("tags",), ("A", "B")), api.EqualTo(("tags",), "B"))
    assert taken == [True, True]
    assert found.tags == {"B"}
    assert pushed()[0].tags is None


def test_store_times_narrow_with_room_for_a_clock_that_was_set_back():
    moment = datetime(2026, 1, 2, 3, tzinfo=UTC)
    moment_ms = 1_767_322_800_000
    found, taken = pushed(
        api.GreaterThanOrEqual(("store_timestamp",), moment),
        api.LessThan(("store_timestamp",), moment + timedelta(seconds=1)),
    )
    assert taken == [False, False]
    assert found.time_start_ms == moment_ms - CLOCK_STEP_MS
    assert found.time_end_ms == moment_ms + 1_001 + CLOCK_STEP_MS


def test_what_is_not_understood_is_left_to_spark():
    negated = api.Not(api.EqualTo(("queue_id",), 1))
    found, taken = pushed(
        negated,
        api.EqualTo(("keys",), "k"),
        api.IsNotNull(("tags",)),
        api.IsNull(("queue_id",)),
        api.StringStartsWith(("tags",), "A"),
        api.In(("tags",), ("A", None)),
        api.EqualTo(("properties", "k"), "v"),
        api.GreaterThan(("queue_id",), 1),
    )
    assert taken == [False] * 8
    assert found == Pushed()
