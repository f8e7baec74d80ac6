"""Each kind of batcher turns chunks into items with store times and offsets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rmqcli.admin.read.body import Chunk
from rmqcli.admin.tail.batch import BodyBatcher, LineBatcher, TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.message.json import JsonWriter

if TYPE_CHECKING:
    from rmqcli.admin.tail.batch import Batcher

QUEUE = MessageQueue("orders", "broker-a", 3)


def record(offset: int, body: bytes = b"plain", *, sys_flag: int = 0) -> bytes:
    fields = MessageFields(
        topic="orders",
        body=body,
        queue_offset=offset,
        sys_flag=sys_flag,
        store_timestamp_ms=1_000 + offset,
    )
    return encode_message(fields)


def chunk_of(body: bytes, start: int, end: int) -> Chunk:
    return Chunk(QUEUE, start, end, body, ())


def bodies(_queue: object, messages: object) -> list[bytes]:
    return [m.body for m in messages if isinstance(m, StoredMessage)]  # type: ignore[attr-defined]


def body_batcher() -> Batcher[bytes]:
    return BodyBatcher(TailFilter(), TailCounts())


def line_batcher() -> Batcher[str]:
    return LineBatcher(TailFilter(), JsonWriter(), TailCounts())


SHAPES = {
    "one shape": [record(offset) for offset in range(5)],
    "several shapes": [record(offset, b"x" * offset) for offset in range(5)],
    "a special record": [record(0), record(1, sys_flag=0x40), *map(record, (2, 3, 4))],
}


@pytest.mark.parametrize("records", SHAPES.values(), ids=SHAPES)
def test_records_outside_the_chunk_are_left_out(records):
    data = b"".join(records)
    expected = decode_messages(data)[1:4]
    lines = line_batcher().batch(chunk_of(data, 1, 4))
    assert lines.items == JsonWriter().lines(QUEUE, expected)
    raw = body_batcher().batch(chunk_of(data, 1, 4))
    assert raw.items == bodies(QUEUE, expected)
    for batch in (lines, raw):
        assert batch.queue_offsets == [1, 2, 3]
        assert batch.store_times_ms == [1_001, 1_002, 1_003]
        assert batch.end == 4


@pytest.mark.parametrize("records", SHAPES.values(), ids=SHAPES)
def test_every_record_of_a_whole_chunk_is_an_item(records):
    data = b"".join(records)
    for batcher in (body_batcher(), line_batcher()):
        batch = batcher.batch(chunk_of(data, 0, 5))
        assert batch.queue_offsets == [0, 1, 2, 3, 4]
        assert len(batch.items) == len(batch.store_times_ms) == 5
        assert batcher.counts.scanned == 5


def test_damaged_records_keep_their_places_among_the_lines():
    spoilt = bytearray(record(1))
    spoilt[4] ^= 0xFF
    batcher = line_batcher()
    batch = batcher.batch(chunk_of(record(0) + bytes(spoilt) + record(2), 0, 3))
    assert ["error" in json.loads(line) for line in batch.items] == [False, True, False]
    assert batch.store_times_ms == [1_000, 1_000, 1_002]
    assert (batcher.counts.scanned, batcher.counts.undecodable) == (3, 1)


def test_an_empty_chunk_has_its_end():
    for batcher in (body_batcher(), line_batcher()):
        batch = batcher.batch(chunk_of(b"", 2, 5))
        assert (batch.items, batch.end, batcher.counts.scanned) == ([], 5, 0)
