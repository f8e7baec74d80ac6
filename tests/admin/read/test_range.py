"""Reading ranges from brokers that return few messages, no answer, or false ones."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rmqcli.admin.read import range as range_module
from rmqcli.admin.read.range import RangeReader, ReadOptions
from rmqcli.api.client import Client
from rmqcli.config import ClientConfig
from rmqcli.errors import DeniedError, PartialError, TransportError
from rmqcli.model import MessageQueue, OffsetRange
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import MessageFields, encode_message
from tests.admin.lag.scripted_broker import (
    FOUND,
    ILLEGAL,
    NO_NEW,
    ScriptedBroker,
    answer_fields,
    record,
)
from tests.transport.peer import Peer, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_MAX = (1 << 63) - 1


def queue(queue_id: int = 0) -> MessageQueue:
    return MessageQueue("T", "b-a", queue_id)


@contextmanager
def cluster(broker: ScriptedBroker) -> Iterator[Client]:
    with Peer(broker) as peer:
        broker.addresses.setdefault(0, peer.address)
        config = ClientConfig(namesrv=(peer.address,), timeout_ms=60_000)
        with Client(config) as client:
            yield client


def offsets_of(body: bytes) -> list[int]:
    """Return the offsets of the records in `body`, except failures without one."""
    records = decode_messages(body)
    return [r.queue_offset for r in records if r.queue_offset is not None]


def read(
    client: Client, end: int, options: ReadOptions | None = None
) -> tuple[list[int], list[tuple[int, int]]]:
    offsets: list[int] = []
    missing: list[tuple[int, int]] = []
    reached = 0
    for chunk in RangeReader(client, [OffsetRange(queue(), 0, end)], options):
        assert chunk.start == reached
        reached = chunk.end
        offsets += offsets_of(chunk.body)
        missing += chunk.missing
    assert reached == end
    return offsets, missing


def test_a_broker_that_returns_eight_messages_is_pulled_for_eight() -> None:
    broker = ScriptedBroker({0: 1_000}, batch=8)
    with cluster(broker) as client:
        offsets, missing = read(client, 1_000)
    assert offsets == list(range(1_000))
    assert missing == []
    assert broker.pulls < 200  # the reader learns to pull for eight


@pytest.mark.timeout(60)
def test_the_hole_behind_a_large_message_is_pulled_although_the_window_is_full() -> (
    None
):
    """The answer to the first pull is one large message; the second pull waits."""

    def only_the_big_one(
        _queue: int, offset: int, _turn: int
    ) -> dict[str, object] | None:
        if offset:
            return None
        return answer_fields(FOUND, 1, high=200) | {"body": big}

    big = encode_message(MessageFields(topic="T", body=b"x" * 200_000, queue_offset=0))
    broker = ScriptedBroker({0: 200}, override=only_the_big_one)
    with cluster(broker) as client:
        offsets, missing = read(client, 200, ReadOptions(in_flight_bytes_max=65_536))
    assert offsets == list(range(200))
    assert missing == []


def test_several_queues_are_each_in_order() -> None:
    broker = ScriptedBroker({0: 300, 1: 100, 2: 0})
    ranges = [OffsetRange(queue(i), 0, broker.queues[i]) for i in range(3)]
    seen: dict[int, list[int]] = {0: [], 1: []}
    with cluster(broker) as client:
        for chunk in RangeReader(client, ranges):
            seen[chunk.queue.queue_id] += offsets_of(chunk.body)
    assert seen == {0: list(range(300)), 1: list(range(100))}


def test_removed_messages_are_missing() -> None:
    with cluster(ScriptedBroker({0: 120}, low=100)) as client:
        offsets, missing = read(client, 120)
    assert offsets == list(range(100, 120))
    assert (missing[0][0], missing[-1][1]) == (0, 100)


@pytest.mark.slow
@pytest.mark.parametrize(
    "lie",
    [
        answer_fields(FOUND, 5, high=100),
        answer_fields(NO_NEW, 0, high=100),
        answer_fields(NO_NEW, LONG_MAX, high=100),
        answer_fields(ILLEGAL, -1, low=200, high=100),
        answer_fields(20, -7, high=100),
        answer_fields(0, 32, high=100, suggest=99) | {"body": b"\0" * 4096},
    ],
    ids=["empty", "nothing", "max", "min-over-max", "back", "garbage"],
)
def test_a_broker_without_progress_is_abandoned_after_few_pulls(
    lie: dict[str, object],
) -> None:
    broker = ScriptedBroker({0: 100}, override=lambda *_: lie)
    options = ReadOptions(retry_for_ms=400)
    cpu_s = time.process_time()
    with cluster(broker) as client, pytest.raises(PartialError, match="T@b-a:0"):
        read(client, 100, options)
    assert broker.pulls < 40
    assert time.process_time() - cpu_s < 0.5


def test_a_queue_without_progress_is_abandoned_when_the_time_is_over() -> None:
    """There may have been fewer than twelve answers without progress by then."""
    lie = answer_fields(FOUND, 5, high=100)
    broker = ScriptedBroker({0: 100}, override=lambda *_: lie)
    with cluster(broker) as client, pytest.raises(PartialError, match="T@b-a:0"):
        read(client, 100, ReadOptions(retry_for_ms=0))
    assert broker.pulls <= 2


def test_a_broker_that_recovers_is_read_to_the_end() -> None:
    def busy_at_first(_queue: int, _offset: int, turn: int) -> dict[str, object] | None:
        return {"code": 2, "remark": "[TOO_MANY_REQUESTS]"} if turn < 6 else None

    with cluster(ScriptedBroker({0: 200}, override=busy_at_first)) as client:
        offsets, _ = read(client, 200)
    assert offsets == list(range(200))


def test_one_answer_without_progress_after_many_failures_is_no_reason_to_give_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that restarts refuses connections first, and may then lag behind."""
    monkeypatch.setattr(range_module, "_NO_PROGRESS_MAX", 3)
    monkeypatch.setattr(range_module, "_BACKOFF_LAST_MS", 20)

    def restarts(_queue: int, offset: int, turn: int) -> dict[str, object] | None:
        if turn in (9, 18):
            return answer_fields(FOUND, offset, high=100)
        return {"code": 2, "remark": "[BUSY]"} if turn < 20 else None

    with cluster(ScriptedBroker({0: 100}, override=restarts)) as client:
        offsets, missing = read(client, 100)
    assert (offsets, missing) == (list(range(100)), [])


