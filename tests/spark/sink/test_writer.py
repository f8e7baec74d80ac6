"""The sink without a JVM: the tests call the writers as Spark's processes do."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.pandas.types import from_arrow_schema

from rmqcli import RocketMQDataSource
from rmqcli.errors import ConfigError, NotFoundError, PartialError, UsageError
from rmqcli.spark.messages import messages_of
from rmqcli.spark.shown_errors import shown_warnings
from rmqcli.spark.sink.options import NAMES
from rmqcli.spark.sink.write import RowStreamWriter, Written
from rmqcli.testing import Seed, faults
from rmqcli.wire.codes import RequestCode
from tests.spark.source.reading import batch_reader, data_source, table_of

TEXTS = pa.map_(pa.string(), pa.string())


@pytest.fixture
def cluster(rmq_cluster_factory):
    cluster = rmq_cluster_factory(queues=2)
    cluster.create_topic("orders", queues=2)
    return cluster


def table(rows=3, **columns):
    """A batch with a body in each row and the given other columns."""
    found = {"body": pa.array([f"body {n}".encode() for n in range(rows)]), **columns}
    return pa.RecordBatch.from_pydict(found)


def writer_of(cluster, schema, topic="orders", *, overwrite=False, **options):
    # A batch would be sent again after the timeout, as on a busy machine.
    given = {"namesrv": cluster.namesrv, "timeout": "5m", **options}
    if topic is not None:
        given["topic"] = topic
    source = pickle.loads(pickle.dumps(RocketMQDataSource(given)))
    return source.writer(from_arrow_schema(schema), overwrite)


def write(cluster, batch, **options):
    """Send a batch as a worker does."""
    writer = writer_of(cluster, batch.schema, **options)
    return pickle.loads(pickle.dumps(writer)).write(iter([batch]))


def stored(cluster, topic="orders"):
    """The messages of a topic, in the order of their bodies."""
    rows = table_of(batch_reader(data_source(cluster, topic))).to_pylist()
    return sorted(rows, key=lambda row: row["body"])


def test_a_row_becomes_a_message(cluster):
    batch = table(
        tags=pa.array(["A", None, "B"]),
        keys=pa.array([["k1", "k2"], None, []], pa.list_(pa.string())),
        properties=pa.array([[("colour", "größer")], None, []], TEXTS),
        flag=pa.array([7, None, -1], pa.int32()),
    )
    assert write(cluster, batch) == Written(messages=3, unsure=0, weak=0)
    first, second, third = stored(cluster)
    assert (first["body"], first["tags"], first["keys"]) == (b"body 0", "A", "k1 k2")
    assert dict(first["properties"])["colour"] == "größer"
    assert (first["flag"], second["flag"], third["flag"]) == (7, 0, -1)
    assert (second["tags"], second["keys"]) == (None, None)
    assert (third["tags"], third["keys"]) == ("B", None)


def test_a_null_is_a_value_that_the_message_does_not_have(cluster):
    """A column lit(None), and a null in an array of keys, ended the write."""
    batch = table(
        tags=pa.nulls(3),
        keys=pa.array([["k1", None, "k2"], [None], None], pa.list_(pa.string())),
        properties=pa.array([[("colour", None)], [("a", "b")], None], TEXTS),
        flag=pa.nulls(3),
        delay=pa.nulls(3),
        queue_id=pa.nulls(3),
        sharding_key=pa.nulls(3),
    )
    assert write(cluster, batch).messages == 3
    found = stored(cluster)
    assert [(row["tags"], row["keys"]) for row in found] == [
        (None, "k1 k2"),
        (None, None),
        (None, None),
    ]
    names = [set(dict(row["properties"])) & {"TAGS", "KEYS", "colour"} for row in found]
    assert names == [{"KEYS"}, set(), set()]
    rows = [Row(body=b"row", tags=None, keys=[None, "k"], properties={"colour": None})]
    options = writer_of(cluster, table().schema)._writing.options
    assert RowStreamWriter(options).write(iter(rows)).messages == 1
    (row,) = [each for each in stored(cluster) if each["body"] == b"row"]
    assert (row["tags"], row["keys"]) == (None, "k")


def test_a_column_without_a_type_cannot_be_the_body(cluster):
    batch = pa.RecordBatch.from_pydict({"body": pa.nulls(3)})
    with pytest.raises(UsageError, match="column body is void; it must be binary"):
        writer_of(cluster, batch.schema)


def test_a_tag_replaces_the_property_that_differs_only_in_white_space(cluster):
    """For a filter they are two tags; of keys, white space only separates them."""
    properties = [("TAGS", "A "), ("KEYS", "k1  k2")]
    batch = table(
        1,
        tags=pa.array(["A"]),
        keys=pa.array(["k1 k2"]),
        properties=pa.array([properties], TEXTS),
    )
    write(cluster, batch)
    [row] = stored(cluster)
    assert (row["tags"], row["keys"]) == ("A", "k1  k2")


def test_the_names_of_columns_may_be_in_any_case(cluster):
    batch = table(rows=1, TAGS=pa.array(["A"]), Queue_Id=pa.array([1]))
    batch = batch.rename_columns(["Body", "TAGS", "Queue_Id"])
    write(cluster, batch)
    [row] = stored(cluster)
    assert (row["body"], row["tags"], row["queue_id"]) == (b"body 0", "A", 1)
    options = writer_of(cluster, batch.schema)._writing.options
    RowStreamWriter(options).write(iter([Row(BODY=b"body 1", Queue_ID=0)]))
    assert [row["queue_id"] for row in stored(cluster)] == [1, 0]


def test_columns_that_differ_only_in_case_are_refused(cluster):
    with pytest.raises(UsageError, match="columns tags and TAGS are the same column"):
        writer_of(cluster, table(tags=["A"] * 3, TAGS=["B"] * 3).schema)


def test_the_body_and_the_keys_may_be_strings(cluster):
    batch = pa.RecordBatch.from_pydict({"body": ["größer", ""], "keys": ["a  b", "c"]})
    write(cluster, batch)
    empty, full = stored(cluster)
    assert (empty["body"], full["body"]) == (b"", "größer".encode())
    assert full["keys"] == "a  b"


def test_rows_of_the_source_can_be_written(cluster):
    """Properties that brokers and clients added are left out of the messages."""
    cluster.create_topic("copy", queues=3)
    seeds = [
        Seed(
            body=b"%d" % n,
            tags="A" if n % 2 else None,
            keys=["k", str(n)] if n % 3 else (),
            properties={"n": str(n)} if n % 5 else {},
            flag=n,
        )
        for n in range(100)
    ]
    cluster.send("orders", seeds)
    source = data_source(cluster)
    read = table_of(batch_reader(source)).select(
        ["body", "tags", "keys", "properties", "flag"]
    )
    for batch in read.to_batches():
        write(cluster, batch, topic="copy")
    before, after = stored(cluster), stored(cluster, "copy")
    assert len(after) == 100
    for old, new in zip(before, after, strict=True):
        for name in ("body", "tags", "keys", "flag"):
            assert new[name] == old[name], name
        added = {"UNIQ_KEY", "CLUSTER", "MSG_REGION", "TRACE_ON", "WAIT"}
        assert {k: v for k, v in new["properties"] if k not in added} == {
            k: v for k, v in old["properties"] if k not in added
        }
        assert new["msg_id"] != old["msg_id"]


def test_column_topic_names_the_topic_unless_the_option_is_given(cluster):
    cluster.create_topic("payments", queues=1)
    batch = table(topic=pa.array(["orders", "payments", "orders"]))
    write(cluster, batch, topic=None)
    assert [row["body"] for row in stored(cluster)] == [b"body 0", b"body 2"]
    assert [row["body"] for row in stored(cluster, "payments")] == [b"body 1"]
    write(cluster, batch, topic="payments")
    assert len(stored(cluster, "payments")) == 4


def test_a_row_chooses_its_queue_by_id(cluster):
    batch = table(5, queue_id=pa.array([1, 1, 0, None, 1], pa.int32()))
    assert write(cluster, batch).messages == 5
    found = {row["body"]: row for row in stored(cluster)}
    chosen = [found[b"body %d" % n]["queue_id"] for n in (0, 1, 2, 4)]
    assert chosen == [1, 1, 0, 1]
    offsets = [found[b"body %d" % n]["queue_offset"] for n in (0, 1, 4)]
    assert offsets == sorted(offsets)


def test_a_sharding_key_chooses_the_queue_as_java_does(cluster):
    """In Java, "a".hashCode() is 97 and "größer".hashCode() is -1233337215."""
    cluster.create_topic("sharded", queues=8)
    keys = ["a", "größer", "", "a", None]
    batch = table(5, sharding_key=pa.array(keys))
    write(cluster, batch, topic="sharded")
    found = [row["queue_id"] for row in stored(cluster, "sharded")]
    assert found[:4] == [97 % 8, 1233337215 % 8, 0, 97 % 8]


def test_a_delayed_row_may_choose_its_queue(cluster):
    delay = pa.array([None, 3, 3])
    queue = pa.array([1, 1, 1])
    assert write(cluster, table(delay=delay, queue_id=queue)).messages == 3
    assert [row["queue_id"] for row in stored(cluster)] == [1]


def test_messages_waiting_for_their_batches_are_bounded(cluster):
    cluster.create_topic("many", queues=200)
    rows = 16_384
    queue_ids = pa.array([n % 200 for n in range(rows)])
    sent = cluster.faults.observe(code=RequestCode.SEND_BATCH_MESSAGE)
    batch = table(rows, queue_id=queue_ids)
    seen = []
    writer = pickle.loads(pickle.dumps(writer_of(cluster, batch.schema, "many")))

    def batches():
        yield batch
        seen.append(sent.seen)

    assert writer.write(batches()).messages == rows
    assert seen == [200]
    assert sent.seen == 200


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"queue_id": [2] * 3}, "topic orders has no writable queue 2"),
        ({"queue_id": [-1] * 3}, "topic orders has no writable queue -1"),
        (
            {"queue_id": [1] * 3, "sharding_key": ["k"] * 3},
            "a row has queue_id 1 and sharding_key 'k'",
        ),
    ],
)
def test_a_queue_that_cannot_be_chosen_fails_the_task(cluster, columns, what):
    with pytest.raises(UsageError) as caught:
        write(cluster, table(**columns))
    assert caught.value.message.startswith(what)


def test_a_message_group_chooses_the_queue_as_proxies_do(cluster):
    """Any queue got the rows of a group, so that they came in any order."""
    cluster.create_topic("steps", queues=4)
    groups = ["a", "group-1", "zzzzzzzz", "a", "group-1"]
    properties = pa.array([[("__SHARDINGKEY", each)] for each in groups], TEXTS)
    queue_id = pa.array([None, None, None, None, 3], pa.int32())
    batch = table(5, properties=properties, queue_id=queue_id)
    write(cluster, batch, topic="steps")
    assert [row["queue_id"] for row in stored(cluster, "steps")] == [0, 1, 2, 0, 3]


def test_a_priority_chooses_the_queue_of_a_row_that_chooses_none(cluster):
    """The broker does not look at the priorities of a batch: any queue got the row."""
    properties = pa.array([[("_SYS_MSG_PRIORITY_", "1")]] * 4, TEXTS)
    queue_id = pa.array([None, None, 0, None], pa.int32())
    write(cluster, table(4, properties=properties, queue_id=queue_id))
    assert [row["queue_id"] for row in stored(cluster)] == [1, 1, 0, 1]


def test_a_queue_id_that_several_brokers_have_is_refused(rmq_cluster_factory):
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    with pytest.raises(UsageError) as caught:
        write(cluster, table(queue_id=[0] * 3))
    assert caught.value.message == (
        "queue_id 0 of topic orders is ambiguous: brokers broker-a, broker-b each have"
        " a queue of this id"
    )
    write(cluster, table(sharding_key=["k"] * 3))
    assert len({row["broker_name"] for row in stored(cluster)}) == 1


def test_delayed_rows_arrive_later_than_others(cluster):
    """Brokers refuse delayed messages in batches."""
    assert write(cluster, table(delay=pa.array([None, 3, 3]))).messages == 3
    assert [row["body"] for row in stored(cluster)] == [b"body 0"]


def test_a_priority_chooses_the_queue_of_a_row_that_does_not(cluster):
    """A broker stores a batch in the queue of the request, whatever the priorities."""
    cluster.create_topic("urgent", queues=4)
    priorities = [[("_SYS_MSG_PRIORITY_", str(n % 4))] for n in range(40)]
    batch = table(40, properties=pa.array(priorities, TEXTS))
    assert write(cluster, batch, topic="urgent").messages == 40
    queues = {row["body"]: row["queue_id"] for row in stored(cluster, "urgent")}
    assert queues == {b"body %d" % n: n % 4 for n in range(40)}

    cluster.create_topic("chosen", queues=4)
    chosen = batch.append_column("queue_id", pa.array([2] * 40))
    write(cluster, chosen, topic="chosen")
    assert {row["queue_id"] for row in stored(cluster, "chosen")} == {2}


def test_rows_are_sent_in_batches_of_512(cluster):
    batches = cluster.faults.observe(code=RequestCode.SEND_BATCH_MESSAGE)
    assert write(cluster, table(1_100)).messages == 1_100
    assert batches.seen == 3
    assert len(stored(cluster)) == 1_100


@pytest.mark.parametrize(
    ("columns", "what", "hint"),
    [
        ({"id": ["1"] * 3}, "column id is not a column of a message", "these columns"),
        ({"tags": [1] * 3}, "column tags is bigint; it must be string", "cast"),
        ({"keys": [1.5] * 3}, "column keys is double; it must be string or", "cast"),
        (
            {"properties": ["a"] * 3},
            "column properties is string; it must be map<string,string>",
            "cast",
        ),
        ({"delay": ["1"] * 3}, "column delay is string; it must be int", "cast"),
        ({"body": [1] * 3}, "column body is bigint; it must be binary or", "cast"),
    ],
)
def test_columns_are_checked_before_anything_is_sent(cluster, columns, what, hint):
    with pytest.raises(UsageError) as caught:
        writer_of(cluster, table(**columns).schema)
    assert caught.value.message.startswith(what)
    assert hint in caught.value.hint


def test_a_body_and_a_topic_are_required(cluster):
    with pytest.raises(UsageError, match="no column body"):
        writer_of(cluster, pa.schema({"value": pa.string()}).remove(0))
    with pytest.raises(UsageError, match="neither option topic nor column topic"):
        writer_of(cluster, table().schema, topic=None)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"subscribe": "orders"}, "option subscribe does not exist"),
        ({"path": "/x"}, "save or start does not accept a path"),
        ({"topic": "a b"}, "option topic: topic 'a b' has characters"),
        ({"timeout": "soon"}, "option timeout: 'soon'"),
        ({"tlsKey": "k"}, "option tlsKey needs tlsCert"),
    ],
)
def test_options_that_the_sink_does_not_have_are_refused(cluster, options, what):
    with pytest.raises(UsageError) as caught:
        writer_of(cluster, table().schema, **options)
    assert caught.value.message.startswith(what)
    assert "subscribe" not in NAMES


def test_a_topic_cannot_be_overwritten(cluster):
    with pytest.raises(UsageError) as caught:
        writer_of(cluster, table().schema, overwrite=True)
    assert caught.value.hint == 'write .mode("append")'


def test_an_unknown_topic_is_found_before_anything_is_sent(cluster):
    with pytest.raises(NotFoundError, match="topic nowhere does not exist"):
        writer_of(cluster, table().schema, topic="nowhere")
    cluster.create_topic("payments")
    with pytest.raises(NotFoundError, match=r"not exist; did you mean payments\?"):
        writer_of(cluster, table().schema, topic="payment")


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ({"body": pa.array([b"a", None, b"c"])}, "a row has no body"),
        ({"delay": [1, 0, 2]}, "delay is 0; a delay level must be at least 1"),
        ({"keys": [["a b"]] * 3}, "key 'a b' of an array"),
        ({"properties": pa.array([[("a", "")]] * 3, TEXTS)}, "property 'a' has no"),
    ],
)
def test_a_row_that_cannot_be_a_message_fails_the_task(cluster, columns, what):
    with pytest.raises(UsageError) as caught:
        write(cluster, table(**columns))
    assert caught.value.message.startswith(what)


@pytest.mark.slow
def test_an_answer_is_waited_for_as_long_as_the_option_says(cluster):
    """A producer's own limit for all attempts at a send is three seconds."""
    late = cluster.faults.add(faults.delay(4_000), code=RequestCode.SEND_BATCH_MESSAGE)
    assert write(cluster, table()) == Written(messages=3, unsure=0, weak=0)
    assert late.seen == 1
    assert len(stored(cluster)) == 3


