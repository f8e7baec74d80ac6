"""Positions of many queues: each is resolved, with few requests; groups must exist."""

from __future__ import annotations

import pytest

from rmqcli.admin.positions import (
    check_groups,
    format_range,
    resolve,
    resolve_each,
    resolve_ranges,
    resolve_ranges_each,
    resolve_times_each,
)
from rmqcli.api.calls.offset import update_consumer_offset
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import NoBrokerError, NotFoundError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.position import (
    Ago,
    AtGroup,
    AtNow,
    AtOffset,
    AtTime,
    Earliest,
    LastN,
    Latest,
    PlusN,
)
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.admin.reset.member import FakeMember

HOUR_MS = 3_600_000
FULL, HALF, EMPTY = (MessageQueue("T", "broker-a", each) for each in range(3))
QUEUES = [FULL, HALF, EMPTY]
LOST = MessageQueue("T", "broker-z", 0)


@pytest.fixture(params=["4.6.0", "5.5.0"])
def cluster(rmq_cluster_factory, request):
    """Three queues with 60, 30 and no messages."""
    cluster = rmq_cluster_factory(queues=3, like=request.param)
    cluster.create_topic("T")
    cluster.create_group("G")
    for queue_id, count in ((0, 60), (1, 30)):
        cluster.send("T", [b"%d" % n for n in range(count)], queue_id=queue_id)
    return cluster


@pytest.fixture
def client(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        yield client


def commit(cluster, client, group, queue, offset):
    call = update_consumer_offset(
        group, queue.topic, queue.queue_id, commit_offset=offset
    )
    client.invoke(cluster.broker().address, call)


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        (Earliest(), [0, 0, 0]),
        (Latest(), [60, 30, 0]),
        (AtOffset(25), [25, 25, 0]),
        (LastN(10), [50, 20, 0]),
        (PlusN(10), [10, 10, 0]),
        (AtNow(), [60, 30, 0]),
        (Ago(HOUR_MS), [0, 0, 0]),
        (AtTime(0, "1970"), [0, 0, 0]),
    ],
    ids=str,
)
def test_each_queue_has_its_own_offset(client, position, offsets):
    found = resolve(client, QUEUES, position)
    assert list(found) == QUEUES
    assert [each.offset for each in found.values()] == offsets


def test_a_range_is_counted_from_its_start_in_each_queue(client):
    ranges = resolve_ranges(client, QUEUES, LastN(20), PlusN(5))
    assert [format_range(each) for each in ranges.values()] == [
        "40 to 45, 5 messages",
        "10 to 15, 5 messages",
        "0 to 0, 0 messages; 5 is beyond the end (0)",
    ]
    backwards = resolve_ranges(client, [FULL], Latest(), Earliest())[FULL]
    assert (backwards.offsets.start, backwards.offsets.end) == (60, 60)


def test_some_queues_may_have_other_positions(client):
    found = resolve_each(client, QUEUES, Earliest(), own={HALF: LastN(1)})
    assert [getattr(each, "offset", None) for each in found.values()] == [0, 29, 0]
    ranges = resolve_ranges_each(
        client,
        [FULL, HALF],
        Earliest(),
        Latest(),
        own_starts={HALF: AtOffset(3)},
        own_ends={FULL: AtOffset(9)},
    )
    assert [format_range(each) for each in ranges.values()] == [
        "0 to 9, 9 messages",
        "3 to 30, 27 messages",
    ]


def test_several_times_are_found_in_each_queue(client):
    times = [0, 253_402_300_799_999]
    found = resolve_times_each(client, [FULL, HALF, LOST], times)
    assert [
        each if isinstance(each, RmqError) else [one.offset for one in each]
        for queue, each in found.items()
        if queue != LOST
    ] == [[0, 60], [0, 30]]
    assert isinstance(found[LOST], NotFoundError)