def test_trouble_and_recovery_of_a_queue_are_told_once() -> None:
    def busy_twice(_queue: int, offset: int, turn: int) -> dict[str, object] | None:
        is_busy = turn < 4 or 20 < turn < 24
        return {"code": 2, "remark": "[BUSY]"} if is_busy else None

    told: list[str] = []
    options = ReadOptions(
        on_trouble=lambda queue, error: told.append(f"{queue} {type(error).__name__}"),
        on_recovery=lambda queue: told.append(f"{queue} is back"),
    )
    broker = ScriptedBroker({0: 400}, batch=8, override=busy_twice)
    with cluster(broker) as client:
        offsets, missing = read(client, 400, options)
    assert (offsets, missing) == (list(range(400)), [])
    assert told == ["T@b-a:0 BusyError", "T@b-a:0 is back"] * 2


def test_reading_ends_early_when_the_time_is_over() -> None:
    left = [1_000, 1_000, 0]
    broker = ScriptedBroker({0: 1_000_000})
    options = ReadOptions(left_ms=lambda: left.pop(0) if len(left) > 1 else left[0])
    with cluster(broker) as client:
        reader = RangeReader(client, [OffsetRange(queue(), 0, 1_000_000)], options)
        chunks = list(reader)
    assert reader.abandoned == {}
    assert reader.position(queue()) == (chunks[-1].end if chunks else 0) < 1_000_000


def test_a_range_without_messages_sends_nothing() -> None:
    broker = ScriptedBroker({0: 10})
    with cluster(broker) as client:
        assert list(RangeReader(client, [OffsetRange(queue(), 5, 5)])) == []
        with pytest.raises(ValueError, match="duplicate queue"):
            RangeReader(client, [OffsetRange(queue(), 0, n) for n in (1, 2)])
    assert broker.pulls == 0


