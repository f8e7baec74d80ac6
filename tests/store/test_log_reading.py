"""Reading runs of records, the state for the next start, and the lock of a folder."""

from __future__ import annotations

import dataclasses
import logging
import os
import stat
import struct

import pytest

from rmqcli.store.checkpoint import (
    Checkpoint,
    read_abort,
    read_checkpoint,
    read_timer_progress,
    write_abort,
    write_checkpoint,
    write_timer_progress,
)
from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.disk_store import DiskStore
from rmqcli.store.folder import FolderLock
from rmqcli.store.memory import MemoryStore
from rmqcli.store.message_store import (
    QueueUnit,
    StoreError,
    StoreFullError,
    TimerProgress,
)
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.store.settings import StoreSettings
from rmqcli.wire.message.encode import MessageFields
from tests.store.folders import START_MS, TINY, message, stored
from tests.store.writing import fill, kill

LARGE = dataclasses.replace(TINY, commit_log_file_bytes=16 << 20)


@pytest.fixture
def large(folder):
    """A store with twenty messages of about 1 MiB in two log files, and their units."""
    store = DiskStore(folder, LARGE)
    for number in range(20):
        fields = dataclasses.replace(message(number), body=bytes([number]) * (1 << 20))
        store.append([fields], tags_codes=[number])
    units = list(store.units("orders", 0, 0, 99))
    yield store, units
    store.close()


def numbers(data):
    return [each.raw_body[0] for each in stored(data)]


def test_runs_longer_than_one_read_come_whole_and_in_order(large):
    store, units = large
    assert numbers(store.read_units(units)) == list(range(20))
    assert store.read_units([]) == b""
    for first, last in ((0, 1), (3, 4), (3, 7), (3, 8), (14, 17), (15, 16), (19, 20)):
        found = store.read_units(units[first:last])
        assert numbers(found) == list(range(first, last))


def test_records_that_are_no_neighbours_come_in_the_order_asked_for(large):
    store, units = large
    chosen = [units[n] for n in (5, 3, 4, 9, 0, 19, 18)]
    assert numbers(store.read_units(chosen)) == [5, 3, 4, 9, 0, 19, 18]


@pytest.mark.parametrize("at", [0, 1, 4, 6])
def test_reading_ends_before_the_first_record_that_is_not_there(large, at):
    store, units = large
    end = store.log_bounds()[1]
    chosen = units[:7]
    chosen[at] = QueueUnit(end, chosen[at].size_bytes, 0)
    assert numbers(store.read_units(chosen)) == list(range(at))


def test_a_run_that_goes_beyond_the_log_gives_the_records_before(folder):
    """Entries may point beyond the end of the log that a reader sees."""
    store = DiskStore(folder, TINY)
    fill(store, 10, queues=1)
    units = list(store.units("orders", 0, 0, 10))
    store._log.end = units[6].commit_log_offset + 3
    assert len(stored(store.read_units(units))) == 6
    store._log.end = units[6].commit_log_offset
    assert len(stored(store.read_units(units))) == 6
    store._log.end = units[6].commit_log_offset + units[6].size_bytes
    assert len(stored(store.read_units(units))) == 7
    kill(store)


@pytest.mark.parametrize(
    ("at", "value"), [(4, 0xCBD43194), (4, 0), (0, 90), (0, 1 << 20)]
)
def test_an_offset_inside_a_record_is_not_a_message(folder, at, value):
    store = DiskStore(folder, TINY)
    fill(store, 3, queues=1)
    unit = store.units("orders", 0, 1, 1)[0]
    with (folder / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(unit.commit_log_offset + at)
        file.write(struct.pack(">I", value))
    assert store.message_at(unit.commit_log_offset) is None
    assert store.message_at(0) is not None
    assert store.message_at(-1) is None
    kill(store)


def test_of_a_log_that_is_cut_short_only_whole_records_are_read(folder):
    store = DiskStore(folder, TINY)
    fill(store, 3, queues=1)
    units = list(store.units("orders", 0, 0, 3))
    last = units[2].commit_log_offset
    os.truncate(folder / "commitlog" / ("0" * 20), last + units[2].size_bytes - 1)
    assert len(stored(store.read_units(units))) == 2
    assert store.message_at(last) is None
    assert store.read(last, units[2].size_bytes) is None
    part = store.read(last, units[2].size_bytes - 1)
    assert part is not None
    assert store.read(last, 8) == part[:8]
    kill(store)


def test_bytes_are_read_only_within_the_log_and_one_file(folder):
    store = DiskStore(folder, TINY)
    fill(store, 100, queues=1)
    start, end = store.log_bounds()
    file_bytes = TINY.commit_log_file_bytes
    assert end > file_bytes
    for at, size, is_read in (
        *((start, 1, True), (start - 1, 1, False), (start, 0, False)),
        *((end - 1, 1, True), (end - 1, 2, False), (end, 1, False)),
        (file_bytes - 1, 1, True),
        (file_bytes - 1, 2, False),
    ):
        found = store.read(at, size)
        assert (found is not None and len(found) == size) == is_read, (at, size)
    kill(store)


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[::1]:1"])
def test_store_times_are_read_for_hosts_of_both_families(folder, host):
    store = DiskStore(folder, TINY)
    fields = dataclasses.replace(message(3), born_host=host)
    store.append([fields, fields], tags_codes=[0, 0])
    store.flush()
    reader = ReadOnlyStore(folder)
    for each in (store, reader):
        assert each.store_time_ms("orders", 0, 1) == START_MS + 30
        assert each.store_time_ms("orders", 0, 2) is None
        assert each.store_time_ms("orders", 1, 0) is None
    assert reader.units("nothing", 0, 0, 1) == []
    reader.close()
    store.close()


@pytest.mark.parametrize("kind", [MemoryStore, DiskStore])
def test_a_code_for_each_message_is_asked_for(folder, kind):
    store = kind() if kind is MemoryStore else kind(folder, TINY)
    for codes in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match=r"\d"):
            store.append([message(0), message(1)], tags_codes=codes)
    store.close()