def test_each_request_is_sent_once_for_all_that_need_it(cluster, client):
    commit(cluster, client, "G", FULL, 7)
    seen = cluster.faults.observe(broker="broker-a")
    ranges = resolve_ranges(client, QUEUES, AtGroup("G"), AtNow())
    assert [each.offsets.start for each in ranges.values()] == [7, 0, 0]
    codes = [each.command.code for each in seen.requests]
    for code, times in (
        (RequestCode.GET_MIN_OFFSET, 3),
        (RequestCode.GET_MAX_OFFSET, 3),
        (RequestCode.GET_BROKER_RUNTIME_INFO, 1),
        (RequestCode.QUERY_CONSUMER_OFFSET, 3),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, 3),
    ):
        assert codes.count(code) == times
    assert codes.count(RequestCode.GET_ALL_CONSUMER_OFFSET) <= 1


def test_a_committed_offset_of_0_is_one_and_none_is_none(cluster, client):
    commit(cluster, client, "G", FULL, 7)
    commit(cluster, client, "G", HALF, 0)
    found = resolve(client, QUEUES, AtGroup("G"))
    assert [each.offset for each in found.values()] == [7, 0, None]


def test_a_queue_of_no_broker_is_an_error_of_its_own(client):
    found = resolve_each(client, [LOST, FULL], Latest())
    assert list(found) == [LOST, FULL]
    assert isinstance(found[LOST], NotFoundError)
    assert not isinstance(found[FULL], RmqError)
    with pytest.raises(NotFoundError):
        resolve(client, [FULL, LOST], Latest())


def test_no_broker_at_all_is_said_so(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("T")
    with Client(ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=300)) as client:
        client.route("T")
        cluster.broker().hang()
        with pytest.raises(NoBrokerError, match="no broker answers"):
            resolve(client, [FULL], Latest())
        cluster.broker().resume()


# --- groups ---

SETTINGS = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
OFFSETS = RequestCode.GET_ALL_CONSUMER_OFFSET
MEMBERS = RequestCode.GET_CONSUMER_CONNECTION_LIST


def test_a_group_that_no_broker_has_is_named(cluster, client):
    check_groups(client, QUEUES, [AtGroup("G"), None, Latest()])
    with pytest.raises(NotFoundError) as caught:
        check_groups(client, QUEUES, [AtGroup("G"), AtGroup("Gg")])
    assert caught.value.message == "group Gg does not exist"
    # It may be on a broker of which nothing is known.
    check_groups(client, [*QUEUES, LOST], [AtGroup("Gg")])


@pytest.mark.parametrize("code", [SETTINGS, OFFSETS, MEMBERS])
def test_a_group_may_exist_where_a_broker_does_not_tell(cluster, client, code):
    cluster.faults.add(faults.answer(1, "busy"), code=code)
    check_groups(client, QUEUES, [AtGroup("Gg")])


def test_a_group_exists_with_offsets_or_members_alone(cluster, client):
    commit(cluster, client, "G", FULL, 7)
    nothing = faults.answer(0, body=b'{"subscriptionGroupTable":{}}')
    cluster.faults.add(nothing, code=SETTINGS)
    check_groups(client, QUEUES, [AtGroup("G")])
    with FakeMember(cluster, "online"):
        check_groups(client, QUEUES, [AtGroup("online")])
    with pytest.raises(NotFoundError):
        check_groups(client, QUEUES, [AtGroup("nobody")])


def test_without_a_group_in_a_position_nothing_is_asked(cluster, client):
    client.route("T")
    seen = cluster.faults.observe()
    check_groups(client, QUEUES, [Latest(), None])
    assert seen.seen == 0


def test_a_broker_that_refuses_to_tell_members_has_settings_of_their_groups(
    cluster, client
):
    """A store folder that is read without its broker refuses, too."""
    cluster.faults.add(faults.answer(16, "no permission"), code=MEMBERS)
    with pytest.raises(NotFoundError):
        check_groups(client, QUEUES, [AtGroup("Gg")])
