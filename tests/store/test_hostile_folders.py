"""Folders that an attacker prepared or damaged: readable messages are read, others are
reported, and nothing outside the folder is changed."""

from __future__ import annotations

import dataclasses
import logging
import os
import resource
import struct
from contextlib import suppress

import pytest

from rmqcli.store.config_files import ConfigFolder
from rmqcli.store.disk_store import DiskStore
from rmqcli.store.message_store import StoreError, StoreFullError
from rmqcli.store.read_only import ReadOnlyStore
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.message.system_flag import INNER_BATCH
from tests.store.folders import START_MS, TINY, message
from tests.store.writing import fill, kill, numbers_in

LONG = "%DLQ%" + "g" * 252
LOG_FILE = "commitlog/00000000000000000000"


def filled(folder, count=40, topics=("orders",)):
    """Fill a folder with messages and close it cleanly."""
    store = DiskStore(folder, TINY)
    fill(store, count, queues=1)
    for topic in topics[1:]:
        store.append([message(1, topic=topic)], tags_codes=[65])
    store.close()


@pytest.mark.parametrize("topic", [LONG, "..", "a/b", "a\0", "é" * 128])
def test_a_message_of_a_topic_that_no_folder_can_have_is_refused_alone(
    open_store, topic
):
    store = open_store()
    with pytest.raises(ValueError, match="cannot be stored"):
        store.append([message(0, topic=topic)], tags_codes=[0])
    fill(store, 10, queues=1)
    store.close()
    store = open_store()
    assert numbers_in(store) == list(range(10))
    assert list(store.queues()) == [("orders", 0)]


@pytest.mark.parametrize("kind", [ReadOnlyStore, DiskStore])
def test_a_log_with_a_topic_that_no_folder_can_have_is_opened(
    open_store, folder, kind, caplog
):
    """Earlier versions wrote such messages to the log and could not open it again."""
    store = open_store()
    fill(store, 10, queues=1)
    (bad,) = store.append([message(10, topic="X" * 200)], tags_codes=[65])
    fill(store, 10, start=11, queues=1)
    kill(store)
    with (folder / LOG_FILE).open("r+b") as file:
        data = file.read()
        at = data.index(b"X" * 200, bad.commit_log_offset)
        file.seek(at)
        file.write(b"a/" + b"X" * 198)
    with caplog.at_level(logging.WARNING):
        store = kind(folder)
    try:
        assert numbers_in(store) == [*range(10), *range(11, 21)]
    finally:
        store.close()
    assert caplog.text.count("cannot be stored: its name has a slash") == 1


def test_a_queue_that_cannot_be_written_holds_up_no_other(open_store, folder, caplog):
    store = open_store()
    fill(store, 10, queues=1)
    store.append([message(1, topic="bad")], tags_codes=[65])
    (folder / "consumequeue").mkdir(exist_ok=True)
    (folder / "consumequeue/bad").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        store.flush()
        store.flush()
    assert caplog.text.count("consumequeue/bad/0") == 1
    reader = ReadOnlyStore(folder)
    assert numbers_in(reader) == list(range(10))
    reader.close()
    fill(store, 10, start=10, queues=1)
    store.append([message(2, topic="bad")], tags_codes=[65])
    with pytest.raises(StoreFullError, match="bad"):
        store.close()
    store = open_store()  # open it once more, as after a kill
    assert numbers_in(store) == list(range(20))
    assert numbers_in(store, topic="bad") == [1, 2]
    (folder / "consumequeue/bad").unlink()
    store.flush()
    store.close()
    assert open_store().recovered_count == 0


