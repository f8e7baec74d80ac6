"""`rmq sql` in a real Spark: one session runs all statements of this module."""

from __future__ import annotations

import contextlib
import csv
import io
import json

import pytest

from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.cli.options import Common
from rmqcli.cli.spark.sql import Ranges, SqlCommandOptions, run_statement
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    NotFoundError,
    PartialError,
    RmqError,
    TextError,
    UsageError,
)
from rmqcli.position import AtOffset, LastN
from rmqcli.testing import ManualClock, Seed
from rmqcli.wire.codes import RequestCode
from tests.kit.records import checked_records
from tests.kit.spark import no_java, patiently
from tests.kit.terminal import Terminal
from tests.wire.message.bodies import BODIES

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def cluster():
    clock = ManualClock(now_ms=SYSTEM_CLOCK.epoch_ms() - 5 * HOUR_MS)
    with EmbeddedCluster(queues=2, clock=clock) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.create_topic("payments", queues=1)
        cluster.create_topic("odd-name%1", queues=1)
        cluster.send("odd-name%1", ["x"])
        cluster.create_group("g")
        cluster.send("%RETRY%g", ["again"])
        for age in (5, 0):
            clock.now_ms = SYSTEM_CLOCK.epoch_ms() - age * HOUR_MS
            cluster.send(
                "orders",
                [
                    Seed(
                        body=json.dumps({"n": n, "age": age}).encode(),
                        tags="AB"[n % 2],
                        properties={"colour": "größer"},
                    )
                    for n in range(1000 if age else 20)
                ],
            )
        cluster.send("payments", [Seed(body=b"\xff\x1b[2J", keys=["k"])])
        yield cluster


@pytest.fixture
def session(sql_session):
    return sql_session


class Runner:
    """Runs a statement as the command does. Returns stdout; `err` has stderr."""

    def __init__(self, session, cluster, capfd):
        self._session = session
        self._namesrv = (cluster.namesrv,)
        self._capfd = capfd
        self.err = ""

    def __call__(self, text, *, output="jsonl", **options):
        chosen = SqlCommandOptions(statement=text, **options)
        common = Common(namesrv=self._namesrv, output=output)

        def run_once():
            self._capfd.readouterr()
            with (
                Client(ClientConfig(namesrv=self._namesrv)) as client,
                Ranges(client, chosen, warn=print) as ranges,
            ):
                run_statement(
                    common, chosen, text, session=self._session, ranges=ranges
                )
            return self._capfd.readouterr()

        out, self.err = patiently(run_once)
        return out


@pytest.fixture
def sql(session, cluster, capfd):
    return Runner(session, cluster, capfd)


@pytest.fixture
def rows(sql):
    def run_it(text, **options):
        return [json.loads(line) for line in sql(text, **options).splitlines()]

    return run_it


def test_a_query_aggregates_over_a_topic(rows):
    assert rows("select tags, count(*) n from orders group by tags order by tags") == [
        {"tags": "A", "n": 510},
        {"tags": "B", "n": 510},
    ]


def test_a_row_has_the_columns_of_an_export_as_json(rows):
    (row,) = rows(
        "select *, body as again from orders where queue_id = 0 and queue_offset = 3"
    )
    assert row["topic"] == "orders"
    assert json.loads(row["body"])["age"] == 5
    assert (row["body_b64"], row["again_b64"]) == (None, None)
    assert row["again"] == row["body"]
    assert row["properties"]["colour"] == "größer"
    assert row["store_timestamp"].endswith("Z")
    assert len(row["store_timestamp"]) == len("2026-01-02T03:04:05.678Z")


@contextlib.contextmanager
def pulls_of(cluster, topic):
    rule = cluster.faults.observe(code=RequestCode.PULL_MESSAGE, topic=topic)
    try:
        yield rule
    finally:
        cluster.faults.remove(rule)


def pulled(rule):
    """The first offset of each pull for messages.

    Pulls that look up store times request fewer messages.
    """
    fields = [each.command.ext_fields for each in rule.requests]
    return [int(each["queueOffset"]) for each in fields if int(each["maxMsgNums"]) > 4]


