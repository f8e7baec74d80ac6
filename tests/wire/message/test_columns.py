"""Both decoders give the same rows and failures for any bytes."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import DecodeError
from rmqcli.wire.compression import deflate_zlib
from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.columns import decode_columns, message_schema, scan
from rmqcli.wire.message.decode import DecodeFailure, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.layout import MAGIC_V2
from tests.golden_vectors import from_base64, load
from tests.kit.zstd import zstd

_US_MAX = (1 << 63) - 1


def one_by_one(bodies: list[bytes]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return the rows and failures that `decode_messages` gives."""
    rows, failures = [], []
    for body in bodies:
        for one in decode_messages(body):
            if isinstance(one, DecodeFailure):
                failures.append((one.at, one.queue_offset, one.error, one.raw))
                continue
            try:
                inflated = one.body
            except DecodeError as error:
                raw = body[one.at : one.at + one.store_bytes]
                failures.append((one.at, one.queue_offset, error.message, raw))
                continue
            rows.append(
                {
                    "topic": "T",
                    "broker_name": "broker-a",
                    "queue_id": one.queue_id,
                    "queue_offset": one.queue_offset,
                    "msg_id": one.msg_id,
                    "tags": one.tags,
                    "keys": one.keys,
                    "born_timestamp": microseconds(one.born_timestamp_ms),
                    "store_timestamp": microseconds(one.store_timestamp_ms),
                    "born_host": one.born_host,
                    "store_host": one.store_host,
                    "reconsume_times": one.reconsume_times,
                    "flag": one.flag,
                    "sys_flag": one.sys_flag,
                    "commit_log_offset": one.commit_log_offset,
                    "body": inflated,
                    "properties": list(one.properties.items()),
                }
            )
    return rows, failures


def microseconds(time_ms: int) -> int | None:
    return time_ms * 1000 if abs(time_ms * 1000) <= _US_MAX - 2000 else None


#: Columns that are decoded alone; the rows and the failures have to be the same.
SOME_COLUMNS = (
    ["queue_offset"],
    ["tags", "store_host", "body"],
    ["topic", "queue_offset", "properties"],
    ["queue_id", "born_timestamp", "commit_log_offset"],
)


def check(bodies: list[bytes]) -> pa.RecordBatch:
    result = decode_columns(bodies, topic="T", broker_name="broker-a")
    rows, failures = one_by_one(bodies)
    result.batch.validate(full=True)
    assert result.batch.schema.equals(message_schema())
    # Python's datetime ends in the year 9999, but hostile times may be later.
    columns = {
        field.name: (
            column.cast(pa.int64()) if pa.types.is_timestamp(field.type) else column
        ).to_pylist()
        for field, column in zip(result.batch.schema, result.batch.columns, strict=True)
    }
    got = [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    assert got == rows
    assert [
        (one.at, one.queue_offset, one.error, one.raw) for one in result.failures
    ] == failures
    for names in SOME_COLUMNS:
        some = decode_columns(bodies, topic="T", broker_name="broker-a", columns=names)
        some.batch.validate(full=True)
        assert some.batch.equals(result.batch.select(names))
        assert some.failures == result.failures
    return result.batch


def vectors(name: str) -> list[bytes]:
    return [from_base64(case["bytes_b64"]) for case in load(name)]


@pytest.mark.parametrize("name", ["messages", "message-runs"])
def test_columns_of_each_golden_record_alone(name):
    for body in vectors(name):
        check([body])


@pytest.mark.parametrize("name", ["messages", "message-runs", "batches"])
def test_columns_of_all_golden_records_at_once(name):
    """With this many bodies, each numpy step handles one record of every body."""
    check(vectors(name))


def test_columns_of_all_golden_records_in_one_body():
    check([b"".join(vectors("messages"))])
    check([b"".join(vectors("message-runs"))])


@pytest.mark.parametrize("total_bytes", [0, 4, 8, 47, 48, 90, 2**31 - 1, 2**32 - 1])
def test_a_size_that_ends_within_a_record_s_first_fields(total_bytes):
    """What follows is found by both decoders, although the size cannot be right."""
    first, second = vectors("messages")[:2]
    damaged = struct.pack(">I", total_bytes) + first[4:]
    check([damaged])
    check([damaged + second])
    check([second + damaged, first])


def test_the_schema_of_exported_files_never_changes():
    """Programs that read earlier files depend on it."""
    utc = pa.timestamp("us", tz="UTC")
    expected = [
        ("topic", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("msg_id", pa.string()),
        ("tags", pa.string()),
        ("keys", pa.string()),
        ("born_timestamp", utc),
        ("store_timestamp", utc),
        ("born_host", pa.string()),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("commit_log_offset", pa.int64()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
    assert message_schema().equals(pa.schema(expected))
    assert message_schema({"body", "topic"}).equals(pa.schema(expected[::15]))


@pytest.mark.parametrize("bodies", [[], [b""], [b""] * 100, [b"\0"] * 100])
def test_bodies_without_a_record_have_no_rows(bodies):
    assert check(bodies).num_rows == 0


def record(**fields: Any) -> bytes:
    magic = fields.pop("magic", None)
    return encode_message(MessageFields(**{"topic": "T", **fields}), magic=magic)


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "A\x011",  # no 0x02 at the end, as in 4.9.1 to 5.1.4
        "TAGS\x01a\x02TAGS\x01b\x02",
        "abcdefgh1\x01a\x02abcdefgh2\x01b\x02abcdefgh1\x01c\x02",
        "TAGS\x01a\x01b\x02",
        "TAGS\x01\x02KEYS\x01k\x02",
        "\x01v\x02\x02\x01\x02no separator\x02KEYS\x01k\x02",
        "TAG\x01S\x02XTAGS\x01n\x02TAGSX\x01n\x02",
        b"TAGS\x01\xff\xfe\x02KEYS\x01\xe5\xba\x02",
        "".join(f"k{number}\x01v\x02" for number in range(60)),
        "键\x01值\x02TAGS\x01标签\x02",
    ],
)
def test_unusual_properties_among_usual_ones(properties):
    good = record(queue_offset=1, properties={"TAGS": "t", "KEYS": "k", "x": "y"})
    odd = record(queue_offset=2, properties=properties)
    check([good + odd + good, odd, good])


compressed = {
    0x301: deflate_zlib,
    1: deflate_zlib,
    0x101: lz4.frame.compress,
    0x201: zstd.compress,
    0x701: bytes,  # an unknown compression type
}
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
hosts = st.sampled_from(["10.0.0.1:10911", "10.0.0.2:5", "[fe80::1]:10911"])
names = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "a", "long name one", "long name two"]
)
values = st.sampled_from(["x", "a b", "库存", "v\x01w", ""])
entries = st.lists(
    st.tuples(names, values).map("\x01".join) | st.just("junk"), max_size=6
)
texts = st.tuples(entries.map("\x02".join), st.sampled_from(["", "\x02"])).map("".join)


