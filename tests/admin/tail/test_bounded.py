"""A bounded tail ends, whatever its filters leave out, and shows every match in order.

The queues differ in size, age and density of matches, and the broker refuses some of
them half-way. The tail may keep few bytes while one queue waits for another, so it
pauses queues all the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqcli.admin.read.body import Chunk
from rmqcli.admin.read.range import RangeReader
from rmqcli.admin.tail.batch import Batcher, TailCounts
from rmqcli.admin.tail.filter import TailFilter
from rmqcli.admin.tail.tail import Tail, TailPlan
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.admin.lag.scripted_broker import ScriptedBroker
from tests.kit.doses import doses
from tests.transport.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Far longer than any of these reads takes; only a read that hangs reaches it.
ENDS_WITHIN_MS = 30_000
BASE_MS = 1_700_000_000_000
WANTED = TailFilter(pattern=re.compile("wanted"))


@dataclass(frozen=True)
class Stored:
    """A message: its store time after BASE_MS, and whether the filter lets it pass."""

    after_ms: int
    is_wanted: bool
    body_bytes: int = 8


@dataclass(frozen=True)
class Queue:
    """Messages by offset. The broker denies pulls from offset `refused_at` on."""

    messages: tuple[Stored, ...]
    refused_at: int | None = None

    def expected(self) -> list[tuple[int, int]]:
        """Return merge key (the latest time so far) and offset of each match."""
        keys = accumulate((m.after_ms for m in self.messages), max)
        return [
            (key, offset)
            for offset, (key, message) in enumerate(
                zip(keys, self.messages, strict=True)
            )
            if message.is_wanted
        ]


def broker_of(queues: Sequence[Queue], batch: int) -> ScriptedBroker:
    def make_record(queue_id: int, offset: int) -> bytes:
        message = queues[queue_id].messages[offset]
        word = b"wanted" if message.is_wanted else b"other"
        return encode_message(
            MessageFields(
                topic="T",
                body=word.ljust(message.body_bytes, b"."),
                queue_id=queue_id,
                queue_offset=offset,
                store_timestamp_ms=BASE_MS + message.after_ms,
            )
        )

    def refuse(queue_id: int, offset: int, _turn: int) -> dict[str, object] | None:
        refused_at = queues[queue_id].refused_at
        if refused_at is None or offset < refused_at:
            return None
        return {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}

    return ScriptedBroker(
        dict(enumerate(len(queue.messages) for queue in queues)),
        batch=batch,
        override=refuse,
        make_record=make_record,
    )


def read(
    queues: Sequence[Queue], plan: TailPlan, *, batch: int = 32
) -> list[tuple[int, int]]:
    """Run a tail to its end; return queue id and offset of each message, in order."""
    broker = broker_of(queues, batch)
    with Peer(broker) as peer:
        broker.addresses = {0: peer.address}
        config = ClientConfig(namesrv=(peer.address,), timeout_ms=60_000)
        with Client(config) as client:
            ranges = tuple(
                OffsetRange(MessageQueue("T", "b-a", index), 0, len(queue.messages))
                for index, queue in enumerate(queues)
            )
            plan = replace(plan, ranges=ranges, timeout_ms=ENDS_WITHIN_MS)
            batcher = Batcher(
                plan.filter,
                lambda queue, messages: [
                    (queue.queue_id, m.queue_offset or 0) for m in messages
                ],
                TailCounts(),
            )
            tail = Tail(client, plan, batcher, say=lambda _text: None)
            shown = [item for items in tail.items() for item in items]
            assert tail.left_ms() > 0, "it stood still until the time was up"
    return shown


def plan_of(**options: float | None) -> TailPlan:
    return TailPlan(ranges=(), filter=WANTED, **options)  # type: ignore[arg-type]  # few


def steady(count: int, *, from_ms: int = 0, **options: int | bool) -> Queue:
    wanted = {"is_wanted": False, **options}
    return Queue(
        tuple(Stored(from_ms + o, **wanted) for o in range(count))  # type: ignore[arg-type]  # both
    )


@pytest.mark.timeout(90)
def test_a_filter_that_matches_nothing_reads_long_queues_to_their_ends() -> None:
    assert read([steady(3_000, body_bytes=700)] * 3, plan_of()) == []


@pytest.mark.timeout(90)
def test_a_rate_does_not_delay_the_end_of_a_range() -> None:
    """The run waited as long after the last message as between two."""
    queues = [steady(1, is_wanted=True)]
    assert read(queues, plan_of(rate_per_s=0.001)) == [(0, 0)]


@pytest.mark.timeout(90)
def test_one_match_at_the_end_of_long_queues_is_shown() -> None:
    long = steady(3_000, body_bytes=700).messages
    last = replace(long[-1], is_wanted=True)
    queues = [Queue(long), Queue((*long[:-1], last)), Queue(long)]
    assert read(queues, plan_of()) == [(1, 2_999)]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("last", [1, 5_000])
def test_the_last_messages_of_long_queues_are_looked_for_to_their_starts(
    last: int,
) -> None:
    none = steady(3_000, body_bytes=700)
    first = Queue((replace(none.messages[0], is_wanted=True), *none.messages[1:]))
    assert read([none, first, none], plan_of(last=last)) == [(1, 0)]


@pytest.mark.timeout(90)
@pytest.mark.parametrize("old", [1_500, 1_640, 2_000, 3_000])
def test_a_queue_that_waits_for_another_goes_on_when_that_one_has_ended(
    old: int,
) -> None:
    new = steady(3_000, from_ms=10_000, body_bytes=700, is_wanted=True)
    shown = read([new, steady(old, is_wanted=True)], plan_of())
    assert shown == [(1, o) for o in range(old)] + [(0, o) for o in range(3_000)]


@pytest.mark.timeout(90)
def test_a_queue_that_waits_for_another_goes_on_when_that_one_is_refused() -> None:
    new = steady(3_000, from_ms=10_000, body_bytes=700, is_wanted=True)
    old = replace(steady(3_000, is_wanted=True), refused_at=2_000)
    shown = read([new, old], plan_of())
    assert [o for queue_id, o in shown if queue_id == 0] == list(range(3_000))


def test_what_a_filter_leaves_out_is_not_waited_with() -> None:
    """Messages that are not shown also advance the merge key, so matches come soon."""
    queues = [
        Queue(tuple(Stored(o, is_wanted=True) for o in range(2_000))),
        steady(2_000),
    ]
    with_few_kept = plan_of(kept_bytes_max=0, count=5)
    assert read(queues, with_few_kept, batch=8) == [(0, o) for o in range(5)]


def test_what_a_filter_leaves_out_is_kept_nowhere_and_moves_the_time_forward() -> None:
    queue = MessageQueue("T", "b-a", 0)
    body = b"".join(
        encode_message(
            MessageFields(
                topic="T",
                body=body,
                queue_offset=offset,
                store_timestamp_ms=BASE_MS + after_ms,
            )
        )
        for offset, (body, after_ms) in enumerate(
            [(b"other", 7), (b"wanted", 3), (b"other", 9), (b"other", 8)]
        )
    )
    batcher = Batcher(WANTED, lambda _queue, messages: list(messages), TailCounts())
    batch = batcher.batch(Chunk(queue, 0, 4, body, ()))
    assert batch.queue_offsets == [1]
    assert batch.store_times_ms == [BASE_MS + 7]
    assert batch.reached_ms == BASE_MS + 9
    assert 0 < batch.size_bytes < len(body) // 2
    nothing = batcher.batch(Chunk(queue, 2, 3, encoded_other(), ()))
    assert nothing[:5] == ([], [], [], 3, 0)


def encoded_other() -> bytes:
    fields = MessageFields(topic="T", body=b"other", queue_offset=2)
    return encode_message(fields)


@pytest.mark.timeout(90)
def test_a_reader_of_which_every_queue_is_paused_goes_on() -> None:
    queues = [steady(500), steady(900)]
    broker = broker_of(queues, 32)
    reached = [0, 0]
    with Peer(broker) as peer:
        broker.addresses = {0: peer.address}
        config = ClientConfig(namesrv=(peer.address,), timeout_ms=60_000)
        with Client(config) as client:
            reader = RangeReader(
                client,
                [
                    OffsetRange(MessageQueue("T", "b-a", 0), 0, 500),
                    OffsetRange(MessageQueue("T", "b-a", 1), 0, 900),
                ],
            )
            for chunk in reader:
                reached[chunk.queue.queue_id] = chunk.end
                reader.pause(MessageQueue("T", "b-a", 0))
                reader.pause(MessageQueue("T", "b-a", 1))
    assert reached == [500, 900]


MESSAGES = st.lists(
    st.builds(
        Stored,
        after_ms=st.integers(0, 60),
        is_wanted=st.booleans(),
        body_bytes=st.sampled_from([8, 300]),
    ),
    max_size=20,
)


@st.composite
def some_queues(draw: st.DrawFn) -> Queue:
    """Draw up to 160 messages: a pattern that repeats, `step_ms` later each time."""
    pattern = draw(MESSAGES)
    times = draw(st.integers(1, 8))
    step_ms = draw(st.sampled_from([0, 20, 60, 1_000]))
    from_ms = draw(st.sampled_from([0, 0, 500]))
    matches = draw(st.sampled_from(["drawn", "drawn", "none", "last"]))
    messages = [
        replace(
            message,
            after_ms=from_ms + turn * step_ms + message.after_ms,
            is_wanted=message.is_wanted and matches == "drawn",
        )
        for turn in range(times)
        for message in pattern
    ]
    if messages and matches == "last":
        messages[-1] = replace(messages[-1], is_wanted=True)
    refused = draw(st.sampled_from([None, None, None, 0.5]))
    refused_at = None if refused is None else int(len(messages) * refused)
    return Queue(tuple(messages), refused_at)


@pytest.mark.slow
@settings(max_examples=doses(3), suppress_health_check=list(HealthCheck))
@given(
    queues=st.lists(some_queues(), min_size=1, max_size=5),
    batch=st.sampled_from([1, 3, 8, 32]),
    kept_bytes_max=st.sampled_from([0, 1, 500, 5_000, 1 << 20]),
    count=st.none() | st.integers(1, 60),
)
def test_every_bounded_read_ends_and_yields_exactly_the_matches_in_order(
    queues: list[Queue], batch: int, kept_bytes_max: int, count: int | None
) -> None:
    plan = plan_of(kept_bytes_max=kept_bytes_max, count=count)
    shown = read(queues, plan, batch=batch)
    keys = {
        (index, offset): key
        for index, queue in enumerate(queues)
        for key, offset in queue.expected()
    }
    shown_keys = [keys[place] for place in shown]
    assert shown_keys == sorted(shown_keys)
    if all(queue.refused_at is None for queue in queues):
        assert shown_keys == sorted(keys.values())[:count]
    for index, queue in enumerate(queues):
        mine = [offset for queue_id, offset in shown if queue_id == index]
        expected = [offset for _, offset in queue.expected()]
        if count is None and queue.refused_at is None:
            assert mine == expected
        assert mine == expected[: len(mine)]
