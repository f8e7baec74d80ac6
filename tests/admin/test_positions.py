"""Positions on real brokers are correct, whatever the version's own search returns.

Also the broker's clock, which brokers report only to the second.
"""

from __future__ import annotations

import pytest

from rmqcli.admin.positions import (
    ResolvedRange,
    format_range,
    resolve,
    resolve_each,
    resolve_ranges,
)
from rmqcli.api.calls.config import update_and_create_subscription_group
from rmqcli.api.calls.offset import get_max_offset, update_consumer_offset
from rmqcli.api.calls.pull import pull_message
from rmqcli.api.calls.send import send_batch_message, send_message
from rmqcli.api.client import Client
from rmqcli.api.positions import BrokerClock, ResolvedPosition, broker_clock
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.config import ClientConfig
from rmqcli.errors import ConnectError, NotFoundError, RmqError
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
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from tests.conftest import start_cluster

HOUR_MS = 3_600_000


@pytest.fixture(scope="module", params=["4.6.0", "5.5.0"])
def cluster(request, tmp_path_factory):
    """One broker with topic P, which has three queues.

    They have 60 messages, none, and three messages followed by a batch of 50.
    """
    with start_cluster(request.param, tmp_path_factory.mktemp("real")) as running:
        running.create_topic("P", queues=3)
        with Client(ClientConfig(namesrv=(running.namesrv,), timeout_ms=60_000)) as c:
            address = running.broker_address()
            for number in range(60):
                c.invoke(address, send_message(header(0), b"%d" % number))
            items = [BatchItem(b"%d" % number) for number in range(50)]
            for number in range(3):
                c.invoke(address, send_message(header(2), b"%d" % number))
            c.invoke(
                address, send_batch_message(header(2, batch=True), encode_batch(items))
            )
        yield running


@pytest.fixture
def client(cluster):
    with Client(ClientConfig(namesrv=(cluster.namesrv,), timeout_ms=60_000)) as opened:
        yield opened


def header(queue_id, *, batch=False):
    return SendMessageRequestHeaderV2(
        producer_group="PG",
        topic="P",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=SYSTEM_CLOCK.epoch_ms(),
        flag=0,
        properties="",
        reconsume_times=0,
        unit_mode=False,
        batch=batch,
    )


def queues_of(client):
    return client.route("P").read_queues()


def store_times(client, queue):
    """Read the whole queue; return (queue offset, store time) of every message."""
    address = client.reader_of(queue)
    end = client.invoke(address, get_max_offset(queue.topic, queue.queue_id))
    found, at = [], 0
    while at < end:
        answer = client.invoke(address, pull_message(queue, at))
        messages = [
            m for m in decode_messages(answer.body) if isinstance(m, StoredMessage)
        ]
        found += [(m.queue_offset, m.store_timestamp_ms) for m in messages]
        at = answer.next_begin_offset
    assert [offset for offset, _ in found] == list(range(end))
    return found


@pytest.mark.java
def test_a_time_is_the_first_message_not_older(client):
    """Tests each message's store time, and 1 ms before and after, in every queue."""
    queues = queues_of(client)
    truth = {queue: store_times(client, queue) for queue in queues}
    moments = {
        stored + shift
        for times in truth.values()
        for _, stored in times
        for shift in (-1, 0, 1)
    }
    moments |= {0, min(moments) - HOUR_MS, max(moments) + HOUR_MS, 253_402_300_799_999}
    for moment in sorted(moments):
        found = resolve(client, queues, AtTime(moment, ""))
        for queue, times in truth.items():
            young = [offset for offset, stored in times if stored >= moment]
            expected = young[0] if young else len(times)
            assert found[queue].offset == expected, (queue, moment)


@pytest.mark.java
def test_positions_that_need_no_search(client):
    full, empty, batch = queues_of(client)
    for position, offsets in (
        (Earliest(), (0, 0, 0)),
        (Latest(), (60, 0, 53)),
        (AtOffset(55), (55, 0, 53)),
        (LastN(10), (50, 0, 43)),
        (PlusN(10), (10, 0, 10)),
        (AtNow(), (60, 0, 53)),
        (Ago(HOUR_MS), (0, 0, 0)),
    ):
        found = resolve(client, [full, empty, batch], position)
        assert tuple(found[q].offset for q in (full, empty, batch)) == offsets, position
    notes = {q: r.note for q, r in resolve(client, [full, empty], AtOffset(55)).items()}
    assert notes == {full: "", empty: "55 is beyond the end (0)"}


@pytest.mark.java
def test_ranges_are_pinned_and_counted_from_their_start(client):
    full, empty, batch = queues_of(client)
    ranges = resolve_ranges(client, [full, empty, batch], LastN(20), PlusN(5))
    assert [format_range(ranges[queue]) for queue in (full, empty, batch)] == [
        "40 to 45, 5 messages",
        "0 to 0, 0 messages; 5 is beyond the end (0)",
        "33 to 38, 5 messages",
    ]
    backwards = resolve_ranges(client, [full], Latest(), Earliest())[full]
    assert len(backwards.offsets) == 0
    whole = resolve_ranges(client, [full], Earliest(), Latest())[full]
    assert (whole.offsets.start, whole.offsets.end) == (0, 60)


