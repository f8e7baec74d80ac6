"""Pages: both formats, compressed, as the parsers of Prometheus' library read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.exporter.metrics import EXPORTER, GROUPS, LEFT_OUT, TABLES, label_text
from rmqcli.exporter.render import render
from tests.exporter.pages import inflated, values_of


def group_values(**known):
    names = [metric.name.removeprefix("rocketmq_group_") for metric in GROUPS.metrics]
    return tuple(known.get(name) for name in names)


def test_both_formats_have_the_values_and_only_what_is_known():
    values = group_values(lag_messages=3, age_seconds=0.25)
    pages = render({GROUPS: {("g",): values}})
    assert inflated(pages.text) == (
        "# HELP rocketmq_group_lag_messages Messages that wait for the group; absent if"
        " a part of it is not known.\n"
        "# TYPE rocketmq_group_lag_messages gauge\n"
        'rocketmq_group_lag_messages{group="g"} 3.0\n'
        "# HELP rocketmq_group_age_seconds Age of the oldest message that the group has"
        " not read; 0 without one.\n"
        "# TYPE rocketmq_group_age_seconds gauge\n"
        'rocketmq_group_age_seconds{group="g"} 0.25\n'
    )
    assert inflated(pages.open_metrics) == inflated(pages.text) + "# EOF\n"
    assert pages.series == 2
    assert pages.text.size == len(inflated(pages.text))


def test_a_counter_is_one_in_both_formats():
    pages = render({EXPORTER: {(): (5.0, *[None] * (len(EXPORTER.metrics) - 1))}})
    assert "# TYPE rocketmq_exporter_collections_total counter\n" in inflated(
        pages.text
    )
    assert "# TYPE rocketmq_exporter_collections counter\n" in inflated(
        pages.open_metrics
    )
    assert values_of(pages) == {("rocketmq_exporter_collections_total",): 5}


@pytest.mark.slow
def test_a_metric_of_many_series_has_one_head():
    pages = render({LEFT_OUT: {(f"g{n}",): (n,) for n in range(12_001)}})
    for page in (pages.text, pages.open_metrics):
        assert inflated(page).count("# TYPE") == 1
    assert len(values_of(pages)) == 12_001


@given(st.lists(st.text(max_size=8), unique_by=label_text))
def test_any_name_makes_a_page_that_can_be_read_back(names):
    pages = render({LEFT_OUT: {(label_text(name),): (1.0,) for name in names}})
    assert len(values_of(pages)) == len(names)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("orders", "orders"),
        ("订单", "订单"),
        ("a\x00b", r"a\x00b"),
        ("\ud800", r"\ud800"),
        ("\u202e", r"\u202e"),
        ("x" * 1_000, "x" * 512 + "..."),
    ],
    ids=["plain", "chinese", "nul", "surrogate", "bidi", "long"],
)
def test_what_is_not_printable_in_a_name_is_shown_by_escapes(name, shown):
    assert label_text(name) == shown


def test_each_metric_has_one_name_and_help_that_fits_its_labels():
    names = [metric.name for table in TABLES for metric in table.metrics]
    assert len(names) == len(set(names))
    assert [name for name in names if not name.startswith("rocketmq_")] == []
    # Base units only: nothing in milliseconds, nothing in per cent.
    assert [
        name for name in names if name.endswith(("_ms", "_mills", "_percent"))
    ] == []
