"""`rmq consume` tells where it begins in each queue, and when it ignores `--from`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rmqcli import Admin
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from tests.cli.consume.test_process import ROOT, Member
from tests.kit.waiting import PATIENCE_S, wait_until


@pytest.fixture
def consume():
    """Runs `rmq consume T -g g` until a line begins with `until`; returns stderr."""

    def run_it(cluster, *arguments, until="T@"):
        words = ["consume", "T", "-g", "g", "-n", cluster.namesrv, *arguments]
        lines = []
        is_ended = "--count" in arguments
        with subprocess.Popen(
            [sys.executable, "-m", "rmqcli", *words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line.rstrip())
                # Only once: a second signal abandons the messages in progress.
                if line.startswith(until) and not is_ended:
                    process.terminate()
                    is_ended = True
            assert process.wait(PATIENCE_S) in (0, 130), lines
        return lines

    return run_it


def begins(lines):
    return [line for line in lines if line.startswith("T@")]


@pytest.fixture(params=["5.5.0", "4.6.0"])
def cluster(rmq_cluster_factory, request):
    cluster = rmq_cluster_factory(like=request.param)
    cluster.create_topic("T", queues=2)
    cluster.send("T", ["a", "b", "c"])
    return cluster


def trimmed(cluster):
    """Remove the first message of each queue of T."""
    cluster.broker("broker-a").trim("T", 1)


def test_a_new_group_with_latest_reads_all_while_the_first_message_is_there(
    cluster, consume
):
    lines = consume(cluster, "--from", "last", "--count", "3", "-o", "raw")
    assert begins(lines) == [
        (
            "T@broker-a begins at 0 in each of 2 queues: new to the group; brokers"
            " ignore --from latest while a queue still has its first message, so the"
            " whole queue is read"
        )
    ]


@pytest.mark.slow
def test_a_queue_that_was_reset_to_0_does_not_begin_as_that_of_a_new_group(
    rmq_cluster, tmp_path
):
    """The line said "new to the group" after a reset, because what the group had
    committed was read once, before the member joined."""
    rmq_cluster.create_topic("T", queues=2)
    rmq_cluster.send("T", ["a", "b"])
    with Admin(namesrv=rmq_cluster.namesrv) as admin:
        admin.create_group("g")
        member = Member(rmq_cluster.namesrv, tmp_path)
        try:
            wait_until(lambda: admin.lag("g").total_lag == 0)
            planned = admin.plan_reset("g", "T", to="earliest")
            assert admin.apply_reset(planned).is_complete
            rmq_cluster.send("T", ["c", "d"])  # ends the pulls that wait
            wait_until(lambda: len(begins(member.err().splitlines())) > 1)
        finally:
            assert member.end() in (0, 130)
    first, *others = begins(member.err().splitlines())
    assert first.endswith(": new to the group; first message (--from earliest)")
    assert {line.split(": ")[1] for line in others} == {"committed by the group"}


def test_a_new_group_with_a_time_reads_all_while_the_first_message_is_there(
    cluster, consume
):
    start = ["--from", "@2020-01-02T03:04:05Z"]
    lines = consume(cluster, *start, "--count", "3", "-o", "raw")
    assert begins(lines) == [
        (
            "T@broker-a begins at 0 in each of 2 queues: new to the group; brokers"
            " ignore --from @2020-01-02T03:04:05Z while a queue still has its first"
            " message, so the whole queue is read"
        )
    ]


def test_a_new_group_with_latest_begins_at_the_end_of_a_queue_that_lost_its_first(
    cluster, consume
):
    trimmed(cluster)
    lines = consume(cluster)
    assert begins(lines) == [
        (
            "T@broker-a begins at QUEUE:OFFSET 0:2 1:1: new to the group; end of the"
            " queue (--from latest)"
        )
    ]


def test_earliest_shows_the_first_offset_that_is_there(cluster, consume):
    trimmed(cluster)
    lines = consume(cluster, "--from", "earliest")
    assert begins(lines) == [
        (
            "T@broker-a begins at 1 in each of 2 queues: new to the group; first"
            " message (--from earliest)"
        )
    ]


def test_the_retry_topic_of_a_new_group_does_not_make_from_look_ignored(
    cluster, consume
):
    """Brokers before 5.0 answer offset 0 for it, as if the group had committed that."""
    cluster.create_group("g")
    cluster.create_topic("%RETRY%g", queues=1)
    lines = consume(cluster, "--from", "earliest", until="%RETRY%g@")
    assert [line for line in lines if line.startswith("%RETRY%g@")] == [
        (
            "%RETRY%g@broker-a begins at 0 in queue 0: the group's retries, from the"
            " first one"
        )
    ]
    assert not [line for line in lines if line.startswith("--from applies only")]


def test_a_time_is_echoed_with_its_zone(cluster, consume):
    trimmed(cluster)
    lines = consume(cluster, "--from", "@2020-01-02T03:04:05Z")
    assert begins(lines) == [
        (
            "T@broker-a begins at 1 in each of 2 queues: new to the group; first"
            " message since 2020-01-02T03:04:05Z"
        )
    ]


@pytest.mark.slow
def test_a_group_with_commits_ignores_from_and_that_is_said(cluster, consume):
    consume(cluster, "--from", "first", "--count", "3")
    lines = consume(cluster, "--from", "first", until="--from applies")
    assert begins(lines) == [
        "T@broker-a begins at QUEUE:OFFSET 0:2 1:1: committed by the group"
    ]
    assert (
        "--from applies only to queues without a committed offset; to move the group:"
        " rmq reset-offset g T --to earliest"
    ) in lines
    lines = consume(cluster)
    assert not [line for line in lines if "--from applies only" in line]


def test_a_group_that_committed_zero_is_not_taken_for_a_new_one(cluster, consume):
    cluster.create_group("g")
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        for queue_id in (0, 1):
            commit = update_consumer_offset("g", "T", queue_id, commit_offset=0)
            client.invoke(cluster.broker().address, commit)
    lines = consume(cluster)
    assert begins(lines) == [
        "T@broker-a begins at 0 in each of 2 queues: committed by the group"
    ]
