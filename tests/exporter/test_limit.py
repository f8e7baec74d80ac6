"""Which series are left out when there are too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.exporter.limit import OF_QUEUES, QueueRows, limit_series
from rmqcli.exporter.metrics import GROUP_TOPICS, GROUPS, QUEUES, TOPICS

_GROUP = (0.0,) * len(GROUPS.metrics)  # 10 series
_QUEUE = (0.0,) * len(QUEUES.metrics)  # 6 series


def rows_of(**queues):
    """Groups, with so many queues each."""
    return {
        GROUPS: {(group,): _GROUP for group in queues},
        GROUP_TOPICS: {(group, "t"): (0.0, None, None) for group in queues},
        QUEUES: {
            ("c", "b", "t", group, str(n)): _QUEUE
            for group, count in queues.items()
            for n in range(count)
        },
    }


def test_everything_stays_below_the_limit():
    rows = rows_of(a=1, b=2)
    assert limit_series(rows, 1_000) == (rows, {})


@pytest.mark.parametrize(
    ("limit", "kept_groups", "lost"),
    [
        (675, {"small", "middle", "huge"}, {}),
        (674, {"small", "middle"}, {"huge": 600}),
        (75, {"small", "middle"}, {"huge": 600}),
        (74, {"small"}, {"huge": 600, "middle": 24}),
    ],
)
def test_the_group_with_the_most_queues_loses_all_of_them_and_its_total_stays(
    limit, kept_groups, lost
):
    """The groups and their topics have 39 series, their queues 12, 24 and 600."""
    rows = rows_of(small=2, huge=100, middle=4)
    kept, left_out = limit_series(rows, limit)
    assert left_out == lost
    assert kept[GROUPS] == rows[GROUPS]
    assert kept[GROUP_TOPICS] == rows[GROUP_TOPICS]
    assert {labels[3] for labels in kept[QUEUES]} == kept_groups


def test_totals_stay_even_if_they_are_more_than_the_limit():
    rows = rows_of(a=1, b=2)
    rows[TOPICS] = {("c", "b", "t"): (1.0, None)}
    kept, left_out = limit_series(rows, 0)
    assert kept[GROUPS] == rows[GROUPS]
    assert [kept[table] for table in (GROUP_TOPICS, QUEUES, TOPICS)] == [{}, {}, {}]
    assert left_out == {"a": 9, "b": 15, "": 2}


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 30)),
    st.integers(0, 600),
)
def test_a_group_keeps_all_of_its_queues_or_none_and_the_limit_holds(queues, limit):
    rows = rows_of(**queues)
    kept, left_out = limit_series(rows, limit)
    for group, count in queues.items():
        of_group = sum(labels[3] == group for labels in kept[QUEUES])
        assert of_group == count or (of_group == 0 and left_out[group] >= 6 * count)
    series = sum(len(table.metrics) * len(kept[table]) for table in rows)
    assert series <= max(limit, 10 * len(queues))


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 30)),
    st.integers(0, 600),
)
def test_queues_that_are_left_out_one_by_one_are_those_of_the_limit(queues, limit):
    kept, left_out = limit_series(rows_of(**queues), limit)
    rows = QueueRows(limit)
    for group, count in queues.items():
        found = rows_of(**{group: count})
        rows.add(group, {table: found.get(table, {}) for table in OF_QUEUES})
        assert sum(map(len, rows.take().values())) * len(QUEUES.metrics) <= limit
    assert rows.left_out.keys() <= left_out.keys()
    again, rest = limit_series({**rows_of(**queues), **rows.take()}, limit)
    assert again[QUEUES] == kept[QUEUES]
    assert rest + rows.left_out == left_out
