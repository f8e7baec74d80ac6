"""Members of proxies in cluster mode are read from what their proxies wrote.

A broker is played by hand here: the records of two minutes may be many, and brokers'
clocks and records differ.
"""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.lag.proxied import (
    ProxyHeartbeat,
    find_proxied_members,
    proxied_members,
    read_clock_ahead_ms,
    read_proxy_heartbeats,
)
from rmqcli.api.client import Client
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.config import ClientConfig
from rmqcli.errors import DeniedError, TransportError
from rmqcli.model import MessageQueue
from rmqcli.tasks import Request
from rmqcli.testing import ManualClock
from rmqcli.wire.bodies.proxy import HeartbeatSyncerData
from rmqcli.wire.bodies.stats import TopicOffset
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.pull_answer import PullAnswer, PullStatus

QUEUE = MessageQueue("DefaultHeartBeatSyncerTopic", "broker-a", 3)
NOW_MS = 1_795_731_563_000
FOUND, NO_NEW = PullStatus.FOUND, PullStatus.NO_NEW_MSG


def record(offset, *, at_ms=NOW_MS, body=None, **fields):
    data = {"clientId": "c@1@1@a", "group": "G", "heartbeatType": "REGISTER"} | fields
    return encode_message(
        MessageFields(
            topic=QUEUE.topic,
            body=json.dumps(data).encode() if body is None else body,
            queue_id=QUEUE.queue_id,
            queue_offset=offset,
            store_timestamp_ms=at_ms,
        )
    )


def answer(next_begin, *records, status=FOUND):
    return PullAnswer(status, next_begin, 0, 99, 0, b"".join(records))


def read(answers, *, ends, found=0, clock_ahead_ms=0):
    """Return what was read, what was searched for, and where pulls began.

    `answers` gives the answer to a pull from an offset on.
    """
    low, high = ends
    table = {QUEUE: TopicOffset(min_offset=low, max_offset=high)}
    task = read_proxy_heartbeats(
        "b:1", table, now_ms=NOW_MS, clock_ahead_ms=clock_ahead_ms
    )
    searched: list[int] = []
    pulled: list[int] = []
    reply: object = None
    while True:
        try:
            asked = task.send(reply)
        except StopIteration as end:
            return end.value, searched, pulled
        assert isinstance(asked, Request)
        assert asked.address == "b:1"
        assert asked.call.ext_fields["queueId"] == "3"
        if asked.call.code == RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
            searched.append(int(asked.call.ext_fields["timestamp"]))
            reply = found
        else:
            pulled.append(int(asked.call.ext_fields["queueOffset"]))
            reply = answers(pulled[-1])


def test_pages_are_read_until_the_end_that_the_queue_had():
    pages = {
        5: answer(7, record(5), record(6, clientId="d@1@1@a")),
        7: answer(8, record(7, clientId="e@1@1@a")),
    }
    found, searched, pulled = read(pages.__getitem__, ends=(0, 8), found=5)
    assert sorted(found) == [("G", "c@1@1@a"), ("G", "d@1@1@a"), ("G", "e@1@1@a")]
    assert searched == [NOW_MS - 120_000]
    assert pulled == [5, 7]


def test_a_broker_that_names_no_later_offset_is_not_asked_for_ever():
    found, _, pulled = read(lambda at: answer(at, record(at)), ends=(0, 9), found=5)
    assert (sorted(found), pulled) == ([("G", "c@1@1@a")], [5])


def test_a_page_of_one_record_that_names_the_next_offset_is_not_the_last():
    pages = {0: answer(1, record(0)), 1: answer(2, record(1))}
    assert read(pages.__getitem__, ends=(0, 2))[2] == [0, 1]


def test_of_very_many_records_the_last_16_000_are_read_however_short_the_pages_are():
    _, _, pulled = read(lambda at: answer(at + 1), ends=(0, 20_000))
    assert pulled == list(range(4_000, 20_000))


@pytest.mark.parametrize(
    ("ends", "pulled"), [((0, 0), []), ((8, 8), []), ((7, 8), [7])]
)
def test_a_queue_without_records_is_not_read(ends, pulled):
    assert read(lambda at: answer(at, status=NO_NEW), ends=ends, found=7)[2] == pulled


def test_records_are_dated_by_our_clock():
    page = answer(1, record(0, at_ms=NOW_MS + 5_000), status=NO_NEW)
    found, searched, _ = read(lambda _: page, ends=(0, 1), clock_ahead_ms=5_000)
    assert found["G", "c@1@1@a"].at_ms == NOW_MS
    assert searched == [NOW_MS + 5_000 - 120_000]


def test_what_is_no_heartbeat_of_a_group_tells_nothing_of_the_others():
    records = (
        record(0, body=b"{"),
        record(1, group=None),
        record(2, clientId="d@1@1@a"),
    )
    page = answer(3, *records, status=NO_NEW)
    assert list(read(lambda _: page, ends=(0, 3))[0]) == [("G", "d@1@1@a")]