def test_no_more_is_pulled_than_the_range_has() -> None:
    """So the answer has nothing that is thrown away."""
    broker = ScriptedBroker({0: 1_000})
    with cluster(broker) as client:
        reader = RangeReader(client, [OffsetRange(queue(), 3, 13)])
        bodies = [chunk.body for chunk in reader]
    assert [offset for body in bodies for offset in offsets_of(body)] == [*range(3, 13)]


def test_a_refusal_ends_the_reading_at_once() -> None:
    denied = {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}
    broker = ScriptedBroker({0: 100}, override=lambda *_: denied)
    with cluster(broker) as client, pytest.raises(DeniedError):
        read(client, 100)
    assert broker.pulls <= 2


def test_a_slave_is_read_when_the_master_is_down() -> None:
    broker = ScriptedBroker({0: 100})
    with Peer(broker) as slave:
        broker.addresses = {0: f"127.0.0.1:{free_port()}", 1: slave.address}
        config = ClientConfig(namesrv=(slave.address,), timeout_ms=60_000)
        with Client(config) as client:
            offsets, _ = read(client, 100)
    assert offsets == list(range(100))


def test_a_queue_that_cannot_be_read_does_not_stop_the_others() -> None:
    def closed(queue_id: int, *_: int) -> dict[str, object] | None:
        denied = {"code": 16, "remark": "no", "ext_fields": {}, "body": b""}
        return denied if queue_id == 1 else None

    broker = ScriptedBroker({0: 50, 1: 50}, override=closed)
    ranges = [OffsetRange(queue(i), 0, 50) for i in range(2)]
    with cluster(broker) as client:
        reader = RangeReader(client, ranges, ReadOptions(raise_abandoned=False))
        got = sum(chunk.end - chunk.start for chunk in reader)
    assert got == 50
    assert list(reader.abandoned) == [queue(1)]
    assert reader.position(queue(1)) == 0


def test_unreachable_brokers_end_in_an_error_after_the_time_for_retries() -> None:
    broker = ScriptedBroker({0: 10})
    broker.addresses = {0: f"127.0.0.1:{free_port()}"}
    options = ReadOptions(retry_for_ms=300)
    with cluster(broker) as client, pytest.raises(TransportError):
        read(client, 10, options)


def test_a_paused_queue_is_not_pulled() -> None:
    broker = ScriptedBroker({0: 5_000, 1: 64})
    ranges = [OffsetRange(queue(i), 0, broker.queues[i]) for i in range(2)]
    with cluster(broker) as client:
        reader = RangeReader(client, ranges)
        reader.pause(queue(0))
        for chunk in reader:
            assert chunk.queue == queue(1) or reader.position(queue(1)) == 64
            if reader.position(queue(1)) == 64:
                reader.resume(queue(0))
        assert reader.position(queue(0)) == 5_000


@pytest.mark.parametrize(
    ("expression", "expression_type", "is_filtered"),
    [
        ("*", "TAG", False),
        ("Paid", "TAG", True),
        ("amount > 5", "SQL92", True),
        ("*", "SQL92", True),
    ],
)
def test_messages_that_a_filter_leaves_out_are_not_missing(
    expression: str, expression_type: str, *, is_filtered: bool
) -> None:
    """The broker has 0 and 2 of three messages to return."""

    def answer(_: int, offset: int, _turn: int) -> dict[str, object] | None:
        if offset >= 3:
            return None
        return answer_fields(FOUND, 3, high=3) | {"body": record(0) + record(2)}

    options = ReadOptions(expression=expression, expression_type=expression_type)
    with cluster(ScriptedBroker({0: 3}, override=answer)) as client:
        offsets, missing = read(client, 3, options)

    assert offsets == [0, 2]
    assert missing == ([] if is_filtered else [(1, 2)])


def test_overlapping_answers_are_cut() -> None:
    def early(_queue: int, offset: int, _turn: int) -> dict[str, object]:
        start, end = max(0, offset - 5), min(100, offset + 40)
        fields = answer_fields(FOUND, end, high=100)
        return fields | {"body": b"".join(map(record, range(start, end)))}

    with cluster(ScriptedBroker({0: 100}, override=early)) as client:
        offsets, missing = read(client, 100)
    assert offsets == list(range(100))
    assert missing == []
