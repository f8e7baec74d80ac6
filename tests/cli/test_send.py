"""`rmq send` against real brokers: every kind of input, and every way to fail."""

from __future__ import annotations

import base64
import io
import json
import random
import sys
import time

import pytest

from rmqcli.api.calls.pull import pull_message
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.transport.peer import free_port

BIG_BYTES = 4 * 1024 * 1024 - 8192


@pytest.fixture
def rmq(real_cluster, capsys, monkeypatch):
    """`rmq(...)` runs a command; returns exit code, lines of stdout, and stderr."""

    def call(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = run([*arguments, "-n", real_cluster.namesrv])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return call


def sent_rows(lines):
    return [json.loads(line) for line in lines]


def stored(cluster, topic, count=0):
    """Return all messages of a topic, after waiting up to 30 s for `count` of them.

    A broker adds a message to its queue a moment after it has stored it.
    """
    limit = time.monotonic() + 30
    while True:
        found = read_all(cluster, topic)
        if len(found) >= count or time.monotonic() > limit:
            return found


def read_all(cluster, topic):
    found = []
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue in client.route(topic, refresh=True).read_queues():
            offset = 0
            while True:
                answer = client.invoke(
                    client.reader_of(queue), pull_message(queue, offset)
                )
                messages = decode_messages(answer.body)
                if not messages:
                    break
                assert all(isinstance(m, StoredMessage) for m in messages)
                found += messages
                offset = answer.next_begin_offset
    return found


def test_an_argument_with_everything(rmq, real_cluster, new_topic):
    topic = new_topic()
    code, out, _ = rmq(
        *("send", topic, "hällo", "--tag", "A", "--key", "k1", "--key", "k2"),
        *("--property", "colour=rot", "-o", "jsonl", "--queue", "broker-a:2"),
    )
    assert code == 0
    (row,) = sent_rows(out)
    (message,) = stored(real_cluster, topic, 1)
    assert row == {
        "msg_id": message.msg_id,
        "offset_msg_id": message.offset_msg_id,
        "broker_name": "broker-a",
        "queue_id": 2,
        "queue_offset": 0,
        "status": "SEND_OK",
        "recall_handle": None,
        "source": None,
        "error": None,
    }
    assert message.body == "hällo".encode()
    assert (message.tags, message.keys) == ("A", "k1 k2")
    assert message.properties["colour"] == "rot"


def mixed_records(count):
    rng = random.Random(7)
    for number in range(count):
        size = rng.choice((1, 3, 40, 400, 5000))
        record = {
            "body_b64": base64.b64encode(rng.randbytes(size)).decode(),
            "flag": number,
            "tags": rng.choice((None, "A", "标签", "B C")),
            "keys": rng.choice((None, "k", "k1  k2")),
            "properties": {"n": str(number), "words": rng.choice(("a\x01b", "é", "x"))},
        }
        if number == count // 2:
            record["body_b64"] = base64.b64encode(rng.randbytes(BIG_BYTES)).decode()
        yield record


def test_records_arrive_byte_for_byte_in_the_order_of_their_queue(
    rmq, real_cluster, new_topic, tmp_path
):
    topic = new_topic()
    wanted = list(mixed_records(2000))
    file = tmp_path / "in.jsonl"
    file.write_text("\n".join(map(json.dumps, wanted)), encoding="utf-8")
    code, out, err = rmq("send", topic, "--jsonl", str(file), "-o", "jsonl")
    assert (code, err) == (0, "2000 sent, 0 failed\n")
    rows = sent_rows(out)
    found = {m.msg_id: m for m in stored(real_cluster, topic, 2000)}
    assert len(found) == len(rows) == 2000
    for record, row in zip(wanted, rows, strict=True):
        message = found[row["msg_id"]]
        assert base64.b64encode(message.body).decode() == record["body_b64"]
        assert (message.tags, message.keys) == (record["tags"], record["keys"])
        assert message.flag == record["flag"]
        assert record["properties"].items() <= message.properties.items()
        assert message.offset_msg_id == row["offset_msg_id"]
        assert (message.queue_id, message.queue_offset) == (
            row["queue_id"],
            row["queue_offset"],
        )
    by_queue: dict[int, list[int]] = {}
    for row in rows:
        by_queue.setdefault(row["queue_id"], []).append(row["queue_offset"])
    assert all(offsets == list(range(500)) for offsets in by_queue.values())


def test_lines_of_stdin_are_bytes_and_said_to_be_sent(rmq, real_cluster, new_topic):
    topic = new_topic(queues=1)
    code, _, err = rmq("send", topic, stdin=b"one\r\n\xff\xfe\nlast")
    assert code == 0
    assert err == "sending the lines of stdin\n3 sent, 0 failed\n"
    bodies = [m.body for m in stored(real_cluster, topic, 3)]
    assert bodies == [b"one\r", b"\xff\xfe", b"last"]


def test_a_file_is_one_message_and_count_repeats_it(
    rmq, real_cluster, new_topic, tmp_path
):
    topic = new_topic(queues=1)
    file = tmp_path / "body.bin"
    file.write_bytes(b"a\nb\0")
    assert rmq("send", topic, "--file", str(file), "--count", "3")[0] == 0
    assert [m.body for m in stored(real_cluster, topic, 3)] == [b"a\nb\0"] * 3


def test_a_bad_line_is_named_after_what_was_sent(rmq, real_cluster, new_topic):
    topic = new_topic(queues=1)
    code, out, err = rmq(
        *("send", topic, "--jsonl", "-", "-o", "jsonl"),
        stdin=b'{"body":"a"}\n\n{"body":\n{"body":"never"}\n',
    )
    assert code == 6
    assert [row["source"] for row in sent_rows(out)] == ["stdin line 1"]
    assert "1 sent, 0 failed" in err
    assert "stdin line 3: not JSON" in err
    assert [m.body for m in stored(real_cluster, topic, 1)] == [b"a"]


def test_shards_keep_one_key_in_one_queue(rmq, real_cluster, new_topic):
    topic = new_topic(queues=4)
    lines = b"".join(b'{"id":"%d","n":%d}\n' % (n % 5, n) for n in range(100))
    assert rmq("send", topic, "--lines", "-", "--shard-by", "id", stdin=lines)[0] == 0
    queues: dict[str, list[tuple[int, int]]] = {}
    for message in stored(real_cluster, topic, 100):
        body = json.loads(message.body)
        queues.setdefault(body["id"], []).append((message.queue_id, body["n"]))
    for found in queues.values():
        assert len({queue_id for queue_id, _ in found}) == 1
        assert [n for _, n in found] == sorted(n for _, n in found)


def test_a_level_delays(rmq, real_cluster, new_topic):
    """Level 1 is one second: the message is in its queue only after that."""
    topic = new_topic(queues=1)
    started = time.monotonic()
    code, out, _ = rmq("send", topic, "later", "--delay", "1", "-o", "jsonl")
    assert code == 0
    assert sent_rows(out)[0]["queue_offset"] is None
    limit = time.monotonic() + 30
    while not (found := stored(real_cluster, topic)):
        assert time.monotonic() < limit
    assert found[0].body == b"later"
    assert time.monotonic() - started > 0.9


def test_a_time_is_kept_exactly_or_refused(rmq, real_cluster, new_topic):
    topic = new_topic(queues=1)
    code, out, err = rmq("send", topic, "later", "--delay", "7s", "-o", "jsonl")
    if real_cluster.version.startswith("4."):
        assert code == 1
        assert "only has the levels 1s 5s 10s" in err
        assert out == []
    else:
        assert code == 0
        assert sent_rows(out)[0]["status"] == "SEND_OK"
    assert rmq("send", topic, "later", "--delay", "10s")[0] == 0


def test_an_empty_body_is_stored(rmq, real_cluster, new_topic):
    topic = new_topic(queues=1)
    code, out, _ = rmq("send", topic, "", "-o", "jsonl", "--tag", "A")
    assert (code, sent_rows(out)[0]["status"]) == (0, "SEND_OK")
    (message,) = stored(real_cluster, topic, 1)
    assert (message.body, message.tags) == (b"", "A")


def test_an_empty_body_with_a_delay_is_a_typed_error_of_5(rmq, real_cluster, new_topic):
    """A delayed message is sent alone, and 5.x fails on such a request without a body.

    Other empty bodies are sent in a batch, whose request has a body.
    """
    topic = new_topic(queues=1)
    code, out, err = rmq("send", topic, "", "--delay", "1", "-o", "jsonl")
    (row,) = sent_rows(out)
    if real_cluster.version.startswith("5."):
        assert (code, row["status"], row["queue_offset"]) == (1, "SYSTEM_ERROR", None)
        assert "give the message a body" in err
    else:
        assert (code, row["status"]) == (0, "SEND_OK")


def test_a_message_over_the_limit_fails_alone(rmq, real_cluster, new_topic, tmp_path):
    topic = new_topic(queues=1)
    for name, size in (("a", 10), ("b", 5 << 20), ("c", 10)):
        (tmp_path / name).write_bytes(b"x" * size)
    files = [word for name in "abc" for word in ("--file", str(tmp_path / name))]
    code, out, err = rmq("send", topic, *files, "-o", "jsonl")
    rows = sent_rows(out)
    assert code == 6
    assert [row["status"] for row in rows] == ["SEND_OK", "MESSAGE_ILLEGAL", "SEND_OK"]
    assert rows[1]["source"] == str(tmp_path / "b")
    assert "1 of 3 messages is not stored" in err


def test_a_new_topic_is_created_by_the_broker_and_said(rmq, real_cluster):
    topic = f"auto-{random.getrandbits(40):x}"
    code, _, err = rmq("send", topic, "first")
    assert code == 3
    assert f"topic {topic} does not exist" in err
    assert "hint: add --create to let a broker create it" in err
    code, _, err = rmq("send", topic, "first", "--create")
    assert code == 0
    assert f"topic {topic} did not exist; broker-a created it with 4 queues" in err
    assert [m.body for m in stored(real_cluster, topic, 1)] == [b"first"]
    assert "did not exist" not in rmq("send", topic, "second")[2]


@pytest.mark.rmq_versions("5.5.0", "4.6.0")
def test_no_topic_where_brokers_create_none(fresh_cluster, capsys):
    cluster = fresh_cluster(conf={"autoCreateTopicEnable": "false"})
    assert run(["send", "nope", "x", "--create", "-n", cluster.namesrv]) == 3
    err = capsys.readouterr().err
    assert err.startswith("error: topic nope does not exist\n")
    assert "hint: no broker creates topics by itself; use: rmq topic create" in err


@pytest.mark.rmq_versions("5.5.0")
def test_a_broker_without_timers_delays_by_its_own_levels(fresh_cluster, capsys):
    """It was asked for a timer, which it refuses, although it has this level."""
    levels = {"messageDelayLevel": "1s 7d", "timerWheelEnable": "false"}
    cluster = fresh_cluster(conf=levels)
    arguments = ["send", cluster.create_topic(), "x", "-n", cluster.namesrv, "--delay"]
    assert run([*arguments, "1s"]) == 0
    assert run([*arguments, "2"]) == 0
    capsys.readouterr()
    assert run([*arguments, "3"]) == 1
    err = capsys.readouterr().err
    assert "delay level 3 does not exist: the broker has the levels 1s 7d" in err
    assert run([*arguments, "5s"]) == 1
    assert "timerWheelEnable=false and only has the levels" in capsys.readouterr().err


def test_a_topic_that_cannot_be_written(rmq, new_topic):
    topic = new_topic(perm=4)
    code, _, err = rmq("send", topic, "x")
    assert code == 4
    assert "no writable queue" in err


def test_ten_thousand_messages_take_a_few_seconds(rmq, real_cluster, new_topic):
    topic = new_topic(queues=8)
    lines = b"".join(b"message %d\n" % n for n in range(10_000))
    started = time.monotonic()
    code, out, err = rmq("send", topic, "--lines", "-", stdin=lines)
    assert code == 0
    assert time.monotonic() - started < 30  # under a second on an idle machine
    assert len(out) == 1 + 1000  # a table has 1000 rows at most
    assert "9,000 sent messages not listed; -o jsonl lists all\n" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a b", "x"), "characters that are not allowed"),
        (("T", "x", "--jsonl", "f"), "BODY and --jsonl cannot be used together"),
        (("T", "x", "--property", "novalue"), "not NAME=VALUE"),
        (("T", "x", "--property", "UNIQ_KEY=1"), "RocketMQ's own"),
        (("T", "x", "--delay", "soon"), "--delay"),
        (("T", "x", "--rate", "fast"), "--rate"),
        (("T", "x", "--count", "0"), "--count"),
        (("T", "--lines", "-", "--acl-file", "-"), "cannot both be read from stdin"),
    ],
)
def test_usage_errors_come_before_anything_is_sent(arguments, words, capsys):
    assert run(["send", *arguments, "-n", "127.0.0.1:1"]) == 2
    assert words in capsys.readouterr().err


def test_no_name_server(capsys):
    address = f"127.0.0.1:{free_port()}"
    assert run(["send", "T", "x", "-n", address, "--timeout", "500ms"]) == 5
    assert "cannot connect" in capsys.readouterr().err
