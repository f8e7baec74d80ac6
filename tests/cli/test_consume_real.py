"""`rmq consume` on real brokers: counts, order, retries, signals, several members."""

from __future__ import annotations

import json
import signal
import uuid
from typing import Any

import pytest

from rmqcli.cli.main import run
from tests.cli.test_consume_process import SLOW_ECHO, Member
from tests.kit.java_program import fill
from tests.kit.waiting import PATIENCE_S, wait_until

MESSAGES = 400


@pytest.fixture
def filled(real_cluster, new_topic):
    """A topic of four queues whose bodies are numbers."""
    topic = new_topic()
    fill(real_cluster, topic, messages=MESSAGES, body_bytes=16, batch_size=1)
    return topic


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def consume(real_cluster, group, capfd):
    """Runs `rmq consume` in this process; returns what it printed."""

    def run_it(topic, *flags):
        capfd.readouterr()
        common = ["-g", group, "--from", "first", "-n", real_cluster.namesrv]
        assert run(["consume", topic, *common, *flags]) == 0
        return capfd.readouterr().out.splitlines()

    return run_it


@pytest.fixture
def start(real_cluster, group, filled, tmp_path):
    """A function that starts members; those that still run are killed at the end."""
    members: list[Any] = []

    def start_one(*flags):
        folder = tmp_path / f"member-{len(members)}"
        folder.mkdir()
        names = {"topic": filled, "group": group}
        members.append(Member(real_cluster.namesrv, folder, *flags, **names))
        return members[-1]

    yield start_one
    for member in members:
        if member.process.poll() is None:
            member.process.kill()
            member.process.wait(PATIENCE_S)


def numbers(lines):
    return sorted(int(line.rstrip(".")) for line in lines)


@pytest.mark.parametrize("mode", [[], ["--orderly"]], ids=["concurrent", "orderly"])
def test_exactly_so_many_and_then_the_rest(filled, consume, mode):
    seen = []
    for count in (1, 99, 200, 100):
        lines = consume(filled, "-o", "raw", "--count", str(count), *mode)
        assert len(lines) == count
        seen += lines
    assert numbers(seen) == list(range(MESSAGES))


def test_order_in_each_queue(filled, consume):
    flags = ["--orderly", "--threads", "4", "-o", "jsonl", "--count", str(MESSAGES)]
    offsets: dict[int, list[int]] = {}
    for record in map(json.loads, consume(filled, *flags)):
        offsets.setdefault(record["queue_id"], []).append(record["queue_offset"])
    assert sum(map(len, offsets.values())) == MESSAGES
    assert all(each == sorted(each) for each in offsets.values())


def test_a_failing_command_gets_it_again_by_way_of_the_retry_topic(filled, consume):
    """One message of each queue fails once; the first delay is 10 s."""
    command = (
        'if test $RMQ_OFFSET = 3 && test "$RMQ_RECONSUME_TIMES" = 0; then exit 1; fi;'
        ' echo "$RMQ_TOPIC $RMQ_RECONSUME_TIMES"'
    )
    flags = ["--exec", command, "--shell", "--count", str(MESSAGES), "--threads", "1"]
    lines = consume(filled, *flags)
    assert lines.count(f"{filled} 1") == 4
    assert lines.count(f"{filled} 0") == MESSAGES - 4


@pytest.mark.parametrize("mode", [[], ["--orderly"]], ids=["concurrent", "orderly"])
def test_a_signal_commits_and_nothing_comes_twice(start, mode):
    flags = ["--shell", "--exec-input", "raw", *mode]
    member = start("--exec", SLOW_ECHO, *flags)
    wait_until(lambda: len(member.lines()) > 20, "twenty messages")
    assert member.end(signal.SIGTERM) == 130
    seen = member.lines()
    assert len(seen) < MESSAGES
    rest = start("-o", "raw", "--count", str(MESSAGES - len(seen)), *mode)
    assert rest.process.wait(PATIENCE_S) == 0
    assert numbers(seen + rest.lines()) == list(range(MESSAGES))


def test_two_members_share_the_queues_and_lag_shows_them(
    real_cluster, filled, group, start, capfd
):
    members = [start("-o", "raw"), start("-o", "raw")]

    def owners():
        capfd.readouterr()
        code = run(["lag", group, "-n", real_cluster.namesrv, "-o", "json"])
        text = capfd.readouterr().out
        if code:
            return []  # the group is not known yet
        queues = [q for q in json.loads(text)[0]["queues"] if q["topic"] == filled]
        return sorted(queue["client_id"] or "" for queue in queues)

    def shared():
        found = owners()
        return len(found) == 4 and found[0] and found[0] == found[1] < found[2]

    wait_until(shared, "two queues each")
    everything = list(range(MESSAGES))
    wait_until(
        lambda: (
            set(numbers(members[0].lines() + members[1].lines())) == set(everything)
        ),
        "all messages",
    )
    assert [member.end() for member in members] == [130, 130]
