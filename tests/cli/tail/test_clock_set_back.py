"""What commands read of queues after a broker's clock was set back."""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.admin import Admin
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from tests.kit.clock import SetClock


@pytest.fixture
def cluster():
    """A topic with three queues, and messages of before and after an hour set back.

    The last messages of queue 2 came before it, and all of queue 1 afterwards.
    """
    clock = SetClock(1_700_000_000_000)
    with EmbeddedCluster(queues=3, clock=clock) as cluster:
        cluster.create_topic("T")
        for queue_id in (0, 2, 0, 2):
            cluster.send("T", ["x"], queue_id=queue_id)
            clock.now_ms += 1_000
        clock.now_ms -= 3_600_000
        for queue_id in (1, 0, 1):
            cluster.send("T", ["x"], queue_id=queue_id)
            clock.now_ms += 1_000
        yield cluster


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(0, 2), (1, 1)]),
        (3, [(1, 0), (0, 2), (1, 1)]),
        (5, [(0, 1), (2, 1), (1, 0), (0, 2), (1, 1)]),
        (9, [(0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (0, 2), (1, 1)]),
    ],
)
def test_the_messages_that_came_after_it_are_the_last(cluster, capfd, count, expected):
    """Earlier messages were shown in their place, because their times are larger."""
    words = ["--last", str(count), "--no-follow", "-n", cluster.namesrv]
    assert run(["tail", "T", *words]) == 0
    records = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(row["queue_id"], row["queue_offset"]) for row in records] == expected


COMMANDS = {
    "tail": ["tail", "T", "--from", "earliest"],
    "message find": ["message", "find", "T", "--grep", "x"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_an_end_by_time_names_the_queues_that_are_not_in_its_order(
    cluster, capfd, command
):
    """Later messages that are older than the end were left out without a word."""
    words = ["--to", "@1700000000500", "-n", cluster.namesrv, "-o", "jsonl"]
    assert run([*command, *words]) == 0
    out, err = capfd.readouterr()
    records = [json.loads(line) for line in out.splitlines()]
    assert (0, 2) not in [(row["queue_id"], row["queue_offset"]) for row in records]
    (warning,) = [line for line in err.splitlines() if "not in order" in line]
    assert warning == (
        "warning: T@broker-a:0: 0 to 1, 1 message; store times are not in order here,"
        " as after a broker's clock was set back: messages from around the time may be"
        " left out or be too many"
    )


def test_a_copy_by_time_warns_of_such_a_queue(cluster, capfd):
    cluster.create_topic("copy", queues=3)
    words = ["copy", "T", "copy", "--to", "@1700000000500", "-n", cluster.namesrv]
    assert run(words) == 0
    assert "range not exact queue=T@broker-a:0 reason=store" in capfd.readouterr().err


def test_a_range_of_the_library_by_time_warns_of_such_a_queue(cluster, caplog):
    with Admin(namesrv=cluster.namesrv) as admin:
        found = list(admin.read("T", to="@1700000000500"))
    assert len(found) == 3
    (warning,) = [
        each for each in caplog.records if each.name == "rmqcli.admin.positions"
    ]
    assert warning.getMessage() == (
        "range not exact queue=T@broker-a:0 reason=store times are not in order here,"
        " as after a broker's clock was set back: messages from around the time may be"
        " left out or be too many"
    )
