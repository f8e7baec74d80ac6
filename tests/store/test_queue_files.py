"""A queue returns the entries that were added, from memory and from files."""

from __future__ import annotations

import os
import random

import pytest

from rmqcli.store.consume_queue import ConsumeQueue
from rmqcli.store.fixed_files import FixedFiles
from rmqcli.store.message_store import QueueUnit, StoreError, StoreFullError
from rmqcli.store.queue_table import QueueTable
from tests.store.opened import open_files

UNITS = 10  # units in one file


def queue_in(directory, *, writable=True, units=UNITS):
    return ConsumeQueue(
        FixedFiles(directory, units * 20, open_files(writable=writable))
    )


def entry(number):
    return number * 100, 100, number - 7


def add(queue, *entry):
    queue.add(QueueUnit(*entry), count=1, store_timestamp_ms=0)


def found(queue, start=0, count=10**6):
    return [tuple(unit) for unit in queue.units(start, count)]


@pytest.mark.parametrize("seed", range(8))
def test_a_queue_is_the_list_of_its_entries_whatever_is_written_cut_or_read(
    tmp_path, seed
):
    rng = random.Random(seed)
    queue = queue_in(tmp_path / "q")
    reader = queue_in(tmp_path / "q", writable=False)
    expected: list[tuple[int, int, int]] = []
    written = 0
    for _ in range(80):
        what = rng.random()
        if what < 0.5:
            for _ in range(rng.choice((1, 3, 12))):
                add(queue, *entry(len(expected)))
                expected.append(entry(len(expected)))
        elif what < 0.75:
            queue.write_out()
            queue.sync()
            written = len(expected)
            assert queue.pending_count == 0
        elif what < 0.85 and expected:
            at = rng.randrange(max(0, len(expected) - 8), len(expected) + 2)
            queue.cut(at)
            del expected[at:]
            if at < written:
                written = at
                reader = queue_in(tmp_path / "q", writable=False)
        else:
            reader.refresh()
            assert found(reader) == expected[:written]
        assert (queue.min_offset, queue.max_offset) == (0, len(expected))
        assert queue.pending_count == len(expected) - written
        assert found(queue) == expected
        for _ in range(4):
            start, count = rng.randrange(0, len(expected) + 2), rng.randrange(0, 25)
            assert found(queue, start, count) == expected[start : start + count]
        last = queue.last()
        assert (None if last is None else tuple(last)) == (
            expected[-1] if expected else None
        )
        if expected:
            at = rng.randrange(len(expected))
            assert queue.lower_bound(at * 100) == at
            assert queue.lower_bound(at * 100 + 1) == at + 1
    queue.write_out()
    again = queue_in(tmp_path / "q", units=3)
    assert again.file_bytes == (UNITS * 20 if expected else 60)
    assert found(again) == expected


def test_what_readers_ask_for_most_stays_in_memory_and_the_rest_in_files(tmp_path):
    queue = queue_in(tmp_path / "q", units=5_000)
    for number in range(14_000):
        add(queue, *entry(number))
        if number % 1_000 == 999:
            queue.write_out()
    for start in (0, 4_999, 5_000, 7_599, 7_600, 10_799, 10_800, 13_990):
        assert found(queue, start, 20) == [
            entry(number) for number in range(start, min(start + 20, 14_000))
        ]
    assert [tuple(unit) for unit in queue.units(0, 20_000)] == [
        entry(number) for number in range(14_000)
    ]
    assert queue.lower_bound(1_399_900) == 13_999


@pytest.mark.parametrize("first", [1, 9, 10, 25])
def test_a_queue_that_begins_late_is_found_again_at_its_first_entry(tmp_path, first):
    queue = queue_in(tmp_path / "q")
    queue.start_at(first)
    assert (queue.min_offset, queue.max_offset, queue.last()) == (first, first, None)
    for number in range(first, first + 3):
        add(queue, *entry(number))
    assert found(queue, first) == [entry(number) for number in range(first, first + 3)]
    queue.write_out()
    again = queue_in(tmp_path / "q")
    assert again.max_offset == first + 3
    assert again.lower_bound(0) == first
    again.min_offset = again.lower_bound(0)
    assert found(again, first) == [entry(number) for number in range(first, first + 3)]
    assert found(again, first - 1) == []


