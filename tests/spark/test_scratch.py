"""The next session removes scratch folders of killed processes, but not used ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqcli.spark.scratch import PREFIX, remove_abandoned, scratch_folder
from tests.spark.export.processes import PROJECT

OWNER = """
import sys
from rmqcli.spark.scratch import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temp(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def owner(temp):
    """Start another process that uses a scratch folder; return both."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "TMPDIR": str(temp)},
    )
    with process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        yield process, folder
        process.kill()


def test_the_folder_is_removed_after_its_block(temp):
    with scratch_folder() as folder:
        Path(folder, "inside").mkdir()
        assert Path(folder).parent == temp
    assert os.listdir(temp) == []


def test_the_folder_is_removed_after_a_block_that_failed(temp):
    with pytest.raises(ValueError, match=r"^no$"), scratch_folder():
        raise ValueError("no")
    assert os.listdir(temp) == []


def test_folder_of_a_killed_process_is_removed(temp, owner):
    process, folder = owner
    (folder / "blockmgr").mkdir()
    process.kill()
    process.wait()
    assert folder.is_dir()
    with scratch_folder() as mine:
        assert os.listdir(temp) == [Path(mine).name]


def test_folder_of_a_living_process_stays(temp, owner):
    _, folder = owner
    with scratch_folder() as mine:
        assert sorted(os.listdir(temp)) == sorted([folder.name, Path(mine).name])
    assert folder.is_dir()


def test_folder_of_this_process_stays(temp):
    with scratch_folder() as first, scratch_folder():
        assert Path(first).is_dir()


def test_folder_without_a_lock_stays(temp):
    (temp / f"{PREFIX}new").mkdir()
    remove_abandoned(str(temp))
    assert os.listdir(temp) == [f"{PREFIX}new"]


def test_link_is_not_followed(temp, tmp_path_factory):
    target = tmp_path_factory.mktemp("target")
    (target / "owner.lock").touch()
    (temp / f"{PREFIX}link").symlink_to(target)
    remove_abandoned(str(temp))
    assert (target / "owner.lock").exists()


def test_folder_of_another_user_stays(temp, monkeypatch):
    (temp / f"{PREFIX}theirs").mkdir()
    (temp / f"{PREFIX}theirs" / "owner.lock").touch()
    owner = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    remove_abandoned(str(temp))
    assert os.listdir(temp) == [f"{PREFIX}theirs"]


def test_no_temp_folder_is_no_error(tmp_path):
    remove_abandoned(str(tmp_path / "absent"))
