"""Damaged folders: intact records are kept, all others are cut off or skipped."""

from __future__ import annotations

import os
import struct

import pytest

from rmqcli.store.disk_store import DiskStore
from rmqcli.store.fixed_files import FixedFiles, OpenFiles
from rmqcli.store.index import IndexFile
from rmqcli.store.log_scan import ScannedRecord, names_of, scan
from rmqcli.store.read_only import ReadOnlyStore
from tests import golden_vectors
from tests.store.folders import START_MS, TINY, stored
from tests.store.writing import fill, kill, numbers_in

LOG_FILE = "commitlog/00000000000000000000"
QUEUE_FILE = "consumequeue/orders/0/00000000000000000000"
COMPRESSED = 1  # the client that wrote the expected values had decompressed bodies
ALL = {"begin_ms": 0, "end_ms": 2**62, "count_max": 99}


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def cut_queue(folder, count, queue_id=0):
    """Write zeros over all but the first `count` entries of a queue's first file."""
    path = folder / f"consumequeue/orders/{queue_id}/00000000000000000000"
    size = path.stat().st_size
    overwrite(path, count * 20, bytes(size - count * 20))


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("left", [0, 1, 17, 39])
def test_queues_that_are_behind_the_log_are_filled_from_it(
    open_store, folder, end, left
):
    store = open_store()
    fill(store, 40, queues=1)
    store.flush()
    store.close() if end == "close" else kill(store)
    cut_queue(folder, left)
    store = open_store()
    assert numbers_in(store) == list(range(40))
    if end == "close":
        # The record of the last entry is read again to find where the log continues.
        assert store.recovered_count == 40 - left
    fill(store, 5, start=40, queues=1)
    store.close()
    assert numbers_in(open_store()) == list(range(45))


@pytest.mark.parametrize("end", ["close", "kill"])
def test_keys_of_messages_that_the_index_does_not_have_are_filed_again(
    open_store, folder, end
):
    store = open_store()
    fill(store, 30, queues=1)
    store.close()
    (index,) = (folder / "index").iterdir()
    before = index.read_bytes()
    store = open_store()
    fill(store, 20, start=30, queues=1)
    store.close() if end == "close" else kill(store)
    for each in (folder / "index").iterdir():
        if each != index:
            each.unlink()
    index.write_bytes(before)
    cut_queue(folder, 29)
    store = open_store()
    for number in (0, 28, 29, 30, 49):
        assert len(store.query_index("orders", f"order-{number}", **ALL)) == 1, number


def test_queues_that_point_behind_the_end_of_the_log_are_cut(open_store, folder):
    """The log has lost its last records, but the queues have not lost their entries."""
    store = open_store()
    fill(store, 30)
    place = store.units("orders", 0, 10, 1)[0].commit_log_offset
    store.close()
    overwrite(folder / LOG_FILE, place, bytes(16 * 1024 - place))
    store = open_store()
    assert store.log_bounds() == (0, place)
    assert numbers_in(store, 0) == list(range(0, 20, 2))
    assert numbers_in(store, 1) == list(range(1, 20, 2))
    fill(store, 10, start=20)
    assert numbers_in(store, 0) == list(range(0, 30, 2))


@pytest.mark.parametrize("last", [29, 28])
def test_a_torn_last_record_takes_its_entry_along(open_store, folder, last):
    """After a clean stop queues are trusted, except for entries without a record."""
    store = open_store()
    fill(store, 30, queues=1)
    unit = store.units("orders", 0, 29, 1)[0]
    store.close()
    if last == 29:
        overwrite(folder / LOG_FILE, unit.commit_log_offset + 95, b"\xff")
    else:
        overwrite(folder / LOG_FILE, unit.commit_log_offset + 28, b"\x7f")  # its offset
    store = open_store()
    assert store.log_bounds() == (0, unit.commit_log_offset)
    assert store.queue_bounds("orders", 0) == (0, 29)
    assert numbers_in(store) == list(range(29))
    data = (folder / LOG_FILE).read_bytes()
    assert data[unit.commit_log_offset :].strip(b"\0") == b""
    entries = (folder / QUEUE_FILE).read_bytes()
    assert entries[29 * 20 :].strip(b"\0") == b""


