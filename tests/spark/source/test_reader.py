"""The batch reader returns the same rows as `rmq export`, of a pinned range."""

from __future__ import annotations

import inspect
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import (
    DecodeError,
    NotFoundError,
    PartialError,
    RmqError,
    UsageError,
)
from rmqcli.position import Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.spark.export.disk import Disk, walk_files
from rmqcli.spark.export.export import Export, ExportOptions
from rmqcli.spark.export.plan import ExportRequest
from rmqcli.spark.source.filters import conditions_to_json
from rmqcli.spark.sql.scans import COLUMNS, CONDITIONS
from rmqcli.spark.sql.views import pin_topic, source_of
from rmqcli.testing import Seed
from tests.kit.clock import SetClock
from tests.spark.export.inline import FixedClock, InlineRunner, SilentReport
from tests.spark.source.reading import (
    batch_reader,
    data_source,
    partitions,
    rows_of,
    struct,
    table_of,
)

BY_PLACE = [("queue_id", "ascending"), ("queue_offset", "ascending")]


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=2)
    cluster.create_topic("orders", queues=2)
    return cluster


def fill(cluster, count, *, queue_id=None):
    cluster.send(
        "orders",
        [
            Seed(
                body=b"x" if n % 7 == 0 else f"größer {n}".encode() * (1 + n % 5),
                tags=None if n % 3 == 0 else "AB"[n % 2],
                keys=[f"k{n}", "other"] if n % 4 else (),
                properties={"colour": "größer", "n": str(n)} if n % 5 else {},
                flag=n,
            )
            for n in range(count)
        ],
        queue_id=queue_id,
    )


def exported(cluster, path):
    """Export the topic as `rmq export` does, but without Spark; return the rows."""
    Export(
        request=ExportRequest(
            topic="orders", from_position="earliest", to_position="latest"
        ),
        options=ExportOptions(path=str(path)),
        cluster=BrokerCluster(
            config=ClientConfig(namesrv=(cluster.namesrv,)),
            start=Earliest(),
            end=Latest(),
            note=lambda _: None,
        ),
        report=SilentReport(),
        clock=FixedClock(),
        disk=Disk(),
        runner=InlineRunner(),
    ).run()
    return pa.concat_tables(
        pq.ParquetFile(path / name).read()
        for name in walk_files(str(path))
        if name.endswith(".parquet")
    )


def test_rows_are_those_of_the_export_field_for_field(cluster, tmp_path):
    fill(cluster, 500)
    rows = table_of(batch_reader(data_source(cluster, minPartitions="5")))
    expected = exported(cluster, tmp_path).cast(rows.schema)
    assert rows.num_rows == 500
    assert rows.sort_by(BY_PLACE).equals(expected.sort_by(BY_PLACE))


def test_batches_have_the_schema_that_spark_checks(cluster):
    fill(cluster, 10)
    is_named = "timezone" in inspect.signature(to_arrow_schema).parameters
    zone = {"timezone": "UTC"} if is_named else {}
    for options in ({}, {"includeProperties": "false"}, {"includeBody": "false"}):
        source = data_source(cluster, **options)
        schema = table_of(batch_reader(source)).schema
        assert schema.equals(to_arrow_schema(struct(source), **zone))


def test_the_range_is_pinned_when_the_frame_is_loaded(cluster):
    fill(cluster, 6)
    source = data_source(cluster)
    fill(cluster, 4)
    assert partitions(batch_reader(source)) == [(0, 0, 3), (1, 0, 3)]
    assert partitions(batch_reader(source)) == [(0, 0, 3), (1, 0, 3)]


def test_an_empty_topic_has_no_rows(cluster):
    """Spark replaces an empty list of partitions by one without a value, or None."""
    reader = batch_reader(data_source(cluster))
    assert reader.partitions() == []
    assert list(reader.read(None)) == []
    assert list(reader.read(InputPartition(None))) == []


def test_a_queue_of_one_message_has_one_row(cluster):
    fill(cluster, 1, queue_id=1)
    assert rows_of(batch_reader(data_source(cluster))) == [(1, 0)]


def test_ends_are_exclusive_and_may_differ_by_queue(cluster):
    fill(cluster, 40)
    starts = '{"orders": {"broker-a": {"0": 5, "1": 7}}}'
    ends = '{"orders": {"broker-a": {"0": 6, "1": "-10"}}}'
    source = data_source(cluster, startingOffsets=starts, endingOffsets=ends)
    assert partitions(batch_reader(source)) == [(0, 5, 6), (1, 7, 10)]


def test_queues_that_json_does_not_name_are_read_from_end_to_end(cluster):
    fill(cluster, 20)
    starts = '{"orders": {"broker-a": {"0": 5}}}'
    source = data_source(cluster, startingOffsets=starts)
    assert partitions(batch_reader(source)) == [(0, 5, 10), (1, 0, 10)]


