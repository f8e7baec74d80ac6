"""A plan covers the requested range exactly, and records removed parts of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import ConfigError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.spark.export.plan import (
    ExportPlan,
    ExportRequest,
    PartSpec,
    cut_parts,
    group_tasks,
    plan_from_json,
    plan_to_json,
    rows_per_part,
)
from rmqcli.spark.extent import QueueExtent, QueueRange, plan_queue

QUEUE = MessageQueue("orders", "broker-a", 3)


def extent(asked_start, asked_end, min_offset, max_offset):
    return QueueExtent(
        queue=QUEUE,
        asked_start=asked_start,
        asked_end=asked_end,
        min_offset=min_offset,
        max_offset=max_offset,
    )


def queue_plan(start, end, *, queue_id=0):
    return QueueRange(
        broker_name="broker-a",
        queue_id=queue_id,
        start=start,
        end=end,
        min_offset=0,
        max_offset=end,
    )


@pytest.mark.parametrize(
    ("asked", "stored", "planned", "trimmed"),
    [
        pytest.param((0, 100), (0, 100), (0, 100), None, id="all"),
        pytest.param((10, 20), (0, 100), (10, 20), None, id="inside"),
        pytest.param((0, 100), (30, 100), (30, 100), (0, 30), id="trimmed-start"),
        pytest.param((0, 20), (30, 100), (20, 20), (0, 20), id="trimmed-wholly"),
        pytest.param((0, 900), (0, 100), (0, 100), None, id="end-not-there-yet"),
        pytest.param((500, 900), (0, 100), (100, 100), None, id="after-the-last"),
        pytest.param((0, 0), (0, 0), (0, 0), None, id="empty-queue"),
        pytest.param((5, 5), (0, 100), (5, 5), None, id="from-is-to"),
        pytest.param((50, 60), (60, 60), (60, 60), (50, 60), id="nothing-left"),
    ],
)
def test_plan_queue_clips_and_reports(asked, stored, planned, trimmed):
    plan = plan_queue(extent(*asked, *stored))
    assert (plan.start, plan.end) == planned
    assert plan.trimmed == trimmed


def test_plan_queue_refuses_an_end_before_the_start():
    with pytest.raises(UsageError, match=r"orders@broker-a:3 .* from 9 to 4"):
        plan_queue(extent(9, 4, 0, 100))


def test_parts_are_cut_at_multiples_of_rows_per_file():
    parts = cut_parts([queue_plan(7, 25), queue_plan(20, 20)], rows_per_part=10)
    assert [(p.index, p.start, p.end) for p in parts] == [
        (0, 7, 10),
        (1, 10, 20),
        (2, 20, 25),
    ]


@given(
    ranges=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 5000)), max_size=8),
    rows_per_file=st.integers(1, 3000).map(lambda n: n * 5),
)
def test_parts_cover_each_range_once(ranges, rows_per_file):
    queues = [
        queue_plan(start, start + size, queue_id=index)
        for index, (start, size) in enumerate(ranges)
    ]
    parts = cut_parts(queues, rows_per_part=rows_per_file)
    assert [part.index for part in parts] == list(range(len(parts)))
    for queue in queues:
        at = queue.start
        for part in (p for p in parts if p.queue_id == queue.queue_id):
            assert part.start == at
            assert 0 < len(part) <= rows_per_file
            at = part.end
        assert at == queue.end


@pytest.mark.parametrize(
    ("request_fields", "messages", "message_bytes", "rows"),
    [
        ({}, 10**7, None, 500_000),
        # 500,000 messages have less than 1 GiB.
        ({}, 10**7, 2000, 500_000),
        ({}, 10**7, 4096, 250_000),
        ({}, 10**7, 4 * 1024 * 1024, 256),
        ({"bytes_per_file": 1}, 10**7, 2000, 1),
        ({"min_partitions": 8}, 800_000, None, 100_000),
        ({"min_partitions": 8}, 10**7, None, 500_000),
        ({"min_partitions": 8}, 5, None, 1),
        ({"min_partitions": 8}, 0, None, 1),
        ({"min_partitions": 3, "rows_per_file": 100}, 100, None, 25),
    ],
)
def test_a_part_is_small_enough_for_bytes_and_workers(
    request_fields, messages, message_bytes, rows
):
    request = ExportRequest(
        topic="t", from_position="0", to_position="9", **request_fields
    )
    assert (
        rows_per_part(request, messages=messages, message_bytes=message_bytes) == rows
    )


def test_a_plan_without_the_newer_fields_is_cut_as_it_was():
    """A folder may have such a plan of a run that is resumed later."""
    value = json.loads(plan_to_json(A_PLAN))
    del value["rows_per_part"]
    for name in ("bytes_per_file", "min_partitions"):
        del value["request"][name]
    plan = plan_from_json(json.dumps(value), path="plan.json")
    assert plan.request == A_PLAN.request
    assert [(p.start, p.end) for p in plan.parts()] == [(30, 40), (40, 80), (80, 100)]


@given(
    sizes=st.lists(st.integers(1, 1000), max_size=40),
    tasks=st.integers(1, 12),
)
def test_tasks_hold_each_part_once_and_are_balanced(sizes, tasks):
    parts = [PartSpec(i, "b", i, 0, size) for i, size in enumerate(sizes)]
    groups = group_tasks(parts, tasks=tasks)
    assert len(groups) == min(tasks, len(parts))
    assert sorted(p.index for group in groups for p in group) == list(range(len(parts)))
    if groups:
        loads = [sum(map(len, group)) for group in groups]
        assert max(loads) - min(loads) <= max(sizes)


A_PLAN = ExportPlan(
    run_id="20251009T085320Z-00c0ffee",
    created_at_ms=1_760_000_000_000,
    request=ExportRequest(
        topic="%RETRY%g",
        from_position="earliest",
        to_position="latest",
        queues=("broker-a:1",),
        tag="A || B",
        rows_per_file=40,
    ),
    queues=(plan_queue(extent(0, 100, 30, 100)),),
)


def test_a_plan_is_read_back_from_its_file():
    for plan in (A_PLAN, replace(A_PLAN, rows_per_part=7)):
        assert plan_from_json(plan_to_json(plan), path="plan.json") == plan


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1}'])
def test_a_file_that_is_not_a_plan_is_named(text):
    with pytest.raises(ConfigError, match=r"/d/plan\.json"):
        plan_from_json(text, path="/d/plan.json")


@pytest.mark.parametrize(
    "topic", ["", "../x", "a/b", "a\0b", "a.b", "\u202etopic", "x" * 256, "\x1b[2J"]
)
def test_topic_that_no_broker_accepts_is_refused(topic):
    with pytest.raises(ConfigError, match="not a valid topic name"):
        ExportRequest(topic=topic, from_position="earliest", to_position="latest")


def test_a_file_has_at_least_one_row():
    ends: dict[str, Any] = {"topic": "t", "from_position": "0", "to_position": "9"}
    assert ExportRequest(**ends).rows_per_file == 500_000
    assert ExportRequest(**ends, rows_per_file=1).rows_per_file == 1
    with pytest.raises(ConfigError, match="rows_per_file must be 1 or more, not 0"):
        ExportRequest(**ends, rows_per_file=0)


def test_the_version_of_a_plan_is_one():
    request = ExportRequest(topic="t", from_position="0", to_position="9")
    plan = ExportPlan(run_id="r", created_at_ms=1, request=request, queues=())
    assert '"version": 1' in plan_to_json(plan)