@pytest.mark.parametrize(
    "since",
    [
        "now() - interval 1 hour",
        "current_timestamp() - interval '60' minute",
        "timestampadd(hour, -1, now())",
    ],
)
def test_a_time_in_where_bounds_what_is_pulled(rows, cluster, since):
    with pulls_of(cluster, "orders") as rule:
        found = rows(f"select count(*) n from orders where store_timestamp > {since}")
    assert found == [{"n": 20}]
    assert min(pulled(rule)) >= 500


def test_offsets_in_where_bound_what_is_pulled(rows, cluster):
    with pulls_of(cluster, "orders") as rule:
        found = rows(
            "select queue_id, queue_offset from orders where queue_id = 1 and"
            " queue_offset between 7 and 9 order by queue_offset"
        )
    assert found == [{"queue_id": 1, "queue_offset": n} for n in (7, 8, 9)]
    assert {each.command.ext_fields["queueId"] for each in rule.requests} == {"1"}
    assert set(pulled(rule)) <= {7, 8, 9}


def test_from_and_to_bound_a_topic(rows, cluster):
    with pulls_of(cluster, "orders") as rule:
        found = rows("select count(*) n from orders", from_=LastN(5))
    assert found == [{"n": 10}]
    assert min(pulled(rule)) == 505
    assert rows("select count(*) n from orders", to=AtOffset(3)) == [{"n": 6}]


def test_a_row_of_a_topic_is_the_record_that_tail_writes(rows, cluster, capfd):
    """But for the fields that are no columns of an export."""
    cluster.create_topic("bodies", queues=1)
    seeds = [
        Seed(body=body, tags="A" if body else None, properties={"p": 'q"\u202e'})
        for body in BODIES
    ]
    cluster.send("bodies", seeds)
    where = ["bodies", "--from", "earliest", "--to", "latest", "-n", cluster.namesrv]
    capfd.readouterr()
    assert run(["tail", *where, "-o", "jsonl", "-q"]) == 0
    records = checked_records(capfd.readouterr().out.splitlines())
    assert len(records) == len(BODIES)
    found = rows("select * from bodies order by queue_offset")
    not_columns = ("offset_msg_id", "store_bytes", "body_encoding")
    assert found == [
        {name: each[name] for name in each if name not in not_columns}
        for each in records
    ]
    assert rows("select * from bodies order by queue_offset", limit=1000) == found
    for row, record in zip(found, records, strict=True):
        checked_records(
            [json.dumps(row | {each: record[each] for each in not_columns})]
        )


def test_topic_names_with_special_characters_are_read_in_backticks(rows):
    assert rows("select body from `odd-name%1`")[0]["body"] == "x"
    assert rows("select body from `%RETRY%g`")[0]["body"] == "again"


@pytest.mark.parametrize(
    "text",
    [
        "with orders as (select * from payments) select keys from orders",
        (
            "select keys from payments where 1 in (select 1) and exists (select 1 from"
            " orders)"
        ),
        "select (select max(keys) from payments) keys",
        "select p.keys from payments p join lateral (select 1 from orders limit 1)",
        "from payments |> select keys",
        "select keys from (table payments) union select keys from payments",
    ],
)
def test_topics_are_found_wherever_a_statement_names_them(rows, text):
    assert rows(text) == [{"keys": "k"}]


def test_a_cte_hides_a_topic_of_its_name_only_in_its_scope(session):
    def topics(text):
        return session.read(text).topics

    assert topics("with t as (select 1) select * from t") == ()
    assert topics("with orders as (select * from orders) select * from orders") == (
        "orders",
    )
    assert topics("with a as (select * from b), b as (select 1) select * from b") == (
        "b",
    )
    assert topics(
        "with recursive t as (select 1 union all select * from t) table t"
    ) == (())
    assert topics("select * from (with a as (select 1) table a), a") == ("a",)
    assert topics("describe orders") == ("orders",)
    assert topics("describe select * from orders") == ("orders",)
    assert topics("explain extended select * from orders, payments") == (
        "orders",
        "payments",
    )
    assert topics("select 'a;b' -- orders\n;") == ()


@pytest.mark.parametrize(
    "text",
    [
        "insert into orders select 1",
        "with a as (select 1) insert into orders select * from a",
        "create table t as select * from orders",
        "create temporary view v as select 1",
        "drop table orders",
        "set spark.sql.ansi.enabled=false",
        "use default",
        "cache table orders",
        "explain insert into orders select 1",
        "add jar 'x.jar'",
        "show tables",
        "update orders set a = 1",
        "delete from orders",
    ],
)
def test_only_queries_are_run(sql, text):
    with pytest.raises(UsageError, match="only queries can be run") as caught:
        sql(text)
    assert caught.value.hint == (
        "write SELECT, WITH, FROM, VALUES, TABLE, EXPLAIN or DESCRIBE"
    )