def test_a_whole_record_of_another_place_is_not_taken(open_store, folder):
    """The old contents of a reused disk block may look like a message."""
    store = open_store()
    fill(store, 10, queues=1)
    unit = store.units("orders", 0, 3, 1)[0]
    record = store.read(unit.commit_log_offset, unit.size_bytes)
    start, end = store.log_bounds()
    kill(store)
    overwrite(folder / LOG_FILE, end, record)
    reader = ReadOnlyStore(folder)
    assert reader.log_bounds() == (start, end)
    assert numbers_in(reader) == list(range(10))
    reader.close()
    store = open_store()
    assert store.log_bounds() == (start, end)
    assert numbers_in(store) == list(range(10))


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, struct.pack(">I", 90)),  # a size below the minimum
        (0, struct.pack(">I", 16 * 1024)),  # beyond its file
        (4, struct.pack(">I", 0xDAA320A6)),  # an unknown magic
        (4, struct.pack(">I", 0xCBD43194)),  # a blank that ends before its file does
        (84, struct.pack(">I", 10_000)),  # a body longer than the record
        (84, struct.pack(">I", 150)),  # a body so long that the topic does not fit
    ],
)
def test_a_record_whose_lengths_do_not_fit_ends_the_log(open_store, folder, at, value):
    store = open_store()
    fill(store, 10, queues=1)
    unit = store.units("orders", 0, 6, 1)[0]
    kill(store)
    overwrite(folder / LOG_FILE, unit.commit_log_offset + at, value)
    store = open_store()
    assert store.log_bounds() == (0, unit.commit_log_offset)
    assert numbers_in(store) == list(range(6))


@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_record_whose_properties_do_not_fit_ends_the_log(open_store, folder, back):
    """Properties end the record, so a length that is one byte too long is an error."""
    store = open_store()
    fill(store, 2, queues=1)
    unit = store.units("orders", 0, 1, 1)[0]
    record = store.read(unit.commit_log_offset, unit.size_bytes)
    kill(store)
    at = record.rindex(b"orders") + len(b"orders")
    length = int.from_bytes(record[at : at + 2], "big")
    overwrite(
        folder / LOG_FILE,
        unit.commit_log_offset + at,
        struct.pack(">H", length + back),
    )
    assert open_store().log_bounds() == (0, unit.commit_log_offset)


def chain_file(tmp_path, before_of):
    """Create an index file with 8 slots and three items of hash 5.

    `before_of` maps each item to its predecessor in the chain.
    """
    path = tmp_path / "index"
    data = bytearray(40 + 8 * 84)
    struct.pack_into(">qqqqii", data, 0, START_MS, START_MS, 0, 300, 1, 4)
    struct.pack_into(">i", data, 40 + 5 * 4, 3)
    for item, before in before_of.items():
        at = 40 + 8 * 4 + item * 20
        struct.pack_into(">iqii", data, at, 5, item * 100, 0, before)
    path.write_bytes(data)
    return IndexFile(str(path), OpenFiles(writable=False))


@pytest.mark.parametrize(
    ("before_of", "expected"),
    [
        ({1: 0, 2: 1, 3: 2}, [300, 200, 100]),
        ({1: 0, 2: 1, 3: 1}, [300, 100]),
        ({1: 0, 2: 1, 3: 3}, [300]),  # an item that points to itself
        ({1: 3, 2: 1, 3: 2}, [300, 200, 100]),  # a cycle
        ({1: 0, 2: 9, 3: 2}, [300, 200]),  # an item beyond the last one
        ({1: 0, 2: -1, 3: 2}, [300, 200]),
    ],
)
def test_a_damaged_chain_of_the_index_ends_where_it_goes_no_further_back(
    tmp_path, before_of, expected
):
    file = chain_file(tmp_path, before_of)
    assert file.find(5, begin_ms=0, end_ms=2**62, count_max=99) == expected
    assert file.find(13, begin_ms=0, end_ms=2**62, count_max=99) == []  # the same slot
    assert file.find(5, begin_ms=0, end_ms=2**62, count_max=2) == expected[:2]
    assert file.find(5, begin_ms=0, end_ms=2**62, count_max=0) == []


@pytest.mark.parametrize(
    ("begin", "end", "found"),
    [
        (999, 999, False),
        (-1000, 999, True),
        (1000, 2000, False),  # the item is in the second before
        (-1000, -1, False),
        (-1000, 0, True),
        (0, 0, True),
    ],
)
def test_an_item_of_the_index_is_found_by_the_beginning_of_its_second(
    tmp_path, begin, end, found
):
    file = chain_file(tmp_path, {1: 0, 2: 0, 3: 0})
    got = file.find(5, begin_ms=START_MS + begin, end_ms=START_MS + end, count_max=9)
    assert got == ([300] if found else [])


@pytest.mark.parametrize("count", [4, 3, 0, -1])
def test_items_that_the_header_does_not_count_are_not_there(tmp_path, count):
    chain_file(tmp_path, {1: 0, 2: 1, 3: 2})
    overwrite(tmp_path / "index", 36, struct.pack(">i", count))
    file = IndexFile(str(tmp_path / "index"), OpenFiles(writable=False))
    found = file.find(5, begin_ms=0, end_ms=2**62, count_max=9)
    assert found == ([300, 200, 100] if count == 4 else [])


