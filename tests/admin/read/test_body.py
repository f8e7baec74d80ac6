"""What a body holds, seen quickly and seen slowly, is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.read.body import cut_body, holes_between, scan_body
from rmqcli.admin.read.range import Chunk
from rmqcli.admin.tail.batch import BodyBatcher, TailCounts
from rmqcli.admin.tail.filter import make_filter
from rmqcli.model import MessageQueue
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message

if TYPE_CHECKING:
    from rmqcli.admin.tail.merge import Batch

QUEUE = MessageQueue("T", "b", 0)


def record(offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    fields = MessageFields(
        topic="T",
        body=body,
        queue_offset=offset,
        sys_flag=sys_flag,
        store_timestamp_ms=7 * offset,
    )
    return encode_message(fields)


def batch_of(body: bytes, end: int) -> Batch[bytes]:
    def render(_queue: object, messages: object) -> list[bytes]:
        return [m.body for m in messages if isinstance(m, StoredMessage)]  # type: ignore[attr-defined]

    batcher = BodyBatcher(make_filter(), render, TailCounts())
    return batcher.batch(Chunk(QUEUE, 0, end, body, ()))


@given(
    st.lists(
        st.tuples(st.sampled_from([b"abc", b"xyz", b"", b"longer"]), st.booleans()),
        max_size=12,
    )
)
def test_bodies_of_one_shape_or_many(messages: list[tuple[bytes, bool]]) -> None:
    data = b"".join(
        record(offset, body, 8 if odd else 0)
        for offset, (body, odd) in enumerate(messages)
    )
    expected = decode_messages(data)
    batch = batch_of(data, len(messages))
    assert batch.items == [body for body, _ in messages]
    assert batch.store_times_ms == [m.store_timestamp_ms for m in expected]  # type: ignore[union-attr]
    assert batch.queue_offsets == list(range(len(messages)))
    scan = scan_body(data)
    assert scan is not None
    assert list(scan.starts) == [m.at for m in expected]
    assert list(scan.offsets) == list(range(len(messages)))
    assert cut_body(data, scan, 1, 3) == b"".join(
        record(o, body, 8 if odd else 0)
        for o, (body, odd) in list(enumerate(messages))[1:3]
    )


def test_messages_of_one_shape_outside_the_chunk_are_left_out() -> None:
    data = b"".join(record(offset, b"abc") for offset in range(5))
    assert batch_of(data, 3).items == [b"abc"] * 3


def test_holes() -> None:
    assert holes_between([1, 2, 5], 0, 8) == ((0, 1), (3, 5), (6, 8))
    assert holes_between([], 3, 4) == ((3, 4),)
    assert holes_between([0, 1], 0, 2) == ()