def test_a_start_that_is_the_end_reads_nothing(cluster):
    fill(cluster, 20)
    source = data_source(cluster, startingOffsets="4", endingOffsets="4")
    assert batch_reader(source).partitions() == []


def test_an_end_before_the_start_is_refused(cluster):
    fill(cluster, 20)
    starts = '{"orders": {"broker-a": {"0": 9}}}'
    ends = '{"orders": {"broker-a": {"0": 4}}}'
    with pytest.raises(UsageError, match=r"orders@broker-a:0 .* from 9 to 4"):
        data_source(cluster, startingOffsets=starts, endingOffsets=ends)


def test_times_choose_messages_by_store_time(rmq_cluster_factory, rmq_clock):
    cluster = rmq_cluster_factory(clock=rmq_clock)
    cluster.create_topic("orders", queues=1)
    for name in "abcd":
        cluster.send("orders", [name])
        cluster.advance(1_000)
    source = data_source(
        cluster, startingTimestamp="1700000001000", endingTimestamp="1700000003000"
    )
    assert partitions(batch_reader(source)) == [(0, 1, 3)]


def test_tags_are_filtered_and_bodies_and_properties_left_out(cluster):
    fill(cluster, 30)
    source = data_source(
        cluster, tag="A", includeBody="false", includeProperties="false"
    )
    table = table_of(batch_reader(source))
    assert table.column("tags").to_pylist() == ["A"] * 10
    assert not {"body", "properties"} & set(table.column_names)


def test_a_removed_range_fails_unless_loss_is_allowed(cluster, capsys):
    fill(cluster, 20)
    cluster.broker().trim("orders", 4)
    with pytest.raises(PartialError) as caught:
        batch_reader(data_source(cluster, startingOffsets="1")).partitions()
    assert str(caught.value) == (
        "orders@broker-a:0: offsets 1 to 3 are no longer on the broker\n"
        'hint: to read what is left: .option("failOnDataLoss", "false")'
    )
    source = data_source(cluster, startingOffsets="1", failOnDataLoss="false")
    assert partitions(batch_reader(source)) == [(0, 4, 10), (1, 4, 10)]
    assert "orders@broker-a:1: offsets 1 to 3 are no longer" in capsys.readouterr().err


def test_what_is_removed_between_planning_and_reading_is_not_left_out(cluster, capsys):
    fill(cluster, 20)
    reader = batch_reader(data_source(cluster))
    planned = reader.partitions()
    cluster.broker().trim("orders", 4)
    with pytest.raises(PartialError, match="offsets 0 to 3 are no longer"):
        list(reader.read(planned[0]))
    reader = batch_reader(data_source(cluster, failOnDataLoss="false"))
    [batch] = reader.read(planned[0])
    assert batch.column("queue_offset").to_pylist() == [4, 5, 6, 7, 8, 9]
    assert "offsets 0 to 3 are no longer on the broker" in capsys.readouterr().err


def test_a_record_that_cannot_be_read_is_not_left_out(cluster, monkeypatch, capsys):
    """The embedded broker stores no damaged record, so a decoder damages one."""
    fill(cluster, 6, queue_id=0)
    from rmqcli.wire.message.columns import decode_columns

    def damaged(bodies, **names):
        whole = b"".join(map(bytes, bodies))
        second = int.from_bytes(whole[:4], "big")
        broken = bytearray(whole)
        broken[second + 4 : second + 8] = b"\x01\x02\x03\x04"
        return decode_columns([bytes(broken)], **names)

    monkeypatch.setattr("rmqcli.wire.message.columns.decode_columns", damaged)
    reader = batch_reader(data_source(cluster))
    with pytest.raises(DecodeError, match="orders@broker-a:0: the record at"):
        rows_of(reader)
    reader = batch_reader(data_source(cluster, failOnDataLoss="false"))
    assert rows_of(reader) == [(0, o) for o in (0, 2, 3, 4, 5)]
    assert "orders@broker-a:0: the record at" in capsys.readouterr().err


@pytest.mark.parametrize("where", ["startingOffsets", "endingOffsets"])
def test_a_queue_that_does_not_exist_is_named(cluster, where):
    text = '{"orders": {"broker-a": {"9": 1}}}'
    with pytest.raises(UsageError) as caught:
        data_source(cluster, **{where: text})
    assert str(caught.value) == (
        f"option {where}: queue orders@broker-a:9 does not exist\n"
        "hint: the queues of orders are broker-a:0, broker-a:1"
    )