@pytest.mark.parametrize(
    ("before", "start"),
    [(0, 0), (16_383, 0), (16_384, 16_384), (16_385, 16_384), (32_768, 32_768)],
)
def test_only_whole_log_files_below_the_offset_are_trimmed(open_store, before, start):
    store = open_store()
    fill(store, 300, queues=1)
    store.flush()
    store.trim(None, before)
    assert store.log_bounds()[0] == start
    low, _ = store.queue_bounds("orders", 0)
    first = store.units("orders", 0, low, 1)[0]
    assert first.commit_log_offset == start
    assert numbers_in(store) == list(range(low, 300))
    files = sorted((store.folder / "consumequeue/orders/0").iterdir())
    assert int(files[0].name) == low * 20 // 1000 * 1000


def test_the_last_log_file_is_never_trimmed(open_store):
    store = open_store()
    fill(store, 300, queues=1)
    last = store.log_bounds()[1] // 16_384 * 16_384
    store.trim(None, 2**62)
    assert store.log_bounds()[0] == last
    assert numbers_in(store)[-1] == 299
    fill(store, 10, start=300, queues=1)
    assert numbers_in(store)[-1] == 309


def test_a_file_expires_the_millisecond_after_its_time(open_store):
    store = open_store(
        TINY.__class__(commit_log_file_bytes=16 * 1024, file_reserved_ms=1_000)
    )
    fill(store, 300, queues=1)
    (second,) = stored(store.message_at(16_384))
    assert store.expire(second.store_timestamp_ms + 1_000) == 0
    assert store.expire(second.store_timestamp_ms + 1_001) == 16_384


@pytest.mark.parametrize(("spare", "start"), [(0, 0), (1, 16_384)])
def test_a_log_of_just_the_largest_size_keeps_its_first_file(open_store, spare, start):
    store = open_store()
    fill(store, 300, queues=1)
    end = store.log_bounds()[1]
    store.close()
    settings = TINY.__class__(file_reserved_ms=None, commit_log_bytes_max=end - spare)
    store = open_store(settings)
    assert store.expire(START_MS) == start


@pytest.mark.parametrize("version", ["4.6.0", "5.5.0"])
def test_records_that_real_brokers_sent_are_scanned_where_they_belong(
    tmp_path, version
):
    """The records have bodies of all kinds, and are written at their own offsets."""
    cases = [
        case["expected"]
        for case in golden_vectors.load(f"answers/oracle-{version}")
        if case["kind"] == "message"
    ]
    by_offset = {case["commit_log_offset"]: case for case in cases}
    (tmp_path / "commitlog").mkdir()
    (tmp_path / LOG_FILE).write_bytes(bytes(1 << 20))
    found = []
    for answer in golden_vectors.load(f"answers/answers-{version}"):
        if answer["name"].startswith("pull") and answer["code"] == 0:
            frame = golden_vectors.from_base64(answer["response_b64"])
            body = frame[8 + int.from_bytes(frame[5:8], "big") :]
            at = 0
            for each in stored(body):
                offset = each.commit_log_offset
                size = by_offset[offset]["store_size"]
                overwrite(tmp_path / LOG_FILE, offset, body[at : at + size])
                at += size
                found.append(by_offset[offset])
    assert len(found) > 90
    files = FixedFiles(tmp_path / "commitlog", 1 << 20, OpenFiles(writable=False))
    store = ReadOnlyStore(tmp_path)
    for case in found:
        record = next(scan(files, case["commit_log_offset"]))
        assert isinstance(record, ScannedRecord)
        assert (
            record.commit_log_offset,
            record.size_bytes,
            record.topic.decode(),
            record.queue_id,
            record.queue_offset,
            record.sys_flag & ~COMPRESSED,
            record.store_timestamp_ms,
        ) == (
            case["commit_log_offset"],
            case["store_size"],
            case["topic"],
            case["queue_id"],
            case["queue_offset"],
            case["sys_flag"] & ~COMPRESSED,
            case["store_timestamp_ms"],
        )
        properties = case["properties"]
        assert names_of(record.properties) == tuple(
            properties.get(name, "").encode() for name in ("TAGS", "KEYS", "UNIQ_KEY")
        )
        (read,) = stored(store.message_at(case["commit_log_offset"]))
        assert read.body == golden_vectors.from_base64(case["body_b64"])
    store.close()