@pytest.mark.java
def test_where_a_group_stands(cluster, client):
    """Offset 0 is not taken for no commit, although 4.6.0 answers 0 for both."""
    full, empty, batch = queues_of(client)
    address = cluster.broker_address()
    group = SubscriptionGroupConfig(group_name="G")
    client.invoke(address, update_and_create_subscription_group(group))
    for queue, offset in ((full, 7), (batch, 0)):
        client.invoke(
            address,
            update_consumer_offset("G", "P", queue.queue_id, commit_offset=offset),
        )
    found = resolve(client, [full, empty, batch], AtGroup("G"))
    assert [found[q].offset for q in (full, empty, batch)] == [7, None, 0]


@pytest.mark.java
def test_nothing_is_left_behind(cluster, client):
    """Resolving a position leaves no group and no offset on the broker."""
    from rmqcli.api.calls.config import get_all_subscription_group_config
    from rmqcli.api.calls.offset import get_all_consumer_offset

    address = cluster.broker_address()
    before = set(client.invoke(address, get_all_subscription_group_config()))
    resolve(client, queues_of(client), AtNow())
    assert set(client.invoke(address, get_all_subscription_group_config())) == before
    committed = client.invoke(address, get_all_consumer_offset())
    assert {group for group, _ in committed} <= {"G"}


@pytest.mark.java
def test_a_queue_of_no_broker_is_an_error_of_its_own(client):
    full, *_ = queues_of(client)
    lost = MessageQueue("P", "broker-z", 0)
    found = resolve_each(client, [full, lost], Latest())
    assert not isinstance(found[full], RmqError)
    assert isinstance(found[lost], NotFoundError)
    with pytest.raises(NotFoundError):
        resolve(client, [full, lost], Latest())


BOOT = 1_795_231_711_964
RUNTIME = "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
UP = 93_784_000


def table(runtime=RUNTIME, boot=str(BOOT)):
    return {"bootTimestamp": boot, "runtime": runtime}


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (0, BrokerClock(BOOT + UP)),  # same second: this machine's clock is finer
        (999, BrokerClock(BOOT + UP + 999)),
        (
            -HOUR_MS,
            BrokerClock(
                BOOT + UP,
                "the broker's clock is 1h ahead of this machine's; using the broker's",
            ),
        ),
        (
            HOUR_MS + 1000,
            BrokerClock(
                BOOT + UP,
                "the broker's clock is 1h behind this machine's; using the broker's",
            ),
        ),
        (-500, BrokerClock(BOOT + UP)),  # less than a second: no note
        (-999, BrokerClock(BOOT + UP)),
        (
            -1000,
            BrokerClock(
                BOOT + UP,
                "the broker's clock is 1s ahead of this machine's; using the broker's",
            ),
        ),
        (1000, BrokerClock(BOOT + UP)),
        (1999, BrokerClock(BOOT + UP)),
        (
            2000,
            BrokerClock(
                BOOT + UP,
                "the broker's clock is 1s behind this machine's; using the broker's",
            ),
        ),
    ],
)
def test_the_broker_s_clock_counts(ours, expected):
    now = BOOT + UP + ours
    assert broker_clock(table(), asked_ms=now, answered_ms=now) == expected


def test_a_slow_answer_leaves_the_time_of_the_broker_open():
    """It was some time between the question and the answer."""
    asked, answered = BOOT + UP - 5000, BOOT + UP + 3000
    found = broker_clock(table(), asked_ms=asked, answered_ms=answered)
    assert found == BrokerClock(answered)
    asked, answered = BOOT + UP + 3000, BOOT + UP + 9000
    found = broker_clock(table(), asked_ms=asked, answered_ms=answered)
    assert found.note.startswith("the broker's clock is 2s behind")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        table(runtime="soon"),
        table(boot=""),
        table(boot="x"),
        table(boot="1" * 16),
        table(boot="9" * 99),
    ],
)
def test_a_broker_that_does_not_tell_its_time(answer):
    clock = broker_clock(answer, asked_ms=5, answered_ms=7)
    assert clock.epoch_ms == 7
    assert "using this machine's clock" in clock.note


def test_lines_for_people():
    queue = MessageQueue("T", "b", 0)
    start = ResolvedPosition(offset=None, min_offset=2, max_offset=9, note="odd")
    end = ResolvedPosition(offset=9, min_offset=2, max_offset=9)
    gone = ConnectError("a:1 refused the connection", address="a:1")
    assert format_range(gone) == "unknown: a:1 refused the connection"
    found = ResolvedRange(queue, start, end)
    assert format_range(found) == "2 to 9, 7 messages; odd"


def test_a_range_that_ends_before_its_start_is_said_to_be_one():
    """It was shown as the empty range at its start: 9 to 9, 0 messages."""
    queue = MessageQueue("T", "b", 0)
    start = ResolvedPosition(offset=9, min_offset=2, max_offset=9)
    end = ResolvedPosition(offset=4, min_offset=2, max_offset=9)
    found = ResolvedRange(queue, start, end)
    assert format_range(found) == (
        "9 to 9, 0 messages; the end of the range, 4, is before its start"
    )
