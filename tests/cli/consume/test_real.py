"""`rmq consume` on real brokers: counts, order, retries, signals, several members."""

from __future__ import annotations

import json
import re
import signal
import uuid
from typing import Any

import pytest

from rmqcli.api.calls.stats import get_topic_stats_info
from rmqcli.api.client import Client
from rmqcli.cli.main import run
from rmqcli.config import ClientConfig
from rmqcli.errors import NotFoundError
from tests.cli.consume.test_process import SLOW_ECHO, Member
from tests.kit.java_program import fill
from tests.kit.waiting import PATIENCE_S, wait_until

MESSAGES = 400


@pytest.fixture
def filled(real_cluster, new_topic):
    """A topic with four queues and MESSAGES messages, whose bodies are numbers."""
    topic = new_topic()
    fill(real_cluster, topic, messages=MESSAGES, body_bytes=16, batch_size=1)
    return topic


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def consume(real_cluster, group, capfd):
    """Runs `rmq consume` in this process; returns the lines of stdout."""

    def run_it(topic, *flags, code=0):
        capfd.readouterr()
        common = ["-g", group, "--from", "first", "-n", real_cluster.namesrv]
        assert run(["consume", topic, *common, *flags]) == code
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


def test_a_failing_command_gets_it_again_through_the_retry_topic(filled, consume):
    """One message of each queue fails once; the first retry delay is 10 s."""
    command = (
        'if test $RMQ_OFFSET = 3 && test "$RMQ_RECONSUME_TIMES" = 0; then exit 1; fi;'
        ' echo "$RMQ_TOPIC $RMQ_RECONSUME_TIMES"'
    )
    flags = ["--exec", command, "--shell", "--count", str(MESSAGES), "--threads", "1"]
    lines = consume(filled, *flags, code=6)
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
            return []  # the brokers do not know the group yet
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


@pytest.fixture
def fail(real_cluster, group, capfd):
    """Runs `rmq consume` with a failing `--exec`; returns the lines of stderr."""

    def run_it(topic, *flags, code):
        capfd.readouterr()
        common = ["-g", group, "--from", "first", "-n", real_cluster.namesrv]
        assert run(["consume", topic, *common, *flags]) == code
        return capfd.readouterr().err.splitlines()

    return run_it


def dead_letters(real_cluster, group):
    """Return the number of dead letters, from the ends of their queues.

    A broker counts a message a moment after it has stored it, and a name server knows
    the topic a moment after it was created. The messages themselves cannot be read from
    4.x.
    """
    topic = f"%DLQ%{group}"
    with Client(ClientConfig(namesrv=(real_cluster.namesrv,))) as client:
        try:
            address = client.master_of(client.route(topic), "broker-a")
        except NotFoundError:
            return 0
        stats = client.invoke(address, get_topic_stats_info(topic))
    return sum(each.max_offset for each in stats.values())


def test_what_is_told_as_a_dead_letter_is_one(real_cluster, filled, fail, group):
    flags = ["--max-retries", "0", "--max-failures", "30", "--threads", "1"]
    lines = fail(filled, "--exec", "false", *flags, code=1)
    told = [line for line in lines if line.endswith(f"dead letter in %DLQ%{group}")]
    assert len(told) == 30
    assert any(
        line.startswith("0 consumed; 30 failed: 30 dead letters") for line in lines
    )
    wait_until(lambda: dead_letters(real_cluster, group) == 30, "the dead letters")


def test_a_retry_is_told_and_then_the_dead_letter(
    real_cluster, new_topic, fail, group, capfd
):
    """A broker's first retry delay is 10 s."""
    topic = new_topic()
    fill(real_cluster, topic, messages=1, body_bytes=16, batch_size=1)
    flags = ["--max-retries", "1", "--max-failures", "2"]
    lines = fail(topic, "--exec", "false", *flags, code=1)
    told = [line for line in lines if "exit status 1" in line]
    assert told[0].endswith(
        "the command ended with exit status 1; retry 1 of 1 follows"
    )
    place = "on its way to" if real_cluster.version == "4.6.0" else "in"
    assert f"; dead letter {place} %DLQ%{group}" in told[1]
    # Both name the queue, offset and id of the first copy.
    assert told[1].removeprefix("warning: ").split(": ")[0] == told[0].split(": ")[0]
    assert told[0].startswith(f"{topic}@")
    wait_until(lambda: dead_letters(real_cluster, group) == 1, "the dead letter")


def test_in_order_a_dead_letter_follows_local_retries(
    real_cluster, new_topic, fail, group, capfd
):
    topic = new_topic()
    fill(real_cluster, topic, messages=1, body_bytes=16, batch_size=1)
    flags = ["--orderly", "--max-retries", "1", "--max-failures", "2"]
    lines = fail(topic, "--exec", "false", *flags, code=1)
    told = [line for line in lines if "exit status 1" in line]
    assert [line.split("; ")[1] for line in told] == [
        "retry 1 of 1 follows, its queue is paused until then",
        f"dead letter in %DLQ%{group}",
    ]
    # 4.x delays a message that a client sends there like a retry: by 30 s here.
    wait_until(lambda: dead_letters(real_cluster, group) == 1, "the dead letter")


def test_a_group_says_where_it_begins_when_it_is_new_and_when_it_is_not(start):
    first = start("-o", "raw", "--count", str(MESSAGES))
    assert first.process.wait(PATIENCE_S) == 0
    begins = re.findall(
        r"^T-\S+ begins at 0 in (?:each of (\d+) queues|queue \d+): new to the group",
        first.err(),
        re.MULTILINE,
    )
    assert sum(int(count or 1) for count in begins) == 4
    again = start("-o", "raw")
    wait_until(lambda: "--from applies only" in again.err(), "where it begins")
    assert ": committed by the group" in again.err()
    assert again.end() == 130
