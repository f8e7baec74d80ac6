"""Random queries over one topic, and what plain Python answers.

They scan the topic several times with other conditions, and use few of its columns.

    python -m tests.spark.sql.scans [--queries 300] [--seed 2]

runs more of them than the tests do, and fails at the first wrong answer.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyspark

from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.spark.sql.scans import narrow_scans
from rmqcli.spark.sql.views import pin_topic
from rmqcli.testing import ManualClock, Seed
from tests.kit.spark import patiently
from tests.spark.source.reading import batch_reader, data_source, table_of

Message = dict[str, Any]
#: A condition in SQL, for the alias {a}, and in Python, where None is SQL's NULL.
Condition = tuple[str, Callable[[Message], bool | None]]

TAGS = ("Batch", "Paid", None)

#: Expressions in SQL, for the alias {a}, and in Python.
EXPRESSIONS: tuple[tuple[str, Callable[[Message], Any]], ...] = (
    ("{a}.topic", lambda m: m["topic"]),
    ("{a}.broker_name", lambda m: m["broker_name"]),
    ("{a}.queue_id", lambda m: m["queue_id"]),
    ("{a}.queue_offset", lambda m: m["queue_offset"]),
    ("{a}.msg_id", lambda m: m["msg_id"]),
    ("{a}.tags", lambda m: m["tags"]),
    ("{a}.keys", lambda m: m["keys"]),
    ("coalesce({a}.keys, {a}.tags)", lambda m: m["keys"] or m["tags"]),
    ("unix_millis({a}.born_timestamp)", lambda m: _millis(m["born_timestamp"])),
    ("unix_millis({a}.store_timestamp)", lambda m: _millis(m["store_timestamp"])),
    ("{a}.born_host", lambda m: m["born_host"]),
    ("{a}.store_host", lambda m: m["store_host"]),
    ("{a}.reconsume_times + {a}.flag", lambda m: m["reconsume_times"] + m["flag"]),
    ("{a}.sys_flag", lambda m: m["sys_flag"]),
    ("{a}.commit_log_offset", lambda m: m["commit_log_offset"]),
    ("cast({a}.body as string)", lambda m: m["body"].decode()),
    ("length({a}.body)", lambda m: len(m["body"])),
    ("{a}.properties['colour']", lambda m: m["properties"].get("colour")),
    (
        "{a}.properties['n'] || {a}.queue_id",
        lambda m: f"{m['properties']['n']}{m['queue_id']}",
    ),
    ("size({a}.properties)", lambda m: len(m["properties"])),
    ("map_contains_key({a}.properties, 'KEYS')", lambda m: "KEYS" in m["properties"]),
    ("named_struct('t', {a}.tags, 'b', {a}.body).t", lambda m: m["tags"]),
    ("1", lambda _: 1),
)


@contextlib.contextmanager
def filled_cluster(topic):
    """A cluster with 154 messages of several hours, 24 of them with the tag Batch."""
    clock = ManualClock(now_ms=1_767_322_800_000)
    drawn = random.Random(24)
    tags = ["Batch"] * 24 + ["Paid"] * 70 + [None] * 60
    drawn.shuffle(tags)
    with EmbeddedCluster(queues=3, clock=clock) as cluster:
        cluster.create_topic(topic, queues=3)
        for start in range(0, 154, 22):
            seeds = [
                Seed(
                    body=b"%d" % n,
                    tags=tags[n],
                    keys=[f"key-{n % 5}"] if n % 3 else [],
                    properties={
                        "n": f"{n % 4}",
                        **({"colour": "größer"} if n % 2 else {}),
                    },
                )
                for n in range(start, start + 22)
            ]
            cluster.send(topic, seeds)
            clock.now_ms += 1_800_000
        yield cluster


def rows_of_topic(cluster, topic):
    """The rows of a topic as Python objects, read without Spark."""
    rows = table_of(batch_reader(data_source(cluster, topic))).to_pylist()
    return [each | {"properties": dict(each["properties"])} for each in rows]


def give_views(session, cluster, *topics):
    """Register topics as views of a session, as `rmq sql` does for each statement."""
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        views = {
            topic: pin_topic(client, topic, start=None, end=None, allow_gaps=False)
            for topic in topics
        }
    session.query(session.read(f"select * from {topics[0]}"), views)


@contextlib.contextmanager
def session_of(cluster):
    """A session of Spark in which the topic orders of a cluster is a table."""
    from rmqcli.spark.sql.session import sql_session

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sql_session() as session:
            give_views(session, cluster, "orders")
            yield session


def check_queries(session, cluster, *, seed, count):
    """Compare what random queries give, with push-down and without, with Python.

    Returns how many scans there were in all.
    """
    give_views(session, cluster, "orders")
    queries = Queries("orders", rows_of_topic(cluster, "orders"), seed)
    spark = session._spark
    scans = 0
    for _ in range(count):
        drawn = queries.draw()
        scans += drawn.scans
        wanted = sorted(drawn.rows, key=repr)
        cached = None
        if drawn.cached is not None:
            cached = spark.sql(drawn.cached).cache()
            cached.createOrReplaceTempView("kept")
        for prepare in (narrow_scans, lambda frame: frame):
            frame = prepare(spark.sql(drawn.text))
            found = sorted(map(tuple, patiently(frame.collect)), key=repr)
            assert found == wanted, (seed, drawn.cached, drawn.text)
        if cached is not None:
            cached.unpersist()
    return scans


def both(*values: bool | None) -> bool | None:
    """SQL's AND."""
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def compared(value: Any, check: Callable[[Any], bool]) -> bool | None:
    """A comparison, which is NULL for NULL."""
    return None if value is None else check(value)


