"""What an import records, and which records of earlier runs it goes on from."""

from __future__ import annotations

import json

import pytest

from rmqcli.errors import ConfigError, RefusedError, RmqError
from rmqcli.model import MessageQueue
from rmqcli.spark.export.disk import Disk
from rmqcli.spark.extent import NotedMessage
from rmqcli.spark.imports.state import ImportedQueue, open_state, read_state

PLACES = {
    ("broker-a", 0): MessageQueue("copy", "broker-b", 5),
    ("broker-a", 1): MessageQueue("copy", "broker-b", 6),
}
NAMESRV = ("it:1", "it:2")


def opened(path, places=None):
    return open_state(
        str(path),
        topic="copy",
        namesrv=NAMESRV,
        places=PLACES if places is None else places,
        disk=Disk(),
    )


@pytest.fixture
def path(tmp_path):
    """A state in which two batches of one queue are recorded."""
    path = tmp_path / "state" / "copy.json"
    with opened(path) as state:
        state.note(("broker-a", 1), next_offset=30, sent=20)
        last = NotedMessage(26, "0A00001", None)
        state.note(("broker-a", 1), next_offset=40, sent=7, last=last)
    return path


def test_a_later_run_goes_on_where_an_earlier_one_ended(path):
    with opened(path) as state:
        assert state.sent == 27
        assert state.queues[("broker-a", 1)].next_offset == 40
        assert state.queues[("broker-a", 0)] == ImportedQueue("broker-b", 5)
    reordered = read_state(str(path), namesrv=("it:2", "it:1"))
    assert reordered[("broker-a", 1)] == ImportedQueue(
        "broker-b",
        6,
        next_offset=40,
        sent=27,
        last=NotedMessage(26, "0A00001", None),
    )


def test_two_imports_cannot_use_one_state(path):
    with (
        opened(path),
        pytest.raises(RefusedError) as failure,
        opened(path),
    ):
        pass
    assert str(failure.value) == (
        f"another process is importing into topic copy with {path}"
    )
    with opened(path) as state:  # the lock ends with the block
        assert state.sent == 27


@pytest.mark.parametrize(
    ("places", "goes"),
    [
        (
            {("broker-a", 0): PLACES[("broker-a", 0)]},
            "but the export no longer has that queue",
        ),
        (
            {**PLACES, ("broker-a", 1): MessageQueue("copy", "broker-b", 4)},
            "but it would now be sent to broker-b:4",
        ),
        (
            {**PLACES, ("broker-a", 1): MessageQueue("copy", "broker-c", 6)},
            "but it would now be sent to broker-c:6",
        ),
    ],
)
def test_a_queue_that_would_go_elsewhere_is_refused(path, places, goes):
    with pytest.raises(RefusedError) as failure, opened(path, places):
        pass
    assert str(failure.value) == (
        f"an earlier run sent broker-a:1 to broker-b:6, {goes}"
    )


def test_a_state_of_an_earlier_version_has_no_last_message(path):
    document = json.loads(path.read_text())
    for queue in document["queues"]:
        del queue["last"]
    path.write_text(json.dumps(document))
    with opened(path) as state:
        assert state.queues[("broker-a", 1)] == ImportedQueue(
            "broker-b", 6, next_offset=40, sent=27
        )


@pytest.mark.parametrize(
    ("name", "value"), [("next_offset", -1), ("sent", -1), ("queue_id", "x")]
)
def test_a_state_with_impossible_numbers_is_damaged(path, name, value):
    document = json.loads(path.read_text())
    document["queues"][0][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="is not the state of an import"):
        read_state(str(path), namesrv=NAMESRV)


def test_a_state_may_begin_at_offset_0(path):
    document = json.loads(path.read_text())
    document["queues"][1].update(next_offset=0, sent=0, last=None)
    path.write_text(json.dumps(document))
    assert read_state(str(path), namesrv=NAMESRV)[("broker-a", 1)] == ImportedQueue(
        "broker-b", 6, next_offset=0, sent=0
    )


def test_a_place_that_is_no_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(RmqError) as failure,
        opened(tmp_path / "file" / "copy.json"),
    ):
        pass
    assert str(failure.value) == f"cannot write to {tmp_path / 'file'}: File exists"
    with pytest.raises(RmqError) as unreadable:
        read_state(str(tmp_path), namesrv=NAMESRV)
    assert str(unreadable.value) == f"cannot read {tmp_path}: Is a directory"


def test_a_batch_that_could_not_be_recorded_is_named(path):
    with opened(path) as state:
        path.unlink()
        path.mkdir()
        with pytest.raises(RmqError) as failure:
            state.note(("broker-a", 0), next_offset=1, sent=1)
    assert str(failure.value).startswith(f"cannot write {path}: ")
    assert "it does not record what was sent last: 1 message" in str(failure.value)
