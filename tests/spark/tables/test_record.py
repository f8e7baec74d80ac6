"""The record in a commit, and the choice of the record that counts in a table."""

from __future__ import annotations

import json

import pytest

from rmqcli.errors import ConfigError, RefusedError
from rmqcli.spark.extent import NotedMessage
from rmqcli.spark.tables.record import (
    DeltaCommit,
    Snapshot,
    TableRecord,
    merged,
    newest_in_delta,
    next_in_delta,
    overlap,
    record_from_json,
    record_to_json,
    records_in_iceberg,
)

TEXT = (
    '{"rmqcli_export":1,"run_id":"20251009T085320Z-00c0ffee","sequence":3,'
    '"cluster":"DefaultCluster","topic":"orders","tag":"New","decode":null,'
    '"read":{"broker-a":{"0":[5,9],"1":[0,0]}},'
    '"covered":{"broker-a":{"0":[[0,9]],"1":[[0,0]]}},"gone":[["broker-b",2]],'
    '"noted":{"broker-a":{"0":[8,"0A00001",1760000000000]}}}'
)
RECORD = TableRecord(
    run_id="20251009T085320Z-00c0ffee",
    sequence=3,
    cluster="DefaultCluster",
    topic="orders",
    tag="New",
    decode=None,
    read={("broker-a", 0): (5, 9), ("broker-a", 1): (0, 0)},
    covered={("broker-a", 0): ((0, 9),), ("broker-a", 1): ((0, 0),)},
    gone=(("broker-b", 2),),
    noted={("broker-a", 0): NotedMessage(8, "0A00001", 1_760_000_000_000)},
)


def text_of(run_id):
    return TEXT.replace("20251009T085320Z-00c0ffee", run_id)


def test_a_record_is_this_text():
    assert record_to_json(RECORD) == TEXT
    assert record_from_json(TEXT, table="t") == RECORD
    assert RECORD.ends() == {("broker-a", 0): 9, ("broker-a", 1): 0}


@pytest.mark.parametrize(
    "text", [None, "", "by hand", "{", '["rmqcli_export"]', '"rmqcli_export"', "{}"]
)
def test_what_others_write_is_not_a_record(text):
    assert record_from_json(text, table="t") is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"rmqcli_export": 2},
            "a record of version 2, but this rmqcli reads version 1",
        ),
        ({"read": []}, "t has a commit with a record that cannot be read"),
        ({"covered": {"b": {"x": []}}}, "cannot be read"),
        ({"read": {"b": {"0": [9, 5]}}}, "cannot be read"),
        ({"sequence": None}, "cannot be read"),
        ({"noted": {"b": {"0": [9]}}}, "cannot be read"),
        ({"noted": {"b": {"0": ["x", None, None]}}}, "cannot be read"),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error(changes, words):
    with pytest.raises(ConfigError, match=words):
        record_from_json(json.dumps({**json.loads(TEXT), **changes}), table="t")


@pytest.mark.parametrize(
    ("covered", "read", "expected"),
    [
        ((), (0, 5), ((0, 5),)),
        (((0, 5),), (5, 9), ((0, 9),)),
        (((0, 5),), (7, 9), ((0, 5), (7, 9))),
        (((5, 9),), (0, 3), ((0, 3), (5, 9))),
        (((0, 3), (5, 9)), (3, 5), ((0, 9),)),
        (((0, 5),), (5, 5), ((0, 5),)),  # nothing was read
        ((), (4, 4), ((4, 4),)),  # the next run continues there
        (((4, 4),), (4, 6), ((4, 6),)),
    ],
)
def test_ranges_that_touch_become_one(covered, read, expected):
    queue = ("b", 0)
    before = {queue: covered} if covered else {}
    assert merged(before, {queue: read}) == {queue: expected}


def test_other_queues_keep_their_ranges():
    assert merged({("a", 0): ((0, 2),)}, {("b", 0): (0, 1)}) == {
        ("a", 0): ((0, 2),),
        ("b", 0): ((0, 1),),
    }


def test_overlap_counts_offsets():
    assert overlap(((0, 3), (5, 9)), 2, 6) == 2
    assert overlap(((0, 3),), 3, 6) == 0
    assert overlap((), 0, 6) == 0


def commit(number, metadata=None, operation="WRITE", **parameters):
    return DeltaCommit(
        version=number,
        operation=operation,
        parameters=parameters,
        metadata=metadata,
    )


def newest(*commits):
    record = newest_in_delta(commits, table="t")
    return None if record is None else record.run_id


def test_the_newest_record_counts_whatever_came_after_it():
    assert newest() is None
    assert newest(commit(0)) is None
    assert (
        newest(
            commit(3, operation="OPTIMIZE"),
            commit(2, text_of("second")),
            commit(1, text_of("first")),
            commit(0),
        )
        == "second"
    )


@pytest.mark.parametrize(
    ("commits", "number"),
    [
        ([commit(4, operation="OPTIMIZE"), commit(3, TEXT), commit(0)], 4),
        ([commit(9, TEXT), commit(8, TEXT.replace(':3,"cl', ':7,"cl'))], 8),
        # Of other programs: a record could have been in a commit that is gone.
        ([commit(6), commit(5)], 7),
    ],
)
def test_the_number_of_the_next_record_was_not_used_before(commits, number):
    assert next_in_delta(commits, table="t") == number


def test_a_record_that_a_restore_took_back_does_not_count():
    commits = [
        commit(2, text_of("second")),
        commit(1, text_of("first")),
        commit(0),
    ]
    to_first = commit(3, operation="RESTORE", version="1", timestamp=None)
    to_nothing = commit(3, operation="RESTORE", version="0", timestamp=None)
    assert newest(to_first, *commits) == "first"
    assert newest(to_nothing, *commits) is None
    # an export after the restore
    assert newest(commit(4, text_of("third")), to_nothing, *commits) == "third"
    # the restore itself was undone by another one
    back = commit(4, operation="RESTORE", version="2", timestamp=None)
    assert newest(back, to_nothing, *commits) == "second"


def test_a_restore_to_a_time_is_refused():
    commits = [commit(2, text_of("second")), commit(1, text_of("first"))]
    to_time = {"version": None, "timestamp": "2025-10-09 12:01:30.0"}
    restore = commit(3, operation="RESTORE", **to_time)
    with pytest.raises(RefusedError, match="was restored to 2025-10-09 12:01"):
        newest(restore, *commits)
    # a record that is newer than the restore counts
    assert newest(commit(4, text_of("third")), restore, *commits) == "third"


def snapshot(snapshot_id, parent_id, run_id=None):
    summary = {"operation": "append"}
    if run_id is not None:
        summary["rmqcli.export"] = text_of(run_id)
    return Snapshot(snapshot_id=snapshot_id, parent_id=parent_id, summary=summary)


def test_records_of_iceberg_are_those_of_the_current_snapshot_and_its_ancestors():
    snapshots = [
        snapshot(10, None, "first"),
        snapshot(20, 10, "second"),
        snapshot(30, 10),  # after a rollback to 10
        snapshot(40, 30, "third"),
    ]

    def found(current_id):
        records = records_in_iceberg(snapshots, current_id, table="t")
        return [(each, record.run_id) for each, record in records]

    assert found(40) == [(40, "third"), (10, "first")]
    assert found(20) == [(20, "second"), (10, "first")]
    assert found(None) == []
    # the parent of the snapshot has expired
    assert records_in_iceberg([snapshot(50, 40)], 50, table="t") == []
    # a cycle of parents ends
    assert len(records_in_iceberg([snapshot(1, 1, "x")], 1, table="t")) == 1
