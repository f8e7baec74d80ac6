"""The lines of a whole chunk are those that encoding each record would give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.admin.read.range import Chunk
from rmqcli.admin.read.record import record_of
from rmqcli.admin.read.record_json import JsonLines
from rmqcli.admin.read.record_lines import chunk_lines
from rmqcli.admin.tail.batch import LineBatcher, TailCounts
from rmqcli.admin.tail.filter import make_filter
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.admin.tail.merge import Batch

QUEUE = MessageQueue("orders", "broker-a", 3)
JAVA_PROPERTIES = {"UNIQ_KEY": "0A", "WAIT": "true", "TAGS": "TagA"}

BODIES = [
    b"",
    b"plain",
    b"other",
    b"\x00\xff",
    b"two\nlines",
    "naïve".encode(),
    "用户".encode(),
    b"\xe7\x94",
    b'said "yes" \\',
    b"\x1b[2J\x7f",
    b"{broken",
    b"[1,2]",
    b'{"id":1,"amount":1.5}',
    b'{"id":1,"amount":1.50}',
    b'{"a":1,"a":2}',
    b"[NaN]",
]
PROPERTIES: list[Mapping[str, str] | bytes] = [
    JAVA_PROPERTIES,
    {"UNIQ_KEY": "0B", "WAIT": "false", "TAGS": "Tag\N{EURO SIGN}"},
    {"KEYS": "order-1 order-2", "TAGS": "TagA"},
    {"XTAGS": "TagA", "TAGSX": "TagB"},
    {"KEYS": 'said "yes"\n'},
    {"TAGS": ""},
    {"NESTED": "a\x01b"},
    {},
    b"TAGS\x01TagA\x02KEYS\x01k",
    b"TAGS\x01TagA\x02\x02",
    b"TAGS\x01\xff\xe7\x02KEYS\x01k\x02",
    b"TAGS\x01old\x02TAGS\x01new\x02",
    b"no separator",
    b"\x01value\x02",
    b"\x02",
]


def chunk_of(records: list[bytes], *, start: int = 0) -> Chunk:
    return Chunk(QUEUE, start, start + len(records), b"".join(records), ())


def batch_of(chunk: Chunk) -> Batch[str]:
    return LineBatcher(make_filter(), JsonLines(), TailCounts()).batch(chunk)


def assert_same_as_records(chunk: Chunk) -> None:
    messages = decode_messages(chunk.body)
    batch = batch_of(chunk)
    expected = [record_of(QUEUE, message) for message in messages]
    found = [json.loads(line) for line in batch.items]
    assert found == expected
    assert [list(record) for record in found] == [list(record) for record in expected]
    assert [list((r["properties"] or {}).items()) for r in found] == [
        list((r["properties"] or {}).items()) for r in expected
    ]
    assert len(batch.store_times_ms) == len(batch.queue_offsets) == len(messages)
    assert all("\n" not in line for line in batch.items)


@settings(max_examples=400)
@given(
    kinds=st.lists(
        st.tuples(
            st.sampled_from(BODIES) | st.binary(max_size=8),
            st.sampled_from(PROPERTIES)
            | st.text(alphabet='\x01\x02aTAGS"\\ü\n', max_size=12),
            st.sampled_from([0, 0, 0, 4, 8, 1, 0x40]),
        ),
        min_size=1,
        max_size=6,
    ),
    copies=st.integers(1, 3),
    hosts=st.lists(
        st.sampled_from(["1.2.3.4:5", "1.2.3.5:5", "[::1]:9"]), min_size=1, max_size=2
    ),
    times=st.lists(
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 42),
        min_size=1,
        max_size=4,
    ),
    place=st.integers(-(1 << 63), (1 << 63) - 1),
)
def test_any_chunk(
    kinds: list[tuple[bytes, Mapping[str, str] | str | bytes, int]],
    copies: int,
    hosts: list[str],
    times: list[int],
    place: int,
) -> None:
    records = [
        encode_message(
            MessageFields(
                topic="orders",
                body=body,
                queue_offset=offset,
                commit_log_offset=place,
                sys_flag=sys_flag,
                flag=offset % 2,
                reconsume_times=-offset,
                born_host=hosts[offset % len(hosts)],
                store_host=hosts[offset // 4 % len(hosts)],
                born_timestamp_ms=times[offset % len(times)],
                store_timestamp_ms=times[-1 - offset % len(times)],
                properties=properties,
            )
        )
        for offset, (body, properties, sys_flag) in enumerate(kinds * copies)
    ]
    assert_same_as_records(chunk_of(records))


def record(offset: int, body: bytes, properties: Mapping[str, str] | bytes) -> bytes:
    return encode_message(
        MessageFields(
            topic="orders", body=body, queue_offset=offset, properties=properties
        )
    )


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("properties", PROPERTIES, ids=range(len(PROPERTIES)))
def test_plain_messages_are_made_from_the_bytes(
    body: bytes, properties: Mapping[str, str] | bytes
) -> None:
    for last in (body, body + b"longer"):
        records = [record(offset, body, properties) for offset in range(3)]
        records.append(record(3, last, properties))
        chunk = chunk_of(records)
        assert chunk_lines(JsonLines(), chunk) is not None
        assert_same_as_records(chunk)


@pytest.mark.parametrize("cut", [1, 50, 91, 130])
@pytest.mark.parametrize("at", [0, 4, 39, 84, 88 + 5, 88 + 5 + 8])
def test_damage_is_not_plain(cut: int, at: int) -> None:
    data = b"".join(record(o, b"plain", JAVA_PROPERTIES) for o in range(3))
    spoilt = bytearray(data)
    spoilt[at] ^= 0x31
    for body in (data[:-cut], bytes(spoilt), data + b"\x00" * cut):
        chunk = Chunk(QUEUE, 0, 3, body, ())
        assert chunk_lines(JsonLines(), chunk) is None
        assert [json.loads(line) for line in batch_of(chunk).items] == [
            record_of(QUEUE, message) for message in decode_messages(body)
        ]


def test_messages_outside_the_chunk_are_left_out() -> None:
    records = [record(offset, b"plain", JAVA_PROPERTIES) for offset in range(5)]
    batch = batch_of(Chunk(QUEUE, 1, 4, b"".join(records), ()))
    assert batch.queue_offsets == [1, 2, 3]
    assert [json.loads(line)["queue_offset"] for line in batch.items] == [1, 2, 3]


def test_what_was_read_is_counted() -> None:
    counts = TailCounts()
    batcher = LineBatcher(make_filter(), JsonLines(), counts)
    batcher.batch(chunk_of([record(0, b"a", {}), record(1, b"b", {})]))
    batcher.batch(Chunk(QUEUE, 2, 5, b"", ((2, 5),)))
    assert (counts.scanned, counts.undecodable) == (2, 0)
