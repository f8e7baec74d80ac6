"""Messages can be read from a store at once, and after it is opened again."""

from __future__ import annotations

import dataclasses
import os
import resource
import struct

import pytest

from rmqcli.store.checkpoint import read_checkpoint
from rmqcli.store.disk_store import DiskStore
from rmqcli.store.message_store import StoreError, StoreFullError
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.store.settings import StoreSettings
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.system_flag import INNER_BATCH
from tests.store.folders import START_MS, TINY, message, stored
from tests.store.writing import fill, kill, numbers_in

PREPARED, COMMITTED, ROLLED_BACK = 4, 8, 12


def close(store):
    store.close()


def flush_and_kill(store):
    store.flush()
    store.abandon()


ENDS = [close, kill, flush_and_kill]


@pytest.mark.parametrize("end", ENDS)
def test_messages_survive_and_more_follow(open_store, end):
    """The messages fill several files of the log, of the queue and of the index."""
    store = open_store()
    fill(store, 333)
    end(store)
    store = open_store()
    assert numbers_in(store, 0) == list(range(0, 333, 2))
    fill(store, 100, start=333)
    end(store)
    store = open_store()
    assert numbers_in(store, 0) == list(range(0, 433, 2))
    assert numbers_in(store, 1) == list(range(1, 433, 2))
    assert len(os.listdir(store.folder / "commitlog")) > 3
    assert len(os.listdir(store.folder / "consumequeue/orders/0")) == 5
    assert len(os.listdir(store.folder / "index")) > 3


@pytest.mark.parametrize("end", [None, *ENDS])
def test_every_message_is_found_by_its_keys_once(open_store, end):
    store = open_store()
    fill(store, 300)
    if end is not None:
        end(store)
        store = open_store()
    for number in (0, 1, 150, 299):
        for key in (f"order-{number}", f"{number:032X}"):
            found = store.query_index(
                "orders", key, begin_ms=0, end_ms=2**62, count_max=99
            )
            keys = [stored(store.message_at(at))[0].keys for at in found]
            assert keys == [f"order-{number}"]


def test_index_is_searched_by_second(open_store):
    store = open_store()
    fill(store, 300)  # their store times are 10 ms apart
    found = {
        window: store.query_index(
            "orders",
            "order-250",
            begin_ms=START_MS + window[0],
            end_ms=START_MS + window[1],
            count_max=9,
        )
        for window in ((2_000, 2_500), (4_000, 9_000), (0, 1_000))
    }
    assert [len(each) for each in found.values()] == [1, 0, 0]


def test_clean_start_reads_nothing_again(open_store):
    store = open_store()
    fill(store, 300)
    store.close()
    assert open_store().recovered_count == 0


def test_batch_takes_consecutive_places(open_store):
    store = open_store()
    places = store.append([message(n) for n in range(3)], tags_codes=[1, 2, 3])
    assert [each.queue_offset for each in places] == [0, 1, 2]
    assert places[1].commit_log_offset == places[0].size_bytes
    units = store.units("orders", 0, 0, 10)
    assert [unit.tags_code for unit in units] == [1, 2, 3]
    assert store.read(places[2].commit_log_offset, places[2].size_bytes) is not None
    assert store.log_bounds() == (0, sum(each.size_bytes for each in places))


def test_rolled_over_file_ends_as_rocketmq_s(open_store):
    store = open_store()
    fill(store, 100)
    data = (store.folder / "commitlog/00000000000000000000").read_bytes()
    at = data.rindex(b"\xcb\xd4\x31\x94") - 4
    assert struct.unpack_from(">i", data, at)[0] == 16 * 1024 - at
    assert data[at + 8 :] == bytes(len(data) - at - 8)


