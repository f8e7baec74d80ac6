"""The data source without a JVM: functions call its readers as Spark's processes do."""

from __future__ import annotations

import pickle

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from rmqcli import RocketMQDataSource
from rmqcli.spark.source.read import arrow_schema


def data_source(cluster, subscribe="orders", **options):
    """Return a data source in the state after `load`, and pickled once."""
    topics = {} if subscribe is None else {"subscribe": subscribe}
    source = RocketMQDataSource({"namesrv": cluster.namesrv, **topics, **options})
    source.schema()
    return pickle.loads(pickle.dumps(source))


def struct(source):
    return from_arrow_schema(arrow_schema(source._options))


def batch_reader(source):
    return source.reader(struct(source))


def stream_reader(cluster, subscribe="orders", **options):
    source = data_source(cluster, subscribe, **options)
    return source.streamReader(struct(source))


def partitions(reader, *args):
    """Return (queue id, start, end) of each partition."""
    return [
        (each.value.queue.queue_id, each.value.start, each.value.end)
        for each in reader.partitions(*args)
    ]


def table_of(reader, *args):
    """Return the rows of all partitions, each read by a pickled copy of the reader."""
    batches = [
        batch
        for each in reader.partitions(*args)
        for batch in pickle.loads(pickle.dumps(reader)).read(each)
    ]
    return pa.Table.from_batches(batches) if batches else None


def rows_of(reader, *args):
    """Return (queue id, offset) of every row, in order."""
    table = table_of(reader, *args)
    if table is None:
        return []
    columns = (table.column(name).to_pylist() for name in ("queue_id", "queue_offset"))
    return list(zip(*columns, strict=True))
