"""`rmq consume --exec`: the command's input, and the meaning of its exit status."""

from __future__ import annotations

import json
import re
import sys

import pytest

from rmqcli.broker import faults
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.cli.main import run
from rmqcli.wire.codes import RequestCode
from tests.admin.dlq.letters import send_damaged
from tests.kit.documents import text_of
from tests.kit.records import body_of, checked_records
from tests.wire.message.bodies import BODIES

#: Every delay is a second, so that retries come soon.
DELAYS = " ".join(["1s"] * 18)


@pytest.fixture
def cluster(rmq_cluster_factory):
    return rmq_cluster_factory(settings={"message_delay_level": DELAYS})


@pytest.fixture
def consume(cluster, capfdbinary):
    """Runs `rmq consume T -g g` on the cluster; returns stdout and stderr as text."""

    def run_it(*arguments, code=0):
        flags = ["-g", "g", "--from", "first", "-n", cluster.namesrv]
        returned = run(["consume", "T", *flags, *arguments])
        out, err = capfdbinary.readouterr()
        assert returned == code, err.decode()
        return out.decode("utf-8", "surrogateescape"), err.decode()

    return run_it


def test_the_record_of_tail_is_on_its_stdin(cluster, consume, capfdbinary):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [Seed(body=b'{"a":1}', keys=["k"], tags="A")])
    whole = ["--from", "earliest", "--to", "latest", "-o", "jsonl"]
    assert run(["tail", "T", "-n", cluster.namesrv, *whole]) == 0
    expected = capfdbinary.readouterr().out.decode()
    assert consume("--exec", "cat", "--count", "1")[0] == expected


@pytest.mark.parametrize("body", [b'{"a":1}', b'{"a": 1}', b"[1,2]", b"5", b"text"])
def test_the_jq_command_of_the_guide_collects_bodies_of_json_written_in_any_way(
    cluster, consume, tmp_path, monkeypatch, body
):
    """It wrote `null` for compact JSON, and the message counted as consumed."""
    [command] = re.findall(r"--exec '(jq [^']*)' --shell", text_of("consuming"))
    monkeypatch.chdir(tmp_path)
    cluster.send("T", [body])
    consume("--exec", command, "--shell", "--count", "1")
    assert (tmp_path / "bodies").read_bytes() == body + b"\n"


def test_records_of_a_command_keep_to_the_schema(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [*BODIES])
    flags = ["--exec", "cat", "--threads", "1", "--count", str(len(BODIES))]
    out, _ = consume(*flags)
    assert [body_of(each) for each in checked_records(out.splitlines())] == BODIES


def test_the_body_alone_byte_for_byte(cluster, consume):
    cluster.send("T", [b"\xff\x00\n\xfe"])
    out, _ = consume("--exec", "cat", "--exec-input", "raw", "--count", "1")
    assert out.encode("utf-8", "surrogateescape") == b"\xff\x00\n\xfe"


def test_facts_are_in_its_environment(cluster, consume):
    cluster.create_topic("T", queues=1)
    nasty = Seed(body=b"b", tags="A;$(x)", keys=["k1", "ü\x00z"])
    cluster.send("T", ["a", nasty])
    command = (
        'echo "$RMQ_TOPIC|$RMQ_BROKER_NAME|$RMQ_QUEUE_ID|$RMQ_OFFSET|$RMQ_KEYS'
        '|$RMQ_TAGS|$RMQ_RECONSUME_TIMES|$RMQ_COUNT"'
    )
    out, _ = consume("--exec", command, "--shell", "--count", "2")
    assert out.splitlines() == [
        "T|broker-a|0|0|||0|1",
        "T|broker-a|0|1|k1 üz|A;$(x)|0|1",
    ]


def test_no_shell_reads_the_command(cluster, consume):
    cluster.send("T", ["x"])
    out, _ = consume("--exec", "echo '$HOME; a  b' *", "--count", "1")
    assert out == "$HOME; a  b *\n"


def test_a_batch_is_a_line_for_each_message(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [f"m{n}" for n in range(10)])
    command = f"{sys.executable} -c 'import sys; print(len(sys.stdin.readlines()))'"
    out, err = consume("--exec", command, "--batch", "4", "--count", "10")
    assert out.split() == ["4", "4", "2"]
    assert "10 consumed" in err