@pytest.mark.parametrize("end", [None, *ENDS])
def test_half_and_rolled_back_messages_are_in_the_log_only(open_store, end):
    store = open_store()
    fields = [
        MessageFields(topic="t", sys_flag=flag, properties={"KEYS": f"k{flag}"})
        for flag in (PREPARED, COMMITTED, ROLLED_BACK, 0)
    ]
    places = store.append(fields, tags_codes=[0] * 4)
    assert [each.queue_offset for each in places] == [0, 0, 0, 1]
    if end is not None:
        end(store)
        store = open_store()
    units = store.units("t", 0, 0, 10)
    assert [unit.commit_log_offset for unit in units] == [
        places[1].commit_log_offset,
        places[3].commit_log_offset,
    ]
    found = [
        store.query_index("t", f"k{flag}", begin_ms=0, end_ms=2**62, count_max=9)
        for flag in (PREPARED, ROLLED_BACK)
    ]
    assert found == [[places[0].commit_log_offset], []]


@pytest.mark.parametrize(
    ("queue_id", "delay_ms"), [(0, 1_000), (2, 10_000), (17, 7_200_000)]
)
def test_delayed_messages_keep_their_due_time_through_a_rebuild(
    open_store, queue_id, delay_ms
):
    """The entries of delay levels have a due time in place of a tags code."""
    store = open_store()
    delayed = message(1, topic="SCHEDULE_TOPIC_XXXX", queue_id=queue_id)
    due_ms = delayed.store_timestamp_ms + delay_ms
    store.append([delayed], tags_codes=[due_ms])
    store.abandon()
    (unit,) = open_store().units("SCHEDULE_TOPIC_XXXX", queue_id, 0, 9)
    assert unit.tags_code == due_ms


def test_a_delay_level_that_does_not_exist_has_no_due_time(open_store):
    store = open_store()
    delayed = message(1, topic="SCHEDULE_TOPIC_XXXX", queue_id=18)
    store.append([delayed], tags_codes=[7])
    store.abandon()
    (unit,) = open_store().units("SCHEDULE_TOPIC_XXXX", 18, 0, 9)
    assert unit.tags_code < delayed.store_timestamp_ms


@pytest.mark.parametrize("cut", [1, 4, 60, 150])
def test_torn_record_is_cut_off(open_store, cut):
    """A kill in the middle of a write leaves only the first bytes of a record."""
    store = open_store()
    fill(store, 10, queues=1)
    start, end = store.log_bounds()
    store.abandon()
    path = store.folder / "commitlog/00000000000000000000"
    with path.open("r+b") as file:
        record = file.read(end)[-200:]
        file.seek(end)
        file.write(record[:cut])
    store = open_store()
    assert store.log_bounds() == (start, end)
    assert path.read_bytes()[end:].strip(b"\0") == b""
    fill(store, 3, start=10, queues=1)
    assert numbers_in(store) == list(range(13))


@pytest.mark.parametrize(("torn", "warnings"), [(b"", 0), (b"\0\0\1\0torn", 1)])
def test_only_a_log_that_loses_bytes_is_said_to_be_truncated(
    open_store, caplog, torn, warnings
):
    store = open_store()
    fill(store, 10)
    end = store.log_bounds()[1]
    store.abandon()
    with (store.folder / "commitlog/00000000000000000000").open("r+b") as file:
        file.seek(end)
        file.write(torn)
    open_store()
    assert caplog.text.count("truncated") == warnings


def test_a_next_log_file_that_is_still_empty_changes_nothing(open_store, caplog):
    """A broker makes it in advance."""
    store = open_store()
    fill(store, 300)
    store.flush()
    *_, last = sorted((store.folder / "commitlog").iterdir())
    store.abandon()
    length = last.stat().st_size
    (last.parent / f"{int(last.name) + length:020}").write_bytes(bytes(length))
    store = open_store()
    assert store.recovered_count < 100
    assert numbers_in(store) == list(range(0, 300, 2))
    assert "truncated" not in caplog.text


def test_batches_that_are_only_in_the_log_are_counted_again(open_store):
    batch = MessageFields(
        topic="orders",
        sys_flag=INNER_BATCH,
        properties={"INNER_NUM": "3"},
        store_timestamp_ms=START_MS,
    )
    store = open_store()
    store.append([batch, batch], tags_codes=[65, 65])
    store.abandon()
    store = open_store()
    assert store.queue_bounds("orders", 0) == (0, 6)
    assert store.recovered_count == 2