def test_a_script_is_refused(sql):
    with pytest.raises(UsageError):
        sql("begin select 1; end")


@pytest.mark.parametrize(
    ("text", "words", "part"),
    [
        ("select * form orders", "syntax error at or near 'orders'", "orders"),
        ("select tag from orders", "`tag` cannot be resolved", "tag"),
        ("select 1; select 2", "", "select"),
        ("select nosuch(1)", "`nosuch`", "nosuch"),
        ("select *\nfrom orders\nwhere boddy = 1", "line 3: ", "boddy"),
    ],
)
def test_an_invalid_statement_is_shown_with_the_position(sql, text, words, part):
    with pytest.raises(TextError) as caught:
        sql(text)
    error = caught.value
    assert words in error.what
    assert error.text[error.start : error.end] == part


def test_the_hint_for_a_missing_backtick_explains_it(sql):
    for name in ("odd-name", "%RETRY%g"):
        with pytest.raises(UsageError) as caught:
            sql(f"select * from {name}")
        assert "backticks" in caught.value.hint


def test_an_unknown_topic_is_not_found(sql):
    with pytest.raises(NotFoundError) as caught:
        sql("select * from order")
    assert caught.value.message == "topic order does not exist"
    with pytest.raises(NotFoundError) as caught:
        sql("select * from ORDERS")
    assert caught.value.message == "topic ORDERS does not exist"
    with pytest.raises(UsageError, match=r"a\.b is not a topic"):
        sql("select * from a.b")


def test_topics_that_differ_only_in_case_are_refused(sql):
    with pytest.raises(UsageError, match="ORDERS and orders cannot be read"):
        sql("select * from orders, ORDERS")


def test_an_error_in_the_data_is_one_line(sql):
    with pytest.raises(RmqError) as caught:
        sql("select 1 / (n - n) from (select count(*) n from orders)")
    assert caught.value.message.startswith("division by zero. ")
    assert "\n" not in caught.value.message
    assert int(caught.value.exit_code) == 1


def test_a_table_says_when_there_are_more_rows(sql):
    table = sql("select queue_offset from orders order by all", output="table")
    assert len(table.splitlines()) == 1001
    assert "warning: there are more than 1,000 rows; -o jsonl writes all" in sql.err
    table = sql("select 1 a limit 1000", output="table")
    assert table == "A\n1\n"
    assert "more than" not in sql.err
    lines = sql("select queue_offset from orders", limit=3).splitlines()
    assert len(lines) == 3
    assert "there are more than 3 rows" in sql.err
    sql("select queue_offset from orders", limit=1)
    assert "there is more than 1 row\n" in sql.err


def test_more_rows_than_a_table_holds_are_streamed(rows):
    found = rows("select queue_id, queue_offset from orders")
    assert len({(row["queue_id"], row["queue_offset"]) for row in found}) == 1020


def test_a_limit_above_what_is_taken_at_once_ends_the_rows(rows, sql):
    """More than ten thousand rows come as they are computed, in batches."""
    lines = sql("select id from range(0, 30000, 1, 3)", limit=10_500).splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(range(10_500))
    assert "there are more than 10,500 rows" in sql.err
    lines = sql("select id from range(0, 30000, 1, 3)", limit=30_000).splitlines()
    assert len(lines) == 30_000
    assert "more than" not in sql.err


def test_a_long_text_in_a_table_is_cut(sql):
    table = sql(
        "select repeat('xy', 1000000) s, map('k', repeat('z', 2000000)) m, 'short' t",
        output="table",
    )
    heading, row = table.splitlines()
    assert heading.split() == ["S", "M", "T"]
    assert row.startswith("xy" * 512 + "... (1,998,976 bytes more)  ")
    assert '"k":"zzz' in row
    assert row.endswith("short")
    assert len(row) < 2200


def test_control_characters_in_a_table_are_escaped(sql):
    table = sql(
        "select keys, body, cast(body as string) s from payments", output="table"
    )
    assert table.splitlines() == [
        "KEYS  BODY         S",
        "k     \\xff\\x1b[2J  \\ufffd\\x1b[2J".replace("\\ufffd", "\ufffd"),
    ]


