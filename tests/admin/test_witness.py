"""A message of a queue is known again by its place, its ID and its store time."""

from __future__ import annotations

import pytest

from rmqcli.admin.witness import Noted, Witness, compare, read_witnesses
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import DeniedError, RefusedError
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode


@pytest.mark.parametrize(
    ("noted", "found", "expected"),
    [
        (Witness(4, "A1", 70), Witness(4, "A1", 70), True),
        (Witness(4, "A1", 70), Witness(4, "A2", 70), False),
        (Witness(4, "A1", 70), Witness(4, "A1", 71), False),
        (Witness(4, "A1", 70), Witness(5, "A1", 70), False),
        # It was sent: the answer has no store time.
        (Witness(4, "A1", None), Witness(4, "A1", 70), True),
        (Witness(4, "A1", None), Witness(4, "A2", 70), False),
        # A row of a file of which only the highest store time is known.
        (Witness(4, None, 70), Witness(4, "A1", 70), True),
        (Witness(4, None, 70), Witness(4, "A1", 69), True),
        (Witness(4, None, 70), Witness(4, "A1", 71), False),
        (Witness(4, None, 70), Witness(5, "A1", 70), False),
    ],
)
def test_a_message_is_the_one_that_was_noted(noted, found, expected):
    assert noted.is_same(found) is expected


QUEUE = MessageQueue("orders", "broker-a", 0)
#: what a broker answers that has not counted its last two messages yet
BEHIND = faults.answer(0, ext_fields={"offset": "8"})


@pytest.fixture
def cluster(rmq_cluster_factory):
    """A queue with ten messages, of which the last one was noted."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.send("orders", [f"{n}" for n in range(10)])
    return cluster


def compared(client, *, settle_ms):
    last = read_witnesses(client, {QUEUE: 9})[QUEUE]
    assert isinstance(last, Witness)
    return compare(
        client,
        {QUEUE: Noted(10, last)},
        {QUEUE: (0, 8)},
        done="the copy has written",
        anew="copy again",
        settle_ms=settle_ms,
    )


def test_a_broker_that_counts_late_is_waited_for(cluster):
    """After a restart the log had the messages, and the queue not yet."""
    ends = cluster.faults.observe(code=RequestCode.GET_MAX_OFFSET)
    cluster.faults.add(BEHIND, code=RequestCode.GET_MAX_OFFSET, times=2)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        assert compared(client, settle_ms=600_000) == ({}, [])
    assert ends.seen == 3


def test_the_wait_for_a_late_count_ends(cluster):
    clock = ManualClock()
    ends = cluster.faults.observe(
        code=RequestCode.GET_MAX_OFFSET, on_request=lambda _: clock.advance(1_000)
    )
    cluster.faults.add(BEHIND, code=RequestCode.GET_MAX_OFFSET)
    with (
        Client(ClientConfig(namesrv=(cluster.namesrv,)), clock=clock) as client,
        pytest.raises(RefusedError, match="ends at 8, but the copy has written up to"),
    ):
        compared(client, settle_ms=2_000)
    assert ends.seen == 2


def test_without_such_a_wait_the_end_is_not_asked_for_again(cluster):
    ends = cluster.faults.observe(code=RequestCode.GET_MAX_OFFSET)
    with (
        Client(ClientConfig(namesrv=(cluster.namesrv,))) as client,
        pytest.raises(RefusedError, match="ends at 8"),
    ):
        compared(client, settle_ms=0)
    assert ends.seen == 0


def test_a_broker_that_fails_during_the_wait_is_an_error_of_its_queue(cluster):
    refused = faults.answer(16, "no permission")
    cluster.faults.add(refused, code=RequestCode.GET_MAX_OFFSET)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        found = compared(client, settle_ms=600_000)
    assert isinstance(found.errors[QUEUE], DeniedError)
