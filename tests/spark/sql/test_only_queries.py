"""`rmq sql` only reads: whatever else a statement does is refused before it runs.

`python -m tests.spark.versions` runs this module with the other versions of PySpark.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.options import Common
from rmqcli.cli.spark.sql import Ranges, SqlCommandOptions, run_statement
from rmqcli.config import ClientConfig
from rmqcli.errors import RmqError, UsageError
from rmqcli.spark.sql.guess import guess_topics
from rmqcli.spark.sql.statement import OUTSIDE
from tests.kit.spark import no_java, patiently
from tests.spark.sql.scans import give_views

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(no_java() is not None, reason=no_java() or ""),
]


@pytest.fixture(scope="module")
def cluster():
    with EmbeddedCluster(queues=2) as cluster:
        cluster.create_topic("orders", queues=2)
        cluster.send("orders", [f'{{"n": {n}}}' for n in range(10)], tags="New")
        yield cluster


@pytest.fixture(scope="module")
def session(sql_session, cluster):
    give_views(sql_session, cluster, "orders")
    return sql_session


@pytest.fixture
def sql(session, cluster, capfd):
    """Run a statement as `rmq sql` does; returns its rows."""

    def run_it(text):
        namesrv = (cluster.namesrv,)
        common = Common(namesrv=namesrv, output="jsonl")

        def run_once():
            capfd.readouterr()
            with (
                Client(ClientConfig(namesrv=namesrv)) as client,
                Ranges(client, SqlCommandOptions(), warn=print) as ranges,
            ):
                run_statement(
                    common, SqlCommandOptions(), text, session=session, ranges=ranges
                )
            return capfd.readouterr().out

        return [json.loads(line) for line in patiently(run_once).splitlines()]

    return run_it


class World:
    """What a statement must not change: files, and the state of the session."""

    def __init__(self, session, folder):
        self._spark = session._spark
        self.folder = folder
        self.kept = folder / "kept"
        self.kept.mkdir()
        (self.kept / "marker").write_text("here", encoding="utf-8")

    def state(self):
        spark, state = self._spark, self._spark._jsparkSession.sessionState()
        return {
            "files": sorted(
                (str(path), path.read_text() if path.is_file() else "")
                for path in [
                    *self.folder.rglob("*"),
                    *Path("spark-warehouse").glob("*"),
                ]
            ),
            "property": spark._jvm.System.getProperty("rmq.marker"),
            "tables": state.catalog().listTables("default").toString(),
            "functions": state.functionRegistry().listFunction().size(),
            "settings": state.conf().getAllConfs().toString(),
            "is_cached": not spark._jsparkSession.sharedState()
            .cacheManager()
            .isEmpty(),
            "jars": spark._jsparkSession.sparkContext().addedJars().size(),
            "namespace": spark.catalog.currentDatabase(),
        }


@pytest.fixture
def world(session, tmp_path):
    return World(session, tmp_path)


REFLECT = "'java.lang.System', 'setProperty', 'rmq.marker', 'x'"
#: Statements, with KEPT for a folder that must stay as it is, NEW for one that must not
#: be created, and a part of the error.
HOSTILE = [
    ("insert overwrite directory 'KEPT' using csv select 1", "INSERT OVERWRITE DIREC"),
    ("insert overwrite local directory 'KEPT' select 1", "INSERT OVERWRITE DIRECTORY"),
    ("from orders insert overwrite directory 'KEPT' using csv select 1", "DIRECTORY"),
    (
        "with a as (select 1 x) insert overwrite directory 'KEPT' using csv table a",
        "not INSERT OVERWRITE DIRECTORY",
    ),
    ("explain insert overwrite directory 'KEPT' using csv select 1", "OVERWRITE DIREC"),
    (
        "from orders insert into a select 1 insert into b select 2",
        "only queries can be run, not INSERT",
    ),
    ("insert into orders select 1", "not INSERT"),
    ("with a as (select 1) insert into b table a", "not INSERT"),
    ("insert into csv.`NEW` select 1", "not INSERT"),
    ("execute immediate 'create temporary view v as select 1'", "EXECUTE IMMEDIATE"),
    ("select transform(tags) using 'touch NEW' as (x string) from orders", "TRANSFORM"),
    ("from orders select transform(tags) using 'touch NEW' as (x)", "TRANSFORM"),
    ("from orders map tags using 'touch NEW' as x", "TRANSFORM"),
    (
        "select * from (select transform(tags) using 'touch NEW' as (x) from orders)",
        "TRANSFORM",
    ),
    (
        "select (select max(x) from (select transform(1) using 'touch NEW' as (x)))",
        "TRANSFORM",
    ),
    (
        "with a as (select transform(1) using 'touch NEW' as (x)) select * from a",
        "TRANSFORM",
    ),
    (f"select reflect({REFLECT})", "the function reflect is not allowed"),
    (f"select java_method({REFLECT})", "the function java_method is not allowed"),
    (f"select try_reflect({REFLECT})", "the function try_reflect is not allowed"),
    (f"explain select reflect({REFLECT})", "the function reflect is not allowed"),
    (f"select * from orders where `Reflect`({REFLECT}) is null", "reflect is not"),
    (f"select system.builtin.reflect({REFLECT})", "reflect is not allowed"),
    (f"select identifier('ref' || 'lect')({REFLECT})", "IDENTIFIER"),
    (f"select identifier('reflect')({REFLECT})", ""),
    (f"values (reflect({REFLECT}))", "reflect is not allowed"),
    (
        f"select rank() over w from orders window w as (order by reflect({REFLECT}))",
        "reflect is not allowed",
    ),
    (f"select filter(array(1), x -> reflect({REFLECT}) = x)", "reflect is not allowed"),
    (f"select * from range(reflect({REFLECT}))", "reflect is not allowed"),
    (f"from orders |> extend reflect({REFLECT}) as x", "reflect is not allowed"),
    (f"select 1 order by reflect({REFLECT})", "reflect is not allowed"),
    (
        f"select * from orders lateral view explode(array(reflect({REFLECT}))) e as x",
        "reflect is",
    ),
    (f"select * from orders, lateral (select reflect({REFLECT}))", "reflect is not"),
    (f"select 1 where exists (select reflect({REFLECT}))", "reflect is not allowed"),
    (f"select * from orders pivot (max(reflect({REFLECT})) for tags in ('A'))", "refl"),
    ("select * from csv.`KEPT`", "csv.KEPT is not a topic"),
    ("select * from text.`KEPT/marker`", "text.KEPT/marker is not a topic"),
    ("describe csv.`KEPT`", "csv.KEPT is not a topic"),
    ("table csv.`KEPT`", "csv.KEPT is not a topic"),
    ("select * from identifier('csv.' || '`KEPT`')", "IDENTIFIER"),
    ("select * from read_files('KEPT')", "read_files is not a table function"),
    ("select * from orders with (namesrv = 'elsewhere:9876')", "orders has options"),
    # To Spark 4.0 this is a table function, to later versions a stream.
    ("select * from stream(orders)", ""),
    ("select * from orders version as of 1", "VERSION AS OF"),
    ("select input_file_name() from orders", "input_file_name is not allowed"),
    ("select from_protobuf(body, 'M', 'KEPT/marker') from orders", "from_protobuf"),
    (
        "select from_xml('<a/>', 'b int', map('rowValidationXSDPath', 'KEPT/marker'))",
        "rowValidationXSDPath, which reads a file",
    ),
    (
        "select schema_of_xml('<a/>', map('rowvalidation' || 'XSDPath', 'x'))",
        "rowValidationXSDPath, which reads a file",
    ),
    ("begin create temporary view v as select 1; end", ""),
    ("create table t using csv location 'NEW' as select 1 a", "CREATE TABLE AS SELECT"),
    ("explain create table t using csv location 'NEW' as select 1 a", "CREATE TABLE"),
    ("create temporary view v as select 1", "CREATE VIEW"),
    ("create temporary view v using csv options (path 'KEPT')", "CREATE TEMP VIEW"),
    ("create temporary function f as 'java.lang.Object'", "CREATE FUNCTION"),
    ("create temporary function f(x int) returns int return x", "CREATE"),
    ("drop table orders", "only queries can be run, not DROP"),
    ("drop view orders", "only queries can be run, not DROP"),
    ("drop temporary function upper", "only queries can be run, not DROP"),
    ("alter view orders as select 1", "ALTER VIEW"),
    ("create database d location 'NEW'", "CREATE NAMESPACE"),
    ("set spark.sql.shuffle.partitions=7", "not SET"),
    ("set time zone 'Asia/Shanghai'", "not SET"),
    ("set catalog x", "not SET CATALOG"),
    ("reset", "not RESET"),
    ("use d", "not SET CATALOG AND NAMESPACE"),
    ("declare variable v = 1", "CREATE VARIABLE"),
    ("add jar 'KEPT/marker'", "ADD JARS"),
    ("add file 'KEPT/marker'", "ADD FILES"),
    ("add archive 'KEPT/marker'", "ADD ARCHIVES"),
    ("cache table orders", "CACHE TABLE"),
    ("cache lazy table v as select 1", "CACHE TABLE AS SELECT"),
    ("uncache table orders", "UNCACHE TABLE"),
    ("clear cache", "CLEAR CACHE"),
    ("refresh 'KEPT'", "REFRESH"),
    ("load data local inpath 'KEPT' overwrite into table t", "LOAD DATA"),
    ("truncate table orders", "TRUNCATE TABLE"),
    ("update orders set a = 1", "UPDATE TABLE"),
    ("delete from orders", "DELETE FROM TABLE"),
    ("merge into orders using orders o on true when matched then delete", "MERGE INTO"),
    ("call system.run()", "not CALL"),
    ("analyze table orders compute statistics", "ANALYZE TABLE"),
    ("msck repair table orders", "REPAIR TABLE"),
    ("show tables", "SHOW TABLES"),
    ("describe database default", "DESCRIBE NAMESPACE"),
    ("select 1; drop view orders", ""),
    ("select 1; select 2", ""),
]


@pytest.mark.parametrize(("text", "words"), HOSTILE, ids=[text for text, _ in HOSTILE])
def test_a_statement_that_does_more_than_read_is_refused_without_an_effect(
    sql, world, text, words
):
    before = world.state()
    assert "orders" in before["tables"]
    text = text.replace("KEPT", str(world.kept)).replace("NEW", f"{world.folder}/new")
    words = words.replace("KEPT", str(world.kept))
    with pytest.raises(RmqError) as caught:
        sql(text)
    assert int(caught.value.exit_code) == 2
    assert words in caught.value.message
    assert caught.value.hint
    assert world.state() == before


#: Statements that only read, of every part of Spark's language.
QUERIES = [
    "select a.tags from orders a join orders b using (queue_id, queue_offset)",
    "select 1 from (select tags from orders) a natural left join orders b",
    "select 1 from orders a full join orders b on a.queue_id = b.queue_id",
    "select 1 from orders a cross join orders b",
    "select 1 from orders a left semi join orders b on a.queue_id = b.queue_id",
    "select 1 from orders a left anti join orders b on a.queue_id = b.queue_id",
    "select /*+ broadcast(b), repartition(2) */ 1 from orders a join orders b",
    "select sum(queue_id) over (partition by tags order by queue_offset) from orders",
    "select lag(queue_id, 1) over w from orders window w as (order by queue_offset)",
    (
        "select sum(queue_id) over (partition by tags order by body rows between 1"
        " preceding and current row) from orders"
    ),
    "with a as (select * from orders), b as (select * from a) select * from b, a",
    (
        "with recursive r as (select 1 n union all select n + 1 from r where n < 3)"
        " select * from r"
    ),
    "select x from orders lateral view explode(array(1, 2)) e as x",
    "select x from orders lateral view outer posexplode(array(1, 2)) e as p, x",
    "select * from orders, lateral explode(array(1, 2)) e(x)",
    "select * from orders o, lateral (select o.queue_id + 1)",
    "select 1 union select 2 union all select 3",
    "select 1 a, 2 b union all select 2, 1 a",
    "select 1 intersect select 1 except select 2",
    "select 1 intersect all (select 1 except all select 2) minus select 3",
    "select * from (select tags, flag from orders) pivot (max(flag) for tags in (1))",
    "select v from orders unpivot (v for n in (queue_id, flag))",
    "select tags, count(*) from orders group by tags having count(*) > 1",
    "select tags, grouping(tags) from orders group by rollup(tags)",
    "select tags, queue_id, count(*) from orders group by cube(tags, queue_id)",
    "select tags from orders group by grouping sets ((tags), ())",
    "select tags, count(*) from orders group by all order by all",
    "select distinct tags from orders order by 1 desc nulls last limit 3 offset 1",
    "select count(distinct tags), sum(flag) filter (where queue_id = 1) from orders",
    "select percentile_cont(0.5) within group (order by queue_id) from orders",
    "select tags from orders where queue_id in (select queue_id from orders)",
    "select 1 from orders o where exists (select 1 from orders where flag = o.flag)",
    "select (select max(flag) from orders), array(x) from values (1) v(x)",
    "select * from range(3)",
    "select * from orders tablesample (50 percent)",
    "select * from orders tablesample (3 rows)",
    "select * from explode(array(1, 2)) e(x)",
    "select * from stack(2, 1, 2)",
    "select * from json_tuple('{\"a\": 1}', 'a')",
    "select * from variant_explode(parse_json('[1]'))",
    "select keyword from sql_keywords() limit 1",
    "values (1, 'a'), (2, 'b')",
    "select * from values (1, 2), (3, 4) v(a, b)",
    "table orders",
    "from orders select tags",
    "from orders select tags where queue_id = 1 order by tags",
    "from orders |> where flag = 1 |> aggregate count(*) n group by tags |> limit 1",
    "from orders |> extend flag + 1 x |> set x = 2 |> drop flag |> as o |> order by x",
    "from orders |> select queue_id |> union all (select 1) |> limit 1",
    "select tags from orders sort by tags",
    "select tags from orders distribute by tags",
    "select tags from orders cluster by tags",
    "select transform(array(1), x -> x + 1), filter(array(1), (x, i) -> i > 0)",
    "select aggregate(array(1, 2), 0, (a, x) -> a + x), named_struct('a', 1).a",
    "select from_json(cast(body as string), 'n int').n from orders",
    "select get_json_object(cast(body as string), '$.n') from orders",
    "select from_xml('<a><b>1/2/2026</b></a>', 'b date', map('dateFormat', 'd/M/y'))",
    "select xpath_string('<a>1</a>', 'a')",
    "select window.start from orders group by window(store_timestamp, '1 hour')",
    "select session_window(store_timestamp, '1 hour'), count(*) from orders group by 1",
    "select case when queue_id = 1 then 'a' else 'b' end, if(true, 1, 2) from orders",
    "select tags from orders where tags like 'N%' and tags rlike '.' or tags ilike 'n'",
    "select `tags` from orders as `o` where `o`.`tags` between 'A' and 'Z'",
    "select o.* except (body) from orders o",
    "select 'a' collate utf8_lcase = 'A', current_date(), now(), current_timestamp()",
    "select inline(array(struct(1, 2)))",
    "select try_divide(1, 0), raise_error('x') is null from orders where false",
    "explain select tags from orders",
    "explain extended select tags from orders",
    "explain formatted with a as (table orders) select * from a",
    "explain cost select tags from orders",
    "describe orders",
    "describe orders tags",
    "describe extended orders",
    "describe select tags from orders",
    "describe function upper",
]


@pytest.mark.parametrize("text", QUERIES, ids=QUERIES)
def test_a_statement_that_only_reads_is_allowed(session, text):
    """It is analysed, which is what the list of allowed parts concerns, and not run."""
    statement = session.read(text)
    result = patiently(lambda: session.query(statement, {}))
    assert result.columns
    assert set(guess_topics(text)) <= set(statement.topics) <= {"orders"}


def test_a_text_with_a_dollar_sign_is_that_text(sql):
    """Spark would replace it by a variable of the environment, and others by nothing.

    A query for bodies with ${order} then finds all bodies.
    """
    assert sql(
        "select '${env:PATH}' a, '${system:user.home}' b, '${order}' c,"
        " '${spark.sql.session.timeZone}' d, count(*) n from orders"
        " where cast(body as string) not like '%${order}%'"
    ) == [
        {
            "a": "${env:PATH}",
            "b": "${system:user.home}",
            "c": "${order}",
            "d": "${spark.sql.session.timeZone}",
            "n": 10,
        }
    ]


def test_an_xpath_asks_no_server_that_a_document_names(sql):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/named.dtd"
        with pytest.raises(RmqError):
            sql(f"select xpath_string('<!DOCTYPE a SYSTEM \"{address}\"><a/>', 'a')")
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture(scope="module")
def functions(session):
    """The names of all functions of the session."""
    state, found = session._spark._jsparkSession.sessionState(), set()
    for registry in (state.functionRegistry(), state.tableFunctionRegistry()):
        names = registry.listFunction()
        found |= {names.apply(index).funcName() for index in range(names.size())}
    return found


def test_functions_that_reach_outside_are_not_in_the_session(functions):
    """They are refused by name, too; this holds for whatever else may name them."""
    assert "upper" in functions
    assert functions.isdisjoint(OUTSIDE)


def test_no_function_of_spark_is_one_that_nobody_has_looked_at(functions):
    """A new version's functions: add a name that only computes to functions.txt, and
    any other to `OUTSIDE`."""
    known = Path(__file__).with_name("functions.txt").read_text(encoding="utf-8")
    assert functions - set(known.split()) == set()


def test_a_refusal_says_what_is_allowed(sql):
    with pytest.raises(UsageError) as caught:
        sql("with a as (select 1) insert into b table a")
    assert caught.value.message == "only queries can be run, not INSERT"
    assert caught.value.hint == (
        "write SELECT, WITH, FROM, VALUES, TABLE, EXPLAIN or DESCRIBE"
    )
    with pytest.raises(UsageError) as caught:
        sql("select reflect('java.util.UUID', 'randomUUID')")
    assert caught.value.hint == (
        "use functions that only compute from columns, such as upper, from_json or"
        " count"
    )