def test_a_failed_task_says_how_many_messages_are_stored(cluster):
    """The first batch is stored; in the second one a row has no body."""
    bodies = [b"x"] * 600 + [None]
    with pytest.raises(PartialError) as caught:
        write(cluster, table(601, body=pa.array(bodies)))
    assert caught.value.message == (
        "a row has no body: it is null; stored before the error: 512 messages of this"
        " task"
    )
    assert len(stored(cluster)) == 512


SURE = Written(messages=4, unsure=0, weak=0)
UNSURE = Written(messages=3, unsure=1, weak=0)
WEAK = Written(messages=2, unsure=0, weak=2)


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ([], []),
        ([SURE, None], []),
        (
            [SURE, UNSURE],
            ["1 message may be stored twice: a broker did not answer in time"],
        ),
        (
            [WEAK, UNSURE, UNSURE],
            [
                "2 messages may be stored twice: a broker did not answer in time",
                "the broker could not flush or replicate 2 stored messages in time",
            ],
        ),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_a_write_ends_with_what_is_not_certain(
    cluster, capfd, written, lines, is_stream
):
    source = RocketMQDataSource({"namesrv": cluster.namesrv, "topic": "orders"})
    schema = from_arrow_schema(table().schema)
    if is_stream:
        source.streamWriter(schema, False).commit(written, 7)
    else:
        source.writer(schema, False).commit(written)
    assert shown_warnings(capfd.readouterr().err) == lines


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_write_that_failed_says_what_is_stored(cluster, capfd, is_stream):
    source = RocketMQDataSource({"namesrv": cluster.namesrv, "topic": "orders"})
    schema = from_arrow_schema(table().schema)
    if is_stream:
        source.streamWriter(schema, False).abort([SURE, None, WEAK], 7)
    else:
        source.writer(schema, False).abort([SURE, None, WEAK])
    assert shown_warnings(capfd.readouterr().err) == [
        (
            "the write failed, but 6 messages are stored by 2 finished tasks, as are"
            " messages that other tasks have sent: messages cannot be withdrawn, and"
            " writing again stores them again"
        )
    ]