def test_damaged_body_ends_the_log(open_store):
    store = open_store()
    fill(store, 10, queues=1)
    place = store.units("orders", 0, 8, 1)[0]
    store.abandon()
    path = store.folder / "commitlog/00000000000000000000"
    with path.open("r+b") as file:
        file.seek(place.commit_log_offset + 95)
        file.write(b"\xff")
    store = open_store()
    assert numbers_in(store) == list(range(8))


def test_full_disk_refuses_and_leaves_nothing_torn(open_store):
    store = open_store()
    fill(store, 20, queues=1)
    before = store.log_bounds()
    with _files_end_at(before[1] + 500):
        batch = [message(n) for n in range(20, 30)]
        with pytest.raises(StoreFullError, match="cannot be written"):
            store.append(batch, tags_codes=[65] * 10)
        assert store.log_bounds() == before
        assert numbers_in(store) == list(range(20))
        with pytest.raises(StoreFullError):
            fill(store, 100, start=20, queues=1)
    assert numbers_in(store)[-1] == store.queue_bounds("orders", 0)[1] - 1
    fill(store, 50, start=store.queue_bounds("orders", 0)[1], queues=1)
    expected = list(range(store.queue_bounds("orders", 0)[1]))
    assert numbers_in(store) == expected
    store.abandon()
    assert numbers_in(open_store()) == expected


def test_what_a_full_disk_refused_is_not_there_after_a_kill(open_store):
    """Its first records fit, and would be read as messages at the next start."""
    store = open_store()
    fill(store, 20, queues=1)
    with _files_end_at(store.log_bounds()[1] + 500), pytest.raises(StoreFullError):
        store.append([message(n) for n in range(20, 30)], tags_codes=[65] * 10)
    store.abandon()
    assert numbers_in(open_store()) == list(range(20))


def test_full_disk_at_a_new_file_refuses_too(open_store):
    store = open_store()
    fill(store, 20, queues=1)
    with _files_end_at(8_000), pytest.raises(StoreFullError):
        fill(store, 200, start=20, queues=1)
    count = store.queue_bounds("orders", 0)[1]
    fill(store, 200, start=count, queues=1)
    assert numbers_in(store) == list(range(count + 200))


class _files_end_at:  # noqa: N801  # reads as a function
    """Limit the size of all files: writes then fail as on a full disk."""

    def __init__(self, length):
        self.length = length

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.length, self.before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def test_message_larger_than_a_file_is_refused(open_store):
    store = open_store()
    big = MessageFields(topic="t", body=bytes(16 * 1024))
    with pytest.raises(ValueError, match="does not fit"):
        store.append([big], tags_codes=[0])
    assert store.queue_bounds("t", 0) in (None, (0, 0))


@pytest.mark.parametrize("topic", ["", "..", "a/b"])
def test_topic_that_is_no_folder_s_name_is_refused(open_store, topic):
    with pytest.raises(ValueError, match="topic"):
        open_store().append([MessageFields(topic=topic)], tags_codes=[0])


@pytest.mark.parametrize("end", [None, *ENDS])
def test_trimmed_log_moves_the_lower_bounds(open_store, end):
    store = open_store()
    fill(store, 600, queues=1)
    store.flush()
    store.trim(None, 40_000)
    if end is not None:
        end(store)
        store = open_store()
    assert store.log_bounds()[0] == 32_768
    low = store.queue_bounds("orders", 0)[0]
    assert low > 50
    assert store.units("orders", 0, low - 1, 10) == []
    assert numbers_in(store) == list(range(low, 600))
    assert store.message_at(0) is None
    assert len(os.listdir(store.folder / "consumequeue/orders/0")) < 12
    gone = store.query_index("orders", "order-3", begin_ms=0, end_ms=2**62, count_max=9)
    assert gone == []


