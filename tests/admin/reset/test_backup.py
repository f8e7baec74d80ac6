"""Backups are complete, private and never overwritten; damaged ones are reported."""

from __future__ import annotations

import json
import logging
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.admin.reset.backup import (
    Backup,
    backup_directory,
    latest_backup,
    list_backups,
    load_backup,
    save_backup,
)
from rmqcli.admin.reset.cluster_identity import ClusterIdentity
from rmqcli.admin.witness import Noted, Witness
from rmqcli.errors import (
    ConfigError,
    NotFoundError,
    RefusedError,
    RmqError,
    UsageError,
)
from rmqcli.model import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("%RETRY%G", "broker-a", 0)
#: The cluster of `save`.
HERE = ClusterIdentity(("C",), {"broker-a": ("127.0.0.1:10911",)})
LAST = Witness(9, "0A", 1_767_323_000_000)
TIME_MS = 1_767_323_045_678  # 2026-01-02T03:04:05.678Z


def save(directory, **changes):
    values = {
        "created_ms": TIME_MS,
        "namesrv": ["127.0.0.1:9876"],
        "group": "G",
        "topic": "T",
        "cluster": HERE,
        "committed": {QUEUE: 5, OTHER: None},
        "targets": {QUEUE: 9},
        "noted": {QUEUE: Noted(10, LAST), OTHER: Noted(3, None)},
        **changes,
    }
    return save_backup(directory, Backup(**values))


def latest(directory, *, topic="T"):
    """Return the backup id that `--undo` takes, on the cluster of `save`."""
    backup = latest_backup(
        directory,
        group="G",
        topic=topic,
        cluster=HERE,
    )
    return backup.backup_id


def test_what_was_saved_is_loaded(tmp_path):
    directory = tmp_path / "a" / "b"
    backup_id = save(directory)
    assert backup_id == "20260102-030405-678"
    backup = load_backup(directory, backup_id)
    assert backup.committed == {QUEUE: 5, OTHER: None}
    assert backup.targets == {QUEUE: 9}
    assert backup.noted == {QUEUE: Noted(10, LAST), OTHER: Noted(3, None)}
    assert (backup.group, backup.topic, backup.undo_of) == ("G", "T", "")
    assert (backup.backup_id, backup.created_ms) == (backup_id, TIME_MS)
    assert (backup.namesrv, backup.cluster) == (("127.0.0.1:9876",), HERE)
    (file,) = directory.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "witness", [Witness(0, None, None), Witness(2**63 - 1, "0A", 0)]
)
def test_a_last_message_may_lack_what_its_broker_did_not_tell(tmp_path, witness):
    noted = {QUEUE: Noted(0, witness), OTHER: Noted(2**63 - 1, None)}
    assert load_backup(tmp_path, save(tmp_path, noted=noted)).noted == noted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("committed", -1),
        ("committed", 2**63),
        ("queue_id", True),
        ("max_offset", None),
        ("target", 0.5),
        ("last_message", {}),
        ("last_message", [9, "0A"]),
        ("last_message", [None, "0A", 1]),
        ("last_message", [9, "0A", "1"]),
    ],
)
def test_what_is_no_offset_makes_a_file_damaged(tmp_path, name, value):
    file = tmp_path / f"{save(tmp_path)}.json"
    document = json.loads(file.read_text())
    document["queues"][0][name] = value
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=r"is not a backup"):
        load_backup(tmp_path, file.stem)


@pytest.mark.parametrize("name", ["queues", "namesrv"])
def test_lists_of_a_backup_are_lists(tmp_path, name):
    file = tmp_path / f"{save(tmp_path)}.json"
    document = json.loads(file.read_text())
    document[name] = {}
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="queues and namesrv are lists"):
        load_backup(tmp_path, file.stem)


def test_the_last_moment_of_the_year_9999_is_the_last_one(tmp_path):
    file = tmp_path / f"{save(tmp_path)}.json"
    document = json.loads(file.read_text())
    document["created_ms"] = 253_402_300_799_999
    file.write_text(json.dumps(document))
    assert load_backup(tmp_path, file.stem).created_ms == 253_402_300_799_999
    document["created_ms"] += 1
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="is not a backup"):
        load_backup(tmp_path, file.stem)


def test_two_of_one_millisecond_are_two(tmp_path):
    assert save(tmp_path) == "20260102-030405-678"
    assert save(tmp_path) == "20260102-030405-679"
    assert len(list_backups(tmp_path, group="G")) == 2
    assert list_backups(tmp_path, group="H") == []


