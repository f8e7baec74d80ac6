"""The offsets of a stream's batches: every message is in exactly one batch."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.datasource import DataSourceStreamReader

from rmqcli import Admin, connect
from rmqcli.errors import (
    ConfigError,
    NotFoundError,
    PartialError,
    RmqError,
    UnsupportedError,
    UsageError,
)
from rmqcli.spark.source import stream
from rmqcli.spark.source.progress import LAST_MESSAGES
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.consumer.collecting import committed
from tests.kit import raw
from tests.kit.clock import SetClock
from tests.kit.waiting import wait_until
from tests.kit.wiped import wiped
from tests.spark.source import reading
from tests.spark.source.reading import partitions, rows_of

#: From 4.2 on, PySpark tells a source where a batch starts, and lets it set a limit.
HAS_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
LIMITS = pytest.mark.skipif(not HAS_LIMITS, reason="this PySpark passes no limit")


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=2)
    cluster.create_topic("orders", queues=2)
    return cluster


@pytest.fixture
def stream_reader():
    """A function that creates readers, which are stopped after the test."""
    made = []

    def make(*args, **options):
        made.append(reading.stream_reader(*args, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def at(*offsets, broker="broker-a"):
    return {"orders": {broker: {str(n): o for n, o in enumerate(offsets)}}}


def bare(value):
    """Return the offsets of a JSON, without the messages before them."""
    return {key: each for key, each in value.items() if key != LAST_MESSAGES}


def take(reader, start):
    """Read the next batch; return its end and its rows."""
    limit = reader.getDefaultReadLimit() if HAS_LIMITS else None
    end = reader.latestOffset(start, limit)
    return end, rows_of(reader, start, end)


def test_batches_hold_each_message_once(cluster, stream_reader):
    reader = stream_reader(cluster, startingOffsets="earliest")
    start = reader.initialOffset()
    assert bare(start) == at(0, 0)
    cluster.send("orders", ["m"] * 5)
    end, rows = take(reader, start)
    assert bare(end) == at(3, 2)
    assert rows == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    cluster.send("orders", ["m"] * 2)
    end, rows = take(reader, end)
    assert (bare(end), rows) == (at(4, 3), [(0, 3), (1, 2)])


@pytest.mark.parametrize(
    ("options", "count"),
    [({}, 2), ({"minPartitions": "6"}, 6), ({"maxRecordsPerPartition": "4"}, 6)],
)
def test_a_batch_is_cut_as_the_options_say(cluster, stream_reader, options, count):
    reader = stream_reader(cluster, startingOffsets="earliest", **options)
    start = reader.initialOffset()
    cluster.send("orders", ["m"] * 24)
    end, rows = take(reader, start)
    assert len(rows) == 24
    assert len(partitions(reader, start, end)) == count


def test_nothing_new_is_the_same_text_as_before(cluster, stream_reader):
    """Spark compares the texts, so another order of keys would cause empty batches."""
    cluster.send("orders", ["m"] * 5)
    reader = stream_reader(cluster)
    start = json.loads(json.dumps(reader.initialOffset()))
    for _ in range(2):
        assert json.dumps(reader.latestOffset(start, None)) == json.dumps(start)
    assert reader.partitions(start, start) == []


def test_without_a_start_only_what_comes_is_read_and_the_start_stays(
    cluster, stream_reader
):
    cluster.send("orders", ["m"] * 6)
    reader = stream_reader(cluster)
    assert bare(reader.initialOffset()) == at(3, 3)
    cluster.send("orders", ["m"] * 2)
    assert bare(reader.initialOffset()) == at(3, 3)
    assert take(reader, at(3, 3))[1] == [(0, 3), (1, 3)]


def test_starts_may_differ_by_queue(cluster, stream_reader):
    cluster.send("orders", ["m"] * 20)
    text = '{"orders": {"broker-a": {"1": "-3"}}}'
    reader = stream_reader(cluster, startingOffsets=text)
    assert bare(reader.initialOffset()) == at(10, 7)


def test_a_start_beyond_the_end_is_refused(cluster, stream_reader):
    reader = stream_reader(cluster, startingOffsets="5")
    with pytest.raises(UsageError, match="orders@broker-a:0 ends at 0, before 5"):
        reader.initialOffset()


def test_another_process_goes_on_from_the_checkpoint(cluster, stream_reader):
    cluster.send("orders", ["m"] * 6)
    first = stream_reader(cluster, startingOffsets="earliest")
    end, _ = take(first, first.initialOffset())
    cluster.send("orders", ["m"] * 2)
    second = stream_reader(cluster, startingOffsets="earliest")
    assert take(second, end)[1] == [(0, 3), (1, 3)]


@LIMITS
def test_a_limit_is_shared_and_reached(cluster, stream_reader):
    cluster.send("orders", ["m"] * 30, queue_id=0)
    cluster.send("orders", ["m"] * 10, queue_id=1)
    reader = stream_reader(
        cluster, startingOffsets="earliest", maxOffsetsPerTrigger="16"
    )
    end, rows = take(reader, reader.initialOffset())
    assert bare(end) == at(12, 4)
    assert len(rows) == 16
    assert reader.reportLatestOffset() == at(30, 10)
    assert bare(reader.latestOffset(end, None)) == at(30, 10)


@LIMITS
def test_available_now_ends_where_the_queues_ended(cluster, stream_reader):
    cluster.send("orders", ["m"] * 8)
    reader = stream_reader(cluster, startingOffsets="earliest")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    cluster.send("orders", ["m"] * 8)
    end, _ = take(reader, start)
    assert bare(end) == at(4, 4)
    assert take(reader, end) == (end, [])


@LIMITS
def test_available_now_reads_queues_of_a_broker_that_was_not_there_at_first(
    rmq_cluster_factory, stream_reader
):
    """The target was pinned without them; the checkpoint knows them."""
    both = rmq_cluster_factory(brokers=2)
    both.create_topic("orders", queues=1)
    for each in both.brokers:
        both.send("orders", ["m"] * 2, broker=each.name)
    start = {"orders": {"broker-a": {"0": 1}, "broker-b": {"0": 1}}}
    reader = stream_reader(both, startingOffsets="earliest")
    both.broker("broker-b").kill()
    reader.prepareForTriggerAvailableNow()
    both.broker("broker-b").restart()
    end, rows = take(reader, start)
    assert bare(end) == {"orders": {"broker-a": {"0": 2}, "broker-b": {"0": 2}}}
    assert rows == [(0, 1), (0, 1)]
    for each in both.brokers:
        both.send("orders", ["m"], broker=each.name)
    assert take(reader, end) == (end, [])


def test_a_version_that_passes_no_limit_says_so(cluster, stream_reader, monkeypatch):
    monkeypatch.setattr(stream, "ReadMaxRows", None)
    with pytest.raises(UnsupportedError, match="maxOffsetsPerTrigger needs PySpark 4"):
        stream_reader(cluster, maxOffsetsPerTrigger="5")


def test_without_arguments_offsets_are_found_as_well(cluster, stream_reader):
    """PySpark 4.0 and 4.1 do not tell a source where the batch starts."""
    reader = stream_reader(cluster, startingOffsets="earliest")
    start = reader.initialOffset()
    cluster.send("orders", ["m"] * 4)
    end = reader.latestOffset()
    assert bare(end) == at(2, 2)
    assert len(rows_of(reader, start, end)) == 4


def test_added_queues_are_read_from_their_first_message(
    cluster, stream_reader, monkeypatch
):
    monkeypatch.setattr(stream, "ROUTE_EVERY_MS", 0)
    reader = stream_reader(cluster)
    start = reader.initialOffset()
    cluster.broker().set_queues("orders", read=3, write=3)
    cluster.send("orders", ["m"] * 2, queue_id=2)
    end, rows = {}, []
    wait_until(lambda: "2" in reader.latestOffset(start, None)["orders"]["broker-a"])
    end, rows = take(reader, start)
    assert bare(end) == at(0, 0, 2)
    assert rows == [(2, 0), (2, 1)]


def test_a_removed_range_fails_unless_loss_is_allowed(cluster, stream_reader, capsys):
    cluster.send("orders", ["m"] * 10)
    cluster.broker().trim("orders", 3)
    reader = stream_reader(cluster)
    with pytest.raises(PartialError, match="orders@broker-a:0: offsets 1 to 2 are no"):
        reader.partitions(at(1, 4), at(5, 5))
    reader = stream_reader(cluster, failOnDataLoss="false")
    assert rows_of(reader, at(1, 4), at(5, 5)) == [(0, 3), (0, 4), (1, 4)]
    assert "offsets 1 to 2 are no longer on the broker" in capsys.readouterr().err


def test_a_broker_that_leaves_fails_unless_loss_is_allowed(
    rmq_cluster_factory, stream_reader, capsys
):
    """Its queues are in the checkpoint; without one, in the record of earlier lags."""
    both = rmq_cluster_factory(brokers=2)
    both.create_topic("orders", queues=1)
    both.create_group("billing")
    for each in both.brokers:
        both.send("orders", ["m"], broker=each.name)
        offsets = each.state.offsets
        both.call(lambda at=offsets: at.commit("billing", "orders", 0, 0))
    reader = stream_reader(both, startingOffsets="earliest", retryFor="0s")
    start = reader.initialOffset()
    assert start == {"orders": {"broker-a": {"0": 0}, "broker-b": {"0": 0}}}
    with Admin(namesrv=both.namesrv) as admin:
        assert admin.lag("billing").total_lag == 2
    both.broker("broker-b").kill()
    new = stream_reader(both, startingOffsets="earliest", retryFor="0s")
    with pytest.raises(PartialError) as caught:
        new.latestOffset(start, None)
    assert str(caught.value).startswith(
        "no longer in the route: orders@broker-b:0 (read up to 0)\nhint: start"
    )
    gone = "groups had queues of orders on broker-b, which is no longer in the route"
    with pytest.raises(PartialError) as caught:
        new.initialOffset()
    assert caught.value.message == gone
    with pytest.raises(PartialError) as caught:
        reading.batch_reader(reading.data_source(both))
    assert caught.value.message == gone
    assert gone not in capsys.readouterr().err
    batch = reading.batch_reader(reading.data_source(both, failOnDataLoss="false"))
    assert rows_of(batch) == [(0, 0)]
    assert f"{gone}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "is_said"),
    [
        ({}, True),
        ({"failOnDataLoss": "false"}, True),
        ({"assign": '{"orders": {"broker-a": [0]}}', "subscribe": None}, False),
    ],
)
def test_a_broker_that_left_may_have_had_a_topic_that_no_group_reads(
    rmq_cluster_factory, stream_reader, capsys, options, is_said
):
    """Half of the topic was read without a word."""
    both = rmq_cluster_factory(brokers=2)
    both.create_topic("orders", queues=1)
    both.send("orders", ["m"], broker="broker-a")
    with Admin(namesrv=both.namesrv) as admin:
        admin.groups()
    both.broker("broker-b").kill()
    said = "rocketmq: broker-b is no longer in the route (last seen "
    batch = reading.batch_reader(reading.data_source(both, **options))
    assert rows_of(batch) == [(0, 0)]
    err = capsys.readouterr().err
    assert (said in err) == is_said
    assert ("what it may have of the topic is not read" in err) == is_said
    reader = stream_reader(both, startingOffsets="earliest", **options)
    assert reader.initialOffset() == {"orders": {"broker-a": {"0": 0}}}
    assert (said in capsys.readouterr().err) == is_said


@pytest.mark.parametrize(
    ("settings", "hidden"),
    [
        (
            {"perm": "2"},
            "topic orders is not readable on broker-b: its messages there would be",
        ),
        (
            {"readQueueNums": "0"},
            (
                "topic orders has more write queues than read queues: the messages in"
                " orders@broker-b:0 would be left out"
            ),
        ),
    ],
)
def test_a_topic_that_a_broker_hides_fails_unless_loss_is_allowed(
    rmq_cluster_factory, stream_reader, capsys, settings, hidden
):
    """Its messages there were left out without a word."""
    both = rmq_cluster_factory(brokers=2)
    both.create_topic("orders", queues=1)
    for each in both.brokers:
        both.send("orders", ["m"], broker=each.name)
    fields = {
        "topic": "orders",
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        **settings,
    }
    assert raw.ask(both.broker("broker-b").address, 17, fields).code == 0
    with pytest.raises(PartialError, match=hidden):
        stream_reader(both, startingOffsets="earliest").initialOffset()
    with pytest.raises(PartialError, match=hidden):
        reading.batch_reader(reading.data_source(both))
    batch = reading.batch_reader(reading.data_source(both, failOnDataLoss="false"))
    assert rows_of(batch) == [(0, 0)]
    assert hidden in capsys.readouterr().err


def test_a_queue_that_vanishes_fails_and_with_loss_allowed_waits(
    cluster, stream_reader, capsys
):
    cluster.send("orders", ["m"] * 4)
    gone = {"orders": {"broker-a": {"0": 2, "1": 2, "7": 40}}}
    reader = stream_reader(cluster, retryFor="0s")
    with pytest.raises(PartialError) as caught:
        reader.latestOffset(gone, None)
    assert str(caught.value).startswith(
        "no longer in the route: orders@broker-a:7 (read up to 40)\nhint: start"
    )
    reader = stream_reader(cluster, failOnDataLoss="false")
    for _ in range(3):
        assert bare(reader.latestOffset(gone, None)) == gone
    assert capsys.readouterr().err.count("orders@broker-a:7 (read up to 40)") == 1
    assert reader.partitions(gone, gone) == []


def create_again(cluster, *, queues=2):
    with connect(cluster.namesrv) as clients, clients.admin() as admin:
        admin.delete_topic("orders")
    cluster.create_topic("orders", queues=queues)


def test_a_topic_that_was_created_again_is_an_error(cluster, stream_reader):
    cluster.send("orders", ["m"] * 4)
    reader = stream_reader(cluster)
    for limit in (None, *([reader.getDefaultReadLimit()] if HAS_LIMITS else [])):
        with pytest.raises(ConfigError, match="read up to 9, and now it ends at 2"):
            reader.latestOffset(at(9, 2), limit)
    with pytest.raises(ConfigError, match="read up to 9, and now it ends at 2"):
        reader.partitions(at(9, 2), at(2, 2))


@pytest.mark.slow
@pytest.mark.parametrize("per_trigger", [None, pytest.param(7, marks=LIMITS)])
def test_of_a_topic_that_was_created_again_every_message_is_read(
    cluster, stream_reader, capsys, per_trigger
):
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    if per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(per_trigger)
    cluster.send("orders", ["old"] * 40)
    reader = stream_reader(cluster, **options)
    end = reader.initialOffset()
    while bare(end) != at(20, 20):
        end, _ = take(reader, end)
    create_again(cluster)
    cluster.send("orders", ["new"] * 30)
    rows = []
    while True:
        start = end
        end, more = take(reader, start)
        rows += more
        if end == start:
            break
        cluster.send("orders", ["new"] * 2)
        if len(rows) > 60:
            break
    assert rows[:30].count((0, 0)) == 1
    assert sorted(set(rows)) == sorted(rows)
    assert {offset for queue_id, offset in rows if queue_id == 0} == set(
        range(end["orders"]["broker-a"]["0"])
    )
    text = capsys.readouterr().err
    for queue_id in (0, 1):
        line = f"orders@broker-a:{queue_id}: read up to 20, and now it ends at 15"
        assert text.count(line) == 1
    assert "it is read from its beginning" in text


def test_a_restarted_query_reads_a_topic_that_was_created_again(cluster, stream_reader):
    cluster.send("orders", ["new"] * 6)
    reader = stream_reader(cluster, failOnDataLoss="false")
    assert rows_of(reader, at(9, 2), at(3, 3)) == [(0, 0), (0, 1), (0, 2), (1, 2)]


@LIMITS
def test_available_now_reads_a_topic_that_was_created_again(cluster, stream_reader):
    cluster.send("orders", ["new"] * 6)
    reader = stream_reader(cluster, failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    end, rows = take(reader, at(9, 9))
    assert (bare(end), len(rows)) == (at(3, 3), 6)
    assert take(reader, end) == (end, [])


@LIMITS
def test_the_progress_says_once_that_a_topic_was_created_again(cluster, stream_reader):
    cluster.send("orders", ["new"] * 6)
    reader = stream_reader(cluster, failOnDataLoss="false")
    end, _ = take(reader, at(9, 2))
    assert reader.reportLatestOffset() == {
        **at(3, 3),
        "begun again": {"orders@broker-a:0": 9},
    }
    take(reader, end)
    assert reader.reportLatestOffset() == at(3, 3)


@pytest.fixture
def renewed(cluster, rmq_cluster_factory):
    """`renewed(count)` replaces the cluster by one with that many messages."""

    def call(count):
        new = wiped(cluster, rmq_cluster_factory, queues=2)
        new.create_topic("orders", queues=2)
        new.send("orders", ["new"] * count)
        return new

    return call


ANOTHER = "orders@broker-a:0: read up to 2, and now another message is at offset 1"


def test_a_topic_that_was_created_again_and_is_longer_by_now_is_an_error(
    cluster, stream_reader, renewed
):
    """Its first messages were taken for those that were read before."""
    cluster.send("orders", ["old"] * 4)
    reader = stream_reader(cluster, startingOffsets="earliest")
    end, _ = take(reader, reader.initialOffset())
    renewed(20)
    # In the same process, and in another one that goes on from the checkpoint.
    for each in (reader, stream_reader(cluster)):
        with pytest.raises(ConfigError, match=ANOTHER) as caught:
            take(each, json.loads(json.dumps(end)))
        assert "start the query with a new checkpointLocation" in str(caught.value)


@pytest.mark.parametrize("per_trigger", [None, pytest.param(7, marks=LIMITS)])
def test_a_topic_that_was_created_again_and_is_longer_by_now_is_read_from_its_start(
    cluster, stream_reader, renewed, capsys, per_trigger
):
    options = {"startingOffsets": "earliest", "failOnDataLoss": "false"}
    cluster.send("orders", ["old"] * 4)
    reader = stream_reader(cluster, **options)
    end, _ = take(reader, reader.initialOffset())
    renewed(20)
    if per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(per_trigger)
    reader = stream_reader(cluster, **options)
    rows, sizes = [], []
    while True:
        start = end
        end, more = take(reader, start)
        if start == end:
            break
        # A batch that is repeated after a kill is the same.
        assert rows_of(stream_reader(cluster, **options), start, end) == more
        rows += more
        sizes.append(len(more))
    assert sorted(rows) == [(q, offset) for q in (0, 1) for offset in range(10)]
    assert max(sizes) == (per_trigger or 20)
    assert f"{ANOTHER}: the topic was deleted and created again" in (
        capsys.readouterr().err
    )


def test_a_topic_whose_messages_expired_is_the_same(cluster, stream_reader):
    cluster.send("orders", ["m"] * 6)
    reader = stream_reader(cluster, startingOffsets="earliest")
    end, _ = take(reader, reader.initialOffset())
    cluster.send("orders", ["m"] * 4)
    cluster.broker().trim("orders", 3)
    for each in (reader, stream_reader(cluster)):
        assert take(each, end)[1] == [(0, 3), (0, 4), (1, 3), (1, 4)]


def test_a_checkpoint_without_messages_is_followed(cluster, stream_reader):
    """Versions before had none. From the next batch on it has."""
    cluster.send("orders", ["m"] * 6)
    end, rows = take(stream_reader(cluster), at(1, 3))
    assert (bare(end), rows) == (at(3, 3), [(0, 1), (0, 2)])
    assert end[LAST_MESSAGES]["orders"]["broker-a"].keys() == {"0", "1"}


def test_a_slave_that_is_behind_is_not_taken_for_a_new_topic(
    rmq_cluster_factory, stream_reader, capsys
):
    cluster = rmq_cluster_factory(queues=1)
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", ["m"] * 6)
    cluster.add_slave(behind=2)
    cluster.broker().kill()
    reader = stream_reader(cluster, failOnDataLoss="false")
    assert bare(reader.latestOffset(at(6), None)) == at(6)
    assert "nothing is read until it ends later" in capsys.readouterr().err


def test_a_checkpoint_of_another_topic_is_refused(cluster, stream_reader):
    reader = stream_reader(cluster)
    with pytest.raises(ConfigError, match="belongs to topic payments"):
        reader.latestOffset({"payments": {"broker-a": {"0": 1}}}, None)


def test_a_broker_that_restarts_is_waited_for(cluster, stream_reader):
    cluster.send("orders", ["m"] * 4)
    reader = stream_reader(cluster, startingOffsets="earliest")
    start = reader.initialOffset()
    cluster.broker().restart()
    assert bare(take(reader, start)[0]) == at(2, 2)


@pytest.mark.slow
def test_a_broker_that_stays_away_is_an_error(cluster, stream_reader):
    reader = stream_reader(cluster, timeout="2s", retryFor="0s")
    start = reader.initialOffset()
    cluster.broker().hang()
    with pytest.raises(RmqError, match="no broker answers: broker-a"):
        reader.latestOffset(start, None)
    cluster.broker().resume()


def test_the_group_follows_what_was_processed(cluster, stream_reader):
    cluster.create_group("billing")
    cluster.send("orders", ["m"] * 6)
    reader = stream_reader(cluster, startingOffsets="1", commitGroup="billing")
    start = reader.initialOffset()
    end, _ = take(reader, start)
    assert committed(cluster, "billing", "orders") == {0: 1, 1: 1}
    reader.commit(end)
    assert committed(cluster, "billing", "orders") == {0: 3, 1: 3}


def test_a_commit_that_a_pending_reset_blocks_is_told_and_repeated(
    cluster, stream_reader, capsys
):
    cluster.create_group("billing")
    cluster.send("orders", ["m"] * 6)
    reader = stream_reader(cluster, startingOffsets="1", commitGroup="billing")
    start = reader.initialOffset()
    end, _ = take(reader, start)
    offsets = cluster.broker().state.offsets
    cluster.call(lambda: offsets.reset("billing", "orders", 0, 0))
    reader.commit(end)
    assert committed(cluster, "billing", "orders") == {0: 0, 1: 3}
    assert capsys.readouterr().err == (
        "rocketmq: orders@broker-a:0: offset 3 not committed: a reset waits until a"
        " member of group billing pulls from it\n"
    )
    cluster.call(lambda: offsets.take_pending_reset("billing", "orders", 0))
    reader.commit(end)
    assert committed(cluster, "billing", "orders") == {0: 3, 1: 3}
    assert capsys.readouterr().err == ""


def test_a_group_that_does_not_exist_is_named(cluster, stream_reader):
    cluster.create_group("billing")
    reader = stream_reader(cluster, commitGroup="biling")
    with pytest.raises(NotFoundError, match=r"biling does .*; did you mean billing\?"):
        reader.initialOffset()


def test_a_group_with_members_is_refused(cluster, stream_reader):
    with connect(cluster.namesrv) as clients:
        consumer = clients.consumer("billing", "orders")
        consumer.start()
        wait_until(lambda: consumer.offsets())
        reader = stream_reader(cluster, commitGroup="billing")
        with pytest.raises(UsageError, match="group billing has members online"):
            reader.initialOffset()


def test_a_group_with_members_behind_proxies_is_refused(cluster, stream_reader):
    """Brokers do not know them; the stream and they overwrote each other's offsets."""
    cluster.create_group("billing")
    record = {"clientId": "c@1@1@a", "group": "billing", "heartbeatType": "REGISTER"}
    cluster.send("DefaultHeartBeatSyncerTopic", [json.dumps(record)])
    reader = stream_reader(cluster, commitGroup="billing")
    with pytest.raises(UsageError, match="group billing has members online"):
        reader.initialOffset()


