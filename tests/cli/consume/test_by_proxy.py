"""`rmq consume --endpoints`, through the embedded proxy or a scripted one."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli import Admin
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.wire.protobuf import definition_pb2 as pb
from rmqcli.wire.protobuf import service_pb2 as service
from tests.kit.proxy.scripted import OK, ScriptedProxy, status
from tests.kit.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def no_endpoints(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_ENDPOINTS", raising=False)


@pytest.fixture
def cluster(rmq_cluster_factory):
    made = rmq_cluster_factory(proxy=True)
    made.create_topic("T", queues=1)
    return made


@pytest.fixture
def consume(cluster, capfdbinary):
    """Runs `rmq consume T -g g` through the proxy; returns stdout, stderr as text."""

    def run_it(*arguments, code=0):
        flags = ["-g", "g", "--endpoints", cluster.endpoints, "--plaintext"]
        returned = run(["consume", "T", *flags, *arguments])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode("utf-8", "surrogateescape"), err.decode()

    return run_it


def set_group(cluster, **settings):
    with Admin(namesrv=cluster.namesrv) as admin:
        admin.create_group("g", **settings)


def test_sql_that_cannot_be_read_is_a_usage_error(consume):
    out, err = consume("--sql", "amount >", code=2)
    assert out == ""
    assert "parse the consumer's subscription failed" in err
    assert "hint: check the filter expression" in err
    assert "joined" not in err


def test_a_record_has_the_message_group_and_the_priority(cluster, consume):
    for name, value in (("__SHARDINGKEY", "step"), ("_SYS_MSG_PRIORITY_", "0")):
        cluster.send("T", [Seed(body=b"x", properties={name: value})])
        out, _ = consume("--count", "1", "-o", "jsonl")
        assert json.loads(out)["properties"][name] == value


def test_what_the_protocol_does_not_carry_is_null(cluster, consume, capfdbinary):
    seed = Seed(
        body=b'{"a":1}',
        tags="A",
        keys=["k1", "k2"],
        properties={"p": "q", "UNIQ_KEY": "ID1"},
    )
    cluster.send("T", [seed])
    out, err = consume("--count", "1", "-o", "jsonl")
    record = json.loads(out)
    whole = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]
    assert run(["tail", "T", "-n", cluster.namesrv, *whole]) == 0
    stored = json.loads(capfdbinary.readouterr().out)
    assert list(record) == list(stored)
    not_carried = {
        "commit_log_offset",
        "offset_msg_id",
        "flag",
        "sys_flag",
        "store_bytes",
    }
    assert {name for name, value in record.items() if value is None} == {
        *not_carried,
        "body_b64",
    }
    known = record.keys() - not_carried - {"born_host", "properties"}
    assert {name: record[name] for name in known} == {
        name: stored[name] for name in known
    }
    assert record["properties"] == {
        "p": "q",
        "UNIQ_KEY": "ID1",
        "TAGS": "A",
        "KEYS": "k1 k2",
    }
    assert f" through {cluster.endpoints}\n" in err
    assert "receives from all queues of T@broker-a\n" in err
    assert "1 consumed; " in err


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (["-o", "raw"], "text\n"),
        (["-o", "hex"], "T@broker-a:0 0  4 bytes\n00000000  74 65 78 74"),
        (["-o", "pretty"], "T@broker-a:0 0  20"),
        (["-o", "table"], "STORED "),
        (["-o", "csv"], "topic,broker_name,queue_id,queue_offset,commit_log_offset"),
        (["-o", "json"], '[\n{"topic":"T"'),
        (["--format", r"%t %q %o|%c|%I|%s|%g %p{TAGS} %v\n"], "T 0 0||||A A text\n"),
    ],
    ids=lambda words: words[-1] if isinstance(words, list) else "",
)
def test_every_format_is_written(cluster, consume, output, expected):
    cluster.send("T", [Seed(body=b"text", tags="A")])
    out, _ = consume("--count", "1", *output)
    assert out.startswith(expected)
    assert "None" not in out


def test_exactly_so_many_are_consumed_and_the_rest_comes_next(cluster, consume):
    cluster.send("T", [f"m{n}" for n in range(20)])
    seen = []
    for count in (1, 7, 12):
        out, _ = consume("--count", str(count), "-o", "raw")
        assert len(out.splitlines()) == count
        seen += out.splitlines()
    assert sorted(seen) == sorted(f"m{n}" for n in range(20))


def test_no_more_are_received_than_are_consumed(cluster, consume):
    """A message that is given back has failed once: these became dead letters."""
    set_group(cluster, retry_max_times=0)
    cluster.send("T", [f"m{n}" for n in range(20)])
    seen = []
    for count in (1, 7, 12):
        limits = ["--count", str(count), "--for", f"{PATIENCE_S}s"]
        out, _ = consume(*limits, "-o", "raw")
        seen += out.splitlines()
    assert sorted(seen) == sorted(f"m{n}" for n in range(20))
    with Admin(namesrv=cluster.namesrv) as admin:
        assert "%DLQ%g" not in {each.topic for each in admin.topics().topics}


def test_a_command_gets_record_and_facts(cluster, consume):
    cluster.send("T", [Seed(body=b"b", tags="A", keys=["k"])])
    command = 'cat; echo "$RMQ_TOPIC $RMQ_QUEUE_ID $RMQ_OFFSET $RMQ_KEYS $RMQ_TAGS"'
    out, _ = consume("--exec", command, "--shell", "--count", "1")
    line, facts = out.splitlines()
    assert json.loads(line)["body"] == "b"
    assert facts == "T 0 0 k A"


def test_a_command_that_fails_gets_the_message_again(cluster, consume):
    cluster.send("T", [Seed(body=b"x", properties={"UNIQ_KEY": "ID1"})])
    command = "test $RMQ_RECONSUME_TIMES = 1"
    _, err = consume("--exec", command, "--shell", "--count", "1", code=6)
    assert (
        "T@broker-a:0 offset 0, id ID1: the command ended with exit status 1;"
        " retry 1 of 16 follows\n"
    ) in err
    assert "1 consumed; 1 failed: 1 retry; " in err


@pytest.mark.slow
def test_a_retry_is_named_by_the_place_of_its_first_copy(cluster, consume):
    cluster.send("T", ["fine"])
    cluster.send("T", [Seed(body=b"x", properties={"UNIQ_KEY": "ID1"})])
    command = 'grep -q fine || test "$RMQ_RECONSUME_TIMES" = 2'
    flags = ["--shell", "--exec-input", "raw", "--count", "2"]
    _, err = consume("--exec", command, *flags, code=6)
    lines = [line for line in err.splitlines() if "exit status 1" in line]
    assert lines == [
        "T@broker-a:0 offset 1, id ID1: the command ended with exit status 1;"
        f" retry {n} of 16 follows"
        for n in (1, 2)
    ]


def test_the_group_s_settings_say_when_it_is_a_dead_letter(cluster, consume):
    set_group(cluster, retry_max_times=0)
    seeds = [Seed(body=b"x", properties={"UNIQ_KEY": f"ID{n}"}) for n in range(2)]
    cluster.send("T", seeds)
    _, err = consume("--exec", "false", "--max-failures", "2", code=1)
    lines = [line for line in err.splitlines() if line.startswith("warning: T@")]
    assert sorted(lines) == [
        f"warning: T@broker-a:0 offset {n}, id ID{n}: the command ended with exit"
        " status 1; dead letter in %DLQ%g"
        for n in range(2)
    ]
    assert "all 2 deliveries failed: 2 dead letters; stopped after 2 failures" in err


def test_the_only_dead_letter_is_read_by_a_name_server(cluster, consume):
    set_group(cluster, retry_max_times=0)
    cluster.send("T", ["bad", "good"])
    command = 'test "$RMQ_OFFSET" = 1'
    _, err = consume("--exec", command, "--shell", "--count", "1", code=6)
    assert err.splitlines()[-1] == (
        "hint: read the dead letters with: rmq tail %DLQ%g --from earliest --to"
        " latest --namesrv HOST:PORT"
    )


def test_in_order_a_failure_holds_up_its_message_group(cluster, consume):
    set_group(cluster, consume_message_orderly=True)
    cluster.send("T", [Seed(body=each, properties={}) for each in (b"a", b"b")])
    command = 'cat; echo; test "$RMQ_OFFSET $RMQ_RECONSUME_TIMES" != "0 0"'
    flags = ["--orderly", "--exec-input", "raw", "--count", "2"]
    out, err = consume("--exec", command, "--shell", *flags, code=6)
    assert out.split() == ["a", "a", "b"]
    assert "retry 1 of 16 follows, its message group is paused until then" in err
    assert "owns 1 queue: T@broker-a:0\n" in err


def test_orderly_needs_a_fifo_group(consume):
    _, err = consume("--orderly", code=1)
    error, hint = err.splitlines()
    assert error == (
        "error: group g is not a FIFO group, so a proxy does not deliver its messages"
        " in order"
    )
    assert hint == (
        "hint: make it one: rmq group update g --orderly; or consume without --orderly"
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "earliest"], "--from and --endpoints cannot be used together"),
        (["--broadcast"], "--broadcast and --endpoints cannot be used together"),
        (["--max-retries", "3"], "--max-retries and --endpoints cannot be used"),
        (["-n", "127.0.0.1:9876"], "--namesrv and --endpoints cannot be used"),
        (["--tls"], "--plaintext and --tls cannot be used together"),
    ],
)
def test_what_a_proxy_has_no_counterpart_of_is_refused(capsys, arguments, words):
    with ScriptedProxy() as proxy:
        flags = ["-g", "g", "--endpoints", proxy.endpoints, "--plaintext"]
        assert run(["consume", "T", *flags, *arguments]) == 2
        assert proxy.asked("QueryRoute") == []
    assert words in capsys.readouterr().err


def test_a_name_server_that_is_typed_counts_more_than_the_environment(
    cluster, capsys, monkeypatch
):
    monkeypatch.setenv("ROCKETMQ_ENDPOINTS", "127.0.0.1:1")
    cluster.send("T", ["x"])
    flags = ["-g", "g", "--from", "first", "--count", "1", "-o", "raw"]
    assert run(["consume", "T", "-n", cluster.namesrv, *flags]) == 0
    assert capsys.readouterr().out == "x\n"


def test_a_topic_that_is_not_there(cluster, capsys):
    flags = ["-g", "g", "--endpoints", cluster.endpoints, "--plaintext"]
    assert run(["consume", "Nope", *flags]) == 3
    err = capsys.readouterr().err
    assert err.startswith("error: topic Nope does not exist\n")
    assert "hint: a proxy creates no topics; create it with: rmq topic create" in err


def test_nobody_listens(capsys):
    flags = ["-g", "g", "--endpoints", "127.0.0.1:1", "--plaintext"]
    assert run(["consume", "T", *flags]) == 5
    assert capsys.readouterr().err.splitlines() == [
        "error: cannot connect to 127.0.0.1:1: connection refused",
        "hint: check --endpoints or ROCKETMQ_ENDPOINTS",
    ]


def test_a_body_that_was_damaged_is_a_record_with_an_error(capsys):
    def damaged(request, _context):
        part = service.ReceiveMessageResponse()
        part.message.topic.name = "T"
        part.message.body = b"abc"
        system = part.message.system_properties
        system.receipt_handle, system.message_id = "h", "ID1"
        system.body_digest.type = pb.DigestType.MD5
        system.body_digest.checksum = "0" * 32
        yield service.ReceiveMessageResponse(status=OK)
        yield part

    def assignment(request, _context):
        answer = service.QueryAssignmentResponse(status=OK)
        queue = answer.assignments.add().message_queue
        queue.topic.name, queue.id, queue.broker.name = "T", -1, "broker-a"
        queue.permission = pb.Permission.READ_WRITE
        queue.broker.endpoints.CopyFrom(request.endpoints)
        return answer

    with ScriptedProxy() as proxy:
        proxy.answers["QueryAssignment"] = assignment
        proxy.answers["ReceiveMessage"] = damaged
        flags = ["-g", "g", "--endpoints", proxy.endpoints, "--plaintext"]
        assert run(["consume", "T", *flags, "--count", "1", "-o", "jsonl"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert "does not match its MD5" in record["error"]
    assert (record["raw_b64"], record["queue_offset"]) == ("YWJj", None)
    assert (record["born_timestamp"], record["store_host"]) == (None, None)


def test_nothing_received_because_the_broker_refuses_is_no_success(capsys):
    """It ended with 0, as if the topic had nothing; warnings told of failures only."""
    no = "the broker[b] pop message is forbidden because timerWheelEnable is false"

    def assignment(request, _context):
        answer = service.QueryAssignmentResponse(status=OK)
        queue = answer.assignments.add().message_queue
        queue.topic.name, queue.id, queue.broker.name = "T", -1, "broker-a"
        queue.permission = pb.Permission.READ_WRITE
        queue.broker.endpoints.CopyFrom(request.endpoints)
        return answer

    def refuse(_request, _context):
        yield service.ReceiveMessageResponse(status=status("INTERNAL_SERVER_ERROR", no))

    with ScriptedProxy() as proxy:
        proxy.answers["QueryAssignment"] = assignment
        proxy.answers["ReceiveMessage"] = refuse
        flags = ["-g", "g", "--endpoints", proxy.endpoints, "--plaintext"]
        assert run(["consume", "T", *flags, "--for", "1s"]) == 6
    err = capsys.readouterr().err
    assert f"answered INTERNAL_SERVER_ERROR: {no}\n" in err
    assert "error: nothing could be received from broker-a: receive from T@b" in err
    assert "hint: set timerWheelEnable=true on the broker, and restart it\n" in err


def test_on_a_terminal_a_line_says_how_it_goes_and_sigterm_leaves(cluster):
    cluster.send("T", ["x"] * 8)
    ours, theirs = pty.openpty()
    flags = ["-g", "g", "--endpoints", cluster.endpoints, "--plaintext"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rmqcli", "consume", "T", *flags],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        wanted = re.compile(rb"\r\x1b\[K8 consumed \xc2\xb7 \d+/s \xc2\xb7 T@broker-a")
        while not wanted.search(shown):
            shown += os.read(ours, 4096)
        process.send_signal(signal.SIGTERM)
        while b"interrupted" not in shown:
            shown += os.read(ours, 4096)
        assert process.wait(PATIENCE_S) == 130
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(ours)
    assert b"8 consumed; " in shown