@pytest.mark.slow
def test_a_second_has_no_more_than_a_thousand(tmp_path):
    for millisecond in range(678, 1_000):
        (tmp_path / f"20260102-030405-{millisecond}.json").touch()
    for millisecond in range(677):
        (tmp_path / f"20260102-030406-{millisecond:03}.json").touch()
    assert save(tmp_path) == "20260102-030406-677"
    with pytest.raises(
        RmqError, match="all ids from 20260102-030405-678 to 20260102-030406-677"
    ):
        save(tmp_path)


def test_backups_of_another_group_or_topic_are_not_those_of_this(tmp_path):
    mine = save(tmp_path)
    group = save(tmp_path, group="H")
    topic = save(tmp_path, topic="U")
    assert latest(tmp_path) == mine

    def found(**of):
        return [each.backup_id for each in list_backups(tmp_path, **of)]

    assert found() == [mine, group, topic]
    assert found(group="G") == [mine, topic]
    assert found(topic="T") == [mine, group]
    assert found(group="G", topic="T") == [mine]


def test_backups_of_another_cluster_are_passed_over_and_named_if_there_is_no_other(
    tmp_path,
):
    there = ClusterIdentity(("D",), {"broker-x": ("10.0.0.1:10911",)})
    save(tmp_path, cluster=there)
    with pytest.raises(RefusedError, match="the latest, 20260102-030405-678, is of D"):
        latest(tmp_path)
    mine = save(tmp_path)
    save(tmp_path, cluster=there)
    assert latest(tmp_path) == mine


def test_of_two_with_one_sequence_the_later_id_is_the_later(tmp_path):
    """Two machines that share a folder may have saved them at the same time."""
    ids = [save(tmp_path), save(tmp_path)]
    for backup_id in ids:
        file = tmp_path / f"{backup_id}.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"sequence": 1}))
    assert [each.backup_id for each in list_backups(tmp_path)] == ids
    assert latest(tmp_path) == ids[1]


def test_an_undo_is_not_undone_by_default(tmp_path):
    first = save(tmp_path)
    undo = save(tmp_path, created_ms=TIME_MS + 50, undo_of=first)
    assert latest(tmp_path) == first
    assert load_backup(tmp_path, undo).undo_of == first
    with pytest.raises(NotFoundError):
        latest(tmp_path, topic="U")


def test_the_order_is_that_of_saving_although_the_clock_was_set_back(tmp_path):
    first = save(tmp_path)
    second = save(tmp_path, created_ms=TIME_MS - 3_600_000)
    third = save(tmp_path, created_ms=TIME_MS - 7_200_000)
    saved = [each.backup_id for each in list_backups(tmp_path)]
    assert saved == [first, second, third]
    assert saved[1:] == ["20260102-020405-678", "20260102-010405-678"]
    assert latest(tmp_path) == third
    later = save(tmp_path, created_ms=TIME_MS + 60_000)
    assert load_backup(tmp_path, later).sequence == TIME_MS + 60_000


@pytest.mark.parametrize("key", ["sequence", "cluster", "undo_of", "queues"])
def test_a_file_without_one_of_its_fields_is_no_backup(tmp_path, key):
    file = tmp_path / f"{save(tmp_path)}.json"
    document = json.loads(file.read_text())
    del document[key]
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=rf"is not a backup: KeyError\('{key}'\)"):
        load_backup(tmp_path, file.stem)
    assert list_backups(tmp_path) == []


def test_the_cluster_comes_back(tmp_path):
    cluster = ClusterIdentity(("C",), {"broker-a": ("a:1", "b:2"), "broker-b": ()})
    assert load_backup(tmp_path, save(tmp_path, cluster=cluster)).cluster == cluster


def test_a_file_that_cannot_be_read_is_named_and_left_out(tmp_path):
    (tmp_path / "x.json").mkdir()
    with pytest.raises(
        ConfigError, match=r"x\.json cannot be read: not a regular file"
    ):
        load_backup(tmp_path, "x")
    kept = save(tmp_path)
    assert [each.backup_id for each in list_backups(tmp_path)] == [kept]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 9}', "null"])
def test_a_damaged_one_is_named_and_left_out(tmp_path, text):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(ConfigError, match=r"x\.json is not a backup"):
        load_backup(tmp_path, "x")
    assert list_backups(tmp_path) == []


