"""Letters are read whole, in order and from their ranges alone.

Those of a write-only topic are looked up one by one, by the entries of its queue.
"""

from __future__ import annotations

import json
import re

import pytest

from rmqcli import Admin
from rmqcli.admin.dlq.read import LetterReader, find_letters
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.errors import PartialError
from rmqcli.model import MessageQueue
from rmqcli.position import AtOffset
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.decode import DecodeFailure, StoredMessage
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.admin.dlq.letters import client_of

TOPIC = "%DLQ%billing"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
ENTRIES = RequestCode.QUERY_CONSUME_QUEUE
VIEW = RequestCode.VIEW_MESSAGE_BY_ID


@pytest.fixture
def start(rmq_cluster_factory):
    """Starts a cluster with letters whose bodies are their offsets."""

    def start(count, *, perm=2, **options):
        cluster = rmq_cluster_factory(queues=1, **options)
        cluster.create_group("billing")
        cluster.create_topic(TOPIC, queues=1, perm=perm)
        for offset in range(count):
            cluster.send(TOPIC, [Seed(body=b"%d" % offset)], broker="broker-a")
        return cluster

    return start


@pytest.fixture
def read():
    """Reads the letters of a range that is found before `meanwhile` is called.

    Returns the bodies and the reader.
    """

    def read(cluster, *, meanwhile=lambda: None, is_stopped=None, filters=(), **where):
        with client_of(cluster) as client:
            found = find_letters(client, "billing", **where)
            meanwhile()
            options = {} if is_stopped is None else {"is_stopped": is_stopped}
            wanted = TailFilter(**dict(filters))
            reader = LetterReader(client, found, wanted, **options)
            bodies = [
                each.body.decode()
                for _, some in reader
                for each in some
                if isinstance(each, StoredMessage)
            ]
        return bodies, reader

    return read


def stored(offset, body=b"other"):
    """The bytes of a letter that a broker stores at an offset."""
    fields = MessageFields(topic=TOPIC, body=body, queue_id=0, queue_offset=offset)
    return encode_message(fields)


#: a letter at offset 0 whose properties are longer than all of it
ILLEGIBLE = stored(0)[:-2] + b"\xff\xff"


def entries(*offsets, low, high):
    """An answer to QUERY_CONSUME_QUEUE, with these places in the commit log."""
    rows = [{"physicOffset": o, "physicSize": 1, "tagsCode": 0} for o in offsets]
    body = {"minQueueIndex": low, "maxQueueIndex": high, "queueData": rows}
    return faults.answer(0, body=json.dumps(body).encode())


def test_letters_are_looked_up_sixty_four_at_a_time(start, read):
    cluster = start(130)
    asked = cluster.faults.observe(code=ENTRIES)
    bodies, reader = read(cluster)
    assert bodies == [str(offset) for offset in range(130)]
    assert reader.scanned == 130
    assert (reader.missing, reader.abandoned) == ({}, {})
    fields = [each.command.ext_fields for each in asked.requests]
    assert [(each["index"], each["count"]) for each in fields] == [
        ("0", "64"),
        ("64", "64"),
        ("128", "2"),
    ]


@pytest.mark.parametrize("perm", [2, 6], ids=["write-only", "readable"])
def test_letters_that_were_removed_meanwhile_are_missing(start, read, perm):
    cluster = start(5, perm=perm)
    broker = cluster.broker()
    bodies, reader = read(cluster, meanwhile=lambda: broker.trim(TOPIC, 2))
    assert bodies == ["2", "3", "4"]
    assert (reader.missing, reader.abandoned) == ({QUEUE: [(0, 2)]}, {})


@pytest.mark.parametrize("perm", [2, 6], ids=["write-only", "readable"])
def test_of_removed_letters_only_those_of_the_range_are_missing(start, read, perm):
    cluster = start(5, perm=perm)
    broker = cluster.broker()
    bodies, reader = read(
        cluster, meanwhile=lambda: broker.trim(TOPIC, 4), end=AtOffset(3)
    )
    assert (bodies, reader.missing) == ([], {QUEUE: [(0, 3)]})


@pytest.mark.parametrize("low", [0, 1])
def test_a_broker_without_an_entry_that_it_should_have_is_no_end(start, read, low):
    cluster = start(3)
    cluster.faults.add(entries(low=low, high=3), code=ENTRIES)
    bodies, reader = read(cluster, start=AtOffset(1))
    assert (bodies, reader.missing) == ([], {})
    error = reader.abandoned[QUEUE]
    assert isinstance(error, PartialError)
    assert "has no entry for offset 1" in error.message


def test_entries_after_the_range_are_no_letters_of_it(start, read):
    cluster = start(1)
    sent = [cluster.send(TOPIC, [body])[0] for body in "bc"]
    places = [decode_offset_msg_id(each.offset_msg_id) for each in sent]
    offsets = [each.commit_log_offset for each in places]
    cluster.faults.next(entries(*offsets, low=0, high=3), code=ENTRIES)
    bodies, _ = read(cluster, start=AtOffset(1), end=AtOffset(2))
    assert bodies == ["b"]


@pytest.mark.parametrize(
    "answer",
    [
        stored(1),
        stored(0) + stored(1),
        b"",
    ],
    ids=["another letter", "two letters", "no letter"],
)
def test_a_letter_that_is_not_the_one_of_the_entry_is_not_believed(start, read, answer):
    cluster = start(2)
    cluster.faults.next(faults.answer(0, body=answer), code=VIEW)
    bodies, reader = read(cluster)
    assert bodies == []
    assert "returned another message for offset" in reader.abandoned[QUEUE].message