def test_rows_are_written_as_csv_and_json(sql):
    text = "select keys, body, 1.50 price, null nothing from payments"
    (row,) = csv.DictReader(io.StringIO(sql(text, output="csv")))
    assert row == {
        "keys": "k", "body": "", "body_b64": "/xtbMko=", "price": "1.5", "nothing": "",
    }  # fmt: skip
    (found,) = json.loads(sql(text, output="json"))
    assert found["price"] == 1.5
    assert sql("select 1 a where false", output="json") == "[]\n"
    assert sql("select 1 a where false", output="csv") == "a\r\n"


def test_columns_with_equal_names_are_all_shown(rows):
    assert rows("select 1 a, 2 A, 3 a") == [{"a": 1, "A": 2, "a_2": 3}]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("timestamp_seconds(1767322800000)", "+57974-03-26 00:00:00"),
        ("date'-0005-01-01'", "-0005-01-01"),
    ],
)
def test_a_time_that_python_does_not_have_is_named(sql, value, text):
    """As of milliseconds that were taken for seconds."""
    with pytest.raises(
        UsageError, match="a date or a time of the result cannot"
    ) as caught:
        sql(f"select {value} t", output="table")
    assert "cast(... as string)" in str(caught.value.hint)
    assert text in sql(f"select cast({value} as string) t", output="table")


def test_types_that_json_lacks_are_written_as_text(rows):
    (row,) = rows(
        "select timestamp_ntz'2026-01-02 03:04:05' ntz, interval 3 month m,"
        " array(named_struct('x', binary('a'))) a, map(1, date'2026-01-02') d,"
        " timestamp'2026-01-02 03:04:05' t, double('nan') f, interval '1' day i"
    )
    assert row == {
        "ntz": "2026-01-02 03:04:05",
        "m": "INTERVAL '3' MONTH",
        "a": [{"x": "YQ=="}],
        "d": {"1": "2026-01-02"},
        "t": "2026-01-02T03:04:05.000Z",
        "f": "nan",
        "i": "INTERVAL '1' DAY",
    }


@pytest.mark.parametrize(
    ("output", "text", "start"),
    [
        ("csv", "select queue_id from payments", "queue_id\n"),
        ("table", "explain select queue_id from payments", "== Physical Plan"),
    ],
)
def test_rows_begin_where_the_progress_was(
    session, cluster, monkeypatch, output, text, start
):
    """On a terminal that shows both, the progress is removed before the first row."""
    monkeypatch.setenv("TERM", "xterm")
    common = Common(namesrv=(cluster.namesrv,), output=output)
    options = SqlCommandOptions(statement=text)

    def screen():
        screen = Terminal()
        with (
            contextlib.redirect_stdout(screen),
            contextlib.redirect_stderr(screen),
            Client(ClientConfig(namesrv=common.namesrv)) as client,
            Ranges(client, options, warn=print) as ranges,
        ):
            run_statement(common, options, text, session=session, ranges=ranges)
        return screen.getvalue()

    before, found, _ = patiently(screen).partition(start)
    assert found
    assert before.endswith("\r\x1b[K")


def test_explain_and_describe_are_shown(sql):
    plan = sql("explain select tags from orders where queue_id = 1", output="table")
    assert plan.startswith("== Physical Plan ==\n")
    assert "rocketmq" in plan
    described = sql("describe orders", output="table")
    assert "queue_offset" in described
    assert "binary" in described


def test_messages_that_are_gone_fail_the_query_unless_gaps_are_allowed(
    rows, sql, cluster
):
    cluster.create_topic("trimmed", queues=1)
    cluster.send("trimmed", ["a", "b", "c"])
    cluster.broker().trim("trimmed", 2)
    with pytest.raises(PartialError, match="offsets 0 to 1 are no longer"):
        sql("select * from trimmed", from_=AtOffset(0))
    found = rows("select body from trimmed", from_=AtOffset(0), allow_gaps=True)
    assert [row["body"] for row in found] == ["c"]
    assert "warning: trimmed@broker-a:0: offsets 0 to 1 are no longer" in sql.err


def test_a_query_without_a_topic_runs(rows):
    assert rows("values (1, 'a'), (2, 'b')") == [
        {"col1": 1, "col2": "a"},
        {"col1": 2, "col2": "b"},
    ]