USUAL = {
    "empty": record(),
    "the longest topic": record(topic="t" * 127),
    "255 bytes of properties": record(properties="P\x01" + "v" * 253),
    "256 bytes of properties": record(properties="P\x01" + "v" * 254),
    "the longest properties": record(properties="P\x01" + "v" * 32_765),
    "compressed": record(sys_flag=1),
}


@pytest.mark.parametrize("body", USUAL.values(), ids=USUAL)
def test_usual_records_are_read_in_columns(body):
    """Others are read one by one: with the same result, but many times slower."""
    found = scan([body, body])
    assert found.plain.tolist() == [True, True]
    assert found.starts.tolist() == [0, len(body)]
    assert found.ends.tolist() == [len(body), 2 * len(body)]


UNUSUAL = {
    "IPv6": record(born_host="[::1]:9"),
    "properties that end before the record": record(properties="P\x01v")[:-1] + b"vv",
    "properties that end behind the record": record(properties="P\x01v")[:-1],
}


@pytest.mark.parametrize("body", UNUSUAL.values(), ids=UNUSUAL)
def test_a_record_whose_parts_do_not_fill_it_is_read_alone(body):
    sized = struct.pack(">I", len(body)) + body[4:]
    assert scan([sized]).plain.tolist() == [False]


def test_properties_are_not_split_for_columns_that_are_not_made_of_them():
    """That takes several times the memory, and most of the time."""
    data = record(properties="".join(f"name{n}\x01{n}\x02" for n in range(2_000))) * 5

    def peak(column: str) -> int:
        tracemalloc.start()
        try:
            decode_columns([data], topic="T", broker_name="b", columns=[column])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak("queue_offset") < 3 * len(data) < peak("tags")


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """Draw a record with any fields, which may be compressed, a batch, or damaged."""
    body = draw(st.binary(max_size=40))
    sys_flag = draw(st.sampled_from([0, 0, 0, 2, 8, 0x40, 0xC0, 1, *compressed]))
    if sys_flag == 0xC0:
        body = encode_batch([BatchItem(body, {"TAGS": "i"}), BatchItem(b"2")])
    elif sys_flag in compressed and draw(st.booleans()):
        body = compressed[sys_flag](body)
    data = record(
        body=body,
        sys_flag=sys_flag,
        queue_id=draw(int32),
        queue_offset=draw(st.integers(0, 1 << 40)),
        flag=draw(int32),
        commit_log_offset=draw(int64),
        reconsume_times=draw(int32),
        born_timestamp_ms=draw(int64),
        store_timestamp_ms=draw(st.sampled_from([0, -1, 1_700_000_000_123])),
        born_host=draw(hosts),
        store_host=draw(hosts),
        properties=draw(texts),
        magic=draw(st.sampled_from([None, None, None, MAGIC_V2])),
    )
    damage = draw(st.sampled_from(["", "", "", "", "size", "magic", "body", "cut"]))
    if damage == "size":
        return struct.pack(">i", draw(st.integers(-1, 400))) + data[4:]
    if damage == "magic":
        return data[:4] + b"\x12\x34\x56\x78" + data[8:]
    if damage == "body":
        return data[:84] + draw(st.binary(min_size=4, max_size=4)) + data[88:]
    return data[: draw(st.integers(0, len(data)))] if damage == "cut" else data


@given(st.lists(st.lists(records(), max_size=5).map(b"".join), max_size=4))
def test_columns_and_messages_agree(bodies):
    check(bodies)


@given(st.lists(records(), max_size=4), st.integers(48, 60))
def test_columns_and_messages_agree_in_lock_step(made, times):
    check([b"".join(made)] * times)


@given(st.lists(st.binary(max_size=300), max_size=3))
def test_random_bytes_never_raise(bodies):
    check(bodies)


def test_any_kind_of_buffer_is_decoded():
    data = record(body=b"hello")
    whole = decode_columns([data, data], topic="T", broker_name="b").batch
    for body in (bytearray(data), memoryview(data)):
        again = decode_columns([data, body], topic="T", broker_name="b").batch
        assert again.equals(whole)