def test_a_queue_whose_letter_is_not_told_does_not_end_the_next(
    rmq_cluster_factory, read
):
    cluster = rmq_cluster_factory(queues=1, brokers=2)
    cluster.create_group("billing")
    cluster.create_topic(TOPIC, queues=1, perm=2)
    for name in ("broker-a", "broker-b"):
        cluster.send(TOPIC, [name], broker=name)
    cluster.faults.add(faults.answer(1, "busy"), code=VIEW, broker="broker-a")
    bodies, reader = read(cluster)
    assert bodies == ["broker-b"]
    assert list(reader.abandoned) == [QUEUE]
    assert "busy" in reader.abandoned[QUEUE].message


def test_a_broker_may_show_fewer_entries_than_it_is_asked_for(start, read):
    cluster = start(1)
    places = [decode_offset_msg_id(cluster.send(TOPIC, ["b"])[0].offset_msg_id)]
    places += [decode_offset_msg_id(cluster.send(TOPIC, ["c"])[0].offset_msg_id)]
    first = entries(places[0].commit_log_offset, low=0, high=3)
    cluster.faults.next(first, code=ENTRIES)
    bodies, reader = read(cluster, start=AtOffset(1))
    assert (bodies, reader.missing) == (["b", "c"], {})


@pytest.mark.parametrize("perm", [2, 6], ids=["write-only", "readable"])
def test_a_reader_that_is_stopped_reads_no_further_letter(start, read, perm):
    cluster = start(100, perm=perm)
    asked = cluster.faults.observe(code=ENTRIES)
    bodies, reader = read(cluster, is_stopped=lambda: True, filters={"key": "k"})
    assert (bodies, reader.scanned, len(asked.requests)) == ([], 0, 0)


@pytest.mark.parametrize("perm", [2, 6], ids=["write-only", "readable"])
def test_filtered_letters_count_as_read(start, read, perm):
    cluster = start(3, perm=perm)
    bodies, reader = read(cluster, filters={"pattern": re.compile("1")})
    assert (bodies, reader.scanned) == (["1"], 3)


@pytest.mark.parametrize(
    "filters", [{}, {"pattern": re.compile("o")}], ids=["all", "filtered"]
)
def test_records_outside_the_range_are_no_letters_of_it(start, read, filters):
    """A broker may answer a pull with the whole batch in which an offset lies."""
    cluster = start(4, perm=6)
    body = b"".join(stored(each, b"o%d" % each) for each in range(4))
    numbers = {"nextBeginOffset": "4", "minOffset": "0", "maxOffset": "4"}
    numbers["suggestWhichBrokerId"] = "0"
    cluster.faults.add(
        faults.answer(0, body=body, ext_fields=numbers), code=RequestCode.PULL_MESSAGE
    )
    bodies, reader = read(cluster, start=AtOffset(1), end=AtOffset(3), filters=filters)
    assert (bodies, reader.scanned) == (["o1", "o2"], 2)


@pytest.mark.parametrize("perm", [2, 6], ids=["write-only", "readable"])
def test_the_last_letters_are_no_more_than_there_are(start, perm):
    cluster = start(3, perm=perm)
    with client_of(cluster) as client:
        for last, places in [(1, (2, 3)), (3, (0, 3)), (4, (0, 3))]:
            (found,) = find_letters(client, "billing", last=last).ranges
            assert (found.start, found.end) == places


@pytest.mark.parametrize("options", [{}, {"brokers": 2}])
def test_an_exact_limit_is_no_cut_and_one_less_is(start, options):
    """Also where the letter that is too many lies on another broker."""
    cluster = start(2, **options)
    cluster.send(TOPIC, ["c"], broker="broker-b" if options else "broker-a")
    with Admin(namesrv=cluster.namesrv) as admin:
        whole = admin.read_dead_letters("billing", limit=3)
        some = admin.read_dead_letters("billing", limit=2)
    assert (len(whole.letters), whole.is_cut) == (3, False)
    assert (len(some.letters), some.is_cut) == (2, True)


@pytest.mark.parametrize(
    "filters", [{}, {"pattern": re.compile("1")}], ids=["all", "filtered"]
)
def test_letters_that_cannot_be_read_are_not_left_out(start, read, filters):
    cluster = start(3)
    cluster.faults.next(faults.answer(0, body=ILLEGIBLE), code=VIEW)
    with client_of(cluster) as client:
        found = find_letters(client, "billing")
        reader = LetterReader(client, found, TailFilter(**filters))
        letters = [each for _, some in reader for each in some]
    assert isinstance(letters[0], DecodeFailure)
    assert [each.queue_offset for each in letters] == ([0, 1] if filters else [0, 1, 2])
    assert reader.scanned == 3


@pytest.mark.parametrize("body", [ILLEGIBLE, b"x"], ids=["offset known", "nothing"])
def test_letters_that_cannot_be_read_are_counted(start, body):
    cluster = start(3)
    cluster.faults.next(faults.answer(0, body=body), code=VIEW)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.read_dead_letters("billing")
    assert [each.queue_offset for each in found.letters] == [1, 2]
    assert (found.undecodable, found.missing, found.errors) == (1, 0, {})


def test_letters_that_are_gone_are_counted_as_missing(start):
    """The broker removes them between the look at the queue's ends and the reading."""
    cluster = start(3)
    cluster.faults.add(entries(low=2, high=3), code=ENTRIES, times=1)
    with Admin(namesrv=cluster.namesrv) as admin:
        found = admin.read_dead_letters("billing", from_="1")
    assert [each.queue_offset for each in found.letters] == [2]
    assert (found.undecodable, found.missing, found.errors) == (0, 1, {})
