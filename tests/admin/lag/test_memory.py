"""The memory of earlier runs: what it keeps, for how long, and what it rejects."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rmqcli.admin.lag.memory import LagMemory, memory_directory
from rmqcli.engine.queue_lag import QueueReading

NOW_MS = 1_767_322_800_000
WEEK_MS = 604_800_000
NAMESRV = ("127.0.0.1:9876",)
BROKERS = {"broker-a": "10.0.0.1:10911", "broker-b": "10.0.0.2:10911"}


def open_memory(folder, *, now_ms=NOW_MS, namesrv=NAMESRV):
    return LagMemory(folder, namesrv, now_ms=now_ms)


def queue(queue_id, *, topic="T", broker_name="broker-b", committed=4, failure=None):
    return QueueReading(
        topic=topic,
        broker_name=broker_name,
        queue_id=queue_id,
        committed=committed,
        min_offset=0,
        max_offset=10,
        failure=failure,
    )


@pytest.fixture
def noted(tmp_path):
    """A folder with a saved memory: G has two queues on each of two brokers."""
    memory = open_memory(tmp_path)
    memory.remember_brokers(BROKERS, now_ms=NOW_MS)
    readings = [queue(n, broker_name=b) for b in BROKERS for n in (0, 1)]
    for name in BROKERS:
        memory.remember("G", name, readings)
    memory.save(now_ms=NOW_MS)
    return tmp_path


def lost(memory, *, now_ms=NOW_MS, brokers=None):
    left = memory.departed(brokers or {"broker-a": "10.0.0.1:10911"})
    return [
        (q.topic, q.broker_name, q.queue_id, q.failure)
        for q in memory.lost_queues("G", left, now_ms=now_ms)
    ]


def test_the_next_run_knows_the_queues(noted):
    words = (
        "broker-b is no longer in the route; last seen 3m ago; when last read, the"
        " group's queues there had 12 unread messages"
    )
    assert lost(open_memory(noted), now_ms=NOW_MS + 180_000) == [
        ("T", "broker-b", 0, words),
        ("T", "broker-b", 1, words),
    ]


def test_the_unread_messages_are_those_of_all_topics(noted):
    """Each queue had the number of its own topic: 0 for a retry topic, which is first.

    It is the reason of the whole group.
    """
    memory = open_memory(noted)
    empty = queue(0, topic="%RETRY%G", committed=10)
    memory.remember("G", "broker-b", [empty, queue(0), queue(1)])
    words = (
        "broker-b is no longer in the route; last seen 0ms ago; when last read, the"
        " group's queues there had 12 unread messages"
    )
    assert {row[3] for row in lost(memory)} == {words}


def test_nothing_is_missed_while_all_are_there(noted):
    assert lost(open_memory(noted), brokers=BROKERS) == []


def test_an_unknown_lag_is_not_shown_as_a_number(tmp_path):
    memory = open_memory(tmp_path)
    memory.remember_brokers(BROKERS, now_ms=NOW_MS)
    memory.remember("G", "broker-b", [queue(0), queue(1, committed=None)])
    assert {row[3] for row in lost(memory)} == {
        "broker-b is no longer in the route; last seen 0ms ago"
    }


@pytest.mark.parametrize(("age_ms", "count"), [(WEEK_MS, 2), (WEEK_MS + 1, 0)])
def test_a_broker_is_forgotten_after_a_week(noted, age_ms, count):
    memory = open_memory(noted, now_ms=NOW_MS + age_ms)
    memory.remember_brokers({"broker-a": "10.0.0.1:10911"}, now_ms=NOW_MS + age_ms)
    assert len(lost(memory, now_ms=NOW_MS + age_ms)) == count


def test_other_name_servers_have_notes_of_their_own(noted):
    assert open_memory(noted, namesrv=("127.0.0.1:9877",)).brokers == {}
    two = open_memory(noted, namesrv=("b:1", "a:1"))
    two.save(now_ms=NOW_MS)
    assert two.path == open_memory(noted, namesrv=("a:1", "b:1")).path
    assert len(list(noted.glob("*.json"))) == 2


def test_only_the_owner_can_read_it_and_no_part_is_left(noted):
    (path,) = noted.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_folder_is_the_owners_too(tmp_path):
    folder = tmp_path / "new" / "lag"
    open_memory(folder).save(now_ms=NOW_MS)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b'{"version":1}',
        b'{"version":2,"namesrv":["127.0.0.1:9876"],"brokers":{},"groups":{}}',
    ],
)
def test_a_damaged_file_is_as_none(noted, damage):
    Path(open_memory(noted).path).write_bytes(damage)
    assert open_memory(noted).brokers == {}


@pytest.mark.parametrize(
    "queues", [[-1, 0], [65_537, 0], ["2", 0], [2, -1], [2], [True, 0], [2, 1.5], None]
)
def test_numbers_that_cannot_be_are_not_believed(noted, queues):
    path = Path(open_memory(noted).path)
    notes = json.loads(path.read_text())
    notes["groups"]["G"]["broker-b"]["T"] = queues
    path.write_text(json.dumps(notes))
    assert open_memory(noted).brokers == {}


@pytest.mark.parametrize("change", [{"address": 5}, {"seen_ms": "x"}, {"seen_ms": -1}])
def test_a_broker_that_cannot_be_is_not_believed(noted, change):
    path = Path(open_memory(noted).path)
    notes = json.loads(path.read_text())
    notes["brokers"]["broker-b"].update(change)
    path.write_text(json.dumps(notes))
    assert open_memory(noted).brokers == {}


def test_a_pipe_or_a_link_is_not_read(noted, tmp_path):
    path = Path(open_memory(noted).path)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert open_memory(noted).brokers == {}
    path.unlink()
    os.mkfifo(path)
    assert open_memory(noted).brokers == {}


def test_a_link_is_replaced_and_not_followed(noted, tmp_path):
    path = Path(open_memory(noted).path)
    path.unlink()
    victim = tmp_path / "victim"
    victim.write_text("mine")
    path.symlink_to(victim)
    open_memory(noted).save(now_ms=NOW_MS)
    assert (victim.read_text(), path.is_symlink()) == ("mine", False)


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    memory = open_memory(tmp_path / "file" / "lag")
    memory.save(now_ms=NOW_MS)
    memory.forget()
    assert memory.brokers == {}


def test_the_file_is_bounded_and_keeps_what_was_seen_last(tmp_path):
    memory = open_memory(tmp_path)
    memory.remember_brokers(BROKERS, now_ms=NOW_MS)
    for number in range(3_000):
        names = [f"topic-{n}-{'x' * 50}" for n in range(10)]
        memory.remember(
            f"G{number}", "broker-b", [queue(0, topic=name) for name in names]
        )
    memory.save(now_ms=NOW_MS)
    assert Path(memory.path).stat().st_size <= 1 << 20
    left = open_memory(tmp_path).departed({"broker-a": "10.0.0.1:10911"})
    kept = open_memory(tmp_path).groups_on(left)
    assert "G2999" in kept
    assert "G0" not in kept


def test_there_are_no_more_than_32_files(tmp_path):
    memories = [open_memory(tmp_path, namesrv=(f"a:{port}",)) for port in range(40)]
    for number, memory in enumerate(memories):
        memory.save(now_ms=NOW_MS)
        os.utime(memory.path, (number, number))
    names = {path.name for path in tmp_path.iterdir()}
    assert len(names) == 32
    assert Path(memories[7].path).name not in names
    assert {Path(memory.path).name for memory in memories[8:]} == names


def test_samples_in_quick_succession_write_once(noted):
    memory = open_memory(noted)
    memory.save(now_ms=NOW_MS)
    Path(memory.path).unlink()
    memory.save(now_ms=NOW_MS + 9_999)
    assert not Path(memory.path).exists()
    memory.save(now_ms=NOW_MS + 10_000)
    assert Path(memory.path).exists()


def test_what_a_broker_does_not_have_any_more_is_forgotten(noted):
    memory = open_memory(noted)
    memory.remember("G", "broker-b", [queue(0, topic="U")], topics=("U",))
    assert {row[0] for row in lost(memory)} == {"T", "U"}
    memory.remember("G", "broker-b", [queue(0, topic="U")])
    assert {row[0] for row in lost(memory)} == {"U"}
    memory.keep_groups({"H"}, {"broker-a"})
    assert len(lost(memory)) == 1
    memory.keep_groups({"H"}, {"broker-b"})
    assert lost(memory) == []


def test_the_folder_follows_the_xdg_rules():
    assert memory_directory({"XDG_STATE_HOME": "/s"}) == "/s/rmqcli/lag"
    for state in ({}, {"XDG_STATE_HOME": "relative"}):
        place = memory_directory(state)
        assert place is not None
        assert place == os.path.expanduser("~/.local/state/rmqcli/lag")


def test_a_write_that_fails_leaves_no_part(tmp_path):
    memory = open_memory(tmp_path)
    Path(memory.path).mkdir()
    memory.save(now_ms=NOW_MS)
    assert list(tmp_path.iterdir()) == [Path(memory.path)]