@dataclass(frozen=True)
class Drawn:
    """A query, the rows it has to give, and the number of its scans."""

    text: str
    rows: list[tuple[Any, ...]]
    scans: int
    #: a query whose rows Spark caches as the view `kept`
    cached: str | None = None


class Queries:
    """Draws queries over the rows of a topic."""

    def __init__(self, topic: str, messages: list[Message], seed: int) -> None:
        self._topic = topic
        self._messages = messages
        self._random = random.Random(seed)

    def draw(self) -> Drawn:
        shape = self._random.choice(
            (
                self.union,
                self.join,
                self.cte,
                self.exists,
                self.scalar,
                self.member,
                self.caching,
                self.columns,
                self.columns,
                self.number,
                self.grouped,
                self.ordered,
                self.window,
                self.exploded,
                self.renamed,
                self.join_of_columns,
            )
        )
        return shape()

    # --- shapes; one to four scans each

    def union(self) -> Drawn:
        parts, rows = [], []
        scans = self._random.randint(1, 4)
        for name in range(scans):
            text, chosen = self._where("t")
            parts.append(
                f"select {name} k, count(*) c, sum(queue_offset) s from {self._topic} t"
                f"{text}"
            )
            rows.append((name, len(chosen), _sum(chosen)))
        return Drawn(" union all ".join(parts), rows, scans)

    def join(self) -> Drawn:
        left, a = self._where("a", word=" and ")
        right, b = self._where("b", word=" and ")
        same = self._random.choice(("queue_offset", "queue_id", "tags"))
        pairs = [
            (x, y) for x in a for y in b if x[same] is not None and x[same] == y[same]
        ]
        text = (
            f"select count(*), sum(a.queue_offset + b.queue_id) from {self._topic} a,"
            f" {self._topic} b where a.{same} = b.{same}{left}{right}"
        )
        total = sum(x["queue_offset"] + y["queue_id"] for x, y in pairs)
        return Drawn(text, [(len(pairs), total if pairs else None)], 2)

    def cte(self) -> Drawn:
        inner, chosen = self._where("t")
        parts, rows = [], []
        scans = self._random.randint(2, 4)
        for name in range(scans):
            text, kept = self._where("x", among=chosen)
            parts.append(
                f"select {name} k, count(*) c, sum(queue_offset) s from x{text}"
            )
            rows.append((name, len(kept), _sum(kept)))
        text = f"with x as (select * from {self._topic} t{inner}) "
        return Drawn(text + " union all ".join(parts), rows, scans)

    def exists(self) -> Drawn:
        outer, chosen = self._where("a", word=" and ")
        inner, others = self._where("b", word=" and ")
        word = self._random.choice(("", "not "))
        step = self._random.choice((0, 1))
        there = {each["queue_offset"] for each in others}
        kept = [
            each
            for each in chosen
            if ((each["queue_offset"] + step) in there) == (not word)
        ]
        text = (
            f"select count(*), sum(queue_offset) from {self._topic} a where"
            f" {word}exists (select 1 from {self._topic} b where b.queue_offset ="
            f" a.queue_offset + {step}{inner}){outer}"
        )
        return Drawn(text, [(len(kept), _sum(kept))], 2)

    def scalar(self) -> Drawn:
        outer, chosen = self._where("a")
        columns = ["count(*)"]
        row: list[Any] = [len(chosen)]
        others = self._random.randint(1, 3)
        for _ in range(others):
            inner, kept = self._where("b")
            what = self._random.choice(("count(*)", "max(queue_offset)"))
            columns.append(f"(select {what} from {self._topic} b{inner})")
            offsets = [each["queue_offset"] for each in kept]
            row.append(len(kept) if what == "count(*)" else max(offsets, default=None))
        text = f"select {', '.join(columns)} from {self._topic} a{outer}"
        return Drawn(text, [tuple(row)], 1 + others)

    def member(self) -> Drawn:
        outer, chosen = self._where("a", word=" and ")
        inner, others = self._where("b")
        ids = {each["queue_offset"] for each in others}
        kept = [each for each in chosen if each["queue_offset"] in ids]
        text = (
            f"select queue_id, count(*) from {self._topic} a where queue_offset in"
            f" (select queue_offset from {self._topic} b{inner}){outer}"
            " group by queue_id"
        )
        found: dict[int, int] = {}
        for each in kept:
            found[each["queue_id"]] = found.get(each["queue_id"], 0) + 1
        return Drawn(text, sorted(found.items()), 2)

    def caching(self) -> Drawn:
        inner, chosen = self._where("t")
        parts, rows = [], []
        scans = self._random.randint(2, 4)
        for name in range(scans):
            view, among = self._random.choice(
                (("kept", chosen), (self._topic, self._messages))
            )
            text, kept = self._where("x", among=among)
            parts.append(
                f"select {name} k, count(*) c, sum(queue_offset) s from {view} x{text}"
            )
            rows.append((name, len(kept), _sum(kept)))
        cached = f"select * from {self._topic} t{inner}"
        return Drawn(" union all ".join(parts), rows, scans, cached)

    # --- shapes that use few columns

    def columns(self) -> Drawn:
        where, chosen = self._where("a")
        expressions = self._expressions(4)
        word = self._random.choice(("", "distinct "))
        rows = [tuple(of(m) for _, of in expressions) for m in chosen]
        text = (
            f"select {word}{self._listed(expressions, 'a')} from {self._topic} a{where}"
        )
        return Drawn(text, list(set(rows)) if word else rows, 1)

    def number(self) -> Drawn:
        where, chosen = self._where("a")
        text = f"select count(*) from {self._topic} a{where}"
        return Drawn(text, [(len(chosen),)], 1)

    def grouped(self) -> Drawn:
        where, chosen = self._where("a")
        (key, of), (other, of_other) = self._expressions(2, at_least=2)
        groups: dict[Any, list[Any]] = {}
        for each in chosen:
            groups.setdefault(of(each), []).append(of_other(each))
        rows = [
            (
                group,
                len(found),
                max((each for each in found if each is not None), default=None),
            )
            for group, found in groups.items()
        ]
        text = (
            f"select {key}, count(*), max({other}) from {self._topic} a{where}"
            f" group by {key}"
        ).replace("{a}", "a")
        if key == "1":
            text = text.replace(" group by 1", " group by 1 + 0").replace(
                "select 1,", "select 1 + 0,"
            )
        return Drawn(text, rows, 1)

    def ordered(self) -> Drawn:
        where, chosen = self._where("a")
        expressions = self._expressions(3)
        count = self._random.randint(1, 9)
        chosen = sorted(chosen, key=lambda m: (-m["queue_offset"], m["queue_id"]))
        rows = [tuple(of(m) for _, of in expressions) for m in chosen[:count]]
        text = (
            f"select {self._listed(expressions, 'a')} from {self._topic} a{where}"
            f" order by queue_offset desc, queue_id limit {count}"
        )
        return Drawn(text, rows, 1)

    def window(self) -> Drawn:
        where, chosen = self._where("a")
        expressions = self._expressions(2)
        at: dict[int, int] = {}
        rows = []
        for each in sorted(chosen, key=lambda m: m["queue_offset"]):
            at[each["queue_id"]] = at.get(each["queue_id"], 0) + 1
            found = tuple(of(each) for _, of in expressions)
            rows.append((*found, at[each["queue_id"]]))
        text = (
            f"select {self._listed(expressions, 'a')}, row_number() over (partition by"
            f" queue_id order by queue_offset) from {self._topic} a{where}"
        )
        return Drawn(text, rows, 1)

    def exploded(self) -> Drawn:
        where, chosen = self._where("a")
        ((name, of),) = self._expressions(1)
        rows = [
            (of(each), key, value)
            for each in chosen
            for key, value in each["properties"].items()
        ]
        text = (
            f"select {name}, k, v from {self._topic} a lateral view"
            f" explode(a.properties) e as k, v{where}"
        )
        return Drawn(text.replace("{a}", "a"), rows, 1)

    def renamed(self) -> Drawn:
        """Columns under the names of other columns."""
        where, chosen = self._where("a")
        rows = [
            (each["tags"], each["properties"]["n"])
            for each in chosen
            if each["queue_offset"] > 9
        ]
        text = (
            f"select body, keys['n'] from (select tags as body, queue_offset as tags,"
            f" properties as keys from {self._topic} a{where}) where tags > 9"
        )
        return Drawn(text, rows, 1)

    def join_of_columns(self) -> Drawn:
        left, a = self._where("a", word=" and ")
        right, b = self._where("b", word=" and ")
        ((one, of_one),) = self._expressions(1)
        ((other, of_other),) = self._expressions(1)
        rows = [
            (of_one(x), of_other(y))
            for x in a
            for y in b
            if x["queue_id"] == y["queue_id"]
            and x["queue_offset"] == y["queue_offset"] + 1
        ]
        text = (
            f"select {one.replace('{a}', 'a')}, {other.replace('{a}', 'b')} from"
            f" {self._topic} a join {self._topic} b on a.queue_id = b.queue_id and"
            f" a.queue_offset = b.queue_offset + 1{left}{right}"
        )
        return Drawn(text, rows, 2)

    def _expressions(
        self, most: int, *, at_least: int = 1
    ) -> list[tuple[str, Callable[[Message], Any]]]:
        return self._random.sample(EXPRESSIONS, self._random.randint(at_least, most))

    def _listed(
        self, expressions: list[tuple[str, Callable[[Message], Any]]], alias: str
    ) -> str:
        return ", ".join(text for text, _ in expressions).replace("{a}", alias)

    # --- conditions

    def _where(
        self, alias: str, *, word: str = " where ", among: list[Message] | None = None
    ) -> tuple[str, list[Message]]:
        """Up to three conditions as text, and the rows that meet them all."""
        conditions = [self._condition() for _ in range(self._random.randint(0, 3))]
        rows = self._messages if among is None else among
        kept = [
            each for each in rows if both(*(check(each) for _, check in conditions))
        ]
        if not conditions:
            return "", kept
        text = " and ".join(f"({each})" for each, _ in conditions)
        return word + text.replace("{a}", alias), kept

    def _condition(self) -> Condition:
        drawn = self._random
        queue_id = drawn.randint(0, 3)
        offset = drawn.randint(-2, 55)
        tag = drawn.choice(("Batch", "Paid", "batch", "None"))
        moment = drawn.choice(self._messages)["store_timestamp"]
        time = moment.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        other = drawn.randint(0, 2)
        return drawn.choice(
            (
                (f"{{a}}.queue_id = {queue_id}", lambda m: m["queue_id"] == queue_id),
                (f"{{a}}.queue_id <> {queue_id}", lambda m: m["queue_id"] != queue_id),
                (
                    f"{{a}}.queue_id in ({queue_id}, {other})",
                    lambda m: m["queue_id"] in (queue_id, other),
                ),
                (
                    f"{{a}}.queue_id = {queue_id} or {{a}}.queue_offset < {offset}",
                    lambda m: m["queue_id"] == queue_id or m["queue_offset"] < offset,
                ),
                (
                    f"{{a}}.queue_offset = {offset}",
                    lambda m: m["queue_offset"] == offset,
                ),
                (
                    f"{{a}}.queue_offset < {offset}",
                    lambda m: m["queue_offset"] < offset,
                ),
                (
                    f"{{a}}.queue_offset >= {offset}",
                    lambda m: m["queue_offset"] >= offset,
                ),
                (
                    f"{{a}}.queue_offset between {offset} and {offset + 9}",
                    lambda m: offset <= m["queue_offset"] <= offset + 9,
                ),
                (
                    f"{{a}}.tags = '{tag}'",
                    lambda m: compared(m["tags"], lambda v: v == tag),
                ),
                (
                    f"{{a}}.tags <> '{tag}'",
                    lambda m: compared(m["tags"], lambda v: v != tag),
                ),
                (f"{{a}}.tags <=> '{tag}'", lambda m: m["tags"] == tag),
                (
                    f"not ({{a}}.tags in ('Batch', '{tag}'))",
                    lambda m: compared(m["tags"], lambda v: v not in ("Batch", tag)),
                ),
                (
                    f"{{a}}.tags in ('Batch', '{tag}')",
                    lambda m: compared(m["tags"], lambda v: v in ("Batch", tag)),
                ),
                ("{a}.tags is null", lambda m: m["tags"] is None),
                (
                    "{a}.broker_name = 'broker-a'",
                    lambda m: m["broker_name"] == "broker-a",
                ),
                ("{a}.broker_name = 'other'", lambda m: m["broker_name"] == "other"),
                (
                    f"{{a}}.store_timestamp >= '{time}'",
                    lambda m: m["store_timestamp"] >= moment,
                ),
                (
                    f"{{a}}.store_timestamp < '{time}'",
                    lambda m: m["store_timestamp"] < moment,
                ),
                (
                    "length(cast({a}.body as string)) = 2",
                    lambda m: len(m["body"]) == 2,
                ),
            )
        )


def _sum(messages: list[Message]) -> int | None:
    """SQL's SUM of the offsets, which is NULL for no rows."""
    return sum(each["queue_offset"] for each in messages) if messages else None


def _millis(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1000)


def main():
    """Run the queries, 25 for each seed, and print how many scans they had."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.sql.scans", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=2, help="the first seed")
    options = parser.parse_args()
    with filled_cluster("orders") as cluster, session_of(cluster) as session:
        for start in range(0, options.queries, 25):
            seed = options.seed + start // 25
            count = min(25, options.queries - start)
            scans = check_queries(session, cluster, seed=seed, count=count)
            print(
                f"PySpark {pyspark.__version__}, seed {seed}: {count} queries,"
                f" {scans} scans",
                flush=True,
            )


if __name__ == "__main__":
    main()