def test_a_queue_of_fillers_alone_has_no_last_entry(tmp_path):
    queue = queue_in(tmp_path / "q")
    queue.start_at(4)
    add(queue, *entry(4))
    queue.write_out()
    queue.cut(4)
    again = queue_in(tmp_path / "q")
    assert again.max_offset == 4
    assert again.last() is None


@pytest.mark.parametrize(("low", "left"), [(9, 5), (10, 4), (19, 4), (20, 3), (45, 1)])
def test_files_whose_entries_are_all_gone_are_deleted(tmp_path, low, left):
    queue = queue_in(tmp_path / "q")
    for number in range(45):
        add(queue, *entry(number))
    queue.write_out()
    queue.min_offset = low
    queue.delete_before_min()
    assert len(list((tmp_path / "q").iterdir())) == left
    assert found(queue, low) == [entry(number) for number in range(low, 45)]


@pytest.mark.parametrize(
    ("log_offset", "bound"),
    [(0, 0), (500, 5), (501, 6), (650, 6), (800, 6), (900, 6)],
)
def test_a_hole_of_zeros_is_before_no_message(tmp_path, log_offset, bound):
    """After a power cut, data that was not synced may be zeros.

    A lower bound behind the hole would leave out what recovery puts there.
    """
    queue = queue_in(tmp_path / "q")
    for number in range(9):
        add(queue, *entry(number))
    queue.write_out()
    (path,) = (tmp_path / "q").iterdir()
    data = bytearray(path.read_bytes())
    data[6 * 20 : 8 * 20] = bytes(40)
    path.write_bytes(bytes(data))
    again = queue_in(tmp_path / "q")
    assert again.max_offset == 9
    assert again.lower_bound(log_offset) == bound


def test_a_queue_whose_last_file_is_empty_ends_in_the_file_before(tmp_path):
    """A power cut may leave a file that was created, without what was written to it."""
    queue = queue_in(tmp_path / "q")
    for number in range(15):
        add(queue, *entry(number))
    queue.write_out()
    first, last = sorted((tmp_path / "q").iterdir())
    first.write_bytes(first.read_bytes()[: 7 * 20] + bytes(3 * 20))
    last.write_bytes(bytes(10 * 20))
    assert queue_in(tmp_path / "q").max_offset == 7


def test_what_is_added_after_a_cut_of_entries_in_memory_takes_their_place(tmp_path):
    queue = queue_in(tmp_path / "q")
    queue.start_at(10)
    for number in range(10, 15):
        add(queue, *entry(number))
    queue.cut(12)
    add(queue, *entry(99))
    assert found(queue, 10) == [entry(10), entry(11), entry(99)]


def test_an_entry_of_the_log_s_first_message_is_no_filler(tmp_path):
    queue = queue_in(tmp_path / "q")
    queue.start_at(3)
    add(queue, 0, 100, 65)
    add(queue, 100, 100, 65)
    queue.write_out()
    assert [queue_in(tmp_path / "q").lower_bound(at) for at in (0, 1, 100, 101)] == [
        *(3, 4, 4, 5),
    ]


def test_a_reader_follows_a_queue_that_was_deleted_and_began_anew(tmp_path):
    queue = queue_in(tmp_path / "q")
    for number in range(25):
        add(queue, *entry(number))
    queue.write_out()
    reader = queue_in(tmp_path / "q", writable=False)
    add(reader, *entry(25))  # an entry that the reader found in the log
    assert len(found(reader)) == 26
    for path in (tmp_path / "q").iterdir():
        path.unlink()
    anew = queue_in(tmp_path / "q")
    add(anew, *entry(3))
    anew.write_out()
    reader.close()
    reader.refresh()
    assert found(reader) == [entry(3)]