def test_a_queue_that_cannot_be_written_keeps_a_bounded_number_of_entries_in_memory(
    open_store, folder
):
    """Above the bound its messages are refused until it can be written again."""
    batch = MessageFields(
        topic="bad",
        sys_flag=INNER_BATCH,
        properties={"INNER_NUM": "1000"},
        store_timestamp_ms=START_MS,
    )
    store = open_store(dataclasses.replace(TINY, consume_queue_file_units=250_000))
    (folder / "consumequeue").mkdir(exist_ok=True)
    (folder / "consumequeue/bad").write_text("in the way")
    store.append([batch] * 200, tags_codes=[65] * 200)
    store.flush()
    store.append([batch], tags_codes=[65])  # 200,000 are not above the bound
    before = store.log_bounds()
    with pytest.raises(StoreFullError, match="201000 entries are only in memory"):
        store.append([message(1), batch], tags_codes=[65, 65])
    assert store.queue_bounds("bad", 0) == (0, 201_000)
    assert store.log_bounds() == before
    fill(store, 10, queues=1)
    assert numbers_in(store) == list(range(10))
    (folder / "consumequeue/bad").unlink()
    store.flush()
    store.append([batch], tags_codes=[65])
    assert store.queue_bounds("bad", 0) == (0, 202_000)


@pytest.mark.slow
def test_an_unwritable_index_neither_breaks_a_batch_nor_grows_without_end(
    open_store, folder
):
    store = open_store(
        dataclasses.replace(TINY, index_slots=50_000, consume_queue_file_units=50_000)
    )
    (folder / "index").write_text("in the way")
    fill(store, 6_000, queues=1, batch=100)  # two keys each: more than may be pending
    assert numbers_in(store) == list(range(6_000))
    with pytest.raises(StoreFullError, match="index"):
        fill(store, 40_000, start=6_000, queues=1, batch=1_000)
    before = store.queue_bounds("orders", 0)
    (folder / "index").unlink()
    fill(store, 10, start=before[1], queues=1)
    assert store.queue_bounds("orders", 0) == (0, before[1] + 10)
    found = store.query_index(
        "orders", "order-7", begin_ms=0, end_ms=2**62, count_max=9
    )
    assert len(found) == 1


def test_a_full_disk_at_the_start_does_not_keep_messages_from_being_read(
    open_store, folder
):
    store = open_store()
    fill(store, 30, queues=1)
    kill(store)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        store = open_store()
        assert numbers_in(store) == list(range(30))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kill(store)
    assert numbers_in(open_store()) == list(range(30))


@pytest.mark.parametrize("kind", [ReadOnlyStore, DiskStore])
@pytest.mark.parametrize("fault", ["lengths", "odd length", "link"])
def test_an_unreadable_queue_is_left_out_with_a_warning(
    folder, tmp_path, kind, fault, caplog
):
    filled(folder, topics=("orders", "bad"))
    queue = folder / "consumequeue/bad/0"
    if fault == "lengths":
        (queue / "00000000000000001000").write_bytes(b"12345")
    elif fault == "odd length":
        (queue / "00000000000000000000").write_bytes(bytes(41))
    else:
        (folder / "consumequeue/bad").rename(tmp_path / "elsewhere")
        (folder / "consumequeue/bad").symlink_to(tmp_path / "elsewhere")
    with caplog.at_level(logging.WARNING):
        store = kind(folder)
        store.queue_bounds("orders", 0)
    try:
        assert numbers_in(store) == list(range(40))
        if fault != "link":
            assert caplog.text.count("skipping queue: ") == 1
            assert "consumequeue/bad/0" in caplog.text
            if kind is DiskStore:
                with pytest.raises(StoreError, match="bad/0"):
                    store.append([message(2, topic="bad")], tags_codes=[65])
                fill(store, 5, start=40, queues=1)
                store.delete_topic("bad")
                store.append([message(2, topic="bad")], tags_codes=[65])
    finally:
        store.close()


def test_only_folders_with_a_queue_s_number_are_queues(folder):
    filled(folder)
    for name in ("٣", "007", "99999999999", "4294967296", "-1", "x"):
        (folder / "consumequeue/orders" / name).mkdir()
    (folder / "consumequeue/orders/3").write_text("")
    (folder / "consumequeue/orders/2147483647").mkdir()
    (folder / "consumequeue/orders/2147483648").mkdir()
    for kind in (ReadOnlyStore, DiskStore):
        store = kind(folder)
        assert sorted(store.queues()) == [("orders", 0), ("orders", 2147483647)]
        store.close()


