"""The command that an interrupted `rmq tail` prints resumes without losing messages."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rmqcli.admin.tail.batch import Batcher, TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.hint import with_options
from rmqcli.model import MessageQueue, OffsetRange

ROOT = Path(__file__).parents[3]
RMQ = [sys.executable, "-m", "rmqcli"]


def start(cluster, *flags):
    return subprocess.Popen(
        [*RMQ, "tail", "T", "-n", cluster.namesrv, "-o", "jsonl", *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_holds(cluster, count, *, broker="broker-a"):
    """Wait until the broker holds `count` pulls, which wait for a message."""
    state = cluster.broker(broker).state
    until = time.monotonic() + 60
    while cluster.call(lambda: len(state.holds)) < count:
        assert time.monotonic() < until, "the pulls did not come"
        time.sleep(0.01)


def interrupt(process):
    """Send SIGINT; return the rest of stdout, and the arguments of the hint."""
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    (hint,) = re.findall(r"^resume with: rmq (.*)$", err, re.MULTILINE)
    return out, shlex.split(hint)


def go_on(arguments, *more):
    """Run the command of the hint; return the bodies that it shows, sorted."""
    done = subprocess.run(
        [*RMQ, *arguments, *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(line)["body"] for line in done.stdout.splitlines())


@pytest.fixture
def cluster():
    with EmbeddedCluster(queues=3) as cluster:
        cluster.create_topic("T")
        cluster.send("T", [f"old-{n}" for n in range(7)])
        yield cluster


@pytest.mark.parametrize("flags", [["--from", "now"], ["--from", "latest"]])
def test_what_came_after_an_interrupt_is_shown_though_nothing_came_before(
    cluster, flags
):
    process = start(cluster, *flags)
    wait_for_holds(cluster, 3)
    out, arguments = interrupt(process)
    assert out == ""
    cluster.send("T", [f"new-{n}" for n in range(5)])
    shown = go_on(arguments, "--count", "5", "--for", "60s")
    assert shown == ["new-0", "new-1", "new-2", "new-3", "new-4"]


def test_messages_of_one_millisecond_come_neither_twice_nor_not_at_all(cluster):
    process = start(cluster, "--from", "latest")
    wait_for_holds(cluster, 3)
    cluster.send("T", [f"seen-{n}" for n in range(6)])
    assert process.stdout is not None
    seen = [json.loads(process.stdout.readline())["body"] for _ in range(6)]
    assert sorted(seen) == [f"seen-{n}" for n in range(6)]
    wait_for_holds(cluster, 3)  # by now, tail has written all messages
    out, arguments = interrupt(process)
    assert out == ""
    cluster.send("T", ["new-0", "new-1"])
    assert go_on(arguments, "--count", "2", "--for", "60s") == ["new-0", "new-1"]
    starts = [word for word in arguments if "@" in word]
    assert starts == ["T@broker-a:0=5", "T@broker-a:1=4", "T@broker-a:2=4"]


def test_a_topic_that_is_like_an_option_can_be_gone_on_with(cluster):
    """The positions came after `--`, and were taken for topics."""
    cluster.create_topic("-T")
    process = subprocess.Popen(
        [*RMQ, "tail", "-n", cluster.namesrv, "-o", "jsonl", "--from=now", "--", "-T"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_holds(cluster, 3)
    _, arguments = interrupt(process)
    cluster.send("-T", ["new-0", "new-1"])
    more = ["--count", "2", "--for", "60s"]
    assert go_on(with_options(arguments, more)) == ["new-0", "new-1"]


def test_a_hint_can_be_interrupted_and_gone_on_from_again(cluster):
    process = start(cluster, "--from", "now")
    wait_for_holds(cluster, 3)
    _, first = interrupt(process)
    process = subprocess.Popen(
        [*RMQ, *first],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_holds(cluster, 3)
    _, second = interrupt(process)
    assert second == first


@pytest.mark.slow
@pytest.mark.parametrize("position", ["now", "latest"])
def test_queues_of_a_broker_that_was_away_begin_where_they_were_meant_to(position):
    with EmbeddedCluster(brokers=2, queues=2) as cluster:
        cluster.create_topic("T")
        cluster.send("T", ["a"] * 4, broker="broker-a")
        away = cluster.broker("broker-b")
        away.hang()
        process = start(cluster, "--from", position, "--for", "60s")
        wait_for_holds(cluster, 2)
        _, arguments = interrupt(process)
        away.resume()
        cluster.send("T", ["b-0", "b-1"], broker="broker-b")
        cluster.send("T", ["a-0"], broker="broker-a")
        shown = go_on(arguments, "--count", "3")
    assert shown == ["a-0", "b-0", "b-1"]
    starts = [word for word in arguments if "@" in word]
    assert starts[:2] == ["T@broker-a:0=2", "T@broker-a:1=2"]
    assert all(re.fullmatch(r"T@broker-b:[01]=@\d{13}", s) for s in starts[2:])


@pytest.mark.parametrize(
    "flags", [["--last", "5"], ["--around-group", "G", "-B", "3", "-A", "50"]]
)
def test_a_bounded_part_that_was_interrupted_is_shown_from_its_start(cluster, flags):
    cluster.create_group("G")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        address = cluster.broker().address
        for queue_id in range(3):
            call = update_consumer_offset("G", "T", queue_id, commit_offset=1)
            client.invoke(address, call)
    process = start(cluster, *flags, "--rate", "1/s")
    assert process.stdout is not None
    process.stdout.readline()
    _, arguments = interrupt(process)
    end = arguments.index("--rate")
    assert arguments[:end] == [
        "tail",
        "T",
        "-n",
        cluster.namesrv,
        "-o",
        "jsonl",
        *flags,
    ]


def test_what_is_being_written_when_it_ends_is_not_passed(cluster):
    ranges = [OffsetRange(MessageQueue("T", "broker-a", i), 0, 2) for i in range(3)]
    plan = TailPlan(ranges=tuple(ranges), filter=TailFilter(), rate_per_s=10_000)
    batcher = Batcher(plan.filter, lambda _q, messages: list(messages), TailCounts())
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        tail = Tail(client, plan, batcher, say=print)
        items = tail.items()
        assert next(items)
        assert set(tail.positions.values()) == {0}
        assert tail.counts.matched == 0
        assert list(items) == []
        assert set(tail.positions.values()) == {2}
        assert tail.counts.matched == 6


@pytest.mark.parametrize(
    ("queue", "code", "words"),
    [
        ("T@broker-a:9", 3, "queue broker-a:9 does not exist"),
        (
            "T@broker-a:1",
            2,
            (
                "error: --from-queue T@broker-a:1 is not one of the queues to read\n"
                "hint: see the queues with: rmq topic show T\n"
            ),
        ),
        ("U@broker-a:0", 3, "topic U does not exist"),
    ],
)
def test_the_start_of_a_queue_that_is_not_read_is_refused(cluster, queue, code, words):
    done = subprocess.run(
        [
            *(*RMQ, "tail", "T", "-n", cluster.namesrv, "--queue", "0"),
            *("--from-queue", f"{queue}=4"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert words in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("fmt", ["jsonl", "csv", "raw"])
@pytest.mark.parametrize("read_bytes", [5_000, 70_000, 1_000_000])
def test_an_interrupt_leaves_whole_lines_and_resumes_after_the_last(
    cluster, fmt, read_bytes
):
    """A pipe was full of half a line, and its message came again with the command."""
    cluster.create_topic("long", queues=1)
    bodies = [f"{number:06}{'x' * 3_000}" for number in range(2_000)]
    cluster.send("long", bodies)
    command = ["tail", "long", "-n", cluster.namesrv, "--from", "earliest"]
    with subprocess.Popen(
        [*RMQ, *command, "--to", "latest", "-o", fmt],
        cwd=ROOT,
        bufsize=0,  # communicate() would not see what was read ahead
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        out = b""
        while len(out) < read_bytes:  # then the command is in the middle
            out += os.read(process.stdout.fileno(), read_bytes - len(out))
        os.kill(process.pid, signal.SIGINT)
        rest, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    lines = (out + rest).decode().split("\n")
    assert lines.pop() == ""
    shown = [re.findall(r"\d{6}xxx", line)[0][:6] for line in lines if "xxx" in line]
    assert shown == [body[:6] for body in bodies[: len(shown)]]
    assert len(shown) < 2_000
    assert f" --from {len(shown)}\n".encode() in err


@pytest.mark.slow
@pytest.mark.parametrize("command", [["tail"], ["message", "find"]])
def test_an_interrupt_ends_the_search_for_a_pattern_that_would_not(cluster, command):
    """The time for this pattern doubles with each letter of the body."""
    cluster.send("T", ["a" * 60 + "b"])
    process = subprocess.Popen(
        [*RMQ, *command, "T", "-n", cluster.namesrv, "--grep", "(a+)+$"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    loading_s = 2  # of CPU, on any machine: it is searching by then
    until = time.monotonic() + 60
    while cpu_s(process.pid) < loading_s:
        assert time.monotonic() < until, "it does not search"
        time.sleep(0.05)
    interrupt(process)


def cpu_s(pid):
    """CPU time that a process has used so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
