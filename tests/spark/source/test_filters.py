"""The conditions of a WHERE narrow the range to read, and never lose a row."""

from __future__ import annotations

import pytest

from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.spark.source.filters import CLOCK_STEP_MS, Pushed, conditions_to_json

QUEUE = MessageQueue("orders", "broker-a", 1)


def pushed(*conditions):
    return Pushed.from_json(conditions_to_json(conditions))


def test_conditions_on_queues_choose_them():
    found = pushed(
        ("EqualTo", "queue_id", 1), ("In", "broker_name", ("broker-a", "broker-b"))
    )
    assert found.keeps(QUEUE)
    assert not found.keeps(MessageQueue("orders", "broker-a", 2))
    assert not found.keeps(MessageQueue("orders", "broker-c", 1))


@pytest.mark.parametrize(
    ("conditions", "kept"),
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
def test_conditions_on_offsets_clip_ranges(conditions, kept):
    found = pushed(*((kind, "queue_offset", value) for kind, value in conditions))
    clipped = found.clip(OffsetRange(QUEUE, 5, 100))
    assert (clipped.start, clipped.end) == kept


def test_conditions_on_tags_are_all_met():
    found = pushed(("In", "tags", ("A", "B")), ("EqualTo", "tags", "B"))
    assert found.tags == {"B"}
    assert pushed().tags is None


def test_store_times_narrow_with_room_for_a_clock_that_was_set_back():
    moment_ms = 1_767_322_800_000
    found = pushed(
        ("GreaterThanOrEqual", "store_timestamp", moment_ms),
        ("LessThan", "store_timestamp", moment_ms + 1000),
    )
    assert found.time_start_ms == moment_ms - CLOCK_STEP_MS
    assert found.time_end_ms == moment_ms + 1_001 + CLOCK_STEP_MS


def test_what_cannot_narrow_a_scan_is_left_to_spark():
    assert (
        pushed(
            ("EqualTo", "keys", "k"),
            ("In", "tags", ("A", None)),
            ("EqualNullSafe", "tags", None),
            ("GreaterThan", "queue_id", 1),
            ("GreaterThan", "queue_offset", None),
        )
        == Pushed()
    )