def test_a_count_cuts_a_batch(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", [f"m{n}" for n in range(10)])
    flags = ["--exec", "cat", "--exec-input", "jsonl", "--batch", "4"]
    first, _ = consume(*flags, "--count", "6")
    rest, _ = consume(*flags, "--count", "4")
    bodies = [json.loads(line)["body"] for line in (first + rest).splitlines()]
    assert bodies == [f"m{n}" for n in range(10)]


@pytest.mark.slow
def test_a_command_that_fails_gets_the_message_again(cluster, consume):
    cluster.send("T", ["x", "y"])
    command = 'echo "$RMQ_TOPIC $RMQ_RECONSUME_TIMES"; test $RMQ_RECONSUME_TIMES = 2'
    out, err = consume("--exec", command, "--shell", "--count", "2", code=6)
    assert sorted(out.splitlines()) == ["T 0", "T 0", "T 1", "T 1", "T 2", "T 2"]
    assert "the command ended with exit status 1; retry 2 of 16 follows" in err
    assert "2 consumed; 4 failed: 4 retries" in err


def test_in_order_a_failure_holds_up_its_queue(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["a", "b"])
    command = 'cat; echo; test "$RMQ_OFFSET $RMQ_RECONSUME_TIMES" != "0 0"'
    flags = ["--orderly", "--exec-input", "raw", "--count", "2"]
    out, _ = consume("--exec", command, "--shell", *flags, code=6)
    assert out.split() == ["a", "a", "b"]


def test_a_command_that_a_signal_killed_has_failed(cluster, consume):
    cluster.send("T", ["x"])
    command = "test $RMQ_RECONSUME_TIMES = 1 || kill -9 $$"
    _, err = consume("--exec", command, "--shell", "--count", "1", code=6)
    assert "the command ended with signal SIGKILL" in err


def test_too_many_failures_make_a_dead_letter(cluster, consume, capfdbinary):
    dead = cluster.faults.observe(code=int(RequestCode.CONSUMER_SEND_MSG_BACK))
    cluster.send("T", ["x"])
    flags = ["--max-retries", "1", "--max-failures", "2"]
    _, err = consume("--exec", "false", *flags, code=1)
    assert dead.seen == 2
    assert "0 consumed; 2 failed: 1 retry, 1 dead letter" in err
    whole = ["--from", "earliest", "--to", "latest", "-o", "raw"]
    assert run(["tail", "%DLQ%g", "-n", cluster.namesrv, *whole]) == 0
    assert capfdbinary.readouterr().out == b"x\n"


def test_a_command_need_not_read_what_it_gets(cluster, consume):
    cluster.send("T", [b"x" * 1_000_000])
    _, err = consume("--exec", "true", "--count", "1")
    assert "1 consumed" in err


def test_so_many_run_at_once(cluster, consume, tmp_path):
    """Each command waits for the other two: with fewer than three, none would end."""
    cluster.send("T", ["x"] * 3)
    command = (
        f"touch {tmp_path}/$RMQ_QUEUE_ID;"
        f" while test $(ls {tmp_path} | wc -l) -lt 3; do :; done"
    )
    _, err = consume("--exec", command, "--shell", "--threads", "3", "--count", "3")
    assert "3 consumed" in err


def test_what_cannot_be_read_is_told_and_passed_over(cluster, consume):
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["damaged"])
    pull = int(RequestCode.PULL_MESSAGE)
    cluster.faults.next(faults.corrupt("body"), code=pull, topic="T")
    out, err = consume("--exec", "cat", "--count", "1")
    assert out == ""
    (warning,) = [line for line in err.splitlines() if "warning" in line]
    assert warning.startswith(
        "warning: T@broker-a:0 offset 0 cannot be decoded and is skipped: "
    )
    assert warning.endswith(
        "; show it with: rmq tail T --queue broker-a:0 --from 0 --to 1 -o jsonl"
    )


def test_a_body_that_cannot_be_read_is_no_input_of_a_command(cluster, consume):
    """Its compressed bytes were, and the message counted as consumed."""
    cluster.create_topic("T", queues=1)
    send_damaged(cluster, "T")
    flags = ["--exec", "cat", "--exec-input", "raw", "--max-failures", "1"]
    out, err = consume(*flags, code=1)
    assert out == ""
    assert "its body cannot be read: " in err


def test_a_body_that_is_printed_as_it_is_stored_is_counted(cluster, consume):
    cluster.create_topic("T", queues=1)
    send_damaged(cluster, "T")
    out, err = consume("--count", "1", "-o", "raw")
    assert out == "not compressed\n"
    assert "1 consumed; 1 undecodable" in err


def test_quiet_does_not_hide_that_a_message_is_skipped(cluster, consume):
    """With -q, nothing said that a message was consumed without being processed."""
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["damaged"])
    pull = int(RequestCode.PULL_MESSAGE)
    cluster.faults.next(faults.corrupt("body"), code=pull, topic="T")
    _, err = consume("--exec", "cat", "--count", "1", "-q")
    (line,) = err.splitlines()
    assert line.startswith(
        "warning: T@broker-a:0 offset 0 cannot be decoded and is skipped: "
    )


def test_a_program_that_goes_away_ends_it_and_nothing_is_sent_back(
    cluster, consume, tmp_path
):
    sent_back = cluster.faults.observe(code=int(RequestCode.CONSUMER_SEND_MSG_BACK))
    cluster.create_topic("T", queues=1)
    cluster.send("T", ["a", "b"])
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nrm $0\n")
    program.chmod(0o700)
    _, err = consume("--exec", str(program), "--threads", "1", code=1)
    assert f"{program}: no such file or directory" in err
    assert "1 consumed" in err
    assert sent_back.seen == 0
    assert consume("--count", "1", "-o", "raw")[0] == "b\n"