def test_a_checkpoint_is_three_times_in_a_page(tmp_path):
    write_checkpoint(tmp_path, Checkpoint(1, 2, 3))
    data = (tmp_path / "checkpoint").read_bytes()
    assert data == struct.pack(">qqq", 1, 2, 3) + bytes(4096 - 24)
    assert read_checkpoint(tmp_path) == (1, 2, 3)
    write_checkpoint(tmp_path, Checkpoint(4, 5, 6))
    assert read_checkpoint(tmp_path) == (4, 5, 6)
    assert (tmp_path / "checkpoint").stat().st_size == 4096
    assert read_checkpoint(tmp_path / "none") == (0, 0, 0)
    with pytest.raises(StoreError, match="cannot be written"):
        write_checkpoint(tmp_path / "none", Checkpoint())


def test_the_progress_of_timers_is_four_numbers_in_a_page(tmp_path):
    write_timer_progress(tmp_path, TimerProgress(5_000, 7))
    data = (tmp_path / "config" / "timercheck").read_bytes()
    assert data == struct.pack(">qqqq", 5_000, 0, 7, 7) + bytes(4096 - 32)
    assert read_timer_progress(tmp_path) == (5_000, 7)
    assert read_timer_progress(tmp_path / "none") == (0, 0)
    with pytest.raises(StoreError, match="cannot be written"):
        write_timer_progress(tmp_path / "none", TimerProgress())


@pytest.mark.parametrize("progress", [(0, 7), (5_000, 0)])
def test_a_progress_of_timers_may_have_a_zero(tmp_path, progress):
    write_timer_progress(tmp_path, TimerProgress(*progress))
    assert read_timer_progress(tmp_path) == progress


def test_a_short_checkpoint_file_gets_its_whole_length(tmp_path):
    (tmp_path / "checkpoint").write_bytes(bytes(24))
    write_checkpoint(tmp_path, Checkpoint(1, 2, 3))
    assert (tmp_path / "checkpoint").stat().st_size == 4096


@pytest.mark.parametrize(
    "data", [b"", bytes(31), struct.pack(">qqqq", -1, 0, 7, 7), bytes(56)]
)
def test_a_damaged_progress_of_timers_vouches_for_nothing(tmp_path, data):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "timercheck").write_bytes(data)
    assert read_timer_progress(tmp_path) == (0, 0)


@pytest.mark.parametrize(("bytes_", "expected"), [(24, (0, 0, 0)), (23, (0, 0, 0))])
def test_a_checkpoint_of_zeros_or_cut_short_vouches_for_nothing(
    tmp_path, bytes_, expected
):
    (tmp_path / "checkpoint").write_bytes(bytes(bytes_))
    assert read_checkpoint(tmp_path) == expected


def test_the_abort_file_shows_which_program_did_not_close_the_folder(tmp_path):
    assert read_abort(tmp_path) is None
    write_abort(tmp_path)
    assert (tmp_path / "abort").read_text() == f"{os.getpid()} rmq"
    assert read_abort(tmp_path) == "ours"
    for text in ("", "12345", "12345\n"):
        (tmp_path / "abort").write_text(text)
        assert read_abort(tmp_path) == "java"


@pytest.mark.parametrize(("last", "is_written"), [(499, False), (500, True)])
def test_a_checkpoint_is_written_after_five_seconds_of_messages(
    open_store, folder, last, is_written
):
    store = open_store()
    store.append([message(0)], tags_codes=[0])
    store.close()
    store = open_store()
    store.append([message(last)], tags_codes=[0])
    store.flush()
    expected = START_MS + (last * 10 if is_written else 0)
    assert read_checkpoint(folder) == (expected, expected, expected)


