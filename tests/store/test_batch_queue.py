"""A batch queue has an entry for each message, and the bytes of a real broker."""

from __future__ import annotations

import json
import random
import struct

import pytest

from rmqcli.store.batch_queue import BatchConsumeQueue
from rmqcli.store.fixed_files import FixedFiles
from rmqcli.store.message_store import QueueUnit
from rmqcli.store.queue_table import QueueTable
from tests.store.opened import open_files

UNITS = 4  # in one file

#: The file of a real 5.5.0: four inner batches of 5 messages, and one with a tag.
REAL = bytes.fromhex(
    "00000000000009c6" + "00000283" + "0000000000000000" + "000001a214b23fdd"
    "0000000000000000" + "0005" + "ffffffff" + "00000000"
    "0000000000000c49" + "00000283" + "0000000000000000" + "000001a214b23fe4"
    "0000000000000005" + "0005" + "ffffffff" + "00000000"
    "0000000000000ecc" + "00000284" + "0000000000000000" + "000001a214b23feb"
    "000000000000000a" + "0005" + "ffffffff" + "00000000"
    "0000000000001150" + "00000284" + "0000000000000000" + "000001a214b23ff1"
    "000000000000000f" + "0005" + "ffffffff" + "00000000"
    "00000000000013d4" + "000000d3" + "0000000000000041" + "000001a214b2400a"
    "0000000000000014" + "0001" + "ffffffff" + "00000000"
)


@pytest.fixture
def queue_in():
    """Open queues, and close their files when the test ends."""
    opened: list[BatchConsumeQueue] = []

    def open_queue(directory, *, writable=True, units=UNITS):
        files = FixedFiles(directory, units * 46, open_files(writable=writable))
        opened.append(BatchConsumeQueue(files))
        return opened[-1]

    yield open_queue
    for queue in opened:
        queue.close()


def found(queue, start=0, count=10**6):
    return [tuple(unit) for unit in queue.units(start, count)]


def add_as_the_real_broker(queue):
    for at, size, code, time_ms, count in [
        (0x9C6, 0x283, 0, 0x1A214B23FDD, 5),
        (0xC49, 0x283, 0, 0x1A214B23FE4, 5),
        (0xECC, 0x284, 0, 0x1A214B23FEB, 5),
        (0x1150, 0x284, 0, 0x1A214B23FF1, 5),
        (0x13D4, 0xD3, 65, 0x1A214B2400A, 1),
    ]:
        queue.add(QueueUnit(at, size, code), count=count, store_timestamp_ms=time_ms)


def test_the_files_have_the_bytes_of_a_real_broker(queue_in, tmp_path):
    queue = queue_in(tmp_path / "q", units=10)
    add_as_the_real_broker(queue)
    queue.write_out()
    written = (tmp_path / "q" / "00000000000000000000").read_bytes()
    assert written == REAL + bytes(5 * 46)


def test_a_real_broker_s_queue_has_each_message_of_its_batches(queue_in, tmp_path):
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "00000000000000000000").write_bytes(REAL + bytes(5 * 46))
    queue = queue_in(tmp_path / "q", writable=False)
    assert (queue.min_offset, queue.max_offset) == (0, 21)
    second, last = (0xC49, 0x283, 0), (0x13D4, 0xD3, 65)
    assert found(queue, 7, 4) == [second, second, second, (0xECC, 0x284, 0)]
    assert found(queue, 20) == [last]
    assert tuple(queue.last()) == last
    entries = [queue.entry(at) for at in (-1, 0, 19, 20, 21)]
    wanted = [None, (0x9C6, 0x283, 0), (0x1150, 0x284, 0), last, None]
    assert [each and tuple(each) for each in entries] == wanted
    assert (found(queue, -1), found(queue, 21)) == ([], [])
    assert queue.lower_bound(0xC49) == 5
    assert queue.lower_bound(0xC4A) == 10
    assert queue.lower_bound(0x13D5) == 21


@pytest.mark.parametrize("seed", range(8))
def test_a_queue_is_the_list_of_its_messages_whatever_is_written_cut_or_read(
    queue_in, tmp_path, seed
):
    rng = random.Random(seed)
    queue = queue_in(tmp_path / "q")
    reader = queue_in(tmp_path / "q", writable=False)
    batches: list[tuple[tuple[int, int, int], int]] = []

    def messages(of):
        return [entry for entry, count in of for _ in range(count)]

    written = made = 0
    for _ in range(80):
        what = rng.random()
        if what < 0.5:
            for _ in range(rng.choice((1, 3, 6))):
                entry, count = (made * 100, 100, made - 7), rng.choice((1, 2, 9))
                made += 1
                queue.add(QueueUnit(*entry), count=count, store_timestamp_ms=0)
                batches.append((entry, count))
        elif what < 0.75:
            queue.write_out()
            queue.sync()
            written = len(batches)
        elif what < 0.85 and batches:
            kept = rng.randrange(max(0, len(batches) - 4), len(batches))
            queue.cut(sum(count for _, count in batches[:kept]))
            del batches[kept:]
            written = min(written, kept)
            reader = queue_in(tmp_path / "q", writable=False)
        else:
            reader.refresh()
            assert found(reader) == messages(batches[:written])
            assert reader.pending_count == 0
        expected = messages(batches)
        assert (queue.min_offset, queue.max_offset) == (0, len(expected))
        assert queue.pending_count == len(batches) - written
        assert found(queue) == expected
        start, count = rng.randrange(len(expected) + 1), rng.randrange(1, 30)
        assert found(queue, start, count) == expected[start : start + count]
    assert found(queue_in(tmp_path / "q")) == messages(batches[:written])


