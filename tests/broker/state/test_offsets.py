"""The table of committed offsets."""

from __future__ import annotations

from tests.broker.driving import Driver


def table():
    return Driver().broker.offsets


def test_offsets_are_kept_by_topic_group_and_queue():
    offsets = table()
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 1, 6)
    offsets.commit("h", "T", 0, 7)
    assert offsets.table() == {("T", "g"): {0: 5, 1: 6}, ("T", "h"): {0: 7}}
    assert offsets.query("g", "T", 1) == 6
    assert offsets.query("g", "T", 2) is None
    assert offsets.query("g", "U", 0) is None
    assert offsets.topics_of("g") == {"T"}
    assert offsets.groups_of("T") == {"g", "h"}


def test_the_last_write_wins_even_with_a_smaller_offset():
    offsets = table()
    offsets.commit("g", "T", 0, 9)
    offsets.commit("g", "T", 0, 2)
    assert offsets.query("g", "T", 0) == 2


def test_a_negative_offset_counts_as_never_committed():
    offsets = table()
    offsets.commit("g", "T", 0, -1)
    assert offsets.query("g", "T", 0) is None


def test_every_change_increases_the_version():
    offsets = table()
    seen = [offsets.version]
    for change in (
        lambda: offsets.commit("g", "T", 0, 1),
        lambda: offsets.reset("g", "T", 0, 2),
        lambda: offsets.delete_group("g"),
        lambda: offsets.load({("T", "g"): {0: 1}}),
        lambda: offsets.delete_topic("T"),
    ):
        change()
        seen.append(offsets.version)
    assert seen == sorted(set(seen))
    assert offsets.table() == {}


def test_a_reset_is_pending_until_it_is_taken():
    offsets = table()
    offsets.commit("g", "T", 0, 9)
    offsets.reset("g", "T", 0, 2)
    offsets.commit("g", "T", 0, 9)
    assert offsets.has_pending_reset("g", "T", 0)
    assert offsets.query("g", "T", 0) == 2
    assert offsets.take_pending_reset("g", "T", 0) == 2
    assert offsets.take_pending_reset("g", "T", 0) is None
    assert offsets.query("g", "T", 0) == 9


def test_deleting_a_group_or_topic_forgets_all_its_offsets():
    offsets = table()
    offsets.commit("g", "T", 0, 1)
    offsets.commit_pull("g", "U", 0, 4)
    offsets.reset("g", "T", 1, 1)
    assert offsets.pull_offset("g", "U", 0) == 4
    assert offsets.pull_offset("g", "T", 0) == 1
    offsets.delete_group("g")
    assert (offsets.table(), offsets.pull_table()) == ({}, {})
    assert not offsets.has_pending_reset("g", "T", 1)


def test_load_and_table_copy_the_offsets():
    offsets = table()
    given = {("T", "g"): {0: 1}}
    offsets.load(given)
    offsets.table()[("T", "g")][0] = 99
    given[("T", "g")][0] = 99
    assert offsets.query("g", "T", 0) == 1