def test_a_clock_that_goes_back_takes_the_checkpoint_along(open_store, folder):
    store = open_store()
    store.append([message(1_000)], tags_codes=[0])
    store.close()
    store = open_store()
    store.append([message(1_000)], tags_codes=[0])  # not older than the checkpoint
    assert read_checkpoint(folder)[0] == START_MS + 10_000
    store.append([message(999)], tags_codes=[0])
    assert read_checkpoint(folder) == (START_MS + 9_990,) * 3


def test_a_lock_is_taken_once_and_released_once(tmp_path):
    lock = FolderLock(tmp_path / "deep" / "store")
    assert (tmp_path / "deep/store/lock").read_bytes() == b"lock"
    with pytest.raises(StoreError, match="in use by this process"):
        FolderLock(tmp_path / "deep" / "store")
    before = len(os.listdir("/proc/self/fd"))
    lock.release()
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    again = FolderLock(tmp_path / "deep" / "store")
    again.release()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"commit_log_file_bytes": 4095}, "at least 4096, not 4095"),
        ({"consume_queue_file_units": 0}, "at least 1, not 0"),
        ({"index_slots": 0}, "at least 1, not 0"),
    ],
)
def test_sizes_that_no_file_can_have_are_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        StoreSettings(**fields)


def test_the_least_sizes_work(folder):
    settings = StoreSettings(
        commit_log_file_bytes=4096, consume_queue_file_units=1, index_slots=1
    )
    store = DiskStore(folder, settings)
    fill(store, 50, queues=1)
    store.close()
    store = DiskStore(folder, settings)
    assert store.queue_bounds("orders", 0) == (0, 50)
    assert len(list((folder / "consumequeue/orders/0").iterdir())) == 50
    store.close()


@pytest.mark.parametrize("spare", [8, 7])
def test_a_log_file_keeps_eight_bytes_for_the_mark_of_its_end(folder, spare):
    settings = dataclasses.replace(TINY, commit_log_file_bytes=4096)
    store = DiskStore(folder, settings)
    (first,) = store.append([MessageFields(topic="t", body=b"x")], tags_codes=[0])
    rest = 4096 - first.size_bytes - spare
    body = bytes(rest - first.size_bytes + 1)
    (second,) = store.append([MessageFields(topic="t", body=body)], tags_codes=[0])
    assert second.size_bytes == rest
    assert second.commit_log_offset == (first.size_bytes if spare == 8 else 4096)
    largest = bytes(4096 - 8 - first.size_bytes + 1)
    store.append([MessageFields(topic="t", body=largest)], tags_codes=[0])
    with pytest.raises(ValueError, match="does not fit"):
        store.append([MessageFields(topic="t", body=largest + b"x")], tags_codes=[0])
    store.close()


def test_tables_are_readable_by_all_and_their_copies_too(tmp_path):
    config = ConfigFolder(tmp_path / "config")
    before = os.umask(0)
    try:
        config.write("a.json", "{}")
        config.write("a.json", "{}")
        config.write("a.json", '{"a":1}')
    finally:
        os.umask(before)
    for name in ("a.json", "a.json.bak"):
        mode = stat.S_IMODE((config.directory / name).stat().st_mode)
        assert mode == 0o644
    assert sorted(os.listdir(config.directory)) == ["a.json", "a.json.bak"]


def test_an_invalid_index_file_is_logged_once_and_a_new_one_is_not(
    open_store, folder, caplog
):
    store = open_store()
    fill(store, 10, queues=1)
    store.flush()
    store.close()
    (folder / "index/20300101000000000").write_bytes(b"short")
    (folder / "index/20310101000000000").touch()
    with caplog.at_level(logging.WARNING):
        reader = ReadOnlyStore(folder)
        reader.refresh()
        found = reader.query_index(
            "orders", "order-3", begin_ms=0, end_ms=2**62, count_max=9
        )
        reader.close()
    assert len(found) == 1
    assert caplog.text.count("skipping index file: ") == 1
    assert "20300101000000000 has 5 bytes: not an index file" in caplog.text


def test_files_are_readable_by_all_and_writable_by_their_owner_alone(folder):
    before = os.umask(0)
    try:
        store = DiskStore(folder, TINY)
        fill(store, 100)
        store.close()
        DiskStore(folder, TINY).abandon()
    finally:
        os.umask(before)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {"lock", "abort", "checkpoint"} < {path.name for path in files}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}


def test_a_queue_that_waits_for_its_files_takes_no_more_than_200_000_entries(folder):
    store = DiskStore(folder, TINY)
    queue = store._queues.make(("orders", 0))
    for _ in range(200_000):
        queue.add(QueueUnit(0, 100, 0), count=1, store_timestamp_ms=0)
    store.append([message(0)], tags_codes=[0])
    with pytest.raises(StoreFullError, match="200001 entries are only in memory"):
        store.append([message(1)], tags_codes=[0])
    store.append([message(1, queue_id=1)], tags_codes=[0])
    kill(store)
