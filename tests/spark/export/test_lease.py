"""When two exports begin in the same folder at once, at most one continues."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from rmqcli.errors import RefusedError, StorageUnreachableError
from rmqcli.spark.export import lease
from rmqcli.spark.export.lease import ExportLease, LeaseFile


class Files:
    """Files in memory with modification times. `before_list` is called once, if set."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, float]] = {}
        self.now_s = 1000.0
        self.before_list = lambda: None
        self.is_down = False

    def exists(self, path):
        return path in self.files

    def remove(self, path):
        if self.is_down:
            raise StorageUnreachableError("down", place=path)
        self.files.pop(path, None)

    def read_text(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path][0]

    def put_text(self, path, text):
        self.files[path] = (text, self.now_s)

    def list_leases(self, folder):
        action, self.before_list = self.before_list, lambda: None
        action()
        return [LeaseFile(path, at) for path, (_, at) in self.files.items()]


def of(files) -> ExportLease:
    return ExportLease(files, "s3://b/x/_rmq/locks", root="s3://b/x")


def put_foreign(files, *, age_s=0.0, **owner) -> str:
    """Write the lease file of an export on another machine; return its path."""
    text = json.dumps({"process": 12, "host": "far", "machine": "m", **owner})
    files.files["s3://b/x/_rmq/locks/other.json"] = (text, files.now_s - age_s)
    return "s3://b/x/_rmq/locks/other.json"


def test_a_lease_is_a_file_until_it_is_released():
    files = Files()
    mine = of(files)
    mine.acquire()
    assert list(files.files) == [mine.path]
    mine.release()
    assert files.files == {}


def test_a_second_export_is_refused_and_leaves_no_lease():
    files = Files()
    first = of(files)
    first.acquire()
    with pytest.raises(RefusedError, match=f"process {os.getpid()} on") as raised:
        of(files).acquire()
    assert "try again in 60 s" in raised.value.hint
    assert list(files.files) == [first.path]
    first.release()


def test_at_most_one_of_two_simultaneous_exports_continues():
    files = Files()
    first, second = of(files), of(files)

    def begin_second():
        with pytest.raises(RefusedError):
            second.acquire()

    files.before_list = begin_second
    first.acquire()
    assert list(files.files) == [first.path]
    first.release()


@pytest.mark.parametrize(
    ("age_s", "hint"), [(0, "60 s"), (45.2, "15 s"), (59.9, "1 s")]
)
def test_the_lease_of_another_machine_counts_until_it_is_old(age_s, hint):
    files = Files()
    path = put_foreign(files, age_s=age_s)
    with pytest.raises(RefusedError, match="process 12 on far") as raised:
        of(files).acquire()
    assert raised.value.hint.endswith(f"try again in {hint}")
    assert list(files.files) == [path]


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"process": "x"}'])
def test_a_lease_without_an_owner_counts_until_it_is_old(text):
    files = Files()
    path = put_foreign(files, age_s=30)
    files.files[path] = (text, files.files[path][1])
    with pytest.raises(RefusedError, match="another export"):
        of(files).acquire()
    files.files[path] = (text, files.now_s - 61)
    mine = of(files)
    mine.acquire()
    assert list(files.files) == [mine.path]
    mine.release()


def test_an_old_lease_is_removed():
    files = Files()
    put_foreign(files, age_s=60)
    mine = of(files)
    mine.acquire()
    assert list(files.files) == [mine.path]
    mine.release()


def test_the_lease_of_an_ended_process_of_this_machine_is_removed_at_once():
    files = Files()
    with subprocess.Popen(["sleep", "100"]) as process:
        started = lease._start_time(process.pid)
        process.kill()
    assert started
    machine = lease._machine()
    put_foreign(files, machine=machine, process=process.pid, started=started)
    mine = of(files)
    mine.acquire()
    assert list(files.files) == [mine.path]
    mine.release()


def test_release_ignores_a_storage_that_is_down():
    files = Files()
    mine = of(files)
    mine.acquire()
    files.is_down = True
    mine.release()
    assert list(files.files) == [mine.path]


def test_the_owner_renews_its_lease_but_not_one_that_was_removed(monkeypatch):
    monkeypatch.setattr(lease, "BEAT_S", 0.001)
    files = Files()
    mine = of(files)
    mine.acquire()
    from tests.kit.waiting import wait_until

    files.now_s = 2000.0
    wait_until(lambda: files.files[mine.path][1] == 2000.0)

    def has_ended():
        # The owner may write the file again if it is removed after the owner's check.
        files.files.pop(mine.path, None)
        return not mine._thread.is_alive()

    wait_until(has_ended)
    mine.release()
    assert files.files == {}


@pytest.mark.parametrize(
    ("kill", "seen", "is_refused"),
    [
        (PermissionError, "", True),  # /proc hides it: hidepid=2
        (PermissionError, "7", True),
        (PermissionError, "8", False),  # another process has its number
        (ProcessLookupError, "7", False),
        (None, "7", True),
        (None, "", False),  # a zombie
    ],
)
def test_an_export_of_another_user_has_not_ended_because_it_cannot_be_seen(
    monkeypatch, kill, seen, is_refused
):
    """Its lease was removed, and it failed in the middle."""

    def look(process, signum):
        assert (process, signum) == (12, 0)
        if kill is not None:
            raise kill

    files = Files()
    put_foreign(files, machine="here", started="7")
    monkeypatch.setattr(lease, "_machine", lambda: "here")
    monkeypatch.setattr(lease, "_start_time", lambda _: seen)
    monkeypatch.setattr("os.kill", look)
    if is_refused:
        with pytest.raises(RefusedError):
            of(files).acquire()
    else:
        of(files).acquire()