def test_files_below_the_lower_bound_are_deleted_and_a_reader_notices(
    queue_in, tmp_path
):
    queue = queue_in(tmp_path / "q")
    for number in range(10):
        queue.add(QueueUnit(number * 100, 100, 0), count=3, store_timestamp_ms=0)
    queue.write_out()
    reader = queue_in(tmp_path / "q", writable=False)
    queue.min_offset = 25
    queue.delete_before_min()
    names = sorted(file.name for file in (tmp_path / "q").iterdir())
    assert names == ["00000000000000000368"]
    assert found(queue, 25) == [(800, 100, 0)] * 2 + [(900, 100, 0)] * 3
    reader.refresh()
    reader.min_offset = reader.lower_bound(800)
    assert found(reader, 24) == [(800, 100, 0)] * 3 + [(900, 100, 0)] * 3


def test_entries_after_a_hole_are_not_those_of_the_queue(queue_in, tmp_path):
    (tmp_path / "q").mkdir()
    damaged = REAL[: 2 * 46] + bytes(46) + REAL[3 * 46 :] + bytes(5 * 46)
    (tmp_path / "q" / "00000000000000000000").write_bytes(damaged)
    assert queue_in(tmp_path / "q", writable=False).max_offset == 10


@pytest.mark.parametrize(("first", "max_offset"), [(20, 21), (21, 26), (22, 21)])
def test_a_reader_takes_what_follows_its_last_entry(
    queue_in, tmp_path, first, max_offset
):
    (tmp_path / "q").mkdir()
    path = tmp_path / "q" / "00000000000000000000"
    path.write_bytes(REAL + bytes(5 * 46))
    reader = queue_in(tmp_path / "q", writable=False, units=10)
    entry = struct.pack(
        ">QIQQQHiI", 0x15E8, 0x283, 0, 1_795_000_000_000, first, 5, -1, 0
    )
    path.write_bytes(REAL + entry + bytes(4 * 46))
    reader.refresh()
    assert reader.max_offset == max_offset
    after = entry[:28] + struct.pack(">QHiI", first + 5, 2, -1, 0)
    path.write_bytes(REAL + entry + after + bytes(3 * 46))
    reader.refresh()
    assert reader.max_offset == (28 if first == 21 else 21)


@pytest.mark.parametrize("written", [0, 1, 15])
def test_a_queue_that_starts_later_has_no_earlier_entries(queue_in, tmp_path, written):
    queue = queue_in(tmp_path / "q")
    for number in range(written):
        queue.add(QueueUnit(number * 100, 100, 0), count=3, store_timestamp_ms=0)
    queue.write_out()
    queue.add(QueueUnit(9_000, 100, 0), count=3, store_timestamp_ms=0)
    queue.start_at(50)
    assert (queue.min_offset, queue.max_offset, queue.pending_count) == (50, 50, 0)
    assert queue.last() is None
    queue.add(QueueUnit(9_100, 100, 7), count=2, store_timestamp_ms=0)
    queue.write_out()
    for each in (queue, queue_in(tmp_path / "q", writable=False)):
        assert (each.min_offset, each.max_offset) == (50, 52)
        assert found(each, 50) == [(9_100, 100, 7)] * 2


@pytest.mark.parametrize(
    ("config", "folders"),
    [
        ({"attributes": {"queue.type": "BatchCQ"}}, ["batchconsumequeue"]),
        ({"attributes": {"queue.type": "SimpleCQ"}}, ["consumequeue"]),
        ({"attributes": None}, ["consumequeue"]),
        ("no topic", ["consumequeue"]),
    ],
)
def test_the_broker_s_topics_decide_which_kind_a_new_queue_has(
    tmp_path, config, folders
):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"T": config}})
    )
    table = QueueTable(tmp_path / "consumequeue", UNITS, open_files(writable=True))
    table.add(table.make(("T", 0)), QueueUnit(0, 100, 65), store_timestamp_ms=1)
    assert table.write_out() is None
    found = [path.name for path in tmp_path.iterdir() if path.name != "config"]
    assert found == folders
