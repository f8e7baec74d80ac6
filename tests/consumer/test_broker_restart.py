"""A member while its broker is away: two lines of log, and every message after it."""

from __future__ import annotations

import logging

import pytest

from tests.consumer.collecting import Seen, consumer
from tests.kit.waiting import wait_until


@pytest.fixture
def warnings(caplog):
    """The messages of warnings and errors so far."""
    logger = logging.getLogger("rmqcli")
    was = logger.propagate
    logger.propagate = True  # the command line switches it off
    yield lambda: [r.getMessage() for r in caplog.records if r.levelno >= 30]
    logger.propagate = was


@pytest.mark.parametrize("like", ["4.6.0", "5.5.0"])
def test_a_restarted_broker_is_a_line_when_it_goes_and_one_when_it_is_back(
    rmq_cluster_factory, warnings, like
):
    """After the restart it knows no member, and refuses pulls, until a heartbeat."""
    cluster = rmq_cluster_factory(like=like)
    cluster.create_topic("T", queues=4)
    cluster.create_group("G")
    seen = Seen()
    with consumer(
        cluster,
        "G",
        "T",
        seen,
        heartbeat_broker_interval_ms=1_000,
        pull_time_delay_when_exception_ms=50,
    ) as member:
        wait_until(lambda: len(member.queues()) >= 4)
        cluster.send("T", ["a"])
        seen.wait_for(1)
        broker = cluster.broker()
        broker.kill()
        wait_until(lambda: any("retrying" in each for each in warnings()))
        broker.restart()
        cluster.send("T", ["b"])
        wait_until(lambda: any("is back" in each for each in warnings()))
        seen.wait_for(2)
        gone, back = warnings()
    assert gone.startswith("broker-a: ")
    assert gone.endswith("; retrying")
    assert back == "broker-a is back; continuing"
