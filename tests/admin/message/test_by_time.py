"""Ids that no index knows are found by their time, and no more is said than was read.

The ids of the first test were taken from RocketMQ's tests and documents, and from
Java's producers on IPv4 and IPv6; their times are read from their digits by hand.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rmqcli.admin.message import by_time
from rmqcli.admin.message.find import find_messages, missing_message
from rmqcli.api.client import Client
from rmqcli.broker.cluster.seeding import Seed
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import ExitCode, NotFoundError, PartialError
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock, faults
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.ids import made_at_ms
from tests.admin.message.damage import damage_record

HOUR_MS = 3_600_000
NOT_FOUND = faults.answer(22, "can not find message, maybe time range not correct")
#: 2026-03-15T12:00:00Z
NOON_MS = 1_773_576_000_000


def ms(text):
    return int(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "until", "moments"),
    [
        # 0x20D8340B ms are 6 days, 9:04:00.011; RocketMQ's own test of March 2017
        (
            "AC1F0B01327B5B2133B120D8340B3D7D",
            "2017-03-08T00:00:00Z",
            ["2017-03-07T09:04:00.011Z", "2017-02-07T09:04:00.011Z"],
        ),
        # the same, asked for in the first days of a month
        (
            "AC1F0B01327B5B2133B120D8340B3D7D",
            "2017-04-02T00:00:00Z",
            ["2017-03-07T09:04:00.011Z", "2017-02-07T09:04:00.011Z"],
        ),
        # 0x99CF1480 ms are 29 days, 20:48:05.248: no February has them
        (
            "AC1F0B01327B5B2133B199CF14803D7D",
            "2026-04-15T00:00:00Z",
            ["2026-03-30T20:48:05.248Z", "2026-01-30T20:48:05.248Z"],
        ),
        # IPv6: 16 bytes of address before the same digits
        (
            "FE80000000000000000000000000000A327B5B2133B120D8340B3D7D",
            "2017-03-08T00:00:00Z",
            ["2017-03-07T09:04:00.011Z", "2017-02-07T09:04:00.011Z"],
        ),
        # gRPC, from the documents of RocketMQ's PHP client: 0x024CCDBE s since 2021
        (
            "0156F7E71C361B21BC024CCDBE00000000",
            "2026-01-01T00:00:00Z",
            ["2022-03-23T14:50:38Z"],
        ),
        ("0156F7E71C361B21BC024CCDBE00000000", "2022-01-01T00:00:00Z", []),
        ("0256F7E71C361B21BC024CCDBE00000000", "2026-01-01T00:00:00Z", []),
        ("order-1", "2026-01-01T00:00:00Z", []),
        ("Z" * 34, "2026-01-01T00:00:00Z", []),
    ],
)
def test_an_id_says_when_it_was_made(text, until, moments):
    found = [
        datetime.fromtimestamp(each / 1000, UTC)
        for each, _ in zip(made_at_ms(text, until_ms=ms(until)), range(2), strict=False)
    ]
    assert found == [datetime.fromisoformat(each) for each in moments]


def id_of(text, zone_hours=0):
    """The remoting id that a client makes at a time of March 2026, in its zone."""
    since_ms = ms(text) + zone_hours * HOUR_MS - ms("2026-03-01T00:00:00Z")
    return f"0A000001000100000001{int(since_ms):08X}0001"


def grpc_id_of(text, zone_hours=0):
    since_ms = ms(text) + zone_hours * HOUR_MS - ms("2021-01-01T00:00:00Z")
    return f"010A0000000001ABCD{int(since_ms) // 1000:08X}00000001"


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(
        brokers=2, queues=2, clock=ManualClock(now_ms=NOON_MS - 48 * HOUR_MS)
    )
    cluster.create_topic("orders")
    return cluster


def without_index(cluster, *brokers):
    for name in brokers:
        cluster.faults.add(NOT_FOUND, code=RequestCode.QUERY_MESSAGE, broker=name)


def store(cluster, body, msg_id=None, broker="broker-b"):
    seed = Seed(body=body, properties={"UNIQ_KEY": msg_id} if msg_id else {})
    (seeded,) = cluster.send("orders", [seed], broker=broker, queue_id=0)
    return seeded


def find(cluster, msg_id, *, timeout_ms=30_000):
    """Search as `Admin.find_messages` does; return what it found and what it said."""
    said: list[str] = []
    config = ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=timeout_ms)
    # Without a limit of time that a manual clock reaches.
    clock = cluster.options.clock if timeout_ms == 30_000 else SYSTEM_CLOCK
    with Client(config, clock=clock) as client:
        found = find_messages(client, msg_id, "orders", on_search=said.append)
    return found, said


def fill(cluster, msg_id, *, hours=0.0):
    """Store messages for two days, and one with the id so many hours after noon."""
    for n in range(4):
        store(cluster, b"before %d" % n, broker="broker-" + "ab"[n % 2])
        cluster.advance(int((48 + hours) * HOUR_MS) // 4)
    store(cluster, b"wanted", msg_id)
    cluster.advance(4 * HOUR_MS)
    store(cluster, b"after")


NOON = "2026-03-15T12:00:00Z"


@pytest.mark.parametrize(
    ("zone_hours", "hours_late"),
    [(0, 0), (8, 1), (14, -1), (-12, 2.9), (5.75, 0), (-12, -2.9), (14, 2.9)],
)
@pytest.mark.parametrize("make", [id_of, grpc_id_of])
@pytest.mark.parametrize("at_once_max", [50_000, 0])
def test_an_id_is_found_whatever_the_zone_of_its_client_and_however_clocks_differ(
    cluster, monkeypatch, make, zone_hours, hours_late, at_once_max
):
    monkeypatch.setattr(by_time, "_AT_ONCE_MAX", at_once_max)
    msg_id = make(NOON, zone_hours)
    fill(cluster, msg_id, hours=hours_late)
    without_index(cluster, "broker-a", "broker-b")
    for text in (msg_id, msg_id.lower()):
        found, said = find(cluster, text)
        assert [each.body for each in found.messages] == [b"wanted"]
        assert found.messages[0].store_timestamp_ms == NOON_MS + hours_late * HOUR_MS
        assert said[0].startswith("reading ")
        assert " of orders stored between 2026-03-1" in said[0]


def test_an_id_of_the_month_before_is_found(rmq_cluster_factory):
    """Of a remoting id only the day of the month and the time are known."""
    clock = ManualClock(now_ms=ms("2026-02-26T10:00:00Z"))
    cluster = rmq_cluster_factory(brokers=2, queues=2, clock=clock)
    cluster.create_topic("orders")
    # 25 days and 10 hours are 2,196,000,000 ms, 0x82E44500
    msg_id = "0A00000100010000000182E445000001"
    store(cluster, b"wanted", msg_id)
    for _ in range(20):
        cluster.advance(24 * HOUR_MS)
        store(cluster, b"later")
    without_index(cluster, "broker-a", "broker-b")
    found, _ = find(cluster, msg_id)
    assert [each.body for each in found.messages] == [b"wanted"]
    assert found.by_time.count < 4


def test_what_was_read_is_said_and_no_more(cluster):
    """Four of its five messages are within reach of the time, in any zone."""
    fill(cluster, None)
    store(cluster, b"now")
    without_index(cluster, "broker-b")
    found, _ = find(cluster, id_of("2026-03-15T14:00:00Z"))
    assert (found.messages, found.without_index) == ([], ["broker-b"])
    assert found.by_time.count == 4
    # from 14 + 3 hours before the time, to now
    assert str(found.by_time) == (
        "4 messages stored between 2026-03-14T21:00:00.000Z and"
        " 2026-03-15T16:00:00.000Z"
    )
    error = missing_message(found, "ID")
    assert isinstance(error, PartialError)
    assert error.message == (
        "ID was not found: broker-b cannot look it up: the index is off, late, or of"
        f" another kind; it is not in what was read by its time: {found.by_time}"
    )


def test_a_second_message_with_the_id_is_found_or_said_to_be_unread(
    cluster, monkeypatch
):
    """As after a redrive; too many messages are read only up to the first one."""
    msg_id = id_of(NOON)
    fill(cluster, msg_id)
    store(cluster, b"again", msg_id)
    without_index(cluster, "broker-b")
    found, _ = find(cluster, msg_id)
    assert [each.body for each in found.messages] == [b"wanted", b"again"]
    assert (found.by_time.unread, found.unsearched) == (0, None)
    monkeypatch.setattr(by_time, "_AT_ONCE_MAX", 0)
    found, _ = find(cluster, msg_id)
    assert [each.body for each in found.messages] == [b"wanted"]
    assert found.by_time.count == 1
    assert found.unsearched.startswith("by its time, this was read: 1 message stored")
    assert found.unsearched.endswith(
        "; 3 messages stored further from its time were not read"
    )


def test_a_message_beyond_reach_of_the_time_in_its_id_is_not_said_to_be_missing(
    cluster,
):
    msg_id = id_of("2026-03-13T12:30:00Z")
    fill(cluster, msg_id)
    without_index(cluster, "broker-a", "broker-b")
    found, _ = find(cluster, msg_id)
    assert found.messages == []
    assert isinstance(missing_message(found, msg_id), PartialError)


def test_too_many_messages_are_read_only_close_to_the_time(cluster, monkeypatch):
    monkeypatch.setattr(by_time, "READ_MAX", 6)
    monkeypatch.setattr(by_time, "_AT_ONCE_MAX", 6)
    msg_id = id_of(NOON)
    for n in range(30):
        store(cluster, b"%d" % n)
        cluster.advance(HOUR_MS * 48 // 30)
    without_index(cluster, "broker-b")
    found, _ = find(cluster, msg_id)
    assert found.messages == []
    assert found.by_time.is_cut
    assert found.by_time.count <= 6
    assert str(found.by_time).endswith("; no more than 6 messages are read")
    store(cluster, b"wanted", msg_id)
    found, _ = find(cluster, msg_id)
    assert [each.body for each in found.messages] == [b"wanted"]


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_read(cluster):
    msg_id = id_of(NOON)
    fill(cluster, msg_id)
    without_index(cluster, "broker-b")
    cluster.broker("broker-a").hang()
    found, _ = find(cluster, msg_id, timeout_ms=500)
    assert [each.body for each in found.messages] == [b"wanted"]
    assert list(found.errors) == ["broker-a"]
    found, _ = find(cluster, id_of("2026-03-15T12:00:01Z"), timeout_ms=500)
    error = missing_message(found, "ID")
    assert error.exit_code is ExitCode.PARTIAL
    assert error.message.startswith("ID was not found: broker-a did not answer: ")


def test_a_broker_that_stops_answering_while_it_is_read_is_named(cluster):
    fill(cluster, None)
    without_index(cluster, "broker-a", "broker-b")
    cluster.faults.add(
        faults.answer(1, "broken"), code=RequestCode.PULL_MESSAGE, broker="broker-b"
    )
    found, _ = find(cluster, id_of(NOON), timeout_ms=500)
    assert list(found.errors) == ["broker-b"]
    assert found.messages == []


def test_a_damaged_record_that_has_the_id_is_counted(cluster):
    msg_id = id_of(NOON)
    fill(cluster, msg_id)
    for each in (None, msg_id, None):
        store(cluster, b"late", each, broker="broker-a")
    without_index(cluster, "broker-a", "broker-b")
    damage_record(cluster, MessageQueue("orders", "broker-a", 0), msg_id)
    found, _ = find(cluster, msg_id)
    assert [each.body for each in found.messages] == [b"wanted"]
    assert (found.damaged, found.is_complete) == ({"broker-a": 1}, False)
    assert found.unsearched == "1 record on broker-a cannot be read"


def test_an_index_that_has_a_gap_at_the_time_of_the_id_is_not_believed(cluster):
    """As where an operator deleted old index files: the newest messages are known."""
    msg_id = id_of(NOON)
    fill(cluster, msg_id)
    code = RequestCode.QUERY_MESSAGE
    # It finds neither the id nor what was stored beside it, but the newest message.
    cluster.faults.add(NOT_FOUND, code=code, broker="broker-b", times=1)
    cluster.faults.add(NOT_FOUND, code=code, broker="broker-b", nth=2)
    found, _ = find(cluster, msg_id)
    assert [each.body for each in found.messages] == [b"wanted"]


def test_where_all_indexes_answer_nothing_is_read(cluster):
    fill(cluster, None)
    found, said = find(cluster, id_of(NOON))
    assert (found.messages, found.by_time, said) == ([], None, [])
    assert found.is_complete
    assert isinstance(missing_message(found, "ID"), NotFoundError)


def test_an_empty_topic_has_nothing_to_read(cluster):
    without_index(cluster, "broker-a", "broker-b")
    found, said = find(cluster, id_of(NOON))
    assert (found.messages, found.without_index, said) == ([], [], [])
    assert found.is_complete
