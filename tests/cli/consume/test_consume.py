"""`rmq consume` on the embedded cluster: what is printed, and what is committed."""

from __future__ import annotations

import io
import json
import sys

import pytest

from rmqcli.broker import faults
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode


@pytest.fixture
def rmq(rmq_cluster, capfdbinary):
    """Runs a command on the cluster; returns stdout as bytes and stderr as text."""

    def run_it(*arguments, code=0):
        returned = run([*arguments, "-n", rmq_cluster.namesrv])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out, err.decode()

    return run_it


def bodies_of(out):
    return [line.decode() for line in out.splitlines()]


def committed_by(rmq, group):
    """Return the group's committed offsets in its topic, by queue id."""
    (lag,) = json.loads(rmq("lag", group, "-o", "json")[0])
    return {
        queue["queue_id"]: queue["committed"]
        for queue in lag["queues"]
        if not queue["topic"].startswith("%")
    }


def test_each_message_is_printed_once_and_committed(rmq, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [f"m{n}" for n in range(40)])
    flags = ["-g", "g", "--from", "first", "-o", "raw"]
    out, err = rmq("consume", rmq_topic, *flags, "--count", "40")
    assert sorted(bodies_of(out)) == sorted(f"m{n}" for n in range(40))
    assert "joined group g as 127.0.0.1@" in err
    assert "40 consumed; " in err
    assert committed_by(rmq, "g") == dict.fromkeys(range(4), 10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [[], ["--orderly"], ["--batch", "7"]])
def test_exactly_so_many_are_consumed_and_the_rest_comes_next(
    rmq, rmq_cluster, rmq_topic, mode
):
    rmq_cluster.send(rmq_topic, [f"m{n}" for n in range(50)])
    seen = []
    for count in (1, 2, 13, 30, 4):
        flags = ["-g", "g", "--from", "first", "-o", "raw", *mode]
        out, _ = rmq("consume", rmq_topic, *flags, "--count", str(count))
        assert len(bodies_of(out)) == count
        seen += bodies_of(out)
        assert sum(n or 0 for n in committed_by(rmq, "g").values()) == len(seen)
    assert sorted(seen) == sorted(f"m{n}" for n in range(50))


def test_what_was_not_shown_is_not_sent_back_either(rmq, rmq_cluster, rmq_topic):
    sent_back = rmq_cluster.faults.observe(code=int(RequestCode.CONSUMER_SEND_MSG_BACK))
    rmq_cluster.send(rmq_topic, [f"m{n}" for n in range(50)])
    flags = ["-g", "g", "--from", "first", "--batch", "32", "--count", "5"]
    rmq("consume", rmq_topic, *flags)
    assert sent_back.seen == 0


def test_orderly_keeps_the_order_of_each_queue(rmq, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, [str(n) for n in range(200)])
    flags = ["-g", "g", "--from", "first", "--orderly", "--threads", "4"]
    out, _ = rmq("consume", rmq_topic, *flags, "--count", "200")
    offsets: dict[int, list[int]] = {}
    for line in out.splitlines():
        record = json.loads(line)
        offsets.setdefault(record["queue_id"], []).append(record["queue_offset"])
    assert offsets == {n: list(range(50)) for n in range(4)}


FORMATS = ["pretty", "table", "json", "jsonl", "raw", "hex", "csv"]


@pytest.fixture
def one_queue(rmq_cluster):
    """A topic with one queue, which has a message with each kind of body."""
    topic = rmq_cluster.create_topic("One", queues=1)
    seeds = [
        Seed(body=b"text", tags="A", keys=["k1", "k2"]),
        Seed(body=b'{"a":[1,2]}', properties={"p": "\x1b[31mred"}),
        Seed(body=b"\xff\xfe\x00", tags="B"),
        Seed(body="ü\u202e\x1b[2J".encode(), flag=7),
        Seed(body=b""),
    ]
    rmq_cluster.send(topic, seeds)
    return topic


@pytest.mark.parametrize(
    "output",
    [*(["-o", each] for each in FORMATS), ["--format", r"%t %q %o %k %g %p{p} %v\n"]],
    ids=lambda words: words[-1],
)
def test_every_format_of_tail_is_written_as_tail_writes_it(rmq, one_queue, output):
    whole = ["--from", "earliest", "--to", "latest"]
    expected, _ = rmq("tail", one_queue, *whole, *output)
    flags = ["-g", "g", "--from", "first", "--orderly", "--count", "5"]
    out, _ = rmq("consume", one_queue, *flags, *output)
    assert out == expected


def test_a_list_that_is_empty_is_still_a_list(rmq, rmq_topic):
    flags = ["-g", "g", "--for", "300ms", "-o", "json"]
    out, err = rmq("consume", rmq_topic, *flags)
    assert out == b"[]\n"
    assert "0 consumed; 0.0/s" in err


def test_only_the_tags_that_were_asked_for(rmq, rmq_cluster, rmq_topic):
    for tag in ("Aa", "BB", "C"):  # Aa and BB have the same hash code
        rmq_cluster.send(rmq_topic, [tag] * 5, tags=tag)
    flags = ["-g", "g", "--from", "first", "--tag", "Aa || C", "--count", "10"]
    out, _ = rmq("consume", rmq_topic, *flags, "-o", "raw")
    assert sorted(bodies_of(out)) == ["Aa"] * 5 + ["C"] * 5


