"""A folder is read while its broker writes to it, and after the broker was killed."""

from __future__ import annotations

import dataclasses
import os
import resource
from contextlib import contextmanager

import pytest

from rmqcli.errors import ExitCode
from rmqcli.store.message_store import StoreError
from rmqcli.store.read_only import ReadOnlyStore
from tests.store.folders import message
from tests.store.writing import fill, kill, numbers_in

PREPARED = 4


def test_reader_follows_a_writer(open_store, folder):
    store = open_store()
    fill(store, 30)
    store.flush()
    reader = ReadOnlyStore(folder)
    assert numbers_in(reader, 0) == list(range(0, 30, 2))
    fill(store, 400, start=30)
    store.append([message(1, topic="later")], tags_codes=[0])
    store.flush()
    assert numbers_in(reader, 0) == list(range(0, 430, 2))
    assert reader.queue_bounds("later", 0) == (0, 1)
    assert reader.log_bounds() == store.log_bounds()
    store.trim(None, 40_000)
    assert reader.queue_bounds("orders", 0) == store.queue_bounds("orders", 0)
    assert numbers_in(reader, 0) == numbers_in(store, 0)
    reader.close()


@pytest.mark.parametrize("written", [0, 30, 90])
def test_reader_finds_what_a_killed_writer_had_not_put_into_queues(
    open_store, folder, written
):
    store = open_store()
    fill(store, written)
    store.flush()
    fill(store, 100 - written, start=written)
    store.append([message(100, topic="late", queue_id=7)], tags_codes=[9])
    half = dataclasses.replace(message(101), sys_flag=PREPARED)
    store.append([half], tags_codes=[0])
    kill(store)
    reader = ReadOnlyStore(folder)
    try:
        assert numbers_in(reader, 0) == list(range(0, 100, 2))
        assert numbers_in(reader, 1) == list(range(1, 100, 2))
        assert reader.queue_bounds("late", 7) == (0, 1)
        assert reader.units("late", 7, 0, 1)[0].tags_code == 65  # the hash of tag A
    finally:
        reader.close()


def test_reader_sees_each_message_once_while_queues_are_written(open_store, folder):
    store = open_store()
    reader = ReadOnlyStore(folder)
    try:
        for step in range(12):
            fill(store, 10, start=step * 10)
            assert reader.queue_bounds("orders", 0) == (0, 5 * (step + 1))
            if step % 3 == 1:
                store.flush()
            assert reader.queue_bounds("orders", 1) == (0, 5 * (step + 1))
        assert numbers_in(reader, 0) == list(range(0, 120, 2))
        assert numbers_in(reader, 1) == list(range(1, 120, 2))
    finally:
        reader.close()


def test_a_topic_that_is_deleted_is_gone_for_a_reader_that_knows_it(open_store, folder):
    store = open_store()
    fill(store, 30)
    store.flush()
    reader = ReadOnlyStore(folder)
    try:
        assert numbers_in(reader, 0) == list(range(0, 30, 2))
        store.delete_topic("orders")
        assert reader.queue_bounds("orders", 0) is None
        assert list(reader.queues()) == []
    finally:
        reader.close()


@pytest.mark.parametrize("is_looked_at", [False, True])
@pytest.mark.parametrize("count", [10, 100])
def test_a_topic_that_is_made_again_has_only_its_new_messages(
    open_store, folder, count, is_looked_at
):
    store = open_store()
    fill(store, 30)
    store.flush()
    reader = ReadOnlyStore(folder)
    try:
        assert numbers_in(reader, 0) == list(range(0, 30, 2))
        store.delete_topic("orders")
        if is_looked_at:
            assert list(reader.queues()) == []
        fill(store, count, start=1_000)
        store.flush()
        assert numbers_in(reader, 0) == list(range(1_000, 1_000 + count, 2))
        fill(store, 10, start=2_000)
        store.flush()
        assert numbers_in(reader, 0) == numbers_in(store, 0)
    finally:
        reader.close()


@contextmanager
def files_max(count):
    """Let this process open `count` files besides those that are open already."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.dup(0)
    os.close(first)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_reader_that_cannot_open_a_file_closes_the_others(open_store, folder):
    store = open_store()
    fill(store, 30)
    store.flush()
    fill(store, 30, start=30)
    kill(store)
    before = os.listdir("/proc/self/fd")
    failed = []
    for count in range(16):
        try:
            with files_max(count):
                reader = ReadOnlyStore(folder)
        except StoreError as error:
            failed.append(error.message)
        else:
            reader.close()
        assert os.listdir("/proc/self/fd") == before
    assert 1 < len(failed) < 16
    assert all("Too many open files" in each for each in failed)


def test_reader_reads_a_store_without_messages(open_store, folder):
    open_store()
    reader = ReadOnlyStore(folder)
    assert list(reader.queues()) == []
    assert reader.log_bounds() == (0, 0)
    reader.close()


@pytest.mark.parametrize("missing", ["nothing there", "commitlog"])
def test_a_folder_without_a_store_cannot_be_read(tmp_path, missing):
    if missing == "commitlog":
        (tmp_path / "config").mkdir()
        folder = tmp_path
    else:
        folder = tmp_path / "nowhere"
    with pytest.raises(StoreError, match="is not a broker's store") as caught:
        ReadOnlyStore(folder)
    assert caught.value.exit_code is ExitCode.FAILED
    assert caught.value.hint