def test_trimmed_topic_loses_its_first_messages_only(open_store):
    store = open_store()
    fill(store, 100, queues=1)
    store.append([message(1, topic="other")], tags_codes=[0])
    store.trim("orders", 40)
    assert store.queue_bounds("orders", 0) == (40, 100)
    assert store.queue_bounds("other", 0) == (0, 1)
    store.trim("orders", 1_000)
    assert store.queue_bounds("orders", 0) == (100, 100)


#: 200 messages of 2 s fill two files of 16 KiB, and 11,050 bytes of a third one, which
#: begin with messages 0, 76 and 150.
THREE_FILES = StoreSettings(commit_log_file_bytes=16 * 1024, file_reserved_ms=None)


@pytest.mark.parametrize(
    ("now_ms", "start"),
    [
        (START_MS + 3_760, 0),
        (START_MS + 3_761, 16_384),
        (START_MS + 4_500, 16_384),
        (START_MS + 4_501, 32_768),
        (START_MS + 1_000_000, 32_768),  # the last file stays
    ],
)
def test_a_file_expires_once_the_next_one_is_older_than_the_limit(
    open_store, now_ms, start
):
    """The files after the first one begin 760 ms and 1,500 ms after it."""
    store = open_store(dataclasses.replace(THREE_FILES, file_reserved_ms=3_000))
    fill(store, 200, queues=1)
    assert store.expire(now_ms) == start
    assert store.log_bounds() == (start, 43_818)
    low = {0: 0, 16_384: 76, 32_768: 150}[start]
    assert numbers_in(store) == list(range(low, 200))


@pytest.mark.parametrize(
    ("bytes_max", "start"),
    [
        (43_818, 0),
        (43_817, 16_384),
        (27_434, 16_384),
        (27_433, 32_768),
        (1, 32_768),  # the last file stays
    ],
)
def test_a_log_larger_than_the_limit_loses_its_oldest_files_only(
    open_store, bytes_max, start
):
    store = open_store(dataclasses.replace(THREE_FILES, commit_log_bytes_max=bytes_max))
    fill(store, 200, queues=1)
    assert store.expire(START_MS + 1_000_000_000) == start
    assert store.log_bounds() == (start, 43_818)


def test_without_limits_no_file_expires(open_store):
    store = open_store(THREE_FILES)
    fill(store, 200, queues=1)
    assert store.expire(START_MS + 1_000_000_000_000) == 0
    assert store.log_bounds() == (0, 43_818)


@pytest.mark.parametrize("end", ENDS)
def test_deleted_topic_begins_anew(open_store, end):
    """This also holds after a rebuild from a log with older messages of the topic."""
    store = open_store()
    fill(store, 20, queues=1)
    store.delete_topic("orders")
    assert store.queue_bounds("orders", 0) is None
    fill(store, 5, start=100, queues=1)
    assert store.queue_bounds("orders", 0) == (0, 5)
    end(store)
    assert numbers_in(open_store()) == [100, 101, 102, 103, 104]


def test_a_deleted_queue_has_no_files_and_begins_anew(open_store, folder):
    """The other queues of the topic stay, and so do names that lead elsewhere."""
    store = open_store()
    fill(store, 20, queues=2)
    store.flush()
    kept = folder / "consumequeue" / "orders" / "1"
    (folder / "consumequeue" / "0").mkdir()
    store.delete_queue("orders", 0)
    store.delete_queue("orders", 7)
    store.delete_queue("..", 0)
    store.delete_queue("", 0)
    assert list((folder / "consumequeue" / "orders").iterdir()) == [kept]
    assert (folder / "consumequeue" / "0").exists()
    assert list(store.queues()) == [("orders", 1)]
    fill(store, 3, start=100, queues=1)
    assert store.queue_bounds("orders", 0) == (0, 3)
    store.delete_queue("orders", 0)  # nothing of it was written out
    store.flush()
    assert list((folder / "consumequeue" / "orders").iterdir()) == [kept]
    store.close()


