"""Reading a queue, compared with a model of it.

The queue has holes, and the answers are of any size, or false.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.admin.read.queue import RangeReading
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.wire.message.decode import StoredMessage, decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from rmqcli.wire.pull_answer import PullAnswer, PullStatus
from tests.kit.doses import doses

if TYPE_CHECKING:
    from rmqcli.admin.read.body import Chunk

QUEUE = MessageQueue("orders", "broker-a", 0)
LONG_MAX = (1 << 63) - 1


def records(*offsets: int) -> bytes:
    return b"".join(
        encode_message(MessageFields(topic="t", body=b"%d" % o, queue_offset=o))
        for o in offsets
    )


def answer(
    status: PullStatus,
    next_begin: int,
    *,
    low: int = 0,
    high: int = 100,
    body: bytes = b"",
) -> PullAnswer:
    return PullAnswer(status, next_begin, low, high, 0, body)


def found(*offsets: int, next_begin: int | None = None) -> PullAnswer:
    reached = offsets[-1] + 1 if next_begin is None else next_begin
    return answer(PullStatus.FOUND, reached, body=records(*offsets))


def reading(start: int = 0, end: int = 100, **how: bool) -> RangeReading:
    return RangeReading(OffsetRange(QUEUE, start, end), **how)


def offsets_of(chunks: list[Chunk]) -> list[int]:
    return [
        message.queue_offset
        for chunk in chunks
        for message in decode_messages(chunk.body)
        if isinstance(message, StoredMessage)
    ]


@dataclass
class ModelQueue:
    """A queue with holes. Its answers cover `sizes` offsets, in turn."""

    low: int
    high: int
    holes: frozenset[int]
    sizes: list[int]

    def pull(self, offset: int, turn: int) -> PullAnswer:
        low, high = self.low, self.high
        if offset < low:
            return answer(PullStatus.OFFSET_ILLEGAL, low, low=low, high=high)
        if offset >= high:
            return answer(PullStatus.NO_NEW_MSG, offset, low=low, high=high)
        size = self.sizes[turn % len(self.sizes)]
        window = range(offset, min(high, offset + size))
        there = [o for o in window if o not in self.holes]
        status = PullStatus.FOUND if there else PullStatus.NO_MATCHED_MSG
        return answer(status, window.stop, low=low, high=high, body=records(*there))


@pytest.mark.slow
@settings(max_examples=doses(6))
@given(data=st.data())
def test_every_offset_comes_once_whatever_the_broker_answers(
    data: st.DataObject,
) -> None:
    high = data.draw(st.integers(1, 300), "high")
    low = data.draw(st.integers(0, high), "low")
    start = data.draw(st.integers(0, high), "start")
    end = data.draw(st.integers(start, high), "end")
    holes = data.draw(st.frozensets(st.integers(0, 300), max_size=30), "holes")
    sizes = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=8), "sizes")
    model = ModelQueue(low, high, holes, sizes)
    state = reading(start, end)
    chunks: list[Chunk] = []
    out: list[int] = []
    turns = 0
    while not state.is_done:
        turns += 1
        assert turns < 5_000
        while len(out) < 4 and (span := state.next_pull()) is not None:
            assert start <= span[0] < span[1] <= end
            out.append(span[0])
        if out:
            asked = out.pop(data.draw(st.integers(0, len(out) - 1), "which"))
            if data.draw(st.integers(0, 9), "fate") == 0:
                state.failed(asked)
            else:
                assert state.answered(asked, model.pull(asked, turns))
        chunks += state.take()
    there = [o for o in range(max(start, low), end) if o not in holes]
    assert offsets_of(chunks) == there
    missing = {o for chunk in chunks for a, b in chunk.missing for o in range(a, b)}
    assert missing == set(range(start, end)) - set(there)
    spans = [(chunk.start, chunk.end) for chunk in chunks]
    edges = [start, *(b for _, b in spans)]
    assert [a for a, _ in spans] == edges[:-1]
    assert edges[-1] == end


def test_a_short_answer_leaves_a_hole_that_is_pulled_again() -> None:
    state = reading()
    assert state.next_pull() == (0, 32)
    assert state.next_pull() == (32, 64)
    assert state.answered(0, found(*range(8)))
    assert state.stride == 8
    assert state.next_pull() == (8, 16)


def test_an_answer_with_more_than_was_pulled_is_cut_at_both_ends() -> None:
    state = reading(10, 20)
    state.next_pull()
    assert state.answered(10, found(*range(5, 25)))
    assert offsets_of(state.take()) == list(range(10, 20))
    assert state.is_done


def test_removed_offsets_are_skipped_at_once() -> None:
    state = reading(0, 1_000_000)
    state.next_pull()
    illegal = answer(PullStatus.OFFSET_ILLEGAL, 900_000, low=900_000, high=1_000_000)
    assert state.answered(0, illegal)
    assert state.next_pull() == (900_000, 900_032)
    missing = [span for chunk in state.take() for span in chunk.missing]
    assert missing[0][0] == 0
    assert missing[-1][1] == 900_000


def test_of_a_pull_whose_beginning_was_removed_the_rest_is_pulled_again() -> None:
    state = reading()
    assert state.next_pull() == (0, 32)
    assert state.next_pull() == (32, 64)
    state.failed(32)
    assert state.answered(0, answer(PullStatus.OFFSET_ILLEGAL, 40, low=40))
    assert state.next_pull() == (40, 64)
    assert [span for chunk in state.take() for span in chunk.missing] == [
        (0, 32),
        (32, 40),
    ]


def test_answers_with_impossible_offsets_are_no_progress() -> None:
    lies = [
        answer(PullStatus.NO_MATCHED_MSG, 0),
        answer(PullStatus.NO_MATCHED_MSG, -5),
        answer(PullStatus.NO_MATCHED_MSG, LONG_MAX),
        answer(PullStatus.NO_NEW_MSG, 5),
        answer(PullStatus.OFFSET_ILLEGAL, 0, low=5, high=100),
        answer(PullStatus.OFFSET_ILLEGAL, 200, low=200, high=100),
        answer(PullStatus.FOUND, 64),
        found(1, 2),
    ]
    for lie in lies:
        state = reading(10, 50)
        start, _ = state.next_pull() or (0, 0)
        assert not state.answered(start, lie)
        assert state.take_at == 10
        assert state.next_pull() is not None


def test_a_found_answer_reaches_no_further_than_its_messages() -> None:
    state = reading()
    state.next_pull()
    assert state.answered(0, found(0, 1, next_begin=LONG_MAX))
    (chunk,) = state.take()
    assert (chunk.start, chunk.end, chunk.missing) == (0, 2, ())


def test_an_offset_is_missing_after_three_answers_without_a_message() -> None:
    state = reading(0, 50)
    for expected in (False, False, True):
        start, _ = state.next_pull() or (0, 0)
        rolled = answer(PullStatus.NO_NEW_MSG, 40, high=50)
        assert state.answered(start, rolled) is expected
    assert state.take()[0].missing


def test_a_filtered_answer_reaches_as_far_as_the_broker_searched() -> None:
    state = reading(filtered=True)
    assert state.next_pull() == (0, 100)
    assert state.next_pull() is None
    assert state.answered(0, found(3, 9, next_begin=80))
    (chunk,) = state.take()
    assert (chunk.start, chunk.end, chunk.missing) == (0, 80, ())
    assert state.next_pull() == (80, 100)


def test_an_unreadable_record_neither_hides_others_nor_stops_the_reading() -> None:
    good, bad = records(0), bytearray(records(1))
    bad[4] ^= 0xFF
    body = good + bytes(bad) + records(2)
    state = reading(0, 3)
    state.next_pull()
    assert state.answered(0, answer(PullStatus.FOUND, 3, body=body))
    (chunk,) = state.take()
    assert len(decode_messages(chunk.body)) == 3
    assert state.is_done


def test_an_unreadable_last_record_is_passed_by_the_next_offset_of_the_answer() -> None:
    bad = bytearray(records(0))
    bad[4] ^= 0xFF
    bad[20:28] = b"\xff" * 8
    state = reading(0, 1)
    state.next_pull()
    assert state.answered(0, answer(PullStatus.FOUND, 1, body=bytes(bad)))
    assert state.is_done or state.take()
