"""Files of equal length are read and written as one range, cut, cleared and counted."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqcli.store.fixed_files import FixedFiles, OpenFiles
from rmqcli.store.message_store import StoreError, StoreFullError

NAMES = [f"{base:020}" for base in (0, 100, 200)]


@pytest.fixture
def opened():
    opened = OpenFiles(writable=True)
    yield opened
    opened.close()


@pytest.fixture
def files(tmp_path, opened):
    """Three files of 100 bytes, filled with a, b and c."""
    files = FixedFiles(tmp_path / "f", 100, opened)
    for base, letter in ((200, b"c"), (0, b"a"), (100, b"b")):
        files.write(base, letter * 100)
    return files


def content(files):
    return {
        name: Path(files.directory, name).read_bytes()
        for name in sorted(os.listdir(files.directory))
    }


@pytest.mark.parametrize("writable", [False, True])
def test_a_path_that_became_a_link_is_not_opened(tmp_path, writable):
    (tmp_path / "other").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    opened = OpenFiles(writable=writable)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        opened.fd(str(tmp_path / "link"))


@pytest.mark.parametrize("writable", [False, True])
def test_a_path_that_became_a_pipe_is_not_waited_for(tmp_path, writable):
    path = str(tmp_path / "pipe")
    os.mkfifo(path)
    # With a writer, an open that waits fails this test instead of holding it up.
    writer = os.open(path, os.O_RDWR)
    opened = OpenFiles(writable=writable)
    try:
        assert not os.get_blocking(opened.fd(path))
    finally:
        opened.close()
        os.close(writer)


def test_a_folder_without_files_begins_and_ends_at_0(tmp_path, opened):
    files = FixedFiles(tmp_path / "none", 100, opened)
    assert (files.start, files.limit, files.bases) == (0, 0, [])
    assert files.read(0, 10) == b""
    assert not files.has(0)
    files.clear(0, 100)
    files.cut(0)
    files.sync()
    assert not (tmp_path / "none").exists()


def test_files_are_named_by_where_they_begin_and_sorted(files):
    assert sorted(os.listdir(files.directory)) == NAMES
    assert files.bases == [0, 100, 200]
    assert (files.start, files.limit) == (0, 300)
    assert [files.base_of(at) for at in (0, 99, 100, 299, 300)] == [0, 0, 100, 200, 300]
    assert [files.has(base) for base in (0, 1, 100, 200, 300, -100)] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]


def test_a_read_ends_at_its_file_s_end(files):
    assert files.read(95, 3) == b"aaa"
    assert files.read(95, 5) == b"aaaaa"
    assert files.read(95, 6) == b"aaaaa"
    assert files.read(100, 2) == b"bb"
    assert files.read(300, 5) == b""


def test_a_new_file_has_its_whole_length_at_once(tmp_path, opened):
    files = FixedFiles(tmp_path / "f", 100, opened)
    files.write(250, b"xy")
    assert content(files) == {NAMES[2]: bytes(50) + b"xy" + bytes(48)}
    assert (files.start, files.limit) == (200, 300)
    assert FixedFiles(tmp_path / "f", 7, opened).file_bytes == 100


@pytest.mark.parametrize("end", [0, 1, 99, 100, 101, 150, 200, 299, 300])
def test_a_cut_leaves_what_is_before_and_zeros_or_nothing_behind(files, end):
    files.cut(end)
    whole = b"a" * 100 + b"b" * 100 + b"c" * 100
    data = b"".join(content(files).values())
    assert data == whole[:end] + bytes(len(data) - end)
    # A file that begins at the end is kept, but contains only zeros.
    assert len(data) == min(300, end // 100 * 100 + 100)
    assert files.bases == [0, 100, 200][: len(data) // 100]


def test_a_cut_finds_every_byte_behind_it(tmp_path, opened):
    length = 3 << 20
    files = FixedFiles(tmp_path / "f", length, opened)
    places = (0, 99, 100, 70_000, (1 << 20) + 99, (2 << 20) + 100, length - 1)
    for at in places:
        files.write(at, b"x")
    files.cut(100)
    (data,) = content(files).values()
    assert len(data) == length
    assert [at for at in places if data[at : at + 1] == b"x"] == [0, 99]
    assert data[100:].strip(b"\0") == b""


@pytest.mark.parametrize(
    "span", [(0, 1), (10, 65_546), (1, 200_000), (65_536, 131_072)]
)
def test_only_what_is_asked_for_is_cleared(tmp_path, opened, span):
    files = FixedFiles(tmp_path / "f", 200_000, opened)
    files.write(0, b"x" * 200_000)
    files.clear(*span)
    start, end = span
    (data,) = content(files).values()
    assert data == b"x" * start + bytes(end - start) + b"x" * (200_000 - end)
    files.clear(5, 5)
    files.clear(300_000, 300_001)
    assert content(files) == {NAMES[0]: data}


def test_deleting_a_file_that_is_already_gone_succeeds(files):
    files.delete(0)
    assert (files.start, files.limit) == (100, 300)
    assert files.read(0, 5) == b""
    os.unlink(f"{files.directory}/{NAMES[1]}")
    files.delete(100)
    assert files.bases == [200]
    files.sync()
    files.write(0, b"again")
    assert files.bases == [0, 200]
    assert files.read(0, 6) == b"again\0"


def test_a_file_that_cannot_be_deleted_is_logged_and_stays(tmp_path, files):
    os.unlink(f"{files.directory}/{NAMES[0]}")
    os.mkdir(f"{files.directory}/{NAMES[0]}")
    with pytest.raises(StoreError, match="cannot be deleted"):
        files.delete(0)
    assert files.bases == [0, 100, 200]


def test_a_file_shortened_by_another_process_is_an_error_at_flush_and_write(files):
    files.close()
    os.unlink(f"{files.directory}/{NAMES[1]}")
    with pytest.raises(StoreFullError, match="cannot be written"):
        files.write(100, b"x")
    with pytest.raises(StoreError, match="cannot be flushed"):
        files.sync()
    assert files.read(100, 5) == b""


def test_the_folder_is_flushed_once_after_a_new_file(tmp_path, opened):
    """Without that a power cut could take the name of the file."""
    files = FixedFiles(tmp_path / "f", 100, opened)
    files.write(0, b"a")
    (tmp_path / "f").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="cannot be flushed: No such file"):
        files.sync()
    (tmp_path / "away").rename(tmp_path / "f")
    files.sync()
    (tmp_path / "f").rename(tmp_path / "away")
    files.write(1, b"b")  # into the open file
    files.sync()


@pytest.mark.parametrize("writable", [True, False])
def test_an_empty_last_file_is_none_and_goes_where_files_are_written(
    tmp_path, files, writable
):
    files.close()
    empty = tmp_path / "f" / f"{300:020}"
    empty.touch()
    opened = OpenFiles(writable=writable)
    again = FixedFiles(tmp_path / "f", 100, opened)
    assert again.bases == [0, 100, 200]
    assert empty.exists() is not writable
    again.refresh()
    assert again.limit == 300


def test_an_empty_file_among_others_is_no_folder_of_rocketmq(tmp_path, files):
    os.truncate(f"{files.directory}/{NAMES[1]}", 0)
    with pytest.raises(StoreError, match="0 bytes"):
        files.refresh()


@pytest.mark.parametrize(
    "name", [f"{50:020}", "x" * 20, f"{300:019}", f"{300:021}", "0" * 17 + "٣00"]
)
def test_only_offsets_in_twenty_digits_are_files(tmp_path, files, name):
    (tmp_path / "f" / name).write_bytes(bytes(100))
    if name == f"{50:020}":
        with pytest.raises(StoreError, match="not a multiple of the 100 bytes"):
            files.refresh()  # the file begins inside another one
    else:
        files.refresh()
        assert files.bases == [0, 100, 200]


def test_no_more_files_are_open_than_the_limit(tmp_path):
    opened = OpenFiles(writable=True, limit=3)
    files = FixedFiles(tmp_path / "f", 10, opened)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(8):
        files.write(number * 10, bytes([number]) * 10)
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    for number in (0, 7, 3, 0, 1, 6):
        assert files.read(number * 10, 2) == bytes([number]) * 2
        assert len(os.listdir("/proc/self/fd")) <= before + 3
    assert len(os.listdir("/proc/self/fd")) == before + 3
    files.close()
    assert len(os.listdir("/proc/self/fd")) == before
    files.read(0, 1)
    opened.close()
    opened.close()
    assert len(os.listdir("/proc/self/fd")) == before


@contextmanager
def writes_end_at(length):
    """Let the system write only the part of the data before a byte of each file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("start", [60, 40])
def test_a_failed_clear_is_an_error(files, start):
    """Also if a part was cleared: the rest would be read as messages later."""
    with writes_end_at(50), pytest.raises(StoreError, match="cannot be cut"):
        files.clear(start, 80)
    # The blocks from there on were released, which is as good as zeros.
    assert Path(files.directory, NAMES[0]).read_bytes() == b"a" * start


@pytest.mark.parametrize("at", [40, 50])
def test_a_write_that_the_disk_takes_in_part_is_an_error(files, at):
    with writes_end_at(50), pytest.raises(StoreFullError, match="cannot be written"):
        files.write(at, b"x" * 20)
    data = b"a" * at + b"x" * (50 - at) + b"a" * 50
    assert Path(files.directory, NAMES[0]).read_bytes() == data
