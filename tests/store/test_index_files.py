"""The index has RocketMQ's format, and every added key is found."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from rmqcli.store.fixed_files import OpenFiles
from rmqcli.store.index import (
    GrowingIndexFile,
    IndexFile,
    KeyIndex,
    create,
    file_bytes,
    index_hash,
    index_hashes,
)
from rmqcli.store.message_store import StoreError
from tests.store.folders import START_MS
from tests.store.opened import open_files

ALL = {"begin_ms": 0, "end_ms": 2**62, "count_max": 99}


@pytest.fixture
def opened():
    opened = OpenFiles(writable=True)
    yield opened
    opened.close()


def test_a_file_is_byte_for_byte_in_rocketmq_s_form(tmp_path, opened):
    path = str(tmp_path / "i")
    file = create(path, 4, opened)
    assert (file.slots_count, file.items_max, file.room) == (4, 16, 15)
    file.add([(6, 100, START_MS), (7, 200, START_MS + 999)])
    file.add([(2, 300, START_MS + 5_000), (3, 400, START_MS - 1), (9, 500, 2**62)])
    file.add([])
    assert file.room == 10
    file.write_out()
    data = Path(path).read_bytes()
    assert len(data) == file_bytes(4) == 40 + 4 * 4 + 16 * 20
    assert struct.unpack_from(">qqqqii", data) == (START_MS, 2**62, 100, 500, 3, 6)
    assert struct.unpack_from(">4i", data, 40) == (0, 5, 3, 4)
    items = [struct.unpack_from(">iqii", data, 56 + n * 20) for n in range(7)]
    assert items == [
        (0, 0, 0, 0),
        (6, 100, 0, 0),
        (7, 200, 0, 0),
        (2, 300, 5, 1),
        (3, 400, 0, 2),
        (9, 500, 2**31 - 1, 0),
        (0, 0, 0, 0),
    ]


def test_items_are_found_before_and_after_they_are_written(tmp_path, opened):
    file: IndexFile = create(str(tmp_path / "i"), 4, opened)
    assert isinstance(file, GrowingIndexFile)
    file.add([(6, 100, START_MS), (2, 150, START_MS)])
    for step in range(3):
        assert file.find(6, **ALL) == [200, 100][step == 0 :]
        assert file.find(2, **ALL) == [150]
        assert file.find(10, **ALL) == []
        if step == 0 and isinstance(file, GrowingIndexFile):
            file.write_out()
            file.add([(6, 200, START_MS)])
        elif step == 1 and isinstance(file, GrowingIndexFile):
            file.write_out()
            file = IndexFile(str(tmp_path / "i"), opened)


def test_an_old_message_is_found_behind_many_newer_ones_with_the_same_key(
    tmp_path, opened
):
    """Behind 100,000 items of a slot nothing was found, and no error said so."""
    file = create(str(tmp_path / "i"), 25_002, opened)
    file.add([(5, 100, START_MS)])
    file.add([(5, 200, START_MS + 60_000)] * 100_001)
    file.write_out()
    found = file.find(5, begin_ms=START_MS, end_ms=START_MS + 999, count_max=9)
    assert found == [100]


def test_a_slot_that_points_at_no_item_is_empty(tmp_path, opened):
    path = tmp_path / "i"
    create(str(path), 4, opened).write_out()
    data = bytearray(path.read_bytes())
    struct.pack_into(">4i", data, 40, 0, -3, 9, 2**31 - 1)
    path.write_bytes(bytes(data))
    file = GrowingIndexFile(str(path), opened)
    file.add([(1, 100, START_MS), (2, 200, START_MS), (3, 300, START_MS)])
    assert file.header.used_slots == 3
    assert [file.find(n, **ALL) for n in (1, 2, 3)] == [[100], [200], [300]]


def test_what_points_behind_an_offset_is_forgotten_and_slots_counted_anew(
    tmp_path, opened
):
    path = str(tmp_path / "i")
    file = create(path, 4, opened)
    file.add([(n, n * 100, START_MS + n * 1_000) for n in range(1, 11)])
    file.write_out()
    file = GrowingIndexFile(path, opened)
    file.forget_from(600)
    header = file.header
    assert (header.count, header.used_slots, header.begin_offset) == (6, 4, 100)
    assert (header.end_offset, header.end_ms) == (500, START_MS + 5_000)
    file.add([(5, 600, START_MS + 6_000)])
    file.write_out()
    again = IndexFile(path, opened)
    assert again.find(5, **ALL) == [600, 500]
    assert again.find(1, **ALL) == [100]
    assert [again.find(n, **ALL) for n in range(6, 11)] == [[]] * 5


def test_slots_of_all_pages_are_written_after_some_items_were_forgotten(
    tmp_path, opened
):
    """On disk, those of forgotten items would hide what is before them in the slot."""
    path = str(tmp_path / "i")
    file = create(path, 3_000, opened)
    file.add([(slot, n, START_MS) for n, slot in enumerate((5, 1_500, 2_999), start=1)])
    file.add([(slot, 9, START_MS) for slot in (3_005, 4_500, 5_999)])
    file.write_out()
    file = GrowingIndexFile(path, opened)
    file.forget_from(9)
    file.add([(7, 9, START_MS)])
    file.write_out()
    again = IndexFile(path, opened)
    assert [again.find(n, **ALL) for n in (5, 1_500, 2_999, 7)] == [[1], [2], [3], [9]]


def test_a_hash_of_0_is_kept_and_a_negative_one_ends_what_is_kept(tmp_path, opened):
    path = str(tmp_path / "i")
    file = create(path, 4, opened)
    file.add([(0, 100, START_MS), (1, 200, START_MS)])
    file.write_out()
    file.forget_from(1_000)
    assert (file.header.count, file.find(0, **ALL)) == (3, [100])
    data = bytearray(Path(path).read_bytes())
    struct.pack_into(">i", data, 56 + 2 * 20, -1)
    Path(path).write_bytes(bytes(data))
    file.forget_from(1_000)
    assert (file.header.count, file.header.end_offset) == (2, 100)


@pytest.mark.parametrize("length", [0, 39, 40, 40 + 83, 40 + 85, 40 + 84 * 3 + 1])
def test_a_file_of_another_length_is_not_an_index(tmp_path, opened, length):
    (tmp_path / "i").write_bytes(bytes(length))
    with pytest.raises(StoreError, match="not an index file"):
        IndexFile(str(tmp_path / "i"), opened)


def test_a_file_with_an_impossible_number_of_slots_is_not_an_index(tmp_path, opened):
    path = tmp_path / "i"
    path.touch()
    os.truncate(path, file_bytes(20_000_000))
    assert IndexFile(str(path), opened).slots_count == 20_000_000
    os.truncate(path, file_bytes(20_000_001))
    with pytest.raises(StoreError, match="not an index file"):
        IndexFile(str(path), opened)


@pytest.mark.parametrize("end", ["same", "new", "read-only"])
def test_keys_are_found_over_all_files_newest_first(tmp_path, opened, end):
    index = KeyIndex(str(tmp_path / "index"), 5, opened)
    for number in range(60):
        index.add("t", f"k{number % 7} same", f"u{number}", (number * 10, START_MS))
    if end != "same":
        index.write_out()
        index = KeyIndex(str(tmp_path / "index"), 5, open_files(writable=end == "new"))
        assert index.end_offset == 590
    assert index.find("t", "same", **ALL) == [n * 10 for n in reversed(range(60))]
    assert index.find("t", "k3", **ALL) == [n * 10 for n in range(59, -1, -7)][:0] + [
        n * 10 for n in reversed(range(3, 60, 7))
    ]
    assert index.find("t", "u17", **ALL) == [170]
    for count in (1, 5, 20, 59):
        few = index.find("t", "same", begin_ms=0, end_ms=2**62, count_max=count)
        assert few == [n * 10 for n in reversed(range(60))][:count]
    names = sorted(os.listdir(tmp_path / "index"))
    if end != "same":
        # 60 messages with 3 keys each, 19 keys to a file, all in one millisecond.
        assert len(names) == 10
        assert [int(name) - int(names[0]) for name in names] == list(range(10))


def test_files_outside_the_time_asked_for_are_passed_over(tmp_path, opened):
    index = KeyIndex(str(tmp_path / "index"), 1, opened)
    for number in range(9):
        index.add("t", "k", "", (number * 10, START_MS + number * 10_000))
    index.write_out()  # three keys to a file
    for begin, end, numbers in (
        (0, 20_000, [2, 1, 0]),
        (20_000, 29_999, [2]),
        (20_001, 29_999, []),
        (30_000, 30_000, [3]),
        (50_000, 60_000, [6, 5]),
        (81_000, 90_000, []),
    ):
        found = index.find(
            "t", "k", begin_ms=START_MS + begin, end_ms=START_MS + end, count_max=9
        )
        assert found == [number * 10 for number in numbers], (begin, end)


@pytest.mark.parametrize(
    ("start", "left"), [(20, 3), (21, 2), (29, 2), (50, 2), (51, 1), (1_000, 1)]
)
def test_files_whose_messages_are_all_gone_are_deleted(tmp_path, opened, start, left):
    index = KeyIndex(str(tmp_path / "index"), 1, opened)
    for number in range(9):
        index.add("t", "k", "", (number * 10, START_MS))
    index.write_out()
    index.trim(start)
    assert len(os.listdir(tmp_path / "index")) == left


@pytest.mark.parametrize("offset", [0, 1, 30, 31, 45, 60, 90])
def test_keys_from_an_offset_on_are_forgotten_in_all_files(tmp_path, opened, offset):
    index = KeyIndex(str(tmp_path / "index"), 1, opened)
    for number in range(9):
        index.add("t", "k", "", (number * 10, START_MS))
    index.write_out()
    index.forget_from(offset)
    left = [number * 10 for number in range(9) if number * 10 < offset]
    assert index.find("t", "k", **ALL) == left[::-1]
    assert index.end_offset == (left[-1] if left else -1)
    index.add("t", "k", "", (offset, START_MS))
    index.write_out()
    again = KeyIndex(str(tmp_path / "index"), 1, open_files(writable=False))
    assert again.find("t", "k", **ALL) == [offset, *left[::-1]]


def test_one_message_has_a_thousand_keys_at_most_and_empty_ones_do_not_count(
    tmp_path, opened
):
    index = KeyIndex(str(tmp_path / "index"), 1_000, opened)
    index.add("t", " ".join(f"k{n}" for n in range(1_001)), "", (7, START_MS))
    index.add("t", "  a   b ", "", (8, START_MS))
    assert index.end_offset == 8
    assert index.find("t", "k999", **ALL) == [7]
    assert index.find("t", "k1000", **ALL) == []
    assert index.find("t", "a", **ALL) == index.find("t", "b", **ALL) == [8]
    assert index.find("t", "", **ALL) == []


def java_hash(text):
    """Compute Java's `Math.abs(text.hashCode())`, but 0 for Integer.MIN_VALUE."""
    value = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        value = (value * 31 + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    value = value - 2**32 if value >= 2**31 else value
    return 0 if value == -(2**31) else abs(value)


def test_hashes_are_java_s_for_keys_of_every_length_and_alphabet():
    assert java_hash("hello") == 99162322  # "hello".hashCode() in Java
    rng = random.Random(1)
    keys = [
        "".join(rng.choice("ab~\x7f \0") for _ in range(length))
        for length in (*range(40), 63, 64, 65, 1_023, 1_024, 1_025)
        for _ in range(3)
    ]
    keys += ["é", "😀key", "a" * 600 + "é"] + [f"order-{n}" for n in range(600)]
    topics = [rng.choice(("t", "orders", "%RETRY%é")) for _ in keys]
    expected = [
        java_hash(f"{topic}#{key}") for topic, key in zip(topics, keys, strict=True)
    ]
    assert index_hashes(topics, keys) == expected
    assert [
        index_hash(topic, key) for topic, key in zip(topics, keys, strict=True)
    ] == expected
    assert index_hashes([], []) == []


def test_the_one_hash_without_an_absolute_value_is_0():
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE in Java.
    assert java_hash("polygenelubricants") == 0
    # A topic and a key with this hash: 31 * (31 * h("topi") + "c") + "#" ...
    topic, key = "t", min_value_key("t#")
    assert java_hash(f"{topic}#{key}") == 0
    assert index_hash(topic, key) == 0
    assert index_hashes([topic], [key]) == [0]


def min_value_key(prefix):
    """Return letters for which the hash of `prefix + letters` is Integer.MIN_VALUE."""
    for length in range(6, 9):
        start = 0
        for letter in prefix + "!" * length:
            start = (start * 31 + ord(letter)) & 0xFFFFFFFF
        missing = (0x80000000 - start) & 0xFFFFFFFF
        letters = []
        for power in range(length - 1, -1, -1):
            digit = min(missing // 31**power, ord("~") - ord("!"))
            missing -= digit * 31**power
            letters.append(chr(ord("!") + digit))
        if missing == 0:
            return "".join(letters)
    raise AssertionError(prefix)