@pytest.mark.slow
def test_a_sparse_table_of_lying_size_takes_no_memory(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").touch()
    os.truncate(tmp_path / "config/topics.json", 1 << 40)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory_bytes() + (900 << 20), limit[1]))
    try:
        with pytest.raises(StoreError, match="has more than 268435456 bytes"):
            ConfigFolder(tmp_path / "config").read("topics.json")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)


@pytest.mark.parametrize("path", ["..", "../outside", "../../outside", "", ".", "/tmp"])
def test_deleting_a_topic_named_like_a_path_touches_nothing(
    open_store, folder, tmp_path, path
):
    store = open_store()
    fill(store, 3)
    store.flush()
    (folder / "outside").mkdir()
    (tmp_path / "outside").mkdir()
    store.delete_topic(path)
    assert (folder / "outside").is_dir()
    assert (tmp_path / "outside").is_dir()
    assert (folder / "consumequeue/orders/0").is_dir()


def test_deleting_a_topic_keeps_files_that_are_not_its_queues(open_store, folder):
    store = open_store()
    fill(store, 3, queues=1)
    store.flush()
    (folder / "consumequeue/orders/notes").write_text("of somebody")
    store.delete_topic("orders")
    assert os.listdir(folder / "consumequeue/orders") == ["notes"]
    store.delete_topic("never written")


def test_a_folder_of_another_owner_is_not_written_into(tmp_path):
    if os.geteuid() == 0:
        folder = tmp_path / "theirs"
        folder.mkdir()
        os.chown(folder, 12_345, -1)
    else:
        folder = tmp_path.__class__("/")
    before = sorted(os.listdir(folder))
    with pytest.raises(StoreError, match="belongs to user") as caught:
        DiskStore(folder, TINY)
    assert caught.value.hint
    assert sorted(os.listdir(folder)) == before


def test_a_folder_of_another_owner_is_read(folder):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    filled(folder)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 12_345, -1)
    reader = ReadOnlyStore(folder)
    assert numbers_in(reader) == list(range(40))
    reader.close()


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index", "config"])
def test_a_link_in_the_place_of_one_of_its_folders_is_not_written_through(
    folder, tmp_path, name
):
    folder.mkdir()
    (tmp_path / "precious").mkdir()
    (folder / name).symlink_to(tmp_path / "precious")
    with pytest.raises(StoreError, match="is a symbolic link"):
        DiskStore(folder, TINY)
    assert os.listdir(tmp_path / "precious") == []


@pytest.mark.parametrize(
    "name",
    ["lock", "abort", "checkpoint", LOG_FILE, "consumequeue/orders/0/" + "0" * 20],
)
def test_a_link_in_the_place_of_one_of_its_files_is_not_written_through(
    folder, tmp_path, name
):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(precious)
    with suppress(StoreError):  # a bad queue file is only logged; memory is used
        store = DiskStore(folder, TINY)
        fill(store, 10, queues=1)
        store.close()
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize("name", ["topics.json", "topics.json.bak", "topics.json.tmp"])
def test_config_files_are_not_written_through_links(tmp_path, name):
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).symlink_to(precious)
    config = ConfigFolder(tmp_path / "config")
    config.write("topics.json", '{"a":1}')
    config.write("topics.json", '{"a":2}')
    assert precious.read_bytes() == b"precious"
    assert config.read("topics.json") == {"a": 2}
    config.clean()
    assert config.read("topics.json.bak") == {"a": 1}


@pytest.mark.parametrize(
    "name", ["checkpoint", "abort", LOG_FILE, "index/20260101000000000"]
)
@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_or_a_folder_in_a_file_s_place_is_not_waited_for(folder, name, kind):
    (folder / "commitlog").mkdir(parents=True)
    (folder / "index").mkdir()
    os.mkfifo(folder / name) if kind == "pipe" else (folder / name).mkdir()
    reader = ReadOnlyStore(folder)
    assert list(reader.queues()) == []
    reader.close()
    with suppress(StoreError):
        DiskStore(folder, TINY).close()