def test_where_members_behind_proxies_are_not_known_a_stream_says_so(
    cluster, stream_reader, capsys
):
    cluster.create_group("billing")
    cluster.faults.add(
        faults.answer(16, "no permission"),
        code=RequestCode.GET_TOPIC_STATS_INFO,
        topic="DefaultHeartBeatSyncerTopic",
    )
    reader = stream_reader(cluster, commitGroup="billing")
    words = "option commitGroup: members behind proxies are not known: broker-a: "
    assert bare(reader.initialOffset()) == at(0, 0)
    assert words in capsys.readouterr().err


def test_topics_that_match_later_are_read_from_their_first_message(
    cluster, stream_reader, monkeypatch
):
    monkeypatch.setattr(stream, "ROUTE_EVERY_MS", 0)
    reader = stream_reader(cluster, None, subscribePattern="orders-.*")
    start = reader.initialOffset()
    assert start == {}
    assert take(reader, start) == ({}, [])
    cluster.create_topic("orders-eu", queues=1)
    cluster.send("orders-eu", ["m"] * 3)
    wait_until(lambda: reader.latestOffset(start, None) != {})
    end, rows = take(reader, start)
    assert bare(end) == {"orders-eu": {"broker-a": {"0": 3}}}
    assert rows == [(0, 0), (0, 1), (0, 2)]