def test_sql_selects(rmq_cluster_factory, capsys):
    cluster = rmq_cluster_factory(settings={"enable_property_filter": True})
    topic = cluster.create_topic("T")
    seeds = [Seed(body=b"%d" % n, properties={"a": str(n)}) for n in range(10)]
    cluster.send(topic, seeds)
    flags = [
        "-g",
        "g",
        "--from",
        "first",
        "--sql",
        "a > 5",
        "--count",
        "4",
        "-o",
        "raw",
    ]
    assert run(["consume", topic, "-n", cluster.namesrv, *flags]) == 0
    assert sorted(capsys.readouterr().out.split()) == ["6", "7", "8", "9"]


def test_several_topics_in_one_group(rmq, rmq_cluster):
    for name in ("A", "B"):
        rmq_cluster.send(rmq_cluster.create_topic(name), [name] * 4)
    flags = ["-g", "g", "--from", "first", "--count", "8", "-o", "raw"]
    out, _ = rmq("consume", "A", "B", "A", *flags)
    assert sorted(bodies_of(out)) == ["A"] * 4 + ["B"] * 4


@pytest.mark.parametrize(
    ("start", "where"),
    [
        ([], "CONSUME_FROM_LAST_OFFSET"),
        (["--from", "last"], "CONSUME_FROM_LAST_OFFSET"),
        (["--from", "latest"], "CONSUME_FROM_LAST_OFFSET"),
        (["--from", "first"], "CONSUME_FROM_FIRST_OFFSET"),
        (["--from", "earliest"], "CONSUME_FROM_FIRST_OFFSET"),
        (["--from", "now"], "CONSUME_FROM_TIMESTAMP"),
        (["--from", "-1h"], "CONSUME_FROM_TIMESTAMP"),
        (["--from", "@2026-01-02T03:04:05Z"], "CONSUME_FROM_TIMESTAMP"),
    ],
)
def test_where_a_new_group_begins_is_told_to_the_broker(
    rmq, rmq_cluster, rmq_topic, start, where
):
    heartbeats = rmq_cluster.faults.observe(code=int(RequestCode.HEART_BEAT))
    rmq("consume", rmq_topic, "-g", "g", "--for", "10ms", *start)
    (consumer,) = json.loads(heartbeats.requests[0].command.body)["consumerDataSet"]
    assert consumer["consumeFromWhere"] == where


def test_broadcast_gives_all_to_each_and_keeps_offsets_in_a_file(
    rmq, rmq_cluster, rmq_topic, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    rmq_cluster.send(rmq_topic, ["x"] * 8)
    flags = ["-g", "g", "--from", "first", "--broadcast", "-o", "raw"]
    out, _ = rmq("consume", rmq_topic, *flags, "--count", "8")
    assert bodies_of(out) == ["x"] * 8
    out, _ = rmq("consume", rmq_topic, *flags, "--for", "400ms")
    assert out == b""
    assert len(list(tmp_path.rglob("offsets.json"))) == 1


def test_broadcast_without_a_file_says_that_its_offsets_are_not_stored(
    rmq, rmq_cluster, rmq_topic, tmp_path, monkeypatch
):
    """The next run would skip what was sent since this one began."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".rocketmq_offsets").symlink_to("nowhere/else")
    rmq_cluster.send(rmq_topic, ["x"] * 3)
    flags = ["-g", "g", "--from", "first", "--broadcast", "-o", "raw", "--count", "3"]
    out, err = rmq("consume", rmq_topic, *flags, code=6)
    assert bodies_of(out) == ["x"] * 3
    assert "the last commit is not confirmed" in err


def test_what_cannot_be_read_is_a_record_with_an_error_and_then_done(rmq, rmq_cluster):
    topic = rmq_cluster.create_topic("One", queues=1)
    rmq_cluster.send(topic, ["whole"])
    pull = int(RequestCode.PULL_MESSAGE)
    rmq_cluster.faults.next(faults.corrupt("body"), code=pull, topic=topic)
    flags = ["-g", "g", "--from", "first", "--count", "1"]
    out, err = rmq("consume", topic, *flags)
    (record,) = [json.loads(line) for line in out.splitlines()]
    assert record["topic"] == topic
    assert record["error"]
    assert record["raw_b64"]
    assert "1 consumed; 1 undecodable" in err
    assert committed_by(rmq, "g") == {0: 1}


def test_quiet_says_nothing(rmq, rmq_cluster, rmq_topic):
    rmq_cluster.send(rmq_topic, ["x"] * 4)
    flags = ["-g", "g", "--from", "first", "--count", "4", "-q"]
    assert rmq("consume", rmq_topic, *flags)[1] == ""


class FullDisk(io.StringIO):
    """A stream that accepts `writes` writes and fails all later ones."""

    def __init__(self, writes):
        super().__init__()
        self.left = writes

    def write(self, text):
        if not self.left:
            raise OSError(28, "No space left on device")
        self.left -= 1
        return super().write(text)


def test_what_was_not_written_is_not_committed(
    rmq_cluster, rmq_topic, rmq, monkeypatch
):
    rmq_cluster.send(rmq_topic, [f"m{n}" for n in range(20)])
    disk = FullDisk(writes=3)
    arguments = ["consume", rmq_topic, "-g", "g", "-n", rmq_cluster.namesrv]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", disk)
        flags = ["--from", "first", "--batch", "1", "-o", "jsonl"]
        assert run([*arguments, *flags]) == 1
    assert sum(n or 0 for n in committed_by(rmq, "g").values()) == 3
    out, _ = rmq("consume", rmq_topic, "-g", "g", "--from", "first", "--count", "17")
    records = [
        json.loads(line) for line in [*disk.getvalue().splitlines(), *out.splitlines()]
    ]
    assert sorted(r["body"] for r in records) == sorted(f"m{n}" for n in range(20))
    assert {r["reconsume_times"] for r in records} == {0}