@pytest.mark.parametrize("stated", [64 * 1024 * 1024 + 1, 2**31 - 1, 2**32 - 1])
def test_a_sparse_log_whose_record_states_a_lying_size_takes_no_memory(folder, stated):
    filled(folder)
    (end,) = {ReadOnlyStore(folder).log_bounds()[1]}
    path = folder / LOG_FILE
    with path.open("r+b") as file:
        head = file.read(40)
        file.seek(end)
        lying = bytearray(head)
        struct.pack_into(">I", lying, 0, stated)
        struct.pack_into(">q", lying, 28, end)
        file.write(lying)
        file.truncate(1 << 40)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_memory_bytes() + (48 << 20), limit[1]))
    try:
        reader = ReadOnlyStore(folder)
        assert reader.log_bounds() == (0, end)
        assert reader.message_at(end) is None
        assert reader.read(0, stated) is None
        assert numbers_in(reader) == list(range(40))
        reader.close()
        with pytest.raises(StoreError, match="opening would discard the data after"):
            DiskStore(folder, TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limit)
    assert path.stat().st_size == 1 << 40


def test_a_record_of_the_largest_size_is_read_back(tmp_path):
    store = DiskStore(
        tmp_path, dataclasses.replace(TINY, commit_log_file_bytes=80 << 20)
    )
    (place,) = store.append([message(0)], tags_codes=[65])
    body = bytes((64 << 20) - place.size_bytes + len(message(0).body))
    (large,) = store.append(
        [dataclasses.replace(message(0), body=body)], tags_codes=[65]
    )
    assert large.size_bytes == 64 << 20
    record = store.message_at(large.commit_log_offset)
    assert record is not None
    assert len(record) == 64 << 20
    with pytest.raises(ValueError, match="exceeds the limit of 67108864"):
        store.append(
            [dataclasses.replace(message(0), body=body + b"x")], tags_codes=[65]
        )
    store.abandon()
    store = DiskStore(tmp_path, TINY)
    assert store.queue_bounds("orders", 0) == (0, 2)
    store.close()


def test_an_incomplete_record_of_the_largest_size_is_cut_off(tmp_path):
    filled(tmp_path)
    end = ReadOnlyStore(tmp_path).log_bounds()[1]
    with (tmp_path / LOG_FILE).open("r+b") as file:
        head = bytearray(file.read(100))
        struct.pack_into(">I", head, 0, 64 << 20)
        struct.pack_into(">q", head, 28, end)
        file.seek(end)
        file.write(head)
        file.truncate(80 << 20)
    store = DiskStore(tmp_path, TINY)
    assert store.log_bounds() == (0, end)
    assert numbers_in(store) == list(range(40))
    store.close()


@pytest.mark.parametrize("queue_offset", [-1, 461_168_601_842_738_791])
def test_a_record_that_states_an_impossible_place_in_its_queue_is_left_out(
    open_store, folder, queue_offset, caplog
):
    store = open_store()
    fill(store, 10, queues=1)
    (place,) = store.append([message(1, topic="liar")], tags_codes=[65])
    kill(store)
    with (folder / LOG_FILE).open("r+b") as file:
        file.seek(place.commit_log_offset + 20)
        file.write(struct.pack(">q", queue_offset))
    for kind in (ReadOnlyStore, DiskStore):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            store = kind(folder)
        assert f"entry {queue_offset} of queue ('liar', 0)" in caplog.text
        assert numbers_in(store) == list(range(10))
        assert store.queue_bounds("liar", 0) is None
        if isinstance(store, DiskStore):
            assert store.recovered_count == 10
        store.close()


def _memory_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def test_a_folder_whose_name_is_not_text_is_left_out_alone(folder, caplog):
    topics = [f"topic-{number}" for number in range(8)]
    filled(folder, count=1, topics=("orders", *topics))
    for number in range(8):
        os.makedirs(os.fsencode(folder / "consumequeue") + b"/\xff%d/0" % number)
    for kind in (ReadOnlyStore, DiskStore):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            store = kind(folder)
        assert {topic for topic, _ in store.queues()} == {"orders", *topics}
        assert caplog.text.count(": its name contains an unpaired") == 8
        store.close()