def test_an_unknown_topic_or_group_is_an_error_of_the_load(cluster):
    cluster.create_group("billing")
    with pytest.raises(NotFoundError) as caught:
        data_source(cluster, "orders,ordrs")
    assert str(caught.value) == "topic ordrs does not exist; did you mean orders?"
    with pytest.raises(NotFoundError) as caught:
        data_source(cluster, "billing")
    assert str(caught.value).startswith("topic billing does not exist; billing is a gr")
    with pytest.raises(NotFoundError) as caught:
        data_source(cluster, startingOffsets="group:biling")
    assert str(caught.value) == "group biling does not exist; did you mean billing?"


def test_a_schema_of_the_program_is_refused(cluster):
    source = data_source(cluster)
    without = struct(data_source(cluster, includeBody="false"))
    with pytest.raises(UsageError, match="the schema of rocketmq is fixed"):
        source.reader(without)


def test_large_batches_are_cut_for_spark(cluster, monkeypatch):
    monkeypatch.setattr("rmqcli.spark.source.read.BATCH_BYTES_MAX", 2_000)
    fill(cluster, 100, queue_id=0)
    reader = batch_reader(data_source(cluster))
    [partition] = reader.partitions()
    batches = list(reader.read(partition))
    assert len(batches) > 5
    offsets = [o for b in batches for o in b.column("queue_offset").to_pylist()]
    assert offsets == list(range(100))


def narrowed_reader(cluster, *conditions):
    """A reader of one scan in `rmq sql`, which has these conditions."""
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view = pin_topic(client, "orders", start=None, end=None, allow_gaps=False)
    source = source_of({"orders": view})(
        {"subscribe": "orders", CONDITIONS: conditions_to_json(conditions)}
    )
    return batch_reader(source)


def test_the_conditions_of_a_scan_narrow_what_is_read(cluster):
    fill(cluster, 60)
    reader = narrowed_reader(
        cluster,
        ("EqualTo", "queue_id", 1),
        ("GreaterThanOrEqual", "queue_offset", 10),
        ("EqualTo", "tags", "B"),
    )
    assert partitions(reader) == [(1, 10, 30)]
    table = table_of(reader)
    assert set(table.column("tags").to_pylist()) == {"B"}


@pytest.mark.parametrize(
    ("columns", "lengths"),
    [
        (None, [10] * 12),
        (["body", "tags"], [10] * 12),
        (["properties"], [10] * 12),
        (["tags"], [20] * 6),  # two for each core
        ([], [20] * 6),
    ],
)
def test_partitions_are_larger_when_their_rows_are_small(
    cluster, monkeypatch, columns, lengths
):
    monkeypatch.setattr("rmqcli.spark.sql.views.RECORDS_PER_PARTITION_MAX", 10)
    monkeypatch.setattr("rmqcli.spark.sql.views.SMALL_RECORDS_PER_PARTITION_MAX", 25)
    monkeypatch.setattr("rmqcli.spark.sql.views._PARTITIONS_PER_CORE", 2)
    monkeypatch.setattr("rmqcli.spark.sql.views.cores", lambda: 3)
    fill(cluster, 120, queue_id=0)
    with Client(ClientConfig(namesrv=(cluster.namesrv,))) as client:
        view = pin_topic(client, "orders", start=None, end=None, allow_gaps=False)
    own = {} if columns is None else {COLUMNS: json.dumps(columns)}
    source = source_of({"orders": view})({"subscribe": "orders", **own})
    found = partitions(batch_reader(source))
    assert [end - start for _, start, end in found] == lengths


def test_store_times_are_searched_for(rmq_cluster_factory, rmq_clock):
    cluster = rmq_cluster_factory(clock=rmq_clock)
    cluster.create_topic("orders", queues=1)
    for name in "abcd":
        cluster.send("orders", [name])
        cluster.advance(3_600_000)
    condition = ("EqualTo", "store_timestamp", 1_700_003_600_000)
    assert partitions(narrowed_reader(cluster, condition)) == [(0, 1, 2)]


def test_a_queue_whose_clock_was_set_back_is_not_searched(rmq_cluster_factory):
    """Rows that the condition wants were left out, without a word."""
    clock = SetClock(1_700_000_000_000)
    cluster = rmq_cluster_factory(clock=clock)
    cluster.create_topic("orders", queues=1)
    for hours in (2, 0, 3, 1):
        clock.now_ms = 1_700_000_000_000 + hours * 3_600_000
        cluster.send("orders", ["x"])
    condition = ("GreaterThanOrEqual", "store_timestamp", 1_700_006_000_000)
    assert partitions(narrowed_reader(cluster, condition)) == [(0, 0, 4)]


def test_what_is_removed_before_store_times_are_searched_for_is_not_left_out(
    rmq_cluster_factory, rmq_clock
):
    """The range was pinned with it, and it may be what the condition wants."""
    cluster = rmq_cluster_factory(clock=rmq_clock)
    cluster.create_topic("orders", queues=1)
    for name in "abcd":
        cluster.send("orders", [name])
        cluster.advance(3_600_000)
    condition = ("GreaterThanOrEqual", "store_timestamp", 1_700_000_000_000)
    reader = narrowed_reader(cluster, condition)
    cluster.broker().trim("orders", 2)
    [planned] = reader.partitions()
    with pytest.raises(PartialError, match="offsets 0 to 1 are no longer"):
        list(reader.read(planned))


