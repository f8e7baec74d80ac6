"""Each scan of a topic reads what its own conditions allow, and never less."""

from __future__ import annotations

import json

import pytest

from rmqcli.spark.sql.scans import COLUMNS, _places, narrow_scans
from rmqcli.wire.codes import RequestCode
from tests.kit.spark import no_java, patiently
from tests.spark.sql.scans import check_queries, filled_cluster, give_views

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]


@pytest.fixture(scope="module")
def cluster():
    with filled_cluster("orders") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def session(sql_session, cluster):
    give_views(sql_session, cluster, "orders")
    return sql_session


@pytest.fixture
def answer(session):
    """Run a statement whose scans are narrowed; returns its rows, sorted."""

    def run(text):
        frame = narrow_scans(session._spark.sql(text))
        return sorted(tuple(row) for row in patiently(frame.collect))

    return run


def test_two_parts_of_a_union_have_their_own_conditions(answer):
    assert answer(
        "select 'batch' k, count(*) c from orders where tags = 'Batch'"
        " union all select 'all', count(*) from orders"
    ) == [("all", 154), ("batch", 24)]


def test_the_sides_of_a_self_join_have_their_own_conditions(answer, cluster):
    rule = cluster.faults.observe(code=RequestCode.PULL_MESSAGE, topic="orders")
    found = answer(
        "select count(*) from orders a join orders b on a.queue_offset ="
        " b.queue_offset where a.queue_id = 0 and b.queue_id = 1 and b.queue_offset < 9"
    )
    cluster.faults.remove(rule)
    assert found == [(9,)]
    pulled = {
        (int(each["queueId"]), int(each["queueOffset"]))
        for each in (request.command.ext_fields for request in rule.requests)
    }
    assert {queue_id for queue_id, _ in pulled} == {0, 1}
    assert max(offset for _, offset in pulled) < 9


def test_a_cte_that_is_used_twice_is_not_narrowed_by_one_of_its_uses(answer):
    assert answer(
        "with x as (select * from orders where queue_id < 3)"
        " select 1 k, count(*) from x where tags = 'Paid'"
        " union all select 2, count(*) from x where tags = 'Batch'"
        " union all select 3, count(*) from x"
    ) == [(1, 70), (2, 24), (3, 154)]


def test_a_query_after_a_narrowed_one_reads_all(answer):
    assert answer("select count(*) from orders where queue_id = 1") == [(51,)]
    assert answer("select count(*) from orders") == [(154,)]


def test_a_scan_that_no_message_can_meet_reads_nothing(answer, cluster):
    rule = cluster.faults.observe(code=RequestCode.PULL_MESSAGE, topic="orders")
    assert answer("select count(*) from orders where queue_id = 7") == [(0,)]
    cluster.faults.remove(rule)
    assert not rule.requests


def test_a_query_reads_only_the_columns_that_it_uses(session):
    frame = session._spark.sql(
        "select count(*), max(properties['n']) from orders where tags = 'Paid'"
    )
    assert columns_of_scans(narrow_scans(frame)) == [["properties", "tags"]]
    frame = session._spark.sql("select count(*) from orders")
    assert columns_of_scans(narrow_scans(frame)) == [[]]
    frame = session._spark.sql("select * from orders where queue_id = 1")
    assert columns_of_scans(narrow_scans(frame)) == [None]


def columns_of_scans(frame):
    """The columns that each scan of a plan is told to read; None for all."""
    gateway = frame.sparkSession.sparkContext._gateway
    plan = frame._jdf.queryExecution().optimizedPlan()
    found = []
    for place in _places(gateway, plan):
        (options,) = (
            field
            for field in place.scan.getClass().getDeclaredFields()
            if field.getName() == "options"
        )
        options.setAccessible(True)
        text = options.get(place.scan).get(COLUMNS)
        found.append(None if text is None else json.loads(text))
    return found


@pytest.mark.slow
@pytest.mark.nightly
def test_random_queries_give_what_python_gives(session, cluster):
    """For hundreds, run `python -m tests.spark.versions --queries 300`."""
    assert check_queries(session, cluster, seed=1, count=30) == 48


@pytest.mark.slow
def test_conditions_that_spark_reads_in_its_own_way_lose_no_row(session, cluster):
    """Constants of other types, blanks, NULL, and other ways to compare texts."""
    give_views(session, cluster, "orders")
    spark = session._spark
    found = {}
    for condition in (
        "tags = 'Paid '",
        "rtrim(tags) = 'Paid'",
        "tags collate utf8_lcase = 'PAID'",
        "tags in ('Batch', null)",
        "tags not in ('Batch')",
        "tags <=> null",
        "queue_id = 1.0",
        "queue_id = '1'",
        "queue_id in (1, null)",
        "queue_offset > 2.5 and queue_offset < '5'",
        "queue_offset > 9223372036854775807",
        "store_timestamp >= timestamp_micros(1767326400000001)",
        "store_timestamp > date '9999-01-01'",
    ):
        query = f"select queue_id, queue_offset from orders where {condition}"
        plain = sorted(spark.sql(query).collect())
        assert sorted(narrow_scans(spark.sql(query)).collect()) == plain, condition
        found[condition] = len(plain)
    assert list(found.values()) == [0, 70, 70, 24, 70, 60, 51, 51, 51, 6, 0, 88, 0]