def test_only_assigned_queues_are_in_a_stream(cluster, stream_reader):
    cluster.send("orders", ["m"] * 6)
    reader = stream_reader(
        cluster,
        None,
        assign='{"orders": {"broker-a": [1]}}',
        startingOffsets="earliest",
    )
    start = reader.initialOffset()
    assert start == {"orders": {"broker-a": {"1": 0}}}
    assert take(reader, start)[1] == [(1, 0), (1, 1), (1, 2)]
    with pytest.raises(ConfigError, match="belongs to queue orders@broker-a:0, but"):
        reader.latestOffset(at(1, 1), None)


def test_a_stream_starts_at_a_time_or_at_the_end(
    rmq_cluster_factory, rmq_clock, stream_reader
):
    cluster = rmq_cluster_factory(clock=rmq_clock)
    cluster.create_topic("orders", queues=2)
    cluster.send("orders", ["m"] * 2)
    cluster.advance(3_600_000)
    cluster.send("orders", ["m"], queue_id=0)
    time = {"startingOffsetsByTimestamp": '{"orders": 1700003600000}'}
    assert bare(stream_reader(cluster, **time).initialOffset()) == at(1, 1)
    strategy = {"startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(UsageError, match="orders@broker-a:1 has no message at or aft"):
        stream_reader(cluster, **time, **strategy).initialOffset()


def test_a_start_by_time_warns_of_a_queue_whose_clock_was_set_back(
    rmq_cluster_factory, stream_reader, capsys
):
    """Spark asks for the schema before it begins a stream, which pins a range."""
    clock = SetClock(1_700_000_000_000)
    cluster = rmq_cluster_factory(clock=clock)
    cluster.create_topic("orders", queues=2)
    for hours in (2, 0, 3, 1):
        clock.now_ms = 1_700_000_000_000 + hours * 3_600_000
        cluster.send("orders", ["m"], queue_id=0)
    cluster.send("orders", ["m"], queue_id=1)
    time = {"startingTimestamp": "1700006000000"}
    stream_reader(cluster, **time).initialOffset()
    (warned,) = capsys.readouterr().err.splitlines()
    assert warned.startswith(
        "rocketmq: orders@broker-a:0: store times are not in order here"
    )


@LIMITS
def test_a_batch_waits_for_a_number_of_messages(cluster, stream_reader):
    reader = stream_reader(
        cluster, startingOffsets="earliest", minOffsetsPerTrigger="6"
    )
    cluster.send("orders", ["m"] * 2)
    first, _ = take(reader, reader.initialOffset())
    assert bare(first) == at(1, 1)
    cluster.send("orders", ["m"] * 4)
    assert take(reader, first) == (first, [])
    cluster.send("orders", ["m"] * 2)
    assert bare(take(reader, first)[0]) == at(4, 4)


@LIMITS
def test_a_batch_does_not_wait_longer_than_the_delay(cluster, stream_reader):
    reader = stream_reader(
        cluster,
        startingOffsets="earliest",
        minOffsetsPerTrigger="50",
        maxTriggerDelay="1ms",
    )
    cluster.send("orders", ["m"] * 2)
    first, _ = take(reader, reader.initialOffset())
    cluster.send("orders", ["m"] * 2)
    wait_until(lambda: bare(take(reader, first)[0]) == at(2, 2))


@LIMITS
def test_available_now_waits_for_no_further_messages(cluster, stream_reader):
    cluster.send("orders", ["m"] * 2)
    reader = stream_reader(
        cluster, startingOffsets="earliest", minOffsetsPerTrigger="50"
    )
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert bare(take(reader, start)[0]) == at(1, 1)


@LIMITS
def test_the_least_and_the_greatest_number_of_a_batch_hold_together(
    cluster, stream_reader
):
    reader = stream_reader(
        cluster,
        startingOffsets="earliest",
        minOffsetsPerTrigger="4",
        maxOffsetsPerTrigger="6",
    )
    start = reader.initialOffset()
    cluster.send("orders", ["m"] * 2)
    end, _ = take(reader, start)
    cluster.send("orders", ["m"] * 2)
    assert take(reader, end)[0] == end
    cluster.send("orders", ["m"] * 8)
    assert bare(take(reader, end)[0]) == at(4, 4)