def test_a_queue_whose_files_cannot_be_deleted_is_an_error(open_store, folder):
    store = open_store()
    fill(store, 5, queues=1)
    store.flush()
    files = folder / "consumequeue" / "orders" / "0"
    files.rename(folder / "away")
    files.write_text("not a folder")
    with pytest.raises(StoreError, match="a queue cannot be deleted: "):
        store.delete_queue("orders", 0)
    store.close()


@pytest.mark.parametrize("step_ms", [-86_400_000, 86_400_000])
def test_kill_after_the_clock_jumped_loses_nothing(open_store, step_ms):
    store = open_store()
    fill(store, 300, queues=1)
    store.close()
    store = open_store()
    for number in range(300, 600):
        fields = message(number + step_ms // 10)
        keyed = MessageFields(
            topic="orders",
            store_timestamp_ms=fields.store_timestamp_ms,
            properties={"KEYS": f"order-{number}"},
        )
        store.append([keyed], tags_codes=[0])
    store.abandon()
    assert numbers_in(open_store()) == list(range(600))


def test_two_stores_cannot_share_a_folder(open_store):
    store = open_store()
    with pytest.raises(StoreError, match="in use by this process"):
        open_store()
    store.close()
    open_store()


def test_folder_in_use_by_another_process_is_refused(folder):
    store = DiskStore(folder, TINY)
    try:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _tell_why_not(folder, writing)
        os.close(writing)
        with os.fdopen(reading) as answer:
            assert "in use by another process" in answer.read()
        os.waitpid(pid, 0)
    finally:
        store.close()


def _tell_why_not(folder, writing):
    from rmqcli.store import folder as folder_module

    try:
        folder_module._held.clear()
        DiskStore(folder, TINY)
        os.write(writing, b"opened")
    except StoreError as error:
        os.write(writing, error.message.encode())
    finally:
        os._exit(0)


def test_kill_after_a_checkpoint_reads_little_again(open_store):
    """Only the messages after the checkpoint's time are read again."""
    store = open_store()
    fill(store, 3_000, queues=1)  # messages of thirty seconds
    store.flush()
    fill(store, 100, start=3_000, queues=1)
    store.abandon()
    store = open_store()
    assert store.recovered_count < 300
    assert numbers_in(store) == list(range(3_100))


def test_a_checkpoint_is_written_by_the_first_flush_after_five_seconds(open_store):
    """Each one costs a sync of every queue, so that not every flush writes one."""
    store = open_store()
    seen = []
    for number in (0, 1, 499, 500, 501, 999, 1_000):  # a hundred in a second
        store.append([message(number)], tags_codes=[65])
        store.flush()
        seen.append(read_checkpoint(store.folder).logics_ms - START_MS)
    assert seen == [0, 0, 0, 5_000, 5_000, 5_000, 10_000]


def test_the_checkpoint_of_a_recovery_has_the_time_of_the_last_message(open_store):
    """With an older time the next start would read those messages once more."""
    store = open_store()
    fill(store, 3_000, queues=1)  # a message every 10 ms
    store.abandon()
    store = open_store()
    assert read_checkpoint(store.folder).logics_ms == START_MS + 29_990


@pytest.mark.parametrize("kind", [ReadOnlyStore, DiskStore])
def test_rocksdb_queues_are_refused_by_name(tmp_path, kind):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue_rocksdb").mkdir()
    (tmp_path / "consumequeue_rocksdb/CURRENT").write_text("MANIFEST-000004\n")
    with pytest.raises(StoreError, match="RocksDB"):
        kind(tmp_path)


@pytest.mark.parametrize("kind", [ReadOnlyStore, DiskStore])
def test_log_files_of_different_lengths_are_refused(tmp_path, kind):
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog/00000000000000000000").write_bytes(bytes(4096))
    (tmp_path / "commitlog/00000000000000004096").write_bytes(bytes(100))
    with pytest.raises(StoreError, match="100 bytes"):
        kind(tmp_path)
    assert not (tmp_path / "abort").exists()


def test_read_only_folder_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="not a folder"):
        DiskStore(tmp_path / "file")
