"""What a broker leaves out for a condition, by tag, SQL92 and time, it does not need.

A topic is read by random conditions, and a plain loop over its messages says what is to
be found: with brokers that filter by SQL92 and without, and with a clock that was set
back.
"""

from __future__ import annotations

import datetime
import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli import Admin
from rmqcli.admin.tail.where import parse_where
from rmqcli.api.calls.config import update_broker_config
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.filter.sql92 import compile_sql92
from rmqcli.cli.main import run
from rmqcli.decode import parse_decode
from rmqcli.testing import Seed
from rmqcli.wire.codes import RequestCode
from tests.admin.doctor.planting import open_client
from tests.kit.clock import SetClock
from tests.kit.rows import each_row
from tests.kit.waiting import wait_until

BEGIN_MS = 1_767_323_045_000  # 2026-01-02T03:04:05Z
MINUTE_MS = 60_000
JSON = parse_decode("json")


def at(minutes):
    moment = datetime.datetime.fromtimestamp(
        BEGIN_MS / 1000 + minutes * 60, tz=datetime.UTC
    )
    return f"'{moment.isoformat()}'"


def fill(cluster, clock):
    """Store 120 messages over ten hours, during which the clock goes back by one."""
    cluster.create_topic("orders", queues=2)
    for number in range(120):
        properties = {"a": ("x", "y z", "7", "X")[number % 4], "AND": "x", "ü": "x"}
        if number % 5:
            properties["b"] = ("x", "it's")[number % 2]
        if number % 7 == 0:
            del properties["a"]
        seed = Seed(
            body=json.dumps({"n": number % 10}).encode() if number % 11 else b"no JSON",
            tags=(None, "New", "Paid")[number % 3],
            properties=properties,
        )
        cluster.send("orders", [seed], queue_id=number // 3 % 2)
        clock.now_ms += 5 * MINUTE_MS if number != 60 else -59 * MINUTE_MS


@pytest.fixture(scope="module", params=[True, False], ids=["sql", "no sql"])
def filters(request):
    return request.param


@pytest.fixture(scope="module")
def cluster(filters):
    clock = SetClock(BEGIN_MS)
    conf = {"enable_property_filter": filters}
    with EmbeddedCluster(clock=clock, settings=conf) as cluster:
        fill(cluster, clock)
        yield cluster


@pytest.fixture(scope="module")
def stored(cluster):
    with Admin(namesrv=cluster.namesrv) as admin:
        return list(admin.read("orders"))


TEXTS = st.sampled_from(["'x'", "'y z'", "'7'", "'it''s'", "'X'", "7"])
NAMES = st.sampled_from(["a", "b", "AND", '"ü"', "c"]).map("properties.{}".format)
TIMES = st.integers(-30, 660).map(at)
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
PARTS = st.one_of(
    st.builds("{} = {}".format, NAMES, TEXTS),
    st.builds("{1} = {0}".format, NAMES, TEXTS),
    st.builds("{} IN ({}, {})".format, NAMES, TEXTS, TEXTS),
    st.builds("{} IS NULL".format, NAMES),
    st.builds("tags = {}".format, st.sampled_from(["'New'", "'Paid'"])),
    st.builds("store_timestamp {} {}".format, SIGNS, TIMES),
    st.builds("{1} {0} store_timestamp".format, SIGNS, TIMES),
    st.builds("store_timestamp BETWEEN {} AND {}".format, TIMES, TIMES),
    st.builds("value.n {} {}".format, SIGNS, st.integers(0, 9)),
    st.builds("queue_id = {}".format, st.integers(0, 1)),
)
CONDITIONS = st.recursive(
    PARTS,
    lambda inner: st.one_of(
        st.builds("({}) AND ({})".format, inner, inner),
        st.builds("({}) OR ({})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)


def plain(text):
    """Return a condition with the same meaning by which nothing can be left out."""
    condition = parse_where(f"NOT NOT ({text})", decode=JSON)
    assert (condition.tags, condition.queue_ids, condition.sql) == (None,) * 3
    assert condition.store_times_ms == (float("-inf"), float("inf"))
    return condition


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=CONDITIONS)
def test_what_is_found_is_what_a_plain_loop_finds(cluster, stored, capfd, text):
    condition = plain(text)
    expected = sorted(
        (each.queue_id, each.queue_offset)
        for each in stored
        if condition.matches(each, each.broker_name)
    )
    capfd.readouterr()
    whole = ["orders", "--from", "earliest", "--to", "latest", "-o", "jsonl"]
    words = [*whole, "--decode", "json", "--where", text, "-n", cluster.namesrv]
    assert run(["tail", *words]) == 0
    out, err = capfd.readouterr()
    records = [json.loads(line) for line in out.splitlines()]
    found = sorted((each["queue_id"], each["queue_offset"]) for each in records)
    assert found == expected, err
    with Admin(namesrv=cluster.namesrv) as admin:
        messages = admin.read("orders", to="latest", where=text, decode="json")
        found = sorted((each.queue_id, each.queue_offset) for each in messages)
    assert found == expected


@given(text=CONDITIONS)
def test_what_is_left_out_does_not_fulfil_the_condition(stored, text):
    """By the condition alone, without the reader that leaves out."""
    condition, where = plain(text), parse_where(text, decode=JSON)
    low_ms, high_ms = where.store_times_ms
    sql = None if where.sql is None else compile_sql92(where.sql)
    assert (sql is None) == (where.sql is None)
    for message in stored:
        if condition.matches(message, message.broker_name):
            assert where.matches(message, message.broker_name)
            assert low_ms <= message.store_timestamp_ms <= high_ms
            assert sql is None or sql(message.properties)


def read(cluster, capfd, text, *words):
    """Return how many messages `tail` showed and read, and stderr."""
    whole = ["--from", "earliest", "--to", "latest", "-n", cluster.namesrv]
    assert run(["tail", "orders", *whole, "--where", text, *words]) == 0
    err = capfd.readouterr().err
    (summary,) = [line for line in err.splitlines() if " shown, " in line]
    assert summary.endswith("nothing missing")
    shown, read, *_ = summary.split(", ")
    return int(shown.split()[0]), int(read.split()[0]), err


def test_a_broker_that_filters_by_sql_sends_only_what_matches(cluster, filters, capfd):
    """Every message came, and was left out here."""
    text = "properties.a = 'y z' AND properties.b IN ('x', 'no')"
    shown, whole, _ = read(cluster, capfd, text)
    assert (shown, whole) == (0, 0 if filters else 120)
    shown, whole, _ = read(cluster, capfd, "properties.a = 'y z'")
    assert (shown, whole) == (26, 26 if filters else 120)
    # the broker accepts one expression, and this is the user's
    shown, whole, _ = read(cluster, capfd, "properties.a = 'y z'", "--tag", "New")
    assert (shown, whole) == (9, 40)


def test_messages_of_other_hours_are_not_read(cluster, capfd):
    """Every message was read, also for ten minutes of a topic of days."""
    text = f"store_timestamp BETWEEN {at(490)} AND {at(500)}"
    shown, whole, err = read(cluster, capfd, text)
    assert (shown, whole) == (2, 21)
    assert "99 messages not read: more than an hour outside the times of" in err
    # Three came before the clock was set back by an hour, and two at these times again.
    text = f"store_timestamp BETWEEN {at(290)} AND {at(300)}"
    assert read(cluster, capfd, text)[0] == 5


def test_a_queue_whose_clock_was_set_back_by_more_is_read_whole(capfd):
    clock = SetClock(BEGIN_MS)
    with EmbeddedCluster(clock=clock) as cluster:
        cluster.create_topic("orders", queues=1)
        for minutes in (0, 200, 400, 0, 200, 400):
            clock.now_ms = BEGIN_MS + minutes * MINUTE_MS
            cluster.send("orders", ["x"])
        text = f"store_timestamp < {at(1)}"
        assert read(cluster, capfd, text)[:2] == (2, 6)


def test_a_slave_that_does_not_filter_by_sql_is_no_reason_to_fail(capfd):
    """A master may send readers to it, and it would refuse them."""
    conf = {"enable_property_filter": True}
    with (
        EmbeddedCluster(settings=conf) as cluster,
        open_client(cluster.namesrv) as client,
    ):
        cluster.create_topic("orders", queues=1)
        cluster.send("orders", [Seed(body=b"x", properties={"a": "x"}), "y"])
        slave = cluster.add_slave()
        assert read(cluster, capfd, "properties.a = 'x'")[:2] == (1, 1)
        off = update_broker_config({"enablePropertyFilter": "false"})
        client.invoke(slave.address, off)
        assert read(cluster, capfd, "properties.a = 'x'")[:2] == (1, 2)


def test_what_comes_later_is_judged_here(capfd):
    """A broker that joins while a topic is followed may not filter by SQL92."""
    conf = {"enable_property_filter": True}
    with EmbeddedCluster(settings=conf) as cluster:
        cluster.create_topic("orders", queues=1)
        seeds = [Seed(body=b"1", properties={"a": "x"}), Seed(body=b"other")]
        cluster.send("orders", seeds)
        pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)

        def send_later():
            wait_until(lambda: len(pulls.requests) > 1)
            cluster.send("orders", [seeds[1], seeds[0]])

        sender = threading.Thread(target=send_later)
        sender.start()
        begin = ["--from", "earliest", "--count", "2", "-n", cluster.namesrv]
        assert run(["tail", "orders", *begin, "--where", "properties.a = 'x'"]) == 0
        sender.join()
        # one of the two that were stored, and both of those that came
        assert "2 shown, 3 read, nothing missing" in capfd.readouterr().err


@each_row(
    ("text", "sql"),
    [
        ("properties.a = 'x'", "a = 'x'"),
        ("'x' = properties.a AND value.n > 3", "a = 'x'"),
        ("properties.a IN ('x', 'y z')", "(a = 'x' OR a = 'y z')"),
        (
            "(properties.a = 'x' OR properties.b = 'y') AND properties.c = 'z'",
            "((a = 'x' OR b = 'y') AND c = 'z')",
        ),
        ("properties.a = 'x' OR value.n > 3", None),
        ("NOT properties.a = 'x'", None),
        ("properties.a <> 'x'", None),
        ("(properties.a = 'x') IS NULL", None),
        # brokers compare numbers in other ways, and read other names and texts
        ("properties.a = 7", None),
        ("properties.a IN ('x', 7)", None),
        ("properties.a > 'x'", None),
        ("properties.in = 'x'", None),
        ("properties.\"a-b\" = 'x'", None),
        ("properties.a = 'it''s'", None),
        ("properties.a = 'ü'", None),
        ("properties.a = ''", None),
        ("properties.a IN ('" + "x" * 1_000 + "', 'y')", None),
    ],
)
def test_only_texts_that_properties_equal_become_sql(text, sql):
    assert parse_where(text, decode=JSON).sql == sql


@pytest.mark.parametrize(
    ("text", "span"),
    [
        (f"store_timestamp > {at(0)}", (BEGIN_MS, float("inf"))),
        (f"{at(0)} >= store_timestamp", (float("-inf"), BEGIN_MS)),
        (f"store_timestamp = {at(1)} AND value.n = 1", (BEGIN_MS + MINUTE_MS,) * 2),
        (
            f"store_timestamp BETWEEN {at(1)} AND {at(2)} OR store_timestamp = {at(9)}",
            (BEGIN_MS + MINUTE_MS, BEGIN_MS + 9 * MINUTE_MS),
        ),
        (f"NOT store_timestamp > {at(0)}", (float("-inf"), float("inf"))),
        (f"born_timestamp > {at(0)}", (float("-inf"), float("inf"))),
        (f"store_timestamp > {at(0)} OR value.n = 1", (float("-inf"), float("inf"))),
    ],
)
def test_store_times_bound_what_is_read(text, span):
    assert parse_where(text, decode=JSON).store_times_ms == span