def test_undo_does_not_take_an_older_backup_for_the_newest_one(tmp_path, caplog):
    """It was restored without a word, although the newest is another state."""
    older = save(tmp_path)
    newer = save(tmp_path, created_ms=TIME_MS + 60_000)
    (tmp_path / f"{newer}.json").write_text('{"version": 2')

    with pytest.raises(ConfigError) as caught:
        latest(tmp_path)
    assert caught.value.message.startswith(
        f"the newest backup may be one that is damaged: {tmp_path}/{newer}.json is not"
    )
    with caplog.at_level(logging.WARNING):
        assert [each.backup_id for each in list_backups(tmp_path)] == [older]
    assert [each.startswith("left out: ") for each in caplog.messages] == [True]
    last = save(tmp_path, created_ms=TIME_MS + 120_000)
    assert latest(tmp_path) == last


@pytest.mark.parametrize(
    "backup_id", ["", "../x", ".x", "a/b", "a\0", "x" * 251, "\ud800"]
)
def test_an_id_is_no_path(tmp_path, backup_id):
    with pytest.raises(UsageError):
        load_backup(tmp_path, backup_id)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_path_that_is_not_a_file_is_an_error_at_once(tmp_path, kind):
    if kind == "pipe":
        os.mkfifo(tmp_path / "x.json")
    else:
        (tmp_path / "x.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"x\.json cannot be read"):
        load_backup(tmp_path, "x")
    assert list_backups(tmp_path) == []


#: Values that JSON can have, and that no backup has.
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.text(max_size=3)
    | st.sampled_from([float("inf"), float("nan"), 0.5, -1, 2**63, 10**400]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner)
    ),
    max_leaves=3,
)


@given(odd=ODD, at=st.integers(0, 12))
def test_an_odd_value_in_any_place_makes_a_file_damaged_and_nothing_else(
    tmp_path_factory, odd, at
):
    """Such as 1e999, which JSON reads as infinity."""
    folder = tmp_path_factory.mktemp("backups")
    save(folder)
    (file,) = folder.iterdir()
    data = json.loads(file.read_text())
    row = data["queues"][0]
    places = [(data, key) for key in data] + [(row, key) for key in row]
    place, key = places[at % len(places)]
    place[key] = odd
    file.write_text(json.dumps(data))
    for backup in list_backups(folder):
        assert backup.created_ms == TIME_MS
        assert all(type(each) is int for each in backup.targets.values())
    try:
        load_backup(folder, file.stem)
    except ConfigError as error:
        assert "is not a backup" in error.message  # noqa: PT017


@pytest.mark.parametrize("name", [".x.json", "..json", ".json", "\udcff.json"])
def test_a_file_that_is_not_named_as_a_backup_is_left_out(tmp_path, name):
    backup_id = save(tmp_path)
    (tmp_path / name).write_text((tmp_path / f"{backup_id}.json").read_text())
    assert [each.backup_id for each in list_backups(tmp_path)] == [backup_id]


def test_a_missing_one(tmp_path):
    with pytest.raises(NotFoundError):
        load_backup(tmp_path, "20260102-030405-678")


def test_where_nothing_can_be_saved_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RmqError, match="no backup could be saved"):
        save(tmp_path / "file" / "folder")


def test_the_folder_is_that_of_xdg(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    end = Path("rmqcli/reset-offset")
    assert backup_directory({"XDG_STATE_HOME": "/s"}) == Path("/s") / end
    home = Path("/home/someone/.local/state") / end
    assert backup_directory({}) == home
    assert backup_directory({"XDG_STATE_HOME": "relative"}) == home


def test_the_file_is_json_with_all_names(tmp_path):
    save(tmp_path, cluster=ClusterIdentity(("C",), {"broker-a": ("a:1",)}))
    (file,) = tmp_path.iterdir()
    data = json.loads(file.read_text())
    assert {name: data[name] for name in data if name != "queues"} == {
        "version": 2,
        "created_ms": TIME_MS,
        "sequence": TIME_MS,
        "namesrv": ["127.0.0.1:9876"],
        "cluster": {"names": ["C"], "brokers": {"broker-a": ["a:1"]}},
        "group": "G",
        "topic": "T",
        "undo_of": None,
    }
    assert json.loads(file.read_text())["queues"][0] == {
        "topic": "T",
        "broker_name": "broker-a",
        "queue_id": 0,
        "committed": 5,
        "target": 9,
        "max_offset": 10,
        "last_message": [9, "0A", 1_767_323_000_000],
    }
