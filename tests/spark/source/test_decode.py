"""The data source with `decode`: columns of bodies in batches and streams."""

from __future__ import annotations

import json

import pytest

from rmqcli.errors import ConfigError, UsageError
from rmqcli.spark.source.data_source import schema_ddl
from rmqcli.spark.source.options import parse_options
from tests.decode.shop import descriptor_set, message_class
from tests.spark.source.reading import (
    batch_reader,
    data_source,
    stream_reader,
    table_of,
)


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=2)
    cluster.create_topic("orders", queues=2)
    return cluster


@pytest.fixture
def schema_file(tmp_path):
    path = tmp_path / "orders.ddl"
    path.write_text("id BIGINT, `the note` STRING, items ARRAY<STRUCT<sku: STRING>>")
    return str(path)


def fill(cluster, numbers, **settings):
    bodies = [json.dumps({"id": n, "items": [{"sku": f"s{n}"}]}) for n in numbers]
    cluster.send("orders", [*bodies, "no JSON"], **settings)


def decoded(table):
    """Return the values, sorted by id, and the corrupt bodies."""
    rows = table.to_pylist()
    values = [row["value"] for row in rows if row["value"] is not None]
    corrupt = [row["_corrupt_body"] for row in rows if row["value"] is None]
    assert all(row["_corrupt_body"] is None for row in rows if row["value"] is not None)
    return sorted(values, key=lambda value: value["id"]), corrupt


def test_a_batch_with_a_given_schema(cluster, schema_file):
    fill(cluster, range(5))
    source = data_source(cluster, decode="json", decodeSchema=schema_file)
    assert schema_ddl(source._options).endswith(
        "`value` struct<`id`:bigint,`the note`:string,"
        "`items`:array<struct<`sku`:string>>>, `_corrupt_body` binary"
    )
    values, corrupt = decoded(table_of(batch_reader(source)))
    assert values == [
        {"id": n, "the note": None, "items": [{"sku": f"s{n}"}]} for n in range(5)
    ]
    assert corrupt == [b"no JSON"]


def test_the_body_can_be_left_out(cluster, schema_file):
    fill(cluster, range(2))
    table = table_of(
        batch_reader(
            data_source(
                cluster,
                decode="json",
                decodeSchema=schema_file,
                includeBody="false",
                includeProperties="false",
            )
        )
    )
    assert table.column_names[-3:] == ["commit_log_offset", "value", "_corrupt_body"]
    assert decoded(table)[1] == [b"no JSON"]


def test_an_inferred_schema_travels_with_the_source(cluster):
    fill(cluster, range(5))
    source = data_source(cluster, decode="json", decodeInfer="4")
    fill(cluster, ["text"])  # sent after the range was pinned
    assert source._options.decoding.schema == (
        "`id` bigint, `items` array<struct<`sku`:string>>"
    )
    values, corrupt = decoded(table_of(batch_reader(source)))
    assert [value["id"] for value in values] == [0, 1, 2, 3, 4]
    assert corrupt == [b"no JSON"]


def test_a_stream_has_the_schema_that_it_started_with(cluster):
    fill(cluster, range(3), queue_id=0)
    reader = stream_reader(
        cluster, decode="json", decodeInfer="10", startingOffsets="earliest"
    )
    start = reader.initialOffset()
    fill(cluster, [7, "text"], queue_id=1)
    values, corrupt = decoded(table_of(reader, start, reader.latestOffset(start)))
    reader.stop()
    assert [value["id"] for value in values] == [0, 1, 2, 7]
    assert sorted(corrupt) == [
        b"no JSON", b"no JSON", b'{"id": "text", "items": [{"sku": "stext"}]}',
    ]  # fmt: skip


def test_nothing_to_infer_from_is_said_at_load(cluster):
    with pytest.raises(
        UsageError, match="option decodeInfer: none of the messages is a JSON"
    ):
        data_source(cluster, decode="json", decodeInfer="4")


def test_protobuf(cluster, tmp_path):
    path = tmp_path / "shop.bin"
    path.write_bytes(descriptor_set())
    item = message_class("shop.Item")(sku="a", n=5).SerializeToString()
    cluster.send("orders", [item, b"\xff"])
    source = data_source(cluster, decode=f"protobuf:{path}:shop.Item")
    rows = table_of(batch_reader(source)).to_pylist()
    found = [(row["value"], row["_corrupt_body"]) for row in rows]
    assert sorted(found, key=str) == [
        (None, b"\xff"),
        ({"sku": "a", "n": 5}, None),
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"decode": "xml"}, "option decode: 'xml' is not one of json, avro, protobuf"),
        ({"decode": "json"}, "option decode=json needs a schema"),
        ({"decodeInfer": "5"}, "option decodeInfer needs decode"),
        ({"decodeSchema": "x"}, "option decodeSchema needs decode"),
        ({"decode": "json", "decodeInfer": "0"}, "option decodeInfer: '0' is not"),
        (
            {"decode": "json", "decodeInfer": "10001"},
            "10001 exceeds the limit of 10000",
        ),
        (
            {"decode": "json", "decodeInfer": "5", "decodeSchema": "x"},
            "option decodeSchema and option decodeInfer cannot be used together",
        ),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(UsageError) as caught:
        parse_options({"subscribe": "orders", **options}, environ={})
    assert words in caught.value.message


def test_a_file_that_is_not_there_is_named():
    options = {"subscribe": "orders", "decode": "json", "decodeSchema": "/no/file"}
    with pytest.raises(ConfigError, match="option decodeSchema: cannot read /no/file"):
        parse_options(options, environ={})
