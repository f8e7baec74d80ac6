"""A message of a queue is known again by its place, its ID and its store time."""

from __future__ import annotations

import pytest

from rmqcli.admin.witness import (
    Noted,
    Witness,
    check_written_after,
    compare,
    note_ends,
    read_witnesses,
)
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import DeniedError, RefusedError
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.record import StoredMessage


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


@pytest.mark.parametrize(
    ("msg_id", "noted"),
    [
        ("A" * 64, "A" * 64),
        ("A" * 64 + "B", "A" * 64),
        ("\u00c5", None),
        ("A\n", None),
    ],
)
def test_an_id_is_noted_if_any_file_can_hold_it(msg_id, noted):
    """What follows its first 64 characters is left out."""
    record = encode_message(
        MessageFields(
            topic="orders",
            body=b"x",
            queue_offset=4,
            store_timestamp_ms=70,
            properties={"UNIQ_KEY": msg_id},
        )
    )
    (message,) = decode_messages(record)
    assert isinstance(message, StoredMessage)
    assert Witness.of(message) == Witness(4, noted, 70)


QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.mark.parametrize("offset", [9, 8, 0])
def test_what_was_written_is_not_stored_before_what_was_written_earlier(offset):
    with pytest.raises(RefusedError, match=f"stored a message at offset {offset}, but"):
        check_written_after(QUEUE, offset, 9, done="wrote", anew="copy again")


def test_what_is_stored_behind_the_last_message_is_taken():
    check_written_after(QUEUE, 10, 9, done="wrote", anew="copy again")


#: what a broker answers that has not counted its last two messages yet
BEHIND = faults.answer(0, ext_fields={"offset": "8"})


@pytest.fixture
def cluster(rmq_cluster_factory):
    """A queue with ten messages, of which the last one was noted."""
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders")
    cluster.send("orders", [f"{n}" for n in range(10)])
    return cluster


def compared(client, *, settle_ms=0, until=10, bounds=(0, 8), is_noted=True):
    last = read_witnesses(client, {QUEUE: 9})[QUEUE]
    assert isinstance(last, Witness)
    return compare(
        client,
        {QUEUE: Noted(until, last if is_noted else None)},
        {QUEUE: bounds},
        done="the copy has written",
        anew="copy again",
        settle_ms=settle_ms,
    )


def test_a_queue_is_proven_by_its_last_message_if_it_has_no_other(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        assert compared(client, bounds=(9, 10)) == ({}, [])
        with pytest.raises(RefusedError, match="has no message any more by which"):
            compared(client, bounds=(9, 10), is_noted=False)
        # Everything that counts as done is deleted, so nothing can be mistaken for it.
        assert compared(client, bounds=(10, 10)) == ({}, [QUEUE])
        assert compared(client, bounds=(10, 10), is_noted=False) == ({}, [QUEUE])


def test_an_end_that_is_late_enough_is_not_asked_for_again(cluster):
    ends = cluster.faults.observe(code=RequestCode.GET_MAX_OFFSET)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        assert compared(client, settle_ms=600_000, bounds=(0, 10)) == ({}, [])
    assert ends.seen == 0


def test_a_queue_does_not_end_before_the_message_that_was_noted(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        assert compared(client, until=5, bounds=(0, 10)) == ({}, [])
        with pytest.raises(RefusedError, match=r"ends at 9, but .* up to 10"):
            compared(client, until=5, bounds=(0, 9))


def test_the_end_of_an_empty_queue_is_noted_without_a_message(cluster):
    pulls = cluster.faults.observe(code=RequestCode.PULL_MESSAGE)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        assert note_ends(client, {QUEUE: (10, 10)}) == {QUEUE: Noted(10, None)}
        assert pulls.seen == 0
        (noted,) = note_ends(client, {QUEUE: (9, 10)}).values()
    assert isinstance(noted, Noted)
    assert noted.witness is not None
    assert (noted.until, noted.witness.queue_offset) == (10, 9)


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