@pytest.mark.parametrize("length", [0, 23, 24])
def test_a_damaged_checkpoint_makes_the_start_read_all(open_store, folder, length):
    store = open_store()
    fill(store, 300, queues=1)
    store.close()
    (folder / "abort").write_text("1 rmq")
    path = folder / "checkpoint"
    times = path.read_bytes()[:24] if length == 24 else b"\x7f" * length
    path.write_bytes(times)
    store = open_store()
    assert numbers_in(store) == list(range(300))
    assert (store.recovered_count == 300) == (length < 24)


def test_a_checkpoint_with_a_time_before_1970_is_none(open_store, folder):
    store = open_store()
    fill(store, 300, queues=1)
    store.close()
    (folder / "abort").write_text("1 rmq")
    overwrite(folder / "checkpoint", 8, struct.pack(">q", -1))
    assert open_store().recovered_count == 300


@pytest.mark.parametrize(("owner", "slack"), [("1 rmq", 1), ("1", 3_000), ("", 3_000)])
def test_a_start_after_a_kill_begins_at_the_last_file_that_is_vouched_for(
    open_store, folder, owner, slack
):
    """A real broker's checkpoint may be off by 3 s, ours by a millisecond."""
    store = open_store()
    fill(store, 600, queues=1)  # their store times are 10 ms apart
    store.close()
    reader = ReadOnlyStore(folder)
    bases = sorted(int(name) for name in os.listdir(folder / "commitlog"))
    begins = {base: stored(reader.message_at(base))[0] for base in bases}
    reader.close()
    third = begins[bases[2]]
    for until, expected in (
        (third.store_timestamp_ms + slack, bases[2]),
        (third.store_timestamp_ms + slack - 1, bases[1]),
    ):
        (folder / "abort").write_text(owner)
        overwrite(folder / "checkpoint", 0, struct.pack(">qqq", until, until, until))
        store = open_store()
        assert store.recovered_count == 600 - begins[expected].queue_offset
        assert numbers_in(store) == list(range(600))
        store.close()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_oldest_of_the_checkpoint_s_times_counts(open_store, folder, which):
    store = open_store()
    fill(store, 600, queues=1)
    store.close()
    times = [START_MS + 10_000] * 3
    times[which] = START_MS + 100  # a time before the second file begins
    (folder / "abort").write_text("1 rmq")
    overwrite(folder / "checkpoint", 0, struct.pack(">qqq", *times))
    assert open_store().recovered_count == 600


def test_a_checkpoint_without_a_time_of_the_index_is_that_of_log_and_queues(
    open_store, folder
):
    store = open_store()
    fill(store, 600, queues=1)
    store.close()
    (folder / "abort").write_text("1 rmq")
    until = START_MS + 10_000
    overwrite(folder / "checkpoint", 0, struct.pack(">qqq", until, until, 0))
    store = open_store()
    assert 0 < store.recovered_count < 100
    assert numbers_in(store) == list(range(600))


def test_a_queue_that_begins_late_has_fillers_in_front_and_its_bounds_back(
    open_store, folder, caplog
):
    """The first log files were trimmed, and then the queue's files are lost, too."""
    store = open_store()
    fill(store, 300, queues=1)
    store.flush()
    store.trim(None, 16_384)
    low = store.queue_bounds("orders", 0)[0]
    store.close()
    for path in (folder / "consumequeue/orders/0").iterdir():
        path.unlink()
    store = open_store()
    assert store.queue_bounds("orders", 0) == (low, 300)
    assert numbers_in(store) == list(range(low, 300))
    store.close()
    first = min((folder / "consumequeue/orders/0").iterdir())
    base, data = int(first.name), first.read_bytes()
    fillers = low - base // 20
    assert "gap in queue" not in caplog.text
    assert fillers > 0
    assert data[: fillers * 20] == struct.pack(">qiq", 0, 2**31 - 1, 0) * fillers
    for kind in (ReadOnlyStore, lambda folder: DiskStore(folder, TINY)):
        again = kind(folder)
        assert again.queue_bounds("orders", 0) == (low, 300)
        assert again.units("orders", 0, low - 1, 1) == []
        again.close()


def test_messages_of_a_trimmed_log_are_distinguished_from_older_ones(open_store):
    store = open_store()
    fill(store, 300, queues=1)
    store.trim(None, 16_384)
    low = store.queue_bounds("orders", 0)[0]
    assert store.query_index("orders", f"order-{low}", **ALL) == [16_384]
    assert store.query_index("orders", f"order-{low - 1}", **ALL) == []
    assert store.read(16_383, 1) is None
    assert store.read(16_384, 1) is not None
    end = store.log_bounds()[1]
    assert store.read(end - 1, 1) is not None
    assert store.read(end - 1, 2) is None
    assert store.read(end, 0) is None
