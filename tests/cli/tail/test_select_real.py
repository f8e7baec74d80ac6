"""`rmq tail --sql` and positions of a group, on real brokers."""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.cli.main import run
from tests.cli.reset_offset.test_reset_offset import commit, committed, new_group
from tests.kit.java_program import java_producer

COUNT = 10


def filled_topic(cluster):
    """Create a topic with COUNT messages in each of two queues; return its name.

    The messages go to the queues in turn, and their property `n` counts from 0.
    """
    topic = cluster.create_topic(queues=2)
    specs = [
        {
            "topic": topic,
            "bodyB64": "eA==",
            "brokerName": "broker-a",
            "queueId": n % 2,
            "properties": {"n": str(n), "colour": "red" if n % 4 else "blue"},
        }
        for n in range(2 * COUNT)
    ]
    java_producer(cluster, specs)
    return topic


def tail(cluster, capfdbinary, *arguments):
    """Run `rmq tail`; return exit code, records and stderr."""
    capfdbinary.readouterr()
    code = run(["tail", "-n", cluster.namesrv, "-o", "jsonl", *arguments])
    out, err = capfdbinary.readouterr()
    return code, [json.loads(line) for line in out.splitlines()], err.decode()


def places(records):
    return sorted((record["queue_id"], record["queue_offset"]) for record in records)


@pytest.mark.parametrize(
    ("sql", "numbers"),
    [
        ("n >= 17", [17, 18, 19]),
        ("n BETWEEN 3 AND 5 AND colour = 'red'", [3, 5]),
        ("colour IS NULL", []),
    ],
)
def test_the_broker_selects_by_sql(real_cluster, capfdbinary, sql, numbers):
    topic = filled_topic(real_cluster)
    whole = [topic, "--from", "earliest", "--to", "latest"]
    code, records, err = tail(real_cluster, capfdbinary, *whole, "--sql", sql)
    assert code == 0, err
    assert sorted(int(r["properties"]["n"]) for r in records) == numbers
    assert "nothing missing" in err


def test_sql_that_nobody_understands_is_an_error(real_cluster, capfdbinary):
    topic = filled_topic(real_cluster)
    flags = ["--from", "earliest", "--to", "latest", "--sql", "n >>> 5"]
    code, records, err = tail(real_cluster, capfdbinary, topic, *flags)
    assert (code, records) == (2, [])
    assert "the expression is not valid SQL92: Encountered" in err
    assert "answered" not in err


def test_sql_where_it_is_off_says_how_to_switch_it_on(fresh_cluster, capfdbinary):
    cluster = fresh_cluster(conf={"enablePropertyFilter": "false"})
    topic = filled_topic(cluster)
    for flags in (["--from", "earliest", "--to", "latest"], ["--from", "earliest"]):
        arguments = [topic, *flags, "--sql", "n > 5"]
        code, records, err = tail(cluster, capfdbinary, *arguments)
        assert (code, records) == (1, [])
        assert "set enablePropertyFilter=true on the broker" in err
        assert "Traceback" not in err


def test_brokers_leave_out_what_a_condition_cannot_be_true_of(
    real_cluster, fresh_cluster, capfdbinary
):
    """What is shown is the same where the broker does not filter by SQL92."""
    condition = "properties.colour = 'blue' AND properties.n > 7"
    off = fresh_cluster(conf={"enablePropertyFilter": "false"})
    for cluster, read in ((real_cluster, 5), (off, 20)):
        whole = [filled_topic(cluster), "--from", "earliest", "--to", "latest"]
        code, records, err = tail(cluster, capfdbinary, *whole, "--where", condition)
        assert code == 0, err
        assert sorted(int(r["properties"]["n"]) for r in records) == [8, 12, 16]
        assert f"3 shown, {read} read, nothing missing" in err
        with Admin(namesrv=cluster.namesrv) as admin:
            messages = admin.read(whole[0], to="latest", where=condition)
            assert sorted(int(m.properties["n"]) for m in messages) == [8, 12, 16]
        last = [whole[0], "--last", "2", "--no-follow", "--where", condition]
        _, records, err = tail(cluster, capfdbinary, *last)
        assert sorted(int(r["properties"]["n"]) for r in records) == [12, 16]
        before = "store_timestamp < '2020-01-02T03:04:05Z'"
        code, records, err = tail(cluster, capfdbinary, *whole, "--where", before)
        assert (code, records) == (0, [])
        assert "20 messages not read: more than an hour outside the times" in err
        assert "0 shown, 0 read, nothing missing" in err


def test_around_where_a_group_stands(real_cluster, capfdbinary):
    topic = filled_topic(real_cluster)
    group = new_group(real_cluster)
    commit(real_cluster, group, topic, [4, 9])
    around = [topic, "--around-group", group]
    code, records, err = tail(real_cluster, capfdbinary, *around, "-B", "1", "-A", "2")
    assert code == 0, err
    assert places(records) == [(0, 3), (0, 4), (0, 5), (1, 8), (1, 9)]
    assert f"committed offset of {group} is 4, showing 3 to 6" in err
    code, records, _ = tail(real_cluster, capfdbinary, *around, "--queue", "0")
    assert places(records) == [(0, offset) for offset in range(2, 9)]
    assert committed(real_cluster, group, topic) == [4, 9]


def test_from_and_to_where_groups_stand(real_cluster, capfdbinary):
    topic = filled_topic(real_cluster)
    behind, ahead = new_group(real_cluster), new_group(real_cluster)
    commit(real_cluster, behind, topic, [4, 9])
    commit(real_cluster, ahead, topic, [6])  # no commit in the other queue
    whole = ["--from", f"group:{behind}", "--to", "latest"]
    _, records, _ = tail(real_cluster, capfdbinary, topic, *whole)
    assert places(records) == [*((0, n) for n in range(4, COUNT)), (1, 9)]
    between = ["--from", f"group:{behind}", "--to", f"group:{ahead}"]
    code, records, err = tail(real_cluster, capfdbinary, topic, *between)
    assert (code, places(records)) == (0, [(0, 4), (0, 5)])
    assert f"group {ahead} has committed nothing here" in err