def test_the_error_of_one_queue_is_returned_whatever_the_others_do(tmp_path):
    """Else the checkpoint would vouch for entries that are only in memory."""
    table = QueueTable(tmp_path / "consumequeue", UNITS, open_files(writable=True))
    (tmp_path / "consumequeue").mkdir()
    for topic in ("bad-1", "bad-2"):
        (tmp_path / "consumequeue" / topic).write_text("in the way")
    for topic in ("good-1", "bad-1", "good-2", "bad-2", "good-3"):
        table.add(table.make((topic, 0)), QueueUnit(0, 100, 65), store_timestamp_ms=1)

    error = table.write_out()

    assert isinstance(error, StoreFullError)
    assert "consumequeue/bad-" in error.message
    assert table.has_pending
    assert [
        table.make((topic, 0)).pending_count
        for topic in ("good-1", "good-2", "good-3", "bad-1", "bad-2")
    ] == [0, 0, 0, 1, 1]
    for topic in ("bad-1", "bad-2"):
        (tmp_path / "consumequeue" / topic).unlink()
    assert table.write_out() is None
    assert not table.has_pending


def test_the_error_of_one_queue_s_sync_is_raised_after_the_others_were_synced(tmp_path):
    folder = tmp_path / "consumequeue"
    table = QueueTable(folder, UNITS, open_files(writable=True))
    topics = ["bad", *(f"good-{number}" for number in range(20))]
    for topic in topics:
        table.add(table.make((topic, 0)), QueueUnit(0, 100, 65), store_timestamp_ms=1)
    assert table.write_out() is None
    for queue in table.queues.values():
        queue.close()
    (folder / "bad").rename(tmp_path / "away")

    with pytest.raises(StoreError, match="consumequeue/bad/0 cannot be flushed"):
        table.sync()

    (tmp_path / "away").rename(folder / "bad")
    for topic in topics[1:]:
        (folder / topic).rename(tmp_path / topic)
    table.sync()  # only the one that failed is left


def test_of_a_file_that_is_cut_short_only_whole_entries_are_read(tmp_path):
    queue = queue_in(tmp_path / "q")
    for number in range(3):
        add(queue, *entry(number))
    queue.write_out()
    reader = queue_in(tmp_path / "q", writable=False)
    os.truncate(tmp_path / "q" / ("0" * 20), 2 * 20 + 19)
    assert found(reader) == [entry(0), entry(1)]
    assert reader.entry(1) == entry(1)
    assert reader.entry(2) is None


def test_queues_are_numbered_up_to_the_largest_int(tmp_path):
    table = QueueTable(tmp_path / "consumequeue", UNITS, open_files(writable=True))
    for queue_id in (-1, 2**31):
        with pytest.raises(ValueError, match=f"queue {queue_id} of topic 'T' cannot"):
            table.make(("T", queue_id))
    for queue_id in (0, 2**31 - 1):
        table.add(
            table.make(("T", queue_id)), QueueUnit(0, 100, 65), store_timestamp_ms=1
        )
    assert table.write_out() is None
    again = QueueTable(tmp_path / "consumequeue", UNITS, open_files(writable=True))
    assert sorted(again.queues) == [("T", 0), ("T", 2**31 - 1)]


def test_the_last_entry_that_a_file_name_can_reach_is_kept(tmp_path, caplog):
    last = 461_168_601_842_738_790  # (2**63 - 1) / 20
    table = QueueTable(tmp_path / "consumequeue", UNITS, open_files(writable=True))
    assert table.make_for(("T", 0), last + 1, is_batch=False) is None
    assert f"entry {last + 1} of queue ('T', 0) cannot be stored" in caplog.text
    queue = table.make_for(("T", 0), last, is_batch=False)
    assert queue is not None
    queue.start_at(last)
    table.add(queue, QueueUnit(0, 100, 65), store_timestamp_ms=1)
    assert table.write_out() is None
    again = QueueTable(tmp_path / "consumequeue", UNITS, open_files(writable=True))
    assert again.queues["T", 0].max_offset == last + 1