def test_one_message_of_a_write_that_failed_is_one_message(cluster, capfd):
    source = RocketMQDataSource({"namesrv": cluster.namesrv, "topic": "orders"})
    written = Written(messages=1, unsure=0, weak=0)
    source.writer(from_arrow_schema(table().schema), False).abort([written, None])
    (warning,) = shown_warnings(capfd.readouterr().err)
    assert warning.startswith(
        "the write failed, but 1 message is stored by 1 finished task, as are"
    )


def test_a_stream_before_pyspark_4_1_sends_the_same_messages(cluster):
    options = writer_of(cluster, table().schema)._writing.options
    writer = pickle.loads(pickle.dumps(RowStreamWriter(options)))
    rows = [
        Row(body=bytearray(b"a"), keys=["k"], properties={"n": "1"}, queue_id=1),
        Row(body=bytearray(b"b"), keys=None, properties=None, queue_id=None),
    ]
    assert writer.write(iter(rows)) == Written(messages=2, unsure=0, weak=0)
    first, second = stored(cluster)
    assert (first["body"], first["keys"], first["queue_id"]) == (b"a", "k", 1)
    assert dict(first["properties"])["n"] == "1"
    assert second["body"] == b"b"


def test_a_stream_with_output_mode_complete_is_refused(cluster):
    source = RocketMQDataSource({"namesrv": cluster.namesrv, "topic": "orders"})
    schema = from_arrow_schema(table().schema)
    assert source.streamWriter(schema, False)._writing.options.topic == "orders"
    with pytest.raises(UsageError, match="messages can only be added"):
        source.streamWriter(schema, True)


def test_no_secret_is_pickled(cluster, tmp_path):
    path = tmp_path / "acl.toml"
    path.write_text('access_key = "writer"\nsecret_key = "s3cret-of-tests"\n')
    path.chmod(0o600)
    writer = writer_of(cluster, table().schema, aclFile=str(path))
    assert b"s3cret-of-tests" not in pickle.dumps(writer)
    config = writer._writing.options.connection.client_config()
    assert config.credentials.access_key == "writer"
    sent = cluster.faults.observe(code=RequestCode.SEND_BATCH_MESSAGE)
    writer.write(iter([table()]))
    assert sent.requests[0].command.ext_fields["AccessKey"] == "writer"
    path.chmod(0o644)
    with pytest.raises(ConfigError):
        writer.write(iter([table()]))


def test_rows_of_a_slice_keep_their_own_properties():
    maps = pa.array([[("n", str(n))] * (n % 2) for n in range(6)], TEXTS)
    found = messages_of(table(6, properties=maps).slice(3, 2), topic="orders")
    assert [dict(each.properties) for each in found] == [{"n": "3"}, {}]