def test_a_broker_that_restarts_is_waited_for(cluster):
    fill(cluster, 40)
    reader = batch_reader(data_source(cluster))
    planned = reader.partitions()
    cluster.broker().restart()
    assert sum(b.num_rows for each in planned for b in reader.read(each)) == 40


def test_a_broker_that_stays_away_is_an_error(cluster):
    fill(cluster, 4)
    reader = batch_reader(data_source(cluster, timeout="1s", retryFor="0s"))
    planned = reader.partitions()
    cluster.broker().kill()
    with pytest.raises(RmqError) as caught:
        list(reader.read(planned[0]))
    assert str(caught.value) == (
        f"no broker is registered with the name server {cluster.namesrv}\n"
        "hint: start a broker, or check its setting namesrvAddr"
    )


def test_topics_that_match_a_pattern_are_read(cluster):
    cluster.create_topic("orders-eu", queues=1)
    cluster.create_topic("pre-orders", queues=1)
    cluster.create_group("orders")
    for topic in ("orders", "orders-eu", "pre-orders", "%RETRY%orders"):
        cluster.send(topic, [topic])
    reader = batch_reader(data_source(cluster, None, subscribePattern="orders.*"))
    assert set(table_of(reader).column("topic").to_pylist()) == {"orders", "orders-eu"}
    with pytest.raises(NotFoundError) as caught:
        batch_reader(data_source(cluster, None, subscribePattern="rmq_sys.*|sales"))
    assert "there are no topics that match rmq_sys.*|sales" in str(caught.value)


def test_only_assigned_queues_are_read(cluster):
    fill(cluster, 40)
    assign = '{"orders": {"broker-a": [1]}}'
    reader = batch_reader(data_source(cluster, None, assign=assign))
    assert partitions(reader) == [(1, 0, 20)]
    with pytest.raises(UsageError, match="assign: queue orders@broker-a:7 does not"):
        data_source(cluster, None, assign='{"orders": {"broker-a": [1, 7]}}')


def test_a_start_beyond_the_end_of_every_queue_is_refused(cluster):
    cluster.send("orders", ["m"] * 3, queue_id=0)
    cluster.send("orders", ["m"] * 5, queue_id=1)
    assert rows_of(batch_reader(data_source(cluster, startingOffsets="4"))) == [(1, 4)]
    assert rows_of(batch_reader(data_source(cluster, startingOffsets="5"))) == []
    with pytest.raises(UsageError) as caught:
        batch_reader(data_source(cluster, startingOffsets="6"))
    assert str(caught.value) == (
        "option startingOffsets: every queue ends before 6: the last one,"
        " orders@broker-a:1, at 5\nhint: use latest to start at the end of each queue"
    )


def at_hours(rmq_cluster_factory, rmq_clock):
    """Four messages in each of two queues, an hour apart, from 1,700,000,000 s on."""
    cluster = rmq_cluster_factory(clock=rmq_clock)
    cluster.create_topic("orders", queues=2)
    for name in "abcd":
        for queue_id in (0, 1):
            cluster.send("orders", [name], queue_id=queue_id)
        cluster.advance(3_600_000)
    return cluster


def test_times_may_differ_by_topic_and_queue(rmq_cluster_factory, rmq_clock):
    cluster = at_hours(rmq_cluster_factory, rmq_clock)
    reader = batch_reader(
        data_source(
            cluster,
            startingOffsetsByTimestamp='{"orders": {"broker-a": {"1": 1700003600000}}}',
            endingOffsetsByTimestamp='{"orders": "2023-11-15T01:13:20Z"}',
        )
    )
    assert partitions(reader) == [(0, 0, 3), (1, 1, 3)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingTimestamp", "1800000000000"),
        (
            "startingOffsetsByTimestamp",
            '{"orders": {"broker-a": {"0": 1800000000000, "1": 1700000000000}}}',
        ),
    ],
)
def test_a_time_without_a_message_is_the_end_or_an_error(
    rmq_cluster_factory, rmq_clock, name, value
):
    cluster = at_hours(rmq_cluster_factory, rmq_clock)
    at_end = batch_reader(data_source(cluster, **{name: value}))
    assert 0 not in {queue_id for queue_id, _, _ in partitions(at_end)}
    strategy = {"startingOffsetsByTimestampStrategy": "error"}
    with pytest.raises(UsageError) as caught:
        batch_reader(data_source(cluster, **{name: value}, **strategy))
    assert str(caught.value).startswith(
        f"option {name}: orders@broker-a:0 has no message at or after @"
    )