@pytest.mark.parametrize(
    ("times", "is_online"), [((1, 0), True), ((0, 1), False), ((1, 1), False)]
)
def test_the_newest_record_of_a_member_counts_and_of_two_the_later(times, is_online):
    """Queues are read one after the other, so that a later record may be older."""
    came, left = (NOW_MS - 1 + each for each in times)
    page = answer(
        2,
        record(0, at_ms=came),
        record(1, at_ms=left, heartbeatType="UNREGISTER"),
        status=NO_NEW,
    )
    found = read(lambda _: page, ends=(0, 2))[0]
    assert found["G", "c@1@1@a"].is_online is is_online


def beat(at_ms, *, client_id="c@1@1@a", group="G", kind="REGISTER", **fields):
    data = HeartbeatSyncerData(
        group=group, client_id=client_id, heartbeat_type=kind, **fields
    )
    return {(group, client_id): ProxyHeartbeat(at_ms, data)}


def members(*of_brokers):
    found = proxied_members(of_brokers, now_ms=NOW_MS)
    return {
        group: [each.client_id for each in connection.connections]
        for group, (connection, _) in found.items()
    }


def test_a_member_is_forgotten_two_minutes_after_its_last_record():
    assert members(beat(NOW_MS - 119_999)) == {"G": ["c@1@1@a"]}
    assert members(beat(NOW_MS - 120_000)) == {}


def test_records_of_several_brokers_are_one_history():
    came, left = beat(NOW_MS - 9), beat(NOW_MS - 8, kind="UNREGISTER")
    assert members(came, left) == members(left, came) == {}
    back = beat(NOW_MS - 7)
    assert members(back, left) == members(left, back) == {"G": ["c@1@1@a"]}
    at_once = beat(NOW_MS - 8)
    assert members(left, at_once) == {"G": ["c@1@1@a"]}


def test_each_group_has_its_own_members_sorted():
    given = (
        beat(NOW_MS, client_id="z@1@1@a"),
        beat(NOW_MS, client_id="b@1@1@a"),
        beat(NOW_MS, group="H"),
    )
    assert members(*given) == {"G": ["b@1@1@a", "z@1@1@a"], "H": ["c@1@1@a"]}


@pytest.mark.parametrize(
    ("channel", "address"),
    [
        ('{"remoteAddress":"10.0.0.7:5"}', "10.0.0.7:5"),
        ("{}", ""),
        ("{", ""),
        (None, ""),
    ],
)
def test_a_member_without_a_readable_channel_has_no_address(channel, address):
    found = proxied_members([beat(NOW_MS, channel_data=channel)], now_ms=NOW_MS)
    (member,) = found["G"][0].connections
    assert member.client_addr == address
    assert found["G"][1] == {}  # without the proxy's id it has no proxy either


def clock_ahead(outcome):
    """Return how far ahead the broker's clock is found, 40 ms after it was asked."""
    clock = ManualClock(now_ms=NOW_MS)
    task = read_clock_ahead_ms("b:1", clock)
    asked = next(task)
    assert isinstance(asked, Request)
    assert asked.call.code == RequestCode.GET_BROKER_RUNTIME_INFO
    clock.advance(40)
    resume = task.send if isinstance(outcome, dict) else task.throw
    with pytest.raises(StopIteration) as end:
        resume(outcome)
    return end.value.value


def runtime(boot_ms):
    return {"runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"} | {
        "bootTimestamp": str(boot_ms)
    }


@pytest.mark.parametrize(
    ("table", "ahead_ms"),
    [
        (runtime(NOW_MS + 60_040), 60_000),
        (runtime(NOW_MS - 59_960), -60_000),
        # Less than a second: the broker's time is only known to the second.
        (runtime(NOW_MS + 540), 0),
        (runtime(NOW_MS - 1_300), 0),
        (runtime(NOW_MS), 0),
        ({}, 0),
    ],
)
def test_a_clock_counts_as_ahead_from_one_second_on(table, ahead_ms):
    assert clock_ahead(table) == ahead_ms


def test_a_broker_that_does_not_tell_its_time_counts_as_in_time():
    assert clock_ahead(DeniedError("no", code=16, name="NO_PERMISSION")) == 0


def test_a_broker_that_does_not_answer_has_no_clock():
    task = read_clock_ahead_ms("b:1", ManualClock(now_ms=NOW_MS))
    next(task)
    with pytest.raises(TransportError):
        task.throw(TransportError("no answer", address="b:1"))


def test_members_are_unknown_where_a_broker_with_their_topic_has_only_slaves():
    """It was left out, and members whose proxies had written there were offline."""
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.send(QUEUE.topic, ["{}"], broker="broker-b")
        cluster.add_slave("broker-b")
        cluster.broker("broker-b").kill()
        with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
            found = find_proxied_members(client)
    assert found.unknown_because == (
        "members behind proxies are not known: broker-b: broker-b currently has no"
        " master, only slaves"
    )
